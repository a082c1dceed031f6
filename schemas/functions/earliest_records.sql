-- about: the records of collected evidence, the earliest first, each once, at most twenty
CREATE OR REPLACE TEMPORARY FUNCTION earliest_records(found ARRAY<STRUCT<at: TIMESTAMP, records: ARRAY<STRING>>>) RETURNS ARRAY<STRING> RETURN
slice(array_distinct(flatten(transform(array_sort(found), one -> one.records))), 1, 20)
