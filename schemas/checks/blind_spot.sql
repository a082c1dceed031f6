-- severity: info
-- title: What these logs cannot show
-- why: Some of what this audit looks for is not printed at the level of these logs, so its silence proves nothing. Said once for each cluster.
-- do: log4j 1 - log4j.logger.state.change.logger=TRACE, stateChangeAppender; log4j 2 (4.0 and later) - the logger state.change.logger with
--   level TRACE. KRaft - org.apache.kafka.controller at DEBUG shows every change of an ISR. And collect server.log beside controller.log and
--   state-change.log.
-- same: cluster
WITH seen AS (
  SELECT cluster, bool_or(replica_states = 'observed') AS traced, bool_or(replica_states = 'inferable') AS inferable,
    bool_or(logger LIKE 'org.apache.kafka.controller.%' AND records > 0) AS quorum, bool_or(logger LIKE 'kafka.server.%' AND records > 0) AS server_log,
    bool_or(logger = 'state.change.logger' AND records > 0) AS state_change_log,
    bool_or(logger LIKE 'kafka.controller.%' AND records > 0) AS controller_log
  FROM audited_coverage GROUP BY cluster
), gaps AS (
  SELECT cluster, array_compact(array(
    CASE WHEN NOT quorum AND NOT traced THEN 'states of replicas are inferred, not printed (state.change.logger is not at TRACE)' END,
    CASE WHEN NOT server_log THEN 'no server.log - when a broker started, stopped or lost a disk, ISR changes by leaders up to 2.6, offsets lost' END,
    CASE WHEN NOT state_change_log THEN 'no state-change.log - elections, roles of brokers, in KRaft most ISR changes' END,
    CASE WHEN NOT controller_log AND NOT quorum THEN 'no controller.log - who was controller, reassignments, deletions, brokers that fail' END)) AS what
  FROM seen
), first AS (
  SELECT cluster, min_by(record_id, struct(ts, record_no)) AS record_id, min(ts) AS since FROM audited_events WHERE ts IS NOT NULL AND item = 0 GROUP BY cluster
)
SELECT
  g.cluster, k.incarnation, 'info' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node, f.since AS first_seen, k.now AS last_seen, false AS ended,
  concat(size(g.what), ' kind(s) of facts') AS thing,
  concat('Not to be seen here: ', array_join(g.what, '; '), '.') AS detail,
  'cluster' AS same, array(f.record_id) AS evidence
FROM gaps g
JOIN clocks k ON k.cluster = g.cluster
JOIN first f ON f.cluster = g.cluster
WHERE size(g.what) > 0
