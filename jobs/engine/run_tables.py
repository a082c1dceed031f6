"""The tables of one run, whichever engine reads and writes them: what is opened in which order, what is
rebuilt, and what a stage may ask.

`LocalStore` is them on this machine, `Store` on Spark.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from jobs.batches import rereading
from jobs.batches.types import table_schema
from jobs.engine import queries, upgrade
from jobs.engine.relation import Relation
from jobs.engine.rows import (
    EVERY,
    Fold,
    Frame,
    Where,
    distinct,
    having,
    is_empty,
    is_null,
    is_true,
    lacking,
    of_clusters,
    one_of,
    select,
    to_table,
    where,
)
from jobs.errors import UsageError
from jobs.location import root_of
from jobs.progress import warn
from jobs.timelines import ClusterEvidence, ClusterFacts
from jobs.timelines.event import CHECKPOINT
from parsers.events import first_bytes
from parsers.rules import RuleSet, built_in

# the largest table: it holds all history and the text of its lines, so queries name the columns that they
# need
LANDED = ("events", "passed_over")
# tables with a row for each record, partition or topic; all others have some for each cluster, broker or run
GROWING = (
    *LANDED,
    "partition_timeline",
    "replica_timeline",
    "reassignments",
    "partition_states",
    "durability",
    "topic_assignments",
)
# columns that identify a row of `events`
EVENT = ("record_id", "item")
# columns that identify a partition of any incarnation
PARTITION_KEY = ("cluster", "topic", "partition")
# condition for the rows that the next run replaces, in tables that are partitioned by it
UNSETTLED = ~is_true("settled")
# events without those from outputs of Kafka's tools (checkpoints)
OF_LOGS = is_null("event_type") | ~one_of("event_type", [CHECKPOINT])
# tables without duplicate rows -> column of `cluster_facts` with the version that the last finished run wrote
EXAMINED = {"events": "events_version", "passed_over": "passed_over_version"}
# columns that are unique in a table
KEYS = {"events": EVENT, "passed_over": ("cluster", "record")}
# columns that the view `unknown_statements` reads
UNRECOGNISED = (
    "cluster",
    "record_id",
    "record_no",
    "ts",
    "logger",
    "event_type",
    "drifted",
    "statement",
    "raw",
)
# later than any record
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
# column of `Changes`: the version of the table that added or removed a row
VERSION = "_commit_version"


def is_first() -> Where:
    """Return the condition for the first row of each record."""
    return Where("item = 0", pc.field("item") == 0)


def words(sql: str) -> set[str]:
    """Return the words of a SQL statement that may be names, in lower case."""
    return set(re.findall(r"\w+", sql.lower()))


@dataclass(frozen=True)
class Changes:
    """Changes by later versions of a table.

    inserted, deleted: rows with VERSION; a changed row is in both. deleted is None where none is.

    version: the newest one.
    """

    inserted: Frame
    deleted: Frame | None
    version: int


def changes_of(rows: pa.Table, version: int) -> Changes:
    """Return what a change data feed holds. version: the newest one."""
    every = Relation.of(rows)
    inserted = every.filter("_change_type IN ('insert', 'update_postimage')")
    deleted = every.filter("_change_type IN ('delete', 'update_preimage')")
    if deleted.is_empty():
        return Changes(inserted, None, version)
    # without rows that were added and removed in between
    added = inserted.outlasting(deleted, EVENT, f"o.{VERSION} > r.{VERSION}")
    return Changes(added, deleted.outlasting(inserted, EVENT, f"o.{VERSION} < r.{VERSION}"), version)


class RunTables(ABC):
    """The tables under one root."""

    # Spark's session; None where this machine computes
    spark: Any = None

    def __init__(self, root: str | Path, guard: Callable[[], None] = lambda: None) -> None:
        """guard: raises where this run must not write any more."""
        self.guard = guard
        self.root = root_of(root)
        # changes made by opening the tables, and by other rules
        self.upgrade = upgrade.Plan()
        self.rules_changed = rereading.Reread(0, 0)
        # clusters in whose events this run or an interrupted one has changed something by other rules
        self._stale: set[str] = set()
        # tables created in this run: they are empty and need not be read
        self._created: set[str] = set()

    # -- queries of the stages -------------------------------------------------------------------------------

    @abstractmethod
    def exists(self, table: str) -> bool:
        """Return whether the table has been created."""

    @abstractmethod
    def version(self, table: str) -> int:
        """Return the number of the table's last commit."""

    @abstractmethod
    def versions(self) -> dict[str, int]:
        """Return table -> number of its last commit, where that is known without a query."""

    @abstractmethod
    def changes(self, table: str, after: int) -> Changes | None:
        """Return what versions after one have changed, by the table's change data feed.

        None where it is unknown: commits or files were removed (Delta keeps them for some days), or the feed
        was not on then.
        """

    @abstractmethod
    def clusters(self) -> list[str]:
        """Return the clusters that `events` has rows of."""

    @abstractmethod
    def read(
        self,
        table: str,
        clusters: Iterable[str],
        condition: Where = EVERY,
        columns: Sequence[str] | None = None,
    ) -> Frame:
        """Return the rows of some clusters for which a condition holds. columns: None: all."""

    @abstractmethod
    def whole(self, table: str) -> Frame:
        """Return all rows of a table that does not grow with the logs."""

    @abstractmethod
    def rows_at(self, table: str, clusters: Collection[str], version: int) -> pa.Table | None:
        """Return the rows of some clusters in an earlier version of a table.

        None where files of that version are gone.
        """

    @abstractmethod
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

    @abstractmethod
    def rows_about(
        self,
        table: str,
        clusters: Iterable[str],
        column: str,
        values: Frame,
        columns: Sequence[str] | None = None,
    ) -> Frame:
        """Return at least those rows of some clusters whose value of a column is among those of others.

        columns: None: all.
        """

    @abstractmethod
    def rows_that_have(
        self, table: str, clusters: Iterable[str], column: str, columns: Sequence[str]
    ) -> pa.Table:
        """Return the columns of the rows of some clusters in which one is not null."""

    @abstractmethod
    def append(self, table: str, rows: Any, after: int | None = None) -> None:
        """Add rows; columns are matched by name, and missing ones are null.

        after: only where nobody has appended since that commit of the table; else raises Conflict, and
        nothing is added.
        """

    @abstractmethod
    def replace_where(self, table: str, clusters: Iterable[str], condition: Where, rows: Frame) -> None:
        """Replace the rows of some clusters for which a condition holds, in one commit.

        Write nothing where the rows are the same.

        The condition need not hold for the new rows. Columns are matched by name; missing ones are null.
        """

    @abstractmethod
    def replace_partitions(
        self, table: str, clusters: Collection[str], rebuilt: Collection[str], partitions: Frame, rows: Frame
    ) -> None:
        """Replace the rows of some partitions that are not settled, and all rows of clusters that are
        rebuilt, in one commit.

        clusters: those that are not rebuilt. partitions: PARTITION_KEY of some of theirs. Columns are matched
        by name; missing ones are null.
        """

    @abstractmethod
    def delete(self, table: str, condition: Where) -> None:
        """Remove the rows for which a condition holds."""

    @abstractmethod
    def delete_matching(self, table: str, condition: Where, keys: Frame) -> None:
        """Remove the rows for which a condition holds and whose values are among those of keys."""

    @abstractmethod
    def set_matching(self, table: str, condition: Where, values: Frame, keys: Sequence[str]) -> None:
        """Give rows the values of those with the same keys.

        condition: what holds for them at any rate, so that files are skipped.
        """

    @abstractmethod
    def parsed(
        self, files: Sequence[Any], ruleset: RuleSet | None, days: Any, remote: Sequence[Any] = ()
    ) -> Any:
        """Return what logs say (`new_records.Parsed`).

        files: `ingest.LogFile`; days, remote: as `new_records.land` has them.
        """

    @abstractmethod
    def summed(self, events: Frame) -> Mapping[str, ClusterEvidence]:
        """Return, by cluster, the summary of its events. in: cluster and EVENT_COLUMNS."""

    @abstractmethod
    def folded(
        self, keyed: Frame, states: Frame, facts: Mapping[str, ClusterFacts], at_once: int | None
    ) -> Frame:
        """Fold partitions.

        keyed: events with their partition; states: what is kept of partitions; both have columns of
        `folding.INPUT`.

        facts: by cluster. at_once: number of events of a partition that are folded in one piece; None: all.
        out: `folding.OUTPUT`, computed once.
        """

    @abstractmethod
    def map_groups(self, one: Frame, other: Frame, by: Sequence[str], fold: Fold, schema: pa.Schema) -> Frame:
        """Return what `rows.map_groups` returns, computed once, by all cores where the rows are many.

        fold: a function of a module, or a `partial` of one: other processes import it.
        """

    # -- operations of one engine ----------------------------------------------------------------------------

    @abstractmethod
    def _present(self, name: str) -> upgrade.Present | None:
        """Return what a table is like; None where there is none."""

    @abstractmethod
    def _create(self, definition: schemas.Statement) -> None:
        """Create an empty table."""

    @abstractmethod
    def _set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Give a table properties."""

    @abstractmethod
    def _convert(self, plan: upgrade.Plan, ruleset: RuleSet) -> None:
        """Give tables of an earlier version the columns of this one."""

    @abstractmethod
    def _examined_versions(self, names: Sequence[str]) -> Mapping[str, Any]:
        """Return the newest value of some columns of `cluster_facts`."""

    @abstractmethod
    def _count_doubled(self, table: str) -> int:
        """Return how many rows have the same KEYS as another one."""

    @abstractmethod
    def _leave_one(self, table: str) -> None:
        """Leave one of rows that have the same KEYS, in one commit."""

    @abstractmethod
    def _is_empty_now(self, table: str) -> bool:
        """Return whether a table has no row."""

    @abstractmethod
    def forget(self, table: str) -> None:
        """Forget what was read of a table."""

    @abstractmethod
    def _loggers(self, table: str) -> list[str | None]:
        """Return the loggers of a table."""

    @abstractmethod
    def _count_where(self, table: str, condition: Where) -> int:
        """Return how many rows a condition holds for."""

    @abstractmethod
    def _changes(self, condition: Where, ruleset: RuleSet) -> Frame:
        """Return what rules change in rows of `events`, as `rereading.changes` returns it."""

    @abstractmethod
    def _merge_changes(self, changes: Frame) -> None:
        """Write rows with the columns of `rereading.CHANGES` in one commit."""

    # -- opening ---------------------------------------------------------------------------------------------

    def open(self, ruleset: RuleSet | None = None, *, rebuilds: bool = True) -> None:
        """Create missing tables and convert those of an earlier version.

        All are inspected before the first change.

        ruleset: the rules that records are read with again where an earlier version gave them other ids.
        rebuilds: whether the caller rebuilds what is derived from `events` and then calls `rebuilt`. Raises
        UsageError, and nothing is changed, where tables cannot be converted, or would have to be rebuilt and
        are not. Nothing is ever dropped but tables that are derived from others.
        """
        definitions = {one.name: one for one in schemas.statements("tables")}
        with ThreadPoolExecutor(4) as pool:
            found = dict(zip(definitions, pool.map(self._present, definitions), strict=True))
            there = {name: one for name, one in found.items() if one is not None}
            plan = self.upgrade = upgrade.decide(there, self.root)
            self._refuse(plan, there)
            if plan.rebuilds and not rebuilds:
                raise UsageError(
                    f"The tables under {self.root} have to be rebuilt from events, by an earlier version or an interrupted run. "
                    "Run `kafka-audit audit` first"
                )
            if plan.rebuilds:
                self._begin_rebuilding(there)
            self._convert(plan, ruleset or built_in())
            list(
                pool.map(
                    self._create, (definitions[name] for name in plan.created if name not in self._created)
                )
            )
            if rebuilds:
                self._remove_doubled_rows(there)
            list(pool.map(lambda name: self._set_properties(name, plan.stamped[name]), plan.stamped))

    def _refuse(self, plan: upgrade.Plan, there: Mapping[str, upgrade.Present]) -> None:  # noqa: B027  # an engine that does all refuses nothing
        """Raise where this engine cannot do what opening the tables takes, before anything is changed."""

    def path(self, table: str) -> str:
        """Return where a table is."""
        return f"{self.root}/{table}"

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table that is there."""
        return table_schema(table)

    def _remove_doubled_rows(self, there: Collection[str]) -> None:
        """Remove duplicate rows from tables that were written to after the last finished run.

        there: tables that this run has not created.
        """
        names = {
            table: name for table, name in EXAMINED.items() if table in there and table not in self._created
        }
        if not names:
            return
        known = self._examined_versions(list(names.values())) if upgrade.FACTS in there else {}
        for table, name in names.items():
            if self.version(table) != known.get(name):
                self._remove_doubled(table)

    def _remove_doubled(self, table: str) -> None:
        """Remove duplicates of KEYS in one commit, warn, and mark what is derived from them to be rebuilt."""
        doubled = self._count_doubled(table)
        if not doubled:
            return
        if not self.is_rebuilding:
            self.upgrade = replace(self.upgrade, rebuilds=True)
            self._begin_rebuilding([upgrade.FACTS])
        self._leave_one(table)
        self.forget(table)
        self.upgrade = replace(self.upgrade, doubled={**self.upgrade.doubled, table: doubled})
        warn(
            f"{doubled:,} rows of {table} stood twice, as two runs at once or an earlier version wrote them; they were removed"
        )

    @property
    def is_rebuilding(self) -> bool:
        """Return whether everything that is derived from `events` has to be rebuilt, of all clusters."""
        return self.upgrade.rebuilds

    def rebuilt(self) -> None:
        """Note that everything that is derived from `events` was rebuilt: later runs continue from it."""
        if self.is_rebuilding:
            self._set_properties(upgrade.FACTS, {upgrade.REBUILDING: "false"})
        if self._stale:
            self._set_properties(upgrade.FACTS, {upgrade.STALE: "[]"})
            self._stale = set()

    def stale_clusters(self) -> set[str]:
        """Return the clusters of which what is derived from `events` has to be rebuilt, though nothing new of
        them may be read.
        """
        return set(self.clusters()) if self.is_rebuilding else self._stale

    def _begin_rebuilding(self, there: Collection[str]) -> None:
        """Note that no later run may continue from what is derived from `events` so far."""
        if upgrade.FACTS in there:
            self._set_properties(upgrade.FACTS, {upgrade.REBUILDING: "true"})
            self.delete(upgrade.FACTS, EVERY)
        else:
            (definition,) = (one for one in schemas.statements("tables") if one.name == upgrade.FACTS)
            self._create(definition)
            self._set_properties(upgrade.FACTS, {upgrade.REBUILDING: "true"})

    def apply_rules(self, ruleset: RuleSet) -> None:
        """Read the records of `events` again that these rules read in another way than those before.

        The result is `rules_changed`.

        The rules are noted last, so that an interrupted run repeats the step; it finds nothing to change in
        changed records.
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
        self._set_properties(
            upgrade.FACTS, {upgrade.SKIPPED: json.dumps(skipped), upgrade.RULES: json.dumps(now)}
        )

    def _noted(self) -> Mapping[str, str]:
        """Return the noted rules that `events` was read with."""
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
        changes = self._changes(where_, ruleset) if records else None
        ids, changed, whole = set[str](), set[str](), set[str]()
        if changes is not None:
            found = to_table(
                distinct(select(changes, "cluster", "record_id", rereading.FORMER_TYPE))
            ).to_pylist()
            ids = {row["record_id"] for row in found}
            changed = {row["cluster"] for row in found}
            # histories that depend on the former reading of a record are rebuilt as a whole
            whole = {row["cluster"] for row in found if row[rereading.FORMER_TYPE] is not None}
        if rereading.versions(ruleset)[rereading.KEEPS] != before.get(rereading.KEEPS):
            whole.update(self.clusters())
        if stale := self._stale | changed | whole:
            self._stale = stale
            self._set_properties(upgrade.FACTS, {upgrade.STALE: json.dumps(sorted(stale))})
        if whole:
            self.delete(upgrade.FACTS, of_clusters(whole))
        if changes is not None and ids:
            passed = rereading.passed_over(
                to_table(where(changes, one_of(rereading.CHANGE, [rereading.OUT_OF_SCOPE])))
            )
            if passed.num_rows:
                known = to_table(
                    self.read(
                        "passed_over", set(passed["cluster"].to_pylist()), EVERY, list(KEYS["passed_over"])
                    )
                )
                if not is_empty(new := lacking(passed, known, KEYS["passed_over"])):
                    self.append("passed_over", new)
            self.guard()
            self._merge_changes(where(changes, ~one_of(rereading.CHANGE, [rereading.OUT_OF_SCOPE])))
            self.forget("events")
        return records, len(ids)

    def drop_skipped(self, clusters: Collection[str], ruleset: RuleSet) -> None:
        """Remove from `passed_over` the records that are in `events` now: earlier rules left their loggers
        out of scope.
        """
        skipped = json.loads(self._noted().get(upgrade.SKIPPED, "[]"))
        if not skipped:
            return
        counted = to_table(
            self.read("passed_over", clusters, one_of("logger", skipped), list(KEYS["passed_over"]))
        )
        if counted.num_rows:
            full = {ruleset.full_name(logger, "") for logger in skipped}.union(skipped)
            columns = ["cluster", "record_id"]
            landed = to_table(self.read("events", clusters, is_first() & one_of("logger", full), columns))
            numbers = [first_bytes(bytes.fromhex(one)) for one in landed["record_id"].to_pylist()]
            both = pa.table({"cluster": landed["cluster"], "record": pa.array(numbers, pa.int64())})
            both_tables = to_table(having(counted, both, KEYS["passed_over"]))
            if both_tables.num_rows:
                # their hours are counted again
                self.delete(upgrade.FACTS, of_clusters(set(both_tables["cluster"].to_pylist())))
                self.delete_matching("passed_over", one_of("logger", skipped), both_tables)
        if not self._count_where("passed_over", one_of("logger", skipped)):
            self._set_properties(upgrade.FACTS, {upgrade.SKIPPED: "[]"})

    def table_of(self, table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Return rows as those of a table."""
        return pa.Table.from_pylist(list(rows), schema=table_schema(table))

    def records(
        self,
        clusters: Iterable[str],
        ids: Collection[str],
        columns: Sequence[str],
        beginnings: Iterable[datetime | None],
    ) -> pa.Table:
        """Return the columns of the events of a few records that prove what began at some moments.

        columns: record_id among them.

        Most are at most a day older. In a long history that day is searched first, and the rest for the
        remaining records.
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

    def unknown_statements(self, cluster: str, most: int) -> list[dict[str, Any]]:
        """Return the most frequent rows of the view of that name; moments are in UTC without a zone."""
        (view,) = (one for one in schemas.statements("views") if one.name == "unknown_statements")
        rows = self.read("events", [cluster], is_null("event_type"), UNRECOGNISED)
        over = queries.over(self.spark, [rows])
        over.view("events", rows)
        counted = view.sql.partition(" AS\n")[2]
        found = over.rows(f"SELECT * FROM (\n{counted}\n) ORDER BY records DESC, masked LIMIT {most}")
        return [
            {name: v.replace(tzinfo=None) if isinstance(v, datetime) else v for name, v in row.items()}
            for row in found
        ]

    def has_none(self, table: str) -> bool:
        """Return whether the table is known to hold no row."""
        return table in self._created

    def looked_at(self, table: str) -> int:
        """Return the number of the last commit of a table; later reads see at least that commit."""
        version = self.version(table)
        if table not in self._created or (version and not self._is_empty_now(table)):
            self.forget(table)
        return version

    def replace(self, table: str, clusters: Iterable[str], rows: Frame) -> None:
        """Replace all rows of some clusters, as `replace_where`."""
        self.replace_where(table, clusters, EVERY, rows)
