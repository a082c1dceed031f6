-- severity: error
-- levels: an error where logs could not be loaded and the node did not serve later; else a warning.
-- harm: risk
-- concludes: records of the failure; that the node did not serve later from no line of it in its own log.
-- needs: this_node
-- identity: node, kind of file, directory
-- facts: kind, file, times, example, error_class, message, served_at
-- also: subjects
-- only: log_dir_failed, log_corrupted, raft_request_failed, raft_log_maintained
-- candidates: failed
WITH failed AS (
  SELECT cluster, incarnation, node, ts, record_id, topic, partition, path, error_class, error_message, left(split_part(raw, '\n', 1), 1000) AS line,
    left(regexp_replace(regexp_extract(split_part(raw, '\n', 1), '(?:ERROR|FATAL|WARN) +(.*)', 1), ' ?[(][A-Za-z0-9_.$]+[)]$', ''), 200) AS example,
    CASE
      WHEN event_type = 'log_dir_failed' AND level IN ('ERROR', 'FATAL') AND raw RLIKE 'error in one of the threads during logs loading|Error while loading logs? ' THEN 'logs'
      WHEN event_type = 'log_dir_failed' AND raw RLIKE 'reading (?:checkpoint file|recovery-point-offset-checkpoint|log-start-offset-checkpoint)' THEN 'checkpoint'
      WHEN event_type = 'log_corrupted' AND raw LIKE '%Deleting all segments because logEndOffset%' THEN 'segments'
      WHEN event_type = 'raft_request_failed' AND raw LIKE '%quorum state store after error loading%' THEN 'votes'
      WHEN event_type = 'raft_log_maintained' AND raw LIKE '%expected to find snapshot file%' THEN 'snapshot'
    END AS kind
  FROM audited_events
  WHERE event_type IN ('log_dir_failed', 'log_corrupted', 'raft_request_failed', 'raft_log_maintained') AND node IS NOT NULL AND ts IS NOT NULL AND item = 0
), named AS (
  -- lines about one directory or file are one failure
  SELECT *, coalesce(path, nullif(regexp_extract(line, '(?:directory |log dir |file )(/[^ ,;]+)', 1), '')) AS file FROM failed WHERE kind IS NOT NULL
), ends AS (
  SELECT n.cluster, n.incarnation, n.node, n.kind, n.ts, n.record_id, n.topic, n.partition, n.file, n.error_class, n.error_message, n.example, min(s.until) AS until
  FROM named n LEFT JOIN serving s ON s.cluster = n.cluster AND s.broker = n.node AND s.until > n.ts
  GROUP BY ALL
)
SELECT
  e.cluster, e.incarnation,
  CASE WHEN e.kind = 'logs' AND bool_or(e.until IS NULL) THEN 'error' ELSE 'warning' END AS severity,
  CASE WHEN count(DISTINCT e.topic) = 1 THEN min(e.topic) END AS topic, CASE WHEN count(DISTINCT struct(e.topic, e.partition)) = 1 THEN min(e.partition) END AS partition,
  CAST(NULL AS INT) AS replica, e.node,
  min(e.ts) AS first_seen, coalesce(CASE WHEN bool_and(e.until IS NOT NULL) THEN max(e.until) END, max(e.ts)) AS last_seen, bool_and(e.until IS NOT NULL) AS ended,
  e.kind,
  min_by(e.file, struct(e.ts, e.record_id)) FILTER (WHERE e.file IS NOT NULL) AS file,
  count(*) AS times,
  min_by(e.example, struct(e.ts, e.record_id)) AS example,
  min_by(e.error_class, struct(e.ts, e.record_id)) FILTER (WHERE e.error_class IS NOT NULL) AS error_class,
  min_by(e.error_message, struct(e.ts, e.record_id)) FILTER (WHERE e.error_message IS NOT NULL) AS message,
  CASE WHEN bool_and(e.until IS NOT NULL) THEN max(e.until) END AS served_at,
  concat_ws('|', e.node, e.kind) AS thing,
  earliest_records(collect_list(struct(e.ts AS at, array(e.record_id) AS records))) AS evidence,
  collect_list(CASE WHEN e.kind = 'segments' AND e.partition IS NOT NULL THEN struct(e.topic, e.partition, e.node AS replica, e.ts AS since, e.ts AS until) END) AS subjects
FROM ends e
GROUP BY e.cluster, e.incarnation, e.node, e.kind
