"""The events that tell what all partitions of a cluster share: its lives and reigns, its controllers' mode, the order of its files.

In KRaft also the registrations of its brokers, the starts of its controllers, and which topics have had which ids.

They are few, and kept from night to night, so that no night reads for them all that came before.
"""

from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.old_timelines import controllers, kraft, kraft_replicas, order, replicas

# what of an event may be asked for
COLUMNS = (
    "record_id", "item", "cluster", "incarnation", "node", "file", "record_no", "ts", "level", "logger", "event_type", "says", "topic",
    "partition", "replica", "from_state", "to_state", "controller", "controller_epoch", "partition_epoch", "cluster_id",
    "metadata_offset", "kafka_version", "topic_id", "broker", "broker_epoch", "fenced", "in_controlled_shutdown", "text",
)  # fmt: skip
# two with the same of these are witnesses of the same
ALIKE = (
    "cluster", "node", "file", "ts", "logger", "event_type", "says", "controller", "controller_epoch", "cluster_id", "metadata_offset",
    "kafka_version", "topic", "topic_id", "broker", "broker_epoch", "fenced", "in_controlled_shutdown",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Of events for which a condition holds, the first with the same keys is a witness; or the last."""

    condition: Column
    keys: tuple[str, ...]
    last: bool = False


def _kinds() -> tuple[Kind, ...]:
    log = ("cluster", "node", "file", "logger")
    return (
        Kind(F.lit(True), log),
        Kind(F.lit(True), log, last=True),
        Kind(F.col("event_type").isin(*kraft.OF_MODE), ("cluster", "event_type")),
        Kind(replicas.is_trace(), ("cluster", "incarnation", "node")),
        Kind(controllers.speaks(), (*controllers.REIGN, "node")),
        *[Kind(kraft.names_topic_id(), (*kraft.TOPIC, "topic_id"), last=last) for last in (False, True)],
    )


def _is_deciding() -> Column:
    """Whether an event is a witness whatever others there are."""
    of_cluster = order.elects() | order.begins_log() | F.col("cluster_id").isNotNull() | F.col("kafka_version").isNotNull()
    of_kraft = F.col("event_type").isin(*kraft.MARKS, *kraft_replicas.TELLING) | kraft.enables_elr()
    resigned = F.col("event_type") == "controller_resigned"
    return F.coalesce(of_cluster | of_kraft | resigned | F.col("overruled"), F.lit(False))


def _candidates(events: DataFrame, number: int, kind: Kind) -> DataFrame:
    """Adds kind_<number> BOOLEAN: whether no event of a kind lies before (after) this one in time. Without a time stamp all are so."""
    of_group = {key: f"of_{key}" for key in kind.keys}
    bound = (F.max if kind.last else F.min)("ts").alias("bound")
    groups = events.filter(kind.condition).groupBy(*[F.col(key).alias(other) for key, other in of_group.items()]).agg(bound)
    same = [F.col(key).eqNullSafe(F.col(other)) for key, other in of_group.items()]
    at_bound = F.col("ts").isNull() | (F.col("ts") == F.col("bound"))
    marked = F.coalesce(kind.condition & at_bound, F.lit(False)).alias(f"kind_{number}")
    return events.join(F.broadcast(groups), same, "left").select(*events.columns, marked)


def of(events: DataFrame) -> DataFrame:
    """The witnesses among events.

    in: recognised events in order and in their incarnations, with overruled. out: COLUMNS. Of what is asked about them,
    they give the same answer as all events do: `order.clusters`, `order.files`, `replicas.tracing`, `controllers.reigns`, the signs of
    the mode, `kraft.topic_lives`, `kraft.elr_modes`, `kraft_replicas.broker_states`, the newest time stamp, what is known of the cluster;
    and so do the witnesses among them and other events.
    """
    kinds = _kinds()
    rows = events.select(*COLUMNS, "overruled", "log", "file_ts", F.lit(1).alias("tie"))
    for number, kind in enumerate(kinds):
        rows = _candidates(rows, number, kind)
    some = rows.filter(reduce(or_, [F.col(f"kind_{number}") for number in range(len(kinds))], _is_deciding()))
    # of those of one moment, one; and one without a time stamp
    chosen = _is_deciding()
    for number, kind in enumerate(kinds):
        mine = F.col(f"kind_{number}")
        alike = Window.partitionBy(*kind.keys, mine, F.col("ts").isNull()).orderBy(*order.position())
        some = some.select("*", F.row_number().over(alike).alias(f"place_{number}"))
        chosen |= mine & (F.col(f"place_{number}") == 1)
    return some.filter(chosen).select(*COLUMNS)
