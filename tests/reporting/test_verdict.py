"""The verdict on stdout: short, the worst first, what to do next."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from test_report import AT, finding, outcome, results_of

from jobs.checking.harms import Harm
from jobs.checking.ranking import worst_first
from jobs.reporting.verdict import SHOWN, as_text

PROOF = {"e1": {"file": "broker-1/controller.log", "record_no": 17, "raw": "[2026] the line\n\tat a.B"}}


def said(*findings: dict[str, Any], clusters: tuple[str, ...] = ("payments",), **changes: Any) -> list[str]:
    """Lines about clusters that have four partitions."""
    sizes = {"records": 9, "recognised": 8, "unrecognised": 1, "partitions": 4, "controller terms": 1}
    parts = {"counts": dict.fromkeys(clusters, sizes), "not_shown": {}, "proof": PROOF} | changes
    return as_text(
        results_of(*findings, **parts), [outcome(cluster=name) for name in clusters], "the tables"
    ).split("\n")


def test_a_finding_has_proof_effects_and_advice() -> None:
    effects = [
        finding(severity="warning", title=f"Effect {n}", fingerprint=f"e{n}", caused_by="f") for n in range(5)
    ]
    assert said(
        finding(check_id="format_drift", title="New words", advice="Explain the line."), *effects
    ) == [
        "payments: 1 critical, 5 warnings",
        "  4 partitions, 1 controller term; 9 records, 8 recognised, 1 unrecognised",
        "  [critical, new] New words",
        "      Not over: at 2026-11-20 10:00:00 UTC.",
        "      No line shows that a partition was unavailable, at risk or lost.",
        "      orders-3 has no leader.",
        "      [2026] the line",
        "      (broker-1/controller.log, line 17)",
        "      Consequence: [warning, new] Effect 0",
        "      Consequence: [warning, new] Effect 1",
        "      Consequence: [warning, new] Effect 2",
        "      and 2 more consequences",
        "      What to do: Explain the line.",
        "      More: kafka-audit findings f --tables 'the tables'",
    ]


def test_infos_have_one_line_each() -> None:
    lines = said(*(finding(severity="info", title=f"To know {n}", fingerprint=str(n)) for n in range(5)))
    assert lines[2:] == [
        "  [info] To know 0",
        "  [info] To know 1",
        "  [info] To know 2",
        "  and 2 more: kafka-audit findings --tables 'the tables'",
    ]


def test_of_several_clusters_each_line_names_its_own() -> None:
    some = [finding(severity="info", title="All down", cluster=name, fingerprint=name) for name in ("a", "b")]
    assert said(*some, clusters=("a", "b"))[-2:] == ["  [info] a: All down", "  [info] b: All down"]


def test_every_record_is_counted() -> None:
    counts = {"payments": {"records": 12, "recognised": 8, "drifted": 1, "out_of_scope": 3}}
    assert said(counts=counts)[1] == "  12 records, 8 recognised, 1 drifted, 3 out of scope"


def test_resolved_stories_have_no_advice() -> None:
    lines = said(
        finding(severity="warning", status="resolved"),
        finding(severity="info", status="resolved", fingerprint="i"),
    )
    assert lines[0] == "payments: no findings"
    assert lines[2:4] == ["Resolved:", "  [warning] Partition without a leader: orders-3"]
    assert not [line for line in lines if "What to do" in line or "[info]" in line]


def test_many_findings_of_several_clusters() -> None:
    many = [finding(fingerprint=str(n), cluster="ab"[n % 2], severity="warning") for n in range(SHOWN + 7)]
    lines = said(*many, clusters=("a", "b"))
    assert sum(line.startswith("  [warning, new] ") for line in lines) == SHOWN
    assert any(line.startswith("  [warning, new] b: Partition") for line in lines)
    assert "  and 7 more: kafka-audit findings --tables 'the tables'" in lines


def test_no_error_is_hidden() -> None:
    missed = [
        finding(severity="error", check_id="slo_missed", title=f"Goal {n}", fingerprint=f"s{n}")
        for n in range(SHOWN + 2)
    ]
    late = AT + timedelta(hours=9)
    loss = {
        "severity": "error",
        "check_id": "unclean_election",
        "title": "Unclean",
        "first_seen": late,
        "fingerprint": "u",
    }
    minor = [
        finding(severity="warning", check_id="log_gap", title=f"Gap {n}", fingerprint=f"g{n}")
        for n in range(9)
    ]
    infos = [finding(severity="info", check_id="blind_spot", title="Blind", fingerprint="i")]
    # the caller passes findings in the order of `read`
    findings = sorted([*minor, *infos, *missed, finding(**loss)], key=worst_first)
    lines = [line for line in said(*findings) if line.startswith("  [") or line.startswith("  and")]
    assert lines == [
        "  [error, new] Unclean",
        *(f"  [error, new] Goal {n}" for n in sorted(range(SHOWN + 2), key=str)),
        "  and 9 more: kafka-audit findings --tables 'the tables'",
    ]


def test_a_story_begins_with_its_cause_and_has_the_place_of_its_worst_finding() -> None:
    cause = finding(severity="info", check_id="broker_down", title="Down")
    effects = [
        finding(severity="error", check_id="below_min_isr", title="Below", fingerprint="b", caused_by="f"),
        finding(
            severity="info", check_id="under_replicated", title="Lagging", fingerprint="u", caused_by="b"
        ),
    ]
    other = finding(severity="warning", check_id="log_gap", title="Gap", fingerprint="g")
    assert [
        line for line in said(*sorted([other, cause, *effects], key=worst_first)) if "[" in line[:22]
    ] == [
        "  [error, new] Down",
        "      [2026] the line",
        "      Consequence: [error, new] Below",
        "      Consequence: [info] Lagging",
        "  [warning, new] Gap",
        "      [2026] the line",
    ]


def test_a_story_lasts_as_long_as_one_of_its_findings() -> None:
    cause = finding(severity="error", status="resolved", check_id="broker_down", title="Down")
    effect = finding(
        severity="warning", check_id="under_replicated", title="Lagging", fingerprint="u", caused_by="f"
    )
    assert "Resolved:" not in said(cause, effect)
    assert "Resolved:" in said(cause, effect | {"status": "resolved"})
    # a consequence that lasts is the headline where its cause is over
    lines = said(cause, effect)
    assert lines[2] == "  [warning, new] Lagging"
    assert "      Cause: [error, resolved] Down" in lines
    assert "  [error] Down" in said(cause | {"status": "open"}, effect)
    assert "  [error] Down" in said(cause, effect | {"status": "resolved"})
    # a silenced cause hides no effect
    assert "  [warning, new] Lagging" in said(cause | {"silenced": True}, effect)


def test_a_warning_that_is_resolved_is_brief() -> None:
    over = finding(severity="warning", status="resolved", detail="All of it.")
    assert not any("All of it." in line for line in said(over))
    assert any("More: kafka-audit findings" in line for line in said(over))
    assert any("All of it." in line for line in said(over | {"severity": "error"}))
    assert any("All of it." in line for line in said(over | {"status": "open"}))


def test_a_story_last_seen_before_the_end_of_the_logs_is_not_ongoing() -> None:
    early = AT - timedelta(hours=2)
    once, at_times = (
        finding(first_seen=early, last_seen=early),
        finding(first_seen=early, last_seen=early + timedelta(minutes=5)),
    )
    assert said(once)[3] == "      At 2026-11-20 08:00:00 UTC; the logs go on to 10:00:00 UTC."
    assert said(at_times)[3] == (
        "      From 2026-11-20 08:00:00 UTC, last seen at 08:05:00 UTC (5 min); the logs go on to 10:00:00 UTC."
    )


def test_the_harm_is_among_the_first_three_lines() -> None:
    until = AT + timedelta(seconds=260)
    lost = Harm("lost", 1, ("drill",), 1, AT, AT, records=27000)
    unavailable = Harm("unavailable", 12, ("a", "b", "c"), 5, AT, until, longest_seconds=260.4)
    risk = Harm("at_risk", 2, ("a",), 1, AT, None, lasts=True, longest_seconds=90_000)
    lines = said(finding(), harms={"f": [risk, unavailable, lost]})
    assert lines[2:7] == [
        "  [critical, new] Partition without a leader: orders-3",
        "      Not over: at 2026-11-20 10:00:00 UTC.",
        "      Lost: at least 27,000 records in 1 partition of drill.",
        "      Unavailable: 12 partitions of a, b, c and 2 more topics, the longest for at least 4 min 20 s; over at 2026-11-20 10:04:20 UTC.",
        "      At risk: 2 partitions of a, the longest for at least 1 d 1 h; still so at 2026-11-20 10:00:00 UTC.",
    ]


def test_errors_that_were_resolved_long_ago_are_counted() -> None:
    old = [
        finding(
            severity="error",
            status="resolved",
            title=f"Old {n}",
            fingerprint=f"o{n}",
            last_seen=AT - timedelta(days=9),
        )
        for n in range(SHOWN + 4)
    ]
    recent = [
        finding(severity="error", status="resolved", title=f"Recent {n}", fingerprint=f"r{n}")
        for n in range(3)
    ]
    lines = said(*old, *recent)
    assert [line for line in lines if "Recent" in line] == [f"  [error] Recent {n}" for n in range(3)]
    assert sum("Old" in line for line in lines) == SHOWN
    assert "  and 4 more: kafka-audit findings --tables 'the tables'" in lines
    this_run = as_text(results_of(*old), [outcome()], "t", run_id="r").split("\n")
    assert sum("Old" in line for line in this_run) == SHOWN + 4
