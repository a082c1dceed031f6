-- severity: error
-- harm: protocol
-- title: Illegal replica state change
-- concludes: a line that names both states.
-- needs: lines
-- silence: legal_moves holds the moves of Kafka's state machine; they are no log lines.
-- why: The controller moved a replica to a state that Kafka's replica state machine does not reach from the one it was in. Its
--   memory and the log of it disagree, or the log has been tampered with.
-- do: Compare the records around it. A fail-over lets the next controller read the state anew from ZooKeeper.
-- same: record_id
-- only: replica_state_changed
SELECT
  e.cluster, e.incarnation, 'error' AS severity, e.topic, e.partition, e.replica, e.node,
  e.ts AS first_seen, e.ts AS last_seen, false AS ended,
  concat('replica ', e.replica, ' of ', e.topic, '-', e.partition, ': ', e.from_state, ' -> ', e.to_state) AS thing,
  concat('Controller ', coalesce(cast(e.controller AS STRING), '?'), ' moved replica ', e.replica, ' of ', e.topic, '-', e.partition,
         ' from ', e.from_state, ' to ', e.to_state, '; Kafka ', coalesce(v.kafka_version, '(version not known)'),
         ' has no such move.') AS detail,
  e.record_id AS same,
  array(e.record_id) AS evidence
FROM audited_events e
LEFT JOIN clocks v ON v.cluster = e.cluster
LEFT ANTI JOIN legal_moves m
  ON m.machine = 'replica' AND m.from_state = e.from_state AND m.to_state = e.to_state
  AND (v.version_number IS NULL OR m.since <= v.version_number)
  -- 0.8.0 does not print the state before
WHERE e.says = 'happened' AND e.event_type = 'replica_state_changed' AND e.from_state IS NOT NULL
