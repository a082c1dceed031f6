"""Fold groups of rows: the pieces of a partition's events do not change the rows of the tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from logs import recorded
from timelines import KEEPS, by_partition, facts_of

import schemas
from jobs.batches import folding
from jobs.batches.types import arrow_type, table_schema
from jobs.timelines import EVENT_COLUMNS, ClusterEvidence, ClusterFacts, Event, PartitionKey, fold

SAMPLES = Path(__file__).parents[2] / "sample_logs"
RECORDINGS = (
    "3.3.2-trace/cancel-reassignment",
    "2.5.1-default/delete-topic",
    "3.9.1-kraft/controller-failover",
)
KINDS = schemas.columns("events")
SCHEMA = pa.schema(
    [
        ("cluster", pa.string()), ("key_topic", pa.string()), ("key_partition", pa.int32()), ("state", pa.string()),
        ("state_incarnation", pa.int32()), ("state_brokers", pa.list_(pa.int32())),
        *(table_schema("events").field(name) for name in EVENT_COLUMNS),
    ]
)  # fmt: skip

State = tuple[str, int, str, int, str]


@pytest.fixture(scope="module", params=RECORDINGS)
def events(request) -> list[Event]:
    """Return the events of a recording."""
    return list(recorded(SAMPLES / request.param))


def batches(
    events: Iterable[Event], facts: ClusterFacts, states: Iterable[tuple[Any, ...]] = (), size: int = 7
) -> list[pa.RecordBatch]:
    """Return rows as Spark passes them: the states of a partition, then its events by time, in batches of any
    size.
    """
    rows = [
        ("c", topic, partition, state, incarnation, brokers, *[None] * len(EVENT_COLUMNS))
        for incarnation, topic, partition, state, brokers in states
    ]
    for key, own in by_partition(events, facts).items():
        rows += [("c", *key[1:], None, None, None, *event) for event in own]
    rows.sort(key=lambda row: (*row[:3], row[3] is None, row[6 + EVENT_COLUMNS.index("ts")] or 0))
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        [folding.array(values, one.type) for values, one in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    return table.to_batches(max_chunksize=size)


def folded_rows(found: Iterable[pa.RecordBatch]) -> dict[str, list[str]]:
    """Return table -> its rows; for is_stale the stale partitions."""
    rows: dict[str, list[str]] = {name: [] for name in (*folding.FOLDED_TABLES, "is_stale")}
    for batch in found:
        assert batch.schema == folding.OUTPUT
        for row in batch.to_pylist():
            (name,) = [name for name in rows if row[name]]
            key = {one: row[one] for one in folding.PARTITION}
            rows[name].append(json.dumps(key | (row[name] if row[name] is not True else {}), default=str))
    return {name: sorted(some) for name, some in rows.items()}


def test_the_rows_of_each_partition_are_those_of_its_fold(events):
    facts = facts_of(events)
    found = folded_rows(folding.fold_groups(batches(events, facts), EVENT_COLUMNS, {"c": facts}))
    expected = {key: fold(key, None, own, facts) for key, own in by_partition(events, facts).items()}
    assert expected
    assert not found["is_stale"]
    for table, name in (
        ("partition_timeline", "partitions"),
        ("replica_timeline", "replicas"),
        ("reassignments", "reassignments"),
    ):
        assert found[table] == rows_of_fold(table, {key: getattr(one, name) for key, one in expected.items()})
    states = {
        key: [
            (
                one.state,
                sorted({row[0] for row in one.replicas}),
                json.dumps(one.breaks, separators=(",", ":")) if one.breaks else None,
            )
        ]
        for key, one in expected.items()
    }
    assert found["partition_states"] == rows_of_fold("partition_states", states)


def rows_of_fold(table: str, rows: Mapping[PartitionKey, Iterable[Sequence[Any]]]) -> list[str]:
    """Rows of a table as `folded_rows` returns them.

    rows: values of `folding.columns` by partition, times in microseconds.
    """
    kinds = {name: arrow_type(kind) for name, kind in folding.columns(table).items()}
    found = []
    for key, some in rows.items():
        for row in some:
            values = {
                name: folding.array([value], kind)[0].as_py()
                for (name, kind), value in zip(kinds.items(), row, strict=True)
            }
            found.append(
                json.dumps(dict(zip(folding.PARTITION, ("c", *key), strict=True)) | values, default=str)
            )
    return sorted(found)


@pytest.mark.parametrize("at_once", [1, 5, 60])
def test_a_partition_in_pieces_has_the_same_rows_or_is_stale(events, at_once):
    facts = facts_of(events)
    whole = folded_rows(folding.fold_groups(batches(events, facts), EVENT_COLUMNS, {"c": facts}, None))
    pieces = folded_rows(folding.fold_groups(batches(events, facts), EVENT_COLUMNS, {"c": facts}, at_once))
    stale = {tuple(json.loads(row)[name] for name in ("topic", "partition")) for row in pieces["is_stale"]}
    for table in ("partition_timeline", "replica_timeline", "reassignments"):
        one, other = (
            {
                row
                for row in without_settled(some[table])
                if tuple(json.loads(row)[name] for name in ("topic", "partition")) not in stale
            }
            for some in (whole, pieces)
        )
        assert one == other
    assert len(stale) < len(by_partition(events, facts))


def without_settled(rows: Iterable[str]) -> set[str]:
    """Return rows without `settled`: in pieces rows are settled earlier."""
    return {
        json.dumps({name: value for name, value in json.loads(row).items() if name != "settled"})
        for row in rows
    }


def test_a_state_is_resumed_and_a_late_event_makes_it_stale(events):
    dated = sorted((e for e in events if e.ts is not None), key=lambda e: e.ts)
    half = dated[len(dated) // 2].ts
    first, second = [e for e in events if (e.ts or 0) < half], [e for e in events if (e.ts or 0) >= half]
    early, facts = facts_of(first), facts_of(events)
    kept = [
        (
            row["incarnation"],
            row["topic"],
            row["partition"],
            row["partition_states"]["state"],
            row["partition_states"]["brokers"],
        )
        for batch in folding.fold_groups(batches(first, early), EVENT_COLUMNS, {"c": early})
        for row in batch.to_pylist()
        if row["partition_states"]
    ]
    with_late = sorted({row[1:3] for row in kept} & {tuple(key[1:]) for key in by_partition(first, facts)})
    late = folded_rows(folding.fold_groups(batches(first, facts, kept), EVENT_COLUMNS, {"c": facts}))
    assert partitions_of(late["is_stale"]) == set(with_late)
    # late events of one partition make no other one stale
    of_one = [e for e in first if (e.topic, e.partition) == with_late[0]]
    late = folded_rows(
        folding.fold_groups(batches([*of_one, *second], facts, kept), EVENT_COLUMNS, {"c": facts})
    )
    on_time = folded_rows(folding.fold_groups(batches(second, facts, kept), EVENT_COLUMNS, {"c": facts}))
    assert partitions_of(late["is_stale"]) - partitions_of(on_time["is_stale"]) == {with_late[0]}
    unusable = [(*row[:3], "", row[4]) for row in kept]
    assert len(
        folded_rows(folding.fold_groups(batches((), facts, unusable), EVENT_COLUMNS, {"c": facts}))[
            "is_stale"
        ]
    ) == len(kept)
    whole = folded_rows(folding.fold_groups(batches(events, facts), EVENT_COLUMNS, {"c": facts}))
    before = folded_rows(folding.fold_groups(batches(first, early), EVENT_COLUMNS, {"c": early}))
    resumed = {row[1:3] for row in kept} - partitions_of(on_time["is_stale"])
    assert len(resumed) > 1
    for table in ("partition_timeline", "replica_timeline", "reassignments"):
        final = [row for row in before[table] if json.loads(row)["settled"]]
        rows = of_partitions([*final, *on_time[table]], resumed)
        assert rows == of_partitions(whole[table], resumed), table
    assert partitions_of(on_time["partition_states"]) >= resumed


def partitions_of(rows: Iterable[str]) -> set[tuple[str, int]]:
    """Return the partitions of rows."""
    return {(row["topic"], row["partition"]) for row in map(json.loads, rows)}


def of_partitions(rows: Iterable[str], partitions: Collection[tuple[str, int]]) -> list[str]:
    """Return the rows of some partitions without `settled`: with more runs, rows are settled earlier."""
    found = [json.loads(row) for row in rows if partitions_of([row]) <= set(partitions)]
    return sorted(json.dumps({name: row[name] for name in row if name != "settled"}) for row in found)


def test_cluster_evidence_does_not_depend_on_batches(events):
    parts = [("c", *event) for event in events]
    columns = list(zip(*parts, strict=True))
    kinds = {name: table_schema("events").field(name).type for name in ("cluster", *EVENT_COLUMNS)}
    table = pa.table(
        [folding.array(v, kind) for v, kind in zip(columns, kinds.values(), strict=True)], names=list(kinds)
    )
    (found,) = folding.evidence_by_cluster(table.to_batches(max_chunksize=11), EVENT_COLUMNS).values()
    assert found.to_json() == ClusterEvidence.of(events).to_json()
    assert ClusterFacts.of(found, KEEPS).numbers == facts_of(events).numbers
