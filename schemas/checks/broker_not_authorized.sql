-- severity: error
-- harm: unavailability
-- concludes: records of the refusals.
-- needs: lines
-- identity: node, kind of refusal
-- facts: why, times
-- only: fetch_refused, fetch_failed, request_failed, request_handling_failed, alter_partition_failed, broker_registration_failed, broker_heartbeat_failed,
--   raft_request_failed, node_unreachable, request_answered_with_error, fetch_request_failed
-- thresholds: refused_seconds
-- candidates: refused
WITH refused AS (
  SELECT cluster, incarnation, node, ts, record_id,
    regexp_extract(raw, '(CLUSTER_AUTHORIZATION_FAILED|ClusterAuthorizationException|SASL_AUTHENTICATION_FAILED|SaslAuthenticationException|SslAuthenticationException|not authorized to send Alter)', 1) AS why
  FROM audited_events
  WHERE event_type IN ('fetch_refused', 'fetch_failed', 'request_failed', 'request_handling_failed', 'alter_partition_failed', 'broker_registration_failed',
      'broker_heartbeat_failed', 'raft_request_failed', 'node_unreachable', 'request_answered_with_error', 'fetch_request_failed')
    AND ts IS NOT NULL AND item = 0
    AND raw RLIKE 'CLUSTER_AUTHORIZATION_FAILED|ClusterAuthorizationException|SASL_AUTHENTICATION_FAILED|SaslAuthenticationException|SslAuthenticationException|not authorized to send Alter'
)
SELECT
  r.cluster, r.incarnation,
  'error' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, r.node,
  min(r.ts) AS first_seen, max(r.ts) AS last_seen, max(r.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  r.why,
  count(*) AS times,
  concat_ws('|', r.node, r.why) AS thing,
  earliest_records(collect_list(struct(r.ts AS at, array(r.record_id) AS records))) AS evidence
FROM refused r
JOIN clocks k ON k.cluster = r.cluster
GROUP BY r.cluster, r.incarnation, r.node, r.why
-- while authorizers and credentials load, a node is refused for a moment
HAVING max(r.ts) >= min(r.ts) + make_dt_interval(0, 0, 0, refused_seconds(r.cluster, NULL))
