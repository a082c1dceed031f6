-- severity: warning
-- harm: housekeeping
-- title: Clocks of two nodes differ
-- concludes: time stamps of the same changes in logs of two nodes.
-- needs: lines
-- why: Two nodes tell the same changes with time stamps that are apart by the same amount every time (clock_skew_ms and more), at
--   three moments and more, which processing does not do. What happened first on which node is then uncertain, and times of these logs are off by so much.
-- do: Check NTP on the node, and the time zone that its logs are given with (timezone in audit.toml).
-- same: pair of nodes, half hours of difference
-- only: clock_distances
-- thresholds: clock_skew_ms
SELECT
  m.cluster, m.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, m.other AS node, m.since AS first_seen, m.until AS last_seen, false AS ended,
  concat('nodes ', m.node, ' and ', m.other) AS thing,
  concat('Node ', m.other, ' tells the same ', m.facts, ' changes about ', abs(m.ms) / 1000, ' s ', CASE WHEN m.ms > 0 THEN 'later' ELSE 'earlier' END,
         ' than node ', m.node, ' (between ', m.least / 1000, ' and ', m.most / 1000, ' s).') AS detail,
  concat_ws('|', m.node, m.other, CAST(round(m.ms / 1800000.0) AS BIGINT)) AS same,
  m.records AS evidence
FROM clock_distances m
