-- severity: error
-- harm: protocol
-- levels: an error; a warning for what Kafka before 2.3 does on every deletion of a topic with a replica on a dead broker (OfflineReplica to
--   ReplicaDeletionIneligible; the deletion waits for the broker); info where a controller that takes over a running reassignment asks once more for
--   its added replicas.
-- concludes: a line of the refusal.
-- needs: lines
-- identity: topic, partition, replica, move
-- facts: from_state, to_state, refusals, message, is_known_before_2_3, is_asked_again
-- only: replica_state_change_failed, partition_state_change_failed
SELECT
  e.cluster, e.incarnation,
  CASE WHEN known_before_2_3 THEN 'warning' WHEN asked_again THEN 'info' ELSE 'error' END AS severity,
  e.topic, e.partition, e.replica, max(e.node) AS node,
  min(e.ts) AS first_seen, max(e.ts) AS last_seen, false AS ended,
  e.from_state,
  e.to_state,
  count(*) AS refusals,
  max(e.error_message) AS message,
  known_before_2_3 AS is_known_before_2_3,
  asked_again AS is_asked_again,
  concat_ws('|', e.topic, e.partition, e.replica, e.from_state, e.to_state) AS thing,
  earliest_records(collect_list(struct(e.ts AS at, array(e.record_id) AS records))) AS evidence
FROM (
  SELECT *, replica IS NOT NULL AND to_state = 'ReplicaDeletionIneligible'
            AND from_state IN ('OfflineReplica', 'ReplicaDeletionIneligible') AS known_before_2_3,
    replica IS NOT NULL AND to_state = 'NewReplica' AND EXISTS (
      SELECT 1 FROM audited_reassignments r
      WHERE r.cluster = audited_events.cluster AND r.incarnation = audited_events.incarnation AND r.topic = audited_events.topic
        AND r.partition = audited_events.partition AND array_contains(r.adding_replicas, audited_events.replica)
        AND (r.started_at IS NULL OR audited_events.ts IS NULL OR r.started_at <= audited_events.ts)) AS asked_again
  FROM audited_events
  WHERE says = 'failed' AND event_type IN ('replica_state_change_failed', 'partition_state_change_failed')
    AND error_message LIKE '%before moving to%'
) e
GROUP BY e.cluster, e.incarnation, e.topic, e.partition, e.replica, e.from_state, e.to_state, known_before_2_3, asked_again
