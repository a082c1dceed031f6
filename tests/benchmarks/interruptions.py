"""Runs that are interrupted at random moments, each completed by the same command. Run by hand.

    .venv/bin/python tests/benchmarks/interruptions.py [--kill 50] [--term 20] [--int 10] [--seed 1] [--logs
    FOLDER]

Each run writes into its own tables: those of a first night (the first half of the logs), to which the second
half is added. Afterwards all tables are those of an undisturbed run, in all columns but run ids, wall clocks
and versions of tables. After SIGTERM and SIGINT the exit code, the one line and the processes that are left
are looked at, too. A run that was over before its signal is not counted.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from deltalake import DeltaTable  # noqa: E402
from logs import write_early  # noqa: E402
from processes import MARK, left  # noqa: E402

import schemas  # noqa: E402

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
# of the run, not of what it has found
OF_RUN = {
    "run_id",
    "started_at",
    "finished_at",
    "parameters",
    "events_version",
    "passed_over_version",
    "records_new",
    "code_version",
    "tables_at",
}
# what the fold carries on: the same facts in another order, where a partition was folded from its first event
# again
CARRIED = {"partition_states": {"state"}}
RECORDING = ROOT / "sample_logs" / "3.3.2-default" / "reassign"
# the smallest measurement, which the suite runs
SHORT = ("--logs", str(ROOT / "sample_logs" / "3.3.2-default" / "delete-topic-dead-broker"))
SMALLEST = ("--kill", "1", "--term", "1", "--int", "0", *SHORT, "--until", "2026-11-20 10:34:20")


def start(logs: Path, tables: Path, mark: str = "") -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    line = [
        sys.executable,
        "-m",
        "jobs.nightly_audit",
        "audit",
        str(logs),
        "--tables",
        str(tables),
        "--cluster",
        "c",
    ]
    return subprocess.Popen(
        line,
        cwd=ROOT,
        env=os.environ | {MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def completed(logs: Path, tables: Path) -> float:
    """Seconds of an undisturbed run."""
    begun = time.perf_counter()
    process = start(logs, tables)
    _, said = process.communicate()
    assert process.returncode in (0, 1), said
    return time.perf_counter() - begun


def contents(tables: Path) -> dict[str, Counter[str]]:
    """Table -> its rows."""
    found = {}
    for table in (definition.name for definition in schemas.statements("tables")):
        rows = DeltaTable(str(tables / table)).to_pyarrow_table().to_pylist()
        left_out = OF_RUN | CARRIED.get(table, set())
        found[table] = Counter(
            repr({name: value for name, value in row.items() if name not in left_out}) for row in rows
        )
    return found


def differences(some: dict[str, Counter[str]], others: dict[str, Counter[str]]) -> list[str]:
    """Tables whose rows differ, with an example of each."""
    told = []
    for table, rows in some.items():
        if rows != others[table]:
            less, more = rows - others[table], others[table] - rows
            told.append(
                f"{table}: {less.total()} rows are missing, {more.total()} are too many: {next(iter(less), '')[:600]} | {next(iter(more), '')[:600]}"
            )
    return told


def runs_of(tables: Path) -> int:
    """Completed runs."""
    return (
        DeltaTable(str(tables / "audit_runs")).to_pyarrow_table().num_rows
        if (tables / "audit_runs" / "_delta_log").is_dir()
        else 0
    )


def interrupted(logs: Path, tables: Path, number: signal.Signals, after: float) -> tuple[bool, list[str]]:
    """(whether the run was still there, what is wrong)."""
    mark = uuid.uuid4().hex
    process = start(logs, tables, mark)
    time.sleep(after)
    is_there = process.poll() is None
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if not is_there:
        return False, []
    wrong = []
    if number in CODES:
        if process.returncode != CODES[number]:
            wrong.append(f"exit code {process.returncode}")
        if said.count("interrupted by") != 1 or "Traceback" in said:
            wrong.append(said)
        if processes := left(mark):
            wrong.append(f"left: {processes}")
    else:
        until = time.monotonic() + 20
        while left(mark) and time.monotonic() < until:
            time.sleep(0.1)
        if processes := left(mark):
            wrong.append(f"left 20 s later: {processes}")
    return True, wrong


def undisturbed(logs: Path, work: Path, night: str, runs: int) -> Path:
    """Return the tables of an undisturbed run that follows so many others, made at the first call."""
    tables = work / f"{night}-{runs}"
    if not tables.exists():
        if runs:
            shutil.copytree(undisturbed(logs, work, night, runs - 1), tables)
        completed(logs, tables)
    return tables


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kill", type=int, default=50)
    parser.add_argument("--term", type=int, default=20)
    parser.add_argument("--int", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", default="2026-11-20 10:30:20", help="where the second night's logs begin")
    parser.add_argument("--logs", type=Path, default=RECORDING)
    options = parser.parse_args()
    dice, failed = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory(prefix="interruptions-") as folder:
        work = Path(folder)
        write_early(options.logs, work / "early", options.until)
        logs, first = work / "logs", work / "first"
        shutil.copytree(work / "early", logs)
        completed(logs, first)
        shutil.copytree(
            options.logs, logs, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.md", "*.json*")
        )
        shutil.copytree(first, work / "second-0")
        seconds = completed(logs, work / "second-0")
        asked: dict[signal.Signals, Any] = {
            signal.SIGKILL: options.kill,
            signal.SIGTERM: options.term,
            signal.SIGINT: options.int,
        }
        for number, times in asked.items():
            done = 0
            while done < times:
                tables = work / "tables"
                shutil.rmtree(tables, ignore_errors=True)
                # half of them begin with empty tables
                before = dice.random() < 0.5
                if before:
                    shutil.copytree(first, tables)
                after = dice.uniform(0.05, seconds)
                is_there, wrong = interrupted(logs, tables, number, after)
                if not is_there:
                    continue
                done += 1
                runs = runs_of(tables) - before
                completed(logs, tables)
                expected = undisturbed(logs, work, "second" if before else "first", runs)
                wrong += differences(contents(expected), contents(tables))
                failed += bool(wrong)
                print(
                    f"{number.name} {done} after {after:.2f} s, {'second' if before else 'first'} night: {wrong or 'as undisturbed'}",
                    flush=True,
                )
    print(f"{failed} of {sum(asked.values())} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
