-- severity: info
-- title: Replicas are unevenly spread
-- why: One broker holds far more replicas than the mean, by thresholds.assignment_skew_percent (200 = twice the mean): its disk and its
--   network fill up first. Only clusters with ten replicas a broker and more are looked at, and only brokers that hold any.
-- do: See kafka-audit assignments for what each broker holds; move replicas with kafka-reassign-partitions.
-- thresholds: assignment_skew_percent=200
-- same: broker
WITH load AS (
  SELECT b.cluster, b.incarnation, b.broker, sum(b.replicas) AS replicas
  FROM audited_broker_load b JOIN clocks n ON n.cluster = b.cluster AND n.incarnation = b.incarnation
  WHERE b.valid_to IS NULL GROUP BY b.cluster, b.incarnation, b.broker
), spread AS (
  SELECT *, avg(replicas) OVER (PARTITION BY cluster, incarnation) AS mean FROM load
), evidence AS (
  SELECT a.cluster, a.incarnation, e.broker, max_by(a.record_ids, size(a.record_ids)) AS record_ids, max(a.valid_from) AS since
  FROM audited_topic_assignments a
  JOIN audited_broker_load e ON e.cluster = a.cluster AND e.incarnation = a.incarnation AND e.topic = a.topic AND e.valid_to IS NULL
  WHERE a.valid_to IS NULL GROUP BY a.cluster, a.incarnation, e.broker
)
SELECT
  s.cluster, s.incarnation, 'info' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, s.broker AS node, coalesce(e.since, n.now) AS first_seen, n.now AS last_seen, false AS ended,
  concat('broker ', s.broker) AS thing,
  concat('Broker ', s.broker, ' holds ', s.replicas, ' replicas, the mean is ', round(s.mean, 1), '.') AS detail,
  CAST(s.broker AS STRING) AS same,
  e.record_ids AS evidence
FROM spread s
JOIN clocks n ON n.cluster = s.cluster
JOIN evidence e ON e.cluster = s.cluster AND e.incarnation = s.incarnation AND e.broker = s.broker
WHERE s.mean >= 10 AND s.replicas * 100 >= s.mean * assignment_skew_percent(s.cluster, NULL) AND size(e.record_ids) > 0
