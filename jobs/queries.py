"""SQL over frames: of few rows DuckDB runs it in this process, of many Spark does. It is written once, as Spark has it; SQLGlot translates it.

To plan a query takes Spark longer than to read a few thousand rows: all checks over five lines take it ten times as long as DuckDB
(`tests/benchmarks/checks.py`). Where both read the same rows they tell the same (`tests/test_queries.py`, `tests/test_scenarios.py`).
"""

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import sqlglot
from duckdb import DuckDBPyConnection
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError

from jobs.rows import Frame, gathered, in_spark

# rows of a frame that is asked in this process, up to 400 bytes each; where one has more Spark is asked about all
MOST_ASKED_HERE = 250_000
# translations that are kept; checks and contracts are some hundred queries
TRANSLATED = 500
# what a query that cannot be run raises
FAILED = (PySparkException, duckdb.Error, SqlglotError)
# what Spark's SQL has and DuckDB has not, or has otherwise
_MACROS = (
    # the first of each, in the order of the list, and null, too; by sorting, as one that asks for the place of each takes minutes for 100,000
    "CREATE MACRO with_places(list) AS list_sort(list_transform(list, lambda one, place: {'one': one, 'place': place}))",
    "CREATE MACRO firsts(sorted) AS list_transform(list_filter(list_zip(list_prepend(NULL, sorted), sorted, true), "
    "lambda pair, n: n = 1 OR pair[1].one IS DISTINCT FROM pair[2].one), lambda pair: pair[2])",
    "CREATE MACRO array_distinct(list) AS CASE WHEN list IS NOT NULL THEN "
    "list_transform(list_sort(list_transform(firsts(with_places(list)), lambda it: {'place': it.place, 'one': it.one})), lambda it: it.one) END",
    "CREATE MACRO get(list, place) AS list_extract(list, place + 1)",
    "CREATE MACRO make_dt_interval(days, hours := 0, minutes := 0, seconds := 0) AS "
    "to_days(CAST(days AS INT)) + to_hours(hours) + to_minutes(minutes) + to_seconds(seconds)",
)
# logs are hostile: whatever they hold, a query reads and writes nothing else and fetches nothing
_SEALED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}


class Queries(Protocol):
    """Frames by name, and queries over them."""

    def view(self, name: str, rows: Frame) -> None:
        """Gives rows a name."""

    def function(self, sql: str) -> None:
        """Makes a function: `CREATE OR REPLACE TEMPORARY FUNCTION name(argument TYPE, ..) RETURNS TYPE RETURN expression`."""

    def frame(self, sql: str) -> Frame:
        """What a query tells. Raises one of FAILED."""

    def rows(self, *queries: str) -> list[dict[str, Any]]:
        """What queries with the same columns tell, in one piece; moments have a zone. Raises one of FAILED."""


def over(spark: SparkSession, frames: Iterable[Frame]) -> Queries:
    """For queries over these and what is told of them; threads may share it."""
    are_few = all(isinstance(one, pa.Table) and one.num_rows <= MOST_ASKED_HERE for one in frames)
    return InProcess() if are_few else InSpark(spark)


class InSpark:
    """Queries that Spark runs; names are those of the whole session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # rows that have names already, with their frames
        self._named: list[tuple[Frame, DataFrame]] = []

    def view(self, name: str, rows: Frame) -> None:
        """Gives rows a name."""
        known = next((frame for one, frame in self._named if one is rows), None)
        frame = in_spark(self._spark, rows) if known is None else known
        self._named.append((rows, frame))
        frame.createOrReplaceTempView(name)

    def function(self, sql: str) -> None:
        """Makes a function."""
        self._spark.sql(sql)

    def frame(self, sql: str) -> Frame:
        """What a query tells, as a table where it is few rows."""
        return gathered(self._spark.sql(sql))

    def rows(self, *queries: str) -> list[dict[str, Any]]:
        """What queries tell. One text: every frame that is put together call by call is analysed again from its leaves."""
        return self._spark.sql(_in_one(queries)).toArrow().to_pylist()


class InProcess:
    """Queries that DuckDB runs in this process. Its moments have no zone, as those that have one are told in that of the machine."""

    def __init__(self) -> None:
        self._database: DuckDBPyConnection = duckdb.connect(config=_SEALED)
        # a connection serves one thread at a time
        self._turn = threading.Lock()
        for macro in _MACROS:
            self._database.execute(macro)

    def view(self, name: str, rows: Frame) -> None:
        """Gives rows a name."""
        assert isinstance(rows, pa.Table)
        with self._turn:
            self._database.register(name, _with_moments(rows, pa.timestamp("us")))

    def function(self, sql: str) -> None:
        """Makes a function."""
        with self._turn:
            self._database.execute(_macro(sql))

    def frame(self, sql: str) -> pa.Table:
        """What a query tells."""
        return self._told(_translated(sql))

    def rows(self, *queries: str) -> list[dict[str, Any]]:
        """What queries tell."""
        return self._told(_in_one(map(_translated, queries))).to_pylist()

    def _told(self, sql: str) -> pa.Table:
        with self._turn:
            found = self._database.sql(sql).to_arrow_table()
        return _with_moments(found, pa.timestamp("us", "UTC"))


def _in_one(queries: Iterable[str]) -> str:
    return "\nUNION ALL\n".join(queries)


def _with_moments(rows: pa.Table, moment: pa.DataType) -> pa.Table:
    """The same rows with moments of that type, and sums of whole numbers as Spark has them: BIGINT."""

    def kind(of: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(of):
            return moment
        if pa.types.is_decimal(of) and of.scale == 0:
            return pa.int64()
        if pa.types.is_list(of):
            return pa.list_(kind(of.value_type))
        if pa.types.is_struct(of):
            return pa.struct([(field.name, kind(field.type)) for field in of])
        return of

    return rows.cast(pa.schema([(field.name, kind(field.type)) for field in rows.schema]))


@lru_cache(TRANSLATED)
def _translated(sql: str) -> str:
    """A query of Spark's SQL as DuckDB has it."""
    return _adapted(sqlglot.parse_one(sql, read="spark")).sql(dialect="duckdb", comments=False)


