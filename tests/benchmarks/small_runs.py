"""What five new lines cost that come to existing tables, on each engine in turns. Run by hand.

    .venv/bin/python tests/benchmarks/small_runs.py [--runs 3] [--logs
    sample_logs/3.3.2-trace/delete-topic-dead-broker]

The last five lines of each log come later than the rest. Every run is a process of its own, on a copy of the
same tables. Seconds from the start of the command to its end.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

LATER = 5
ENGINES = ("local", "spark")
# the smallest measurement, which the suite runs
SMALLEST = ("--runs", "1")


def split(logs: Path, into: Path) -> tuple[Path, Path]:
    """(all lines but the last ones of each log, these): two folders with the same files."""
    first, later = into / "first", into / "later"
    for log in sorted(path for path in logs.rglob("*") if path.is_file() and ".log" in path.name):
        lines = log.read_text("utf-8", "replace").splitlines(keepends=True)
        for folder, some in ((first, lines[:-LATER]), (later, lines[-LATER:])):
            target = folder / log.relative_to(logs)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(some), "utf-8")
    return first, later


def timed(logs: Path, tables: Path, engine: str) -> float:
    """Seconds of one run in a process of its own."""
    command = [
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
    begun = time.perf_counter()
    subprocess.run(
        [*command, "--engine", engine, "--fail-on", "critical"], check=True, cwd=ROOT, capture_output=True
    )
    return time.perf_counter() - begun


def main() -> None:
    """Prints a line a run, and the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--logs", type=Path, default=ROOT / "sample_logs/3.3.2-trace/delete-topic-dead-broker"
    )
    options = parser.parse_args()
    took: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        first, later = split(options.logs, Path(folder))
        timed(first, Path(folder) / "tables", ENGINES[0])
        for _ in range(options.runs):
            for engine in ENGINES:
                copy = Path(folder) / "copy"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(Path(folder) / "tables", copy)
                took[engine].append(timed(later, copy, engine))
                print(f"{engine:10} {took[engine][-1]:6.1f} s", flush=True)
    for engine, runs in took.items():
        print(f"{engine:10} {statistics.median(runs):6.1f} s, median")


if __name__ == "__main__":
    main()
