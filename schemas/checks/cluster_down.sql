-- severity: critical
-- harm: unavailability
-- levels: critical while it lasts (a warning for broker_start_minutes after a start); an error when it lasted for broker_down_minutes and is over, a
--   warning when it was shorter. Info: every broker had been told to stop, or only sessions were lost for less than half a minute.
-- title: Cluster without a broker
-- concludes: lines that each broker stopped or was lost; that there is no other one from no line of another.
-- needs: every_node
-- why: No broker was left, or none that had a session: no leader can be elected, what has stopped can be neither written nor read, and whoever comes
--   back last decides which data is the newest. A process that lost its session may go on for a while with what it leads.
-- do: If nobody meant it, look at what the brokers have in common - power, network, disks, ZooKeeper or the quorum. Start the brokers that
--   went last first - they hold the newest data.
-- same: cluster
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
  CASE WHEN size(b.brokers) = 1 THEN concat(CASE WHEN x.others IS NULL THEN 'its only broker, ' ELSE 'the last one was broker ' END, get(b.brokers, 0)) ELSE concat(CASE WHEN x.others IS NULL THEN 'all ' ELSE 'the last ' END, size(b.brokers), ' brokers') END AS thing,
  concat('From ', date_format(o.since, 'yyyy-MM-dd HH:mm:ss'), CASE WHEN b.is_noticed THEN ' or earlier' ELSE '' END,
         CASE WHEN o.until IS NULL THEN ' on' ELSE concat(CASE WHEN o.until = o.down_until THEN ' to ' ELSE ' and not after ' END, date_format(o.until, 'yyyy-MM-dd HH:mm:ss')) END,
         -- whose session is lost may serve
         CASE WHEN b.is_stopped THEN ' no broker served (' ELSE ' no broker had a session (' END, array_join(b.brokers, ', '), ').',
         CASE WHEN size(b.asked) = size(b.brokers) THEN ' All shut down.' WHEN size(b.asked) > 0 THEN concat(' Shut down: ', array_join(b.asked, ', '), '.') ELSE '' END,
         CASE WHEN o.until IS NULL THEN coalesce(concat(' The last start began at ', date_format(b.starting_at, 'yyyy-MM-dd HH:mm:ss'), '.'), '') ELSE '' END) AS detail,
  'cluster' AS same,
  o.evidence, s.subjects
FROM outages o
JOIN clocks k ON k.cluster = o.cluster
  -- the life of an earlier cluster of that name is over
  AND (o.until IS NOT NULL OR o.incarnation = k.incarnation)
JOIN (
  SELECT m.cluster, m.incarnation, m.all_since, array_sort(collect_set(m.broker)) AS brokers, max(m.starting_at) AS starting_at, bool_and(m.how = 'session_lost') AS sessions,
    bool_and(m.how NOT IN ('session_lost', 'absent')) AS is_stopped,
    -- its process had ended by then
    bool_or(m.how = 'crashed' AND m.since = m.all_since) AS is_noticed,
    array_sort(collect_set(CASE WHEN m.how = 'shut_down' THEN m.broker END)) AS asked
  FROM audited_broker_outages m WHERE m.broker IS NOT NULL AND m.all_since IS NOT NULL GROUP BY m.cluster, m.incarnation, m.all_since
) b ON b.cluster = o.cluster AND b.incarnation = o.incarnation AND b.all_since = o.since
LEFT JOIN (
  -- that had gone long before
  SELECT w.cluster, w.incarnation, w.since, count(DISTINCT m.broker) AS others
  FROM outages w
  JOIN audited_broker_outages m ON m.cluster = w.cluster AND m.incarnation = w.incarnation AND m.since < w.since AND coalesce(m.until > w.since, true)
    AND m.all_since IS DISTINCT FROM w.since
  WHERE m.broker IS NOT NULL GROUP BY w.cluster, w.incarnation, w.since
) x ON x.cluster = o.cluster AND x.incarnation = o.incarnation AND x.since = o.since
LEFT JOIN (
  SELECT cluster, incarnation, cause_all_since,
    collect_list(struct(topic, partition, replica, since, CASE WHEN ended THEN until END AS until)) AS subjects
  FROM partition_spells WHERE kind = 'leaderless' AND cause_all_since IS NOT NULL GROUP BY cluster, incarnation, cause_all_since
) s ON s.cluster = o.cluster AND s.incarnation = o.incarnation AND s.cause_all_since = o.since
