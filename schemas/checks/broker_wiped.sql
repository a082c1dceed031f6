-- severity: warning
-- harm: risk
-- concludes: a start that found no log, though the broker had created logs before and no line shows that these were deleted.
-- needs: this_node
-- identity: broker
-- facts: replicas, topics, created_at, recreated
-- episodes: yes
-- only: log_dirs_loading
-- candidates: starts
WITH starts AS (
  SELECT cluster, incarnation, node, ts, record_id, regexp_replace(file, '[^/]*$', '') AS folder,
    lead(ts) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts) AS next_start
  FROM audited_events
  WHERE event_type = 'log_dirs_loading' AND partitions_named = 0 AND node IS NOT NULL AND ts IS NOT NULL AND item = 0
), created AS (
  SELECT cluster, incarnation, node, ts, record_id, topic, partition, regexp_replace(file, '[^/]*$', '') AS folder FROM audited_events
  WHERE event_type = 'log_created' AND node IS NOT NULL AND ts IS NOT NULL AND topic IS NOT NULL AND partition IS NOT NULL
), deleted AS (
  SELECT cluster, incarnation, node, ts, topic, partition FROM audited_events
  WHERE event_type IN ('log_deletion_scheduled', 'log_deleted', 'stray_log_renamed') AND node IS NOT NULL AND ts IS NOT NULL
), folders AS (
  SELECT cluster, incarnation, node, regexp_replace(file, '[^/]*$', '') AS folder, max(ts) AS until FROM audited_events
  WHERE ts IS NOT NULL AND item = 0 AND node IN (SELECT node FROM starts) GROUP BY ALL
), existing AS (
  -- replicas of the broker before the start; a replica that moved away was deleted first
  SELECT s.cluster, s.incarnation, s.node, s.ts AS at, s.record_id AS start_record, s.next_start, s.folder, c.topic, c.partition,
    max(c.ts) AS created_at, max_by(c.record_id, c.ts) AS created_record, max_by(c.folder, c.ts) AS created_folder
  FROM starts s
  JOIN created c ON c.cluster = s.cluster AND c.incarnation = s.incarnation AND c.node = s.node AND c.ts < s.ts
  GROUP BY s.cluster, s.incarnation, s.node, s.ts, s.record_id, s.next_start, s.folder, c.topic, c.partition
), lost AS (
  SELECT h.*, n.ts AS recreated_at, n.record_id AS recreated_record
  FROM existing h
  LEFT ANTI JOIN deleted g ON g.cluster = h.cluster AND g.incarnation = h.incarnation AND g.node = h.node AND g.topic = h.topic
    AND g.partition = h.partition AND g.ts >= h.created_at AND g.ts <= h.at + INTERVAL 1 MINUTE
  -- a second process has the same id, and the first one continues
  LEFT ANTI JOIN folders f ON f.cluster = h.cluster AND f.incarnation = h.incarnation AND f.node = h.node AND f.folder = h.created_folder
    AND f.folder <> h.folder AND f.until > h.at + INTERVAL 1 MINUTE
  -- the broker still has the partition
  JOIN created n ON n.cluster = h.cluster AND n.incarnation = h.incarnation AND n.node = h.node AND n.topic = h.topic
    AND n.partition = h.partition AND n.ts >= h.at AND coalesce(n.ts < h.next_start, true)
)
SELECT
  l.cluster, l.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, l.node,
  l.at AS first_seen, max(l.recreated_at) AS last_seen,
  max(l.recreated_at) < max(k.now) - INTERVAL 1 HOUR AS ended,
  count(DISTINCT l.topic, l.partition) AS replicas,
  array_sort(collect_set(l.topic)) AS topics,
  max(l.created_at) AS created_at,
  max(l.recreated_at) AS recreated,
  CAST(l.node AS STRING) AS thing,
  slice(array_distinct(concat(
    slice(earliest_records(collect_list(struct(l.created_at AS at, array(l.created_record) AS records))), 1, 5),
    array(l.start_record),
    slice(earliest_records(collect_list(struct(l.recreated_at AS at, array(l.recreated_record) AS records))), 1, 5))), 1, 20) AS evidence
FROM lost l
JOIN clocks k ON k.cluster = l.cluster AND k.incarnation = l.incarnation
GROUP BY l.cluster, l.incarnation, l.node, l.at, l.start_record
