-- severity: error
-- harm: housekeeping
-- title: Reassignment does not finish
-- concludes: the begin of a reassignment and no line of its end.
-- needs: controller, else warning
-- why: A reassignment has been running for longer than reassignment_minutes. Its added replicas do not catch up, or the controller does not complete
--   it. Until it ends the partition keeps old and new replicas, and its topic cannot be deleted.
-- do: See whether a throttle is too low for the traffic, whether an added broker is down or its disk full; cancel the reassignment if
--   it is not wanted.
-- same: topic, partition
-- episodes: yes
-- also: outage
-- only: reassignments
-- thresholds: reassignment_minutes
-- candidates: late
WITH late AS (
  SELECT r.*, k.now FROM audited_reassignments r
  JOIN clocks k ON k.cluster = r.cluster AND k.incarnation = r.incarnation
  WHERE r.outcome = 'in_progress' AND r.started_at < k.now - make_dt_interval(0, 0, reassignment_minutes(r.cluster, r.topic))
), running AS (
  SELECT r.*, p.isr,  array_except(r.target_replicas, coalesce(p.isr, array())) AS missing
  FROM late r
  LEFT JOIN audited_partitions_now p ON p.cluster = r.cluster AND p.incarnation = r.incarnation AND p.topic = r.topic
    AND p.partition = r.partition
)
SELECT
  r.cluster, r.incarnation, 'error' AS severity, r.topic, r.partition, CAST(NULL AS INT) AS replica, max(o.broker) AS node,
  r.started_at AS first_seen, r.now AS last_seen, false AS ended,
  concat(r.topic, '-', r.partition, ' to ', array_join(cast(r.target_replicas AS ARRAY<STRING>), ',')) AS thing,
  concat('The reassignment of ', r.topic, '-', r.partition, ' from ', coalesce(array_join(cast(r.original_replicas AS ARRAY<STRING>), ','), '?'),
         ' to ', array_join(cast(r.target_replicas AS ARRAY<STRING>), ','), ' began at ',
         date_format(r.started_at, 'yyyy-MM-dd HH:mm:ss'),
         CASE WHEN r.caught_up_at IS NOT NULL THEN concat('; its replicas had caught up at ', date_format(r.caught_up_at, 'yyyy-MM-dd HH:mm:ss'))
              WHEN r.isr IS NULL OR size(r.missing) = 0 THEN '; that the added replicas caught up is not known'
              ELSE concat('; not in sync: ', array_join(cast(r.missing AS ARRAY<STRING>), ',')) END,
         CASE WHEN count(o.broker) > 0 THEN concat('; down: ', array_join(array_sort(collect_set(concat(o.broker, ' since ', date_format(o.since, 'yyyy-MM-dd HH:mm:ss')))), ', '))
              ELSE '' END,
         '; up to ', date_format(r.now, 'yyyy-MM-dd HH:mm:ss'), ' no line says that it is complete.') AS detail,
  concat_ws('|', r.topic, r.partition) AS same,
  array_distinct(concat(array(r.record_id), flatten(collect_set(coalesce(slice(o.evidence, 1, 1), array()))))) AS evidence,
  max(named_struct('node', CASE WHEN o.all_since IS NULL THEN o.broker END, 'since', coalesce(o.all_since, o.since))) AS outage
FROM running r
LEFT JOIN audited_broker_outages o ON o.cluster = r.cluster AND o.incarnation = r.incarnation AND o.broker IS NOT NULL
  AND array_contains(r.missing, o.broker) AND o.until IS NULL
GROUP BY r.cluster, r.incarnation, r.topic, r.partition, r.started_at, r.caught_up_at, r.now, r.isr, r.missing, r.target_replicas, r.original_replicas,
  r.record_id
