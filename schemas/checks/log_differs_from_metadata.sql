-- severity: warning
-- harm: protocol
-- concludes: a line, and the dumped metadata log that has all states of the partition.
-- needs: lines
-- silence: the metadata log is complete from its first record to its last.
-- identity: topic, partition, partition epoch
-- facts: lines, epoch, example
-- only: metadata_log
WITH dumps AS (
  SELECT cluster, incarnation, max(ts) AS until FROM audited_events WHERE logger = '__cluster_metadata' GROUP BY cluster, incarnation
), dumped AS (
  SELECT * FROM audited_partition_timeline WHERE source = 'metadata_log' AND partition_epoch IS NOT NULL
), covered AS (
  SELECT cluster, incarnation, topic, partition, min(partition_epoch) AS first_epoch FROM dumped
  GROUP BY cluster, incarnation, topic, partition
), said AS (
  SELECT e.*, coalesce(e.leader, CASE WHEN e.event_type = 'leader_started' THEN e.node END) AS its_leader
  FROM audited_events e
  JOIN covered c ON c.cluster = e.cluster AND c.incarnation = e.incarnation AND c.topic = e.topic AND c.partition = e.partition
  JOIN dumps d ON d.cluster = e.cluster AND d.incarnation = e.incarnation
  -- the dump lacks records that are written while it is taken
  WHERE e.says IN ('happened', 'is') AND e.logger <> '__cluster_metadata' AND e.partition_epoch >= c.first_epoch
    AND e.ts < d.until - INTERVAL 1 SECOND
)
SELECT
  s.cluster, s.incarnation,
  'warning' AS severity,
  s.topic, s.partition, CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT s.node) = 1 THEN max(s.node) END AS node,
  min(s.ts) AS first_seen, max(s.ts) AS last_seen, false AS ended,
  count(*) AS lines,
  s.partition_epoch AS epoch,
  min(s.raw) AS example,
  concat_ws('|', s.topic, s.partition, s.partition_epoch) AS thing,
  earliest_records(collect_list(struct(s.ts AS at, array(s.record_id) AS records))) AS evidence
FROM said s
LEFT ANTI JOIN dumped h
  ON h.cluster = s.cluster AND h.incarnation = s.incarnation AND h.topic = s.topic AND h.partition = s.partition
  AND h.partition_epoch = s.partition_epoch
  AND coalesce(s.its_leader = h.leader, true) AND coalesce(s.leader_epoch = h.leader_epoch, true)
  AND coalesce(array_sort(s.isr) = array_sort(h.isr), true) AND coalesce(s.replicas = h.replicas, true)
  AND coalesce(array_sort(s.adding_replicas) = array_sort(h.adding_replicas), true)
  AND coalesce(array_sort(s.removing_replicas) = array_sort(h.removing_replicas), true)
GROUP BY s.cluster, s.incarnation, s.topic, s.partition, s.partition_epoch
