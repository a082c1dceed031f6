-- severity: warning
-- harm: housekeeping
-- concludes: records at ERROR or FATAL of which no rule says what they mean.
-- needs: lines
-- identity: cluster
-- facts: records, kinds, examples
-- only: unknown_errors
-- candidates: unknown
WITH unknown AS (
  SELECT cluster, incarnation, ts, record_id, node, logger, error_class,
    regexp_replace(regexp_replace(substring(split_part(coalesce(statement, raw), '\n', 1), 1, 160), '[0-9]+', '#'), '[A-Za-z0-9_.-]+-#', 'PARTITION') AS masked,
    substring(split_part(coalesce(statement, raw), '\n', 1), 1, 160) AS example
  FROM audited_events WHERE event_type IS NULL AND NOT coalesce(drifted, false) AND level IN ('ERROR', 'FATAL')
), kinds AS (
  SELECT cluster, incarnation, logger, masked, count(*) AS times, min(ts) AS since, max(ts) AS until, min_by(example, struct(ts, record_id)) AS example,
    min_by(record_id, struct(ts, record_id)) AS record_id, collect_set(node) AS nodes
  FROM unknown GROUP BY cluster, incarnation, logger, masked
)
SELECT
  k.cluster, k.incarnation,
  'warning' AS severity,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS replica, CAST(NULL AS INT) AS node,
  min(k.since) AS first_seen, max(k.until) AS last_seen, false AS ended,
  sum(k.times) AS records,
  count(*) AS kinds,
  transform(slice(array_sort(collect_list(struct(-k.times AS rank, k.times AS times, k.logger AS logger, k.example AS example))), 1, 5), one -> struct(one.times, one.logger, one.example)) AS examples,
  'unknown' AS thing,
  earliest_records(collect_list(struct(k.since AS at, array(k.record_id) AS records))) AS evidence
FROM kinds k
GROUP BY k.cluster, k.incarnation
