-- about: one thing that one log record says; a record that names ten partitions gives ten rows
-- needs: ends_file
CREATE TABLE IF NOT EXISTS {table} (
  record_id STRING NOT NULL COMMENT 'Hash of cluster, node, text and its number among equal texts of one file: the same for the same record wherever it is copied',
  item INT NOT NULL COMMENT 'Number of the row among those of one record, from 0',
  cluster STRING NOT NULL COMMENT 'Cluster that the logs were given for',
  incarnation INT NOT NULL COMMENT '1, 2, ..: a cluster that was wiped and set up again under the same name starts a new one',
  node INT COMMENT 'Broker id of the node that wrote the record',
  file STRING NOT NULL COMMENT 'File that the record was first read from',
  record_no BIGINT NOT NULL COMMENT 'Line of that file on which the record begins, from 1',
  ts TIMESTAMP COMMENT 'Time stamp of the record, UTC, milliseconds; null where the layout prints none',
  level STRING COMMENT 'log4j level',
  logger STRING COMMENT 'Logger; in full where the layout abbreviates it and rules are about it',
  layout STRING COMMENT 'Layout that the header has',
  event_type STRING COMMENT 'Rule that claims the record; null: not recognised, or drifted; checkpoint: no record, a line that a tool printed',
  says STRING COMMENT 'happened: the state is now this; requested: an intent or a message; failed: nothing changed; is: a report of the state',
  drifted BOOLEAN NOT NULL COMMENT 'A rule knows the beginning of the text, but its pattern does not match',
{vocabulary},
  error_class STRING COMMENT 'Class of the exception that follows the line',
  error_message STRING COMMENT 'Message of that exception',
  statement STRING COMMENT 'Where event_type is null: the statement that no rule matches, without header and log ident, the first 2,000 characters',
  raw STRING COMMENT 'The whole record with its stack trace; a record of 10,000 characters and more is stored with its item 0 only',
  cut_bytes BIGINT COMMENT 'Bytes that raw and all other columns lack: the record had a line of more than 1 MB, or further lines beyond 4 MB or 20,000 lines; null: it is whole',
  ends_file BOOLEAN COMMENT 'True for the last record of its file when that was read: its stack trace may have been cut off; else null'
) USING delta
-- what queries skip files by: smallest and largest values of 30 more columns took as long as writing them
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'cluster,ts', 'delta.enableChangeDataFeed' = 'true')
LOCATION '{location}'
COMMENT 'What the logs say: one row a record and item, never changed but for the incarnation, and where a record was cut short and is whole now'
