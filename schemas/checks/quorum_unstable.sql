-- severity: error
-- title: Quorum without a stable leader
-- why: The voters of the KRaft quorum called elections again and again within an hour (quorum_elections_per_hour) and fewer leaders came of
--   them. While none is elected nothing in the cluster can change.
-- do: Look at the network between the controllers, at slow disks of the metadata log and at long garbage collections; check that the
--   voters agree on controller.quorum.voters.
-- same: day
-- only: raft_state_changed
-- thresholds: quorum_elections_per_hour=30
WITH elections AS (
  SELECT cluster, incarnation, date_trunc('HOUR', ts) AS hour, regexp_extract(raw, 'epoch=([0-9]+)', 1) AS epoch,
    bool_or(event_type = 'raft_leader_elected') AS won, min(ts) AS ts, min_by(record_id, ts) AS record_id
  FROM audited_events
  WHERE event_type = 'raft_leader_elected' OR event_type = 'raft_state_changed' AND to_state LIKE 'Candidate%'
  GROUP BY cluster, incarnation, date_trunc('HOUR', ts), regexp_extract(raw, 'epoch=([0-9]+)', 1)
), hours AS (
  SELECT cluster, incarnation, hour, count(*) AS elections, count_if(won) AS won, min(ts) AS since, max(ts) AS until,
    slice(array_sort(collect_list(record_id)), 1, 20) AS records
  FROM elections WHERE epoch <> '' GROUP BY cluster, incarnation, hour
)
SELECT
  h.cluster, h.incarnation, 'error' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node, min(h.since) AS first_seen, max(h.until) AS last_seen,
  max(h.until) < max(k.now) - INTERVAL 1 HOUR AS ended,
  concat('up to ', max(h.elections), ' elections an hour') AS thing,
  concat('On ', date_format(min(h.since), 'yyyy-MM-dd'), ' the quorum went through at least ', sum(h.elections), ' epochs with candidates; lines tell that ', sum(h.won),
         ' of them brought a leader.') AS detail,
  concat(date_trunc('DAY', h.hour)) AS same,
  slice(flatten(collect_list(h.records)), 1, 20) AS evidence
FROM hours h
JOIN clocks k ON k.cluster = h.cluster
WHERE h.elections >= quorum_elections_per_hour(h.cluster, NULL) AND h.won * 2 < h.elections
GROUP BY h.cluster, h.incarnation, date_trunc('DAY', h.hour)
