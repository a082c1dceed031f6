"""Which engine a run computes with: decided once, before anything is read, by how the program was started."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import UsageError
from jobs.location import SCHEME, local_folder, root_of

# set by spark-submit, which has started the JVM
SUBMITTED = "PYSPARK_GATEWAY_PORT"
# variables that name a master or a remote: the first of each kind wins, before Spark's own arguments and
# files
OURS = "KAFKA_AUDIT_MASTER"
OF_SPARK = ("SPARK_REMOTE", "SPARK_MASTER", "MASTER")
ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
DEFAULTS = "spark-defaults.conf"
_PROPERTY = re.compile(r"\s*spark\.(master|remote)\s*[\s=:]\s*(\S+)")


@dataclass(frozen=True)
class Configured:
    """Where Spark is configured to run.

    by: the setting that says so, for people. master, remote: URLs; both are None where spark-submit has
    started the JVM.
    """

    by: str
    master: str | None = None
    remote: str | None = None

    @property
    def is_submitted(self) -> bool:
        """Return whether spark-submit has started the JVM already."""
        return self.master is None and self.remote is None

    @property
    def starts_server(self) -> bool:
        """Return whether the remote is a Spark Connect server that this process starts."""
        return self.remote is not None and self.remote.startswith("local")

    @property
    def is_elsewhere(self) -> bool:
        """Return whether this process starts no JVM."""
        return self.is_submitted or (self.remote is not None and not self.starts_server)


class OnlySpark(UsageError):
    """Tables that the local engine cannot write; the text says why."""


def chosen(
    asked: str, tables: str | Path, logs: list[str], environment: Mapping[str, str] = os.environ
) -> str:
    """Return `local` or `spark`.

    asked: `auto`, `local` or `spark`. logs: as they are given. `auto` is `spark` under spark-submit and where
    a master or a remote is configured, and for what only Spark reads or writes; else `local`. Raises
    UsageError where the engine cannot do what is asked, and where both a master and a remote are configured.
    """
    if asked == "spark" or (asked == "auto" and configured(environment) is not None):
        return "spark"
    problem = _only_spark(tables, logs)
    if problem is None:
        return "local"
    if asked == "local":
        raise UsageError(f"--engine local: {problem}; use --engine spark")
    require_spark(problem)
    return "spark"


def configured(environment: Mapping[str, str] = os.environ) -> Configured | None:
    """Return where Spark is configured to run; None: nowhere.

    Raises UsageError where both a master and a remote are configured.
    """
    if environment.get(SUBMITTED):
        return Configured("spark-submit")
    found = list(_configured(environment))
    masters, remotes = [one for one in found if one.master], [one for one in found if one.remote]
    if masters and remotes:
        raise UsageError(
            f"{masters[0].by} names the Spark master {masters[0].master}, {remotes[0].by} the remote {remotes[0].remote}; keep one of them"
        )
    return found[0] if found else None


def _configured(environment: Mapping[str, str]) -> Iterator[Configured]:
    """Return all settings that name a master or a remote; the first one wins."""
    if url := environment.get(OURS):
        yield _named(OURS, "master", url)
    yield from _of_arguments(environment.get(ARGUMENTS, ""))
    yield from _of_defaults(environment)
    for name in OF_SPARK:
        if url := environment.get(name):
            yield _named(name, "remote" if name == "SPARK_REMOTE" else "master", url)


def _named(by: str, kind: str, url: str) -> Configured:
    is_remote = kind == "remote" or url.startswith("sc://")
    return Configured(by, remote=url) if is_remote else Configured(by, master=url)


def _of_arguments(text: str) -> Iterator[Configured]:
    """text: arguments of spark-submit."""
    try:
        given = shlex.split(text)
    except ValueError:
        return
    for at, argument in enumerate(given):
        option, is_joined, joined = argument.partition("=")
        value = joined if is_joined else next(iter(given[at + 1 :]), "")
        if option in ("--master", "--remote") and value:
            yield _named(f"{ARGUMENTS} ({option})", option[2:], value)
        elif option in ("--conf", "-c") and (found := _PROPERTY.match(value)):
            yield _named(f"{ARGUMENTS} ({option})", *found.groups())


def _of_defaults(environment: Mapping[str, str]) -> Iterator[Configured]:
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if folder is None:
        return
    path = Path(folder, DEFAULTS)
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    # a later line replaces an earlier one
    values = {found[1]: found[2] for line in lines if (found := _PROPERTY.match(line))}
    for kind, url in values.items():
        yield _named(str(path), kind, url)


def require_spark(reason: str) -> None:
    """Raise UsageError where Spark cannot run on this machine. reason: why it is needed."""
    from jobs.engine import session

    session.use_private_java()
    if missing := session.java_problem():
        raise UsageError(f"{reason}. Spark does, but it needs Java: {missing}")


def _only_spark(tables: str | Path, logs: list[str]) -> str | None:
    """Return what is asked that the local engine cannot do; None: nothing."""
    if local_folder(root_of(tables)) is None:
        return f"the local engine writes tables to folders of this machine, not to {tables}"
    for given in logs:
        if SCHEME.match(given):
            return f"the local engine reads logs of this machine, not {given}"
    return None
