-- severity: info
-- harm: housekeeping
-- concludes: the replica lists of all partitions that lines name; others may be in no log.
-- needs: every_node or controller
-- thresholds: assignment_skew_percent
-- identity: broker
-- facts: replicas, mean
SELECT
  s.cluster, s.incarnation,
  'info' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, s.broker AS node,
  coalesce(s.since, s.now) AS first_seen, s.now AS last_seen, false AS ended,
  s.replicas,
  round(s.mean_replicas, 1) AS mean,
  CAST(s.broker AS STRING) AS thing,
  s.record_ids AS evidence
FROM broker_shares s
WHERE s.mean_replicas >= 10 AND s.replicas * 100 >= s.mean_replicas * assignment_skew_percent(s.cluster, NULL) AND size(s.record_ids) > 0
