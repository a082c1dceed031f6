"""Pairs of runs over the same logs at the same time, begun at random offsets: whether the tables are those of
one run. Run by hand.

    .venv/bin/python tests/benchmarks/two_runs.py [--pairs 30] [--wait 0] [--at folder|s3] [--engines spark,local]
    [--seed 7] [--logs sample_logs/3.3.2-trace/delete-topic-dead-broker/broker-1]

Every run is a process of its own. Of each pair one run may end with code 2, which names the other one; with
--wait both do their work. All tables are compared in all columns but those that tell runs apart with the
tables of one run of the local engine in a folder. --at s3 starts an endpoint on loopback, which Spark reaches
by Hadoop's S3A.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

# what two runs cannot have in common
OF_RUN = {
    "findings": ("run_id", "status"),
    "inputs": ("run_id",),
    "partition_states": ("events_version",),
    "cluster_facts": ("events_version", "passed_over_version"),
}
# seconds: a second run begins at most so long after the first one
LATEST = 12.0
# the smallest measurement, which the suite runs
SMALLEST = ("--pairs", "1")


def rows(root: str, table: str, options: Mapping[str, str] | None) -> list[str]:
    """The rows of a table, as text, in order."""
    from deltalake import DeltaTable

    found = (
        DeltaTable(f"{root}/{table}", storage_options=dict(options) if options else None)
        .to_pyarrow_table()
        .to_pylist()
    )
    for row in found:
        for name in OF_RUN.get(table, ()):
            del row[name]
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found)


def contents(root: str, options: Mapping[str, str] | None) -> dict[str, list[str]]:
    """All tables but the ledger of runs."""
    import schemas

    names = [one.name for one in schemas.statements("tables") if one.name != "audit_runs"]
    return {name: rows(root.replace("s3a://", "s3://"), name, options) for name in names}


def begun(
    logs: str, tables: str, wait: float, engine: str, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Starts a run."""
    command = [sys.executable, __file__, "--audit", logs, tables, str(wait), engine]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def audit(logs: str, tables: str, wait: str, engine: str) -> int:
    """One run in this process."""
    from jobs import nightly_audit
    from jobs.engine import session

    if extra := json.loads(os.environ.get("TWO_RUNS_SETTINGS", "{}")):
        settings = session.settings

        session.settings = lambda: settings() | extra
    options = ["--cluster", "c", "--wait", wait, "--engine", engine, "--fail-on", "critical"]
    return nightly_audit.main(["audit", logs, "--tables", tables, *options])


def pair(
    logs: str,
    tables: str,
    wait: float,
    offset: float,
    *,
    engines: list[str],
    environment: Mapping[str, str],
) -> list[tuple[int, str]]:
    """(exit code, what was said) of two runs, the second begun later by so many seconds."""
    first = begun(logs, tables, wait, engines[0], environment)
    time.sleep(offset)
    second = begun(logs, tables, wait, engines[-1], environment)
    return [(run.wait(), said) for run, (said, _) in ((run, run.communicate()) for run in (first, second))]


def main() -> int:
    """Prints a line a pair; exit code 1 where tables differ, or a run ended as none may."""
    if sys.argv[1:2] == ["--audit"]:
        return audit(*sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--wait", type=float, default=0)
    parser.add_argument("--at", choices=["folder", "s3"], default="folder")
    parser.add_argument("--engines", default="auto", help="one of both runs, or FIRST,SECOND")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--logs", default=str(ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker" / "broker-1")
    )
    given = parser.parse_args()
    offsets, failed = random.Random(given.seed), 0
    with ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory())
        environment: dict[str, str] = {}
        options: dict[str, str] | None = None
        base = folder
        if given.at == "s3":
            import s3

            if not (jars := s3.jars()):
                print("the jars of Hadoop's S3A cannot be fetched")
                return 1
            endpoint = ends.enter_context(s3.endpoint())
            extra: dict[str, Any] = endpoint.settings
            extra["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
            options = environment = endpoint.environment
            # it tells the audit that the jars are elsewhere than in Spark's own folder
            environment = environment | {
                "TWO_RUNS_SETTINGS": json.dumps(extra),
                "CLASSPATH": extra["spark.driver.extraClassPath"],
            }
            base = f"s3a://{endpoint.bucket}"
        alone = begun(given.logs, f"{folder}/alone", 0, "local", {})
        said, _ = alone.communicate()
        if alone.returncode not in (0, 1):
            print(said)
            return 1
        expected = contents(f"{folder}/alone", None)
        for number in range(given.pairs):
            offset, tables = offsets.uniform(0, LATEST), f"{base}/pair-{number}"
            engines = given.engines.split(",")
            ended = pair(given.logs, tables, given.wait, offset, engines=engines, environment=environment)
            codes = [code for code, _ in ended]
            found = contents(tables, options)
            other = [name for name in expected if found[name] != expected[name]]
            fine = not other and sorted(codes)[0] in (0, 1) and sorted(codes)[1] in (0, 1, 2)
            failed += not fine
            print(
                f"pair {number}: offset {offset:.1f} s, codes {codes}, {'equal' if not other else 'differing: ' + ', '.join(other)}",
                flush=True,
            )
            for code, text in ended if not fine else [one for one in ended if one[0] == 2]:
                print(f"  {code}: {text.splitlines()[-1] if code == 2 else text}", flush=True)
    print(f"{given.pairs - failed} of {given.pairs} pairs left the tables of one run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
