-- severity: error
-- harm: risk
-- concludes: a refusal that the leader does not retry, and no line that it changed the ISR of the partition within a minute.
-- needs: this_node
-- identity: broker, error
-- facts: why, requests, example
-- also: subjects
-- only: isr_update_failed, alter_partition_failed
-- candidates: refused
WITH refused AS (
  SELECT cluster, incarnation, node, topic, partition, ts, record_id, coalesce(error_code, CASE WHEN raw LIKE '%not authorized%' THEN 'not_authorized' END) AS why
  FROM audited_events
  WHERE event_type IN ('isr_update_failed', 'alter_partition_failed') AND node IS NOT NULL AND ts IS NOT NULL
    AND raw NOT LIKE '%Retrying.%' AND raw NOT LIKE '%retrying.%'
), final AS (
  SELECT * FROM refused
  -- the state has changed; the leader reads it and continues (stale_partition_epoch reports where it does not)
  WHERE why NOT IN ('INVALID_UPDATE_VERSION', 'FENCED_LEADER_EPOCH', 'INELIGIBLE_REPLICA', 'NEW_LEADER_ELECTED', 'NOT_LEADER_OR_FOLLOWER', 'NOT_CONTROLLER',
    'UNKNOWN_TOPIC_OR_PARTITION', 'UNKNOWN_TOPIC_ID', 'STALE_BROKER_EPOCH', 'OPERATION_NOT_ATTEMPTED', 'NONE')
)
SELECT
  f.cluster, f.incarnation,
  'error' AS severity,
  CASE WHEN count(DISTINCT f.topic) = 1 THEN min(f.topic) END AS topic, CASE WHEN count(DISTINCT f.topic, f.partition) = 1 THEN min(f.partition) END AS partition, CAST(NULL AS INT) AS replica, f.node,
  min(f.ts) AS first_seen, max(f.ts) AS last_seen, max(f.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  f.why,
  count(*) AS requests,
  min(concat(f.topic, '-', f.partition)) AS example,
  concat_ws('|', f.node, f.why) AS thing,
  earliest_records(collect_list(struct(f.ts AS at, array(f.record_id) AS records))) AS evidence,
  array_compact(collect_list(CASE WHEN f.topic IS NOT NULL THEN struct(f.topic, f.partition, CAST(NULL AS INT) AS replica, f.ts AS since, CAST(NULL AS TIMESTAMP) AS until) END)) AS subjects
FROM final f
JOIN clocks k ON k.cluster = f.cluster
LEFT ANTI JOIN audited_events d ON d.cluster = f.cluster AND d.incarnation = f.incarnation AND d.node = f.node AND d.topic = f.topic AND d.partition = f.partition
  AND d.event_type = 'isr_updated' AND d.ts BETWEEN f.ts AND f.ts + INTERVAL 1 MINUTE
GROUP BY f.cluster, f.incarnation, f.node, f.why
