"""The commands `sql` and `timeline`, and functions that all reading commands share.

They write nothing and take no lock.
"""

import csv
import difflib
import io
import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import schemas
from jobs import engine, terminal
from jobs.arguments import add_command
from jobs.engine import limits
from jobs.engine.literals import quoted
from jobs.errors import UsageError
from jobs.location import local_folder, root_of
from parsers.explanation import visible
from schemas.moments import to_milliseconds as moment

WIDTH = 100  # columns of a story without a terminal
CELL = 100  # most columns of a cell of a text table
MEASURED_ROWS = 1_000  # first rows that determine the widths of a text table; the others are streamed
SHORTEST = 12  # least width to which a column of a text table is cut
NEAR = 8  # most similar names in an error about an unknown name
FORMATS = ("table", "csv", "json", "parquet")
READING = {"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "VALUES", "TABLE", "FROM"}
_OPAQUE = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL
)
_WRITING = re.compile(
    r"\b(INSERT\s+(?:INTO|OVERWRITE|WITH)|MERGE\s+(?:INTO|WITH)|DELETE\s+FROM|UPDATE\s+\S.*?\sSET)\b",
    re.I | re.S,
)

Row = dict[str, Any]


STORY_EXAMPLES = """\
examples:
  kafka-audit timeline orders-3 --tables /data/audit
  kafka-audit timeline orders --tables /data/audit                      # all partitions of a topic
  kafka-audit timeline orders-3 --tables /data/audit --cluster payments
"""
QUERY_EXAMPLES = """\
examples:
  kafka-audit sql "SHOW TABLES" --tables /data/audit
  kafka-audit sql "DESCRIBE partition_timeline" --tables /data/audit
  kafka-audit sql "SELECT title, status FROM findings" --tables /data/audit --format csv
  kafka-audit sql "SELECT * FROM events" --tables /data/audit --format parquet > events.parquet
"""


def add_arguments(commands: Any) -> None:
    """Add `timeline` and `sql` to the command line."""
    story = add_command(
        commands,
        "timeline",
        lambda options: timeline(options.partition, options.tables, options.cluster, options.json),
        "--tables --cluster --json",
        summary="the story of one partition or topic",
        examples=STORY_EXAMPLES,
    )
    story.add_argument("partition", metavar="TOPIC[-PARTITION]")

    query = add_command(
        commands,
        "sql",
        lambda options: sql(options.query, options.tables, options.format, options.engine),
        "--tables",
        summary="one query over the tables and views",
        examples=QUERY_EXAMPLES,
    )
    query.add_argument("query", metavar="QUERY")
    form = query.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="json: JSON Lines; parquet: to a file or pipe (default table)",
    )
    form.add_argument(
        "--json", action="store_const", const="json", dest="format", help="the same as --format json"
    )
    query.add_argument(
        "--engine",
        choices=engine.ENGINES,
        default="auto",
        help="auto: without Java wherever that reads the tables; spark: all of Spark's SQL, takes seconds longer",
    )
    limits.add_argument(query)


# -- opening -----------------------------------------------------------------------------------------------


def present(root: str | Path) -> list[str]:
    """Return the names of the tables in a local folder; of all tables where the root is not local.

    Raises UsageError where a folder has none. Whether others exist is found out when they are opened.
    """
    folder = local_folder(root_of(root))
    names = [table.name for table in schemas.statements("tables")]
    if folder is None:
        return names
    if not folder.is_dir():
        raise UsageError(f"--tables {root}: no such folder; give the one that `kafka-audit audit` wrote")
    found = [name for name in names if (folder / name).is_dir()]
    if not found:
        raise UsageError(f"--tables {root} has no tables; give the folder that `kafka-audit audit` wrote")
    return found


def opened(root: str | Path, names: Collection[str]) -> engine.Tables:
    """Open the tables under a root. names: tables and views to read.

    Raises UsageError where there are none.
    """
    from jobs.engine import damage

    present(root)
    damage.refuse(root, names)
    return engine.opened(root, names=names)


def rows_where(
    tables: engine.Tables, table: str, condition: str, columns: Sequence[str] | None = None
) -> list[Row]:
    """Return the rows of a table that satisfy a condition in Spark's SQL; times in UTC."""
    return engine.rows_of(tables.read(table, columns, condition))


