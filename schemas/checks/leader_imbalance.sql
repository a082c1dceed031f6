-- severity: warning
-- harm: housekeeping
-- title: Leaders away from their preferred broker
-- concludes: the leader and the ISR of all partitions that lines name; others may be in no log.
-- needs: every_node or controller
-- why: The preferred replica is in sync and does not lead, for longer than leader_imbalance_minutes and for more than a tenth of what the
--   broker should lead. Others carry its load.
-- do: kafka-leader-election --election-type PREFERRED --all-topic-partitions, or auto.leader.rebalance.enable=true; its threshold of
--   10 percent a broker may never be reached.
-- same: broker
-- also: subjects
-- only: not_preferred
-- thresholds: leader_imbalance_minutes
-- candidates: long
WITH long AS (
  SELECT s.* FROM partition_spells s
  JOIN clocks k ON k.cluster = s.cluster AND k.incarnation = s.incarnation
  WHERE s.kind = 'not_preferred' AND NOT s.ended AND s.since + make_dt_interval(0, 0, leader_imbalance_minutes(s.cluster, s.topic)) <= k.now
), preferred AS (
  SELECT cluster, incarnation, get(replicas, 0) AS broker, count(*) AS partitions FROM audited_partitions_now
  WHERE leader >= 0 AND coalesce(state, '') <> 'NonExistentPartition' GROUP BY cluster, incarnation, get(replicas, 0)
)
SELECT
  s.cluster, s.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, s.replica AS node, min(s.since) AS first_seen, max(s.until) AS last_seen, false AS ended,
  concat('broker ', s.replica) AS thing,
  concat('Broker ', s.replica, ' leads ', max(p.partitions) - count(*), ' of the ', max(p.partitions), ' partitions that it should; ',
         min(concat(s.topic, '-', s.partition)), ' for one is led by ', min_by(s.leader, concat(s.topic, '-', s.partition)), ' though ', s.replica,
         ' is in sync since ', date_format(min(s.since), 'yyyy-MM-dd HH:mm:ss'), ' at the latest.') AS detail,
  concat(s.replica) AS same,
  earliest_records(collect_list(struct(s.since AS at, s.evidence AS records))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.since, CAST(NULL AS TIMESTAMP) AS until)) AS subjects
FROM long s
JOIN preferred p ON p.cluster = s.cluster AND p.incarnation = s.incarnation AND p.broker = s.replica
GROUP BY s.cluster, s.incarnation, s.replica
HAVING count(*) * 10 > max(p.partitions)
