-- severity: warning
-- harm: risk
-- levels: an error while it lasts, a warning when it is over.
-- concludes: an ISR that lacks a follower, until a line shows one that has it; that its broker is up from no line of an outage.
-- needs: partition
-- identity: follower
-- facts: partitions, times, first_partition, is_begin_seen, is_end_seen, is_directory_failed, back_at,
--   goes_down, missing, down_meanwhile, alive_at
-- episodes: yes
-- also: subjects, outage
-- only: out_of_sync
-- thresholds: under_replicated_minutes
-- candidates: up
WITH up AS (
  -- without the time in which the broker is down, which broker_down reports
  SELECT cluster, incarnation, topic, partition, replica, episode_since, up.since, up.until
  FROM (SELECT cluster, incarnation, topic, partition, replica, since AS episode_since, explode(up) AS up FROM partition_episodes WHERE kind = 'out_of_sync')
  WHERE up.until >= up.since + make_dt_interval(0, 0, under_replicated_minutes(cluster, topic))
), heard AS (
  -- the part in which any node wrote
  SELECT s.cluster, s.since, s.until, unix_seconds(s.until) - unix_seconds(s.since)
      - coalesce(sum(CASE WHEN p.since IS NOT NULL THEN unix_seconds(least(s.until, p.until)) - unix_seconds(greatest(s.since, p.since)) END), 0) AS seconds
  FROM (SELECT DISTINCT cluster, since, until FROM up) s
  LEFT JOIN pauses p ON p.cluster = s.cluster AND p.since < s.until AND p.until > s.since
  GROUP BY s.cluster, s.since, s.until
), long AS (
  SELECT u.cluster, u.incarnation, u.topic, u.partition, u.replica, u.episode_since, min(u.since) AS begun, max(u.until) AS until
  FROM up u
  JOIN heard h ON h.cluster = u.cluster AND h.since = u.since AND h.until = u.until AND h.seconds >= 60 * under_replicated_minutes(u.cluster, u.topic)
  GROUP BY u.cluster, u.incarnation, u.topic, u.partition, u.replica, u.episode_since
), late AS (
  SELECT s.* EXCEPT (until, ended, is_end_seen), l.begun, l.until, s.ended OR l.until < s.until AS ended, s.is_end_seen AND l.until = s.until AS is_end_seen,
    l.until < s.until AS goes_down
  FROM partition_episodes s
  JOIN long l ON l.cluster = s.cluster AND l.incarnation = s.incarnation AND l.topic = s.topic AND l.partition = s.partition AND l.replica = s.replica
    AND l.episode_since = s.since
  WHERE s.kind = 'out_of_sync'
), stopped AS (
  SELECT cluster, incarnation, node, max_by(record_id, ts) AS record_id, max(ts) AS at FROM audited_events
  WHERE event_type = 'fetch_stopped' GROUP BY cluster, incarnation, node
), failed_dirs AS (
  SELECT cluster, incarnation, node, min(ts) AS at, min_by(record_id, ts) AS record_id FROM audited_events
  WHERE event_type IN ('log_dir_offline', 'replica_offline') AND ts IS NOT NULL GROUP BY cluster, incarnation, node
)
SELECT
  l.cluster, l.incarnation,
  CASE WHEN bool_or(NOT l.ended) THEN 'error' ELSE 'warning' END AS severity,
  CASE WHEN count(DISTINCT l.topic) = 1 THEN min(l.topic) END AS topic, CASE WHEN count(DISTINCT struct(l.topic, l.partition)) = 1 THEN min(l.partition) END AS partition, l.replica, l.replica AS node,
  min(l.begun) AS first_seen, max(l.until) AS last_seen, bool_and(l.ended) AS ended,
  count(DISTINCT struct(l.topic, l.partition)) AS partitions,
  count(*) AS times,
  min(concat(l.topic, '-', l.partition)) AS first_partition,
  bool_and(l.is_begin_seen OR l.begun > l.since) AS is_begin_seen,
  bool_and(l.is_end_seen) AS is_end_seen,
  max(d.node) IS NOT NULL AS is_directory_failed,
  max(CASE WHEN l.begun > l.since THEN l.begun END) AS back_at,
  bool_and(l.goes_down) AS goes_down,
  array_sort(array_distinct(flatten(collect_list(l.missing)))) AS missing,
  array_sort(array_distinct(flatten(collect_list(l.down_meanwhile)))) AS down_meanwhile,
  CASE WHEN bool_and(l.alive_at IS NOT NULL) THEN min(l.alive_at) END AS alive_at,
  CAST(l.replica AS STRING) AS thing,
  array_distinct(array_compact(concat(earliest_records(collect_list(struct(l.since AS at, l.evidence AS records))), array(max(t.record_id), max(d.record_id)),
                                      slice(earliest_records(collect_list(CASE WHEN l.signs IS NOT NULL THEN struct(coalesce(l.alive_at, l.since) AS at, l.signs AS records) END)), 1, 5)))) AS evidence,
  collect_list(struct(l.topic, l.partition, l.replica, l.since, CASE WHEN l.ended THEN l.until END AS until)) AS subjects,
  max(named_struct('node', l.cause_broker, 'since', coalesce(l.cause_all_since, l.cause_since))) AS outage
FROM late l
LEFT JOIN stopped t ON t.cluster = l.cluster AND t.incarnation = l.incarnation AND t.node = l.replica AND t.at BETWEEN l.since - INTERVAL 1 MINUTE AND l.until
LEFT JOIN failed_dirs d ON d.cluster = l.cluster AND d.incarnation = l.incarnation AND d.node = l.replica AND d.at <= l.until
GROUP BY l.cluster, l.incarnation, l.replica, l.cause_since, unexplained_hour(l.cause_since, l.begun)
