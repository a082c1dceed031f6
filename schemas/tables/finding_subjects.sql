-- about: a partition or replica that a finding is about
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  fingerprint STRING NOT NULL COMMENT 'Finding',
  topic STRING NOT NULL COMMENT 'Topic name',
  partition INT NOT NULL COMMENT 'Partition id',
  replica INT COMMENT 'Broker id of the replica; null: the partition as a whole',
  since TIMESTAMP COMMENT 'When it began for this one',
  until TIMESTAMP COMMENT 'When it ended for this one; null: still so, or not known'
) USING delta
LOCATION '{location}'
COMMENT 'What each finding is about, one by one'
