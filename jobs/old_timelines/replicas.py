"""`replica_timeline`: in which state the controller held every replica.

Where the log prints `Changed state of replica` (state.change.logger at TRACE: the default up to 2.5), that is it. From 2.6 on the
default is INFO, and the states follow from other lines of the controller.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines.order import PARTITION, REPLICA, in_memory, neighbours, numbered_on, position, up_to_here

# events that tell about replicas through the assignment of the moment
TELLING = ("partition_online", "reassignment_caught_up", "deletion_completed", "broker_started")
PLACE = ("ts", "node", "log", "file_ts", "file", "record_no", "item", "tie", "record_id")


def _is_change() -> Column:
    """Whether an event prints the state of a replica: an applied change, or the map that a starting controller prints."""
    printed = F.col("event_type").isNotNull() & F.col("replica").isNotNull() & F.col("partition").isNotNull()
    applied = (F.col("event_type") == "replica_state_changed") & (F.col("says") == "happened")
    found = (F.col("says") == "is") & F.col("to_state").isNotNull()
    return printed & (applied | found)


def changes(events: DataFrame) -> DataFrame:
    """Replica states that lines print.

    in: events with file_ts. out: cluster, incarnation, topic, partition, replica, ts .. node, from_state, state, inferred.
    """
    return (
        events.filter(_is_change())
        .select("*", F.lit(1).alias("tie"))
        .select(*REPLICA, *PLACE, "from_state", F.col("to_state").alias("state"), F.lit(False).alias("inferred"))
    )


def is_trace() -> Column:
    """Whether an event shows that its node prints replica states."""
    return _is_change() & F.col("from_state").isNotNull()


def tracing(events: DataFrame) -> DataFrame:
    """cluster, incarnation, node: those that print replica states. They print all of them."""
    return events.filter(is_trace()).select("cluster", "incarnation", "node").distinct()


def _goes(state: str, replicas: str) -> Column:
    """ARRAY<STRUCT<replica, state>> of the replicas in a column (an id or a list of ids)."""
    ids = F.col(replicas) if replicas.endswith("s") else F.array(F.col(replicas))
    return F.transform(ids, _struct_of(state))


def _chosen(cases: dict[str, Column]) -> Column:
    """The states that an event of a type shows; null for all other types."""
    chosen: Column | None = None
    for event_type, states in cases.items():
        applies = F.col("event_type") == event_type
        chosen = F.when(applies, states) if chosen is None else chosen.when(applies, states)
    assert chosen is not None
    return chosen


def _named() -> dict[str, Column]:
    """event_type -> states of the replicas that the line names.

    Read off kafka.controller.* (2.6 .. 3.9): what the controller does with replicas beside the line that it prints.
    onNewPartitionCreation makes the replicas with the partition; `after removing replica` is printed while that replica goes offline;
    a reassignment makes its added replicas when it begins (A2); the rest is the TopicDeletionManager's.
    """
    return {
        "partition_new": _goes("NewReplica", "replicas"),
        "isr_shrunk": _goes("OfflineReplica", "replica"),
        "assignment_updated": _goes("NewReplica", "adding_replicas"),
        "deletion_dead_replicas": _goes("ReplicaDeletionIneligible", "replica"),
        "deletion_failed": _goes("ReplicaDeletionIneligible", "replica"),
        "deletion_retried": _goes("OfflineReplica", "replica"),
        "deletion_succeeded": _goes("ReplicaDeletionSuccessful", "replica"),
    }


def _inferred(silent: DataFrame, assigned: DataFrame) -> DataFrame:
    """Replica states that follow from lines which do not print them.

    silent: events of nodes that print no replica states. assigned: cluster, incarnation, topic, partition, from_ts, to_ts, replicas,
    adding_replicas, removing_replicas. out: cluster, incarnation, topic, partition, PLACE, replica, state.
    """
    place = [F.col(name) for name in PLACE]
    named = silent.filter("partition IS NOT NULL").select(*PARTITION, *place, F.explode(_chosen(_named())).alias("one"))

    # the replicas that a line does not list are those assigned at that moment
    begun = F.col("from_ts") <= F.col("ts")
    lasting = F.col("to_ts").isNull() | (F.col("ts") < F.col("to_ts"))
    created = (F.col("event_type") == "partition_online") & (F.col("from_state") == "NewPartition")
    caught_up = F.col("event_type") == "reassignment_caught_up"
    of_partition = silent.filter(created | caught_up).select(*PARTITION, *place, "event_type")
    online = F.when(F.col("event_type") == "partition_online", F.col("replicas")).otherwise(F.col("adding_replicas"))
    went_online = (
        of_partition.join(assigned, list(PARTITION))
        .filter(begun & lasting)
        .select(*PARTITION, *place, F.explode(F.transform(online, _struct_of("OnlineReplica"))).alias("one"))
    )
    # the old replicas are gone when the assignment without them is written
    finished = silent.filter("event_type = 'assignment_updated' AND size(adding_replicas) + size(removing_replicas) = 0")
    ended_here = (F.col("from_ts") < F.col("ts")) & (F.col("to_ts") >= F.col("ts")) & (F.size("removing_replicas") > 0)
    left_behind = finished.select(*PARTITION, *place, F.col("replicas").alias("remaining")).join(assigned, list(PARTITION))
    gone = F.transform(F.array_except("removing_replicas", "remaining"), _struct_of("NonExistentReplica"))
    removed = left_behind.filter(ended_here).select(*PARTITION, *place, F.explode(gone).alias("one"))

    topic = ["cluster", "incarnation", "topic"]
    deleted = silent.filter("event_type = 'deletion_completed'").select(*topic, *place).join(assigned, topic)
    # a deletion's own record ends the interval that it ends
    up_to = F.col("to_ts").isNull() | (F.col("ts") <= F.col("to_ts"))
    erased = deleted.filter((F.col("from_ts") < F.col("ts")) & up_to).select(
        *PARTITION, *place, F.explode(F.transform("replicas", _struct_of("NonExistentReplica"))).alias("one")
    )
    started = silent.filter("event_type = 'broker_started' AND broker IS NOT NULL")
    joined = started.select("cluster", "incarnation", *place, "broker").join(assigned, ["cluster", "incarnation"])
    holds = F.array_contains("replicas", F.col("broker")) & ~F.array_contains("adding_replicas", F.col("broker"))
    returned = joined.filter(begun & lasting & holds).select(
        *PARTITION, *place, F.struct(F.col("broker").alias("replica"), F.lit("OnlineReplica").alias("state")).alias("one")
    )
    together = named.unionByName(went_online).unionByName(removed).unionByName(erased).unionByName(returned)
    return together.select(*PARTITION, *place, "one.replica", "one.state")


def _struct_of(state: str) -> Callable[[Column], Column]:
    return lambda one: F.struct(one.alias("replica"), F.lit(state).alias("state"))


def _going_on(changes: DataFrame, begins: DataFrame, held: DataFrame) -> DataFrame:
    """Changes after the moments from which timelines go on, with what was held then as the first of them."""
    later = F.coalesce(F.col("ts") > F.col("anchor_ts"), F.lit(True))
    after = changes.join(F.broadcast(begins), list(PARTITION), "left").filter(later).select(*changes.columns)
    kinds = {field.name: field.dataType for field in changes.schema.fields}
    given = {"ts": F.col("valid_from"), "tie": F.lit(0)} | {
        name: F.col(name) for name in (*REPLICA, "state", "inferred", "record_id")
    }
    return after.unionByName(held.select(*[given.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()]))


def timeline(
    events: DataFrame,
    partition_timeline: DataFrame,
    tracers: DataFrame,
    going_on: tuple[DataFrame, DataFrame] | None = None,
) -> DataFrame:
    """The intervals.

    in: events with file_ts; the rows of `partition_timeline`; `tracing`. out: the columns of `replica_timeline` but in_isr.
    going_on: moments from which the timelines of partitions are made (cluster, incarnation, topic, partition, anchor_ts), and the rows
    of `replica_timeline` that held then.
    Nothing is inferred from the other lines of a node that prints replica states.
    """
    said = changes(events)
    telling = events.filter(F.col("event_type").isin(*_named(), *TELLING)).select("*", F.lit(1).alias("tie"))
    silent = telling.join(F.broadcast(tracers), ["cluster", "incarnation", "node"], "left_anti")
    assigned = partition_timeline.filter("replicas IS NOT NULL AND valid_from IS NOT NULL").select(
        *PARTITION, F.col("valid_from").alias("from_ts"), F.col("valid_to").alias("to_ts"),
        "replicas", "adding_replicas", "removing_replicas",
    )  # fmt: skip
    inferred = _inferred(in_memory(silent), assigned).select(
        *REPLICA, *PLACE, F.lit(None).cast("string").alias("from_state"), "state", F.lit(True).alias("inferred")
    )
    together = said.unionByName(inferred)
    if going_on is not None:
        together = _going_on(together, *going_on)
    so_far = up_to_here(*REPLICA, order=position())
    ordered = together.select("*", F.row_number().over(so_far).cast("double").alias("pos"))
    # the first line may tell what was before it
    before = ordered.filter("pos = 1 AND from_state IS NOT NULL AND from_state <> 'NonExistentReplica'").select(
        *REPLICA, F.lit(0.0).alias("pos"), F.lit(None).cast("timestamp").alias("ts"), F.col("from_state").alias("state"),
        F.lit(True).alias("inferred"), "record_id",
    )  # fmt: skip
    rows = ordered.select(*REPLICA, "pos", "ts", "state", "inferred", "record_id").unionByName(before)
    in_replica = neighbours(*REPLICA)
    changed = ~F.col("state").eqNullSafe(F.lag("state").over(in_replica))
    kept = rows.select("*", changed.alias("changed")).filter("changed")
    intervals = kept.select(
        *REPLICA,
        F.row_number().over(up_to_here(*REPLICA)).alias("step"),
        F.col("ts").alias("valid_from"),
        F.lead("ts").over(in_replica).alias("valid_to"),
        "state", "inferred", "record_id",
    )  # fmt: skip
    if going_on is None:
        return intervals
    _, held = going_on
    return numbered_on(intervals, held, *REPLICA)


def with_isr(intervals: DataFrame, partition_timeline: DataFrame) -> DataFrame:
    """Whether the replica was in the ISR at the end of its interval, from the partition's interval of that moment."""
    isrs = partition_timeline.filter("isr IS NOT NULL").select(
        *PARTITION, F.col("valid_from").alias("from_ts"), F.col("valid_to").alias("to_ts"), "isr"
    )
    end = F.col("valid_to")
    begun = F.col("from_ts").isNull() | end.isNull() | (F.col("from_ts") < end)
    lasting = F.col("to_ts").isNull() | (end.isNotNull() & (F.col("to_ts") >= end))
    dated = F.col("valid_from").isNotNull() | end.isNotNull() | F.col("to_ts").isNull()
    matched = (
        intervals.select(*REPLICA, "step", "valid_from", "valid_to")
        .join(isrs, list(PARTITION))
        .filter(begun & lasting & dated)
        .groupBy(*REPLICA, "step")
        .agg(F.max_by("isr", F.coalesce("from_ts", F.lit("1970-01-01").cast("timestamp"))).alias("isr"))
    )
    return intervals.join(matched, [*REPLICA, "step"], "left").select(
        *REPLICA, "step", "valid_from", "valid_to", "state", F.array_contains("isr", F.col("replica")).alias("in_isr"),
        "inferred", "record_id",
    )  # fmt: skip
