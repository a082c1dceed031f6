-- severity: error
-- harm: risk
-- concludes: refusals that repeat.
-- needs: lines
-- identity: broker
-- facts: refusals, partitions, example
-- also: subjects
-- only: isr_write_refused, isr_update_failed
-- optional: topic
-- thresholds: stale_epoch_seconds
WITH refused AS (
  SELECT cluster, incarnation, node, topic, partition, min(ts) AS since, max(ts) AS until, count(*) AS times,
    min_by(record_id, ts) AS record_id, slice(earliest_records(collect_list(struct(ts AS at, array(record_id) AS records))), 1, 5) AS records
  FROM audited_events
  WHERE event_type IN ('isr_write_refused', 'isr_update_failed') AND topic IS NOT NULL AND node IS NOT NULL
    AND coalesce(error_code, '') NOT IN ('INELIGIBLE_REPLICA', 'NEW_LEADER_ELECTED')
  GROUP BY cluster, incarnation, node, topic, partition
)
SELECT
  r.cluster, r.incarnation,
  'error' AS severity,
  CASE WHEN count(*) = 1 THEN min(r.topic) END AS topic, CASE WHEN count(*) = 1 THEN min(r.partition) END AS partition, CAST(NULL AS INT) AS replica, r.node,
  min(r.since) AS first_seen, max(r.until) AS last_seen, max(r.until) < max(k.now) - INTERVAL 10 MINUTES AS ended,
  sum(r.times) AS refusals,
  count(*) AS partitions,
  min(concat(r.topic, '-', r.partition)) AS example,
  CAST(r.node AS STRING) AS thing,
  earliest_records(collect_list(struct(r.since AS at, r.records AS records))) AS evidence,
  collect_list(struct(r.topic, r.partition, r.node AS replica, r.since, r.until)) AS subjects
FROM refused r
JOIN clocks k ON k.cluster = r.cluster
WHERE r.times >= 3 AND r.until >= r.since + make_dt_interval(0, 0, 0, stale_epoch_seconds(r.cluster, r.topic))
GROUP BY r.cluster, r.incarnation, r.node
