-- about: a break in the states of a replica or partition: a line names another state to begin with than the one before left
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  partition INT NOT NULL COMMENT 'Partition id',
  replica INT COMMENT 'Broker id of the replica; null: the break is in the states of the partition itself',
  at TIMESTAMP COMMENT 'Moment of the line; null: no time stamps',
  node INT COMMENT 'Controller that wrote the line',
  controller_epoch INT COMMENT 'Its controller epoch; null: the line does not name it',
  held_state STRING NOT NULL COMMENT 'State that the newest line before it left; of a duplicate, the line that it repeats',
  held_since TIMESTAMP COMMENT 'Moment of that line',
  found_state STRING NOT NULL COMMENT 'State that the line names to begin with',
  cause STRING NOT NULL COMMENT 'duplicate: the same change from another copy, or logged again by the same controller within a second; wiped_cluster: set up again, and no line shows when; other_controller: a new controller began with what it found; level: what was between is not printed at the level of that log; hours_without_file: hours between of which there is no state-change log of that node; file_missing: part of its log is missing, an hour or less',
  record_id STRING NOT NULL COMMENT 'Record of the line',
  held_record_id STRING NOT NULL COMMENT 'Record of the line before it'
) USING delta
LOCATION '{location}'
COMMENT 'Where the logged states of replicas and partitions do not follow one another, and why'
