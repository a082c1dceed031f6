-- severity: warning
-- harm: risk
-- concludes: lines that a follower left an ISR and returned; that its broker was up from no line of an outage.
-- needs: this_node or controller, else warning
-- identity: follower, day
-- facts: departures, most, missing, down_meanwhile, alive_at
-- also: subjects
-- only: out_of_sync
-- thresholds: isr_turns_per_hour
-- candidates: often
WITH departures AS (
  SELECT *, count_if(begins) OVER (PARTITION BY cluster, incarnation, replica ORDER BY since, topic, partition ROWS UNBOUNDED PRECEDING) AS series FROM (
    SELECT *, coalesce(since > lag(since) OVER (PARTITION BY cluster, incarnation, replica ORDER BY since, topic, partition) + INTERVAL 1 MINUTE, true) AS begins
    FROM partition_episodes WHERE kind = 'out_of_sync' AND ended AND returned AND cause_broker IS NULL)
), minutes AS (
  -- minutes are counted from the begin of a series: those of a clock would count partitions that leave together across their edge twice
  SELECT *, floor((unix_millis(since) - unix_millis(min(since) OVER (PARTITION BY cluster, incarnation, replica, series))) / 60000) AS minute FROM departures
), turns AS (
  -- partitions that leave the ISR within a minute are one turn
  SELECT cluster, incarnation, replica, min(since) AS since, max(until) AS until, count(*) AS episodes,
    collect_list(struct(topic, partition, replica, since, until)) AS subjects, flatten(transform(array_sort(collect_list(struct(since, evidence))), one -> one.evidence)) AS evidence,
    array_distinct(flatten(collect_list(down_meanwhile))) AS down
  FROM minutes GROUP BY cluster, incarnation, replica, series, minute
), counted AS (
  SELECT *, within_hour >= isr_turns_per_hour(cluster, NULL) AS is_often FROM (
    SELECT *, count(*) OVER (PARTITION BY cluster, incarnation, replica ORDER BY since RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour FROM turns)
), often AS (
  -- turns of the hours that reach the threshold; an hour across midnight is of the day on which it does
  SELECT *, date_trunc('DAY', reached) AS day FROM (
    SELECT *, min(CASE WHEN is_often THEN since END) OVER (
        PARTITION BY cluster, incarnation, replica ORDER BY since RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING) AS reached
    FROM counted)
  WHERE reached IS NOT NULL
), alive AS (
  -- records of the follower's server.log while it was out
  SELECT o.cluster, o.incarnation, o.replica, o.since, max(b.ts) AS alive_at, max_by(b.record_id, b.ts) AS record_id
  FROM often o
  JOIN broker_signs b ON b.cluster = o.cluster AND b.incarnation = o.incarnation AND b.broker = o.replica AND b.ts BETWEEN o.since AND o.until
  GROUP BY o.cluster, o.incarnation, o.replica, o.since
), flapping AS (
  SELECT o.*, l.alive_at, l.record_id,
    count(*) OVER (PARTITION BY o.cluster, o.incarnation, o.replica, o.day ORDER BY o.since RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS of_day,
    -- within an hour of the turn
    max(l.alive_at) OVER (PARTITION BY o.cluster, o.incarnation, o.replica, o.day
      ORDER BY o.since RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND INTERVAL 1 HOUR FOLLOWING) IS NOT NULL AS is_alive
  FROM often o
  LEFT JOIN alive l ON l.cluster = o.cluster AND l.incarnation = o.incarnation AND l.replica = o.replica AND l.since = o.since
)
SELECT
  f.cluster, f.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, f.replica, f.replica AS node,
  min(f.since) AS first_seen, max(f.until) AS last_seen, max(f.until) < max(k.now) - INTERVAL 1 HOUR AS ended,
  sum(f.episodes) AS departures,
  max(f.of_day) AS most,
  array(f.replica) AS missing,
  array_sort(array_distinct(flatten(collect_list(f.down)))) AS down_meanwhile,
  CASE WHEN bool_and(f.is_alive) THEN max(f.alive_at) END AS alive_at,
  concat_ws('|', f.replica, f.day) AS thing,
  array_distinct(concat(earliest_records(collect_list(struct(f.since AS at, f.evidence AS records))), slice(earliest_records(collect_list(CASE WHEN f.record_id IS NOT NULL THEN struct(f.alive_at AS at, array(f.record_id) AS records) END)), 1, 3))) AS evidence,
  flatten(collect_list(f.subjects)) AS subjects
FROM flapping f
JOIN clocks k ON k.cluster = f.cluster
GROUP BY f.cluster, f.incarnation, f.replica, f.day
HAVING max(f.of_day) >= isr_turns_per_hour(f.cluster, NULL)
