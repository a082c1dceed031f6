"""When a cluster was wiped and set up again: a new cluster id, or controller epochs that start again.

The clocks of brokers may differ.
"""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.timelines.incarnations import Marker, incarnation_starts, lineages

SECOND = 1_000_000
START = 1_795_168_800 * SECOND
HOUR = 3600


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def markers(*records: tuple[float, int | str]) -> list[Marker]:
    """(seconds, controller epoch) of an election, or (seconds, cluster id) each."""
    return [
        Marker(at(seconds), *((value, None) if isinstance(value, int) else (None, value)))
        for seconds, value in records
    ]


@pytest.mark.parametrize(
    ("records", "starts"),
    [
        pytest.param([], [], id="nothing logged"),
        pytest.param([(0, 1)], [], id="one election"),
        pytest.param([(0, 7)], [], id="the logs begin late"),
        pytest.param([(0, 1), (60, 2), (HOUR, 3), (2 * HOUR, 9)], [], id="failovers"),
        pytest.param([(0, 1), (60, 2), (HOUR, 1)], [HOUR], id="wiped"),
        pytest.param([(0, 1), (HOUR, 1)], [HOUR], id="wiped in its first controller term"),
        pytest.param(
            [(0, 1), (60, 3), (HOUR, 1), (HOUR + 60, 2), (5 * HOUR, 1)], [HOUR, 5 * HOUR], id="wiped twice"
        ),
        pytest.param(
            [(0, 1), (60, 3), (HOUR, 2), (2 * HOUR, 3)],
            [HOUR],
            id="wiped, and the first election is in no log",
        ),
        pytest.param([(0, 1), (30, 1)], [30], id="wiped at once"),
        pytest.param([(0, 1), (0.02, 1)], [], id="one election in two statements"),
        pytest.param([(0, 1), (0, 1), (60, 2), (60, 2)], [], id="duplicates of a log"),
        pytest.param([(0, 4), (1, 6), (3, 5), (9, 7)], [], id="the clock of a broker is behind"),
        pytest.param([(0, 4), (1, 6), (40, 5), (90, 7)], [], id="the clock of a broker is behind by 40 s"),
        pytest.param(
            [(0, "A"), (5, 3), (HOUR, 2), (HOUR + 5, "A")],
            [],
            id="the clock of a broker is behind by an hour, one id",
        ),
        pytest.param(
            [(0, "A"), (5, 3), (HOUR, 2), (HOUR + 5, "B"), (2 * HOUR, "A"), (2 * HOUR + 5, 4)],
            [HOUR],
            id="another id between",
        ),
        pytest.param([(0, 5), (HOUR, 1), (HOUR + 1, 1), (HOUR + 2, 2)], [HOUR], id="wiped, logged twice"),
        pytest.param(
            [(0, "A"), (1, "A"), (5, 1), (HOUR, "A"), (HOUR, 2)], [], id="brokers restart in one cluster"
        ),
        pytest.param([(0, "A"), (5, 1), (HOUR, "B"), (HOUR + 5, 1)], [HOUR], id="wiped, another id"),
        pytest.param([(0, "A"), (5, 1), (30, "B"), (35, 1)], [30], id="wiped at once, another id"),
        pytest.param(
            [(0, "A"), (5, 1), (HOUR, "B"), (HOUR + 1, "A"), (HOUR + 2, "B")],
            [HOUR],
            id="ids of two clocks, mixed",
        ),
        pytest.param([(5, 1), (HOUR, 2), (HOUR + 9, "A")], [], id="the id is logged late"),
        pytest.param(
            [(0, "A"), (5, 1), (HOUR, 1), (HOUR + 5, "B")],
            [HOUR],
            id="wiped; the id is records by a broker that starts after the election",
        ),
    ],
)
def test_starts(records: list[tuple[float, int | str]], starts: list[float]) -> None:
    expected = [at(seconds) for seconds in starts]
    assert incarnation_starts(markers(*records)) == expected


def test_order_of_the_files_does_not_matter() -> None:
    records = markers((0, 1), (60, 2), (HOUR, "B"), (HOUR, 1), (HOUR + 60, 2))
    expected = incarnation_starts(records)
    assert all(incarnation_starts(order) == expected for order in permutations(records))


def test_a_second_run_finds_the_same_starts() -> None:
    first_run = markers((0, 1), (60, 2), (HOUR, 1))
    second_run = markers((30 * HOUR, 2), (31 * HOUR, 3))
    assert incarnation_starts(first_run + second_run) == incarnation_starts(first_run)


def test_two_metadata_logs_are_two_incarnations() -> None:
    begun = [Marker(at(0), begins_log=True), Marker(at(HOUR), begins_log=True)]
    assert incarnation_starts(begun) == [at(HOUR)]
    named = [Marker(at(-5), cluster_id="A"), Marker(at(HOUR - 60), cluster_id="B")]
    assert incarnation_starts([*begun, *named]) == [at(HOUR - 60)]


