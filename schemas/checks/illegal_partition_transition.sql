-- severity: error
-- harm: protocol
-- concludes: a line that names both states.
-- needs: lines
-- silence: legal_moves has the moves of Kafka's state machine; they are no log lines.
-- identity: record_id
-- facts: from_state, to_state, controller
SELECT
  e.cluster, e.incarnation,
  'error' AS severity,
  e.topic, e.partition, CAST(NULL AS INT) AS replica, e.node,
  e.ts AS first_seen, e.ts AS last_seen, false AS ended,
  e.from_state,
  e.to_state,
  e.controller,
  e.record_id AS thing,
  array(e.record_id) AS evidence
FROM audited_events e
LEFT ANTI JOIN legal_moves m ON m.machine = 'partition' AND m.from_state = e.from_state AND m.to_state = e.to_state
WHERE e.says = 'happened' AND e.replica IS NULL AND e.from_state LIKE '%Partition' AND e.to_state LIKE '%Partition'
