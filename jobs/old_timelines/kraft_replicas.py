"""`replica_timeline` of KRaft clusters: a replica has no state of its own there, it stands as its broker's registration does.

BrokerRegistration and BrokerControlState (org.apache.kafka.controller): a broker is registered as fenced, is unfenced once it has
caught up, asks for a controlled shutdown, and is fenced again at its end or when its session times out. The names begin with
`KRaft`, so that nobody takes them for those of the ZooKeeper controller's state machine.
"""

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines.order import PARTITION, REPLICA, all_of, in_memory, neighbours, numbered_on, position, up_to_here

ONLINE, FENCED, LEAVING = "KRaftOnline", "KRaftFenced", "KRaftControlledShutdown"
UNREGISTERED, REMOVED = "KRaftUnregistered", "KRaftRemoved"
BROKER = ("cluster", "incarnation", "broker")
# what a controller prints again when it starts
REPLAYED = (
    "broker_registration_replayed", "broker_fencing_replayed", "broker_unfencing_replayed", "broker_registration_change_replayed",
    "broker_fenced_replayed", "broker_unfenced_replayed", "broker_unregistered",
)  # fmt: skip
REGISTERED = ("broker_registration_replayed", "register_broker_record")
# printed once, by the active controller
DECIDED = ("broker_unfenced", "broker_fenced", "controlled_shutdown_granted", "broker_shutdown_granted")
RECORDED = (
    "register_broker_record", "broker_fencing_record", "broker_unfencing_record", "registration_change_record",
    "fence_broker_record", "unfence_broker_record", "unregister_broker_record",
)  # fmt: skip
# all that `broker_states` rests on
TELLING = (*REPLAYED, *DECIDED, *RECORDED)


def _state() -> Column:
    """The state that an event about a broker shows; null where it changes something else."""
    return (
        F.when(F.col("event_type").isin("broker_unregistered", "unregister_broker_record"), UNREGISTERED)
        .when(F.col("fenced"), FENCED)
        .when(F.coalesce("in_controlled_shutdown", F.lit(False)), LEAVING)
        .when(~F.col("fenced"), ONLINE)
    )


def broker_states(events: DataFrame) -> DataFrame:
    """What the registration of every broker was.

    in: events of KRaft clusters with file_ts, or the `witnesses` among them. out: cluster, incarnation, broker, ts, seq, state, record_id: one row a change.
    A dump of the metadata log says it all. Else it is put together from the controllers: what they replay is numbered from the
    registration (its broker epoch) on, so that a starting controller's copy of it is known for what it is.
    """
    told = in_memory(
        events.filter(F.col("event_type").isin(*TELLING) & F.col("broker").isNotNull()).select(
            "*", _state().alias("state"), F.lit(1).alias("tie")
        )
    )
    dumped = in_memory(
        told.filter(F.col("event_type").isin(*RECORDED)).select(*BROKER, "ts", "metadata_offset", "state", "record_id")
    )
    clusters = F.broadcast(dumped.select("cluster", "incarnation").distinct())
    by_text = told.filter(F.col("event_type").isin(*REPLAYED, *DECIDED)).join(clusters, ["cluster", "incarnation"], "left_anti")

    on_node = up_to_here(*BROKER, "node", order=position())
    registrations = F.count_if(F.col("event_type").isin(*REGISTERED)).over(on_node)
    replayed = by_text.filter(F.col("event_type").isin(*REPLAYED)).select("*", registrations.alias("registration"))
    since = up_to_here(*BROKER, "node", "registration", order=position())
    numbered = replayed.select(
        "*", F.row_number().over(since).alias("number"), F.max("broker_epoch").over(since).alias("registered_with")
    )
    once = (
        numbered.filter("registration > 0")
        .groupBy(*BROKER, "registered_with", "number")
        .agg(F.min("ts").alias("ts"), F.min_by("state", "ts").alias("state"), F.min_by("record_id", "ts").alias("record_id"))
    )
    from_later = up_to_here(*BROKER, order=[F.desc("registered_with"), F.desc("number")])
    known = once.select(
        *BROKER, F.min("ts").over(from_later).alias("ts"), (F.col("registered_with") * 1000 + F.col("number")).alias("metadata_offset"),
        "state", "record_id",
    )  # fmt: skip
    # a node whose log begins after the registration has not been started since
    later = numbered.filter("registration = 0").unionByName(
        by_text.filter(F.col("event_type").isin(*DECIDED)).select(
            "*", *[F.lit(0).alias(name) for name in ("registration", "number")], F.col("broker_epoch").alias("registered_with")
        )
    )
    single = later.select(*BROKER, "ts", F.lit(None).cast("bigint").alias("metadata_offset"), "state", "record_id")
    together = dumped.unionByName(known).unionByName(single).filter("state IS NOT NULL")
    in_log = [F.asc_nulls_first("ts"), F.asc_nulls_last("metadata_offset"), F.asc("record_id")]
    before = F.lag("state").over(neighbours(*BROKER, order=in_log))
    changes = together.select("*", (~before.eqNullSafe(F.col("state"))).alias("changed")).filter("changed")
    return changes.select(
        *BROKER, "ts", F.row_number().over(up_to_here(*BROKER, order=in_log)).alias("seq"), "state", "record_id"
    )


