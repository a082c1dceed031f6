"""What five new lines cost that come to existing tables: tables of few rows by deltalake, and all by Spark, in turns. Run by hand.

    .venv/bin/python tests/benchmarks/small_runs.py [--runs 3] [--logs sample_logs/3.3.2-trace/delete-topic-dead-broker]

The last five lines of each log come later than the rest. Every run is a process of its own, on a copy of the same tables. Seconds from
the start of the command to its end.
"""

import argparse
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

LATER = 5
# what reads and writes small tables
WAYS = ("deltalake", "spark")


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


def audit(logs: Path, tables: Path, way: str) -> None:
    """One run in this process; prints nothing."""
    from jobs import nightly_audit
    from jobs.engine import store

    if way == "spark":
        store.local_folder = lambda _: None  # type: ignore[attr-defined]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = nightly_audit.main(["audit", str(logs), "--tables", str(tables), "--cluster", "c", "--fail-on", "critical"])
    if code:
        sys.exit(said.getvalue())


def timed(logs: Path, tables: Path, way: str) -> float:
    """Seconds of one run in a process of its own."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, __file__, "--audit", str(logs), str(tables), way], check=True)
    return time.perf_counter() - begun


def main() -> None:
    """Prints a line a run, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--logs", type=Path, default=ROOT / "sample_logs/3.3.2-trace/delete-topic-dead-broker")
    parser.add_argument("--audit", nargs=3, metavar=("LOGS", "TABLES", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.audit:
        logs, tables, way = options.audit
        audit(Path(logs), Path(tables), way)
        return
    told: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        first, later = split(options.logs, Path(folder))
        timed(first, Path(folder) / "tables", WAYS[0])
        for _ in range(options.runs):
            for way in WAYS:
                copy = Path(folder) / "copy"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(Path(folder) / "tables", copy)
                told[way].append(timed(later, copy, way))
                print(f"{way:10} {told[way][-1]:6.1f} s", flush=True)
    for way, runs in told.items():
        print(f"{way:10} {statistics.median(runs):6.1f} s, median")


if __name__ == "__main__":
    main()
