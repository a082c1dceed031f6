-- severity: critical
-- title: Partition without a leader
-- why: No replica that may lead is alive: nobody can write to or read from the partition. Interruptions shorter than
--   thresholds.leaderless_seconds are not reported; every restart of a broker that holds the only replica makes one. Neither is what
--   follows from all nodes being shut down.
-- do: Start a broker of the last ISR. If none can come back, electing a replica that is not in sync loses what it had not copied
--   (kafka-leader-election --election-type UNCLEAN).
-- thresholds: leaderless_seconds=30
-- same: topic, partition, begin
WITH stops AS (
  SELECT cluster, incarnation, node,
    max(CASE WHEN event_type = 'broker_stop_signal' OR (event_type = 'broker_stopping' AND logger LIKE '%Server') THEN ts END) AS stopped_at,
    max(CASE WHEN event_type IN ('broker_starting', 'broker_registered', 'broker_running') THEN ts END) AS started_at
  FROM audited_events WHERE node IS NOT NULL GROUP BY cluster, incarnation, node
), shutdowns AS (
  -- all nodes were told to stop and none came back: the cluster was shut down, and nobody misses a leader
  SELECT cluster, incarnation, min(stopped_at) AS since FROM stops
  GROUP BY cluster, incarnation HAVING bool_and(stopped_at IS NOT NULL AND (started_at IS NULL OR started_at < stopped_at))
), leaderless AS (
  SELECT t.*, t.leader = -1 AS no_leader,
    sum(CASE WHEN t.leader = -1 THEN 0 ELSE 1 END) OVER (
      PARTITION BY t.cluster, t.incarnation, t.topic, t.partition ORDER BY t.step
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS episode
  FROM audited_partition_timeline t
  WHERE t.leader IS NOT NULL OR t.state = 'NonExistentPartition'
), spells AS (
  SELECT l.cluster, l.incarnation, l.topic, l.partition, l.episode,
    min(l.valid_from) AS since, max(coalesce(l.valid_to, n.now)) AS until,
    bool_and(l.valid_to IS NOT NULL) AS ended,
    max_by(l.isr, l.step) AS isr, max_by(l.replicas, l.step) AS replicas,
    min_by(l.record_id, l.step) AS first_record,
    array_distinct(collect_list(l.record_id)) AS records
  FROM leaderless l JOIN clocks n ON n.cluster = l.cluster
  -- a topic that is being deleted has no leader, and is not missed
  WHERE l.no_leader AND coalesce(l.state, '') <> 'NonExistentPartition'
    AND NOT EXISTS (
      SELECT 1 FROM audited_topic_deletions d
      WHERE d.cluster = l.cluster AND d.incarnation = l.incarnation AND d.topic = l.topic
        AND (d.requested_at IS NULL OR l.valid_from IS NULL OR d.requested_at <= l.valid_from)
        AND (d.completed_at IS NULL OR l.valid_from IS NULL OR l.valid_from <= d.completed_at))
  GROUP BY l.cluster, l.incarnation, l.topic, l.partition, l.episode
)
SELECT
  s.cluster, s.incarnation, 'critical' AS severity, s.topic, s.partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  s.since AS first_seen, s.until AS last_seen, s.ended,
  concat(s.topic, '-', s.partition) AS thing,
  concat(s.topic, '-', s.partition, CASE WHEN s.ended THEN ' had' ELSE ' has' END, ' no leader from ',
         date_format(s.since, 'yyyy-MM-dd HH:mm:ss'), CASE WHEN s.ended THEN ' to ' ELSE ' to the end of the logs, ' END,
         date_format(s.until, 'yyyy-MM-dd HH:mm:ss'),
         coalesce(concat('; replicas ', array_join(cast(s.replicas AS ARRAY<STRING>), ',')), ''),
         coalesce(concat('; last in sync: ', array_join(cast(s.isr AS ARRAY<STRING>), ',')), ''), '.') AS detail,
  concat_ws('|', s.topic, s.partition, s.first_record) AS same,
  slice(s.records, 1, 50) AS evidence
FROM spells s
LEFT ANTI JOIN shutdowns d ON d.cluster = s.cluster AND d.incarnation = s.incarnation AND d.since <= s.since
WHERE s.since IS NOT NULL AND s.until >= s.since + make_dt_interval(0, 0, 0, leaderless_seconds(s.cluster, s.topic))
