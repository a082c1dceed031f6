"""What computes: on this machine without Java, or on Spark. The tables, as commands that only read see them.

`local` is DuckDB, delta-rs and Arrow; `spark` is Spark and Delta. Which one serves is decided once, by where
the tables are (`opened`), never by how much is in them. A condition or a query is text in Spark's SQL, the
same for both.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from jobs.errors import UsageError
from jobs.location import delta_rs_uri, root_of

MOMENT = pa.timestamp("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ENGINES = ("auto", "local", "spark")


class QueryError(UsageError):
    """A query that cannot be run; the text says why."""


class NotReadable(Exception):
    """Tables that the local engine does not read, though Spark may; the text says why."""


@dataclass(frozen=True)
class Answer:
    """The columns of a query's rows, and the rows. Moments have the zone UTC."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows."""
        return rows_of(pa.Table.from_batches(self.batches, self.schema))


class Tables(Protocol):
    """The tables under one root, to be read."""

    root: str

    def has(self, table: str) -> bool:
        """Return whether the table has been created."""

    def read(self, table: str, columns: Sequence[str] | None = None, where: str = "true") -> pa.Table:
        """Return columns (None: all) of the rows for which a condition in Spark's SQL holds.

        Moments have the zone UTC.
        """

    def query(self, sql: str) -> Answer:
        """Return what one statement that only reads returns. Raises QueryError."""


def rows_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a table or batch, one by one; moments have a zone, a map is a dict."""
    columns, names = map(values_of, table.columns), table.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; moments have a zone, a map is a dict.

    To make datetimes, Arrow imports pandas where it is installed, which takes longer than most queries.
    """
    if pa.types.is_timestamp(column.type):
        numbers = column.cast(MOMENT).cast(pa.int64()).to_pylist()
        return [None if one is None else _EPOCH + timedelta(microseconds=one) for one in numbers]
    return column.to_pylist(maps_as_pydicts="lossy")


def opened(
    root: str | Path, engine: str = "auto", names: Collection[str] | None = None, store: Any = None
) -> Tables:
    """Return the tables of a folder or URI.

    engine: one of ENGINES; `auto` is `local` wherever delta-rs reaches and reads the tables, else `spark`.
    names: tables and views that are going to be read; None: any. store: the `Store` of a run that is under
    way, if there is one. Raises UsageError where `local` is asked for and cannot read them.
    """
    where = root_of(root)
    if engine != "spark":
        if delta_rs_uri(where) is not None:
            from jobs.engine.local import LocalTables

            tables = LocalTables(where)
            try:
                tables.check(names)
                return tables
            except NotReadable as reason:
                if engine == "local":
                    raise UsageError(
                        f"{reason}; the local engine does not read it, --engine spark does"
                    ) from None
        elif engine == "local":
            raise UsageError(
                f"--tables {root}: the local engine reads folders, s3://, gs:// and abfss://; use --engine spark"
            )
    from jobs.engine.spark import SparkTables

    return SparkTables(where, names, store)
