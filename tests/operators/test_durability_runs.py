"""Durability that several runs have counted is that of one run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from faults import Logs, moment, read, stamped, write
from tables import rows_of

from jobs import errors
from jobs.engine.local_store import LocalStore
from jobs.engine.rows import having, to_table
from jobs.engine.store import Store
from jobs.nightly_audit import main
from jobs.operators import durability

SAMPLES = Path(__file__).parents[2] / "sample_logs"


def parts(recording: str, word: str, share: float, days: int) -> tuple[Logs, Logs]:
    """Return the logs up to a moment, and their later records with a word, some days later."""
    logs = read(SAMPLES / recording)
    moments = sorted(moment(record) for records in logs.values() for record in records if record[0] == "[")
    at = moments[int(len(moments) * share)]
    first = {key: [one for one in records if moment(one) <= at] for key, records in logs.items()}
    later = {
        key: [
            stamped(one, moment(one) + timedelta(days=days))
            for one in records
            if moment(one) > at and word in one
        ]
        for key, records in logs.items()
    }
    return first, later


def audited(tables: Path, engine: str, *logs: Path) -> list[dict[str, Any]]:
    paths = [str(one) for one in logs]
    code = main(["audit", *paths, "--cluster", "c", "--tables", str(tables), "--engine", engine, "--quiet"])
    assert code in (errors.CLEAN, errors.FINDINGS)
    return sorted(rows_of(tables, "durability"), key=lambda row: (row["topic"], row["day"]))


KRAFT = ("3.9.1-kraft/controller-failover", "orders", 0.5)
# the partitions of both topics have too few replicas in sync at that moment
BELOW_MIN_ISR = ("3.9.1-kraft/controller-failover", "Controller", 0.95)
ZOOKEEPER = ("2.8.2-default/delete-topic-dead-broker", "keep", 0.6)


@pytest.mark.parametrize(
    ("engine", "case"),
    [
        ("local", (*KRAFT, 0)),
        ("local", (*KRAFT, 2)),
        ("local", (*BELOW_MIN_ISR, 2)),
        ("local", (*ZOOKEEPER, 0)),
        pytest.param("spark", (*ZOOKEEPER, 2), marks=pytest.mark.spark),
    ],
)
def test_runs_in_the_order_of_time(
    engine: str, case: tuple[str, str, float, int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Topics without new records are continued from the stored rows; the days of an episode are counted again."""
    if engine == "spark":
        request.getfixturevalue("spark")
    monkeypatch = request.getfixturevalue("monkeypatch")
    continued: list[int] = []
    for store in (LocalStore, Store):
        map_groups = store.map_groups

        def noted(self: Any, *given: Any, original: Any = map_groups) -> Any:
            one, other, by, fold, _ = given
            if fold.func is durability._later_days and all(start.counted for start in fold.args[1].values()):
                continued.append(to_table(having(one, other, by)).num_rows)
            return original(self, *given)

        monkeypatch.setattr(store, "map_groups", noted)
    first, later = parts(*case)
    for name, logs in (("first", first), ("later", later)):
        write(logs, tmp_path / name)
    audited(tmp_path / "runs", engine, tmp_path / "first")
    assert continued == []
    # the same files, longer, as a scheduler finds them
    write({key: [*first[key], *later[key]] for key in first}, tmp_path / "whole")
    found = audited(tmp_path / "runs", engine, tmp_path / "whole")
    assert found == audited(tmp_path / "once", engine, tmp_path / "whole")
    days = {min(row["day"] for row in found) + timedelta(days=number) for number in range(case[-1] + 1)}
    assert {row["day"] for row in found} == days
    assert bool(sum(continued)) == (case[:3] != BELOW_MIN_ISR)
