"""Which engine a run computes with: decided once, before anything is read, by how the program was started."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from jobs.errors import UsageError
from jobs.location import SCHEME, local_folder, root_of

# variables that spark-submit sets, or that name where Spark is
OF_SPARK = ("PYSPARK_GATEWAY_PORT", "KAFKA_AUDIT_MASTER", "SPARK_REMOTE", "SPARK_MASTER", "MASTER")
# arguments of spark-submit and lines of spark-defaults.conf that name it
_ARGUMENT = re.compile(r"(?:^|\s)(?:--master|--remote|\S*spark\.(?:master|remote)=)")
_DEFAULT = re.compile(r"^\s*spark\.(?:master|remote)[\s=:]", re.MULTILINE)


class OnlySpark(UsageError):
    """Tables that the local engine cannot write; the text says why."""


def chosen(asked: str, tables: str | Path, logs: list[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return `local` or `spark`.

    asked: `auto`, `local` or `spark`. logs: as they are given. `auto` is `spark` under spark-submit and where a master or a remote is
    configured, and for what only Spark reads or writes; else `local`. Raises UsageError where the engine cannot do what is asked.
    """
    if asked == "spark" or (asked == "auto" and is_configured(environment)):
        return "spark"
    problem = _only_spark(tables, logs)
    if problem is None:
        return "local"
    if asked == "local":
        raise UsageError(f"--engine local: {problem}; use --engine spark")
    require_spark(problem)
    return "spark"


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the program was started by spark-submit, or a master or a remote is configured."""
    if any(environment.get(name) for name in OF_SPARK) or _ARGUMENT.search(environment.get("PYSPARK_SUBMIT_ARGS", "")):
        return True
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if folder is None:
        return False
    try:
        return _DEFAULT.search(Path(folder, "spark-defaults.conf").read_text("utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False


def require_spark(reason: str) -> None:
    """Raise UsageError where Spark cannot run on this machine. reason: why it is needed."""
    from jobs.engine import session

    session.use_private_java()
    if missing := session.java_problem():
        raise UsageError(f"{reason}. Spark does, but it needs Java: {missing}")


def _only_spark(tables: str | Path, logs: list[str]) -> str | None:
    """What the local engine does not do; None: nothing of this."""
    if local_folder(root_of(tables)) is None:
        return f"the local engine writes tables to folders of this machine, not to {tables}"
    for given in logs:
        if SCHEME.match(given):
            return f"the local engine reads logs of this machine, not {given}"
    return None
