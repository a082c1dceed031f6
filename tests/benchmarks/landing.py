"""How fast logs land as events, beside a plain `text -> Delta` copy of the same bytes in the same run. Run by hand.

    .venv/bin/python tests/benchmarks/landing.py [--megabytes 300] [--runs 3] [--recording sample_logs/...]

A recording's state-change.log lines are repeated with shifted dates until the size is reached, so that every record is another
one. Ratios count; the machine's noise shows in the spread.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from jobs import events, ingest, session  # noqa: E402
from jobs.config import Cluster  # noqa: E402
from jobs.store import Store  # noqa: E402
from parsers.rules import built_in  # noqa: E402


def multiply(recording: Path, folder: Path, megabytes: int) -> int:
    """Writes broker-<n>/state-change.log.<k> files of some 50 MB; returns the bytes."""
    sources = {log.parent.name: log.read_text() for log in sorted(recording.glob("broker-*/state-change.log"))}
    written, day, part = 0, date(2020, 1, 1), 0
    while written < megabytes * 10**6:
        part += 1
        for broker, text in sources.items():
            target = folder / broker / f"state-change.log.{part}"
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w") as log:
                size = 0
                shifted = day
                while size < 50 * 10**6 / len(sources):
                    for first in {line[1:11] for line in text.splitlines() if line.startswith("[20")}:
                        piece = text.replace(f"[{first}", f"[{shifted.isoformat()}")
                    size += log.write(piece)
                    shifted += timedelta(days=1)
            written += size
        day = shifted
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--recording", type=Path, default=ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="landing-"))
    try:
        size = multiply(options.recording, work / "logs", options.megabytes)
        spark = session.start(10**9)
        files = ingest.find(Cluster("benchmark", (str(work / "logs"),)))
        print(f"{size / 1e6:.0f} MB in {len(files)} files")
        rates: dict[str, list[float]] = {"text -> Delta": [], "events": []}
        for run in range(options.runs):
            begun = time.perf_counter()
            copy = str(work / f"copy-{run}")
            spark.read.text([str(f.path) for f in files]).write.format("delta").save(copy)
            rates["text -> Delta"].append(size / 1e6 / (time.perf_counter() - begun))
            store = Store(spark, work / f"tables-{run}")
            store.open()
            begun = time.perf_counter()
            with ingest.staged(files, store.root / "_staging") as source:
                read = events.land(store, ingest.read(spark, source, built_in()), source, built_in())
            rates["events"].append(size / 1e6 / (time.perf_counter() - begun))
            shutil.rmtree(copy)
            shutil.rmtree(store.root)
            print(f"run {run + 1}: " + ", ".join(f"{name} {values[-1]:.0f} MB/s" for name, values in rates.items()),
                  f"({read.new:,} records)", flush=True)  # fmt: skip
        for name, values in rates.items():
            print(f"{name:15} median {statistics.median(values):6.1f} MB/s, {min(values):.1f} .. {max(values):.1f}")
        ratio = statistics.median(e / c for e, c in zip(rates["events"], rates["text -> Delta"], strict=True))
        print(f"events / copy   {ratio:.2f}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
