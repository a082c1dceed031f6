-- severity: error
-- harm: unavailability
-- concludes: intervals without a leader or below min.insync.replicas, until a line ends them.
-- needs: every_node or controller
-- identity: topic, goal
-- facts: goal, acks, days, reached, refused, covered
-- only: slos
WITH goals AS (
  SELECT d.cluster, d.incarnation, d.topic, s.number, s.availability, s.acks, s.days, n.now,
    sum(d.covered) AS covered, sum(d.leaderless + CASE WHEN s.acks = 'all' THEN d.below_min_isr ELSE 0 END) AS refused,
    min(CASE WHEN d.leaderless + d.below_min_isr > 0 THEN d.day END) AS first_day,
    earliest_records(collect_list(struct(d.day AS at, d.record_ids AS records))) AS evidence
  FROM audited_durability d
  JOIN clocks n ON n.cluster = d.cluster AND n.incarnation = d.incarnation
  JOIN slos s ON d.cluster RLIKE s.clusters AND d.topic RLIKE s.topics
  WHERE d.day > date_sub(to_date(n.now), s.days)
  GROUP BY d.cluster, d.incarnation, d.topic, s.number, s.availability, s.acks, s.days, n.now
)
SELECT
  g.cluster, g.incarnation,
  'error' AS severity,
  g.topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  CAST(g.first_day AS TIMESTAMP) AS first_seen, g.now AS last_seen, false AS ended,
  g.availability AS goal,
  g.acks,
  g.days,
  round(100 * (1 - g.refused / g.covered), 4) AS reached,
  round(g.refused, 1) AS refused,
  round(g.covered, 1) AS covered,
  concat_ws('|', g.topic, g.acks, g.availability, g.days) AS thing,
  g.evidence
FROM goals g
WHERE g.covered > 0 AND 100 * (1 - g.refused / g.covered) < g.availability AND size(g.evidence) > 0
