-- about: one deletion of one topic
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  requested_at TIMESTAMP COMMENT 'First line about the deletion',
  completed_at TIMESTAMP COMMENT 'When the controller called it completed; null: pending',
  blocked_by ARRAY<STRUCT<partition: INT, replica: INT>> COMMENT 'Replicas that could not be deleted at some moment of this deletion',
  blocked_since TIMESTAMP COMMENT 'When the first of them was found; null: never blocked',
  outcome STRING NOT NULL COMMENT 'completed, pending, or blocked (pending, and replicas that cannot be deleted are known)',
  record_id STRING COMMENT 'Record of that line',
  evidence ARRAY<STRING> COMMENT 'Records that show what blocked it'
) USING delta
LOCATION '{location}'
COMMENT 'Topic deletions and what delayed them'
