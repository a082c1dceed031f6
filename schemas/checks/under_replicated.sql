-- severity: warning
-- levels: an error while it lasts, a warning when it is over.
-- title: Follower out of sync
-- why: The ISR lacks a replica for longer than under_replicated_minutes, outside of a reassignment, and no outage of its broker that was
--   found explains it. A further failure has less to fall back on. While its broker is known to be down that is a part of broker_down;
--   where the finding does not say that it was alive, it may have been down.
-- do: See that the broker is up. If it is, look in its log for its fetchers (marked as failed, Error in response for fetch request), for a full disk or long
--   garbage collections; restart it if it stands still.
-- same: follower, begin
-- also: subjects, outage
-- only: out_of_sync
-- thresholds: under_replicated_minutes=10
WITH late AS (
  -- since its broker was last back; while it is down that is a matter of broker_down
  SELECT s.*, greatest(s.since, s.cause_until, s.back_at) AS begun
  FROM partition_spells s
  WHERE s.kind = 'out_of_sync' AND (s.cause_broker IS NULL OR s.cause_until IS NOT NULL) AND NOT s.down_at_end
    AND s.until >= greatest(s.since, s.cause_until, s.back_at) + make_dt_interval(0, 0, under_replicated_minutes(s.cluster, s.topic))
), heard AS (
  -- the time of it in which anybody wrote
  SELECT s.cluster, s.begun, s.until, unix_seconds(s.until) - unix_seconds(s.begun)
      - coalesce(sum(CASE WHEN p.since IS NOT NULL THEN unix_seconds(least(s.until, p.until)) - unix_seconds(greatest(s.begun, p.since)) END), 0) AS seconds
  FROM (SELECT DISTINCT cluster, begun, until FROM late) s
  LEFT JOIN pauses p ON p.cluster = s.cluster AND p.since < s.until AND p.until > s.begun
  GROUP BY s.cluster, s.begun, s.until
), stopped AS (
  SELECT cluster, incarnation, node, max_by(record_id, ts) AS record_id, max(ts) AS at FROM audited_events
  WHERE event_type = 'fetch_stopped' GROUP BY cluster, incarnation, node
), failed_dirs AS (
  SELECT cluster, incarnation, node, min(ts) AS at, min_by(record_id, ts) AS record_id FROM audited_events
  WHERE event_type IN ('log_dir_offline', 'replica_offline') AND ts IS NOT NULL GROUP BY cluster, incarnation, node
)
SELECT
  l.cluster, l.incarnation, CASE WHEN bool_or(NOT l.ended) THEN 'error' ELSE 'warning' END AS severity,
  CASE WHEN count(DISTINCT l.topic) = 1 THEN min(l.topic) END AS topic, CASE WHEN count(DISTINCT struct(l.topic, l.partition)) = 1 THEN min(l.partition) END AS partition,
  l.replica, l.replica AS node, min(l.begun) AS first_seen, max(l.until) AS last_seen, bool_and(l.ended) AS ended,
  concat('broker ', l.replica, ' in at least ', counted(count(DISTINCT struct(l.topic, l.partition)), 'partition')) AS thing,
  concat('Replica ', l.replica, ' was missing from the ISR of ', when_told(count(DISTINCT struct(l.topic, l.partition)), count(*), min(concat(l.topic, '-', l.partition)), bool_and(l.is_begin_seen OR l.begun > l.since), min(l.begun), bool_and(l.ended), bool_and(l.is_end_seen), max(l.until)), '.',
         CASE WHEN max(d.node) IS NOT NULL THEN ' A log directory of its broker has failed.'
              WHEN max(greatest(l.cause_until, l.back_at)) IS NOT NULL THEN concat(' Its broker had been down and was back by ', date_format(max(greatest(l.cause_until, l.back_at)), 'yyyy-MM-dd HH:mm:ss'), '.')
              ELSE broker_life(array_sort(array_distinct(flatten(collect_list(l.missing)))), array_sort(array_distinct(flatten(collect_list(l.down_meanwhile)))),
             CASE WHEN bool_and(l.alive_at IS NOT NULL) THEN min(l.alive_at) END) END) AS detail,
  concat_ws('|', l.replica, min_by(l.record_id, struct(l.begun, l.topic, l.partition))) AS same,
  array_distinct(array_compact(concat(slice(array_distinct(flatten(collect_list(l.evidence))), 1, 20), array(max(t.record_id), max(d.record_id)),
                                      slice(array_distinct(flatten(collect_list(l.signs))), 1, 5)))) AS evidence,
  collect_list(struct(l.topic, l.partition, l.replica, l.since, CASE WHEN l.ended THEN l.until END AS until)) AS subjects,
  max(named_struct('node', l.cause_broker, 'since', coalesce(l.cause_all_since, l.cause_since))) AS outage
FROM late l
JOIN heard h ON h.cluster = l.cluster AND h.begun = l.begun AND h.until = l.until AND h.seconds >= 60 * under_replicated_minutes(l.cluster, l.topic)
LEFT JOIN stopped t ON t.cluster = l.cluster AND t.incarnation = l.incarnation AND t.node = l.replica AND t.at BETWEEN l.since - INTERVAL 1 MINUTE AND l.until
LEFT JOIN failed_dirs d ON d.cluster = l.cluster AND d.incarnation = l.incarnation AND d.node = l.replica AND d.at <= l.until
GROUP BY l.cluster, l.incarnation, l.replica, l.cause_since, unexplained_hour(l.cause_since, l.begun)
