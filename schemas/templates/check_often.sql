-- severity: TODO: critical, error, warning or info; the worst one where the query decides (then add a line `-- levels:`)
-- harm: TODO: loss, unavailability, risk, protocol or housekeeping
-- concludes: TODO: what lines say, and what no line says.
-- needs: TODO: lines, or the logs without which there is no such finding (schemas/coverage.toml)
-- identity: broker
-- episodes: yes
-- facts: times, most
-- only: TODO: event types without which nothing is found
-- thresholds: TODO: the name of an entry of schemas/thresholds.toml
WITH found AS (
  -- node: the writer of the line. A line about another broker names it in the column broker
  SELECT cluster, incarnation, node, ts, record_id,
    count(*) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour,
    coalesce(lag(ts) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts, record_id) < ts - INTERVAL 1 HOUR, true) AS begins
  FROM audited_events
  WHERE event_type IN ('TODO') AND node IS NOT NULL AND ts IS NOT NULL AND item = 0
), numbered AS (
  -- an hour without such a line ends an episode
  SELECT *, count_if(begins) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts, record_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS episode
  FROM found
)
SELECT
  f.cluster, f.incarnation,
  'TODO' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, f.node,
  min(f.ts) AS first_seen, max(f.ts) AS last_seen,
  max(f.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  count(*) AS times,
  max(f.within_hour) AS most,
  CAST(f.node AS STRING) AS thing,
  earliest_records(collect_list(struct(f.ts AS at, array(f.record_id) AS records))) AS evidence
FROM numbered f
JOIN clocks k ON k.cluster = f.cluster
GROUP BY f.cluster, f.incarnation, f.node, f.episode
HAVING max(f.within_hour) >= TODO(f.cluster, NULL)
