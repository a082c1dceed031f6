-- severity: warning
-- harm: protocol
-- concludes: a state that a controller printed and no line of the next one.
-- needs: controller
-- identity: broker, state
-- facts: state, replicas, longest, example
-- also: subjects
-- only: NewReplica, ReplicaDeletionStarted, OfflineReplica
-- thresholds: replica_stuck_minutes
-- candidates: stuck
WITH stuck AS (
  SELECT r.*, k.now FROM audited_replica_timeline r
  JOIN clocks k ON k.cluster = r.cluster AND k.incarnation = r.incarnation
  WHERE r.valid_to IS NULL AND r.state IN ('NewReplica', 'ReplicaDeletionStarted', 'OfflineReplica') AND r.record_id IS NOT NULL
    AND r.valid_from + make_dt_interval(0, 0, replica_stuck_minutes(r.cluster, r.topic)) <= k.now
)
SELECT
  s.cluster, s.incarnation,
  'warning' AS severity,
  CASE WHEN count(DISTINCT s.topic) = 1 THEN min(s.topic) END AS topic, CASE WHEN count(*) = 1 THEN min(s.partition) END AS partition, s.replica, s.replica AS node,
  min(s.valid_from) AS first_seen, max(s.now) AS last_seen, false AS ended,
  s.state,
  count(*) AS replicas,
  max(unix_seconds(s.now) - unix_seconds(s.valid_from)) AS longest,
  min(concat(s.topic, '-', s.partition)) AS example,
  concat_ws('|', s.replica, s.state) AS thing,
  earliest_records(collect_list(struct(s.valid_from AS at, array(s.record_id) AS records))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.valid_from AS since, CAST(NULL AS TIMESTAMP) AS until)) AS subjects
FROM stuck s
LEFT ANTI JOIN audited_broker_outages o ON o.cluster = s.cluster AND o.incarnation = s.incarnation AND o.broker = s.replica AND o.until IS NULL
LEFT ANTI JOIN audited_topic_deletions d ON d.cluster = s.cluster AND d.incarnation = s.incarnation AND d.topic = s.topic
  AND (d.completed_at IS NOT NULL OR size(d.blocked_by) > 0)
-- a replica is new until it has caught up (KafkaController.onPartitionReassignment, 0.8 to 3.9)
LEFT ANTI JOIN audited_reassignments a ON a.cluster = s.cluster AND a.incarnation = s.incarnation AND a.topic = s.topic AND a.partition = s.partition
  AND a.outcome = 'in_progress' AND s.state = 'NewReplica' AND array_contains(a.adding_replicas, s.replica)
-- since 2.6, no INFO line shows that a replica which is no longer assigned was removed
LEFT ANTI JOIN audited_partitions_now g ON g.cluster = s.cluster AND g.incarnation = s.incarnation AND g.topic = s.topic
  AND g.partition = s.partition AND s.state = 'OfflineReplica' AND NOT array_contains(g.replicas, s.replica)
-- nor that a replica is back with its broker (KafkaController.onBrokerStartup)
LEFT ANTI JOIN (
  SELECT o.* FROM audited_broker_outages o LEFT ANTI JOIN logs_seen l ON l.cluster = o.cluster AND l.traced) b
  ON b.cluster = s.cluster AND b.incarnation = s.incarnation AND b.broker = s.replica AND s.state = 'OfflineReplica' AND b.until > s.valid_from
LEFT ANTI JOIN audited_partitions_now p ON p.cluster = s.cluster AND p.incarnation = s.incarnation AND p.topic = s.topic
  AND p.partition = s.partition AND array_contains(p.isr, s.replica)
GROUP BY s.cluster, s.incarnation, s.replica, s.state
