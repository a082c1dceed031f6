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
from jobs.batches import folding, rereading
from jobs.batches.types import table_schema
from jobs.engine import upgrade
from jobs.engine.conflicts import LANDING, Conflict, refused
from jobs.engine.delta_rs import DeltaRsTables, Filters, aligned, files_of, vocabulary_ddl
from jobs.engine.frames import by_workers, framed, in_process_rows, most_sent
from jobs.engine.later import errors, gateway
from jobs.engine.later import functions as F
from jobs.engine.relation import Relation
from jobs.engine.rows import (
    EVERY,
    Fold,
    Frame,
    Where,
    among,
    any_of,
    column_names,
    computed,
    distinct,
    in_clusters,
    in_spark,
    is_known,
    lacking,
    map_groups,
    met,
    of_clusters,
    one_of,
    quoted,
    select,
    to_dicts,
    to_table,
    together,
    where,
)
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
from jobs.location import local_folder
from jobs.timelines import EVENT_COLUMNS, ClusterEvidence, ClusterFacts
from parsers.events import EVENTS
from parsers.rules import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# to write more rows takes no longer than to compare them with the stored ones
ROWS_COMPARED = 10_000
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
    return rows.select(
        *(
            (F.col(name) if name in there else F.lit(None)).cast(kind).alias(name)
            for name, kind in kinds.items()
        )
    )


def _are_same(some: pa.Table, others: pa.Table) -> bool:
    """Return whether rows are the same, in any order.

    More than a limit are not compared and count as different.
    """
    if some.num_rows != others.num_rows or some.num_rows > ROWS_COMPARED:
        return False
    return Counter(map(repr, some.to_pylist())) == Counter(map(repr, others.to_pylist()))


@dataclass(frozen=True)
class Cached:
    """All rows of some clusters (None: of all).

    in_memory: the rows themselves, if they are in memory; else how Spark reads them.
    """

    spark: Any
    clusters: frozenset[str] | None
    in_memory: pa.Table | None
    read: Callable[[], DataFrame] | None = None
    # rows of some clusters: a plan that many queries use is built once
    parts: dict[frozenset[str], DataFrame] = field(default_factory=dict)

    @cached_property
    def rows(self) -> DataFrame:
        """Return the same, for Spark."""
        if self.in_memory is not None:
            return in_spark(self.spark, self.in_memory)
        assert self.read is not None
        return self.read()

    @property
    def is_whole(self) -> bool:
        """Return whether they are all rows, and in memory."""
        return self.clusters is None and self.in_memory is not None

    def has(self, clusters: frozenset[str]) -> bool:
        """Return whether the rows of these clusters are among them."""
        return self.clusters is None or clusters <= self.clusters

    def of(self, clusters: frozenset[str]) -> DataFrame:
        """Return the rows of some of them."""
        if self.clusters == clusters:
            return self.rows
        if self.in_memory is None:
            return self.rows.filter(in_clusters(clusters))
        if clusters not in self.parts:
            found = self.in_memory.filter(of_clusters(clusters).arrow)
            is_all = found.num_rows == self.in_memory.num_rows
            self.parts[clusters] = self.rows if is_all else in_spark(self.spark, found)
        return self.parts[clusters]


