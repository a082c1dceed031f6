-- severity: error
-- harm: risk
-- title: Log files could not be read or written
-- concludes: records of the errors; that they are not those of a failed directory from no line of one.
-- needs: this_node
-- why: A broker met errors while it read, wrote, flushed, rolled or loaded files of its logs. One such error may take a replica or a whole
--   directory out of use, and may mean that what is on disk is damaged.
-- do: Look at the disk of that broker (kernel log, SMART, free space, permissions, open files). Replace it before it fails; the replicas are copied
--   anew from their leaders.
-- same: node, kind of error
-- only: log_dir_failed
-- candidates: failed
WITH failed AS (
  SELECT cluster, incarnation, node, ts, record_id, error_class, error_message, left(regexp_extract(split_part(raw, '\n', 1), '(?:ERROR|FATAL|WARN) +(.*)', 1), 160) AS example FROM audited_events
  WHERE event_type = 'log_dir_failed' AND level IN ('ERROR', 'FATAL') AND item = 0
)
SELECT
  f.cluster, f.incarnation, 'error' AS severity, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
  CAST(NULL AS INT) AS replica, f.node, min(f.ts) AS first_seen, max(f.ts) AS last_seen, false AS ended,
  concat(counted(count(*), 'error'), coalesce(concat(' of broker ', f.node), '')) AS thing,
  concat(coalesce(concat('Broker ', f.node), 'A broker'), ' logged ', counted(count(*), 'error'), ' of its log files', coalesce(concat(' from ', date_format(min(f.ts), 'yyyy-MM-dd HH:mm:ss'), ' to ', date_format(max(f.ts), 'yyyy-MM-dd HH:mm:ss')), ''),
         '; the first: ', min_by(f.example, struct(f.ts, f.record_id)), coalesce(concat(' (', min_by(f.error_class, struct(f.ts, f.record_id)), coalesce(concat(': ', left(min_by(f.error_message, struct(f.ts, f.record_id)), 160)), ''), ')'), ''), '.') AS detail,
  concat_ws('|', f.node, f.error_class) AS same,
  earliest_records(collect_list(struct(f.ts AS at, array(f.record_id) AS records))) AS evidence
FROM failed f
-- what ends with a failed directory is told there (log_directory_failed)
LEFT ANTI JOIN audited_events o ON o.cluster = f.cluster AND o.incarnation = f.incarnation AND o.node = f.node
  AND o.event_type IN ('log_dir_offline', 'replica_offline', 'log_offline', 'log_dirs_all_failed') AND coalesce(o.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts + INTERVAL 1 HOUR, true)
GROUP BY f.cluster, f.incarnation, f.node, f.error_class
