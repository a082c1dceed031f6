-- about: since when something was so: when lines tell its begin, or the first moment that they tell of it
CREATE OR REPLACE TEMPORARY FUNCTION since_told(is_begin_seen BOOLEAN, since TIMESTAMP) RETURNS STRING RETURN
concat(' from ', date_format(since, 'yyyy-MM-dd HH:mm:ss'), CASE WHEN is_begin_seen THEN '' ELSE ' or earlier' END)
