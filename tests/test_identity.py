"""The identity of findings: which fingerprint one has, and what becomes of it when late records move an episode. Without an engine."""

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
from jobs.checking import findings_life
from jobs.checking.finding_identity import continued, episodic, hashed, identified, known_as

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
    """What a check has found. first, last: hours; without a last one it lasts."""
    values: dict[str, Any] = {
        "cluster": "payments", "incarnation": 1, "check_id": "broker_down", "severity": "error", "topic": None, "partition": None,
        "replica": None, "node": 3, "title": "Broker down", "detail": "d", "caused_by": None, "subjects": None,
        "thing": thing, "evidence": list(evidence), "ended": ended or last is not None,
    }  # fmt: skip
    span = {"first_seen": None if first is None else at(first), "last_seen": NOW if last is None else at(last)}
    return identified([values | span | more])[0]


@dataclass
class Life:
    """The findings of a cluster from run to run, and what a pager is sent."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    pages: list[tuple[str, str]] = field(default_factory=list)
    runs: int = 0

    def run(self, *found: dict[str, Any], begins: float | None = None) -> None:
        """found: of the run. begins: hour from which on it looks at rows."""
        self.runs += 1
        since = {} if begins is None else {"payments": at(begins)}
        lives = continued(identified(found), self.rows, since)
        news = findings_life.news(lives.found, lives.before, since)
        self.rows = findings_life.settle(news, lives.before, {"payments": NOW}, f"run {self.runs}")
        sink = PagerDuty(name="pager", routing_key_env="KEY", limit=1000)
        for some in plan([sink], [finding_of(one) for one in self.rows], self.sent, now=NOW, newest={"payments": NOW}).values():
            for message in some:
                self.pages.append((message.state, message.key))
                self.sent = latest([*self.sent, *outcome(message, NOW + timedelta(seconds=self.runs), None, None)])

    @property
    def open(self) -> set[str]:
        return {one["fingerprint"] for one in self.rows if one["status"] != "resolved"}


def test_a_late_record_that_moves_the_begin_changes_nothing_for_people() -> None:
    life = Life()
    life.run(row("3", 5, evidence=["noticed"]))
    (before,) = life.rows
    life.run(row("3", 2, evidence=["killed", "noticed"]))
    (after,) = life.rows
    assert (after["fingerprint"], after["status"], after["first_seen"]) == (before["fingerprint"], "open", at(2))
    # across midnight, and to a later moment
    for hours in (-12, -9, 4):
        life.run(row("3", hours, evidence=["seen", "noticed"]))
        (after,) = life.rows
        assert (after["status"], after["first_seen"], known_as(after)) == ("open", at(hours), before["fingerprint"])
        assert after["fingerprint"] == row("3", hours)["fingerprint"]
    life.run(row("3", 4, 6, evidence=["noticed", "back"]))
    assert life.pages == [(FIRING, before["fingerprint"]), (RESOLVED, before["fingerprint"])]


def test_episodes_of_one_day_are_told_apart() -> None:
    first, second, third = row("3", 1, 2, evidence=["a"]), row("3", 3, 4, evidence=["b"]), row("3", 5, evidence=["c"])
    found = identified([first, second, third])
    assert len({one["fingerprint"] for one in found}) == 3
    # the newest is told by its day, whether the others are looked at or not
    assert found[2]["fingerprint"] == third["fingerprint"] == row("3", 7)["fingerprint"] != row("3", 27)["fingerprint"]
    life = Life()
    life.run(row("3", 1, evidence=["a"]))
    life.run(first, row("3", 3, evidence=["b"]))
    life.run(first, second, third)
    assert {one["fingerprint"]: (one["first_seen"], one["status"]) for one in life.rows} == {
        found[0]["fingerprint"]: (at(1), "resolved"),
        found[1]["fingerprint"]: (at(3), "resolved"),
        found[2]["fingerprint"]: (at(5), "new"),
    }
    # an incident each, opened and resolved under its own key
    keys = [key for state, key in life.pages if state == FIRING]
    assert Counter(life.pages) == Counter([(FIRING, key) for key in keys] + [(RESOLVED, key) for key in keys[:2]])
    assert len(set(keys)) == 3


def test_two_that_turn_out_to_be_one() -> None:
    life = Life()
    life.run(row("3", 1, 2, evidence=["a"]), row("3", 4, evidence=["b"]))
    life.run(row("3", 1, evidence=["a", "b"]))
    assert {(one["first_seen"], one["status"]) for one in life.rows} >= {(at(1), "open")}
    assert len(life.open) == 1
    assert [state for state, _ in life.pages] == [FIRING]


def test_one_that_turns_out_to_be_two() -> None:
    life = Life()
    life.run(row("3", 1, evidence=["a", "b"]))
    life.run(row("3", 1, 2, evidence=["a"]), row("3", 4, evidence=["b", "c"]))
    assert sorted((one["first_seen"], one["status"]) for one in life.rows) == [(at(1), "resolved"), (at(4), "new")]
    assert Counter(state for state, _ in life.pages) == {FIRING: 2, RESOLVED: 1}
    assert len({key for state, key in life.pages if state == FIRING}) == 2


def test_a_cause_that_is_known_later_is_no_other_finding() -> None:
    life = Life()
    life.run(row("unexplained", 1, check_id="below_min_isr", evidence=["a"]))
    life.run(row("3", 1, check_id="below_min_isr", evidence=["a", "b"]))
    (one,) = life.rows
    assert (one["thing"], one["status"]) == ("3", "open")
    # and neither is an earlier cluster of that name
    life.run(row("3", 1, check_id="below_min_isr", evidence=["a", "b"], incarnation=2))
    (one,) = life.rows
    assert (one["incarnation"], one["status"]) == (2, "open")
    assert life.pages == [(FIRING, known_as(one))]


def test_what_a_run_does_not_look_at_stays() -> None:
    life = Life()
    life.run(row("3", -40, evidence=["a"]), row("4", 1, 2, evidence=["b"]))
    before = {one["thing"]: one for one in life.rows}
    # of the one only the end is seen, of the other nothing
    life.run(row("3", 20, evidence=["c"]), begins=10)
    after = {one["thing"]: one for one in life.rows}
    assert (after["3"]["fingerprint"], after["3"]["first_seen"]) == (before["3"]["fingerprint"], at(-40))
    assert after["4"] == before["4"]


def test_findings_of_earlier_versions_go_on() -> None:
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
    life = Life([old])
    life.run(row("3", 5))
    (one,) = life.rows
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


def test_no_check_tells_its_findings_apart_by_what_late_records_change() -> None:
    """A record that is the first one now, and a begin, may be others tomorrow. What one record alone says stays."""
    for check in schemas.statements("checks"):
        if check.name in ("illegal_partition_transition", "illegal_replica_transition"):
            continue
        told = next(line for line in reversed(check.sql.splitlines()) if line.endswith((" AS thing,", ".thing,")))
        assert not any(
            word in told for word in ("record", "evidence", "min_by", "min(concat", "since,", "starting_at", "died_at")
        ), check.name


# -- any order of delivery -------------------------------------------------------------------------------------

# (broker, hour, whether it goes): what the logs say of brokers that come and go
Fact = tuple[int, int, bool]


def shown_by(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """The findings that these facts show: a broker is down from the first line that it went to the next line that it came."""
    found, gone = [], dict[int, list[Fact]]()
    for fact in sorted(facts, key=lambda fact: (fact[1], fact[0])):
        broker, hour, goes = fact
        if goes:
            gone.setdefault(broker, []).append(fact)
        elif lines := gone.pop(broker, None):
            found.append(row(str(broker), lines[0][1], hour, node=broker, evidence=[*map(str, lines), str(fact)]))
    found += [row(str(broker), lines[0][1], node=broker, evidence=list(map(str, lines))) for broker, lines in gone.items()]
    return identified(found)


facts_told = st.lists(
    st.tuples(st.integers(1, 2), st.integers(-30, 60), st.booleans()), unique_by=lambda fact: fact[:2], min_size=1, max_size=14
)


@settings(max_examples=300, deadline=None)
@given(facts_told, st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_order_of_delivery_ends_with_the_findings_of_one_run(facts: list[Fact], runs: int, chance: random.Random) -> None:
    life, once = Life(), Life()
    once.run(*shown_by(facts))
    number = {fact: chance.randrange(runs) for fact in facts}
    for last in range(runs):
        life.run(*shown_by(fact for fact in facts if number[fact] <= last))
    assert life.open == once.open
    expected = {one["fingerprint"]: (one["first_seen"], one["thing"]) for one in once.rows}
    found = {one["fingerprint"]: (one["first_seen"], one["thing"]) for one in life.rows}
    assert found.items() >= expected.items()
    assert len(found) == len(life.rows) == len({known_as(one) for one in life.rows})
    # an incident is opened once; what is open is what is wrong; and what was opened for something else is resolved
    fired, resolved = (Counter(key for state, key in life.pages if state == which) for which in (FIRING, RESOLVED))
    assert set(fired - resolved) == {known_as(one) for one in life.rows if one["status"] != "resolved"}
    assert all(count == 1 for count in (fired - resolved).values())


@settings(max_examples=200, deadline=None)
@given(st.integers(-30, 60), st.lists(st.integers(-30, 60), min_size=1, max_size=6))
def test_whatever_the_begin_turns_out_to_be_there_is_one_page(first: int, later: list[int]) -> None:
    life = Life()
    seen = [first]
    for hour in [first, *later]:
        seen = sorted({*seen, hour})
        life.run(*shown_by((3, one, True) for one in seen))
    (one,) = life.rows
    assert life.pages == [(FIRING, known_as(one))]
    assert one["fingerprint"] == row("3", min(seen))["fingerprint"]


@pytest.mark.parametrize("check", sorted(episodic()))
def test_checks_of_episodes_give_a_begin(check: str) -> None:
    (statement,) = (one for one in schemas.statements("checks") if one.name == check)
    assert "NULL AS TIMESTAMP) AS first_seen" not in statement.sql


def test_findings_that_a_check_does_not_tell_apart_have_fingerprints_of_their_own() -> None:
    """Two rows with one fingerprint would break the contract of the table and end the run."""
    rows = [row("one thing", begin, check_id="unclean_election") for begin in (3, 5)]
    assert "unclean_election" not in episodic()
    assert len({one["fingerprint"] for one in identified(rows)}) == 2
