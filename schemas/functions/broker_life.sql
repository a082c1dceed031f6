-- about: a sentence on brokers that were missing though no outage explains it, where lines tell how they were; else nothing
-- missing: the brokers; down: those with an outage that does not explain it; alive_at: as in partition_spells.
CREATE OR REPLACE TEMPORARY FUNCTION broker_life(missing ARRAY<INT>, down ARRAY<INT>, alive_at TIMESTAMP) RETURNS STRING RETURN
CASE WHEN size(down) > 0 THEN concat(' Broker ', array_join(down, ', '), ' was down for a part of that time only.')
     WHEN alive_at IS NOT NULL
     THEN concat(' Alive meanwhile: broker ', array_join(missing, ', '), ', by ', CASE WHEN size(missing) > 1 THEN 'lines of their own, one at ' ELSE 'a line of its own at ' END,
                 date_format(alive_at, 'yyyy-MM-dd HH:mm:ss'), '.')
     ELSE '' END
