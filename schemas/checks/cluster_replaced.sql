-- severity: error
-- levels: an error where lines name both cluster ids; a warning where epochs that begin again are all that shows it.
-- harm: loss
-- title: Cluster was wiped or replaced
-- concludes: a new cluster id, a metadata log that begins again, or epochs that start again.
-- needs: lines
-- why: The nodes under this name went on as another cluster - its metadata was wiped, or the brokers were pointed at another ZooKeeper or quorum. Topics,
--   offsets and ACLs of the one before are not in it, and brokers may hold folders of topics that it does not know.
-- do: If nobody meant it, stop the brokers before they delete what they do not know, and look at zookeeper.connect, controller.quorum.voters and the
--   storage of ZooKeeper or of the metadata log. Do not recreate topics before that.
-- same: incarnation
-- only: incarnations
WITH begun AS (
  SELECT cluster, incarnation, min(ts) AS at, max(ts) AS until, min_by(record_id, struct(ts, record_no)) AS record_id,
    min_by(cluster_id, ts) FILTER (WHERE cluster_id IS NOT NULL) AS cluster_id
  FROM audited_events WHERE ts IS NOT NULL AND item = 0 GROUP BY cluster, incarnation
)
SELECT
  b.cluster, b.incarnation, CASE WHEN b.cluster_id <> p.cluster_id THEN 'error' ELSE 'warning' END AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node, b.at AS first_seen, b.at AS last_seen, false AS ended,
  concat('at ', date_format(b.at, 'yyyy-MM-dd HH:mm:ss')) AS thing,
  concat('At ', date_format(b.at, 'yyyy-MM-dd HH:mm:ss'), ' another cluster began under this name', coalesce(concat(', cluster id ', b.cluster_id), ''),
         '; the one before', coalesce(concat(', ', p.cluster_id, ','), ''), ' was last seen at ', date_format(p.until, 'yyyy-MM-dd HH:mm:ss'), '.') AS detail,
  CAST(b.incarnation AS STRING) AS same,
  array_compact(array(b.record_id)) AS evidence
FROM begun b
-- those of two clusters that log at one time are clusters_mixed
JOIN begun p ON p.cluster = b.cluster AND p.incarnation = b.incarnation - 1 AND p.until <= b.at + INTERVAL 5 SECONDS
