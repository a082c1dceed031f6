"""Settings of the session: no JVM is started."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from processes import MARK, left

from jobs import errors
from jobs.engine import choice, file_systems, session
from jobs.errors import UsageError
from jobs.nightly_audit import main


@pytest.fixture(autouse=True)
def _no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        choice.SUBMITTED,
        choice.OURS,
        choice.ARGUMENTS,
        *choice.OF_SPARK,
        "SPARK_HOME",
        "SPARK_CONF_DIR",
        file_systems.PACKAGES,
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("megabytes", "heap"), [(4_000, "2048m"), (16_000, "4000m"), (64_000, "8192m")])
def test_memory(monkeypatch: pytest.MonkeyPatch, megabytes: int, heap: str) -> None:
    monkeypatch.delenv("KAFKA_AUDIT_MEMORY", raising=False)
    monkeypatch.setattr(session, "memory_mb", lambda: megabytes)
    assert session.settings()["spark.driver.memory"] == heap
    monkeypatch.setenv("KAFKA_AUDIT_MEMORY", "3g")
    assert session.settings()["spark.driver.memory"] == "3g"


def test_packages_are_added_to_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_AUDIT_PACKAGES", "org.apache.hadoop:hadoop-aws:3.4.2, a:b:1")
    monkeypatch.setattr(session, "jar_files", list)
    assert (
        session.settings()["spark.jars.packages"]
        == f"{session.DELTA},org.apache.hadoop:hadoop-aws:3.4.2,a:b:1"
    )
    monkeypatch.setattr(session, "jar_files", lambda: [Path("/delta.jar")])
    assert session.settings()["spark.jars.packages"] == "org.apache.hadoop:hadoop-aws:3.4.2,a:b:1"
    monkeypatch.delenv("KAFKA_AUDIT_PACKAGES")
    assert "spark.jars.packages" not in session.settings()


@pytest.mark.parametrize("uri", ["s3://audit/tables", "s3a://audit/tables"])
def test_a_file_system_that_is_missing_is_named_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], uri: str
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start", start)
    logs = str(Path(__file__).parents[2] / "sample_logs" / "3.3.2-default" / "reassign" / "broker-1")
    for arguments in ([logs, "--tables", uri], [uri, "--tables", str(tmp_path)]):
        assert main(["audit", *arguments, "--engine", "spark", "--cluster", "c"]) == errors.USAGE
        said = capsys.readouterr().err
        assert "s3a://audit/tables: Spark has no file system for s3a" in said
        assert "Set KAFKA_AUDIT_PACKAGES=org.apache.hadoop:hadoop-aws:3." in said


def test_a_file_system_that_spark_may_have_is_left_to_it(tmp_path: Path) -> None:
    given = ["s3a://audit/tables", "file:///tables", "hdfs://host/tables", str(tmp_path)]
    with pytest.raises(UsageError, match="hadoop-aws"):
        file_systems.require_before_start(given, {})
    file_systems.require_before_start(given[1:], {})
    for name in ("KAFKA_AUDIT_PACKAGES", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR"):
        file_systems.require_before_start(given, {name: "x"})


def test_a_container_has_less_memory_than_its_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(session, "CGROUP_LIMITS", (limit, tmp_path / "none"))
    whole = session.memory_mb()
    limit.write_text("max\n")
    assert session.memory_mb() == whole > 0
    limit.write_text(f"{512 << 20}\n")
    assert session.memory_mb() == min(whole, 512)


MASTERS = {
    "ours": {"KAFKA_AUDIT_MASTER": "URL"},
    "SPARK_MASTER": {"SPARK_MASTER": "URL"},
    "MASTER": {"MASTER": "URL"},
    "--master": {"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g --master URL pyspark-shell"},
    "--master=": {"PYSPARK_SUBMIT_ARGS": "--master=URL pyspark-shell"},
    "--conf": {
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf 'spark.master=URL' pyspark-shell"
    },
    "-c": {"PYSPARK_SUBMIT_ARGS": "-c spark.master=URL pyspark-shell"},
    "spark-defaults.conf": {"SPARK_CONF_DIR": "spark.ui.enabled false\n spark.master   URL\n"},
    "spark-defaults.conf with =": {"SPARK_CONF_DIR": "spark.master = URL"},
    "spark-defaults.conf of SPARK_HOME": {"SPARK_HOME": "spark.master:URL"},
}


def configure(monkeypatch: pytest.MonkeyPatch, folder: Path, environment: dict[str, str], url: str) -> None:
    """Set variables, in which URL stands for a master or a remote.

    The text of a file for those that name its folder.
    """
    for name, text in environment.items():
        value = text.replace("URL", url)
        if name in ("SPARK_CONF_DIR", "SPARK_HOME"):
            conf = folder / "conf"
            conf.mkdir(exist_ok=True)
            (conf / "spark-defaults.conf").write_text(value)
            value = str(folder if name == "SPARK_HOME" else conf)
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("url", ["spark://h:7077", "yarn", "local[3]"])
@pytest.mark.parametrize("way", MASTERS)
def test_a_session_runs_on_the_master_that_chose_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str, url: str
) -> None:
    assert choice.chosen("auto", tmp_path, []) == "local"
    configure(monkeypatch, tmp_path, MASTERS[way], url)
    assert choice.chosen("auto", tmp_path, []) == "spark"
    assert choice.chosen("local", tmp_path, []) == "local"
    assert session.settings()["spark.master"] == url
    # a cluster's own number of partitions is left alone
    assert ("spark.sql.shuffle.partitions" in session.settings()) == url.startswith("local")


REMOTES = {
    "SPARK_REMOTE": {"SPARK_REMOTE": "URL"},
    "--remote": {"PYSPARK_SUBMIT_ARGS": "--remote URL pyspark-shell"},
    "--conf": {"PYSPARK_SUBMIT_ARGS": "--conf=spark.remote=URL pyspark-shell"},
    "spark-defaults.conf": {"SPARK_CONF_DIR": "spark.remote\tURL"},
}


@pytest.mark.parametrize("url", ["sc://h:15002/;token=x=y", "local[2]"])
@pytest.mark.parametrize("way", REMOTES)
def test_a_remote_is_found_as_masters_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str, url: str
) -> None:
    """A server elsewhere takes only what a session can set; one that this process starts takes all."""
    configure(monkeypatch, tmp_path, REMOTES[way], url)
    assert choice.chosen("auto", tmp_path, []) == "spark"
    found = choice.configured()
    assert found is not None
    assert (found.remote, found.master) == (url, None)
    assert found.is_elsewhere == url.startswith("sc:")
    settings = session.settings()
    assert "spark.master" not in settings
    assert settings.keys() == session.OF_SESSION.keys() or not found.is_elsewhere


def test_a_remote_that_is_given_as_a_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_AUDIT_MASTER", "sc://h")
    assert choice.configured() == choice.Configured("KAFKA_AUDIT_MASTER", remote="sc://h")


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("ours", "MASTER", "one"),
        ("--master", "MASTER", "one"),
        ("spark-defaults.conf", "MASTER", "one"),
        ("--conf", "spark-defaults.conf", "one"),
    ],
)
def test_of_two_masters_one_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str, second: str, found: str
) -> None:
    configure(monkeypatch, tmp_path, MASTERS[second], "two")
    configure(monkeypatch, tmp_path, MASTERS[first], "one")
    assert session.settings()["spark.master"] == found


def test_a_master_and_a_remote_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MASTER", "yarn")
    monkeypatch.setenv("SPARK_REMOTE", "sc://h")
    with pytest.raises(
        UsageError,
        match="MASTER names the Spark master yarn, SPARK_REMOTE the remote sc://h; keep one of them",
    ):
        choice.chosen("auto", tmp_path, [])
    assert choice.chosen("local", tmp_path, []) == "local"


@pytest.mark.parametrize(
    "environment",
    [
        {"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--conf spark.masters=yarn pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--name 'not closed"},
        {"SPARK_CONF_DIR": "# spark.master yarn\nspark.masterful yarn\nspark.ui.enabled false"},
        {"SPARK_HOME": ""},
        {"MASTER": "", "SPARK_REMOTE": ""},
    ],
)
def test_what_names_no_master(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str]
) -> None:
    configure(monkeypatch, tmp_path, environment, "")
    assert choice.configured() is None
    assert session.settings()["spark.master"].startswith("local[")


def test_under_spark_submit_master_memory_and_jars_are_the_submitters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("MASTER", "yarn")
    assert choice.chosen("auto", tmp_path, []) == "spark"
    assert session.settings() == session.OF_SESSION | session.OF_START


def printed(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a Python of its own prints, which has started no Spark."""
    whole = f"import os, subprocess, sys\nfrom jobs.engine import session\n{code}"
    root, environment = Path(__file__).parents[2], os.environ | environment
    return subprocess.run(
        [sys.executable, "-c", whole],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)"])
