-- severity: error
-- harm: housekeeping
-- title: Topic deletion held up
-- concludes: a line that replicas cannot be deleted and no line that the deletion is complete.
-- needs: controller, else warning
-- why: A topic was asked to be deleted and some replicas cannot be: their broker is dead, their log directory offline, or the deletion
--   failed there. The topic stays in limbo until those replicas can be deleted: nothing can be produced to it, it cannot be created
--   again, and reassignments of it wait. From 2.3 on such replicas go back to OfflineReplica after a moment; the deletion waits all
--   the same.
-- do: Start the broker, or repair the log directory. The controller then goes on by itself.
-- same: topic
-- episodes: yes
-- also: by_absence, subjects, outage
-- only: topic_deletions
-- candidates: blocked
WITH blocked AS (
  SELECT * FROM audited_topic_deletions WHERE size(blocked_by) > 0
)
SELECT
  d.cluster, d.incarnation, 'error' AS severity, d.topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica,
  CASE WHEN size(array_distinct(transform(d.blocked_by, one -> one.replica))) = 1 THEN get(transform(d.blocked_by, one -> one.replica), 0) END AS node,
  d.blocked_since AS first_seen, coalesce(d.completed_at, n.now) AS last_seen, d.outcome = 'completed' AS ended,
  concat(d.topic, ' waits for broker', CASE WHEN size(array_distinct(transform(d.blocked_by, one -> one.replica))) > 1 THEN 's ' ELSE ' ' END,
         array_join(cast(array_sort(array_distinct(transform(d.blocked_by, one -> one.replica))) AS ARRAY<STRING>), ', ')) AS thing,
  concat('Deletion of ', d.topic, coalesce(concat(', asked for at ', date_format(d.requested_at, 'yyyy-MM-dd HH:mm:ss')), ''),
         CASE WHEN d.outcome = 'completed' THEN ', was held up' ELSE ', is held up' END,
         coalesce(concat(' since ', date_format(d.blocked_since, 'yyyy-MM-dd HH:mm:ss')), ''), ' by ',
         array_join(transform(slice(d.blocked_by, 1, 20),
                              b -> concat('replica ', b.replica, ' of partition ', b.partition)), ', '),
         CASE WHEN size(d.blocked_by) > 20 THEN concat(' and ', size(d.blocked_by) - 20, ' more') ELSE '' END,
         CASE WHEN d.completed_at IS NOT NULL
              THEN concat('; it was completed at ', date_format(d.completed_at, 'yyyy-MM-dd HH:mm:ss'), '.') ELSE '.' END) AS detail,
  d.topic AS same,
  array_distinct(array_compact(concat(array(d.record_id), d.evidence))) AS evidence,
  transform(d.blocked_by, b -> struct(d.topic AS topic, b.partition AS partition, b.replica AS replica, d.blocked_since AS since, d.completed_at AS until)) AS subjects,
  o.outage, d.completed_at IS NULL AS by_absence
FROM blocked d
JOIN clocks n ON n.cluster = d.cluster
  -- what an earlier cluster of that name had to delete is gone with it
  AND (d.outcome = 'completed' OR d.incarnation = n.incarnation)
LEFT JOIN LATERAL (
  SELECT max_by(named_struct('node', CASE WHEN b.all_since IS NULL THEN b.broker END, 'since', coalesce(b.all_since, b.since)), b.since) AS outage
  FROM audited_broker_outages b
  WHERE b.cluster = d.cluster AND b.incarnation = d.incarnation AND array_contains(transform(d.blocked_by, one -> one.replica), b.broker)
    AND b.since <= d.blocked_since + INTERVAL 2 SECONDS AND coalesce(b.until >= d.blocked_since, true)) o
