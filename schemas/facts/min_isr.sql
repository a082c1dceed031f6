-- about: min.insync.replicas of a topic (topic null: of every other), from lines and audit.toml.
-- A line about the topic has priority, then table durability (from audit.toml; 1 may mean unknown), then a line about all topics.
-- The smallest logged value counts, because a larger value that was set later would give a false finding.
WITH counted AS (
  SELECT cluster, incarnation, topic, max_by(min_insync_replicas, day) AS min_isr FROM audited_durability GROUP BY cluster, incarnation, topic
)
SELECT cluster, incarnation, topic, min_isr FROM logged_min_isr
UNION ALL
SELECT c.cluster, c.incarnation, c.topic, c.min_isr FROM counted c
LEFT ANTI JOIN logged_min_isr l ON l.cluster = c.cluster AND l.incarnation = c.incarnation AND l.topic = c.topic
WHERE c.min_isr > 1
