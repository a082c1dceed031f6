"""Logs to table `events`: splits are parsed on all cores, copies are taken out, what is left is appended by Spark."""

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs import ingest
from jobs.errors import ConservationError
from jobs.ingest import LogFile, Split
from parsers.events import EVENTS, TIMESTAMP, Batch, Identity, Parser, Source, moment, zone
from parsers.records import Record
from parsers.rules import RuleSet, built_in

# bytes of text: so few are parsed here sooner than Spark's workers have started
SMALL = 16 * 1024 * 1024
# characters; a longer record is not looked for among those that were cut short
LONGEST_CUT = 1_000_000
# of a table's rows that may be met again; a zone moves a day by one at most
ZONES = timedelta(days=2)
PASSED_OVER = pa.schema(
    [
        pa.field("cluster", pa.string()),
        ("node", pa.int32()),
        ("hour", TIMESTAMP),
        ("logger", pa.string()),
        ("layout", pa.string()),
        pa.field("record", pa.int64()),
    ]
)
SCHEMAS = {"events": EVENTS, "passed_over": PASSED_OVER}
TIMES = {"events": "ts", "passed_over": "hour"}


@dataclass(frozen=True)
class IngestSummary:
    """What one run read. new = recognised + unrecognised + drifted; records = new + known before + out_of_scope.

    unfinished: records at the end of a file that are not written out; they are read when they are.
    completed: records of earlier runs that were cut short, and are whole now.
    """

    lines: int
    records: int
    new: int
    recognised: int
    unrecognised: int
    drifted: int
    out_of_scope: int
    newly_counted: int
    unfinished: int
    completed: int


# -- parsing -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Last:
    """The last record of a file: a stack trace may have been cut off. ts: of its time stamp, ISO."""

    record_id: str
    cluster: str
    node: int | None
    ts: str | None
    raw: str


@dataclass
class Block:
    """Some megabytes of a file, parsed.

    number      grows with the file's number, then with the line
    tables      table -> rows
    ids         table -> id of each record, in the order of its rows in the table
    counts      records, in_scope, out_of_scope, other_days, unfinished, lines, begun; and those of each kind
    place       (number of the file, first byte) of the split
    first, final  of the time stamps, ISO; None where no record has one.  untimed: whether one has none
    last        the last record of the file
    """

    number: int
    place: tuple[int, int]
    tables: dict[str, pa.Table]
    ids: dict[str, list[bytes]]
    counts: Counter[str]
    first: str | None = None
    final: str | None = None
    untimed: bool = False
    last: Last | None = None

    def summary(self) -> str:
        """What is small of it, as JSON."""
        filled = {table: rows.column_names for table, rows in self.tables.items() if rows.num_rows}
        return json.dumps({"number": self.number, "place": self.place, "counts": self.counts, "first": self.first, "final": self.final,
                           "untimed": self.untimed, "last": self.last and asdict(self.last), "filled": filled})  # fmt: skip


def _in_days(days: tuple[date, date] | None) -> Callable[[str | None], bool] | None:
    """Whether a time stamp, as printed, is of these days; none is of all days."""
    if days is None:
        return None
    first, last = (day.isoformat() for day in days)
    return lambda ts: ts is None or first <= ts[:10] <= last


