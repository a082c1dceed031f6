"""Topic after topic through a function of plain rows: on the driver where there are few rows, else by Spark's workers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.folding import MOST_ON_DRIVER
from jobs.store import run_concurrently

KEY = ("cluster", "incarnation", "topic")
Rows = list[dict[str, Any]]
# (the values of KEY, rows of the one frame, rows of the other) -> rows without KEY
Fold = Callable[[tuple[Any, ...], Rows, Rows], Iterable[Mapping[str, Any]]]


def fold_topics(one: DataFrame, other: DataFrame, fold: Fold, schema: Any) -> DataFrame:
    """Folds the rows of each topic of one incarnation. in: two frames with KEY. out: KEY and what the fold returns, as schema has it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    spark, arrow = one.sparkSession, to_arrow_schema(schema)

    def folded(key: tuple[Any, ...], some: Rows, others: Rows) -> Rows:
        return [{**dict(zip(KEY, key, strict=True)), **row} for row in fold(key, some, others)]

    def of_worker(key: Any, some: Any, others: Any) -> Any:
        rows = folded(tuple(value.as_py() for value in key), some.to_pylist(), others.to_pylist())
        return pa.Table.from_pylist(rows, schema=arrow)

    few = run_concurrently(*(frame.limit(MOST_ON_DRIVER + 1).toArrow for frame in (one, other)))
    if all(table.num_rows <= MOST_ON_DRIVER for table in few):
        some, others = (_by_topic(table) for table in few)
        rows = [row for key in {**some, **others} for row in folded(key, some.get(key, []), others.get(key, []))]
        return spark.createDataFrame(pa.Table.from_pylist(rows, schema=arrow))
    # columns of their own: both sides may come from one frame
    one, other = one.toDF(*one.columns), other.toDF(*other.columns)
    return one.groupBy(*KEY).cogroup(other.groupBy(*KEY)).applyInArrow(of_worker, schema)


def _by_topic(table: pa.Table) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row in table.to_pylist():
        found.setdefault(tuple(row[name] for name in KEY), []).append(row)
    return found
