-- severity: warning
-- harm: risk
-- title: Controller events are slow
-- concludes: lines with which the controller reports slow events.
-- needs: lines
-- why: The KRaft controller reports events that took far longer than it expects, several within an hour (slow_events_per_hour). Elections, registrations
--   and heartbeats wait behind them, and brokers that wait too long are fenced.
-- do: Look at the disk of the metadata log, at CPU and garbage collections of the controller, and at what the slow events are.
-- same: node
-- episodes: yes
-- only: controller_event_slow
-- thresholds: slow_events_per_hour
-- candidates: slow
WITH slow AS (
  SELECT * FROM (
    SELECT cluster, incarnation, node, ts, record_id, request,
      count(*) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour
    FROM audited_events WHERE event_type = 'controller_event_slow' AND ts IS NOT NULL)
)
SELECT
  s.cluster, s.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, s.node, min(s.ts) AS first_seen, max(s.ts) AS last_seen, max(s.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  concat(counted(count(*), 'slow event'), coalesce(concat(' of controller ', s.node), '')) AS thing,
  concat(coalesce(concat('Controller ', s.node), 'A controller'), ' reported ', counted(count(*), 'slow event'), ' on ', date_format(min(s.ts), 'yyyy-MM-dd'), ', up to ', max(s.within_hour),
         ' within one hour; the first: ', left(min_by(s.request, s.ts), 120), '.') AS detail,
  coalesce(CAST(s.node AS STRING), '') AS same,
  earliest_records(collect_list(struct(s.ts AS at, array(s.record_id) AS records))) AS evidence
FROM slow s
JOIN clocks k ON k.cluster = s.cluster
GROUP BY s.cluster, s.incarnation, s.node, date_trunc('DAY', s.ts)
HAVING max(s.within_hour) >= slow_events_per_hour(s.cluster, NULL)
