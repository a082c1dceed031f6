"""One interface to rows: an Arrow table in this process, a query that DuckDB runs (`engine.relation`), or a Spark frame."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from jobs.engine.database import identifier
from jobs.engine.database import text as in_duckdb
from jobs.engine.frames import ROWS_IN_PLAN, OfBatches, by_workers, framed, in_process_rows, small_table
from jobs.engine.later import arrow
from jobs.engine.later import functions as F
from jobs.engine.literals import moment, quoted
from jobs.engine.relation import Relation, sorted_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pa.Table, Relation or Spark's DataFrame; two of them have no type hints
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
    """Run each task in a thread, because a small Spark job mostly waits for the driver. Return their results; raise the first error."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


# -- conditions ------------------------------------------------------------------------------------------------


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
    return Where(in_clusters(names), pc.field("cluster").isin(pa.array(names, pa.string()))) if names else NONE


def one_of(column: str, values: Iterable[str]) -> Where:
    """Return the condition that a column has one of some values; it is null where the column is."""
    some = sorted(values)
    if not some:
        return NONE
    listed = pc.if_else(pc.field(column).is_valid(), pc.field(column).isin(pa.array(some, pa.string())), pc.scalar(None))
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
    return Where(f"to_date({column}) >= DATE '{day}'", pc.field(column).cast(pa.date32()) >= pa.scalar(day, pa.date32()))


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
        ds.dataset(rows).to_table(columns={"met": condition.arrow})["met"] if rows.num_rows else pa.chunked_array([], pa.bool_())
    )
    return pc.fill_null(are_met, False)


# -- operations ------------------------------------------------------------------------------------------------


def where(rows: Frame, condition: Where) -> Frame:
    """Return the rows that meet a condition."""
    if isinstance(rows, pa.Table):
        return rows.filter(condition.arrow)
    return rows if condition == EVERY else rows.filter(condition.sql)


def select(rows: Frame, *columns: str, **renamed: str) -> Frame:
    """Return some columns of the rows. renamed: new name -> column, behind the others."""
    if isinstance(rows, pa.Table):
        return pa.table([rows[name] for name in (*columns, *renamed.values())], names=[*columns, *renamed])
    if isinstance(rows, Relation):
        return rows.select(*columns, **renamed)
    return rows.select(*columns, *(F.col(column).alias(name) for name, column in renamed.items()))


def together(one: Frame, *others: Frame) -> Frame:
    """Return the rows of all, columns by name and of the types of the first."""
    found = one
    for other in others:
        if isinstance(found, pa.Table) and isinstance(other, pa.Table):
            found = pa.concat_tables([found, other.select(found.column_names).cast(found.schema)])
        elif isinstance(found, Relation) or isinstance(other, Relation):
            found = Relation.of(found).union(Relation.of(other))
        else:
            spark = (found if not isinstance(found, pa.Table) else other).sparkSession
            found = in_spark(spark, found).unionByName(in_spark(spark, other))
    return found


def distinct(rows: Frame) -> Frame:
    """Return each row once. Rows in memory may have no column of lists."""
    return rows.group_by(rows.column_names).aggregate([]) if isinstance(rows, pa.Table) else rows.distinct()


def is_empty(rows: Frame) -> bool:
    """Return whether there is no row."""
    if isinstance(rows, pa.Table):
        return not rows.num_rows
    return rows.is_empty() if isinstance(rows, Relation) else rows.isEmpty()


def having(rows: Frame, keys: Frame, on: Sequence[str]) -> Frame:
    """Return the rows whose values of some columns are among those of others."""
    return _matched(rows, keys, on, "left_semi")


def lacking(rows: Frame, keys: Frame, on: Sequence[str]) -> Frame:
    """Return the rows whose values of some columns are not among those of others."""
    return _matched(rows, keys, on, "left_anti")


def _matched(rows: Frame, keys: Frame, on: Sequence[str], how: str) -> Frame:
    if isinstance(keys, pa.Table) and not keys.num_rows:
        return where(rows, NONE) if how == "left_semi" else rows
    if isinstance(rows, pa.Table) and isinstance(keys, pa.Table):
        are_there = among(rows, keys, on)
        return rows.filter(are_there if how == "left_semi" else pc.invert(are_there))
    if isinstance(rows, Relation) or isinstance(keys, Relation):
        return Relation.of(rows).matched(Relation.of(keys), on, "SEMI" if how == "left_semi" else "ANTI")
    spark = (rows if not isinstance(rows, pa.Table) else keys).sparkSession
    others = in_spark(spark, select(keys, *on)).distinct()
    return in_spark(spark, rows).join(F.broadcast(others), list(on), how)