def test_an_incarnation_begins_with_the_start_of_the_process_that_names_its_id() -> None:
    """A process logs lines before it names its cluster: these are not the last lines of the incarnation
    before.
    """

    def named(second: float, cluster_id: str, node: int = 1) -> Marker:
        return Marker(at(second), cluster_id=cluster_id, folder="a", node=node)

    def started(second: float, node: int = 1) -> Marker:
        return Marker(at(second), folder="a", node=node, started=True)

    before = [started(0), named(2, "A")]
    # the process before may be of the incarnation before
    assert incarnation_starts([*before, started(HOUR), started(HOUR + 1), named(HOUR + 2, "B")]) == [
        at(HOUR + 1)
    ]
    # the start of another node, an earlier start, and a start of the incarnation before
    assert incarnation_starts([*before, started(HOUR, node=2), named(HOUR + 2, "B")]) == [at(HOUR + 2)]
    assert incarnation_starts([*before, started(HOUR - 600), named(HOUR, "B")]) == [at(HOUR)]
    assert incarnation_starts([started(0), named(2, "A"), named(4, "B")]) == [at(4)]


def test_two_clusters_under_one_name() -> None:
    """The older one still writes after the younger has begun: it was not wiped."""
    records = [Marker(at(0), None, "A", folder="a", node=1), Marker(at(HOUR), None, "B", folder="b", node=1)]
    newest = {("a", 1): at(3 * HOUR), ("b", 1): at(3 * HOUR)}
    one, other = lineages(records, newest)
    assert (one.numbers, other.numbers) == ((1,), (2,))
    assert (one.folders, other.folders) == ({"a"}, {"b"})
    wiped = lineages(records, newest | {("a", 1): at(HOUR)})
    assert [found.numbers for found in wiped] == [(1, 2)]


def test_an_incarnation_begins_with_the_first_line_of_its_first_term() -> None:
    """The election of epoch 3 after the wipe is logged, that of epoch 2 is not."""
    old, new = markers((0, 4), (60, 5)), markers((3 * HOUR, 3))
    assert incarnation_starts([*old, *new]) == [at(3 * HOUR)]
    line = Marker(at(2 * HOUR), 2, node=7, heard=True)
    assert incarnation_starts([*old, line, *new]) == [at(2 * HOUR)]
    # alone it may be a line of a controller that does not know that it was deposed
    assert incarnation_starts([*old, line]) == []
    assert incarnation_starts([*old, line, *markers((3 * HOUR, 6), (9 * HOUR, 3))]) == [at(9 * HOUR)]
    # of a term that began just before its successor's
    assert incarnation_starts([*old, Marker(at(61), 4, node=7, heard=True), *new]) == [at(3 * HOUR)]


def test_an_incarnation_begins_with_the_start_of_the_process_that_is_elected_first() -> None:
    old, new = markers((0, 4), (60, 5)), markers((3 * HOUR, 1))
    start = Marker(at(3 * HOUR - 20), started=True)
    assert incarnation_starts([*old, start, *new]) == [at(3 * HOUR - 20)]
    # another process, or the same one long before
    assert incarnation_starts([*old, start._replace(node=9), *new]) == [at(3 * HOUR)]
    assert incarnation_starts([*old, start._replace(ts=at(2 * HOUR)), *new]) == [at(3 * HOUR)]


def test_two_clusters_that_take_turns() -> None:
    records = markers((0, 6), (60, 8), (2 * HOUR, 1), (3 * HOUR, 9), (4 * HOUR, 10), (5 * HOUR, 2))
    assert incarnation_starts(records) == [at(hours * HOUR) for hours in (2, 3, 5)]
    # elections that are not logged
    assert incarnation_starts(markers((0, 2), (60, 3), (2 * HOUR, 1), (3 * HOUR, 4))) == [at(2 * HOUR)]
    assert incarnation_starts(markers((0, 2), (60, 3), (2 * HOUR, 1), (3 * HOUR, 90))) == [at(2 * HOUR)]


