"""The verdict on stdout: short, the worst first, what to do next."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from test_report import AT, finding, outcome, told

from jobs.ranking import worst_first
from jobs.verdict import SHOWN, as_text

PROOF = {"e1": {"file": "broker-1/controller.log", "record_no": 17, "raw": "[2026] the line\n\tat a.B"}}


def said(*findings: dict[str, Any], clusters: tuple[str, ...] = ("payments",), **changes: Any) -> list[str]:
    """Lines about clusters that have four partitions."""
    sizes = {"records": 9, "recognised": 8, "unrecognised": 1, "partitions": 4, "controller terms": 1}
    parts = {"counts": dict.fromkeys(clusters, sizes), "not_shown": {}, "proof": PROOF} | changes
    return as_text(told(*findings, **parts), [outcome(cluster=name) for name in clusters], "the tables").split("\n")


def test_a_finding_comes_with_its_proof_its_effects_and_what_to_do() -> None:
    effects = [finding(severity="warning", title=f"Effect {n}", fingerprint=f"e{n}", caused_by="f") for n in range(5)]
    assert said(finding(check_id="format_drift", title="Worded anew", advice="Explain the line."), *effects) == [
        "payments: 1 critical, 5 warnings",
        "  4 partitions, 1 controller term; 9 records, 8 recognised, 1 unrecognised",
        "  [critical, new] Worded anew",
        "      orders-3 has no leader.",
        "      [2026] the line",
        "      (broker-1/controller.log, line 17)",
        "      follows from it: [warning] Effect 0",
        "      follows from it: [warning] Effect 1",
        "      follows from it: [warning] Effect 2",
        "      and 2 more follow from it",
        "      What to do: Explain the line.",
        "      More: kafka-audit findings f --tables 'the tables'",
    ]


def test_what_needs_nobody_is_a_line_each() -> None:
    lines = said(*(finding(severity="info", title=f"To know {n}", fingerprint=str(n)) for n in range(5)))
    assert lines[2:] == [
        "  [info] To know 0",
        "  [info] To know 1",
        "  [info] To know 2",
        "  and 2 more: kafka-audit findings --tables 'the tables'",
    ]


def test_what_is_over_needs_nothing_done() -> None:
    lines = said(finding(severity="warning", status="resolved"), finding(severity="info", status="resolved", fingerprint="i"))
    assert lines[0] == "payments: no findings"
    assert lines[2:4] == ["Over by now:", "  [warning] Partition without a leader: orders-3"]
    assert not [line for line in lines if "What to do" in line or "[info]" in line]


def test_many_findings_of_several_clusters() -> None:
    many = [finding(fingerprint=str(n), cluster="ab"[n % 2], severity="warning") for n in range(SHOWN + 7)]
    lines = said(*many, clusters=("a", "b"))
    assert sum(line.startswith("  [warning, new] b: Partition") for line in lines) == SHOWN // 2
    assert "  and 7 more: kafka-audit findings --tables 'the tables'" in lines


def test_no_error_is_hidden() -> None:
    missed = [finding(severity="error", check_id="slo_missed", title=f"Goal {n}", fingerprint=f"s{n}") for n in range(SHOWN + 2)]
    late = AT + timedelta(hours=9)
    loss = {"severity": "error", "check_id": "unclean_election", "title": "Unclean", "first_seen": late, "fingerprint": "u"}
    minor = [finding(severity="warning", check_id="log_gap", title=f"Gap {n}", fingerprint=f"g{n}") for n in range(9)]
    infos = [finding(severity="info", check_id="blind_spot", title="Blind", fingerprint="i")]
    # what the caller hands over is in the order of `gather`
    findings = sorted([*minor, *infos, *missed, finding(**loss)], key=worst_first)
    lines = [line for line in said(*findings) if line.startswith("  [") or line.startswith("  and")]
    assert lines == [
        "  [error, new] Unclean",
        *(f"  [error, new] Goal {n}" for n in sorted(range(SHOWN + 2), key=str)),
        "  [info] Blind",
        "  and 9 more: kafka-audit findings --tables 'the tables'",
    ]


def test_an_effect_that_is_worse_than_its_cause_stands_on_its_own() -> None:
    cause = finding(severity="info", check_id="broker_down", title="Down")
    effects = [
        finding(severity="error", check_id="below_min_isr", title="Below", fingerprint="b", caused_by="f"),
        finding(severity="info", check_id="under_replicated", title="Lagging", fingerprint="u", caused_by="f"),
    ]
    assert [line for line in said(*sorted([cause, *effects], key=worst_first)) if "[" in line[:20]] == [
        "  [error, new] Below",
        "      [2026] the line",
        "  [info] Down",
    ]


def test_errors_that_were_resolved_long_ago_are_counted() -> None:
    old = [
        finding(severity="error", status="resolved", title=f"Old {n}", fingerprint=f"o{n}", last_seen=AT - timedelta(days=9))
        for n in range(SHOWN + 4)
    ]
    recent = [finding(severity="error", status="resolved", title=f"Recent {n}", fingerprint=f"r{n}") for n in range(3)]
    lines = said(*old, *recent)
    assert [line for line in lines if "Recent" in line] == [f"  [error] Recent {n}" for n in range(3)]
    assert sum("Old" in line for line in lines) == SHOWN
    assert "  and 4 more: kafka-audit findings --tables 'the tables'" in lines
    this_run = as_text(told(*old), [outcome()], "t", run_id="r").split("\n")
    assert sum("Old" in line for line in this_run) == SHOWN + 4
