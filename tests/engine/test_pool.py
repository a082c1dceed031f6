"""The pool of processes of the local engine: it lands what one process lands, and its end is a clear one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from processes import left
from tables import rows_of
from test_interrupts import AT_CALL, is_interrupted, run
from test_landing import SAMPLE, copied_logs, read

from jobs import errors
from jobs.batches import record_blocks
from jobs.engine import grouped, in_process
from jobs.engine.local_store import LocalStore
from jobs.engine.parsing import FOLDER
from jobs.engine.pool import Pool, WorkerLost
from jobs.engine.rows import map_groups, to_dicts
from jobs.files import ingest
from jobs.landing import new_records

# the pool parses whatever there is, in many pieces
ON_POOL = """
from jobs.files import ingest
from jobs.engine import in_process
in_process.SMALL = 0
ingest.SMALLEST_SPLIT = ingest.LARGEST_SPLIT = 40_000
"""
# once the first process has returned something, so that others still compute
AT_RESULT = """
from jobs.engine.pool import Pool
before = Pool._computed
def instead(*given):
    result = before(*given)
    os.kill(os.getpid(), {number})
    return result
Pool._computed = instead
"""


@pytest.fixture(scope="module")
def no_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return tables without rows."""
    tables = tmp_path_factory.mktemp("no_rows")
    with contextlib.closing(LocalStore(tables)) as opened:
        opened.open()
    return tables


@pytest.fixture
def store(no_rows: Path, tmp_path: Path) -> Iterator[LocalStore]:
    found = LocalStore(shutil.copytree(no_rows, tmp_path / "tables"))
    found.open()
    yield found
    found.close()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return copied_logs(tmp_path / "logs")


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "SMALL", 0)
    monkeypatch.setattr(ingest, "SMALLEST_SPLIT", 40_000)
    monkeypatch.setattr(ingest, "LARGEST_SPLIT", 40_000)


def sorted_rows(store: LocalStore, table: str) -> list[dict[str, Any]]:
    rows = [
        {name: value for name, value in row.items() if name != "file"}
        for row in rows_of(Path(store.root), table)
    ]
    return sorted(rows, key=lambda row: [row.get(name) for name in ("record_id", "item", "record")])


def left_behind(store: LocalStore) -> list[Path]:
    return list(Path(store.root).glob(f"*/{FOLDER}"))


def test_the_pool_lands_what_one_process_lands(
    store: LocalStore,
    no_rows: Path,
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_splits: None,
) -> None:
    """Copies within the logs and copies of earlier runs are left out; every table and count is the same."""
    here = LocalStore(shutil.copytree(no_rows, copied.with_name("here")))
    here.open()
    with monkeypatch.context() as patched:
        patched.setattr(in_process, "SMALL", 2**62)
        expected = new_records.land(here, read(copied))
    found = new_records.land(store, read(copied))
    assert found == expected
    assert found.new < found.records
    for table in record_blocks.SCHEMAS:
        assert sorted_rows(store, table) == sorted_rows(here, table)
    version = store.version("events")
    again = new_records.land(store, read(copied))
    assert (again.records, again.new, again.newly_counted) == (found.records, 0, 0)
    assert store.version("events") == version
    assert not left_behind(store)


