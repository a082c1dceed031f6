-- about: an interval in which a replica was in one state
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  partition INT NOT NULL COMMENT 'Partition id',
  replica INT NOT NULL COMMENT 'Broker id of the replica',
  step INT NOT NULL COMMENT '1, 2, 3 .. in order',
  valid_from TIMESTAMP COMMENT 'Begin of the interval; null: before these logs begin, or no time stamps',
  valid_to TIMESTAMP COMMENT 'End of the interval; null: still so',
  state STRING NOT NULL COMMENT 'State of the controller''s replica state machine, NewReplica .. NonExistentReplica; in KRaft, which has none, the state of the replica''s broker: KRaftOnline (unfenced), KRaftFenced, KRaftControlledShutdown, KRaftUnregistered, or KRaftRemoved (no replica of the partition any more)',
  in_isr BOOLEAN COMMENT 'Whether the replica was in the ISR at the end of the interval (now, where it is open); null: ISR not known',
  inferred BOOLEAN NOT NULL COMMENT 'The state is derived from other lines; false: a line says it',
  record_id STRING COMMENT 'Record that began the interval',
  settled BOOLEAN NOT NULL COMMENT 'Final: no record in the order of time changes the row; false: the next run replaces it'
) USING delta
PARTITIONED BY (cluster, settled)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'topic,valid_to', 'delta.randomizeFilePrefixes' = 'true')
LOCATION '{location}'
COMMENT 'The state of every replica in the controller'
