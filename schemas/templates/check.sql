-- severity: TODO: critical, error, warning or info; the worst one where the query decides (then add a line `-- levels:`)
-- harm: TODO: loss, unavailability, risk, protocol or housekeeping
-- concludes: TODO: what lines say, and what no line says.
-- needs: TODO: lines, or the logs without which there is no such finding (schemas/coverage.toml)
-- identity: TODO: what distinguishes two findings, such as: broker
-- facts: times, example
-- only: TODO: event types without which nothing is found
WITH found AS (
  -- node: the writer of the line. A line about another broker names it in the column broker
  SELECT cluster, incarnation, node, ts, record_id, left(split_part(raw, '\n', 1), 200) AS example
  FROM audited_events
  WHERE event_type IN ('TODO') AND node IS NOT NULL AND ts IS NOT NULL AND item = 0
)
SELECT
  f.cluster, f.incarnation,
  'TODO' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, f.node,
  min(f.ts) AS first_seen, max(f.ts) AS last_seen,
  -- an error that has not repeated for an hour is resolved
  max(f.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  count(*) AS times,
  min_by(f.example, struct(f.ts, f.record_id)) AS example,
  CAST(f.node AS STRING) AS thing,
  earliest_records(collect_list(struct(f.ts AS at, array(f.record_id) AS records))) AS evidence
FROM found f
JOIN clocks k ON k.cluster = f.cluster
GROUP BY f.cluster, f.incarnation, f.node
