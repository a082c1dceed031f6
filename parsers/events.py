"""Turn records into events: find the rule of a statement and extract its values as typed columns.

`explain`, lint and audits use the same functions.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from parsers.patterns import THROWABLE, compiled
from parsers.records import CUT, Headers, Joiner, Record, RecordReader, Unwrapper, split_lines
from parsers.rules import ITEMS, Rule, RuleSet, built_in

# number of first characters by which the rules of a statement are looked up
BEGINNING = 12
# bytes; the text of a longer record is stored only with its first item: a request may have 50,000 partitions
# in 10 MB
LONG_RECORD = 10_000
# characters that are stored of a statement without a rule, enough to write one
LONG_STATEMENT = 2_000
# number of cached values of each kind
MOST_CACHED = 100_000
ID_BYTES = 16
# most digits of a number
LONGEST_NUMBER = 1_000
ARROW_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int_list": pa.list_(pa.int32()),
}
TIMESTAMP = pa.timestamp("us", "UTC")
_INT_RANGE = {"int": 2**31, "bigint": 2**63}
_NUMBER = re.compile(r"-?\d+", re.ASCII)
_BROKER_EPOCH = re.compile(r"brokerEpoch=-?\d+", re.ASCII)
_DATE_AND_TIME = re.compile(r"(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+)(?:\.(\d{1,3}))?\d*(.*)", re.ASCII)
_THROWABLE = compiled(THROWABLE)


def typed(text: str | None, kind: str) -> Any:
    """Convert a captured text to a type of the vocabulary; None where it is empty or does not fit."""
    if not text:
        return None
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
    if kind == "int_list":
        numbers = (_number(found, 2**31) for found in _NUMBER.findall(_BROKER_EPOCH.sub("", text)))
        return [number for number in numbers if number is not None]
    return _number(text, _INT_RANGE[kind]) if _NUMBER.fullmatch(text) else None


def _number(digits: str, limit: int) -> int | None:
    if len(digits) > LONGEST_NUMBER:
        return None
    number = int(digits)
    return number if abs(number) < limit else None


def _fields() -> list[pa.Field]:
    captured = [(name, ARROW_TYPES[word["type"]]) for name, word in schemas.vocabulary().items()]
    string, int32, flag = pa.string(), pa.int32(), pa.bool_()
    never_null = {"record_id", "item", "cluster", "incarnation", "file", "record_no", "drifted"}
    columns = [
        *(
            ("record_id", string),
            ("item", int32),
            ("cluster", string),
            ("incarnation", int32),
            ("node", int32),
            ("file", string),
        ),
        *(
            ("record_no", pa.int64()),
            ("ts", TIMESTAMP),
            ("level", string),
            ("logger", string),
            ("layout", string),
        ),
        *(
            ("event_type", string),
            ("says", string),
            ("drifted", flag),
            *captured,
            ("error_class", string),
            ("error_message", string),
        ),
        *(("statement", string), ("raw", string), ("cut_bytes", pa.int64()), ("ends_file", flag)),
    ]
    return [pa.field(name, kind, nullable=name not in never_null) for name, kind in columns]


# the columns of table `events`
EVENTS = pa.schema(_fields())


# the columns of table `passed_over`
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


def first_bytes(record_id: bytes) -> int:
    """Return the beginning of a record's id as a number, which identifies records in `passed_over`."""
    return int.from_bytes(record_id[:8], "big", signed=True)


class _Cached(dict[Any, Any]):
    """Cache of a function: argument -> result; most calls repeat an argument."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __missing__(self, argument: Any) -> Any:
        if len(self) > MOST_CACHED:
            self.clear()
        value = self[argument] = self._function(argument)
        return value


# years of logs; another one is of a broken clock, and every day up to it would have rows
FIRST_YEAR, LAST_YEAR = 1970, 2099


@cache
def zone(name: str) -> tzinfo:
    """Return the zone of an IANA name or of an offset such as `+09:30`."""
    if offset := re.fullmatch(r"([+\-])(\d\d):(\d\d)", name):
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    return UTC if name == "UTC" else ZoneInfo(name)


def moment(text: str | None, in_zone: tzinfo) -> datetime | None:
    """Return the moment of a record's `ts`, without a zone where it is UTC.

    None where there is no such day or time, or no log has its year.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        numbers = _DATE_AND_TIME.fullmatch(text)
        if numbers is None:
            return None
        year, month, day, hour, minute, second, millis, named = numbers.groups()
        try:
            micros = int((millis or "0").ljust(3, "0")) * 1000
            found = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros)
            in_zone = ZoneInfo(named.strip()) if named.strip() else in_zone
        except (ValueError, KeyError, OSError):
            return None
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        return None
    return found if found.tzinfo or in_zone is UTC else found.replace(tzinfo=in_zone)