def covers(row: Row, moment: datetime) -> bool:
    """Return whether an interval, valid_from to valid_to, covers a moment.

    Null: began before the logs, has not ended.
    """
    begin, end = row["valid_from"], row["valid_to"]
    return (begin is None or begin <= moment) and (end is None or moment < end)


def rows_of(
    tables: engine.Tables, table: str, cluster: str | None, topic: str | None, condition: str = "true"
) -> list[Row]:
    """Return the rows of a cluster and topic, or of all.

    Raises UsageError where there is no such cluster or topic.
    """
    asked = {name: value for name, value in (("cluster", cluster), ("topic", topic)) if value is not None}
    rows = rows_where(
        tables,
        table,
        " AND ".join([condition, *(f"{name} = {quoted(value)}" for name, value in asked.items())]),
    )
    if rows or not asked:
        return rows
    known = tables.query(f"SELECT DISTINCT cluster, topic FROM {table}").rows()
    for name, value in asked.items():
        existing = sorted({row[name] for row in known})
        if value not in existing:
            near = difflib.get_close_matches(value, existing, n=NEAR, cutoff=0.3) or existing[:NEAR]
            named = ", ".join(map(visible, near)) or "none"
            raise UsageError(f"No {name} {visible(value)} in these tables; there is {named}")
    return rows


# -- one query ---------------------------------------------------------------------------------------------


def reading(query: str) -> str:
    """Return the query without its last semicolon.

    Raises UsageError if it is not one statement that only reads.
    """
    bare = _OPAQUE.sub(lambda found: " " if found.group()[0] in "-/" else "x" * len(found.group()), query)
    statements = [part for part in bare.split(";") if part.strip()]
    if not statements:
        raise UsageError('No query given; for example: kafka-audit sql "SHOW TABLES" --tables DIR')
    if len(statements) > 1:
        raise UsageError("One query at a time: there is a semicolon between two statements")
    word = re.match(r"[\s(]*([A-Za-z]+)", bare)
    first = word.group(1).upper() if word else ""
    if first not in READING:
        raise UsageError(
            f"Only reading statements are run, and this one begins with {visible(first) or 'no word'}; "
            "begin with SELECT, WITH, FROM, VALUES, TABLE, SHOW, DESCRIBE or EXPLAIN"
        )
    if first != "EXPLAIN" and (writing := _WRITING.search(bare)):
        raise UsageError(
            f"Only reading statements are run, and this one has {writing.group(1).split()[0].upper()}"
        )
    return query.rstrip().rstrip(";").rstrip() if bare.rstrip().endswith(";") else query


def sql(query: str, tables: str | Path, form: str = "table", with_engine: str = "auto") -> int:
    """Run one query and print its rows in one of FORMATS. Raises UsageError where it is wrong."""
    from jobs.engine import damage

    statement = reading(query)
    present(tables)
    if form == "parquet" and sys.stdout.isatty():
        raise UsageError("--format parquet writes no text; send it to a file: ... > result.parquet")
    damage.refuse(tables, named(statement) or ())
    known = engine.opened(tables, with_engine, named(statement))
    try:
        answer = known.query(statement)
        _PRINTED[form](answer)
    except engine.QueryError as error:
        raise UsageError(f"The query does not run: {error}") from None
    return 0


def named(statement: str) -> set[str] | None:
    """Return the words of a query, which may be names of tables and views; None: it may read any table."""
    found = set(re.findall(r"\w+", statement.lower()))
    return None if found & {"show", "identifier"} else found


def _values(answer: engine.Answer) -> Iterator[list[Any]]:
    """Yield the rows of an answer as lists of values."""
    for batch in answer.batches:
        yield from map(list, zip(*map(engine.values_of, batch.columns), strict=True))


def _print_table(answer: engine.Answer) -> None:
    terminal.show(text_table(answer.schema.names, _values(answer), terminal.width()), styled=False)


def _print_json(answer: engine.Answer) -> None:
    for line in json_lines(answer.schema.names, _values(answer)):
        print(line)


def _print_csv(answer: engine.Answer) -> None:
    """Print CSV by RFC 4180 except for line ends.

    Null is empty, lists and structs are JSON, moments as in JSON.
    """
    for line in csv_lines(answer.schema.names, _values(answer)):
        print(line)


