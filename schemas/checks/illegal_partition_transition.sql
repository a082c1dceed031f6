-- severity: error
-- harm: protocol
-- title: Illegal partition state change
-- concludes: a line that names both states.
-- needs: lines
-- silence: legal_moves holds the moves of Kafka's state machine; they are no log lines.
-- why: The controller moved a partition to a state that Kafka's partition state machine does not reach from the one it was in.
-- do: Compare the records around it. A fail-over lets the next controller read the state anew from ZooKeeper.
-- same: record_id
SELECT
  e.cluster, e.incarnation, 'error' AS severity, e.topic, e.partition, CAST(NULL AS INT) AS replica, e.node,
  e.ts AS first_seen, e.ts AS last_seen, false AS ended,
  concat(e.topic, '-', e.partition, ': ', e.from_state, ' -> ', e.to_state) AS thing,
  concat('Controller ', coalesce(cast(e.controller AS STRING), '?'), ' moved ', e.topic, '-', e.partition, ' from ', e.from_state,
         ' to ', e.to_state, '; Kafka has no such move in any version.') AS detail,
  e.record_id AS same,
  array(e.record_id) AS evidence
FROM audited_events e
LEFT ANTI JOIN legal_moves m ON m.machine = 'partition' AND m.from_state = e.from_state AND m.to_state = e.to_state
WHERE e.says = 'happened' AND e.replica IS NULL AND e.from_state LIKE '%Partition' AND e.to_state LIKE '%Partition'
