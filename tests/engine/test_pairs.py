"""Pairs of whole runs at the same time leave the tables of one run.

More pairs: tests/benchmarks/two_runs.py.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import s3

LOGS = Path(__file__).parents[2] / "sample_logs" / "4.3.0-kraft" / "reassign"


@pytest.mark.spark
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_a_pair_of_runs_leaves_the_tables_of_one(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if place == "s3" and not s3.jars():
        pytest.skip("Hadoop's S3A and the AWS SDK cannot be fetched from Maven Central")
    monkeypatch.setattr("sys.argv", ["two_runs", "--pairs", "1", "--at", place, "--logs", str(LOGS)])
    failed = importlib.import_module("benchmarks.two_runs").main()
    output = capsys.readouterr().out
    assert not failed, output
    assert "1 of 1 pairs left the tables of one run" in output
