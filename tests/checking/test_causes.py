"""Which finding follows from which: the same subject, times that fit, and rules without circles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import schemas
from jobs.checking.causes import with_causes
from parsers.definitions import cause_problems
from schemas.durations import two_units

AT = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


def row(fingerprint: str, check_id: str, begin: float, end: float, **changes: Any) -> dict[str, Any]:
    """A finding; begin, end: minutes after AT."""
    names = ("topic", "partition", "replica", "node", "caused_by")
    times = {"first_seen": AT + timedelta(minutes=begin), "last_seen": AT + timedelta(minutes=end)}
    base = {
        "fingerprint": fingerprint,
        "check_id": check_id,
        "cluster": "c",
        "incarnation": 1,
        "title": check_id,
    }
    return dict.fromkeys(names) | base | times | changes


def subject(fingerprint: str, topic: str, partition: int) -> dict[str, Any]:
    return {"fingerprint": fingerprint, "topic": topic, "partition": partition}


def caused(*found: dict[str, Any], subjects: tuple[dict[str, Any], ...] = ()) -> dict[str, str | None]:
    return {one["fingerprint"]: one["caused_by"] for one in with_causes(found, subjects)}


def test_a_cause_concerns_the_same_broker_and_precedes_its_effect() -> None:
    disk = row("disk", "log_directory_failed", 5, 60, node=3, title="Broker 3 lost all log directories")
    assert caused(disk, row("down", "broker_down", 6, 60, node=3))["down"] == "disk"
    one = disk | {"title": "/d1"}  # the broker goes on with the others
    assert caused(one, row("down", "broker_down", 6, 60, node=3))["down"] is None
    assert caused(disk, row("down", "broker_down", 4.5, 4.8, node=3))["down"] is None  # over before
    assert caused(disk, row("down", "broker_down", 6, 60, node=4))["down"] is None
    assert caused(disk, row("down", "broker_down", 3, 60, node=3))["down"] is None
    assert caused(disk, row("down", "broker_down", 6, 60, node=3, cluster="d"))["down"] is None
    assert caused(disk, row("down", "broker_down", 6, 60, node=3, incarnation=2))["down"] is None
    assert (
        caused(
            row("disk", "log_directory_failed", 5, 6, node=3, title="Broker 3 lost all log directories"),
            row("down", "broker_down", 30, 60, node=3),
        )["down"]
        is None
    )
    without_times = row("down", "broker_down", 6, 60, node=3, first_seen=None, last_seen=None)
    assert caused(disk, without_times)["down"] is None


def test_a_cause_concerns_the_same_partition() -> None:
    found = (
        row("disk", "log_directory_failed", 5, 60, node=3),
        row("offline", "partition_leaderless", 5, 60, node=3),
    )
    disk = subject("disk", "orders", 1)
    assert caused(*found, subjects=(disk, subject("offline", "orders", 1)))["offline"] == "disk"
    assert caused(*found, subjects=(disk, subject("offline", "orders", 2)))["offline"] is None
    assert caused(*found, subjects=(disk, subject("offline", "carts", 1)))["offline"] is None


def test_the_last_cause_before_an_effect_counts() -> None:
    found = [
        row(f"disk{n}", "log_directory_failed", n, 60, node=3, title="Broker 3 lost all log directories")
        for n in (1, 5, 30)
    ]
    assert caused(*found, row("down", "broker_down", 6, 60, node=3))["down"] == "disk5"


def test_a_known_cause_is_kept_and_a_missing_one_is_not() -> None:
    disk, other = (
        row("disk", "log_directory_failed", 5, 60, node=3, title="Broker 3 lost all log directories"),
        row("other", "cluster_down", 5, 60),
    )
    assert (
        caused(disk, other, row("down", "broker_down", 6, 60, node=3, caused_by="other"))["down"] == "other"
    )
    assert (
        caused(disk, row("down", "broker_down", 6, 60, node=3, caused_by="of an old run"))["down"] == "disk"
    )


def test_findings_of_one_check_follow_from_the_first_without_a_circle() -> None:
    disks = [row(name, "log_directory_failed", 5, 60, node=3) for name in ("a", "b", "c")]
    causes = caused(*disks)
    assert (causes["a"], causes["b"]) == (None, "a")
    assert causes["c"] in {"a", "b"}
    circle = (
        row("x", "broker_down", 5, 60, node=3, caused_by="y"),
        row("y", "broker_cannot_start", 5, 60, node=3),
    )
    assert caused(*circle) == {"x": "y", "y": None}


def test_rules_are_sound_and_a_wrong_one_is_named() -> None:
    names = set(schemas.harms())
    assert cause_problems(schemas.cause_rules(), names) == []
    (rule, *_) = schemas.cause_rules()
    wrong = [
        (vars(rule) | {"check": "no_check"}, "there is no check no_check"),
        (vars(rule) | {"subject": "rack"}, "subject = 'rack'"),
        (vars(rule) | {"begins": "after"}, "begins = 'after'"),
        (vars(rule) | {"reason": ""}, "give a reason"),
    ]
    for changed, problem in wrong:
        assert any(problem in text for text in cause_problems([schemas.CauseRule(**changed)], names))
    back = schemas.CauseRule(**vars(rule) | {"check": rule.effects[0], "effects": (rule.check,)})
    assert any("follows from its own effects" in text for text in cause_problems([rule, back], names))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (56, "56 s"),
        (260, "4 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_401, "1 d"),
        (97_200, "1 d 3 h"),
    ],
)
def test_durations_are_in_words(seconds: float, words: str) -> None:
    assert two_units(seconds) == words


def test_a_missed_goal_follows_from_the_findings_that_it_counts() -> None:
    """Of the same topic; an outage of one broker also concerns partitions that remained available."""
    day = row("goal", "slo_missed", -600, 60, topic="orders")
    for check, one in (("partition_leaderless", "orders"), ("below_min_isr", "orders")):
        cause = row("cause", check, 5, 9)
        assert caused(cause, day, subjects=(subject("cause", one, 1),))["goal"] == "cause"
        assert caused(cause, day, subjects=(subject("cause", "carts", 1),))["goal"] is None
        assert (
            caused(cause | row("cause", check, 70, 80), day, subjects=(subject("cause", one, 1),))["goal"]
            is None
        )
    assert caused(row("cause", "cluster_down", 5, 9), day)["goal"] == "cause"
    assert (
        caused(row("cause", "broker_down", 5, 9, node=1), day, subjects=(subject("cause", "orders", 1),))[
            "goal"
        ]
        is None
    )