def moments(texts: Sequence[str | None], in_zone: tzinfo) -> pa.Array:
    """Return the moment of each `ts`."""
    if in_zone is UTC:
        with suppress(
            pa.ArrowInvalid
        ):  # Arrow converts all at once if they have the form of Kafka's own layout
            found = pa.array(texts, pa.string()).cast(pa.timestamp("us")).cast(TIMESTAMP)
            years = pc.min_max(pc.year(found)).as_py()
            if years["min"] is None or FIRST_YEAR <= years["min"] <= years["max"] <= LAST_YEAR:
                return found
    return pa.array([moment(text, in_zone) for text in texts], TIMESTAMP)


def throwable(rest: str) -> tuple[str | None, str | None]:
    """Return (class, message) of the first exception in the lines after a record's first one."""
    for line in rest.split("\n"):
        if found := _THROWABLE.fullmatch(line):
            return found[1], found[2] or None
    return None, None


class Source(NamedTuple):
    """The file of some records. node: of records without one. zone: of time stamps without one."""

    cluster: str = ""
    node: int | None = None
    file: str = ""
    zone: tzinfo = UTC


class LogIdent(NamedTuple):
    """The values in a record's log ident; None where it has none."""

    node: int | None
    controller: int | None
    controller_epoch: int | None
    topic: str | None
    partition: int | None


NOBODY = LogIdent(None, None, None, None, None)
NOWHERE = Source()


class Identity:
    """Computes the ids of the records of one file from cluster, node and text; equal texts are numbered.

    Equal texts share a time stamp, or have none, so they are close together. Only the latest texts are
    cached.
    """

    CACHED = 500_000

    def __init__(self, cluster: str, previous_ending: Mapping[bytes, int] | None = None) -> None:
        """previous_ending: id of a text -> how often the previous file of the rotation ends with it."""
        self._cluster = cluster
        self._counts: dict[bytes, int] = dict(previous_ending or {})
        self._older: dict[bytes, int] = {}
        self._begun: dict[int | None, Any] = {}

    def of_text(self, node: int | None, raw: str) -> bytes:
        """Return the id of the first record with this text, 16 bytes."""
        begun = self._begun.get(node)
        if begun is None:
            place = f"{self._cluster}\x01{'' if node is None else node}\x01"
            begun = self._begun[node] = blake2b(place.encode("utf-8", "replace"), digest_size=ID_BYTES)
        digest = begun.copy()
        digest.update(raw.encode("utf-8", "replace"))
        found: bytes = digest.digest()
        return found

    def __call__(self, node: int | None, raw: str) -> bytes:
        """Return the id of the next record, 16 bytes."""
        first = self.of_text(node, raw)
        number = self._counts.setdefault(first, 0) or self._older.get(first, 0)
        self._counts[first] = number + 1
        if len(self._counts) > self.CACHED:
            self._older, self._counts = self._counts, {}
        return first if number == 0 else numbered(first, number + 1)


def numbered(first: bytes, number: int) -> bytes:
    """Return the id of the n-th of equal texts, from the id of the first."""
    return first if number == 1 else blake2b(first + number.to_bytes(8, "big"), digest_size=ID_BYTES).digest()


class _Rule:
    """A compiled rule, with the captured group of each column.

    The groups of an item are after those of the record.
    """

    def __init__(self, rule: Rule) -> None:
        pattern = compiled(rule.pattern)
        self.rule, self.name, self.each = rule, rule.name, rule.each
        self.starts = rule.starts
        self.contains = rule.contains
        self.fullmatch = pattern.fullmatch
        self.drifts = rule.drifts
        self.items_at = pattern.groupindex.get(ITEMS, 0) - 1
        self.groups = {name: at - 1 for name, at in pattern.groupindex.items() if name != ITEMS}
        self.item_groups: dict[str, int] = {}
        if rule.each:
            item = compiled(rule.each)
            self.finditer = item.finditer
            self.no_item = (None,) * item.groups
            self.item_groups = {name: pattern.groups + at - 1 for name, at in item.groupindex.items()}


# record, its id, its log ident, (error class, message), captures, number of its item, text
_Row = tuple[Record, bytes, LogIdent, tuple[str | None, str | None], tuple[str | None, ...], int, str | None]
_UNREAD, _DRIFTED = "", "?"
_NOT_THROWN = (None, None)
_NO_GROUPS: tuple[str | None, ...] = ()


