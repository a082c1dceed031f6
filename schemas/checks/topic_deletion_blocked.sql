-- severity: error
-- harm: housekeeping
-- levels: an error; a warning where its brokers are back and no later line of a controller is given.
-- concludes: a line that replicas cannot be deleted and no line that the deletion is complete.
-- needs: controller, else warning
-- identity: topic
-- facts: brokers, requested_at, completed_at, blockers, blocker_count, is_completed, unheard_since
-- episodes: yes
-- also: by_absence, subjects, outage
-- only: topic_deletions
-- candidates: blocked
WITH blocked AS (
  SELECT * FROM audited_topic_deletions WHERE size(blocked_by) > 0
), returned AS (
  -- since when all brokers that block it are back
  SELECT d.cluster, d.incarnation, d.topic, d.record_id, max(b.until) AS at
  FROM (SELECT cluster, incarnation, topic, record_id, blocked_since, array_distinct(transform(blocked_by, one -> one.replica)) AS brokers FROM blocked WHERE completed_at IS NULL) d
  JOIN audited_broker_outages b ON b.cluster = d.cluster AND b.incarnation = d.incarnation AND array_contains(d.brokers, b.broker)
    AND b.since <= d.blocked_since + INTERVAL 2 SECONDS AND coalesce(b.until >= d.blocked_since, true)
  GROUP BY d.cluster, d.incarnation, d.topic, d.record_id
  HAVING count(DISTINCT b.broker) = max(size(d.brokers)) AND bool_and(b.until IS NOT NULL)
), unheard AS (
  -- and no controller writes after that
  SELECT r.cluster, r.incarnation, r.topic, r.record_id, r.at AS unheard_since FROM returned r
  JOIN nodes_heard h ON h.cluster = r.cluster AND h.incarnation = r.incarnation
  WHERE NOT exists(h.controller, c -> c.last_line >= r.at)
)
SELECT
  d.cluster, d.incarnation,
  CASE WHEN u.unheard_since IS NULL THEN 'error' ELSE 'warning' END AS severity,
  d.topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CASE WHEN size(array_distinct(transform(d.blocked_by, one -> one.replica))) = 1 THEN get(transform(d.blocked_by, one -> one.replica), 0) END AS node,
  d.blocked_since AS first_seen, coalesce(d.completed_at, n.now) AS last_seen, d.outcome = 'completed' AS ended,
  array_sort(array_distinct(transform(d.blocked_by, one -> one.replica))) AS brokers,
  d.requested_at,
  d.completed_at,
  slice(d.blocked_by, 1, 20) AS blockers,
  size(d.blocked_by) AS blocker_count,
  d.outcome = 'completed' AS is_completed,
  u.unheard_since,
  d.topic AS thing,
  array_distinct(array_compact(concat(array(d.record_id), d.evidence))) AS evidence,
  transform(d.blocked_by, b -> struct(d.topic AS topic, b.partition AS partition, b.replica AS replica, d.blocked_since AS since, d.completed_at AS until)) AS subjects,
  o.outage,
  d.completed_at IS NULL AS by_absence
FROM blocked d
JOIN clocks n ON n.cluster = d.cluster
  -- deletions of an earlier cluster of that name ended with it
  AND (d.outcome = 'completed' OR d.incarnation = n.incarnation)
LEFT JOIN LATERAL (
  SELECT max_by(named_struct('node', CASE WHEN b.all_since IS NULL THEN b.broker END, 'since', coalesce(b.all_since, b.since)), b.since) AS outage
  FROM audited_broker_outages b
  WHERE b.cluster = d.cluster AND b.incarnation = d.incarnation AND array_contains(transform(d.blocked_by, one -> one.replica), b.broker)
    AND b.since <= d.blocked_since + INTERVAL 2 SECONDS AND coalesce(b.until >= d.blocked_since, true)) o
LEFT JOIN unheard u ON u.cluster = d.cluster AND u.incarnation = d.incarnation AND u.topic = d.topic AND u.record_id = d.record_id
