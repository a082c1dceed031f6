-- severity: error
-- harm: risk
-- levels: critical while all directories of a broker have failed, else an error.
-- concludes: a line of the failure; that it lasts from no line of a restart.
-- needs: this_node
-- identity: broker, directory
-- facts: directory, replicas, back_at
-- episodes: yes
-- also: subjects
-- only: log_dir_offline, replica_offline, log_offline, log_dirs_all_failed
WITH failures AS (
  SELECT cluster, incarnation, node, ts, record_no, record_id, event_type, topic, partition, path AS dir FROM audited_events
  WHERE event_type IN ('log_dir_offline', 'replica_offline', 'log_offline') AND node IS NOT NULL AND path IS NOT NULL
  UNION ALL
  -- the broker stops when its last directory fails, or the one with the metadata log
  SELECT cluster, incarnation, node, ts, record_no, record_id, event_type, CAST(NULL AS STRING), CAST(NULL AS INT),
    CASE WHEN path IS NULL AND raw RLIKE 'all log dirs|none of the specified' THEN 'all_directories' ELSE coalesce(path, text) END
  FROM audited_events WHERE event_type = 'log_dirs_all_failed' AND node IS NOT NULL
), failed AS (
  SELECT s.cluster, s.incarnation, s.node, s.dir, min(s.ts) AS since, max(s.ts) AS last_failure, bool_or(s.event_type = 'log_dirs_all_failed') AS whole,
    min_by(s.record_id, struct(s.ts, s.record_no)) AS first_record, earliest_records(collect_list(struct(s.ts AS at, array(s.record_id) AS records))) AS evidence,
    collect_set(CASE WHEN s.topic IS NOT NULL THEN struct(s.topic, s.partition) END) AS partitions
  FROM failures s
  -- failures before and after a restart are separate
  LEFT JOIN audited_broker_outages o ON o.cluster = s.cluster AND o.incarnation = s.incarnation AND o.broker = s.node AND o.until <= s.ts
  GROUP BY s.cluster, s.incarnation, s.node, s.dir, o.until
), back AS (
  SELECT f.*, min(o.until) AS until
  FROM failed f
  LEFT JOIN audited_broker_outages o ON o.cluster = f.cluster AND o.incarnation = f.incarnation AND o.broker = f.node AND o.starting_at > f.last_failure
  GROUP BY ALL
)
SELECT
  b.cluster, b.incarnation,
  CASE WHEN b.whole AND b.until IS NULL THEN 'critical' ELSE 'error' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, b.node,
  b.since AS first_seen, coalesce(b.until, k.now) AS last_seen, b.until IS NOT NULL AS ended,
  b.dir AS directory,
  size(b.partitions) AS replicas,
  b.until AS back_at,
  concat_ws('|', b.node, b.dir) AS thing,
  b.evidence,
  transform(b.partitions, h -> struct(h.topic, h.partition, b.node AS replica, b.since, b.until)) AS subjects
FROM back b
-- a failure ends with its cluster, where a later one has the same name
JOIN clocks k ON k.cluster = b.cluster AND (b.until IS NOT NULL OR k.incarnation = b.incarnation)
