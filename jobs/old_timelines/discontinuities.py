"""`discontinuities`: where a line names another state to begin with than the one before it left, and why.

The state machines print every change at TRACE, so a break means that something was not heard: a new controller begins with what it finds
in ZooKeeper, a wiped cluster with nothing, and everything else is lines that are not there.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.old_timelines.order import PARTITION, REPLICA, earliest, elects, in_memory, neighbours, position, up_to_here

TOPIC = ("cluster", "incarnation", "topic")
NODE = ("cluster", "node")
# of a topic, whatever life its cluster is in
NAME = ("cluster", "topic")
NOWHERE = ("NonExistentPartition", "NonExistentReplica")
# in one batch of a controller all partitions of a new cluster are created
ONE_BATCH = "INTERVAL 60 SECONDS"


def lines(events: DataFrame) -> DataFrame:
    """Those events that leave a partition or replica in a state, or end the deletion of a topic.

    in: events. out: the same and left STRING, deleted BOOLEAN.
    """
    about = F.col("topic").isNotNull() & F.col("partition").isNotNull()
    # `after removing replica 3 .. as part of transition to OfflineReplica` is printed on the way and names no state before
    change = (F.col("says") == "happened") & F.col("from_state").isNotNull()
    left = F.when(change | (F.col("says") == "is"), F.col("to_state")).when(F.col("says") == "failed", F.col("from_state"))
    deleted = F.col("event_type") == "deletion_completed"
    told = (about & left.isNotNull()) | (deleted & F.col("topic").isNotNull())
    return events.filter(told).select("*", left.alias("left"), deleted.alias("deleted"))


def last_lines(events: DataFrame) -> DataFrame:
    """What later breaks are found by: the last line of each replica, of each partition with an epoch, and of each topic's deletions.

    in and out: events in order.
    """
    dated = F.col("controller_epoch").isNotNull() & ~F.col("deleted")

    def place(keys: tuple[str, ...], *kind: Column) -> Column:
        return F.row_number().over(Window.partitionBy(*keys, *kind).orderBy(*position(backwards=True)))

    placed = lines(events).select("*", F.lit(1).alias("tie")).select(
        "*", dated.alias("dated"),
        place(REPLICA, F.col("deleted")).alias("of_replica"), place(PARTITION, dated).alias("of_partition"),
    )  # fmt: skip
    chosen = (F.col("of_replica") == 1) | (F.col("dated") & (F.col("of_partition") == 1))
    return placed.filter(chosen).select(*events.columns)


def breaks(events: DataFrame) -> DataFrame:
    """Lines whose state to begin with is not the one that is held.

    in: events with file_ts. out: REPLICA (replica null: the partition itself), at, node, controller_epoch, level, from_state,
    record_id; of the line before: held_state, held_since, held_from, held_epoch, held_node, held_record_id; known_epoch: the newest
    controller epoch that the partition's lines before name.
    """
    in_topic = up_to_here(*TOPIC, order=position())
    told = lines(events).select("*", F.lit(1).alias("tie"))
    numbered = told.select("*", F.row_number().over(in_topic).alias("pos"))
    with_deletions = numbered.select(
        *REPLICA, "pos", F.col("ts").alias("at"), "node", "controller_epoch", "level", "from_state", "record_id",
        "left", "deleted",
        F.max(F.when(F.col("deleted"), F.col("pos"))).over(up_to_here(*TOPIC)).alias("deleted_pos"),
    ).filter("NOT deleted")  # fmt: skip
    before = neighbours(*REPLICA)
    so_far = Window.partitionBy(*PARTITION).orderBy("pos").rowsBetween(Window.unboundedPreceding, -1)
    held = with_deletions.select(
        "*",
        F.lag("left").over(before).alias("held_state"),
        F.lag("at").over(before).alias("held_since"),
        F.lag("from_state").over(before).alias("held_from"),
        F.lag("pos").over(before).alias("held_pos"),
        F.lag("record_id").over(before).alias("held_record_id"),
        F.lag("controller_epoch").over(before).alias("held_epoch"),
        F.lag("node").over(before).alias("held_node"),
        F.last("controller_epoch", ignorenulls=True).over(so_far).alias("known_epoch"),
    )
    created_again = F.col("from_state").isin(*NOWHERE) & F.coalesce(F.col("deleted_pos") > F.col("held_pos"), F.lit(False))
    return held.filter((F.col("from_state") != F.col("held_state")) & ~created_again)


def _logged_hours(events: DataFrame) -> DataFrame:
    """cluster, node, traced ARRAY<TIMESTAMP>, logged ARRAY<TIMESTAMP>: hours in which a node wrote state changes, at TRACE and at all."""
    hour = F.date_trunc("hour", "ts")
    lines = events.filter(F.col("ts").isNotNull() & F.col("logger").endswith("state.change.logger"))
    return lines.groupBy(*NODE).agg(
        F.collect_set(F.when(F.col("level") == "TRACE", hour)).alias("traced"), F.collect_set(hour).alias("logged")
    )


def _elections(events: DataFrame) -> DataFrame:
    """cluster, incarnation, elections ARRAY<TIMESTAMP>."""
    return events.filter(elects()).groupBy("cluster", "incarnation").agg(F.collect_set("ts").alias("elections"))


def _caused(found: DataFrame, hours: DataFrame, elections: DataFrame) -> DataFrame:
    """Breaks with their cause. found: `breaks`; hours: `_logged_hours`; elections: `_elections`."""
    created = F.col("from_state").isin(*NOWHERE)
    epoch, known = F.col("controller_epoch"), F.col("known_epoch")
    # the epoch of controllers only grows; nobody deletes an internal topic, and the log of the same controller would show a deletion
    undeletable = F.col("topic").startswith("__") | ((F.col("node") == F.col("held_node")) & (F.col("level") == "TRACE"))
    begins_anew = F.coalesce(epoch < known, F.lit(False)) | (
        created & undeletable & F.coalesce(epoch <= known, epoch == 1, F.lit(False))
    )
    marked = found.select("*", begins_anew.alias("begins_anew"))
    wipes = (
        marked.filter("begins_anew").groupBy("cluster", "incarnation").agg(F.array_distinct(F.collect_list("at")).alias("wipes"))
    )

    def since_held(moment: Column) -> Column:
        return (moment > F.col("held_since")) & (moment <= F.col("at") + F.expr(ONE_BATCH))

    def begun_since(election: Column) -> Column:
        return (election > F.col("held_since")) & (election <= F.col("at"))

    duplicate = (F.col("at") == F.col("held_since")) & (F.col("from_state") == F.col("held_from"))
    wiped = F.col("begins_anew") | (created & F.exists("wipes", since_held))
    first, last = F.date_trunc("hour", "held_since"), F.date_trunc("hour", "at")
    between = F.sequence(first + F.expr("INTERVAL 1 HOUR"), last - F.expr("INTERVAL 1 HOUR"), F.expr("INTERVAL 1 HOUR"))
    whole_hours = F.when(last > first + F.expr("INTERVAL 1 HOUR"), between)
    silent = F.size(F.array_except(whole_hours, "logged")) > 0
    # at INFO neither a partition that goes offline nor one that goes away is printed, nor any change of a replica
    below = (F.col("level") != "TRACE") | (F.size(F.array_except(F.array_intersect(whole_hours, "logged"), "traced")) > 0)
    # the map that a starting controller prints does not name its epoch
    another = (epoch > F.col("held_epoch")) | (F.col("held_epoch").isNull() & F.exists("elections", begun_since))
    cause = (
        F.when(duplicate, "duplicate")
        .when(wiped, "wiped_cluster")
        .when(another, "other_controller")
        .when(below, "level")
        .when(silent, "hours_without_file")
        .otherwise("file_missing")
    )
    return (
        marked.join(F.broadcast(wipes), ["cluster", "incarnation"], "left")
        .join(F.broadcast(elections), ["cluster", "incarnation"], "left")
        .join(F.broadcast(hours), list(NODE), "left")
        .select("*", cause.alias("cause"))
    )


def of_topics(rows: DataFrame, topics: DataFrame | None) -> DataFrame:
    """Those events or rows of `discontinuities` that name one of these topics; None: all."""
    if topics is None:
        return rows
    return rows.join(F.broadcast(topics.select(*NAME)), list(NAME), "left_semi").select(*rows.columns)


@dataclass(frozen=True)
class Since:
    """What is known when lines come after others. then: `last_lines` of before. new: events that came. gone: events that went."""

    then: DataFrame
    new: DataFrame
    gone: DataFrame

    def _until(self) -> DataFrame:
        """cluster, topic, until (of the last line), undated (lines without a time stamp)."""
        undated = F.count_if(F.col("ts").isNull()).alias("undated")
        return lines(self.then).groupBy(*NAME).agg(F.max("ts").alias("until"), undated)

    def to_read(self, held: DataFrame) -> DataFrame | None:
        """The topics whose whole history has to be looked through; None: all.

        held: rows of `discontinuities` of before. out: cluster, topic. What comes after a break does not change its cause, but for one
        batch of a controller; so it is the topics with lines that come late or at once after a break, or that went. Where a cluster was
        wiped, its topics show it to one another.
        """
        if not held.filter(F.col("cause") == "wiped_cluster").isEmpty():
            return None
        began = lines(self.new).groupBy(*NAME).agg(earliest().alias("since"))
        late = (
            began.join(self._until(), list(NAME))
            .filter((F.col("since") <= F.col("until")) | (F.col("undated") > 0))
            .select(*NAME)
        )
        first = self.new.agg(earliest().alias("first")).first()
        assert first is not None
        near = F.col("at").isNull() | (F.col("at") >= F.lit(first["first"]) - F.expr(ONE_BATCH))
        gone = lines(self.gone).select(*NAME)
        return in_memory(late.unionByName(held.filter(near).select(*NAME)).unionByName(gone).distinct())

    def breaks(self, events: DataFrame, topics: DataFrame | None) -> DataFrame:
        """`breaks` that the new lines show, and of the topics `to_read` all. events: of all time."""
        again = breaks(of_topics(events, topics))
        if topics is None:
            return again
        others = breaks(self.then.unionByName(self.new)).join(F.broadcast(topics), list(NAME), "left_anti")
        later = F.col("until").isNull() | (F.col("at") > F.col("until"))
        return again.unionByName(others.join(self._until(), list(NAME), "left").filter(later).select(*again.columns))


def discontinuities(found: DataFrame, events: DataFrame) -> DataFrame:
    """One row a break.

    in: `breaks`; events in which they are. out: the columns of `discontinuities`.
    """
    found = found.localCheckpoint()
    oldest = found.agg(F.count("*").alias("count"), F.min(F.date_trunc("hour", "held_since")).alias("since")).first()
    assert oldest is not None
    # most logs have none, and nothing need be looked up then
    around = events.limit(0) if not oldest["count"] else events.filter(F.col("ts") >= F.lit(oldest["since"]))
    return _caused(found, _logged_hours(around), _elections(around)).select(
        *REPLICA, "at", "node", "controller_epoch", "held_state", "held_since", F.col("from_state").alias("found_state"), "cause",
        "record_id", "held_record_id",
    )  # fmt: skip
