-- about: of how many partitions something is told, and from when to when: of one exactly, of several the first begin and the last end
CREATE OR REPLACE TEMPORARY FUNCTION when_told(partitions BIGINT, one STRING, since TIMESTAMP, ended BOOLEAN, is_end_seen BOOLEAN, until TIMESTAMP) RETURNS STRING RETURN
CASE WHEN partitions = 1 THEN concat(one, ' from ', date_format(since, 'yyyy-MM-dd HH:mm:ss'), until_told(ended, is_end_seen, until))
     ELSE concat('at least ', partitions, ' partitions, ', one, ' among them, within ', date_format(since, 'yyyy-MM-dd HH:mm:ss'), until_told(ended, is_end_seen, until)) END
