-- severity: error
-- levels: an error while it lasts, a warning when it is over.
-- harm: risk
-- concludes: answers of leaders that repeat; that they stopped from no further one while the follower's log goes on.
-- needs: this_node
-- identity: follower, topic
-- facts: partitions, first_partition, leaders, times
-- episodes: yes
-- also: subjects
-- only: fetch_refused, fetch_failed
-- thresholds: unknown_partition_seconds
-- candidates: lasting
WITH refused AS (
  SELECT cluster, incarnation, node, topic, partition, ts, record_id,
    coalesce(leader, try_cast(regexp_extract(raw, 'leaderId=([0-9]+)', 1) AS INT)) AS leader
  FROM audited_events
  WHERE node IS NOT NULL AND topic IS NOT NULL AND partition IS NOT NULL AND ts IS NOT NULL
    AND (event_type = 'fetch_refused' AND error_code = 'UNKNOWN_TOPIC_OR_PARTITION' OR event_type = 'fetch_failed' AND raw LIKE '%UnknownTopicOrPartitionException%')
), runs AS (
  -- a fetcher retries within seconds; after five minutes without such an answer the next one begins a new episode
  SELECT *, count_if(is_first) OVER (PARTITION BY cluster, incarnation, node, topic, partition ORDER BY ts, record_id ROWS UNBOUNDED PRECEDING) AS run FROM (
    SELECT *, coalesce(ts > lag(ts) OVER (PARTITION BY cluster, incarnation, node, topic, partition ORDER BY ts, record_id) + INTERVAL 5 MINUTES, true) AS is_first FROM refused)
), lasting AS (
  SELECT cluster, incarnation, node, topic, partition, run, min(ts) AS since, max(ts) AS until, count(*) AS times, max_by(leader, ts) AS leader,
    earliest_records(collect_list(struct(ts AS at, array(record_id) AS records))) AS records
  FROM runs GROUP BY cluster, incarnation, node, topic, partition, run
  HAVING max(ts) >= min(ts) + make_dt_interval(0, 0, 0, unknown_partition_seconds(cluster, topic))
), heard AS (
  SELECT e.cluster, e.node, max(e.ts) AS until FROM audited_events e
  WHERE e.ts IS NOT NULL AND e.item = 0 AND EXISTS (SELECT 1 FROM lasting l WHERE l.cluster = e.cluster AND l.node = e.node)
  GROUP BY e.cluster, e.node
), unexplained AS (
  SELECT l.*, l.until < h.until - INTERVAL 5 MINUTES AS is_over FROM lasting l JOIN heard h ON h.cluster = l.cluster AND h.node = l.node
  -- a deleted topic is unknown to some brokers for a while, or for as long as topic_deletion_blocked reports
  LEFT ANTI JOIN audited_topic_deletions d ON d.cluster = l.cluster AND d.incarnation = l.incarnation AND d.topic = l.topic
    AND d.requested_at <= l.until AND coalesce(d.completed_at >= l.since - INTERVAL 5 MINUTES, true)
)
SELECT
  t.cluster, t.incarnation,
  CASE WHEN bool_and(t.is_over) THEN 'warning' ELSE 'error' END AS severity,
  t.topic, CASE WHEN count(*) = 1 THEN min(t.partition) END AS partition, CAST(NULL AS INT) AS replica, t.node,
  min(t.since) AS first_seen, max(t.until) AS last_seen, bool_and(t.is_over) AS ended,
  count(DISTINCT t.partition) AS partitions,
  min(concat(t.topic, '-', t.partition)) AS first_partition,
  array_sort(collect_set(t.leader)) AS leaders,
  sum(t.times) AS times,
  concat_ws('|', t.node, t.topic) AS thing,
  earliest_records(collect_list(struct(t.since AS at, t.records AS records))) AS evidence,
  collect_list(struct(t.topic, t.partition, t.node AS replica, t.since, CASE WHEN t.is_over THEN t.until END AS until)) AS subjects
FROM unexplained t
GROUP BY t.cluster, t.incarnation, t.node, t.topic, date_trunc('DAY', t.since)
