"""Operations on rows: a query that DuckDB runs in this process (`engine.relation`), or a frame of Spark.

An operation takes rows of both kinds, and tables of Arrow. It returns a frame where one of them is a frame,
else a relation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from jobs.engine import rows_of
from jobs.engine.database import identifier
from jobs.engine.database import text as in_duckdb
from jobs.engine.frames import ROWS_IN_PLAN, OfBatches, by_workers, framed, most_sent
from jobs.engine.later import arrow
from jobs.engine.later import functions as F
from jobs.engine.literals import moment, quoted
from jobs.engine.relation import Relation, sorted_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Relation or Spark's DataFrame, which has no type hints; operations take tables of Arrow, too
Frame: TypeAlias = Any
Dicts: TypeAlias = list[dict[str, Any]]
# (the values of some columns, rows of the one frame, rows of the other) -> rows without these columns
Fold: TypeAlias = Callable[[tuple[Any, ...], Dicts, Dicts], Iterable[Mapping[str, Any]]]
# rows that a fold returns before they are turned into columns
BATCH = 20_000


def in_clusters(clusters: Iterable[str]) -> str:
    """Return a SQL condition."""
    names = sorted(clusters)
    return f"cluster IN ({', '.join(map(quoted, names))})" if names else "false"


def run_concurrently(*tasks: Callable[[], Any]) -> list[Any]:
    """Run each task in a thread, because a small Spark job mostly waits for the driver.

    Return their results; raise the first error.
    """
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


# -- conditions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Where:
    """A condition on a row, for Spark and for Arrow. A row for which it is null does not match."""

    sql: str
    arrow: Any = field(compare=False)

    def __and__(self, other: Where) -> Where:
        return Where(f"({self.sql}) AND ({other.sql})", self.arrow & other.arrow)

    def __or__(self, other: Where) -> Where:
        return Where(f"({self.sql}) OR ({other.sql})", self.arrow | other.arrow)

    def __invert__(self) -> Where:
        return Where(f"NOT ({self.sql})", ~self.arrow)


EVERY = Where("true", pc.scalar(True))
NONE = Where("false", pc.scalar(False))


def of_clusters(clusters: Iterable[str]) -> Where:
    """Return the condition that a row is of one of some clusters."""
    names = sorted(clusters)
    return (
        Where(in_clusters(names), pc.field("cluster").isin(pa.array(names, pa.string()))) if names else NONE
    )


def one_of(column: str, values: Iterable[str]) -> Where:
    """Return the condition that a column has one of some values; it is null where the column is."""
    some = sorted(values)
    if not some:
        return NONE
    listed = pc.if_else(
        pc.field(column).is_valid(), pc.field(column).isin(pa.array(some, pa.string())), pc.scalar(None)
    )
    return Where(f"{column} IN ({', '.join(map(quoted, some))})", listed)


def is_true(column: str) -> Where:
    """Return the condition that a boolean column is true."""
    return Where(column, pc.field(column))


def is_null(column: str) -> Where:
    """Return the condition that a column is null."""
    return Where(f"{column} IS NULL", pc.field(column).is_null())


def is_known(column: str) -> Where:
    """Return the condition that a column is not null."""
    return Where(f"{column} IS NOT NULL", pc.field(column).is_valid())


def starts_with(column: str, text: str) -> Where:
    """Return the condition that a column begins with a text."""
    return Where(f"startswith({column}, {quoted(text)})", pc.starts_with(pc.field(column), text))


def not_before(column: str, other: str) -> Where:
    """Return the condition that a moment is that of another column, or later."""
    return Where(f"{column} >= {other}", pc.field(column) >= pc.field(other))


def above(column: str, number: int) -> Where:
    """Return the condition that a number is larger than this one."""
    return Where(f"{column} > {number}", pc.field(column) > number)


def below(column: str, number: int) -> Where:
    """Return the condition that a number is smaller than this one."""
    return Where(f"{column} < {number}", pc.field(column) < number)


def has_fewer(column: str, count: int) -> Where:
    """Return the condition that a list has fewer elements than this."""
    return Where(f"size({column}) < {count}", pc.list_value_length(pc.field(column)) < count)


def at_or_after(column: str, at: datetime) -> Where:
    """Return the condition that a moment is this one (UTC) or later."""
    return Where(f"{column} >= {moment(at)}", pc.field(column) >= _moment(at))


def before(column: str, at: datetime) -> Where:
    """Return the condition that a moment is earlier than this one (UTC)."""
    return Where(f"{column} < {moment(at)}", pc.field(column) < _moment(at))


def at_or_before(column: str, at: datetime) -> Where:
    """Return the condition that a moment is this one (UTC) or earlier."""
    return Where(f"{column} <= {moment(at)}", pc.field(column) <= _moment(at))


def at_one_of(column: str, moments: Iterable[datetime]) -> Where:
    """Return the condition that a moment is one of some (UTC)."""
    some = sorted({at.replace(tzinfo=None) for at in moments})
    if not some:
        return NONE
    values = pa.array([at.replace(tzinfo=UTC) for at in some], pa.timestamp("us", "UTC"))
    return Where(f"{column} IN ({', '.join(map(moment, some))})", pc.field(column).isin(values))


def from_day(column: str, day: Any) -> Where:
    """Return the condition that a day, or the day of a moment, is this one or a later one."""
    return Where(
        f"to_date({column}) >= DATE '{day}'",
        pc.field(column).cast(pa.date32()) >= pa.scalar(day, pa.date32()),
    )


def _moment(at: datetime) -> pa.Scalar:
    return pa.scalar(at.replace(tzinfo=UTC), pa.timestamp("us", "UTC"))


def any_of(conditions: Iterable[Where]) -> Where:
    """Return the condition that at least one of some is met."""
    some = list(conditions)
    # pair by pair: nested conditions of hundreds of clusters would be too deep for a parser
    while len(some) > 1:
        some = [reduce(or_, some[at : at + 2]) for at in range(0, len(some), 2)]
    return some[0] if some else NONE


def by_cluster(conditions: Mapping[str, Where]) -> Where:
    """Return the condition that a row meets that of its cluster; a row of another cluster does not match."""
    return any_of(of_clusters([name]) & condition for name, condition in conditions.items())


def met(rows: pa.Table, condition: Where) -> pa.ChunkedArray:
    """Return, row by row, whether a condition is met."""
    are_met = (
        ds.dataset(rows).to_table(columns={"met": condition.arrow})["met"]
        if rows.num_rows
        else pa.chunked_array([], pa.bool_())
    )
    return pc.fill_null(are_met, False)


def among(rows: pa.Table, keys: pa.Table, on: Sequence[str]) -> pa.Array:
    """Return whether the values of some columns are among those of others, row by row.

    A null is like no other.
    """
    some, wanted = (zip(*(one[name].to_pylist() for name in on), strict=True) for one in (rows, keys))
    listed = {key for key in wanted if None not in key}
    return pa.array([key in listed for key in some], pa.bool_())


# -- operations ----------------------------------------------------------------------------------------------


def _alike(*some: Frame) -> list[Any]:
    """Return rows as frames where one of them is a frame, else as relations."""
    spark = next((one.sparkSession for one in some if not isinstance(one, pa.Table | Relation)), None)
    return [Relation.of(one) if spark is None else in_spark(spark, one) for one in some]


def where(rows: Frame, condition: Where) -> Frame:
    """Return the rows that meet a condition."""
    (one,) = _alike(rows)
    return one if condition == EVERY else one.filter(condition.sql)


def select(rows: Frame, *columns: str, **renamed: str) -> Frame:
    """Return some columns of the rows. renamed: new name -> column, behind the others."""
    (one,) = _alike(rows)
    if isinstance(one, Relation):
        return one.select(*columns, **renamed)
    return one.select(*columns, *(F.col(column).alias(name) for name, column in renamed.items()))


def together(*some: Frame) -> Frame:
    """Return the rows of all, columns by name and of the types of the first."""
    alike = _alike(*some)
    return reduce(
        lambda one, other: one.union(other) if isinstance(one, Relation) else one.unionByName(other), alike
    )


def distinct(rows: Frame) -> Frame:
    """Return each row once."""
    return _alike(rows)[0].distinct()


def is_empty(rows: Frame) -> bool:
    """Return whether there is no row."""
    (one,) = _alike(rows)
    return one.is_empty() if isinstance(one, Relation) else one.isEmpty()


def having(rows: Frame, keys: Frame, on: Sequence[str]) -> Frame:
    """Return the rows whose values of some columns are among those of others."""
    return _matched(rows, keys, on, "SEMI")


def lacking(rows: Frame, keys: Frame, on: Sequence[str]) -> Frame:
    """Return the rows whose values of some columns are not among those of others."""
    return _matched(rows, keys, on, "ANTI")


def _matched(rows: Frame, keys: Frame, on: Sequence[str], how: str) -> Frame:
    one, others = _alike(rows, keys)
    if isinstance(one, Relation):
        return one.matched(others, on, how)
    return one.join(F.broadcast(others.select(*on).distinct()), list(on), f"left_{how.lower()}")


def marked(rows: Frame, keys: Frame, on: Sequence[str], name: str) -> Frame:
    """Return the rows with a column that says whether their values of some columns are among those of others."""
    one, others = _alike(rows, keys)
    if isinstance(one, Relation):
        return one.marked(others, on, name)
    wanted = F.broadcast(others.select(*on).distinct().withColumn(name, F.lit(True)))
    return one.join(wanted, list(on), "left").withColumn(name, F.coalesce(name, F.lit(False)))


def marked_with_any(rows: Frame, column: str, values: Collection[int], name: str) -> Frame:
    """Return the rows with a column that says whether a list of theirs contains one of some values."""
    (one,) = _alike(rows)
    if isinstance(one, Relation):
        listed = ", ".join(map(str, sorted(values)))
        return one.with_column(
            name, pa.bool_(), f"coalesce(list_has_any({identifier(column)}, [{listed}]), false)"
        )
    some = F.array(*map(F.lit, sorted(values)))
    return one.withColumn(name, F.coalesce(F.arrays_overlap(column, some), F.lit(False)))


def looked_up(rows: Frame, known: pa.Table, on: Sequence[str]) -> Frame:
    """Return the rows joined to a table that has their values of some columns once or not at all."""
    one, others = _alike(rows, known)
    return (
        one.looked_up(others, on)
        if isinstance(one, Relation)
        else one.join(F.broadcast(others), list(on), "left")
    )


def in_microseconds(rows: Frame, *columns: str) -> Frame:
    """Return the rows with moments as microseconds since 1970."""
    (one,) = _alike(rows)
    for name in columns:
        if isinstance(one, Relation):
            one = one.with_column(name, pa.int64(), f"epoch_us({identifier(name)})")
        else:
            one = one.withColumn(name, F.unix_micros(name))
    return one


def with_values(rows: Frame, **values: Any) -> Frame:
    """Return the rows with one value in a column, which may be new."""
    (one,) = _alike(rows)
    for name, value in values.items():
        if isinstance(one, Relation):
            literal = in_duckdb(value) if isinstance(value, str) else json.dumps(value)
            one = one.with_column(name, pa.scalar(value).type, literal)
        else:
            one = one.withColumn(name, F.lit(value))
    return one


def unpacked(rows: Frame, struct: str, *columns: str) -> Frame:
    """Return the columns of the rows, and the fields of a struct of theirs."""
    (one,) = _alike(rows)
    return (
        one.unpacked(struct, *columns) if isinstance(one, Relation) else one.select(*columns, f"{struct}.*")
    )


def column_names(rows: Frame) -> list[str]:
    """Return the names of its columns."""
    return list(rows.column_names if isinstance(rows, pa.Table | Relation) else rows.columns)


def coalesced(rows: Frame, name: str, column: str, other: str) -> Frame:
    """Return the rows with a text: that of a column, or of another column where the first is null."""
    (one,) = _alike(rows)
    if isinstance(one, Relation):
        return one.with_column(name, pa.string(), f"coalesce({identifier(column)}, {identifier(other)})")
    return one.withColumn(name, F.coalesce(column, other))


def extremes(rows: Frame, by: Sequence[str], column: str) -> list[dict[str, Any]]:
    """Return the smallest and the largest value of a column, as first and last, by other columns."""
    (one,) = _alike(rows)
    if not isinstance(one, Relation):
        return to_dicts(one.groupBy(*by).agg(F.min(column).alias("first"), F.max(column).alias("last")))
    names, kinds = ", ".join(map(identifier, by)), one.schema
    schema = pa.schema(
        [*map(kinds.field, by), *((end, kinds.field(column).type) for end in ("first", "last"))]
    )
    sql = f"SELECT {names}, min({identifier(column)}) AS first, max({identifier(column)}) AS last FROM ({one.sql}) GROUP BY {names}"
    return one.made(sql, schema).table().to_pylist()


def spans(rows: Frame, by: str, moment: str, column: str) -> list[dict[str, Any]]:
    """Return, for each value of a column (by), how many rows have another column (count) and no moment (undated),
    and the first and last moment; moments have a zone.
    """
    (one,) = _alike(rows)
    if isinstance(one, Relation):
        kinds = one.schema
        ends = [pa.field(end, kinds.field(moment).type) for end in ("first", "last")]
        counts = [pa.field(name, pa.int64()) for name in ("count", "undated")]
        listed = (
            f"{identifier(by)}, count({identifier(column)}) AS count, count(*) - count({identifier(moment)}) AS undated, "
            f"min({identifier(moment)}) AS first, max({identifier(moment)}) AS last"
        )
        sql = f"SELECT {listed} FROM ({one.sql}) GROUP BY {identifier(by)}"
        return rows_of(one.made(sql, pa.schema([kinds.field(by), *counts, *ends])).table())
    asked = [
        F.count(column).alias("count"),
        F.count_if(F.col(moment).isNull()).alias("undated"),
        F.min(moment).alias("first"),
        F.max(moment).alias("last"),
    ]
    return rows_of(one.groupBy(by).agg(*asked).toArrow())


def differing(some: Frame, others: Frame, keys: Sequence[str]) -> Frame:
    """Return the keys of rows that one side has more often than the other, computed once."""
    one, other = _alike(some, select(others, *column_names(some)))
    if isinstance(one, Relation):
        changed = [f"(({a.sql}) EXCEPT ALL ({b.sql}))" for a, b in ((one, other), (other, one))]
        return computed(one.made(" UNION ALL ".join(changed), one.schema, other).select(*keys).distinct())
    both = one.withColumn("more", F.lit(1)).unionByName(other.withColumn("more", F.lit(-1)))
    counted = both.groupBy(*one.columns).agg(F.sum("more").alias("more")).filter("more <> 0")
    return computed(counted.select(*keys).distinct())


def by_batch(rows: Frame, function: OfBatches, schema: pa.Schema) -> Frame:
    """Return what a function returns for batches of the rows, computed in this process or by Spark's workers."""
    (one,) = _alike(rows)
    return (
        Relation.of(one.mapped(function, schema))
        if isinstance(one, Relation)
        else by_workers(one, function, schema)
    )


