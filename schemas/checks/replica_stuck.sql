-- severity: warning
-- harm: protocol
-- title: Replica stuck in a passing state
-- why: The controller holds a replica in a state that should last seconds, for longer than replica_stuck_minutes - NewReplica (its broker never
--   took it up), ReplicaDeletionStarted (it never answered), OfflineReplica though its broker serves. A broker that is down, and a
--   deletion that waits for one, have findings of their own.
-- do: Look in the log of that broker for an error about the partition. A controller fail-over reads the states anew.
-- same: broker, state, begin
-- also: subjects
-- only: NewReplica, ReplicaDeletionStarted, OfflineReplica
-- thresholds: replica_stuck_minutes=15
-- candidates: stuck
WITH stuck AS (
  SELECT r.*, k.now FROM audited_replica_timeline r
  JOIN clocks k ON k.cluster = r.cluster AND k.incarnation = r.incarnation
  WHERE r.valid_to IS NULL AND r.state IN ('NewReplica', 'ReplicaDeletionStarted', 'OfflineReplica') AND r.record_id IS NOT NULL
    AND r.valid_from + make_dt_interval(0, 0, replica_stuck_minutes(r.cluster, r.topic)) <= k.now
)
SELECT
  s.cluster, s.incarnation, 'warning' AS severity, CASE WHEN count(DISTINCT s.topic) = 1 THEN min(s.topic) END AS topic,
  CASE WHEN count(*) = 1 THEN min(s.partition) END AS partition, s.replica, s.replica AS node,
  min(s.valid_from) AS first_seen, max(s.now) AS last_seen, false AS ended,
  concat('at least ', counted(count(*), 'replica'), ' of broker ', s.replica, ' in ', s.state) AS thing,
  concat('Since ', date_format(min(s.valid_from), 'yyyy-MM-dd HH:mm:ss'), ' (', round(max(unix_seconds(s.now) - unix_seconds(s.valid_from)) / 60),
         ' minutes) the controller holds at least ', counted(count(*), 'replica'), ' of broker ', s.replica, ' in ', s.state, ', ',
         min(concat(s.topic, '-', s.partition)), ' for one. No outage of the broker was found.') AS detail,
  concat_ws('|', s.replica, s.state, min_by(s.record_id, struct(s.valid_from, s.topic, s.partition))) AS same,
  slice(array_sort(collect_set(s.record_id)), 1, 20) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.valid_from AS since, CAST(NULL AS TIMESTAMP) AS until)) AS subjects
FROM stuck s
LEFT ANTI JOIN audited_broker_outages o ON o.cluster = s.cluster AND o.incarnation = s.incarnation AND o.broker = s.replica AND o.until IS NULL
LEFT ANTI JOIN audited_topic_deletions d ON d.cluster = s.cluster AND d.incarnation = s.incarnation AND d.topic = s.topic
  AND (d.completed_at IS NOT NULL OR size(d.blocked_by) > 0)
LEFT ANTI JOIN audited_partitions_now p ON p.cluster = s.cluster AND p.incarnation = s.incarnation AND p.topic = s.topic
  AND p.partition = s.partition AND array_contains(p.isr, s.replica)
GROUP BY s.cluster, s.incarnation, s.replica, s.state
