-- severity: error
-- harm: unavailability
-- concludes: candidates, and no line of a leader of their epochs.
-- needs: every_controller
-- identity: day
-- facts: most, elections, won, in_vain, vain_since, vain_until, candidates
-- only: raft_state_changed
-- thresholds: quorum_elections_per_hour
-- candidates: often
WITH elections AS (
  -- an epoch is one election, however long its lines go on
  SELECT cluster, incarnation, CAST(regexp_extract(raw, 'epoch=([0-9]{1,18})', 1) AS BIGINT) AS epoch,
    bool_or(event_type = 'raft_leader_elected') AS won, min(ts) AS ts, min_by(record_id, struct(ts, record_id)) AS record_id,
    collect_set(CASE WHEN event_type = 'raft_state_changed' THEN node END) AS candidates
  FROM audited_events
  WHERE (event_type = 'raft_leader_elected' OR event_type = 'raft_state_changed' AND to_state LIKE 'Candidate%') AND raw RLIKE 'epoch=[0-9]' AND ts IS NOT NULL
  GROUP BY cluster, incarnation, CAST(regexp_extract(raw, 'epoch=([0-9]{1,18})', 1) AS BIGINT)
), counted AS (
  SELECT *, within_hour >= quorum_elections_per_hour(cluster, NULL) AND won_within_hour * 2 < within_hour AS is_often FROM (
    SELECT *,
      count(*) OVER (PARTITION BY cluster, incarnation ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour,
      count_if(won) OVER (PARTITION BY cluster, incarnation ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS won_within_hour,
      -- a leader ends a series of epochs, as does an hour without an election
      won OR coalesce(lag(ts) OVER (PARTITION BY cluster, incarnation ORDER BY ts, epoch) < ts - INTERVAL 1 HOUR, true) AS ends
    FROM elections)
), often AS (
  -- elections of the hours that reach the threshold; an hour across midnight is of the day on which it does
  SELECT *, date_trunc('DAY', reached) AS day FROM (
    SELECT *,
      min(CASE WHEN is_often THEN ts END) OVER (PARTITION BY cluster, incarnation ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING) AS reached,
      count_if(ends) OVER (PARTITION BY cluster, incarnation ORDER BY ts, epoch ROWS UNBOUNDED PRECEDING) AS series
    FROM counted)
  WHERE reached IS NOT NULL
), days AS (
  SELECT cluster, incarnation, day, count(*) AS elections, count_if(won) AS won, max(ts) AS until, min(CASE WHEN NOT won THEN ts END) AS since,
    max(CASE WHEN won_of_day * 2 < of_day THEN of_day END) AS most
  FROM (
    SELECT *,
      count(*) OVER (PARTITION BY cluster, incarnation, day ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS of_day,
      count_if(won) OVER (PARTITION BY cluster, incarnation, day ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS won_of_day
    FROM often)
  GROUP BY cluster, incarnation, day
  HAVING max(CASE WHEN won_of_day * 2 < of_day THEN of_day END) >= quorum_elections_per_hour(cluster, NULL)
), vain AS (
  SELECT cluster, incarnation, day, series, count(*) AS elections, min(ts) AS since, max(ts) AS until, array_sort(array_distinct(flatten(collect_list(candidates)))) AS candidates,
    earliest_records(collect_list(struct(ts AS at, array(record_id) AS records))) AS records
  FROM often WHERE NOT won GROUP BY cluster, incarnation, day, series
), ranked AS (
  -- the longest series, and that of the first hour, with which the finding begins
  SELECT d.elections AS of_day, d.won, d.until AS last_ts, d.most, v.*,
    row_number() OVER (PARTITION BY v.cluster, v.incarnation, v.day ORDER BY v.elections DESC, v.since) AS place,
    row_number() OVER (PARTITION BY v.cluster, v.incarnation, v.day ORDER BY v.since > d.since + INTERVAL 1 HOUR, v.elections DESC, v.since) AS place_at_first
  FROM days d
  JOIN vain v ON v.cluster = d.cluster AND v.incarnation = d.incarnation AND v.day = d.day
)
SELECT
  r.cluster, r.incarnation,
  'error' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  min_by(r.since, r.place_at_first) AS first_seen, max(r.last_ts) AS last_seen, max(r.last_ts) < max(k.now) - INTERVAL 1 HOUR AS ended,
  max(r.most) AS most,
  max(r.of_day) AS elections,
  max(r.won) AS won,
  min_by(r.elections, r.place) AS in_vain,
  min_by(r.since, r.place) AS vain_since,
  min_by(r.until, r.place) AS vain_until,
  min_by(r.candidates, r.place) AS candidates,
  concat(r.day) AS thing,
  earliest_records(collect_list(CASE WHEN r.place = 1 OR r.place_at_first = 1 THEN struct(r.since AS at, r.records AS records) END)) AS evidence
FROM ranked r
JOIN clocks k ON k.cluster = r.cluster
GROUP BY r.cluster, r.incarnation, r.day
