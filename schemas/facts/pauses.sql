-- about: times of more than an hour in which no node of a cluster wrote, as on a machine that sleeps; the state meanwhile is unknown;
-- a ZooKeeper controller writes every five minutes
SELECT cluster, minute + INTERVAL 1 MINUTE AS since, next AS until
FROM (
  SELECT cluster, minute, lead(minute) OVER (PARTITION BY cluster ORDER BY minute) AS next
  FROM (SELECT DISTINCT cluster, date_trunc('MINUTE', ts) AS minute FROM audited_events WHERE ts IS NOT NULL))
WHERE next > minute + INTERVAL 1 HOUR
