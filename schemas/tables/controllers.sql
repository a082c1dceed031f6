-- about: one term of one controller
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  node INT COMMENT 'Broker id of the controller',
  controller_epoch INT COMMENT 'Controller epoch',
  elected_at TIMESTAMP COMMENT 'When it was elected, by its own line (KRaft: that it leads the quorum, or became active); null: no log has that line, or no time stamps',
  resigned_at TIMESTAMP COMMENT 'When it logged that it resigned (KRaft: renounced, or left the state Leader); null: it did not (killed, still controller, or no log)',
  inferred BOOLEAN NOT NULL COMMENT 'The election is in no log; the term is known from lines written in its epoch',
  record_id STRING COMMENT 'Record of the election, or the first one of that epoch',
  overruled BIGINT COMMENT 'Lines about partitions and replicas that it logged after the election of its successor; the timelines leave them out'
) USING delta
LOCATION '{location}'
COMMENT 'Who was controller, and when'
