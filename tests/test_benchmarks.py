"""Benchmarks are run by hand: that they still find what they measure is seen here."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(__file__).with_name("benchmarks").glob("*.py")))
def test_a_benchmark_can_be_started(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(f"benchmarks.{name}").main()
    assert f"tests/benchmarks/{name}.py" in capsys.readouterr().out
