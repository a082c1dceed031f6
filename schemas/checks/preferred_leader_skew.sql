-- severity: info
-- harm: housekeeping
-- title: First replicas are unevenly spread
-- concludes: the replica lists of all partitions that lines name; others may be in no log.
-- needs: every_node or controller
-- why: One broker is the first replica, the preferred leader, of far more partitions than the mean, by
--   thresholds.leader_skew_percent (200 = twice the mean): whenever leaders go back to where they are preferred, it carries that load.
--   Only clusters with ten partitions a broker and more are looked at.
-- do: Change the order of replicas with kafka-reassign-partitions, then run a preferred leader election.
-- thresholds: leader_skew_percent
-- same: broker
SELECT
  s.cluster, s.incarnation, 'info' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, s.broker AS node, coalesce(s.led_since, s.now) AS first_seen, s.now AS last_seen, false AS ended,
  concat('broker ', s.broker) AS thing,
  concat('Broker ', s.broker, ' is the first replica of ', s.leaders, ' partitions, the mean is ', round(s.mean_leaders, 1), '.') AS detail,
  CAST(s.broker AS STRING) AS same,
  s.led_record_ids AS evidence
FROM broker_shares s
WHERE s.mean_leaders >= 10 AND s.leaders * 100 >= s.mean_leaders * leader_skew_percent(s.cluster, NULL) AND size(s.led_record_ids) > 0
