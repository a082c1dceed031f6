-- severity: info
-- title: First replicas are unevenly spread
-- why: One broker is the first replica, the preferred leader, of far more partitions than the mean, by
--   thresholds.leader_skew_percent (200 = twice the mean): whenever leaders go back to where they are preferred, it carries that load.
--   Only clusters with ten partitions a broker and more are looked at.
-- do: Change the order of replicas with kafka-reassign-partitions, then run a preferred leader election.
-- thresholds: leader_skew_percent=200
-- same: broker
WITH load AS (
  SELECT b.cluster, b.incarnation, b.broker, sum(b.leaders) AS leaders
  FROM audited_broker_load b JOIN clocks n ON n.cluster = b.cluster AND n.incarnation = b.incarnation
  WHERE b.valid_to IS NULL GROUP BY b.cluster, b.incarnation, b.broker
), spread AS (
  SELECT *, avg(leaders) OVER (PARTITION BY cluster, incarnation) AS mean FROM load
), evidence AS (
  SELECT a.cluster, a.incarnation, e.broker, max_by(a.record_ids, size(a.record_ids)) AS record_ids, max(a.valid_from) AS since
  FROM audited_topic_assignments a
  JOIN audited_broker_load e ON e.cluster = a.cluster AND e.incarnation = a.incarnation AND e.topic = a.topic AND e.valid_to IS NULL
  WHERE a.valid_to IS NULL AND e.leaders > 0 GROUP BY a.cluster, a.incarnation, e.broker
)
SELECT
  s.cluster, s.incarnation, 'info' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, s.broker AS node, coalesce(e.since, n.now) AS first_seen, n.now AS last_seen, false AS ended,
  concat('broker ', s.broker) AS thing,
  concat('Broker ', s.broker, ' is the first replica of ', s.leaders, ' partitions, the mean is ', round(s.mean, 1), '.') AS detail,
  CAST(s.broker AS STRING) AS same,
  e.record_ids AS evidence
FROM spread s
JOIN clocks n ON n.cluster = s.cluster
JOIN evidence e ON e.cluster = s.cluster AND e.incarnation = s.incarnation AND e.broker = s.broker
WHERE s.mean >= 10 AND s.leaders * 100 >= s.mean * leader_skew_percent(s.cluster, NULL) AND size(e.record_ids) > 0
