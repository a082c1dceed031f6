-- about: a number of things, as English has it
CREATE OR REPLACE TEMPORARY FUNCTION counted(n BIGINT, thing STRING) RETURNS STRING RETURN
concat(n, ' ', thing, CASE WHEN n = 1 THEN '' ELSE 's' END)
