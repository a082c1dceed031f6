"""A run that was killed anywhere and the same command again leave the tables of an undisturbed run, in all columns.

Killed is a run in this process by an exception that nothing catches, at chosen writes. `tests/benchmarks/interruptions.py` kills processes at random
moments.
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

RECORDING = Path(__file__).parents[1] / "sample_logs" / "3.3.2-default" / "reassign"
UNTIL = "2026-11-20 10:30:20"
# night, table, and whether its rows are written before the run is killed
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
NAMES = [f"{night}, {'after' if is_written else 'before'} {table}" for night, table, is_written in POINTS]

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """In the place of SIGKILL."""


def audit(logs: Path, tables: Path) -> None:
    assert main(["audit", str(logs), "--tables", str(tables), "--cluster", "c"]) in (errors.CLEAN, errors.FINDINGS)


def killed(logs: Path, tables: Path, table: str, is_written: bool) -> None:
    """A run that comes as far as a table."""

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
def nights(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """(logs of the first night, of both, tables of the first)."""
    folder = tmp_path_factory.mktemp("nights")
    write_early(RECORDING, folder / "early", UNTIL)
    shutil.copytree(RECORDING, folder / "both", ignore=shutil.ignore_patterns("*.md", "*.json*"))
    # under one name: events name the file that they were read from
    (folder / "early").rename(folder / "logs")
    audit(folder / "logs", folder / "tables")
    (folder / "logs").rename(folder / "early")
    return folder / "early", folder / "both", folder / "tables"


@pytest.fixture(scope="module")
def undisturbed(nights: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """(first or second night, runs) -> what the tables hold."""
    folder, found = tmp_path_factory.mktemp("undisturbed"), {}
    for night, logs in (("first", nights[0]), ("second", nights[1])):
        if night == "second":
            shutil.copytree(nights[2], folder / night)
        for runs in (1, 2):
            with_logs(nights, logs, folder / night, audit)
            found[night, runs] = contents(folder / night)
    return found


def with_logs(nights: tuple[Path, Path, Path], logs: Path, tables: Path, run: Callable[[Path, Path], None]) -> None:
    """Runs it with the logs under the one name."""
    one = nights[2].with_name("logs")
    logs.rename(one)
    try:
        run(one, tables)
    finally:
        one.rename(logs)


@pytest.mark.parametrize("point", POINTS, ids=NAMES)
def test_completed_by_the_same_command(
    nights: tuple[Path, Path, Path], undisturbed: dict[tuple[str, int], Any], tmp_path: Path, point: tuple[str, str, bool]
) -> None:
    night, table, is_written = point
    tables, logs = tmp_path / "tables", nights[0] if night == "first" else nights[1]
    if night == "second":
        shutil.copytree(nights[2], tables)
    with_logs(nights, logs, tables, lambda one, into: killed(one, into, table, is_written))
    with_logs(nights, logs, tables, audit)
    # a run is over when it is recorded; the next one is another one
    runs = 1 + ((table, is_written) in (("cluster_facts", True), ("audit_runs", True)))
    assert differences(undisturbed[night, runs], contents(tables)) == []
