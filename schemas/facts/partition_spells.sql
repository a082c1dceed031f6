-- about: a time in which one thing was wrong with a partition, with the outage of a broker that explains it
-- until: when it was over, or the last moment that the logs tell of it: its begin where leader or partition epochs are missing, the last line of an incarnation that ended, the begin of an outage of all
--   brokers or, for last_in_sync, of that one.
-- returned (out_of_sync): the replica is in the next ISR that is known, and others had stayed in it.
-- kind: leaderless; out_of_sync (replica: the follower); last_in_sync (one replica in sync of several); below_min_isr;
--   not_preferred (replica: the preferred leader, which is in sync and does not lead).
-- cause_broker (null: all of them), cause_since, cause_all_since: the outage, as in broker_outages; null: the logs name none that could explain it.
-- back_at, down_at_end: the last end of an outage of a broker that is blamed within the spell; whether one goes on at its end.
-- missing: the brokers that are blamed, at the begin. Where the logs name no outage: silent, those of them whose own server.log has no record within the spell;
--   down_meanwhile, those that were down for a part of it; alive_until, the newest of such records of the others; watched_until, of records of the controller; signs: these records.
WITH steps AS (
  -- what is known next may be further than one change away: what was in between nobody tells
  SELECT t.*, row_number() OVER life AS number, lag(t.isr) OVER life AS isr_before, lead(t.isr) OVER life AS next_isr,
    coalesce(lead(t.leader_epoch) OVER life > t.leader_epoch + 2, false) OR coalesce(lead(t.partition_epoch) OVER life > t.partition_epoch + 1, false) AS is_gap
  FROM audited_partition_timeline t
  JOIN clocks c ON c.cluster = t.cluster
  WHERE (t.leader IS NOT NULL OR t.state = 'NonExistentPartition')
    -- what a tool said after the logs had ended is a matter of the next ones
    AND (t.source IN ('logs', 'metadata_log') OR t.valid_from <= c.now)
  WINDOW life AS (PARTITION BY t.cluster, t.incarnation, t.topic, t.partition ORDER BY t.step)
), stated AS (
  SELECT t.* EXCEPT (valid_to, next_isr, number),
    -- numbered through, but for these gaps
    t.number + count_if(t.is_gap) OVER (PARTITION BY t.cluster, t.incarnation, t.topic, t.partition ORDER BY t.number) - CAST(t.is_gap AS INT) AS n,
    CASE WHEN t.is_gap THEN t.valid_from WHEN t.valid_to > i.heard_until THEN greatest(t.valid_from, i.heard_until) ELSE t.valid_to END AS valid_to,
    CASE WHEN NOT t.is_gap THEN t.next_isr END AS next_isr,
    coalesce(t.state, '') = 'NonExistentPartition' AS gone,
    -- a replica that a reassignment adds or removes need not be in sync
    array_except(array_except(t.replicas, coalesce(t.adding_replicas, array())), coalesce(t.removing_replicas, array())) AS owed,
    coalesce(m.min_isr, d.min_isr) AS min_isr
  FROM steps t
  LEFT JOIN ended_incarnations i ON i.cluster = t.cluster AND i.incarnation = t.incarnation
  LEFT JOIN min_isr m ON m.cluster = t.cluster AND m.incarnation = t.incarnation AND m.topic = t.topic
  LEFT JOIN min_isr d ON d.cluster = t.cluster AND d.incarnation = t.incarnation AND d.topic IS NULL
), judged AS (
  SELECT *, filter(concat(
    array(
      named_struct('kind', 'leaderless', 'replica', CASE WHEN leader = -1 THEN -1 END),
      named_struct('kind', 'last_in_sync', 'replica', CASE WHEN leader >= 0 AND size(isr) = 1 AND size(owed) > 1 THEN get(isr, 0) END),
      named_struct('kind', 'below_min_isr', 'replica',
                   CASE WHEN leader >= 0 AND min_isr IS NOT NULL AND size(isr) < least(min_isr, size(owed)) THEN -1 END),
      named_struct('kind', 'not_preferred', 'replica',
                   CASE WHEN leader >= 0 AND leader <> get(replicas, 0) AND array_contains(isr, get(replicas, 0)) AND size(owed) = size(replicas)
                        THEN get(replicas, 0) END)),
    transform(array_except(coalesce(owed, array()), coalesce(isr, owed, array())), r -> named_struct('kind', 'out_of_sync', 'replica', r))
  ), c -> c.replica IS NOT NULL) AS conditions
  FROM stated WHERE NOT gone
), held AS (
  SELECT j.*, c.kind, c.replica,
    n - row_number() OVER (PARTITION BY cluster, incarnation, topic, partition, c.kind, c.replica ORDER BY n) AS island
  FROM judged j LATERAL VIEW explode(conditions) AS c
), told AS (
  SELECT h.cluster, h.incarnation, h.topic, h.partition, h.kind, CASE WHEN h.replica >= 0 THEN h.replica END AS replica, h.island,
    min_by(h.valid_from, h.n) AS since, max(coalesce(h.valid_to, k.now)) AS until, bool_and(h.valid_to IS NOT NULL) AS ended,
    coalesce(array_contains(max_by(h.next_isr, h.n), h.replica), false) AND (size(min_by(h.isr, h.n)) > 1 OR size(min_by(h.owed, h.n)) = 2) AS returned,
    max_by(h.leader, h.n) AS leader, max_by(h.isr, h.n) AS isr, max_by(h.replicas, h.n) AS replicas, max(h.min_isr) AS min_isr,
    CASE WHEN h.kind = 'leaderless' THEN min_by(CASE WHEN size(h.isr) > 0 THEN h.isr WHEN size(h.isr_before) > 0 THEN h.isr_before ELSE h.replicas END, h.n)
         WHEN h.kind IN ('out_of_sync', 'not_preferred') THEN array(h.replica)
         ELSE min_by(array_except(h.owed, h.isr), h.n) END AS blamed,
    min_by(h.record_id, h.n) AS record_id,
    slice(array_compact(array_distinct(collect_list(h.record_id))), 1, 10) AS evidence
  FROM held h JOIN clocks k ON k.cluster = h.cluster
  GROUP BY h.cluster, h.incarnation, h.topic, h.partition, h.kind, h.replica, h.island
), unseen AS (
  -- nobody is left who would know
  SELECT t.cluster, t.incarnation, t.topic, t.partition, t.kind, t.replica, t.island, min(o.since) AS since
  FROM told t
  JOIN audited_broker_outages o ON o.cluster = t.cluster AND o.incarnation = t.incarnation AND o.since > t.since AND o.since < t.until
    AND (o.broker IS NULL OR t.kind = 'last_in_sync' AND o.broker = t.replica AND o.how <> 'first_start')
  WHERE t.kind <> 'leaderless'
  GROUP BY t.cluster, t.incarnation, t.topic, t.partition, t.kind, t.replica, t.island
), spells AS (
  SELECT t.* EXCEPT (until, ended), coalesce(u.since, t.until) AS until, t.ended OR u.since IS NOT NULL AS ended
  FROM told t
  LEFT JOIN unseen u ON u.cluster = t.cluster AND u.incarnation = t.incarnation AND u.topic = t.topic AND u.partition = t.partition
    AND u.kind = t.kind AND u.replica <=> t.replica AND u.island = t.island
), causes AS (
  -- the last of the brokers that went, lines that come late included; else one whose session ended soon afterwards
  SELECT s.cluster, s.incarnation, s.topic, s.partition, s.kind, s.replica, s.island,
    max_by(struct(o.broker, o.since, o.until, o.how, o.all_since),
           struct(o.broker IS NOT NULL AS named, o.since <= s.since + INTERVAL 2 SECONDS AS before, abs(unix_millis(o.since) - unix_millis(s.since)) * -1 AS near, o.broker)) AS cause
  FROM spells s
  JOIN audited_broker_outages o ON o.cluster = s.cluster AND o.incarnation = s.incarnation
    -- a cluster that is shut down loses its leaders first
    AND (o.broker IS NULL AND s.kind = 'leaderless' AND o.since <= s.until AND o.since <= s.since + INTERVAL 15 MINUTES
      OR array_contains(s.blamed, o.broker)
        AND o.since <= s.since + CASE WHEN o.how IN ('crashed', 'session_lost') THEN INTERVAL 30 SECONDS ELSE INTERVAL 2 SECONDS END)
    AND coalesce(o.until + INTERVAL 5 SECONDS >= s.since, true)
  GROUP BY s.cluster, s.incarnation, s.topic, s.partition, s.kind, s.replica, s.island
), asked AS (
  -- of each spell: the brokers that were missing, and the controller (null)
  SELECT s.cluster, s.incarnation, s.until AS at, explode(concat(s.blamed, array(CAST(NULL AS INT)))) AS broker,
    named_struct('topic', s.topic, 'partition', s.partition, 'kind', s.kind, 'replica', s.replica, 'island', s.island, 'since', s.since) AS spell
  FROM spells s
  WHERE s.kind IN ('out_of_sync', 'last_in_sync', 'below_min_isr')
), interrupted AS (
  SELECT a.cluster, a.incarnation, a.spell.topic, a.spell.partition, a.spell.kind, a.spell.replica, a.spell.island, array_sort(collect_set(o.broker)) AS brokers,
    array_sort(collect_set(get(o.evidence, 0))) AS records, max(CASE WHEN o.until < a.at THEN o.until END) AS back_at, bool_or(coalesce(o.until >= a.at, true)) AS down_at_end
  FROM asked a
  JOIN audited_broker_outages o ON o.cluster = a.cluster AND o.incarnation = a.incarnation AND o.broker = a.broker AND o.since < a.at
    AND coalesce(o.until > a.spell.since, true) AND o.how <> 'first_start'
  GROUP BY a.cluster, a.incarnation, a.spell.topic, a.spell.partition, a.spell.kind, a.spell.replica, a.spell.island
), signed AS (
  -- the newest sign up to the end of the spell
  SELECT *, last(sign, true) OVER (PARTITION BY cluster, incarnation, broker ORDER BY at, spell IS NOT NULL ROWS UNBOUNDED PRECEDING) AS newest
  FROM (
    SELECT a.cluster, a.incarnation, a.at, a.broker, a.spell, NULL AS sign FROM asked a
    LEFT ANTI JOIN causes c ON c.cluster = a.cluster AND c.incarnation = a.incarnation AND c.topic = a.spell.topic AND c.partition = a.spell.partition
      AND c.kind = a.spell.kind AND c.replica <=> a.spell.replica AND c.island = a.spell.island
    UNION ALL SELECT cluster, incarnation, ts, broker, NULL, struct(ts, record_id) FROM broker_signs)
), lived AS (
  SELECT cluster, incarnation, spell.topic, spell.partition, spell.kind, spell.replica, spell.island,
    array_sort(collect_set(CASE WHEN coalesce(newest.ts < spell.since, true) THEN broker END)) AS silent,
    max(CASE WHEN broker IS NOT NULL AND newest.ts >= spell.since THEN newest.ts END) AS alive_until,
    max(CASE WHEN broker IS NULL AND newest.ts >= spell.since THEN newest.ts END) AS watched_until,
    array_sort(collect_set(CASE WHEN newest.ts >= spell.since THEN newest.record_id END)) AS signs
  FROM signed WHERE spell IS NOT NULL
  GROUP BY cluster, incarnation, spell.topic, spell.partition, spell.kind, spell.replica, spell.island
)
SELECT s.cluster, s.incarnation, s.topic, s.partition, s.kind, s.replica, s.since, s.until, s.ended, s.leader, s.isr, s.replicas,
  s.min_isr, s.record_id, s.evidence, s.returned, s.blamed AS missing, l.silent, l.alive_until, i.back_at, coalesce(i.down_at_end, false) AS down_at_end,
  -- of a broker that no controller has named the controller's log tells nothing
  CASE WHEN forall(s.blamed, b -> array_contains(n.brokers, b)) THEN l.watched_until END AS watched_until,
  concat(coalesce(l.signs, array()), coalesce(i.records, array())) AS signs, i.brokers AS down_meanwhile,
  c.cause.broker AS cause_broker, c.cause.since AS cause_since, c.cause.until AS cause_until, c.cause.how AS cause_how, c.cause.all_since AS cause_all_since
