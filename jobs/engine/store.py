"""The Delta tables: created from `schemas/tables`, compared with it, written and read."""

from __future__ import annotations

import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from jobs.engine import upgrade
from jobs.engine.conflicts import LANDING, Conflict, refused
from jobs.engine.delta_rs import MOST_SCANNED, DeltaRsTables, Filters, aligned, files_of, vocabulary_ddl
from jobs.engine.frames import by_workers, framed, of_rows, small_table
from jobs.engine.later import errors, gateway
from jobs.engine.later import functions as F
from jobs.engine.rows import (
    EVERY,
    Frame,
    Where,
    among,
    any_of,
    distinct,
    in_clusters,
    in_memory_if_few,
    in_spark,
    is_known,
    lacking,
    met,
    of_clusters,
    one_of,
    quoted,
    select,
    table_if_few,
    to_dicts,
    to_table,
    together,
    where,
)  # fmt: skip
from jobs.engine.run_tables import (
    EVENT,
    KEYS,
    LANDED,
    OF_LOGS,
    PARTITION_KEY,
    UNSETTLED,
    VERSION,
    Changes,
    RunTables,
    changes_of,
    words,
)
from jobs.engine.types import table_schema
from jobs.landing import rereading
from jobs.location import local_folder
from jobs.nightly import folding
from jobs.timelines import EVENT_COLUMNS, ClusterFacts, Summary
from parsers.events import EVENTS
from parsers.rules import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# at most this many rows of a table are all read into this process
MOST_HERE = 50_000
# at most this many rows are compared with the stored ones before they are written
MOST_COMPARED = 10_000
# at most this many rows are read from a large table, or written into it, without Spark
MOST_WITHOUT_SPARK = 100_000
# at most this many rows of a large table are read and folded in this process, which is faster than Spark's workers
MOST_READ = 250_000
# at most this many values are searched for
MOST_LOOKED_FOR = 10_000
# newest commits among which a run looks for its own
NEWEST_COMMITS = 20
# Delta's error of a place that holds no table
NO_TABLE = "DELTA_MISSING_DELTA_TABLE"
# operations that add rows, as Delta's history has them
ADDING = ("WRITE", "MERGE")


def _with_properties(sql: str, properties: Mapping[str, str]) -> str:
    """Return a CREATE TABLE with these TBLPROPERTIES instead of its own."""
    lines = [line for line in sql.splitlines() if not line.startswith("TBLPROPERTIES ")]
    return "\n".join([*lines, f"TBLPROPERTIES ({upgrade.settings(properties)})"])


def _kinds(columns: Any) -> dict[str, str]:
    """columns: a StructType."""
    return {field.name: field.dataType.simpleString() for field in columns.fields}


