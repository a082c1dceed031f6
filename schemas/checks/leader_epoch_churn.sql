-- severity: warning
-- harm: protocol
-- concludes: leader epochs; that neither leader nor controller changed from no line of that.
-- needs: controller or every_controller, else info
-- identity: topic, partition, day
-- facts: rises, epoch
-- thresholds: leader_epochs_per_hour
-- candidates: rises
WITH steps AS (
  SELECT t.cluster, t.incarnation, t.topic, t.partition, t.valid_from, t.leader, t.leader_epoch, t.record_id, t.isr,
    lag(t.leader) OVER w AS leader_before, lag(t.leader_epoch) OVER w AS epoch_before, lag(t.replicas) OVER w AS replicas_before, t.replicas,
    lag(t.isr) OVER w AS isr_before, lag(t.valid_from) OVER w AS before
  FROM audited_partition_timeline t WHERE t.leader IS NOT NULL AND t.leader_epoch IS NOT NULL
  WINDOW w AS (PARTITION BY t.cluster, t.incarnation, t.topic, t.partition ORDER BY t.step)
), rises AS (
  -- before metadata.version 3.6 an ISR that shrinks raises the epoch, as does a controller that removes a replica
  SELECT * FROM steps
  WHERE leader >= 0 AND leader = leader_before AND leader_epoch > epoch_before AND array_sort(replicas) = array_sort(replicas_before)
    AND size(array_except(isr_before, isr)) = 0 AND valid_from IS NOT NULL
), counted AS (
  -- a starting controller elects all leaders, and a leader that returns is elected again
  SELECT s.*, count(*) OVER (PARTITION BY s.cluster, s.incarnation, s.topic, s.partition ORDER BY s.valid_from RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS within_hour
  FROM rises s
  LEFT ANTI JOIN audited_controllers c ON c.cluster = s.cluster AND c.incarnation = s.incarnation AND c.elected_at > s.before AND c.elected_at <= s.valid_from
  LEFT ANTI JOIN audited_broker_outages o ON o.cluster = s.cluster AND o.incarnation = s.incarnation AND o.broker = s.leader
    AND o.since <= s.valid_from AND coalesce(o.until > s.before, true)
), dated AS (
  -- epochs of an hour across midnight that reaches the threshold are of the day on which it does
  SELECT *, date_trunc('DAY', coalesce(min(CASE WHEN is_often THEN valid_from END) OVER (
      PARTITION BY cluster, incarnation, topic, partition ORDER BY valid_from RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING), valid_from)) AS day
  FROM (SELECT *, within_hour >= leader_epochs_per_hour(cluster, topic) AS is_often FROM counted)
), turns AS (
  SELECT *, count(*) OVER (PARTITION BY cluster, incarnation, topic, partition, day ORDER BY valid_from RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS of_day FROM dated
)
SELECT
  t.cluster, t.incarnation,
  'warning' AS severity,
  t.topic, t.partition, CAST(NULL AS INT) AS replica, max(t.leader) AS node,
  min(t.valid_from) AS first_seen, max(t.valid_from) AS last_seen, max(t.valid_from) < max(k.now) - INTERVAL 1 HOUR AS ended,
  count(*) AS rises,
  max(t.leader_epoch) AS epoch,
  concat_ws('|', t.topic, t.partition, t.day) AS thing,
  earliest_records(collect_list(CASE WHEN t.record_id IS NOT NULL THEN struct(t.valid_from AS at, array(t.record_id) AS records) END)) AS evidence
FROM turns t
JOIN clocks k ON k.cluster = t.cluster
GROUP BY t.cluster, t.incarnation, t.topic, t.partition, t.day
HAVING max(t.of_day) >= leader_epochs_per_hour(t.cluster, t.topic) AND size(array_compact(collect_list(t.record_id))) > 0
