-- about: the last known state of every partition; source: logs, or the tool that listed a partition which the logs do not have
CREATE OR REPLACE TEMPORARY VIEW partitions_now AS
SELECT cluster, topic, partition, leader, leader_epoch, isr, replicas, adding_replicas, removing_replicas, state, valid_from AS since, source
FROM partition_timeline
WHERE valid_to IS NULL AND coalesce(state, '') <> 'NonExistentPartition'
UNION ALL
SELECT cluster, topic, partition, leader, leader_epoch, isr, replicas, adding_replicas, removing_replicas,
  CASE WHEN leader = -1 THEN 'OfflinePartition' WHEN leader >= 0 THEN 'OnlinePartition' END, taken_at, source
FROM (SELECT *, row_number() OVER (PARTITION BY cluster, topic, partition ORDER BY taken_at DESC, file) AS n FROM checkpoints) c
WHERE n = 1
  AND NOT EXISTS (SELECT 1 FROM partition_timeline t WHERE t.cluster = c.cluster AND t.topic = c.topic AND t.partition = c.partition)
