-- severity: warning
-- harm: risk
-- concludes: lines that a follower left an ISR and returned; that its broker was up from no line of an outage.
-- needs: this_node or controller, else warning
-- identity: follower, day
-- facts: departures, most, missing, down_meanwhile, alive_at
-- also: subjects
-- only: out_of_sync
-- thresholds: isr_turns_per_hour
-- candidates: turns
WITH turns AS (
  -- partitions that leave the ISR at once are one turn
  SELECT cluster, incarnation, replica, date_trunc('HOUR', since) AS hour, count(DISTINCT date_trunc('MINUTE', since)) AS turns,
    count(*) AS episodes, min(since) AS since, max(until) AS until,
    collect_list(struct(topic, partition, replica, since, until)) AS subjects, flatten(transform(array_sort(collect_list(struct(since, evidence))), one -> one.evidence)) AS evidence,
    array_distinct(flatten(collect_list(down_meanwhile))) AS down
  FROM partition_episodes
  WHERE kind = 'out_of_sync' AND ended AND returned AND cause_broker IS NULL
  GROUP BY cluster, incarnation, replica, date_trunc('HOUR', since)
), alive AS (
  -- records of the follower's server.log in the same hours
  SELECT t.cluster, t.incarnation, t.replica, t.hour, max(b.ts) AS alive_at, max_by(b.record_id, b.ts) AS record_id
  FROM turns t
  JOIN broker_signs b ON b.cluster = t.cluster AND b.incarnation = t.incarnation AND b.broker = t.replica AND b.ts BETWEEN t.since AND t.until
  GROUP BY t.cluster, t.incarnation, t.replica, t.hour
)
SELECT
  t.cluster, t.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, t.replica, t.replica AS node,
  min(t.since) AS first_seen, max(t.until) AS last_seen, max(t.until) < max(k.now) - INTERVAL 1 HOUR AS ended,
  sum(t.episodes) AS departures,
  max(t.turns) AS most,
  array(t.replica) AS missing,
  array_sort(array_distinct(flatten(collect_list(t.down)))) AS down_meanwhile,
  CASE WHEN bool_and(l.alive_at IS NOT NULL) THEN max(l.alive_at) END AS alive_at,
  concat_ws('|', t.replica, date_trunc('DAY', min(t.since))) AS thing,
  array_distinct(concat(earliest_records(collect_list(struct(t.since AS at, t.evidence AS records))), slice(earliest_records(collect_list(CASE WHEN l.record_id IS NOT NULL THEN struct(l.alive_at AS at, array(l.record_id) AS records) END)), 1, 3))) AS evidence,
  flatten(collect_list(t.subjects)) AS subjects
FROM turns t
JOIN clocks k ON k.cluster = t.cluster
LEFT JOIN alive l ON l.cluster = t.cluster AND l.incarnation = t.incarnation AND l.replica = t.replica AND l.hour = t.hour
WHERE t.turns >= isr_turns_per_hour(t.cluster, NULL)
GROUP BY t.cluster, t.incarnation, t.replica, date_trunc('DAY', t.hour)
