-- about: the records that prove what was collected, those of the earliest moment first, each once, twenty at most
CREATE OR REPLACE TEMPORARY FUNCTION earliest_records(found ARRAY<STRUCT<at: TIMESTAMP, records: ARRAY<STRING>>>) RETURNS ARRAY<STRING> RETURN
slice(array_distinct(flatten(transform(array_sort(found), one -> one.records))), 1, 20)