def test_clusters_known_to_take_turns() -> None:
    """The next epoch of the cluster before is its turn, even if only few elections of the other would be
    missing.
    """
    known = [(0, 6), (HOUR, 1), (2 * HOUR, 7), (3 * HOUR, 2)]
    turns = [at(hours * HOUR) for hours in (1, 2, 3)]
    assert incarnation_starts(markers(*known, (4 * HOUR, 3), (5 * HOUR, 4))) == turns
    both = markers(
        *known, (4 * HOUR, 3), (5 * HOUR, 4), (6 * HOUR, 5), (7 * HOUR, 8), (8 * HOUR, 6), (9 * HOUR, 7)
    )
    assert incarnation_starts(both) == [*turns, at(7 * HOUR), at(8 * HOUR)]
    # not the next one; or the next one of both
    assert incarnation_starts(markers(*known, (4 * HOUR, 5), (5 * HOUR, 9))) == turns
    assert incarnation_starts(markers(*known, (4 * HOUR, 7), (5 * HOUR, 8))) == turns
    # wiped: it is unknown whose epochs the new incarnation continues
    assert incarnation_starts(markers(*known, (4 * HOUR, 1), (5 * HOUR, 3))) == [*turns, at(4 * HOUR)]
    # the process that is elected has started before
    started = Marker(at(7 * HOUR - 5), started=True)
    assert incarnation_starts([*both, started]) == [*turns, at(7 * HOUR - 5), at(8 * HOUR)]


def test_a_line_of_a_term_shows_a_turn() -> None:
    """For clusters that are known to take turns: a line of the last term of the other cluster, or of the
    next.
    """
    elected = [
        Marker(at(hours * HOUR), epoch, node=0)
        for hours, epoch in ((0, 6), (1, 1), (2, 7), (3, 2), (4, 3), (5, 4), (6, 8), (9, 6), (12, 9))
    ]
    turns = [at(hours * HOUR) for hours in (1, 2, 3, 6)]
    assert incarnation_starts(elected) == [*turns, at(9 * HOUR), at(12 * HOUR)]
    # its election is not logged
    line = Marker(at(8 * HOUR), 5, node=0, is_daily=True)
    assert incarnation_starts([*elected, line]) == [*turns, at(8 * HOUR), at(12 * HOUR)]
    assert incarnation_starts([*elected, line._replace(is_daily=False, heard=True)]) == [
        *turns,
        at(8 * HOUR),
        at(12 * HOUR),
    ]
    # it may be a controller that does not know that it was deposed
    assert incarnation_starts([*elected, line._replace(node=1)]) == [*turns, at(9 * HOUR), at(12 * HOUR)]
    # a line of the last term may be printed up to a minute late
    again = Marker(at(10 * HOUR), 8, node=0, is_daily=True)
    assert incarnation_starts([*elected, again]) == [*turns, at(9 * HOUR), at(10 * HOUR)]
    assert incarnation_starts([*elected, again._replace(ts=at(9 * HOUR + 30))]) == [
        *turns,
        at(9 * HOUR),
        at(12 * HOUR),
    ]
    # nothing has shown that they take turns
    records = [Marker(at(0), 6, node=0), Marker(at(HOUR), 1, node=0)]
    assert incarnation_starts([*records, again._replace(ts=at(2 * HOUR), controller_epoch=6)]) == [at(HOUR)]


def test_an_empty_zookeeper_after_kraft_is_another_incarnation() -> None:
    """A migrated cluster has elected ZooKeeper controllers before KRaft controllers know its brokers."""
    kraft, first = Marker(at(0), kraft=True), Marker(at(HOUR), 1)
    assert incarnation_starts([kraft, first]) == [at(HOUR)]
    assert incarnation_starts([kraft, first, *markers((2 * HOUR, 2), (3 * HOUR, 1))]) == [
        at(HOUR),
        at(3 * HOUR),
    ]
    # reverted to ZooKeeper; migrated; two clocks
    assert incarnation_starts([kraft, Marker(at(HOUR), 7)]) == []
    assert incarnation_starts([Marker(at(-HOUR), 1), kraft, *markers((HOUR, 2))]) == []
    assert incarnation_starts([kraft, Marker(at(50), 1)]) == []
    # the elected process has started before; an id shows the new incarnation before the election, or after
    start = Marker(at(HOUR - 20), started=True)
    assert incarnation_starts([kraft, start, first]) == [at(HOUR - 20)]
    ids = [Marker(at(-5), cluster_id="A"), Marker(at(HOUR - 10), cluster_id="B")]
    assert incarnation_starts([*ids, kraft, first]) == [at(HOUR - 10)]
    assert incarnation_starts([ids[0], ids[1]._replace(ts=at(HOUR + 10)), kraft, first]) == [at(HOUR)]


