-- severity: error
-- title: Reassignment does not finish
-- why: A reassignment has been running for longer than thresholds.reassignment_minutes. Its added replicas do not catch up, or the
--   controller does not complete it. Until it ends the partition keeps old and new replicas, and its topic cannot be deleted.
-- do: See whether a throttle is too low for the traffic, whether an added broker is down or its disk full; cancel the reassignment if
--   it is not wanted.
-- thresholds: reassignment_minutes=60
-- same: topic, partition, begin of the reassignment
SELECT
  r.cluster, r.incarnation, 'error' AS severity, r.topic, r.partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  r.started_at AS first_seen, n.now AS last_seen, false AS ended,
  concat(r.topic, '-', r.partition, ' to ', array_join(cast(r.target_replicas AS ARRAY<STRING>), ',')) AS thing,
  concat('The reassignment of ', r.topic, '-', r.partition, ' from ', coalesce(array_join(cast(r.original_replicas AS ARRAY<STRING>), ','), '?'),
         ' to ', array_join(cast(r.target_replicas AS ARRAY<STRING>), ','), ' began at ',
         date_format(r.started_at, 'yyyy-MM-dd HH:mm:ss'),
         CASE WHEN r.caught_up_at IS NULL THEN '; the logs do not show that the added replicas caught up'
              ELSE concat('; its replicas had caught up at ', date_format(r.caught_up_at, 'yyyy-MM-dd HH:mm:ss')) END,
         '; it was not complete at ', date_format(n.now, 'yyyy-MM-dd HH:mm:ss'), '.') AS detail,
  concat_ws('|', r.topic, r.partition, r.record_id) AS same,
  array(r.record_id) AS evidence
FROM audited_reassignments r
JOIN clocks n ON n.cluster = r.cluster
WHERE r.outcome = 'in_progress' AND r.incarnation = n.incarnation
  AND r.started_at < n.now - make_dt_interval(0, 0, reassignment_minutes(r.cluster, r.topic))
