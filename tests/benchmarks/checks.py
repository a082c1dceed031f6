"""What all checks take over the rows of one audit: by DuckDB in this process, and by Spark, in turns.

Run by hand.

    .venv/bin/python tests/benchmarks/checks.py [--runs 3] [--logs
    sample_logs/3.3.2-trace/delete-topic-dead-broker]

The session runs already, and the first turn, in which both are new, is shown apart. Seconds from the frames
to what violates checks.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from jobs.checking import checks  # noqa: E402
from jobs.engine import session  # noqa: E402
from jobs.engine.database import Database  # noqa: E402
from jobs.engine.queries import InSpark  # noqa: E402
from jobs.engine.rows import to_table  # noqa: E402
from jobs.nightly_audit import main as kafka_audit  # noqa: E402

# the smallest measurement, which the suite runs: the first turn over the logs of one controller
SMALLEST = ("--runs", "0", "--logs", str(ROOT / "sample_logs" / "4.3.0-kraft" / "reassign" / "node-1"))


def frames_of(logs: Path) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """(what `checks.register` is given by an audit, its settings, what is given of what checks are about)."""
    register, violations = checks.register, checks.violations
    seen: dict[str, Any] = {}

    def registered(queries: Any, *frames: Any, **settings: Any) -> None:
        seen.update(frames=frames, settings=settings)
        register(queries, *frames, **settings)

    def violated(queries: Any, given: Any) -> checks.Violations:
        seen["given"] = given
        return violations(queries, given)

    checks.register, checks.violations = registered, violated
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        kafka_audit(["audit", str(logs), "--tables", str(Path(folder) / "tables"), "--engine", "spark"])
    checks.register, checks.violations = register, violations
    return seen["frames"], seen["settings"], seen["given"]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--runs", type=int, default=3)
    options.add_argument(
        "--logs", type=Path, default=ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
    )
    given = options.parse_args()
    spark = session.start()
    frames, settings, known = frames_of(given.logs)
    print(f"{to_table(frames[0]['events']).num_rows:,} events")
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(given.runs + 1):
        for name, made in (("DuckDB", Database), ("Spark", lambda: InSpark(spark))):
            began = time.perf_counter()
            queries = made()
            checks.register(queries, *frames, **settings)
            checks.present(queries)
            found = checks.violations(queries, known)
            took[name].append(time.perf_counter() - began)
            assert not found.failed, found.failed
    for name, (first, *others) in took.items():
        then = f", then {statistics.median(others):6.2f} s" if others else ""
        print(f"{name:8} first {first:6.2f} s{then}")


if __name__ == "__main__":
    main()
