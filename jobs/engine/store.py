"""The Delta tables: created from `schemas/tables`, compared with it, written and read."""

from __future__ import annotations

import json
import operator
import re
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from jobs.engine import upgrade
from jobs.engine.conflicts import LANDING, Conflict, refused
from jobs.engine.frames import by_workers, framed, of_rows, where_few
from jobs.engine.later import errors, gateway
from jobs.engine.later import functions as F
from jobs.engine.listing import type_name
from jobs.engine.rows import (
    EVERY,
    Frame,
    Where,
    among,
    any_of,
    distinct,
    extremes,
    fetched,
    few_of,
    having,
    here,
    in_clusters,
    in_spark,
    is_known,
    is_null,
    is_true,
    lacking,
    met,
    of_clusters,
    one_of,
    quoted,
    select,
    together,
    where,
)  # fmt: skip
from jobs.engine.small_tables import MOST_SCANNED, Filters, SmallTables, aligned, vocabulary_ddl
from jobs.engine.types import table_schema
from jobs.errors import UsageError
from jobs.landing import rereading
from jobs.location import local_folder, root_of
from jobs.progress import warn
from jobs.timelines.events import CHECKPOINT
from parsers.events import EVENTS, first_bytes
from parsers.rules import RuleSet, built_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# what logs are read into: as long as history and as wide as its lines, so it is asked for what is needed of it
LANDED = ("events", "passed_over")
# columns that tell a row of `events`
EVENT = ("record_id", "item")
# what holds for rows that the next night replaces, of tables that are partitioned by it
UNSETTLED = ~is_true("settled")
# events less what tools told of partitions (checkpoints)
OF_LOGS = is_null("event_type") | ~one_of("event_type", [CHECKPOINT])


def is_first() -> Where:
    """The row that stands for a record."""
    return Where("item = 0", pc.field("item") == 0)


# columns that tell a partition, whatever its incarnation
PARTITION_KEY = ("cluster", "topic", "partition")
# rows of a table that are all read into this process
MOST_HERE = 50_000
# such that are compared with those that stand before they are written
MOST_COMPARED = 10_000
# rows that are read from a table of many, or written into it, without Spark
MOST_WITHOUT_SPARK = 100_000
# commits among which a run looks for its own: it is one of the newest
NEWEST_COMMITS = 20
# operations that add rows, as Delta's history has them
ADDING = ("WRITE", "MERGE")
# tables in which no row may stand twice -> column of `cluster_facts` with the version that the run that has ended last has left
EXAMINED = {"events": "events_version", "passed_over": "passed_over_version"}
# what two rows of a table must not have in common
KEYS = {"events": EVENT, "passed_over": ("cluster", "record")}
# no record is later
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
# column of `Changes`: the version of the table that a row came or went with
VERSION = "_commit_version"


def words(sql: str) -> set[str]:
    """Whatever may be a name in a SQL statement, in lower case."""
    return set(re.findall(r"\w+", sql.lower()))


@dataclass(frozen=True)
class Changes:
    """What later versions of a table have changed. inserted, deleted: rows with VERSION; a changed row is in both. deleted is None where none is.

    version: the newest one.
    """

    inserted: Frame
    deleted: Frame | None
    version: int


def _with_properties(sql: str, properties: Mapping[str, str]) -> str:
    """A CREATE TABLE with other TBLPROPERTIES than those that it may have."""
    lines = [line for line in sql.splitlines() if not line.startswith("TBLPROPERTIES ")]
    return "\n".join([*lines, f"TBLPROPERTIES ({upgrade.settings(properties)})"])


def _kinds(columns: Any) -> dict[str, str]:
    """columns: a StructType."""
    return {field.name: field.dataType.simpleString() for field in columns.fields}


