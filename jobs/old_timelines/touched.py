"""What new events touch: the partitions and topics whose timelines have to be made anew, and the clusters where it is all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines import deletions, kraft, kraft_changes, metadata_log, order, partitions, replicas
from jobs.store import in_clusters

TOPIC = ("cluster", "topic")
PARTITION = (*TOPIC, "partition")
# what of a new event tells what it touches
TOLD = (
    "cluster", "topic", "partition", "replica", "node", "broker", "event_type", "says", "to_state", "topic_id", "error_code", "logger", "ts",
    "partition_epoch", "leader", "leader_epoch", "isr", "replicas", "adding_replicas", "removing_replicas",
)  # fmt: skip
# so many names of topics are looked for in every event before anything else is done with it
MOST_NAMES = 1_000
# so much older than what is new is what nothing new can change
CLOCK_SKEW = order.CLOCK_SKEW


@dataclass(frozen=True)
class Touched:
    """kraft: clusters with KRaft controllers, and since when, as `night.kraft_begins` gives it.

    topics: cluster, topic, whole BOOLEAN (all of its partitions). partitions: cluster, topic, partition, since (the first new event).
    deleted: cluster, topic, of whose deletion new events tell. anchors: rows of `partition_timeline`, of touched partitions at most
    one each: what is after it is made anew, the events up to its begin need not be read. since: events up to then need not be read
    but for topics that have no anchor; null: there is no anchor, or those topics are too many to list. names: of the topics, deleted
    ones too; null: they are too many to list. unanchored: names of the topics with a partition without an anchor.
    ids: cluster, topic, topic_id, where records of a metadata log, which name the id alone, are among the events.
    """

    kraft: Mapping[str, datetime | None]
    topics: DataFrame
    partitions: DataFrame
    deleted: DataFrame
    anchors: DataFrame
    since: datetime | None
    names: frozenset[str] | None
    unanchored: frozenset[str]
    ids: DataFrame | None = None

    def _may_count(self, frame: DataFrame) -> DataFrame:
        """Less those events whose topic says at once that they do not."""
        if self.names is None:
            return frame
        return frame.filter(F.col("topic").isNull() | F.col("topic").isin(*self.names))

    def anchors_of_kraft(self) -> DataFrame:
        """Those of the anchors that KRaft controllers made."""
        return self.anchors.filter(kraft.by_kraft(self.kraft, "valid_from"))

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

    def by_mode(self, held: DataFrame) -> Iterator[tuple[DataFrame, DataFrame]]:
        """(`begins`, the rows held then) of ZooKeeper controllers' anchors, and of KRaft controllers'. held: `replicas_held`."""
        in_kraft = kraft.by_kraft(self.kraft, "anchor_ts")
        for which in (~in_kraft, in_kraft):
            begins = self.begins().filter(which)
            yield begins, held.join(F.broadcast(begins), list(order.PARTITION), "left_semi")

    def replicas_held(self, frame: DataFrame) -> DataFrame:
        """The rows of `replica_timeline` that were so when the anchors of their partitions began."""
        begun = F.col("valid_from").isNull() | (F.col("valid_from") <= F.col("anchor_ts"))
        lasting = F.col("valid_to").isNull() | (F.col("valid_to") > F.col("anchor_ts"))
        return frame.join(F.broadcast(self.begins()), list(order.PARTITION)).filter(begun & lasting).select(*frame.columns)

    def since_anchors(self, told: DataFrame) -> DataFrame:
        """Less late words about earlier epochs. in: rows with cluster, incarnation, topic, partition, partition_epoch, leader_epoch."""
        epochs = self.anchors.select(
            *order.PARTITION, F.col("partition_epoch").alias("anchor_epoch"), F.col("leader_epoch").alias("anchor_leader_epoch")
        )
        earlier = (F.col("partition_epoch") < F.col("anchor_epoch")) | (F.col("leader_epoch") < F.col("anchor_leader_epoch"))
        later = ~F.coalesce(earlier, F.lit(False))
        return self._joined(told, epochs).filter(later).select(*told.columns)

    def of_kraft(self, events: DataFrame) -> DataFrame:
        """Those events of KRaft clusters that registrations are made of: what changed an assignment is in the anchor."""
        counted = F.col("event_type").isin(*kraft.COUNTED) & F.col("anchor_ts").isNotNull()
        known = F.coalesce(counted, F.lit(False))
        return self._joined(self.since_anchors(events), self.begins()).filter(~known).select(*events.columns)

    def going_on(self, told: DataFrame) -> DataFrame:
        """`partitions.observations` of what came after anchors, with these before them; KRaft's are registrations among them."""
        by_zookeeper = self.anchors.filter(~kraft.by_kraft(self.kraft, "valid_from"))
        return self.since_anchors(told).unionByName(partitions.of_anchors(by_zookeeper))

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
        wide = F.col("topic").isNull() & (F.col("event_type") == "broker_started")
        of_all = F.col("partition").isNull() & F.col("of_topic").isNotNull()
        wanted = F.col("of_topic") | F.col("of_partition") | of_all | wide
        later = F.coalesce(F.col("ts") > F.col("anchor_ts"), F.lit(True))
        recorded = F.col("topic").isNull() & F.col("event_type").isin(*metadata_log.RECORDS)
        if self.since is not None:
            recent = F.col("ts").isNull() | (F.col("ts") > F.lit(self.since)) | wide | F.col("topic").isin(*self.unanchored)
            frame = frame.filter(recent if self.ids is None else recent | recorded)
        counting = self._may_count(frame)
        marked = self._joined(self._marked(counting), self.begins()).filter(F.coalesce(wanted, F.lit(False)) & later)
        told = marked.select(*frame.columns)
        if self.ids is None:
            return told
        named = counting.filter(recorded).drop("topic").join(F.broadcast(self.ids), ["cluster", "topic_id"])
        of_these = self._marked(named).filter(F.coalesce(F.col("of_topic") | F.col("of_partition") | of_all, F.lit(False)))
        nameless = [F.lit(None).cast("string").alias(name) if name == "topic" else F.col(name) for name in frame.columns]
        of_log = counting.filter(recorded & F.col("topic_id").isNull())
        return told.unionByName(of_these.select(*nameless)).unionByName(of_log)

    def of_deletions(self, frame: DataFrame) -> DataFrame:
        """Those rows, events or topics of which deletions are made anew."""
        marks = F.broadcast(self.deleted.select(*TOPIC))
        return self._may_count(frame).join(marks, list(TOPIC), "left_semi").select(*frame.columns)

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


