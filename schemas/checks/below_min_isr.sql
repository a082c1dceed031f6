-- severity: error
-- harm: unavailability
-- levels: critical while it lasts, an error when it is over; info where no broker of the cluster was left (cluster_down).
-- title: Fewer in sync than min.insync.replicas
-- concludes: an ISR that is too small, until a line shows one that is not.
-- needs: partition
-- why: Producers with acks=all are refused (NOT_ENOUGH_REPLICAS) for as long as the ISR is smaller than min.insync.replicas. The value
--   is what a line says of the topic, else [[topic]] of audit.toml, else what lines say of all topics; where none does, there is no such
--   finding (blind_spot).
-- do: Bring back the brokers that are missing from the ISR. Lowering min.insync.replicas trades safety for availability.
-- same: cause
-- episodes: yes
-- also: subjects, outage
-- only: below_min_isr
-- thresholds: below_min_isr_seconds
-- candidates: long
WITH long AS (
  SELECT * FROM partition_spells WHERE kind = 'below_min_isr' AND until >= since + make_dt_interval(0, 0, 0, below_min_isr_seconds(cluster, topic))
)
SELECT
  s.cluster, s.incarnation, CASE WHEN s.cause_all_since IS NOT NULL THEN 'info' WHEN bool_or(NOT s.ended) THEN 'critical' ELSE 'error' END AS severity,
  CASE WHEN count(DISTINCT s.topic) = 1 THEN min(s.topic) END AS topic, CASE WHEN count(DISTINCT struct(s.topic, s.partition)) = 1 THEN min(s.partition) END AS partition,
  CAST(NULL AS INT) AS replica, s.cause_broker AS node,
  min(s.since) AS first_seen, max(s.until) AS last_seen, bool_and(s.ended) AS ended,
  concat(min(concat(s.topic, '-', s.partition)), CASE WHEN count(DISTINCT struct(s.topic, s.partition)) > 1 THEN concat(' and at least ', count(DISTINCT struct(s.topic, s.partition)) - 1, ' more') ELSE '' END) AS thing,
  concat('Fewer replicas were in sync than min.insync.replicas (', min(s.min_isr), '): ', when_told(count(DISTINCT struct(s.topic, s.partition)), count(*), min(concat(s.topic, '-', s.partition)), bool_and(s.is_begin_seen), min(s.since), bool_and(s.ended), bool_and(s.is_end_seen), max(s.until)), '.', coalesce(
           outage_told(s.cause_broker, s.cause_how, s.cause_since, max(s.cause_until), bool_and(s.cause_end_seen)),
           broker_life(array_sort(array_distinct(flatten(collect_list(s.missing)))), array_sort(array_distinct(flatten(collect_list(s.down_meanwhile)))),
             CASE WHEN bool_and(s.alive_at IS NOT NULL) THEN min(s.alive_at) END))) AS detail,
  CASE WHEN s.cause_all_since IS NOT NULL THEN 'all' ELSE coalesce(CAST(s.cause_broker AS STRING), 'unexplained') END AS same,
  array_distinct(concat(earliest_records(collect_list(struct(s.since AS at, s.evidence AS records))), slice(array_distinct(flatten(array_sort(collect_list(s.signs)))), 1, 5))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.since, CASE WHEN s.ended THEN s.until END AS until)) AS subjects,
  max(named_struct('node', CASE WHEN s.cause_all_since IS NULL THEN s.cause_broker END, 'since', coalesce(s.cause_all_since, s.cause_since))) AS outage
FROM long s
GROUP BY s.cluster, s.incarnation, s.cause_broker, s.cause_since, s.cause_all_since, s.cause_how, unexplained_hour(s.cause_since, s.since)
