-- severity: critical
-- title: No controller
-- why: The controller was gone and nobody was elected for longer than no_controller_seconds, though brokers were alive. Nothing is
--   repaired meanwhile; no leader is elected, no topic created, no ISR grows.
-- do: ZooKeeper - is the ensemble up, does /controller exist and whom does it name (deleting it makes the brokers elect anew); KRaft - is a
--   majority of the quorum's voters up and connected.
-- same: begin
-- thresholds: no_controller_seconds=60
WITH begun AS (
  SELECT cluster, incarnation, coalesce(controller, node) AS node, ts, record_id FROM audited_events
  WHERE event_type IN ('controller_elected', 'controller_epoch_incremented', 'controller_activated', 'controller_ready', 'raft_leader_elected', 'controller_znode_claimed') AND ts IS NOT NULL
), ends AS (
  SELECT e.cluster, e.incarnation, e.node, e.ts, e.record_id FROM audited_events e
  WHERE e.event_type IN ('controller_resigned', 'controller_renounced') AND e.ts IS NOT NULL
  UNION ALL
  SELECT cluster, incarnation, broker, since, get(evidence, 0) FROM audited_broker_outages WHERE broker IS NOT NULL AND how <> 'first_start'
), ended AS (
  -- every broker says that it resigns when it stops: it ends a term only of the one that had the last
  SELECT e.cluster, e.incarnation, e.node, e.ts AS since, e.record_id
  FROM ends e JOIN begun b ON b.cluster = e.cluster AND b.incarnation = e.incarnation AND b.ts <= e.ts
  GROUP BY e.cluster, e.incarnation, e.node, e.ts, e.record_id
  HAVING max_by(b.node, b.ts) = e.node
), gaps AS (
  SELECT e.cluster, e.incarnation, e.node, min(e.since) AS since, n.until, min_by(e.record_id, e.since) AS record_id, max(n.record_id) AS next_record
  FROM ended e
  LEFT JOIN LATERAL (
    SELECT min(b.ts) AS until, min_by(b.record_id, b.ts) AS record_id FROM begun b
    WHERE b.cluster = e.cluster AND b.incarnation = e.incarnation AND b.ts > e.since) n
  GROUP BY e.cluster, e.incarnation, e.node, n.until
)
SELECT
  g.cluster, g.incarnation, CASE WHEN g.until IS NULL THEN 'critical' ELSE 'error' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, g.node,
  g.since AS first_seen, coalesce(g.until, k.now) AS last_seen, g.until IS NOT NULL AS ended,
  concat('after ', g.node) AS thing,
  concat('Controller ', g.node, ' ended its term at ', date_format(g.since, 'yyyy-MM-dd HH:mm:ss'),
         CASE WHEN g.until IS NULL THEN concat('; nobody was elected until the end of the logs, ', date_format(k.now, 'yyyy-MM-dd HH:mm:ss'), '.')
              ELSE concat('; the next one was elected at ', date_format(g.until, 'yyyy-MM-dd HH:mm:ss'), '.') END) AS detail,
  concat_ws('|', g.node, g.record_id) AS same,
  array_compact(array(g.record_id, g.next_record)) AS evidence
FROM gaps g
JOIN clocks k ON k.cluster = g.cluster AND (g.until IS NOT NULL OR k.incarnation = g.incarnation)
WHERE coalesce(g.until, k.now) >= g.since + make_dt_interval(0, 0, 0, no_controller_seconds(g.cluster, NULL))
  -- a cluster that is shut down needs none
  AND NOT EXISTS (
    SELECT 1 FROM audited_broker_outages o
    WHERE o.cluster = g.cluster AND o.incarnation = g.incarnation AND o.broker IS NULL
      AND o.since <= coalesce(g.until, k.now) AND coalesce(o.until >= g.since, true))
