"""Parse stored records again from their text in `events.raw`. Pure: Arrow in and out.

After an upgrade all records are parsed again and get the ids of this version (`reread`). After a change of
the rules only the records that the change may concern are parsed again (`changes`).
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from typing import Any

import pyarrow as pa

from parsers.events import EVENTS, PASSED_OVER, Batch, Identity, Parser, Source, first_bytes
from parsers.records import Record
from parsers.rules import Rule, RuleSet

# column of the result: the id that the record had
FORMER = "former_id"
REREAD = EVENTS.append(pa.field(FORMER, pa.string()))
# columns of an event of any earlier version; the first item of a record has its text
OF_RECORD = ("cluster", "file", "record_no", "record_id", "node", "ts", "raw")
# columns of an event of some earlier versions
OF_SOME_VERSIONS = ("layout", "cut_bytes")
# column of versions whose record ids are those of this version
ENDS_FILE = "ends_file"
AT_ONCE = 10_000
# most loggers that a message names
SHOWN = 3
# layout of a text that no layout of this version reads
NO_LAYOUT = "-"
# values that parsing a record again does not change
KEPT = ("record_id", "cluster", "incarnation", "file", "record_no", "ts", ENDS_FILE)
# changes of a row of `events`: written, removed, or, for the first row of a record, counted in `passed_over`
# instead
SET, REMOVED, OUT_OF_SCOPE = "set", "removed", "out_of_scope"
# columns of `changes`: the change of a row, and the former event type of its record
CHANGE, FORMER_TYPE = "change", "former_type"
CHANGES = EVENTS.append(pa.field(CHANGE, pa.string())).append(pa.field(FORMER_TYPE, pa.string()))
# the order in which `changes` reads rows
IN_ORDER = ("cluster", "file", "record_no", "record_id", "item")
# entry of `versions` for what the timelines keep because of the rules
KEEPS = ""

Row = dict[str, Any]


def reread(batches: Iterable[pa.RecordBatch], ruleset: RuleSet) -> Iterator[pa.RecordBatch]:
    """Return the events of records, with the columns of REREAD.

    in: OF_RECORD and, where the records have ids of this version, ENDS_FILE; one row per record, those of a
    file together and sorted by record_no. Moment, node and ids of this version are kept. Texts that are no
    record of Kafka in this version are left out; a text that no layout of this version reads has no values.
    """
    parser = Parser(ruleset)
    rows = (row for batch in batches for row in batch.to_pylist())
    has_ids = False
    for (cluster, _), records in groupby(rows, key=lambda row: (row["cluster"], row["file"])):
        identity = Identity(cluster)
        some: list[Row] = []
        for row in records:
            has_ids = ENDS_FILE in row
            if len(some) == AT_ONCE:
                yield from _events(some, parser, identity, has_ids)
                some = []
            some.append(row)
        # the text of the last record may be cut short
        if not has_ids:
            some[-1][ENDS_FILE] = True
        yield from _events(some, parser, identity, has_ids)


def _events(
    rows: Sequence[Row], parser: Parser, identity: Identity, has_ids: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the events of rows of one file, with the columns of REREAD."""
    kept = {"ts": "ts", "record_no": "record_no", ENDS_FILE: ENDS_FILE, FORMER: "record_id"}
    if has_ids:
        kept["record_id"] = "record_id"
    for mine, _, found in _parsed_again(rows, parser, identity):
        if not found.num_rows:
            continue
        records = [mine[number] for number in found["record_no"].to_pylist()]
        arrays = []
        for one in REREAD:
            if one.name in kept:
                arrays.append(pa.array([record.get(kept[one.name]) for record in records], one.type))
            elif one.name in found.column_names:
                arrays.append(found[one.name])
            else:
                arrays.append(pa.nulls(found.num_rows, one.type))
        yield from pa.table(arrays, schema=REREAD).to_batches()


def _parsed_again(
    rows: Iterable[Row], parser: Parser, identity: Identity
) -> Iterator[tuple[list[Row], Batch, pa.Table]]:
    """Yield (rows of one node, the parsed batch, its events with record_no as the place among these rows).

    rows: of one file.
    """
    by_node = defaultdict[int | None, list[Row]](list)
    for row in rows:
        by_node[row["node"]].append(row)
    for node, mine in by_node.items():
        source = Source(mine[0]["cluster"], node, mine[0]["file"], UTC)
        # one line may have several records, so its number does not identify a record
        batch = parser.read(
            [_record(row, parser)._replace(line_no=place) for place, row in enumerate(mine)], source, identity
        )
        yield mine, batch, parser.table(batch, source)


def _record(row: Row, parser: Parser) -> Record:
    text, cut = row["raw"] or "", row.get("cut_bytes") or 0
    record = parser.again(text, row.get("layout"), has_time=row["ts"] is not None)
    if record is None:
        first, _, rest = text.partition("\n")
        return Record(0, NO_LAYOUT, None, None, None, None, "", first, rest, text, False, cut)
    return record._replace(cut=cut)


def renamed(ids: pa.ChunkedArray, names: dict[str, str]) -> pa.Array:
    """Return lists of record ids, each id replaced by its new one if it has one. ids: list<string>."""
    return pa.array(
        [None if some is None else [names.get(one, one) for one in some] for some in ids.to_pylist()],
        ids.type,
    )


# -- rules that have changed ---------------------------------------------------------------------------------


