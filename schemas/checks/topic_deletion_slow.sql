-- severity: error
-- levels: an error while topics still wait, a warning when all of them are deleted.
-- harm: housekeeping
-- concludes: a line that the deletion was asked for, and none within topic_deletion_minutes that it is complete.
-- needs: controller, else warning
-- identity: cluster
-- facts: topics, count_of_topics, waiting, requested_at, completed_at, now, longest
-- episodes: yes
-- also: by_absence
-- only: topic_deletions
-- thresholds: topic_deletion_minutes
-- candidates: slow
WITH slow AS (
  SELECT d.*, k.now, coalesce(d.completed_at, k.now) AS until FROM audited_topic_deletions d
  JOIN clocks k ON k.cluster = d.cluster AND (d.outcome = 'completed' OR d.incarnation = k.incarnation)
  WHERE d.outcome <> 'blocked' AND size(coalesce(d.blocked_by, array())) = 0
    AND coalesce(d.completed_at, k.now) >= d.requested_at + make_dt_interval(0, 0, topic_deletion_minutes(d.cluster, d.topic))
), queued AS (
  -- a deletion that is requested during an earlier one waits for it
  SELECT *, sum(is_first) OVER (PARTITION BY cluster, incarnation ORDER BY requested_at, topic ROWS UNBOUNDED PRECEDING) AS queue FROM (
    SELECT *, CASE WHEN requested_at <= max(until) OVER (
        PARTITION BY cluster, incarnation ORDER BY requested_at, topic ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) THEN 0 ELSE 1 END AS is_first
    FROM slow)
)
SELECT
  q.cluster, q.incarnation,
  CASE WHEN bool_and(q.completed_at IS NOT NULL) THEN 'warning' ELSE 'error' END AS severity,
  CASE WHEN count(*) = 1 THEN min(q.topic) END AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  min(q.requested_at) AS first_seen, max(q.until) AS last_seen, bool_and(q.completed_at IS NOT NULL) AS ended,
  slice(array_sort(collect_list(q.topic)), 1, 5) AS topics,
  count(*) AS count_of_topics,
  count_if(q.completed_at IS NULL) AS waiting,
  min(q.requested_at) AS requested_at,
  max(q.completed_at) AS completed_at,
  max(q.now) AS now,
  max(unix_seconds(q.until) - unix_seconds(q.requested_at)) AS longest,
  'cluster' AS thing,
  bool_or(q.completed_at IS NULL) AS by_absence,
  earliest_records(collect_list(struct(q.requested_at AS at, array(q.record_id) AS records))) AS evidence
FROM queued q
GROUP BY q.cluster, q.incarnation, q.queue
