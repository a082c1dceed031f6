-- severity: warning
-- harm: risk
-- title: Broker comes and goes
-- concludes: lines that a broker was lost and came back; that nobody stopped it from no line of a stop.
-- needs: this_node or controller, else info
-- why: The broker was lost and came back several times within an hour (broker_outages_per_hour), and no line tells it to stop. Every turn moves
--   leaders and shrinks ISRs, which clients notice.
-- do: Look for what makes its session end - garbage collections longer than the session timeout, an overloaded controller, a supervisor that
--   restarts it, a network that drops. Until it is mended, the cluster is better off without it.
-- same: broker, day
-- only: broker_outages
-- thresholds: broker_outages_per_hour
-- candidates: flapping
WITH counted AS (
  SELECT o.*, count(*) OVER (
      PARTITION BY o.cluster, o.incarnation, o.broker ORDER BY o.since RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour
  FROM audited_broker_outages o WHERE o.broker IS NOT NULL AND o.how NOT IN ('first_start', 'shut_down') AND o.all_since IS NULL
), flapping AS (
  SELECT * FROM (SELECT *, max(within_hour) OVER (PARTITION BY cluster, incarnation, broker, date_trunc('DAY', since)) AS most FROM counted)
  WHERE most >= broker_outages_per_hour(cluster, NULL)
)
SELECT
  c.cluster, c.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, c.broker AS node, min(c.since) AS first_seen, max(c.since) AS last_seen,
  max(c.since) < max(k.now) - INTERVAL 1 HOUR AS ended,
  concat('broker ', c.broker) AS thing,
  concat('Broker ', c.broker, ' was gone up to ', max(c.most), ' times within one hour, ', count(*), ' times on ', date_format(min(c.since), 'yyyy-MM-dd'),
         ' (', array_join(array_sort(collect_set(c.how)), ', '), ').') AS detail,
  concat_ws('|', c.broker, date_trunc('DAY', c.since)) AS same,
  earliest_records(collect_list(struct(c.since AS at, c.evidence AS records))) AS evidence
FROM flapping c
JOIN clocks k ON k.cluster = c.cluster
GROUP BY c.cluster, c.incarnation, c.broker, date_trunc('DAY', c.since)