def parse(split: Split, parser: Parser, days: tuple[date, date] | None = None) -> Iterator[Block]:
    """What the records of a split say, some megabytes at a time."""
    file = split.file
    source = Source(file.cluster, file.node, file.name, zone(file.timezone))
    identity = Identity(file.cluster, split.said_before)
    reader = parser.reader(file.kind == "bare", split.line_no)

    def block(records: Iterable[Record], ends: bool = False, last_line: int | None = None) -> Block:
        line_no = split.line_no + reader.lines
        batch = parser.read(records, source, identity, _in_days(days))
        rows = {"events": parser.table(batch, source, last_line), "passed_over": passed_over(batch, source)}
        others = [record_id[:8] for _, _, record_id in batch.out_of_scope]
        ids = {"events": batch.record_ids(), "passed_over": others}
        counts = Counter(records=batch.records, in_scope=len(ids["events"]))
        counts.update(out_of_scope=len(others), other_days=batch.other_days)
        number = (split.number << 40) + 2 * line_no + ends
        times = [rows[table][name].combine_chunks() for table, name in TIMES.items() if name in rows[table].column_names]
        spans = [span for some in times if (span := pc.min_max(some).as_py())["min"]]
        return Block(
            number, (split.number, split.begin), rows, ids, counts,
            first=min((span["min"].isoformat() for span in spans), default=None),
            final=max((span["max"].isoformat() for span in spans), default=None),
            untimed=sum(map(len, times)) - sum(some.null_count for some in times) < sum(table.num_rows for table in rows.values()),
            last=_last_of(rows["events"]),
        )  # fmt: skip

    for lines in ingest.lines_of(split, parser):
        yield block(list(reader.feed(lines)))
    unended = split.is_last and file.open_end
    # what may become a header belongs to no stack trace
    ending = list(reader.close(without_last_line=unended and file.open_head))
    # of some layouts the logger stands behind the last line of a record
    unfinished = unended and bool(ending) and not ending[0].fits
    found = block([] if unfinished else ending, True, ending[0].line_no if ending and split.is_last else None)
    found.counts.update(unfinished=int(unfinished), begun=reader.begun, lines=reader.lines)
    yield found


def _last_of(events: pa.Table) -> Last | None:
    if "ends_file" not in events.column_names:
        return None
    rows = events.filter(pc.and_(events["ends_file"], pc.equal(events["item"], 0)))
    row = rows.select([name for name in ("record_id", "cluster", "node", "ts", "raw") if name in rows.column_names]).to_pylist()[
        0
    ]
    if len(row["raw"]) > LONGEST_CUT:
        return None
    return Last(**{"node": None, **row, "ts": row["ts"].isoformat() if row.get("ts") else None})


def passed_over(batch: Batch, source: Source) -> pa.Table:
    """Records out of scope, a row a record; record: the beginning of its id, as a number."""
    records = [record for record, _, _ in batch.out_of_scope]
    moments = [moment(record.ts, source.zone) for record in records]
    hours = [at and at.replace(minute=0, second=0, microsecond=0) for at in moments]
    columns = {
        "cluster": [source.cluster] * len(records),
        "node": [node for _, node, _ in batch.out_of_scope],
        "hour": hours,
        "logger": [record.logger for record in records],
        "layout": [record.layout for record in records],
        "record": [int.from_bytes(record_id[:8], "big", signed=True) for _, _, record_id in batch.out_of_scope],
    }
    return pa.table(columns, schema=PASSED_OVER)


# -- copies ------------------------------------------------------------------------------------------------


class Here:
    """Splits parsed in this process."""

    def __init__(self, spark: Any, splits: Sequence[Split], parser: Parser, days: tuple[date, date] | None) -> None:
        self._spark = spark
        self._blocks = [block for split in splits for block in parse(split, parser, days)]
        self.summaries = [json.loads(block.summary()) for block in self._blocks]

    def copies(self, table: str, known: Any) -> dict[int, list[int]]:
        """number of a block -> places of records that stand in another one, too, or are known. known: id BINARY, or None."""
        seen: set[bytes] = set()
        if known is not None:
            ids = pa.table({"id": pa.array([one for block in self._blocks for one in block.ids[table]], pa.binary())})
            if ids.num_rows:
                met = known.join(self._spark.createDataFrame(ids), "id", "left_semi").collect()
                seen = {bytes(row.id) for row in met}
        found: dict[int, list[int]] = {}
        for block in sorted(self._blocks, key=lambda block: block.number):
            for place, record_id in enumerate(block.ids[table]):
                if record_id in seen:
                    found.setdefault(block.number, []).append(place)
                seen.add(record_id)
        return found

    def records_at(self, moments: set[str]) -> list[Last]:
        """The records that have one of these time stamps."""
        return [last for block in self._blocks for last in _records_at(block.tables["events"], moments)]

    def rows(self, table: str, dropped: dict[int, list[int]], cut_short: set[str]) -> Any:
        """What is left, as a DataFrame; None where nothing is."""
        tables = [
            left
            for block in self._blocks
            if (left := _left(block.tables[table], dropped.get(block.number, []), cut_short)).num_rows
        ]
        schema = _filled(table, self.summaries)
        return self._spark.createDataFrame(pa.concat_tables(with_schema(one, schema) for one in tables)) if tables else None

    def table(self) -> pa.Table:
        """The events, copies once."""
        dropped = self.copies("events", None)
        tables = [_left(block.tables["events"], dropped.get(block.number, []), set()) for block in self._blocks]
        return pa.concat_tables([EVENTS.empty_table(), *(with_schema(one, EVENTS) for one in tables if one.num_rows)])

    def close(self) -> None:
        """Gives memory free."""
        self._blocks = []


