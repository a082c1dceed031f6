-- severity: warning
-- harm: housekeeping
-- concludes: a refusal; or a request and no line of a change.
-- needs: controller
-- identity: topic, partition, whether it was refused
-- facts: is_refused, why
-- also: by_absence
-- only: reassignment_requested, reassignment_pending, reassignment_refused, reassignments_refused
-- optional: topic
-- thresholds: reassignment_start_minutes
-- candidates: never
WITH asked AS (
  SELECT e.cluster, e.incarnation, e.topic, e.partition, e.ts, e.record_id, e.event_type IN ('reassignment_refused', 'reassignments_refused') AS refused,
    coalesce(e.error_code, e.text) AS why
  FROM audited_events e
  WHERE e.event_type IN ('reassignment_requested', 'reassignment_pending', 'reassignment_refused', 'reassignments_refused')
    AND e.topic IS NOT NULL AND e.ts IS NOT NULL
), never AS (
  SELECT a.cluster, a.incarnation, a.topic, a.partition, a.refused, min(a.ts) AS since, max(a.ts) AS until, max_by(a.why, a.ts) AS why,
    earliest_records(collect_list(struct(a.ts AS at, array(a.record_id) AS records))) AS records
  FROM asked a
  LEFT ANTI JOIN audited_reassignments r ON r.cluster = a.cluster AND r.incarnation = a.incarnation AND r.topic = a.topic AND r.partition = a.partition
    AND r.outcome <> 'never_started'
    AND coalesce(r.started_at <= a.ts + INTERVAL 1 HOUR AND coalesce(r.completed_at >= a.ts - INTERVAL 1 MINUTE, true), true)
  GROUP BY a.cluster, a.incarnation, a.topic, a.partition, a.refused
)
SELECT
  n.cluster, n.incarnation,
  'warning' AS severity,
  n.topic, n.partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  n.since AS first_seen, CASE WHEN n.refused THEN n.until ELSE k.now END AS last_seen, n.refused AND n.until < k.now - INTERVAL 1 DAY AS ended,
  n.refused AS is_refused,
  left(n.why, 200) AS why,
  concat_ws('|', n.topic, n.partition, n.refused) AS thing,
  slice(n.records, 1, 20) AS evidence,
  NOT n.refused AS by_absence
FROM never n
JOIN clocks k ON k.cluster = n.cluster AND k.incarnation = n.incarnation
WHERE n.refused OR n.since + make_dt_interval(0, 0, reassignment_start_minutes(n.cluster, n.topic)) <= k.now
