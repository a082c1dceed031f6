"""Lazy rows of DuckDB: a query over files of tables and rows in memory, which is run each time its rows are
read.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.engine import dialect, rows_of
from jobs.engine.database import BATCH_ROWS, Database, identifier, text, without_zone

# rows with at most this many columns are stored as a whole; `events` has some 70
WIDE = 40


_databases: dict[str | None, Database] = {}
_turn = threading.Lock()


def session(folder: str | None) -> Database:
    """Return a database that reads files of a folder; all of one folder share their memory."""
    with _turn:
        if folder not in _databases:
            _databases[folder] = Database(folder=folder)
        return _databases[folder].session()


def forget(folder: str) -> None:
    """Free the memory of the databases of a folder."""
    with _turn:
        if found := _databases.pop(folder, None):
            found.close()


class Relation:
    """A query that is run when its rows are read."""

    def __init__(
        self,
        sql: str,
        schema: pa.Schema,
        *,
        folder: str | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """sql: of DuckDB; moments in it are without a zone. schema: of its rows, moments with the zone UTC.

        folder: in which all files are that it reads. given: name -> rows in memory.
        """
        self.sql, self.schema, self.folder, self.given = sql, schema, folder, dict(given or {})
        # the rows themselves, where they are in memory
        self.in_memory: pa.Table | None = None

    @classmethod
    def of(cls, rows: pa.Table | Relation) -> Relation:
        """Return rows in memory as a relation."""
        if isinstance(rows, Relation):
            return rows
        name = f"rows_{uuid.uuid4().hex}"
        found = cls(f"SELECT * FROM {name}", rows.schema, given={name: rows})
        found.in_memory = rows
        return found

    @classmethod
    def of_files(cls, paths: Sequence[str], schema: pa.Schema, folder: str) -> Relation:
        """Return the rows of Parquet files, which are in a folder or below it. schema: of all of them."""
        columns = ", ".join(f"{_of_file(one)} AS {identifier(one.name)}" for one in schema)
        if not paths:
            return cls.of(schema.empty_table())
        return cls(
            f"SELECT {columns} FROM read_parquet([{', '.join(map(text, paths))}])", schema, folder=folder
        )

    @property
    def is_wide(self) -> bool:
        """Return whether it has so many columns that each query should read the few that it needs again."""
        return len(self.schema) > WIDE

    @property
    def column_names(self) -> list[str]:
        """Return the names of its columns."""
        return list(self.schema.names)

    def made(self, sql: str, schema: pa.Schema, *others: Relation) -> Relation:
        """Return a query over this one and others. sql: of DuckDB."""
        folder, given = self.folder, dict(self.given)
        for one in others:
            folder = folder or one.folder
            given |= one.given
        return Relation(sql, schema, folder=folder, given=given)

    # -- operations ------------------------------------------------------------------------------------------

    def filter(self, condition: str) -> Relation:
        """Return the rows for which a condition in Spark's SQL holds."""
        return self.made(f"SELECT * FROM ({self.sql}) WHERE {dialect.condition(condition)}", self.schema)

    def failing(self, condition: str) -> Relation:
        """Return the rows for which a condition in Spark's SQL does not hold, or is null."""
        return self.made(
            f"SELECT * FROM ({self.sql}) WHERE NOT coalesce(({dialect.condition(condition)}), false)",
            self.schema,
        )

    def aligned(self, schema: pa.Schema) -> Relation:
        """Return the columns of a schema; those that the rows have not are null."""
        there = set(self.column_names)
        listed = ", ".join(
            f"CAST({identifier(one.name) if one.name in there else 'NULL'} AS {_type(one.type)}) AS {identifier(one.name)}"
            for one in schema
        )
        return self.made(f"SELECT {listed} FROM ({self.sql})", schema)

    def select(self, *columns: str, **renamed: str) -> Relation:
        """Return columns. renamed: new name -> column."""
        names = {**dict(zip(columns, columns, strict=True)), **renamed}
        listed = ", ".join(f"{identifier(old)} AS {identifier(new)}" for new, old in names.items())
        schema = pa.schema([pa.field(new, self.schema.field(old).type) for new, old in names.items()])
        return self.made(f"SELECT {listed} FROM ({self.sql})", schema)

    def with_column(self, name: str, kind: pa.DataType, sql: str, *others: Relation) -> Relation:
        """Return the rows with a column.

        sql: what it holds, an expression of DuckDB over the columns of the rows.
        """
        rest = [one for one in self.column_names if one != name]
        listed = ", ".join(map(identifier, rest))
        schema = pa.schema([*(self.schema.field(one) for one in rest), pa.field(name, kind)])
        return self.made(
            f"SELECT {listed}, {sql} AS {identifier(name)} FROM ({self.sql}) AS r", schema, *others
        )

    def union(self, other: Relation) -> Relation:
        """Return the rows of both. The other's columns are matched by name."""
        listed = ", ".join(
            f"CAST({identifier(one.name)} AS {_type(one.type)}) AS {identifier(one.name)}"
            for one in self.schema
        )
        return self.made(f"({self.sql}) UNION ALL (SELECT {listed} FROM ({other.sql}))", self.schema, other)

    def distinct(self) -> Relation:
        """Return each row once."""
        return self.made(f"SELECT DISTINCT * FROM ({self.sql})", self.schema)

    def matched(self, keys: Relation, on: Sequence[str], how: str) -> Relation:
        """Return the rows whose values of some columns are (how: SEMI) or are not (ANTI) among those of
        others.
        """
        using = ", ".join(map(identifier, on))
        others = f"SELECT DISTINCT {using} FROM ({keys.sql})"
        return self.made(
            f"SELECT * FROM ({self.sql}) {how} JOIN ({others}) USING ({using})", self.schema, keys
        )

    def outlasting(self, others: Relation, on: Sequence[str], condition: str) -> Relation:
        """Return the rows without a partner among the others: the same values of some columns, and a DuckDB
        condition over (r, o), row and other.
        """
        same = " AND ".join(f"r.{identifier(name)} = o.{identifier(name)}" for name in on)
        return self.made(
            f"SELECT * FROM ({self.sql}) AS r ANTI JOIN ({others.sql}) AS o ON {same} AND {condition}",
            self.schema,
            others,
        )

    def marked(self, keys: Relation, on: Sequence[str], name: str) -> Relation:
        """Return the rows with a column that says whether their values of some columns are among those of
        others.
        """
        using = ", ".join(map(identifier, on))
        others = f"SELECT DISTINCT {using}, true AS is_there FROM ({keys.sql})"
        listed = ", ".join(map(identifier, self.column_names))
        sql = f"SELECT {listed}, coalesce(is_there, false) AS {identifier(name)} FROM ({self.sql}) LEFT JOIN ({others}) USING ({using})"
        return self.made(sql, self.schema.append(pa.field(name, pa.bool_())), keys)

    def looked_up(self, known: Relation, on: Sequence[str]) -> Relation:
        """Return the rows joined to a table that has their values of some columns once or not at all."""
        using = ", ".join(map(identifier, on))
        new = [one for one in known.schema if one.name not in on]
        listed = ", ".join(map(identifier, [*self.column_names, *(one.name for one in new)]))
        sql = f"SELECT {listed} FROM ({self.sql}) LEFT JOIN ({known.sql}) USING ({using})"
        return self.made(sql, pa.schema([*self.schema, *new]), known)

    def unpacked(self, struct: str, *columns: str) -> Relation:
        """Return columns, and the fields of a struct."""
        fields = list(self.schema.field(struct).type)
        listed = [identifier(one) for one in columns]
        listed += [f"{identifier(struct)}.{identifier(one.name)} AS {identifier(one.name)}" for one in fields]
        schema = pa.schema([*(self.schema.field(one) for one in columns), *fields])
        return self.made(f"SELECT {', '.join(listed)} FROM ({self.sql})", schema)

    # -- its rows --------------------------------------------------------------------------------------------

    def _database(self) -> Database:
        database = session(self.folder)
        for name, rows in self.given.items():
            database.view(name, rows)
        return database

    def batches(self, order: str | None = None, size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows. order: an ORDER BY of DuckDB; it sorts, and spills to disk where it must."""
        with self._database() as database:
            sql = self.sql if order is None else f"SELECT * FROM ({self.sql}) ORDER BY {order}"
            _, batches = database.answer(sql, size)
            for batch in batches:
                yield _cast(batch, self.schema)

    def table(self) -> pa.Table:
        """Return the rows, in memory."""
        return (
            pa.Table.from_batches(self.batches(), self.schema) if self.in_memory is None else self.in_memory
        )

    def count(self) -> int:
        """Return how many rows there are."""
        rows = pa.schema([("rows", pa.int64())])
        return self.made(f"SELECT count(*) AS rows FROM ({self.sql})", rows).table()["rows"][0].as_py()

    def is_empty(self) -> bool:
        """Return whether there is no row."""
        if self.in_memory is not None:
            return not self.in_memory.num_rows
        return (
            not self.made(f"SELECT 1 AS one FROM ({self.sql}) LIMIT 1", pa.schema([("one", pa.int32())]))
            .table()
            .num_rows
        )

    def mapped(
        self, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
    ) -> pa.Table:
        """Return what a function makes of batches of the rows."""
        batches = self.batches() if self.in_memory is None else self.in_memory.to_batches()
        return pa.Table.from_batches(function(batches), schema)

    def groups(self, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
        """Yield the values of some columns, in order, and the rows that have them."""
        order = ", ".join(f"{identifier(name)} NULLS FIRST" for name in by)
        key: tuple[Any, ...] | None = None
        some: list[dict[str, Any]] = []
        for batch in self.batches(order):
            for row in rows_of(batch):
                own = tuple(row[name] for name in by)
                if own != key:
                    if key is not None:
                        yield key, some
                    key, some = own, []
                some.append(row)
        if key is not None:
            yield key, some


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_file(one: pa.Field) -> str:
    """Return a column of a file as an expression."""
    name = identifier(one.name)
    return without_zone(name) if pa.types.is_timestamp(one.type) else f"CAST({name} AS {_type(one.type)})"


def _type(kind: pa.DataType) -> str:
    """DuckDB's name of a type of Arrow; moments are without a zone."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    if pa.types.is_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{identifier(one.name)} {_type(one.type)}' for one in kind)})"
    if pa.types.is_map(kind):
        return f"MAP({_type(kind.key_type)}, {_type(kind.item_type)})"
    return _TYPES[kind]


_TYPES = {
    pa.string(): "VARCHAR",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.binary(): "BLOB",
}


def sorted_key(values: Collection[Any]) -> tuple[Any, ...]:
    """Return values as a key that sorts as DuckDB sorts columns: null first."""
    return tuple((one is not None, one if one is not None else 0) for one in values)
