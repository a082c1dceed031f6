-- severity: warning
-- harm: protocol
-- title: States that do not follow one another
-- concludes: two lines that do not follow one another; that nothing was in between from no line of another controller.
-- needs: this_node
-- why: A line names another state to begin with than the one before left, and nothing innocent explains it - no other controller, no level
--   that leaves it out, no hour without a file. A part of that log is missing, or was altered.
-- do: Look for the missing part (a rotated file that was not collected, a full disk). If the file is whole, lines of it were dropped or changed.
-- same: node, hour
-- only: discontinuities
WITH broken AS (
  SELECT d.*, date_trunc('HOUR', d.at) AS hour FROM audited_discontinuities d WHERE d.cause = 'file_missing'
)
SELECT
  b.cluster, b.incarnation, 'warning' AS severity, CASE WHEN count(DISTINCT b.topic) = 1 THEN min(b.topic) END AS topic,
  CASE WHEN count(DISTINCT b.topic, b.partition) = 1 THEN min(b.partition) END AS partition,
  CASE WHEN count(*) = 1 THEN min(b.replica) END AS replica, b.node, min(b.held_since) AS first_seen, max(b.at) AS last_seen, false AS ended,
  concat(count(*), ' in the log of controller ', b.node) AS thing,
  concat(counted(count(*), 'line'), ' of controller ', b.node, ' began with a state that the one before did not leave: ',
         min_by(concat(coalesce(concat('replica ', b.replica, ' of '), ''), b.topic, '-', b.partition, ' was left in ', b.held_state, ' and begins in ', b.found_state),
                struct(b.at, b.topic, b.partition, b.replica)), ', for one.') AS detail,
  concat_ws('|', b.node, b.hour) AS same,
  slice(array_distinct(concat(array_sort(collect_set(b.held_record_id)), array_sort(collect_set(b.record_id)))), 1, 20) AS evidence
FROM broken b
GROUP BY b.cluster, b.incarnation, b.node, b.hour
