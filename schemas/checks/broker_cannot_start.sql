-- severity: error
-- levels: an error; a warning where it served later.
-- harm: unavailability
-- concludes: the exception that ended a start; that the node did not serve later from no line of it in its own log.
-- needs: this_node
-- identity: node, exception
-- facts: began, again, error_class, message, served_at
-- episodes: yes
-- only: broker_start_failed
-- candidates: failed
WITH failed AS (
  SELECT cluster, incarnation, node, ts, record_id, error_class, error_message, text FROM audited_events
  WHERE event_type = 'broker_start_failed' AND node IS NOT NULL AND ts IS NOT NULL AND item = 0
), reasons AS (
  -- all lines of one start are one failure; its first exception is the cause, and cancelled waits follow from it
  SELECT f.*, x.error_class AS class, coalesce(x.error_message, f.error_message, f.text) AS message
  FROM failed f
  LEFT JOIN LATERAL (
    SELECT min_by(e.error_class, struct(e.error_class LIKE '%.CancellationException' AS is_cancelled, e.ts, e.record_id)) AS error_class,
      min_by(e.error_message, struct(e.error_class LIKE '%.CancellationException' AS is_cancelled, e.ts, e.record_id)) AS error_message
    FROM failed e
    WHERE e.cluster = f.cluster AND e.incarnation = f.incarnation AND e.node = f.node AND e.error_class IS NOT NULL
      AND e.ts BETWEEN f.ts - INTERVAL 1 MINUTE AND f.ts + INTERVAL 1 MINUTE) x
), ends AS (
  -- a node whose storage was formatted before it started belongs to the next incarnation
  SELECT r.cluster, r.incarnation, r.node, r.ts, r.record_id, r.class, r.message, min(s.until) AS until
  FROM reasons r
  LEFT JOIN serving s ON s.cluster = r.cluster AND s.broker = r.node AND s.until > r.ts
  GROUP BY r.cluster, r.incarnation, r.node, r.ts, r.record_id, r.class, r.message
)
SELECT
  e.cluster, e.incarnation,
  CASE WHEN e.until IS NULL THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, e.node,
  min(e.ts) AS first_seen, coalesce(e.until, max(e.ts)) AS last_seen, e.until IS NOT NULL AS ended,
  min(e.ts) AS began,
  CASE WHEN max(e.ts) > min(e.ts) + INTERVAL 1 MINUTE THEN max(e.ts) END AS again,
  e.class AS error_class,
  left(max(e.message), 300) AS message,
  e.until AS served_at,
  concat_ws('|', e.node, e.class) AS thing,
  earliest_records(collect_list(struct(e.ts AS at, array(e.record_id) AS records))) AS evidence
FROM ends e
GROUP BY e.cluster, e.incarnation, e.node, e.class, e.until
