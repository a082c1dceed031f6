-- severity: warning
-- title: Logs of two clusters under one name
-- why: Two cluster ids were in use at the same time, on different brokers. The timelines keep the clusters apart, as incarnations that
--   overlap; findings about what is still so are about the last one only.
-- do: Give each cluster a name and logs of its own (--config).
-- same: incarnation
-- only: cluster_ids
WITH named AS (
  SELECT cluster, incarnation, cluster_id, node, ts, record_id FROM audited_events WHERE cluster_id IS NOT NULL AND ts IS NOT NULL
), lives AS (
  SELECT cluster, incarnation, min(ts) AS begun, max(ts) AS ended FROM audited_events WHERE ts IS NOT NULL GROUP BY cluster, incarnation
), mixed AS (
  SELECT a.cluster, a.incarnation, min(greatest(a.begun, b.begun)) AS first_seen, max(least(a.ended, b.ended)) AS last_seen
  FROM lives a JOIN lives b ON a.cluster = b.cluster AND a.incarnation < b.incarnation AND a.begun < b.ended AND b.begun < a.ended
  GROUP BY a.cluster, a.incarnation
)
SELECT
  m.cluster, m.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node, m.first_seen, m.last_seen, false AS ended,
  concat_ws(', ', array_sort(collect_set(n.cluster_id))) AS thing,
  concat('Brokers ', coalesce(nullif(array_join(array_sort(collect_set(CASE WHEN n.incarnation = m.incarnation THEN n.node END)), ', '), ''), '(not named)'),
         ' name another cluster id than brokers ',
         coalesce(nullif(array_join(array_sort(collect_set(CASE WHEN n.incarnation <> m.incarnation THEN n.node END)), ', '), ''), '(not named)'),
         ' do at the same time. Incarnation ', m.incarnation, ' is the first cluster here.') AS detail,
  concat(m.incarnation) AS same,
  slice(array_sort(collect_set(n.record_id)), 1, 20) AS evidence
FROM mixed m JOIN named n ON n.cluster = m.cluster
GROUP BY m.cluster, m.incarnation, m.first_seen, m.last_seen
