"""Time and identity that all timelines share: incarnations of a cluster, the order of its events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.store import quoted

# clocks of two brokers may differ by this much before an epoch that falls back counts as a wiped cluster
CLOCK_SKEW = timedelta(seconds=60)
PARTITION = ("cluster", "incarnation", "topic", "partition")
REPLICA = (*PARTITION, "replica")
# a partition from its creation to its deletion
LIFE = (*PARTITION, "life")


@dataclass(frozen=True)
class Sign:
    """One record that tells which life a cluster is in: an election with its controller epoch, a node that names the cluster id, or the
    first record of a metadata log."""

    ts: datetime
    controller_epoch: int | None = None
    cluster_id: str | None = None
    begins_log: bool = False


def incarnation_starts(signs: Iterable[Sign]) -> list[datetime]:
    """When the second, third, .. incarnation of a cluster began.

    A cluster that is set up anew has a cluster id that was never seen before, and its metadata log (KRaft) begins with offset 0 once
    more; of the two counts what tells more lives. Where no line names the id, its controller epochs start again: /controller_epoch in ZooKeeper only grows, so an election in an epoch that was reached before, later than clocks can
    differ, is one of another life.
    """
    starts: list[datetime] = []
    ids: set[str] = set()
    unnamed_start: datetime | None = None
    reached, reached_at = 0, None
    signs = list(signs)
    logs = {sign.ts for sign in signs if sign.begins_log}
    by_log = len(logs) > len({sign.cluster_id for sign in signs} - {None})
    for sign in sorted(signs, key=lambda s: (s.ts, s.controller_epoch or 0)):
        life = (str(sign.ts) if sign.begins_log else None) if by_log else sign.cluster_id
        if life is not None:
            if ids and life not in ids and unnamed_start is None:
                starts.append(sign.ts)
                reached, reached_at = 0, None
            unnamed_start = None
            ids.add(life)
        if sign.controller_epoch is None:
            continue
        if reached_at is not None and sign.controller_epoch <= reached:
            later = sign.ts - reached_at
            if later > CLOCK_SKEW or (sign.controller_epoch == 1 and later > CLOCK_SKEW / 12):
                starts.append(sign.ts)
                unnamed_start = sign.ts
                reached, reached_at = 0, None
        if sign.controller_epoch > reached:
            reached, reached_at = sign.controller_epoch, sign.ts
    return starts


def starts_of_cluster(starts: Mapping[str, Iterable[datetime]]) -> Column:
    """ARRAY<TIMESTAMP>: the starts of the row's cluster, null where it has but one incarnation. One flat expression, however many."""

    def literals(moments: Iterable[datetime]) -> str:
        return ", ".join(f"TIMESTAMP {quoted(start.isoformat(sep=' '))}" for start in moments)

    cells = [f"{quoted(cluster)}, array({literals(moments)})" for cluster, moments in starts.items() if moments]
    if not cells:
        return F.lit(None).cast("array<timestamp>")
    return F.expr(f"try_element_at(map({', '.join(cells)}), cluster)")


def incarnation(starts: Mapping[str, Iterable[datetime]]) -> Column:
    """1 and one more for every start of the row's cluster at or before its `ts`; 1 where there is no time stamp."""
    passed = F.filter(starts_of_cluster(starts), lambda start: start <= F.col("ts"))
    return F.lit(1) + F.coalesce(F.size(passed), F.lit(0))


def signs(events: DataFrame) -> dict[str, list[Sign]]:
    """Cluster -> what its events tell about its lives."""
    elected = F.col("event_type").isin("controller_elected", "controller_epoch_incremented")
    epoch = F.when(elected, F.col("controller_epoch"))
    begins_log = F.col("event_type").isin("metadata_record", "quorum_leader_record") & (F.col("metadata_offset") == 0)
    rows = (
        events.filter(F.col("ts").isNotNull() & (epoch.isNotNull() | F.col("cluster_id").isNotNull() | begins_log))
        .select("cluster", "ts", epoch.alias("controller_epoch"), "cluster_id", begins_log.alias("begins_log"))
        .collect()
    )
    found: dict[str, list[Sign]] = {}
    for row in rows:
        sign = Sign(row.ts, row.controller_epoch, row.cluster_id, bool(row.begins_log))
        found.setdefault(row.cluster, []).append(sign)
    return found


def _log() -> Column:
    """INT: 1 of state-change.log, 2 of controller.log, 4 of server.log, as Kafka's own configuration divides the loggers."""
    logger = F.coalesce("logger", F.lit(""))
    return F.when(logger.endswith("state.change.logger"), 1).when(logger.contains(".controller"), 2).otherwise(4)


def files(events: DataFrame) -> DataFrame:
    """What orders the files of a node.

    in: events. out: cluster, node, file, file_ts (first time stamp: rotated files of one log follow one another), merged INT (bits of
    the logs that share files on that node: a cut does not change them).
    """
    held = events.groupBy("cluster", "node", "file").agg(F.min("ts").alias("file_ts"), F.bit_or(_log()).alias("logs"))
    shared = F.bit_or(F.when(F.bit_count("logs") > 1, F.col("logs"))).over(all_of("cluster", "node"))
    return held.select("cluster", "node", "file", "file_ts", F.coalesce(shared, F.lit(0)).alias("merged"))


def in_order(events: DataFrame, held: DataFrame | None = None) -> DataFrame:
    """Adds what orders events of one millisecond, however their logs were cut and renamed.

    in: events; held: their `files`, if these are known. out: the same plus file_ts (see `files`) and log INT: 1 state-change.log, 2 controller.log, 4 server.log; the lowest of those
    that share files. Order is `position()`: time, then node and log, then file and place in the file. The lines of one thread
    never run back in time.
    """
    keys = ("cluster", "node", "file")
    of_file = (files(events) if held is None else held).withColumnsRenamed({name: f"of_{name}" for name in keys})
    same = [F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in keys]
    lowest = F.col("merged").bitwiseAND(-F.col("merged"))
    log = F.when(F.col("merged").bitwiseAND(_log()) != 0, lowest).otherwise(_log())
    return events.join(F.broadcast(of_file), same).select(*events.columns, log.alias("log"), "file_ts")


def position() -> list[Column]:
    """Sort columns of the order of events."""
    return [
        F.asc_nulls_first("ts"),
        F.asc_nulls_first("tie"),
        F.asc_nulls_first("node"),
        F.asc("log"),
        F.asc_nulls_first("file_ts"),
        F.asc("file"),
        F.asc("record_no"),
        F.asc("item"),
    ]


def no_ids() -> Column:
    """ARRAY<INT> without an element."""
    return F.array().cast("array<int>")


def up_to_here(*keys: str, order: list[Column] | None = None) -> Window:
    """Window over all rows of the same keys from the first to this one."""
    return Window.partitionBy(*keys).orderBy(*(order or [F.asc("pos")])).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def neighbours(*keys: str, order: list[Column] | None = None) -> Window:
    """Window for lag and lead."""
    return Window.partitionBy(*keys).orderBy(*(order or [F.asc("pos")]))


def all_of(*keys: str) -> Window:
    """Window over all rows of the same keys."""
    return Window.partitionBy(*keys).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
