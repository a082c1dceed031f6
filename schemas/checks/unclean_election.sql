-- severity: error
-- harm: loss
-- title: Unclean leader election
-- concludes: a line that says so; or two states that follow one another.
-- needs: lines
-- silence: the query compares two states whose epochs follow one another; a line in between would have an epoch of its own.
-- why: A replica that was not in sync became leader. What it had not copied is lost, for consumers silently. Where the logs print
--   offsets, the finding says how much. Lines that KRaft 3.0 to 4.0 prints by mistake when a reassignment ends are left out, and so is
--   the return of the last leader by KIP-966 (it lacks nothing).
-- do: Compare offsets with what producers and consumers know; replay from the source if there is one. Find out who enabled
--   unclean.leader.election.enable, or ran the election.
-- same: five minutes
-- also: subjects
-- only: unclean_leader_elected, unclean_leader_selected, leader_recovering, leaderless
-- candidates: said, shown
WITH said AS (
  SELECT cluster, incarnation, topic, partition, leader, leader_epoch, ts, record_id FROM audited_events
  WHERE topic IS NOT NULL AND (
    event_type = 'unclean_leader_elected' AND leader_recovery_state = 'RECOVERING' AND raw LIKE '%RECOVERED -> RECOVERING%'
    OR event_type = 'unclean_leader_selected'
    OR says = 'happened' AND to_state = 'OnlinePartition' AND leader_recovery_state = 'RECOVERING')
), steps AS (
  SELECT *, row_number() OVER (PARTITION BY cluster, incarnation, topic, partition ORDER BY step) AS n,
    lag(leader) OVER w AS leader_before, lag(leader_epoch) OVER w AS epoch_before, lag(isr) OVER w AS isr_before, max_by(CASE WHEN leader >= 0 THEN leader END, CASE WHEN leader >= 0 THEN step END)
      OVER (PARTITION BY cluster, incarnation, topic, partition ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last_leader
  FROM audited_partition_timeline WHERE leader IS NOT NULL AND isr IS NOT NULL
  WINDOW w AS (PARTITION BY cluster, incarnation, topic, partition ORDER BY step)
), shown AS (
  -- 1.1 to 3.1 say it nowhere: the partition was offline, and the new leader, alone in the ISR, was not in the one before
  SELECT cluster, incarnation, topic, partition, leader, leader_epoch, valid_from AS ts, record_id FROM steps
  WHERE leader >= 0 AND leader_before = -1 AND size(isr) = 1 AND get(isr, 0) = leader AND size(isr_before) > 0
    -- a topic that is created anew begins with epoch 0
    AND leader_epoch > epoch_before AND leader_epoch <= epoch_before + 2 AND NOT array_contains(isr_before, leader) AND NOT inferred AND coalesce(last_leader <> leader, true) AND valid_from IS NOT NULL
), elections AS (
  SELECT cluster, incarnation, topic, partition, leader, min(ts) AS at, max(leader_epoch) AS leader_epoch, array_sort(collect_set(record_id)) AS records
  FROM (SELECT * FROM said UNION ALL SELECT * FROM shown)
  GROUP BY cluster, incarnation, topic, partition, leader, floor(unix_seconds(ts) / 120)
), real AS (
  SELECT e.* FROM elections e
  LEFT ANTI JOIN steps s ON s.cluster = e.cluster AND s.incarnation = e.incarnation AND s.topic = e.topic AND s.partition = e.partition
    AND s.leader = e.leader AND s.last_leader = e.leader AND s.leader_before = -1
    AND abs(unix_millis(s.valid_from) - unix_millis(e.at)) < 5000
  -- of one replica nothing is lost: up to 0.11 its ISR is empty while it is away
  LEFT ANTI JOIN (SELECT * FROM audited_partition_timeline UNION ALL SELECT * FROM audited_partitions_now) p ON p.cluster = e.cluster AND p.incarnation = e.incarnation AND p.topic = e.topic AND p.partition = e.partition
    AND size(p.replicas) = 1 AND get(p.replicas, 0) = e.leader AND p.valid_from <= e.at + INTERVAL 5 SECONDS AND coalesce(p.valid_to >= e.at, true)
  LEFT ANTI JOIN audited_events r ON r.cluster = e.cluster AND r.incarnation = e.incarnation AND r.topic = e.topic AND r.partition = e.partition
    AND (size(r.replicas) = 1 AND get(r.replicas, 0) = e.leader OR r.raw LIKE '%,ReplicationFactor:1),AllReplicas:%') AND r.ts BETWEEN e.at - INTERVAL 1 HOUR AND e.at + INTERVAL 1 HOUR
), told AS (
  -- what the old leader had committed, and had to cut when it came back
  SELECT r.cluster, r.incarnation, r.topic, r.partition, r.leader, r.at, r.records, array_distinct(concat(r.records, array_sort(collect_set(t.record_id)))) AS evidence,
    max(CASE WHEN t.event_type = 'truncated_below_high_watermark' THEN t.high_watermark - t.start_offset
             ELSE try_cast(regexp_extract(t.raw, 'from \\(offset=([0-9]+)', 1) AS BIGINT) - try_cast(regexp_extract(t.raw, 'to \\(offset=([0-9]+)', 1) AS BIGINT) END) AS records_lost
  FROM real r
  LEFT JOIN audited_events t ON t.cluster = r.cluster AND t.incarnation = r.incarnation AND t.topic = r.topic AND t.partition = r.partition
    AND t.event_type IN ('truncated_below_high_watermark', 'high_watermark_decreased') AND t.ts BETWEEN r.at AND r.at + INTERVAL 1 HOUR
    AND t.node <> r.leader
  GROUP BY r.cluster, r.incarnation, r.topic, r.partition, r.leader, r.at, r.records
)
SELECT
  t.cluster, t.incarnation, 'error' AS severity, CASE WHEN count(DISTINCT t.topic) = 1 THEN min(t.topic) END AS topic,
  CASE WHEN count(*) = 1 THEN min(t.partition) END AS partition, CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT t.leader) = 1 THEN min(t.leader) END AS node,
  min(t.at) AS first_seen, max(t.at) AS last_seen, false AS ended,
  concat(min(concat(t.topic, '-', t.partition)), CASE WHEN count(*) > 1 THEN concat(' and at least ', count(*) - 1, ' more') ELSE '' END) AS thing,
  concat('Broker ', array_join(array_sort(collect_set(t.leader)), ', '), ' became leader of at least ', counted(count(*), 'partition'), ' at ', date_format(min(t.at), 'yyyy-MM-dd HH:mm:ss'),
         ' without being in sync: ', array_join(slice(array_sort(collect_list(concat(t.topic, '-', t.partition))), 1, 10), ', '),
         CASE WHEN count(*) > 10 THEN ', ..' ELSE '' END,
         CASE WHEN sum(t.records_lost) > 0 THEN concat('. Lost: at least ', counted(sum(t.records_lost), 'committed record'), '.')
              ELSE '. The logs do not tell how much is lost.' END) AS detail,
  concat('five minutes ', CAST(floor(unix_seconds(t.at) / 300) AS STRING)) AS same,
  earliest_records(collect_list(struct(t.at AS at, t.evidence AS records))) AS evidence,
  collect_list(struct(t.topic, t.partition, t.leader AS replica, t.at AS since, t.at AS until)) AS subjects
FROM told t
GROUP BY t.cluster, t.incarnation, floor(unix_seconds(t.at) / 300)
