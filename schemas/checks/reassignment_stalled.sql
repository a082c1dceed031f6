-- severity: error
-- harm: housekeeping
-- concludes: the begin of a reassignment and no line of its end.
-- needs: controller, else warning
-- identity: topic, partition
-- facts: original, target, caught_up_at, missing, is_isr_known, down, now
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
  r.cluster, r.incarnation,
  'error' AS severity,
  r.topic, r.partition, CAST(NULL AS INT) AS replica, max(o.broker) AS node,
  r.started_at AS first_seen, r.now AS last_seen, false AS ended,
  r.original_replicas AS original,
  r.target_replicas AS target,
  r.caught_up_at,
  r.missing,
  r.isr IS NOT NULL AS is_isr_known,
  array_sort(collect_set(CASE WHEN o.broker IS NOT NULL THEN struct(o.broker, o.since) END)) AS down,
  r.now,
  concat_ws('|', r.topic, r.partition) AS thing,
  array_distinct(concat(array(r.record_id), flatten(collect_set(coalesce(slice(o.evidence, 1, 1), array()))))) AS evidence,
  max(named_struct('node', CASE WHEN o.all_since IS NULL THEN o.broker END, 'since', coalesce(o.all_since, o.since))) AS outage
FROM running r
LEFT JOIN audited_broker_outages o ON o.cluster = r.cluster AND o.incarnation = r.incarnation AND o.broker IS NOT NULL
  AND array_contains(r.missing, o.broker) AND o.until IS NULL
GROUP BY r.cluster, r.incarnation, r.topic, r.partition, r.started_at, r.caught_up_at, r.now, r.isr, r.missing, r.target_replicas, r.original_replicas,
  r.record_id
