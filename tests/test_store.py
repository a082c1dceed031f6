"""What is written in the background while others go on, and what a table has gained and lost since a version of it."""

import pytest
from pyspark.sql import functions as F

from jobs.store import Store


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

    def changed() -> list[tuple[int, str]]:
        return sorted(map(tuple, store.changed_since("told", then, ("id",)).collect()))

    add((1, "old"), (2, "old"), (3, "old"))
    then = store.version("told")
    assert changed() == []
    add((4, "new"), (5, "new"))
    assert changed() == [(4, "new"), (5, "new")]
    store.update("told", F.col("id").isin(2, 4), {"kind": F.lit("other")})
    assert changed() == [(4, "other"), (5, "new")]
    store.delete("told", "id IN (1, 5)")
    assert changed() == [(1, "old"), (4, "other")]
