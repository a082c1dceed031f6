"""The tables, as deltalake and Spark read and write them: what came and went since a version, one commit for
what is settled and what is not, what becomes of tables of another version.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from tables import rows_of

import schemas
from jobs.batches.types import schema_of
from jobs.engine.frames import IN_PROCESS, IN_PROCESS_ROWS, ROWS_IN_PLAN, framed, in_process_rows
from jobs.engine.local_store import LocalStore
from jobs.engine.relation import Relation
from jobs.engine.rows import (
    EVERY,
    Frame,
    Where,
    above,
    computed,
    in_spark,
    is_null,
    is_true,
    of_clusters,
    one_of,
    run_concurrently,
    to_dicts,
)
from jobs.engine.run_tables import PARTITION_KEY, UNSETTLED
from jobs.engine.store import Store
from jobs.errors import UsageError
from jobs.location import delta_rs_uri, local_folder, root_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT = "1 AS incarnation, 0 AS item, 'controller.log' AS file, 1L AS record_no, 'default' AS layout, false AS drifted, 'x' AS raw"
COUNTED = "'c' AS cluster, 'kafka.log' AS logger"


@pytest.fixture(params=["in a folder", "elsewhere"])
def empty_tables(
    request: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Store]:
    """Makes some empty tables, which are read and written by deltalake and Spark, or by Spark alone."""
    if request.param == "elsewhere":
        monkeypatch.setattr("jobs.engine.store.local_folder", lambda _: None)

    def made(*names: str) -> Store:
        store = Store(spark, tmp_path / "tables")
        with these_tables(monkeypatch, *names):
            store.open()
        return store

    return made


@contextmanager
def these_tables(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[None]:
    """Where there are no other ones."""
    some = [one for one in schemas.statements("tables") if one.name in names]
    with monkeypatch.context() as patched:
        patched.setattr("jobs.engine.store.schemas.statements", lambda _: some)
        yield


def events(spark: Any, *record_ids: str) -> DataFrame:
    """Rows of `events`."""
    rows = " UNION ALL ".join(f"SELECT 'c' AS cluster, '{one}' AS record_id, {EVENT}" for one in record_ids)
    return spark.sql(rows)


def actions(tables: Store, table: str, kind: str, after: int = -1) -> list[dict[str, Any]]:
    """What commits after a version have done, of one kind."""
    logs = sorted(Path(tables.path(table), "_delta_log").glob("*.json"))[after + 1 :]
    told = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [one[kind] for one in told if kind in one]


def engines_of(tables: Store, table: str) -> list[str]:
    """Who wrote each commit."""
    return [
        "Spark" if "Spark" in one["engineInfo"] else "deltalake"
        for one in actions(tables, table, "commitInfo")
    ]


def settled_of_removed(tables: Store, table: str, after: int) -> set[str]:
    """Of files that commits after a version have taken away: whether what stood in them was settled."""
    settled = {one["path"]: one["partitionValues"]["settled"] for one in actions(tables, table, "add")}
    return {settled[one["path"]] for one in actions(tables, table, "remove", after)}


def stand(tables: Store, table: str) -> list[dict[str, Any]]:
    """The rows of a table, as who has not written them reads them."""
    return rows_of(Path(tables.root), table)


def ids(rows: Frame | None) -> list[str]:
    return [] if rows is None else sorted(row["record_id"] for row in to_dicts(rows))


@pytest.mark.spark
def test_what_came_and_went_since_a_version(spark, empty_tables):
    tables = empty_tables("events")
    tables.append("events", events(spark, "1", "2", "3"))
    then = tables.version("events")

    def changed() -> tuple[list[str], list[str], int]:
        changes = tables.changes("events", then)
        assert changes is not None
        return ids(changes.inserted), ids(changes.deleted), changes.version

    assert changed() == ([], [], then)
    tables.append("events", events(spark, "4", "5"))
    assert changed() == (["4", "5"], [], then + 1)
    tables.delete("events", one_of("record_id", ("1", "5")))
    assert changed() == (["4"], ["1"], then + 2)

    def set_incarnations(numbers: dict[str, int]) -> None:
        values = [{"record_id": one, "item": 0, "incarnation": number} for one, number in numbers.items()]
        columns = ["record_id", "item", "incarnation"]
        tables.set_matching(
            "events", of_clusters(["c"]), tables.table_of("events", values).select(columns), columns[:2]
        )

    set_incarnations({"2": 2, "4": 2})
    assert changed() == (["2", "4"], ["1", "2"], then + 3)
    set_incarnations({"3": 3})
    # in a folder of this machine Spark has appended a frame twice, and nothing else
    assert engines_of(tables, "events").count("Spark") == (2 if tables._delta_rs is not None else 6)
    assert changed() == (["2", "3", "4"], ["1", "2", "3"], then + 4)
    assert {row["record_id"]: row["incarnation"] for row in stand(tables, "events")} == {
        "2": 2,
        "3": 3,
        "4": 2,
    }
    # files that are gone, as VACUUM leaves it: it cannot be told any more
    for file in Path(tables.path("events")).rglob("*.parquet"):
        file.unlink()
    assert tables.changes("events", then) is None


@pytest.mark.spark
def test_what_a_merge_has_written_is_looked_up_here(spark, tables):
    def found(table: str, condition: Any) -> list[dict[str, Any]]:
        rows = tables._delta_rs.rows_where(
            table, ["record_id" if table == "events" else "step", "cluster"], condition
        )
        return rows.to_pylist()

    tables.append("events", events(spark, "1", "2", "3"))
    keys = ["record_id", "item"]
    numbers = tables.table_of("events", [{"record_id": "2", "item": 0, "incarnation": 2}]).select(
        [*keys, "incarnation"]
    )
    tables.set_matching("events", of_clusters(["c"]), numbers, keys)
    tables.append("events", events(spark, "4"))
    assert engines_of(tables, "events")[2] == "deltalake"
    assert found("events", pc.field("record_id").isin(["2", "4", "5"])) == [
        {"record_id": n, "cluster": "c"} for n in "24"
    ]
    # a table that is partitioned
    names = "'c' AS cluster, 1 AS incarnation, 't' AS topic, 0 AS partition, false AS inferred"
    rows = " UNION ALL ".join(f"SELECT {names}, {step} AS step, {step < 3} AS settled" for step in (1, 2, 3))
    tables.replace_where("partition_timeline", ["c"], UNSETTLED, spark.sql(rows))
    gone = pa.table({"cluster": ["c"], "step": pa.array([1], pa.int32())})
    assert tables._delta_rs.delete_matching("partition_timeline", gone, ["cluster", "step"])
    some = (pc.field("topic") == "t") & pc.field("settled")
    assert found("partition_timeline", some) == [{"step": 2, "cluster": "c"}]
    assert len(found("partition_timeline", pc.field("topic") == "t")) == 2


@pytest.mark.spark
def test_one_commit_appends_what_is_settled_and_replaces_the_rest(spark, empty_tables):
    tables = empty_tables("cluster_facts", "partition_timeline")

    def rows(*some: tuple[int, bool]) -> DataFrame:
        names = "'c' AS cluster, 1 AS incarnation, 't' AS topic, 0 AS partition, false AS inferred"
        return spark.sql(
            " UNION ALL ".join(
                f"SELECT {names}, {step} AS step, {settled} AS settled" for step, settled in some
            )
        )

    def held() -> list[tuple[int, bool]]:
        return sorted((row["step"], row["settled"]) for row in stand(tables, "partition_timeline"))

    tables.replace_where("partition_timeline", ["c"], UNSETTLED, rows((1, True), (2, False)))
    then = tables.version("partition_timeline")
    tables.replace_where("partition_timeline", ["c"], UNSETTLED, rows((2, True), (3, False)))
    assert held() == [(1, True), (2, True), (3, False)]
    assert tables.version("partition_timeline") == then + 1
    # nothing that is settled was written again
    assert settled_of_removed(tables, "partition_timeline", then) == {"false"}
    keys = pa.table({"cluster": ["c"], "topic": ["t"], "partition": pa.array([0], pa.int32())})
    tables.delete_matching("partition_timeline", is_true("settled"), keys)
    assert held() == [(3, False)]


@pytest.mark.spark
def test_few_rows_are_read_once_and_written_where_they_differ(spark, empty_tables):
    tables = empty_tables("cluster_facts", "partition_timeline")

    def rows(*some: tuple[str, int, bool]) -> DataFrame:
        names = "1 AS incarnation, 't' AS topic, 0 AS partition, false AS inferred"
        return spark.sql(
            " UNION ALL ".join(
                f"SELECT '{c}' AS cluster, {names}, {step} AS step, {s} AS settled" for c, step, s in some
            )
        )

    def steps(store: Store, *clusters: str) -> list[tuple[str, int]]:
        return sorted(
            (row["cluster"], row["step"]) for row in to_dicts(store.read("partition_timeline", clusters))
        )

    def written(store: Store) -> int:
        version = store.version("partition_timeline")
        # what is held is what another one reads
        assert steps(store, "c", "d") == sorted(
            (row["cluster"], row["step"]) for row in stand(store, "partition_timeline")
        )
        return version

    tables.replace("partition_timeline", ["c", "d"], rows(("c", 1, True), ("c", 2, False), ("d", 1, False)))
    then = written(tables)
    for store in (tables, Store(spark, tables.root)):
        assert steps(store, "d") == [("d", 1)]
        store.replace("partition_timeline", ["c"], rows(("c", 2, False), ("c", 1, True)))
        store.replace_where("partition_timeline", ["c"], UNSETTLED, rows(("c", 2, False)))
        assert written(store) == then
    # twice the same is not once
    tables.replace_where("partition_timeline", ["c", "d"], UNSETTLED, rows(("d", 1, False), ("d", 1, False)))
    assert written(tables) == then + 1
    assert steps(tables, "c", "d") == [("c", 1), ("d", 1), ("d", 1)]
    # of another cluster nothing goes
    tables.replace_where("partition_timeline", ["c"], UNSETTLED, rows(("c", 5, False)))
    tables.append("partition_timeline", rows(("c", 6, True)))
    tables.delete_matching("partition_timeline", ~above("step", 1), pa.table({"cluster": ["c"]}))
    assert written(tables) == then + 4
    assert steps(tables, "c", "d") == [("c", 5), ("c", 6), ("d", 1), ("d", 1)]
    tables.replace("partition_timeline", ["d"], rows(("d", 1, False)).limit(0))
    assert written(tables) == then + 5


@pytest.mark.spark
def test_rows_that_are_read_while_others_go_are_those_that_stand(spark, tables):
    rows = spark.sql(
        "SELECT 'c' AS cluster, explode(sequence(1, 20)) AS incarnation, 't' AS topic, 0 AS partition, 1 AS step, false AS inferred, true AS settled"
    )
    tables.replace("partition_timeline", ["c"], rows)
    store = Store(spark, tables.root)
    for gone in range(1, 7):
        deleted = partial(
            store.delete_matching,
            "partition_timeline",
            ~above("incarnation", gone),
            pa.table({"topic": ["t"]}),
        )
        run_concurrently(deleted, *(partial(store.rows_of, "partition_timeline", [one]) for one in "cd"))
        left = [row["incarnation"] for row in to_dicts(store.read("partition_timeline", ["c"]))]
        assert sorted(left) == list(range(gone + 1, 21))


@pytest.mark.spark
def test_tables_lie_in_any_folder(spark, tmp_path, monkeypatch):
    odd = tmp_path.joinpath(
        "with space", "a%20b", "tab\t", "it's", "a[1]", "{a,b}", "100%", "back`tick", "a*", "ü\u2028"
    )
    with these_tables(monkeypatch, "passed_over"):
        for number in (1, 2):
            store = Store(spark, odd)
            store.open()
            store.append("passed_over", spark.sql(f"SELECT {COUNTED}, {number}L AS record"))
            assert store.table("passed_over").count() == store.rows_of("passed_over", ["c"]).count() == number
        store.register()
    assert spark.sql("SELECT * FROM passed_over").count() == 2


@pytest.mark.spark
def test_tables_lie_at_any_uri(spark, tmp_path):
    store = Store(spark, f"file:{tmp_path}/lake/")
    store.open()
    store.append("passed_over", spark.sql(f"SELECT {COUNTED}, 1L AS record"))
    assert Store(spark, tmp_path / "lake").table("passed_over").count() == 1
    # any engine can read them, and no name of a cluster is a part of a path
    for definition in schemas.statements("tables"):
        found = DeltaTable(str(tmp_path / "lake" / definition.name))
        assert found.protocol().min_reader_version == 1, definition.name
        partitioned, properties = bool(found.metadata().partition_columns), found.metadata().configuration
        assert partitioned == (properties.get("delta.randomizeFilePrefixes") == "true"), definition.name


@pytest.mark.spark
def test_a_table_is_the_same_whoever_creates_it(spark, tmp_path, monkeypatch):
    to_dicts, elsewhere = Store(spark, tmp_path / "here"), tmp_path / "elsewhere"
    to_dicts.open()
    monkeypatch.setattr("jobs.engine.store.local_folder", lambda _: None)
    spark_alone = Store(spark, elsewhere)
    spark_alone.open()
    for definition in schemas.statements("tables"):
        told = []
        for store in (to_dicts, spark_alone):
            commits = sorted(Path(store.path(definition.name), "_delta_log").glob("*.json"))
            actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
            made = {key: value for action in actions for key, value in action.items()}
            # delta-rs reads the version from the properties; Spark raises it by itself
            properties = {
                key: value
                for key, value in made["metaData"]["configuration"].items()
                if key != "delta.minWriterVersion"
            }
            columns = json.loads(made["metaData"]["schemaString"])
            about = [made["metaData"][name] for name in ("description", "partitionColumns")]
            told.append((columns, properties, about, made["protocol"]["minReaderVersion"]))
        assert told[0] == told[1], definition.name
    reopened = Store(spark, elsewhere)
    before = {one.name: spark_alone.version(one.name) for one in schemas.statements("tables")}
    reopened.open()
    assert {name: reopened.version(name) for name in before} == before
    kinds = to_arrow_schema(to_dicts.table("events").schema)
    assert [(one.name, one.type) for one in to_dicts.schema("events")] == [
        (one.name, one.type) for one in kinds
    ]


def interval(cluster: str, step: int, settled: bool) -> dict[str, Any]:
    """A row of `partition_timeline`."""
    names = {"cluster": cluster, "incarnation": 1, "topic": "t", "partition": 0}
    return {**names, "step": step, "inferred": False, "settled": settled}


@pytest.mark.spark
def test_a_small_table_is_written_in_the_place_of_what_a_condition_holds_for(spark, empty_tables):
    tables = empty_tables("cluster_facts", "partition_timeline")

    def put(
        clusters: list[str], condition: Where, *rows: tuple[str, int, bool]
    ) -> list[tuple[str, int, bool]]:
        schema = pa.schema([(name, pa.string()) for name in ("cluster", "topic")])
        for name in ("incarnation", "partition", "step"):
            schema = schema.append(pa.field(name, pa.int32()))
        for name in ("inferred", "settled"):
            schema = schema.append(pa.field(name, pa.bool_()))
        tables.replace_where(
            "partition_timeline",
            clusters,
            condition,
            pa.Table.from_pylist([interval(*row) for row in rows], schema),
        )
        told = stand(tables, "partition_timeline")
        assert steps(told) == steps(to_dicts(tables.read("partition_timeline", ["a/../b", "ü" * 99])))
        return steps(told)

    def steps(rows: list[dict[str, Any]]) -> list[tuple[str, int, bool]]:
        return sorted((row["cluster"], row["step"], row["settled"]) for row in rows)

    one, other = "a/../b", "ü" * 99
    first = [(one, 1, True), (one, 2, False), (other, 1, True), (other, 2, False)]
    assert put([one, other], EVERY, *first) == first
    assert put([one], UNSETTLED, (one, 3, True), (one, 4, False)) == [
        (one, 1, True), (one, 3, True), (one, 4, False), (other, 1, True), (other, 2, False)
    ]  # fmt: skip
    assert put([one, other], UNSETTLED | of_clusters([one]), (one, 5, False)) == [
        (one, 5, False),
        (other, 1, True),
    ]
    assert put([other], is_null("step"), (other, 2, True)) == [
        (one, 5, False),
        (other, 1, True),
        (other, 2, True),
    ]
    assert put([one], EVERY) == [(other, 1, True), (other, 2, True)]
    # no name of a cluster is a part of a path
    names = [
        str(path.relative_to(tables.path("partition_timeline")))
        for path in Path(tables.path("partition_timeline")).rglob("*")
    ]
    assert not [name for name in names if "cluster" in name or "ü" in name or ".." in name]


@pytest.mark.spark
@pytest.mark.parametrize("most_rows", [IN_PROCESS_ROWS, 3])
def test_rows_of_some_partitions_are_replaced_and_no_others(spark, empty_tables, monkeypatch, most_rows):
    monkeypatch.setenv(IN_PROCESS, str(most_rows))
    # it does not know yet what is there
    tables = Store(spark, empty_tables("cluster_facts", "partition_timeline", "partition_states").root)
    # no name of a cluster is a part of a path or of a query
    names = {"c": "a/../'%b", "d": "ü" * 99}
    columns = "cluster STRING, incarnation INT, topic STRING, partition INT, step INT, inferred BOOLEAN, settled BOOLEAN"

    def given(rows: list[dict[str, Any]], columns: str) -> Frame:
        """As a run has them: few rows are in its process."""
        some = pa.Table.from_pylist(rows, schema_of(columns))
        return framed(spark, some) if most_rows == 3 else some

    def intervals(*some: str) -> Frame:
        """cluster, topic, partition and step of rows, settled but for those with a mark"""
        told = []
        for one in some:
            cluster, topic, partition, step = one.rstrip("*").split()
            key = {"cluster": names[cluster], "incarnation": 1, "topic": topic, "partition": int(partition)}
            told.append({**key, "step": int(step), "inferred": False, "settled": not one.endswith("*")})
        return given(told, columns)

    def keys(*some: str) -> Frame:
        told = (dict(zip(PARTITION_KEY, one.split(), strict=True)) for one in some)
        rows = [{**key, "cluster": names[key["cluster"]], "partition": int(key["partition"])} for key in told]
        return given(rows, "cluster STRING, topic STRING, partition INT")

    def told() -> list[str]:
        rows = short(stand(tables, "partition_timeline"))
        assert short(to_dicts(tables.read("partition_timeline", names.values()))) == rows
        return rows

    def short(rows: list[dict[str, Any]]) -> list[str]:
        letters = {name: letter for letter, name in names.items()}
        return sorted(
            f"{letters[row['cluster']]} {row['topic']} {row['partition']} {row['step']}{'' if row['settled'] else '*'}"
            for row in rows
        )

    tables.append(
        "partition_timeline",
        intervals("c t 0 1", "c t 0 2*", "c t 1 1", "c t 1 2*", "c u 1 1*", "d t 0 1", "d t 0 2*"),
    )
    then = tables.version("partition_timeline")

    def replace(clusters: list[str], anew: list[str], partitions: Frame, rows: Frame) -> None:
        some = ([names[letter] for letter in one] for one in (clusters, anew))
        tables.replace_partitions("partition_timeline", *some, partitions, rows)

    replace(["c"], [], keys("c t 0", "c v 0"), intervals("c t 0 2", "c t 0 3*", "c v 0 1*"))
    assert told() == [
        "c t 0 1",
        "c t 0 2",
        "c t 0 3*",
        "c t 1 1",
        "c t 1 2*",
        "c u 1 1*",
        "c v 0 1*",
        "d t 0 1",
        "d t 0 2*",
    ]
    assert tables.version("partition_timeline") == then + 1
    # nothing that is settled was written again
    assert settled_of_removed(tables, "partition_timeline", then) == {"false"}
    assert engines_of(tables, "partition_timeline")[-1] == (
        "Spark" if tables._delta_rs is None else "deltalake"
    )
    # rows may go, and no other cluster's do
    replace(["c"], [], keys("c v 0", "d t 0"), intervals())
    assert told() == [
        "c t 0 1",
        "c t 0 2",
        "c t 0 3*",
        "c t 1 1",
        "c t 1 2*",
        "c u 1 1*",
        "d t 0 1",
        "d t 0 2*",
    ]
    replace(["c", "d"], [], keys("c u 1", "d t 0"), intervals("c u 1 1", "d t 0 2*"))
    assert told() == [
        "c t 0 1",
        "c t 0 2",
        "c t 0 3*",
        "c t 1 1",
        "c t 1 2*",
        "c u 1 1",
        "d t 0 1",
        "d t 0 2*",
    ]
    # of a cluster that is told anew nothing stays
    replace(["c"], ["d"], keys("c t 1"), intervals("c t 1 2", "d w 0 1*"))
    assert told() == ["c t 0 1", "c t 0 2", "c t 0 3*", "c t 1 1", "c t 1 2", "c u 1 1", "d w 0 1*"]
    replace([], ["d"], keys(), intervals("d x 0 1"))
    assert told() == ["c t 0 1", "c t 0 2", "c t 0 3*", "c t 1 1", "c t 1 2", "c u 1 1", "d x 0 1"]

    # where nothing is settled all rows of a partition go
    def states(*some: tuple[str, int, str]) -> DataFrame:
        values = ", ".join(f"('c', 1, '{t}', {p}, '{state}', array(1), '1', 1L)" for t, p, state in some)
        columns = "cluster, incarnation, topic, partition, state, brokers, code_version, events_version"
        return spark.sql(f"SELECT * FROM VALUES {values} AS t({columns})")

    tables.append("partition_states", states(("t", 0, "a"), ("t", 1, "b"), ("u", 0, "c")))
    own = given(
        [{"cluster": "c", "topic": "t", "partition": 1}], "cluster STRING, topic STRING, partition INT"
    )
    tables.replace_partitions("partition_states", ["c"], [], own, states(("t", 1, "d")))
    left = stand(tables, "partition_states")
    assert sorted((row["topic"], row["partition"], row["state"]) for row in left) == [
        ("t", 0, "a"),
        ("t", 1, "d"),
        ("u", 0, "c"),
    ]
    found = tables.rows_that_have(
        "partition_states", ["c"], "brokers", ["topic", "partition", "brokers"]
    ).to_pylist()
    assert sorted((row["topic"], row["partition"], row["brokers"]) for row in found) == [
        ("t", 0, [1]),
        ("t", 1, [1]),
        ("u", 0, [1]),
    ]
    assert tables.rows_that_have("partition_states", ["c"], "breaks", ["topic"]).num_rows == 0


@pytest.mark.spark
@pytest.mark.parametrize(
    ("empty_tables", "most_rows"),
    [("in a folder", IN_PROCESS_ROWS), ("in a folder", 2), ("elsewhere", 2)],
    indirect=["empty_tables"],
)
def test_of_many_rows_those_that_are_asked_for_are_read(spark, empty_tables, monkeypatch, most_rows):
    monkeypatch.setenv(IN_PROCESS, str(most_rows))
    told = [
        f"SELECT '{cluster}' AS cluster, '{n}' AS record_id, {EVENT}" for cluster in "cd" for n in (1, 2, 3)
    ]
    written = empty_tables("events")
    written.append("events", spark.sql(" UNION ALL ".join(told)))
    tables = Store(spark, written.root)

    def about(*values: str) -> list[str]:
        found = tables.rows_about("events", ["c"], "record_id", pa.table({"record_id": list(values)}))
        assert in_spark(spark, found).columns == tables.rows_of("events", ["c"]).columns
        assert {row["cluster"] for row in to_dicts(found)} <= {"c"}
        return ids(found)

    # of few all are read, and where more than some are wanted
    is_many = tables._delta_rs is not None and most_rows == 2
    assert about("2", "5") == (["2"] if is_many else ["1", "2", "3"])
    assert about("1", "2") == (["1", "2"] if is_many else ["1", "2", "3"])
    assert about("1", "2", "3") == ["1", "2", "3"]
    assert about("5") == ([] if is_many else ["1", "2", "3"])
    assert ids(tables.read("events", "cd", one_of("record_id", ("2", "5")))) == ["2", "2"]
    assert ids(tables.read("events", [])) == ids(tables.read("events", ["e"])) == []


@pytest.mark.spark
def test_what_proves_something_is_found_however_old_it_is(spark, empty_tables, monkeypatch):
    tables = empty_tables("events")
    at = {
        "1": "TIMESTAMP '2025-01-01 12:00:00'",
        "2": "TIMESTAMP '2026-03-01 12:00:00'",
        "3": "CAST(NULL AS TIMESTAMP)",
    }
    told = [f"SELECT 'c' AS cluster, '{n}' AS record_id, {ts} AS ts, {EVENT}" for n, ts in at.items()]
    tables.append("events", spark.sql(" UNION ALL ".join(told)))
    spans, rows_with = [], Store.rows_with

    def watched(store: Store, *given: Any, **named: Any) -> pa.Table:
        spans.append(named["span"])
        return rows_with(store, *given, **named)

    monkeypatch.setattr(Store, "rows_with", watched)

    def found(ids: str, *begun: datetime | None) -> tuple[list[str], int]:
        spans.clear()
        rows = tables.records(["c"], list(ids), ["record_id", "item"], begun)
        return sorted(rows["record_id"].to_pylist()), len(spans)

    noon = datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert found("23", noon, None) == (["2", "3"], 1)
    assert found("1234", noon.replace(tzinfo=None)) == (["1", "2", "3"], 2)
    assert found("12", None) == found("12") == (["1", "2"], 1)
    assert found("") == ([], 1)


@pytest.mark.spark
@pytest.mark.parametrize("empty_tables", ["in a folder"], indirect=True)
def test_events_that_are_asked_for_are_read_here_though_all_of_them_are_not(spark, empty_tables, monkeypatch):
    tables = empty_tables("events")
    selects = [f"SELECT 'c' AS cluster, '{n}' AS record_id, {EVENT}" for n in (1, 2, 3)]
    tables.append("events", spark.sql(" UNION ALL ".join(selects)))
    monkeypatch.setenv(IN_PROCESS, "2")

    def read(condition: Where, **limits: int) -> Frame:
        store = Store(spark, tables.root)
        for name, value in limits.items():
            setattr(store._delta_rs, name, value)
        return store.read("events", ["c"], condition, ["cluster", "record_id"])

    two, none = one_of("record_id", ("1", "2")), one_of("record_id", ("5",))
    for condition, ids_read in ((two, ["1", "2"]), (none, [])):
        assert isinstance(read(condition), Relation)
        assert ids(read(condition)) == ids_read
    # as many, but too long
    assert not isinstance(read(two, most_bytes=1), Relation)
    assert ids(read(two, most_bytes=1)) == ["1", "2"]


@pytest.mark.spark
@pytest.mark.parametrize("empty_tables", ["in a folder"], indirect=True)
def test_unknown_text_is_counted_the_same_however_much_there_is(spark, empty_tables, monkeypatch):
    tables = empty_tables("events")
    texts = ["Broker 1 is odd", "Broker 22 is odd", "another line"]
    selects = [
        f"SELECT '{cluster}' AS cluster, '{n}' AS record_id, {EVENT.replace('AS raw', 'AS y')}, TIMESTAMP '2026-03-01 12:0{n}:00' AS ts, '{text}' AS raw"
        for cluster in "cd" for n, text in enumerate(texts)
    ]  # fmt: skip
    tables.append("events", spark.sql(" UNION ALL ".join(selects)).drop("y"))
    with contextlib.closing(LocalStore(tables.root)) as local:
        found = local.unknown_statements("c", 5)
    assert [(row["masked"], row["records"], row["record_id"]) for row in found] == [
        ("Broker N is odd", 2, "0"),
        ("another line", 1, "2"),
    ]
    assert found[0]["last_seen"] == datetime(2026, 3, 1, 12, 1)
    for most_rows in ("1000", "1"):
        monkeypatch.setenv(IN_PROCESS, most_rows)
        assert Store(spark, tables.root).unknown_statements("c", 5) == found
        assert Store(spark, tables.root).unknown_statements("c", 1) == found[:1]


@pytest.mark.spark
def test_whether_a_table_is_there_is_known_without_spark(spark, tmp_path):
    (tmp_path / "findings" / "_delta_log").mkdir(parents=True)
    (tmp_path / "events").mkdir()
    tables = Store(spark, tmp_path)
    asked: list[str] = []

    class Watched:
        def sql(self, text: str) -> Any:
            asked.append(text)
            return spark.sql(text)

    tables.spark = Watched()
    assert not tables.exists("events")
    assert not tables.exists("passed_over")
    assert asked == []
    # delta-rs cannot read this log, so Spark is asked
    assert not tables.exists("findings")
    assert len(asked) == 1


@pytest.mark.spark
def test_few_of_many_rows_are_read_here(spark, tables, monkeypatch):
    rows = spark.createDataFrame(
        [interval(cluster, 1, True) for cluster in "cde"],
        from_arrow_schema(tables.schema("partition_timeline")),
    )
    tables.append("partition_timeline", rows)
    columns = ["cluster", "topic", "step"]

    def read(condition: Where, most: int = 2) -> Frame:
        monkeypatch.setenv(IN_PROCESS, str(most))
        return Store(spark, tables.root).read("partition_timeline", ["c", "d"], condition, columns)

    for condition, told in ((one_of("topic", ["t"]), ["c", "d"]), (is_null("step"), [])):
        rows = read(condition)
        assert isinstance(rows, Relation)
        assert sorted(row["cluster"] for row in to_dicts(rows)) == told
    assert not isinstance(read(one_of("topic", ["t"]), most=1), Relation)
    assert sorted(row["cluster"] for row in to_dicts(read(EVERY))) == ["c", "d"]


@pytest.mark.spark
def test_rows_that_have_grown_many_are_left_to_spark(spark, tmp_path, monkeypatch):
    monkeypatch.setenv(IN_PROCESS, "3")
    tables = Store(spark, tmp_path / "tables")
    tables.open()

    def steps() -> list[int]:
        found = sorted(row["step"] for row in to_dicts(tables.read("partition_timeline", ["c"])))
        assert found == sorted(row["step"] for row in stand(tables, "partition_timeline"))
        return found

    def rows(*some: int) -> DataFrame:
        numbers = ", ".join(f"{name} BIGINT" for name in ("incarnation", "partition", "step"))
        columns = f"cluster STRING, topic STRING, {numbers}, inferred BOOLEAN, settled BOOLEAN"
        intervals = [interval("c", step, step < 3) for step in some]
        return framed(spark, pa.Table.from_pylist(intervals, schema_of(columns)))

    for given, settled in (((1, 2, 3), (1, 2)), ((3, 4, 5, 6), (1, 2)), ((7,), (1, 2)), ((), (1, 2))):
        tables.replace_where(
            "partition_timeline", ["c"], UNSETTLED, rows(*given) if given else rows(1).limit(0)
        )
        assert steps() == sorted({*settled, *given})


@pytest.mark.parametrize(
    ("given", "rows"),
    [(None, IN_PROCESS_ROWS), ("0", 0), ("12", 12), ("many", None), ("-1", None), ("", None)],
)
def test_the_environment_limits_the_rows_in_process(given, rows, monkeypatch):
    monkeypatch.delenv(IN_PROCESS, raising=False) if given is None else monkeypatch.setenv(IN_PROCESS, given)
    if rows is None:
        with pytest.raises(UsageError, match=f"{IN_PROCESS}='{given}' is no number of rows"):
            in_process_rows()
    else:
        assert in_process_rows() == rows


@pytest.mark.spark
def test_what_deltalake_cannot_do_is_left_to_spark(spark, tmp_path, monkeypatch):
    tables = Store(spark, tmp_path / "tables")
    tables.open()
    rows = pa.Table.from_pylist(
        [
            {
                "cluster": "c",
                "facts": "{}",
                "code_version": "1",
                "events_version": 1,
                "passed_over_version": 1,
                "asked": "",
                "configured": "",
            }
        ]
    )

    engines = partial(engines_of, tables, "cluster_facts")
    tables.replace("cluster_facts", ["c"], rows)
    assert engines() == ["deltalake", "deltalake"]
    # a column that must not be null is refused by both
    with pytest.raises(Exception, match=r"(?i)null"):
        tables.replace("cluster_facts", ["c"], rows.drop_columns(["asked"]))
    nowhere = pa.Table.from_pylist([interval("c", 1, True) | {"settled": None}])
    with pytest.raises(Exception, match=r"(?i)null"):
        tables.replace("partition_timeline", ["c"], nowhere)
    # a file system on which deltalake cannot commit
    with monkeypatch.context() as patched:

        def refused(*_: Any, **__: Any) -> None:
            raise OSError("no hard links to_dicts")

        patched.setattr("jobs.engine.delta_rs.DeltaTable.create_write_transaction", refused)
        tables.replace("cluster_facts", ["c", "d"], rows.set_column(0, "cluster", pa.array(["d"])))
    assert engines()[2:] == ["Spark"]

    # a panic of Rust
    class PanicException(BaseException):
        pass

    with monkeypatch.context() as patched:

        def panics(*_: Any, **__: Any) -> None:
            raise PanicException("Invalid object store url")

        patched.setattr("jobs.engine.delta_rs.DeltaTable", panics)
        assert sorted(
            row.cluster for row in Store(spark, tables.root).rows_of("cluster_facts", ["c", "d"]).collect()
        ) == ["d"]
    # what deltalake does after a commit fails
    with monkeypatch.context() as patched:
        commit = DeltaTable.create_write_transaction

        def failed(*given: Any, **named: Any) -> None:
            commit(*given, **named)
            raise OSError("no checkpoint")

        patched.setattr("jobs.engine.delta_rs.DeltaTable.create_write_transaction", failed)
        tables.append("cluster_facts", rows.set_column(0, "cluster", pa.array(["e"])))
    assert [row.cluster for row in tables.table("cluster_facts").collect()].count("e") == 1
    tables.replace("cluster_facts", ["e"], rows.slice(0, 0))
    assert engines()[3:] == ["deltalake", "deltalake"]
    # deletion vectors, which not every reader knows
    spark.sql(
        f"ALTER TABLE delta.`{tables.path('cluster_facts')}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    store = Store(spark, tables.root)
    store.append("cluster_facts", rows)
    assert sorted(row.cluster for row in store.rows_of("cluster_facts", ["c", "d"]).collect()) == ["c", "d"]
    store.replace("cluster_facts", ["c"], rows.set_column(1, "facts", pa.array(["[]"])))
    assert sorted(row.facts for row in store.table("cluster_facts").collect()) == ["[]", "{}"]
    assert set(engines()[5:]) == {"Spark"}


@pytest.mark.spark
def test_a_table_that_compacts_itself_stays_of_few_files(spark, tmp_path):
    tables = Store(spark, tmp_path / "tables")
    tables.open()
    names = {"cluster": "c", "sink": "pager", "state": "firing", "occurrence": 1, "attempts": 1}
    tried_at = datetime(2026, 3, 1, 4, tzinfo=UTC)
    for number in range(60):
        tables.append(
            "alerts", pa.Table.from_pylist([{**names, "fingerprint": str(number), "tried_at": tried_at}])
        )
    table = spark.read.format("delta").load(tables.path("alerts"))
    assert {row.fingerprint for row in table.collect()} == {str(number) for number in range(60)}
    assert table.count() == 60
    assert len(table.inputFiles()) < 50


def test_where_the_tables_are():
    assert root_of("s3a://bucket/audit/") == root_of("s3://bucket/audit") == "s3a://bucket/audit"
    assert root_of("tables") == str(Path("tables").resolve())
    assert local_folder("hdfs://host/audit") is None
    assert local_folder("file:///a%20b") == Path("/a b")
    assert delta_rs_uri("s3a://bucket/audit") == "s3://bucket/audit"
    assert (
        delta_rs_uri("abfss://container@account.dfs.core.windows.net/audit")
        == "abfss://container@account.dfs.core.windows.net/audit"
    )
    assert delta_rs_uri("hdfs://host/audit") is None
    assert delta_rs_uri("/data/a%b") is None
    assert delta_rs_uri("file:///data/audit") == "/data/audit"


@pytest.mark.spark
def test_columns_that_are_not_given_are_null(spark, tables):
    given = {"first": "", "second": ", 'orders' AS topic", "third": ", array(1, 2) AS isr, 'orders' AS topic"}
    for record_id, more in given.items():
        tables.append(
            "events", spark.sql(f"SELECT 'c' AS cluster, '{record_id}' AS record_id, {EVENT}{more}")
        )
    rows = tables.rows_of("events", ["c"])
    assert set(schemas.vocabulary()) <= set(rows.columns)
    told = {row.record_id: (row.topic, row.isr, row.leader) for row in rows.collect()}
    assert told == {
        "first": (None, None, None),
        "second": ("orders", None, None),
        "third": ("orders", [1, 2], None),
    }


@pytest.mark.spark
def test_derived_tables_of_another_version_are_made_anew(spark, tables):
    facts = "SELECT 'c' AS cluster, '{}' AS facts, '1' AS code_version, 1L AS events_version, 1L AS passed_over_version, '' AS asked, '' AS configured"

    def opened() -> Store:
        tables.append("cluster_facts", spark.sql(facts))
        store = Store(spark, tables.root)
        store.open()
        return store

    assert opened().table("cluster_facts").count() == 1
    # of an earlier version
    shutil.rmtree(tables.path("reassignments"))
    spark.sql("SELECT 'c' AS cluster, 'running' AS outcome").write.format("delta").save(
        tables.path("reassignments")
    )
    store = opened()
    assert store.table("reassignments").columns == list(schemas.columns("reassignments"))
    assert store.table("reassignments").isEmpty()
    assert store.table("cluster_facts").isEmpty()
    # removed by hand
    shutil.rmtree(tables.path("partition_states"))
    assert opened().table("cluster_facts").isEmpty()
    # nothing is made of what the logs were read to
    shutil.rmtree(tables.path("passed_over"))
    spark.sql("SELECT 1 AS cluster").write.format("delta").save(tables.path("passed_over"))
    with pytest.raises(UsageError, match=r"passed_over .* has cluster int instead of STRING"):
        opened()


@pytest.mark.spark
def test_events_that_cannot_be_converted_are_not_added_to(spark, tables):
    shutil.rmtree(tables.path("events"))
    spark.sql(f"SELECT 'c' AS cluster, 'a' AS record_id, {EVENT}").write.format("delta").save(
        tables.path("events")
    )
    with pytest.raises(
        UsageError, match=r"Table events under .* has no .*event_type.*, and cannot be converted"
    ):
        Store(spark, tables.root).open()
    assert spark.read.format("delta").load(tables.path("events")).count() == 1


@pytest.mark.spark
@pytest.mark.parametrize("rows", [10, ROWS_IN_PLAN + 1])
def test_rows_are_computed_once_also_where_a_lambda_makes_them(spark, capsys, rows):
    made = spark.range(rows).selectExpr("id", "transform(array(id), x -> x + 1) AS more")
    in_spark(spark, computed(made)).createOrReplaceTempView("once")
    assert spark.sql("SELECT sum(more[0]) FROM once").first()[0] == rows * (rows + 1) // 2
    spark.sql("SELECT * FROM once").explain("extended")
    assert "transform" not in capsys.readouterr().out
