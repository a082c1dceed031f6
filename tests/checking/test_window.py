"""--since, --until and --node choose what is reported."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from test_report import finding

from jobs import errors
from jobs.checking.window import Window, bound
from jobs.errors import UsageError
from jobs.nightly_audit import main
from jobs.reporting import verdict

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SAMPLE = Path(__file__).parents[2] / "sample_logs" / "3.9.1-kraft" / "controller-failover"


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("2026-11-20T10:00:00Z", "--since", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20T10:00", "--since", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20 10:00:00+02:00", "--until", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        ("2026-11-20", "--since", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20", "--until", datetime(2026, 11, 20, 23, 59, 59, 999999, tzinfo=UTC)),
        ("2h", "--since", timedelta(hours=2)),
        ("30m", "--until", timedelta(minutes=30)),
        ("7d", "--since", timedelta(days=7)),
    ],
)
def test_times_days_and_durations(text, what, expected):
    assert bound(text, what) == expected


@pytest.mark.parametrize(
    ("since", "until", "nodes", "said"),
    [
        ("noon", None, [], "--since noon: give a time"),
        (None, "2x", [], "--until 2x: give a time"),
        (None, "2026-13-40", [], "--until 2026-13-40"),
        ("2026-11-21", "2026-11-20", [], "is after --until"),
        ("1h", "2h", [], "is after --until"),
        (None, None, ["three"], "--node three: give ids"),
    ],
)
def test_wrong_bounds_and_nodes_are_refused(since, until, nodes, said):
    with pytest.raises(UsageError, match=said):
        Window.given(since, until, nodes)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window.given(None, None, []), {"early", "long", "late", "timeless"}),
        (Window.given("2026-11-20T09:00Z", None, []), {"long", "late", "timeless"}),
        (Window.given(None, "2026-11-20T09:00Z", []), {"early", "long", "timeless"}),
        (Window.given("3h", "1h", []), {"long", "late", "timeless"}),
        (Window.given("2026-11-19", "2026-11-19", []), {"timeless"}),
        (Window.given(None, None, ["3"]), {"early", "long", "timeless"}),
        (Window.given(None, None, ["3,9"]), {"early", "long", "late", "timeless"}),
        (Window.given(None, None, ["7"]), {"long", "timeless"}),
        (Window.given("2h", None, ["3"]), {"long", "timeless"}),
    ],
)
def test_findings_in_a_window(window, expected):
    def at(hour):
        return datetime(2026, 11, 20, hour)

    rows = [
        finding(fingerprint="early", node=3, first_seen=at(6), last_seen=at(7)),
        # it is about replicas of brokers 3 and 7
        finding(fingerprint="long", first_seen=at(6), last_seen=at(11)),
        finding(fingerprint="late", replica=9, first_seen=at(10), last_seen=at(10)),
        finding(fingerprint="timeless", first_seen=None, last_seen=None),
    ]
    whole = verdict.RunResults(rows, {}, {}, {}, subjects={"long": {"replicas": [3, 7]}})
    assert {
        row["fingerprint"] for row in verdict.within(whole, window, {"payments": NOW}).findings
    } == expected


@pytest.mark.spark
def test_the_tables_have_everything(spark, tmp_path, capsys):
    def audited(name: str, *more: str) -> dict:
        main(["audit", str(SAMPLE), "--tables", str(tmp_path / name), "--json", "--fail-on", "info", *more])
        return json.loads(capsys.readouterr().out)

    whole, none = audited("whole"), audited("part", "--until", "2026-11-19")
    assert [row["check_id"] for row in whole["findings"]] == ["cluster_down", "blind_spot"]
    assert (none["findings"], none["exit_code"], whole["exit_code"]) == ([], errors.CLEAN, errors.FINDINGS)
    assert none["notes"] == [
        f"2 findings outside of --since, --until and --node: kafka-audit findings --tables {tmp_path / 'part'}"
    ]
    assert none["clusters"][0]["counts"] == whole["clusters"][0]["counts"]
    # what began before is known: the end of the logs is an outage of brokers that were up before
    late = audited("part", "--since", "1m")
    assert [row["title"] for row in late["findings"]] == [row["title"] for row in whole["findings"]]
    assert [row["fingerprint"] for row in late["findings"]] != []
