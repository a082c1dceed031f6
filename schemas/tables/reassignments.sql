-- about: one reassignment of one partition
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  partition INT NOT NULL COMMENT 'Partition id',
  started_at TIMESTAMP COMMENT 'When the new assignment was written, or the request for one refused; null: no time stamps',
  caught_up_at TIMESTAMP COMMENT 'When all target replicas were in the ISR, as the controller says',
  completed_at TIMESTAMP COMMENT 'When adding and removing replicas became empty; null: it is running, or did not complete',
  original_replicas ARRAY<INT> COMMENT 'Replicas before (ORS)',
  target_replicas ARRAY<INT> COMMENT 'Target replicas (TRS)',
  adding_replicas ARRAY<INT> COMMENT 'Replicas added (AR)',
  removing_replicas ARRAY<INT> COMMENT 'Replicas removed (RR)',
  outcome STRING NOT NULL COMMENT 'completed, cancelled, replaced (by another reassignment), in_progress, or never_started (the controller refused)',
  record_id STRING COMMENT 'Record that began the reassignment, or refused it',
  settled BOOLEAN NOT NULL COMMENT 'Final: no record in the order of time changes the row; false: the next run replaces it'
) USING delta
PARTITIONED BY (cluster, settled)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'topic,started_at', 'delta.randomizeFilePrefixes' = 'true')
LOCATION '{location}'
COMMENT 'Partition reassignments from start to end'
