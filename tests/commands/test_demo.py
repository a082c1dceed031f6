"""`kafka-audit demo`, and the help of all commands."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import errors
from jobs.commands import command_line
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]


def commands():
    whole = command_line.parser()
    (action,) = [action for action in whole._actions if isinstance(action, argparse._SubParsersAction)]
    return action.choices


def test_the_demo_finds_lost_records_and_writes_a_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("stdout is no terminal"))
    for _ in range(2):
        assert main(["demo", "--into", str(tmp_path / "demo"), "--open"]) == errors.CLEAN
        output = capsys.readouterr()
        assert "Broker 1 crashed" in output.out
        assert "Lost: at least 20 records in 2 partitions of lossy" in output.out
        assert f"Report: {tmp_path}/demo/report.html" in output.out
        assert "stdout is no terminal" in output.err
    assert "lossy-0" in (tmp_path / "demo" / "report.html").read_text("utf-8")


def test_the_incident_is_in_the_wheel_and_is_small():
    incident = ROOT / "jobs" / "demo" / "incident.tar.xz"
    assert incident.stat().st_size < 50_000
    code = "import sys; from importlib.resources import files; sys.stdout.write(str(files('jobs.demo').joinpath('incident.tar.xz').is_file()))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
        == "True"
    )


@pytest.mark.parametrize("name", commands())
def test_the_help_of_each_command_has_examples_that_parse(name):
    command = commands()[name]
    examples = [
        line.strip() for line in command.epilog.splitlines() if line.strip().startswith(f"kafka-audit {name}")
    ]
    assert examples
    for example in examples:
        command_line.parser().parse_args(command_line_of(example))


def command_line_of(example: str) -> list[str]:
    """Return the arguments of an example, without a redirection and without the remark after two spaces."""
    import re
    import shlex

    return shlex.split(re.split(r"\s{2,}| > | \| ", example)[0])[1:]
