"""What the faults do to a few records, and that each does something to the recording that it is tried on."""

from pathlib import Path

import pytest
from faults import (
    FAULTS,
    SAMPLES,
    Case,
    added,
    altered,
    between,
    doubled,
    faulty,
    judge,
    read,
    shifted,
    swapped,
    truncated,
    without,
    without_node,
    write,
)

A = "[2026-11-20 10:00:00,000] INFO from A to B (x)\n"
B = "[2026-11-20 10:00:01,500] INFO from B to C (x)\n\tat a.B\n"
C = "[2026-11-20 10:00:03,000] INFO done (x)\n"
ONE = ("broker-1", "x.log")
LOGS = {ONE: [A, B, C], ("broker-2", "x.log"): [C]}


def test_read_and_written(tmp_path: Path) -> None:
    write(LOGS, tmp_path)
    assert read(tmp_path) == LOGS


def test_what_is_missing() -> None:
    assert faulty(LOGS, [without("from B")])[ONE] == [A, C]
    assert faulty(LOGS, [without("done", "broker-2")]) == {ONE: [A, B, C], ("broker-2", "x.log"): []}
    assert list(faulty(LOGS, [without_node("broker-2")])) == [ONE]
    assert faulty(LOGS, [between("10:00:01", "10:00:03")])[ONE] == [A, C]
    assert faulty(LOGS, [truncated(0.5)])[ONE] == [(A + B + C)[: len(A + B + C) // 2]]


def test_what_is_wrong() -> None:
    assert faulty(LOGS, [altered("from A", "B", "D")])[ONE][0] == A.replace("B", "D")
    assert faulty(LOGS, [swapped("from B")])[ONE][:2] == [B.replace("01,500", "00,000"), A.replace("00,000", "01,500", 1)]
    assert faulty(LOGS, [shifted("broker-1", -3600)])[ONE][2] == C.replace("10:00", "09:00")
    assert faulty(LOGS, [doubled()])[ONE][:2] == [A, A]
    assert faulty(LOGS, [doubled(1)])[ONE][:2] == [A, A.replace("00,000", "00,001")]
    new = faulty(LOGS, [added("broker-1", "x.log", "10:00:02 WARN more (x)")])[ONE]
    assert new == [A, B, "[2026-11-20 10:00:02,000] WARN more (x)\n", C]


def test_judged() -> None:
    case = Case("n", "r", (), frozenset({"a", "b"}), frozenset({"c"}))
    assert judge(case, {"a", "c", "d", "e"}, {"e"}) == (["a"], ["b"], ["d"])


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_each_changes_its_recording(case: Case) -> None:
    logs = read(SAMPLES / case.recording)
    assert faulty(logs, case.faults) != logs
