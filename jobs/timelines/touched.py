"""What new events touch: the partitions and topics whose timelines have to be made anew, and the clusters where it is all of them."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.store import in_clusters
from jobs.timelines import deletions, kraft, kraft_replicas, order, partitions, replicas

TOPIC = ("cluster", "topic")
PARTITION = (*TOPIC, "partition")
# what of a new event tells what it touches
TOLD = (
    "cluster", "topic", "partition", "replica", "broker", "event_type", "says", "to_state", "topic_id", "kafka_version", "ts",
    "partition_epoch",
)  # fmt: skip
# so many names of topics are looked for in every event before anything else is done with it
MOST_NAMES = 1_000
# so much older than what is new is what nothing new can change
CLOCK_SKEW = order.CLOCK_SKEW
# they name no partition and tell about many
OF_KRAFT_CLUSTER = (*kraft.MARKS, "feature_replayed", *kraft_replicas.REPLAYED, *kraft_replicas.DECIDED)


@dataclass(frozen=True)
class Touched:
    """kraft: clusters with KRaft controllers.

    topics: cluster, topic, whole BOOLEAN (all of its partitions). partitions: cluster, topic, partition, since (the first new event).
    deleted: cluster, topic, of whose deletion new events tell. anchors: rows of `partition_timeline`, of touched partitions at most
    one each: what is after it is made anew, the events up to its begin need not be read. since: events up to then need not be read
    but for topics that have no anchor; null: there is no anchor, or those topics are too many to list. names: of the topics, deleted
    ones too; null: they are too many to list. unanchored: names of the topics with a partition without an anchor.
    """

    kraft: frozenset[str]
    topics: DataFrame
    partitions: DataFrame
    deleted: DataFrame
    anchors: DataFrame
    since: datetime | None
    names: frozenset[str] | None
    unanchored: frozenset[str]

    def _may_count(self, frame: DataFrame) -> DataFrame:
        """Less those events whose topic says at once that they do not."""
        if self.names is None:
            return frame
        return frame.filter(F.col("topic").isNull() | F.col("topic").isin(*self.names))

    def _in_kraft(self) -> Column:
        return F.expr(in_clusters(self.kraft)) if self.kraft else F.lit(False)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Those rows of a timeline that are made anew. in: rows with cluster, topic, partition."""
        return self._marked(frame).filter("of_topic OR of_partition").select(*frame.columns)

    def intervals(self, frame: DataFrame) -> DataFrame:
        """Those rows of `partition_timeline` that are made anew."""
        return self._from_step(frame, self.anchors, *order.PARTITION)

    def reassignments(self, frame: DataFrame) -> DataFrame:
        """Those rows of `reassignments` that are made anew: none is under way at an anchor."""
        later = F.col("anchor_ts").isNull() | (F.col("started_at") > F.col("anchor_ts"))
        return self._joined(self.rows(frame), self.begins()).filter(later).select(*frame.columns)

    def replica_intervals(self, frame: DataFrame, held: DataFrame) -> DataFrame:
        """Those rows of `replica_timeline` that are made anew. held: as `replicas_held` gives it."""
        return self._from_step(frame, held, *order.REPLICA)

    def _from_step(self, frame: DataFrame, held: DataFrame, *keys: str) -> DataFrame:
        """Those rows of a timeline that are made anew, from the step of the row held on where there is one."""
        steps = F.broadcast(held.select(*keys, F.col("step").alias("held_step")))
        later = F.col("held_step").isNull() | (F.col("step") >= F.col("held_step"))
        return self.rows(frame).join(steps, list(keys), "left").filter(later).select(*frame.columns)

    def begins(self) -> DataFrame:
        """cluster, incarnation, topic, partition, anchor_ts."""
        return self.anchors.select(*order.PARTITION, F.col("valid_from").alias("anchor_ts"))

    def replicas_held(self, frame: DataFrame) -> DataFrame:
        """The rows of `replica_timeline` that were so when the anchors of their partitions began."""
        begun = F.col("valid_from").isNull() | (F.col("valid_from") <= F.col("anchor_ts"))
        lasting = F.col("valid_to").isNull() | (F.col("valid_to") > F.col("anchor_ts"))
        return frame.join(F.broadcast(self.begins()), list(order.PARTITION)).filter(begun & lasting).select(*frame.columns)

    def going_on(self, told: DataFrame) -> DataFrame:
        """`partitions.observations` of what came after anchors, with these before them, and without late words about earlier epochs."""
        epochs = self.anchors.select(
            *order.PARTITION, F.col("partition_epoch").alias("anchor_epoch"), F.col("leader_epoch").alias("anchor_leader_epoch")
        )
        earlier = (F.col("partition_epoch") < F.col("anchor_epoch")) | (F.col("leader_epoch") < F.col("anchor_leader_epoch"))
        later = ~F.coalesce(earlier, F.lit(False))
        after = self._joined(told, epochs).filter(later).select(*told.columns)
        return after.unionByName(partitions.of_anchors(self.anchors))

    def without_anchors_of(self, wrong: DataFrame) -> "Touched":
        """The same, with the whole history of some partitions. wrong: cluster, incarnation, topic, partition."""
        left = self.anchors.join(wrong, list(order.PARTITION), "left_anti").localCheckpoint()
        more = _listed(wrong)
        if more is None:
            return replace(self, anchors=left, since=None)
        return replace(self, anchors=left, unanchored=self.unanchored | more)

    def differing(self, before: DataFrame, now: DataFrame) -> DataFrame:
        """Anchored partitions whose time before the first new event came out in another way than it is held.

        before, now: rows of `partition_timeline` that are made anew. out: cluster, incarnation, topic, partition.
        """
        over = self.anchors.select(*order.PARTITION).join(F.broadcast(self.partitions), list(PARTITION))
        names = [name for name in before.columns if name not in order.PARTITION]
        counted = before.select(*order.PARTITION, *names, F.lit(1).alias("n")).unionByName(
            now.select(*order.PARTITION, *names, F.lit(-1).alias("n"))
        )
        settled = counted.join(F.broadcast(over), list(order.PARTITION)).filter("valid_to < since")
        return (
            settled.groupBy(*order.PARTITION, *names)
            .agg(F.sum("n").alias("n"))
            .filter("n <> 0")
            .select(*order.PARTITION)
            .distinct()
        )

    def _joined(self, frame: DataFrame, marks: DataFrame) -> DataFrame:
        return frame.join(F.broadcast(marks), list(order.PARTITION), "left")

    def events(self, frame: DataFrame) -> DataFrame:
        """Those events that tell about partitions to be made anew, with all that tell about their topic, brokers or cluster."""
        of_broker = F.col("event_type").isin("broker_started")
        wide = F.col("topic").isNull() & (self._in_kraft() | of_broker)
        of_all = F.col("partition").isNull() & F.col("of_topic").isNotNull()
        wanted = F.col("of_topic") | F.col("of_partition") | of_all | wide
        later = F.coalesce(F.col("ts") > F.col("anchor_ts"), F.lit(True))
        if self.since is not None:
            recent = F.col("ts").isNull() | (F.col("ts") > F.lit(self.since))
            frame = frame.filter(recent | wide | F.col("topic").isin(*self.unanchored) if self.unanchored else recent)
        marked = self._joined(self._marked(self._may_count(frame)), self.begins())
        return marked.filter(F.coalesce(wanted, F.lit(False)) & later).select(*frame.columns)

    def of_deletions(self, frame: DataFrame) -> DataFrame:
        """Those rows or events that tell about deletions to be made anew."""
        marks = F.broadcast(self.deleted.select(*TOPIC, F.lit(True).alias("of_topic")))
        marked = self._may_count(frame).join(marks, list(TOPIC), "left")
        # in KRaft a record may name the id of its topic alone
        wanted = F.col("of_topic") | (F.col("topic").isNull() & self._in_kraft())
        return marked.filter(F.coalesce(wanted, F.lit(False))).select(*frame.columns)

    def _marked(self, frame: DataFrame) -> DataFrame:
        topics = F.broadcast(self.topics.select(*TOPIC, F.col("whole").alias("of_topic")))
        partitions = F.broadcast(self.partitions.select(*PARTITION, F.lit(True).alias("of_partition")))
        return frame.join(topics, list(TOPIC), "left").join(partitions, list(PARTITION), "left")


