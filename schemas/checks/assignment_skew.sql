-- severity: info
-- harm: housekeeping
-- title: Replicas are unevenly spread
-- concludes: the replica lists of all partitions that lines name; others may be in no log.
-- needs: every_node or controller
-- why: One broker holds far more replicas than the mean, by thresholds.assignment_skew_percent (200 = twice the mean): its disk and its
--   network fill up first. Only clusters with ten replicas a broker and more are looked at, and only brokers that hold any.
-- do: See kafka-audit assignments for what each broker holds; move replicas with kafka-reassign-partitions.
-- thresholds: assignment_skew_percent
-- same: broker
SELECT
  s.cluster, s.incarnation, 'info' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, s.broker AS node, coalesce(s.since, s.now) AS first_seen, s.now AS last_seen, false AS ended,
  concat('broker ', s.broker) AS thing,
  concat('Broker ', s.broker, ' holds ', s.replicas, ' replicas, the mean is ', round(s.mean_replicas, 1), '.') AS detail,
  CAST(s.broker AS STRING) AS same,
  s.record_ids AS evidence
FROM broker_shares s
WHERE s.mean_replicas >= 10 AND s.replicas * 100 >= s.mean_replicas * assignment_skew_percent(s.cluster, NULL) AND size(s.record_ids) > 0
