-- about: a sentence on the outage of a broker that explains something
CREATE OR REPLACE TEMPORARY FUNCTION outage_told(broker INT, how STRING, since TIMESTAMP, until TIMESTAMP, is_end_seen BOOLEAN) RETURNS STRING RETURN
concat(' Broker ', broker, CASE WHEN how = 'absent' THEN ' was not there when a controller took over at ' ELSE ' was down from ' END, date_format(since, 'yyyy-MM-dd HH:mm:ss'),
       CASE WHEN until IS NULL AND how = 'absent' THEN '' WHEN until IS NULL THEN ' on' WHEN is_end_seen AND how <> 'absent' THEN ' to ' WHEN is_end_seen THEN ', and served again at ' ELSE ', and was back by ' END,
       coalesce(date_format(until, 'yyyy-MM-dd HH:mm:ss'), ''), '.')