def _in_another_order(before: DataFrame, now: DataFrame) -> DataFrame:
    """Files whose events of earlier runs do not stand in the same order any more. in: `order.files` then and now."""
    keys = ("cluster", "node", "file")
    then = before.withColumnsRenamed({name: f"then_{name}" for name in (*keys, "file_ts", "merged")})
    same_file = [F.col(name).eqNullSafe(F.col(f"then_{name}")) for name in keys]
    changed = ~(F.col("file_ts").eqNullSafe(F.col("then_file_ts")) & (F.col("merged") == F.col("then_merged")))
    return now.join(F.broadcast(then), same_file).filter(changed)


def everywhere(before: DataFrame, now: DataFrame, new: DataFrame, *, in_kraft: frozenset[str]) -> frozenset[str]:
    """Clusters of which everything is made anew, for something that all their partitions share has changed.

    That is the order of files and the nodes that print replica states; in KRaft also what a controller's start or a broker's
    registration makes of lines that were known before, and whatever a dump of the metadata log says.
    before, now: `witnesses` of earlier runs and of all, new: recognised events that this run brought. in_kraft: clusters with KRaft
    controllers.
    """
    tracing = replicas.tracing(now).join(replicas.tracing(before), ["cluster", "incarnation", "node"], "left_anti")
    changed = _in_another_order(order.files(before), order.files(now)).select("cluster").unionByName(tracing.select("cluster"))
    if in_kraft:
        of_kraft = F.expr(in_clusters(in_kraft))
        unnamed = F.col("topic").isNull() & (F.col("topic_id").isNotNull() | F.col("kafka_version").isNotNull())
        wide = new.filter(of_kraft & (F.col("event_type").isin(*OF_KRAFT_CLUSTER) | unnamed)).select("cluster")
        dumped = now.filter(of_kraft & (F.col("logger") == "__cluster_metadata")).select("cluster")
        changed = changed.unionByName(wide).unionByName(dumped)
    return frozenset(row.cluster for row in changed.distinct().collect())


