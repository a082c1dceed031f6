-- severity: warning
-- harm: housekeeping
-- concludes: no line of a node while others wrote and name it.
-- needs: this_node
-- identity: node
-- facts: minutes, mentions
-- episodes: yes
-- thresholds: log_gap_minutes
-- candidates: gaps
WITH minutes AS (
  SELECT *, lag(minute) OVER w AS earlier, lead(minute) OVER w AS later
  FROM (SELECT DISTINCT cluster, incarnation, node, date_trunc('MINUTE', ts) AS minute FROM audited_events WHERE node IS NOT NULL AND ts IS NOT NULL)
  WINDOW w AS (PARTITION BY cluster, incarnation, node ORDER BY minute)
), beside AS (
  -- minutes beside a pause; to order the records of all minutes takes long
  SELECT * FROM minutes
  WHERE minute >= earlier + make_dt_interval(0, 0, log_gap_minutes(cluster, NULL))
    OR later >= minute + make_dt_interval(0, 0, log_gap_minutes(cluster, NULL))
), written AS (
  SELECT e.cluster, e.incarnation, e.node, e.ts, e.record_id, b.earlier, lag(e.ts) OVER w AS before, lag(e.record_id) OVER w AS record_before
  FROM audited_events e
  JOIN beside b ON b.cluster = e.cluster AND b.incarnation = e.incarnation AND b.node = e.node AND b.minute = date_trunc('MINUTE', e.ts)
  WINDOW w AS (PARTITION BY e.cluster, e.incarnation, e.node ORDER BY e.ts, e.record_no)
), gaps AS (
  -- without the time in which the node was down
  SELECT * FROM (
    SELECT w.cluster, w.incarnation, w.node, w.ts, w.record_id, w.record_before, greatest(w.before, max(o.until)) AS before
    FROM written w
    LEFT JOIN audited_broker_outages o ON o.cluster = w.cluster AND o.incarnation = w.incarnation AND o.broker = w.node AND o.until > w.before AND o.since < w.ts
    WHERE w.before >= w.earlier AND w.ts > w.before + make_dt_interval(0, 0, log_gap_minutes(w.cluster, NULL))
    GROUP BY w.cluster, w.incarnation, w.node, w.ts, w.record_id, w.record_before, w.before)
  WHERE ts > before + make_dt_interval(0, 0, log_gap_minutes(cluster, NULL))
), missed AS (
  -- other nodes log that it took a role or was contacted meanwhile
  SELECT g.cluster, g.incarnation, g.node, g.before, g.ts, g.record_before, g.record_id, count(*) AS times,
    slice(earliest_records(collect_list(struct(e.ts AS at, array(e.record_id) AS records))), 1, 10) AS records
  FROM gaps g
  JOIN audited_events e ON e.cluster = g.cluster AND e.incarnation = g.incarnation AND e.ts > g.before + INTERVAL 1 MINUTE AND e.ts < g.ts - INTERVAL 1 MINUTE
    AND e.node <> g.node AND (
      e.says = 'happened' AND e.to_state = 'OnlinePartition' AND e.leader = g.node
      OR e.event_type IN ('follower_started', 'fetcher_added', 'fetcher_added_at_offset') AND e.leader = g.node
      OR e.event_type IN ('channel_connected', 'broker_started', 'broker_unfenced', 'leader_and_isr_sending') AND e.broker = g.node)
  GROUP BY g.cluster, g.incarnation, g.node, g.before, g.ts, g.record_before, g.record_id
), missing AS (
  -- the part in which other nodes wrote, including pauses of six minutes, because a controller writes every five
  SELECT cluster, incarnation, node, before, ts, record_before, record_id, times, records,
    sum(CASE WHEN minute <= last + INTERVAL 6 MINUTES THEN unix_seconds(minute) - unix_seconds(last) END) / 60 AS minutes
  FROM (
    SELECT g.*, m.minute, lag(m.minute) OVER (PARTITION BY g.cluster, g.incarnation, g.node, g.ts ORDER BY m.minute) AS last
    FROM missed g
    JOIN minutes m ON m.cluster = g.cluster AND m.node <> g.node AND m.minute > g.before AND m.minute < g.ts)
  GROUP BY ALL
)
SELECT
  m.cluster, m.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, m.node,
  m.before AS first_seen, m.ts AS last_seen, false AS ended,
  floor(m.minutes) AS minutes,
  m.times AS mentions,
  CAST(m.node AS STRING) AS thing,
  array_distinct(concat(array(m.record_before), m.records, array(m.record_id))) AS evidence
FROM missing m
LEFT ANTI JOIN audited_broker_outages o ON o.cluster = m.cluster AND o.incarnation = m.incarnation AND o.broker = m.node
  AND o.since <= m.before + INTERVAL 2 MINUTES AND coalesce(o.until >= m.ts - INTERVAL 2 MINUTES, true)
WHERE m.minutes >= log_gap_minutes(m.cluster, NULL)
