-- about: an interval in which nothing about a partition changed
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  partition INT NOT NULL COMMENT 'Partition id',
  step INT NOT NULL COMMENT '1, 2, 3 .. in order, also where the log has no time stamps',
  valid_from TIMESTAMP COMMENT 'Begin of the interval; null: before these logs begin, or no time stamps',
  valid_to TIMESTAMP COMMENT 'End of the interval; null: still so',
  leader INT COMMENT 'Broker id of the leader; -1 = none',
  leader_epoch INT COMMENT 'Leader epoch',
  isr ARRAY<INT> COMMENT 'In-sync replicas, logged order; compare as sets',
  partition_epoch INT COMMENT 'Partition epoch; zkVersion in ZooKeeper mode',
  replicas ARRAY<INT> COMMENT 'Assigned replicas (RS), logged order; the first is the preferred leader',
  adding_replicas ARRAY<INT> COMMENT 'Replicas that a running reassignment adds (AR)',
  removing_replicas ARRAY<INT> COMMENT 'Replicas that a running reassignment removes (RR)',
  state STRING COMMENT 'NewPartition, OnlinePartition, OfflinePartition or NonExistentPartition',
  reassignment_phase STRING COMMENT 'U: assignment updated; A: replicas catch up; B: caught up, roles change hands; null: no reassignment, or one that only a tool printed',
  inferred BOOLEAN NOT NULL COMMENT 'A value of the row is derived; false: every value is in a log line or in the output of a tool',
  record_id STRING COMMENT 'Record that began the interval',
  source STRING COMMENT 'logs: put together from text logs; metadata_log: from a dump of the KRaft metadata log, which is exact; describe, zookeeper, metadata_shell, reassign: the output of a tool (checkpoints), before the first log line about the partition',
  settled BOOLEAN NOT NULL COMMENT 'Final: no record in the order of time changes the row; false: the next run replaces it'
) USING delta
PARTITIONED BY (cluster, settled)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'topic,valid_to', 'delta.randomizeFilePrefixes' = 'true')
LOCATION '{location}'
COMMENT 'Who led, what was in sync and what was assigned, for every partition at every moment'
