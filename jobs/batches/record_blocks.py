"""Records of a split as blocks of rows of `events` and `passed_over`, and what makes two of them the same record."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.files import ingest
from jobs.files.ingest import Split
from parsers.envelopes import reader_of
from parsers.events import (
    EVENTS,
    PASSED_OVER,
    TIMESTAMP,
    Batch,
    Identity,
    Parser,
    Source,
    first_bytes,
    moment,
    zone,
)
from parsers.records import Record

# most characters of a record that is checked for having been cut short
LONGEST_CUT = 1_000_000
# margin of the time in which stored rows may be duplicates; a zone shifts a record by a day at most
ZONES = timedelta(days=2)
# beginnings of the names of loggers of Kafka's processes
KAFKAS_LOGGERS = (
    "kafka",
    "org.apache.kafka.",
    "state.change.logger",
    "org.apache.zookeeper.",
    "io.confluent.",
    "org.I0Itec.zkclient.",
)
SCHEMAS = {"events": EVENTS, "passed_over": PASSED_OVER}
TIMES = {"events": "ts", "passed_over": "hour"}
Batches = Iterable[pa.RecordBatch]


class Last(NamedTuple):
    """The last record of a file, which may be cut short, or a record that may be the whole of one."""

    record_id: str
    cluster: str
    node: int | None
    ts: datetime | None
    raw: str


@dataclass(frozen=True)
class Block:
    """Rows of one table from some megabytes of a file.

    table       events or passed_over
    number      increases with the file's number, then with the line
    rows        None where another process has them
    ids         of the records, in the order of the rows
    place       (number of the file, first byte) of the split
    counts      records, in_scope, out_of_scope, other_days, unfinished, lines, begun: of both tables, in a
                block of events
    filled      columns with a value
    first, final  moments of records; None where no record has one
    last        the last record of the file
    """

    table: str
    number: int
    rows: pa.Table | None
    ids: Sequence[bytes]
    place: tuple[int, int]
    counts: Counter[str]
    filled: frozenset[str]
    first: datetime | None
    final: datetime | None
    last: Last | None


def parse(split: Split, parser: Parser, days: tuple[date, date] | None = None) -> Iterator[Block]:
    """Yield the events of a split, some megabytes at a time."""
    file = split.file
    source = Source(file.cluster, file.node, file.name, zone(file.timezone))
    identity = Identity(file.cluster, split.previous_ending)
    reader = reader_of(parser, file.envelope, file.kind == "bare", split.line_no)
    pieces = Counter[str]()

    def read(
        records: Iterable[Record], last_line: int | None = None, ends: bool = False, unfinished: int = 0
    ) -> Iterator[Block]:
        batch = parser.read(records, source, identity, _in_days(days))
        number = (split.number << 40) + 2 * (split.line_no + reader.lines) + ends
        ids, others = batch.record_ids(), [record_id[:8] for _, _, record_id in batch.out_of_scope]
        counts = Counter(
            records=batch.records, in_scope=len(ids), out_of_scope=len(others), other_days=batch.other_days
        )
        counts["foreign"] = sum(not is_kafkas(record) for record, _, _ in batch.out_of_scope)
        counts["cut"] = batch.cut
        if ends:
            joined = pieces["lines"] - pieces["whole"]
            counts.update(
                unfinished=unfinished,
                begun=reader.begun,
                lines=reader.lines,
                continued=reader.continued + joined,
                joined=joined,
            )
        place = (split.number, split.begin)
        yield _block(
            "events", number, parser.table(batch, source, last_line), ids, place=place, counts=counts
        )
        if others:
            yield _block(
                "passed_over", number, passed_over(batch, source), others, place=place, counts=Counter()
            )

    for lines in ingest.lines_of(split, parser, pieces):
        yield from read(list(reader.feed(lines)))
    unended = split.is_last and file.open_end
    # an unfinished line that may become a header is no part of a stack trace
    ending = list(reader.close(without_last_line=unended and file.open_head))
    # some layouts print the logger after the last line of a record
    unfinished = unended and bool(ending) and not ending[0].fits
    last_line = ending[0].line_no if ending and split.is_last else None
    yield from read([] if unfinished else ending, last_line, ends=True, unfinished=int(unfinished))


def is_kafkas(record: Record) -> bool:
    """Return whether the logger of a record out of scope is one of Kafka or of a library of its processes."""
    return record.fits and record.logger is not None and record.logger.startswith(KAFKAS_LOGGERS)


def _in_days(days: tuple[date, date] | None) -> Callable[[str | None], bool] | None:
    """Return whether a printed time stamp is in these days; a record without one is in all days."""
    if days is None:
        return None
    first, last = (day.isoformat() for day in days)
    return lambda ts: ts is None or first <= ts[:10] <= last


def _block(table: str, number: int, rows: pa.Table, ids: Sequence[bytes], **given: Any) -> Block:
    filled = frozenset(rows.column_names)
    times = rows[TIMES[table]] if TIMES[table] in filled else pa.nulls(rows.num_rows, TIMESTAMP)
    span = pc.min_max(times)
    ends = rows.filter(rows["ends_file"]) if "ends_file" in filled else EVENTS.empty_table()
    last = next((last for last in firsts(ends) if len(last.raw) <= LONGEST_CUT), None)
    first, final = span["min"].as_py(), span["max"].as_py()
    return Block(table, number, rows, ids, filled=filled, first=first, final=final, last=last, **given)


def passed_over(batch: Batch, source: Source) -> pa.Table:
    """Return the rows of `passed_over`, one per record out of scope.

    record: the first bytes of its id, as a number.
    """
    rows = []
    for record, node, record_id in batch.out_of_scope:
        at = moment(record.ts, source.zone)
        hour = at and at.replace(minute=0, second=0, microsecond=0)
        rows.append((source.cluster, node, hour, record.logger, record.layout, first_bytes(record_id)))
    columns = zip(*rows, strict=True) if rows else [()] * len(PASSED_OVER)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, PASSED_OVER.types, strict=True)],
        schema=PASSED_OVER,
    )


def filled_columns(table: str, blocks: Iterable[Block]) -> pa.Schema:
    """Return the columns that are filled in some block.

    A run fills a third of them, and nulls cost as much as values.
    """
    filled = {"event_type"}.union(*(block.filled for block in blocks if block.table == table))
    return pa.schema([column for column in SCHEMAS[table] if column.name in filled or not column.nullable])


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of a schema."""
    present = set(rows.column_names)
    arrays = [
        rows[column.name] if column.name in present else pa.nulls(rows.num_rows, column.type)
        for column in schema
    ]
    return pa.table(arrays, schema=schema)


