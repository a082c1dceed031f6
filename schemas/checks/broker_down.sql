-- severity: error
-- harm: unavailability
-- levels: critical while partitions have no leader because of it for longer than leaderless_seconds. Info where it was stopped, or was missing when a
--   controller took over, and returned within broker_down_minutes (no finding where it was stopped, is back, and no partition was without a leader for longer
--   than leaderless_seconds); or where its session was back within half a minute and no partition was without a leader for so long. A warning where it was
--   stopped. Else an error where it is down for longer than broker_down_minutes, or where partitions were without a leader for longer than
--   leaderless_seconds, or where its ZooKeeper session expired and its own log goes on for session_seconds without a registration. A broker that was missing and
--   is back may have been stopped: a warning. Else a warning.
-- concludes: lines that a broker stopped or was lost; that it stays away from no line of its return.
-- needs: this_node or controller, else warning
-- identity: broker
-- facts: how, back_at, is_back_seen, writes_until, starting_at, leaderless, leaderless_now,
--   longest_seconds, out_of_sync, out_of_sync_now
-- episodes: yes
-- also: subjects, by_absence
-- only: broker_outages
-- thresholds: broker_down_minutes, leaderless_seconds, session_seconds
WITH hit AS (
  SELECT cluster, incarnation, cause_broker, cause_since,
    collect_list(struct(topic, partition, replica, since, CASE WHEN ended THEN until END AS until)) AS subjects,
    count(DISTINCT CASE WHEN kind = 'leaderless' THEN struct(topic, partition) END) AS leaderless, count_if(kind = 'leaderless' AND NOT ended AND overdue) AS leaderless_now,
    count_if(kind = 'leaderless' AND overdue) AS leaderless_long, count(DISTINCT CASE WHEN kind = 'out_of_sync' THEN struct(topic, partition) END) AS out_of_sync,
    count_if(kind = 'out_of_sync' AND NOT ended) AS out_of_sync_now,
    max(CASE WHEN kind = 'leaderless' THEN unix_millis(until) - unix_millis(since) END) AS longest,
    slice(earliest_records(collect_list(CASE WHEN kind = 'leaderless' AND record_id IS NOT NULL THEN struct(since AS at, array(record_id) AS records) END)), 1, 10) AS records
  FROM (SELECT *, until >= since + make_dt_interval(0, 0, 0, leaderless_seconds(cluster, topic)) AS overdue FROM partition_episodes)
  WHERE kind IN ('leaderless', 'out_of_sync') AND cause_broker IS NOT NULL
  GROUP BY cluster, incarnation, cause_broker, cause_since
), expired AS (
  -- a broker whose session expires registers again within seconds, and logs both in the same file
  SELECT e.cluster, e.incarnation, e.record_id, max(b.ts) AS writes_until
  FROM audited_events e
  JOIN broker_signs b ON b.cluster = e.cluster AND b.incarnation = e.incarnation AND b.broker = e.node
  WHERE e.event_type = 'zookeeper_session_expired' AND e.raw NOT LIKE '%[ZooKeeperClient ACL authorizer]%' GROUP BY e.cluster, e.incarnation, e.record_id
), down AS (
  SELECT o.*, CASE WHEN o.until IS NULL AND x.writes_until >= o.since + make_dt_interval(0, 0, 0, session_seconds(o.cluster, NULL)) THEN x.writes_until END AS writes_until,
    k.now, coalesce(o.until, k.now) AS last_seen, h.subjects, h.records, coalesce(h.leaderless, 0) AS leaderless,
    coalesce(h.leaderless_now, 0) AS leaderless_now, coalesce(h.leaderless_long, 0) AS leaderless_long,
    coalesce(h.out_of_sync, 0) AS out_of_sync, coalesce(h.out_of_sync_now, 0) AS out_of_sync_now, h.longest,
    coalesce(o.down_until, k.now) >= o.since + make_dt_interval(0, 0, broker_down_minutes(o.cluster, NULL)) AS long
  FROM audited_broker_outages o
  JOIN clocks k ON k.cluster = o.cluster AND k.now >= o.since
  LEFT JOIN hit h ON h.cluster = o.cluster AND h.incarnation = o.incarnation AND h.cause_broker = o.broker AND h.cause_since = o.since
  LEFT JOIN expired x ON x.cluster = o.cluster AND x.incarnation = o.incarnation AND x.record_id = get(o.evidence, 0)
  WHERE o.broker IS NOT NULL AND o.all_since IS NULL AND o.how <> 'first_start'
    -- an earlier cluster of that name has ended
    AND (o.until IS NOT NULL OR o.incarnation = k.incarnation)
)
SELECT
  d.cluster, d.incarnation,
  CASE WHEN d.leaderless_now > 0 AND d.until IS NULL THEN 'critical'
       WHEN d.how IN ('shut_down', 'absent') AND NOT d.long THEN 'info'
       WHEN d.how = 'session_lost' AND d.until < d.since + INTERVAL 30 SECONDS AND d.leaderless_long = 0 THEN 'info'
       WHEN d.how = 'shut_down' THEN 'warning'
       WHEN d.writes_until IS NOT NULL THEN 'error'
       WHEN d.leaderless_long > 0 AND d.how <> 'absent' OR d.until IS NULL AND d.long THEN 'error'
       ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, d.broker AS node,
  d.since AS first_seen, d.last_seen, d.until IS NOT NULL AS ended,
  d.how,
  d.until AS back_at,
  d.until = d.down_until AS is_back_seen,
  d.writes_until,
  CASE WHEN d.until IS NULL THEN d.starting_at END AS starting_at,
  d.leaderless,
  d.leaderless_now,
  CASE WHEN d.longest >= 1000 THEN round(d.longest / 1000) END AS longest_seconds,
  d.out_of_sync,
  d.out_of_sync_now,
  CAST(d.broker AS STRING) AS thing,
  array_distinct(concat(slice(d.evidence, 1, 1), coalesce(d.records, array()), d.evidence)) AS evidence,
  d.subjects,
  d.until IS NULL AS by_absence
FROM down d
WHERE NOT (d.how = 'shut_down' AND d.until IS NOT NULL AND NOT d.long AND d.leaderless_long = 0)
