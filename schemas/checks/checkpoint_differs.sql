-- severity: warning
-- harm: protocol
-- concludes: what a tool printed, and the intervals that lines show around that moment.
-- needs: lines
-- identity: topic, partition, moment
-- facts: taken_at, source, leader, leader_epoch, isr, replicas, file, line, logged
-- only: checkpoints
SELECT
  c.cluster, c.incarnation,
  'warning' AS severity,
  c.topic, c.partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  c.taken_at AS first_seen, c.taken_at AS last_seen, false AS ended,
  c.taken_at,
  c.source,
  c.leader,
  c.leader_epoch,
  c.isr,
  c.replicas,
  element_at(split(c.file, '/'), -1) AS file,
  c.line,
  c.logged,
  concat_ws('|', c.topic, c.partition, c.taken_at) AS thing,
  array(c.record_id) AS evidence
FROM audited_checkpoints c
JOIN clocks n ON n.cluster = c.cluster AND n.incarnation = c.incarnation
WHERE size(c.differs) > 0 AND c.record_id IS NOT NULL
