"""The identity of findings: their fingerprints, also when late records move an episode. Without an engine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import schemas
from jobs.alerts.delivery import finding_of, latest, plan
from jobs.alerts.outbox import FIRING, RESOLVED, Sent, outcome
from jobs.alerts.sinks.pagerduty import PagerDuty
from jobs.checking import finding_lifecycle
from jobs.checking.finding_identity import episodic, hashed, identified, known_as, matched

T0 = datetime(2026, 11, 20, 10, tzinfo=UTC)
NOW = T0 + timedelta(days=3)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


def row(
    thing: str,
    first: float | None,
    last: float | None = None,
    *,
    ended: bool = False,
    evidence: Sequence[str] = ("r",),
    **more: Any,
) -> dict[str, Any]:
    """Return a row that a check found. first, last: hours; without `last` the finding is open."""
    values: dict[str, Any] = {
        "cluster": "payments", "incarnation": 1, "check_id": "broker_down", "severity": "error", "topic": None, "partition": None,
        "replica": None, "node": 3, "title": "Broker down", "detail": "d", "caused_by": None, "subjects": None,
        "thing": thing, "evidence": list(evidence), "ended": ended or last is not None,
    }  # fmt: skip
    span = {
        "first_seen": None if first is None else at(first),
        "last_seen": NOW if last is None else at(last),
    }
    return identified([values | span | more])[0]


@dataclass
class Runs:
    """The findings of a cluster from run to run, and the pages that they send."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    pages: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0

    def run(self, *found: dict[str, Any], begins: float | None = None) -> None:
        """found: of the run. begins: hour of the first row that it reads."""
        self.count += 1
        since = {} if begins is None else {"payments": at(begins)}
        matches = matched(identified(found), self.rows, since)
        current = finding_lifecycle.without_old(matches.found, matches.before, since)
        self.rows = finding_lifecycle.updated(current, matches.before, {"payments": NOW}, f"run {self.count}")
        sink = PagerDuty(name="pager", routing_key_env="KEY", limit=1000)
        for some in plan(
            [sink], [finding_of(one) for one in self.rows], self.sent, now=NOW, newest={"payments": NOW}
        ).values():
            for message in some:
                self.pages.append((message.state, message.key))
                self.sent = latest(
                    [*self.sent, *outcome(message, NOW + timedelta(seconds=self.count), None, None)]
                )

    @property
    def open(self) -> set[str]:
        return {one["fingerprint"] for one in self.rows if one["status"] != "resolved"}


def test_a_late_record_that_moves_the_begin_changes_nothing_for_people() -> None:
    runs = Runs()
    runs.run(row("3", 5, evidence=["noticed"]))
    (before,) = runs.rows
    runs.run(row("3", 2, evidence=["killed", "noticed"]))
    (after,) = runs.rows
    assert (after["fingerprint"], after["status"], after["first_seen"]) == (
        before["fingerprint"],
        "open",
        at(2),
    )
    # across midnight, and to a later moment
    for hours in (-12, -9, 4):
        runs.run(row("3", hours, evidence=["seen", "noticed"]))
        (after,) = runs.rows
        assert (after["status"], after["first_seen"], known_as(after)) == (
            "open",
            at(hours),
            before["fingerprint"],
        )
        assert after["fingerprint"] == row("3", hours)["fingerprint"]
    runs.run(row("3", 4, 6, evidence=["noticed", "back"]))
    assert runs.pages == [(FIRING, before["fingerprint"]), (RESOLVED, before["fingerprint"])]


