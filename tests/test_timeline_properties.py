"""Timelines do not depend on how their events come: cut anywhere, in any order, one node late, with the state written and read between."""

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
from nights import Kept, Nights, Row
from timelines import by_partition, facts_of

from jobs.timelines import CHECKPOINT, ClusterEvidence, ClusterFacts, Event, PartitionKey, fold, kraft, zookeeper

SAMPLES = sorted((Path(__file__).parents[1] / "sample_logs").glob("*/*"))
DUMP = "metadata-log*.txt"
SOURCES = [*((folder, LOGS) for folder in SAMPLES), *((folder, DUMP) for folder in SAMPLES if list(folder.glob(DUMP)))]
# orders: drawn one by one, those of thousands of events would be more than hypothesis draws for an example, and it gives up on it
SEEDS = st.integers(0, 2**32)


@contextmanager
def settling(kept: int, unsettled: int) -> Iterator[None]:
    """Histories are settled as soon as they have so many versions, up to what is so many seconds old."""
    before = zookeeper.KEPT, zookeeper.FINAL_AFTER, kraft.KEPT, kraft.FINAL_AFTER
    zookeeper.KEPT = kraft.KEPT = kept
    zookeeper.FINAL_AFTER = kraft.FINAL_AFTER = unsettled * 1_000_000
    try:
        yield
    finally:
        zookeeper.KEPT, zookeeper.FINAL_AFTER, kraft.KEPT, kraft.FINAL_AFTER = before


@cache
def histories() -> list[tuple[PartitionKey, list[Event], ClusterFacts, list[list[Row]]]]:
    """Every partition of the samples: its events in order of time, what it shares with others, its rows in one piece."""
    found = []
    for source in SOURCES:
        events = recorded(*source)
        facts = facts_of(events)
        for key, own in by_partition(events, facts).items():
            with settling(10**9, 0):
                found.append((key, sorted(own, key=lambda e: e.ts or 0), facts, in_pieces(key, [own], facts)))
    return found


def in_pieces(key: PartitionKey, pieces: list[list[Event]], facts: ClusterFacts) -> list[list[Row]]:
    """The rows of one partition whose events come one piece after the other."""
    kept = Kept()
    for n, piece in enumerate(pieces):
        told = fold(key, kept.state, piece, facts)
        if told.is_stale:
            kept = Kept()
            told = fold(key, None, [e for some in pieces[: n + 1] for e in some], facts)
        assert not told.is_stale
        kept.state = told.state
        for number, rows in enumerate((told.partitions, told.replicas, told.reassignments)):
            kept.settled[number] += [row for row in rows if row[-1]]
            kept.open[number] = [row for row in rows if not row[-1]]
    return kept.rows()


@settings(max_examples=700)
@given(
    which=st.integers(0, 10**6), cuts=st.lists(st.floats(0, 1), max_size=8), seed=SEEDS,
    kept=st.sampled_from([3, 8, 200]), unsettled=st.sampled_from([0, 2, 60]),
)  # fmt: skip
def test_a_partition_in_any_pieces(*, which, cuts, seed, kept, unsettled) -> None:  # type: ignore[no-untyped-def]
    key, events, facts, expected = histories()[which % len(histories())]
    at = sorted({int(cut * len(events)) for cut in cuts})
    pieces = [events[a:z] for a, z in zip([0, *at], [*at, len(events)], strict=True)]
    order = Random(seed)
    for piece in pieces:
        order.shuffle(piece)
    with settling(kept, unsettled):
        assert in_pieces(key, pieces, facts) == expected


@cache
def at_once(source: tuple[Path, str]) -> dict[PartitionKey, list[list[Row]]]:
    """The rows of all partitions, in one night."""
    one = Nights()
    with settling(10**9, 0):
        one.night(recorded(*source))
    return one.rows()


@settings(max_examples=40)
@given(
    source=st.sampled_from(SOURCES), cuts=st.lists(st.floats(0, 1), max_size=6), seed=SEEDS,
    late=st.integers(-3, 10), kept=st.sampled_from([3, 200]), unsettled=st.sampled_from([0, 2, 60]),
)  # fmt: skip
def test_a_cluster_in_any_nights(*, source, cuts, seed, late, kept, unsettled) -> None:  # type: ignore[no-untyped-def]
    """late: the number of a node whose files come a night later; negative: none."""
    events = recorded(*source)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    ends = sorted(begin + cut * (end - begin) for cut in cuts)
    nodes = sorted({e.node for e in events if e.node is not None})
    slow = nodes[late % len(nodes)] if late >= 0 and nodes else None
    nights: list[list[Event]] = [[] for _ in range(len(ends) + 2)]
    for e in events:
        nights[sum(at < (e.ts or 0) for at in ends) + (slow is not None and e.node == slow)].append(e)
    told, order = Nights(), Random(seed)
    with settling(kept, unsettled):
        for night in nights:
            order.shuffle(night)
            told.night(night)
    assert told.rows() == at_once(source)


