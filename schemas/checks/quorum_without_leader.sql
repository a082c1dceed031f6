-- severity: error
-- levels: an error; a warning where another voter logged a leader meanwhile, or where it is over within five minutes.
-- harm: unavailability
-- concludes: lines by which a voter knows no leader and cannot be elected, one after another, up to the first line of a leader. A return to the old leader after an election that timed out is none.
-- needs: lines
-- identity: quorum
-- facts: controllers, last_vote, silent, other_leader, led_again
-- episodes: yes
-- only: raft_state_changed
-- thresholds: quorum_leaderless_seconds
-- candidates: open_episodes
WITH heard AS (
  SELECT cluster, incarnation, node, ts, record_no, record_id, raw, event_type = 'raft_state_changed' AND to_state LIKE 'Follower%' AS is_follower,
    event_type IN ('raft_leader_elected', 'controller_activated', 'quorum_leader_learned') OR event_type = 'raft_state_changed' AND to_state LIKE 'Follower%' AS is_led,
    event_type = 'raft_election_progressed' AND raw LIKE '%Election timed out%' AS is_timeout
  FROM audited_events
  WHERE node IS NOT NULL AND ts IS NOT NULL AND (event_type IN ('raft_leader_elected', 'controller_activated')
    OR event_type = 'quorum_leader_learned' AND quorum_node IS NOT NULL
    OR event_type = 'raft_state_changed' AND (to_state LIKE 'Follower%' OR to_state LIKE 'Unattached%' OR to_state LIKE 'Prospective%' OR to_state LIKE 'Candidate%' OR to_state LIKE 'Voted%')
    OR event_type = 'raft_election_progressed' AND (raw LIKE '%Election timed out%' OR raw LIKE '%Election has timed out%' OR raw LIKE '%Re-elect as candidate%' OR raw LIKE '%Insufficient remaining votes%'))
), followed AS (
  SELECT *, lag(is_timeout) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts, record_no, record_id) AS is_after_timeout,
    lead(ts) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts, record_no, record_id) AS next_ts
  FROM heard
), ends AS (
  SELECT cluster, node, max(ts) AS ts FROM audited_events
  WHERE ts IS NOT NULL AND item = 0 AND node IN (SELECT node FROM heard WHERE is_timeout) GROUP BY cluster, node
), said AS (
  SELECT f.cluster, f.incarnation, f.node, f.ts, f.record_id, f.raw, f.is_led
  FROM followed f
  LEFT JOIN ends n ON n.cluster = f.cluster AND n.node = f.node
  -- with pre-votes (4.0) a voter without votes follows its old leader again, without any contact; if it starts no election soon, it fetches
  WHERE NOT (f.is_follower AND coalesce(f.is_after_timeout, false) AND f.raw LIKE '% from ProspectiveState(%'
    AND coalesce(f.next_ts, n.ts) <= f.ts + INTERVAL 30 SECONDS)
), numbered AS (
  SELECT *, count_if(is_led) OVER (PARTITION BY cluster, incarnation, node ORDER BY ts, is_led, record_id ROWS UNBOUNDED PRECEDING) AS episode FROM said
), open_episodes AS (
  SELECT cluster, incarnation, node, episode, min(ts) AS since, max(ts) AS last_line, count(*) AS times, max_by(raw, ts) AS raw,
    array_sort(collect_list(struct(ts, record_id))) AS records
  FROM numbered WHERE NOT is_led GROUP BY cluster, incarnation, node, episode
  HAVING max(ts) >= min(ts) + make_dt_interval(0, 0, 0, quorum_leaderless_seconds(cluster, NULL))
), led AS (
  SELECT cluster, incarnation, node, episode, min(ts) AS at, min_by(record_id, struct(ts, record_id)) AS record_id FROM numbered WHERE is_led GROUP BY cluster, incarnation, node, episode
), seen AS (
  SELECT e.*, l.at AS until, l.record_id AS end_record,
    -- the votes of the last finished election
    array_join(regexp_extract_all(CASE WHEN e.raw RLIKE 'Election (?:has )?timed out' THEN e.raw ELSE regexp_extract(e.raw, ' from (?:Candidate|Prospective)State.*', 0) END, '([0-9]+)=(?:VoterState[(]replicaKey=ReplicaKey[(]id=[0-9]+, directoryId=[^)]*[)], state=)?UNRECORDED', 1), ', ') AS silent
  FROM open_episodes e
  LEFT JOIN led l ON l.cluster = e.cluster AND l.incarnation = e.incarnation AND l.node = e.node AND l.episode = e.episode + 1
), together AS (
  -- overlapping episodes of several voters are one incident
  SELECT *, count_if(coalesce(since > reached, true)) OVER (PARTITION BY cluster, incarnation ORDER BY since, node ROWS UNBOUNDED PRECEDING) AS incident
  FROM (SELECT *, max(last_line) OVER (PARTITION BY cluster, incarnation ORDER BY since, node ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM seen)
), others AS (
  -- a voter that won meanwhile without the others noticing; the winner that ends the episode is noticed at once
  SELECT t.cluster, t.incarnation, t.incident, min(s.node) AS leader
  FROM (SELECT cluster, incarnation, incident, min(since) AS since, max(last_line) AS until FROM together GROUP BY cluster, incarnation, incident) t
  JOIN audited_events s ON s.cluster = t.cluster AND s.incarnation = t.incarnation AND s.ts > t.since
    AND s.ts < t.until - make_dt_interval(0, 0, 0, quorum_leaderless_seconds(t.cluster, NULL))
  WHERE s.event_type IN ('raft_leader_elected', 'controller_activated') GROUP BY t.cluster, t.incarnation, t.incident
)
SELECT
  t.cluster, t.incarnation,
  CASE WHEN max(o.leader) IS NOT NULL OR bool_and(t.until IS NOT NULL) AND max(t.last_line) < min(t.since) + INTERVAL 5 MINUTES THEN 'warning' ELSE 'error' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT t.node) = 1 THEN min(t.node) END AS node,
  min(t.since) AS first_seen, max(coalesce(t.until, t.last_line)) AS last_seen, bool_and(t.until IS NOT NULL) AS ended,
  array_sort(collect_set(t.node)) AS controllers,
  max(t.last_line) AS last_vote,
  nullif(max_by(t.silent, CASE WHEN t.silent <> '' THEN t.last_line END), '') AS silent,
  max(o.leader) AS other_leader,
  CASE WHEN bool_and(t.until IS NOT NULL) THEN max(t.until) END AS led_again,
  'quorum' AS thing,
  earliest_records(flatten(collect_list(transform(slice(t.records, 1, 10), one -> struct(one.ts AS at, array(one.record_id) AS records))))) AS evidence
FROM together t
LEFT JOIN others o ON o.cluster = t.cluster AND o.incarnation = t.incarnation AND o.incident = t.incident
GROUP BY t.cluster, t.incarnation, t.incident
