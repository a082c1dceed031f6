"""What becomes of a finding from run to run, what silences it, and from when on a state is one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import schemas
from jobs.checking import checks, findings_life
from jobs.config import Silence, Threshold
from jobs.engine.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 3, 2, 4, tzinfo=UTC)


def ago(hours: float | None) -> datetime | None:
    return None if hours is None else NOW - timedelta(hours=hours)


# name: (hours ago first and last seen, ended) or None where the check no longer returns it;
# (status, hours ago first and last seen) as the night before left it; status, run and first_seen expected
LIVES = {
    "first night": ((3, 0, False), None, "new", "now", 3),
    "a moment, first night": ((30, 30, False), None, "new", "now", 30),
    "over before the first night ended": ((3, 2, True), None, "resolved", "now", 3),
    "still so": ((26, 0, False), ("new", 26, 24), "open", "now", 26),
    "still so, nothing newer": ((5, 5, False), ("open", 5, 5), "open", "before", 5),
    "found to have begun earlier": ((40, 0, False), ("open", 26, 24), "open", "now", 40),
    "looks younger now": ((2, 0, False), ("open", 26, 24), "open", "now", 26),
    "over by the logs": ((26, 1, True), ("open", 26, 24), "resolved", "now", 26),
    "a moment, a day ago": ((25, 25, False), ("open", 25, 25), "resolved", "now", 25),
    "repeated, the last time a day ago": ((40, 25, False), ("open", 40, 25), "resolved", "now", 40),
    "no longer found": (None, ("open", 26, 24), "resolved", "now", 26),
    "resolved long since": (None, ("resolved", 90, 80), "resolved", "before", 90),
    "back again": ((1, 0, False), ("resolved", 90, 80), "reopened", "now", 90),
    "back for a second night": ((25, 0, False), ("reopened", 90, 24), "open", "now", 90),
    "without time stamps": ((None, None, False), ("open", None, None), "open", "before", None),
}


def row(fingerprint: str, first: float | None, last: float | None, **more: object) -> dict[str, Any]:
    values = {
        "cluster": "payments",
        "incarnation": 1,
        "check_id": "some_check",
        "severity": "error",
        "topic": "orders",
        "partition": None,
        "replica": None,
        "node": 3,
    }
    values |= {"title": "t", "detail": "d", "advice": "a", "fingerprint": fingerprint, "evidence": ["r"]}
    return values | {"first_seen": ago(first), "last_seen": ago(last)} | more


def test_lives() -> None:
    found = [row(name, seen[0], seen[1], ended=seen[2], subjects=None) for name, (seen, *_) in LIVES.items() if seen]
    before = [
        row(name, old[1], old[2], status=old[0], run_id="before", silenced=False, silence=None)
        for name, (_, old, *_) in LIVES.items()
        if old
    ]
    settled = findings_life.settle(found, before, {"payments": NOW}, "now")
    assert {r["fingerprint"]: (r["status"], r["run_id"], r["first_seen"]) for r in settled} == {
        name: (status, run, ago(first)) for name, (*_, status, run, first) in LIVES.items()
    }
    assert not any(r["silenced"] for r in settled)
    assert all(r.keys() == schemas.columns("findings").keys() - {"caused_by"} for r in settled)


def test_what_was_over_before_is_no_news() -> None:
    # hours ago first and last seen, ended; status of before; whether it is told again by a run that looks back for 24 hours
    cases = {
        "still so": ((90, 0, False), "open", True),
        "over now": ((90, 2, True), "open", True),
        "long over, never told": ((90, 80, True), None, False),
        "told as over, and began before": ((30, 20, True), "resolved", False),
        "told as over, and all of it is seen": ((20, 10, True), "resolved", True),
        "over, not told yet": ((30, 20, True), None, True),
    }
    found = [row(name, seen[0], seen[1], ended=seen[2]) for name, (seen, *_) in cases.items()]
    before = [row(name, seen[0], seen[1], status=status) for name, (seen, status, _) in cases.items() if status]
    news = findings_life.news(found, before, {"payments": NOW - timedelta(hours=24)})
    assert {r["fingerprint"] for r in news} == {name for name, (*_, again) in cases.items() if again}
    assert {r["fingerprint"] for r in findings_life.news(found, before, {})} == cases.keys()


@pytest.mark.parametrize(
    ("silence", "silenced"),
    [
        (Silence(topic="ord*"), {"a", "b"}),
        (Silence(topic="orders", broker="3"), {"a"}),
        (Silence(broker="4"), {"b", "c"}),
        (Silence(check="some_*", cluster="pay*", fingerprint="c"), {"c"}),
        (Silence(topic="*"), {"a", "b", "c"}),
        (Silence(topic="?*"), {"a", "b"}),
        (Silence(check="other_check"), set()),
        (Silence(topic="orders' OR 'x'='x"), set()),
    ],
)
def test_silences(silence: Silence, silenced: set[str]) -> None:
    found = [row("a", 1, 0), row("b", 1, 0, node=None, replica=4), row("c", 1, 0, topic=None, node=4)]
    settled = findings_life.settle([one | {"ended": False} for one in found], [], {"payments": NOW}, "now", [silence])
    assert {r["fingerprint"] for r in settled if r["silenced"]} == silenced
    assert {r["silence"] for r in settled} <= {None, silence.because()}


def test_what_a_silence_changes() -> None:
    def silenced(*silences: Silence, by: Silence | None) -> list[tuple[str, str | None]]:
        told = {"status": "open", "run_id": "before", "silenced": by is not None, "silence": by.because() if by else None}
        before = [row("a", 26, 2, **told), row("gone", 90, 80, **told | {"status": "resolved"})]
        settled = findings_life.settle([row("a", 26, 2, ended=False)], before, {"payments": NOW}, "now", silences)
        return [(r["run_id"], r["silence"]) for r in settled]

    one, other = Silence(reason="move"), Silence(topic="orders", reason="later")
    assert silenced(by=None) == [("before", None)] * 2
    assert silenced(one, other, by=one) == [("before", "move, for good")] * 2
    assert silenced(other, one, by=one) == [("now", "later, for good")] * 2
    assert silenced(by=one) == [("now", None)] * 2


def test_subjects() -> None:
    each = {"topic": "orders", "partition": 7, "replica": None, "since": ago(3), "until": None}
    found = [
        row("named", 3, 1, ended=True, partition=4, replica=2, subjects=None),
        row("goes on", 3, 1, ended=False, partition=5, subjects=None),
        row("of a topic", 3, 1, ended=False, subjects=None),
        row("listed", 3, 1, ended=False, partition=6, subjects=[each]),
        row("of none", 3, 1, ended=False, partition=6, subjects=[]),
    ]
    before = [{"cluster": "payments", "fingerprint": name, **each} for name in ("named", "over")]
    told = findings_life.subjects(found, before)
    assert {r["cluster"] for r in told} == {"payments"}
    assert [(r["fingerprint"], r["partition"], r["replica"], r["since"], r["until"]) for r in told] == [
        ("named", 4, 2, ago(3), ago(1)),
        ("goes on", 5, None, ago(3), None),
        ("listed", 7, None, ago(3), None),
        ("over", 7, None, ago(3), None),
    ]


def test_what_follows_from_an_outage_names_its_finding() -> None:
    found = [
        row("down", 5, 0, check_id="broker_down", outage=None),
        row("follows", 4, 0, node=1, outage={"node": 3, "since": ago(5)}),
        row("of another one", 4, 0, outage={"node": 2, "since": ago(5)}),
        row("of an earlier one", 4, 0, outage={"node": 3, "since": ago(6)}),
        row("of an unknown one", 4, 0, outage={"node": 3, "since": None}),
        row("of another cluster", 4, 0, cluster="other", outage={"node": 3, "since": ago(5)}),
        row("whole", 5, 0, node=None, check_id="cluster_down", outage=None),
        row("follows, too", 4, 0, outage={"node": None, "since": ago(5)}),
    ]
    told = {r["fingerprint"]: r["caused_by"] for r in checks._with_causes(found)}
    assert {name: cause for name, cause in told.items() if cause} == {"follows": "down", "follows, too": "whole"}
    assert told.keys() == {r["fingerprint"] for r in found}


@pytest.mark.spark
def test_the_last_threshold_that_matches_counts(spark: SparkSession) -> None:
    from jobs.engine.frames import of_rows

    settings = [Threshold("x", 60), Threshold("x", 600, topic="tmp-*"), Threshold("x", 5, cluster="pay*", topic="tmp-1")]
    value = checks.threshold_sql(30, settings)
    pairs = [("payments", "orders"), ("payments", "tmp-1"), ("other", "tmp-1"), ("other", None)]
    asked = [{"cluster": cluster, "topic": topic} for cluster, topic in pairs]
    frame = of_rows(spark, asked, "cluster STRING, topic STRING").selectExpr(f"{value} AS value")
    assert [r.value for r in frame.collect()] == [60, 5, 600, 60]
    assert checks.threshold_sql(30, []) == "30"


def test_thresholds_are_functions_of_cluster_and_topic() -> None:
    settings = [Threshold("leaderless_seconds", 600, topic="tmp-*"), Threshold("leaderless_seconds", 5, cluster="pay*")]
    database = Database()
    for function in checks.threshold_functions(settings):
        database.function(function)
    values = (
        "leaderless_seconds(cluster, topic) AS a, leaderless_seconds(cluster, NULL) AS b, log_gap_minutes(cluster, topic) AS c"
    )
    rows = database.rows(
        f"SELECT {values} FROM VALUES ('payments', 'orders'), ('other', 'tmp-1'), ('other', 'x') AS v(cluster, topic)"
    )
    assert sorted(tuple(row.values()) for row in rows) == [(5, 5, 90), (30, 30, 90), (600, 30, 90)]
