-- severity: warning
-- harm: risk
-- levels: info while another broker is restarted on purpose, or all stop or start; an error where it goes on after five minutes; else a warning.
-- concludes: an ISR of one replica, until a line shows a larger one.
-- needs: partition
-- identity: broker that is left, cause
-- facts: partitions, times, first_partition, is_begin_seen, is_end_seen, cause_how, cause_broker,
--   cause_since, cause_until, cause_end_seen, missing, down_meanwhile, alive_at
-- episodes: yes
-- also: subjects, outage
-- only: last_in_sync
-- thresholds: last_in_sync_seconds
-- candidates: long
WITH long AS (
  SELECT * FROM partition_episodes WHERE kind = 'last_in_sync' AND until >= since + make_dt_interval(0, 0, 0, last_in_sync_seconds(cluster, topic))
)
SELECT
  s.cluster, s.incarnation,
  CASE WHEN (s.cause_how IN ('shut_down', 'first_start') OR s.cause_all_since IS NOT NULL AND s.cause_how <> 'absent') AND max(s.until) < min(s.since) + INTERVAL 5 MINUTES THEN 'info'
       WHEN max(CASE WHEN NOT s.ended THEN s.until END) >= min(s.since) + INTERVAL 5 MINUTES THEN 'error' ELSE 'warning' END AS severity,
  CASE WHEN count(DISTINCT s.topic) = 1 THEN min(s.topic) END AS topic, CASE WHEN count(DISTINCT struct(s.topic, s.partition)) = 1 THEN min(s.partition) END AS partition, s.replica, s.replica AS node,
  min(s.since) AS first_seen, max(s.until) AS last_seen, bool_and(s.ended) AS ended,
  count(DISTINCT struct(s.topic, s.partition)) AS partitions,
  count(*) AS times,
  min(concat(s.topic, '-', s.partition)) AS first_partition,
  bool_and(s.is_begin_seen) AS is_begin_seen,
  bool_and(s.is_end_seen) AS is_end_seen,
  s.cause_how,
  s.cause_broker,
  s.cause_since,
  max(s.cause_until) AS cause_until,
  bool_and(s.cause_end_seen) AS cause_end_seen,
  array_sort(array_distinct(flatten(collect_list(s.missing)))) AS missing,
  array_sort(array_distinct(flatten(collect_list(s.down_meanwhile)))) AS down_meanwhile,
  CASE WHEN bool_and(s.alive_at IS NOT NULL) THEN min(s.alive_at) END AS alive_at,
  concat_ws('|', s.replica, CASE WHEN s.cause_all_since IS NOT NULL THEN 'all' ELSE coalesce(CAST(s.cause_broker AS STRING), 'unexplained') END) AS thing,
  array_distinct(concat(earliest_records(collect_list(struct(s.since AS at, s.evidence AS records))), slice(earliest_records(collect_list(CASE WHEN s.signs IS NOT NULL THEN struct(coalesce(s.alive_at, s.since) AS at, s.signs AS records) END)), 1, 5))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.since, CASE WHEN s.ended THEN s.until END AS until)) AS subjects,
  max(named_struct('node', CASE WHEN s.cause_all_since IS NULL THEN s.cause_broker END, 'since', coalesce(s.cause_all_since, s.cause_since))) AS outage
FROM long s
GROUP BY s.cluster, s.incarnation, s.replica, s.cause_broker, s.cause_since, s.cause_all_since, s.cause_how,
  unexplained_hour(s.cause_since, s.since)
