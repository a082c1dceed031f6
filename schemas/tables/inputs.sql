-- about: one file that the last run over its cluster was given: how it was read, and what became of each of its lines
CREATE TABLE IF NOT EXISTS {table} (
  run_id STRING NOT NULL COMMENT 'Run that was given it',
  cluster STRING NOT NULL COMMENT 'Cluster',
  file STRING NOT NULL COMMENT 'Path or URI, and behind !/ the path inside of an archive; - is standard input',
  files BIGINT NOT NULL COMMENT 'Number of files that the row counts: one row names the first of all empty files, or of further files without a log record',
  kind STRING NOT NULL COMMENT 'log; bare (a log without time stamps); checkpoint (output of one of Kafka''s tools); empty; unrelated; skipped; unreadable',
  read_as STRING COMMENT 'What it is packed in, and the layout of its first record; null: it was not read',
  node INT COMMENT 'Node that the file is of; null: not known, or each line names its own',
  bytes BIGINT NOT NULL COMMENT 'Size of its text',
  lines BIGINT COMMENT 'Lines of it = records + other_records + continuation_lines + lines_without_record; null: it was not read',
  records BIGINT COMMENT 'Records of Kafka that begin in it, also those of loggers out of scope and of other days',
  other_records BIGINT COMMENT 'Records that another program has written',
  continuation_lines BIGINT COMMENT 'Further lines of records, and pieces of lines that a collector has cut',
  lines_without_record BIGINT COMMENT 'Lines that belong to no record',
  cut_records BIGINT COMMENT 'Records that were cut because they are too long (events.cut_bytes)',
  reason STRING COMMENT 'Why it was not read, or what it looks like'
) USING delta
LOCATION '{location}'
COMMENT 'Every file that was given is in it, and every line is counted once'
TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')