def mapped(
    rows: Frame, function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]], schema: pa.Schema
) -> Frame:
    """Return the rows that a function returns for each row."""

    def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist(
                [one for row in batch.to_pylist() for one in function(row)], schema
            )

    return by_batch(rows, results, schema)


def map_groups(one: Frame, other: Frame, by: Sequence[str], fold: Fold, schema: pa.Schema) -> Frame:
    """Return what a function returns for the rows of both that share the values of some columns.

    out: these columns and those of the schema.
    """

    def folded(key: tuple[Any, ...], some: Dicts, others: Dicts) -> Dicts:
        return [{**dict(zip(by, key, strict=True)), **row} for row in fold(key, some, others)]

    def of_worker(key: Any, some: Any, others: Any) -> Any:
        rows = folded(tuple(value.as_py() for value in key), some.to_pylist(), others.to_pylist())
        return pa.Table.from_pylist(rows, schema=schema)

    left, right = _alike(one, other)
    if isinstance(left, Relation):
        return _folded_in_order(left, right, by, folded, schema)
    # new names, because both sides may derive from one frame
    left, right = (frame.toDF(*frame.columns) for frame in (left, right))
    return (
        left.groupBy(*by).cogroup(right.groupBy(*by)).applyInArrow(of_worker, arrow.from_arrow_schema(schema))
    )


