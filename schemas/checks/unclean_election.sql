-- severity: error
-- harm: loss
-- levels: an error; a warning where these logs do not show whether the election was clean.
-- title: Unclean leader election
-- concludes: a line that says so, with the replicas that it names as in sync or eligible before; or two states that follow one another by their epochs.
-- needs: lines
-- why: A replica that was not in sync became leader. What it had not copied is lost, for consumers silently. Where the logs print
--   offsets, the finding says how much, and with which acks it had been written. An election that lost nothing is left out - the return of the
--   last leader or of an eligible replica (KIP-966), a partition with one replica, and what KRaft 3.0 to 4.0 prints by mistake when a
--   reassignment ends.
-- do: Compare offsets with what producers and consumers know; replay from the source if there is one. Find out who enabled
--   unclean.leader.election.enable, or ran the election.
-- same: five minutes
-- also: subjects
-- only: losses
WITH found AS (
  SELECT *, concat(topic, '-', partition) AS name, NOT is_certain AS is_unknown FROM losses WHERE kind = 'unclean' AND size(evidence) > 0
)
SELECT
  t.cluster, t.incarnation, CASE WHEN t.is_unknown THEN 'warning' ELSE 'error' END AS severity,
  CASE WHEN count(DISTINCT t.topic) = 1 THEN min(t.topic) END AS topic,
  CASE WHEN count(*) = 1 THEN min(t.partition) END AS partition, CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT t.leader) = 1 THEN min(t.leader) END AS node,
  min(t.at) AS first_seen, max(t.at) AS last_seen, false AS ended,
  concat(min(t.name), CASE WHEN count(*) > 1 THEN concat(' and at least ', count(*) - 1, ' more') ELSE '' END,
         CASE WHEN t.is_unknown THEN ' (not known whether clean)' ELSE '' END) AS thing,
  concat('Broker ', array_join(array_sort(collect_set(t.leader)), ', '), ' became leader of at least ', counted(count(*), 'partition'), ' at ', date_format(min(t.at), 'yyyy-MM-dd HH:mm:ss'),
         CASE WHEN t.is_unknown THEN '; these logs do not show whether it was in sync: ' ELSE ' without being in sync: ' END,
         array_join(slice(array_sort(collect_list(t.name)), 1, 10), ', '), CASE WHEN count(*) > 10 THEN ', ..' ELSE '' END,
         CASE WHEN sum(t.records) > 0 THEN concat('. Lost: at least ', counted(sum(t.records), 'record'), ', ',
                max_by(concat(t.records, ' of ', t.name, ' (offset ', t.cut_from, ' to ', t.cut_to, ')'), struct(t.records, t.name)), ' for one.')
              ELSE '. The logs do not show how many records were lost.' END,
         CASE WHEN t.is_unknown THEN ''
              WHEN bool_or(array_contains(t.acks, 'all')) THEN ' Records that were written with acks=all are among them: enough replicas for min.insync.replicas were in sync without it.'
              WHEN bool_and(t.acks IS NOT NULL) THEN ' acks=all kept its records: fewer replicas than min.insync.replicas were in sync without it, so such writes were refused.'
              WHEN max(t.largest_isr) IS NOT NULL THEN concat(' Records that were written with acks=all are among them where min.insync.replicas is not greater than ', max(t.largest_isr), '.')
              ELSE ' The logs do not show whether acks=all kept its records.' END) AS detail,
  concat('five minutes ', CAST(floor(unix_seconds(t.at) / 300) AS STRING)) AS same,
  earliest_records(collect_list(struct(t.at AS at, t.evidence AS records))) AS evidence,
  collect_list(struct(t.topic, t.partition, t.leader AS replica, t.at AS since, t.at AS until)) AS subjects
FROM found t
GROUP BY t.cluster, t.incarnation, t.is_unknown, floor(unix_seconds(t.at) / 300)
