"""Pairs of whole runs at the same time leave the tables of one run.

More pairs: tests/benchmarks/two_runs.py, whose smallest size is a pair of the local engine.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import s3

LOGS = Path(__file__).parents[2] / "sample_logs" / "4.3.0-kraft" / "reassign"
# only Spark writes to an object store, where the requests are what costs: one node is enough
ENGINES = {"folder": "spark,local", "s3": "spark"}
NODES = {"folder": "", "s3": "node-1"}


@pytest.mark.spark
@pytest.mark.parametrize("place", ENGINES)
def test_a_pair_of_runs_leaves_the_tables_of_one(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if place == "s3" and not s3.jars():
        pytest.skip("Hadoop's S3A and the AWS SDK cannot be fetched from Maven Central")
    given = ["--pairs", "1", "--at", place, "--engines", ENGINES[place], "--logs", str(LOGS / NODES[place])]
    monkeypatch.setattr("sys.argv", ["two_runs", *given])
    failed = importlib.import_module("benchmarks.two_runs").main()
    output = capsys.readouterr().out
    assert not failed, output
    assert "1 of 1 pairs left the tables of one run" in output
