-- severity: critical
-- harm: unavailability
-- levels: critical while it lasts, an error when it is over.
-- concludes: the end of a term and no line of the next election; or brokers that reach no controller and no line of one.
-- needs: every_controller
-- identity: cluster
-- facts: kind, brokers, began, first_until, now, times_refused, last_refused, silent_since, first_node,
--   times, longest
-- episodes: yes
-- also: by_absence
-- thresholds: no_controller_seconds
-- only: controller_vacancies, broker_heartbeat_failed, node_unreachable, controlled_shutdown_failed
-- candidates: vacant, complaints
WITH vacant AS (
  SELECT g.*, k.now FROM controller_vacancies g
  JOIN clocks k ON k.cluster = g.cluster AND (g.until IS NOT NULL OR k.incarnation = g.incarnation)
  WHERE g.is_end_seen AND coalesce(g.until, k.now) >= g.since + make_dt_interval(0, 0, 0, no_controller_seconds(g.cluster, NULL))
), complained AS (
  SELECT cluster, incarnation, node, ts, record_id FROM audited_events
  WHERE node IS NOT NULL AND ts IS NOT NULL AND (event_type = 'broker_heartbeat_failed' AND raw LIKE '%Unable to send %'
    OR event_type = 'node_unreachable' AND raw LIKE '%ToControllerChannelManager%' OR event_type = 'controlled_shutdown_failed')
), complaints AS (
  -- complaints of several brokers, over some time
  SELECT * FROM complained t LEFT SEMI JOIN (
    SELECT cluster, incarnation FROM complained GROUP BY cluster, incarnation
    HAVING count(DISTINCT node) > 1 AND max(ts) >= min(ts) + make_dt_interval(0, 0, 0, no_controller_seconds(cluster, NULL))) s
  ON s.cluster = t.cluster AND s.incarnation = t.incarnation
), known AS (
  -- brokers that the logs name, and since when
  SELECT cluster, incarnation, collect_list(struct(broker, since)) AS brokers FROM (
    SELECT cluster, incarnation, broker, min(since) AS since
    FROM (
      SELECT cluster, incarnation, broker, valid_from AS since FROM audited_broker_load WHERE valid_to IS NULL AND valid_from IS NOT NULL
      UNION ALL SELECT cluster, incarnation, broker, since FROM audited_broker_outages WHERE broker IS NOT NULL
      UNION ALL SELECT cluster, incarnation, broker, since FROM brokers_named)
    GROUP BY cluster, incarnation, broker)
  GROUP BY cluster, incarnation
), pauses AS (
  SELECT b.cluster, b.incarnation, b.ts AS since, lead(b.ts) OVER (PARTITION BY b.cluster, b.incarnation ORDER BY b.ts) AS until, b.record_id,
    lead(b.record_id) OVER (PARTITION BY b.cluster, b.incarnation ORDER BY b.ts) AS next_record
  FROM broker_signs b WHERE b.broker IS NULL
), silent AS (
  SELECT p.cluster, p.incarnation, p.since AS last_line, p.until, min(c.ts) AS since, max(c.ts) AS last_complaint, count(*) AS times,
    array_sort(collect_set(c.node)) AS nodes, array_compact(concat(array(p.record_id), slice(earliest_records(collect_list(struct(c.ts AS at, array(c.record_id) AS records))), 1, 10), array(p.next_record))) AS records,
    min_by(c.record_id, c.ts) AS record_id
  FROM (SELECT * FROM pauses WHERE until IS NULL OR until > since + make_dt_interval(0, 0, 0, no_controller_seconds(cluster, NULL))) p
  JOIN complaints c ON c.cluster = p.cluster AND c.incarnation = p.incarnation AND c.ts > p.since AND coalesce(c.ts < p.until, true)
  GROUP BY p.cluster, p.incarnation, p.since, p.until, p.record_id, p.next_record
  HAVING count(DISTINCT c.node) > 1 AND max(c.ts) >= min(c.ts) + make_dt_interval(0, 0, 0, no_controller_seconds(p.cluster, NULL))
), gaps AS (
  SELECT g.cluster, g.incarnation, g.node, g.since, g.until, 'vacant' AS kind, CAST(NULL AS ARRAY<INT>) AS brokers,
    CAST(NULL AS BIGINT) AS times, CAST(NULL AS TIMESTAMP) AS last_complaint, CAST(NULL AS TIMESTAMP) AS last_line,
    g.evidence, true AS by_absence
  FROM vacant g
  JOIN known u ON u.cluster = g.cluster AND u.incarnation = g.incarnation
  -- where there is only one broker, broker_down reports it
  WHERE exists(u.brokers, b -> b.broker <> g.node AND b.since <= g.since)
    -- another broker was up, and the controller itself did not continue; for earlier days controller_vacancies knows that by the hour
    AND EXISTS (
      SELECT 1 FROM audited_events e WHERE e.cluster = g.cluster AND e.incarnation = g.incarnation AND e.node <> g.node
        AND e.ts > g.since - INTERVAL 10 MINUTES AND e.ts < coalesce(g.until, g.now) - INTERVAL 1 SECOND)
    AND NOT EXISTS (
      SELECT 1 FROM audited_events e JOIN leading l ON l.event_type = e.event_type
      WHERE e.cluster = g.cluster AND e.incarnation = g.incarnation AND e.node = g.node
        AND e.ts > g.since + INTERVAL 1 SECOND AND e.ts < coalesce(g.until, g.now) - INTERVAL 1 SECOND)
  UNION ALL
  SELECT s.cluster, s.incarnation, CAST(NULL AS INT), s.since, s.until, 'unreachable', s.nodes, s.times, s.last_complaint, s.last_line,
    s.records, false
  FROM silent s
  LEFT ANTI JOIN controller_vacancies g ON g.cluster = s.cluster AND g.incarnation = s.incarnation AND g.since <= s.last_complaint AND coalesce(g.until >= s.since, true)
)
SELECT
  g.cluster, g.incarnation,
  CASE WHEN bool_or(g.until IS NULL) THEN 'critical' ELSE 'error' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT g.node) = 1 THEN max(g.node) END AS node,
  min(g.since) AS first_seen, max(coalesce(g.until, k.now)) AS last_seen, bool_and(g.until IS NOT NULL) AS ended,
  min_by(g.kind, g.since) AS kind,
  min_by(g.brokers, g.since) AS brokers,
  min(g.since) AS began,
  min_by(g.until, g.since) AS first_until,
  max(k.now) AS now,
  min_by(g.times, g.since) AS times_refused,
  min_by(g.last_complaint, g.since) AS last_refused,
  min_by(g.last_line, g.since) AS silent_since,
  min_by(g.node, g.since) AS first_node,
  count(*) AS times,
  max(unix_seconds(coalesce(g.until, k.now)) - unix_seconds(g.since)) AS longest,
  'cluster' AS thing,
  earliest_records(collect_list(struct(g.since AS at, g.evidence AS records))) AS evidence,
  g.by_absence
FROM gaps g
JOIN clocks k ON k.cluster = g.cluster
WHERE
  -- a cluster that is shut down needs no controller
  NOT EXISTS (
    SELECT 1 FROM audited_broker_outages o
    WHERE o.cluster = g.cluster AND o.incarnation = g.incarnation AND o.broker IS NULL
      AND o.since <= coalesce(g.until, k.now) AND coalesce(o.until >= g.since, true))
GROUP BY g.cluster, g.incarnation, g.by_absence, date_trunc('DAY', g.since)
