"""DuckDB and Spark give the same results over the same rows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.engine import rows as asked
from jobs.engine.frames import IN_PROCESS, IN_PROCESS_ROWS, by_workers
from jobs.engine.relation import Relation
from jobs.engine.rows import Frame, Where, in_spark, to_dicts
from jobs.nightly.partition_episodes import IS_WRONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOME = pa.table(
    {
        "cluster": pa.array(["a", "a", "b", "b'", "a"]),
        "n": pa.array([1, 2, 3, 4, None], pa.int32()),
        "text": pa.array(["x", None, "x'y", "ü", "x"]),
        "at": pa.array(
            [NOON, NOON + timedelta(hours=1), None, NOON - timedelta(hours=1), NOON],
            pa.timestamp("us", "UTC"),
        ),
        "later": pa.array([NOON, None, NOON, NOON, NOON + timedelta(days=1)], pa.timestamp("us", "UTC")),
        "is_so": pa.array([True, False, None, True, False]),
        "day": pa.array([date(2026, 3, 1), date(2026, 2, 28), None, date(2026, 3, 2), date(2026, 3, 1)]),
        "ids": pa.array([[1, 2], [], None, [3], [2]], pa.list_(pa.int32())),
    }
)
KEYS = pa.table(
    {
        "cluster": ["a", "b", "a", None],
        "text": ["x", "x'y", None, "x"],
        "more": pa.array([7, 8, 9, 10], pa.int32()),
    }
)


@pytest.fixture(scope="module", params=["DuckDB", pytest.param("Spark", marks=pytest.mark.spark)])
def given(request: pytest.FixtureRequest) -> Callable[[pa.Table], Frame]:
    """Rows as a query of DuckDB, or in Spark."""
    if request.param == "DuckDB":
        return Relation.of
    spark = request.getfixturevalue("spark")
    return lambda rows: in_spark(spark, rows)


def numbers(rows: Frame) -> list[int | None]:
    return sorted((row["n"] for row in to_dicts(rows)), key=str)


CONDITIONS: dict[str, tuple[Where, list[int | None], list[int | None]]] = {
    # a condition, for which rows it holds, and for which its contrary does
    "every": (asked.EVERY, [1, 2, 3, 4, None], []),
    "none": (asked.NONE, [], [1, 2, 3, 4, None]),
    "clusters": (asked.of_clusters(["a", "b'"]), [1, 2, 4, None], [3]),
    "no clusters": (asked.of_clusters([]), [], [1, 2, 3, 4, None]),
    "one of": (asked.one_of("text", ["x", "x'y", "\\"]), [1, 3, None], [4]),
    "one of none": (asked.one_of("text", []), [], [1, 2, 3, 4, None]),
    "true": (asked.is_true("is_so"), [1, 4], [2, None]),
    "null": (asked.is_null("text"), [2], [1, 3, 4, None]),
    "known": (asked.is_known("text"), [1, 3, 4, None], [2]),
    "begins": (asked.starts_with("text", "x'"), [3], [1, 4, None]),
    "above": (asked.above("n", 2), [3, 4], [1, 2]),
    "not before": (asked.not_before("at", "later"), [1], [4, None]),
    "at or after": (asked.at_or_after("at", NOON), [1, 2, None], [4]),
    "before": (asked.before("at", NOON.replace(tzinfo=None)), [4], [1, 2, None]),
    "at or before": (asked.at_or_before("at", NOON), [1, 4, None], [2]),
    "from a day": (asked.from_day("day", date(2026, 3, 1)), [1, 4, None], [2]),
    "a moment from a day": (asked.from_day("later", date(2026, 3, 2)), [None], [1, 3, 4]),
    "both": (asked.is_true("is_so") & asked.above("n", 1), [4], [1, 2, None]),
    "one, or none is known": (asked.is_true("is_so") | asked.above("n", 2), [1, 3, 4], [2]),
    "any of none": (asked.any_of([]), [], [1, 2, 3, 4, None]),
    "by cluster": (asked.by_cluster({"a": asked.above("n", 1), "b": asked.EVERY}), [2, 3], [1, 4]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(given: Callable[[pa.Table], Frame], name: str) -> None:
    condition, holds, does_not = CONDITIONS[name]
    assert numbers(asked.where(given(SOME), condition)) == sorted(holds, key=str)
    assert numbers(asked.where(given(SOME), ~condition)) == sorted(does_not, key=str)


def test_for_which_rows_a_condition_is_met() -> None:
    assert asked.met(SOME, asked.above("n", 2)).to_pylist() == [False, False, True, True, False]
    assert asked.met(SOME.slice(0, 0), asked.EVERY).to_pylist() == []


def test_partitions_that_are_not_as_they_should_be(given: Callable[[pa.Table], Frame]) -> None:
    rows = [
        # leader, isr, replicas, whether that is wrong
        (1, [1, 2], [1, 2], False),
        (-1, [1, 2], [1, 2], True),
        (1, [1], [1, 2], True),
        (2, [1, 2], [1, 2], True),
        (1, [1], None, True),
        (None, None, [1], False),
        (1, [], [], False),
    ]
    kinds = [
        ("leader", pa.int32()),
        ("isr", pa.list_(pa.int32())),
        ("replicas", pa.list_(pa.int32())),
        ("wrong", pa.bool_()),
    ]
    told = pa.table(
        [pa.array(values, kind) for values, (_, kind) in zip(zip(*rows, strict=True), kinds, strict=True)],
        schema=pa.schema(kinds),
    )
    assert [row["wrong"] for row in to_dicts(asked.where(given(told), IS_WRONG))] == [True] * 4


def test_rows_that_others_have(given: Callable[[pa.Table], Frame]) -> None:
    on = ["cluster", "text"]
    for rows, keys in ((given(SOME), KEYS), (SOME, given(KEYS)), (given(SOME), given(KEYS))):
        assert numbers(asked.having(rows, keys, on)) == [1, 3, None]
        assert numbers(asked.lacking(rows, keys, on)) == [2, 4]
        marked = asked.marked(rows, keys, on, "is_there")
        assert {row["n"]: row["is_there"] for row in to_dicts(marked)} == {
            1: True,
            2: False,
            3: True,
            4: False,
            None: True,
        }
    assert numbers(asked.having(given(SOME), KEYS.slice(0, 0), on)) == []
    assert numbers(asked.lacking(given(SOME), KEYS.slice(0, 0), on)) == [1, 2, 3, 4, None]
    known = asked.looked_up(given(SOME), KEYS.filter(KEYS["text"].is_valid()), on)
    assert {row["n"]: row["more"] for row in to_dicts(known)} == {1: 7, 2: None, 3: 8, 4: None, None: 7}


def test_columns(given: Callable[[pa.Table], Frame]) -> None:
    some = given(SOME)
    (first, *_) = to_dicts(asked.select(some, "n", "text", name="cluster"))
    assert first == {"n": 1, "text": "x", "name": "a"}
    assert to_dicts(asked.select(asked.with_values(some, text="y", number=3, is_new=True), "n", "text", "number", "is_new"))[1] == {
        "n": 2, "text": "y", "number": 3, "is_new": True
    }  # fmt: skip
    marked = asked.marked_with_any(some, "ids", {2, 9}, "has_one")
    assert [row["has_one"] for row in to_dicts(marked)] == [True, False, False, False, True]
    assert [row["at"] for row in to_dicts(asked.in_microseconds(some, "at"))][:3] == [
        1772366400000000,
        1772370000000000,
        None,
    ]
    packed = pa.table({"n": [1, 2], "it": [{"a": 1, "b": [1]}, {"a": 2, "b": None}]})
    assert to_dicts(asked.unpacked(given(packed), "it", "n")) == [
        {"n": 1, "a": 1, "b": [1]},
        {"n": 2, "a": 2, "b": None},
    ]


def test_rows_of_several(given: Callable[[pa.Table], Frame]) -> None:
    other = pa.table({"text": ["z"], "n": pa.array([9], pa.int64())})
    few = SOME.select(["n", "text"])
    for one, two in ((given(few), other), (few, given(other)), (given(few), given(other))):
        both = asked.together(one, two)
        assert to_dicts(asked.where(both, asked.above("n", 3))) == [
            {"n": 4, "text": "ü"},
            {"n": 9, "text": "z"},
        ]
    doubled = asked.select(asked.together(given(few), few, few), "text")
    assert sorted((row["text"] for row in to_dicts(asked.distinct(doubled))), key=str) == [
        None,
        "x",
        "x'y",
        "ü",
    ]
    assert not asked.is_empty(given(few))
    assert asked.is_empty(asked.where(given(few), asked.NONE))


def test_what_differs(given: Callable[[pa.Table], Frame]) -> None:
    # a row that is there twice, one that is gone, one whose list is another one
    turned = SOME.slice(4, 1).set_column(7, "ids", pa.array([[2, 1]], pa.list_(pa.int32())))
    others = pa.concat_tables([SOME.slice(0, 2), SOME.slice(0, 1), SOME.slice(3, 1), turned])
    for one, two in ((given(SOME), others), (SOME, given(others))):
        assert numbers(asked.differing(one, two, ["n"])) == [1, 3, None]
    assert asked.is_empty(asked.differing(given(SOME), SOME, ["n"]))


def test_the_first_and_the_last(given: Callable[[pa.Table], Frame]) -> None:
    told = {
        row["cluster"]: (row["first"], row["last"]) for row in asked.extremes(given(SOME), ["cluster"], "at")
    }
    assert told == {
        "a": (NOON, NOON + timedelta(hours=1)),
        "b": (None, None),
        "b'": (NOON - timedelta(hours=1),) * 2,
    }


def test_what_functions_make_of_rows(given: Callable[[pa.Table], Frame]) -> None:
    each = pa.schema([("cluster", pa.string()), ("id", pa.int32())])
    made = asked.mapped(
        given(SOME), lambda row: [{"cluster": row["cluster"], "id": one} for one in row["ids"] or ()], each
    )
    assert [(row["cluster"], row["id"]) for row in to_dicts(made)] == [
        ("a", 1),
        ("a", 2),
        ("b'", 3),
        ("a", 2),
    ]


@pytest.mark.parametrize("most", [IN_PROCESS_ROWS, 1])
def test_groups_are_folded(
    given: Callable[[pa.Table], Frame], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setenv(IN_PROCESS, str(most))

    def fold(
        key: tuple[Any, ...], some: list[dict[str, Any]], others: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        return [{"name": "/".join(map(str, key)), "rows": len(some), "others": len(others)}]

    names, counts = ("cluster", "text", "name"), ("rows", "others")
    schema = pa.schema([*((n, pa.string()) for n in names), *((n, pa.int32()) for n in counts)])
    told = to_dicts(asked.map_groups(given(SOME), KEYS, ["cluster", "text"], fold, schema))
    assert {row["name"]: (row["cluster"], row["text"], row["rows"], row["others"]) for row in told} == {
        "a/x": ("a", "x", 2, 1), "a/None": ("a", None, 1, 1), "b/x'y": ("b", "x'y", 1, 1), "b'/ü": ("b'", "ü", 1, 0),
        "None/x": (None, "x", 0, 1),
    }  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", None])
def test_moments_of_files_are_read_as_they_are(tmp_path: Path, zone: str | None) -> None:
    """With a zone and without one, and the first and the last that there can be."""
    moments = [
        NOON,
        None,
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ]
    stored = pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    pq.write_table(pa.table({"at": stored}), tmp_path / "one.parquet")
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    found = to_dicts(Relation.of_files([str(tmp_path / "one.parquet")], schema, str(tmp_path)))
    assert [row["at"] for row in found] == moments


@pytest.mark.spark
def test_tasks_of_workers_read_no_archive_anew(spark: SparkSession) -> None:
    def held(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Finders that the next task invalidates, and objects that it does not look through."""
        archives = sum(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
        for _ in batches:
            yield pa.record_batch(
                [pa.array([archives]), pa.array([gc.get_freeze_count()])], names=["archives", "frozen"]
            )

    (told,) = {
        (row.archives, row.frozen > 10_000)
        for row in by_workers(spark.range(4), held, "archives LONG, frozen LONG").collect()
    }
    assert told == (0, True)


def test_a_condition_of_hundreds_of_clusters_is_not_too_deep() -> None:
    """DuckDB's form of it is parsed.

    A condition inside of another for each cluster ended in a RecursionError.
    """
    names = [f"c{number}" for number in range(600)]
    which = asked.by_cluster({name: asked.above("n", number) for number, name in enumerate(names)})
    table = pa.table({"cluster": names, "n": pa.array(range(1, 601))})
    assert asked.where(Relation.of(table), which).count() == 600
    assert asked.where(Relation.of(table), ~which).is_empty()