def remaining(rows: pa.Table, schema: pa.Schema, dropped: Sequence[int], cut_short: set[str]) -> pa.Table:
    """Return the remaining rows with the columns of a schema.

    dropped: places of records, cut_short: ids of records that are left out.
    """
    rows = with_schema(rows, schema)
    if dropped:
        places = pa.array(range(rows.num_rows), pa.int64())
        if "item" in schema.names:
            places = pc.subtract(pc.cumulative_sum(pc.cast(pc.equal(rows["item"], 0), pa.int64())), 1)
        rows = rows.filter(pc.invert(pc.is_in(places, value_set=pa.array(dropped, pa.int64()))))
    if cut_short:
        rows = rows.filter(pc.invert(pc.is_in(rows["record_id"], value_set=pa.array(sorted(cut_short)))))
    return rows


@dataclass(frozen=True)
class StoredRecords:
    """The stored records that new ones may be duplicates of.

    first, final: their earliest and latest moment.
    """

    store: Any
    clusters: Sequence[str]
    table: str
    first: datetime | None
    final: datetime | None

    @classmethod
    def of(cls, store: Any, clusters: Sequence[str], table: str, blocks: Iterable[Block]) -> "StoredRecords":
        """Return the stored records in the time of some blocks, and those without a time."""
        spans = [
            (block.first, block.final)
            for block in blocks
            if block.table == table and block.first and block.final
        ]
        first, final = (
            (min(one for one, _ in spans) - ZONES, max(one for _, one in spans) + ZONES)
            if spans
            else (None, None)
        )
        return cls(store, clusters, table, first, final)

    def among(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return the ids that are stored. ids: few enough for one query."""
        if not ids or self.store.has_none(self.table):
            return set()
        column = "record" if self.table == "passed_over" else "record_id"
        by_value = {
            int.from_bytes(one, "big", signed=True) if column == "record" else one.hex(): one for one in ids
        }
        span = (TIMES[self.table], self.first, self.final)
        rows = self.store.rows_with(self.table, self.clusters, column, by_value, [column], span=span)
        return {by_value[value] for value in rows[column].to_pylist()}


def firsts(events: pa.Table) -> list[Last]:
    """Return the records of some events, one for each row whose item is 0."""
    if not events.num_rows:
        return []
    firsts = events.filter(pc.equal(events["item"], 0))
    return [
        Last(**row)
        for row in with_schema(firsts, pa.schema([EVENTS.field(name) for name in Last._fields])).to_pylist()
    ]


def records_at(events: pa.Table, moments: set[datetime]) -> list[Last]:
    if "ts" not in events.column_names:
        return []
    return firsts(events.filter(pc.is_in(events["ts"], value_set=pa.array(sorted(moments), TIMESTAMP))))


def cut_short(ends: Iterable[Last], others: Iterable[Last]) -> set[str]:
    """Return the ids of last records of files that were cut short: another record begins with their text."""
    by_place = defaultdict[Any, list[Last]](list)
    for one in ends:
        by_place[one.cluster, one.node, one.ts].append(one)
    return {
        one.record_id
        for other in others
        for one in by_place[other.cluster, other.node, other.ts]
        if len(other.raw) > len(one.raw) and other.raw.startswith(one.raw)
    }


def counted(table: str, rows: pa.Table) -> Counter[str]:
    """Return the number of records among rows of a table.

    For `events` also those recognised and those drifted.
    """
    if table != "events":
        return Counter(records=rows.num_rows)
    whole = rows.filter(pc.equal(rows["item"], 0))
    recognised = whole.num_rows - whole["event_type"].null_count
    return Counter(
        records=whole.num_rows, recognised=recognised, drifted=pc.sum(whole["drifted"]).as_py() or 0
    )
