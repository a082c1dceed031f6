-- severity: error
-- harm: protocol
-- concludes: a line that names both states.
-- needs: lines
-- silence: legal_moves has the moves of Kafka's state machine; they are no log lines.
-- identity: record_id
-- facts: from_state, to_state, controller
-- only: replica_state_changed
SELECT
  e.cluster, e.incarnation,
  'error' AS severity,
  e.topic, e.partition, e.replica, e.node,
  e.ts AS first_seen, e.ts AS last_seen, false AS ended,
  e.from_state,
  e.to_state,
  e.controller,
  e.record_id AS thing,
  array(e.record_id) AS evidence
FROM audited_events e
LEFT JOIN clocks v ON v.cluster = e.cluster
LEFT ANTI JOIN legal_moves m
  ON m.machine = 'replica' AND m.from_state = e.from_state AND m.to_state = e.to_state
  AND (v.version_number IS NULL OR m.since <= v.version_number)
  -- 0.8.0 does not print the previous state
WHERE e.says = 'happened' AND e.event_type = 'replica_state_changed' AND e.from_state IS NOT NULL
