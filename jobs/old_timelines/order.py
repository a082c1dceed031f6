"""Time and identity that all timelines share: incarnations of a cluster, the order of its events."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.store import quoted

# where a record comes from: what the logs of one broker have in common
FOLDER = r"regexp_replace(file, '/[^/]*$', '')"
PLACE = f"concat_ws('|', {FOLDER}, node)"
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
    folder: str = ""
    node: int | None = None

    @property
    def place(self) -> str:
        """As `PLACE` has it."""
        return self.folder if self.node is None else f"{self.folder}|{self.node}"


@dataclass(frozen=True)
class Cluster:
    """One of the clusters that logged under one name: when its incarnations began, their numbers, and what tells its records.

    Where it is the only one nothing need tell them. places: of its brokers; folders and nodes: those that no other one has. elections:
    incarnation, controller epoch and moment of each.
    """

    starts: tuple[datetime, ...]
    numbers: tuple[int, ...]
    elections: tuple[tuple[int, int, datetime], ...] = ()
    places: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    nodes: frozenset[int] = frozenset()

    @property
    def lives(self) -> "Cluster":
        """The same, whoever was elected."""
        return replace(self, elections=())


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


def clusters_apart(signs: Iterable[Sign], newest: Callable[[], Mapping[str, datetime]]) -> list[Cluster]:
    """The clusters that logged under one name; usually one.

    newest: gives place -> its newest time stamp. Cluster ids that one place names one after the other are incarnations of one cluster.
    Those that no place has in common are two clusters if the places of the older went on after the younger had begun: a cluster that
    was wiped is silent then. Incarnations are numbered through, by their beginnings.
    """
    signs = sorted(signs, key=lambda sign: sign.ts)
    starts = incarnation_starts(signs)
    numbers = tuple(range(1, len(starts) + 2))
    alone = [Cluster(tuple(starts), numbers, _elections(signs, starts, numbers))]
    groups: list[tuple[set[str], set[str]]] = []  # cluster ids, places
    named = [sign for sign in signs if sign.cluster_id is not None]
    for sign in named:
        touched = [group for group in groups if sign.cluster_id in group[0] or sign.place in group[1]]
        ids, places = {str(sign.cluster_id)}, {sign.place}
        groups = [group for group in groups if group not in touched]
        groups.append((ids.union(*[one for one, _ in touched]), places.union(*[one for _, one in touched])))
    if len(groups) < 2:
        return alone
    until = newest()
    begun = [min(sign.ts for sign in named if sign.cluster_id in ids) for ids, _ in groups]
    ended = [max(until[place] for place in places) for _, places in groups]
    if not any(one < other < end - CLOCK_SKEW for one, end in zip(begun, ended, strict=True) for other in begun):
        return alone

    def only(known: list[set[Any]]) -> list[frozenset[Any]]:
        return [frozenset(one.difference(*known[:n], *known[n + 1 :])) for n, one in enumerate(known)]

    folders = only([{sign.folder for sign in named if sign.place in places} for _, places in groups])
    nodes = only([{sign.node for sign in named if sign.place in places} - {None} for _, places in groups])
    found = []
    for n, (_, places) in enumerate(groups):
        mine = [s for s in signs if s.place in places or s.folder in folders[n] or s.node in nodes[n]]
        found.append((mine, incarnation_starts(mine), begun[n]))
    lives = sorted((start, n) for n, (_, starts, first) in enumerate(found) for start in (first, *starts))
    several = []
    for n, (mine, starts, _) in enumerate(found):
        numbers = tuple(number for number, (_, of) in enumerate(lives, 1) if of == n)
        told = _elections(mine, starts, numbers)
        several.append(Cluster(tuple(starts), numbers, told, frozenset(groups[n][1]), folders[n], nodes[n]))
    return several


def _elections(
    signs: Iterable[Sign], starts: Sequence[datetime], numbers: Sequence[int]
) -> tuple[tuple[int, int, datetime], ...]:
    """The elections among signs. starts, numbers: of the incarnations."""
    return tuple(
        (numbers[sum(start <= sign.ts for start in starts)], sign.controller_epoch, sign.ts)
        for sign in signs
        if sign.controller_epoch is not None
    )


def overruled(clusters: Mapping[str, Sequence[Cluster]]) -> Column:
    """BOOLEAN: whether a controller says what it remembers of a partition after another was elected in a later epoch.

    A controller that was paused or cut off goes on until it learns that it was deposed. What it writes is refused, or has a partition
    epoch that puts it in its place.
    """
    cells = []
    for name, several in clusters.items():
        rows = [f"named_struct('n', {n}, 'e', {epoch}, 'at', {_moment(at)})" for c in several for n, epoch, at in c.elections]
        if len(rows) > 1:
            cells.append(f"{quoted(name)}, array({', '.join(rows)})")
    if not cells:
        return F.lit(False)
    later = f"exists(try_element_at(map({', '.join(cells)}), cluster), x -> x.n = incarnation AND x.e > controller_epoch AND x.at < ts)"
    from_memory = (
        "topic IS NOT NULL AND partition_epoch IS NULL AND (says = 'is' OR to_state IS NOT NULL OR from_state IS NOT NULL)"
    )
    return F.coalesce(F.expr(f"controller = node AND {from_memory} AND {later}"), F.lit(False))


def moments_of_cluster(moments: Mapping[str, Sequence[datetime | None]]) -> Column:
    """ARRAY<TIMESTAMP>: those of the row's cluster, null where it has none. One flat expression, however many."""
    cells = [f"{quoted(cluster)}, array({', '.join(map(_moment, some))})" for cluster, some in moments.items() if some]
    if not cells:
        return F.lit(None).cast("array<timestamp>")
    return F.expr(f"try_element_at(map({', '.join(cells)}), cluster)")


