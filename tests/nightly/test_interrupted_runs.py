"""A killed run and the same command again leave the tables of an undisturbed run, in all columns.

These runs are in-process: an exception that nothing catches ends them at chosen writes.
`tests/benchmarks/interruptions.py` kills processes at random moments.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
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
# run, table, and whether its rows are written before the run is killed
POINTS = [
    ("first", "events", True),
    ("first", "findings", True),
    ("first", "audit_runs", True),
    ("second", "events", True),
    ("second", "partition_states", True),
    ("second", "coverage", True),
    ("second", "findings", True),
    ("second", "finding_subjects", True),
    ("second", "audit_runs", False),
    ("second", "audit_runs", True),
    ("second", "cluster_facts", True),
]
IDS = [f"{run}, {'after' if is_written else 'before'} {table}" for run, table, is_written in POINTS]

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
    write_early(RECORDING, folder / "early", UNTIL)
    shutil.copytree(RECORDING, folder / "both", ignore=shutil.ignore_patterns("*.md", "*.json*"))
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
    folder, found = tmp_path_factory.mktemp("undisturbed"), {}
    for run, logs in (("first", folders[0]), ("second", folders[1])):
        if run == "second":
            shutil.copytree(folders[2], folder / run)
        for runs in (1, 2):
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


@pytest.mark.parametrize("point", POINTS, ids=IDS)
def test_the_same_command_completes_a_killed_run(
    folders: tuple[Path, Path, Path],
    undisturbed: dict[tuple[str, int], Any],
    tmp_path: Path,
    point: tuple[str, str, bool],
) -> None:
    run, table, is_written = point
    tables, logs = tmp_path / "tables", folders[0] if run == "first" else folders[1]
    if run == "second":
        shutil.copytree(folders[2], tables)
    with_logs(folders, logs, tables, lambda one, into: killed(one, into, table, is_written))
    with_logs(folders, logs, tables, audit)
    # a run that was recorded is complete, so the same command is a second run
    runs = 1 + ((table, is_written) in (("cluster_facts", True), ("audit_runs", True)))
    assert differences(undisturbed[run, runs], contents(tables)) == []
