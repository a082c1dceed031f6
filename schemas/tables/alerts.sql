-- about: one attempt to notify a sink of one finding; the newest row of (cluster, fingerprint, sink, state, occurrence) counts
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  fingerprint STRING NOT NULL COMMENT 'Identity of the finding',
  sink STRING NOT NULL COMMENT 'Name of the [[alert]] in audit.toml',
  state STRING NOT NULL COMMENT 'firing or resolved',
  occurrence INT NOT NULL COMMENT '1, 2, ..: increases whenever the finding is reopened',
  tried_at TIMESTAMP NOT NULL COMMENT 'Wall clock of the attempt, UTC',
  attempts INT NOT NULL COMMENT 'Attempts so far, one a run',
  delivered_at TIMESTAMP COMMENT 'Wall clock, UTC; null: not delivered, the next run tries again',
  error STRING COMMENT 'Why it failed; null: it did not',
  digest STRING COMMENT 'Key of the digest that it was in; null: it had its own message',
  labels STRING COMMENT 'Labels that Alertmanager knows it by, JSON'
) USING delta
LOCATION '{location}'
COMMENT 'Outbox: each (fingerprint, sink, state, occurrence) is delivered once'
TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')
