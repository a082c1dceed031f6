-- about: the replicas of one topic on one broker, from one reassignment to the next
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  broker INT NOT NULL COMMENT 'Broker id',
  topic STRING NOT NULL COMMENT 'Topic name',
  valid_from TIMESTAMP COMMENT 'Begin, as in topic_assignments',
  valid_to TIMESTAMP COMMENT 'End; null: still so',
  replicas INT NOT NULL COMMENT 'Partitions of which it has a replica',
  leaders INT NOT NULL COMMENT 'Partitions whose first replica, the preferred leader, it has'
) USING delta
LOCATION '{location}'
COMMENT 'Replicas and preferred leaders of every broker, by topic'