def timeline(events: DataFrame, partition_timeline: DataFrame, going_on: tuple[DataFrame, DataFrame] | None = None) -> DataFrame:
    """The intervals.

    in: events of KRaft clusters, or the `witnesses` among them, with file_ts; the rows of `partition_timeline` since they are such; going_on:
    as `replicas.timeline` takes it. out: the columns of `replica_timeline` but in_isr. Every row is inferred: no line names the
    state of a replica.
    """
    rows = partition_timeline.filter("replicas IS NOT NULL OR state = 'NonExistentPartition'")
    held = F.when(F.col("replicas").isNotNull(), F.col("replicas"))
    ever = in_memory(rows.select(*PARTITION, F.explode(held).alias("replica")).distinct())
    assigned = rows.join(ever, list(PARTITION)).select(
        *REPLICA, F.col("valid_from").alias("ts"), F.lit(0).alias("kind"), F.col("step").alias("seq"),
        F.coalesce(F.array_contains("replicas", F.col("replica")), F.lit(False)).alias("member"),
        F.lit(False).alias("was_member"), F.lit(None).cast("string").alias("broker_state"), "record_id",
    )  # fmt: skip
    states = broker_states(events).withColumnRenamed("broker", "replica")
    if going_on is not None:
        states = states.select("*", F.lead("ts").over(neighbours(*BROKER[:-1], "replica", order=[F.asc("seq")])).alias("until"))
    stood = states.join(ever, ["cluster", "incarnation", "replica"])
    if going_on is not None:
        # of what was before an anchor the last one counts
        marked = stood.join(F.broadcast(going_on[0]), list(PARTITION), "left")
        lasts = F.coalesce(F.col("until").isNull() | (F.col("until") > F.col("anchor_ts")), F.lit(True))
        stood = marked.filter(lasts).withColumn("ts", F.when(F.col("ts").isNotNull(), F.greatest("ts", "anchor_ts")))
    of_brokers = stood.select(
        *REPLICA, "ts", F.lit(1).alias("kind"), "seq", F.lit(None).cast("boolean").alias("member"),
        F.lit(False).alias("was_member"), F.col("state").alias("broker_state"), "record_id",
    )  # fmt: skip
    told = assigned.unionByName(of_brokers)
    if going_on is not None:
        told = told.unionByName(_begun(going_on[1]))
    order = [F.asc_nulls_first("ts"), F.asc("kind"), F.asc("seq")]
    so_far = up_to_here(*REPLICA, order=order)
    filled = told.select(
        *REPLICA, "ts", "kind", "seq", "record_id",
        F.last("member", ignorenulls=True).over(so_far).alias("member"),
        F.max(F.col("was_member") | F.coalesce("member", F.lit(False))).over(so_far).alias("was_member"),
        F.last("broker_state", ignorenulls=True).over(so_far).alias("broker_state"),
    )  # fmt: skip
    state = F.when(F.col("member"), F.col("broker_state")).when(F.col("was_member"), REMOVED)
    told = filled.select("*", state.alias("state")).filter("state IS NOT NULL")
    among = neighbours(*REPLICA, order=order)
    changed = told.select("*", (~F.lag("state").over(among).eqNullSafe(F.col("state"))).alias("changed")).filter("changed")
    intervals = changed.select(
        *REPLICA,
        F.row_number().over(up_to_here(*REPLICA, order=order)).alias("step"),
        F.col("ts").alias("valid_from"),
        F.lead("ts").over(among).alias("valid_to"),
        "state",
        F.lit(True).alias("inferred"),
        "record_id",
    )
    return intervals if going_on is None else numbered_on(intervals, going_on[1], *REPLICA)


def _begun(held: DataFrame) -> DataFrame:
    """Intervals of replicas that a timeline goes on from, as rows before all others."""
    member = F.col("state") != REMOVED
    return held.select(
        *REPLICA, F.col("valid_from").alias("ts"), F.lit(-1).alias("kind"), F.lit(0).alias("seq"), member.alias("member"),
        F.lit(True).alias("was_member"), F.when(member, F.col("state")).alias("broker_state"), "record_id",
    )  # fmt: skip


def after_zookeeper(before: DataFrame, since_kraft: DataFrame, since: Mapping[str, datetime | None]) -> DataFrame:
    """One timeline of both modes: what the ZooKeeper controller's machine said last ends where KRaft begins.

    in: timelines without in_isr. since: cluster -> when it became one, None where it always was one.
    """
    if not any(since.values()):
        return before.unionByName(since_kraft)
    both = before.select("*", F.lit(0).alias("mode")).unionByName(since_kraft.select("*", F.lit(1).alias("mode")))
    order = [F.asc("mode"), F.asc("step")]
    steps_before = F.coalesce(F.max(F.when(F.col("mode") == 0, F.col("step"))).over(all_of(*REPLICA)), F.lit(0))
    return both.select(
        *REPLICA,
        (F.col("step") + F.when(F.col("mode") == 1, steps_before).otherwise(0)).alias("step"),
        "valid_from",
        F.coalesce("valid_to", F.lead("valid_from").over(neighbours(*REPLICA, order=order))).alias("valid_to"),
        "state",
        "inferred",
        "record_id",
    )