def test_episodes_of_one_day_have_different_fingerprints() -> None:
    first, second, third = (
        row("3", 1, 2, evidence=["a"]),
        row("3", 3, 4, evidence=["b"]),
        row("3", 5, evidence=["c"]),
    )
    found = identified([first, second, third])
    assert len({one["fingerprint"] for one in found}) == 3
    # the newest one's fingerprint depends on its day alone
    assert (
        found[2]["fingerprint"]
        == third["fingerprint"]
        == row("3", 7)["fingerprint"]
        != row("3", 27)["fingerprint"]
    )
    runs = Runs()
    runs.run(row("3", 1, evidence=["a"]))
    runs.run(first, row("3", 3, evidence=["b"]))
    runs.run(first, second, third)
    assert {one["fingerprint"]: (one["first_seen"], one["status"]) for one in runs.rows} == {
        found[0]["fingerprint"]: (at(1), "resolved"),
        found[1]["fingerprint"]: (at(3), "resolved"),
        found[2]["fingerprint"]: (at(5), "new"),
    }
    # an incident each, opened and resolved under its own key
    keys = [key for state, key in runs.pages if state == FIRING]
    assert Counter(runs.pages) == Counter(
        [(FIRING, key) for key in keys] + [(RESOLVED, key) for key in keys[:2]]
    )
    assert len(set(keys)) == 3


def test_late_records_join_two_findings() -> None:
    runs = Runs()
    runs.run(row("3", 1, 2, evidence=["a"]), row("3", 4, evidence=["b"]))
    runs.run(row("3", 1, evidence=["a", "b"]))
    assert {(one["first_seen"], one["status"]) for one in runs.rows} >= {(at(1), "open")}
    assert len(runs.open) == 1
    assert [state for state, _ in runs.pages] == [FIRING]


def test_late_records_split_a_finding() -> None:
    runs = Runs()
    runs.run(row("3", 1, evidence=["a", "b"]))
    runs.run(row("3", 1, 2, evidence=["a"]), row("3", 4, evidence=["b", "c"]))
    assert sorted((one["first_seen"], one["status"]) for one in runs.rows) == [
        (at(1), "resolved"),
        (at(4), "new"),
    ]
    assert Counter(state for state, _ in runs.pages) == {FIRING: 2, RESOLVED: 1}
    assert len({key for state, key in runs.pages if state == FIRING}) == 2


def test_a_finding_keeps_its_identity_when_its_cause_becomes_known() -> None:
    runs = Runs()
    runs.run(row("unexplained", 1, check_id="below_min_isr", evidence=["a"]))
    runs.run(row("3", 1, check_id="below_min_isr", evidence=["a", "b"]))
    (one,) = runs.rows
    assert (one["thing"], one["status"]) == ("3", "open")
    # nor does a new number of the incarnation change it
    runs.run(row("3", 1, check_id="below_min_isr", evidence=["a", "b"], incarnation=2))
    (one,) = runs.rows
    assert (one["incarnation"], one["status"]) == (2, "open")
    assert runs.pages == [(FIRING, known_as(one))]


def test_findings_before_the_rows_of_a_run_stay() -> None:
    runs = Runs()
    runs.run(row("3", -40, evidence=["a"]), row("4", 1, 2, evidence=["b"]))
    before = {one["thing"]: one for one in runs.rows}
    # the run reads only the end of one and nothing of the other
    runs.run(row("3", 20, evidence=["c"]), begins=10)
    after = {one["thing"]: one for one in runs.rows}
    assert (after["3"]["fingerprint"], after["3"]["first_seen"]) == (before["3"]["fingerprint"], at(-40))
    assert after["4"] == before["4"]


def test_findings_of_earlier_versions_are_continued() -> None:
    """They have no `thing`, and a fingerprint with their first record in it."""
    old = {name: value for name, value in row("3", 5).items() if name not in ("thing", "ended", "subjects")}
    old |= {
        "fingerprint": "f" * 64,
        "status": "open",
        "run_id": "r",
        "silenced": False,
        "silence": None,
        "thing": None,
        "known_as": None,
    }
    runs = Runs([old])
    runs.run(row("3", 5))
    (one,) = runs.rows
    assert (one["status"], one["thing"], one["known_as"], one["fingerprint"]) == (
        "open",
        "3",
        "f" * 64,
        row("3", 5)["fingerprint"],
    )


def test_checks_without_episodes_have_the_fingerprints_that_they_had() -> None:
    one = row("orders|0", 5, check_id="leader_imbalance")
    assert one["fingerprint"] == hashed("leader_imbalance", "payments", 1, "orders|0")
    assert "leader_imbalance" not in episodic()
    assert "broker_down" in episodic()