def _moment(at: datetime | None) -> str:
    return "CAST(NULL AS TIMESTAMP)" if at is None else f"TIMESTAMP {quoted(at.isoformat(sep=' '))}"


def incarnation(clusters: Mapping[str, Sequence[Cluster]]) -> Column:
    """1 and one more for every start of the row's cluster at or before its `ts`; 1 where there is no time stamp.

    Where several clusters logged under one name: that of the record's place, folder or node; of what names none of these, the one after
    the last.
    """
    starts = moments_of_cluster({name: some[0].starts for name, some in clusters.items() if len(some) == 1})
    usual = F.lit(1) + F.coalesce(F.size(F.filter(starts, lambda start: start <= F.col("ts"))), F.lit(0))
    cases = []
    for name, several in clusters.items():
        if len(several) > 1:
            known = [
                f"WHEN {column} IN ({', '.join(map(quoted, sorted(members(one))))}) THEN {_number_of(one)}"
                for column, members in _WHOSE
                for one in several
                if list(members(one))
            ]
            unknown = sum(len(one.numbers) for one in several) + 1
            cases.append(f"WHEN cluster = {quoted(name)} THEN CASE {' '.join(known)} ELSE {unknown} END")
    return F.coalesce(F.expr(f"CASE {' '.join(cases)} END"), usual) if cases else usual


_WHOSE: tuple[tuple[str, Callable[[Cluster], Iterable[str]]], ...] = (
    (PLACE, lambda one: one.places),
    (FOLDER, lambda one: one.folders),
    ("CAST(node AS STRING)", lambda one: map(str, one.nodes)),
)


def _number_of(one: Cluster) -> str:
    later = [f"WHEN ts >= {_moment(start)} THEN {n}" for start, n in zip(one.starts, one.numbers[1:], strict=True)]
    return f"CASE {' '.join(reversed(later))} ELSE {one.numbers[0]} END" if later else str(one.numbers[0])


def ends(several: Sequence[Cluster]) -> list[datetime | None]:
    """When the first, second, .. incarnation under one name ended; None where it did not, as far as is known."""
    if len(several) == 1:
        return list(several[0].starts)
    by_number = {n: end for one in several for n, end in zip(one.numbers, (*one.starts, None), strict=True)}
    return [by_number[number] for number in sorted(by_number)]


def elects() -> Column:
    """Whether an event tells of an election."""
    return F.col("event_type").isin("controller_elected", "controller_epoch_incremented")


def begins_log() -> Column:
    """Whether an event is the first record of a metadata log."""
    return F.col("event_type").isin("metadata_record", "quorum_leader_record") & (F.col("metadata_offset") == 0)


def signs(events: DataFrame) -> dict[str, list[Sign]]:
    """Cluster -> what its events tell about its lives."""
    epoch = F.when(elects(), F.col("controller_epoch"))
    rows = (
        events.filter(F.col("ts").isNotNull() & (epoch.isNotNull() | F.col("cluster_id").isNotNull() | begins_log()))
        .select(
            "cluster", "ts", epoch.alias("controller_epoch"), "cluster_id", begins_log().alias("begins_log"),
            F.expr(FOLDER).alias("folder"), "node",
        )
        .collect()
    )  # fmt: skip
    found: dict[str, list[Sign]] = {}
    for row in rows:
        sign = Sign(row.ts, row.controller_epoch, row.cluster_id, bool(row.begins_log), row.folder, row.node)
        found.setdefault(row.cluster, []).append(sign)
    return found


def clusters(events: DataFrame) -> dict[str, list[Cluster]]:
    """Name -> the clusters that logged under it."""

    def newest(name: str) -> dict[str, datetime]:
        dated = events.filter((F.col("cluster") == name) & F.col("ts").isNotNull())
        rows = dated.groupBy(F.expr(PLACE).alias("place")).agg(F.max("ts").alias("newest")).collect()
        return {row.place: row.newest for row in rows}

    return {name: clusters_apart(told, partial(newest, name)) for name, told in signs(events).items()}


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


def position(*, backwards: bool = False) -> list[Column]:
    """Sort columns of the order of events."""
    order = F.desc_nulls_last if backwards else F.asc_nulls_first
    return [order(name) for name in ("ts", "tie", "node", "log", "file_ts", "file", "record_no", "item")]


def earliest() -> Column:
    """TIMESTAMP: of grouped events, the first; what has no time stamp may have been before all others."""
    return F.min(F.coalesce("ts", F.lit(0).cast("timestamp")))


def in_memory(rows: DataFrame) -> DataFrame:
    """The rows, computed once. Where there is none the optimizer knows it, and leaves out what would be made of them."""
    held = rows.localCheckpoint()
    return held.limit(0) if held.isEmpty() else held


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


def numbered_on(rows: DataFrame, held: DataFrame, *keys: str) -> DataFrame:
    """Rows of a timeline with the steps that they have after all that came before those held, which are the first of them.

    in: rows with keys and step; held: rows with keys and step, at most one of the same keys. out: as rows.
    """
    before = F.broadcast(held.select(*keys, (F.col("step") - 1).alias("before")))
    step = (F.col("step") + F.coalesce("before", F.lit(0))).alias("step")
    return rows.join(before, list(keys), "left").select(*[step if name == "step" else F.col(name) for name in rows.columns])
