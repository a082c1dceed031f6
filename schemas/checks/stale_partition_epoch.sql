-- severity: error
-- harm: risk
-- title: Leader cannot change the ISR
-- concludes: refusals that repeat.
-- needs: lines
-- why: A leader tries to change the ISR again and again and is refused, because the partition's state has moved on without it (Cached
--   zkVersion not equal, INVALID_UPDATE_VERSION, FENCED_LEADER_EPOCH). It looks alive and serves what may be old.
-- do: Restart that broker; waiting does not help (KAFKA-2729, KAFKA-14154).
-- same: broker
-- also: subjects
-- only: isr_write_refused, isr_update_failed
-- optional: topic
-- thresholds: stale_epoch_seconds
WITH refused AS (
  SELECT cluster, incarnation, node, topic, partition, min(ts) AS since, max(ts) AS until, count(*) AS times,
    min_by(record_id, ts) AS record_id, slice(array_sort(collect_set(record_id)), 1, 5) AS records
  FROM audited_events
  WHERE event_type IN ('isr_write_refused', 'isr_update_failed') AND topic IS NOT NULL AND node IS NOT NULL
    AND coalesce(error_code, '') NOT IN ('INELIGIBLE_REPLICA', 'NEW_LEADER_ELECTED')
  GROUP BY cluster, incarnation, node, topic, partition
)
SELECT
  r.cluster, r.incarnation, 'error' AS severity, CASE WHEN count(*) = 1 THEN min(r.topic) END AS topic,
  CASE WHEN count(*) = 1 THEN min(r.partition) END AS partition, CAST(NULL AS INT) AS replica, r.node,
  min(r.since) AS first_seen, max(r.until) AS last_seen, max(r.until) < max(k.now) - INTERVAL 10 MINUTES AS ended,
  concat('broker ', r.node) AS thing,
  concat('Broker ', r.node, ' was refused ', sum(r.times), ' times from ', date_format(min(r.since), 'yyyy-MM-dd HH:mm:ss'), ' to ',
         date_format(max(r.until), 'yyyy-MM-dd HH:mm:ss'), ' when it wanted to change the ISR of ', counted(count(*), 'partition'), ', ',
         min(concat(r.topic, '-', r.partition)), ' for one.') AS detail,
  CAST(r.node AS STRING) AS same,
  earliest_records(collect_list(struct(r.since AS at, r.records AS records))) AS evidence,
  collect_list(struct(r.topic, r.partition, r.node AS replica, r.since, r.until)) AS subjects
FROM refused r
JOIN clocks k ON k.cluster = r.cluster
WHERE r.times >= 3 AND r.until >= r.since + make_dt_interval(0, 0, 0, stale_epoch_seconds(r.cluster, r.topic))
GROUP BY r.cluster, r.incarnation, r.node
