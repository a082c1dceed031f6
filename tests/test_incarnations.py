"""When a cluster was wiped and set up again: a new cluster id, or controller epochs that start again.

The clocks of brokers differ meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from jobs.old_timelines.order import Sign, incarnation_starts

START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
HOUR = 3600


def signs(*told: tuple[float, int | str]) -> list[Sign]:
    """(seconds, controller epoch) of an election, or (seconds, cluster id) each."""
    return [
        Sign(START + timedelta(seconds=seconds), *((said, None) if isinstance(said, int) else (None, said)))
        for seconds, said in told
    ]


@pytest.mark.parametrize(
    ("told", "starts"),
    [
        pytest.param([], [], id="no sign"),
        pytest.param([(0, 1)], [], id="one election"),
        pytest.param([(0, 7)], [], id="the logs begin late"),
        pytest.param([(0, 1), (60, 2), (HOUR, 3), (2 * HOUR, 9)], [], id="failovers"),
        pytest.param([(0, 1), (60, 2), (HOUR, 1)], [HOUR], id="wiped"),
        pytest.param([(0, 1), (HOUR, 1)], [HOUR], id="wiped in its first reign"),
        pytest.param([(0, 1), (60, 3), (HOUR, 1), (HOUR + 60, 2), (5 * HOUR, 1)], [HOUR, 5 * HOUR], id="wiped twice"),
        pytest.param(
            [(0, 1), (60, 3), (HOUR, 2), (2 * HOUR, 3)],
            [HOUR],
            id="wiped, and the first election is in no log",
        ),
        pytest.param([(0, 1), (30, 1)], [30], id="wiped at once"),
        pytest.param([(0, 1), (0.02, 1)], [], id="one election told by two statements"),
        pytest.param([(0, 1), (0, 1), (60, 2), (60, 2)], [], id="copies of a log"),
        pytest.param([(0, 4), (1, 6), (3, 5), (9, 7)], [], id="the clock of a broker is behind"),
        pytest.param([(0, 4), (1, 6), (40, 5), (90, 7)], [], id="the clock of a broker is behind by 40 s"),
        pytest.param([(0, 5), (HOUR, 1), (HOUR + 1, 1), (HOUR + 2, 2)], [HOUR], id="wiped, told twice"),
        pytest.param([(0, "A"), (1, "A"), (5, 1), (HOUR, "A"), (HOUR, 2)], [], id="brokers restart in one cluster"),
        pytest.param([(0, "A"), (5, 1), (HOUR, "B"), (HOUR + 5, 1)], [HOUR], id="wiped, another id"),
        pytest.param([(0, "A"), (5, 1), (30, "B"), (35, 1)], [30], id="wiped at once, another id"),
        pytest.param(
            [(0, "A"), (5, 1), (HOUR, "B"), (HOUR + 1, "A"), (HOUR + 2, "B")],
            [HOUR],
            id="ids of two clocks, mixed",
        ),
        pytest.param([(5, 1), (HOUR, 2), (HOUR + 9, "A")], [], id="the id is told late"),
        pytest.param(
            [(0, "A"), (5, 1), (HOUR, 1), (HOUR + 5, "B")],
            [HOUR],
            id="wiped; the id is told by a broker that starts after the election",
        ),
    ],
)
def test_starts(told: list[tuple[float, int | str]], starts: list[float]) -> None:
    expected = [START + timedelta(seconds=seconds) for seconds in starts]
    assert incarnation_starts(signs(*told)) == expected


def test_order_of_the_files_does_not_matter() -> None:
    told = signs((0, 1), (60, 2), (HOUR, "B"), (HOUR, 1), (HOUR + 60, 2))
    expected = incarnation_starts(told)
    assert all(incarnation_starts(order) == expected for order in permutations(told))


def test_a_second_night_finds_the_same_starts() -> None:
    first_night = signs((0, 1), (60, 2), (HOUR, 1))
    second_night = signs((30 * HOUR, 2), (31 * HOUR, 3))
    assert incarnation_starts(first_night + second_night) == incarnation_starts(first_night)
