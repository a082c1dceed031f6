"""The guide for schedulers works as printed: secrets, units, the manifest that exports metrics, and the
script that removes old files.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tables import rows_of

from jobs import errors
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "schedulers.md").read_text("utf-8")
SAMPLE = ROOT / "sample_logs" / "3.3.2-default" / "delete-topic-dead-broker"


def blocks(language: str, begin: str = "") -> list[str]:
    """Return the blocks of the guide in a language that begin with a text."""
    return [
        block
        for block in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
        if block.startswith(begin)
    ]


def test_the_file_of_secrets_serves_cron_and_systemd(tmp_path: Path) -> None:
    (text,) = blocks("sh")
    (tmp_path / "secrets").write_text(text)
    (start,) = re.findall(r"^    15 2 \* \* \*  (.*? && )/opt", GUIDE, re.MULTILINE)
    start = start.replace("/etc/kafka-audit/secrets", f"{tmp_path}/secrets")
    by_cron = subprocess.run(
        ["sh", "-c", f"{start} env"], capture_output=True, text=True, check=True, env={}
    ).stdout.splitlines()
    # systemd takes NAME=value, and removes single quotes around a value
    by_systemd = {line.split("=", 1)[0]: shlex.split(line.split("=", 1)[1]) for line in text.splitlines()}
    assert {
        name: [value] for name, _, value in (line.partition("=") for line in by_cron) if name in by_systemd
    } == by_systemd
    assert set(by_systemd) == {"SLACK_WEBHOOK_URL", "PD_ROUTING_KEY", "HEARTBEAT_URL"}


def test_the_units_are_sound(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    names = re.findall(r"^`(kafka-audit\S*\.(?:service|timer))`", GUIDE, re.MULTILINE)
    units = blocks("ini")
    assert names == ["kafka-audit.service", "kafka-audit-failed.service", "kafka-audit.timer"]
    for name, unit in zip(names, units, strict=True):
        # programs that are not installed on this machine
        text = re.sub(r"/opt/kafka-audit/bin/kafka-audit|/usr/bin/curl", "/bin/true", unit)
        (tmp_path / name).write_text(text.replace("User=kafka-audit", "User=root"))
    for name in names:
        judged = subprocess.run(
            [tool, "verify", str(tmp_path / name)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (
            judged.returncode,
            [line for line in judged.stderr.splitlines() if "kafka-audit" in line],
        ) == (0, [])


def test_metrics_of_the_cron_job_are_exported_from_its_volume() -> None:
    job, exporter = (yaml.safe_load(block) for block in blocks("yaml", "apiVersion"))
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    written = Path(arguments[arguments.index("--metrics") + 1])
    other = exporter["spec"]["template"]["spec"]
    assert f"--collector.textfile.directory={written.parent}" in other["containers"][0]["args"]
    assert written.suffix == ".prom"
    assert other["volumes"][0] in pod["volumes"]
    assert other["volumes"][0]["name"] == other["containers"][0]["volumeMounts"][0]["name"]
    assert exporter["spec"]["selector"]["matchLabels"] == exporter["spec"]["template"]["metadata"]["labels"]


def test_replaced_files_can_be_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = blocks("python", "# vacuum.py")
    tables = tmp_path / "tables"
    given = ["audit", "--tables", str(tables), "--cluster", "c", "--engine", "local", "--exit-zero"]
    for number in (1, 2):
        assert main([*given, str(SAMPLE / f"broker-{number}")]) == errors.CLEAN
    # the script removes each file that is not needed any more, as after 7 days
    script = script.replace("/data/audit", str(tables)).replace(
        "retention_hours=7 * 24", "retention_hours=0, enforce_retention_duration=False"
    )
    assert "retention_hours=0" in script
    before = {path for path in tables.rglob("*.parquet") if "_delta_log" not in path.parts}
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    after = {path for path in tables.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert sum(map(int, re.findall(r"(\d+) files removed", output))) >= len(before - after) > 0
    timeline = rows_of(tables, "partition_timeline")
    for again in (SAMPLE / "broker-1", SAMPLE):
        capsys.readouterr()
        assert main([*given, str(again)]) == errors.CLEAN
        if again != SAMPLE:
            assert "0 new" in capsys.readouterr().err
            assert rows_of(tables, "partition_timeline") == timeline
    whole = tmp_path / "whole"
    assert main([*given, str(SAMPLE), "--tables", str(whole)]) == errors.CLEAN
    left = ("topic", "partition", "step", "valid_from", "valid_to", "leader", "isr", "replicas")
    both = [
        sorted([str([row[name] for name in left]) for row in rows_of(one, "partition_timeline")])
        for one in (tables, whole)
    ]
    assert both[0] == both[1]