FROM spells s
LEFT JOIN (SELECT cluster, incarnation, collect_set(broker) AS brokers FROM brokers_named GROUP BY cluster, incarnation) n
  ON n.cluster = s.cluster AND n.incarnation = s.incarnation
LEFT JOIN causes c ON c.cluster = s.cluster AND c.incarnation = s.incarnation AND c.topic = s.topic AND c.partition = s.partition
  AND c.kind = s.kind AND c.replica <=> s.replica AND c.island = s.island
LEFT JOIN lived l ON l.cluster = s.cluster AND l.incarnation = s.incarnation AND l.topic = s.topic AND l.partition = s.partition
  AND l.kind = s.kind AND l.replica <=> s.replica AND l.island = s.island
LEFT JOIN interrupted i ON i.cluster = s.cluster AND i.incarnation = s.incarnation AND i.topic = s.topic AND i.partition = s.partition
  AND i.kind = s.kind AND i.replica <=> s.replica AND i.island = s.island
WHERE s.since IS NOT NULL
  -- a topic that is being deleted is not missed
  AND NOT EXISTS (
    SELECT 1 FROM audited_topic_deletions d
    WHERE d.cluster = s.cluster AND d.incarnation = s.incarnation AND d.topic = s.topic
      AND (d.requested_at IS NULL OR d.requested_at <= s.since + INTERVAL 10 SECONDS)
      AND (d.completed_at IS NULL OR s.since <= d.completed_at))
