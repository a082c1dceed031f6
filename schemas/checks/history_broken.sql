-- severity: warning
-- harm: protocol
-- concludes: two lines that do not follow one another; that nothing was in between from no line of another controller.
-- needs: this_node
-- identity: node, hour
-- facts: lines, example
-- only: discontinuities
WITH broken AS (
  SELECT d.*, date_trunc('HOUR', d.at) AS hour FROM audited_discontinuities d WHERE d.cause = 'file_missing'
)
SELECT
  b.cluster, b.incarnation,
  'warning' AS severity,
  CASE WHEN count(DISTINCT b.topic) = 1 THEN min(b.topic) END AS topic, CASE WHEN count(DISTINCT b.topic, b.partition) = 1 THEN min(b.partition) END AS partition, CASE WHEN count(*) = 1 THEN min(b.replica) END AS replica, b.node,
  min(b.held_since) AS first_seen, max(b.at) AS last_seen, false AS ended,
  count(*) AS lines,
  min_by(struct(b.replica, b.topic, b.partition, b.held_state, b.found_state), struct(b.at, b.topic, b.partition, b.replica)) AS example,
  concat_ws('|', b.node, b.hour) AS thing,
  earliest_records(concat(collect_list(struct(b.held_since AS at, array(b.held_record_id) AS records)), collect_list(struct(b.at AS at, array(b.record_id) AS records)))) AS evidence
FROM broken b
GROUP BY b.cluster, b.incarnation, b.node, b.hour
