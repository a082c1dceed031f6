-- about: those of topic_assignments.violations that are about two replicas in one rack; jobs/operators/placement.py has their text
CREATE OR REPLACE TEMPORARY FUNCTION of_shared_racks(violations ARRAY<STRING>) RETURNS ARRAY<STRING> RETURN
filter(violations, one -> one LIKE '%two replicas in rack%')
