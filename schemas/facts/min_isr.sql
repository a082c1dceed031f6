-- about: min.insync.replicas of a topic (topic null: of every other), from lines and audit.toml
-- What a line says of a topic counts first, then table durability (audit.toml; where it has 1, nothing may be known), then what lines say of all topics.
-- The smallest value that is told: a topic that is judged by a larger one that came later would give a false finding.
WITH counted AS (
  SELECT cluster, incarnation, topic, max_by(min_insync_replicas, day) AS min_isr FROM audited_durability GROUP BY cluster, incarnation, topic
)
SELECT cluster, incarnation, topic, min_isr FROM logged_min_isr
UNION ALL
SELECT c.cluster, c.incarnation, c.topic, c.min_isr FROM counted c
LEFT ANTI JOIN logged_min_isr l ON l.cluster = c.cluster AND l.incarnation = c.incarnation AND l.topic = c.topic
WHERE c.min_isr > 1
