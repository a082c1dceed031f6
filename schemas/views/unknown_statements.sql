-- about: records that no rule matches: unrecognised or drifted text with numbers and names masked, counted, with one example each
CREATE OR REPLACE TEMPORARY VIEW unknown_statements AS
SELECT cluster, logger, status, masked, count(*) AS records, min(ts) AS first_seen, max(ts) AS last_seen,
  min_by(record_id, struct(ts, record_no, record_id)) AS record_id, min_by(example, struct(ts, record_no, record_id)) AS example
FROM (
  SELECT *, substring(raw, 1, 2000) AS example, CASE WHEN drifted THEN 'drifted' ELSE 'unrecognised' END AS status,
    -- a number and a partition are one character each until lists of them are one
    replace(replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
      coalesce(statement, split_part(raw, '\n', 1)),
      '[A-Za-z_][A-Za-z0-9._-]*-[0-9]+(?![A-Za-z0-9._-])|\\[[A-Za-z0-9._-]+,[0-9]+\\]', '\u0002'),
      '(?<![A-Za-z0-9_-])(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])', 'ID'),
      '(for|of|to) topic [A-Za-z0-9._-]+', '$1 topic TOPIC'),
      '0x[0-9a-f]+|-?[0-9]+', '\u0003'),
      '\u0002[\u0002, ]*\u0002', '\u0002,..'),
      '\u0003[\u0003, ]*\u0003', '\u0003,..'),
      '\u0002', 'TOPIC-N'), '\u0003', 'N') AS masked
  FROM events
  WHERE event_type IS NULL
)
GROUP BY cluster, logger, status, masked
ORDER BY records DESC, masked
