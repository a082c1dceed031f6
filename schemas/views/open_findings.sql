-- about: what is wrong now, worst first
CREATE OR REPLACE TEMPORARY VIEW open_findings AS
SELECT cluster, fingerprint, check_id, severity, status, title, detail, first_seen, last_seen, topic, partition, replica, node, evidence
FROM findings
WHERE status <> 'resolved'
ORDER BY CASE severity WHEN 'critical' THEN 0 WHEN 'error' THEN 1 WHEN 'warning' THEN 2 ELSE 3 END, first_seen
