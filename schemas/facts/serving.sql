-- about: moments at which a broker serves: the end of an outage, or a line of the broker that it runs
-- until: the moment; an outage before it has ended
SELECT cluster, broker, until FROM audited_broker_outages WHERE broker IS NOT NULL AND until IS NOT NULL
UNION ALL
SELECT cluster, node AS broker, ts AS until FROM audited_events
WHERE event_type = 'broker_running' AND node IS NOT NULL AND ts IS NOT NULL AND item = 0
