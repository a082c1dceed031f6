-- severity: error
-- harm: risk
-- levels: an error while it lasts, a warning when it is over.
-- concludes: a line of a start, and none of a registration while a log that would show one goes on.
-- needs: this_node
-- identity: broker
-- facts: back_at, is_back_seen, down_until, now, refusals, refusal
-- episodes: yes
-- only: broker_outages
-- thresholds: broker_start_minutes
-- candidates: starts
WITH starts AS (
  SELECT o.*, k.now FROM audited_broker_outages o
  JOIN clocks k ON k.cluster = o.cluster AND (o.until IS NOT NULL OR k.incarnation = o.incarnation)
  WHERE o.broker IS NOT NULL AND o.starting_at IS NOT NULL
    AND coalesce(o.down_until, k.now) >= o.starting_at + make_dt_interval(0, 0, broker_start_minutes(o.cluster, NULL))
), refused AS (
  SELECT cluster, incarnation, coalesce(broker, node) AS broker, ts, record_id, event_type, coalesce(error_code, error_class, CASE WHEN event_type = 'znode_create_failed' THEN 'node_already_exists' ELSE 'no_answer' END) AS why
  FROM audited_events
  WHERE event_type IN ('broker_registration_failed', 'broker_start_failed') OR event_type = 'znode_create_failed' AND path LIKE '/brokers/ids/%'
)
SELECT
  o.cluster, o.incarnation,
  CASE WHEN o.until IS NULL THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, o.broker AS node,
  o.starting_at AS first_seen, coalesce(o.until, max(o.now)) AS last_seen, o.until IS NOT NULL AS ended,
  o.until AS back_at,
  o.until = o.down_until AS is_back_seen,
  o.down_until,
  max(o.now) AS now,
  count(r.record_id) AS refusals,
  max_by(r.why, r.ts) AS refusal,
  CAST(o.broker AS STRING) AS thing,
  slice(array_distinct(concat(o.evidence, earliest_records(collect_list(CASE WHEN r.record_id IS NOT NULL THEN struct(r.ts AS at, array(r.record_id) AS records) END)))), 1, 20) AS evidence
FROM starts o
LEFT JOIN refused r ON r.cluster = o.cluster AND r.incarnation = o.incarnation AND r.broker = o.broker
  AND r.ts >= o.starting_at AND coalesce(r.ts <= o.until, true)
-- the broker's log or a controller's, which would show a registration, continues for that long
WHERE o.until IS NOT NULL OR EXISTS (
  SELECT 1 FROM (
    SELECT cluster, incarnation, CAST(NULL AS INT) AS broker, ts FROM broker_signs WHERE broker IS NULL
    UNION ALL SELECT cluster, incarnation, node, ts FROM audited_events
    WHERE node IS NOT NULL AND logger NOT LIKE '%state.change.logger' AND logger NOT LIKE '%.controller.%') g
  WHERE g.cluster = o.cluster AND g.incarnation = o.incarnation AND coalesce(g.broker = o.broker, true)
    AND g.ts >= o.starting_at + make_dt_interval(0, 0, broker_start_minutes(o.cluster, NULL)))
GROUP BY o.cluster, o.incarnation, o.broker, o.since, o.until, o.down_until, o.starting_at, o.evidence
