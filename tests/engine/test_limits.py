"""What the local engine takes of the machine: memory, a spill folder that is removed, and time that is
announced.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pytest

from jobs import errors
from jobs.commands import audit, command_line
from jobs.engine import limits
from jobs.engine.database import SPILL
from jobs.engine.estimate import Estimate, duration
from jobs.engine.relation import Relation, forget, session
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"


@pytest.mark.parametrize(
    ("given", "size"), [("4GB", "4GB"), ("512 mb", "512MB"), ("1.5GiB", "1.5GB"), ("2g", "2GB")]
)
def test_a_size_of_memory(given: str, size: str) -> None:
    assert limits.size(given) == size


@pytest.mark.parametrize("given", ["", "4", "0GB", "-1GB", "4GB; SELECT 1", "much"])
def test_a_wrong_size_is_refused(given: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 4GB"):
        limits.size(given)
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(SAMPLE), "--tables", str(tmp_path), f"--memory={given}"])
    assert ended.value.code == errors.USAGE
    assert "give a size such as 4GB or 512MB" in capsys.readouterr().err


def test_rows_beyond_the_memory_are_sorted_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take some 160 MB; all of them come in order."""
    monkeypatch.setattr(limits, "memory", "60MB")
    folder = str(tmp_path)
    with session(folder) as database:
        assert (
            database._database.execute("SELECT current_setting('memory_limit')")
            .fetchall()[0][0]
            .startswith("57.2")
        )
    query = "SELECT (i * 7919) % 2000003 AS n, repeat('x', 50) || i AS text FROM range(2000000) t(i)"
    rows = Relation(query, pa.schema([("n", pa.int64()), ("text", pa.string())]), folder=folder)
    spilled, last, count = False, -1, 0
    for batch in rows.batches("n"):
        spilled |= (tmp_path / SPILL).is_dir()
        numbers = batch["n"].to_pylist()
        assert last < numbers[0]
        assert numbers == sorted(numbers)
        last, count = numbers[-1], count + len(numbers)
    assert (spilled, count) == (True, 2_000_000)
    forget(folder)
    assert list(tmp_path.iterdir()) == []


def test_an_audit_within_little_memory(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    given = ["audit", str(SAMPLE), "--tables", str(tables), "--engine", "local"]
    assert main([*given, "--memory", "200MB"]) == errors.CLEAN
    assert limits.memory == "200MB"
    assert not (tables / SPILL).exists()
    assert main(given) == errors.CLEAN
    assert limits.memory == limits.HALF


def test_a_long_run_is_announced_once() -> None:
    said: list[str] = []
    now = iter(range(0, 1_000, 10))
    estimate = Estimate(120_000_000_000, 2, said.append, lambda: next(now))
    for _ in range(3):
        estimate(50_000_000)
    # each process has parsed one split, at least, when the rate is looked at
    assert not said
    for _ in range(9):
        estimate(50_000_000)
    assert said == ["120.0 GB of logs will take this machine about 8 h 20 min: 2 processes parse 20.0 MB/s"]


def test_a_run_of_less_than_half_an_hour_is_not_announced() -> None:
    said: list[str] = []
    now = iter(range(0, 1_000, 10))
    estimate = Estimate(7_000_000_000, 2, said.append, lambda: next(now))
    for _ in range(10):
        estimate(50_000_000)
    assert not said


@pytest.mark.parametrize(
    ("seconds", "shown"), [(1, "1 min"), (2_700, "45 min"), (7_200, "2 h"), (12_000, "3 h 20 min")]
)
def test_a_length_of_time(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_warning_names_the_command_for_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    options = command_line.parser().parse_args(
        ["audit", "logs of a", "--tables", "/data", "--cluster", "a", "--engine", "local"]
    )
    audit.Audit(options)._announce("9 GB of logs will take this machine about 2 h")
    assert capsys.readouterr().err == (
        "warning: 9 GB of logs will take this machine about 2 h. It continues. A Spark cluster shares the work: "
        "spark-submit --master URL jobs/nightly_audit.py audit 'logs of a' --tables /data --cluster a\n"
    )