def among(rows: pa.Table, keys: pa.Table, on: Sequence[str]) -> pa.Array:
    """Return whether the values of some columns are among those of others, row by row; a null is like no other."""
    some, wanted = (zip(*(one[name].to_pylist() for name in on), strict=True) for one in (rows, keys))
    listed = {key for key in wanted if None not in key}
    return pa.array([key in listed for key in some], pa.bool_())


def marked(rows: Frame, keys: Frame, on: Sequence[str], name: str) -> Frame:
    """Return the rows with a column that says whether their values of some columns are among those of others."""
    if isinstance(rows, pa.Table) and isinstance(keys, pa.Table):
        return rows.append_column(name, among(rows, keys, on))
    if isinstance(rows, Relation) or isinstance(keys, Relation):
        return Relation.of(rows).marked(Relation.of(keys), on, name)
    spark = (rows if not isinstance(rows, pa.Table) else keys).sparkSession
    others = in_spark(spark, select(keys, *on)).distinct().withColumn(name, F.lit(True))
    return in_spark(spark, rows).join(F.broadcast(others), list(on), "left").withColumn(name, F.coalesce(name, F.lit(False)))


def marked_with_any(rows: Frame, column: str, values: Collection[int], name: str) -> Frame:
    """Return the rows with a column that says whether a list of theirs contains one of some values."""
    if isinstance(rows, pa.Table):
        wanted = frozenset(values)
        return rows.append_column(
            name, pa.array([not wanted.isdisjoint(some or ()) for some in rows[column].to_pylist()], pa.bool_())
        )
    if isinstance(rows, Relation):
        listed = ", ".join(map(str, sorted(values)))
        return rows.with_column(name, pa.bool_(), f"coalesce(list_has_any({identifier(column)}, [{listed}]), false)")
    some = F.array(*map(F.lit, sorted(values)))
    return rows.withColumn(name, F.coalesce(F.arrays_overlap(column, some), F.lit(False)))


def looked_up(rows: Frame, known: pa.Table, on: Sequence[str]) -> Frame:
    """Return the rows joined to a table that has their values of some columns once or not at all."""
    if isinstance(rows, Relation):
        return rows.looked_up(Relation.of(known), on)
    if not isinstance(rows, pa.Table):
        return rows.join(F.broadcast(framed(rows.sparkSession, known)), list(on), "left")
    places = {key: at for at, key in enumerate(zip(*(known[name].to_pylist() for name in on), strict=True))}
    wanted = zip(*(rows[name].to_pylist() for name in on), strict=True)
    found = known.take(pa.array([places.get(key) for key in wanted], pa.int64()))
    for name in known.column_names:
        if name not in on:
            rows = rows.append_column(name, found[name])
    return rows


def in_microseconds(rows: Frame, *columns: str) -> Frame:
    """Return the rows with moments as microseconds since 1970."""
    for name in columns:
        if isinstance(rows, pa.Table):
            rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.int64()))
        elif isinstance(rows, Relation):
            rows = rows.with_column(name, pa.int64(), f"epoch_us({identifier(name)})")
        else:
            rows = rows.withColumn(name, F.unix_micros(name))
    return rows


def with_values(rows: Frame, **values: Any) -> Frame:
    """Return the rows with one value in a column, which may be new."""
    for name, value in values.items():
        if isinstance(rows, pa.Table):
            same = pa.array([value] * rows.num_rows, pa.scalar(value).type)
            at = rows.schema.get_field_index(name)
            rows = rows.append_column(name, same) if at < 0 else rows.set_column(at, name, same)
        elif isinstance(rows, Relation):
            literal = in_duckdb(value) if isinstance(value, str) else json.dumps(value)
            rows = rows.with_column(name, pa.scalar(value).type, literal)
        else:
            rows = rows.withColumn(name, F.lit(value))
    return rows


def unpacked(rows: Frame, struct: str, *columns: str) -> Frame:
    """Return the columns of the rows, and the fields of a struct of theirs."""
    if isinstance(rows, pa.Table):
        fields = rows.select([struct]).flatten()
        names = [name.removeprefix(f"{struct}.") for name in fields.column_names]
        return pa.table([*(rows[name] for name in columns), *fields.columns], names=[*columns, *names])
    if isinstance(rows, Relation):
        return rows.unpacked(struct, *columns)
    return rows.select(*columns, f"{struct}.*")


