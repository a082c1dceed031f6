"""Timelines do not depend on the delivery of events: cut anywhere, in any order, one node late, with the
state stored in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import LOGS, recorded, recordings
from runs import Row, Runs, StoredRows
from timelines import by_partition, facts_of

from jobs.timelines import (
    CHECKPOINT,
    ClusterEvidence,
    ClusterFacts,
    Event,
    PartitionKey,
    fold,
    kraft,
    zookeeper,
)

SAMPLES = sorted((Path(__file__).parents[2] / "sample_logs").glob("*/*"))
DUMP = "metadata-log*.txt"
SOURCES = [
    *((folder, LOGS) for folder in SAMPLES),
    *((folder, DUMP) for folder in SAMPLES if list(folder.glob(DUMP))),
]
# seeds of orders: hypothesis gives up on drawing the order of thousands of events one by one
SEEDS = st.integers(0, 2**32)


@contextmanager
def finalising(kept: int, final_after: int) -> Iterator[None]:
    """Make rows final above a number of stored versions, if they are at least final_after seconds old."""
    before = zookeeper.KEPT, zookeeper.FINAL_AFTER, kraft.KEPT, kraft.FINAL_AFTER
    zookeeper.KEPT = kraft.KEPT = kept
    zookeeper.FINAL_AFTER = kraft.FINAL_AFTER = final_after * 1_000_000
    try:
        yield
    finally:
        zookeeper.KEPT, zookeeper.FINAL_AFTER, kraft.KEPT, kraft.FINAL_AFTER = before


@cache
def histories() -> list[tuple[PartitionKey, list[Event], ClusterFacts, list[list[Row]]]]:
    """Return every partition of the samples: its events in order of time, its facts, its rows in one piece."""
    found = []
    for source in SOURCES:
        events = recorded(*source)
        facts = facts_of(events)
        for key, own in by_partition(events, facts).items():
            with finalising(10**9, 0):
                found.append((key, sorted(own, key=lambda e: e.ts or 0), facts, in_pieces(key, [own], facts)))
    return found


def in_pieces(key: PartitionKey, pieces: list[list[Event]], facts: ClusterFacts) -> list[list[Row]]:
    """Return the rows of one partition whose events are folded piece by piece."""
    kept = StoredRows()
    for n, piece in enumerate(pieces):
        folded = fold(key, kept.state, piece, facts)
        if folded.is_stale:
            kept = StoredRows()
            folded = fold(key, None, [e for some in pieces[: n + 1] for e in some], facts)
        assert not folded.is_stale
        kept.state = folded.state
        for number, rows in enumerate((folded.partitions, folded.replicas, folded.reassignments)):
            kept.settled[number] += [row for row in rows if row[-1]]
            kept.open[number] = [row for row in rows if not row[-1]]
    return kept.rows()


@settings(max_examples=700)
@given(
    which=st.integers(0, 10**6), cuts=st.lists(st.floats(0, 1), max_size=8), seed=SEEDS,
    kept=st.sampled_from([3, 8, 200]), final_after=st.sampled_from([0, 2, 60]),
)  # fmt: skip
def test_a_partition_in_any_pieces(*, which, cuts, seed, kept, final_after) -> None:  # type: ignore[no-untyped-def]
    key, events, facts, expected = histories()[which % len(histories())]
    at = sorted({int(cut * len(events)) for cut in cuts})
    pieces = [events[a:z] for a, z in zip([0, *at], [*at, len(events)], strict=True)]
    order = Random(seed)
    for piece in pieces:
        order.shuffle(piece)
    with finalising(kept, final_after):
        assert in_pieces(key, pieces, facts) == expected


@cache
def at_once(source: tuple[Path, str]) -> dict[PartitionKey, list[list[Row]]]:
    """Return the rows of all partitions, in one run."""
    one = Runs()
    with finalising(10**9, 0):
        one.run(recorded(*source))
    return one.rows()


@settings(max_examples=40)
@given(
    source=st.sampled_from(SOURCES), cuts=st.lists(st.floats(0, 1), max_size=6), seed=SEEDS,
    late=st.integers(-3, 10), kept=st.sampled_from([3, 200]), final_after=st.sampled_from([0, 2, 60]),
)  # fmt: skip
def test_a_cluster_in_any_runs(*, source, cuts, seed, late, kept, final_after) -> None:  # type: ignore[no-untyped-def]
    """late: the number of a node whose files are delivered one run later; negative: none."""
    events = recorded(*source)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    ends = sorted(begin + cut * (end - begin) for cut in cuts)
    nodes = sorted({e.node for e in events if e.node is not None})
    slow = nodes[late % len(nodes)] if late >= 0 and nodes else None
    deliveries: list[list[Event]] = [[] for _ in range(len(ends) + 2)]
    for e in events:
        deliveries[sum(at < (e.ts or 0) for at in ends) + (slow is not None and e.node == slow)].append(e)
    runs, order = Runs(), Random(seed)
    with finalising(kept, final_after):
        for delivery in deliveries:
            order.shuffle(delivery)
            runs.run(delivery)
    assert runs.rows() == at_once(source)


# time, partition, content, and run (negative: that of its time)
CHECKPOINTS = st.tuples(st.floats(-0.01, 1.05), st.integers(0, 3), st.integers(0, 4), st.integers(-2, 6))


@settings(max_examples=200)
@given(
    source=st.sampled_from(SOURCES), cuts=st.lists(st.floats(0, 1), max_size=5), seed=st.integers(0, 99),
    checkpoints=st.lists(CHECKPOINTS, max_size=8), silent=st.floats(0, 1), kept=st.sampled_from([3, 200]), final_after=st.sampled_from([0, 2]),
)  # fmt: skip
def test_checkpoints_in_any_runs(*, source, cuts, seed, checkpoints, silent, kept, final_after) -> None:  # type: ignore[no-untyped-def]
    """Checkpoints may be wrong, early, late or about an unknown partition.

    Four partitions have no lines up to a moment.
    """
    events = recorded(*source)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    names = [
        *sorted({(e.topic, e.partition) for e in events if e.topic is not None and e.partition is not None})[
            :3
        ],
        ("silent", 7),
    ]
    until = begin + silent * (end - begin)
    events = [e for e in events if (e.topic, e.partition) not in names or (e.ts or 0) >= until]
    ends = sorted(begin + cut * (end - begin) for cut in cuts)
    deliveries: list[list[Event]] = [[] for _ in range(len(ends) + 1)]
    for e in events:
        deliveries[sum(at < (e.ts or 0) for at in ends)].append(e)
    outputs = []
    for n, (at, which, what, number) in enumerate(checkpoints):
        topic, partition = names[which % len(names)]
        ts = int(begin + at * (end - begin))
        one = Event(
            f"tool{n}", 0, None, f"{n}.txt", 1, ts, None, "describe", CHECKPOINT, "is", topic, partition
        )
        outputs.append(one._replace(leader=what % 3 - 1, isr=[what % 2], replicas=[1, 2] if what else None))
        deliveries[sum(e < ts for e in ends) if number < 0 else number % len(deliveries)].append(outputs[-1])
    at_once, by_delivery, logged = Runs(), Runs(), Runs()
    with finalising(10**9, 0):
        at_once.run([*events, *outputs])
        logged.run(events)
    with finalising(kept, final_after):
        for some in deliveries:
            Random(seed).shuffle(some)
            by_delivery.run(some)
    assert partitions_with_rows(by_delivery) == partitions_with_rows(at_once)
    for key, (rows, _, moved) in logged.rows().items():
        # rows of the logs are the same as without checkpoints
        with_outputs, _, also_moved = at_once.rows()[key]
        assert also_moved == moved
        rows.sort()
        with_outputs.sort()
        of_logs, before = (
            with_outputs[len(with_outputs) - len(rows) :],
            with_outputs[: len(with_outputs) - len(rows)],
        )
        assert [row[1:] for row in of_logs] == [row[1:] for row in rows]
        assert not rows or all(rows[0][1] is not None and row[1] < rows[0][1] for row in before)


def partitions_with_rows(deliveries: Runs) -> dict[PartitionKey, list[list[Row]]]:
    """Return the rows of partitions that have any: a checkpoint that does not count leaves none."""
    return {key: rows for key, rows in deliveries.rows().items() if any(rows)}


@settings(max_examples=25)
@given(source=st.sampled_from(SOURCES), parts=st.integers(2, 5), seed=SEEDS)
def test_cluster_evidence_is_a_sum(*, source, parts, seed) -> None:  # type: ignore[no-untyped-def]
    events = list(recorded(*source))
    expected = ClusterEvidence.of(events).to_json()
    Random(seed).shuffle(events)
    evidence = ClusterEvidence()
    for n in range(parts):
        evidence += ClusterEvidence.from_json(ClusterEvidence.of(events[n::parts]).to_json())
    assert evidence.to_json() == expected


@pytest.mark.shared
@pytest.mark.parametrize("recording", recordings(), ids=lambda one: "/".join(one.parts[-3:]))
def test_ten_runs_of_every_recording(recording: Path) -> None:
    """Rows become final as soon as possible, and the files of one node are delivered late."""
    events = recorded(recording)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    slow = min(e.node for e in events if e.node is not None)
    deliveries: list[list[Event]] = [[] for _ in range(11)]
    for e in events:
        deliveries[min(int(10 * ((e.ts or begin) - begin) / (end - begin)), 9) + (e.node == slow)].append(e)
    runs = Runs()
    with finalising(3, 2):
        for delivery in deliveries:
            runs.run(delivery)
    assert runs.rows() == at_once((recording, LOGS))
