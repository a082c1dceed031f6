"""The lifecycle of findings from run to run, their silences and thresholds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import schemas
from jobs.checking import checks, finding_lifecycle
from jobs.config import Silence, Threshold
from jobs.engine.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 3, 2, 4, tzinfo=UTC)


def ago(hours: float | None) -> datetime | None:
    return None if hours is None else NOW - timedelta(hours=hours)


# name: (hours ago first and last seen, ended) or None where the check no longer returns it;
# (status, hours ago first and last seen) as the run before wrote it; status, run and first_seen expected
CASES = {
    "first run": ((3, 0, False), None, "new", "now", 3),
    "a moment, first run": ((30, 30, False), None, "new", "now", 30),
    "over before the first run ended": ((3, 2, True), None, "resolved", "now", 3),
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
    "back for a second run": ((25, 0, False), ("reopened", 90, 24), "open", "now", 90),
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


def test_lifecycle() -> None:
    found = [
        row(name, seen[0], seen[1], ended=seen[2], subjects=None)
        for name, (seen, *_) in CASES.items()
        if seen
    ]
    before = [
        row(name, old[1], old[2], status=old[0], run_id="before", silenced=False, silence=None)
        for name, (_, old, *_) in CASES.items()
        if old
    ]
    rows = finding_lifecycle.updated(found, before, {"payments": NOW}, "now")
    assert {r["fingerprint"]: (r["status"], r["run_id"], r["first_seen"]) for r in rows} == {
        name: (status, run, ago(first)) for name, (*_, status, run, first) in CASES.items()
    }
    assert not any(r["silenced"] for r in rows)
    assert all(r.keys() == schemas.columns("findings").keys() - {"caused_by"} for r in rows)


def test_findings_that_ended_before_this_runs_rows_are_dropped() -> None:
    # hours ago first and last seen, ended; stored status; whether a run that reads the last 24 hours keeps it
    cases = {
        "still so": ((90, 0, False), "open", True),
        "over now": ((90, 2, True), "open", True),
        "ended long ago, not stored": ((90, 80, True), None, False),
        "stored as resolved, began before": ((30, 20, True), "resolved", False),
        "stored as resolved, all of it is read": ((20, 10, True), "resolved", True),
        "ended, not stored yet": ((30, 20, True), None, True),
    }
    found = [row(name, seen[0], seen[1], ended=seen[2]) for name, (seen, *_) in cases.items()]
    before = [
        row(name, seen[0], seen[1], status=status) for name, (seen, status, _) in cases.items() if status
    ]
    kept = finding_lifecycle.without_old(found, before, {"payments": NOW - timedelta(hours=24)})
    assert {r["fingerprint"] for r in kept} == {name for name, (*_, is_kept) in cases.items() if is_kept}
    assert {r["fingerprint"] for r in finding_lifecycle.without_old(found, before, {})} == cases.keys()


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
    rows = finding_lifecycle.updated(
        [one | {"ended": False} for one in found], [], {"payments": NOW}, "now", [silence]
    )
    assert {r["fingerprint"] for r in rows if r["silenced"]} == silenced
    assert {r["silence"] for r in rows} <= {None, silence.because()}


def test_a_new_silence_changes_the_stored_row() -> None:
    def silenced(*silences: Silence, by: Silence | None) -> list[tuple[str, str | None]]:
        values = {
            "status": "open",
            "run_id": "before",
            "silenced": by is not None,
            "silence": by.because() if by else None,
        }
        before = [row("a", 26, 2, **values), row("not found", 90, 80, **values | {"status": "resolved"})]
        rows = finding_lifecycle.updated(
            [row("a", 26, 2, ended=False)], before, {"payments": NOW}, "now", silences
        )
        return [(r["run_id"], r["silence"]) for r in rows]

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
    subjects = finding_lifecycle.subjects(found, before)
    assert {r["cluster"] for r in subjects} == {"payments"}
    assert [(r["fingerprint"], r["partition"], r["replica"], r["since"], r["until"]) for r in subjects] == [
        ("named", 4, 2, ago(3), ago(1)),
        ("goes on", 5, None, ago(3), None),
        ("listed", 7, None, ago(3), None),
        ("over", 7, None, ago(3), None),
    ]


def test_a_finding_that_an_outage_caused_names_the_outages_finding() -> None:
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
    causes = {r["fingerprint"]: r["caused_by"] for r in checks._with_causes(found)}
    assert {name: cause for name, cause in causes.items() if cause} == {
        "follows": "down",
        "follows, too": "whole",
    }
    assert causes.keys() == {r["fingerprint"] for r in found}


@pytest.mark.spark
def test_the_last_threshold_that_matches_counts(spark: SparkSession) -> None:
    from jobs.engine.frames import framed

    settings = [
        Threshold("x", 60),
        Threshold("x", 600, topic="tmp-*"),
        Threshold("x", 5, cluster="pay*", topic="tmp-1"),
    ]
    value = checks.threshold_sql(30, settings)
    pairs = [("payments", "orders"), ("payments", "tmp-1"), ("other", "tmp-1"), ("other", None)]
    asked = [{"cluster": cluster, "topic": topic} for cluster, topic in pairs]
    frame = framed(spark, pa.Table.from_pylist(asked)).selectExpr(f"{value} AS value")
    assert [r.value for r in frame.collect()] == [60, 5, 600, 60]
    assert checks.threshold_sql(30, []) == "30"


def test_thresholds_are_functions_of_cluster_and_topic() -> None:
    settings = [
        Threshold("leaderless_seconds", 600, topic="tmp-*"),
        Threshold("leaderless_seconds", 5, cluster="pay*"),
    ]
    database = Database()
    for function in checks.threshold_functions(settings):
        database.function(function)
    values = "leaderless_seconds(cluster, topic) AS a, leaderless_seconds(cluster, NULL) AS b, log_gap_minutes(cluster, topic) AS c"
    rows = database.rows(
        f"SELECT {values} FROM VALUES ('payments', 'orders'), ('other', 'tmp-1'), ('other', 'x') AS v(cluster, topic)"
    )
    assert sorted(tuple(row.values()) for row in rows) == [(5, 5, 90), (30, 30, 90), (600, 30, 90)]
