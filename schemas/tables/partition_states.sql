-- about: the state of a partition from which the next run continues its timeline
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  partition INT NOT NULL COMMENT 'Partition id',
  state STRING NOT NULL COMMENT 'State that later events depend on, JSON; only the version of the code that wrote it can read it',
  brokers ARRAY<INT> NOT NULL COMMENT 'Brokers whose starts and registrations matter to the partition',
  breaks STRING COMMENT 'Where its logged states do not follow one another, JSON; null: nowhere',
  code_version STRING NOT NULL COMMENT 'Semantics version of the timelines that wrote it; with another one, all timelines are rebuilt',
  events_version BIGINT NOT NULL COMMENT 'Version of the table events up to which its events are in it'
) USING delta
PARTITIONED BY (cluster)
TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '4', 'delta.randomizeFilePrefixes' = 'true')
LOCATION '{location}'
COMMENT 'What the next run continues from; may be deleted, and is rebuilt'