def find(
    new: DataFrame, *, intervals: DataFrame, in_kraft: frozenset[str] = frozenset(), anchored: frozenset[str] = frozenset()
) -> Touched:
    """What new events touch.

    new: recognised events that this run brought. intervals: `partition_timeline` so far. in_kraft: clusters with KRaft controllers.
    anchored: clusters whose history need not be read as a whole.
    """
    named = new.filter("topic IS NOT NULL")
    every_partition = F.col("partition").isNull()
    if in_kraft:  # its partitions are told apart by the ids of their topics
        every_partition = every_partition | F.expr(in_clusters(in_kraft))
    begun = F.min(F.coalesce("ts", F.lit(0).cast("timestamp"))).alias("since")
    started = new.filter("event_type = 'broker_started' AND broker IS NOT NULL").groupBy("cluster", "broker").agg(begun)
    held = intervals.select(*PARTITION, F.explode("replicas").alias("broker"))
    returned = held.join(F.broadcast(started), ["cluster", "broker"]).groupBy(*PARTITION).agg(F.min("since").alias("since"))
    of_partition = (
        named.filter("partition IS NOT NULL").groupBy(*PARTITION).agg(begun, F.min("partition_epoch").alias("partition_epoch"))
    )
    named_partitions = (
        of_partition.unionByName(returned, allowMissingColumns=True)
        .groupBy(*PARTITION)
        .agg(F.min("since").alias("since"), F.min("partition_epoch").alias("lowest_epoch"))
        .localCheckpoint()
    )
    by_topic = named.select(*TOPIC, every_partition.alias("whole"))
    of_partitions = named_partitions.select(*TOPIC, F.lit(False).alias("whole"))
    topics = by_topic.unionByName(of_partitions).groupBy(*TOPIC).agg(F.bool_or("whole").alias("whole")).localCheckpoint()
    deleted = deletions.signs(named).select(*TOPIC)
    if in_kraft:
        deleted = deleted.unionByName(named.filter(F.expr(in_clusters(in_kraft))).select(*TOPIC))
    of_topics = topics.filter("whole").select(*TOPIC)
    anchors = _anchors(intervals, named_partitions.join(F.broadcast(of_topics), list(TOPIC), "left_anti"), anchored - in_kraft)
    touched = named_partitions.select(*PARTITION, "since")
    deleted = order.in_memory(deleted.distinct())
    names = _listed(topics.unionByName(deleted, allowMissingColumns=True))
    lacking = of_topics.unionByName(touched.join(F.broadcast(anchors), list(PARTITION), "left_anti").select(*TOPIC))
    unanchored = _listed(lacking)
    oldest = None if unanchored is None else anchors.agg(F.min("valid_from").alias("oldest")).first()
    since = oldest.oldest if oldest is not None else None
    return Touched(in_kraft, topics, touched, deleted, anchors, since, names, unanchored or frozenset())


def _listed(topics: DataFrame) -> frozenset[str] | None:
    """The names of topics, if they are few enough to be listed."""
    rows = topics.select("topic").distinct().limit(MOST_NAMES + 1).collect()
    return frozenset(row.topic for row in rows) if len(rows) <= MOST_NAMES else None


def _anchors(intervals: DataFrame, touched: DataFrame, clusters: frozenset[str]) -> DataFrame:
    """The last interval of each partition whose leader, ISR and epochs are known and were so before anything new, however clocks differ.

    in: `partition_timeline`; touched: cluster, topic, partition, since, lowest_epoch of what is new. out: rows of intervals.
    """
    if not clusters:
        return intervals.limit(0)
    known = [F.col(name).isNotNull() for name in ("valid_from", "leader", "leader_epoch", "isr", "partition_epoch")]
    at_rest = F.col("reassignment_phase").isNull() & (
        partitions.length("adding_replicas") + partitions.length("removing_replicas") == 0
    )
    lasted = F.col("valid_to").isNull() | (F.col("valid_to") > F.col("valid_from"))
    in_state = F.coalesce(F.col("state").isin("OnlinePartition", "OfflinePartition"), F.lit(True))
    before = F.col("valid_from") < F.col("since") - F.expr(f"INTERVAL {int(CLOCK_SKEW.total_seconds())} SECONDS")
    in_epochs = F.col("lowest_epoch").isNull() | (F.col("partition_epoch") <= F.col("lowest_epoch"))
    fits = reduce(and_, known) & at_rest & lasted & in_state & before & in_epochs & ~F.col("inferred")
    last = F.max_by(F.struct(*intervals.columns), F.struct("incarnation", "step"))
    chosen = (
        intervals.filter(F.expr(in_clusters(clusters)))
        .join(F.broadcast(touched), list(PARTITION))
        .filter(fits & (F.col("source") == "logs"))
        .groupBy(*PARTITION)
        .agg(last.alias("chosen"))
    )
    return chosen.select("chosen.*").localCheckpoint()
