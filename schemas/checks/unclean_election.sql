-- severity: error
-- harm: loss
-- levels: an error; a warning where these logs do not show whether the election was clean.
-- concludes: a line that says so, with the replicas that it names as in sync or eligible before; or two states that follow one another by their epochs.
-- needs: lines
-- identity: five minutes, whether it is known to be unclean
-- facts: leaders, is_unknown, partitions, count_of_partitions, first_partition, records, worst,
--   are_acks_all_lost, are_acks_known, largest_isr
-- also: subjects
-- only: losses
WITH found AS (
  SELECT *, concat(topic, '-', partition) AS name, NOT is_certain AS is_unknown FROM losses WHERE kind = 'unclean' AND size(evidence) > 0
)
SELECT
  t.cluster, t.incarnation,
  CASE WHEN t.is_unknown THEN 'warning' ELSE 'error' END AS severity,
  CASE WHEN count(DISTINCT t.topic) = 1 THEN min(t.topic) END AS topic, CASE WHEN count(*) = 1 THEN min(t.partition) END AS partition, CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT t.leader) = 1 THEN min(t.leader) END AS node,
  min(t.at) AS first_seen, max(t.at) AS last_seen, false AS ended,
  array_sort(collect_set(t.leader)) AS leaders,
  t.is_unknown,
  slice(array_sort(collect_list(t.name)), 1, 10) AS partitions,
  count(*) AS count_of_partitions,
  min(t.name) AS first_partition,
  sum(t.records) AS records,
  max_by(struct(t.name, t.records, t.cut_from, t.cut_to), struct(t.records, t.name)) AS worst,
  bool_or(array_contains(t.acks, 'all')) AS are_acks_all_lost,
  bool_and(t.acks IS NOT NULL) AS are_acks_known,
  max(t.largest_isr) AS largest_isr,
  concat('five minutes ', CAST(floor(unix_seconds(t.at) / 300) AS STRING), CASE WHEN t.is_unknown THEN ', unknown' ELSE '' END) AS thing,
  earliest_records(collect_list(struct(t.at AS at, t.evidence AS records))) AS evidence,
  collect_list(struct(t.topic, t.partition, t.leader AS replica, t.at AS since, t.at AS until)) AS subjects
FROM found t
GROUP BY t.cluster, t.incarnation, t.is_unknown, floor(unix_seconds(t.at) / 300)
