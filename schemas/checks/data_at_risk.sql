-- severity: warning
-- harm: loss
-- title: Records of a dead leader are gone
-- concludes: offsets that lines print, and the ISR before the leader died.
-- needs: lines
-- why: A broker that had died came back with a log that is longer than its new leader's, and cut it. The new leader did not have
--   these records. Where it had been in sync, acks=all had not confirmed them; acks=1 and 0 had. What an unclean election lost is
--   in that finding (unclean_election).
-- do: Ask the producers of the topic for their acks. With acks=1 or 0 replay what was sent in the last seconds before the broker died; with
--   acks=all nothing is lost where the finding says so.
-- same: broker
-- episodes: yes
-- also: subjects, outage
-- only: losses
WITH cut AS (
  SELECT *, concat(topic, '-', partition) AS name FROM losses WHERE kind = 'tail' AND size(evidence) > 0
)
SELECT
  c.cluster, c.incarnation, 'warning' AS severity, CASE WHEN count(DISTINCT c.topic) = 1 THEN min(c.topic) END AS topic,
  CASE WHEN count(*) = 1 THEN min(c.partition) END AS partition, CAST(NULL AS INT) AS replica, c.node,
  min(c.at) AS first_seen, min(c.at) AS last_seen, false AS ended,
  concat('at least ', counted(count(*), 'partition'), ' that broker ', c.node, ' led') AS thing,
  concat('Broker ', c.node, ' died at ', date_format(c.died_at, 'yyyy-MM-dd HH:mm:ss'), ' as leader; when it came back it cut ', counted(sum(c.records), 'record'),
         ' that its successor did not have, ', max_by(concat(c.records, ' of ', c.name, ' (offset ', c.cut_from, ' to ', c.cut_to, ')'), struct(c.records, c.name)),
         ' for one. ', CASE WHEN bool_and(c.acks IS NOT NULL) THEN 'Lost if they were written with acks=1 or 0; acks=all had not confirmed them.'
                            ELSE 'Lost if they were written with acks=1 or 0; the logs do not show whether acks=all had confirmed them.' END) AS detail,
  CAST(c.node AS STRING) AS same,
  earliest_records(collect_list(struct(c.at AS at, c.evidence AS records))) AS evidence,
  collect_list(struct(c.topic, c.partition, c.node AS replica, c.at AS since, c.at AS until)) AS subjects,
  max(named_struct('node', c.node, 'since', c.died_at)) AS outage
FROM cut c GROUP BY c.cluster, c.incarnation, c.node, c.died_at
