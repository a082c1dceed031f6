"""What new events touch: the partitions and topics whose timelines have to be made anew, and the clusters where it is all of them."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.store import in_clusters
from jobs.timelines import deletions, kraft, kraft_replicas, order, replicas

TOPIC = ("cluster", "topic")
PARTITION = (*TOPIC, "partition")
# what of a new event tells what it touches
TOLD = ("cluster", "topic", "partition", "replica", "broker", "event_type", "says", "to_state", "topic_id", "kafka_version")
# they name no partition and tell about many
OF_KRAFT_CLUSTER = (*kraft.MARKS, "feature_replayed", *kraft_replicas.REPLAYED, *kraft_replicas.DECIDED)


@dataclass(frozen=True)
class Touched:
    """whole: clusters of which everything is made anew. kraft: those with KRaft controllers.

    topics: cluster, topic, whole BOOLEAN (all of its partitions). partitions: cluster, topic, partition. deleted: cluster, topic, of
    whose deletion new events tell.
    """

    whole: frozenset[str]
    kraft: frozenset[str]
    topics: DataFrame
    partitions: DataFrame
    deleted: DataFrame

    def _is_whole(self) -> Column:
        return F.expr(in_clusters(self.whole)) if self.whole else F.lit(False)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Those rows of a timeline that are made anew. in: rows with cluster, topic, partition."""
        return self._marked(frame).filter(self._is_whole() | F.col("of_topic") | F.col("of_partition")).select(*frame.columns)

    def events(self, frame: DataFrame) -> DataFrame:
        """Those events that tell about partitions to be made anew, with all that tell about their topic, brokers or cluster."""
        everything = self.whole | self.kraft
        wide = F.col("topic").isNull() & (
            (F.expr(in_clusters(everything)) if everything else F.lit(False)) | F.col("event_type").isin("broker_started")
        )
        of_all = F.col("partition").isNull() & F.col("of_topic").isNotNull()
        wanted = self._is_whole() | F.col("of_topic") | F.col("of_partition") | of_all | wide
        return self._marked(frame).filter(F.coalesce(wanted, F.lit(False))).select(*frame.columns)

    def of_deletions(self, frame: DataFrame) -> DataFrame:
        """Those rows or events that tell about deletions to be made anew."""
        marks = F.broadcast(self.deleted.select(*TOPIC, F.lit(True).alias("of_topic")))
        marked = frame.join(marks, list(TOPIC), "left")
        # in KRaft a record may name the id of its topic alone
        wanted = self._is_whole() | F.col("of_topic") | F.col("topic").isNull()
        return marked.filter(F.coalesce(wanted, F.lit(False))).select(*frame.columns)

    def _marked(self, frame: DataFrame) -> DataFrame:
        topics = F.broadcast(self.topics.select(*TOPIC, F.col("whole").alias("of_topic")))
        partitions = F.broadcast(self.partitions.select(*PARTITION, F.lit(True).alias("of_partition")))
        return frame.join(topics, list(TOPIC), "left").join(partitions, list(PARTITION), "left")


def _clusters(frame: DataFrame) -> frozenset[str]:
    return frozenset(row.cluster for row in frame.select("cluster").distinct().collect())


def _in_another_order(before: DataFrame, now: DataFrame) -> DataFrame:
    """Files whose events of earlier runs do not stand in the same order any more. in: `order.files` then and now."""
    keys = ("cluster", "node", "file")
    then = before.withColumnsRenamed({name: f"then_{name}" for name in (*keys, "file_ts", "merged")})
    same_file = [F.col(name).eqNullSafe(F.col(f"then_{name}")) for name in keys]
    changed = ~(F.col("file_ts").eqNullSafe(F.col("then_file_ts")) & (F.col("merged") == F.col("then_merged")))
    return now.join(F.broadcast(then), same_file).filter(changed)


def find(
    before: DataFrame,
    now: DataFrame,
    new: DataFrame,
    *,
    files: DataFrame,
    intervals: DataFrame,
    whole: frozenset[str],
    in_kraft: frozenset[str],
) -> Touched:
    """What new events touch.

    before, now, new: recognised events of earlier runs, of all runs (with overruled), of this one. files: `order.files` of now.
    intervals: `partition_timeline` so far. whole: clusters that are known to be made anew as a whole. in_kraft: those with KRaft
    controllers.
    As a whole is made anew where something that all partitions share has changed: the order of files, the nodes that print replica
    states; in KRaft also what a controller's start or a broker's registration makes of lines that were known before, and whatever a
    dump of the metadata log says.
    """
    tracing = replicas.tracing(now).join(replicas.tracing(before), ["cluster", "incarnation", "node"], "left_anti")
    reordered = _in_another_order(order.files(before), files).select("cluster")
    # an election that comes late decides what a deposed controller's lines are worth
    overruled = now.filter("overruled").select("cluster")
    whole |= _clusters(reordered.unionByName(tracing.select("cluster")).unionByName(overruled))
    if in_kraft:
        of_kraft = F.expr(in_clusters(in_kraft))
        unnamed = F.col("topic").isNull() & (F.col("topic_id").isNotNull() | F.col("kafka_version").isNotNull())
        wide = new.filter(of_kraft & (F.col("event_type").isin(*OF_KRAFT_CLUSTER) | unnamed)).select("cluster")
        dumped = now.filter(of_kraft & (F.col("logger") == "__cluster_metadata")).select("cluster")
        whole |= _clusters(wide.unionByName(dumped))
    named = new.filter("topic IS NOT NULL")
    every_partition = F.col("partition").isNull()
    if in_kraft:  # its partitions are told apart by the ids of their topics
        every_partition = every_partition | F.expr(in_clusters(in_kraft))
    started = new.filter("event_type = 'broker_started' AND broker IS NOT NULL").select("cluster", "broker").distinct()
    held = intervals.select(*PARTITION, F.explode("replicas").alias("broker"))
    returned = held.join(F.broadcast(started), ["cluster", "broker"], "left_semi").select(*PARTITION)
    partitions = named.filter("partition IS NOT NULL").select(*PARTITION).unionByName(returned).distinct().localCheckpoint()
    by_topic = named.select(*TOPIC, every_partition.alias("whole"))
    of_partitions = partitions.select(*TOPIC, F.lit(False).alias("whole"))
    topics = by_topic.unionByName(of_partitions).groupBy(*TOPIC).agg(F.bool_or("whole").alias("whole")).localCheckpoint()
    deleted = deletions.signs(named).select(*TOPIC)
    if in_kraft:
        deleted = deleted.unionByName(named.filter(F.expr(in_clusters(in_kraft))).select(*TOPIC))
    return Touched(whole, in_kraft, topics, partitions, deleted.distinct().localCheckpoint())
