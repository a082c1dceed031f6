-- severity: critical
-- harm: unavailability
-- levels: critical while it lasts, an error when it is over.
-- concludes: a line that a partition has no leader, until a line shows one.
-- needs: partition
-- identity: last ISR
-- facts: partitions, times, first_partition, is_begin_seen, is_end_seen, replicas, last_isr
-- episodes: yes
-- also: subjects
-- only: leaderless
-- thresholds: leaderless_seconds
WITH unexplained AS (
  SELECT s.*, array_sort(s.isr) AS last_isr,
    lag(s.since) OVER (PARTITION BY s.cluster, s.incarnation, array_sort(s.isr) ORDER BY s.since, s.topic, s.partition) AS before
  FROM partition_episodes s
  WHERE s.kind = 'leaderless' AND s.cause_since IS NULL
    -- where no line names the replicas, any broker that was down may be one
    AND (size(coalesce(s.missing, array())) > 0 OR NOT EXISTS (
      SELECT 1 FROM audited_broker_outages o
      WHERE o.cluster = s.cluster AND o.incarnation = s.incarnation AND o.since <= s.until AND coalesce(o.until >= s.since - INTERVAL 5 SECONDS, true)))
    AND s.until >= s.since + make_dt_interval(0, 0, 0, leaderless_seconds(s.cluster, s.topic))
), together AS (
  -- partitions that lost the same replicas within ten minutes are one finding
  SELECT *, count_if(coalesce(since > before + INTERVAL 10 MINUTES, true)) OVER (
      PARTITION BY cluster, incarnation, last_isr ORDER BY since, topic, partition ROWS UNBOUNDED PRECEDING) AS episode
  FROM unexplained
), found AS (
  SELECT cluster, incarnation, last_isr, episode, min(since) AS since, max(until) AS until, bool_and(ended) AS ended, min_by(is_begin_seen, since) AS is_begin_seen, bool_and(is_end_seen) AS is_end_seen, count(DISTINCT topic, partition) AS partitions, count(*) AS times,
    min_by(struct(topic, partition, replicas, record_id), struct(since, topic, partition)) AS first,
    collect_list(struct(topic, partition, replica, since, CASE WHEN ended THEN until END AS until)) AS subjects,
    earliest_records(collect_list(struct(since AS at, evidence AS records))) AS evidence
  FROM together GROUP BY cluster, incarnation, last_isr, episode
)
SELECT
  f.cluster, f.incarnation,
  CASE WHEN f.ended THEN 'error' ELSE 'critical' END AS severity,
  CASE WHEN f.partitions = 1 THEN f.first.topic END AS topic, CASE WHEN f.partitions = 1 THEN f.first.partition END AS partition, CAST(NULL AS INT) AS replica, CASE WHEN size(f.last_isr) = 1 THEN get(f.last_isr, 0) END AS node,
  f.since AS first_seen, f.until AS last_seen, f.ended,
  f.partitions,
  f.times,
  concat(f.first.topic, '-', f.first.partition) AS first_partition,
  f.is_begin_seen,
  f.is_end_seen,
  f.first.replicas,
  f.last_isr,
  coalesce(array_join(cast(f.last_isr AS ARRAY<STRING>), ','), 'not known') AS thing,
  f.evidence,
  f.subjects
FROM found f
