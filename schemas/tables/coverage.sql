-- about: what one node's logs of one hour can show
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  node INT COMMENT 'Node; null: the lines do not say',
  hour TIMESTAMP COMMENT 'Hour, UTC; null: records without a time stamp',
  logger STRING COMMENT 'Logger; null: the header was not understood',
  records BIGINT NOT NULL COMMENT 'Records of that logger in that hour',
  recognised BIGINT NOT NULL COMMENT 'of them claimed by a rule',
  unrecognised BIGINT NOT NULL COMMENT 'of them known to no rule',
  drifted BIGINT NOT NULL COMMENT 'of them known by their beginning only: the wording has changed',
  out_of_scope BIGINT NOT NULL COMMENT 'of them counted, but not stored: no rule is about this logger',
  layouts MAP<STRING, BIGINT> COMMENT 'of them by layout; under - those whose header was not understood',
  replica_states STRING NOT NULL COMMENT 'observed (TRACE lines), inferable (from INFO and DEBUG lines), not_logged, or no_file',
  partition_changes STRING NOT NULL COMMENT 'observed, inferable, not_logged, or no_file'
) USING delta
LOCATION '{location}'
COMMENT 'What these logs can show, and what they cannot'
