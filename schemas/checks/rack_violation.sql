-- severity: warning
-- harm: risk
-- title: Replicas share a rack
-- concludes: a replica list, until a line shows another one, and the racks that lines name.
-- needs: controller or every_node, else info
-- why: Two replicas of a partition are in one rack though there are racks enough for each to have its own: when that rack fails, they
--   fail together. Racks are those that the lines name, or audit.toml.
-- do: Move one of the replicas to a rack that has none (kafka-reassign-partitions); see whether broker.rack is set on every broker.
-- same: topic
SELECT
  a.cluster, a.incarnation, 'warning' AS severity, a.topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica,
  CAST(NULL AS INT) AS node, a.valid_from AS first_seen, n.now AS last_seen, false AS ended,
  a.topic AS thing,
  concat(a.topic, ': ', array_join(slice(filter(a.violations, v -> v LIKE '%two replicas in rack%'), 1, 10), '; '), '.') AS detail,
  a.topic AS same,
  a.record_ids AS evidence
FROM audited_topic_assignments a
JOIN clocks n ON n.cluster = a.cluster AND n.incarnation = a.incarnation
WHERE a.valid_to IS NULL AND exists(a.violations, v -> v LIKE '%two replicas in rack%') AND size(a.record_ids) > 0
