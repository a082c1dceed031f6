"""DuckDB, sealed: it answers queries of Spark's SQL over rows and files that it is given, and reads and
writes nothing else.
"""

from __future__ import annotations

import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection
from duckdb.func import PythonUDFType
from sqlglot.errors import SqlglotError

from jobs.engine import MOMENT, dialect, limits, rows_of

# errors of files that cannot be read
UNREADABLE = (OSError, duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)
# errors of a query that cannot be run
FAILED = (duckdb.Error, SqlglotError)
# folder beside the tables for rows that do not fit in memory; Delta's readers skip names that begin so
SPILL = "_spill"
# rows of one batch of an answer
BATCH_ROWS = 10_000
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
}


class Database:
    """Queries of Spark's SQL over tables that have names; threads may share it.

    DuckDB's moments are without a zone, in UTC; those of an answer have the zone UTC.
    """

    # no session of Spark runs them
    spark: Any = None

    def __init__(self, files: Collection[str] = (), folder: str | None = None) -> None:
        """files, folder: the only ones that queries may read."""
        self._database: DuckDBPyConnection = duckdb.connect(config=_CONFIG)
        # id of a relation that has been read -> its name, and the relation itself
        self._related: dict[int, tuple[str, Any]] = {}
        # a connection serves one thread at a time
        self._turn = threading.Lock()
        run = self._database.execute
        run("SET TimeZone = 'UTC'")
        run(f"SET memory_limit = {text(limits.memory)}")
        # each use of a view reads the footers of its files again
        run("SET parquet_metadata_cache = true")
        # DuckDB creates it when memory is short and removes it at the end; nothing else writes into it
        spill = (
            f"{tempfile.gettempdir()}/kafka-audit-{uuid.uuid4().hex}"
            if folder is None
            else f"{folder}/{SPILL}"
        )
        run(f"SET temp_directory = {text(spill)}")
        if files:
            run(f"SET allowed_paths = [{', '.join(map(text, files))}]")
        if folder is not None:
            run(f"SET allowed_directories = [{text(folder)}]")
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")
        for macro in dialect.MACROS:
            run(f"CREATE MACRO {macro}")
        for name, function, arguments in _REGEX_FUNCTIONS:
            texts: Any = ["VARCHAR"] * arguments
            self._database.create_function(name, function, texts, "VARCHAR", type=PythonUDFType.ARROW)

    def session(self) -> Database:
        """Return another database with the same memory, files and functions, but without the names of rows.

        It costs no time.
        """
        other = Database.__new__(Database)
        other._database, other._turn, other._related = self._database.cursor(), threading.Lock(), {}
        return other

    def view(self, name: str, rows: Any) -> None:
        """Give rows a name.

        rows: a table, or a `Relation` over memory or over files that this database may read.
        """
        table = rows if isinstance(rows, pa.Table) else rows.in_memory
        if table is None:
            self._relate(name, rows)
            return
        with self._turn:
            self._database.register(name, _with_moments(table, pa.timestamp("us")))

    def _relate(self, name: str, rows: Any) -> None:
        """Gives the rows of a relation a name.

        They are read once, and kept in memory or in the spill folder; wide ones are read again by each query.
        """
        with self._turn:
            kept = self._related.get(id(rows))
            if kept is None:
                for one, table in rows.given.items():
                    self._database.register(one, _with_moments(table, pa.timestamp("us")))
                # a reference to the relation: no other one gets its id
                kept = (f"related_{len(self._related)}", rows)
                kind = "VIEW" if rows.is_wide else "TABLE"
                self._database.execute(f"CREATE TEMPORARY {kind} {kept[0]} AS {rows.sql}")
                self._related[id(rows)] = kept
        self.define(name, f"SELECT * FROM {kept[0]}")

    def source(self, name: str, rows: Any) -> None:
        """Give anything that DuckDB scans a name, as it is."""
        with self._turn:
            self._database.register(name, rows)

    def define(self, name: str, sql: str) -> None:
        """Define a view by a query in DuckDB's SQL."""
        with self._turn:
            self._database.execute(f"CREATE OR REPLACE TEMPORARY VIEW {identifier(name)} AS {sql}")

    def columns(self, sql: str) -> list[str]:
        """Return the names of the columns of a query in DuckDB's SQL."""
        with self._turn:
            return [row[0] for row in self._database.execute(f"DESCRIBE {sql}").fetchall()]

    def function(self, sql: str) -> None:
        """Define a function: `CREATE OR REPLACE TEMPORARY FUNCTION name(argument TYPE, ..) RETURNS TYPE
        RETURN expression`.
        """
        with self._turn:
            self._database.execute(dialect.macro(sql))

    def frame(self, sql: str) -> pa.Table:
        """Return the rows of a query."""
        return self._answer(dialect.translated(sql))

    def rows(self, *queries: str) -> list[dict[str, Any]]:
        """Return the rows of queries that have the same columns."""
        return rows_of(self._answer("\nUNION ALL\n".join(map(dialect.translated, queries))))

    def close(self) -> None:
        """Close it; rows that it has returned stay valid."""
        self._database.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, sql: str, size: int = BATCH_ROWS) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the columns of a query in DuckDB's SQL, and its rows batch by batch.

        Raises one of FAILED; a statement that is no query is refused, whatever its text.
        """
        statements = self._database.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            raise duckdb.NotImplementedException("only queries are run")
        reader = self._database.sql(sql).to_arrow_reader(size)
        schema = _schema_with_moments(reader.schema, MOMENT)
        return schema, (_cast(batch, schema) for batch in reader)

    def plan(self, sql: str) -> str:
        """Return how DuckDB would run a query in its own SQL, as text. Raises one of FAILED."""
        if [one.type for one in self._database.extract_statements(sql)] != [duckdb.StatementType.SELECT]:
            raise duckdb.NotImplementedException("only queries are run")
        return self._database.execute(f"EXPLAIN {sql}").fetchall()[0][1]

    def _answer(self, sql: str) -> pa.Table:
        with self._turn:
            found = self._database.sql(sql).to_arrow_table()
        return _with_moments(found, MOMENT)


def without_zone(column: str) -> str:
    """Return a moment of a file without its zone, in UTC.

    A cast looks the zone up for each row, which takes more than ten times as long as to read the moment.
    """
    return f"make_timestamp(epoch_us({column}))"


# -- Java's regular expressions that DuckDB does not have ----------------------------------------------------


@lru_cache(100)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a Java pattern as Python's. Raises InvalidInputException."""
    try:
        return re.compile(re.sub(r"\(\?<([A-Za-z])", r"(?P<\1", pattern))
    except re.error as error:
        raise duckdb.InvalidInputException(
            f"the regular expression {pattern} cannot be read: {error}"
        ) from None