class Batch:
    """Some records of a file. records: number of all; each is in scope, out of scope, or of other days.

    cut: shortened records.
    """

    def __init__(self) -> None:
        # rule, _DRIFTED or _UNREAD -> its rows, one per item
        self.claimed: dict[str, list[_Row]] = defaultdict(list)
        self.out_of_scope: list[tuple[Record, int | None, bytes]] = []
        self.records = self.other_days = self.cut = 0

    def record_ids(self) -> list[bytes]:
        """Return the ids of the records in scope, in the order of their events in `Parser.table`."""
        return [
            record_id
            for rows in self.claimed.values()
            for _, record_id, _, _, _, item, _ in rows
            if item == 0
        ]


class Parser:
    """A rule set, compiled."""

    def __init__(self, ruleset: RuleSet | None = None) -> None:
        self.ruleset = ruleset or built_in()
        self.unwrapped = Unwrapper(self.ruleset.wrappers)
        self.joined = Joiner(self.ruleset.wrappers)
        self._headers: dict[bool | None, Headers] = {}
        self._layouts = {layout.name: layout for layout in self.ruleset.layouts}
        self._rules: dict[str, _Rule] = {}
        self._patterns = {rule.name: rule.pattern for rule in self.ruleset.rules}
        self._beginnings = [
            (tuple(start[:BEGINNING] for start in rule.starts), rule) for rule in self.ruleset.rules
        ]
        self._types = {name: word["type"] for name, word in schemas.vocabulary().items()}
        self._typed = {kind: _Cached(partial(typed, kind=kind)) for kind in ARROW_TYPES}
        self._full_names = _Cached(lambda names: self.ruleset.full_name(*names))
        # logger -> whether it is in scope; log ident -> its values; beginning of a statement -> rules
        self._in_scope = _Cached(self.ruleset.in_scope)
        self._idents = _Cached(self._read_log_ident)
        self._that_may_claim = _Cached(self._candidates)

    # -- records

    def headers(self, bare: bool | None) -> Headers:
        """Return the layouts of files with time stamps, of those without, or (None) of both."""
        if bare not in self._headers:
            layouts = [layout for layout in self.ruleset.layouts if bare is None or layout.bare == bare]
            self._headers[bare] = Headers(layouts, lambda *names: self._full_names[names])
        return self._headers[bare]

    def reader(self, bare: bool | None = False, line_no: int = 1) -> RecordReader:
        """Return a reader for the lines of one file. bare: it has no time stamps."""
        return RecordReader(
            self.headers(bare), self.unwrapped, stack_traces_only=bare is True, line_no=line_no
        )

    def records(self, text: str, bare: bool | None = False, line_no: int = 1) -> Iterator[Record]:
        """Yield the records of a whole text."""
        reader = self.reader(bare, line_no)
        yield from reader.feed(split_lines(text))
        yield from reader.close()

    def record(self, text: str, bare: bool = True) -> Record | None:
        """Return the one record of a text; None if no layout has such a first line.

        bare: try layouts without time stamps, too.
        """
        first, *rest = self.joined(split_lines(text.rstrip("\r\n")))
        headers = self.headers(None if bare else False)
        if not headers.begins(self.unwrapped(first)):
            return None
        reader = RecordReader(headers, self.unwrapped)
        list(reader.feed([first]))
        for line in map(self.unwrapped, rest):
            reader._add(line)
        return next(reader.close())

    def again(self, raw: str, layout: str | None, has_time: bool) -> Record | None:
        """Parse a `Record.raw` again; None if no layout has such a first line.

        layout: of the record; None: not known. has_time: whether the record has a time, used where the layout
        is not known.
        """
        bare = self._layouts[layout].bare if layout in self._layouts else False if has_time else None
        first, *rest = split_lines(raw)
        headers = self.headers(bare)
        if not headers.begins(first):
            return None
        reader = RecordReader(headers, str)
        list(reader.feed([first]))
        for line in rest:
            reader._add(line)
        return next(reader.close())

    # -- events

    def log_ident(self, text: str) -> LogIdent | None:
        """Return the values of a log ident; None where no pattern matches it."""
        found: LogIdent | None = self._idents[text]
        return found

    def _read_log_ident(self, text: str) -> LogIdent | None:
        for ident in self.ruleset.log_idents:
            if taken := compiled(ident.pattern).fullmatch(text):
                words = taken.groupdict()
                if ident.is_controller:
                    words["controller"] = words["node"]
                return LogIdent(
                    *(
                        typed(words.get(name), self._types[name] if name != "node" else "int")
                        for name in LogIdent._fields
                    )
                )
        return None

    def in_scope(self, record: Record) -> bool:
        """Return whether a record is in scope.

        Rules cover its logger, or nothing shows that another program wrote it.
        """
        if not record.fits:
            return compiled(self.ruleset.own_marks).search(record.statement) is not None
        if record.logger is None:
            return (
                not self._layouts[record.layout].names_logger or self.log_ident(record.log_ident) is not None
            )
        found: bool = self._in_scope[record.logger]
        return found

    def _candidates(self, beginning: str) -> list[_Rule]:
        """Return the rules for a statement with this beginning, in the order in which they are tried."""
        rules = [rule for beginnings, rule in self._beginnings if beginning.startswith(beginnings)]
        for rule in rules:
            if rule.name not in self._rules:
                self._rules[rule.name] = _Rule(rule)
        return [self._rules[rule.name] for rule in rules]

    def claimant(self, record: Record) -> Rule | None:
        """Return the rule that the dispatch chooses.

        None where the logger is out of scope or no rule matches.
        """
        if not record.fits or not self.in_scope(record):
            return None
        statement = record.statement
        for one in self._that_may_claim[statement[:BEGINNING]]:
            if one.rule.claims(statement) and (one.drifts or one.fullmatch(statement)):
                return one.rule
        return None

    def accepts(self, rule: str, statement: str) -> bool:
        """Return whether the rule's pattern matches the whole statement."""
        return compiled(self._patterns[rule]).fullmatch(statement) is not None

    def read(
        self,
        records: Iterable[Record],
        source: Source = NOWHERE,
        identity: Identity | None = None,
        in_days: Callable[[str | None], bool] | None = None,
        everything: bool = False,
    ) -> Batch:
        """Extract the events of records of one file, in order.

        in_days: whether a printed time stamp is in the requested days.
        everything: records out of scope count as records without a rule.
        """
        identity = identity or Identity(source.cluster)
        batch = Batch()
        claimed = batch.claimed
        that_may_claim = self._that_may_claim
        idents = self._idents
        in_scope = self._in_scope
        of_cluster = {name for name, layout in self._layouts.items() if layout.of_cluster}
        default_node = source.node
        for record in records:
            batch.records += 1
            batch.cut += record.cut > 0
            _, layout, ts, _, logger, _, log_ident, statement, rest, raw, fits, cut, named = record
            ident = idents[log_ident] or NOBODY
            node = ident.node
            if node is None:
                node = default_node if named is None else named
            if layout in of_cluster:
                node = None
            record_id = identity(node, raw)
            if in_days is not None and not in_days(ts):
                batch.other_days += 1
                continue
            kept = in_scope[logger] if logger is not None and fits else self.in_scope(record)
            if not kept and not everything:
                batch.out_of_scope.append((record, node, record_id))
                continue
            kind, groups = _UNREAD, _NO_GROUPS
            for rule in that_may_claim[statement[:BEGINNING]] if fits and kept else ():
                if statement.startswith(rule.starts) and (
                    rule.contains is None or rule.contains in statement
                ):
                    found = rule.fullmatch(statement)
                    if found is None and not rule.drifts:
                        continue
                    # a shortened text may lack a part that the pattern needs
                    kind = rule.name if found is not None else _UNREAD if cut else _DRIFTED
                    groups = found.groups() if found is not None else _NO_GROUPS
                    break
            thrown = throwable(rest) if rest else _NOT_THROWN
            if ident.node != node:
                ident = ident._replace(node=node)
            if cut and groups:
                # a captured value without its middle would be wrong
                groups = tuple(
                    None if value and CUT in value and at != rule.items_at else value
                    for at, value in enumerate(groups)
                )
            if groups and rule.each is not None:
                claimed[kind] += self._rows_of_items(rule, (record, record_id, ident, thrown), groups)
            else:
                claimed[kind].append((record, record_id, ident, thrown, groups, 0, raw))
        return batch

    @staticmethod
    def _rows_of_items(rule: _Rule, of_record: tuple[Any, ...], groups: tuple[str | None, ...]) -> list[_Row]:
        """Return a row for each item; an empty list gives one row without an item."""
        at, raw = rule.items_at, of_record[0].raw
        items = [item.groups() for item in rule.finditer(groups[at] or "") if CUT not in item.group()] or [
            rule.no_item
        ]
        # the text of a long record is stored only with its first item, the text of the list with none
        again = None if len(raw.encode("utf-8", "replace")) >= LONG_RECORD else raw
        shared = (*groups[:at], None, *groups[at + 1 :])
        return [
            (*of_record, shared + item, number, again if number else raw) for number, item in enumerate(items)
        ]

    # -- columns

    def columns(self, batch: Batch, last_line: int | None = None) -> Iterator[dict[str, Sequence[Any]]]:
        """Yield the events of the records in scope: for each rule a dict of columns, one row per item.

        last_line: first line of the last record of the file. Columns that a rule cannot fill are left out.
        """
        for kind, rows in batch.claimed.items():
            yield self._columns_of(self._rules.get(kind), kind == _DRIFTED, rows, last_line)

    def _columns_of(
        self, rule: _Rule | None, drifted: bool, rows: list[_Row], last_line: int | None
    ) -> dict[str, Sequence[Any]]:
        number = len(rows)
        records, ids, idents, thrown, captures, items, raws = zip(*rows, strict=True)
        line_no, layout, ts, level, logger, _, _, statement, _, _, _, cut, _ = zip(*records, strict=True)
        node, *ident_values = zip(*idents, strict=True)
        columns: dict[str, Sequence[Any]] = {
            "record_id": [one.hex() for one in ids],
            "item": items,
            "node": node,
            "record_no": line_no,
            "ts": ts,
            "level": level,
            "logger": logger,
            "layout": layout,
            "event_type": [rule.rule.name if rule else None] * number,
            "says": [rule.rule.says if rule else None] * number,
            "drifted": [drifted] * number,
            "raw": raws,
        }
        for name, values in zip(LogIdent._fields[1:], ident_values, strict=True):
            columns[name] = values
        if rule is None:
            columns["statement"] = [text[:LONG_STATEMENT] for text in statement]
        else:
            for name, value in rule.rule.implies.items():
                columns[name] = [value] * number
            captured = list(zip(*captures, strict=True))
            for places in (rule.groups, rule.item_groups):
                for name, at in places.items():
                    read = list(map(self._typed[self._types[name]].__getitem__, captured[at]))
                    columns[name] = _coalesced(read, columns[name]) if name in columns else read
        if any(one is not _NOT_THROWN for one in thrown):
            columns["error_class"], columns["error_message"] = zip(*thrown, strict=True)
        if any(cut):
            columns["cut_bytes"] = [one or None for one in cut]
        if line_no[-1] == last_line:
            columns["ends_file"] = [one == last_line or None for one in line_no]
        return columns

    def table(self, batch: Batch, source: Source, last_line: int | None = None) -> pa.Table:
        """Return the events of records in scope, with the columns of `events` that have a value, in no order."""
        tables = []
        for columns in self.columns(batch, last_line):
            number = len(columns["record_id"])
            times = moments(columns.pop("ts"), source.zone)
            arrays = {
                name: arrow_array(values, EVENTS.field(name).type)
                for name, values in columns.items()
                if any(value is not None for value in values)
            }
            if times.null_count < number:
                arrays["ts"] = times
            for name in ("cluster", "file"):
                arrays[name] = pa.repeat(pa.scalar(getattr(source, name)), number)
            arrays["incarnation"] = pa.repeat(pa.scalar(1, pa.int32()), number)
            tables.append(pa.table(arrays))
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def events(self, record: Record) -> list[dict[str, Any]]:
        """Return the events of one record: a dict per item with event_type, says, drifted, item, values."""
        found = []
        batch = self.read([record], everything=True)
        of_record = {"record_id", "record_no", "ts", "level", "logger", "layout", "raw", "statement"}
        for columns in self.columns(batch):
            names = [name for name in columns if name not in of_record]
            for values in zip(*(columns[name] for name in names), strict=True):
                event = {name: value for name, value in zip(names, values, strict=True) if value is not None}
                found.append({"event_type": None, "says": None} | event)
        return found


def _coalesced(values: Sequence[Any], others: Sequence[Any]) -> Sequence[Any]:
    return [other if value is None else value for value, other in zip(values, others, strict=True)]


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of the type.

    Each list object is converted once, because the same ones repeat very often.
    """
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    ids = list(map(id, values))
    found = dict(zip(ids, values, strict=True))
    places = dict(zip(found, range(len(found)), strict=True))
    return pa.array(list(found.values()), kind).take(pa.array(list(map(places.__getitem__, ids)), pa.int32()))
