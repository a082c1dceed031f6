-- about: a sentence on the outage of a broker that explains something
CREATE OR REPLACE TEMPORARY FUNCTION outage_told(broker INT, since TIMESTAMP, until TIMESTAMP) RETURNS STRING RETURN
concat('Broker ', broker, ' was down from ', date_format(since, 'yyyy-MM-dd HH:mm:ss'), coalesce(concat(' to ', date_format(until, 'yyyy-MM-dd HH:mm:ss'), '.'), ' on.'))
