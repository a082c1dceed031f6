-- about: the first and last record by minute of each log that would show the end of a broker
-- broker: the broker of a server.log, which shows its starts and stops; null: the log of a controller, which shows those of all brokers
WITH terms AS (
  SELECT cluster, incarnation, node, until, coalesce(elected_at, CASE WHEN n = 1 THEN TIMESTAMP '1970-01-01 00:00:00' END) AS since
  FROM (
    SELECT cluster, incarnation, node, elected_at, row_number() OVER w AS n, least(resigned_at, lead(elected_at) OVER w) AS until
    FROM audited_controllers LEFT ANTI JOIN terms_of_quorum USING (cluster, incarnation, node, controller_epoch)
    WINDOW w AS (PARTITION BY cluster, incarnation ORDER BY controller_epoch, elected_at))
), logged AS (
  SELECT e.cluster, e.incarnation, CASE WHEN e.logger LIKE 'kafka.server.%' OR e.logger LIKE 'kafka.cluster.%' THEN e.node END AS broker, e.ts, e.record_id
  FROM audited_events e
  WHERE e.node IS NOT NULL AND e.ts IS NOT NULL AND e.item = 0
    -- every controller of a KRaft quorum logs the changes of brokers
    AND (e.logger LIKE 'kafka.server.%' OR e.logger LIKE 'kafka.cluster.%' OR e.logger LIKE 'org.apache.kafka.controller.%')
  UNION ALL
  SELECT e.cluster, e.incarnation, CAST(NULL AS INT), e.ts, e.record_id
  FROM audited_events e
  JOIN terms t ON t.cluster = e.cluster AND t.incarnation = e.incarnation AND t.node = e.node AND e.ts >= t.since AND coalesce(e.ts < t.until, true)
  WHERE e.logger LIKE 'kafka.controller.%' AND e.item = 0
)
SELECT cluster, incarnation, broker, inline(array(first, last)) FROM (
  SELECT cluster, incarnation, broker, min(struct(ts, record_id)) AS first, max(struct(ts, record_id)) AS last
  FROM logged GROUP BY cluster, incarnation, broker, date_trunc('MINUTE', ts))
