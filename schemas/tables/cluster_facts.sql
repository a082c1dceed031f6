-- about: what the partitions of a cluster share, and how far its timelines go
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  facts STRING NOT NULL COMMENT 'Elections, starts of brokers, topic ids, files and what else all partitions share, JSON',
  code_version STRING NOT NULL COMMENT 'Semantics version of the timelines that wrote it; with another one, all timelines are rebuilt',
  events_version BIGINT NOT NULL COMMENT 'Version of the table events up to which the timelines go',
  passed_over_version BIGINT NOT NULL COMMENT 'Version of the table passed_over up to which coverage goes',
  asked STRING NOT NULL COMMENT 'Hash of the checks, thresholds, silences and the moment of its last findings',
  configured STRING NOT NULL COMMENT 'Its racks and topics in audit.toml that assignments and durability were computed with, JSON'
) USING delta
LOCATION '{location}'
COMMENT 'What the next run continues from; may be deleted, and is rebuilt'
