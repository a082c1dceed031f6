-- about: a sentence on brokers that were missing though no outage of them was found: whether the logs would show one
-- missing: the brokers; down: those with an outage that does not explain it; silent, alive_until, watched_until: as in partition_spells.
CREATE OR REPLACE TEMPORARY FUNCTION broker_life(missing ARRAY<INT>, down ARRAY<INT>, silent ARRAY<INT>, alive_until TIMESTAMP, watched_until TIMESTAMP) RETURNS STRING RETURN
CASE WHEN size(down) > 0 THEN concat('Broker ', array_join(down, ', '), ' was down for a part of that time only.')
     WHEN size(silent) = 0 AND alive_until IS NOT NULL
     THEN concat('Alive meanwhile: broker ', array_join(missing, ', '), ', by its own lines up to ', date_format(alive_until, 'yyyy-MM-dd HH:mm:ss'), '.')
     WHEN watched_until IS NOT NULL
     THEN concat('No outage of broker ', array_join(missing, ', '), ' was found; the controller''s log, which would tell it, goes on to ',
                 date_format(watched_until, 'yyyy-MM-dd HH:mm:ss'), '.')
     WHEN size(silent) > 1
     THEN concat('Whether brokers ', array_join(silent, ', '), ' were down is not known: their server.log is not here for that time, nor a controller''s log.')
     ELSE concat('Whether broker ', array_join(CASE WHEN size(silent) > 0 THEN silent ELSE missing END, ', '),
                 ' was down is not known: its server.log is not here for that time, nor a controller''s log.') END
