-- severity: critical
-- harm: unavailability
-- levels: critical while it lasts (a warning for broker_start_minutes after a start); an error when it lasted for broker_down_minutes and is over, a
--   warning when it was shorter. Info: every broker was stopped on purpose, or only sessions were lost for less than half a minute.
-- concludes: lines that each broker stopped or was lost; that there is no other one from no line of another.
-- needs: every_node
-- identity: cluster
-- facts: brokers, count_of_brokers, are_others_gone, is_noticed, back_at, is_back_seen, is_stopped, shut_down, starting_at,
--   are_all_shut_down
-- episodes: yes
-- also: subjects
-- only: broker_outages
-- thresholds: broker_down_minutes, broker_start_minutes
-- candidates: outages
WITH outages AS (
  SELECT * FROM audited_broker_outages WHERE broker IS NULL
)
SELECT
  o.cluster, o.incarnation,
  CASE WHEN o.how = 'shut_down' OR b.sessions AND o.until < o.since + INTERVAL 30 SECONDS THEN 'info' WHEN o.until IS NULL AND k.now < b.starting_at + make_dt_interval(0, 0, broker_start_minutes(o.cluster, NULL)) THEN 'warning'
       WHEN o.until IS NULL THEN 'critical'
       WHEN o.down_until < o.since + make_dt_interval(0, 0, broker_down_minutes(o.cluster, NULL)) THEN 'warning' ELSE 'error' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  o.since AS first_seen, coalesce(o.until, k.now) AS last_seen, o.until IS NOT NULL AS ended,
  b.brokers,
  size(b.brokers) AS count_of_brokers,
  x.others IS NOT NULL AS are_others_gone,
  b.is_noticed,
  o.until AS back_at,
  o.until = o.down_until AS is_back_seen,
  b.is_stopped,
  b.asked AS shut_down,
  CASE WHEN o.until IS NULL THEN b.starting_at END AS starting_at,
  size(b.asked) = size(b.brokers) AS are_all_shut_down,
  'cluster' AS thing,
  o.evidence,
  s.subjects
FROM outages o
JOIN clocks k ON k.cluster = o.cluster
  -- an earlier cluster of that name has ended
  AND (o.until IS NOT NULL OR o.incarnation = k.incarnation)
JOIN (
  SELECT m.cluster, m.incarnation, m.all_since, array_sort(collect_set(m.broker)) AS brokers, max(m.starting_at) AS starting_at, bool_and(m.how = 'session_lost') AS sessions,
    bool_and(m.how NOT IN ('session_lost', 'absent')) AS is_stopped,
    -- the broker's process had ended by then
    bool_or(m.how = 'crashed' AND m.since = m.all_since) AS is_noticed,
    array_sort(collect_set(CASE WHEN m.how = 'shut_down' THEN m.broker END)) AS asked
  FROM audited_broker_outages m WHERE m.broker IS NOT NULL AND m.all_since IS NOT NULL GROUP BY m.cluster, m.incarnation, m.all_since
) b ON b.cluster = o.cluster AND b.incarnation = o.incarnation AND b.all_since = o.since
LEFT JOIN (
  -- stopped long before
  SELECT w.cluster, w.incarnation, w.since, count(DISTINCT m.broker) AS others
  FROM outages w
  JOIN audited_broker_outages m ON m.cluster = w.cluster AND m.incarnation = w.incarnation AND m.since < w.since AND coalesce(m.until > w.since, true)
    AND m.all_since IS DISTINCT FROM w.since
  WHERE m.broker IS NOT NULL GROUP BY w.cluster, w.incarnation, w.since
) x ON x.cluster = o.cluster AND x.incarnation = o.incarnation AND x.since = o.since
LEFT JOIN (
  SELECT cluster, incarnation, cause_all_since,
    collect_list(struct(topic, partition, replica, since, CASE WHEN ended THEN until END AS until)) AS subjects
  FROM partition_episodes WHERE kind = 'leaderless' AND cause_all_since IS NOT NULL GROUP BY cluster, incarnation, cause_all_since
) s ON s.cluster = o.cluster AND s.incarnation = o.incarnation AND s.cause_all_since = o.since
