-- severity: warning
-- harm: housekeeping
-- title: Log wording that the rules only half know
-- concludes: records that begin like a known statement.
-- needs: lines
-- why: The beginning of these records is known, the rest is not: a Kafka upgrade or a patched build changed the wording. What they say
--   is missing from the timelines.
-- do: kafka-audit explain LINE shows how far each rule got; a rule of your own (--rules DIR) reads it, and we would like to know.
-- same: logger, beginning of the text
-- only: drifted
SELECT
  e.cluster, e.incarnation, 'warning' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, CASE WHEN count(DISTINCT e.node) = 1 THEN max(e.node) END AS node,
  min(e.ts) AS first_seen, max(e.ts) AS last_seen, false AS ended,
  concat(counted(count(*), 'record'), ' of ', e.logger) AS thing,
  concat(counted(count(*), 'record'), ' of ', e.logger, ' began like a known statement and went on differently; an example: ',
         substring(min(e.raw), 1, 300)) AS detail,
  concat_ws('|', e.logger, e.masked) AS same,
  slice(array_sort(collect_set(e.record_id)), 1, 20) AS evidence
FROM (
  SELECT *, regexp_replace(substring(coalesce(statement, raw), 1, 60), '[0-9]+', '#') AS masked
  FROM audited_events WHERE drifted
) e
GROUP BY e.cluster, e.incarnation, e.logger, e.masked
