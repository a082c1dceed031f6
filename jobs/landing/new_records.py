"""Write logs to table `events`: parse splits on all cores, drop duplicates, append the other records."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from jobs.engine.conflicts import Conflict
from jobs.errors import ConservationError
from jobs.landing import ingest
from jobs.landing.ingest import LogFile, Split
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
from parsers.rules import RuleSet, built_in

if TYPE_CHECKING:
    from jobs.engine.in_process import Ahead

# most characters of a record that is checked for having been cut short
LONGEST_CUT = 1_000_000
# how often a run searches for duplicates again because another run has appended
MOST_LOOKS = 5
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


@dataclass(frozen=True)
class IngestSummary:
    """The counts of one run.

    new = recognised + unrecognised + drifted; records = new + stored before + out_of_scope.
    unfinished: records at the end of a file that are still being written; a later run reads them.
    completed: records that earlier runs read cut short and this run read whole.
    by_file: number of a file among those that are read -> the counts that `accounting.rows` reads.
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
    by_file: Mapping[int, Counter[str]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return the counts as notes for people."""
        found = [
            f"{self.lines:,} lines",
            f"{self.records:,} records",
            f"{self.new:,} new",
            f"{self.out_of_scope:,} of loggers out of scope",
        ]
        if self.unfinished:
            found.append(f"{self.unfinished:,} not written out yet, at the end of a file")
        return found


# -- parsing -----------------------------------------------------------------------------------------------


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


# -- duplicates --------------------------------------------------------------------------------------------


class Parsed(Protocol):
    """Parsed splits: `InProcess`, `OnWorkers` or `OnPool` of `jobs.engine`."""

    splits: Sequence[Split]
    blocks: list[Block]

    def duplicates(self, table: str, stored: "StoredRecords") -> tuple[Any, int]:
        """Return the records that are duplicates, in this run or stored, and their number."""

    def records_at(self, moments: set[datetime]) -> list[Last]:
        """Return the records that have one of these time stamps."""

    def append(self, store: Any, table: str, dropped: Any, cut_short: set[str], after: int) -> Counter[str]:
        """Append the rows that are no duplicates; return the number of records by kind.

        after: the commit up to which duplicates were searched.
        """

    def close(self) -> None:
        """Free memory and files."""


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


# -- records that were cut short ---------------------------------------------------------------------------


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


def _incomplete(store: Any, clusters: Sequence[str], parsed: "Parsed") -> tuple[set[str], set[str]]:
    """Return the ids of records that were cut short and are whole elsewhere: (this run's, earlier runs')."""
    from jobs.engine.rows import at_one_of, is_known, is_true, to_table

    def stored(condition: Any) -> list[Last]:
        if store.has_none("events"):
            return []
        return firsts(
            to_table(store.read("events", clusters, condition & is_known("ts"), [*Last._fields, "item"]))
        )

    ends = [block.last for block in parsed.blocks if block.last and block.last.ts]
    early = stored(is_true("ends_file"))
    fresh = parsed.records_at({last.ts for last in [*ends, *early] if last.ts})
    return cut_short(
        ends, [*fresh, *stored(at_one_of("ts", [last.ts for last in ends if last.ts]))]
    ), cut_short(early, fresh)


# -- landing -----------------------------------------------------------------------------------------------


def _clusters(files: Sequence[LogFile]) -> list[str]:
    return sorted({file.cluster for file in files if file.usable})


def land(
    store: Any,
    files: Sequence[LogFile],
    ruleset: RuleSet | None = None,
    *,
    days: tuple[date, date] | None = None,
    remote: Sequence[Any] = (),
    ahead: "Ahead | None" = None,
) -> IngestSummary:
    """Append new records to `events` and `passed_over`; a second call adds nothing.

    days: first and last day of the records, in the zone of the log; None: all. remote: the `remote.Remote` of
    files at URIs.
    ahead: the same files, if they are being parsed. Raises ConservationError where a record is lost.
    """
    from jobs.engine.rows import run_concurrently

    clusters = _clusters(files)
    parsed: Parsed = store.parsed(files, ruleset, days, remote) if ahead is None else ahead.parsed()
    try:
        totals, files_read = conserved(parsed.splits, parsed.blocks), by_file(parsed.blocks)
        (appended, completed), (skipped, _) = run_concurrently(
            lambda: _land(store, clusters, parsed, "events", totals["in_scope"]),
            lambda: _land(store, clusters, parsed, "passed_over", totals["out_of_scope"]),
        )
    finally:
        parsed.close()
    return IngestSummary(
        lines=totals["lines"],
        records=totals["in_scope"] + totals["out_of_scope"],
        new=appended["records"],
        recognised=appended["recognised"],
        unrecognised=appended["records"] - appended["recognised"] - appended["drifted"],
        drifted=appended["drifted"],
        out_of_scope=totals["out_of_scope"],
        newly_counted=skipped["records"],
        unfinished=totals["unfinished"],
        completed=completed,
        by_file=files_read,
    )


def conserved(splits: Sequence[Split], blocks: Iterable[Block]) -> Counter[str]:
    """Return the counts of all blocks. Raises ConservationError where a line or a record is missing."""
    totals = Counter[str]()
    lines = Counter[tuple[int, int]]()
    for one in blocks:
        totals.update(one.counts)
        lines[one.place] += one.counts["lines"]
    for split, after in pairwise(splits):
        if split.number == after.number:
            conserve(
                f"lines of {split.file.name}", after.line_no - split.line_no, lines[split.number, split.begin]
            )
    conserve("records begun", totals["begun"], totals["records"] + totals["unfinished"])
    conserve(
        "records read", totals["records"], totals["in_scope"] + totals["out_of_scope"] + totals["other_days"]
    )
    return totals


def by_file(blocks: Iterable[Block]) -> dict[int, Counter[str]]:
    """Return the counts of each file, by its number. Lines are counted before they are joined."""
    found = defaultdict[int, Counter[str]](Counter)
    for one in blocks:
        found[one.place[0]].update(one.counts)
        found[one.place[0]]["lines"] += one.counts["joined"]
    return dict(found)


def conserve(what: str, expected: int, found: int) -> None:
    """Raise ConservationError unless the numbers are the same: no record may be lost or counted twice."""
    if found != expected:
        raise ConservationError(
            f"{expected:,} {what}, but {found:,} of them accounted for; please report this with the log"
        )


def _land(
    store: Any, clusters: Sequence[str], parsed: "Parsed", table: str, read: int
) -> tuple[Counter[str], int]:
    """Return (counts of appended records, number of earlier records that they complete).

    read: number of records for the table.
    Raises ConservationError unless each record is appended or a duplicate.
    """
    if not read:
        return Counter(), 0
    for _ in range(MOST_LOOKS):
        try:
            return _land_once(store, clusters, parsed, table, read)
        except Conflict:
            # another run has appended after the search for duplicates, so more records may be duplicates
            store.forget(table)
    raise Conflict.on(table)


def _land_once(
    store: Any, clusters: Sequence[str], parsed: "Parsed", table: str, read: int
) -> tuple[Counter[str], int]:
    """Do the same as `_land`, once.

    Raises Conflict, before anything is appended, where another run has appended.
    """
    seen = store.looked_at(table)
    dropped, duplicates = parsed.duplicates(table, StoredRecords.of(store, clusters, table, parsed.blocks))
    incomplete, completed = set[str](), set[str]()
    if table == "events" and 0 < duplicates < read:  # one of two equal records may be cut short
        incomplete, completed = _incomplete(store, clusters, parsed)
    if completed:
        from jobs.engine.rows import one_of

        store.delete(table, one_of("record_id", completed))
        before, seen = seen, store.version(table)
        if seen > before + 1:
            raise Conflict.on(table)
    appended = parsed.append(store, table, dropped, incomplete, seen) if duplicates < read else Counter[str]()
    accounted = appended["records"] + duplicates
    # a record that is cut short may be a duplicate, too
    conserve(
        f"records for {table}", read, read if accounted <= read <= accounted + len(incomplete) else accounted
    )
    return appended, len(completed)


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


def events_of(
    logs: Sequence[str], cluster: str = "cluster", timezone: str = "UTC", ruleset: RuleSet | None = None
) -> pa.Table:
    """Return the events of some logs (files, globs, folders) without duplicates, with the columns of table
    `events`. No Spark.
    """
    from jobs.engine.in_process import parsed_in_process

    ruleset = ruleset or built_in()
    parsed = parsed_in_process(ingest.find(ingest.Cluster(cluster, tuple(logs), timezone), ruleset), ruleset)
    return with_schema(parsed.rows("events", parsed.duplicates("events")[0], set()), EVENTS)
