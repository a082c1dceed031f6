"""The cluster command of the guide: a zip of the packages and jobs/nightly_audit.py, in local mode and on a
standalone master.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.nights import Recording
from conftest import JAVA
from logs import configuration
from processes import MARK, left
from spark_settings import NO_GENERATED_CODE
from test_engines import tables_of

from jobs.engine import session
from jobs.engine.frames import IN_PROCESS
from jobs.nightly_audit import main

# of a stage, where shuffles may have 200; a union of queries has the tasks of all of them
MOST_TASKS = 16
# copies of a topic with three partitions: just enough that workers fold them
TOPICS = 5
# rows that the driver handles: there are more events, so that workers fold them
IN_PROCESS_ROWS = 2_000
ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not session.jar_files(), reason="Delta's jars are not set up: run `make setup`"),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """Return the archive that `zip -qr kafka_audit.zip parsers schemas jobs` writes."""
    target = tmp_path_factory.mktemp("zip") / "kafka_audit.zip"
    with zipfile.ZipFile(target, "w") as packed:
        for name in ("parsers", "schemas", "jobs"):
            for path in sorted((ROOT / name).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    packed.write(path, path.relative_to(ROOT))
    return target


def delta_jars() -> str:
    """Return Delta's jars as a class path."""
    return os.pathsep.join(map(str, session.jar_files()))


def environment() -> dict[str, str]:
    import pyspark

    return os.environ | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": "",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "SPARK_DAEMON_MEMORY": "256m",
    }


def submit(
    packages: Path, master: str, tables: Path, cwd: Path, *more: str, **given: Any
) -> subprocess.CompletedProcess[str]:
    line = command(packages, master, tables, *more, **given)
    return subprocess.run(
        line, capture_output=True, text=True, env=environment(), cwd=cwd, timeout=900, check=False
    )


