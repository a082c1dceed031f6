"""Timelines do not depend on how their events come: cut anywhere, in any order, one node late, with the state written and read between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import recorded, recordings
from nights import Kept, Nights, Row
from timelines import by_partition, facts_of

from jobs.timelines import ClusterFacts, Event, PartitionKey, Summary, fold, kraft, zookeeper

SAMPLES = sorted((Path(__file__).parents[1] / "sample_logs").glob("*/*"))
LOGS, DUMP = "*/*.log*", "metadata-log*.txt"
SOURCES = [*((folder, LOGS) for folder in SAMPLES), *((folder, DUMP) for folder in SAMPLES if list(folder.glob(DUMP)))]


@contextmanager
def settling(kept: int, unsettled: int) -> Iterator[None]:
    """Histories are settled as soon as they have so many versions, up to what is so many seconds old."""
    before = zookeeper.KEPT, zookeeper.UNSETTLED, kraft.KEPT, kraft.UNSETTLED
    zookeeper.KEPT = kraft.KEPT = kept
    zookeeper.UNSETTLED = kraft.UNSETTLED = unsettled * 1_000_000
    try:
        yield
    finally:
        zookeeper.KEPT, zookeeper.UNSETTLED, kraft.KEPT, kraft.UNSETTLED = before


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
    which=st.integers(0, 10**6), cuts=st.lists(st.floats(0, 1), max_size=8), order=st.randoms(use_true_random=False),
    kept=st.sampled_from([3, 8, 200]), unsettled=st.sampled_from([0, 2, 60]),
)  # fmt: skip
def test_a_partition_in_any_pieces(*, which, cuts, order, kept, unsettled) -> None:  # type: ignore[no-untyped-def]
    key, events, facts, expected = histories()[which % len(histories())]
    at = sorted({int(cut * len(events)) for cut in cuts})
    pieces = [events[a:z] for a, z in zip([0, *at], [*at, len(events)], strict=True)]
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
    source=st.sampled_from(SOURCES), cuts=st.lists(st.floats(0, 1), max_size=6), order=st.randoms(use_true_random=False),
    late=st.integers(-3, 10), kept=st.sampled_from([3, 200]), unsettled=st.sampled_from([0, 2, 60]),
)  # fmt: skip
def test_a_cluster_in_any_nights(*, source, cuts, order, late, kept, unsettled) -> None:  # type: ignore[no-untyped-def]
    """late: the number of a node whose files come a night later; negative: none."""
    events = recorded(*source)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    ends = sorted(begin + cut * (end - begin) for cut in cuts)
    nodes = sorted({e.node for e in events if e.node is not None})
    slow = nodes[late % len(nodes)] if late >= 0 and nodes else None
    nights: list[list[Event]] = [[] for _ in range(len(ends) + 2)]
    for e in events:
        nights[sum(at < (e.ts or 0) for at in ends) + (slow is not None and e.node == slow)].append(e)
    told = Nights()
    with settling(kept, unsettled):
        for night in nights:
            order.shuffle(night)
            told.night(night)
    assert told.rows() == at_once(source)


@settings(max_examples=25)
@given(source=st.sampled_from(SOURCES), parts=st.integers(2, 5), order=st.randoms(use_true_random=False))
def test_a_summary_is_a_sum(*, source, parts, order) -> None:  # type: ignore[no-untyped-def]
    events = list(recorded(*source))
    expected = Summary.of(events).to_json()
    order.shuffle(events)
    summary = Summary()
    for n in range(parts):
        summary += Summary.from_json(Summary.of(events[n::parts]).to_json())
    assert summary.to_json() == expected


@pytest.mark.shared
@pytest.mark.parametrize("recording", recordings(), ids=lambda one: "/".join(one.parts[-3:]))
def test_ten_nights_of_every_recording(recording: Path) -> None:
    """Each settles as soon as it may, and the files of one node come late."""
    events = recorded(recording)
    begin, end = (some([e.ts for e in events if e.ts]) for some in (min, max))
    slow = min(e.node for e in events if e.node is not None)
    told = Nights()
    with settling(3, 2):
        for n in range(11):
            told.night([e for e in events if min(int(10 * ((e.ts or 0) - begin) / (end - begin)), 9) + (e.node == slow) == n])
    assert told.rows() == at_once((recording, LOGS))