def _rows(*columns: pa.ChunkedArray) -> Iterator[tuple[str, ...]]:
    return zip(*(one.to_pylist() for one in columns), strict=True)


def _replaced(texts: pa.ChunkedArray, patterns: pa.ChunkedArray, replacements: pa.ChunkedArray) -> pa.Array:
    def one(text: str, pattern: str, replacement: str) -> str:
        return _compiled(pattern).sub(re.sub(r"\$(\d)", r"\\g<\1>", replacement), text)

    return pa.array(
        [None if None in row else one(*row) for row in _rows(texts, patterns, replacements)], pa.string()
    )


def _extracted(texts: pa.ChunkedArray, patterns: pa.ChunkedArray, groups: pa.ChunkedArray) -> pa.Array:
    def one(text: str, pattern: str, group: str) -> str:
        found = _compiled(pattern).search(text)
        return (found.group(int(group)) or "") if found else ""

    return pa.array(
        [None if None in row else one(*row) for row in _rows(texts, patterns, groups)], pa.string()
    )


def _matches(texts: pa.ChunkedArray, patterns: pa.ChunkedArray) -> pa.Array:
    def one(text: str, pattern: str) -> str:
        return str(_compiled(pattern).search(text) is not None).lower()

    return pa.array([None if None in row else one(*row) for row in _rows(texts, patterns)], pa.string())


# name, function, number of its arguments; all are texts
_REGEX_FUNCTIONS: tuple[tuple[str, Callable[..., pa.Array], int], ...] = (
    ("java_replace", _replaced, 3),
    ("java_extract", _extracted, 3),
    ("java_matches", _matches, 2),
)


def identifier(name: str) -> str:
    """Return a name as DuckDB's SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text as a literal of DuckDB's SQL."""
    return "'" + value.replace("'", "''") + "'"


def _with_moments(rows: pa.Table, moment: pa.DataType) -> pa.Table:
    schema = _schema_with_moments(rows.schema, moment)
    if any(pa.types.is_interval(field.type) for field in rows.schema):
        return pa.Table.from_batches([_cast(batch, schema) for batch in rows.to_batches()], schema)
    return rows.cast(schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_interval(column.type):
        return column.cast(kind)
    # months have no length; Spark does not hand such intervals to Python
    return pa.array(
        [
            None
            if one is None
            else timedelta(days=30 * one.months + one.days, microseconds=one.nanoseconds // 1000)
            for one in column.to_pylist()
        ],
        kind,
    )


def _schema_with_moments(schema: pa.Schema, moment: pa.DataType) -> pa.Schema:
    """Return the same columns with moments of that type, and sums of whole numbers as Spark has them: BIGINT."""

    def kind(of: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(of):
            return moment
        if pa.types.is_interval(of) and moment.tz is not None:
            return pa.duration("us")
        if pa.types.is_decimal(of) and of.scale == 0:
            return pa.int64()
        if pa.types.is_list(of):
            return pa.list_(kind(of.value_type))
        if pa.types.is_struct(of):
            return pa.struct([(field.name, kind(field.type)) for field in of])
        if pa.types.is_string_view(of):
            return pa.string()
        return of

    return pa.schema([(field.name, kind(field.type)) for field in schema])
