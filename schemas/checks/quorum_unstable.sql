-- severity: error
-- harm: unavailability
-- concludes: candidates, and no line of a leader of their epochs.
-- needs: every_controller
-- identity: day
-- facts: most, elections, won, in_vain, vain_since, vain_until, candidates
-- only: raft_state_changed
-- thresholds: quorum_elections_per_hour
-- candidates: hours
WITH elections AS (
  SELECT cluster, incarnation, date_trunc('HOUR', ts) AS hour, CAST(regexp_extract(raw, 'epoch=([0-9]{1,18})', 1) AS BIGINT) AS epoch,
    bool_or(event_type = 'raft_leader_elected') AS won, min(ts) AS ts, min_by(record_id, struct(ts, record_id)) AS record_id,
    collect_set(CASE WHEN event_type = 'raft_state_changed' THEN node END) AS candidates
  FROM audited_events
  WHERE (event_type = 'raft_leader_elected' OR event_type = 'raft_state_changed' AND to_state LIKE 'Candidate%') AND raw RLIKE 'epoch=[0-9]'
  GROUP BY cluster, incarnation, date_trunc('HOUR', ts), CAST(regexp_extract(raw, 'epoch=([0-9]{1,18})', 1) AS BIGINT)
), hours AS (
  SELECT cluster, incarnation, hour, count(*) AS elections, count_if(won) AS won, max(ts) AS until FROM elections
  GROUP BY cluster, incarnation, hour
  HAVING count(*) >= quorum_elections_per_hour(cluster, NULL) AND count_if(won) * 2 < count(*)
), numbered AS (
  -- numbers the groups of epochs between two leaders
  SELECT *, count_if(won) OVER (PARTITION BY cluster, incarnation, hour ORDER BY ts, epoch) AS row FROM elections
), vain AS (
  SELECT cluster, incarnation, hour, row, count(*) AS elections, min(ts) AS since, max(ts) AS until, array_sort(array_distinct(flatten(collect_list(candidates)))) AS candidates,
    earliest_records(collect_list(struct(ts AS at, array(record_id) AS records))) AS records
  FROM numbered WHERE NOT won GROUP BY cluster, incarnation, hour, row
), longest AS (
  SELECT cluster, incarnation, hour, max_by(struct(elections, since, until, candidates, records), elections) AS vain FROM vain GROUP BY cluster, incarnation, hour
)
SELECT
  h.cluster, h.incarnation,
  'error' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  min(l.vain.since) AS first_seen, max(h.until) AS last_seen, max(h.until) < max(k.now) - INTERVAL 1 HOUR AS ended,
  max(h.elections) AS most,
  sum(h.elections) AS elections,
  sum(h.won) AS won,
  max(l.vain).elections AS in_vain,
  max(l.vain).since AS vain_since,
  max(l.vain).until AS vain_until,
  max(l.vain).candidates AS candidates,
  concat(date_trunc('DAY', h.hour)) AS thing,
  earliest_records(collect_list(struct(l.vain.since AS at, l.vain.records AS records))) AS evidence
FROM hours h
JOIN longest l ON l.cluster = h.cluster AND l.incarnation = h.incarnation AND l.hour = h.hour
JOIN clocks k ON k.cluster = h.cluster
GROUP BY h.cluster, h.incarnation, date_trunc('DAY', h.hour)
