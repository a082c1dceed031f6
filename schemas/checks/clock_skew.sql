-- severity: warning
-- harm: housekeeping
-- concludes: time stamps of the same changes in logs of two nodes.
-- needs: lines
-- identity: pair of nodes, half hours of difference
-- facts: other, changes, seconds, is_later, least, most
-- only: clock_distances
-- thresholds: clock_skew_ms
SELECT
  m.cluster, m.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, m.other AS node,
  m.since AS first_seen, m.until AS last_seen, false AS ended,
  m.node AS other,
  m.facts AS changes,
  abs(m.ms) / 1000 AS seconds,
  m.ms > 0 AS is_later,
  least(abs(m.least), abs(m.most)) / 1000 AS least,
  greatest(abs(m.least), abs(m.most)) / 1000 AS most,
  concat_ws('|', m.node, m.other, CAST(round(m.ms / 1800000.0) AS BIGINT)) AS thing,
  m.records AS evidence
FROM clock_distances m