def _folded_in_order(
    one: Relation,
    other: Relation,
    by: Sequence[str],
    folded: Callable[[tuple[Any, ...], Dicts, Dicts], Dicts],
    schema: pa.Schema,
) -> Relation:
    """Return what a function returns for the groups of both.

    Groups are read in order, so that one of each is in memory.
    """
    sides = [one.groups(by), other.groups(by)]
    heads = [next(side, None) for side in sides]
    folded_rows, rows = [schema.empty_table()], []
    while any(head is not None for head in heads):
        key = min((head[0] for head in heads if head is not None), key=sorted_key)
        some: list[Dicts] = []
        for number, head in enumerate(heads):
            is_mine = head is not None and head[0] == key
            some.append(head[1] if head is not None and is_mine else [])
            if is_mine:
                heads[number] = next(sides[number], None)
        rows += folded(key, some[0], some[1])
        if len(rows) >= BATCH:
            folded_rows.append(pa.Table.from_pylist(rows, schema=schema))
            rows = []
    return Relation.of(pa.concat_tables([*folded_rows, pa.Table.from_pylist(rows, schema=schema)]))


def computed(rows: Frame) -> Frame:
    """Return the rows, computed once: in memory where Spark may send that many, else as its workers store them."""
    (one,) = _alike(rows)
    if isinstance(one, Relation):
        return Relation.of(one.table())
    # not persist: a query over a plan with lambdas does not find its cached rows
    stored = one.localCheckpoint()
    return Relation.of(stored.toArrow()) if stored.count() <= most_sent() else stored


def in_spark(spark: SparkSession, rows: Frame) -> DataFrame:
    """Return the rows as a frame."""
    if not isinstance(rows, pa.Table | Relation):
        return rows
    few = to_table(rows)
    return (
        framed(spark, few)
        if few.num_rows <= ROWS_IN_PLAN
        else framed(spark, few).localCheckpoint(eager=False)
    )


def to_dicts(rows: Frame) -> list[dict[str, Any]]:
    """Return the rows, one by one; moments with a zone."""
    return to_table(rows).to_pylist()


def to_table(rows: Frame) -> pa.Table:
    """Return all rows in memory, whatever their number."""
    if isinstance(rows, Relation):
        return rows.table()
    return rows if isinstance(rows, pa.Table) else rows.toArrow()