def test_no_check_identifies_findings_by_what_late_records_change() -> None:
    """The first record and the begin may change with late records. What one record alone says does not."""
    for check in schemas.statements("checks"):
        if check.name in ("illegal_partition_transition", "illegal_replica_transition"):
            continue
        thing = next(
            line for line in reversed(check.sql.splitlines()) if line.endswith((" AS thing,", ".thing,"))
        )
        assert not any(
            word in thing
            for word in ("record", "evidence", "min_by", "min(concat", "since,", "starting_at", "died_at")
        ), check.name


# -- any order of delivery -----------------------------------------------------------------------------------

# (broker, hour, whether it stops): log lines about brokers that stop and start
Fact = tuple[int, int, bool]


def shown_by(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """Return the findings of these facts: a broker is down from the first line that it stops to the next line
    that it starts.
    """
    found, down = [], dict[int, list[Fact]]()
    for fact in sorted(facts, key=lambda fact: (fact[1], fact[0])):
        broker, hour, stops = fact
        if stops:
            down.setdefault(broker, []).append(fact)
        elif lines := down.pop(broker, None):
            found.append(
                row(str(broker), lines[0][1], hour, node=broker, evidence=[*map(str, lines), str(fact)])
            )
    found += [
        row(str(broker), lines[0][1], node=broker, evidence=list(map(str, lines)))
        for broker, lines in down.items()
    ]
    return identified(found)


facts_logged = st.lists(
    st.tuples(st.integers(1, 2), st.integers(-30, 60), st.booleans()),
    unique_by=lambda fact: fact[:2],
    min_size=1,
    max_size=14,
)


@settings(max_examples=300, deadline=None)
@given(facts_logged, st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_order_of_delivery_ends_with_the_findings_of_one_run(
    facts: list[Fact], count: int, chance: random.Random
) -> None:
    many_runs, one_run = Runs(), Runs()
    one_run.run(*shown_by(facts))
    number = {fact: chance.randrange(count) for fact in facts}
    for last in range(count):
        many_runs.run(*shown_by(fact for fact in facts if number[fact] <= last))
    assert many_runs.open == one_run.open
    expected = {one["fingerprint"]: (one["first_seen"], one["thing"]) for one in one_run.rows}
    found = {one["fingerprint"]: (one["first_seen"], one["thing"]) for one in many_runs.rows}
    assert found.items() >= expected.items()
    assert len(found) == len(many_runs.rows) == len({known_as(one) for one in many_runs.rows})
    # each incident is opened once, and the open ones are those of unresolved findings
    fired, resolved = (
        Counter(key for state, key in many_runs.pages if state == which) for which in (FIRING, RESOLVED)
    )
    assert set(fired - resolved) == {known_as(one) for one in many_runs.rows if one["status"] != "resolved"}
    assert all(count == 1 for count in (fired - resolved).values())


@settings(max_examples=200, deadline=None)
@given(st.integers(-30, 60), st.lists(st.integers(-30, 60), min_size=1, max_size=6))
def test_a_finding_whose_begin_moves_sends_one_page(first: int, later: list[int]) -> None:
    runs = Runs()
    seen = [first]
    for hour in [first, *later]:
        seen = sorted({*seen, hour})
        runs.run(*shown_by((3, one, True) for one in seen))
    (one,) = runs.rows
    assert runs.pages == [(FIRING, known_as(one))]
    assert one["fingerprint"] == row("3", min(seen))["fingerprint"]


@pytest.mark.parametrize("check", sorted(episodic()))
def test_checks_of_episodes_give_a_begin(check: str) -> None:
    (statement,) = (one for one in schemas.statements("checks") if one.name == check)
    assert "NULL AS TIMESTAMP) AS first_seen" not in statement.sql


def test_findings_of_one_thing_have_different_fingerprints() -> None:
    """Two rows with one fingerprint would break the contract of the table and end the run."""
    rows = [row("one thing", begin, check_id="unclean_election") for begin in (3, 5)]
    assert "unclean_election" not in episodic()
    assert len({one["fingerprint"] for one in identified(rows)}) == 2
