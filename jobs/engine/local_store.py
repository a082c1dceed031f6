"""The tables of a folder, read and written by this machine without Spark: delta-rs commits, DuckDB reads.

All rows are relations.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import schemas
from jobs.batches import rereading
from jobs.batches.types import table_schema
from jobs.engine import NotReadable, relation, upgrade
from jobs.engine.choice import OnlySpark
from jobs.engine.database import SPILL
from jobs.engine.delta_rs import ROW_GROUP, DeltaRsTables, aligned, files_of, parts
from jobs.engine.estimate import Estimate
from jobs.engine.files import FOLDER, DataFile, FileWriter
from jobs.engine.literals import moment
from jobs.engine.local import LocalTables
from jobs.engine.pool import Pool
from jobs.engine.relation import Relation
from jobs.engine.rows import (
    EVERY,
    Fold,
    Frame,
    Where,
    differing,
    in_clusters,
    is_empty,
    is_known,
    of_clusters,
    where,
)
from jobs.engine.run_tables import (
    EVENT,
    GROWING,
    KEYS,
    LANDED,
    PARTITION_KEY,
    UNSETTLED,
    Changes,
    RunTables,
    changes_of,
)
from jobs.errors import UsageError
from jobs.location import local_folder
from jobs.progress import warn
from jobs.timelines import ClusterEvidence, ClusterFacts
from parsers.events import EVENTS, Parser
from parsers.rules import RuleSet


class LocalStore(RunTables):
    """The tables of a run.

    Raises OnlySpark where delta-rs does not reach the folder, UsageError where it cannot write a table of it.
    """

    def __init__(self, root: str | Path, guard: Callable[[], None] = lambda: None) -> None:
        """guard: as `RunTables` has it."""
        super().__init__(root, guard)
        folder = local_folder(self.root)
        found = DeltaRsTables.of(folder)
        if found is None:
            raise OnlySpark(f"--tables {root}: the local engine does not write to folders with such a name")
        self._delta_rs = found
        # all rows of tables that do not grow with the logs, as this run has last read them
        self._bounded: dict[str, Relation] = {}
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.pool = Pool()
        self._has_folded = False
        # called where a run will take long
        self.announce: Callable[[str], None] = warn

    def close(self) -> None:
        """End the processes that have computed for this run, and remove their files."""
        self.pool.close()
        relation.forget(str(self._delta_rs.folder))
        shutil.rmtree(self._delta_rs.folder / SPILL, ignore_errors=True)
        if self._has_folded:
            shutil.rmtree(self._delta_rs.folder / "events" / FOLDER, ignore_errors=True)

    def _tables(self) -> LocalTables:
        """Return the tables as they are now."""
        return LocalTables(self.root)

    def exists(self, table: str) -> bool:
        """Return whether the table has been created."""
        return self._delta_rs.version(table) is not None

    def open(self, ruleset: RuleSet | None = None, *, rebuilds: bool = True) -> None:
        """Create missing tables.

        Raises OnlySpark, and nothing is changed, where it cannot write those that are there.
        """
        try:
            self._tables().check()
        except NotReadable as reason:
            raise OnlySpark(f"{reason}, which the local engine does not read") from None
        super().open(ruleset, rebuilds=rebuilds)

    def _refuse(self, plan: upgrade.Plan, there: Mapping[str, upgrade.Present]) -> None:
        if plan.reread or plan.emptied or plan.added:
            if plan.older:
                raise OnlySpark(
                    f"the tables under {self.root} are of version {plan.older[0]}, which the local engine does not convert to "
                    f"version {schemas.TABLES_VERSION}"
                )
            lacking = {name: one.missing(name) for name, one in there.items()}
            table = next((name for name, columns in lacking.items() if columns), None)
            if table is not None:
                listed = ", ".join(lacking[table])
                raise OnlySpark(
                    f"table {table} under {self.root} lacks the column {listed}, which the local engine does not add"
                )
            raise OnlySpark(
                f"tables under {self.root} have other columns, which the local engine does not convert"
            )
        for name in there:
            if not self._delta_rs.is_writable(name):
                raise OnlySpark(
                    f"table {name} under {self.root} has features of Delta that the local engine does not write"
                )

    def _convert(self, plan: upgrade.Plan, ruleset: RuleSet) -> None:
        """Convert nothing: `_refuse` has raised where that would be needed."""

    def _present(self, name: str) -> upgrade.Present | None:
        return self._delta_rs.present(name)

    def _create(self, definition: schemas.Statement) -> None:
        if not self._delta_rs.create_as_defined(definition.name):
            raise self._not_written(definition.name)
        self._created.add(definition.name)

    def _set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        if not self._delta_rs.set_properties(name, properties):
            raise self._not_written(name)

    def _examined_versions(self, names: Sequence[str]) -> dict[str, Any]:
        listed = ", ".join(f"max({name}) AS {name}" for name in names)
        (known,) = self._tables().query(f"SELECT {listed} FROM {upgrade.FACTS}").rows()
        return known

    def _numbered(self, table: str) -> str:
        """Return a query for the rows of a table with nth, their number among those that have the same KEYS."""
        keys = ", ".join(KEYS[table])
        return f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {keys}) AS nth FROM {table}"

    def _count_doubled(self, table: str) -> int:
        return (
            self._tables()
            .query(f"SELECT count(*) AS rows FROM ({self._numbered(table)}) WHERE nth > 1")
            .rows()[0]["rows"]
        )

    def _leave_one(self, table: str) -> None:
        columns = ", ".join(table_schema(table).names)
        once = self._tables().query(f"SELECT {columns} FROM ({self._numbered(table)}) WHERE nth = 1")
        rows = pa.Table.from_batches(once.batches, once.schema).cast(table_schema(table))
        if not self._delta_rs.overwrite(table, rows):
            raise self._not_written(table)

    def forget(self, table: str) -> None:
        # a reader may have read the rows from before this commit
        with self._reading[table]:
            self._created.discard(table)
            self._bounded.pop(table, None)

    def _is_empty_now(self, table: str) -> bool:
        return self._stored(table, EVERY).is_empty()

    def _not_written(self, table: str) -> UsageError:
        return UsageError(
            f"Table {table} under {self.root} cannot be written by the local engine; use --engine spark"
        )

    # -- rules that have changed -----------------------------------------------------------------------------

    def _loggers(self, table: str) -> list[str | None]:
        return [row["logger"] for row in self._tables().query(f"SELECT DISTINCT logger FROM {table}").rows()]

    def _count_where(self, table: str, condition: Where) -> int:
        return (
            self._tables()
            .query(f"SELECT count(*) AS rows FROM {table} WHERE {condition.sql}")
            .rows()[0]["rows"]
        )

    def _changes(self, condition: Where, ruleset: RuleSet) -> pa.Table:
        columns, order = ", ".join(EVENTS.names), ", ".join(rereading.IN_ORDER)
        rows = self._tables().query(f"SELECT {columns} FROM events WHERE {condition.sql} ORDER BY {order}")
        return pa.Table.from_batches(rereading.changes(rows.batches, ruleset), rereading.CHANGES)

    def _merge_changes(self, changes: Any) -> None:
        if not self._delta_rs.merge(
            "events",
            Relation.of(changes).table(),
            EVENT,
            EVENTS.names,
            f"v.{rereading.CHANGE} = '{rereading.REMOVED}'",
        ):
            raise self._not_written("events")

    # -- reading ---------------------------------------------------------------------------------------------

    def whole(self, table: str) -> Relation:
        """Return all rows of a table that does not grow with the logs."""
        if table in self._created:
            return Relation.of(table_schema(table).empty_table())
        with self._reading[table]:
            if table not in self._bounded:
                self._bounded[table] = Relation.of(self._stored(table, EVERY).table())
            return self._bounded[table]

    def rows_at(self, table: str, clusters: Collection[str], version: int) -> pa.Table | None:
        """Return the rows of some clusters in an earlier version of a table.

        None where files of that version are gone.
        """
        found = self._delta_rs.rows_at(table, version)
        return None if found is None else where(aligned(found, table_schema(table)), of_clusters(clusters))

    def clusters(self) -> list[str]:
        """Return the clusters that `events` has rows of."""
        return sorted(
            row["cluster"] for row in self._tables().query("SELECT DISTINCT cluster FROM events").rows()
        )

    def read(
        self,
        table: str,
        clusters: Iterable[str],
        condition: Where = EVERY,
        columns: Sequence[str] | None = None,
    ) -> Relation:
        """Return the rows of some clusters for which a condition holds, as the table is now.

        columns: None: all.
        """
        names = frozenset(clusters)
        every = table_schema(table)
        if table in self._created or not names:
            found = Relation.of(every.empty_table())
        else:
            of_these = of_clusters(names) & condition
            found = (
                self._stored(table, of_these) if table in GROWING else self.whole(table).filter(of_these.sql)
            )
        return found.select(*(every.names if columns is None else columns))

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
        """Columns of the rows of some clusters that have one of some values in a column.

        span: as `RunTables.rows_with` has it.
        """
        condition = in_clusters(clusters)
        if span is not None:
            name, first, final = span
            between = (
                ""
                if first is None or final is None
                else f" OR {name} BETWEEN {moment(first)} AND {moment(final)}"
            )
            condition += f" AND ({name} IS NULL{between})"
        return self._matching(
            table, columns, column, pa.array(list(values), table_schema(table).field(column).type), condition
        )

    def _matching(
        self, table: str, columns: Sequence[str], column: str, values: pa.Array, condition: str
    ) -> pa.Table:
        kinds = table_schema(table)
        schema = pa.schema([kinds.field(name) for name in columns])
        if table in self._created or not len(values):
            return schema.empty_table()
        return self._tables().matching(table, columns, column, values, condition).cast(schema)

    def rows_about(
        self,
        table: str,
        clusters: Iterable[str],
        column: str,
        values: Frame,
        columns: Sequence[str] | None = None,
    ) -> Relation:
        """Return the rows of some clusters whose value of a column is among those of others."""
        return self.read(table, clusters, EVERY, columns).matched(Relation.of(values), [column], "SEMI")

    def rows_that_have(
        self, table: str, clusters: Iterable[str], column: str, columns: Sequence[str]
    ) -> pa.Table:
        """Return the columns of the rows of some clusters in which one is not null."""
        return self.read(table, clusters, is_known(column), columns).table()

    def changes(self, table: str, after: int) -> Changes | None:
        """As `RunTables.changes`."""
        found = self._delta_rs.changes(table, after)
        return None if found is None else changes_of(*found)

    def versions(self) -> dict[str, int]:
        """Table -> number of its last commit."""
        found = {one.name: self._delta_rs.version(one.name) for one in schemas.statements("tables")}
        return {name: version for name, version in found.items() if version is not None}

    def version(self, table: str) -> int:
        """Return the number of the table's last commit."""
        version = self._delta_rs.version(table)
        assert version is not None
        return version

    # -- writing ---------------------------------------------------------------------------------------------

    def parsed(
        self, files: Sequence[Any], ruleset: RuleSet | None, days: Any, remote: Sequence[Any] = ()
    ) -> Any:
        """As `RunTables.parsed`.

        Short logs are parsed in this process, because a pool takes longer to start.
        """
        from jobs.engine import in_process
        from jobs.files import ingest

        usable = [file for file in files if file.usable]
        if in_process.are_small(usable):
            return in_process.parsed_in_process(usable, ruleset, days)
        from jobs.engine.parsing import OnPool

        parser = Parser(ruleset)
        splits = ingest.splits(usable, parser, ingest.split_size(usable, self.pool.workers))
        estimate = Estimate(
            sum(split.end - split.begin for split in splits), self.pool.workers, self.announce
        )
        return OnPool(self.pool, self._delta_rs.folder, splits, parser, days=days, done=estimate)

    def summed(self, events: Any) -> dict[str, ClusterEvidence]:
        """Return, by cluster, the summary of its events."""
        from jobs.engine import grouped

        return grouped.summed(self.pool, Relation.of(events))

    def folded(
        self, keyed: Any, states: Any, facts: Mapping[str, ClusterFacts], at_once: int | None
    ) -> Relation:
        """Fold partitions in the processes of the pool.

        in, out: as `updates` has them; the files of the relation stay until `close`.
        """
        from jobs.engine import grouped

        self._has_folded = True
        folder = self._delta_rs.folder / "events" / FOLDER / f"fold-{uuid.uuid4().hex}"
        return grouped.folded(
            self.pool,
            str(self._delta_rs.folder),
            folder,
            (Relation.of(keyed), Relation.of(states)),
            facts=facts,
            at_once=at_once,
        )

    def map_groups(self, one: Any, other: Any, by: Sequence[str], fold: Fold, schema: pa.Schema) -> Relation:
        """As `RunTables.map_groups`: in the processes of the pool where the rows are many."""
        from jobs.engine import grouped

        with tempfile.TemporaryDirectory(prefix="kafka-audit-") as folder:
            given = Path(folder) / "given"
            return Relation.of(
                grouped.map_groups(
                    self.pool, given, (Relation.of(one), Relation.of(other)), by, fold, schema=schema
                )
            )

    def append_files(self, table: str, files: Sequence[DataFile], after: int | None = None) -> None:
        """Add rows that are in files beside the table, which become its own.

        after: as `RunTables.append` has it.
        """
        self.guard()
        if files and not self._delta_rs.add_files(table, files, after):
            raise self._not_written(table)
        self.forget(table)

    def append(self, table: str, rows: Any, after: int | None = None) -> None:
        """Add rows; columns by name, those that they have not are null.

        after: as `RunTables.append` has it.
        """
        self.guard()
        some = Relation.of(rows).table()
        if not self._delta_rs.append(
            table, some if table in LANDED else aligned(some, table_schema(table)), after
        ):
            raise self._not_written(table)
        self.forget(table)

    def replace_where(self, table: str, clusters: Iterable[str], condition: Where, rows: Any) -> None:
        """Replace the rows of some clusters for which a condition holds, in one commit.

        Write nothing where they are the same.
        """
        self.guard()
        names = frozenset(clusters)
        mine = self._stored(table, of_clusters(names))
        goes, stays = mine.filter(condition.sql), mine.failing(condition.sql)
        is_whole = condition == EVERY or (
            condition == UNSETTLED and "settled" in schemas.partition_columns(table)
        )
        self._replace(
            table, names, goes, None if is_whole else stays, rows, keeps_settled=condition == UNSETTLED
        )

    def replace_partitions(
        self, table: str, clusters: Collection[str], rebuilt: Collection[str], partitions: Any, rows: Any
    ) -> None:
        """As `RunTables.replace_partitions`."""
        self.guard()
        names, may_settle = frozenset([*clusters, *rebuilt]), "settled" in schemas.columns(table)
        keeps_settled = may_settle and not rebuilt
        mine = self._stored(table, of_clusters(clusters))
        unsettled = mine.filter(UNSETTLED.sql) if may_settle else mine
        keys = Relation.of(partitions)
        goes, stays = (unsettled.matched(keys, PARTITION_KEY, how) for how in ("SEMI", "ANTI"))
        if may_settle and not keeps_settled:
            stays = stays.union(mine.failing(UNSETTLED.sql))
        if rebuilt:
            goes = goes.union(self._stored(table, of_clusters(rebuilt)))
        self._replace(table, names, goes, stays if clusters else None, rows, keeps_settled=keeps_settled)

    def _stored(self, table: str, condition: Where) -> Relation:
        """Return the rows of a table for which a condition holds."""
        if table in self._created:
            return Relation.of(table_schema(table).empty_table())
        return self._tables().relation(table, condition.sql)

    def _replace(
        self,
        table: str,
        names: frozenset[str],
        goes: Relation | None,
        stays: Relation | None,
        rows: Any,
        *,
        keeps_settled: bool,
    ) -> None:
        """Replace rows of some clusters, in one commit; write nothing where they are the same.

        goes: those that are replaced; stays: all others of these clusters, of a table that is partitioned
        those in partitions that are written again; None: there are none. keeps_settled: the partitions are
        those of what is not settled.
        """
        new = Relation.of(rows).aligned(table_schema(table))
        if table in self._created:
            goes = stays = None
            if new.is_empty():
                return
        elif _have_same_rows(goes, new):
            return
        by = schemas.partition_columns(table)
        every = new if stays is None else stays.union(new)
        if not by and table not in self._created:
            every = self._stored(table, EVERY).failing(in_clusters(names)).union(every)
        files = self._written(table, every, by)
        if not self._delta_rs.replace_by_files(
            table, files, files_of(names, keeps_settled=keeps_settled) if by else ()
        ):
            raise self._not_written(table)
        self.forget(table)

    def _written(self, table: str, rows: Relation, by: Sequence[str]) -> list[DataFile]:
        """Files with rows, in the folder of a table, by the values of some columns.

        Those of a topic are side by side.
        """
        columns = [name for name in rows.column_names if name not in by]
        schema = pa.schema([rows.schema.field(name) for name in columns])
        writers: dict[tuple[Any, ...], FileWriter] = {}
        order = ", ".join(name for name in (*by, "topic", "partition") if name in rows.column_names)
        for batch in rows.batches(order or None, ROW_GROUP):
            for values, part in parts(pa.Table.from_batches([batch]), by):
                key = tuple(values.values())
                if key not in writers:
                    writers[key] = FileWriter(self._delta_rs.folder / table, schema, values)
                writers[key].add(part.select(columns))
        return [one.close() for one in writers.values()]

    def delete(self, table: str, condition: Where) -> None:
        """Remove the rows for which a condition holds."""
        self.guard()
        every = self._stored(table, EVERY)
        if table in LANDED:
            self._delete_landed(table, every.filter(condition.sql), KEYS[table])
        else:
            self._keep(table, every.filter(condition.sql), every.failing(condition.sql))

    def delete_matching(self, table: str, condition: Where, keys: Any) -> None:
        """Remove the rows for which a condition holds and whose values are among those of keys."""
        self.guard()
        wanted, every = Relation.of(keys), self._stored(table, EVERY)
        mine = every.filter(condition.sql)
        removed = mine.matched(wanted, wanted.column_names, "SEMI")
        if table in LANDED:
            self._delete_landed(table, removed, wanted.column_names)
        else:
            self._keep(
                table,
                removed,
                mine.matched(wanted, wanted.column_names, "ANTI").union(every.failing(condition.sql)),
            )

    def _delete_landed(self, table: str, rows: Relation, keys: Sequence[str]) -> None:
        """Remove rows by their keys instead of replacing files: the change data feed then names the removed
        rows only.
        """
        removed = rows.select(*keys).distinct().table()
        if removed.num_rows and not self._delta_rs.delete_matching(table, removed, keys):
            raise self._not_written(table)
        self.forget(table)

    def _keep(self, table: str, goes: Relation, stays: Relation) -> None:
        """Keep some rows of a table and remove all others, in one commit."""
        names = frozenset(row["cluster"] for row in goes.select("cluster").distinct().table().to_pylist())
        if names:
            stays = stays.filter(in_clusters(names))
            self._replace(table, names, goes, stays, table_schema(table).empty_table(), keeps_settled=False)

    def set_matching(self, table: str, condition: Where, values: Any, keys: Sequence[str]) -> None:
        """Give rows the values of those with the same keys."""
        self.guard()
        given = Relation.of(values).table()
        others = [name for name in given.column_names if name not in keys]
        if not self._delta_rs.set_matching(table, given, keys, others):
            raise self._not_written(table)
        self.forget(table)


def _have_same_rows(some: Relation | None, others: Relation) -> bool:
    """Return whether rows are the same, in any order."""
    if some is None:
        return others.is_empty()
    return some.count() == others.count() and is_empty(differing(some, others, some.column_names))
