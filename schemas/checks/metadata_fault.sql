-- severity: error
-- levels: an error; a warning where one node lost the end of its own log, which it fetches again.
-- harm: protocol
-- concludes: records of the fault.
-- needs: lines
-- identity: node, kind of fault
-- facts: kind, faults, example, error_class, message
-- only: metadata_replay_failed, metadata_error, metadata_snapshot_failed, snapshot_failed, fault_encountered, raft_data_lost, isr_and_elr_overlapped,
--   metadata_apply_failed
-- candidates: faults
WITH starts AS (
  SELECT cluster, node, ts FROM audited_events WHERE event_type = 'broker_start_failed' AND node IS NOT NULL AND ts IS NOT NULL AND item = 0
), faults AS (
  SELECT e.cluster, e.incarnation, e.node, e.ts, e.record_id, e.event_type, e.replica, e.error_class, e.error_message,
    left(regexp_replace(regexp_extract(split_part(e.raw, '\n', 1), '(?:ERROR|FATAL|WARN) +(.*)', 1), ' ?[(][A-Za-z0-9_.$]+[)]$', ''), 200) AS example
  FROM audited_events e
  -- the fault handler also logs what ends a start; broker_cannot_start reports that
  LEFT JOIN starts s ON e.event_type = 'fault_encountered' AND s.cluster = e.cluster AND s.node = e.node
    AND s.ts BETWEEN e.ts - INTERVAL 1 MINUTE AND e.ts + INTERVAL 1 MINUTE
  WHERE e.event_type IN ('metadata_replay_failed', 'metadata_error', 'metadata_snapshot_failed', 'snapshot_failed', 'fault_encountered', 'raft_data_lost',
      'isr_and_elr_overlapped', 'metadata_apply_failed')
    AND e.item = 0 AND (e.level IN ('ERROR', 'FATAL') OR e.event_type = 'raft_data_lost') AND s.ts IS NULL
)
SELECT
  f.cluster, f.incarnation,
  CASE WHEN f.replica IS NULL THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, coalesce(f.replica, f.node) AS node,
  min(f.ts) AS first_seen, max(f.ts) AS last_seen, false AS ended,
  -- the node's activity, from the text of the fault handler
  CASE
    WHEN f.replica IS NOT NULL THEN 'cut'
    WHEN f.event_type = 'raft_data_lost' THEN 'lost'
    WHEN f.event_type = 'metadata_snapshot_failed' OR f.event_type = 'snapshot_failed' THEN 'snapshot'
    WHEN f.event_type = 'metadata_replay_failed' THEN 'loading'
    WHEN bool_and(f.example LIKE '%metadata loading fault%' OR f.example RLIKE 'MetadataLoader|replaying|loading metadata|snapshot') THEN 'loading'
    WHEN bool_and(f.example LIKE '%metadata publishing fault%') THEN 'publishing'
    ELSE 'other' END AS kind,
  count(*) AS faults,
  min_by(f.example, struct(f.ts, f.record_id)) AS example,
  min_by(f.error_class, struct(f.ts, f.record_id)) AS error_class,
  min_by(f.error_message, struct(f.ts, f.record_id)) AS message,
  concat_ws('|', coalesce(f.replica, f.node), f.event_type) AS thing,
  earliest_records(collect_list(struct(f.ts AS at, array(f.record_id) AS records))) AS evidence
FROM faults f
GROUP BY f.cluster, f.incarnation, coalesce(f.replica, f.node), f.event_type, f.replica
