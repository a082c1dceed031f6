-- severity: warning
-- harm: housekeeping
-- concludes: the leader and the ISR of all partitions that lines name; others may be in no log.
-- needs: every_node or controller
-- identity: broker
-- facts: led, preferred, example, example_leader
-- also: subjects
-- only: not_preferred
-- thresholds: leader_imbalance_minutes
-- candidates: long
WITH long AS (
  SELECT s.* FROM partition_episodes s
  JOIN clocks k ON k.cluster = s.cluster AND k.incarnation = s.incarnation
  WHERE s.kind = 'not_preferred' AND NOT s.ended AND s.since + make_dt_interval(0, 0, leader_imbalance_minutes(s.cluster, s.topic)) <= k.now
), preferred AS (
  SELECT cluster, incarnation, get(replicas, 0) AS broker, count(*) AS partitions FROM audited_partitions_now
  WHERE leader >= 0 AND coalesce(state, '') <> 'NonExistentPartition' GROUP BY cluster, incarnation, get(replicas, 0)
)
SELECT
  s.cluster, s.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, s.replica AS node,
  min(s.since) AS first_seen, max(s.until) AS last_seen, false AS ended,
  max(p.partitions) - count(*) AS led,
  max(p.partitions) AS preferred,
  min(concat(s.topic, '-', s.partition)) AS example,
  min_by(s.leader, concat(s.topic, '-', s.partition)) AS example_leader,
  concat(s.replica) AS thing,
  earliest_records(collect_list(struct(s.since AS at, s.evidence AS records))) AS evidence,
  collect_list(struct(s.topic, s.partition, s.replica, s.since, CAST(NULL AS TIMESTAMP) AS until)) AS subjects
FROM long s
JOIN preferred p ON p.cluster = s.cluster AND p.incarnation = s.incarnation AND p.broker = s.replica
GROUP BY s.cluster, s.incarnation, s.replica
HAVING count(*) * 10 > max(p.partitions)