@given(
    elections=st.lists(st.tuples(st.integers(1, 9), st.floats(120, 9 * HOUR)), min_size=1, max_size=12),
    records=st.lists(st.tuples(st.integers(0, 11), st.floats(0, 30 * HOUR), st.booleans()), max_size=12),
    skews=st.lists(st.floats(-29, 29), min_size=24, max_size=24),
    nodes=st.integers(1, 3),
)
def test_one_cluster_is_never_split(
    elections: list[tuple[int, float]], records: list[tuple[int, float, bool]], skews: list[float], nodes: int
) -> None:
    """Elections that are not logged, clocks that differ, deposed controllers that still print, KRaft after
    ZooKeeper.
    """
    found: list[Marker] = []
    epoch, second = 0, 0.0
    for (more, later), skew in zip(elections, skews, strict=False):
        epoch, second = epoch + more, second + later
        found.append(Marker(at(second + skew), epoch, node=epoch % nodes))
    for (which, later, is_first), skew in zip(records, skews[12:], strict=False):
        term = found[which % len(found)]
        line = term._replace(
            ts=term.ts + int((later + skew + 29) * SECOND), heard=is_first, is_daily=not is_first
        )
        found += [line, Marker(line.ts, kraft=True)]
    assert incarnation_starts(found) == []


@given(st.integers(5, 30), st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=12))
def test_every_turn_is_found(reached: int, turns: list[tuple[int, int]]) -> None:
    """For two clusters with all elections logged, if the younger does not reach the epochs of the older."""
    elder, younger, hour = reached + 1, 1, 2
    records, expected = [(0, reached), (HOUR, 1), (2 * HOUR, elder)], [at(HOUR), at(2 * HOUR)]
    for of_younger, of_elder in turns:
        if younger + of_younger + 1 >= elder:
            break
        for n in range(of_younger):
            hour, younger = hour + 1, younger + 1
            expected += [at(hour * HOUR)] * (n == 0 and records[-1][1] == elder)
            records.append((hour * HOUR, younger))
        for n in range(of_elder):
            hour, elder = hour + 1, elder + 1
            expected += [at(hour * HOUR)] * (n == 0)
            records.append((hour * HOUR, elder))
    assert incarnation_starts(markers(*records)) == expected


def test_a_broker_epoch_that_falls_is_of_another_zookeeper() -> None:
    def registered(second: float, broker: int, epoch: int) -> Marker:
        return Marker(at(second), folder="broker-1", node=1, registered=(broker, epoch))

    old = [registered(0, 1, 24), registered(0, 2, 40), registered(HOUR, 1, 70)]
    assert incarnation_starts([*old, registered(2 * HOUR, 2, 90)]) == []
    new = [registered(3 * HOUR, 1, 24), registered(3 * HOUR + 5, 2, 30)]
    assert incarnation_starts([*old, *new]) == [at(3 * HOUR)]
    assert incarnation_starts([*old, *new, registered(5 * HOUR, 2, 28)]) == [at(3 * HOUR), at(5 * HOUR)]
    # its controller is elected in the same incarnation, before or after; the registering process has started
    # before
    for second in (3 * HOUR - 1, 3 * HOUR + 1):
        elected = [Marker(at(60), 4), Marker(at(second), 1)]
        assert incarnation_starts([*old, *elected, *new]) == [min(at(second), at(3 * HOUR))]
    start = Marker(at(3 * HOUR - 20), folder="broker-1", node=1, started=True)
    assert incarnation_starts([*old, start, *new]) == [at(3 * HOUR - 20)]
    # the controller that prints them was elected just before, in any epoch
    for second, start in ((3 * HOUR - 1, 3 * HOUR - 1), (2 * HOUR, 3 * HOUR)):
        of_place = Marker(at(second), 9, folder="broker-1", node=1)
        assert incarnation_starts([*old, Marker(at(60), 4), of_place, *new]) == [at(start)]
    # two clocks
    assert incarnation_starts([*old, registered(HOUR + 30, 1, 24)]) == []
    # no epoch falls, but broker 2 registers with an epoch older than 70 after broker 1 has 70
    listed = [*old, registered(HOUR, 2, 40)]
    assert incarnation_starts([*listed, registered(3 * HOUR, 2, 60), registered(3 * HOUR, 3, 64)]) == [
        at(3 * HOUR)
    ]
    assert incarnation_starts([*listed, registered(3 * HOUR, 2, 71), registered(3 * HOUR, 3, 64)]) == []
    # it may have registered before the other one did
    assert incarnation_starts([*old, registered(3 * HOUR, 2, 60)]) == []


def test_kraft_nodes_may_be_formatted_again_with_the_same_id() -> None:
    """ZooKeeper's id is lost with its epochs, so that one id shows one cluster there."""
    ids = [Marker(at(0), cluster_id="A"), Marker(at(3 * HOUR + 5), cluster_id="A")]
    epochs = [
        Marker(at(second), folder="broker-1", node=1, registered=(1, epoch))
        for second, epoch in ((1, 24), (HOUR, 70), (3 * HOUR, 24))
    ]
    assert incarnation_starts([*ids, *epochs]) == []
    assert incarnation_starts([*ids, *epochs, Marker(at(2), kraft=True)]) == [at(3 * HOUR)]
