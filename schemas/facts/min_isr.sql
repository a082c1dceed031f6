-- about: min.insync.replicas of a topic (topic null: of every other), as far as the logs print it
-- The smallest value that is told: a topic that is judged by a larger one that came later would give a false finding.
WITH told AS (
  SELECT cluster, incarnation, topic, try_cast(config_value AS INT) AS min_isr, record_id FROM audited_events
  WHERE event_type = 'config_set' AND config = 'min.insync.replicas' AND broker IS NULL
  UNION ALL
  SELECT cluster, incarnation, topic, try_cast(regexp_extract(raw, 'min\\.insync\\.replicas(?: = | -> |=)([0-9]+)', 1) AS INT), record_id
  FROM audited_events
  WHERE item = 0 AND raw LIKE '%min.insync.replicas%'
    AND (event_type IN ('log_created', 'broker_configured') OR event_type = 'config_updated' AND broker IS NULL)
)
SELECT cluster, incarnation, topic, min(min_isr) AS min_isr, min_by(record_id, struct(min_isr, record_id)) AS record_id
FROM told WHERE min_isr > 0 GROUP BY cluster, incarnation, topic
