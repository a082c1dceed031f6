-- about: up to when something was so: when lines tell its end, the last moment that they tell of it, or the end of the logs
CREATE OR REPLACE TEMPORARY FUNCTION until_told(ended BOOLEAN, is_end_seen BOOLEAN, until TIMESTAMP) RETURNS STRING RETURN
concat(CASE WHEN NOT ended THEN ' to the end of the logs, ' WHEN is_end_seen THEN ' to ' ELSE ' to at least ' END, date_format(until, 'yyyy-MM-dd HH:mm:ss'))