def test_the_pool_lands_what_is_new_and_completes_what_was_cut_short(
    store: LocalStore, tmp_path: Path, small_splits: None
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    source = SAMPLE / "broker-2" / "controller.log"
    lines = source.read_text().splitlines(keepends=True)
    trace = "java.lang.IllegalStateException: it is\n\tat kafka.controller.A.b(A.scala:1)\n"
    log = folder / "controller.log"
    log.write_text("".join([*lines[:40], trace[: trace.index("\tat")]]))
    before = new_records.land(store, read(folder))
    log.write_text("".join([*lines[:40], trace, *lines[40:]]))
    after = new_records.land(store, read(folder))
    assert (before.completed, after.completed) == (0, 1)
    whole = new_records.events_of([str(folder)], "c")
    assert {row["record_id"] for row in rows_of(Path(store.root), "events")} == set(
        whole["record_id"].to_pylist()
    )


def test_what_a_killed_run_leaves_is_removed_by_the_next(
    store: LocalStore, copied: Path, small_splits: None
) -> None:
    garbage = Path(store.root) / "events" / FOLDER / "x.snappy.parquet"
    garbage.parent.mkdir()
    garbage.write_bytes(b"half a file")
    assert new_records.land(store, read(copied)).new
    assert not left_behind(store)


def _die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_process_that_dies_ends_the_run_with_one_sentence() -> None:
    pool = Pool(2)
    try:
        with pytest.raises(
            WorkerLost, match="a process of this run ended before its work was done"
        ) as raised:
            list(pool.map(_die, range(20)))
        assert raised.value.exit_code == errors.INTERNAL
    finally:
        pool.close()


def test_results_are_in_order_and_only_some_inputs_are_read_ahead() -> None:
    pool, read_ahead = Pool(2), []

    def numbers() -> Iterator[int]:
        for number in range(50):
            read_ahead.append(number)
            yield number

    try:
        results = pool.map(abs, numbers())
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        assert len(read_ahead) < 12
        assert list(results) == list(range(3, 50))
    finally:
        pool.close()


@pytest.fixture
def many(tmp_path: Path) -> tuple[str, ...]:
    """Arguments of an audit that has many pieces of work for the pool."""
    for copy in range(2):
        shutil.copytree(
            SAMPLE, tmp_path / "many" / f"c{copy}", ignore=shutil.ignore_patterns("*.md", "*.json*")
        )
    return ("audit", str(tmp_path / "many"), "--tables", str(tmp_path / "tables"), "--engine", "local")


@pytest.mark.parametrize(("seconds", "number"), [(0.05, signal.SIGINT), (0.4, signal.SIGTERM)])
def test_a_signal_while_processes_start_leaves_none(
    many: tuple[str, ...], number: signal.Signals, seconds: float
) -> None:
    at_start = AT_CALL.format(
        module="jobs.engine.pool", owner="Pool", name="_started", number=int(number), seconds=seconds
    )
    is_interrupted(ON_POOL + at_start, number, *many)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_pool_computes_leaves_no_process(
    many: tuple[str, ...], number: signal.Signals
) -> None:
    is_interrupted(ON_POOL + AT_RESULT.format(number=int(number)), number, *many)


def test_the_pool_ends_with_a_run_that_is_killed(
    many: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr("test_interrupts.left", lambda mark: marks.append(mark) or {})
        returned, _, _ = run(ON_POOL + AT_RESULT.format(number=int(signal.SIGKILL)), *many)
    assert returned == -signal.SIGKILL
    until = time.monotonic() + 5
    while left(marks[0]) and time.monotonic() < until:
        time.sleep(0.1)
    assert left(marks[0]) == {}
    # the same command continues
    again, said, processes = run(ON_POOL, *many)
    assert again in (errors.CLEAN, errors.FINDINGS), said
    assert processes == {}


def lengths(
    offset: int, key: tuple[Any, ...], some: list[dict[str, Any]], others: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A fold that uses all that it is given: rows of one side, and values of a column that both sides have."""
    found = [row["n"] for row in some], [row["n"] for row in others], [row["at"] for row in some]
    return (
        [{"text": repr((key, *(sorted(one, key=repr) for one in found))), "sum": offset + len(some)}]
        if some
        else []
    )


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_groups_are_folded_in_any_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Also those whose key has a null, and those that only one side has."""
    monkeypatch.setattr(grouped, "CHUNK", chunk)
    store = LocalStore(tmp_path)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    keys = [("a", 1), ("a", None), (None, 1), (None, None), ("a", 1), ("b", 2), ("a", 1), (None, None)]
    one = pa.table(
        {
            "cluster": pa.array([key[0] for key in keys], pa.string()),
            "part": pa.array([key[1] for key in keys], pa.int32()),
            "n": pa.array([*range(7), None], pa.int64()),
            "at": pa.array([at, None] * 4, pa.timestamp("us", "UTC")),
        }
    )
    other = pa.table(
        {
            "n": pa.array(["x", None, "z"]),
            "part": pa.array([1, None, 9], pa.int32()),
            "cluster": pa.array(["a", None, "c"], pa.string()),
        }
    )
    schema = pa.schema(
        [("cluster", pa.string()), ("part", pa.int32()), ("text", pa.string()), ("sum", pa.int64())]
    )
    expected = to_dicts(map_groups(one, other, ["cluster", "part"], partial(lengths, 5), schema))
    found = to_dicts(store.map_groups(one, other, ["cluster", "part"], partial(lengths, 5), schema))
    assert len(expected) == len(set(keys))
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    none = one.slice(0, 0)
    assert (
        to_dicts(store.map_groups(none, other.slice(0, 0), ["cluster", "part"], partial(lengths, 5), schema))
        == []
    )
    store.close()
