-- about: one record of a logger that no rule is about: counted, not stored
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  node INT COMMENT 'Node that wrote the record',
  hour TIMESTAMP COMMENT 'Hour of the record, UTC',
  logger STRING COMMENT 'Logger as printed',
  layout STRING COMMENT 'Layout that the header has',
  record BIGINT NOT NULL COMMENT 'Hash of its text, so that a copy is counted once'
) USING delta
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')
LOCATION '{location}'
COMMENT 'Out of scope: what coverage counts and nothing else reads'
