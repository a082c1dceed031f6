-- about: every finding with the log records that prove it
CREATE OR REPLACE TEMPORARY VIEW proof AS
SELECT f.cluster, f.fingerprint, f.check_id, f.severity, f.status, f.title, e.ts, e.node, e.file, e.record_no, e.raw
FROM (SELECT *, explode(evidence) AS record_id FROM findings) f
JOIN (SELECT * FROM events WHERE item = 0) e ON e.record_id = f.record_id
