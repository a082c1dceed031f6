-- severity: warning
-- harm: protocol
-- concludes: an answer with an error; or a request and no line of what it asks for.
-- needs: this_node
-- identity: broker, request, error
-- facts: request, error, requests, others, address, example
-- also: by_absence, subjects
-- only: request_answered_with_error, request_answered, become_error, become_failed_by_zookeeper, log_not_created, become_started
-- thresholds: request_seconds
-- candidates: answers, failures, ignored_requests
WITH answers AS (
  SELECT * FROM audited_events
  WHERE broker IS NOT NULL AND (event_type = 'request_answered_with_error' OR event_type = 'request_answered' AND error_code NOT IN ('0', 'NONE'))
    -- a broker must refuse a controller that was replaced (stale_controller)
    AND coalesce(error_code, '') NOT IN ('11', 'STALE_CONTROLLER_EPOCH')
), failures AS (
  SELECT * FROM audited_events WHERE event_type IN ('become_error', 'become_failed_by_zookeeper', 'log_not_created') AND node IS NOT NULL
), ignored_requests AS (
  -- TRACE only: a request to lead, followed neither by the role nor by a newer request
  SELECT s.* FROM audited_events s
  LEFT ANTI JOIN audited_events d ON d.cluster = s.cluster AND d.incarnation = s.incarnation AND d.node = s.node AND d.topic = s.topic AND d.partition = s.partition
    AND d.ts BETWEEN s.ts - INTERVAL 1 SECOND AND s.ts + make_dt_interval(0, 0, 0, request_seconds(s.cluster, s.topic))
    AND d.record_id <> s.record_id
    -- evidence: the request itself, and other lines of the broker about the partition
    AND NOT (d.event_type = 'leader_and_isr_received' AND d.ts <= s.ts) AND d.event_type NOT LIKE 'leader_info_cached%'
  WHERE s.event_type = 'become_started' AND s.node IS NOT NULL
), connected AS (
  SELECT DISTINCT cluster, incarnation, broker, regexp_extract(raw, '([^ ]+:[0-9]+) [(]id: ', 1) AS address
  FROM audited_events WHERE event_type = 'channel_connected'
), addresses AS (
  -- brokers may share an address; then it is not known which one answered
  SELECT a.cluster, a.incarnation, a.broker, min(a.address) AS address, array_join(array_sort(collect_set(b.broker)), ', ') AS others
  FROM connected a
  JOIN connected b ON b.cluster = a.cluster AND b.incarnation = a.incarnation AND b.address = a.address AND b.broker <> a.broker
  WHERE a.address <> ''
  GROUP BY a.cluster, a.incarnation, a.broker
), refused AS (
  SELECT e.cluster, e.incarnation, e.broker, coalesce(e.request, e.event_type) AS request, coalesce(nullif(e.error_code, '0'), 'error') AS error_code,
    e.topic, e.partition, e.ts, e.record_id
  FROM answers e
  LEFT ANTI JOIN audited_broker_outages o ON o.cluster = e.cluster AND o.incarnation = e.incarnation AND o.broker = e.broker
    AND e.ts BETWEEN o.since - INTERVAL 1 MINUTE AND coalesce(o.until, e.ts) + INTERVAL 1 MINUTE
  -- one answer may be printed at TRACE and as an error
  WHERE NOT (e.event_type = 'request_answered_with_error' AND EXISTS (
    SELECT 1 FROM audited_events a WHERE a.cluster = e.cluster AND a.incarnation = e.incarnation AND a.node <=> e.node AND a.broker = e.broker
      AND a.event_type = 'request_answered' AND a.error_code NOT IN ('0', 'NONE') AND a.ts BETWEEN e.ts - INTERVAL 1 SECOND AND e.ts + INTERVAL 1 SECOND))
  UNION ALL
  SELECT cluster, incarnation, node, 'LEADER_AND_ISR', event_type, topic, partition, ts, record_id FROM failures
), written AS (
  SELECT cluster, incarnation, node, max(ts) AS until FROM audited_events WHERE logger = 'state.change.logger' GROUP BY cluster, incarnation, node
), ignored AS (
  SELECT s.cluster, s.incarnation, s.node AS broker, 'LEADER_AND_ISR' AS request, 'never_applied' AS error_code, s.topic, s.partition, s.ts, s.record_id
  FROM ignored_requests s
  -- the broker's log continues, so it did not die and the file is not truncated
  JOIN written w ON w.cluster = s.cluster AND w.incarnation = s.incarnation AND w.node = s.node
    AND s.ts + make_dt_interval(0, 0, 0, request_seconds(s.cluster, s.topic)) < w.until
  LEFT ANTI JOIN audited_broker_outages o ON o.cluster = s.cluster AND o.incarnation = s.incarnation AND o.broker = s.node
    AND o.since <= s.ts + make_dt_interval(0, 0, 0, request_seconds(s.cluster, s.topic)) AND coalesce(o.until >= s.ts, true)
)
SELECT
  r.cluster, r.incarnation,
  'warning' AS severity,
  CASE WHEN count(DISTINCT r.topic) = 1 THEN min(r.topic) END AS topic, CASE WHEN count(DISTINCT r.topic, r.partition) = 1 THEN min(r.partition) END AS partition, CAST(NULL AS INT) AS replica, r.broker AS node,
  min(r.ts) AS first_seen, max(r.ts) AS last_seen, max(r.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  r.request,
  r.error_code AS error,
  count(*) AS requests,
  max(a.others) AS others,
  max(a.address) AS address,
  min(concat(r.topic, '-', r.partition)) AS example,
  concat_ws('|', r.broker, r.request, r.error_code) AS thing,
  earliest_records(collect_list(struct(r.ts AS at, array(r.record_id) AS records))) AS evidence,
  array_compact(collect_list(CASE WHEN r.topic IS NOT NULL THEN struct(r.topic, r.partition, r.broker AS replica, r.ts AS since, r.ts AS until) END)) AS subjects,
  r.error_code = 'never_applied' AS by_absence
FROM (SELECT * FROM refused UNION ALL SELECT * FROM ignored) r
JOIN clocks k ON k.cluster = r.cluster
LEFT JOIN addresses a ON a.cluster = r.cluster AND a.incarnation = r.incarnation AND a.broker = r.broker
GROUP BY r.cluster, r.incarnation, r.broker, r.request, r.error_code
