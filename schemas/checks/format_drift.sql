-- severity: warning
-- harm: housekeeping
-- concludes: records that begin like a known statement.
-- needs: lines
-- identity: logger, beginning of the text
-- facts: records, logger, example
-- only: drifted
SELECT
  e.cluster, e.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT e.node) = 1 THEN max(e.node) END AS node,
  min(e.ts) AS first_seen, max(e.ts) AS last_seen, false AS ended,
  count(*) AS records,
  e.logger,
  min(e.raw) AS example,
  concat_ws('|', e.logger, e.masked) AS thing,
  earliest_records(collect_list(struct(e.ts AS at, array(e.record_id) AS records))) AS evidence
FROM (
  SELECT *, regexp_replace(substring(coalesce(statement, raw), 1, 60), '[0-9]+', '#') AS masked
  FROM audited_events WHERE drifted
) e
GROUP BY e.cluster, e.incarnation, e.logger, e.masked
