-- severity: info
-- harm: housekeeping
-- concludes: logs and levels that are not given, which is what it reports.
-- needs: lines
-- silence: what is missing is its subject.
-- identity: cluster
-- facts: lacks_traces, lacks_server_log, lacks_state_change_log, lacks_controller_log, unheard, unlimited
WITH seen AS (
  -- only ZooKeeper's controller has replica states; in KRaft its log has all changes of partitions
  SELECT cluster, bool_or(traced OR kraft AND controller_log) AS traced, bool_or(server_log) AS server_log, bool_or(state_change_log) AS state_change_log,
    bool_or(controller_log) AS controller_log FROM logs_seen GROUP BY cluster
), unheard AS (
  -- brokers with replicas, and without any log
  SELECT l.cluster, array_sort(collect_set(l.broker)) AS brokers FROM audited_broker_load l
  LEFT ANTI JOIN logs_seen c ON c.cluster = l.cluster AND c.node = l.broker
  LEFT ANTI JOIN audited_coverage c ON c.cluster = l.cluster AND c.node = l.broker AND c.records > 0
  WHERE l.valid_to IS NULL GROUP BY l.cluster
), unlimited AS (
  -- topics with several replicas whose min.insync.replicas neither lines nor audit.toml give
  SELECT a.cluster, count(DISTINCT a.topic) AS topics FROM audited_topic_assignments a
  LEFT ANTI JOIN min_isr m ON m.cluster = a.cluster AND m.incarnation = a.incarnation AND coalesce(m.topic, a.topic) = a.topic
  WHERE a.valid_to IS NULL AND a.replication_factor > 1 GROUP BY a.cluster
), gaps AS (
  SELECT s.cluster, s.traced, s.server_log, s.state_change_log, s.controller_log, u.brokers AS unheard, n.topics AS unlimited
  FROM seen s
  LEFT JOIN unheard u ON u.cluster = s.cluster
  LEFT JOIN unlimited n ON n.cluster = s.cluster
), first AS (
  SELECT cluster, min_by(record_id, struct(ts, record_no, record_id)) AS record_id, min(ts) AS since FROM audited_events WHERE ts IS NOT NULL AND item = 0 GROUP BY cluster
)
SELECT
  g.cluster, k.incarnation,
  'info' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  f.since AS first_seen, k.now AS last_seen, false AS ended,
  NOT g.traced AS lacks_traces,
  NOT g.server_log AS lacks_server_log,
  NOT g.state_change_log AS lacks_state_change_log,
  NOT g.controller_log AS lacks_controller_log,
  g.unheard,
  g.unlimited,
  'cluster' AS thing,
  array(f.record_id) AS evidence
FROM gaps g
JOIN clocks k ON k.cluster = g.cluster
JOIN first f ON f.cluster = g.cluster
WHERE NOT (g.traced AND g.server_log AND g.state_change_log AND g.controller_log) OR g.unheard IS NOT NULL OR g.unlimited IS NOT NULL
