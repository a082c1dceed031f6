-- severity: error
-- harm: risk
-- concludes: refusals that repeat.
-- needs: lines
-- identity: broker, old epoch
-- facts: times
-- only: isr_alter_ignored, controller_event_failed, controller_event_failed_up_to_3_5, broker_heartbeat_failed, alter_partition_failed
-- thresholds: stale_broker_epoch_seconds
-- candidates: refused
WITH refused AS (
  SELECT cluster, incarnation, event_type = 'broker_heartbeat_failed' AS own,
    coalesce(broker, CASE WHEN event_type = 'broker_heartbeat_failed' THEN node END, try_cast(regexp_extract(raw, '(?:broker|node) ([0-9]+)', 1) AS INT)) AS broker,
    nullif(regexp_extract(raw, '(?:got broker epoch |stale broker epoch [(]?)([0-9]+)', 1), '') AS old_epoch,
    nullif(regexp_extract(raw, 'Expected broker epoch ([0-9]+)', 1), '') AS epoch, ts, record_id
  FROM audited_events
  WHERE event_type IN ('isr_alter_ignored', 'controller_event_failed', 'controller_event_failed_up_to_3_5', 'broker_heartbeat_failed', 'alter_partition_failed')
    AND (raw LIKE '%StaleBrokerEpoch%' OR raw LIKE '%STALE_BROKER_EPOCH%')
), registered AS (
  -- a KRaft controller logs two epochs and no broker; an epoch belongs to one registration
  SELECT cluster, incarnation, CAST(broker_epoch AS STRING) AS epoch, max(broker) AS broker FROM audited_events
  WHERE broker IS NOT NULL AND broker_epoch IS NOT NULL GROUP BY cluster, incarnation, CAST(broker_epoch AS STRING) HAVING count(DISTINCT broker) = 1
), named AS (
  SELECT r.cluster, r.incarnation, r.own, r.ts, r.record_id, r.old_epoch, coalesce(r.broker, max(g.broker)) AS broker
  FROM refused r
  LEFT JOIN registered g ON r.broker IS NULL AND g.cluster = r.cluster AND g.incarnation = r.incarnation AND g.epoch IN (r.old_epoch, r.epoch)
  GROUP BY r.cluster, r.incarnation, r.own, r.ts, r.record_id, r.old_epoch, r.broker
), attributed AS (
  -- the lines of the broker itself have no epoch
  SELECT cluster, incarnation, own, ts, record_id, broker,
    CASE WHEN broker IS NULL THEN old_epoch ELSE coalesce(old_epoch, max(old_epoch) OVER (PARTITION BY cluster, incarnation, broker)) END AS old_epoch
  FROM named
)
SELECT
  r.cluster, r.incarnation,
  'error' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, r.broker AS node,
  min(r.ts) AS first_seen, max(r.ts) AS last_seen, max(r.ts) < max(k.now) - INTERVAL 10 MINUTES AS ended,
  greatest(count_if(r.own), count_if(NOT r.own)) AS times,
  concat_ws('|', coalesce(r.broker, -1), r.old_epoch) AS thing,
  earliest_records(collect_list(struct(r.ts AS at, array(r.record_id) AS records))) AS evidence
FROM attributed r
JOIN clocks k ON k.cluster = r.cluster
-- in a rolling restart each broker is refused for a moment
WHERE r.broker IS NOT NULL OR r.old_epoch IS NOT NULL
GROUP BY r.cluster, r.incarnation, r.broker, r.old_epoch
HAVING greatest(count_if(r.own), count_if(NOT r.own)) >= 3
  AND max(r.ts) >= min(r.ts) + make_dt_interval(0, 0, 0, stale_broker_epoch_seconds(r.cluster, NULL))
