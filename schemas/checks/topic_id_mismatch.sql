-- severity: error
-- harm: unavailability
-- concludes: refusals that a line explains or that repeat.
-- needs: lines
-- identity: broker, topic
-- facts: partitions
-- also: subjects
-- only: topic_id_mismatched, fetch_refused
-- thresholds: topic_id_seconds
-- candidates: lasting
WITH said AS (
  SELECT cluster, incarnation, node, topic, partition, ts, record_id, event_type = 'topic_id_mismatched' AS plain FROM audited_events
  WHERE topic IS NOT NULL AND node IS NOT NULL
    AND (event_type = 'topic_id_mismatched' OR event_type = 'fetch_refused' AND raw RLIKE 'INCONSISTENT_TOPIC_ID|UNKNOWN_TOPIC_ID')
), lasting AS (
  SELECT cluster, incarnation, node, topic, partition, min(ts) AS since, max(ts) AS until, count(*) AS times,
    earliest_records(collect_list(struct(ts AS at, array(record_id) AS records))) AS records
  FROM said GROUP BY cluster, incarnation, node, topic, partition
  -- unlike topic_id_mismatched, these appear for a moment while a topic is created or deleted
  HAVING bool_or(plain) OR max(ts) >= min(ts) + make_dt_interval(0, 0, 0, topic_id_seconds(cluster, topic))
)
SELECT
  l.cluster, l.incarnation,
  'error' AS severity,
  l.topic, CASE WHEN count(*) = 1 THEN min(l.partition) END AS partition, CAST(NULL AS INT) AS replica, l.node,
  min(l.since) AS first_seen, max(l.until) AS last_seen, max(l.until) < max(k.now) - INTERVAL 1 HOUR AS ended,
  count(*) AS partitions,
  concat_ws('|', l.node, l.topic) AS thing,
  earliest_records(collect_list(struct(l.since AS at, l.records AS records))) AS evidence,
  collect_list(struct(l.topic, l.partition, l.node AS replica, l.since, CAST(NULL AS TIMESTAMP) AS until)) AS subjects
FROM lasting l
JOIN clocks k ON k.cluster = l.cluster
GROUP BY l.cluster, l.incarnation, l.node, l.topic
