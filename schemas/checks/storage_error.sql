-- severity: error
-- harm: risk
-- concludes: records of the errors; that they are not those of a failed directory from no line of one.
-- needs: this_node
-- identity: node, kind of error
-- facts: errors, example, error_class, message
-- only: log_dir_failed
-- candidates: failed
WITH failed AS (
  SELECT cluster, incarnation, node, ts, record_id, error_class, error_message, left(regexp_extract(split_part(raw, '\n', 1), '(?:ERROR|FATAL|WARN) +(.*)', 1), 160) AS example FROM audited_events
  WHERE event_type = 'log_dir_failed' AND level IN ('ERROR', 'FATAL') AND item = 0
    -- log_loading_failed reports these
    AND NOT (node IS NOT NULL AND ts IS NOT NULL AND raw RLIKE 'error in one of the threads during logs loading|Error while loading logs? |reading checkpoint file')
)
SELECT
  f.cluster, f.incarnation,
  'error' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, f.node,
  min(f.ts) AS first_seen, max(f.ts) AS last_seen, false AS ended,
  count(*) AS errors,
  min_by(f.example, struct(f.ts, f.record_id)) AS example,
  min_by(f.error_class, struct(f.ts, f.record_id)) AS error_class,
  min_by(f.error_message, struct(f.ts, f.record_id)) AS message,
  concat_ws('|', f.node, f.error_class) AS thing,
  earliest_records(collect_list(struct(f.ts AS at, array(f.record_id) AS records))) AS evidence
FROM failed f
-- log_directory_failed reports errors that end with a failed directory
LEFT ANTI JOIN audited_events o ON o.cluster = f.cluster AND o.incarnation = f.incarnation AND o.node = f.node
  AND o.event_type IN ('log_dir_offline', 'replica_offline', 'log_offline', 'log_dirs_all_failed') AND coalesce(o.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts + INTERVAL 1 HOUR, true)
GROUP BY f.cluster, f.incarnation, f.node, f.error_class
