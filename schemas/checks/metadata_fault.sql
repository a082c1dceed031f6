-- severity: error
-- harm: protocol
-- title: Metadata could not be loaded, published or written
-- concludes: records of the fault.
-- needs: lines
-- why: A KRaft node met a fault while it replayed, published or snapshotted the metadata log, or saw that the quorum lost data. From then on it may act on
--   an older or a wrong picture of the cluster (partitions that it does not start, topics that it does not know) until it is restarted.
-- do: Read the exception. Restart the node once, and compare what it knows with the others (kafka-metadata-quorum describe --status, kafka-metadata-shell on a
--   snapshot). Do not delete __cluster_metadata of a node while others are down.
-- same: node, kind of fault
-- only: metadata_replay_failed, metadata_error, metadata_snapshot_failed, snapshot_failed, fault_encountered, raft_data_lost, isr_and_elr_overlapped,
--   metadata_apply_failed
-- candidates: faults
WITH faults AS (
  SELECT cluster, incarnation, node, ts, record_id, event_type, error_class, error_message, left(regexp_extract(split_part(raw, '\n', 1), '(?:ERROR|FATAL|WARN) +(.*)', 1), 200) AS example
  FROM audited_events
  WHERE event_type IN ('metadata_replay_failed', 'metadata_error', 'metadata_snapshot_failed', 'snapshot_failed', 'fault_encountered', 'raft_data_lost',
      'isr_and_elr_overlapped', 'metadata_apply_failed')
    AND item = 0 AND (level IN ('ERROR', 'FATAL') OR event_type = 'raft_data_lost')
)
SELECT
  f.cluster, f.incarnation, 'error' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, f.node, min(f.ts) AS first_seen, max(f.ts) AS last_seen, false AS ended,
  concat(counted(count(*), 'fault'), coalesce(concat(' of node ', f.node), '')) AS thing,
  concat(coalesce(concat('Node ', f.node), 'A node'), ' logged ', counted(count(*), 'fault'), coalesce(concat(' from ', date_format(min(f.ts), 'yyyy-MM-dd HH:mm:ss'), ' to ', date_format(max(f.ts), 'yyyy-MM-dd HH:mm:ss')), ''),
         '; the first: ', min_by(f.example, struct(f.ts, f.record_id)), coalesce(concat(' (', min_by(f.error_class, struct(f.ts, f.record_id)), coalesce(concat(': ', left(min_by(f.error_message, struct(f.ts, f.record_id)), 200)), ''), ')'), ''), '.') AS detail,
  concat_ws('|', f.node, f.event_type) AS same,
  earliest_records(collect_list(struct(f.ts AS at, array(f.record_id) AS records))) AS evidence
FROM faults f
GROUP BY f.cluster, f.incarnation, f.node, f.event_type
