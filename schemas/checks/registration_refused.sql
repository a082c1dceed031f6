-- severity: error
-- levels: an error; a warning where the broker registered later.
-- harm: unavailability
-- concludes: refusals of a registration; that none succeeded later from no line of one in the broker's own log.
-- needs: this_node
-- identity: node, reason
-- facts: reason, times, registered_at, lasted
-- episodes: yes
-- also: by_absence
-- optional: error_code
-- only: broker_registration_failed, broker_registration_refused, znode_create_failed, raft_request_failed, broker_start_failed, controller_event_failed,
--   controller_event_failed_up_to_3_5
-- thresholds: registration_refused_seconds
-- candidates: refused
WITH refusals AS (
  -- KRaft, in the broker's log
  SELECT cluster, incarnation, coalesce(broker, node) AS node, ts, record_id, error_code AS reason FROM audited_events
  WHERE event_type = 'broker_registration_failed' AND ts IS NOT NULL AND error_code IS NOT NULL
    -- the next attempt reaches another controller, or broker_not_authorized reports it
    AND error_code NOT IN ('NONE', 'NOT_CONTROLLER', 'REQUEST_TIMED_OUT', 'NETWORK_EXCEPTION', 'CLUSTER_AUTHORIZATION_FAILED')
  UNION ALL
  -- ZooKeeper, in the broker's log
  SELECT cluster, incarnation, try_cast(regexp_extract(path, '^/brokers/ids/([0-9]+)$', 1) AS INT), ts, record_id, 'DUPLICATE_BROKER_REGISTRATION' FROM audited_events
  WHERE event_type = 'znode_create_failed' AND ts IS NOT NULL AND path RLIKE '^/brokers/ids/[0-9]+$'
    AND raw RLIKE 'node already exists and owner|conflict in /brokers/ids/|I wrote this conflicted ephemeral node'
  UNION ALL
  SELECT cluster, incarnation, node, ts, record_id, 'DUPLICATE_BROKER_REGISTRATION' FROM audited_events
  WHERE event_type = 'broker_start_failed' AND ts IS NOT NULL AND item = 0
    AND (error_class LIKE '%NodeExistsException' OR error_message LIKE 'A broker is already registered on the path /brokers/ids/%')
  UNION ALL
  -- ZooKeeper, in the controller's log
  SELECT cluster, incarnation, explode(brokers), ts, record_id, 'FEATURES' FROM audited_events
  WHERE event_type = 'broker_registration_refused' AND ts IS NOT NULL
  UNION ALL
  SELECT cluster, incarnation, node, ts, record_id, error_code FROM audited_events
  WHERE event_type = 'raft_request_failed' AND ts IS NOT NULL AND error_code = 'INCONSISTENT_CLUSTER_ID'
), unnamed AS (
  -- a KRaft controller names no broker
  SELECT cluster, incarnation, ts, record_id,
    CASE error_code
      WHEN 'DuplicateBrokerRegistrationException' THEN 'DUPLICATE_BROKER_REGISTRATION' WHEN 'InconsistentClusterIdException' THEN 'INCONSISTENT_CLUSTER_ID'
      WHEN 'UnsupportedVersionException' THEN 'UNSUPPORTED_VERSION' WHEN 'InvalidRegistrationException' THEN 'INVALID_REGISTRATION' END AS reason
  FROM audited_events WHERE event_type IN ('controller_event_failed', 'controller_event_failed_up_to_3_5') AND request = 'registerBroker' AND ts IS NOT NULL
), refused AS (
  SELECT cluster, incarnation, node, ts, record_id, reason FROM refusals WHERE node IS NOT NULL
  UNION ALL
  SELECT u.cluster, u.incarnation, CAST(NULL AS INT), u.ts, u.record_id, u.reason FROM unnamed u
  LEFT ANTI JOIN refusals r ON r.cluster = u.cluster AND r.reason = u.reason AND r.ts BETWEEN u.ts - INTERVAL 1 MINUTE AND u.ts + INTERVAL 1 MINUTE
  WHERE u.reason IS NOT NULL
), registered AS (
  SELECT cluster, coalesce(broker, node) AS broker, ts FROM audited_events
  WHERE event_type IN ('broker_registered', 'broker_running') AND ts IS NOT NULL AND item = 0
  UNION ALL
  SELECT cluster, broker, ts FROM audited_events
  WHERE event_type IN ('broker_registration_replayed', 'broker_unfencing_replayed', 'broker_started') AND broker IS NOT NULL AND ts IS NOT NULL
), ends AS (
  SELECT r.cluster, r.incarnation, r.node, r.reason, r.ts, r.record_id, min(g.ts) AS until
  FROM refused r
  -- where no line names the broker, the next one that registers
  LEFT JOIN registered g ON g.cluster = r.cluster AND coalesce(g.broker = r.node, true) AND g.ts > r.ts
  GROUP BY r.cluster, r.incarnation, r.node, r.reason, r.ts, r.record_id
)
SELECT
  e.cluster, e.incarnation,
  CASE WHEN e.until IS NULL THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, e.node,
  min(e.ts) AS first_seen, coalesce(e.until, max(e.ts)) AS last_seen, e.until IS NOT NULL AS ended,
  e.reason,
  count(DISTINCT e.ts) AS times,
  e.until AS registered_at,
  CASE WHEN max(e.ts) > min(e.ts) THEN max(e.ts) END AS lasted,
  concat_ws('|', coalesce(e.node, -1), e.reason) AS thing,
  earliest_records(collect_list(struct(e.ts AS at, array(e.record_id) AS records))) AS evidence,
  -- a controller's log shows the refusal and the registration
  NOT coalesce(e.reason = 'FEATURES' OR e.node IS NULL, false) AS by_absence
FROM ends e
JOIN clocks k ON k.cluster = e.cluster AND (e.until IS NOT NULL OR k.incarnation = e.incarnation)
GROUP BY e.cluster, e.incarnation, e.node, e.reason, e.until
-- a broker that restarts after a crash is refused until its old session expires
HAVING e.reason NOT IN ('DUPLICATE_BROKER_REGISTRATION')
  OR CASE WHEN e.until IS NULL THEN max(k.now) ELSE max(e.ts) END >= min(e.ts) + make_dt_interval(0, 0, 0, registration_refused_seconds(e.cluster, NULL))
