-- severity: error
-- harm: risk
-- title: Broker refused by its old epoch
-- concludes: refusals that repeat.
-- needs: lines
-- why: A broker's heartbeats or requests carry the same epoch of an earlier registration and are refused for longer than
--   stale_broker_epoch_seconds. To the controller it is gone or another one, whatever its process looks like.
-- do: Restart the broker, so that it registers anew. Two processes with one node.id look the same - see that there is only one.
-- same: broker, old epoch
-- only: isr_alter_ignored, controller_event_failed, controller_event_failed_up_to_3_5, broker_heartbeat_failed, alter_partition_failed
-- thresholds: stale_broker_epoch_seconds=60
-- candidates: refused
WITH refused AS (
  SELECT cluster, incarnation, coalesce(broker, try_cast(regexp_extract(raw, '(?:broker|node) ([0-9]+)', 1) AS INT)) AS broker,
    nullif(regexp_extract(raw, '(?:got broker epoch |stale broker epoch [(]?)([0-9]+)', 1), '') AS old_epoch, ts, record_id
  FROM audited_events
  WHERE event_type IN ('isr_alter_ignored', 'controller_event_failed', 'controller_event_failed_up_to_3_5', 'broker_heartbeat_failed', 'alter_partition_failed')
    AND (raw LIKE '%StaleBrokerEpoch%' OR raw LIKE '%STALE_BROKER_EPOCH%')
)
SELECT
  r.cluster, r.incarnation, 'error' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, r.broker AS node, min(r.ts) AS first_seen, max(r.ts) AS last_seen,
  max(r.ts) < max(k.now) - INTERVAL 10 MINUTES AS ended,
  coalesce(concat('broker ', r.broker), 'a broker') AS thing,
  concat(coalesce(concat('Broker ', r.broker), 'A broker'), ' was refused ', count(*), ' times for its old epoch, from ',
         date_format(min(r.ts), 'yyyy-MM-dd HH:mm:ss'), ' to ', date_format(max(r.ts), 'yyyy-MM-dd HH:mm:ss'), '.') AS detail,
  concat_ws('|', coalesce(r.broker, -1), r.old_epoch) AS same,
  slice(array_sort(collect_set(r.record_id)), 1, 20) AS evidence
FROM refused r
JOIN clocks k ON k.cluster = r.cluster
-- brokers that are restarted one after the other are refused for a moment each
WHERE r.broker IS NOT NULL OR r.old_epoch IS NOT NULL
GROUP BY r.cluster, r.incarnation, r.broker, r.old_epoch
HAVING count(*) >= 3 AND max(r.ts) >= min(r.ts) + make_dt_interval(0, 0, 0, stale_broker_epoch_seconds(r.cluster, NULL))