class Store(RunTables):
    """The tables under one root: a folder or any URI that Spark can write to."""

    def __init__(self, spark: Any, root: str | Path, guard: Callable[[], None] = lambda: None) -> None:
        """spark: a session; guard: as `RunTables` has it."""
        super().__init__(root, guard)
        self.spark = spark
        self._most_rows = in_process_rows()
        self._delta_rs = DeltaRsTables.of(local_folder(self.root), self._most_rows)
        # table -> rows that this run has read or written, so that it does not read them again
        self._cached: dict[str, Cached] = {}
        # tables that are too large for this process: they are not tried again
        self._too_large: set[str] = set()
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def exists(self, table: str) -> bool:
        """Return whether the table has been created."""
        if self._delta_rs is not None:
            if self._delta_rs.version(table) is not None:
                return True
            if not self._delta_rs.has_log(table):
                return False
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
        rows = to_table(self.whole(upgrade.FACTS))
        return {name: pc.max(rows[name]).as_py() for name in names}

    def _count_doubled(self, table: str) -> int:
        keys = list(KEYS[table])
        small = None if self._delta_rs is None else self._delta_rs.rows(table)
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
        if self._delta_rs is None:
            return {}
        found = {one.name: self._delta_rs.version(one.name) for one in schemas.statements("tables")}
        return {name: version for name, version in found.items() if version is not None}

    def _present(self, name: str) -> upgrade.Present | None:
        """Return the definition of a stored table; None where there is none."""
        if self._delta_rs is not None and (known := self._delta_rs.present(name)) is not None:
            return known
        if not self.exists(name):
            return None
        properties = self.spark.sql(f"SHOW TBLPROPERTIES {self._identifier(name)}").collect()
        return upgrade.Present(_kinds(self.table(name).schema), {row.key: row.value for row in properties})

    def _set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        if self._delta_rs is None or not self._delta_rs.set_properties(name, properties):
            # the version of the tables is among the others, so that an interrupted upgrade adds the
            # constraints again
            for statement in upgrade.constraint_statements(self._identifier(name), properties):
                self.spark.sql(statement)
            if others := upgrade.without_constraints(properties):
                self.spark.sql(
                    f"ALTER TABLE {self._identifier(name)} SET TBLPROPERTIES ({upgrade.settings(others)})"
                )

    def _reread(self, name: str, ruleset: RuleSet) -> None:
        """Read the records of a table again from their text, in one commit.

        Before that, findings get the new ids of their evidence.
        """
        rows = self.table(name)
        wanted = (*rereading.OF_RECORD, *rereading.OF_SOME_VERSIONS, rereading.ENDS_FILE)
        columns = [name for name in wanted if name in rows.columns]
        records = rows.filter(OF_LOGS.sql).filter("item = 0").select(*columns)
        place = ("cluster", "file")
        sorted_ = records.repartition(*place).sortWithinPartitions(*place, "record_no")
        records_again = by_workers(
            sorted_, partial(rereading.reread, ruleset=ruleset), rereading.REREAD
        ).persist()
        try:
            self._rename_evidence(records_again.filter("item = 0").select("record_id", rereading.FORMER))
            new = records_again.drop(rereading.FORMER)
            others = rows.filter(f"NOT ({OF_LOGS.sql})")
            new = new.unionByName(others, allowMissingColumns=True) if not others.isEmpty() else new
            new.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
                self.path(name)
            )
        finally:
            records_again.unpersist()

    # -- rules that have changed

    def _loggers(self, table: str) -> list[str | None]:
        rows = self.table(table).select("logger").distinct().collect()
        return [row.logger for row in rows]

    def _count_where(self, table: str, condition: Where) -> int:
        return self.table(table).filter(condition.sql).count()

    def _changes(self, condition: Where, ruleset: RuleSet) -> Frame:
        """Return what rules change in rows of `events`, as `rereading.changes` returns it."""
        rows = self.table("events").filter(condition.sql).repartition("cluster", "file")
        rows = rows.select(*EVENTS.names).sortWithinPartitions(*rereading.IN_ORDER)
        return by_workers(
            rows, partial(rereading.changes, ruleset=ruleset), rereading.CHANGES
        ).localCheckpoint()

    def _merge_changes(self, changes: Frame) -> None:
        """Write rows with the columns of `rereading.CHANGES` in one commit."""
        removed = f"new_{rereading.CHANGE} = '{rereading.REMOVED}'"
        names, values = (", ".join(f"{prefix}{name}" for name in EVENTS.names) for prefix in ("", "new_"))
        clauses = (
            f"WHEN MATCHED AND {removed} THEN DELETE",
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{name} = new_{name}' for name in EVENTS.names)}",
            f"WHEN NOT MATCHED AND NOT ({removed}) THEN INSERT ({names}) VALUES ({values})",
        )
        self._merge("events", changes, EVENT, EVERY, *clauses)

    def _rename_evidence(self, ids: DataFrame) -> None:
        """Replace former record ids in the lists of findings. ids: record_id and the former one."""
        if not self.exists("findings"):
            return
        findings = self.table("findings")
        wanted = findings.select(F.explode("evidence").alias(rereading.FORMER)).distinct()
        names = {
            row[rereading.FORMER]: row.record_id
            for row in ids.join(F.broadcast(wanted), rereading.FORMER).collect()
        }
        cached = findings.toArrow()
        place = cached.column_names.index("evidence")
        renamed = rereading.renamed(cached["evidence"], names)
        if renamed.equals(cached["evidence"].combine_chunks()):
            return
        new = cached.set_column(place, cached.schema.field(place), renamed)
        framed(self.spark, new).write.format("delta").mode("overwrite").save(self.path("findings"))

    def _create(self, definition: schemas.Statement) -> None:
        if not self._is_created_by_delta_rs(definition.name):
            sql = definition.sql.replace("{table}", self._identifier(definition.name))
            sql = sql.replace("'{location}'", quoted(self.path(definition.name))).replace(
                "{vocabulary}", vocabulary_ddl()
            )
            self.spark.sql(_with_properties(sql, upgrade.properties(definition.name)))
        self._created.add(definition.name)

    def _is_created_by_delta_rs(self, name: str) -> bool:
        if self._delta_rs is None:
            return False
        return self._delta_rs.create_as_defined(name)

    def _empty(self, definition: schemas.Statement) -> None:
        """Empties a table and gives it the columns of this version.

        CREATE OR REPLACE does not, where the table is named by its path.
        """
        name = definition.name
        rows = (
            framed(self.spark, table_schema(name).empty_table())
            .write.format("delta")
            .mode("overwrite")
            .option("overwriteSchema", "true")
        )
        if by := schemas.partition_columns(name):
            rows = rows.partitionBy(*by)
        rows.save(self.path(name))
        self._created.add(name)

    def _identifier(self, table: str) -> str:
        """Return the name in SQL of a table that need not be in the catalog."""
        return f"delta.`{self.path(table).replace('`', '``')}`"

    def register(self, names: Collection[str] | None = None) -> None:
        """Register the tables, as they are now, and their views by name.

        names: those that are needed; None: all.
        """
        views = [view for view in schemas.statements("views") if names is None or view.name in names]
        # registering a table takes longer than most queries over it
        wanted = None if names is None else set(names).union(*(words(view.sql) for view in views))
        tables = [definition.name for definition in schemas.statements("tables")]
        for name in tables:
            if (wanted is not None and name not in wanted) or not self.exists(name):
                continue
            # from another folder, in the same session
            self.spark.catalog.dropTempView(name)
            found = None if self._delta_rs is None else self._delta_rs.rows(name)
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

    def table(self, name: str) -> DataFrame:
        """Return the table as it is now."""
        return self.spark.read.format("delta").load(self.path(name))

    def rows_at(self, table: str, clusters: Collection[str], version: int) -> pa.Table | None:
        """Return the rows of some clusters in an earlier version of a table.

        None where files of that version were removed.
        """
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        try:
            return self.table_of(table, to_dicts(reader.load(self.path(table)).filter(in_clusters(clusters))))
        except errors.PySparkException:
            return None

    def clusters(self) -> list[str]:
        """Return the clusters that `events` has rows of."""
        return sorted(row.cluster for row in self.table("events").select("cluster").distinct().collect())

    def rows_of(self, table: str, clusters: Iterable[str]) -> DataFrame:
        """Return the rows of some clusters; small tables are read once."""
        names = frozenset(clusters)
        if table in self._created:
            nulls = ", ".join(
                f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in schemas.columns(table).items()
            )
            return self.spark.sql(f"SELECT {nulls} WHERE false")
        return self._rows_in_cache(table, names).of(names)

    def read(
        self,
        table: str,
        clusters: Iterable[str],
        condition: Where = EVERY,
        columns: Sequence[str] | None = None,
    ) -> Frame:
        """Return the rows of some clusters for which a condition holds; a relation where they are few.

        columns: None: all.
        """
        names = frozenset(clusters)
        is_nothing = table in self._created or not names
        small = (
            table_schema(table).empty_table() if is_nothing else self._rows_in_cache(table, names).in_memory
        )
        if small is not None:
            found: Frame = Relation.of(small.filter((of_clusters(names) & condition).arrow))
        else:
            is_searched = columns is not None and condition != EVERY
            known = self._found(table, names, columns or (), condition.arrow) if is_searched else None
            found = where(self.rows_of(table, names), condition) if known is None else Relation.of(known)
        return found if columns is None else select(found, *columns)

    def whole(self, table: str) -> Frame:
        """Return all rows of a small table."""
        cached = self._rows_in_cache(table, frozenset())
        return (
            Relation.of(cached.in_memory)
            if cached.is_whole and cached.in_memory is not None
            else self.table(table)
        )

    def _rows_in_cache(self, table: str, names: frozenset[str]) -> Cached:
        """Return the rows of at least these clusters."""
        with self._reading[table]:
            cached = self._cached.get(table)
            if cached is None or not cached.has(names):
                cached = self._cached[table] = self._read(table, names)
        return cached

    def _read(self, table: str, names: frozenset[str]) -> Cached:
        if self._delta_rs is not None and table not in self._too_large:
            # events hold texts of any length: either all of them fit in memory or none is read
            found = self._delta_rs.rows(table, () if table in LANDED else names)
            if found is not None and found.rows is not None:
                return Cached(self.spark, None if found.is_whole else names, found.rows)
            if found is not None:
                self._too_large.add(table)

        def rows() -> DataFrame:
            return self.table(table).filter(in_clusters(names))

        # Delta answers this from its log
        if table in self._too_large or self.table(table).count() > most_sent():
            self._too_large.add(table)
            return Cached(self.spark, names, None, rows)
        return Cached(self.spark, names, rows().toArrow())

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
        """Return the columns of the rows of some clusters that have one of a few values in a column.

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
        self,
        table: str,
        clusters: Iterable[str],
        column: str,
        values: Frame,
        columns: Sequence[str] | None = None,
    ) -> Frame:
        """Return rows of some clusters, at least those whose value of a column is among those of others."""
        names, wanted = sorted(clusters), list(columns or schemas.columns(table))
        if not self.is_in_memory(table, names):
            some = computed(distinct(select(values, column)))
            if isinstance(some, Relation):
                where = pc.field(column).isin(some.table()[column].combine_chunks())
                if (found := self._found(table, names, wanted, where)) is not None:
                    return Relation.of(found)
        return self.read(table, names, EVERY, columns)

    def rows_that_have(
        self, table: str, clusters: Iterable[str], column: str, columns: Sequence[str]
    ) -> pa.Table:
        """Return the columns of the rows of some clusters in which one is not null."""
        names, condition = sorted(clusters), is_known(column)
        if (found := self._found(table, names, columns, condition.arrow)) is not None:
            return found
        return to_table(self.read(table, names, condition, columns))

    def _found(
        self, table: str, clusters: Collection[str], columns: Sequence[str], where: Any
    ) -> pa.Table | None:
        """Return the rows of some clusters that meet a condition, as `DeltaRsTables.rows_where` does."""
        if self._delta_rs is None:
            return None
        return self._delta_rs.rows_where(table, columns, pc.field("cluster").isin(sorted(clusters)) & where)

    def is_in_memory(self, table: str, clusters: Iterable[str]) -> bool:
        """Return whether the rows of at least these clusters are in memory."""
        names = frozenset(clusters)
        return table in self._created or self._rows_in_cache(table, names).in_memory is not None

    def parsed(
        self, files: Sequence[Any], ruleset: RuleSet | None, days: Any, remote: Sequence[Any] = ()
    ) -> Any:
        """Return what logs say (`new_records.Parsed`).

        files: `ingest.LogFile`; days, remote: as `new_records.land` has them.
        """
        from jobs.engine import in_process
        from jobs.engine.workers import OnWorkers
        from jobs.files import ingest
        from parsers.events import Parser

        if not remote and in_process.are_small(files):
            return in_process.parsed_in_process(files, ruleset, days)
        # workers of Spark Connect have another working directory
        parser, usable = Parser(ruleset), [ingest.absolute(file) for file in files if file.usable]
        size = ingest.split_size(usable, ingest.CORES_OF_CLUSTER)
        return OnWorkers(self.spark, ingest.splits(usable, parser, size), parser, days, remote)

    def summed(self, events: Frame) -> dict[str, ClusterEvidence]:
        """Return, by cluster, the evidence in its events: in this process where they are few, else by Spark's
        workers.
        """
        if isinstance(events, Relation):
            return folding.evidence_by_cluster(events.batches(), EVENT_COLUMNS)

        def of_part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = folding.evidence_by_cluster(batches, EVENT_COLUMNS)
            yield pa.record_batch(
                [list(found), [one.to_json() for one in found.values()]], names=["cluster", "summary"]
            )

        found: dict[str, ClusterEvidence] = {}
        for row in by_workers(events, of_part, "cluster STRING, summary STRING").collect():
            part = ClusterEvidence.from_json(row.summary)
            found[row.cluster] = found[row.cluster] + part if row.cluster in found else part
        return found

    def folded(
        self, keyed: Frame, states: Frame, facts: Mapping[str, ClusterFacts], at_once: int | None
    ) -> Frame:
        """Fold partitions: in this process where events and states are in memory, else by Spark's workers."""
        if all(isinstance(some, pa.Table | Relation) for some in (keyed, states)):
            both = pa.concat_tables([aligned(to_table(some), folding.INPUT) for some in (keyed, states)])
            batches = folding.fold_groups(
                folding.in_groups(both, folding.GROUP), EVENT_COLUMNS, facts, at_once
            )
            return Relation.of(pa.Table.from_batches(batches, folding.OUTPUT))
        rows = in_spark(self.spark, keyed).unionByName(in_spark(self.spark, states), allowMissingColumns=True)
        given = dict(facts)
        for one in given.values():
            one.by_number  # noqa: B018  # computed once, not by every worker
        keys = folding.GROUP
        grouped = (
            rows.select(*folding.INPUT.names)
            .repartition(*keys)
            .sortWithinPartitions(*keys, F.col("state").isNull(), "ts")
        )
        return by_workers(
            grouped,
            lambda batches: folding.fold_groups(batches, EVENT_COLUMNS, given, at_once),
            folding.OUTPUT,
        ).localCheckpoint()

    def map_groups(self, one: Frame, other: Frame, by: Sequence[str], fold: Fold, schema: pa.Schema) -> Frame:
        """As `RunTables.map_groups`: in this process where the rows are few, else by Spark's workers."""
        return computed(map_groups(one, other, by, fold, schema))

    def append(self, table: str, rows: Frame, after: int | None = None) -> None:
        """Add rows; columns by name, those that they have not are null.

        after: only where nobody has appended since that commit of the table; else raises Conflict, and
        nothing is added.
        """
        self.guard()
        if isinstance(rows, pa.Table | Relation):
            rows = to_table(rows)
            if table not in LANDED:  # only filled columns are written
                rows = aligned(rows, table_schema(table))
            if (
                self._delta_rs is not None
                and rows.num_rows <= self._most_rows
                and self._delta_rs.append(table, rows, after)
            ):
                self.forget(table)
                return
            rows = framed(self.spark, rows)
        writer = rows.write.format("delta").mode("append")
        if after is None:
            with refused(table):
                writer.save(self.path(table))
        else:
            self._append_after(table, writer, after)
        self.forget(table)

    def _append_after(self, table: str, writer: Any, after: int) -> None:
        """Append as a numbered transaction: Delta skips one whose number is not above the last one."""
        key = uuid.uuid4().hex
        numbered = (
            writer.option("txnAppId", LANDING).option("txnVersion", after + 1).option("userMetadata", key)
        )
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
        found = None if self._delta_rs is None else self._delta_rs.rows(table)
        if found is not None:
            return found.rows is not None and not found.rows.num_rows
        return self.table(table).isEmpty()

    def replace_where(self, table: str, clusters: Iterable[str], condition: Where, rows: Frame) -> None:
        """Replace the rows of some clusters for which a condition holds, in one commit.

        Write nothing where the rows are the same.

        The condition need not hold for the new rows. Columns are matched by name; missing ones are null.
        """
        self.guard()
        names = frozenset(clusters)
        is_new = table in self._created
        before = None if is_new and self._delta_rs is None else self._rows_in_cache(table, names)
        new: Any = rows
        if not isinstance(rows, pa.Table | Relation):
            new = _by_name(table, rows)
            new = new if table in self._too_large else computed(new)
        small: Any = None
        if isinstance(new, pa.Table | Relation):
            small = aligned(to_table(new), table_schema(table))
        goes = of_clusters(names) & condition
        if before is not None and before.is_whole and small is not None and small.num_rows <= self._most_rows:
            replaced = met(before.in_memory, goes)
            if self._is_replaced_by_delta_rs(
                table, before, names, replaced, small, keeps_settled=condition == UNSETTLED
            ):
                return
        if small is not None:
            new = framed(self.spark, small)
        if before is None or is_new:
            if small is not None and not small.num_rows:
                return
            with refused(table):
                new.write.format("delta").mode("append").save(self.path(table))
        else:
            if (
                small is not None
                and before.in_memory is not None
                and _are_same(small, before.in_memory.filter(goes.arrow))
            ):
                return
            with refused(table):
                new.write.format("delta").mode("overwrite").option("replaceWhere", goes.sql).save(
                    self.path(table)
                )
        self.forget(table)
        if small is None or small.num_rows > self._most_rows:
            self._too_large.add(table)
        elif before is None or is_new or condition == EVERY:
            self._cached[table] = Cached(self.spark, names, small)
        elif before.in_memory is not None:
            stay = before.in_memory.filter(pc.invert(met(before.in_memory, goes)))
            if stay.num_rows + small.num_rows <= self._most_rows:
                self._cached[table] = Cached(
                    self.spark, before.clusters, pa.concat_tables([aligned(stay, small.schema), small])
                )

    def replace_partitions(
        self, table: str, clusters: Collection[str], rebuilt: Collection[str], partitions: Frame, rows: Frame
    ) -> None:
        """Replace the rows of some partitions that are not settled, and all rows of clusters that are
        rebuilt, in one commit.

        clusters: those that are not rebuilt. partitions: PARTITION_KEY of some of theirs. Columns are matched
        by name; missing ones are null.
        """
        self.guard()
        if not clusters:
            self.replace(table, rebuilt, rows)
            return
        partitions, rows = computed(partitions), computed(rows)
        if self._are_partitions_replaced(table, frozenset(clusters), frozenset(rebuilt), partitions, rows):
            return
        condition = UNSETTLED if "settled" in schemas.columns(table) else EVERY
        kept = lacking(self.read(table, clusters, condition), partitions, PARTITION_KEY)
        new = _by_name(table, in_spark(self.spark, rows))
        self.replace_where(
            table,
            [*clusters, *rebuilt],
            any_of([condition, *([of_clusters(rebuilt)] if rebuilt else [])]),
            together(new, kept),
        )

    def _are_partitions_replaced(
        self, table: str, clusters: frozenset[str], rebuilt: frozenset[str], partitions: Frame, rows: Frame
    ) -> bool:
        """Do the same without Spark where these rows are few, in a table of any size.

        Return whether it was done.
        """
        if self._delta_rs is None or not all(
            isinstance(one, pa.Table | Relation) for one in (partitions, rows)
        ):
            return False
        keys, new = to_table(partitions), aligned(to_table(rows), table_schema(table))
        may_settle = "settled" in schemas.columns(table)
        cached = None if table in self._too_large else self._rows_in_cache(table, clusters | rebuilt)
        if (
            cached is not None
            and cached.in_memory is not None
            and cached.is_whole
            and new.num_rows <= self._most_rows
        ):
            replaced = pc.and_(
                met(cached.in_memory, of_clusters(clusters)), among(cached.in_memory, keys, PARTITION_KEY)
            )
            if may_settle:
                replaced = pc.and_(replaced, pc.invert(cached.in_memory["settled"]))
            replaced = pc.or_(replaced, met(cached.in_memory, of_clusters(rebuilt)))
            return self._is_replaced_by_delta_rs(
                table, cached, clusters | rebuilt, replaced, new, keeps_settled=may_settle and not rebuilt
            )
        if rebuilt:
            return False
        # topic by topic: most are passed on unchanged
        is_touched = pc.field("topic").isin(keys["topic"].unique())
        open_ones = ~pc.field("settled") if may_settle else pc.scalar(True)
        touched = self._found(table, clusters, new.column_names, is_touched & open_ones)
        if touched is None:
            return False
        others = touched.filter(pc.invert(among(touched, keys, PARTITION_KEY)))
        rewritten = pa.concat_tables([aligned(others, new.schema), new])
        settled = {"settled": False} if may_settle else {}
        staying = [({"cluster": name, **settled}, ~is_touched) for name in sorted(clusters)]
        if not self._delta_rs.overwrite(
            table, rewritten, files_of(clusters, keeps_settled=may_settle), staying
        ):
            return False
        self.forget(table)
        return True

    def _is_replaced_by_delta_rs(
        self,
        table: str,
        cached: Any,
        names: frozenset[str],
        replaced: Any,
        rows: pa.Table,
        *,
        keeps_settled: bool,
    ) -> bool:
        """Replace rows of a small table; return whether it was done.

        cached: `Cached`, all of its rows. replaced: those that are replaced, all of names. keeps_settled:
        none of them is settled.
        """
        assert self._delta_rs is not None
        before, new = cached.in_memory, aligned(rows, cached.in_memory.schema)
        if _are_same(new, before.filter(replaced)):
            return True
        stay = before.filter(pc.invert(replaced))
        of: Filters = ()
        again = stay
        if schemas.partition_columns(table):
            of = files_of(names, keeps_settled=keeps_settled)
            again = stay.filter(of_clusters(names).arrow)
            if keeps_settled:
                again = again.filter(pc.invert(again["settled"]))
        if not self._delta_rs.overwrite(table, pa.concat_tables([again, new]), of):
            return False
        self.forget(table)
        self._cached[table] = Cached(self.spark, None, pa.concat_tables([stay, new]))
        return True

    def forget(self, table: str) -> None:
        # a reader may have read the rows from before this commit
        with self._reading[table]:
            self._created.discard(table)
            self._cached.pop(table, None)

    def delete(self, table: str, condition: Where) -> None:
        """Remove the rows for which a condition holds."""
        self.guard()
        cached = self._whole_in_cache(table)
        if cached is None or not self._is_deleted_by_delta_rs(
            table, cached, met(cached.in_memory, condition)
        ):
            with refused(table):
                self.spark.sql(f"DELETE FROM {self._identifier(table)} WHERE {condition.sql}").collect()
            self.forget(table)

    def delete_matching(self, table: str, condition: Where, keys: Frame) -> None:
        """Remove the rows for which a condition holds and whose values are among those of keys."""
        self.guard()
        names = column_names(keys)
        cached = self._whole_in_cache(table)
        if cached is not None and isinstance(keys, pa.Table | Relation):
            removed = pc.and_(
                met(cached.in_memory, condition), among(cached.in_memory, to_table(keys), names)
            )
            if self._is_deleted_by_delta_rs(table, cached, removed):
                return
        self._merge(
            table, F.broadcast(in_spark(self.spark, keys)), names, condition, "WHEN MATCHED THEN DELETE"
        )
        self.forget(table)

    def set_matching(self, table: str, condition: Where, values: Frame, keys: Sequence[str]) -> None:
        """Update rows from those with the same keys.

        condition: holds for all of them, so that files are skipped.
        """
        self.guard()
        others = [name for name in column_names(values) if name not in keys]
        is_small = isinstance(values, pa.Table | Relation) and self._whole_in_cache(table) is not None
        if (
            not is_small
            or self._delta_rs is None
            or not self._delta_rs.set_matching(table, to_table(values), keys, others)
        ):
            assignments = ", ".join(f"{name} = new_{name}" for name in others)
            self._merge(table, values, keys, condition, f"WHEN MATCHED THEN UPDATE SET {assignments}")
        self.forget(table)

    def _merge(self, table: str, rows: Frame, keys: Sequence[str], condition: Where, *clauses: str) -> None:
        """Merge rows, whose columns are called new_.., into those of a table with the same keys for which a
        condition holds.
        """
        new = in_spark(self.spark, rows)
        view = f"merged_{uuid.uuid4().hex}"
        new.toDF(*(f"new_{name}" for name in new.columns)).createOrReplaceTempView(view)
        same = " AND ".join([*(f"{name} = new_{name}" for name in keys), f"({condition.sql})"])
        try:
            with refused(table):
                self.spark.sql(
                    f"MERGE INTO {self._identifier(table)} USING {view} ON {same} {' '.join(clauses)}"
                ).collect()
        finally:
            self.spark.catalog.dropTempView(view)

    def _is_deleted_by_delta_rs(self, table: str, cached: Cached, removed: Any) -> bool:
        """Remove rows of a small table; return whether it was done. removed: row by row, whether it is."""
        assert self._delta_rs is not None
        assert cached.in_memory is not None
        if table not in LANDED:
            clusters = frozenset(cached.in_memory.filter(removed)["cluster"].to_pylist())
            return self._is_replaced_by_delta_rs(
                table, cached, clusters, removed, cached.in_memory.slice(0, 0), keeps_settled=False
            )
        # as deleted rows, not as replaced files: the change data feed then names the removed rows only
        keys = list(KEYS[table])
        deleted = cached.in_memory.filter(removed).select(keys)
        if not self._delta_rs.delete_matching(table, deleted.group_by(keys).aggregate([]), keys):
            return False
        self.forget(table)
        return True

    def _whole_in_cache(self, table: str) -> Cached | None:
        """Return all rows of a table, where they are few and in a local folder; else None."""
        if self._delta_rs is None or table in self._too_large:
            return None
        cached = self._rows_in_cache(table, frozenset())
        return cached if cached.is_whole else None

    def _history(self, table: str, newest: int) -> DataFrame:
        """Return the newest commits of a table."""
        return self.spark.sql(f"DESCRIBE HISTORY {self._identifier(table)} LIMIT {newest}")

    def version(self, table: str) -> int:
        """Return the number of the table's last commit."""
        if self._delta_rs is not None and (version := self._delta_rs.version(table)) is not None:
            return version
        (last,) = self._history(table, 1).select("version").collect()
        return last.version

    def changes(self, table: str, after: int) -> Changes | None:
        """Return what versions after one have changed, by the table's change data feed.

        None where it is unknown: commits or files were removed (Delta keeps them for some days), or the feed
        was not on then.
        """
        little = None if self._delta_rs is None else self._delta_rs.changes(table, after)
        if little is not None:
            return changes_of(*little)
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
        """Return rows, kinds of change and the newest version that has one, as Spark reads them."""
        feed = (
            self.spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", after + 1)
        )
        try:
            rows = feed.load(self.path(table))
            found = rows.groupBy("_change_type").agg(F.max(VERSION).alias("newest")).collect()
        except (errors.PySparkException, gateway.Py4JError):
            return None
        version = max((row.newest for row in found), default=after)
        return rows, {row._change_type for row in found}, version


def _without(some: DataFrame, others: DataFrame, compared: str) -> DataFrame:
    """Return the rows without those that were added and removed in between: no other row has a version that
    compares so with their own.
    """
    keys = others.select(*[F.col(name).alias(f"other_{name}") for name in (*EVENT, VERSION)])
    same = " AND ".join(f"{name} = other_{name}" for name in EVENT)
    return some.join(keys, F.expr(f"{same} AND other_{VERSION} {compared} {VERSION}"), "left_anti")
