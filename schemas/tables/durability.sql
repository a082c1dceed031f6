-- about: how durable and available a topic was on one day
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  topic STRING NOT NULL COMMENT 'Topic name',
  day DATE NOT NULL COMMENT 'Day, UTC',
  partitions INT NOT NULL COMMENT 'Partitions that existed on that day',
  covered DOUBLE NOT NULL COMMENT 'Seconds, summed over partitions, in which the logs show the state: full_isr + under_replicated + leaderless',
  full_isr DOUBLE NOT NULL COMMENT 'Seconds with a leader and all replicas in sync; replicas that a reassignment adds do not count',
  under_replicated DOUBLE NOT NULL COMMENT 'Seconds with a leader and fewer in sync',
  at_min_isr DOUBLE NOT NULL COMMENT 'Seconds with a leader and exactly min.insync.replicas in sync, fewer than all',
  below_min_isr DOUBLE NOT NULL COMMENT 'Seconds with a leader and fewer than min.insync.replicas in sync: acks=all is refused',
  at_isr_1 DOUBLE NOT NULL COMMENT 'Seconds in which the leader alone was in sync: what it acknowledges is on one broker',
  leaderless DOUBLE NOT NULL COMMENT 'Seconds without a leader, from the line that shows it: nothing can be written or read',
  unknown DOUBLE NOT NULL COMMENT 'Seconds from its creation on that the logs do not cover; neither good nor bad',
  refused_min_1 DOUBLE NOT NULL COMMENT 'Seconds in which acks=all is refused with min.insync.replicas=1: without a leader',
  refused_min_2 DOUBLE NOT NULL COMMENT 'Seconds in which acks=all is refused with min.insync.replicas=2: without a leader, or the leader alone',
  leaderless_times INT NOT NULL COMMENT 'How often a partition lost its leader on that day, or had none at its begin',
  leaderless_longest DOUBLE NOT NULL COMMENT 'Longest of these, seconds of that day',
  below_min_isr_times INT NOT NULL COMMENT 'How often a partition fell below min.insync.replicas',
  below_min_isr_longest DOUBLE NOT NULL COMMENT 'Longest of these, seconds of that day',
  min_insync_replicas INT NOT NULL COMMENT 'min.insync.replicas at the end of that day, from lines or audit.toml, else 1',
  unclean_elections INT NOT NULL COMMENT 'Elections of a replica that was not in sync',
  records_lost BIGINT COMMENT 'Records that a former leader truncated after them; null: the logs do not show it',
  record_ids ARRAY<STRING> NOT NULL COMMENT 'Records that began a time without a leader or below min.insync.replicas, 20 at most'
) USING delta
LOCATION '{location}'
COMMENT 'Seconds at full ISR, under-replicated, below min ISR and without a leader, by topic and day'
