-- severity: warning
-- harm: risk
-- levels: a warning; an error from ten times controllers_per_hour on.
-- concludes: elections; that nobody restarted the controllers from no line of a stop or a start.
-- needs: every_controller, else info
-- identity: day
-- facts: elections, most, nodes
-- thresholds: controllers_per_hour
-- candidates: terms
WITH elected AS (
  -- every node of a quorum logs its leader; of the lines about one election (two up to 2.0) the one with the epoch counts
  SELECT e.cluster, e.incarnation, coalesce(e.quorum_node, e.controller, e.node) AS node, coalesce(e.controller_epoch, e.raft_epoch) AS epoch,
    min(e.ts) AS at, min_by(e.record_id, e.ts) AS record_id, min_by(regexp_replace(e.file, '[^/]*$', ''), e.ts) AS folder
  FROM audited_events e
  WHERE e.ts IS NOT NULL AND coalesce(e.controller_epoch, e.raft_epoch) IS NOT NULL AND (e.event_type IN ('controller_elected', 'controller_epoch_incremented', 'controller_activated')
    OR e.event_type = 'quorum_leader_learned' AND e.quorum_node IS NOT NULL)
  GROUP BY ALL
), terms AS (
  SELECT * FROM (SELECT *, count(*) OVER (PARTITION BY cluster, incarnation) AS terms FROM elected) WHERE terms >= controllers_per_hour(cluster, NULL)
), started AS (
  -- up to 1.0 ([controller-event-thread]) the line names no broker; in a file of several brokers it may be any of them
  SELECT cluster, incarnation, node, ts, event_type = 'quorum_controller_created' AS votes, regexp_replace(file, '[^/]*$', '') AS folder FROM audited_events
  WHERE node IS NOT NULL AND event_type IN ('broker_starting', 'broker_process_started', 'controller_module_starting', 'quorum_controller_created')
    OR event_type = 'thread_changed' AND logger LIKE '%$ControllerEventThread' AND text = 'Starting'
), stopped AS (
  SELECT o.cluster, o.incarnation, o.broker, o.since, v.node IS NOT NULL AS votes FROM audited_broker_outages o
  LEFT JOIN (SELECT DISTINCT cluster, incarnation, node FROM started WHERE votes) v
    ON v.cluster = o.cluster AND v.incarnation = o.incarnation AND v.node = o.broker
  WHERE o.how = 'shut_down'
), unasked AS (
  SELECT t.* FROM (SELECT *, lag(node) OVER (PARTITION BY cluster, incarnation ORDER BY at) AS before FROM terms) t
  LEFT ANTI JOIN stopped o ON o.cluster = t.cluster AND o.incarnation = t.incarnation AND (o.broker = t.before OR o.votes)
    AND t.at BETWEEN o.since AND o.since + INTERVAL 1 MINUTE
  LEFT ANTI JOIN started s ON s.cluster = t.cluster AND s.incarnation = t.incarnation AND (s.node = t.node OR s.votes OR s.node IS NULL AND s.folder = t.folder)
    AND t.at BETWEEN s.ts AND s.ts + INTERVAL 1 MINUTE
  -- the first logged election is no change
  WHERE t.before IS NOT NULL
), often AS (
  SELECT *, within_hour >= controllers_per_hour(cluster, NULL) AS is_often FROM (
    SELECT *, count(*) OVER (PARTITION BY cluster, incarnation ORDER BY at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour FROM unasked)
), dated AS (
  -- elections of an hour across midnight that reaches the threshold are of the day on which it does
  SELECT *, date_trunc('DAY', coalesce(min(CASE WHEN is_often THEN at END) OVER (
      PARTITION BY cluster, incarnation ORDER BY at RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING), at)) AS day
  FROM often
), counted AS (
  SELECT *, count(*) OVER (PARTITION BY cluster, incarnation, day ORDER BY at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS of_day FROM dated
)
SELECT
  c.cluster, c.incarnation,
  CASE WHEN max(c.of_day) >= 10 * controllers_per_hour(c.cluster, NULL) THEN 'error' ELSE 'warning' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  min(c.at) AS first_seen, max(c.at) AS last_seen, max(c.at) < max(k.now) - INTERVAL 1 HOUR AS ended,
  count(*) AS elections,
  max(c.of_day) AS most,
  array_sort(collect_set(c.node)) AS nodes,
  concat(c.day) AS thing,
  earliest_records(collect_list(struct(c.at AS at, array(c.record_id) AS records))) AS evidence
FROM counted c
JOIN clocks k ON k.cluster = c.cluster
GROUP BY c.cluster, c.incarnation, c.day
HAVING max(c.of_day) >= controllers_per_hour(c.cluster, NULL)
