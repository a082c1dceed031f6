"""`--metrics`: what Prometheus reads, judged by Prometheus's own tool."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs import errors
from jobs.nightly_audit import main
from jobs.reporting.metrics import Run, exposition, write

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
RULES = """
groups:
- name: kafka_audit
  rules:
  - alert: KafkaAuditFindings
    expr: sum by (cluster, check) (kafka_audit_findings{severity=~"error|critical", silenced="false"}) > 0
    annotations: {summary: "{{ $value }} findings of {{ $labels.check }} in {{ $labels.cluster }}"}
  - alert: KafkaAuditDidNotSucceed
    expr: time() - kafka_audit_last_success_timestamp_seconds > 90000
  - alert: KafkaAuditAlertsUndelivered
    expr: kafka_audit_alerts_undelivered > 0
"""
TEST = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
SERIES
  alert_rule_test:
  - eval_time: 1m
    alertname: KafkaAuditFindings
    exp_alerts:
    - exp_labels: {cluster: payments, check: topic_deletion_blocked}
      exp_annotations: {summary: "2 findings of topic_deletion_blocked in payments"}
  - eval_time: 1m
    alertname: KafkaAuditAlertsUndelivered
    exp_alerts:
    - exp_labels: {sink: oncall}
"""


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    return found


def test_what_is_told() -> None:
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


def test_prometheus_takes_it(promtool: str) -> None:
    for run in (RUN, replace(RUN, findings=[], counts={}, hours={}, newest={}, undelivered={})):
        judged = subprocess.run(
            [promtool, "check", "metrics"], input=exposition(run), capture_output=True, timeout=60, check=False
        )
        assert (judged.returncode, judged.stdout, judged.stderr) == (0, b"", b"")


def test_a_rule_fires_on_it(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    series = []
    for line in exposition(replace(RUN, clusters=["payments"])).decode().splitlines():
        if not line.startswith("#") and "pay\\" not in line:
            name, value = line.rsplit(" ", 1)
            series.append(f"  - series: '{name}'\n    values: '{float(value):.0f} {float(value):.0f}'")
    (tmp_path / "test.yml").write_text(TEST.replace("SERIES", "\n".join(series)))
    judged = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "test.yml")], capture_output=True, timeout=60, check=False, text=True
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    # and the test is one that can fail
    (tmp_path / "test.yml").write_text((tmp_path / "test.yml").read_text().replace('"2 findings', '"3 findings'))
    judged = subprocess.run([promtool, "test", "rules", str(tmp_path / "test.yml")], capture_output=True, timeout=60, check=False)
    assert judged.returncode != 0


def test_the_configurations_in_the_guide(promtool: str, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "alerts.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    judges = {"route:": ["amtool", "check-config"], "groups:": [promtool, "check", "rules"]}
    for begin, judge in judges.items():
        (text,) = [block for block in blocks if block.startswith(begin)]
        (tmp_path / "config.yml").write_text(text)
        if shutil.which(judge[0]):
            judged = subprocess.run(
                [*judge, str(tmp_path / "config.yml")], capture_output=True, timeout=60, check=False, text=True
            )
            assert judged.returncode == 0, judged.stdout + judged.stderr


def test_the_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "kafka_audit.prom"
    path.write_text("old")
    write(path, RUN)
    assert path.read_bytes() == exposition(RUN)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("file", "words"), [("nowhere/a.prom", "no such folder"), (".", "is no file"), ("n" * 300, "name too long")]
)
def test_a_file_that_cannot_be_written_is_found_before_any_log_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, words: str
) -> None:
    arguments = ["audit", str(tmp_path), "--tables", str(tmp_path / "tables"), "--metrics", str(tmp_path / file)]
    assert main(arguments) == errors.USAGE
    assert words in capsys.readouterr().err
