-- about: one violated check on one thing
CREATE TABLE IF NOT EXISTS {table} (
  run_id STRING NOT NULL COMMENT 'Run that last changed the row',
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  check_id STRING NOT NULL COMMENT 'Check that is violated: the file of that name in schemas/checks',
  severity STRING NOT NULL COMMENT 'critical, error, warning or info',
  status STRING NOT NULL COMMENT 'new: first seen by this run; open: seen before and still so; resolved: no longer so; reopened: resolved before, and so again',
  topic STRING COMMENT 'Topic name, where it applies',
  partition INT COMMENT 'Partition id, where it applies',
  replica INT COMMENT 'Broker id of the replica, where it applies',
  node INT COMMENT 'Broker, where it applies',
  first_seen TIMESTAMP COMMENT 'When it began, by the logs, as early as any run has found it; null: no time stamps',
  last_seen TIMESTAMP COMMENT 'When it ended, or the newest moment of the logs at which it was still so',
  title STRING NOT NULL COMMENT 'What is wrong, one line',
  detail STRING COMMENT 'What the logs show about it',
  advice STRING COMMENT 'What to do about it, and what not; the commands are those of the version and mode of the cluster',
  fingerprint STRING NOT NULL COMMENT 'Identity of the finding across runs',
  thing STRING COMMENT 'What distinguishes two findings of the check, without a time',
  known_as STRING COMMENT 'Fingerprint under which it was reported first, where late records have changed it since; alerts keep it. Null: it has not changed',
  evidence ARRAY<STRING> NOT NULL COMMENT 'record_id of the records that prove it',
  caused_by STRING COMMENT 'Fingerprint of the finding that this one follows from; null: none is known',
  silenced BOOLEAN COMMENT 'A silence of audit.toml matches: no sink is notified, and it does not count for --fail-on',
  silence STRING COMMENT 'Why, until when and by whom it is silenced'
) USING delta
LOCATION '{location}'
COMMENT 'What was illegal, stuck, lost or risky; every row names its proof'
