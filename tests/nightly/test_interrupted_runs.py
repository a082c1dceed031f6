"""A killed run and the same command again leave the tables of an undisturbed run, in all columns.

These runs are in-process: an exception that nothing catches ends them at chosen writes.
`tests/benchmarks/interruptions.py` kills processes at random moments.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.interruptions import contents, differences
from logs import write_early

from jobs import errors
from jobs.engine.store import Store
from jobs.nightly_audit import main

RECORDING = Path(__file__).parents[2] / "sample_logs" / "3.3.2-default" / "reassign"
UNTIL = "2026-11-20 10:30:20"
# two controllers, one after the other, and a broker that is none
NODES = ("broker-5", "broker-6", "broker-0")
# run, and where it and the runs that repeat it are killed: the table, and whether its rows are written before.
# What is derived from events is written again by the second of two runs; an undone finding would hide what a
# later one did, so the runs that write findings are killed last
POINTS = [
    ("first", [("events", True), ("findings", True)]),
    ("first", [("audit_runs", True)]),
    ("second", [("events", True), ("findings", True)]),
    ("second", [("partition_states", True), ("finding_subjects", True)]),
    ("second", [("coverage", True), ("audit_runs", False)]),
    ("second", [("audit_runs", True)]),
    ("second", [("cluster_facts", True)]),
]
IDS = [
    ", ".join([run, *(f"{'after' if is_written else 'before'} {table}" for table, is_written in points)])
    for run, points in POINTS
]

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """Ends a run like SIGKILL."""


def audit(logs: Path, tables: Path) -> None:
    assert main(["audit", str(logs), "--tables", str(tables), "--cluster", "c"]) in (
        errors.CLEAN,
        errors.FINDINGS,
    )


def killed(logs: Path, tables: Path, table: str, is_written: bool) -> None:
    """Audit, but end the run before or after it writes a table."""

    def until(write: Callable[..., Any]) -> Callable[..., Any]:
        def instead(store: Store, name: str, *given: Any, **named: Any) -> Any:
            if name != table or is_written:
                write(store, name, *given, **named)
            if name == table:
                raise Killed

        return instead

    with pytest.MonkeyPatch.context() as patched:
        for name in ("append", "replace_where", "replace_partitions"):
            patched.setattr(Store, name, until(getattr(Store, name)))
        with pytest.raises(Killed):
            audit(logs, tables)


@pytest.fixture(scope="module")
def folders(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return the folders (logs of the first run, logs of both runs, tables of the first run)."""
    folder = tmp_path_factory.mktemp("runs")
    for node in NODES:
        shutil.copytree(RECORDING / node, folder / "both" / node)
    write_early(folder / "both", folder / "early", UNTIL)
    # both have the same name while they are audited, because events name the file that they were read from
    (folder / "early").rename(folder / "logs")
    audit(folder / "logs", folder / "tables")
    (folder / "logs").rename(folder / "early")
    return folder / "early", folder / "both", folder / "tables"


@pytest.fixture(scope="module")
def undisturbed(
    folders: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], Any]:
    """Return (first or second run, number of audits) -> contents of the tables."""
    folder, found = tmp_path_factory.mktemp("undisturbed"), {("first", 1): contents(folders[2])}
    for run in ("first", "second"):
        shutil.copytree(folders[2], folder / run)
    for run, runs, logs in (("first", 2, folders[0]), ("second", 1, folders[1]), ("second", 2, folders[1])):
        with_logs(folders, logs, folder / run, audit)
        found[run, runs] = contents(folder / run)
    return found


def with_logs(
    folders: tuple[Path, Path, Path], logs: Path, tables: Path, do: Callable[[Path, Path], None]
) -> None:
    """Call `do` while the logs have the common name."""
    common = folders[2].with_name("logs")
    logs.rename(common)
    try:
        do(common, tables)
    finally:
        common.rename(logs)


@pytest.mark.parametrize(("run", "points"), POINTS, ids=IDS)
def test_the_same_command_completes_a_killed_run(
    folders: tuple[Path, Path, Path],
    undisturbed: dict[tuple[str, int], Any],
    tmp_path: Path,
    run: str,
    points: Sequence[tuple[str, bool]],
) -> None:
    tables, logs = tmp_path / "tables", folders[0] if run == "first" else folders[1]
    if run == "second":
        shutil.copytree(folders[2], tables)
    for point in points:
        with_logs(folders, logs, tables, lambda one, into, point=point: killed(one, into, *point))
    with_logs(folders, logs, tables, audit)
    # a run that was recorded is complete, so the same command is a second run
    runs = 1 + (points[-1] in (("cluster_facts", True), ("audit_runs", True)))
    assert differences(undisturbed[run, runs], contents(tables)) == []
