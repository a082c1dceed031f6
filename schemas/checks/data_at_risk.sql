-- severity: warning
-- harm: loss
-- title: Records of a dead leader are gone
-- concludes: offsets that lines print.
-- needs: lines
-- silence: a line of a committed loss moves the finding to unclean_election.
-- why: A broker that had died came back with a log that is longer than its new leader's, and cut it. The new leader did not have
--   these records. Producers with acks=all were not told that they were safe; producers with acks=1 or 0 were, and have lost them.
-- do: Ask the producers of the topic for their acks. With acks=all this is harmless; with acks=1 replay what was sent in the last seconds before
--   the broker died.
-- same: broker
-- episodes: yes
-- also: subjects, outage
-- only: log_truncated
WITH loaded AS (
  SELECT cluster, incarnation, node, topic, partition, ts, end_offset, record_id FROM audited_events
  WHERE event_type = 'log_load_completed' AND end_offset IS NOT NULL AND node IS NOT NULL
), taken_over AS (
  -- where the next leader's log ended when it began
  SELECT cluster, incarnation, node, topic, partition, ts, start_offset, record_id FROM audited_events
  WHERE event_type IN ('leader_started', 'leader_epoch_started') AND start_offset IS NOT NULL AND node IS NOT NULL
), died AS (
  SELECT o.cluster, o.incarnation, o.broker, o.since, o.until, p.topic, p.partition
  FROM audited_broker_outages o
  JOIN audited_partition_timeline p ON p.cluster = o.cluster AND p.incarnation = o.incarnation AND p.leader = o.broker
    AND p.valid_to BETWEEN o.since - INTERVAL 30 SECONDS AND o.since + INTERVAL 30 SECONDS
  WHERE o.how = 'crashed'
  GROUP BY ALL
), cut AS (
  SELECT d.cluster, d.incarnation, d.broker AS node, d.topic, d.partition, d.since AS died_at, max(l.ts) AS at, max(l.end_offset) AS end_offset,
    min_by(n.start_offset, n.ts) AS cut_to, max(l.end_offset) - min_by(n.start_offset, n.ts) AS records,
    array_distinct(concat(array(min_by(n.record_id, n.ts)), array_sort(collect_set(l.record_id)), array_sort(collect_set(t.record_id)))) AS evidence
  FROM died d
  JOIN loaded l ON l.cluster = d.cluster AND l.incarnation = d.incarnation AND l.node = d.broker AND l.topic = d.topic AND l.partition = d.partition
    AND l.ts >= d.since AND coalesce(l.ts <= d.until + INTERVAL 1 MINUTE, true)
  JOIN taken_over n ON n.cluster = d.cluster AND n.incarnation = d.incarnation AND n.topic = d.topic AND n.partition = d.partition AND n.node <> d.broker
    AND n.ts BETWEEN d.since - INTERVAL 5 SECONDS AND l.ts
  JOIN audited_events t ON t.cluster = d.cluster AND t.incarnation = d.incarnation AND t.node = d.broker AND t.topic = d.topic AND t.partition = d.partition
    AND t.event_type = 'log_truncated' AND t.ts BETWEEN l.ts AND l.ts + INTERVAL 10 MINUTES AND t.start_offset < l.end_offset
  -- what was committed is said there (unclean_election)
  LEFT ANTI JOIN audited_events u ON u.cluster = d.cluster AND u.incarnation = d.incarnation AND u.node = d.broker AND u.topic = d.topic AND u.partition = d.partition
    AND u.event_type IN ('high_watermark_decreased', 'truncated_below_high_watermark') AND u.ts BETWEEN d.since AND l.ts + INTERVAL 10 MINUTES
  GROUP BY d.cluster, d.incarnation, d.broker, d.topic, d.partition, d.since
  HAVING max(l.end_offset) > min_by(n.start_offset, n.ts)
)
SELECT
  c.cluster, c.incarnation, 'warning' AS severity, CASE WHEN count(DISTINCT c.topic) = 1 THEN min(c.topic) END AS topic,
  CASE WHEN count(*) = 1 THEN min(c.partition) END AS partition, CAST(NULL AS INT) AS replica, c.node,
  min(c.at) AS first_seen, min(c.at) AS last_seen, false AS ended,
  concat('at least ', counted(count(*), 'partition'), ' that broker ', c.node, ' led') AS thing,
  concat('Broker ', c.node, ' died at ', date_format(c.died_at, 'yyyy-MM-dd HH:mm:ss'), ' as leader; when it came back it cut ', counted(sum(c.records), 'record'),
         ' that its successor did not have, ', max_by(concat(c.records, ' of ', c.topic, '-', c.partition, ' (offset ', c.cut_to, ' to ', c.end_offset, ')'), struct(c.records, c.topic, c.partition)),
         ' for one. Lost if they were written with acks=1 or 0.') AS detail,
  CAST(c.node AS STRING) AS same,
  earliest_records(collect_list(struct(c.at AS at, c.evidence AS records))) AS evidence,
  collect_list(struct(c.topic, c.partition, c.node AS replica, c.at AS since, c.at AS until)) AS subjects,
  max(named_struct('node', c.node, 'since', c.died_at)) AS outage
FROM cut c GROUP BY c.cluster, c.incarnation, c.node, c.died_at
