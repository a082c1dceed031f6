-- severity: warning
-- harm: risk
-- concludes: lines with which the controller reports slow events.
-- needs: lines
-- identity: node
-- facts: events, most, example
-- episodes: yes
-- only: controller_event_slow
-- thresholds: slow_events_per_hour
-- candidates: slow
WITH counted AS (
  SELECT *, within_hour >= slow_events_per_hour(cluster, NULL) AS is_often FROM (
    SELECT cluster, incarnation, node, ts, record_id, request,
      count(*) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour
    FROM audited_events WHERE event_type = 'controller_event_slow' AND ts IS NOT NULL)
), dated AS (
  -- events of an hour across midnight that reaches the threshold are of the day on which it does
  SELECT *, date_trunc('DAY', coalesce(min(CASE WHEN is_often THEN ts END) OVER (
      PARTITION BY cluster, incarnation, node ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING), ts)) AS day
  FROM counted
), slow AS (
  SELECT *, count(*) OVER (PARTITION BY cluster, incarnation, node, day ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS of_day FROM dated
)
SELECT
  s.cluster, s.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, s.node,
  min(s.ts) AS first_seen, max(s.ts) AS last_seen, max(s.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  count(*) AS events,
  max(s.of_day) AS most,
  left(min_by(s.request, s.ts), 120) AS example,
  coalesce(CAST(s.node AS STRING), '') AS thing,
  earliest_records(collect_list(struct(s.ts AS at, array(s.record_id) AS records))) AS evidence
FROM slow s
JOIN clocks k ON k.cluster = s.cluster
GROUP BY s.cluster, s.incarnation, s.node, s.day
HAVING max(s.of_day) >= slow_events_per_hour(s.cluster, NULL)
