-- about: number of replicas and leaders of each broker and their mean over brokers with replicas, with the records of one of its topics;
-- led_*: of topics with a partition whose first replica it is
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
