"""The tables on Spark, for places that delta-rs does not reach and for all of Spark's SQL.

Starts a session.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.engine import MOMENT, Answer, QueryError, session
from jobs.engine.store import Store
from parsers.explanation import visible

# rows of one batch of an answer
BATCH_ROWS = 10_000


class SparkTables:
    """The tables of a folder or of any URI that Spark reads."""

    def __init__(self, root: str, names: Collection[str] | None = None, store: Store | None = None) -> None:
        """names: tables and views that queries may name; None: any.

        store: the open store of a run, whose session is used.
        """
        self.root = root
        self._store = Store(session.start(), root) if store is None else store
        self._spark = self._store.spark
        if store is None:
            self._store.register(names)

    def has(self, table: str) -> bool:
        """Return whether the table has been created."""
        return self._store.exists(table)

    def read(self, table: str, columns: Sequence[str] | None = None, where: str = "true") -> pa.Table:
        """Return columns (None: all) of the rows for which a condition in Spark's SQL holds.

        Moments have the zone UTC.
        """
        return self._store.table(table).filter(where).select(*(columns or ("*",))).toArrow()

    def query(self, sql: str) -> Answer:
        """Return what one statement that only reads returns. Raises QueryError."""
        try:
            frame = self._spark.sql(sql)
            return Answer(_schema(frame), _batches(frame))
        except (PySparkException, Py4JError) as error:
            raise QueryError(first_line(error)) from None


def first_line(error: Exception) -> str:
    """Return the first line of an error of Spark's, safe for a terminal."""
    java = getattr(error, "java_exception", None)
    message = getattr(error, "getMessage", None)
    try:
        text = java.getMessage() if java is not None else message() if message is not None else None
    except Exception:  # an error without a message has none of these
        text = None
    lines = [line for line in (text or str(error)).splitlines() if line.strip()]
    return visible(lines[0].strip()) if lines else type(error).__name__


def _batches(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Yield the rows, without all of them in memory."""
    schema = _schema(frame)
    try:
        rows = frame.toLocalIterator()
        while some := list(islice(rows, BATCH_ROWS)):
            # by position, as names may repeat
            columns = ([_plain(row[at]) for row in some] for at in range(len(schema)))
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (PySparkException, Py4JError) as error:
        raise QueryError(first_line(error)) from None


def _schema(frame: DataFrame) -> pa.Schema:
    """Return its columns; a moment without a zone is taken as UTC."""
    fields = to_arrow_schema(frame.schema)
    return pa.schema(
        [field.with_type(MOMENT) if pa.types.is_timestamp(field.type) else field for field in fields]
    )


def _plain(value: Any) -> Any:
    """Return a value as Arrow takes it."""
    if isinstance(value, datetime) and value.tzinfo is None:
        # local time of this process, which is UTC (`nightly_audit.main`)
        return value.replace(tzinfo=UTC)
    if isinstance(value, Row):
        return {name: _plain(one) for name, one in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        return [(key, _plain(one)) for key, one in value.items()]
    return [_plain(one) for one in value] if isinstance(value, list) else value
