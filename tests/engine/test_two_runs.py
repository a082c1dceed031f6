"""Two runs over the same logs at the same time: no row of `events` is written twice, even where the lease on
the tables fails.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tables import rows_of

import schemas
from jobs import errors
from jobs.config import Cluster
from jobs.engine import in_process
from jobs.engine.conflicts import Conflict
from jobs.engine.run_tables import KEYS
from jobs.engine.store import Store
from jobs.engine.workers import OnWorkers
from jobs.files import ingest
from jobs.landing import new_records
from jobs.nightly_audit import main
from parsers.rules import built_in

LOGS = Path(__file__).parents[2] / "sample_logs" / "2.8.2-default" / "delete-topic-dead-broker"

pytestmark = pytest.mark.spark


@pytest.fixture(params=["delta-rs", "Spark", "Spark's workers"])
def opened(
    request: pytest.FixtureRequest, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Store]:
    """Opens the same tables, as each run does, and what appends to them."""
    if request.param != "delta-rs":
        monkeypatch.setattr("jobs.engine.store.local_folder", lambda _: None)
    if request.param == "Spark's workers":
        monkeypatch.setattr("jobs.engine.in_process.SMALL", 0)

    some = [one for one in schemas.statements("tables") if one.name in KEYS]

    def one() -> Store:
        store = Store(spark, tmp_path / "tables")
        with monkeypatch.context() as patched:
            patched.setattr("jobs.engine.store.schemas.statements", lambda _: some)
            store.open()
        return store

    return one


def land(store: Store, *nodes: int) -> new_records.IngestSummary:
    """Reads the logs of some brokers."""
    logs = tuple(str(LOGS / f"broker-{node}") for node in nodes)
    return new_records.land(store, ingest.find(Cluster("c", logs), built_in()))


def ids(tables: Path, table: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[key] for key in KEYS[table]) for row in rows_of(tables, table))


def between(monkeypatch: pytest.MonkeyPatch, does: Callable[[str], None], table: str) -> None:
    """Do something after a run has searched for duplicates and before it appends."""

    def before(append: Callable[..., Counter[str]]) -> Callable[..., Counter[str]]:
        def late(parsed: Any, store: Any, name: str, *given: Any) -> Counter[str]:
            if name == table:
                does(name)
            return append(parsed, store, name, *given)

        return late

    for parsed in (in_process.InProcess, OnWorkers):
        monkeypatch.setattr(parsed, "append", before(parsed.append))


@pytest.mark.parametrize("table", ["events", "passed_over"])
def test_records_that_another_run_appends_meanwhile_are_not_appended_again(
    opened: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    first, second = opened(), opened()
    calls: list[str] = []

    def other(name: str) -> None:
        calls.append(name)
        if len(calls) == 1:  # and not that of the other run
            land(second, 2, 3)

    between(monkeypatch, other, table)
    land(first, 1, 2)
    monkeypatch.undo()
    found = {name: ids(tmp_path / "tables", name) for name in KEYS}
    assert all(set(counts.values()) == {1} for counts in found.values())
    assert len(calls) == 3  # looked again once
    whole = new_records.events_of([str(LOGS)], "c")
    assert found["events"].keys() == set(
        zip(whole["record_id"].to_pylist(), whole["item"].to_pylist(), strict=True)
    )


def test_a_run_gives_up_where_others_append_endlessly(
    opened: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    row = pa.table(
        {
            "cluster": ["other"],
            "record_id": ["a"],
            "item": [0],
            "incarnation": [1],
            "file": ["f"],
            "record_no": [1],
        }
    )
    row = row.append_column("drifted", pa.array([False]))
    row = row.cast(
        pa.schema(
            [
                (one.name, {"item": pa.int32(), "incarnation": pa.int32()}.get(one.name, one.type))
                for one in row.schema
            ]
        )
    )
    between(
        monkeypatch,
        lambda _: write_deltalake(
            str(tmp_path / "tables" / "events"), row, mode="append", schema_mode="merge"
        ),
        "events",
    )
    if store._delta_rs is None:
        # Spark numbers its transactions: those of others that have no number are found afterwards
        land(store, 1)
        assert set(ids(tmp_path / "tables", "events").values()) == {1}
        return
    with pytest.raises(Conflict, match="another run has written to table events at the same time") as raised:
        land(store, 1)
    assert raised.value.exit_code == errors.USAGE


def audit(tables: Path) -> int:
    return main(["audit", str(LOGS), "--tables", str(tables), "--cluster", "c"])


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    tables = tmp_path_factory.mktemp("audited") / "tables"
    audit(tables)
    return tables


def contents(tables: Path) -> dict[str, list[str]]:
    names = (
        "events",
        "passed_over",
        "partition_timeline",
        "replica_timeline",
        "controllers",
        "topic_deletions",
        "coverage",
        "durability",
    )
    return {name: sorted(json.dumps(row, default=str) for row in rows_of(tables, name)) for name in names}


@pytest.mark.parametrize("most_rows", [None, 200])
def test_rows_that_were_doubled_are_removed_by_the_next_run(
    audited: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    most_rows: int | None,
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(audited, tables)
    if most_rows is not None:
        monkeypatch.setenv("KAFKA_AUDIT_IN_PROCESS_ROWS", str(most_rows))
    before = contents(tables)
    for table in KEYS:
        # as two runs left them that knew nothing of each other
        path = str(tables / table)
        rows = DeltaTable(path).to_pyarrow_table()
        write_deltalake(path, rows.slice(0, rows.num_rows // 2), mode="append")
    assert contents(tables) != before
    audit(tables)
    said = capsys.readouterr()
    assert "warning: 493 rows of events stood twice" in said.err
    assert "493 rows of events stood twice and were removed." in said.out
    assert contents(tables) == before
    audit(tables)
    assert "twice" not in capsys.readouterr().err
    assert contents(tables) == before