class OnWorkers:
    """Splits parsed by Spark's workers; blocks stay there, packed: rows of 70 columns take more to keep than to parse."""

    def __init__(
        self,
        spark: Any,
        splits: Sequence[Split],
        parser: Parser,
        days: tuple[date, date] | None,
        remote: Sequence[Any] = (),
    ) -> None:
        """remote: `remote.Remote`, whose files are those of splits with a URI."""
        tasks = [split for split in splits if not split.file.uri]
        ruleset = parser.ruleset

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with _worker(ruleset) as of_worker:
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        yield from _rows_of(parse(tasks[number], of_worker, days))

        def of_cluster(cluster: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
            by_uri = {split.file.uri: split for split in splits if split.file.cluster == cluster}

            def work_fetched(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                with _worker(ruleset) as of_worker:
                    for uri, path in ingest.fetched(batches):
                        if split := by_uri.get(uri):
                            yield from _rows_of(parse(replace(split, file=replace(split.file, path=path)), of_worker, days))

            return work_fetched

        frames = [one.pieces.mapInArrow(of_cluster(one.cluster), _BLOCK_DDL) for one in remote]
        if tasks:
            cores = spark.sparkContext.defaultParallelism
            partitions = min(len(tasks), max(4 * cores, sum(split.end - split.begin for split in tasks) // ingest.LARGEST_SPLIT))
            frames.append(spark.range(0, len(tasks), 1, partitions).mapInArrow(work, _BLOCK_DDL))
        self._blocks = reduce(lambda one, other: one.unionByName(other), frames).persist()
        self.summaries = [json.loads(row.summary) for row in self._blocks.select("summary").collect()]

    def copies(self, table: str, known: Any) -> Any:
        """number BIGINT, places ARRAY<INT>: as `Here.copies`; None where there are none."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        ids = self._blocks.select("number", F.posexplode(f"{table}_ids").alias("place", "id"))
        # few are: only of these it is asked which one is the first
        repeated = ids.groupBy("id").count().filter("count > 1").select("id").persist()
        nth = F.row_number().over(Window.partitionBy("id").orderBy("number", "place"))
        again = ids.join(repeated, "id").withColumn("nth", nth).filter("nth > 1").select("number", "place")
        if known is not None:
            again = again.unionByName(ids.join(known, "id", "left_semi").select("number", "place"))
        elif repeated.isEmpty():
            return None
        return again.groupBy("number").agg(F.collect_set("place").alias("places")).persist()

    def records_at(self, moments: set[str]) -> list[Last]:
        """The records that have one of these time stamps."""

        def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for packed in batch.column(0):
                    found = [json.dumps(asdict(last)) for last in _records_at(_unpacked(packed), moments)]
                    yield pa.RecordBatch.from_pydict({"last": found}, schema=pa.schema([("last", pa.string())]))

        return [Last(**json.loads(row.last)) for row in self._blocks.select("events").mapInArrow(find, "last STRING").collect()]

    def rows(self, table: str, dropped: Any, cut_short: set[str]) -> Any:
        """What is left, as a DataFrame."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = _filled(table, self.summaries)

        def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for packed, places in zip(*batch.columns, strict=True):
                    left = _left(_unpacked(packed), places.as_py() or [], cut_short)
                    yield from with_schema(left, schema).to_batches()

        blocks = self._blocks.select("number", table)
        if dropped is None:
            blocks = blocks.withColumn("places", F.lit(None).cast("array<int>"))
        else:
            blocks = blocks.join(F.broadcast(dropped), "number", "left")
        return blocks.select(table, "places").mapInArrow(unpack, from_arrow_schema(schema))

    def close(self) -> None:
        """Gives memory free."""
        self._blocks.unpersist()


@contextmanager
def _worker(ruleset: RuleSet) -> Iterator[Parser]:
    """A parser; meanwhile nobody looks for cycles: what it makes has none, and a million tuples are long to look through."""
    gc.disable()
    try:
        yield Parser(ruleset)
    finally:
        gc.enable()  # the process goes on with other tasks


def _rows_of(blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """A row of _BLOCK for each."""
    for block in blocks:
        columns: dict[str, list[Any]] = {"number": [block.number], "summary": [block.summary()]}
        for table in SCHEMAS:
            columns |= {table: [_packed(block.tables[table])], f"{table}_ids": [block.ids[table]]}
        yield pa.RecordBatch.from_pydict(columns, schema=_BLOCK)


_BLOCK = pa.schema(
    [("number", pa.int64()), ("summary", pa.string())]
    + [(table, pa.binary()) for table in SCHEMAS]
    + [(f"{table}_ids", pa.list_(pa.binary())) for table in SCHEMAS]
)
_BLOCK_DDL = ", ".join(
    [
        "number BIGINT, summary STRING",
        *(f"{table} BINARY" for table in SCHEMAS),
        *(f"{table}_ids ARRAY<BINARY>" for table in SCHEMAS),
    ]
)


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _unpacked(packed: pa.BinaryScalar) -> pa.Table:
    return pa.ipc.open_stream(packed.as_buffer()).read_all()


def _filled(table: str, summaries: Iterable[Mapping[str, Any]]) -> pa.Schema:
    """The table's columns that are filled in any of some blocks: a night fills a third of them, and nulls cost as much as values."""
    filled = {name for one in summaries for name in one["filled"].get(table, ())} | {"event_type"}
    return pa.schema([column for column in SCHEMAS[table] if column.name in filled or not column.nullable])


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all columns of the schema."""
    there = set(rows.column_names)
    arrays = [rows[column.name] if column.name in there else pa.nulls(rows.num_rows, column.type) for column in schema]
    return pa.table(arrays, schema=schema)


def _left(rows: pa.Table, dropped: Sequence[int], cut_short: set[str]) -> pa.Table:
    """The rows without those of the records at some places, and of those with some ids."""
    if dropped:
        if "item" in rows.column_names:
            places = pc.subtract(pc.cumulative_sum(pc.cast(pc.equal(rows["item"], 0), pa.int64())), 1)
        else:
            places = pa.array(range(rows.num_rows), pa.int64())
        rows = rows.filter(pc.invert(pc.is_in(places, value_set=pa.array(dropped, pa.int64()))))
    if cut_short and "record_id" in rows.column_names:
        rows = rows.filter(pc.invert(pc.is_in(rows["record_id"], value_set=pa.array(sorted(cut_short)))))
    return rows


def _records_at(events: pa.Table, moments: set[str]) -> Iterator[Last]:
    if "ts" in events.column_names and moments:
        wanted = pa.array(sorted(datetime.fromisoformat(one) for one in moments), TIMESTAMP)
        here = events.filter(pc.and_(pc.is_in(events["ts"], value_set=wanted), pc.equal(events["item"], 0)))
        for row in here.select(
            [name for name in ("record_id", "cluster", "node", "ts", "raw") if name in here.column_names]
        ).to_pylist():
            yield Last(**{"node": None, **row, "ts": row["ts"].isoformat()})


def cut_short(ends: Iterable[Last], others: Iterable[Last]) -> set[str]:
    """Ids of last records of files that are the beginning of another record: their stack trace was still being written."""
    by_place: dict[Any, list[Last]] = {}
    for one in ends:
        by_place.setdefault((one.cluster, one.node, one.ts), []).append(one)
    return {
        one.record_id
        for other in others
        for one in by_place.get((other.cluster, other.node, other.ts), ())
        if len(other.raw) > len(one.raw) and other.raw.startswith(one.raw)
    }


# -- landing -----------------------------------------------------------------------------------------------


def _known(store: Any, clusters: Sequence[str], table: str, summaries: Sequence[Mapping[str, Any]]) -> Any:
    """id BINARY of records that earlier runs have landed and this one may meet again; None where there are none."""
    from pyspark.sql import functions as F

    if store.has_none(table):
        return None
    time = F.col(TIMES[table])
    firsts, finals = ([datetime.fromisoformat(one[edge]) for one in summaries if one[edge]] for edge in ("first", "final"))
    wanted = time.isNull() if any(one["untimed"] for one in summaries) else F.lit(False)
    if firsts:
        wanted = wanted | time.between(F.lit(min(firsts) - ZONES), F.lit(max(finals) + ZONES))
    rows = store.rows_of(table, clusters).filter(wanted)
    if table == "passed_over":
        return rows.select(F.unhex(F.lpad(F.hex("record"), 16, "0")).alias("id"))
    return rows.filter("item = 0").select(F.unhex("record_id").alias("id"))


def _held(store: Any, clusters: Sequence[str], condition: Any) -> list[Last]:
    """Records of earlier runs."""
    rows = (
        store.rows_of("events", clusters).filter("item = 0").filter(condition).select("record_id", "cluster", "node", "ts", "raw")
    )
    return [Last(**{**row.asDict(), "ts": row.ts and row.ts.replace(tzinfo=UTC).isoformat()}) for row in rows.collect()]


def land(
    store: Any,
    files: Sequence[LogFile],
    ruleset: RuleSet | None = None,
    *,
    days: tuple[date, date] | None = None,
    remote: Sequence[Any] = (),
) -> IngestSummary:
    """Appends what is new to `events` and `passed_over`; running it again adds nothing.

    days: only records of these, both included, in the zone of the log.  remote: `remote.Remote` of files that are at URIs.
    Raises ConservationError where records were lost on the way.
    """
    parser = Parser(ruleset)
    usable = [file for file in files if file.usable]
    total = sum(file.length for file in usable)
    cores = store.spark.sparkContext.defaultParallelism
    size = min(max(total // (3 * cores), ingest.SMALLEST_SPLIT), ingest.LARGEST_SPLIT)
    splits = ingest.splits(usable, parser, size)
    parsed: Here | OnWorkers = (
        Here(store.spark, splits, parser, days)
        if total < SMALL and not remote
        else OnWorkers(store.spark, splits, parser, days, remote)
    )
    try:
        totals = _conserved(splits, parsed.summaries)
        return _land(store, sorted({file.cluster for file in usable}), parsed, totals)
    finally:
        parsed.close()


def _conserved(splits: Sequence[Split], summaries: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """The counts of all blocks. Raises ConservationError where a line or a record is missing."""
    totals: Counter[str] = Counter()
    lines: Counter[tuple[int, int]] = Counter()
    for one in summaries:
        totals.update(one["counts"])
        lines[tuple(one["place"])] += one["counts"].get("lines", 0)
    for split, after in pairwise(splits):
        if split.number == after.number:
            conserve(f"lines of {split.file.name}", after.line_no - split.line_no, lines[split.number, split.begin])
    conserve("records begun", totals["begun"], totals["records"] + totals["unfinished"])
    conserve("records read", totals["records"], totals["in_scope"] + totals["out_of_scope"] + totals["other_days"])
    return totals


def _land(store: Any, clusters: Sequence[str], parsed: Here | OnWorkers, totals: Counter[str]) -> IngestSummary:
    from jobs.store import run_concurrently

    (landed, completed), newly_counted = run_concurrently(
        lambda: _land_events(store, clusters, parsed, totals), lambda: _count_passed_over(store, clusters, parsed, totals)
    )
    return IngestSummary(
        lines=totals["lines"],
        records=totals["in_scope"] + totals["out_of_scope"],
        new=landed["records"],
        recognised=landed["recognised"],
        unrecognised=landed["records"] - landed["recognised"] - landed["drifted"],
        drifted=landed["drifted"],
        out_of_scope=totals["out_of_scope"],
        newly_counted=newly_counted,
        unfinished=totals["unfinished"],
        completed=completed,
    )


def _land_events(store: Any, clusters: Sequence[str], parsed: Here | OnWorkers, totals: Counter[str]) -> tuple[Counter[str], int]:
    """(what was appended, how many records of earlier runs it completes)"""
    from pyspark.sql import functions as F

    known = _known(store, clusters, "events", parsed.summaries)
    dropped = parsed.copies("events", known)
    copies = _count(dropped)
    incomplete, completed = set(), set()
    if 0 < copies < totals["in_scope"]:  # a copy that is cut short stands beside others that are not
        ends = [Last(**one["last"]) for one in parsed.summaries if one["last"] and one["last"]["ts"]]
        early = [] if known is None else [last for last in _held(store, clusters, F.col("ends_file")) if last.ts]
        fresh = parsed.records_at({last.ts for last in [*ends, *early] if last.ts})
        moments = [datetime.fromisoformat(last.ts) for last in ends if last.ts]
        held = [] if known is None else _held(store, clusters, F.col("ts").isin(moments))
        completed = cut_short(early, fresh)
        incomplete = cut_short(ends, [*fresh, *held])
    if completed:
        store.delete("events", f"record_id IN ({', '.join(repr(one) for one in completed)})")
    landed = _append(store, "events", parsed.rows("events", dropped, incomplete)) if copies < totals["in_scope"] else Counter()
    _conserve_copies("events", totals["in_scope"], landed["records"], copies, len(incomplete))
    return landed, len(completed)


def _count_passed_over(store: Any, clusters: Sequence[str], parsed: Here | OnWorkers, totals: Counter[str]) -> int:
    """How many records out of scope were not known."""
    if not totals["out_of_scope"]:
        return 0
    dropped = parsed.copies("passed_over", _known(store, clusters, "passed_over", parsed.summaries))
    copies, counted = _count(dropped), 0
    if copies < totals["out_of_scope"]:
        counted = _append(store, "passed_over", parsed.rows("passed_over", dropped, set()))["records"]
    _conserve_copies("passed_over", totals["out_of_scope"], counted, copies, 0)
    return counted


def _append(store: Any, table: str, rows: Any) -> Counter[str]:
    """Appends rows and counts their records."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    if rows is None:
        return Counter()
    whole = F.lit(True) if table == "passed_over" else F.col("item") == 0
    counts = [F.count_if(whole).alias("records")]
    if table == "events":
        counts += [
            F.count_if(whole & F.col("event_type").isNotNull()).alias("recognised"),
            F.count_if(whole & F.col("drifted")).alias("drifted"),
        ]
    seen = Observation()
    store.append(table, rows.observe(seen, *counts))
    return Counter(seen.get)


def _count(dropped: Any) -> int:
    """How many records `copies` has found."""
    if dropped is None or isinstance(dropped, dict):
        return sum(map(len, (dropped or {}).values()))
    return dropped.selectExpr("sum(size(places))").first()[0] or 0


def _conserve_copies(table: str, read: int, landed: int, copies: int, incomplete: int) -> None:
    """Raises ConservationError unless each record is landed or a copy. A record that is cut short may be a copy, too."""
    if not landed + copies <= read <= landed + copies + incomplete:
        conserve(f"records for {table}", read, landed + copies)


def conserve(what: str, expected: int, found: int) -> None:
    """Raises ConservationError unless the numbers are the same: no record may be lost, nor be counted twice."""
    if found != expected:
        raise ConservationError(f"{expected:,} {what}, but {found:,} of them accounted for; please report this with the log")


def events_of(logs: Sequence[str], cluster: str = "cluster", timezone: str = "UTC", ruleset: RuleSet | None = None) -> pa.Table:
    """The events of some logs (files, globs, folders), without tables and without Spark: columns of table `events`, copies once."""
    parser = Parser(ruleset or built_in())
    files = ingest.find(ingest.Cluster(cluster, tuple(logs), timezone), parser.ruleset)
    usable = [file for file in files if file.usable]
    return Here(None, ingest.splits(usable, parser, ingest.LARGEST_SPLIT), parser, None).table()
