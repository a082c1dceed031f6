"""Small frames whose rows are part of Spark's plan: a query over them is planned and run faster."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyarrow as pa

from jobs.engine.later import arrow
from jobs.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# a run on Spark reads, compares and folds at most this many rows in its own process: Spark takes longer to
# start on fewer. Over 500,000 rows its checks take 40 s on two cores, DuckDB's 4 s. This variable of the
# environment gives another number; 0: Spark does all of it
IN_PROCESS_ROWS = 1_000_000
IN_PROCESS = "KAFKA_AUDIT_IN_PROCESS_ROWS"
# Spark sends at most this many of them: a query fails beyond spark.driver.maxResultSize, which is 1 GB and
# holds these with lines of 4 KB
ROWS_SENT = 250_000
# rows that a plan contains as literals, which each query over it processes again
ROWS_IN_PLAN = 10_000

OfBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def in_process_rows() -> int:
    """Return how many rows a run on Spark may handle in its own process.

    Raises UsageError where the environment has no such number.
    """
    given = os.environ.get(IN_PROCESS, str(IN_PROCESS_ROWS))
    if not given.isdecimal():
        raise UsageError(f"{IN_PROCESS}={given!r} is no number of rows")
    return int(given)


def most_sent() -> int:
    """Return how many rows Spark may send to this process at most."""
    return min(in_process_rows(), ROWS_SENT)


def framed(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return the rows in a plan.

    createDataFrame loses what stands behind a chunk without rows, and fails where a column has no chunk;
    Spark Connect infers no columns of a table without rows.
    """
    whole = pa.table([column.combine_chunks() for column in rows.columns], schema=rows.schema)
    return spark.createDataFrame(whole, None if whole.num_rows else arrow.from_arrow_schema(rows.schema))


def by_workers(rows: DataFrame, function: OfBatches, columns: pa.Schema | str) -> DataFrame:
    """Return what a function returns for batches of the rows, in Spark's Python workers.

    columns: as Arrow or Spark's DDL has them.
    """

    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # before each task Spark invalidates the import caches and looks through all objects for garbage. Up
        # to Python 3.11 the first reads the directories of its archives again, which takes a tenth of a
        # second (python/cpython#103200); loaded modules stay
        for path in [
            path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)
        ]:
            del sys.path_importer_cache[path]
        if not gc.get_freeze_count():
            gc.freeze()
        yield from function(batches)

    return rows.mapInArrow(of_task, columns if isinstance(columns, str) else arrow.from_arrow_schema(columns))
