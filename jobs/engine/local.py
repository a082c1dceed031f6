"""The tables on this machine, without Java: delta-rs finds the files, DuckDB reads of them what a query
needs.

Queries are written in Spark's SQL. They read tables and views by name and nothing else: no file, no setting,
no other function that returns rows.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

import schemas
from jobs.batches.types import table_schema
from jobs.engine import Answer, NotReadable, QueryError, dialect, statements
from jobs.engine.database import FAILED, Database, identifier, text
from jobs.engine.delta import Table
from jobs.engine.listing import OfColumns, OfNames, arrow_type_name, listing, type_name
from jobs.engine.relation import Relation, session
from jobs.errors import UsageError
from jobs.location import local_folder
from parsers.explanation import visible

# names that are offered where one is not found
NEAR = 5
# name of the values that `matching` looks for
WANTED = "wanted_values"
# functions of Spark that return rows and read nothing
ROW_FUNCTIONS = (
    "range",
    "explode",
    "explode_outer",
    "posexplode",
    "posexplode_outer",
    "inline",
    "inline_outer",
    "stack",
    "unnest",
)


class LocalTables:
    """The tables of a folder, or of an object store that delta-rs reaches with the credentials in the
    environment.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._folder = local_folder(root)
        self._known: dict[str, Table | None] = {}

    def check(self, names: Collection[str] | None = None) -> None:
        """Raise NotReadable where Spark reads the tables (names; None: all) and this engine does not."""
        wanted = _closure(names) if names is not None else {one.name for one in schemas.statements("tables")}
        for name in sorted(wanted & self._table_names):
            if (table := self._table(name)) is not None:
                table.check()

    def has(self, table: str) -> bool:
        """Return whether the table has been created."""
        return self._table(table) is not None

    def read(self, table: str, columns: Sequence[str] | None = None, where: str = "true") -> pa.Table:
        """Return columns (None: all) of the rows for which a condition in Spark's SQL holds.

        Moments have the zone UTC.
        """
        named = ", ".join(f"`{name}`" for name in columns) if columns is not None else "*"
        answer = self.query(f"SELECT {named} FROM {table} WHERE {where}")
        return pa.Table.from_batches(answer.batches, answer.schema)

    def relation(self, table: str, where: str = "true") -> Relation:
        """Return the rows of a table, as they are now, for which a condition in Spark's SQL holds.

        They are read later. The columns are those of this version.
        """
        found = self._table(table)
        assert found is not None
        assert self._folder is not None
        if not found.is_registered:
            with session(str(self._folder)) as database:
                found.register(database, table)
        # on the columns of the files, so that DuckDB skips files and row groups
        query = found.query(dialect.condition(where))
        return Relation(query, table_schema(table), folder=str(self._folder)).select(
            *table_schema(table).names
        )

    def matching(
        self, table: str, columns: Sequence[str], column: str, values: pa.Array, where: str = "true"
    ) -> pa.Table:
        """Return the columns of the rows for which a condition holds and that have one of some values in a
        column.
        """
        database = self.database([table])
        self.define(database, table, table, dialect.condition(where))
        database.view(WANTED, pa.table({"value": values}))
        named = ", ".join(map(identifier, columns))
        answer = _answered(
            database,
            f"SELECT {named} FROM {table} WHERE {identifier(column)} IN (SELECT value FROM {WANTED})",
        )
        return pa.Table.from_batches(answer.batches, answer.schema)

    def query(self, sql: str) -> Answer:
        """Return what one statement that only reads returns. Raises QueryError."""
        try:
            return self._answer(sql)
        except dialect.Unsupported as error:
            raise QueryError(f"the local engine does not run {error}; --engine spark does") from None
        except SqlglotError as error:
            raise QueryError(statements.syntax(error)) from None
        except FAILED as error:
            raise QueryError(statements.in_words(error)) from None
        except NotReadable as error:
            raise QueryError(f"{error}; the local engine does not read it, --engine spark does") from None

    # -- statements ------------------------------------------------------------------------------------------

    def _answer(self, sql: str) -> Answer:
        asked = listing(sql)
        if isinstance(asked, OfNames):
            return _listed(asked.heads, asked.rows(self.views() if asked.views_only else self.names()))
        if isinstance(asked, OfColumns):
            return _listed(asked.heads, asked.rows(self._columns(asked.table)))
        if explained := re.match(r"EXPLAIN\s+(?:(?:EXTENDED|FORMATTED|CODEGEN|COST)\s+)?", sql, re.I):
            tree, database = self._prepared(sql[explained.end() :])
            return _listed(("plan",), [(database.plan(dialect.in_duckdb(tree)),)])
        tree, database = self._prepared(sql)
        return _answered(database, dialect.in_duckdb(tree))

    def _prepared(self, sql: str) -> tuple[exp.Expr, Database]:
        """Return a query for DuckDB, and a database with the tables and views that it names."""
        tree = statements.parsed(sql)
        statements.refuse_all_but_reading(tree)
        dialect.name_columns(tree, sql)
        database = self.database(self._sources(tree))
        self._read_less(tree, database)
        return dialect.adapted(tree), database

    def _sources(self, tree: exp.Expr) -> set[str]:
        """Tables and views that a query names. Raises QueryError where there is none of that name."""
        common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        known = {one.name for kind in ("tables", "views") for one in schemas.statements(kind)}
        found = set()
        for source in tree.find_all(exp.Table):
            if not isinstance(source.this, exp.Identifier):
                name = source.this.name.lower() if isinstance(source.this, exp.Anonymous) else source.this.key
                if name not in (*ROW_FUNCTIONS, "generateseries"):
                    raise QueryError(
                        f"the function {visible(name)} is not read from; the tables and views are: {', '.join(self.names())}"
                    )
                continue
            name = source.name.lower()
            if source.args.get("version") is not None:
                raise QueryError("earlier versions of a table are not read; --engine spark may")
            qualifier = ".".join(part for part in (source.catalog, source.db) if part).lower()
            if qualifier not in ("", "default", "spark_catalog.default"):
                raise QueryError(
                    f"no table {visible(source.sql(dialect='spark'))}; tables are named without a schema, files are not read"
                )
            if not qualifier and name in common:
                continue
            lacking = [
                one for one in sorted(_closure([name]) & self._table_names) if self._table(one) is None
            ]
            if name in known and name not in self._table_names and lacking:
                raise QueryError(
                    f"the view {name} needs the table {lacking[0]}, which `kafka-audit audit` writes"
                )
            if name not in known or lacking:
                there = self.names()
                if not there:
                    raise UsageError(
                        f"--tables {self.root} holds no tables; give the place that `kafka-audit audit` wrote to"
                    )
                near = difflib.get_close_matches(name, there, n=NEAR, cutoff=0.5) or there
                raise QueryError(f"no table or view {visible(source.name)}; there is {', '.join(near)}")
            source.replace(
                exp.Table(**{**source.args, "this": exp.to_identifier(name), "db": None, "catalog": None})
            )
            found.add(name)
        return found

    def define(self, database: Database, table: str, name: str, where: str) -> None:
        """Define a view of a table that the database has.

        where: a condition in DuckDB's SQL; moments in it have a zone.
        """
        found = self._table(table)
        assert found is not None
        found.define(database, name, where)

    def database(self, names: Iterable[str], files: Collection[str] = ()) -> Database:
        """Return a database with tables, views, and the views' own tables. files: others that it may read."""
        wanted = _closure(names)
        tables = [
            (name, table)
            for name in sorted(wanted & self._table_names)
            if (table := self._table(name)) is not None
        ]
        database = Database([*files, *(file for _, table in tables for file in table.files)])
        for name, table in tables:
            table.register(database, name)
        for view in schemas.statements("views"):
            if view.name in wanted:
                body = dialect.adapted(sqlglot.parse_one(view.sql, read="spark").expression)
                database.define(view.name, dialect.in_duckdb(body))
        return database

    def _read_less(self, tree: exp.Expr, database: Database) -> None:
        """Restrict a table to the span of time that a query asks for.

        The view of a table casts its moments. DuckDB cannot use a condition on a cast column to skip files
        and row groups.
        """
        for number, source in enumerate(list(tree.find_all(exp.Table))):
            if source.name not in self._table_names or (table := self._table(source.name)) is None:
                continue
            bounds = statements.bounds(
                source, {one["name"] for one in table.fields if one["type"] == "timestamp"}
            )
            if bounds:
                name = f"{source.name}${number}"
                table.define(database, name, " AND ".join(bounds))
                alias = source.args.get("alias") or exp.TableAlias(this=exp.to_identifier(source.name))
                source.replace(
                    exp.Table(**{**source.args, "this": exp.to_identifier(name, quoted=True), "alias": alias})
                )

    # -- tables and views ------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of tables that are there, and of the views whose tables are there."""
        tables = sorted(self._table_names)
        with ThreadPoolExecutor(8) as pool:
            there = [name for name, known in zip(tables, pool.map(self.has, tables), strict=True) if known]
        return sorted([*there, *self.views()])

    def views(self) -> list[str]:
        """Return the names of the views whose tables are there."""
        views = [view.name for view in schemas.statements("views")]
        return [name for name in views if all(map(self.has, _closure([name]) & self._table_names))]

    def _columns(self, name: str) -> list[tuple[str, str, str | None]]:
        """(name, Spark's type, comment) of the columns of a table or view."""
        if (table := self._table(name) if name in self._table_names else None) is not None:
            return [
                (one["name"], type_name(one["type"]), one.get("metadata", {}).get("comment"))
                for one in table.fields
            ]
        tree, database = self._prepared(f"SELECT * FROM {name}")
        schema, _ = database.answer(dialect.in_duckdb(tree))
        return [(one.name, arrow_type_name(one.type), None) for one in schema]

    @cached_property
    def _table_names(self) -> set[str]:
        return {one.name for one in schemas.statements("tables")}

    def _table(self, name: str) -> Table | None:
        if name not in self._known:
            self._known[name] = Table.opened(self.root, self._folder is not None, name)
        return self._known[name]


def _answered(database: Database, sql: str) -> Answer:
    """Return the result of a query in DuckDB's SQL."""
    schema, batches = database.answer(sql)

    def checked() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except FAILED as error:
            raise QueryError(statements.in_words(error)) from None

    return Answer(schema, checked())


def _listed(heads: Sequence[str], rows: Sequence[Sequence[str | bool | None]]) -> Answer:
    """Return rows of texts and booleans."""
    names = ", ".join(map(identifier, heads))
    values = [
        ", ".join(text(one) if isinstance(one, str) else str(one or "NULL") for one in row) for row in rows
    ]
    nothing = ", ".join(f"NULL AS {identifier(head)}" for head in heads)
    listed = ", ".join(f"({row})" for row in values)
    return _answered(
        Database(),
        f"SELECT * FROM (VALUES {listed}) AS rows({names})" if rows else f"SELECT {nothing} WHERE false",
    )


def _closure(names: Iterable[str]) -> set[str]:
    """Return the names of tables and views, with those that these views are made of."""
    wanted = {name.lower() for name in names}
    for view in schemas.statements("views"):
        if view.name in wanted:
            wanted |= set(re.findall(r"\w+", view.sql.lower()))
    return wanted
