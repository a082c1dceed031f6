-- severity: warning
-- title: Clocks of two nodes differ
-- why: Two nodes tell the same changes with time stamps that are apart by the same amount every time (clock_skew_ms and more), which processing
--   does not do. What happened first on which node is then uncertain, and times of these logs are off by so much.
-- do: Check NTP on the node, and the time zone that its logs are given with (timezone in audit.toml).
-- same: pair of nodes, half hours of difference
-- only: leader_started, follower_started
-- thresholds: clock_skew_ms=2000
WITH told AS (
  -- one leader epoch and partition epoch of one partition: its leader, its followers and the controller all print it
  SELECT cluster, incarnation, node, topic, partition, leader_epoch, coalesce(partition_epoch, -1) AS partition_epoch,
    max(CASE WHEN event_type = 'leader_started' THEN node ELSE leader END) AS leader, min(ts) AS ts, min_by(record_id, ts) AS record_id, CASE WHEN event_type IN ('leader_started', 'follower_started') THEN 'role' ELSE 'change' END AS kind
  FROM audited_events
  WHERE topic IS NOT NULL AND leader_epoch IS NOT NULL AND node IS NOT NULL AND ts IS NOT NULL
    AND (event_type IN ('leader_started', 'follower_started') OR says = 'happened' AND to_state = 'OnlinePartition')
  GROUP BY cluster, incarnation, node, topic, partition, leader_epoch, coalesce(partition_epoch, -1),
    CASE WHEN event_type IN ('leader_started', 'follower_started') THEN 'role' ELSE 'change' END
), pairs AS (
  SELECT a.cluster, a.incarnation, least(a.node, b.node) AS node, greatest(a.node, b.node) AS other,
    CASE WHEN a.node < b.node THEN unix_millis(b.ts) - unix_millis(a.ts) ELSE unix_millis(a.ts) - unix_millis(b.ts) END AS ms,
    a.ts, a.record_id, b.record_id AS other_record
  FROM told a
  JOIN told b ON b.cluster = a.cluster AND b.incarnation = a.incarnation AND b.topic = a.topic AND b.partition = a.partition
    AND b.leader_epoch = a.leader_epoch AND b.node <> a.node AND coalesce(b.leader = a.leader, true)
    AND (a.kind = 'change' AND b.kind = 'role' OR a.kind = 'role' AND b.kind = 'role' AND a.node < b.node AND a.partition_epoch = b.partition_epoch)
), measured AS (
  SELECT cluster, incarnation, node, other, count(*) AS facts, min(ms) AS least, max(ms) AS most,
    percentile_approx(ms, array(0.1, 0.5, 0.9)) AS parts, min(ts) AS since, max(ts) AS until,
    slice(array_distinct(flatten(array_sort(collect_list(array(record_id, other_record))))), 1, 10) AS records
  FROM pairs GROUP BY cluster, incarnation, node, other
)
SELECT
  m.cluster, m.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, m.other AS node, m.since AS first_seen, m.until AS last_seen, false AS ended,
  concat('nodes ', m.node, ' and ', m.other) AS thing,
  concat('Node ', m.other, ' tells the same ', m.facts, ' changes about ', abs(m.parts[1]) / 1000, ' s ', CASE WHEN m.parts[1] > 0 THEN 'later' ELSE 'earlier' END,
         ' than node ', m.node, ' (between ', m.least / 1000, ' and ', m.most / 1000, ' s).') AS detail,
  concat_ws('|', m.node, m.other, round(m.parts[1] / 1800000.0)) AS same,
  m.records AS evidence
FROM measured m
WHERE m.facts >= 5 AND abs(m.parts[1]) >= clock_skew_ms(m.cluster, NULL)
  -- a constant distance, not a slow node: nine tenths lie on one side and close together
  AND sign(get(m.parts, 0)) = sign(m.parts[2]) AND abs(m.parts[2] - get(m.parts, 0)) <= greatest(1000, abs(m.parts[1]) / 4)
  AND least(abs(get(m.parts, 0)), abs(m.parts[2])) >= clock_skew_ms(m.cluster, NULL) / 2