def versions(ruleset: RuleSet) -> dict[str, str]:
    """Return rule -> hash of everything that determines the events of its records; also KEEPS."""
    found = {
        rule.name: _hash([_definition(rule), sorted(rule.loggers), rule.starts, rule.contains, rule.drifts])
        for rule in ruleset.rules
    }
    found[KEEPS] = _hash(sorted((rule.name, rule.keeps) for rule in ruleset.rules if rule.keeps))
    return found


def _definition(rule: Rule) -> list[Any]:
    return [rule.pattern, rule.says, sorted(rule.implies.items()), rule.each]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:8]


def concerned(before: Mapping[str, str], ruleset: RuleSet) -> set[str]:
    """Return the event types whose records may have other events than with the former rules.

    before: `versions` of the former rules. A record's first words choose its rule, so a new rule may match
    records of rules that begin alike.
    """
    now = versions(ruleset)
    changed = [rule for rule in ruleset.rules if before.get(rule.name) != now[rule.name]]
    found = {name for name in before.keys() - {KEEPS} if before[name] != now.get(name)}
    beginnings = {start for rule in changed for start in rule.starts}
    return found | {
        rule.name
        for rule in ruleset.rules
        if any(one.startswith(start) or start.startswith(one) for one in rule.starts for start in beginnings)
    }


def changes(batches: Iterable[pa.RecordBatch], ruleset: RuleSet) -> Iterator[pa.RecordBatch]:
    """Return the rows of `events` that the rules change, with the columns of CHANGES.

    Unchanged records are left out.
    in: all rows of each record in `events`, sorted by IN_ORDER. Id, moment and node of a record are kept.
    """
    parser = Parser(ruleset)
    rows = (row for batch in batches for row in batch.to_pylist())
    for (cluster, _), of_file in groupby(rows, key=lambda row: (row["cluster"], row["file"])):
        identity = Identity(cluster)
        records: list[list[Row]] = []
        for _, of_record in groupby(of_file, key=lambda row: row["record_id"]):
            records.append(list(of_record))
            if len(records) == AT_ONCE:
                yield from _changed(records, parser, identity)
                records = []
        yield from _changed(records, parser, identity)


def _changed(records: Sequence[list[Row]], parser: Parser, identity: Identity) -> Iterator[pa.RecordBatch]:
    """Return the changes of the records of one file.

    records: all rows of each, the one with its text first.
    """
    before = {rows[0]["record_id"]: rows for rows in records}
    changed: list[Row] = []
    for mine, batch, found in _parsed_again((rows[0] for rows in records), parser, identity):
        after: dict[int, list[Row]] = defaultdict(list)
        for row in found.to_pylist():
            after[row["record_no"]].append(row)
        skipped = {record.line_no: record for record, _, _ in batch.out_of_scope}
        for place, first in enumerate(mine):
            read_as = skipped[place].layout if place in skipped else after[place][0]["layout"]
            if first["raw"] is None or read_as == NO_LAYOUT:
                continue  # records that cannot be read again stay unchanged
            old = before[first["record_id"]]
            kept = {name: first[name] for name in KEPT}
            new = [_whole(row | kept) for row in sorted(after[place], key=lambda row: row["item"])]
            if new == old:
                continue
            former = {FORMER_TYPE: first["event_type"]}
            changed += [row | former | {CHANGE: SET} for row in new if row not in old]
            items = {row["item"] for row in new}
            changed += [row | former | {CHANGE: REMOVED} for row in old if row["item"] not in items]
            if place in skipped:
                # as if its file were read now
                printed = {"logger": skipped[place].logger, "layout": skipped[place].layout}
                changed.append(first | printed | former | {CHANGE: OUT_OF_SCOPE})
    if changed:
        yield from pa.Table.from_pylist(changed, schema=CHANGES).to_batches()


def _whole(row: Row) -> Row:
    return {name: row.get(name) for name in EVENTS.names}


def passed_over(rows: pa.Table) -> pa.Table:
    """Return the rows of `passed_over` for records with the columns of `events`."""
    found = []
    for row in rows.select(["cluster", "node", "ts", "logger", "layout", "record_id"]).to_pylist():
        hour = row["ts"] and row["ts"].replace(minute=0, second=0, microsecond=0)
        number = first_bytes(bytes.fromhex(row["record_id"]))
        found.append((row["cluster"], row["node"], hour, row["logger"], row["layout"], number))
    return pa.Table.from_pylist(
        [dict(zip(PASSED_OVER.names, row, strict=True)) for row in found], schema=PASSED_OVER
    )


def in_scope(loggers: Iterable[str | None], ruleset: RuleSet, *, are: bool = True) -> list[str]:
    """Return the loggers that some rule covers, or (are=False) those that no rule covers."""
    return sorted(logger for logger in loggers if logger is not None and ruleset.in_scope(logger) == are)


@dataclass(frozen=True)
class Reread:
    """The result of a change of the rules.

    records: number of records that were parsed again. changed: number of those with other events. loggers:
    those that are in scope now.
    skipped: number of their records that were counted but not stored.
    """

    records: int
    changed: int
    loggers: tuple[str, ...] = ()
    skipped: int = 0

    def sentences(self) -> list[str]:
        """Return notes for people; none where nothing was parsed again."""
        found = []
        if self.records:
            found.append(
                f"The rules have changed: {self.records:,} records were parsed again; {self.changed:,} of them have other events now."
            )
        if self.skipped:
            shown, more = ", ".join(self.loggers[:SHOWN]), len(self.loggers) - SHOWN
            others = f" and {more} more" if more > 0 else ""
            found.append(
                f"{self.skipped:,} records of loggers that are in scope now ({shown}{others}) were not stored: "
                "give their logs again."
            )
        return found
