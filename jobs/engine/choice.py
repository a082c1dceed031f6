"""Which engine a run computes with: decided once, before anything is read, by how the program was started."""

import os
from collections.abc import Mapping
from pathlib import Path

from jobs.errors import UsageError
from jobs.location import SCHEME, local_folder, root_of

# variables that spark-submit sets, or that name where Spark is
OF_SPARK = ("PYSPARK_GATEWAY_PORT", "KAFKA_AUDIT_MASTER", "SPARK_REMOTE", "MASTER")


def chosen(
    asked: str, tables: str | Path, logs: list[str], environment: Mapping[str, str] = os.environ
) -> tuple[str, str | None]:
    """Return `local` or `spark`, and why it is not the other where that needs to be said.

    asked: `auto`, `local` or `spark`. logs: as they are given. `auto` is `spark` under spark-submit, where a master is configured, and
    wherever Java is found; else `local`. Raises UsageError where the local engine is asked for what only Spark reads or writes.
    """
    problem = _only_spark(tables, logs)
    if asked == "local" and problem:
        raise UsageError(f"--engine local: {problem}; use --engine spark")
    if asked != "auto":
        return asked, None
    if problem or any(environment.get(name) for name in OF_SPARK):
        return "spark", None
    from jobs import session

    session.use_private_java()
    missing = session.java_problem()
    return ("local", f"{missing.split('. ')[0]}; the local engine computes") if missing else ("spark", None)


def _only_spark(tables: str | Path, logs: list[str]) -> str | None:
    """What the local engine does not do; None: nothing of this."""
    if local_folder(root_of(tables)) is None:
        return f"the local engine writes tables to folders of this machine, not to {tables}"
    for given in logs:
        if SCHEME.match(given):
            return f"the local engine reads logs of this machine, not {given}"
    return None
