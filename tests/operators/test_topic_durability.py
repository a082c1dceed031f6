"""Seconds of durability, from plain rows."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.nightly import min_isr
from jobs.operators import topic_durability as durability
from jobs.timelines import Setting

T0 = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
DAY = T0.date()


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def interval(step: int, begin: float, end: float | None, leader: int | None, isr: list[int] | None, **values):
    row = {
        "partition": 0, "step": step, "valid_from": at(begin), "valid_to": None if end is None else at(end), "leader": leader, "isr": isr,
        "replicas": [1, 2, 3], "adding_replicas": [], "reassignment_phase": None, "leader_epoch": step, "state": "OnlinePartition",
        "record_id": f"r{step}",
    }  # fmt: skip
    return row | values


def seconds(rows, now=100, least=1, events=(), **shared) -> dict[date, dict]:
    settings = min_isr.MinIsr(configured=(("*", least),))
    known = durability.Shared(at(now), settings, **shared)
    found = durability.topic_rows(durability.tally(rows, events, "orders", known), "orders", known)
    return {row["day"]: row for row in found}


OUTAGE = [
    interval(1, 0, 10, 1, [1, 2, 3]),
    interval(2, 10, 25, 1, [1, 2]),
    interval(3, 25, 40, 1, [1]),
    interval(4, 40, 70, -1, [1]),
    interval(5, 70, None, 1, [1, 2, 3]),
]


def test_seconds_of_an_outage():
    row = seconds(OUTAGE, least=2)[DAY]
    assert {name: row[name] for name in durability.SECONDS} == {
        "covered": 100.0, "full_isr": 40.0, "under_replicated": 30.0, "at_min_isr": 15.0, "below_min_isr": 15.0, "at_isr_1": 15.0,
        "leaderless": 30.0, "unknown": 0.0, "refused_min_1": 30.0, "refused_min_2": 45.0,
    }  # fmt: skip
    assert (row["leaderless_times"], row["leaderless_longest"], row["below_min_isr_times"]) == (1, 30.0, 1)
    assert row["record_ids"] == ["r3", "r4"]
    assert durability.availability(row) == pytest.approx(0.55)
    assert durability.availability(row, "1") == pytest.approx(0.7)


def test_covered_is_the_sum_of_its_parts():
    row = seconds(OUTAGE)[DAY]
    assert row["covered"] == row["full_isr"] + row["under_replicated"] + row["leaderless"]
    assert row["below_min_isr"] == 0


def test_replicas_that_are_being_added_do_not_count_as_missing():
    rows = [interval(1, 0, None, 1, [1, 2, 3], replicas=[4, 5, 1, 2, 3], adding_replicas=[4, 5])]
    assert seconds(rows)[DAY]["full_isr"] == 100


def test_unknown_is_neither_good_nor_bad():
    rows = [interval(1, 0, 10, None, None), interval(2, 10, 30, 1, [1, 2, 3]), interval(3, 30, None, 1, None)]
    row = seconds(rows)[DAY]
    assert (row["unknown"], row["covered"], row["full_isr"]) == (80, 20, 20)


def test_hours_without_a_line_are_unknown():
    hours = [T0, T0 + timedelta(hours=1), T0 + timedelta(hours=4)]
    silent = durability.silent_spans(hours)
    assert silent == ((T0 + timedelta(hours=2), T0 + timedelta(hours=4)),)
    row = seconds([interval(1, 0, None, 1, [1, 2, 3])], now=5 * 3600, silent=silent)[DAY]
    assert (row["covered"], row["unknown"]) == (3 * 3600, 2 * 3600)


def test_an_episode_is_cut_at_midnight():
    rows = [interval(1, 0, 3600 * 13, 1, [1, 2, 3]), interval(2, 3600 * 13, 3600 * 16, -1, [1])]
    found = seconds(rows, now=3600 * 16)
    assert found[DAY]["leaderless"] == 3600
    assert found[DAY + timedelta(days=1)]["leaderless"] == 7200
    assert [row["leaderless_times"] for row in found.values()] == [1, 1]
    assert sum(row["covered"] for row in found.values()) == 3600 * 16


def test_the_time_of_a_pending_deletion_does_not_count():
    row = seconds(OUTAGE, deleted={"orders": ((at(40), at(1000)),)})[DAY]
    assert (row["leaderless"], row["covered"]) == (0, 40)


def test_min_isr_over_time():
    lines = [
        Setting(0, None, 1),
        Setting(30_000_000, "orders", 2),
        Setting(40_000_000, None, 4, of_broker=True),
    ]
    settings = min_isr.from_lines(lines)
    assert [settings.of("orders"), settings.of("other")] == [2, 1]
    # a line about the topic, else audit.toml, else a line about all topics, else what brokers were started
    # with
    configured = min_isr.from_lines(lines, [("o*", 3)])
    assert [configured.of("orders"), configured.of("other"), configured.of("payments")] == [2, 3, 1]
    assert min_isr.from_lines(lines[1:]).of("other") == 4
    assert settings.smallest() == {"orders": 2, None: 1}
    known = durability.Shared(at(100), settings)
    rows = [interval(1, 0, None, 1, [1], replicas=[1])]
    # a topic's first line counts for the time before it, too: a starting broker logs the setting again
    assert durability.tally(rows, [], "orders", known)[DAY].seconds["below_min_isr"] == 100


def test_unclean_elections_and_lost_records():
    rows = [interval(1, 0, 10, 1, [1]), interval(2, 10, 20, -1, [1]), interval(3, 20, None, 2, [2])]
    assert seconds(rows)[DAY]["unclean_elections"] == 1
    assert seconds(rows)[DAY]["records_lost"] is None
    base = dict.fromkeys(durability.EVENT_COLUMNS) | {"topic": "orders", "partition": 0, "node": 1}
    events = [
        base
        | {
            "ts": at(20),
            "event_type": "unclean_leader_elected",
            "leader_epoch": 3,
            "leader_recovery_state": "RECOVERING",
        },
        base | {"ts": at(25), "event_type": "log_loaded", "end_offset": 20},
        base | {"ts": at(30), "event_type": "follower_truncated", "start_offset": 12},
    ]
    row = seconds(rows, events=events)[DAY]
    assert (row["unclean_elections"], row["records_lost"]) == (1, 8)


def test_a_new_leader_by_reassignment_is_no_unclean_election():
    rows = [
        interval(1, 0, 10, 1, [1, 2], reassignment_phase="A"),
        interval(2, 10, 20, 4, [4], reassignment_phase="B"),
        interval(3, 20, None, 4, [4]),
    ]
    assert seconds(rows)[DAY]["unclean_elections"] == 0


def test_days_add_up():
    days = list(seconds([interval(1, 0, None, 1, [1, 2])], now=3600 * 60).values())
    whole = durability.summed(days)
    assert len(days) == 4 - 1
    assert whole["covered"] == whole["under_replicated"] == 3600 * 60


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100 %"), (0.9998, "99.98 %"), (0.999999, "99.9999 %"), (0.5, "50.00 %"), (None, "?")],
)
def test_nines(share, text):
    assert durability.nines(share) == text


def test_a_fenced_leader_is_unknown():
    fenced = durability.fenced_spans([(at(20), [1]), (at(50), [])], at(100))
    assert fenced == {1: ((at(20), at(50)),)}
    assert durability.fenced_spans([(at(20), [1, 2]), (at(50), [2])], at(100)) == {
        1: ((at(20), at(50)),),
        2: ((at(20), at(100)),),
    }
    row = seconds([interval(1, 0, None, 1, [1], replicas=[1])], fenced=fenced)[DAY]
    assert (row["unknown"], row["full_isr"]) == (30, 70)


@pytest.mark.parametrize("begun", ["2026-11-20", "2026-11-21", "2026-11-22"])
def test_new_days_are_those_of_the_whole_history(begun):
    hours = 3600
    history = [
        interval(1, 0, 10 * hours, 1, [1, 2, 3]),
        interval(2, 10 * hours, 30 * hours, 1, [1]),
        interval(3, 30 * hours, 33 * hours, -1, [1]),
        interval(4, 33 * hours, None, 3, [3]),
    ]
    known = durability.Shared(at(50 * hours), min_isr.MinIsr(configured=(("*", 2),)))
    whole = durability.topic_rows(durability.tally(history, (), "orders", known), "orders", known)
    since = date.fromisoformat(begun)
    since_then = [row for row in history if row["valid_to"] is None or row["valid_to"].date() >= since]
    later = durability.topic_rows(durability.tally_since(since_then, "orders", known, since), "orders", known)
    expected = [row for row in whole if row["day"] >= since]
    assert sum(row["unclean_elections"] for row in whole) == 1
    assert expected
    assert durability.with_stored_losses(later, expected) == expected


HOUR = 3600
STATES = st.sampled_from(
    [(1, [1, 2, 3], [1, 2, 3]), (2, [2, 3], [1, 2, 3]), (3, [1, 2, 3], [4, 1, 2, 3]), (None, None, None), (2, None, [1, 2, 3])]
)  # fmt: skip


@given(
    changes=st.lists(
        st.lists(st.tuples(st.integers(1, 29 * HOUR), STATES), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    counted=st.integers(30 * HOUR, 40 * HOUR),
    now=st.integers(0, 60 * HOUR),
    fenced=st.lists(st.tuples(st.integers(0, 70 * HOUR), st.integers(1, 3)), max_size=2),
    silent=st.none() | st.integers(41, 50),
)
def test_stored_days_are_continued_as_if_they_were_counted_again(changes, counted, now, fenced, silent):
    """For any history that has not changed since it was counted, and any time without lines after that."""
    rows = []
    for partition, some in enumerate(changes):
        begins = sorted(dict(some).items())
        for step, (begin, (leader, isr, replicas)) in enumerate(begins):
            end = begins[step + 1][0] if step + 1 < len(begins) else None
            adding = [4] if replicas and 4 in replicas else []
            rows.append(interval(step, begin, end, leader, isr, replicas=replicas, adding_replicas=adding, partition=partition))  # fmt: skip
    spans = {broker: ((at(begin), at(begin + HOUR)),) for begin, broker in fenced}
    settings = min_isr.MinIsr(configured=(("*", 2),))
    quiet = () if silent is None else ((T0 + timedelta(hours=silent), T0 + timedelta(hours=silent + 3)),)
    before = durability.Shared(at(counted), settings, fenced=spans)
    after = durability.Shared(at(counted + now), settings, silent=quiet, fenced=spans)
    day = at(counted).date()

    def counted_again(shared: durability.Shared) -> list[dict]:
        some = [row for row in rows if row["valid_to"] is None or row["valid_to"].date() >= day]
        return durability.topic_rows(durability.tally_since(some, "orders", shared, day), "orders", shared)

    lasting = [row for row in rows if row["valid_to"] is None]
    later = durability.topic_rows(
        durability.tally_unchanged(lasting, "orders", after, at(counted)), "orders", after
    )
    assert durability.continued(later, counted_again(before)) == counted_again(after)
