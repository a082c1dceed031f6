"""The faults change a few records as described.

The checks find each fault, inserted or recorded, and nothing else; the page is fresh.
"""

from pathlib import Path
from typing import Any

import faults_found
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
    read,
    shifted,
    swapped,
    truncated,
    without,
    without_node,
    write,
)
from faults_found import PAGE, RECORDED, Judged, RecordedFault, checks_of, judge, page
from recorder.record import SCENARIOS

A = "[2026-11-20 10:00:00,000] INFO from A to B (x)\n"
B = "[2026-11-20 10:00:01,500] INFO from B to C (x)\n\tat a.B\n"
C = "[2026-11-20 10:00:03,000] INFO done (x)\n"
ONE = ("broker-1", "x.log")
LOGS = {ONE: [A, B, C], ("broker-2", "x.log"): [C]}


def test_logs_are_read_and_written(tmp_path: Path) -> None:
    write(LOGS, tmp_path)
    assert read(tmp_path) == LOGS


def test_faults_that_remove_lines() -> None:
    assert faulty(LOGS, [without("from B")])[ONE] == [A, C]
    assert faulty(LOGS, [without("done", "broker-2")]) == {ONE: [A, B, C], ("broker-2", "x.log"): []}
    assert list(faulty(LOGS, [without_node("broker-2")])) == [ONE]
    assert faulty(LOGS, [between("10:00:01", "10:00:03")])[ONE] == [A, C]
    assert faulty(LOGS, [truncated(0.5)])[ONE] == [(A + B + C)[: len(A + B + C) // 2]]


def test_faults_that_alter_lines() -> None:
    assert faulty(LOGS, [altered("from A", "B", "D")])[ONE][0] == A.replace("B", "D")
    assert faulty(LOGS, [swapped("from B")])[ONE][:2] == [
        B.replace("01,500", "00,000"),
        A.replace("00,000", "01,500", 1),
    ]
    assert faulty(LOGS, [shifted("broker-1", -3600)])[ONE][2] == C.replace("10:00", "09:00")
    assert faulty(LOGS, [doubled()])[ONE][:2] == [A, A]
    assert faulty(LOGS, [doubled(1)])[ONE][:2] == [A, A.replace("00,000", "00,001")]
    new = faulty(LOGS, [added("broker-1", "x.log", "10:00:02 WARN more (x)")])[ONE]
    assert new == [A, B, "[2026-11-20 10:00:02,000] WARN more (x)\n", C]


def test_a_fault_is_judged_by_its_checks() -> None:
    case = Case("n", "r", (), frozenset({"a", "b"}), frozenset({"c"}))
    assert judge(case, {"a", "c", "d", "e"}, {"e"}) == Judged(["a"], ["b"], ["c"], ["d"])


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_each_fault_changes_its_recording(case: Case) -> None:
    logs = read(SAMPLES / case.recording)
    assert faulty(logs, case.faults) != logs


def test_every_fault_of_a_scenario_is_recorded() -> None:
    folder = faults_found.RECORDED_LOGS
    with_fault = {path.stem for path in SCENARIOS.glob("*.toml") if "\n[fault]\n" in path.read_text("utf-8")}
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{ending}" for name in with_fault for ending in ("tar.xz", "jsonl")
    }


@pytest.fixture(scope="module")
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """Return the findings of the faults that the selected tests are about: all of them where a test is about
    all faults.
    """
    folder = tmp_path_factory.mktemp("faults")
    tests = [
        one
        for one in request.session.items
        if one.path == request.path and "found" in getattr(one, "fixturenames", ())
    ]
    if not all(hasattr(one, "callspec") for one in tests):
        return faults_found.findings(folder)
    params = [one.callspec.params for one in tests]
    return faults_found.findings(
        folder,
        [one["case"] for one in params if "case" in one],
        [one["fault"] for one in params if "fault" in one],
    )


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_an_inserted_fault_is_found_and_nothing_else(
    case: Case, found: dict[str, list[dict[str, Any]]]
) -> None:
    judged = judge(case, checks_of(found[case.name]), checks_of(found[case.recording]))
    assert (judged.missed, judged.false) == ([], [])


@pytest.mark.parametrize("fault", RECORDED, ids=lambda fault: fault.scenario)
def test_a_recorded_fault_is_found_and_nothing_else(
    fault: RecordedFault, found: dict[str, list[dict[str, Any]]]
) -> None:
    judged = judge(fault, checks_of(found[fault.name]))
    assert (judged.missed, judged.false) == ([], [])


def test_the_page_is_fresh(found: dict[str, list[dict[str, Any]]]) -> None:
    text = PAGE.read_text("utf-8")
    assert page(text, faults_found.tables(found)) == text, "run `python -m tests.faults_found --write`"