def everywhere(before: DataFrame, now: DataFrame, new: DataFrame, *, in_kraft: Mapping[str, datetime | None]) -> frozenset[str]:
    """Clusters of which everything is made anew, for something that all their partitions share has changed.

    That is the order of files, the nodes that print replica states, and in KRaft what `kraft_changes.everywhere` says.
    before, now: `witnesses` of earlier runs and of all, new: recognised events that this run brought. in_kraft: as `night.kraft_begins`
    gives it.
    """
    tracing = replicas.tracing(now).join(replicas.tracing(before), ["cluster", "incarnation", "node"], "left_anti")
    changed = _in_another_order(order.files(before), order.files(now)).select("cluster").unionByName(tracing.select("cluster"))
    if in_kraft:
        of_kraft = F.expr(in_clusters(in_kraft))
        changed = changed.unionByName(kraft_changes.everywhere(*[rows.filter(of_kraft) for rows in (before, now, new)]))
    return frozenset(row.cluster for row in changed.distinct().collect())


def find(
    new: DataFrame, *, intervals: DataFrame, anchored: frozenset[str] = frozenset(), in_kraft: kraft_changes.Changes | None = None
) -> Touched:
    """What new events touch.

    new: recognised events that this run brought. intervals: `partition_timeline` so far. anchored: clusters whose history need not be read
    as a whole.
    """
    since = {} if in_kraft is None else in_kraft.since
    of_kraft = F.expr(in_clusters(since)) if since else F.lit(False)
    begun = order.earliest().alias("since")
    named = new.filter("topic IS NOT NULL")
    started = new.filter("event_type = 'broker_started' AND broker IS NOT NULL").groupBy("cluster", "broker").agg(begun)
    # a controller of KRaft that starts names every topic
    of_topic = F.col("partition").isNull() & (~of_kraft | F.col("event_type").isin(*kraft_changes.OF_TOPIC))
    whole = named.filter(of_topic).select(*TOPIC)
    deleted = deletions.signs(named).select(*TOPIC)
    told_epochs = named.filter("partition_epoch IS NOT NULL")
    if in_kraft is not None:
        started = started.unionByName(in_kraft.brokers)
        whole = whole.unionByName(in_kraft.whole_topics(new.filter(of_kraft)))
        deleted = deleted.unionByName(in_kraft.deleted_topics(new.filter(of_kraft)))
        more = kraft_changes.tells_more(told_epochs.filter(of_kraft), intervals)
        told_epochs = told_epochs.filter(~of_kraft).unionByName(more)
    held = intervals.select(*PARTITION, F.explode("replicas").alias("broker"))
    returned = held.join(F.broadcast(started), ["cluster", "broker"]).groupBy(*PARTITION).agg(F.min("since").alias("since"))
    of_partition = named.filter("partition IS NOT NULL").groupBy(*PARTITION).agg(begun)
    lowest = told_epochs.filter("partition IS NOT NULL").groupBy(*PARTITION).agg(F.min("partition_epoch").alias("lowest_epoch"))
    touched = of_partition.unionByName(returned).groupBy(*PARTITION).agg(F.min("since").alias("since"))
    touched = touched.join(lowest, list(PARTITION), "left").localCheckpoint()
    by_topic = whole.select(*TOPIC, F.lit(True).alias("whole")).unionByName(touched.select(*TOPIC, F.lit(False).alias("whole")))
    topics = by_topic.groupBy(*TOPIC).agg(F.bool_or("whole").alias("whole")).localCheckpoint()
    of_topics = topics.filter("whole").select(*TOPIC)
    # what changes an assignment in KRaft is counted from the creation of its partition on
    counted = named.filter(of_kraft & F.col("event_type").isin(*kraft.COUNTED)).select(*PARTITION).distinct()
    fit = touched.join(F.broadcast(of_topics), list(TOPIC), "left_anti").join(F.broadcast(counted), list(PARTITION), "left_anti")
    anchors = _anchors(intervals, fit, anchored, since)
    touched = touched.select(*PARTITION, "since")
    deleted = order.in_memory(deleted.distinct())
    names = _listed(topics.unionByName(deleted, allowMissingColumns=True))
    lacking = of_topics.unionByName(touched.join(F.broadcast(anchors), list(PARTITION), "left_anti").select(*TOPIC))
    unanchored = _listed(lacking)
    oldest = None if unanchored is None else anchors.agg(F.min("valid_from").alias("oldest")).first()
    recent = oldest.oldest if oldest is not None else None
    ids = in_kraft.lives.select(*TOPIC, "topic_id").distinct() if in_kraft is not None and in_kraft.has_metadata_log else None
    return Touched(since, topics, touched, deleted, anchors, recent, names, unanchored or frozenset(), ids)


