-- severity: error
-- harm: unavailability
-- levels: critical while it lasts, an error when it is over; info where no broker of the cluster was left (cluster_down).
-- concludes: an ISR that is too small, until a line shows one that is not.
-- needs: partition
-- identity: cause
-- facts: partitions, times, first_partition, is_begin_seen, is_end_seen, min_isr, cause_how, cause_broker,
--   cause_since, cause_until, cause_end_seen, missing, down_meanwhile, alive_at
-- episodes: yes
-- also: subjects, outage
-- only: below_min_isr
-- thresholds: below_min_isr_seconds
-- candidates: long
WITH long AS (
  SELECT * FROM partition_episodes WHERE kind = 'below_min_isr' AND until >= since + make_dt_interval(0, 0, 0, below_min_isr_seconds(cluster, topic))
)
SELECT
  s.cluster, s.incarnation,
  CASE WHEN s.cause_all_since IS NOT NULL THEN 'info' WHEN bool_or(NOT s.ended) THEN 'critical' ELSE 'error' END AS severity,
  CASE WHEN count(DISTINCT s.topic) = 1 THEN min(s.topic) END AS topic, CASE WHEN count(DISTINCT struct(s.topic, s.partition)) = 1 THEN min(s.partition) END AS partition, CAST(NULL AS INT) AS replica, s.cause_broker AS node,
  min(s.since) AS first_seen, max(s.until) AS last_seen, bool_and(s.ended) AS ended,
  count(DISTINCT struct(s.topic, s.partition)) AS partitions,
  count(*) AS times,
  min(concat(s.topic, '-', s.partition)) AS first_partition,
  bool_and(s.is_begin_seen) AS is_begin_seen,
  bool_and(s.is_end_seen) AS is_end_seen,
  min(s.min_isr) AS min_isr,
  s.cause_how,
  s.cause_broker,
  s.cause_since,
  max(s.cause_until) AS cause_until,
  bool_and(s.cause_end_seen) AS cause_end_seen,
  array_sort(array_distinct(flatten(collect_list(s.missing)))) AS missing,
  array_sort(array_distinct(flatten(collect_list(s.down_meanwhile)))) AS down_meanwhile,
  CASE WHEN bool_and(s.alive_at IS NOT NULL) THEN min(s.alive_at) END AS alive_at,
  CASE WHEN s.cause_all_since IS NOT NULL THEN 'all' ELSE coalesce(CAST(s.cause_broker AS STRING), 'unexplained') END AS thing,
  array_distinct(concat(earliest_records(collect_list(struct(s.since AS at, s.evidence AS records))), slice(earliest_records(collect_list(CASE WHEN s.signs IS NOT NULL THEN struct(coalesce(s.alive_at, s.since) AS at, s.signs AS records) END)), 1, 5))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.since, CASE WHEN s.ended THEN s.until END AS until)) AS subjects,
  max(named_struct('node', CASE WHEN s.cause_all_since IS NULL THEN s.cause_broker END, 'since', coalesce(s.cause_all_since, s.cause_since))) AS outage
FROM long s
GROUP BY s.cluster, s.incarnation, s.cause_broker, s.cause_since, s.cause_all_since, s.cause_how, unexplained_hour(s.cause_since, s.since)