def _by_name(table: str, rows: DataFrame) -> DataFrame:
    """Return the rows with the columns of a table; missing ones are null."""
    kinds, there = schemas.columns(table), set(rows.columns)
    return rows.select(*((F.col(name) if name in there else F.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()))


def _are_same(some: pa.Table, others: pa.Table) -> bool:
    """Return whether rows are the same, in any order. More than a limit are not compared and count as different."""
    if some.num_rows != others.num_rows or some.num_rows > MOST_COMPARED:
        return False
    return Counter(map(repr, some.to_pylist())) == Counter(map(repr, others.to_pylist()))


@dataclass(frozen=True)
class Held:
    """All rows of some clusters (None: of all). few: the rows themselves, if they are in memory; else how Spark reads them."""

    spark: Any
    clusters: frozenset[str] | None
    few: pa.Table | None
    read: Callable[[], DataFrame] | None = None
    # rows of some clusters: a plan that many queries use is built once
    parts: dict[frozenset[str], DataFrame] = field(default_factory=dict)

    @cached_property
    def rows(self) -> DataFrame:
        """The same, for Spark."""
        if self.few is not None:
            return in_spark(self.spark, self.few)
        assert self.read is not None
        return self.read()

    @property
    def is_small_table(self) -> bool:
        """Return whether they are all rows, and in memory."""
        return self.clusters is None and self.few is not None

    def has(self, clusters: frozenset[str]) -> bool:
        """Return whether the rows of these clusters are among them."""
        return self.clusters is None or clusters <= self.clusters

    def of(self, clusters: frozenset[str]) -> DataFrame:
        """The rows of some of them."""
        if self.clusters == clusters:
            return self.rows
        if self.few is None:
            return self.rows.filter(in_clusters(clusters))
        if clusters not in self.parts:
            found = where(self.few, of_clusters(clusters))
            is_all = found.num_rows == self.few.num_rows
            self.parts[clusters] = self.rows if is_all else in_spark(self.spark, found)
        return self.parts[clusters]


class Store(RunTables):
    """The tables under one root: a folder or any URI that Spark can write to."""

    def __init__(self, spark: Any, root: str | Path, guard: Callable[[], None] = lambda: None) -> None:
        """spark: a session; guard: as `RunTables` has it."""
        super().__init__(root, guard)
        self.spark = spark
        self._small = DeltaRsTables.of(local_folder(self.root), MOST_HERE)
        # table -> rows that this run has read or written, so that it does not read them again
        self._held: dict[str, Held] = {}
        # tables that are too large for this process: they are not tried again
        self._many: set[str] = set()
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def exists(self, table: str) -> bool:
        """Whether the table has been created."""
        if self._small is not None and self._small.version(table) is not None:
            return True
        try:
            self.spark.sql(f"DESCRIBE DETAIL {self._identifier(table)}").collect()
        except errors.AnalysisException as error:
            if error.getCondition() != NO_TABLE:
                raise
            return False
        return True

    def _convert(self, plan: upgrade.Plan, ruleset: RuleSet) -> None:
        definitions = {one.name: one for one in schemas.statements("tables")}
        for name in plan.emptied:
            self._empty(definitions[name])
        for name in plan.reread:
            self._reread(name, ruleset)
        for name, columns in plan.added.items():
            added = ", ".join(f"{column} {kind}" for column, kind in columns.items())
            self.spark.sql(f"ALTER TABLE {self._identifier(name)} ADD COLUMNS ({added})")

    def _examined_versions(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the newest value of some columns of `cluster_facts`."""
        (row,) = self.table(upgrade.FACTS).agg(*(F.max(name).alias(name) for name in names)).collect()
        return row.asDict()

    def _count_doubled(self, table: str) -> int:
        keys = list(KEYS[table])
        small = None if self._small is None else self._small.rows(table)
        if small is not None and small.rows is not None:
            return small.rows.num_rows - small.rows.select(keys).group_by(keys).aggregate([]).num_rows
        counted = self.table(table).groupBy(*keys).count().filter("count > 1")
        return counted.agg(F.sum(F.col("count") - 1).alias("rows")).collect()[0].rows or 0

    def _leave_one(self, table: str) -> None:
        rows = self.table(table).dropDuplicates(list(KEYS[table]))
        with refused(table):
            rows.write.format("delta").mode("overwrite").save(self.path(table))

    def versions(self) -> dict[str, int]:
        """Table -> number of its last commit, where that is known without Spark."""
        if self._small is None:
            return {}
        found = {one.name: self._small.version(one.name) for one in schemas.statements("tables")}
        return {name: version for name, version in found.items() if version is not None}

    def _present(self, name: str) -> upgrade.Present | None:
        """Return the definition of a stored table; None where there is none."""
        if self._small is not None and (known := self._small.present(name)) is not None:
            return known
        if not self.exists(name):
            return None
        told = self.spark.sql(f"SHOW TBLPROPERTIES {self._identifier(name)}").collect()
        return upgrade.Present(_kinds(self.table(name).schema), {row.key: row.value for row in told})

    def _set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        if self._small is None or not self._small.set_properties(name, properties):
            self.spark.sql(f"ALTER TABLE {self._identifier(name)} SET TBLPROPERTIES ({upgrade.settings(properties)})")

    def _reread(self, name: str, ruleset: RuleSet) -> None:
        """Read the records of a table again from their text, in one commit. Before that, findings get the new ids of their evidence."""
        rows = self.table(name)
        wanted = (*rereading.OF_RECORD, *rereading.OF_SOME_VERSIONS, rereading.ENDS_FILE)
        columns = [name for name in wanted if name in rows.columns]
        records = rows.filter(OF_LOGS.sql).filter("item = 0").select(*columns)
        place = ("cluster", "file")
        sorted_ = records.repartition(*place).sortWithinPartitions(*place, "record_no")
        made = by_workers(sorted_, partial(rereading.reread, ruleset=ruleset), rereading.REREAD).persist()
        try:
            self._rename_evidence(made.filter("item = 0").select("record_id", rereading.FORMER))
            new = made.drop(rereading.FORMER)
            others = rows.filter(f"NOT ({OF_LOGS.sql})")
            new = new.unionByName(others, allowMissingColumns=True) if not others.isEmpty() else new
            new.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.path(name))
        finally:
            made.unpersist()

    # -- rules that have changed

    def _loggers(self, table: str) -> list[str | None]:
        rows = self.table(table).select("logger").distinct().collect()
        return [row.logger for row in rows]

    def _count_where(self, table: str, condition: Where) -> int:
        return self.table(table).filter(condition.sql).count()

    def _changes(self, condition: Where, ruleset: RuleSet) -> Frame:
        """What rules change in rows of `events`, as `rereading.changes` returns it."""
        rows = self.table("events").filter(condition.sql).repartition("cluster", "file")
        rows = rows.select(*EVENTS.names).sortWithinPartitions(*rereading.IN_ORDER)
        return by_workers(rows, partial(rereading.changes, ruleset=ruleset), rereading.CHANGES).localCheckpoint()

    def _merge_changes(self, changes: Frame) -> None:
        """Writes rows with the columns of `rereading.CHANGES` in one commit."""
        gone = f"new_{rereading.CHANGE} = '{rereading.REMOVED}'"
        names, values = (", ".join(f"{prefix}{name}" for name in EVENTS.names) for prefix in ("", "new_"))
        clauses = (
            f"WHEN MATCHED AND {gone} THEN DELETE",
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{name} = new_{name}' for name in EVENTS.names)}",
            f"WHEN NOT MATCHED AND NOT ({gone}) THEN INSERT ({names}) VALUES ({values})",
        )
        self._merge("events", changes, EVENT, EVERY, *clauses)

    def _rename_evidence(self, ids: DataFrame) -> None:
        """Replace former record ids in the lists of findings. ids: record_id and the former one."""
        if not self.exists("findings"):
            return
        findings = self.table("findings")
        wanted = findings.select(F.explode("evidence").alias(rereading.FORMER)).distinct()
        names = {row[rereading.FORMER]: row.record_id for row in ids.join(F.broadcast(wanted), rereading.FORMER).collect()}
        held = findings.toArrow()
        place = held.column_names.index("evidence")
        renamed = rereading.renamed(held["evidence"], names)
        if renamed.equals(held["evidence"].combine_chunks()):
            return
        new = held.set_column(place, held.schema.field(place), renamed)
        framed(self.spark, new).write.format("delta").mode("overwrite").save(self.path("findings"))

    def _create(self, definition: schemas.Statement) -> None:
        if not self._is_created_small(definition.name):
            sql = definition.sql.replace("{table}", self._identifier(definition.name))
            sql = sql.replace("'{location}'", quoted(self.path(definition.name))).replace("{vocabulary}", vocabulary_ddl())
            self.spark.sql(_with_properties(sql, upgrade.properties(definition.name)))
        self._created.add(definition.name)

    def _is_created_small(self, name: str) -> bool:
        if self._small is None:
            return False
        return self._small.create_as_defined(name)

    def _empty(self, definition: schemas.Statement) -> None:
        """Empties a table and gives it the columns of this version. CREATE OR REPLACE does not, where the table is named by its path."""
        name = definition.name
        columns = ", ".join(f"{column} {kind}" for column, kind in schemas.columns(name).items())
        rows = of_rows(self.spark, [], columns).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if by := schemas.partition_columns(name):
            rows = rows.partitionBy(*by)
        rows.save(self.path(name))
        self._created.add(name)

    def _identifier(self, table: str) -> str:
        """Return the name in SQL of a table that need not be in the catalog."""
        return f"delta.`{self.path(table).replace('`', '``')}`"

    def register(self, names: Collection[str] | None = None) -> None:
        """Register the tables, as they are now, and their views by name. names: those that are needed; None: all."""
        views = [view for view in schemas.statements("views") if names is None or view.name in names]
        # registering a table takes longer than most queries over it
        wanted = None if names is None else set(names).union(*(words(view.sql) for view in views))
        tables = [definition.name for definition in schemas.statements("tables")]
        for name in tables:
            if (wanted is not None and name not in wanted) or not self.exists(name):
                continue
            # from another folder, in the same session
            self.spark.catalog.dropTempView(name)
            found = None if self._small is None else self._small.rows(name)
            if found is not None and found.rows is not None:
                framed(self.spark, found.rows).createOrReplaceTempView(name)
                continue
            self.spark.sql(f"DROP TABLE IF EXISTS {name}")
            self.spark.sql(f"CREATE TABLE {name} USING delta LOCATION {quoted(self.path(name))}")
        for view in views:
            try:
                self.spark.sql(view.sql)
            except errors.PySparkException:
                continue  # a view of a missing table

    def unknown_statements(self, cluster: str, most: int) -> list[dict[str, Any]]:
        """The most frequent rows of the view of that name."""
        name = "unknown_statements"
        (definition,) = (view for view in schemas.statements("views") if view.name == name)
        self.rows_of("events", [cluster]).createOrReplaceTempView("events")
        self.spark.sql(definition.sql)
        try:
            # Spark Connect resolves a view when its rows are read
            return [row.asDict() for row in self.spark.table(name).limit(most).collect()]
        finally:
            for view in (name, "events"):
                self.spark.catalog.dropTempView(view)

    def table(self, name: str) -> DataFrame:
        """The table as it is now."""
        return self.spark.read.format("delta").load(self.path(name))

    def rows_at(self, table: str, clusters: Collection[str], version: int) -> pa.Table | None:
        """Return the rows of some clusters in an earlier version of a table; None where files of that version were removed."""
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        try:
            return self.table_of(table, to_dicts(reader.load(self.path(table)).filter(in_clusters(clusters))))
        except errors.PySparkException:
            return None

    def clusters(self) -> list[str]:
        """The clusters that `events` has rows of."""
        return sorted(row.cluster for row in self.table("events").select("cluster").distinct().collect())

    def rows_of(self, table: str, clusters: Iterable[str]) -> DataFrame:
        """Return the rows of some clusters; small tables are read once."""
        names = frozenset(clusters)
        if table in self._created:
            nulls = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in schemas.columns(table).items())
            return self.spark.sql(f"SELECT {nulls} WHERE false")
        return self._hold(table, names).of(names)

    def read(
        self,
        table: str,
        clusters: Iterable[str],
        condition: Where = EVERY,
        columns: Sequence[str] | None = None,
    ) -> Frame:
        """Return the rows of some clusters for which a condition holds, as an Arrow table where they are few. columns: None: all."""
        names = frozenset(clusters)
        few = table_schema(table).empty_table() if table in self._created else self._hold(table, names).few
        if few is not None:
            found: Frame = where(few, of_clusters(names) & condition)
        else:
            # Spark reads only the columns that are used later, and finds a few kinds among ten years of events faster
            some = columns is not None and condition != EVERY and table not in LANDED
            known = self._found(table, names, columns or (), condition.arrow, MOST_READ) if some else None
            found = where(self.rows_of(table, names), condition) if known is None else known
        return found if columns is None else select(found, *columns)

    def whole(self, table: str) -> Frame:
        """Return all rows of a small table."""
        held = self._hold(table, frozenset())
        return held.few if held.is_small_table and held.few is not None else self.table(table)

    def _hold(self, table: str, names: frozenset[str]) -> Held:
        """Return the rows of at least these clusters."""
        with self._reading[table]:
            held = self._held.get(table)
            if held is None or not held.has(names):
                held = self._held[table] = self._read(table, names)
        return held

    def _read(self, table: str, names: frozenset[str]) -> Held:
        if self._small is not None and table not in self._many:
            # events hold texts of any length: either all of them fit in memory or none is read
            found = self._small.rows(table, () if table in LANDED else names)
            if found is not None and found.rows is not None:
                return Held(self.spark, None if found.is_whole else names, found.rows)
            if found is not None:
                self._many.add(table)

        def rows() -> DataFrame:
            return self.table(table).filter(in_clusters(names))

        if table in self._many or table in LANDED or (few := small_table(rows())) is None:
            self._many.add(table)
            return Held(self.spark, names, None, rows)
        return Held(self.spark, names, few)

    def rows_with(
        self,
        table: str,
        clusters: Iterable[str],
        column: str,
        values: Iterable[Any],
        columns: Sequence[str],
        *,
        span: tuple[str, datetime | None, datetime | None] | None = None,
    ) -> pa.Table:
        """Return columns of the rows of some clusters that have one of a few values in a column.

        span: a column with a time, and the moments between which it is where it is not null.
        """
        names, wanted = sorted(clusters), pa.array(list(values))
        where = pc.field(column).isin(wanted)
        if span is not None:
            time, first, final = pc.field(span[0]), *span[1:]
            where &= time.is_null() if first is None else time.is_null() | ((time >= first) & (time <= final))
        if (found := self._found(table, names, columns, where)) is not None:
            return found
        rows = self.rows_of(table, names)
        if span is not None:
            rows = rows.filter(F.col(span[0]).isNull() | F.col(span[0]).between(*span[1:]))
        some = framed(self.spark, pa.table({column: wanted}))
        return rows.join(F.broadcast(some.distinct()), column, "left_semi").select(*columns).toArrow()

    def rows_about(
        self, table: str, clusters: Iterable[str], column: str, values: Frame, columns: Sequence[str] | None = None
    ) -> Frame:
        """Return rows of some clusters, at least those whose value of a column is among those of others."""
        names, wanted = sorted(clusters), list(columns or schemas.columns(table))
        if (
            not self.has_few(table, names)
            and (few := table_if_few(distinct(select(values, column)), MOST_LOOKED_FOR)) is not None
        ):
            where = pc.field(column).isin(few[column].combine_chunks())
            if (found := self._found(table, names, wanted, where, MOST_READ)) is not None:
                return found
        return self.read(table, names, EVERY, columns)

    def rows_that_have(self, table: str, clusters: Iterable[str], column: str, columns: Sequence[str]) -> pa.Table:
        """Columns of the rows of some clusters in which one is not null."""
        names, condition = sorted(clusters), is_known(column)
        if (found := self._found(table, names, columns, condition.arrow)) is not None:
            return found
        return to_table(self.read(table, names, condition, columns))

    def _found(
        self, table: str, clusters: Collection[str], columns: Sequence[str], where: Any, most: int = MOST_SCANNED
    ) -> pa.Table | None:
        """Of the rows of some clusters those for which something holds, as `DeltaRsTables.rows_where` finds them."""
        if self._small is None:
            return None
        return self._small.rows_where(table, columns, pc.field("cluster").isin(sorted(clusters)) & where, most)

    def has_few(self, table: str, clusters: Iterable[str]) -> bool:
        """Return whether the rows of at least these clusters are in memory."""
        names = frozenset(clusters)
        return table in self._created or self._hold(table, names).few is not None

    def parsed(self, files: Sequence[Any], ruleset: RuleSet | None, days: Any, remote: Sequence[Any] = ()) -> Any:
        """Return what logs say (`events.Parsed`). files: `ingest.LogFile`; days, remote: as `events.land` has them."""
        from jobs.landing import events, ingest
        from parsers.events import Parser

        if not remote and events.are_small(files):
            return events.parsed_in_process(files, ruleset, days)
        # workers of Spark Connect have another working directory
        parser, usable = Parser(ruleset), [ingest.absolute(file) for file in files if file.usable]
        size = ingest.split_size(usable, ingest.CORES_OF_CLUSTER)
        return events.OnWorkers(self.spark, ingest.splits(usable, parser, size), parser, days, remote)

    def summed(self, events: Frame) -> dict[str, Summary]:
        """Return, by cluster, the summary of its events: a few in this process, more by Spark's workers."""
        if isinstance(events, pa.Table):
            return folding.summaries(events.to_batches(), EVENT_COLUMNS)

        def of_part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = folding.summaries(batches, EVENT_COLUMNS)
            yield pa.record_batch([list(found), [one.to_json() for one in found.values()]], names=["cluster", "summary"])

        found: dict[str, Summary] = {}
        for row in by_workers(events, of_part, "cluster STRING, summary STRING").collect():
            part = Summary.from_json(row.summary)
            found[row.cluster] = found[row.cluster] + part if row.cluster in found else part
        return found

    def folded(self, keyed: Frame, states: Frame, facts: Mapping[str, ClusterFacts], at_once: int | None) -> Frame:
        """Fold partitions: a few events and states in this process, more by Spark's workers."""
        events = in_memory_if_few(keyed, folding.MOST_ON_DRIVER)
        few = table_if_few(states, folding.MOST_ON_DRIVER) if isinstance(events, pa.Table) else None
        if few is not None:
            both = pa.concat_tables([aligned(some, folding.INPUT) for some in (events, few)])
            if both.num_rows <= folding.MOST_ON_DRIVER:
                batches = folding.fold_groups(folding.in_groups(both, folding.GROUP), EVENT_COLUMNS, facts, at_once)
                return pa.Table.from_batches(batches, folding.OUTPUT)
        rows = in_spark(self.spark, events).unionByName(in_spark(self.spark, states), allowMissingColumns=True)
        given = dict(facts)
        for one in given.values():
            one.by_number  # noqa: B018  # computed once, not by every worker
        keys = folding.GROUP
        grouped = rows.select(*folding.INPUT.names).repartition(*keys).sortWithinPartitions(*keys, F.col("state").isNull(), "ts")
        return by_workers(
            grouped, lambda batches: folding.fold_groups(batches, EVENT_COLUMNS, given, at_once), folding.OUTPUT_DDL
        ).localCheckpoint()

    def append(self, table: str, rows: DataFrame | pa.Table, after: int | None = None) -> None:
        """Adds rows; columns by name, those that they have not are null.

        after: only where nobody has appended since that commit of the table; else raises Conflict, and nothing is added.
        """
        self.guard()
        if isinstance(rows, pa.Table):
            if table not in LANDED:  # only filled columns are written
                rows = aligned(rows, table_schema(table))
            if self._small is not None and rows.num_rows <= MOST_HERE and self._small.append(table, rows, after):
                self._is_written(table)
                return
            rows = framed(self.spark, rows)
        writer = rows.write.format("delta").mode("append")
        if after is None:
            with refused(table):
                writer.save(self.path(table))
        else:
            self._append_after(table, writer, after)
        self._is_written(table)

    def _append_after(self, table: str, writer: Any, after: int) -> None:
        """Append as a numbered transaction: Delta skips one whose number is not above the last one."""
        key = uuid.uuid4().hex
        numbered = writer.option("txnAppId", LANDING).option("txnVersion", after + 1).option("userMetadata", key)
        with refused(table):
            numbered.save(self.path(table))
        later = self._history(table, NEWEST_COMMITS).where(F.col("version") > after).collect()
        mine = [row.version for row in later if row.userMetadata == key]
        if not mine:
            raise Conflict.on(table)
        if any(row.version < mine[0] and row.operation in ADDING for row in later):
            # a version without numbered transactions may have appended rows, too
            self._remove_doubled(table)

    def _is_empty_now(self, table: str) -> bool:
        found = None if self._small is None else self._small.rows(table)
        if found is not None:
            return found.rows is not None and not found.rows.num_rows
        return self.table(table).isEmpty()

    def replace_where(self, table: str, clusters: Iterable[str], condition: Where, rows: Frame) -> None:
        """Replace the rows of some clusters for which a condition holds, in one commit; write nothing where a few rows are the same.

        The condition need not hold for the new rows. Columns are matched by name; missing ones are null.
        """
        self.guard()
        names = frozenset(clusters)
        is_new = table in self._created
        before = None if is_new and self._small is None else self._hold(table, names)
        few: Any
        if not isinstance(rows, pa.Table):
            new = _by_name(table, rows)
            few = None if table in self._many else small_table(new)
        else:
            few = aligned(rows, table_schema(table))
        goes = of_clusters(names) & condition
        if before is not None and before.is_small_table and few is not None and few.num_rows <= MOST_HERE:
            replaced = met(before.few, goes)
            if self._is_replaced_small(table, before, names, replaced, few, keeps_settled=condition == UNSETTLED):
                return
        if few is not None:
            new = framed(self.spark, few)
        if before is None or is_new:
            if few is not None and not few.num_rows:
                return
            with refused(table):
                new.write.format("delta").mode("append").save(self.path(table))
        else:
            if few is not None and before.few is not None and _are_same(few, where(before.few, goes)):
                return
            with refused(table):
                new.write.format("delta").mode("overwrite").option("replaceWhere", goes.sql).save(self.path(table))
        self._is_written(table)
        if few is None or few.num_rows > MOST_HERE:
            self._many.add(table)
        elif before is None or is_new or condition == EVERY:
            self._held[table] = Held(self.spark, names, few)
        elif before.few is not None:
            stay = before.few.filter(pc.invert(met(before.few, goes)))
            if stay.num_rows + few.num_rows <= MOST_HERE:
                self._held[table] = Held(self.spark, before.clusters, pa.concat_tables([aligned(stay, few.schema), few]))

    def replace_partitions(
        self, table: str, clusters: Collection[str], anew: Collection[str], partitions: Frame, rows: Frame
    ) -> None:
        """Replace the rows of some partitions that are not settled, and all rows of clusters that are rebuilt, in one commit.

        clusters: those that are not rebuilt. partitions: PARTITION_KEY of some of theirs. Columns are matched by name; missing ones are null.
        """
        self.guard()
        if not clusters:
            self.replace(table, anew, rows)
            return
        if self._are_partitions_replaced(table, frozenset(clusters), frozenset(anew), partitions, rows):
            return
        condition = UNSETTLED if "settled" in schemas.columns(table) else EVERY
        kept = lacking(self.read(table, clusters, condition), partitions, PARTITION_KEY)
        new = _by_name(table, in_spark(self.spark, rows))
        self.replace_where(
            table, [*clusters, *anew], any_of([condition, *([of_clusters(anew)] if anew else [])]), together(new, kept)
        )

    def _are_partitions_replaced(
        self, table: str, clusters: frozenset[str], anew: frozenset[str], partitions: Frame, rows: Frame
    ) -> bool:
        """Do the same without Spark where these rows are few, in a table of any size. Return whether it was done."""
        if self._small is None or (keys := table_if_few(partitions, MOST_WITHOUT_SPARK)) is None:
            return False
        if (some := table_if_few(rows, MOST_WITHOUT_SPARK)) is None:
            return False
        new, may_settle = aligned(some, table_schema(table)), "settled" in schemas.columns(table)
        held = None if table in self._many else self._hold(table, clusters | anew)
        if held is not None and held.few is not None and held.is_small_table and new.num_rows <= MOST_HERE:
            replaced = pc.and_(met(held.few, of_clusters(clusters)), among(held.few, keys, PARTITION_KEY))
            if may_settle:
                replaced = pc.and_(replaced, pc.invert(held.few["settled"]))
            replaced = pc.or_(replaced, met(held.few, of_clusters(anew)))
            return self._is_replaced_small(table, held, clusters | anew, replaced, new, keeps_settled=may_settle and not anew)
        if anew:
            return False
        # topic by topic: most are passed on unchanged
        is_touched = pc.field("topic").isin(keys["topic"].unique())
        open_ones = ~pc.field("settled") if may_settle else pc.scalar(True)
        touched = self._found(table, clusters, new.column_names, is_touched & open_ones, MOST_WITHOUT_SPARK)
        if touched is None:
            return False
        rewritten = pa.concat_tables([aligned(lacking(touched, keys, PARTITION_KEY), new.schema), new])
        settled = {"settled": False} if may_settle else {}
        staying = [({"cluster": name, **settled}, ~is_touched) for name in sorted(clusters)]
        if not self._small.overwrite(table, rewritten, files_of(clusters, keeps_settled=may_settle), staying):
            return False
        self._is_written(table)
        return True

    def _is_replaced_small(
        self, table: str, held: Any, names: frozenset[str], replaced: Any, rows: pa.Table, *, keeps_settled: bool
    ) -> bool:
        """Replace rows of a small table; return whether it was done.

        held: `Held`, all of its rows. replaced: those that are replaced, all of names. keeps_settled: none of them is settled.
        """
        assert self._small is not None
        before, new = held.few, aligned(rows, held.few.schema)
        if _are_same(new, before.filter(replaced)):
            return True
        stay = before.filter(pc.invert(replaced))
        of: Filters = ()
        again = stay
        if schemas.partition_columns(table):
            of = files_of(names, keeps_settled=keeps_settled)
            again = where(stay, of_clusters(names))
            if keeps_settled:
                again = again.filter(pc.invert(again["settled"]))
        if not self._small.overwrite(table, pa.concat_tables([again, new]), of):
            return False
        self._is_written(table)
        self._held[table] = Held(self.spark, None, pa.concat_tables([stay, new]))
        return True

    def _is_written(self, table: str) -> None:
        # a reader may have read the rows from before this commit
        with self._reading[table]:
            self._created.discard(table)
            self._held.pop(table, None)

    def delete(self, table: str, condition: Where) -> None:
        """Removes the rows for which a condition holds."""
        self.guard()
        held = self._small_table(table)
        if held is None or not self._is_deleted_small(table, held, met(held.few, condition)):
            with refused(table):
                self.spark.sql(f"DELETE FROM {self._identifier(table)} WHERE {condition.sql}").collect()
            self._is_written(table)

    def delete_matching(self, table: str, condition: Where, keys: Frame) -> None:
        """Removes the rows for which a condition holds and whose values are among those of keys."""
        self.guard()
        names = keys.column_names if isinstance(keys, pa.Table) else keys.columns
        held = self._small_table(table)
        if held is not None and isinstance(keys, pa.Table):
            gone = pc.and_(met(held.few, condition), among(held.few, keys, names))
            if self._is_deleted_small(table, held, gone):
                return
        self._merge(table, F.broadcast(in_spark(self.spark, keys)), names, condition, "WHEN MATCHED THEN DELETE")
        self._is_written(table)

    def set_matching(self, table: str, condition: Where, values: Frame, keys: Sequence[str]) -> None:
        """Update rows from those with the same keys. condition: holds for all of them, so that files are skipped."""
        self.guard()
        names = values.column_names if isinstance(values, pa.Table) else values.columns
        others = [name for name in names if name not in keys]
        is_small = isinstance(values, pa.Table) and self._small_table(table) is not None
        if not is_small or self._small is None or not self._small.set_matching(table, values, keys, others):
            told = ", ".join(f"{name} = new_{name}" for name in others)
            self._merge(table, values, keys, condition, f"WHEN MATCHED THEN UPDATE SET {told}")
        self._is_written(table)

    def _merge(self, table: str, rows: Frame, keys: Sequence[str], condition: Where, *clauses: str) -> None:
        """Merge rows, whose columns are called new_.., into those of a table with the same keys for which a condition holds."""
        new = in_spark(self.spark, rows)
        view = f"merged_{uuid.uuid4().hex}"
        new.toDF(*(f"new_{name}" for name in new.columns)).createOrReplaceTempView(view)
        same = " AND ".join([*(f"{name} = new_{name}" for name in keys), f"({condition.sql})"])
        try:
            with refused(table):
                self.spark.sql(f"MERGE INTO {self._identifier(table)} USING {view} ON {same} {' '.join(clauses)}").collect()
        finally:
            self.spark.catalog.dropTempView(view)

    def _is_deleted_small(self, table: str, held: Held, gone: Any) -> bool:
        """Remove rows of a small table; return whether it was done. gone: the condition."""
        assert self._small is not None
        assert held.few is not None
        if table not in LANDED:
            clusters = frozenset(held.few.filter(gone)["cluster"].to_pylist())
            return self._is_replaced_small(table, held, clusters, gone, held.few.slice(0, 0), keeps_settled=False)
        # as deleted rows, not as replaced files: the change data feed then names the removed rows only
        keys = list(KEYS[table])
        if not self._small.delete_matching(table, distinct(held.few.filter(gone).select(keys)), keys):
            return False
        self._is_written(table)
        return True

    def _small_table(self, table: str) -> Held | None:
        """Return all rows of a table, where they are few and in a local folder; else None."""
        if self._small is None or table in self._many:
            return None
        held = self._hold(table, frozenset())
        return held if held.is_small_table else None

    def _history(self, table: str, newest: int) -> DataFrame:
        """The newest commits of a table."""
        return self.spark.sql(f"DESCRIBE HISTORY {self._identifier(table)} LIMIT {newest}")

    def version(self, table: str) -> int:
        """Number of the table's last commit."""
        if self._small is not None and (version := self._small.version(table)) is not None:
            return version
        (last,) = self._history(table, 1).select("version").collect()
        return last.version

    def changes(self, table: str, after: int) -> Changes | None:
        """What versions after one have changed, by the table's change data feed.

        None where it is unknown: commits or files were removed (Delta keeps them for some days), or the feed was not on then.
        """
        little = None if self._small is None else self._small.changes(table, after)
        if little is not None:
            told = changes_of(*little)
            return Changes(to_table(told.inserted), None if told.deleted is None else to_table(told.deleted), told.version)
        feed = self._change_feed(table, after)
        if feed is None:
            return None
        rows, kinds, version = feed
        inserted = where(rows, one_of("_change_type", ("insert", "update_postimage")))
        if not kinds & {"delete", "update_preimage"}:
            return Changes(inserted, None, version)
        deleted = where(rows, one_of("_change_type", ("delete", "update_preimage")))
        return Changes(_without(inserted, deleted, ">"), _without(deleted, inserted, "<"), version)

    def _change_feed(self, table: str, after: int) -> tuple[DataFrame, set[str], int] | None:
        """Rows, kinds of change and the newest version that has one, as Spark reads them."""
        feed = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", after + 1)
        try:
            rows = feed.load(self.path(table))
            found = rows.groupBy("_change_type").agg(F.max(VERSION).alias("newest")).collect()
        except (errors.PySparkException, gateway.Py4JError):
            return None
        version = max((row.newest for row in found), default=after)
        return rows, {row._change_type for row in found}, version


def _without(some: DataFrame, others: DataFrame, compared: str) -> DataFrame:
    """Return the rows without those that were added and removed in between: no other row has a version that compares so with their own."""
    keys = others.select(*[F.col(name).alias(f"other_{name}") for name in (*EVENT, VERSION)])
    same = " AND ".join(f"{name} = other_{name}" for name in EVENT)
    return some.join(keys, F.expr(f"{same} AND other_{VERSION} {compared} {VERSION}"), "left_anti")
