-- severity: error
-- harm: protocol
-- concludes: lines of a controller after the election of the next one.
-- needs: lines
-- silence: the election of the next controller names its epoch; the join leaves out terms of a quorum by lines that name them.
-- identity: node, controller epoch
-- facts: epoch, lines, late_ms, successor, next_epoch, elected_at, refused
-- thresholds: clock_skew_ms, stale_controller_seconds
-- candidates: changes
WITH terms AS (
  SELECT cluster, incarnation, controller_epoch, node, elected_at, record_id FROM audited_controllers
  -- during a migration the epochs of the quorum are not those of the ZooKeeper controllers
  LEFT ANTI JOIN terms_of_quorum USING (cluster, incarnation, node, controller_epoch)
  WHERE elected_at IS NOT NULL AND NOT inferred
), begun AS (
  SELECT cluster, incarnation, node, controller_epoch, min(ts) AS at FROM audited_events
  WHERE node = controller AND controller_epoch IS NOT NULL AND ts IS NOT NULL GROUP BY cluster, incarnation, node, controller_epoch
), changes AS (
  SELECT e.cluster, e.incarnation, e.node, e.controller_epoch, t.node AS successor, t.controller_epoch AS next_epoch, t.elected_at,
    t.record_id AS election, e.ts, e.record_id
  FROM audited_events e
  JOIN terms t ON t.cluster = e.cluster AND t.incarnation = e.incarnation AND t.controller_epoch = e.controller_epoch + 1 AND t.node <> e.node
  -- a term whose lines all come after the next election was written with a wrong clock, or nothing shows that it was not
  JOIN begun b ON b.cluster = e.cluster AND b.incarnation = e.incarnation AND b.node = e.node AND b.controller_epoch = e.controller_epoch AND b.at < t.elected_at
  -- corrected by the successor's clock, where it is known to differ
  LEFT JOIN clock_distances d ON d.cluster = e.cluster AND d.incarnation = e.incarnation AND d.node = least(e.node, t.node) AND d.other = greatest(e.node, t.node)
  WHERE e.says = 'happened' AND e.topic IS NOT NULL AND e.node = e.controller
    AND unix_millis(e.ts) - coalesce(CASE WHEN e.node = d.other THEN d.ms ELSE -d.ms END, 0)
        > unix_millis(t.elected_at) + 1000 * stale_controller_seconds(e.cluster, NULL)
), refused AS (
  SELECT cluster, incarnation, controller AS node, controller_epoch, count(*) AS times, slice(earliest_records(collect_list(struct(ts AS at, array(record_id) AS records))), 1, 10) AS records
  FROM audited_events
  WHERE event_type IN ('leader_and_isr_ignored', 'stop_replica_ignored', 'become_outdated') AND controller_epoch < latest_controller_epoch
  GROUP BY cluster, incarnation, controller, controller_epoch
)
SELECT
  c.cluster, c.incarnation,
  'error' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, c.node,
  min(c.ts) AS first_seen, max(c.ts) AS last_seen, max(c.ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  c.controller_epoch AS epoch,
  count(*) AS lines,
  max(unix_millis(c.ts) - unix_millis(c.elected_at)) AS late_ms,
  max(c.successor) AS successor,
  max(c.next_epoch) AS next_epoch,
  max(c.elected_at) AS elected_at,
  max(r.times) AS refused,
  concat_ws('|', c.node, c.controller_epoch) AS thing,
  slice(array_distinct(concat(array(max(c.election)), slice(earliest_records(collect_list(struct(c.ts AS at, array(c.record_id) AS records))), 1, 10), coalesce(max(r.records), array()))), 1, 20) AS evidence
FROM changes c
JOIN clocks k ON k.cluster = c.cluster
LEFT JOIN refused r ON r.cluster = c.cluster AND r.incarnation = c.incarnation AND r.node = c.node AND r.controller_epoch = c.controller_epoch
GROUP BY c.cluster, c.incarnation, c.node, c.controller_epoch