def _by_name(table: str, rows: DataFrame) -> DataFrame:
    """The columns of a table; those that the rows have not are null."""
    kinds, there = schemas.columns(table), set(rows.columns)
    return rows.select(*((F.col(name) if name in there else F.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()))


def files_of(clusters: Collection[str], *, keeps_settled: bool) -> Filters:
    """Return which files of a partitioned table are replaced: those of some clusters, or of what is not settled of them."""
    return [("cluster", "in", sorted(clusters)), *([("settled", "=", "false")] if keeps_settled else [])]


def _are_same(some: pa.Table, others: pa.Table) -> bool:
    """Whether rows are the same, in any order; of more than some they are held to be others."""
    if some.num_rows != others.num_rows or some.num_rows > MOST_COMPARED:
        return False
    return Counter(map(repr, some.to_pylist())) == Counter(map(repr, others.to_pylist()))


@dataclass(frozen=True)
class Held:
    """All rows of some clusters (None: of all). few: they are known; of many it is known how to read them."""

    spark: Any
    clusters: frozenset[str] | None
    few: pa.Table | None
    read: Callable[[], DataFrame] | None = None
    # of some clusters: what many ask for is put into a plan once
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
        """Whether they are all that there is, and few."""
        return self.clusters is None and self.few is not None

    def has(self, clusters: frozenset[str]) -> bool:
        """Whether these are among them."""
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


class Store:
    """The tables under one root, a folder or any URI that Spark can write to."""

    def __init__(self, spark: Any, root: str | Path, guard: Callable[[], None] = lambda: None) -> None:
        """spark: a session; None: a subclass computes without one. guard: raises where this run must not write any more."""
        self.spark = spark
        self.guard = guard
        self.root = root_of(root)
        self._small = SmallTables.of(local_folder(self.root), MOST_HERE)
        # what opening the tables has changed in them, and what other rules
        self.upgrade = upgrade.Plan()
        self.rules_changed = rereading.Reread(0, 0)
        # clusters in whose events this run or an interrupted one has changed something by other rules
        self._stale: set[str] = set()
        # tables created in this run: what is known to be empty need not be read
        self._created: set[str] = set()
        # by table: what this run has read or written it need not read again
        self._held: dict[str, Held] = {}
        # tables that were found to have many: they are not asked for it again
        self._many: set[str] = set()
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.root}/{table}"

    def exists(self, table: str) -> bool:
        """Whether the table has been created."""
        from delta.tables import DeltaTable

        if self._small is not None and self._small.version(table) is not None:
            return True
        return DeltaTable.isDeltaTable(self.spark, self.path(table))

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table that is there."""
        return table_schema(table)

    def open(self, ruleset: RuleSet | None = None, *, rebuilds: bool = True) -> None:
        """Creates missing tables and converts those of an earlier version, all of which are looked at first.

        ruleset: by which records are read again where an earlier version has told them apart in another way. rebuilds: whether the caller
        rebuilds what is derived from `events`, and calls `rebuilt` then. Raises UsageError, and nothing is changed, where tables cannot be
        converted, or would have to be rebuilt and are not. Nothing is ever dropped but tables that are derived from others.
        """
        definitions = {one.name: one for one in schemas.statements("tables")}
        with ThreadPoolExecutor(4) as pool:
            found = dict(zip(definitions, pool.map(self._present, definitions), strict=True))
            there = {name: one for name, one in found.items() if one is not None}
            plan = self.upgrade = upgrade.decide(there, self.root)
            if plan.rebuilds and not rebuilds:
                raise UsageError(
                    f"The tables under {self.root} have to be rebuilt from events, by an earlier version or an interrupted run. "
                    "Run `kafka-audit audit` first"
                )
            if plan.rebuilds:
                self._begin_rebuilding(there)
            for name in plan.emptied:
                self._empty(definitions[name])
            for name in plan.reread:
                self._reread(name, ruleset or built_in())
            for name, columns in plan.added.items():
                added = ", ".join(f"{column} {kind}" for column, kind in columns.items())
                self.spark.sql(f"ALTER TABLE {self._identifier(name)} ADD COLUMNS ({added})")
            list(pool.map(self._create, (definitions[name] for name in plan.created if name not in self._created)))
            if rebuilds:
                self._remove_doubled_rows(there)
            list(pool.map(lambda name: self._set_properties(name, plan.stamped[name]), plan.stamped))

    def _remove_doubled_rows(self, there: Collection[str]) -> None:
        """Rows that stand more than once are removed where a table was written to by others than the run that has ended last.

        there: tables that this run has not created.
        """
        names = {table: name for table, name in EXAMINED.items() if table in there and table not in self._created}
        if not names:
            return
        known = self._examined_versions(list(names.values())) if upgrade.FACTS in there else {}
        for table, name in names.items():
            if self.version(table) != known.get(name):
                self._remove_doubled(table)

    def _examined_versions(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the newest value of some columns of `cluster_facts`."""
        (row,) = self.table(upgrade.FACTS).agg(*(F.max(name).alias(name) for name in names)).collect()
        return row.asDict()

    def _remove_doubled(self, table: str) -> None:
        """Leaves one of rows that have the same KEYS, in one commit; with a warning, and what is derived from them is rebuilt."""
        keys = list(KEYS[table])
        small = None if self._small is None else self._small.rows(table)
        if small is not None and small.rows is not None:
            doubled = small.rows.num_rows - small.rows.select(keys).group_by(keys).aggregate([]).num_rows
        else:
            counted = self.table(table).groupBy(*keys).count().filter("count > 1")
            doubled = counted.agg(F.sum(F.col("count") - 1).alias("rows")).collect()[0].rows or 0
        if not doubled:
            return
        if not self.is_rebuilding:
            self.upgrade = replace(self.upgrade, rebuilds=True)
            self._begin_rebuilding([upgrade.FACTS])
        rows = self.table(table).dropDuplicates(keys)
        with refused(table):
            rows.write.format("delta").mode("overwrite").save(self.path(table))
        self._is_written(table)
        self.upgrade = replace(self.upgrade, doubled={**self.upgrade.doubled, table: doubled})
        warn(f"{doubled:,} rows of {table} stood twice, as two runs at once or an earlier version wrote them; they were removed")

    @property
    def is_rebuilding(self) -> bool:
        """Whether everything that is derived from `events` has to be rebuilt, of all clusters."""
        return self.upgrade.rebuilds

    def rebuilt(self) -> None:
        """Everything that is derived from `events` is rebuilt: a later run goes on from it."""
        if self.is_rebuilding:
            self._set_properties(upgrade.FACTS, {upgrade.REBUILDING: "false"})
        if self._stale:
            self._set_properties(upgrade.FACTS, {upgrade.STALE: "[]"})
            self._stale = set()

    def stale_clusters(self) -> set[str]:
        """Return the clusters of which what is derived from `events` has to be rebuilt, though nothing new of them may be read."""
        return set(self.clusters()) if self.is_rebuilding else self._stale

    def versions(self) -> dict[str, int]:
        """Table -> number of its last commit, where that is known without Spark."""
        if self._small is None:
            return {}
        found = {one.name: self._small.version(one.name) for one in schemas.statements("tables")}
        return {name: version for name, version in found.items() if version is not None}

    def _present(self, name: str) -> upgrade.Present | None:
        """What a table is like; None where there is none."""
        known = None if self._small is None else self._small.described(name)
        if known is not None:
            columns, properties, by = known
            return upgrade.Present({one["name"]: type_name(one["type"]) for one in columns["fields"]}, properties, by)
        if not self.exists(name):
            return None
        told = self.spark.sql(f"SHOW TBLPROPERTIES {self._identifier(name)}").collect()
        return upgrade.Present(_kinds(self.table(name).schema), {row.key: row.value for row in told})

    def _begin_rebuilding(self, there: Collection[str]) -> None:
        """No later run goes on from what is derived from `events` so far."""
        if upgrade.FACTS in there:
            self._set_properties(upgrade.FACTS, {upgrade.REBUILDING: "true"})
            self.delete(upgrade.FACTS, EVERY)
        else:
            (definition,) = (one for one in schemas.statements("tables") if one.name == upgrade.FACTS)
            self._create(definition)
            self._set_properties(upgrade.FACTS, {upgrade.REBUILDING: "true"})

    def _set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        if self._small is None or not self._small.set_properties(name, properties):
            self.spark.sql(f"ALTER TABLE {self._identifier(name)} SET TBLPROPERTIES ({upgrade.settings(properties)})")

    def _reread(self, name: str, ruleset: RuleSet) -> None:
        """Reads the records of a table again from their text, in one commit. Findings get the new ids of their evidence before that."""
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

    def apply_rules(self, ruleset: RuleSet) -> None:
        """Reads the records of `events` again that say something else by these rules than by those before. The result is `rules_changed`.

        The rules are noted last: an interrupted run begins again, and finds nothing to change in what is changed already.
        """
        now = rereading.versions(ruleset)
        noted = self._noted()
        self._stale = set(json.loads(noted.get(upgrade.STALE, "[]")))
        before = json.loads(noted.get(upgrade.RULES, "{}"))
        if before == now:
            return
        skipped: list[str] = []
        if not (self.has_none("events") and self.has_none("passed_over")):
            # an upgrade has read all of them again
            records, changed = (0, 0) if self.upgrade.reread else self._read_again(before, ruleset)
            skipped = rereading.in_scope(self._loggers("passed_over"), ruleset)
            counted = self._count_where("passed_over", one_of("logger", skipped)) if skipped else 0
            self.rules_changed = rereading.Reread(records, changed, tuple(skipped), counted)
        self._set_properties(upgrade.FACTS, {upgrade.SKIPPED: json.dumps(skipped), upgrade.RULES: json.dumps(now)})

    def _noted(self) -> Mapping[str, str]:
        """What is noted about the rules that `events` were read with."""
        facts = self._present(upgrade.FACTS)
        return {} if facts is None else facts.properties

    def _read_again(self, before: Mapping[str, str], ruleset: RuleSet) -> tuple[int, int]:
        """(records that were read again, those that have changed)."""
        where_ = OF_LOGS
        if before:
            concerned = one_of("event_type", rereading.concerned(before, ruleset))
            strange = one_of("logger", rereading.in_scope(self._loggers("events"), ruleset, are=False))
            where_ &= is_null("event_type") | concerned | strange
        records = self._count_where("events", where_ & is_first())
        made = self._changes(where_, ruleset) if records else None
        ids, changed, whole = set[str](), set[str](), set[str]()
        if made is not None:
            found = fetched(distinct(select(made, "cluster", "record_id", rereading.FORMER_TYPE))).to_pylist()
            ids = {row["record_id"] for row in found}
            changed = {row["cluster"] for row in found}
            # histories that rest on what a record has said before are rebuilt as a whole
            whole = {row["cluster"] for row in found if row[rereading.FORMER_TYPE] is not None}
        if rereading.versions(ruleset)[rereading.KEEPS] != before.get(rereading.KEEPS):
            whole.update(self.clusters())
        if stale := self._stale | changed | whole:
            self._stale = stale
            self._set_properties(upgrade.FACTS, {upgrade.STALE: json.dumps(sorted(stale))})
        if whole:
            self.delete(upgrade.FACTS, of_clusters(whole))
        if made is not None and ids:
            passed = rereading.passed_over(fetched(where(made, one_of(rereading.CHANGE, [rereading.PASSED]))))
            if passed.num_rows:
                known = fetched(self.read("passed_over", set(passed["cluster"].to_pylist()), EVERY, list(KEYS["passed_over"])))
                if (new := lacking(passed, known, KEYS["passed_over"])).num_rows:
                    self.append("passed_over", new)
            self.guard()
            self._merge_changes(where(made, ~one_of(rereading.CHANGE, [rereading.PASSED])))
            self._is_written("events")
        return records, len(ids)

    def drop_skipped(self, clusters: Collection[str], ruleset: RuleSet) -> None:
        """Takes from `passed_over` what stands in `events` by now: records of loggers that were out of scope by earlier rules."""
        skipped = json.loads(self._noted().get(upgrade.SKIPPED, "[]"))
        if not skipped:
            return
        counted = fetched(self.read("passed_over", clusters, one_of("logger", skipped), list(KEYS["passed_over"])))
        if counted.num_rows:
            full = {ruleset.full_name(logger, "") for logger in skipped}.union(skipped)
            columns = ["cluster", "record_id"]
            landed = fetched(self.read("events", clusters, is_first() & one_of("logger", full), columns))
            numbers = [first_bytes(bytes.fromhex(one)) for one in landed["record_id"].to_pylist()]
            both = pa.table({"cluster": landed["cluster"], "record": pa.array(numbers, pa.int64())})
            gone = having(counted, both, KEYS["passed_over"])
            if gone.num_rows:
                # their hours are counted again
                self.delete(upgrade.FACTS, of_clusters(set(gone["cluster"].to_pylist())))
                self.delete_matching("passed_over", one_of("logger", skipped), gone)
        if not self._count_where("passed_over", one_of("logger", skipped)):
            self._set_properties(upgrade.FACTS, {upgrade.SKIPPED: "[]"})

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
        rows = in_spark(self.spark, changes)
        same = " AND ".join(f"t.{name} = v.{name}" for name in EVENT)
        values = {name: F.col(f"v.{name}") for name in EVENTS.names}
        gone = f"v.{rereading.CHANGE} = '{rereading.GONE}'"
        merged = self._delta("events").alias("t").merge(rows.alias("v"), same).whenMatchedDelete(gone)
        with refused("events"):
            merged.whenMatchedUpdate(set=values).whenNotMatchedInsert(f"NOT ({gone})", values=values).execute()

    def _rename_evidence(self, ids: DataFrame) -> None:
        """ids: record_id and the former one. Lists of findings that hold a former id hold the new one then."""
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
        """What SQL calls a table that the catalog need not know."""
        return f"delta.`{self.path(table).replace('`', '``')}`"

    def register(self, names: Collection[str] | None = None) -> None:
        """Lets SQL call the tables that are there, as they are now, and the views of them, by name. names: of those that are needed; None: of all."""
        views = [view for view in schemas.statements("views") if names is None or view.name in names]
        # a table takes longer to be known than most queries over it
        wanted = None if names is None else set(names).union(*(words(view.sql) for view in views))
        tables = [definition.name for definition in schemas.statements("tables")]
        for name in tables:
            if (wanted is not None and name not in wanted) or not self.exists(name):
                continue
            # of another folder, in the same session
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
                continue  # of a table that is not there

    def unknown_statements(self, cluster: str, most: int) -> list[dict[str, Any]]:
        """The most frequent rows of the view of that name."""
        return [row.asDict() for row in self.view_of_events("unknown_statements", [cluster]).limit(most).collect()]

    def view_of_events(self, name: str, clusters: Iterable[str]) -> DataFrame:
        """A view that is made of `events` alone, over the rows of some clusters."""
        (definition,) = (view for view in schemas.statements("views") if view.name == name)
        self.rows_of("events", clusters).createOrReplaceTempView("events")
        self.spark.sql(definition.sql)
        rows = self.spark.table(name)
        for view in (name, "events"):
            self.spark.catalog.dropTempView(view)
        return rows

    def table(self, name: str) -> DataFrame:
        """The table as it is now."""
        return self.spark.read.format("delta").load(self.path(name))

    def rows_at(self, table: str, clusters: Collection[str], version: int) -> pa.Table | None:
        """The rows of some clusters in an earlier version of a table; None where files of that version are gone."""
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        try:
            return self.table_of(table, here(reader.load(self.path(table)).filter(in_clusters(clusters))))
        except errors.PySparkException:
            return None

    def clusters(self) -> list[str]:
        """The clusters that `events` has rows of."""
        return sorted(row.cluster for row in self.table("events").select("cluster").distinct().collect())

    def rows_of(self, table: str, clusters: Iterable[str]) -> DataFrame:
        """The rows of some clusters; few are read once."""
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
        *,
        few_are: int = MOST_WITHOUT_SPARK,
    ) -> Frame:
        """The rows of some clusters for which a condition holds, few of them as an Arrow table. columns: None: all."""
        names = frozenset(clusters)
        few = table_schema(table).empty_table() if table in self._created else self._hold(table, names).few
        if few is not None:
            found: Frame = where(few, of_clusters(names) & condition)
        else:
            # of all columns Spark reads those that are asked for later, and of events of ten years those of few kinds sooner
            some = columns is not None and condition != EVERY and table not in LANDED
            known = self._found(table, names, columns or (), condition.arrow, few_are) if some else None
            found = where(self.rows_of(table, names), condition) if known is None else known
        return found if columns is None else select(found, *columns)

    def whole(self, table: str) -> Frame:
        """All rows of a table that has few."""
        held = self._hold(table, frozenset())
        return held.few if held.is_small_table and held.few is not None else self.table(table)

    def table_of(self, table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Rows as those of a table."""
        return pa.Table.from_pylist(list(rows), schema=table_schema(table))

    def _hold(self, table: str, names: frozenset[str]) -> Held:
        """The rows of these clusters, or of more."""
        with self._reading[table]:
            held = self._held.get(table)
            if held is None or not held.has(names):
                held = self._held[table] = self._read(table, names)
        return held

    def _read(self, table: str, names: frozenset[str]) -> Held:
        if self._small is not None and table not in self._many:
            # of events, which hold texts of any length, all are few or none
            found = self._small.rows(table, () if table in LANDED else names)
            if found is not None and found.rows is not None:
                return Held(self.spark, None if found.is_whole else names, found.rows)
            if found is not None:
                self._many.add(table)

        def rows() -> DataFrame:
            return self.table(table).filter(in_clusters(names))

        if table in self._many or table in LANDED or (few := where_few(rows())) is None:
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
        """Columns of the rows of some clusters that have one of some values, few, in a column.

        span: a column with a time, and between which moments it lies where it is not null.
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

    def records(
        self, clusters: Iterable[str], ids: Collection[str], columns: Sequence[str], beginnings: Iterable[datetime | None]
    ) -> pa.Table:
        """Columns of the events of some records, few, that prove what began at some moments; columns: record_id among them.

        Most are not older than the day before: of a long history those are looked through first, and all others for what is left.
        """
        names, left = sorted(clusters), set(ids)
        begun = min((one.replace(tzinfo=UTC) for one in beginnings if one is not None), default=None)
        spans = [None] if begun is None else [("ts", begun - timedelta(days=1), LATEST), None]
        found: list[pa.Table] = []
        for span in spans:
            if left or not found:
                found.append(self.rows_with("events", names, "record_id", left, columns, span=span))
                left.difference_update(found[-1]["record_id"].to_pylist())
        return pa.concat_tables(found)

    def rows_about(self, table: str, clusters: Iterable[str], column: str, values: Collection[Any]) -> Frame:
        """The rows of some clusters: of many at least those that have one of some values in a column."""
        names = sorted(clusters)
        if not self.has_few(table, names):
            where = pc.field(column).isin(pa.array(list(values)))
            if (found := self._found(table, names, list(schemas.columns(table)), where, MOST_WITHOUT_SPARK)) is not None:
                return found
        return self.read(table, names)

    def rows_that_have(self, table: str, clusters: Iterable[str], column: str, columns: Sequence[str]) -> pa.Table:
        """Columns of the rows of some clusters in which one is not null."""
        names, condition = sorted(clusters), is_known(column)
        if (found := self._found(table, names, columns, condition.arrow)) is not None:
            return found
        return fetched(self.read(table, names, condition, columns))

    def _found(
        self, table: str, clusters: Collection[str], columns: Sequence[str], where: Any, most: int = MOST_SCANNED
    ) -> pa.Table | None:
        """Of the rows of some clusters those for which something holds, as `SmallTables.rows_where` finds them."""
        if self._small is None:
            return None
        return self._small.rows_where(table, columns, pc.field("cluster").isin(sorted(clusters)) & where, most)

    def has_few(self, table: str, clusters: Iterable[str]) -> bool:
        """Whether the rows of some clusters, or of more, are known to be few."""
        names = frozenset(clusters)
        return table in self._created or self._hold(table, names).few is not None

    def has_none(self, table: str) -> bool:
        """Whether the table is known to hold no row."""
        return table in self._created

    def parsed(self, files: Sequence[Any], ruleset: RuleSet | None, days: Any, remote: Sequence[Any] = ()) -> Any:
        """Return what logs say (`events.Parsed`). files: `ingest.LogFile`; days, remote: as `events.land` has them."""
        from jobs.landing import events, ingest
        from parsers.events import Parser

        if not remote and events.are_few(files):
            return events.parsed_here(files, ruleset, days)
        parser, usable = Parser(ruleset), [file for file in files if file.usable]
        size = ingest.split_size(usable, self.spark.sparkContext.defaultParallelism)
        return events.OnWorkers(self.spark, ingest.splits(usable, parser, size), parser, days, remote)

    def summed(self, events: Any) -> dict[str, Any]:
        """Return, by cluster, the summary of events that an engine other than Spark reads later."""
        raise NotImplementedError

    def folded(self, keyed: Any, states: Any, facts: Mapping[str, Any], at_once: int | None) -> Any:
        """Fold partitions by an engine other than Spark, as `nights` does."""
        raise NotImplementedError

    def append(self, table: str, rows: DataFrame | pa.Table, after: int | None = None) -> None:
        """Adds rows; columns by name, those that they have not are null.

        after: only where nobody has appended since that commit of the table; else raises Conflict, and nothing is added.
        """
        self.guard()
        if isinstance(rows, pa.Table):
            if table not in LANDED:  # of these as many columns as are filled are written
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
        """Appends as a numbered transaction: Delta passes over one whose number another commit has taken, and over lower ones."""
        key = uuid.uuid4().hex
        numbered = writer.option("txnAppId", LANDING).option("txnVersion", after + 1).option("userMetadata", key)
        with refused(table):
            numbered.save(self.path(table))
        later = self._delta(table).history(NEWEST_COMMITS).where(F.col("version") > after).collect()
        mine = [row.version for row in later if row.userMetadata == key]
        if not mine:
            raise Conflict.on(table)
        if any(row.version < mine[0] and row.operation in ADDING for row in later):
            # of a version that does not number its transactions: what it has added may stand here, too
            self._remove_doubled(table)

    def looked_at(self, table: str) -> int:
        """Number of the last commit of a table; what is read of it from now on is at least of that commit."""
        version = self.version(table)
        if table not in self._created or (version and not self._is_empty_now(table)):
            self._is_written(table)
        return version

    def _is_empty_now(self, table: str) -> bool:
        found = None if self._small is None else self._small.rows(table)
        if found is not None:
            return found.rows is not None and not found.rows.num_rows
        return self.table(table).isEmpty()

    def forget(self, table: str) -> None:
        """What another run has written is read again."""
        self._is_written(table)

    def replace(self, table: str, clusters: Iterable[str], rows: Frame) -> None:
        """Replaces all rows of some clusters, as `replace_where`."""
        self.replace_where(table, clusters, EVERY, rows)

    def replace_where(self, table: str, clusters: Iterable[str], condition: Where, rows: Frame) -> None:
        """Puts rows in the place of those of some clusters for which a condition holds, in one commit; in none where few are the same.

        The condition need not hold for the new ones. Columns by name, those that they have not are null.
        """
        self.guard()
        names = frozenset(clusters)
        is_new = table in self._created
        before = None if is_new and self._small is None else self._hold(table, names)
        few: Any
        if not isinstance(rows, pa.Table):
            new = _by_name(table, rows)
            few = None if table in self._many else where_few(new)
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
        """Puts rows in the place of those of some partitions that are not settled, and of all of clusters that are told anew, in one commit.

        clusters: all others. partitions: PARTITION_KEY of some of theirs. Columns by name, those that they have not are null.
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
        """The same without Spark, where these rows are few, however many others there are. Whether the table is as it should be now."""
        if self._small is None or (keys := few_of(partitions, MOST_WITHOUT_SPARK)) is None:
            return False
        if (some := few_of(rows, MOST_WITHOUT_SPARK)) is None:
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
        # topic by topic: most are passed on as they are
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
        """Puts rows in the place of some of a small table; whether it is as it should be now.

        held: `Held`, all of its rows. replaced: which of them go, all of names. keeps_settled: none of them is settled.
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
        # whoever was reading it meanwhile may have read what was there before
        with self._reading[table]:
            self._created.discard(table)
            self._held.pop(table, None)

    def delete(self, table: str, condition: Where) -> None:
        """Removes the rows for which a condition holds."""
        self.guard()
        held = self._small_table(table)
        if held is None or not self._is_deleted_small(table, held, met(held.few, condition)):
            with refused(table):
                self._delta(table).delete(condition.sql)
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
        with refused(table):
            self._merged(table, F.broadcast(in_spark(self.spark, keys)), names, condition).whenMatchedDelete().execute()
        self._is_written(table)

    def set_matching(self, table: str, condition: Where, values: Frame, keys: Sequence[str]) -> None:
        """Gives rows the values of those with the same keys. condition: what holds for them at any rate, so that files are skipped."""
        self.guard()
        names = values.column_names if isinstance(values, pa.Table) else values.columns
        others = [name for name in names if name not in keys]
        is_small = isinstance(values, pa.Table) and self._small_table(table) is not None
        if not is_small or self._small is None or not self._small.set_matching(table, values, keys, others):
            told = {name: F.col(f"other_{name}") for name in others}
            with refused(table):
                self._merged(table, values, keys, condition).whenMatchedUpdate(set=told).execute()
        self._is_written(table)

    def _merged(self, table: str, rows: Frame, keys: Sequence[str], condition: Where) -> Any:
        """A merge of rows, whose columns are called other_.., with those of a table that have the same keys and for which a condition holds."""
        others = in_spark(self.spark, rows)
        others = others.toDF(*(f"other_{name}" for name in others.columns))
        same = " AND ".join([*(f"{name} = other_{name}" for name in keys), f"({condition.sql})"])
        return self._delta(table).merge(others, same)

    def _is_deleted_small(self, table: str, held: Held, gone: Any) -> bool:
        """Removes rows of a small table; whether they are gone now. gone: which."""
        assert self._small is not None
        assert held.few is not None
        if table not in LANDED:
            clusters = frozenset(held.few.filter(gone)["cluster"].to_pylist())
            return self._is_replaced_small(table, held, clusters, gone, held.few.slice(0, 0), keeps_settled=False)
        # as rows that are deleted, not as files that are replaced: what comes and goes there is read as changes
        keys = list(KEYS[table])
        if not self._small.delete_matching(table, distinct(held.few.filter(gone).select(keys)), keys):
            return False
        self._is_written(table)
        return True

    def _small_table(self, table: str) -> Held | None:
        """All rows of a table, where they are few and in a folder of this machine."""
        if self._small is None or table in self._many:
            return None
        held = self._hold(table, frozenset())
        return held if held.is_small_table else None

    def _delta(self, table: str):  # type: ignore[no-untyped-def]  # delta brings no types
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self.spark, self.path(table))

    def version(self, table: str) -> int:
        """Number of the table's last commit."""
        from delta.tables import DeltaTable

        if self._small is not None and (version := self._small.version(table)) is not None:
            return version
        (last,) = DeltaTable.forPath(self.spark, self.path(table)).history(1).select("version").collect()
        return last.version

    def changes(self, table: str, after: int) -> Changes | None:
        """What versions after one have changed, by the table's change data feed.

        None where it cannot be told any more: commits or files are gone (Delta keeps them for some days), or the feed was not on then.
        """
        little = None if self._small is None else self._small.changes(table, after)
        if little is not None:
            rows, version = little
            kinds = set(rows["_change_type"].to_pylist())
        else:
            told = self._change_feed(table, after)
            if told is None:
                return None
            rows, kinds, version = told
        inserted = where(rows, one_of("_change_type", ("insert", "update_postimage")))
        deleted = where(rows, one_of("_change_type", ("delete", "update_preimage")))
        if not kinds & {"delete", "update_preimage"}:
            return Changes(inserted, None, version)
        return Changes(_without(inserted, deleted, "last", ">"), _without(deleted, inserted, "first", "<"), version)

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


def _without(some: Frame, others: Frame, which: str, compared: str) -> Frame:
    """Rows less those that came and went between: those of which the first or last version that others have compares so with their own."""
    if isinstance(some, pa.Table) and isinstance(others, pa.Table):
        versions = {tuple(row[name] for name in EVENT): row[which] for row in extremes(others, EVENT, VERSION)}
        own = zip(*(some[name].to_pylist() for name in (*EVENT, VERSION)), strict=True)
        compare = {">": operator.gt, "<": operator.lt}[compared]
        stays = [key not in versions or not compare(versions[key], version) for *names, version in own for key in [tuple(names)]]
        return some.filter(pa.array(stays, pa.bool_()))
    keys = others.select(*[F.col(name).alias(f"other_{name}") for name in (*EVENT, VERSION)])
    same = " AND ".join(f"{name} = other_{name}" for name in EVENT)
    return some.join(keys, F.expr(f"{same} AND other_{VERSION} {compared} {VERSION}"), "left_anti")
