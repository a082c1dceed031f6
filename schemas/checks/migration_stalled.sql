-- severity: error
-- levels: an error while it lasts, a warning when the driver moved on.
-- harm: risk
-- concludes: lines of the migration driver that it waits, one after another, with no other line of it in between.
-- needs: lines
-- identity: node
-- facts: seconds, waited_until, times, is_without_brokers, waits_for, moved_at
-- episodes: yes
-- only: migration_progressed
-- thresholds: migration_minutes
-- candidates: waits
WITH said AS (
  SELECT cluster, incarnation, node, ts, record_id, text,
    event_type = 'migration_progressed' AND (raw LIKE '%] No brokers are known to KRaft%' OR raw LIKE '%Still waiting for %') AS is_waiting
  FROM audited_events
  WHERE event_type IN ('migration_progressed', 'migration_state_changed') AND node IS NOT NULL AND ts IS NOT NULL
), numbered AS (
  SELECT *, count_if(NOT is_waiting) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts, NOT is_waiting, record_id ROWS UNBOUNDED PRECEDING) AS episode FROM said
), waits AS (
  SELECT cluster, incarnation, node, episode, min(ts) AS since, max(ts) AS until, count(*) AS times, max_by(text, ts) AS text,
    array_sort(collect_list(struct(ts, record_id))) AS records
  FROM numbered WHERE is_waiting GROUP BY cluster, incarnation, node, episode
  HAVING max(ts) >= min(ts) + make_dt_interval(0, 0, migration_minutes(cluster, NULL))
), moved AS (
  SELECT cluster, incarnation, node, episode, min(ts) AS at FROM numbered WHERE NOT is_waiting GROUP BY cluster, incarnation, node, episode
)
SELECT
  w.cluster, w.incarnation,
  CASE WHEN m.at IS NULL THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, w.node,
  w.since AS first_seen, coalesce(m.at, w.until) AS last_seen, m.at IS NOT NULL AS ended,
  unix_seconds(w.until) - unix_seconds(w.since) AS seconds,
  w.until AS waited_until,
  w.times,
  w.text LIKE 'are known to KRaft%' AS is_without_brokers,
  left(w.text, 200) AS waits_for,
  m.at AS moved_at,
  CAST(w.node AS STRING) AS thing,
  transform(slice(w.records, 1, 20), one -> one.record_id) AS evidence
FROM waits w
LEFT JOIN moved m ON m.cluster = w.cluster AND m.incarnation = w.incarnation AND m.node = w.node AND m.episode = w.episode + 1
