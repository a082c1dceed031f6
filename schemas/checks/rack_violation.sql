-- severity: warning
-- harm: risk
-- concludes: a replica list, until a line shows another one, and the racks that lines name.
-- needs: controller or every_node, else info
-- identity: topic
-- facts: violations
SELECT
  a.cluster, a.incarnation,
  'warning' AS severity,
  a.topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  a.valid_from AS first_seen, n.now AS last_seen, false AS ended,
  slice(of_shared_racks(a.violations), 1, 10) AS violations,
  a.topic AS thing,
  a.record_ids AS evidence
FROM audited_topic_assignments a
JOIN clocks n ON n.cluster = a.cluster AND n.incarnation = a.incarnation
WHERE a.valid_to IS NULL AND size(of_shared_racks(a.violations)) > 0 AND size(a.record_ids) > 0