def _print_parquet(answer: engine.Answer) -> None:
    schema = pa.schema(
        [
            field.with_name(name)
            for name, field in zip(_distinct(answer.schema.names), answer.schema, strict=True)
        ]
    )
    sys.stdout.flush()
    with pq.ParquetWriter(pa.PythonFile(sys.stdout.buffer, "w"), schema) as file:
        for batch in answer.batches:
            file.write_batch(batch.rename_columns(schema.names))
    sys.stdout.buffer.flush()


_PRINTED: dict[str, Callable[[engine.Answer], None]] = {
    "table": _print_table,
    "csv": _print_csv,
    "json": _print_json,
    "parquet": _print_parquet,
}


def columns_of(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def cell(value: Any) -> str:
    """Return a value as text: null is empty, lists are [1,2,3], structs are {a: 1}."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{cell(k)}: {_inner(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_inner(item) for item in value) + "]"
    return visible(str(value))


def _inner(value: Any) -> str:
    return "null" if value is None else cell(value)


def cut(text: str, width: int) -> str:
    """Cut a text to `width` columns; a cut text ends with two dots."""
    if columns_of(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += columns_of(char)
        if used > width - 2:
            break
        kept.append(char)
    return "".join(kept) + ".."


def _filled(text: str, width: int, right: bool = False) -> str:
    space = " " * max(0, width - columns_of(text))
    return space + text if right else text + space


def text_table(
    names: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = None
) -> Iterator[str]:
    """Yield the lines of an aligned table, numbers to the right; the first rows determine the widths.

    width: of the terminal; the widest columns are cut to fit. None: no limit.
    """
    source = iter(rows)
    first = list(islice(source, MEASURED_ROWS))
    heads = [cut(visible(name), CELL) for name in names]
    numeric = [
        any(row[at] is not None for row in first)
        and all(
            row[at] is None or (isinstance(row[at], (int, float, Decimal)) and row[at] is not True)
            for row in first
        )
        for at in range(len(names))
    ]
    shown = [[cut(cell(value), CELL) for value in row] for row in first]
    widths = [
        max([columns_of(head), *(columns_of(row[at]) for row in shown)]) for at, head in enumerate(heads)
    ]

    least = [min(one, SHORTEST) for one in widths]
    while width is not None and sum(widths) + 2 * (len(widths) - 1) > width and widths != least:
        at = max((at for at, one in enumerate(widths) if one > least[at]), key=lambda at: widths[at])
        widths[at] -= 1

    def line(cells: Sequence[str]) -> str:
        return (
            "  ".join(map(_filled, map(cut, cells, widths), widths, numeric)).rstrip()
            if width
            else unbounded(cells)
        )

    def unbounded(cells: Sequence[str]) -> str:
        return "  ".join(map(_filled, cells, widths, numeric)).rstrip()

    yield line(heads)
    yield "  ".join("-" * width for width in widths)
    for cells in chain(shown, ([cut(cell(value), CELL) for value in row] for row in source)):
        yield line(cells)


def plain(value: Any) -> Any:
    """Return a value as JSON accepts it; time stamps are `2026-11-20T10:09:12.175Z`."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return moment(value).replace(" ", "T") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names; a repeated one gets a number."""
    keys: list[str] = []
    for name in names:
        key, number = name, 2
        while key in keys:
            key, number = f"{name}_{number}", number + 1
        keys.append(key)
    return keys


def csv_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the rows of a CSV file, the names first; a row may have several lines."""
    for row in chain([names], rows):
        cells = map(plain, row)
        texts = [
            "" if c is None else json.dumps(c) if isinstance(c, bool | list | dict) else c for c in cells
        ]
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="").writerow(texts)
        yield buffer.getvalue()


def json_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield one object per row, in ASCII; a repeated column name gets a number."""
    keys = _distinct(names)
    for row in rows:
        yield json.dumps({key: plain(value) for key, value in zip(keys, row, strict=True)})


# -- the story of a partition ------------------------------------------------------------------------------

STORY_COLUMNS = (
    "leader",
    "leader_epoch",
    "isr",
    "partition_epoch",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "state",
    "reassignment_phase",
)
# column of partition_timeline -> its head in a story
HEADS = {
    "state": "state",
    "leader": "leader",
    "leader_epoch": "lep",
    "partition_epoch": "pep",
    "isr": "isr",
    "replicas": "replicas",
    "adding_replicas": "adding",
    "removing_replicas": "removing",
    "reassignment_phase": "ph",
}
PHASES = {"U": "assignment updated", "A": "replicas catch up", "B": "caught up, roles change hands"}


@dataclass(frozen=True)
class Story:
    """The history of a partition or topic of one cluster.

    intervals: rows of partition_timeline, with file and record_no of the record that began each.
    terms, reassignments: rows of `controllers` and `reassignments`.
    """

    cluster: str
    name: str
    intervals: list[Row]
    terms: list[Row]
    reassignments: list[Row]


def ordered(intervals: Iterable[Row]) -> list[Row]:
    """Return the intervals by incarnation and time, with `changed`.

    changed: the columns that differ from the previous interval.
    """
    by_partition: dict[tuple[Any, ...], list[Row]] = {}
    for row in intervals:
        by_partition.setdefault((row["incarnation"], row["topic"], row["partition"]), []).append(row)
    keyed = []
    for identity, rows in by_partition.items():
        latest = ""
        before: Row | None = None
        for row in sorted(rows, key=lambda r: r["step"]):
            latest = max(latest, moment(row["valid_from"]) if row["valid_from"] else "")
            changed = [name for name in STORY_COLUMNS if before is not None and row[name] != before[name]]
            keyed.append(((identity[0], latest, identity[2], row["step"]), row | {"changed": changed}))
            before = row
    return [row for _, row in sorted(keyed, key=lambda entry: entry[0])]


def story_lines(story: Story, whole_topic: bool, width: int = WIDTH) -> list[str]:
    """Return the story as lines of at most `width` columns."""
    rows = ordered(story.intervals)
    shown = [name for name in HEADS if any(row[name] not in (None, []) for row in rows)]
    heads = ["time (UTC)", *(["p"] if whole_topic else []), *[HEADS[name] for name in shown], "by record"]
    paths = list(dict.fromkeys(row["file"] for row in rows if row.get("file")))
    folder = _shared_folder(paths)
    names = {path: visible(path.removeprefix(folder)) for path in paths}
    notes = [f"files are under {visible(folder)}"] if folder else []
    table = [_cells(row, shown, whole_topic, names) for row in rows]
    widths = _widths([heads, *table])
    if sum(widths) + len(widths) - 1 > width:  # files are numbered, and listed below
        numbers = {path: f"f{number}" for number, path in enumerate(paths, 1)}
        notes = [f"{numbers[path]} {visible(path)}" for path in paths]
        table = [_cells(row, shown, whole_topic, numbers) for row in rows]
        widths = _widths([heads, *table])
    while sum(widths) + len(widths) - 1 > width:  # the widest column is cut first, the times never
        at = max(range(1, len(widths)), key=lambda i: widths[i])
        if widths[at] <= len("replicas"):
            break
        widths[at] -= 1

    def line(cells: list[str]) -> str:
        kept = [
            _tail(c, w) if at == len(cells) - 1 else cut(c, w)
            for at, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return " ".join(map(_filled, kept, widths)).rstrip()

    lines = [cut(f"{visible(story.name)} of {visible(story.cluster)}", width), line(heads)]
    marks = _marks(story, whole_topic)
    day, incarnation = "", rows[0]["incarnation"] if rows else 1
    for row, cells in zip(rows, table, strict=True):
        now = (row["incarnation"], moment(row["valid_from"]) if row["valid_from"] else "")
        while marks and (marks[0][0] <= now):
            (_, when), text = marks.pop(0)
            day = _new_day(lines, day, when)
            lines.append(cut(f"{when[11:] or '-':<12} == {text}", width))
        if row["incarnation"] != incarnation:
            incarnation, day = row["incarnation"], ""
            lines.append(f"==== incarnation {incarnation}: the cluster was wiped and set up again")
        day = _new_day(lines, day, now[1])
        lines.append(line(cells))
    for (_, when), text in marks:
        day = _new_day(lines, day, when)
        lines.append(cut(f"{when[11:] or '-':<12} == {text}", width))
    for row in _last(rows):
        if row["valid_to"] is not None:
            which = f"partition {row['partition']}" if whole_topic else "the story"
            lines.append(f"{moment(row['valid_to'])[11:]} == {which} ends")
    return [*lines, *_legend(rows, shown, width), *notes]


def _widths(table: list[list[str]]) -> list[int]:
    return [max(map(columns_of, column)) for column in zip(*table, strict=True)]


def _shared_folder(paths: list[str]) -> str:
    """Return the folder that all files share, with a slash at its end; empty if there is none."""
    try:
        shared = os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:
        return ""
    return shared.rstrip("/") + "/" if shared else ""


def _last(rows: list[Row]) -> list[Row]:
    """Return the last interval of each partition."""
    return list({(row["incarnation"], row["topic"], row["partition"]): row for row in rows}.values())


def _new_day(lines: list[str], day: str, when: str) -> str:
    if when and when[:10] != day:
        lines.append(f"-- {when[:10]} --")
        return when[:10]
    return day


def _cells(row: Row, shown: list[str], whole_topic: bool, names: dict[str, str]) -> list[str]:
    when = moment(row["valid_from"])[11:] if row["valid_from"] else "-"
    texts = []
    for name in shown:
        value = row[name]
        text = (
            ""
            if value is None
            else ",".join(map(str, value))
            if isinstance(value, list)
            else visible(str(value))
        )
        text = (
            text.removesuffix("Partition")
            if name == "state"
            else "none"
            if name == "leader" and value == -1
            else text
        )
        if name in row["changed"]:
            text = f"*{text or '-'}"
        texts.append(text)
    place = f"{names[row['file']]}:{row['record_no']}" if row.get("file") else ""
    mark = "~" if row["inferred"] else " "
    return [f"{when:<12}{mark}", *([str(row["partition"])] if whole_topic else []), *texts, place]


def _tail(text: str, width: int) -> str:
    """Cut the beginning of a place: `..roller.log:17`."""
    return text if columns_of(text) <= width else ".." + text[-(width - 2) :]


def _marks(story: Story, whole_topic: bool) -> list[tuple[tuple[int, str], str]]:
    """Return ((incarnation, time), text) of controller terms and reassignments, in order."""
    found = []
    for term in story.terms:
        who = f"controller {_or_unknown(term['node'])}, epoch {_or_unknown(term['controller_epoch'])}"
        begin = moment(term["elected_at"]) if term["elected_at"] else ""
        found.append(((term["incarnation"], begin), f"{who}{' ~' if term.get('inferred') else ''}"))
        if term["resigned_at"]:
            found.append(((term["incarnation"], moment(term["resigned_at"])), f"{who} resigns"))
    for row in story.reassignments:
        which = f" of partition {row['partition']}" if whole_topic else ""
        change = f"{_ids(row['original_replicas'])} -> {_ids(row['target_replicas'])}"
        if row["started_at"]:
            begins = "refused" if row["outcome"] == "never_started" else "begins"
            found.append(
                ((row["incarnation"], moment(row["started_at"])), f"reassignment{which} {begins}: {change}")
            )
        if row["completed_at"]:
            ended = (row["incarnation"], moment(row["completed_at"]))
            found.append((ended, f"reassignment{which} {visible(row['outcome'])}: {change}"))
    return sorted(found)


def _ids(ids: list[int] | None) -> str:
    return "?" if ids is None else ",".join(map(str, ids)) or "none"


def _or_unknown(value: Any) -> str:
    return "?" if value is None else str(value)


def _legend(rows: list[Row], shown: list[str], width: int) -> list[str]:
    notes = []
    if any(row["changed"] for row in rows):
        notes.append("* changed")
    if any(row["inferred"] for row in rows):
        notes.append("~ inferred")
    if any(row["valid_from"] is None for row in rows):
        notes.append("- before these logs, or not logged")
    notes += [f"{HEADS[n]} {n}" for n in ("leader_epoch", "partition_epoch") if n in shown]
    phases = [f"{p} {PHASES[p]}" for p in PHASES if any(row["reassignment_phase"] == p for row in rows)]
    lines = ["", cut("; ".join(notes), width)] if notes else []
    return [*lines, f"ph reassignment phase: {', '.join(phases)}"] if phases else lines


def story_json(story: Story) -> Iterator[str]:
    """Yield one object per interval, with `changed`, `file` and `record_no`."""
    for row in ordered(story.intervals):
        yield json.dumps({name: plain(value) for name, value in row.items()})


def near_names(asked: str, known: Iterable[tuple[str, int]]) -> list[str]:
    """Return topics and topic-partitions whose names are similar to the one asked for."""
    topics: dict[str, list[int]] = {}
    for topic, partition in known:
        topics.setdefault(topic, []).append(partition)
    stem = re.sub(r"-\d+$", "", asked)
    if stem in topics:
        partitions = sorted(set(topics[stem]))
        shown = [f"{stem}-{number}" for number in partitions[:NEAR]]
        return [*shown, f"and {len(partitions) - NEAR} more"] if len(partitions) > NEAR else shown
    lower = {topic.lower(): topic for topic in topics}
    close = difflib.get_close_matches(stem.lower(), list(lower), n=NEAR, cutoff=0.5)
    containing = [name for name in lower if stem.lower() in name and name not in close]
    found = [lower[name] for name in close + sorted(containing)][:NEAR]
    return found or sorted(topics)[:NEAR]


def timeline(partition: str, tables: str, cluster: str | None, as_json: bool) -> int:
    """Print the story of a partition (`orders-3`) or topic (`orders`).

    Raises UsageError if it is not known.
    """
    if "partition_timeline" not in present(tables):
        raise UsageError(f"--tables {tables} has no partition_timeline; run `kafka-audit audit` on it first")
    known = opened(tables, ("partition_timeline", "events", "controllers", "reassignments"))
    story, whole_topic = _story(known, partition, tables, cluster)
    if as_json:
        for line in story_json(story):
            print(line)
    else:
        terminal.show(story_lines(story, whole_topic, terminal.width() or WIDTH))
    return 0


def _story(known: engine.Tables, asked: str, tables: str, cluster: str | None) -> tuple[Story, bool]:
    """Read a story; return it, and whether it is that of a whole topic."""
    found = re.fullmatch(r"(.+)-(\d{1,9})", asked)
    one = f"topic = {quoted(found.group(1))} AND partition = {int(found.group(2))} OR " if found else ""
    about = f"({one}topic = {quoted(asked)})" + (
        f" AND cluster = {quoted(cluster)}" if cluster is not None else ""
    )
    rows = rows_where(known, "partition_timeline", about)
    exact = [row for row in rows if row["topic"] != asked]
    rows, whole_topic = (exact, False) if exact else (rows, True)
    if not rows:
        raise UsageError(_not_found(known, asked, tables, cluster))
    clusters = sorted({row["cluster"] for row in rows})
    if len(clusters) > 1:
        named = ", ".join(visible(name) for name in clusters[:NEAR])
        more = f" and {len(clusters) - NEAR} more" if len(clusters) > NEAR else ""
        raise UsageError(
            f"{visible(asked)} is in {len(clusters)} clusters; say which one with --cluster: {named}{more}"
        )
    mine = f"cluster = {quoted(clusters[0])}"
    places: dict[str, Row] = {}
    if any(row["record_id"] for row in rows) and known.has("events"):
        records = f"SELECT record_id FROM partition_timeline WHERE {about}"
        of_rows = f"SELECT record_id, file, record_no FROM events WHERE {mine} AND item = 0 AND record_id IN ({records})"
        for row in known.query(of_rows).rows():
            places[row["record_id"]] = {"file": row["file"], "record_no": row["record_no"]}
    unknown = {"file": None, "record_no": None}
    intervals = [row | places.get(row["record_id"], unknown) for row in rows]
    partitions = {(row["incarnation"], row["topic"], row["partition"]) for row in rows}

    def others(table: str) -> list[Row]:
        return rows_where(known, table, mine) if known.has(table) else []

    reassignments = [
        r for r in others("reassignments") if (r["incarnation"], r["topic"], r["partition"]) in partitions
    ]
    terms = [r for r in others("controllers") if any(r["incarnation"] == p[0] for p in partitions)]
    return Story(clusters[0], asked, intervals, terms, reassignments), whole_topic


def _not_found(known: engine.Tables, asked: str, tables: str, cluster: str | None) -> str:
    """Return the error about an unknown partition, with the names that exist."""
    names = known.query("SELECT DISTINCT cluster, topic, partition FROM partition_timeline").rows()
    clusters = sorted({row["cluster"] for row in names})
    if not names:
        return f"The partition_timeline under {tables} is empty; no partition is known"
    if cluster is not None and cluster not in clusters:
        close = difflib.get_close_matches(cluster, clusters, n=NEAR, cutoff=0.3) or clusters[:NEAR]
        return f"No cluster {visible(cluster)} under {tables}; there is {', '.join(map(visible, close))}"
    existing = [
        (row["topic"], row["partition"]) for row in names if cluster is None or row["cluster"] == cluster
    ]
    where = f" of cluster {visible(cluster)}" if cluster else ""
    near = ", ".join(map(visible, near_names(asked, existing)))
    return f"No partition or topic {visible(asked)}{where} under {tables}; near names: {near}"
