-- severity: warning
-- harm: housekeeping
-- concludes: two cluster ids that lines name for one time.
-- needs: lines
-- identity: cluster
-- facts: clusters, count_of_clusters
-- only: cluster_ids
WITH generations AS (
  SELECT s.*, e.begun, e.ended
  FROM (SELECT DISTINCT cluster, incarnation, cluster_id FROM audited_events WHERE cluster_id IS NOT NULL AND ts IS NOT NULL) s
  JOIN (SELECT cluster, incarnation, min(ts) AS begun, max(ts) AS ended FROM audited_events WHERE ts IS NOT NULL GROUP BY cluster, incarnation) e
    ON e.cluster = s.cluster AND e.incarnation = s.incarnation
), mixed AS (
  SELECT a.cluster, a.incarnation, a.cluster_id, min(greatest(a.begun, b.begun)) AS first_seen, max(least(a.ended, b.ended)) AS last_seen
  FROM generations a
  JOIN generations b ON a.cluster = b.cluster AND a.incarnation <> b.incarnation AND a.cluster_id <> b.cluster_id AND a.begun < b.ended AND b.begun < a.ended
  GROUP BY a.cluster, a.incarnation, a.cluster_id
), named AS (
  SELECT e.cluster, e.cluster_id, min(e.incarnation) AS incarnation, min(m.first_seen) AS first_seen, max(m.last_seen) AS last_seen,
    struct(e.cluster_id, array_sort(collect_set(e.incarnation)) AS incarnations, array_sort(collect_set(e.node)) AS nodes) AS generation,
    slice(earliest_records(collect_list(struct(e.ts AS at, array(e.record_id) AS records))), 1, 5) AS records
  FROM audited_events e JOIN mixed m ON m.cluster = e.cluster AND m.incarnation = e.incarnation AND m.cluster_id = e.cluster_id
  WHERE e.ts IS NOT NULL
  GROUP BY e.cluster, e.cluster_id
)
SELECT
  n.cluster, min(n.incarnation) AS incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  min(n.first_seen) AS first_seen, max(n.last_seen) AS last_seen, false AS ended,
  slice(array_sort(collect_list(n.generation)), 1, 10) AS clusters,
  count(*) AS count_of_clusters,
  'mixed' AS thing,
  earliest_records(collect_list(struct(n.first_seen AS at, n.records AS records))) AS evidence
FROM named n
GROUP BY n.cluster
HAVING count(*) > 1
