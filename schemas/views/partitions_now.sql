-- about: the last known state of every partition
CREATE OR REPLACE TEMPORARY VIEW partitions_now AS
SELECT cluster, topic, partition, leader, leader_epoch, isr, replicas, adding_replicas, removing_replicas, state, valid_from AS since
FROM partition_timeline
WHERE valid_to IS NULL AND coalesce(state, '') <> 'NonExistentPartition'
