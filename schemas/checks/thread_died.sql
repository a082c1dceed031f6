-- severity: error
-- harm: risk
-- title: Thread ended with an error
-- concludes: the line with which the thread ends; that its node was not stopping from no line of a stop.
-- needs: this_node
-- why: A thread of the broker or controller met an error and has ended (ShutdownableThread). Nothing starts it again - what it did, fetching from a leader or
--   sending to a broker for one, stands still until the node is restarted, and the process looks alive.
-- do: Read the exception, then restart the node. See afterwards that its replicas are in sync again.
-- same: node, thread
-- episodes: yes
-- only: thread_failed
-- candidates: died
WITH died AS (
  SELECT cluster, incarnation, node, logger, ts, record_id, error_class, error_message FROM audited_events
  WHERE event_type = 'thread_failed' AND node IS NOT NULL AND ts IS NOT NULL AND level IN ('ERROR', 'FATAL') AND item = 0
)
SELECT
  d.cluster, d.incarnation, 'error' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, d.node, min(d.ts) AS first_seen, max(d.ts) AS last_seen, false AS ended,
  concat(element_at(split(d.logger, '[.$]'), -1), ' of node ', d.node) AS thing,
  concat('Thread ', element_at(split(d.logger, '[.$]'), -1), ' of node ', d.node, ' ended with an error at ', date_format(min(d.ts), 'yyyy-MM-dd HH:mm:ss'),
         coalesce(concat(': ', min_by(d.error_class, d.ts)), ''), coalesce(concat(': ', left(min_by(d.error_message, d.ts), 200)), ''),
         CASE WHEN count(*) > 1 THEN concat('; ', count(*), ' times up to ', date_format(max(d.ts), 'yyyy-MM-dd HH:mm:ss')) ELSE '' END, '.') AS detail,
  concat_ws('|', d.node, d.logger) AS same,
  earliest_records(collect_list(struct(d.ts AS at, array(d.record_id) AS records))) AS evidence
FROM died d
-- a node that stops interrupts its threads
LEFT ANTI JOIN audited_broker_outages o ON o.cluster = d.cluster AND o.incarnation = d.incarnation AND o.broker = d.node
  AND d.ts BETWEEN o.since - INTERVAL 1 MINUTE AND coalesce(o.until, o.since) + INTERVAL 1 MINUTE
GROUP BY d.cluster, d.incarnation, d.node, d.logger, date_trunc('DAY', d.ts)
