-- severity: warning
-- harm: protocol
-- title: A tool and the logs disagree
-- concludes: what a tool printed, and the intervals that lines show around that moment.
-- needs: lines
-- why: A tool was asked about a partition (--checkpoint), and no interval of its timeline near that moment says the same; or
--   about the quorum, and the logs know another leader of that epoch, or that a later one had begun. The logs miss a change, the moment given is wrong, or the output is of another cluster.
-- do: Compare both sides; see coverage for what these logs cannot show, and give the logs of all brokers.
-- same: topic, partition, moment
-- only: checkpoints
SELECT
  c.cluster, c.incarnation, 'warning' AS severity, c.topic, c.partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  c.taken_at AS first_seen, c.taken_at AS last_seen, false AS ended,
  concat(c.topic, '-', c.partition) AS thing,
  concat('At ', date_format(c.taken_at, 'yyyy-MM-dd HH:mm:ss'), ' ', c.source, ' said leader ', coalesce(CAST(c.leader AS STRING), '?'),
         coalesce(concat(', leader epoch ', c.leader_epoch), ''), ', ISR ', coalesce(array_join(CAST(c.isr AS ARRAY<STRING>), ','), '?'),
         ', replicas ', coalesce(array_join(CAST(c.replicas AS ARRAY<STRING>), ','), '?'), ' (', element_at(split(c.file, '/'), -1), ', line ', c.line, '); the logs say ',
         c.logged, '.') AS detail,
  concat_ws('|', c.topic, c.partition, c.taken_at) AS same,
  array(c.record_id) AS evidence
FROM audited_checkpoints c
JOIN clocks n ON n.cluster = c.cluster AND n.incarnation = c.incarnation
WHERE size(c.differs) > 0 AND c.record_id IS NOT NULL