@lru_cache(TRANSLATED)
def _macro(sql: str) -> str:
    """A function of Spark's SQL as DuckDB has it; the types of its arguments are those that it is called with."""
    made = sqlglot.parse_one(sql, read="spark")
    arguments = ", ".join(argument.name for argument in made.this.expressions)
    body = _adapted(exp.select(made.expression)).expressions[0].sql(dialect="duckdb", comments=False)
    return f"CREATE OR REPLACE MACRO {made.this.this.name}({arguments}) AS {body}"


def _adapted(tree: exp.Expr) -> exp.Expr:
    """What SQLGlot leaves as Spark means it, from the leaves up."""
    for node in reversed(list(tree.walk())):
        other = _as_in_spark(node)
        if other is not node:
            node.replace(other)
    return tree


def _as_in_spark(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.DataType() if node.this in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
            return exp.DataType.build("timestamp", dialect="duckdb")
        case exp.ArrayDistinct():
            return _call("array_distinct", node.this)
        case exp.Filter() if isinstance(node.this, exp.ArrayAgg | exp.ArrayUniqueAgg):
            return _or_empty(node)
        case exp.ArrayAgg() | exp.ArrayUniqueAgg() if not isinstance(node.parent, exp.Filter):
            return _or_empty(node)
        case exp.Exists() if isinstance(node.expression, exp.Lambda):
            return exp.func("len", exp.ArrayFilter(this=node.this, expression=node.expression)) > 0
        case exp.ArgMin():
            return _call("arg_min_null", node.this, _nulls_lowest(node.expression))
        case exp.ArgMax():
            return _call("arg_max_null", node.this, _nulls_lowest(node.expression))
        case exp.Min() if isinstance(node.this, exp.Struct):
            return _call("arg_min_null", node.this, _nulls_lowest(node.this))
        case exp.Max() if isinstance(node.this, exp.Struct):
            return _call("arg_max_null", node.this, _nulls_lowest(node.this))
        case exp.CountIf():
            # of nothing but nulls none
            return exp.Count(this=exp.Case().when(node.this.copy(), exp.convert(1)))
        case exp.ApproxQuantile():
            return _call("quantile_disc", node.this, node.args["quantile"])
        case exp.Concat() if len(node.expressions) == 1:
            return exp.cast(node.expressions[0], "text")
        case exp.Floor():
            return exp.cast(node.copy(), "bigint")
        case exp.UnixSeconds():
            return exp.cast(exp.Floor(this=exp.func("epoch", node.this)), "bigint")
        case exp.Struct() if node.find(exp.Star):
            return _call("struct_pack", exp.var("*COLUMNS(*)"))
        case exp.Inline():
            return _call("unnest", node.this, exp.Kwarg(this=exp.var("max_depth"), expression=exp.convert(2)))
        case _:
            return node


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call by that name, whatever SQLGlot takes the name for."""
    return exp.Anonymous(this=name, expressions=[one.copy() for one in arguments])


def _or_empty(some: exp.Expr) -> exp.Expr:
    """Of no rows a list without any."""
    return exp.Coalesce(this=some.copy(), expressions=[exp.Array()])


def _nulls_lowest(key: exp.Expr) -> exp.Expr:
    """What rows are compared by; a field that is null is smaller than any other, where DuckDB has it larger."""
    if not isinstance(key, exp.Struct):
        return key
    values = [one.expression if isinstance(one, exp.PropertyEQ) else one.unalias() for one in key.expressions]
    fields = [part for value in values for part in (value.is_(exp.null()).not_(), value.copy())]
    return exp.Struct(
        expressions=[exp.PropertyEQ(this=exp.to_identifier(f"k{n}"), expression=one) for n, one in enumerate(fields)]
    )
