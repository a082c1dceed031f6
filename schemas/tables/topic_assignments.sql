-- about: a topic's assignment from one reassignment to the next
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  valid_from TIMESTAMP COMMENT 'When the assignment was so, with no partition being reassigned; null: before these logs begin, or no time stamps',
  valid_to TIMESTAMP COMMENT 'When it began to be another one; null: still so',
  cause STRING NOT NULL COMMENT 'created, partitions_added, reassigned, or found (as it was when the logs begin)',
  partitions INT NOT NULL COMMENT 'Number of partitions',
  replication_factor INT COMMENT 'Replicas of each partition; null where partitions differ',
  placement STRING NOT NULL COMMENT 'kafka: as Kafka places by itself; kafka_extended: so were partitions added later; manual; not_known',
  start_index INT COMMENT 'Start index that assignReplicasToBrokers gives it for; null in KRaft, and where there is none',
  shift INT COMMENT 'Smallest replica shift that it gives it for; null in KRaft, and where no replica depends on it',
  rack_aware BOOLEAN COMMENT 'Whether racks decided; null: not known',
  reason STRING NOT NULL COMMENT 'Reason for the placement',
  replicas_skew DOUBLE COMMENT 'Replicas of this topic on the fullest broker ÷ the mean over the live brokers; 1 = even',
  leaders_skew DOUBLE COMMENT 'The same for first replicas',
  companions_skew DOUBLE COMMENT 'The same for the other replicas of one broker''s partitions over the other brokers, where it is largest',
  racks_min INT COMMENT 'Fewest racks that a partition is in; null: racks are not known',
  violations ARRAY<STRING> NOT NULL COMMENT 'What is against the goals of any placement, one sentence each',
  assignment ARRAY<STRUCT<partition: INT, replicas: ARRAY<INT>>> NOT NULL COMMENT 'Replicas of each partition; the first one is the preferred leader',
  record_ids ARRAY<STRING> NOT NULL COMMENT 'Records of the assignment, at most 20'
) USING delta
LOCATION '{location}'
COMMENT 'Whose placement every assignment is, and what it spreads'
