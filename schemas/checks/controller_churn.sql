-- severity: warning
-- title: Controller changes often
-- why: The controller was elected anew several times within an hour (controllers_per_hour), not counting those that were told to stop. Every
--   change reads the whole state anew; requests wait meanwhile.
-- do: Look at why each one lost it - session expiry (garbage collection, ZooKeeper latency), fetch timeouts in the quorum, restarts.
-- same: day
-- thresholds: controllers_per_hour=5
WITH terms AS (
  SELECT e.cluster, e.incarnation, coalesce(e.controller, e.node) AS node, e.controller_epoch, min(e.ts) AS at, min_by(e.record_id, e.ts) AS record_id
  FROM audited_events e
  WHERE e.event_type IN ('controller_elected', 'controller_epoch_incremented', 'controller_activated') AND e.ts IS NOT NULL
  GROUP BY e.cluster, e.incarnation, coalesce(e.controller, e.node), e.controller_epoch
), unasked AS (
  SELECT t.* FROM terms t
  LEFT ANTI JOIN audited_broker_outages o ON o.cluster = t.cluster AND o.incarnation = t.incarnation AND o.how IN ('shut_down', 'first_start')
    AND t.at BETWEEN o.since AND coalesce(o.until, t.at) + INTERVAL 1 MINUTE
), counted AS (
  SELECT *, count(*) OVER (PARTITION BY cluster, incarnation ORDER BY at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour FROM unasked
)
SELECT
  c.cluster, c.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node, min(c.at) AS first_seen, max(c.at) AS last_seen,
  max(c.at) < max(k.now) - INTERVAL 1 HOUR AS ended,
  concat(count(*), ' elections in a day') AS thing,
  concat(count(*), ' controllers were elected on ', date_format(min(c.at), 'yyyy-MM-dd'), ', up to ', max(c.within_hour), ' within one hour: nodes ',
         array_join(array_sort(collect_set(c.node)), ', '), '.') AS detail,
  concat(date_trunc('DAY', c.at)) AS same,
  slice(array_sort(collect_list(c.record_id)), 1, 20) AS evidence
FROM counted c
JOIN clocks k ON k.cluster = c.cluster
GROUP BY c.cluster, c.incarnation, date_trunc('DAY', c.at)
HAVING max(c.within_hour) >= controllers_per_hour(c.cluster, NULL)
