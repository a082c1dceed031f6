-- severity: error
-- levels: an error where lines name both cluster ids; a warning where epochs that begin again are all that shows it.
-- harm: loss
-- concludes: a new cluster id, a metadata log that begins again, or epochs that start again.
-- needs: lines
-- identity: day
-- facts: times, cluster_id, cluster_id_before, seen_until
-- only: incarnations
WITH begun AS (
  SELECT cluster, incarnation, min(ts) AS at, max(ts) AS until, min_by(record_id, struct(ts, record_no)) AS record_id,
    min_by(cluster_id, ts) FILTER (WHERE cluster_id IS NOT NULL) AS cluster_id
  FROM audited_events WHERE ts IS NOT NULL AND item = 0 GROUP BY cluster, incarnation
), replaced AS (
  SELECT b.*, p.cluster_id AS cluster_id_before, p.until AS seen_until
  FROM begun b
  -- two clusters that log at one time are reported by clusters_mixed
  JOIN begun p ON p.cluster = b.cluster AND p.incarnation = b.incarnation - 1 AND p.until <= b.at + INTERVAL 5 SECONDS
)
-- a cluster that is set up repeatedly is reported once a day
SELECT
  cluster, min(incarnation) AS incarnation,
  CASE WHEN bool_or(cluster_id <> cluster_id_before) THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  min(at) AS first_seen, max(at) AS last_seen, false AS ended,
  count(*) AS times,
  max_by(cluster_id, at) AS cluster_id,
  min_by(cluster_id_before, at) AS cluster_id_before,
  min_by(seen_until, at) AS seen_until,
  concat(date_trunc('DAY', at)) AS thing,
  earliest_records(collect_list(struct(at, array(record_id) AS records))) AS evidence
FROM replaced
GROUP BY cluster, date_trunc('DAY', at)
