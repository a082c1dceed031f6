-- severity: critical
-- title: Cluster without a broker
-- why: No broker was left, so nothing could be written or read. It is critical while it lasts, an error when it is over, and info
--   where every broker had been told to stop.
-- do: If nobody meant it, look at what the brokers have in common - power, network, disks, ZooKeeper or the quorum. Start the brokers that
--   went last first - they hold the newest data.
-- same: begin
SELECT
  o.cluster, o.incarnation,
  CASE WHEN o.how = 'shut_down' THEN 'info' WHEN o.until IS NULL THEN 'critical' ELSE 'error' END AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  o.since AS first_seen, coalesce(o.until, k.now) AS last_seen, o.until IS NOT NULL AS ended,
  CASE WHEN size(b.brokers) = 1 THEN concat('its only broker, ', get(b.brokers, 0)) ELSE concat('all ', size(b.brokers), ' brokers') END AS thing,
  concat('From ', date_format(o.since, 'yyyy-MM-dd HH:mm:ss'),
         CASE WHEN o.until IS NULL THEN ' on' ELSE concat(' to ', date_format(o.until, 'yyyy-MM-dd HH:mm:ss')) END,
         ' no broker served (', array_join(b.brokers, ', '), '). ',
         CASE WHEN o.how = 'shut_down' AND o.stop_asked THEN 'All were told to stop.'
              WHEN o.how = 'shut_down' THEN concat('They were told to stop; of ', array_join(b.unasked, ', '), ' the records do not tell it.') ELSE concat('Not told to stop: ', array_join(b.unasked, ', '), '.') END) AS detail,
  concat_ws('|', o.since, array_join(slice(o.evidence, 1, 1), '')) AS same,
  o.evidence, s.subjects
FROM audited_broker_outages o
JOIN clocks k ON k.cluster = o.cluster
JOIN (
  SELECT cluster, incarnation, all_since, array_sort(collect_set(broker)) AS brokers,
    array_sort(collect_set(CASE WHEN how <> 'shut_down' THEN broker END)) AS unasked
  FROM audited_broker_outages WHERE broker IS NOT NULL AND all_since IS NOT NULL GROUP BY cluster, incarnation, all_since
) b ON b.cluster = o.cluster AND b.incarnation = o.incarnation AND b.all_since = o.since
LEFT JOIN (
  SELECT cluster, incarnation, cause_all_since,
    collect_list(struct(topic, partition, replica, since, CASE WHEN ended THEN until END AS until)) AS subjects
  FROM partition_spells WHERE kind = 'leaderless' AND cause_all_since IS NOT NULL GROUP BY cluster, incarnation, cause_all_since
) s ON s.cluster = o.cluster AND s.incarnation = o.incarnation AND s.cause_all_since = o.since
WHERE o.broker IS NULL
