-- severity: error
-- levels: an error where lines name both cluster ids; a warning where epochs that begin again are all that shows it.
-- harm: loss
-- concludes: a new cluster id, a metadata log that begins again, or epochs that start again.
-- needs: lines
-- identity: incarnation
-- facts: cluster_id, cluster_id_before, seen_until
-- only: incarnations
WITH begun AS (
  SELECT cluster, incarnation, min(ts) AS at, max(ts) AS until, min_by(record_id, struct(ts, record_no)) AS record_id,
    min_by(cluster_id, ts) FILTER (WHERE cluster_id IS NOT NULL) AS cluster_id
  FROM audited_events WHERE ts IS NOT NULL AND item = 0 GROUP BY cluster, incarnation
)
SELECT
  b.cluster, b.incarnation,
  CASE WHEN b.cluster_id <> p.cluster_id THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  b.at AS first_seen, b.at AS last_seen, false AS ended,
  b.cluster_id,
  p.cluster_id AS cluster_id_before,
  p.until AS seen_until,
  CAST(b.incarnation AS STRING) AS thing,
  array_compact(array(b.record_id)) AS evidence
FROM begun b
-- those of two clusters that log at one time are clusters_mixed
JOIN begun p ON p.cluster = b.cluster AND p.incarnation = b.incarnation - 1 AND p.until <= b.at + INTERVAL 5 SECONDS
