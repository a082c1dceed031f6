-- about: pairs of nodes whose clocks differ: both log the same changes, with a constant distance of time stamps
-- ms: the time stamps of `other` minus those of `node`
WITH logged AS (
  -- leader, followers and controller all log a partition's leader epoch and partition epoch
  SELECT cluster, incarnation, node, topic, partition, leader_epoch, coalesce(partition_epoch, -1) AS partition_epoch, controller_epoch,
    max(CASE WHEN event_type = 'leader_started' THEN node ELSE leader END) AS leader, min(ts) AS ts, min_by(record_id, ts) AS record_id, min_by(file, ts) AS file, CASE WHEN event_type IN ('leader_started', 'follower_started') THEN 'role' ELSE 'change' END AS kind
  FROM audited_events
  WHERE topic IS NOT NULL AND leader_epoch IS NOT NULL AND node IS NOT NULL AND ts IS NOT NULL
    AND (event_type IN ('leader_started', 'follower_started') OR says = 'happened' AND to_state = 'OnlinePartition')
  GROUP BY cluster, incarnation, node, topic, partition, leader_epoch, coalesce(partition_epoch, -1), controller_epoch,
    CASE WHEN event_type IN ('leader_started', 'follower_started') THEN 'role' ELSE 'change' END
), pairs AS (
  SELECT a.cluster, a.incarnation, least(a.node, b.node) AS node, greatest(a.node, b.node) AS other,
    CASE WHEN a.node < b.node THEN unix_millis(b.ts) - unix_millis(a.ts) ELSE unix_millis(a.ts) - unix_millis(b.ts) END AS ms,
    a.ts, a.record_id, b.record_id AS other_record
  FROM logged a
  JOIN logged b ON b.cluster = a.cluster AND b.incarnation = a.incarnation AND b.topic = a.topic AND b.partition = a.partition
    AND b.leader_epoch = a.leader_epoch AND b.node <> a.node
    -- a topic that is created again begins with the same leader epoch
    AND coalesce(b.controller_epoch = a.controller_epoch, true)
    -- records of one file have one clock
    AND b.file <> a.file AND coalesce(b.leader = a.leader, true)
    AND (a.kind = 'change' AND b.kind = 'role' OR a.kind = 'role' AND b.kind = 'role' AND a.node < b.node AND a.partition_epoch = b.partition_epoch)
), measured AS (
  SELECT cluster, incarnation, node, other, count(*) AS facts, count(DISTINCT floor(unix_seconds(ts) / 10)) AS moments, min(ms) AS least, max(ms) AS most,
    percentile_approx(ms, array(0.1, 0.5, 0.9)) AS parts, min(ts) AS since, max(ts) AS until,
    slice(earliest_records(collect_list(struct(ts AS at, array(record_id, other_record) AS records))), 1, 10) AS records
  FROM pairs GROUP BY cluster, incarnation, node, other
)
SELECT cluster, incarnation, node, other, facts, parts[1] AS ms, least, most, since, until, records
FROM measured m
WHERE m.facts >= 5 AND m.moments >= 3 AND abs(m.parts[1]) >= clock_skew_ms(m.cluster, NULL)
  -- a constant distance, not a slow node: nine tenths have one direction and are close together
  AND sign(get(m.parts, 0)) = sign(m.parts[2]) AND abs(m.parts[2] - get(m.parts, 0)) <= greatest(1000, abs(m.parts[1]) / 4)
  AND least(abs(get(m.parts, 0)), abs(m.parts[2])) >= clock_skew_ms(m.cluster, NULL) / 2
