-- about: one run of the audit
CREATE TABLE IF NOT EXISTS {table} (
  run_id STRING NOT NULL COMMENT 'Identity of the run',
  started_at TIMESTAMP NOT NULL COMMENT 'Wall clock, UTC',
  finished_at TIMESTAMP COMMENT 'Wall clock, UTC',
  status STRING NOT NULL COMMENT 'clean, findings, input_problem or failed',
  records_read BIGINT NOT NULL COMMENT 'Records in the files, duplicates included',
  records_new BIGINT NOT NULL COMMENT 'Records in scope that were not known before',
  records_out_of_scope BIGINT NOT NULL COMMENT 'Records of loggers that no rule is about',
  rules_version STRING NOT NULL COMMENT 'Hash of all rule files',
  code_version STRING NOT NULL COMMENT 'Version of kafka-audit',
  parameters STRING NOT NULL COMMENT 'Arguments, JSON',
  tables_at STRING COMMENT 'Versions of findings and finding_subjects at the end of the run, JSON: an interrupted later run is reset to them; null: a run of an earlier version'
) USING delta
LOCATION '{location}'
COMMENT 'Ledger of the runs; the row is written last'
