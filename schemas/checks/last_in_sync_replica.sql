-- severity: warning
-- harm: risk
-- levels: info while another broker is restarted on purpose, or all stop or start; an error where it goes on after five minutes; else a warning.
-- title: One replica left in sync
-- concludes: an ISR of one replica, until a line shows a larger one.
-- needs: partition
-- why: Of several replicas one alone is in sync, for longer than last_in_sync_seconds. If its broker or disk fails, the partition is unavailable, and
--   what only this replica has is lost if another one is elected.
-- do: Do not restart that broker. Bring the others back first, and see below which they are.
-- same: broker that is left, cause
-- episodes: yes
-- also: subjects, outage
-- only: last_in_sync
-- thresholds: last_in_sync_seconds
-- candidates: long
WITH long AS (
  SELECT * FROM partition_spells WHERE kind = 'last_in_sync' AND until >= since + make_dt_interval(0, 0, 0, last_in_sync_seconds(cluster, topic))
)
SELECT
  s.cluster, s.incarnation, CASE WHEN (s.cause_how IN ('shut_down', 'first_start') OR s.cause_all_since IS NOT NULL AND s.cause_how <> 'absent') AND max(s.until) < min(s.since) + INTERVAL 5 MINUTES THEN 'info'
       WHEN max(CASE WHEN NOT s.ended THEN s.until END) >= min(s.since) + INTERVAL 5 MINUTES THEN 'error' ELSE 'warning' END AS severity,
  CASE WHEN count(DISTINCT s.topic) = 1 THEN min(s.topic) END AS topic, CASE WHEN count(DISTINCT struct(s.topic, s.partition)) = 1 THEN min(s.partition) END AS partition,
  s.replica, s.replica AS node, min(s.since) AS first_seen, max(s.until) AS last_seen, bool_and(s.ended) AS ended,
  concat('at least ', counted(count(DISTINCT struct(s.topic, s.partition)), 'partition'), ' on broker ', s.replica, ' alone') AS thing,
  concat('Broker ', s.replica, ' held the only replica in sync of ', when_told(count(DISTINCT struct(s.topic, s.partition)), count(*), min(concat(s.topic, '-', s.partition)), bool_and(s.is_begin_seen), min(s.since), bool_and(s.ended), bool_and(s.is_end_seen), max(s.until)),
         '; not in sync: ', array_join(array_sort(array_distinct(flatten(collect_list(s.missing)))), ', '), '.', coalesce(
           outage_told(s.cause_broker, s.cause_how, s.cause_since, max(s.cause_until), bool_and(s.cause_end_seen)),
           broker_life(array_sort(array_distinct(flatten(collect_list(s.missing)))), array_sort(array_distinct(flatten(collect_list(s.down_meanwhile)))),
             CASE WHEN bool_and(s.alive_at IS NOT NULL) THEN min(s.alive_at) END))) AS detail,
  concat_ws('|', s.replica, CASE WHEN s.cause_all_since IS NOT NULL THEN 'all' ELSE coalesce(CAST(s.cause_broker AS STRING), 'unexplained') END) AS same,
  array_distinct(concat(earliest_records(collect_list(struct(s.since AS at, s.evidence AS records))), slice(array_distinct(flatten(array_sort(collect_list(s.signs)))), 1, 5))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.since, CASE WHEN s.ended THEN s.until END AS until)) AS subjects,
  max(named_struct('node', CASE WHEN s.cause_all_since IS NULL THEN s.cause_broker END, 'since', coalesce(s.cause_all_since, s.cause_since))) AS outage
FROM long s
GROUP BY s.cluster, s.incarnation, s.replica, s.cause_broker, s.cause_since, s.cause_all_since, s.cause_how,
  unexplained_hour(s.cause_since, s.since)