def command(
    packages: Path,
    master: str,
    tables: Path,
    *more: str,
    java: str = JAVA,
    audited: Sequence[str] = (str(SAMPLE),),
) -> list[str]:
    home = environment()["SPARK_HOME"]
    jars = ",".join(map(str, session.jar_files()))
    return [
        *(f"{home}/bin/spark-submit", "--master", master, "--jars", jars, "--conf", "spark.ui.enabled=false"),
        *("--driver-java-options", java, "--conf", f"spark.executor.extraJavaOptions={JAVA}"),
        *(part for name, value in NO_GENERATED_CODE.items() for part in ("--conf", f"{name}={value}")),
        *(*more, "--py-files", str(packages)),
        *(str(ROOT / "jobs" / "nightly_audit.py"), "audit", *audited, "--tables", str(tables), "--json"),
    ]


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return what the driver's Python printed, which spark-submit passes to stdout, and the errors among
    Spark's lines.
    """
    errors = [
        line
        for line in done.stderr.splitlines()
        if re.match(r"(?!\s+at |\S+ \S+ INFO).*(ERROR|Error\b|Exception\b)", line)
    ]
    return f"exit code {done.returncode}\n{done.stdout[-3000:]}\n" + "\n".join(
        line[:500] for line in errors[:30]
    )


def partitions_of(done: subprocess.CompletedProcess[str], tables: Path) -> dict[str, int]:
    """Check the findings of SAMPLE; return cluster -> number of partitions."""
    assert done.returncode in (0, 1), output_of(done)
    verdict = json.loads(done.stdout)
    of_sample = [f["status"] for f in verdict["findings"] if f["check_id"] == "topic_deletion_blocked"]
    assert of_sample == ["resolved"]
    assert (tables / "events" / "_delta_log").is_dir()
    return {cluster["cluster"]: cluster["counts"]["partitions"] for cluster in verdict["clusters"]}


def logged_to(folder: Path) -> list[str]:
    """Return arguments with which Spark writes its event log to a folder, as lines of JSON."""
    folder.mkdir()
    settings = {"enabled": "true", "dir": folder.as_uri(), "compress": "false", "rolling.enabled": "false"}
    return [word for name, value in settings.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]


def tasks_of_stages(folder: Path) -> list[int]:
    """Return the number of tasks of each completed stage."""
    (path,) = folder.iterdir()
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        one["Stage Info"]["Number of Tasks"]
        for one in events
        if one["Event"] == "SparkListenerStageCompleted"
    ]


def test_local_mode(packages, tmp_path):
    """No stage of a small audit has more than MOST_TASKS, although Spark's default of shuffle partitions is
    200.
    """
    done = submit(packages, "local[2]", tmp_path / "tables", tmp_path, *logged_to(tmp_path / "spark-events"))
    assert done.returncode == 0, output_of(done)
    assert max(tasks_of_stages(tmp_path / "spark-events"), default=0) <= MOST_TASKS
    assert partitions_of(done, tmp_path / "tables") == {SAMPLE.name: 3}


@pytest.mark.parametrize("target", ["driver", "python"])
def test_sigterm_leaves_no_process(packages, tmp_path, target):
    """SIGTERM to spark-submit, which is the driver, or to the driver's Python ends both.

    Python's last message is printed only if the driver is still running.
    """
    mark = uuid.uuid4().hex
    line = command(packages, "local[2]", tmp_path / "tables")
    process = subprocess.Popen(
        line,
        env=environment() | {MARK: mark},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = []
    for printed_line in process.stdout:
        printed.append(printed_line)
        if "open tables: " in printed_line:
            break
    (python,) = [
        number
        for number, text in left(mark).items()
        if "nightly_audit.py" in text and "java" not in text.split()[0]
    ]
    os.kill(process.pid if target == "driver" else python, signal.SIGTERM)
    printed += process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 143
    deadline = time.monotonic() + 10
    while left(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left(mark) == {}
    assert "".join(printed).count("interrupted by SIGTERM") == (target == "python")
    assert "Traceback" not in "".join(printed)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_standalone_master_with_two_workers(packages, tmp_path, monkeypatch):
    monkeypatch.setenv(IN_PROCESS, str(IN_PROCESS_ROWS))
    run = f"{environment()['SPARK_HOME']}/bin/spark-class"
    port = _free_port()
    log = (tmp_path / "cluster.log").open("wb")

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([run, *arguments], env=environment(), stdout=log, stderr=log, cwd=tmp_path)

    daemons = [
        start(
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        )
    ]
    try:
        worker = (
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            "-c",
            "1",
            "-m",
            "1g",
        )
        daemons += [
            start(*worker, "-d", str(tmp_path / f"work-{n}"), f"spark://127.0.0.1:{port}") for n in (1, 2)
        ]
        deadline = time.monotonic() + 90
        while (tmp_path / "cluster.log").read_text().count("Successfully registered with master") < 2:
            assert time.monotonic() < deadline, (tmp_path / "cluster.log").read_text()[-2000:]
            time.sleep(0.5)
        # so many events that workers fold them, with the packages of the zip
        multiplied = Recording(
            SAMPLE.parents[1] / "3.9.1-default" / "controlled-shutdown", "invoices", "", ""
        )
        multiplied.write_night(tmp_path / "many", 0, range(TOPICS))
        both = configuration(tmp_path / "audit.toml", {"one": SAMPLE, "many": tmp_path / "many"})
        done = submit(
            packages,
            f"spark://127.0.0.1:{port}",
            tmp_path / "tables",
            tmp_path,
            *("--conf", "spark.executor.memory=700m", *logged_to(tmp_path / "spark-events")),
            # --jars passes Delta to executors only; local mode tests that it passes it to a driver, too
            *("--driver-class-path", delta_jars()),
            audited=["--config", str(both)],
        )
        partitions = partitions_of(done, tmp_path / "tables")
        assert partitions["one"] == 3
        assert partitions["many"] > 3 * TOPICS
        (new,) = re.findall(r"timelines, coverage: .* ([\d,]+) new events", done.stdout + done.stderr)
        assert int(new.replace(",", "")) > IN_PROCESS_ROWS
        tasks = tasks_of_stages(tmp_path / "spark-events")
        assert tasks
        assert max(tasks) <= MOST_TASKS, tasks
        local = tmp_path / "local"
        assert main(
            ["audit", "--config", str(both), "--tables", str(local), "--engine", "local", "--quiet"]
        ) in (0, 1)
        on_cluster, locally = tables_of(tmp_path / "tables"), tables_of(local)
        for table, rows in on_cluster.items():
            assert locally[table] == rows, table
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)
        log.close()
