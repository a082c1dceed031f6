-- severity: warning
-- harm: loss
-- concludes: offsets that lines print, and the ISR before the leader died.
-- needs: lines
-- identity: broker
-- facts: partitions, died_at, records, worst, is_acks_known
-- episodes: yes
-- also: subjects, outage
-- only: losses
WITH cut AS (
  SELECT *, concat(topic, '-', partition) AS name FROM losses WHERE kind = 'tail' AND size(evidence) > 0
)
SELECT
  c.cluster, c.incarnation,
  'warning' AS severity,
  CASE WHEN count(DISTINCT c.topic) = 1 THEN min(c.topic) END AS topic, CASE WHEN count(*) = 1 THEN min(c.partition) END AS partition, CAST(NULL AS INT) AS replica, c.node,
  min(c.at) AS first_seen, min(c.at) AS last_seen, false AS ended,
  count(*) AS partitions,
  c.died_at,
  sum(c.records) AS records,
  max_by(struct(c.name, c.records, c.cut_from, c.cut_to), struct(c.records, c.name)) AS worst,
  bool_and(c.acks IS NOT NULL) AS is_acks_known,
  CAST(c.node AS STRING) AS thing,
  earliest_records(collect_list(struct(c.at AS at, c.evidence AS records))) AS evidence,
  collect_list(struct(c.topic, c.partition, c.node AS replica, c.at AS since, c.at AS until)) AS subjects,
  max(named_struct('node', c.node, 'since', c.died_at)) AS outage
FROM cut c GROUP BY c.cluster, c.incarnation, c.node, c.died_at
