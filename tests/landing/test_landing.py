"""What lands in the tables: the same from workers and from this process, once, whatever is read again."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.config import Cluster
from jobs.engine import in_process
from jobs.files import ingest
from jobs.landing import new_records

if TYPE_CHECKING:
    from jobs.engine.store import Store

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
pytestmark = pytest.mark.spark


def read(folder: Path) -> list[ingest.LogFile]:
    return ingest.find(Cluster("c", (str(folder),)))


def rows_of(store: Store) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in store.table("events").drop("file").collect()]
    return sorted(rows, key=lambda row: (row["record_id"], row["item"]))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return copied_logs(tmp_path / "logs")


def copied_logs(folder: Path) -> Path:
    """Write the logs of a cluster, some of them rotated, copied, packed; return their folder."""
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("*.md", "*.json*"))
    log = folder / "broker-1" / "state-change.log"
    lines = log.read_bytes().splitlines(keepends=True)
    (folder / "broker-1" / "state-change.log.1").write_bytes(b"".join(lines[: len(lines) // 2]))
    (folder / "broker-1" / "state-change.log.1.gz").write_bytes(
        gzip.compress(b"".join(lines[: len(lines) // 3]))
    )
    log.write_bytes(b"".join(lines[len(lines) // 2 :]))
    return folder


def test_workers_write_the_same_rows_as_one_process(
    tables: Store, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = new_records.events_of([str(logs)], "c").drop_columns(["file"]).to_pylist()
    monkeypatch.setattr(in_process, "SMALL", 0)
    monkeypatch.setattr(ingest, "SMALLEST_SPLIT", 40_000)
    monkeypatch.setattr(ingest, "LARGEST_SPLIT", 40_000)
    first = new_records.land(tables, read(logs))
    stored = rows_of(tables)
    for row in expected:
        row["ts"] = row["ts"] and row["ts"].replace(tzinfo=None)
    assert stored == sorted(expected, key=lambda row: (row["record_id"], row["item"]))
    assert (
        first.new
        == len({row["record_id"] for row in stored})
        == first.recognised + first.unrecognised + first.drifted
    )
    again = new_records.land(tables, read(logs))
    assert (again.new, again.newly_counted, again.completed) == (0, 0, 0)
    assert again.records == first.records
    assert rows_of(tables) == stored


def test_a_second_run_adds_new_records(tables: Store, logs: Path) -> None:
    log = logs / "broker-2" / "state-change.log"
    whole = log.read_bytes()
    log.write_bytes(whole[: whole.rfind(b"\n", 0, len(whole) // 2) + 1])
    before = new_records.land(tables, read(logs))
    log.write_bytes(whole)
    after = new_records.land(tables, read(logs))
    assert before.new > 0 < after.new
    ids = {row["record_id"] for row in rows_of(tables)}
    assert ids == set(new_records.events_of([str(logs)], "c")["record_id"].to_pylist())
    assert len(ids) == before.new + after.new
