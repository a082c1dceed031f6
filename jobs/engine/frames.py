"""Frames of few rows: Spark plans, optimises and runs a query the sooner the less it has to read for it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa

from jobs.engine.later import arrow, types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# rows that stand in a plan as they are
MOST_IN_PLAN = 10_000

OfBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def where_few(rows: DataFrame, most: int = MOST_IN_PLAN) -> pa.Table | None:
    """The rows, where they are no more than so many; else None."""
    found = rows.limit(most + 1).toArrow()
    return found if found.num_rows <= most else None


def framed(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows in a plan.

    createDataFrame loses what stands behind a chunk without rows, and fails where a column has no chunk; Spark Connect infers no columns
    of a table without rows.
    """
    whole = pa.table([column.combine_chunks() for column in rows.columns], schema=rows.schema)
    return spark.createDataFrame(whole, None if whole.num_rows else arrow.from_arrow_schema(rows.schema))


def of_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], columns: pa.Schema | str) -> DataFrame:
    """Rows in a plan; columns: as Arrow or Spark's DDL has them. A list that createDataFrame is given is read by Python workers, which take a second to start."""
    schema = arrow.to_arrow_schema(types.StructType.fromDDL(columns)) if isinstance(columns, str) else columns
    return framed(spark, pa.Table.from_pylist(list(rows), schema=schema))


def by_workers(rows: DataFrame, function: OfBatches, columns: pa.Schema | str) -> DataFrame:
    """What a function makes of batches of the rows in Spark's Python workers; columns: as `of_rows` has them."""

    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # before each task Spark invalidates the import caches and looks through all objects for garbage. Up to Python 3.11 the first
        # has the directories of its own archives read anew, a tenth of a second (python/cpython#103200); what is loaded by now stays
        for path in [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]:
            del sys.path_importer_cache[path]
        if not gc.get_freeze_count():
            gc.freeze()
        yield from function(batches)

    return rows.mapInArrow(of_task, columns if isinstance(columns, str) else arrow.from_arrow_schema(columns))
