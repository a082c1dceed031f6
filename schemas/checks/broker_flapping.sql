-- severity: warning
-- harm: risk
-- concludes: lines that a broker failed and returned; that nobody stopped it from no line of a stop.
-- needs: this_node or controller, else info
-- identity: broker, day
-- facts: most, times, kinds
-- only: broker_outages
-- thresholds: broker_outages_per_hour
-- candidates: flapping
WITH counted AS (
  SELECT *, within_hour >= broker_outages_per_hour(cluster, NULL) AS is_often FROM (
    SELECT o.*, count(*) OVER (
        PARTITION BY o.cluster, o.incarnation, o.broker ORDER BY o.since RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour
    FROM audited_broker_outages o WHERE o.broker IS NOT NULL AND o.how NOT IN ('first_start', 'shut_down') AND o.all_since IS NULL)
), dated AS (
  -- outages of an hour across midnight that reaches the threshold are of the day on which it does
  SELECT *, date_trunc('DAY', coalesce(min(CASE WHEN is_often THEN since END) OVER (
      PARTITION BY cluster, incarnation, broker ORDER BY since RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING), since)) AS day
  FROM counted
), flapping AS (
  SELECT * FROM (
    SELECT *, max(of_day) OVER (PARTITION BY cluster, incarnation, broker, day) AS most FROM (
      SELECT *, count(*) OVER (PARTITION BY cluster, incarnation, broker, day ORDER BY since RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS of_day FROM dated))
  WHERE most >= broker_outages_per_hour(cluster, NULL)
)
SELECT
  c.cluster, c.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, c.broker AS node,
  min(c.since) AS first_seen, max(c.since) AS last_seen, max(c.since) < max(k.now) - INTERVAL 1 HOUR AS ended,
  max(c.most) AS most,
  count(*) AS times,
  array_sort(collect_set(c.how)) AS kinds,
  concat_ws('|', c.broker, c.day) AS thing,
  earliest_records(collect_list(struct(c.since AS at, c.evidence AS records))) AS evidence
FROM flapping c
JOIN clocks k ON k.cluster = c.cluster
GROUP BY c.cluster, c.incarnation, c.broker, c.day