# when, of which partition, what it tells, and of which night (negative: that of its moment)
CHECKPOINTS = st.tuples(st.floats(-0.01, 1.05), st.integers(0, 3), st.integers(0, 4), st.integers(-2, 6))


@settings(max_examples=200)
@given(
    source=st.sampled_from(SOURCES), cuts=st.lists(st.floats(0, 1), max_size=5), seed=st.integers(0, 99),
    told=st.lists(CHECKPOINTS, max_size=8), silent=st.floats(0, 1), kept=st.sampled_from([3, 200]), unsettled=st.sampled_from([0, 2]),
)  # fmt: skip
def test_checkpoints_in_any_nights(*, source, cuts, seed, told, silent, kept, unsettled) -> None:  # type: ignore[no-untyped-def]
    """They may be wrong, early, late or about a partition that no line knows; the logs say nothing of four partitions up to a moment."""
    events = recorded(*source)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    names = [
        *sorted({(e.topic, e.partition) for e in events if e.topic is not None and e.partition is not None})[:3],
        ("silent", 7),
    ]
    until = begin + silent * (end - begin)
    events = [e for e in events if (e.topic, e.partition) not in names or (e.ts or 0) >= until]
    ends = sorted(begin + cut * (end - begin) for cut in cuts)
    nights: list[list[Event]] = [[] for _ in range(len(ends) + 1)]
    for e in events:
        nights[sum(at < (e.ts or 0) for at in ends)].append(e)
    outputs = []
    for n, (at, which, what, night) in enumerate(told):
        topic, partition = names[which % len(names)]
        ts = int(begin + at * (end - begin))
        one = Event(f"tool{n}", 0, None, f"{n}.txt", 1, ts, None, "describe", CHECKPOINT, "is", topic, partition)
        outputs.append(one._replace(leader=what % 3 - 1, isr=[what % 2], replicas=[1, 2] if what else None))
        nights[sum(e < ts for e in ends) if night < 0 else night % len(nights)].append(outputs[-1])
    at_once, by_night, logged = Nights(), Nights(), Nights()
    with settling(10**9, 0):
        at_once.night([*events, *outputs])
        logged.night(events)
    with settling(kept, unsettled):
        for some in nights:
            Random(seed).shuffle(some)
            by_night.night(some)
    assert rows_told(by_night) == rows_told(at_once)
    for key, (rows, _, moved) in logged.rows().items():
        # what logs tell stands as it does without checkpoints
        with_outputs, _, also_moved = at_once.rows()[key]
        assert also_moved == moved
        rows.sort()
        with_outputs.sort()
        of_logs, before = with_outputs[len(with_outputs) - len(rows) :], with_outputs[: len(with_outputs) - len(rows)]
        assert [row[1:] for row in of_logs] == [row[1:] for row in rows]
        assert not rows or all(rows[0][1] is not None and row[1] < rows[0][1] for row in before)


def rows_told(nights: Nights) -> dict[PartitionKey, list[list[Row]]]:
    """Of partitions that have rows: a checkpoint that does not count leaves none."""
    return {key: rows for key, rows in nights.rows().items() if any(rows)}


@settings(max_examples=25)
@given(source=st.sampled_from(SOURCES), parts=st.integers(2, 5), seed=SEEDS)
def test_a_summary_is_a_sum(*, source, parts, seed) -> None:  # type: ignore[no-untyped-def]
    events = list(recorded(*source))
    expected = ClusterEvidence.of(events).to_json()
    Random(seed).shuffle(events)
    evidence = ClusterEvidence()
    for n in range(parts):
        evidence += ClusterEvidence.from_json(ClusterEvidence.of(events[n::parts]).to_json())
    assert evidence.to_json() == expected


@pytest.mark.shared
@pytest.mark.parametrize("recording", recordings(), ids=lambda one: "/".join(one.parts[-3:]))
def test_ten_nights_of_every_recording(recording: Path) -> None:
    """Each settles as soon as it may, and the files of one node come late."""
    events = recorded(recording)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    slow = min(e.node for e in events if e.node is not None)
    nights: list[list[Event]] = [[] for _ in range(11)]
    for e in events:
        nights[min(int(10 * ((e.ts or begin) - begin) / (end - begin)), 9) + (e.node == slow)].append(e)
    told = Nights()
    with settling(3, 2):
        for night in nights:
            told.night(night)
    assert told.rows() == at_once((recording, LOGS))
