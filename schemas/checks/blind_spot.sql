-- severity: info
-- harm: housekeeping
-- title: What these logs cannot show
-- concludes: logs and levels that are not given, which is what it reports.
-- needs: lines
-- silence: what is missing is its subject.
-- why: Some of what this audit looks for is not printed at the level of these logs, so its silence proves nothing. Said once for each cluster;
--   nothing has to be done tonight.
-- do: log4j 1 - log4j.logger.state.change.logger=TRACE, stateChangeAppender; log4j 2 (4.0 and later) - the logger state.change.logger with
--   level TRACE. KRaft - org.apache.kafka.controller at DEBUG shows every change of an ISR. And collect server.log beside controller.log and
--   state-change.log.
-- same: cluster
WITH seen AS (
  -- replica states are a matter of ZooKeeper's controller; in KRaft the controller's log has all that partitions go through
  SELECT cluster, bool_or(traced OR kraft AND controller_log) AS traced, bool_or(server_log) AS server_log, bool_or(state_change_log) AS state_change_log,
    bool_or(controller_log) AS controller_log FROM logs_seen GROUP BY cluster
), unheard AS (
  -- brokers that hold replicas, and of which there is nothing
  SELECT l.cluster, array_sort(collect_set(l.broker)) AS brokers FROM audited_broker_load l
  LEFT ANTI JOIN logs_seen c ON c.cluster = l.cluster AND c.node = l.broker
  LEFT ANTI JOIN audited_coverage c ON c.cluster = l.cluster AND c.node = l.broker AND c.records > 0
  WHERE l.valid_to IS NULL GROUP BY l.cluster
), unlimited AS (
  -- topics with several replicas of which neither lines nor audit.toml tell how many must be in sync
  SELECT a.cluster, count(DISTINCT a.topic) AS topics FROM audited_topic_assignments a
  LEFT ANTI JOIN min_isr m ON m.cluster = a.cluster AND m.incarnation = a.incarnation AND coalesce(m.topic, a.topic) = a.topic
  WHERE a.valid_to IS NULL AND a.replication_factor > 1 GROUP BY a.cluster
), gaps AS (
  SELECT s.cluster, array_compact(array(
    CASE WHEN NOT traced THEN 'states of replicas are inferred, not printed (state.change.logger is not at TRACE)' END,
    CASE WHEN NOT server_log THEN 'no server.log - when a broker started, stopped or lost a disk, when a leader changed an ISR (up to Kafka 2.6), offsets lost' END,
    CASE WHEN NOT state_change_log THEN 'no state-change.log - elections, roles of brokers, in KRaft most ISR changes' END,
    CASE WHEN NOT controller_log THEN 'no controller.log - who was controller, reassignments, deletions, brokers that fail' END,
    concat('no log of broker ', array_join(slice(u.brokers, 1, 20), ', '), CASE WHEN size(u.brokers) > 20 THEN ', ..' ELSE '' END, ' - what it did, and when it was down'),
    concat('min.insync.replicas of ', counted(n.topics, 'topic'), ' is not logged, and audit.toml names none above 1 - whether acks=all was refused'))) AS what
  FROM seen s LEFT JOIN unheard u ON u.cluster = s.cluster
  LEFT JOIN unlimited n ON n.cluster = s.cluster
), first AS (
  SELECT cluster, min_by(record_id, struct(ts, record_no, record_id)) AS record_id, min(ts) AS since FROM audited_events WHERE ts IS NOT NULL AND item = 0 GROUP BY cluster
)
SELECT
  g.cluster, k.incarnation, 'info' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node, f.since AS first_seen, k.now AS last_seen, false AS ended,
  concat(counted(size(g.what), 'kind'), ' of facts') AS thing,
  concat('Not to be seen here: ', array_join(g.what, '; '), '.') AS detail,
  'cluster' AS same, array(f.record_id) AS evidence
FROM gaps g
JOIN clocks k ON k.cluster = g.cluster
JOIN first f ON f.cluster = g.cluster
WHERE size(g.what) > 0
