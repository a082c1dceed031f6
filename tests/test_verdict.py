"""The verdict on stdout: short, the worst first, what to do next."""

from __future__ import annotations

from typing import Any

from test_report import finding, outcome, told

from jobs.verdict import SHOWN, as_text

PROOF = {"e1": {"file": "broker-1/controller.log", "record_no": 17, "raw": "[2026] the line\n\tat a.B"}}


def said(*findings: dict[str, Any], clusters: tuple[str, ...] = ("payments",), **changes: Any) -> list[str]:
    """Lines about clusters that have four partitions."""
    sizes = {"records": 9, "recognised": 8, "unrecognised": 1, "partitions": 4, "controller terms": 1}
    parts = {"counts": dict.fromkeys(clusters, sizes), "not_shown": {}, "proof": PROOF} | changes
    return as_text(told(*findings, **parts), [outcome(cluster=name) for name in clusters], "the tables").split("\n")


def test_a_finding_comes_with_its_proof_its_effects_and_what_to_do() -> None:
    effects = [finding(severity="error", title=f"Effect {n}", fingerprint=f"e{n}", caused_by="f") for n in range(5)]
    assert said(finding(check_id="format_drift", title="Worded anew"), *effects) == [
        "payments: 1 critical, 5 errors",
        "  4 partitions, 1 controller term; 9 records, 8 recognised, 1 unrecognised",
        "  [critical, new] Worded anew",
        "      orders-3 has no leader.",
        "      [2026] the line",
        "      (broker-1/controller.log, line 17)",
        "      follows from it: [error] Effect 0",
        "      follows from it: [error] Effect 1",
        "      follows from it: [error] Effect 2",
        "      and 2 more follow from it",
        "      What to do: kafka-audit explain LINE shows how far each rule got; a rule of your own (--rules DIR) reads it, and we would like to know.",
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
    many = [finding(fingerprint=str(n), cluster="ab"[n % 2]) for n in range(SHOWN + 7)]
    lines = said(*many, clusters=("a", "b"))
    assert sum(line.startswith("  [critical, new] b: Partition") for line in lines) == SHOWN // 2
    assert "  and 7 more: kafka-audit findings --tables 'the tables'" in lines