def column_names(rows: Frame) -> list[str]:
    """Return the names of its columns."""
    return list(rows.column_names if isinstance(rows, pa.Table | Relation) else rows.columns)


def coalesced(rows: Frame, name: str, column: str, other: str) -> Frame:
    """Return the rows with a text: that of a column, or of another column where the first is null."""
    if isinstance(rows, pa.Table):
        return rows.append_column(name, pc.coalesce(rows[column], rows[other]))
    if isinstance(rows, Relation):
        return rows.with_column(name, pa.string(), f"coalesce({identifier(column)}, {identifier(other)})")
    return rows.withColumn(name, F.coalesce(column, other))


def extremes(rows: Frame, by: Sequence[str], column: str) -> list[dict[str, Any]]:
    """Return the smallest and the largest value of a column, as first and last, by other columns."""
    if isinstance(rows, Relation):
        names = ", ".join(map(identifier, by))
        schema = pa.schema(
            [*(rows.schema.field(one) for one in by), *((end, rows.schema.field(column).type) for end in ("first", "last"))]
        )
        sql = f"SELECT {names}, min({identifier(column)}) AS first, max({identifier(column)}) AS last FROM ({rows.sql}) GROUP BY {names}"
        return rows.made(sql, schema).table().to_pylist()
    if isinstance(rows, pa.Table):
        ends = rows.group_by(list(by)).aggregate([(column, "min"), (column, "max")])
        return to_dicts(select(ends, *by, first=f"{column}_min", last=f"{column}_max"))
    return to_dicts(rows.groupBy(*by).agg(F.min(column).alias("first"), F.max(column).alias("last")))


def span(rows: Frame, moment: str, column: str) -> dict[str, Any]:
    """Return how many rows have a column (count) and no moment (undated), and the first and last hour of the moments, UTC without a zone."""
    if isinstance(rows, Relation):
        ends = {end: f"date_trunc('hour', {which}({moment}))" for end, which in (("first", "min"), ("last", "max"))}
        found = rows.summed(count=f"count({column})", undated=f"count(*) - count({moment})", **ends)
        return found | {end: found[end] and found[end].replace(tzinfo=None) for end in ends}
    if isinstance(rows, pa.Table):
        found = pc.min_max(pc.floor_temporal(rows[moment], unit="hour")).as_py()
        first, last = (found[end] and found[end].replace(tzinfo=None) for end in ("min", "max"))
        count = rows.num_rows - rows[column].null_count
        return {"count": count, "undated": rows[moment].null_count, "first": first, "last": last}
    hour = F.date_trunc("hour", moment)
    asked = [F.min(hour).alias("first"), F.max(hour).alias("last"), F.count_if(F.col(moment).isNull()).alias("undated")]
    return rows.agg(F.count(column).alias("count"), *asked).first().asDict()


def differing(some: Frame, others: Frame, keys: Sequence[str]) -> Frame:
    """Return the keys of rows that one side has more often than the other."""
    if isinstance(some, Relation) or isinstance(others, Relation):
        one, other = Relation.of(some), Relation.of(others).select(*column_names(some))
        changed = [f"(({a.sql}) EXCEPT ALL ({b.sql}))" for a, b in ((one, other), (other, one))]
        return one.made(" UNION ALL ".join(changed), one.schema, other).select(*keys).distinct().table()
    names = column_names(some)
    if isinstance(some, pa.Table) and isinstance(others, pa.Table):
        both = together(some, others)
        texts = [repr(row) for row in both.to_pylist()]
        more = Counter(texts[: some.num_rows])
        more.subtract(texts[some.num_rows :])
        return distinct(both.filter(pa.array([more[text] != 0 for text in texts], pa.bool_())).select(list(keys)))
    spark = (some if not isinstance(some, pa.Table) else others).sparkSession
    one_more, one_less = in_spark(spark, some).withColumn("more", F.lit(1)), in_spark(spark, others).withColumn("more", F.lit(-1))
    counted = one_more.unionByName(one_less).groupBy(*names).agg(F.sum("more").alias("more")).filter("more <> 0")
    return computed(counted.select(*keys).distinct())


