-- severity: error
-- harm: risk
-- concludes: the line with which the thread ends; that its node was not stopping from no line of a stop.
-- needs: this_node
-- identity: node, thread
-- facts: logger, error_class, message, times
-- episodes: yes
-- only: thread_failed
-- candidates: died
WITH died AS (
  SELECT cluster, incarnation, node, logger, ts, record_id, error_class, error_message FROM audited_events
  WHERE event_type = 'thread_failed' AND node IS NOT NULL AND ts IS NOT NULL AND level IN ('ERROR', 'FATAL') AND item = 0
)
SELECT
  d.cluster, d.incarnation,
  'error' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, d.node,
  min(d.ts) AS first_seen, max(d.ts) AS last_seen, false AS ended,
  d.logger,
  min_by(d.error_class, d.ts) AS error_class,
  min_by(d.error_message, d.ts) AS message,
  count(*) AS times,
  concat_ws('|', d.node, d.logger) AS thing,
  earliest_records(collect_list(struct(d.ts AS at, array(d.record_id) AS records))) AS evidence
FROM died d
-- a node that stops interrupts its threads
LEFT ANTI JOIN audited_broker_outages o ON o.cluster = d.cluster AND o.incarnation = d.incarnation AND o.broker = d.node
  AND d.ts BETWEEN o.since - INTERVAL 1 MINUTE AND coalesce(o.until, o.since) + INTERVAL 1 MINUTE
GROUP BY d.cluster, d.incarnation, d.node, d.logger, date_trunc('DAY', d.ts)