def _listed(topics: DataFrame) -> frozenset[str] | None:
    """The names of topics, if they are few enough to be listed."""
    rows = topics.select("topic").distinct().limit(MOST_NAMES + 1).collect()
    return frozenset(row.topic for row in rows) if len(rows) <= MOST_NAMES else None


def _anchors(
    intervals: DataFrame, touched: DataFrame, clusters: frozenset[str], since: Mapping[str, datetime | None]
) -> DataFrame:
    """The last interval of each partition whose leader, ISR and epochs are known and were so before anything new, however clocks differ.

    In KRaft it has the assignment that the partition has ever since. in: `partition_timeline`; touched: cluster, topic, partition, since,
    lowest_epoch of what is new; since: as `night.kraft_begins` gives it. out: rows of intervals.
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
    held = intervals.filter(F.expr(in_clusters(clusters))).join(F.broadcast(touched), list(PARTITION))
    if since:
        of_kraft = F.expr(in_clusters(since))
        of_all = order.all_of(*order.PARTITION)
        assignment = F.struct(*kraft.ASSIGNMENT)
        newest = F.max_by(assignment, "step").over(of_all)
        moved = held.select("*", (~assignment.eqNullSafe(newest)).alias("moved"))
        held = moved.select("*", F.max(F.when(F.col("moved"), F.col("step"))).over(of_all).alias("moved_at"))
        stays = F.col("moved_at").isNull() | (F.col("step") > F.col("moved_at"))
        fits &= ~of_kraft | (stays & kraft.by_kraft(since, "valid_from"))
    last = F.max_by(F.struct(*intervals.columns), F.struct("incarnation", "step"))
    chosen = held.filter(fits & (F.col("source") == "logs")).groupBy(*PARTITION).agg(last.alias("chosen"))
    return chosen.select("chosen.*").localCheckpoint()
