-- about: what a broker holds now and what brokers that hold anything hold in the mean, with the records of one topic that it is in
-- led_: of topics of which it is the first replica of a partition.
SELECT *, avg(replicas) OVER (PARTITION BY cluster, incarnation) AS mean_replicas,
  avg(leaders) OVER (PARTITION BY cluster, incarnation) AS mean_leaders
FROM (
  SELECT b.cluster, b.incarnation, b.broker, sum(b.replicas) AS replicas, sum(b.leaders) AS leaders, any_value(n.now) AS now,
    max(a.valid_from) AS since, max(a.valid_from) FILTER (WHERE b.leaders > 0) AS led_since,
    max_by(a.record_ids, struct(size(a.record_ids), a.record_ids)) AS record_ids,
    max_by(a.record_ids, struct(size(a.record_ids), a.record_ids)) FILTER (WHERE b.leaders > 0) AS led_record_ids
  FROM audited_broker_load b
  JOIN clocks n ON n.cluster = b.cluster AND n.incarnation = b.incarnation
  LEFT JOIN audited_topic_assignments a
    ON a.cluster = b.cluster AND a.incarnation = b.incarnation AND a.topic = b.topic AND a.valid_to IS NULL
  WHERE b.valid_to IS NULL
  GROUP BY b.cluster, b.incarnation, b.broker)
