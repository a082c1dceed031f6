"""Parse logs in Spark's workers: they keep the rows, Spark finds duplicates, and a write adds the others to a
table.
"""

from __future__ import annotations

import gc
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial, reduce
from typing import Any

import pyarrow as pa

from jobs.batches.record_blocks import (
    TIMES,
    Last,
    StoredRecords,
    filled_columns,
    parse,
    records_at,
    remaining,
)
from jobs.engine.frames import by_workers
from jobs.engine.later import functions as F
from jobs.engine.later import sql
from jobs.files import ingest
from jobs.files.ingest import Split
from parsers.events import Parser
from parsers.rules import RuleSet

Batches = Iterable[pa.RecordBatch]

_BLOCK = pa.schema(
    [
        ("table", pa.string()),
        ("number", pa.int64()),
        ("block", pa.binary()),
        ("rows", pa.binary()),
        ("ids", pa.list_(pa.binary())),
    ]
)


class OnWorkers:
    """Splits parsed by Spark's workers. blocks: without rows.

    The workers keep the rows as Arrow streams, because storing 70 columns costs more than parsing.
    """

    def __init__(
        self,
        spark: Any,
        splits: Sequence[Split],
        parser: Parser,
        days: tuple[date, date] | None,
        remote: Sequence[Any] = (),
    ) -> None:
        """remote: the `remote.Remote` of the splits with a URI."""
        self.splits = splits
        frames = []
        for one in remote:
            if one.pieces is None:
                continue
            by_uri = defaultdict[str, list[Split]](list)
            for split in splits:
                if split.file.cluster == one.cluster:
                    by_uri[split.file.uri].append(split)
            frames.append(
                by_workers(one.pieces, _work(partial(_fetched, by_uri), parser.ruleset, days), _BLOCK)
            )
        if tasks := [split for split in splits if not split.file.uri]:
            partitions = min(
                len(tasks), 1 + sum(split.end - split.begin for split in tasks) // ingest.SMALLEST_SPLIT
            )
            numbers = spark.range(0, len(tasks), 1, partitions)
            frames.append(by_workers(numbers, _work(partial(_numbered, tasks), parser.ruleset, days), _BLOCK))
        self._packed = reduce(lambda one, other: one.unionByName(other), frames).persist()
        self.blocks = [pickle.loads(row.block) for row in self._packed.select("block").collect()]

    def duplicates(self, table: str, stored: StoredRecords) -> tuple[Any, int]:
        """Return the same as `in_process.InProcess.duplicates`.

        The first value is None or a DataFrame: number BIGINT, places ARRAY<INT>.
        """
        ids = self._packed.filter(F.col("table") == table).select(
            "number", F.posexplode("ids").alias("place", "id")
        )
        # only duplicates are ordered, because they are rare
        repeated = ids.groupBy("id").count().filter("count > 1").select("id").persist()
        nth = F.row_number().over(sql.Window.partitionBy("id").orderBy("number", "place"))
        found = ids.join(repeated, "id").withColumn("nth", nth).filter("nth > 1").select("number", "place")
        known = _ids(stored)
        if known is not None:
            found = found.unionByName(ids.join(known, "id", "left_semi").select("number", "place"))
        elif repeated.isEmpty():
            return None, 0
        places = found.groupBy("number").agg(F.collect_set("place").alias("places")).persist()
        return places, places.selectExpr("sum(size(places))").first()[0] or 0

    def records_at(self, moments: set[datetime]) -> list[Last]:
        """Return the records that have one of these time stamps."""

        def find(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                found = [
                    pickle.dumps(list(records_at(_unpacked(packed), moments))) for packed in batch.column(0)
                ]
                yield pa.RecordBatch.from_pydict({"found": found}, schema=pa.schema([("found", pa.binary())]))

        rows = by_workers(
            self._packed.filter("table = 'events'").select("rows"), find, "found BINARY"
        ).collect()
        return [last for row in rows for last in pickle.loads(row.found)]

    def rows(self, table: str, dropped: Any, cut_short: set[str]) -> Any:
        """Return the rows that are no duplicates, as a DataFrame."""
        schema = filled_columns(table, self.blocks)

        def unpack(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for packed, places in zip(*batch.columns, strict=True):
                    yield from remaining(
                        _unpacked(packed), schema, places.as_py() or (), cut_short
                    ).to_batches()

        packed = self._packed.filter(F.col("table") == table)
        if dropped is None:
            packed = packed.withColumn("places", F.lit(None).cast("array<int>"))
        else:
            packed = packed.join(F.broadcast(dropped), "number", "left")
        return by_workers(packed.select("rows", "places"), unpack, schema)

    def append(self, store: Any, table: str, dropped: Any, cut_short: set[str], after: int) -> Counter[str]:
        """Do the same as `in_process.InProcess.append`; the rows are counted while they are written."""
        counts = {"records": F.lit(True)}
        if table == "events":
            whole = F.col("item") == 0
            counts = {
                "records": whole,
                "recognised": whole & F.col("event_type").isNotNull(),
                "drifted": whole & F.col("drifted"),
            }
        seen, rows = sql.Observation(), self.rows(table, dropped, cut_short)
        store.append(
            table,
            rows.observe(seen, *(F.count_if(which).alias(name) for name, which in counts.items())),
            after,
        )
        return Counter(seen.get)

    def close(self) -> None:
        """Free memory."""
        self._packed.unpersist()


def _ids(stored: StoredRecords) -> Any:
    """Return a DataFrame with id BINARY, or None where no records are stored."""
    if stored.store.has_none(stored.table):
        return None
    time = F.col(TIMES[stored.table])
    rows = stored.store.rows_of(stored.table, stored.clusters).filter(
        time.isNull() | time.between(stored.first, stored.final)
    )
    if stored.table == "passed_over":
        return rows.select(F.unhex(F.lpad(F.hex("record"), 16, "0")).alias("id"))
    return rows.filter("item = 0").select(F.unhex("record_id").alias("id"))


def _numbered(tasks: Sequence[Split], batches: Batches) -> Iterator[Split]:
    """Return the splits with these numbers."""
    return (tasks[number] for batch in batches for number in batch.column(0).to_pylist())


def _fetched(by_uri: Mapping[str, Sequence[Split]], batches: Batches) -> Iterator[Split]:
    """Return the splits whose files are read in pieces."""
    for uri, path in ingest.fetched(batches):
        for split in by_uri.get(uri, ()):
            yield replace(split, file=replace(split.file, path=path))


def _work(
    splits_of: Callable[[Batches], Iterator[Split]], ruleset: RuleSet, days: tuple[date, date] | None
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Parse the splits of a worker: yield a row of _BLOCK for each block."""

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        parser = Parser(ruleset)
        # results have no reference cycles, and scanning a million tuples takes long
        gc.disable()
        try:
            for split in splits_of(batches):
                for one in parse(split, parser, days):
                    summary = pickle.dumps(replace(one, rows=None, ids=()))
                    row = (one.table, one.number, summary, _packed(one.rows), one.ids)
                    yield pa.RecordBatch.from_pydict(
                        dict(zip(_BLOCK.names, ([value] for value in row), strict=True)), schema=_BLOCK
                    )
        finally:
            gc.enable()  # the process continues with other tasks

    return work


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _unpacked(packed: pa.BinaryScalar) -> pa.Table:
    return pa.ipc.open_stream(packed.as_buffer()).read_all()
