"""Fold groups of rows of partitions, as Arrow record batches.

in: events and stored states. out: rows of the tables. This module does not import Spark: Spark's workers call
these functions, and the driver calls them for small inputs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from jobs.batches.types import arrow_schema, table_schema
from jobs.timelines import EVENT_COLUMNS, ClusterEvidence, ClusterFacts, Event, Folded, PartitionKey, fold

# number of events of a partition that are folded at once: limits the memory for a busy partition
EVENTS_AT_ONCE = 50_000
# rows of a table in one batch of the output
ROWS_AT_ONCE = 5_000

PARTITION = ("cluster", "incarnation", "topic", "partition")
# tables that the fold of a partition writes
FOLDED_TABLES = ("partition_timeline", "replica_timeline", "reassignments", "partition_states")


def columns(table: str) -> dict[str, str]:
    """Return column -> SQL type of the fold's rows of a table.

    Columns of PARTITION and those that the caller adds (`updates._write`) are left out.
    """
    return {
        name: kind
        for name, kind in schemas.columns(table).items()
        if name not in {*PARTITION, "code_version", "events_version"}
    }


def _struct(table: str) -> pa.DataType:
    return pa.struct(list(arrow_schema(columns(table))))


KEYS = [table_schema("partition_states").field(name) for name in PARTITION]
# columns that identify the group of a row
GROUP = ("cluster", "key_topic", "key_partition")
# rows of a partition for `fold_groups`: a stored state of it, or an event
INPUT = pa.schema(
    [
        ("cluster", pa.string()),
        ("key_topic", pa.string()),
        ("key_partition", pa.int32()),
        ("state", pa.string()),
        ("state_incarnation", pa.int32()),
        ("state_brokers", pa.list_(pa.int32())),
        *(table_schema("events").field(name) for name in EVENT_COLUMNS),
    ]
)
# each row is of one table, in the struct of that name; or `is_stale`: its partition has to be folded again
# from all its events
OUTPUT = pa.schema(
    [*KEYS, pa.field("is_stale", pa.bool_()), *(pa.field(name, _struct(name)) for name in FOLDED_TABLES)]
)


class FoldedBatches:
    """Collects rows of the tables and yields them as batches of OUTPUT."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in (*FOLDED_TABLES, "is_stale")}

    def add(self, table: str, cluster: str, key: PartitionKey, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows of a partition. rows: values of `columns` of the table; empty for is_stale."""
        head = (cluster, *key)
        self._rows[table] += [(*head, *row) for row in rows]

    def batches(self, at_least: int = ROWS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        """Yield the collected rows of each table that has at least this number of them."""
        for table, rows in self._rows.items():
            if len(rows) >= max(at_least, 1):
                yield _batch(table, rows)
                rows.clear()


def _batch(table: str, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    values = list(zip(*rows, strict=True))
    keys = [array(some, one.type) for some, one in zip(values, KEYS, strict=False)]
    filled: dict[str, pa.Array] = {}
    if table in FOLDED_TABLES:
        kind = OUTPUT.field(table).type
        arrays = [array(some, one.type) for some, one in zip(values[len(KEYS) :], kind, strict=True)]
        filled[table] = pa.StructArray.from_arrays(arrays, fields=list(kind))
    filled["is_stale"] = pa.array([table == "is_stale"] * len(rows), pa.bool_())
    others = OUTPUT.names[len(KEYS) :]
    return pa.RecordBatch.from_arrays(
        [*keys, *(filled.get(name, pa.nulls(len(rows), OUTPUT.field(name).type)) for name in others)],
        schema=OUTPUT,
    )


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a column; time stamps are microseconds."""
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of batches as tuples, time stamps as microseconds."""
    for batch in batches:
        arrays = (
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns
        )
        yield from zip(*(array.to_pylist() for array in arrays), strict=True)


def events_of(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[tuple[str, Event]]:
    """Yield (cluster, event). batches: with the columns cluster and names."""
    build = _event_factory(names)
    for cluster, *values in rows_of(batches):
        yield cluster, build(values)


def _event_factory(names: Sequence[str]) -> Any:
    """Return a function that builds an event from the values of these columns. Its other fields are null."""
    if tuple(names) == Event._fields:
        return Event._make
    nulls = [None] * len(Event._fields)
    places = [Event._fields.index(name) for name in names]

    def build(values: Sequence[Any]) -> Event:
        row = nulls.copy()
        for place, value in zip(places, values, strict=True):
            row[place] = value
        return Event._make(row)

    return build


def evidence_by_cluster(
    batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> dict[str, ClusterEvidence]:
    """Return cluster -> the evidence of its events. batches: as `events_of` takes them."""
    found: dict[str, ClusterEvidence] = {}
    for cluster, some in groupby(events_of(batches, names), key=lambda one: one[0]):
        evidence = ClusterEvidence.of(event for _, event in some)
        found[cluster] = found[cluster] + evidence if cluster in found else evidence
    return found


@dataclass
class _Kept:
    """The state of a partition of one incarnation, and the rows that further events may change."""

    state: str | None = None
    brokers: set[int] = field(default_factory=set)
    folded: Folded | None = None
    events: list[Event] = field(default_factory=list)


def in_groups(table: pa.Table, keys: Sequence[str]) -> list[pa.RecordBatch]:
    """Return rows in the order that `fold_groups` expects."""
    marked = table.append_column("is_event", pc.is_null(table["state"]))
    marked = marked.append_column("at", pc.fill_null(pc.cast(table["ts"], pa.int64()), -1))
    return table.take(
        pc.sort_indices(marked, [(name, "ascending") for name in (*keys, "is_event", "at")])
    ).to_batches()


def fold_groups(
    batches: Iterable[pa.RecordBatch],
    names: Sequence[str],
    facts: Mapping[str, ClusterFacts],
    at_once: int | None = EVENTS_AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """Fold the partitions one after another.

    batches: rows with cluster, topic, partition, state STRING, state_incarnation INT, state_brokers
    ARRAY<INT>, and names, which are columns of an event. All rows of a partition are together: first its
    stored states (one for each incarnation, state not null), then its events in order of time. out: OUTPUT.
    Other rows of a partition that `is_stale` do not count.
    at_once: number of events of a partition that are folded in one piece; None: all.
    """
    out = FoldedBatches()
    build = _event_factory(names)
    for (cluster, topic, partition), rows in groupby(rows_of(batches), key=lambda row: row[:3]):
        if not _fold_group(cluster, rows, build, facts[cluster], at_once=at_once, out=out):
            out.add("is_stale", cluster, PartitionKey(0, topic, partition), [()])
        yield from out.batches()
    yield from out.batches(1)


def _fold_group(
    cluster: str,
    rows: Iterator[tuple[Any, ...]],
    build: Any,
    facts: ClusterFacts,
    *,
    at_once: int | None,
    out: FoldedBatches,
) -> bool:
    """Fold a partition and add its rows. Return False if it is stale."""
    kept: dict[PartitionKey, _Kept] = {}
    waiting, newest = 0, None
    for _, topic, partition, state, incarnation, brokers, *values in rows:
        if state == "":
            return False
        if state is not None:
            kept[PartitionKey(incarnation, topic, partition)] = _Kept(state, set(brokers))
            continue
        event = build(values)
        key = facts.key_of(event)
        if key is None:
            continue
        # events of one moment are folded together
        if at_once and waiting >= at_once and event.ts != newest:
            if not _fold_piece(cluster, {key: one for key, one in kept.items() if one.events}, facts, out):
                return False
            waiting = 0
        kept.setdefault(key, _Kept()).events.append(event)
        waiting, newest = waiting + 1, event.ts
    left = {key: one for key, one in kept.items() if one.events or one.folded is None}
    if not _fold_piece(cluster, left, facts, out):
        return False
    for key, one in kept.items():
        _add_rows(cluster, key, one, out, is_final=False)
    return True


def _fold_piece(
    cluster: str, some: Mapping[PartitionKey, _Kept], facts: ClusterFacts, out: FoldedBatches
) -> bool:
    """Fold the queued events and add the rows that are final now. Return False if a partition is stale."""
    for key, one in some.items():
        folded = fold(key, one.state, one.events, facts)
        if folded.is_stale:
            return False
        one.folded, one.state, one.events = folded, folded.state, []
        one.brokers.update(row[0] for row in folded.replicas)
        _add_rows(cluster, key, one, out, is_final=True)
    return True


def _add_rows(cluster: str, key: PartitionKey, one: _Kept, out: FoldedBatches, *, is_final: bool) -> None:
    folded = one.folded
    if folded is None:
        return
    for table, rows in (
        ("partition_timeline", folded.partitions),
        ("replica_timeline", folded.replicas),
        ("reassignments", folded.reassignments),
    ):
        out.add(table, cluster, key, (row for row in rows if row[-1] is is_final))
    if not is_final:
        breaks = json.dumps(folded.breaks, separators=(",", ":")) if folded.breaks else None
        out.add("partition_states", cluster, key, [(folded.state, sorted(one.brokers), breaks)])
