-- about: of how many partitions something is told, and from when to when: of one time exactly, of several the first begin and the last end
CREATE OR REPLACE TEMPORARY FUNCTION when_told(partitions BIGINT, times BIGINT, one STRING, is_begin_seen BOOLEAN, since TIMESTAMP, ended BOOLEAN, is_end_seen BOOLEAN, until TIMESTAMP) RETURNS STRING RETURN
CASE WHEN times = 1 THEN concat(one, since_told(is_begin_seen, since), until_told(ended, is_end_seen, until))
     ELSE concat(CASE WHEN partitions = 1 THEN concat(one, ', at least ', times, ' times,') ELSE concat('at least ', partitions, ' partitions, ', one, ' among them,') END,
                 ' within ', date_format(since, 'yyyy-MM-dd HH:mm:ss'), until_told(ended, is_end_seen, until)) END
