"""`--metrics`: what Prometheus reads, judged by Prometheus's own tool."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import standins
import yaml
from tables import rows_of

from jobs import errors, pipeline
from jobs.nightly_audit import main
from jobs.reporting.metrics import Run, exposition, write, write_end

HOSTILE = 'pay"ments\n\\'
RUN = Run(
    clusters=["payments", HOSTILE],
    findings=[
        {"cluster": "payments", "check_id": "topic_deletion_blocked", "severity": "error", "status": "open", "silenced": False,
         "first_seen": datetime(2026, 11, 20, 4)},
        {"cluster": "payments", "check_id": "topic_deletion_blocked", "severity": "error", "status": "new", "silenced": False,
         "first_seen": datetime(2026, 11, 20, 16)},
        {"cluster": "payments", "check_id": "partition_leaderless", "severity": "critical", "status": "open", "silenced": True,
         "first_seen": datetime(2026, 11, 1)},
        {"cluster": "payments", "check_id": "partition_leaderless", "severity": "critical", "status": "resolved", "silenced": False,
         "first_seen": datetime(2026, 10, 1)},
        {"cluster": HOSTILE, "check_id": "format_drift", "severity": "warning", "status": "new", "silenced": None, "first_seen": None},
    ],
    counts={"payments": {"recognised": 900, "unrecognised": 7}},
    hours={("payments", "replica_states", "observed"): 24, ("payments", "replica_states", "no_file"): 1},
    newest={"payments": datetime(2026, 11, 21, 4)},
    exit_code=4,
    started_at=datetime(2026, 11, 21, 4, 30, tzinfo=UTC),
    finished_at=datetime(2026, 11, 21, 4, 31, tzinfo=UTC),
    undelivered={"oncall": 2},
)  # fmt: skip
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "alerts.md"
SAMPLE = Path(__file__).parents[2] / "sample_logs" / "3.3.2-default" / "reassign"


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    return found


def test_every_metric_is_written() -> None:
    lines = exposition(RUN).decode().splitlines()
    for line in (
        'kafka_audit_findings{check="topic_deletion_blocked",cluster="payments",severity="error",silenced="false"} 2.0',
        'kafka_audit_findings{check="partition_leaderless",cluster="payments",severity="critical",silenced="true"} 1.0',
        'kafka_audit_findings{check="partition_leaderless",cluster="payments",severity="critical",silenced="false"} 0.0',
        'kafka_audit_findings{check="format_drift",cluster="pay\\"ments\\n\\\\",severity="warning",silenced="false"} 1.0',
        'kafka_audit_oldest_open_finding_age_seconds{cluster="payments"} 86400.0',
        'kafka_audit_oldest_open_finding_age_seconds{cluster="pay\\"ments\\n\\\\"} 0.0',
        'kafka_audit_records{cluster="payments",kind="recognised"} 900.0',
        'kafka_audit_records{cluster="payments",kind="drifted"} 0.0',
        'kafka_audit_coverage_seconds{cluster="payments",shown="no_file",what="replica_states"} 3600.0',
        'kafka_audit_alerts_undelivered{sink="oncall"} 2.0',
        "kafka_audit_last_run_duration_seconds 60.0",
        "kafka_audit_last_run_exit_code 4.0",
    ):
        assert line in lines


def test_prometheus_takes_it(promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "a.prom"
    write(path, RUN)
    write_end(path, 143, datetime.now(UTC))
    assert values(path)["last_run_exit_code"] == 143
    nothing = replace(RUN, findings=[], counts={}, hours={}, newest={}, undelivered={})
    for text in (exposition(RUN), exposition(nothing), path.read_bytes()):
        judged = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False
        )
        assert (judged.returncode, judged.stdout, judged.stderr) == (0, b"", b"")


def rules() -> dict[str, Any]:
    """Return the rules of the guide."""
    (block,) = [
        text
        for text in re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
        if text.startswith("groups:")
    ]
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def fired(promtool: str, folder: Path, text: bytes, hours: int) -> dict[str, list[dict[str, str]]]:
    """Return alert -> labels of each that fires so many hours after 1970 began, of the rules of the guide.

    Promtool judges each guess.
    """
    (folder / "rules.yml").write_text(yaml.safe_dump(rules()))
    series = []
    for line in text.decode().splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            series.append({"series": name, "values": f"{float(value):.0f}x{hours}"})
    names = [rule["alert"] for rule in rules()["groups"][0]["rules"]]
    guesses = [{"eval_time": f"{hours}h", "alertname": name, "exp_alerts": []} for name in names]
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1h",
        "tests": [{"interval": "1h", "input_series": series, "alert_rule_test": guesses}],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(test))
    judged = subprocess.run(
        [promtool, "test", "rules", str(folder / "test.yml")],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    found: dict[str, list[dict[str, str]]] = {}
    for name, got in re.findall(
        r"alertname: (\w+),.*?\n\s+got:\[(.*?)\n\s*\]", judged.stdout + judged.stderr, re.DOTALL
    ):
        found[name] = [
            {
                key: value
                for key, value in re.findall(r'(\w+)="(.*?)"', labels)
                if key not in ("alertname", "severity")
            }
            for labels in re.findall(r"Labels:\{(.*?)\}", got)
        ]
    assert bool(found) == (judged.returncode != 0), judged.stdout + judged.stderr
    return found


def at_hour(hour: float) -> datetime:
    """Return a moment of promtool, whose time begins with 1970."""
    return datetime.fromtimestamp(hour * 3600, UTC)


QUIET = replace(
    RUN,
    clusters=["payments"],
    findings=[],
    newest={"payments": at_hour(99).replace(tzinfo=None)},
    exit_code=0,
    started_at=at_hour(99.5),
    finished_at=at_hour(100),
    undelivered={"oncall": 0},
)


@pytest.mark.parametrize(
    ("run", "hours", "alerts"),
    [
        (QUIET, 101, {}),
        (replace(QUIET, exit_code=1), 101, {}),
        (QUIET, 124, {}),
        (QUIET, 126, {"KafkaAuditDidNotRun": [{}]}),
        (replace(QUIET, exit_code=2), 101, {"KafkaAuditFailed": [{}]}),
        (replace(QUIET, exit_code=143), 101, {"KafkaAuditFailed": [{}]}),
        (
            replace(QUIET, exit_code=4, undelivered={"oncall": 2}),
            101,
            {"KafkaAuditAlertsUndelivered": [{"sink": "oncall"}]},
        ),
        (
            replace(QUIET, exit_code=3, not_audited=["payments"]),
            101,
            {"KafkaAuditFailed": [{}], "KafkaAuditClusterNotAudited": [{"cluster": "payments"}]},
        ),
        (
            replace(QUIET, newest={"payments": at_hour(40).replace(tzinfo=None)}),
            101,
            {"KafkaAuditLogsAreOld": [{"cluster": "payments"}]},
        ),
        (
            replace(QUIET, findings=RUN.findings[:4], exit_code=1),
            101,
            {"KafkaAuditFindings": [{"cluster": "payments", "check": "topic_deletion_blocked"}]},
        ),
    ],
)
def test_the_rules_of_the_guide_fire(
    promtool: str, tmp_path: Path, run: Run, hours: int, alerts: dict[str, list[dict[str, str]]]
) -> None:
    assert fired(promtool, tmp_path, exposition(run), hours) == alerts


def test_the_rules_of_the_guide_fire_without_any_metric(promtool: str, tmp_path: Path) -> None:
    assert fired(promtool, tmp_path, b"up 1\n", 1) == {"KafkaAuditDidNotRun": [{}]}


def test_the_configurations_in_the_guide(promtool: str, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "alerts.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    judges = {"route:": ["amtool", "check-config"], "groups:": [promtool, "check", "rules"]}
    for begin, judge in judges.items():
        (text,) = [block for block in blocks if block.startswith(begin)]
        (tmp_path / "config.yml").write_text(text)
        if shutil.which(judge[0]):
            judged = subprocess.run(
                [*judge, str(tmp_path / "config.yml")],
                capture_output=True,
                timeout=60,
                check=False,
                text=True,
            )
            assert judged.returncode == 0, judged.stdout + judged.stderr


def test_the_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "kafka_audit.prom"
    path.write_text("old")
    write(path, RUN)
    assert path.read_bytes() == exposition(RUN)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("file", "words"),
    [("nowhere/a.prom", "no such folder"), (".", "is no file"), ("n" * 300, "name too long")],
)
def test_a_file_that_cannot_be_written_is_found_before_any_log_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, words: str
) -> None:
    arguments = [
        "audit",
        str(tmp_path),
        "--tables",
        str(tmp_path / "tables"),
        "--metrics",
        str(tmp_path / file),
    ]
    assert main(arguments) == errors.USAGE
    assert words in capsys.readouterr().err


def values(path: Path) -> dict[str, float]:
    """Return the metrics without labels."""
    found = re.findall(r"^kafka_audit_(\w+) (\S+)$", path.read_text("utf-8"), re.MULTILINE)
    return {name: float(value) for name, value in found}


def _signal(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


def _internal(*_: Any) -> None:
    raise RuntimeError("an error")


@pytest.mark.parametrize(
    ("given", "happens", "code"),
    [
        (["--timezone", "Mars/Base"], None, errors.USAGE),
        (["--config", "none.toml"], None, errors.USAGE),
        (["nowhere"], None, errors.INPUT),
        ([], _internal, errors.INTERNAL),
        ([], _signal, 143),
    ],
)
def test_each_end_is_written_and_all_else_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], happens: Any, code: int
) -> None:
    path = tmp_path / "kafka_audit.prom"
    write(path, replace(RUN, exit_code=1))
    before = values(path)
    assert before["last_success_timestamp_seconds"] == RUN.finished_at.timestamp()
    if happens:
        monkeypatch.setattr(pipeline, "run", happens)
    monkeypatch.chdir(tmp_path)
    logs = [] if given == ["nowhere"] else [str(SAMPLE)]
    assert (
        main(
            ["audit", *logs, *given, "--tables", "tables", "--metrics", str(path), "--engine", "local", "-q"]
        )
        == code
    )
    after = values(path)
    assert after["last_run_exit_code"] == code
    assert after["last_success_timestamp_seconds"] == before["last_success_timestamp_seconds"]
    assert after["last_run_timestamp_seconds"] > before["last_run_timestamp_seconds"]
    kept = [line for line in exposition(RUN).decode().splitlines() if re.match(r"\w+\{", line)]
    assert set(kept) <= set(path.read_text("utf-8").splitlines())


def test_a_file_that_is_damaged_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kafka_audit.prom"
    path.write_text("kafka_audit_last_run_exit_code{ 0 0\n")
    assert (
        main(
            ["audit", str(tmp_path / "nowhere"), "--tables", str(tmp_path / "tables"), "--metrics", str(path)]
        )
        == errors.INPUT
    )
    assert values(path).keys() == {
        "last_run_timestamp_seconds",
        "last_run_duration_seconds",
        "last_run_exit_code",
    }


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[standins.Standin]:
    with standins.serving() as started:
        monkeypatch.setenv("HOOK_URL", started.url)
        yield started


def test_one_cluster_without_logs_keeps_no_other_from_being_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hook: standins.Standin
) -> None:
    config, tables = tmp_path / "audit.toml", tmp_path / "tables"
    config.write_text(f"""
        [[cluster]]
        name = "payments"
        logs = ["payments/**/*.log*"]
        [[cluster]]
        name = "orders"
        logs = [{json.dumps(str(SAMPLE / "broker-1"))}, "not-mounted"]
        [[cluster]]
        name = "stock"
        logs = [{json.dumps(str(SAMPLE))}]
        [[alert]]
        name = "hook"
        type = "webhook"
        url_env = "HOOK_URL"
        severity = "info"
    """)
    assert main(["config", "check", str(config)]) == errors.CLEAN
    said = capsys.readouterr().err
    assert f"cluster payments: no file is at {tmp_path}/payments/**/*.log* now" in said
    assert f"cluster orders: no file is at {tmp_path}/not-mounted now" in said
    assert "stock" not in said
    given = ["audit", "--config", str(config), "--tables", str(tables), "--engine", "local", "--exit-zero"]
    path, report = tmp_path / "a.prom", tmp_path / "report.html"
    assert main([*given, "--metrics", str(path), "--report", str(report)]) == errors.INPUT
    printed = capsys.readouterr().out
    assert f"payments: not audited. {tmp_path}/payments/**/*.log*: no such file or folder" in printed
    assert f"Not read: {tmp_path}/not-mounted: no such file or folder." in printed
    assert "stock" in report.read_text("utf-8")
    assert {body["cluster"] for body in hook.bodies} == {"orders", "stock"}
    text = path.read_text("utf-8")
    for name, audited in (("payments", 0), ("orders", 1), ("stock", 1)):
        assert f'kafka_audit_cluster_audited{{cluster="{name}"}} {audited}.0' in text
        assert (f'kafka_audit_newest_record_timestamp_seconds{{cluster="{name}"}}' in text) == bool(audited)
    assert values(path)["last_run_exit_code"] == errors.INPUT
    assert "last_success_timestamp_seconds" not in values(path)
    assert {row["cluster"] for row in rows_of(tables, "partition_timeline")} == {"orders", "stock"}
    # what was missing is read as soon as it is there
    shutil.copytree(SAMPLE, tmp_path / "payments")
    shutil.copytree(SAMPLE / "broker-2", tmp_path / "not-mounted")
    assert main([*given, "--metrics", str(path)]) == errors.CLEAN
    assert {row["cluster"] for row in rows_of(tables, "partition_timeline")} == {
        "orders",
        "payments",
        "stock",
    }
    assert values(path)["last_success_timestamp_seconds"] == values(path)["last_run_timestamp_seconds"]
