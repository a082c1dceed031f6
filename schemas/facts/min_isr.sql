-- about: min.insync.replicas of a topic (topic null: of every other), from lines and audit.toml
-- What a line of the last nights says of a topic counts first, then table durability (audit.toml, lines of any age; where it has 1, nothing may
-- be known), then what lines say of all topics.
-- The smallest value that is told: a topic that is judged by a larger one that came later would give a false finding.
WITH told AS (
  SELECT cluster, incarnation, topic, try_cast(config_value AS INT) AS min_isr FROM audited_events
  WHERE event_type = 'config_set' AND config = 'min.insync.replicas' AND broker IS NULL
  UNION ALL
  SELECT cluster, incarnation, topic, try_cast(regexp_extract(raw, 'min\\.insync\\.replicas(?: = | -> |=)([0-9]+)', 1) AS INT)
  FROM audited_events
  WHERE item = 0 AND raw LIKE '%min.insync.replicas%'
    AND (event_type IN ('log_created', 'broker_configured') OR event_type = 'config_updated' AND broker IS NULL)
), logged AS (
  SELECT cluster, incarnation, topic, min(min_isr) AS min_isr FROM told WHERE min_isr > 0 GROUP BY cluster, incarnation, topic
), counted AS (
  SELECT cluster, incarnation, topic, max_by(min_insync_replicas, day) AS min_isr FROM audited_durability GROUP BY cluster, incarnation, topic
)
SELECT cluster, incarnation, topic, min_isr FROM logged
UNION ALL
SELECT c.cluster, c.incarnation, c.topic, c.min_isr FROM counted c
LEFT ANTI JOIN logged l ON l.cluster = c.cluster AND l.incarnation = c.incarnation AND l.topic = c.topic
WHERE c.min_isr > 1
