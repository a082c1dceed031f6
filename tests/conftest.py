"""Fixtures of all tests: one JVM, tables, and the recordings beside this repository."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from spark_settings import NO_GENERATED_CODE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.engine.store import Store

SHARED = Path(__file__).parents[2] / "shared"
# short-lived JVMs run most code once, so C1 alone compiles it; its default of 48 MB for code is too small
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xshare:auto"
os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)
# with this variable `--engine auto` is Spark
MASTER = ("KAFKA_AUDIT_MASTER", f"local[{os.cpu_count()}]")
Expectation = Callable[[Path, Iterable[Mapping[str, Any]]], None]

# no deadline: a busy machine is not a defect. The same examples every time: a failure can be repeated
settings.register_profile("audit", deadline=None, derandomize=True, database=None)
settings.load_profile("audit")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `pytest --rewrite`: the present output becomes the expected one; review the diff like code."""
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the expected *.jsonl again instead of comparing with them",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses the fixtures `spark` or `shared`, so that `-m 'not spark'` starts no JVM.

    Sort files with few tests first.
    """
    without_shared = pytest.mark.skip(
        reason=f"needs the recordings in {SHARED}, which are not part of this repository"
    )
    for item in items:
        asked_for = getattr(item, "fixturenames", ())
        if "spark" in asked_for:
            item.add_marker("spark")
        if "shared" in asked_for:
            item.add_marker("shared")
        if item.get_closest_marker("shared") and not SHARED.is_dir():
            item.add_marker(without_shared)
    # files with few tests are whole runs; short tests at the end keep both workers busy
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: tests[item.path])


def pytest_collection_finish() -> None:
    """Leave what stays for the whole session out of each later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Return the product's own session, in a JVM that starts quickly."""
    from jobs.engine import session

    os.environ["TZ"] = "UTC"
    time.tzset()
    # a task takes longer than to process few rows
    few_tasks = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}
    started = session.start(NO_GENERATED_CODE | few_tasks)
    # fixtures of modules run before the fixture of a test that sets it
    os.environ.update([MASTER])
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def _engine_of_auto(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `--engine auto` Spark in tests with the mark `spark`; all other tests run without Java."""
    if request.node.get_closest_marker("spark"):
        monkeypatch.setenv(*MASTER)
    else:
        monkeypatch.delenv(MASTER[0], raising=False)


class SqlSuites:
    """Replaces `expectations.Suites` by the SQL of the same rules.

    `test_contracts` proves that both find the same.
    """

    def __init__(self, docs: Path | None = None, kinds: Iterable[str] = ()) -> None:
        assert docs is None
        self.count, self._kinds = 0, tuple(kinds)

    def of_frames(
        self, spark: SparkSession, written: Mapping[str, Any], whole: Mapping[str, Any]
    ) -> list[Any]:
        """Return the violations in frames of Spark."""
        from jobs.checking import contracts
        from jobs.engine.database import Database

        def in_arrow(frame: Any) -> Any:
            return frame.toArrow() if hasattr(frame, "toArrow") else frame

        given = {table: in_arrow(rows) for table, rows in written.items()}
        return self.of_rows(
            Database(), given, {table: in_arrow(whole[table]) for table in contracts.reads(written)}
        )

    def of_rows(self, queries: Any, written: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Any]:
        """Return the violations in other rows."""
        from jobs.checking import contracts

        contracts.register(queries, written, whole)
        rules = [rule for table in written for rule in contracts.rules_of(table) if rule.kind in self._kinds]
        self.count += len(rules)
        return contracts.violations(queries.rows, rules)

    def write_docs(self) -> None:
        """Write nothing."""


@pytest.fixture(autouse=True)
def _contracts_by_sql(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validate in-process audits on Spark by SQL, because Great Expectations takes 3 s of each.

    Except with the mark `great_expectations`.
    """
    if request.node.get_closest_marker("great_expectations"):
        return
    from jobs.checking import expectations

    monkeypatch.setattr(expectations, "Suites", SqlSuites)
    monkeypatch.setattr(expectations, "preload", lambda: None)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Store:
    """Return empty tables in a folder of the test."""
    from jobs.engine.store import Store

    store = Store(spark, tmp_path / "tables")
    store.open()
    return store


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of recordings and corpora beside this repository; without it the test is skipped."""
    return SHARED


@pytest.fixture
def expect(request: pytest.FixtureRequest) -> Expectation:
    """Return a function that compares rows with an expected file of JSON Lines.

    With `--rewrite` it writes the file.
    """

    def compare(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps(row, ensure_ascii=False, default=str) for row in rows]
        if request.config.getoption("--rewrite"):
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            return
        assert path.is_file(), f"{path} is missing; `pytest --rewrite` writes it"
        expected = path.read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == [json.loads(line) for line in expected], (
            f"differs from {path}; if that is right, run `pytest --rewrite` and review the diff"
        )

    return compare
