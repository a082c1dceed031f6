"""Events of an earlier version, read again from the text of their records: `events.raw` holds each record whole. Pure: Arrow in and out."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC
from itertools import groupby
from typing import Any

import pyarrow as pa

from parsers.events import EVENTS, Identity, Parser, Source
from parsers.records import Record
from parsers.rules import RuleSet

# column of the result: the id that the record had
FORMER = "former_id"
REREAD = EVENTS.append(pa.field(FORMER, pa.string()))
# of an event of an earlier version; the first item of a record holds its text
OF_RECORD = ("cluster", "file", "record_no", "record_id", "node", "ts", "raw")
# there from the version on that gives records the ids of this one
ENDS_FILE = "ends_file"
AT_ONCE = 10_000

Row = dict[str, Any]


def reread(batches: Iterable[pa.RecordBatch], ruleset: RuleSet) -> Iterator[pa.RecordBatch]:
    """Return the events of records, with the columns of REREAD.

    in: OF_RECORD and, where the records have ids of this version, ENDS_FILE; one row a record, those of a file together and in the order of
    record_no. Moment and node of a record are kept, ids of this version, too. What this version does not take for a record of Kafka is left
    out; a text that no layout reads any more keeps no values.
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
        # the text of the last one may have been cut short
        if not has_ids:
            some[-1][ENDS_FILE] = True
        yield from _events(some, parser, identity, has_ids)


def _events(rows: Sequence[Row], parser: Parser, identity: Identity, has_ids: bool) -> Iterator[pa.RecordBatch]:
    """rows: of one file."""
    by_node = defaultdict[int | None, list[Row]](list)
    for row in rows:
        by_node[row["node"]].append(row)
    for node, mine in by_node.items():
        source = Source(rows[0]["cluster"], node, rows[0]["file"], UTC)
        read = parser.read([_record(row, parser) for row in mine], source, identity)
        found = parser.table(read, source)
        if not found.num_rows:
            continue
        of_line = {row["record_no"]: row for row in mine}
        records = [of_line[line] for line in found["record_no"].to_pylist()]
        kept = {"ts": "ts", ENDS_FILE: ENDS_FILE, FORMER: "record_id"}
        if has_ids:
            kept["record_id"] = "record_id"
        arrays = []
        for one in REREAD:
            if one.name in kept:
                arrays.append(pa.array([record.get(kept[one.name]) for record in records], one.type))
            elif one.name in found.column_names:
                arrays.append(found[one.name])
            else:
                arrays.append(pa.nulls(found.num_rows, one.type))
        yield from pa.table(arrays, schema=REREAD).to_batches()


def _record(row: Row, parser: Parser) -> Record:
    text = row["raw"] or ""
    record = parser.record(text, bare=row["ts"] is None)
    if record is None:
        first, _, rest = text.partition("\n")
        return Record(row["record_no"], "-", None, None, None, None, "", first, rest, text, False)
    return record._replace(line_no=row["record_no"])


def renamed(ids: pa.ChunkedArray, names: dict[str, str]) -> pa.Array:
    """Lists of record ids, with the new ids of those that have one. ids: list<string>."""
    return pa.array([None if some is None else [names.get(one, one) for one in some] for some in ids.to_pylist()], ids.type)
