-- about: groups the episodes that no outage explains by the hour of their begin; null where an outage does
CREATE OR REPLACE TEMPORARY FUNCTION unexplained_hour(cause_since TIMESTAMP, since TIMESTAMP) RETURNS TIMESTAMP RETURN
CASE WHEN cause_since IS NULL THEN date_trunc('HOUR', since) END
