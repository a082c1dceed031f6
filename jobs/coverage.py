"""`coverage`: what the logs of each node and hour can show."""

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.store import of_logs
from jobs.timelines.summary import METADATA_LOG

STATE_CHANGE = "state.change.logger"
QUORUM_CONTROLLER = "org.apache.kafka.controller.QuorumController"
# where a KRaft cluster's partitions and brokers stand: what its controllers replay, and a dump of what they replay
REPLAYED = ("org.apache.kafka.controller.ReplicationControlManager", METADATA_LOG)
HOUR = ("cluster", "node", "hour")
COUNTS = ("recognised", "unrecognised", "drifted", "out_of_scope")


@dataclass(frozen=True)
class Hours:
    """From the first to the last hour of some records. undated: there are some without a time stamp."""

    first: datetime | None
    last: datetime | None
    undated: bool

    @property
    def is_none(self) -> bool:
        """Whether there are no records."""
        return self.first is None and not self.undated

    def with_others(self, other: "Hours") -> "Hours":
        """From the first to the last hour of both."""
        firsts, lasts = ([at for at in some if at] for some in ((self.first, other.first), (self.last, other.last)))
        return Hours(min(firsts, default=None), max(lasts, default=None), self.undated or other.undated)

    def hold(self, moment: str) -> Column:
        """Whether the moment in a column is of these hours, or null. A range of its values, so that files can be skipped by it."""
        undated = F.col(moment).isNull() if self.undated else F.lit(False)
        if self.first is None:
            return undated
        to = F.lit(self.last) + F.expr("INTERVAL 1 HOUR")
        return ((F.col(moment) >= F.lit(self.first)) & (F.col(moment) < to)) | undated


def _counted(events: DataFrame, passed_over: DataFrame) -> DataFrame:
    """Records by node, hour, logger and what became of them, and how many each layout took."""
    layout = F.coalesce("layout", F.lit("-")).alias("layout")
    kept = of_logs(events).filter("item = 0").select(
        "cluster", "node", F.date_trunc("hour", "ts").alias("hour"), "logger", layout,
        F.col("event_type").isNotNull().cast("bigint").alias("recognised"),
        (F.col("event_type").isNull() & ~F.col("drifted")).cast("bigint").alias("unrecognised"),
        F.col("drifted").cast("bigint").alias("drifted"),
        F.lit(0).cast("bigint").alias("out_of_scope"),
        (F.col("level") == "TRACE").alias("trace"),
    )  # fmt: skip
    zero = F.lit(0).cast("bigint")
    others = passed_over.select(
        *HOUR, "logger", layout, zero.alias("recognised"), zero.alias("unrecognised"), zero.alias("drifted"),
        F.lit(1).cast("bigint").alias("out_of_scope"), F.lit(False).alias("trace"),
    )  # fmt: skip
    return (
        kept.unionByName(others)
        .groupBy(*HOUR, "logger", "layout")
        .agg(F.count("*").alias("records"), *[F.sum(name).alias(name) for name in COUNTS], F.max("trace").alias("trace"))
        .groupBy(*HOUR, "logger")
        .agg(
            *[F.sum(name).alias(name) for name in ("records", *COUNTS)],
            F.max("trace").alias("trace"),
            F.map_from_entries(F.array_sort(F.collect_list(F.struct("layout", "records")))).alias("layouts"),
        )
    )


def _hours_without_state_changes(counted: DataFrame) -> DataFrame:
    """Hours in which a node of the cluster has no state-change record: rows with no records, so that a gap can be seen."""
    of_cluster = (
        counted.filter("hour IS NOT NULL").groupBy("cluster").agg(F.min("hour").alias("first"), F.max("hour").alias("last"))
    )
    # a node that is a KRaft controller and no broker never writes one
    writes, controls = F.bool_or(F.col("logger") == STATE_CHANGE), F.bool_or(F.col("logger") == QUORUM_CONTROLLER)
    nodes = (
        counted.filter("node IS NOT NULL")
        .groupBy("cluster", "node")
        .agg((F.coalesce(writes, F.lit(False)) | ~F.coalesce(controls, F.lit(False))).alias("is_broker"))
        .filter("is_broker")
        .select("cluster", "node")
    )
    hours = of_cluster.select("cluster", F.explode(F.sequence("first", "last", F.expr("INTERVAL 1 HOUR"))).alias("hour"))
    present = counted.filter(F.col("logger") == STATE_CHANGE).select(*HOUR)
    zero = F.lit(0).cast("bigint")
    return (
        nodes.join(hours, "cluster")
        .join(present, list(HOUR), "left_anti")
        .select(
            *HOUR, F.lit(STATE_CHANGE).alias("logger"),
            *[zero.alias(name) for name in ("records", *COUNTS)],
            F.lit(False).alias("trace"), F.create_map().cast("map<string,bigint>").alias("layouts"),
        )
    )  # fmt: skip


def _counted_before(held: DataFrame) -> DataFrame:
    """As `_counted` gives it. held: rows of `coverage`."""
    trace = (F.col("logger") == STATE_CHANGE) & (F.col("replica_states") == "observed")
    return held.filter("records > 0").select(
        *HOUR, "logger", "records", *COUNTS, F.coalesce(trace, F.lit(False)).alias("trace"), "layouts"
    )


def coverage(events: DataFrame, passed_over: DataFrame, held: DataFrame | None = None, again: Hours | None = None) -> DataFrame:
    """One row a node, hour and logger.

    in: events and passed_over. out: the columns of `coverage`. held: its rows so far, of which only those of some hours
    are counted again.
    state.change.logger prints replica states at TRACE only (its default up to 2.5); at INFO they can be inferred. An hour without
    any of its records is `no_file` outside of the time that the node's file spans; inside, nothing happened.
    """
    if held is None or again is None:
        counted = _counted(events, passed_over).localCheckpoint()
    else:
        anew = _counted(events.filter(again.hold("ts")), passed_over.filter(again.hold("hour")))
        others = _counted_before(held.filter(~F.coalesce(again.hold("hour"), F.lit(False))))
        counted = anew.unionByName(others).localCheckpoint()
    rows = counted.unionByName(_hours_without_state_changes(counted))
    node = Window.partitionBy("cluster", "node")
    is_state_change = F.col("logger") == STATE_CHANGE
    has_records = is_state_change & (F.col("records") > 0)
    first, last = (pick(F.when(has_records, F.col("hour"))).over(node) for pick in (F.min, F.max))
    within = first.isNotNull() & F.col("hour").between(first, last)
    traces = F.max(is_state_change & F.col("trace")).over(node)
    tells = F.when(traces, "observed").otherwise("inferable")
    controls = F.col("logger").startswith("kafka.controller")
    replica_states = (
        F.when(is_state_change & F.col("trace"), "observed")
        .when(has_records & F.col("hour").isNull(), tells)
        .when(has_records, F.when(traces, "observed").otherwise("inferable"))
        .when(is_state_change, F.when(within, tells).otherwise("no_file"))
        .when(controls, "inferable")
        .otherwise("not_logged")
    )
    partition_changes = (
        F.when(is_state_change, F.when(has_records | within, "observed").otherwise("no_file"))
        .when(controls | F.col("logger").isin("kafka.cluster.Partition", *REPLAYED), "observed")
        .otherwise("not_logged")
    )
    return rows.select(
        *HOUR, "logger", "records", "recognised", "unrecognised", "drifted", "out_of_scope", "layouts",
        replica_states.alias("replica_states"), partition_changes.alias("partition_changes"),
    )  # fmt: skip
