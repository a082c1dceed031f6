"""Each benchmark runs at its smallest size, from its command line."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spark_settings import NO_GENERATED_CODE

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_started(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(f"benchmarks.{name}").main()
    assert f"tests/benchmarks/{name}.py" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_measures(name: str) -> None:
    smallest = importlib.import_module(f"benchmarks.{name}").SMALLEST
    # each chooses its engines by itself
    environment = {key: value for key, value in os.environ.items() if key != "KAFKA_AUDIT_MASTER"}
    given = [f"--conf {name}={value}" for name, value in NO_GENERATED_CODE.items()]
    environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*given, "pyspark-shell"])
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *smallest]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\d", ran.stdout)