def by_batch(rows: Frame, function: OfBatches, schema: pa.Schema) -> Frame:
    """Return what a function returns for batches of the rows, computed in this process or by Spark's workers."""
    if isinstance(rows, pa.Table):
        return pa.Table.from_batches(function(rows.to_batches()), schema)
    if isinstance(rows, Relation):
        return rows.mapped(function, schema)
    return by_workers(rows, function, schema)


def mapped(rows: Frame, function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]], schema: pa.Schema) -> Frame:
    """Return the rows that a function returns for each row."""

    def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist([one for row in batch.to_pylist() for one in function(row)], schema)

    return by_batch(rows, results, schema)


def map_groups(one: Frame, other: Frame, by: Sequence[str], fold: Fold, schema: pa.Schema) -> Frame:
    """Return what a function returns for the rows of both that share the values of some columns. out: these columns and those of the schema."""

    def folded(key: tuple[Any, ...], some: Dicts, others: Dicts) -> Dicts:
        return [{**dict(zip(by, key, strict=True)), **row} for row in fold(key, some, others)]

    def of_worker(key: Any, some: Any, others: Any) -> Any:
        rows = folded(tuple(value.as_py() for value in key), some.to_pylist(), others.to_pylist())
        return pa.Table.from_pylist(rows, schema=schema)

    if isinstance(one, Relation) or isinstance(other, Relation):
        return _folded_in_order(Relation.of(one), Relation.of(other), by, folded, schema)
    one, other = run_concurrently(*(partial(in_memory_if_small, frame) for frame in (one, other)))
    if isinstance(one, pa.Table) and isinstance(other, pa.Table):
        some, others = (_grouped(table, by) for table in (one, other))
        rows = [row for key in {**some, **others} for row in folded(key, some.get(key, []), others.get(key, []))]
        return pa.Table.from_pylist(rows, schema=schema)
    spark = (one if not isinstance(one, pa.Table) else other).sparkSession
    # new names, because both sides may derive from one frame
    left, right = (frame.toDF(*frame.columns) for frame in (in_spark(spark, one), in_spark(spark, other)))
    return left.groupBy(*by).cogroup(right.groupBy(*by)).applyInArrow(of_worker, arrow.from_arrow_schema(schema))


def _folded_in_order(
    one: Relation, other: Relation, by: Sequence[str], folded: Callable[[tuple[Any, ...], Dicts, Dicts], Dicts], schema: pa.Schema
) -> pa.Table:
    """Yield what a function returns for the groups of both. Groups are read in order, so that one of each is in memory."""
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
    return pa.concat_tables([*folded_rows, pa.Table.from_pylist(rows, schema=schema)])


def _grouped(table: pa.Table, by: Sequence[str]) -> dict[tuple[Any, ...], Dicts]:
    found: dict[tuple[Any, ...], Dicts] = {}
    for row in table.to_pylist():
        found.setdefault(tuple(row[name] for name in by), []).append(row)
    return found


def computed(rows: Frame) -> Frame:
    """Return the rows, computed once."""
    if isinstance(rows, Relation):
        return Relation.of(rows.table())
    if isinstance(rows, pa.Table):
        return rows
    few = small_table(rows)
    # not persist: a query over a plan with lambdas does not find its cached rows
    return rows.localCheckpoint(eager=False) if few is None else few


def table_if_small(rows: Frame) -> pa.Table | None:
    """Return the rows in memory where this process handles that many, else None."""
    if not isinstance(rows, pa.Table):
        return small_table(rows)
    return rows if rows.num_rows <= in_process_rows() else None


def in_memory_if_small(rows: Frame) -> Frame:
    """Return rows of Spark in memory where this process handles that many, else unchanged."""
    few = None if isinstance(rows, pa.Table) else small_table(rows)
    return rows if few is None else few


def in_spark(spark: SparkSession, rows: Frame) -> DataFrame:
    """Return the rows as a frame."""
    if not isinstance(rows, pa.Table):
        return rows
    return framed(spark, rows) if rows.num_rows <= ROWS_IN_PLAN else framed(spark, rows).localCheckpoint(eager=False)


def to_dicts(rows: Frame) -> list[dict[str, Any]]:
    """Return the rows, one by one; moments with a zone."""
    return to_table(rows).to_pylist()


def to_table(rows: Frame) -> pa.Table:
    """Return all rows in memory, whatever their number."""
    if isinstance(rows, Relation):
        return rows.table()
    return rows if isinstance(rows, pa.Table) else rows.toArrow()