def test_only_what_other_processes_print_is_kept_from_the_console(ending: str) -> None:
    done = printed(f"""
with session._silent_children() as log:
    subprocess.run("echo out; echo err >&2", shell=True)
    print("own out")
    print("own err", file=sys.stderr)
    assert log.seek(0) == 0 and log.read() == b"out\\nerr\\n"
    {ending}
subprocess.run("echo later; echo later >&2", shell=True)
""")
    later = "" if ending else "later\n"
    assert (done.stdout, done.stderr) == (f"own out\n{later}", f"own err\n{later}")
    assert done.returncode == (3 if ending else 0)


@pytest.mark.parametrize(
    "command",
    ["sleep 100", "sleep 100 & sleep 100 & wait", "trap '' TERM; sleep 100 & while :; do sleep 1; done"],
    ids=["one", "one that has started others", "one that ignores SIGTERM"],
)
def test_no_process_of_spark_is_left(command: str) -> None:
    mark = uuid.uuid4().hex
    code = f"""
import time
subprocess.Popen(["sh", "-c", {command!r}])
time.sleep(0.5)
session.JVM_ENDS = 1.0
session._stop_spark()
"""
    done = printed(code, **{MARK: mark})
    assert done.returncode == 0, done.stderr
    assert left(mark) == {}
