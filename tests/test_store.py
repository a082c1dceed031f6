"""What is written in the background while others go on, and what a table has gained and lost since a version of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import schemas
from jobs.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def full_disk() -> None:
    raise OSError("no space left on device")


def test_a_write_that_fails_in_the_background_ends_what_waits_for_it(tmp_path):
    store = Store(None, tmp_path)
    store._write("events", full_disk, in_memory=True)
    for waits in (lambda: store.written("events"), store.written, lambda: store.table("events")):
        with pytest.raises(OSError, match="no space left"):
            waits()


def test_a_write_that_fails_in_the_background_is_not_passed_over_at_the_end(tmp_path):
    with pytest.raises(OSError, match="no space left"), Store(None, tmp_path) as store:
        store._write("events", full_disk, in_memory=True)


def test_what_failed_before_is_what_is_raised(tmp_path):
    def broken() -> None:
        with Store(None, tmp_path) as store:
            store._write("events", full_disk, in_memory=True)
            raise ValueError("before")

    with pytest.raises(ValueError, match="before"):
        broken()


@pytest.mark.spark
def test_rows_that_a_commit_only_wrote_again_have_not_changed(spark, tmp_path):
    store = Store(spark, tmp_path)

    def add(*rows: tuple[int, str]) -> None:
        written = spark.createDataFrame(rows, "id int, kind string").coalesce(1).write.format("delta").mode("append")
        written.save(str(store.path("told")))

    def changed() -> list[list[tuple[int, str]]]:
        return [sorted(map(tuple, rows.collect())) for rows in store.changed_since("told", then, ("id",))]

    add((1, "old"), (2, "old"), (3, "old"))
    then = store.version("told")
    assert changed() == [[], []]
    add((4, "new"), (5, "new"))
    assert changed() == [[(4, "new"), (5, "new")], []]
    store.update("told", F.col("id").isin(2, 4), {"kind": F.lit("other")})
    assert changed() == [[(4, "other"), (5, "new")], []]
    store.delete("told", "id IN (1, 5)")
    assert changed() == [[(4, "other")], [(1, "old")]]


@pytest.mark.spark
def test_timelines_rest_on_the_rows_of_their_own_clusters(spark, tables):
    def land(cluster: str, record_id: str) -> None:
        tables.append("events", spark.sql(f"SELECT '{cluster}' AS cluster, 1 AS incarnation, '{record_id}' AS record_id, 0 AS item,"
                                          f" 'controller.log' AS file, 1L AS record_no, 'default' AS layout, false AS drifted, 'x' AS raw"))  # fmt: skip

    land("a", "first")
    tables.note_built(["a"])
    assert tables.is_built(["a"])
    assert not tables.is_built(["a", "b"])
    of_a = set(tables.path("events").glob("*.parquet"))
    land("b", "second")
    (of_b,) = set(tables.path("events").glob("*.parquet")) - of_a
    assert tables.is_built(["a"])
    tables.note_built(["a", "b"])
    assert tables.is_built(["a", "b"])
    tables.update("events", F.col("cluster") == "b", {"incarnation": F.lit(2)})
    assert tables.is_built(["a"])
    of_b.unlink()  # as VACUUM does it: what was in it is not known any more
    assert not tables.is_built(["a"])
    tables.note_built(["a"])
    land("a", "third")
    assert not tables.is_built(["a"])


@pytest.mark.spark
def test_witnesses_are_kept_from_run_to_run(spark, tables):
    def rows(*some: tuple[str, int]) -> DataFrame:
        return spark.createDataFrame(some, "cluster string, n int")

    def kept(*clusters: str) -> list[tuple[str, int]]:
        return sorted(map(tuple, tables.witnesses(clusters).collect()))

    folders = tables.root / "_witnesses"
    tables.note_built(["a", "b"], rows(("a", 1), ("b", 2)), without_any=["a", "b", "empty"])
    tables.note_built(["b"], rows(("b", 3)), without_any=["b"])
    assert (kept("a"), kept("b"), kept("a", "b", "empty")) == ([("a", 1)], [("b", 3)], [("a", 1), ("b", 3)])
    known = tables.built_from(["a", "b"])
    assert known is not None
    assert known.witnesses
    assert tables.built_from(["a", "unheard of"]) is None
    # what no cluster starts from any more is gone
    assert len(list(folders.iterdir())) == 2
    tables.note_built(["a", "b", "empty"], rows(("a", 4)))
    assert len(list(folders.iterdir())) == 1
    assert kept("a", "b") == [("a", 4)]
    # without them all events are read, and so are they where others were kept
    noted = tables.root / "_built.json"
    noted.write_text(noted.read_text().replace('"2-', '"'))
    (folder,) = folders.iterdir()
    older = folder.rename(folders / folder.name.removeprefix("2-"))
    known = tables.built_from(["a"])
    assert known is not None
    assert known.witnesses is None
    older.rename(folder)
    noted.write_text(noted.read_text().replace(f'"{older.name}', f'"{folder.name}'))
    assert kept("a") == [("a", 4)]
    shutil.rmtree(folders)
    known = tables.built_from(["a"])
    assert known is not None
    assert known.witnesses is None
    # as an earlier version of the product has left it
    (tables.root / "_built.json").write_text('{"a": 1}')
    assert tables.built_from(["a"]) is None
    assert not tables.is_built(["a"])


@pytest.mark.spark
@pytest.mark.parametrize("name", ["with space", "it's", "a[1]", "{a,b}", "100%", "back`tick", "a*", "ü\u2028"])
def test_tables_lie_in_any_folder(spark, tmp_path, name):
    for number in (1, 2):
        store = Store(spark, tmp_path / name)
        store.keeps_rows = True
        store.open()
        store.keep("passed_over", ["c"])
        store.append("passed_over", spark.sql(f"SELECT 'c' AS cluster, 'kafka.log' AS logger, {number}L AS record"))
        store.written()
        assert store.table("passed_over").count() == store.rows_of("passed_over", ["c"]).count() == number
    store.register()
    assert spark.sql("SELECT * FROM passed_over").count() == 2


@pytest.mark.spark
@pytest.mark.parametrize("keeps_rows", [False, True])
def test_columns_that_are_not_given_are_null(spark, tables, keeps_rows):
    few = "'c' AS cluster, 1 AS incarnation, 0 AS item, 'controller.log' AS file, 1L AS record_no, 'default' AS layout, false AS drifted, 'x' AS raw"
    tables.keeps_rows = keeps_rows
    for record_id, more in (
        ("first", ""),
        ("second", ", 'orders' AS topic"),
        ("third", ", array(1, 2) AS isr, 'orders' AS topic"),
    ):
        assert tables.rows_of("events", ["c"]).filter(F.col("record_id") == record_id).isEmpty()
        tables.append("events", spark.sql(f"SELECT '{record_id}' AS record_id, {few}{more}"))
    tables.written()
    for rows in (tables.rows_of("events", ["c"]), tables.table("events")):
        assert set(schemas.vocabulary()) <= set(rows.columns)
        told = {row.record_id: (row.topic, row.isr, row.leader) for row in rows.collect()}
        assert told == {"first": (None, None, None), "second": ("orders", None, None), "third": ("orders", [1, 2], None)}
