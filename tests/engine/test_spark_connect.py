"""A whole audit over Spark Connect: the same tables as without Spark, and nothing on the console but the
audit's own lines.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_engines import tables_of

from jobs import errors
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "4.3.0-kraft" / "reassign"


@pytest.mark.spark
def test_an_audit_over_spark_connect(tmp_path: Path) -> None:
    """The server is one of its own.

    A second run finds nothing new; one that deletes and merges without delta-rs is in test_store.py.
    """
    by_connect, local = tmp_path / "connect", tmp_path / "local"
    audit = ["audit", str(SAMPLE), "--tables"]
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_AUDIT_MASTER"}
    for new in ("443 new", "0 new"):
        done = subprocess.run(
            [sys.executable, "-m", "jobs.nightly_audit", *audit, str(by_connect)],
            env=environment | {"SPARK_REMOTE": "local[2]"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == errors.CLEAN, done.stderr
        assert new in done.stderr
        assert "warnings.warn" not in done.stderr
        assert main([*audit, str(local), "--engine", "local"]) == errors.CLEAN
    assert tables_of(by_connect) == tables_of(local)
