-- about: what one finding tells of spells that no outage explains: those that begin in one hour; null where one does
CREATE OR REPLACE TEMPORARY FUNCTION unexplained_hour(cause_since TIMESTAMP, since TIMESTAMP) RETURNS TIMESTAMP RETURN
CASE WHEN cause_since IS NULL THEN date_trunc('HOUR', since) END
