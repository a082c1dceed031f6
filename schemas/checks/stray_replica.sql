-- severity: warning
-- harm: housekeeping
-- concludes: a line of a folder that is left; that it is still there from no line of a deletion.
-- needs: this_node
-- identity: broker
-- facts: replicas, partitions, first_partition
-- also: subjects
-- only: stray_log_found, stray_log_renamed, stray_partitions_found, log_delete_failed, stop_replica_ignored
-- candidates: left_behind
WITH left_behind AS (
  SELECT cluster, incarnation, node, topic, partition, max(ts) AS ts, earliest_records(collect_list(struct(ts AS at, array(record_id) AS records))) AS records
  FROM audited_events
  WHERE topic IS NOT NULL AND node IS NOT NULL AND item >= 0
    AND (event_type IN ('stray_log_found', 'stray_log_renamed', 'stray_partitions_found', 'log_delete_failed')
         OR event_type = 'stop_replica_ignored' AND deletes AND coalesce(controller_epoch >= latest_controller_epoch, true))
  GROUP BY cluster, incarnation, node, topic, partition
), removed AS (
  SELECT cluster, incarnation, node, topic, partition, max(ts) AS ts FROM audited_events
  WHERE event_type IN ('log_deletion_scheduled', 'log_deleted') GROUP BY cluster, incarnation, node, topic, partition
)
SELECT
  s.cluster, s.incarnation,
  'warning' AS severity,
  CASE WHEN count(DISTINCT s.topic) = 1 THEN min(s.topic) END AS topic, CASE WHEN count(*) = 1 THEN min(s.partition) END AS partition, s.node AS replica, s.node,
  min(s.ts) AS first_seen, max(s.ts) AS last_seen, false AS ended,
  count(*) AS replicas,
  slice(array_sort(collect_list(concat(s.topic, '-', s.partition))), 1, 10) AS partitions,
  min(concat(s.topic, '-', s.partition)) AS first_partition,
  CAST(s.node AS STRING) AS thing,
  earliest_records(collect_list(struct(s.ts AS at, s.records AS records))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.node AS replica, s.ts AS since, CAST(NULL AS TIMESTAMP) AS until)) AS subjects
FROM left_behind s
-- an earlier cluster of that name has ended
JOIN clocks k ON k.cluster = s.cluster AND k.incarnation = s.incarnation
-- topic_deletion_blocked reports deletions that wait
LEFT ANTI JOIN audited_topic_deletions d ON d.cluster = s.cluster AND d.incarnation = s.incarnation AND d.topic = s.topic AND d.outcome <> 'completed'
LEFT ANTI JOIN removed r ON r.cluster = s.cluster AND r.incarnation = s.incarnation AND r.node = s.node AND r.topic = s.topic AND r.partition = s.partition
  AND r.ts >= s.ts - INTERVAL 1 MINUTE
-- the broker was assigned the replica again
LEFT ANTI JOIN audited_partitions_now p ON p.cluster = s.cluster AND p.incarnation = s.incarnation AND p.topic = s.topic AND p.partition = s.partition
  AND coalesce(p.state, '') <> 'NonExistentPartition' AND array_contains(p.replicas, s.node)
GROUP BY s.cluster, s.incarnation, s.node
