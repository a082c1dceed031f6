"""Registrations of partitions from the records of a KRaft metadata log: the truth itself, where somebody has dumped it."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from jobs.old_timelines.kraft import LIFE, TOPIC, VALUES
from jobs.old_timelines.order import PARTITION, in_memory, no_ids, up_to_here

# as `events` has it
LOGGER = "__cluster_metadata"
RECORDS = (
    "partition_record",
    "partition_change_record",
    "clear_elr_record",
    "topic_record",
    "remove_topic_record",
    "snapshot_header_record",
)
ONE = ("cluster", "topic_id", "partition")
STATED = ("replicas", "adding_replicas", "removing_replicas", "isr", "leader", "elr", "last_known_elr")


def _with_snapshots_placed(records: DataFrame) -> DataFrame:
    """Adds `at` DOUBLE, the place of a record in the log: its offset.

    A snapshot numbers its records from 0; they stand for the log up to the last record that it covers. Where the log itself
    holds the creation of a partition, the snapshot of it says nothing new.
    """
    headers = records.filter("event_type = 'snapshot_header_record'").groupBy("cluster", "file").agg(
        F.max(F.timestamp_millis(F.col("text").try_cast("bigint"))).alias("covered_to")
    )  # fmt: skip
    told = records.join(F.broadcast(headers), ["cluster", "file"], "left")
    logged = told.filter("covered_to IS NULL").select(*records.columns, F.col("metadata_offset").cast("double").alias("at"))
    ends = (
        logged.select("cluster", "metadata_offset", F.col("ts").alias("logged_ts"))
        .join(F.broadcast(headers), "cluster")
        .filter("logged_ts <= covered_to")
        .groupBy("cluster", "file")
        .agg(F.max("metadata_offset").alias("end"))
    )
    created = logged.filter("event_type = 'partition_record'").select(*ONE).distinct()
    covered = told.filter("covered_to IS NOT NULL").join(ends, ["cluster", "file"], "left")
    named = covered.filter("event_type = 'topic_record'")
    unknown = covered.filter("event_type = 'partition_record'").join(created, list(ONE), "left_anti")
    held = named.unionByName(unknown).select(*records.columns, (F.coalesce("end", F.lit(-1)) + 0.5).cast("double").alias("at"))
    return logged.unionByName(held)


def registrations(events: DataFrame) -> DataFrame:
    """What holds after every record that changes a partition, as PartitionRegistration.merge() and the ReplicationControlManager do it.

    in: events with incarnation. out: cluster, incarnation, topic, topic_id, partition, at (place in the log), ts, record_id,
    event_type, leader, leader_epoch, isr, partition_epoch, replicas, adding_replicas, removing_replicas, deleted.
    Partition epochs and leader epochs are counted from the PartitionRecord on: one more with each change, and with each that
    names a leader. ClearElrRecord (KIP-966) changes the partitions that have an ELR. Partitions whose creation is not in the log,
    nor in a snapshot given with it, are left out.
    """
    records = in_memory(_with_snapshots_placed(in_memory(events.filter(F.col("event_type").isin(*RECORDS)))))
    names = in_memory(
        records.filter("event_type = 'topic_record'").groupBy("cluster", "topic_id").agg(F.first("topic").alias("topic"))
    )
    own = ["incarnation", "at", "ts", "record_id", "event_type"]
    said = records.filter("event_type IN ('partition_record', 'partition_change_record')").select(
        *ONE, *own, *STATED, "leader_epoch", "partition_epoch"
    )
    known = (
        said.filter("event_type = 'partition_record'")
        .groupBy(*ONE)
        .agg(F.min("at").alias("since"))
        .join(names, ["cluster", "topic_id"])
    )
    nothing = [
        F.lit(None).cast("int" if name in {"leader", "leader_epoch", "partition_epoch"} else "array<int>").alias(name)
        for name in (*STATED, "leader_epoch", "partition_epoch")
        if name not in {"elr", "last_known_elr"}
    ]
    removed = records.filter("event_type = 'remove_topic_record'").select(
        "cluster", "topic_id", *own, "elr", "last_known_elr", *nothing
    )
    cleared = records.filter("event_type = 'clear_elr_record'").select(
        "cluster", F.col("topic").alias("cleared_topic"), *own, "elr", "last_known_elr", *nothing
    )
    of_all = (
        cleared.join(known, "cluster")
        .filter("(cleared_topic IS NULL OR cleared_topic = topic) AND since < at")
        .select(*said.columns)
    )
    ended = removed.join(known.select(*ONE), ["cluster", "topic_id"]).select(*said.columns)
    together = said.unionByName(of_all).unionByName(ended)

    in_log = [F.asc("at")]
    before = Window.partitionBy(*ONE).orderBy(*in_log).rowsBetween(Window.unboundedPreceding, -1)
    had_elr = [F.coalesce(F.size(F.last(name, ignorenulls=True).over(before)), F.lit(0)) for name in ("elr", "last_known_elr")]
    base = F.col("event_type") == "partition_record"
    counted = together.select(
        "*", F.count_if(base).over(up_to_here(*ONE, order=in_log)).alias("base_no"), (had_elr[0] + had_elr[1]).alias("had_elr")
    )
    changing = F.col("event_type").isin("partition_record", "partition_change_record") | (
        (F.col("event_type") == "clear_elr_record") & (F.col("had_elr") > 0)
    )
    deleted = F.col("event_type") == "remove_topic_record"
    effective = counted.select("*", changing.alias("changing"), deleted.alias("deleted")).filter(
        "base_no > 0 AND (changing OR deleted)"
    )
    since_base = up_to_here(*ONE, "base_no", order=in_log)
    led = F.count_if(F.col("leader").isNotNull()).over(since_base)
    merged = effective.select(
        *ONE, *own, "deleted",
        (F.first("partition_epoch").over(since_base) + F.count_if("changing").over(since_base) - 1).cast("int").alias("partition_epoch"),
        (F.first("leader_epoch").over(since_base) + led - 1).cast("int").alias("leader_epoch"),
        *[F.last(name, ignorenulls=True).over(since_base).alias(name) for name in ("leader", "isr", "replicas")],
        *[
            F.coalesce(F.last(name, ignorenulls=True).over(since_base), no_ids()).alias(name)
            for name in ("adding_replicas", "removing_replicas")
        ],
    )  # fmt: skip
    values = ("leader", "leader_epoch", "isr", "partition_epoch", "replicas", "adding_replicas", "removing_replicas")
    return merged.join(F.broadcast(names), ["cluster", "topic_id"]).select(
        "cluster", "incarnation", "topic", "topic_id", "partition", *[name for name in own if name != "incarnation"], "deleted",
        *[F.when(~F.col("deleted"), F.col(name)).alias(name) for name in values],
    )  # fmt: skip


def in_sequence(registered: DataFrame, lives: DataFrame) -> DataFrame:
    """The registrations as `partitions.of_kraft` takes them.

    in: `registrations`; `kraft.topic_lives`. The clocks of two controllers may differ: no registration begins before the one
    before it.
    """
    named = registered.join(F.broadcast(lives.select(*TOPIC, "topic_id", "topic_life")), [*TOPIC, "topic_id"])
    in_life = up_to_here(*LIFE, order=[F.asc("at")])
    in_log = up_to_here(*PARTITION, order=[F.asc("topic_life"), F.asc("at")])
    return named.select(
        *LIFE, F.row_number().over(in_life).alias("seq"), F.max("ts").over(in_log).alias("ts"), "record_id",
        *VALUES, "partition_epoch", "deleted", F.lit("metadata_log").alias("source"),
    )  # fmt: skip
