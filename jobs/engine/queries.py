"""SQL over frames, in Spark's dialect: DuckDB runs it over few rows in this process, Spark over many.

Spark takes longer to plan a query than to read a few thousand rows: all checks over five lines take it ten
times as long as DuckDB (`tests/benchmarks/checks.py`). Over the same rows both give the same results
(`tests/engine/test_queries.py`, `tests/checking/test_scenarios.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from jobs.engine import database, later, rows_of
from jobs.engine.frames import most_sent
from jobs.engine.relation import Relation, session
from jobs.engine.rows import Frame, computed, in_spark, to_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkFailed(Exception):
    """A query that Spark cannot run, with what it says."""


# errors of a query that cannot be run
FAILED = (SparkFailed, *database.FAILED)


class Queries(Protocol):
    """Frames by name, and queries over them. spark: the session that runs them; None: this process."""

    spark: Any

    def view(self, name: str, rows: Frame) -> None:
        """Give rows a name."""

    def function(self, sql: str) -> None:
        """Make a function: `CREATE OR REPLACE TEMPORARY FUNCTION name(argument TYPE, ..) RETURNS TYPE RETURN
        expression`.
        """

    def frame(self, sql: str) -> Frame:
        """Return the result of a query. Raises one of FAILED."""

    def rows(self, *queries: str) -> list[dict[str, Any]]:
        """Return the rows of queries with the same columns, in one list; moments have a zone.

        Raises one of FAILED.
        """


def over(spark: SparkSession | None, frames: Iterable[Frame]) -> Queries:
    """Return what runs queries over these rows and over their results; threads may share it.

    spark: None: the local engine.
    """
    if spark is None:
        folder = next((one.folder for one in frames if isinstance(one, Relation) and one.folder), None)
        return database.Database() if folder is None else session(folder)
    are_few = all(isinstance(one, pa.Table | Relation) for one in frames)
    return database.Database() if are_few else InSpark(spark)


def read_often(rows: Frame, *, count: int | None = None, is_table: bool = False) -> Frame:
    """Return rows for many queries: those of files unchanged, others computed once.

    count: how many there are, where that is known. is_table: they are all rows of a table. Where there are
    more than Spark may send, these two stay as they are, because each query reads the columns that it needs.
    """
    if isinstance(rows, Relation):
        return rows if rows.folder else computed(rows)
    if is_table or (count is not None and count > most_sent()):
        return rows
    return computed(rows) if count is None else Relation.of(to_table(rows))


class InSpark:
    """Queries that Spark runs; names are those of the whole session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        # rows that have names already, with their frames
        self._named: list[tuple[Frame, DataFrame]] = []

    def view(self, name: str, rows: Frame) -> None:
        """Give rows a name."""
        known = next((frame for one, frame in self._named if one is rows), None)
        frame = in_spark(self.spark, rows) if known is None else known
        self._named.append((rows, frame))
        frame.createOrReplaceTempView(name)

    def function(self, sql: str) -> None:
        """Make a function."""
        self._sql(sql)

    def frame(self, sql: str) -> Frame:
        """Return the result of a query, as a table where this process handles that many rows."""
        return computed(self._sql(sql))

    def rows(self, *queries: str) -> list[dict[str, Any]]:
        """Return the rows of queries.

        They are one text, because Spark analyses a frame again from its leaves at each call.
        """
        try:
            return rows_of(self._sql("\nUNION ALL\n".join(queries)).toArrow())
        except later.errors.PySparkException as error:
            raise SparkFailed(str(error)) from error

    def _sql(self, sql: str) -> DataFrame:
        try:
            return self.spark.sql(sql)
        except later.errors.PySparkException as error:
            raise SparkFailed(str(error)) from error
