-- about: the records that prove what was gathered, those of the earliest moment first, and no more than twenty
CREATE OR REPLACE TEMPORARY FUNCTION earliest_records(told ARRAY<STRUCT<at: TIMESTAMP, records: ARRAY<STRING>>>) RETURNS ARRAY<STRING> RETURN
slice(array_distinct(flatten(transform(array_sort(told), one -> one.records))), 1, 20)
