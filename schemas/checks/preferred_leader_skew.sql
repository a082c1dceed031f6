-- severity: info
-- harm: housekeeping
-- concludes: the replica lists of all partitions that lines name; others may be in no log.
-- needs: every_node or controller
-- thresholds: leader_skew_percent
-- identity: broker
-- facts: preferred, mean
SELECT
  s.cluster, s.incarnation,
  'info' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, s.broker AS node,
  coalesce(s.led_since, s.now) AS first_seen, s.now AS last_seen, false AS ended,
  s.leaders AS preferred,
  round(s.mean_leaders, 1) AS mean,
  CAST(s.broker AS STRING) AS thing,
  s.led_record_ids AS evidence
FROM broker_shares s
WHERE s.mean_leaders >= 10 AND s.leaders * 100 >= s.mean_leaders * leader_skew_percent(s.cluster, NULL) AND size(s.led_record_ids) > 0
