"""Envelopes: what a collector, a shell or a mail program has put around the lines of a log. Found in the file itself, not listed.

A file whose lines begin with a known header has none. Else its first lines are looked into: a prefix that repeats before the header, a JSON
string or a CSV field that begins with one, or one inside of the other. What is learned holds for the whole file. Text inside of a message
begins no record: the header stands directly behind the learned prefix, or at the very beginning of the string.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from parsers.events import Parser
from parsers.patterns import compiled
from parsers.records import (
    LONGEST_LINE,
    LONGEST_REST,
    NOT_PRINTED,
    STACK_TRACE,
    Headers,
    Record,
    RecordReader,
    is_odd,
    split_lines,
    time_text,
)

# lines that an envelope is learned from, and characters of each that are looked into
MOST_LINES = 1_000
LONGEST_PREFIX = 300
DEEPEST = 4
# a prefix is one where it is before this part of the lines, or before so many records
LEAST_SHARE, ENOUGH = 0.5, 20
# of the records of a JSON log that hold a line of another log
LEAST_INSIDE = 0.2
# values of a part of a prefix that names a source: a host, a container
MOST_SOURCES = 200
# shapes of a prefix, of several programs in one file
MOST_SHAPES = 8
# characters of a name that is shown
SHOWN = 40
# fields of a row that are looked into
MOST_COLUMNS = 40
# lines that a quoted CSV field may have, and characters that a row may have
LONGEST_FIELD = 2_000
LONGEST_ROW = LONGEST_REST + LONGEST_LINE
csv.field_size_limit(LONGEST_ROW)
DELIMITERS = {",": "CSV", "\t": "TSV", ";": "CSV with semicolons"}
EVERY = "*"
# in what names of hosts, pods, containers and files say of the node
NODE_NAME = re.compile(r"(?<![A-Za-z])(?:broker|node|kafka|controller|server)[-_.]?(\d{1,9})(?![\d\[])", re.IGNORECASE)
# keys of what names a source
SOURCE_KEY = re.compile(
    r"(?:^|[._])(?:host|hostname|name|pod|pod_name|container|container_name|container_id|source|file|filename|path|node|stream|service)$"
)
MESSAGE_KEYS = {"message", "msg", "log"}
TIME_KEYS = ("@timestamp", "time", "timestamp", "_time", "ts", "datetime", "date")
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|[+\-]\d\d:?\d\d))?")
# a time is one token: no part of it names a source
_TIME = r"(?:\d{4}-\d\d-\d\d[T ]|[^\W\d]{2,15}\.? {1,2}\d{1,2},? )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+\-]\d\d:?\d\d))?"
_TOKEN = re.compile(rf"{_TIME}|\w+|[ \t]+|.", re.DOTALL)
_IS_TIME = re.compile(_TIME)
_OF_A_LOG = re.compile(r"TRACE|DEBUG|INFO|WARN|ERROR|FATAL|kafka|state\.change", re.IGNORECASE)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Prefix:
    """What stands before each line. pattern: with a group `source` for each part that names where the line comes from."""

    patterns: tuple[str, ...]
    example: str

    @property
    def about(self) -> str:
        """For a person."""
        return f"prefix {self.example!r}"


@dataclass(frozen=True)
class JsonString:
    """A JSON object a line, in which a string is the line of the log. path: its keys; EVERY for each item of a list.

    lines: each string is one line, and ends with a line end where it is whole; else it is a whole record.
    """

    path: tuple[str, ...]
    lines: bool

    @property
    def about(self) -> str:
        """For a person."""
        return f"JSON, string {'.'.join(self.path)}"


@dataclass(frozen=True)
class Column:
    """A row of CSV or TSV, a field of which is the line of the log. to_the_end: the last one, with whatever delimiters are in it."""

    delimiter: str
    index: int
    name: str = ""
    to_the_end: bool = False

    @property
    def about(self) -> str:
        """For a person."""
        return f"{DELIMITERS[self.delimiter]}, column {self.name or self.index + 1}"


Layer = Prefix | JsonString | Column


@dataclass(frozen=True)
class Envelope:
    """What is around the lines of a file, from the outermost to the innermost layer; none: nothing is.

    names_node: its names tell the node.  bare: its records have no time stamps, but for what the envelope says.
    """

    layers: tuple[Layer, ...]
    names_node: bool = False
    bare: bool = False

    @property
    def about(self) -> str:
        """For a person: `JSON, string log, then prefix '> '`."""
        return ", then ".join(layer.about for layer in self.layers)


class Inside(NamedTuple):
    """A line of the log. begins: whether a record may begin with it. own: a line as it was written, no event.

    What the envelope says of it: source: tells streams that take turns apart; names: of hosts, containers, files; ts.
    """

    text: str
    begins: bool = True
    source: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    ts: str | None = None
    own: bool = True


# -- opening -----------------------------------------------------------------------------------------------


def _strings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path, text) of every string in a JSON value."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, (*path, EVERY))


def _at(value: Any, path: Sequence[str]) -> Iterator[str]:
    """The strings at a path."""
    if not path:
        if isinstance(value, str):
            yield value
    elif path[0] == EVERY and isinstance(value, list):
        for inner in value:
            yield from _at(inner, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


def _object(text: str) -> Any:
    """The JSON object that a line is; None where it is none."""
    if text[:1] not in {"{", "["}:
        return None
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if text[end:].strip() in {"", ","} else None


def _time_of(content: Any) -> str | None:
    """The time that a JSON object gives for its line."""
    if isinstance(content, dict):
        for key in TIME_KEYS:
            value = content.get(key)
            text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
            if re.fullmatch(r"\d{19}", text):  # nanoseconds
                text = text[:-6]
            if text and (found := time_text(text)):
                return found
    return None


def printed(line: str) -> str:
    """The line without what no layout prints."""
    return NOT_PRINTED.sub("", line) if is_odd(line) else line


def _fields(text: str, delimiter: str) -> list[str]:
    """The fields of a row, which may have several lines; none where it is too long or is no row."""
    try:
        return next(csv.reader([part + "\n" for part in text.split("\n")], delimiter=delimiter), [])
    except csv.Error:
        return []


class Opener:
    """Takes the lines of one file out of its envelope. It remembers what goes on in the next line."""

    def __init__(self, envelope: Envelope) -> None:
        self._layers = envelope.layers
        self._prefixes = {
            layer: [_compiled(pattern) for pattern in layer.patterns] for layer in self._layers if isinstance(layer, Prefix)
        }
        # by layer: the lines of a row with a quoted field that is not closed yet
        self._rows: dict[int, list[Inside]] = {}
        self._quotes: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        # of lines that a collector has cut, by source
        self._begun: dict[tuple[str, ...], str] = {}

    def __call__(self, line: str) -> Iterator[Inside]:
        """What the line is, or brings to an end."""
        return self._open(Inside(printed(line)), 0)

    def _open(self, line: Inside, at: int) -> Iterator[Inside]:
        if at == len(self._layers):
            yield line
            return
        layer = self._layers[at]
        if isinstance(layer, Prefix):
            yield from self._open(self._without_prefix(layer, line), at + 1)
        elif isinstance(layer, JsonString):
            for value in self._of_json(layer, line):
                yield from self._opened(value, at + 1)
        else:
            for value in self._of_row(layer, line, at):
                yield from self._opened(value, at + 1)

    def _opened(self, value: Inside, at: int) -> Iterator[Inside]:
        """The lines of a string; only its first one may begin a record."""
        for number, text in enumerate(split_lines(value.text)):
            yield from self._open(value._replace(text=printed(text), begins=value.begins and not number), at)

    def _without_prefix(self, layer: Prefix, line: Inside) -> Inside:
        for pattern in self._prefixes[layer]:
            if found := pattern.match(line.text):
                prefix = found.group()
                time = _ISO_TIME.search(prefix)
                return line._replace(
                    text=printed(line.text[found.end() :]),
                    source=(*line.source, *found.groups()),
                    names=(*line.names, prefix),
                    ts=line.ts or (time_text(time.group()) if time else None),
                )
        return line

    def _of_json(self, layer: JsonString, line: Inside) -> Iterator[Inside]:
        content = _object(line.text)
        if content is None:
            # another program's line, or one that is cut off
            return
        named = tuple(
            text
            for path, text in _strings(content)
            if path != layer.path and SOURCE_KEY.search(path[-1]) and len(text) < LONGEST_PREFIX
        )
        for value in _at(content, layer.path):
            if EVERY in layer.path and value.isdecimal():  # the time beside a line
                continue
            given = line._replace(
                text=value,
                source=(*line.source, *named),
                names=(*line.names, *named),
                ts=_time_of(content) or line.ts,
                own=layer.lines,
            )
            if layer.lines:
                text = self._begun.pop(given.source, "") + value
                if not text.endswith("\n"):
                    self._begun[given.source] = text
                    continue
                given = given._replace(text=text)
            yield given._replace(text=given.text.removesuffix("\n").removesuffix("\r"))

    def _of_row(self, layer: Column, line: Inside, at: int) -> Iterator[Inside]:
        if layer.to_the_end:
            fields = line.text.split(layer.delimiter, layer.index)
        else:
            row = self._rows.setdefault(at, [])
            row.append(line)
            self._quotes[at] = self._quotes.get(at, 0) + line.text.count('"')
            self._sizes[at] = self._sizes.get(at, 0) + len(line.text)
            if self._quotes[at] % 2 and len(row) < LONGEST_FIELD and self._sizes[at] < LONGEST_ROW:
                return
            line = self._rows.pop(at)[0]
            self._quotes[at] = self._sizes[at] = 0
            fields = _fields("\n".join(piece.text for piece in row), layer.delimiter)
        if layer.index < len(fields):
            others = tuple(
                found.group()
                for number, field in enumerate(fields)
                if number != layer.index
                for found in NODE_NAME.finditer(field)
            )
            ts = next((found for field in fields if (found := time_text(field.strip()))), None)
            yield line._replace(
                text=fields[layer.index].rstrip("\r\n"),
                source=(*line.source, *others),
                names=(*line.names, *others),
                ts=ts or line.ts,
                own=layer.to_the_end,
            )

    @property
    def held(self) -> int:
        """Lines that are held back until the next one."""
        return sum(map(len, self._rows.values())) + len(self._begun)

    def close(self) -> Iterator[Inside]:
        """What a collector has cut and never ended, and the lines of a row that never ends."""
        for source, text in self._begun.items():
            yield Inside(text, source=source)
        for row in self._rows.values():
            yield from (line._replace(begins=False) for line in row)
        self._begun, self._rows = {}, {}


# -- reading -----------------------------------------------------------------------------------------------


class EnvelopeReader(RecordReader):
    """A RecordReader of a file in an envelope. Lines of several sources may take turns; a stack trace stays with its own."""

    def __init__(self, headers: Headers, envelope: Envelope, line_no: int = 1) -> None:
        super().__init__(headers, printed, line_no=line_no)
        self._opener, self._envelope = Opener(envelope), envelope
        self._sources: dict[tuple[str, ...], _Source] = {}

    def _feed(self, lines: Sequence[str]) -> Iterator[Record]:
        for line in lines:
            held, found = self._opener.held, list(self._opener(line))
            # a line that brings none, and of which nothing is held back, is no line of the log
            self.lines += len(found) or int(self._opener.held <= held)
            for inside in found:
                yield from self._take(inside)
            self._next += 1

    def _take(self, inside: Inside) -> Iterator[Record]:
        source = self._sources.get(inside.source)
        if inside.begins and self._headers.begins(inside.text):
            self.begun += 1
            if source:
                yield source.record()
            elif len(self._sources) >= MOST_SOURCES:
                # a part of the prefix that is another one in each line names no source
                yield self._sources.pop(next(iter(self._sources))).record()
            header = self._headers.of_line(inside.text)
            node = node_of(inside.names) if self._envelope.names_node else None
            self._sources[inside.source] = _Source(self._headers, self._next, inside, header, node)
        elif source:
            self.continued += source.add(inside)

    def close(self, without_last_line: bool = False) -> Iterator[Record]:
        """The last record of each source, the latest first."""
        for inside in self._opener.close():
            self.lines += 1
            yield from self._take(inside)
        for source in sorted(self._sources.values(), key=lambda one: -one.line_no):
            yield source.record()
        self._sources = {}


class _Source(RecordReader):
    """The record of one source that is being read."""

    def __init__(self, headers: Headers, line_no: int, inside: Inside, header: Any, node: int | None) -> None:
        super().__init__(headers, printed)
        self.line_no, self._node, self._ts = line_no, node, inside.ts
        self._line_no, self._first, self._header, self._ended = line_no, inside.text, header, False

    def add(self, inside: Inside) -> bool:
        """Whether a line that begins no record belongs to this one. A string of its own that is no part of a stack trace is another program's."""
        if not inside.own and inside.begins and inside.text[:1] not in {" ", "\t"} and not STACK_TRACE.match(inside.text):
            self._ended = True
        self._add(inside.text)
        return not self._ended

    def record(self) -> Record:
        """The record, with what only the envelope says."""
        found = self._record()
        return found._replace(ts=found.ts or self._ts if found.fits else None, node=self._node)


def node_of(source: Sequence[str]) -> int | None:
    """The node that names of a source tell; None where they tell none, or several."""
    found = {number for text in source for number in NODE_NAME.findall(text)}
    return int(found.pop()) if len(found) == 1 else None


# -- learning ----------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """Layers, and in how many of the lines that were looked into a record begins with them; those that fit as a whole count twice."""

    layers: tuple[Layer, ...]
    records: int
    fit: bool = True


def reader_of(parser: Parser, envelope: Envelope | None, bare: bool, line_no: int = 1) -> RecordReader:
    """For the lines of one file. bare: its records have no time stamps."""
    if envelope is None:
        return parser.reader(bare, line_no)
    if not envelope.layers:
        return RecordReader(parser.headers(bare), printed, stack_traces_only=bare, line_no=line_no)
    return EnvelopeReader(parser.headers(envelope.bare), envelope, line_no)


class Learner:
    """Finds the envelope of a file in its first lines."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._headers = parser.headers(False)
        self._bare = parser.headers(True)
        heads = "|".join(
            f"(?:{re.sub(r'[(][?]<[a-z_]+>', '(?:', layout.head)})"
            for layout in parser.ruleset.layouts
            if not layout.bare and not layout.json
        )
        self._head_at = compiled(heads).search

    def learn(self, lines: Sequence[str]) -> Envelope | None:
        """The envelope of a file that begins with these lines; None where it has none, or is no log."""
        some = [printed(line) for line in lines if line.strip()][:MOST_LINES]
        # what a plain log quotes in an envelope is a part of its messages
        if any(line[0] != "{" and self._headers.begins(line) for line in some if line):
            return Envelope(())
        if not any(map(_OF_A_LOG.search, some)):
            return None
        for headers in (self._headers, self._bare):
            if found := self._learn(some, 0, headers):
                envelope = Envelope(found.layers, bare=headers is self._bare)
                return replace(envelope, names_node=bool(found.layers) and self._names_node(envelope, some))
        return None

    def _names_node(self, envelope: Envelope, lines: Sequence[str]) -> bool:
        """Whether names of sources tell the node: no record of a node that says who it is contradicts them."""
        reader = EnvelopeReader(self._parser.headers(envelope.bare), replace(envelope, names_node=True))
        named = [(record, self._parser.log_ident(record.log_ident)) for record in (*reader.feed(lines), *reader.close())]
        pairs = [(record.node, ident.node) for record, ident in named if ident is not None and ident.node is not None]
        return all(node is None or node == own for node, own in pairs)

    def _begins(self, text: str, headers: Headers) -> bool:
        """Whether a record begins with the text; other data may be JSON that names a level, too."""
        return headers.begins(text) and (text[:1] != "{" or headers.of_line(text) is not None)

    def _learn(self, lines: Sequence[str], depth: int, headers: Headers) -> _Found | None:
        texts = [printed(line) for line in lines]
        first = [text for text in texts if self._begins(text, headers)]
        begun = sum(1 + (headers.of_line(text) is not None) for text in first)
        found = None
        # what stands in JSON beside plain lines is quoted by them
        if depth < DEEPEST and all(text[:1] == "{" for text in first):
            found = self._json(texts, depth, headers, of_log=bool(first))
        if found and found.records >= LEAST_INSIDE * begun:
            return found
        if begun:
            return _Found((), begun, begun > len(first))
        if depth == DEEPEST:
            return None
        # what is between a prefix and a header is a part of the message, be it a tab
        if found := self._column(texts, depth, headers, ",;"):
            return found
        prefix = self._prefix(texts, depth, headers) if headers is self._headers else None
        return prefix if prefix and prefix.fit else self._column(texts, depth, headers, "\t") or prefix

    def _json(self, texts: Sequence[str], depth: int, headers: Headers, of_log: bool) -> _Found | None:
        """A string in JSON objects, at least half of the lines. of_log: they are a log themselves, with a message each."""
        objects = [content for text in texts if (content := _object(text)) is not None]
        if not objects or len(objects) < LEAST_SHARE * len(texts):
            return None
        values: dict[tuple[str, ...], list[str]] = {}
        for content in objects:
            for path, value in _strings(content):
                if EVERY in path and value.isdecimal():
                    continue
                values.setdefault(path, []).append(value)
        best: _Found | None = None
        for path, strings in values.items():
            if not any(len(value) > 20 for value in strings) or (of_log and path[-1] not in MESSAGE_KEYS):
                continue
            firsts = [value.partition("\n")[0].rstrip("\r") for value in strings if value.strip()]
            found = self._learn(firsts, depth + 1, headers)
            if found and (best is None or found.records > best.records):
                ended = sum(value.endswith("\n") for value in strings)
                single = sum("\n" not in value[:-1] for value in strings)
                best = _Found(
                    (JsonString(path, ended * 2 > len(strings) and single == len(strings)), *found.layers), found.records
                )
        return best

    def _column(self, texts: Sequence[str], depth: int, headers: Headers, delimiters: str) -> _Found | None:
        """A quoted field of CSV, or a field of TSV."""
        best: _Found | None = None
        for delimiter in delimiters:
            rows = [row for row in self._rows(texts, delimiter) if len(row) > 1]
            for index in range(min(max(map(len, rows), default=0), MOST_COLUMNS)):
                values = [row[index] for row in rows if index < len(row)]
                is_last = delimiter == "\t" and sum(index == len(row) - 1 for row in rows) * 2 > len(rows)
                if is_last:
                    values = [text.split(delimiter, index)[index] for text in texts if text.count(delimiter) >= index]
                if sum(len(value) > 20 for value in values) < LEAST_SHARE * len(rows):
                    continue
                found = self._learn([value.partition("\n")[0] for value in values], depth + 1, headers)
                if found and (best is None or found.records > best.records):
                    name = rows[0][index] if index < len(rows[0]) and len(rows[0][index]) < SHOWN else ""
                    best = _Found((Column(delimiter, index, name, is_last), *found.layers), found.records, found.fit)
        return best

    @staticmethod
    def _rows(texts: Sequence[str], delimiter: str) -> list[list[str]]:
        """The rows; without quotes only those of TSV, because a message has commas."""
        if delimiter == "\t":
            return [text.split(delimiter) for text in texts if delimiter in text]
        if not any(text[:1] == '"' and f'"{delimiter}' in text for text in texts):
            return []
        rows, open_, quotes = [], list[str](), 0
        for text in texts:
            open_.append(text)
            quotes += text.count('"')
            if not quotes % 2 or len(open_) >= LONGEST_FIELD:
                rows.append(_fields("\n".join(open_), delimiter))
                open_ = []
        return rows

    def _prefix(self, texts: Sequence[str], depth: int, headers: Headers) -> _Found | None:
        """A prefix of one shape before most lines."""
        by_shape: dict[str, list[str]] = {}
        for text in texts:
            if (prefix := self._before(text, headers)) is not None:
                by_shape.setdefault(_shape(prefix), []).append(prefix)
        only_one = len(texts) <= 3
        found = sorted((one for one in by_shape.values() if len(one) >= 2 or only_one), key=len, reverse=True)[:MOST_SHAPES]
        patterns = {_prefix_pattern(one): one for one in found}
        # what stands between a prefix and a header is a part of the message
        shortest = [
            pattern
            for pattern, prefixes in patterns.items()
            if not any(other != pattern and _compiled(other).match(prefixes[0]) for other in patterns)
        ]
        if not shortest:
            return None
        layer = Prefix(tuple(shortest), patterns[shortest[0]][0])
        kept = [patterns[pattern] for pattern in shortest]
        matches = [_compiled(pattern).match for pattern in layer.patterns]
        rests, after = [], 0
        for text in texts:
            if begins := next((begins for match in matches if (begins := match(text))), None):
                after += 1
                rests.append(text[begins.end() :])
        if after < LEAST_SHARE * len(texts) and sum(map(len, kept)) < ENOUGH:
            return None
        inner = self._learn(rests, depth + 1, headers)
        return inner and _Found((layer, *inner.layers), inner.records, inner.fit)

    def _before(self, text: str, headers: Headers) -> str | None:
        """What stands before the header, or before a JSON object that ends the line; None where there is neither."""
        if text[:1] == "{":
            return None
        at, first = 1, None
        while at < min(len(text), LONGEST_PREFIX) and (found := self._head_at(text, at, at + 2 * LONGEST_PREFIX)):
            begin = found.start()
            if begin >= LONGEST_PREFIX or text[begin - 1] == '"':
                break
            if headers.of_line(text[begin:]):
                return text[:begin]
            first, at = text[:begin] if first is None else first, begin + 1
        if first is not None:
            return first
        brace = text.find("{", 1, LONGEST_PREFIX)
        if brace > 0 and text.rstrip()[-1:] == "}" and _object(text[brace:]) is not None:
            return text[:brace]
        # a row of CSV begins with a quoted field
        if text[:1] == '"':
            return None
        quote = text.find('"', 1, LONGEST_PREFIX)
        return text[:quote] if quote > 0 and self._head_at(text, quote) else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _kind(token: str) -> str:
    """Tokens of one kind may differ between prefixes of one shape."""
    if _IS_TIME.fullmatch(token):
        return "t"
    return " " if token.isspace() else "w" if token[0].isalnum() or token[0] == "_" else token


def _shape(prefix: str) -> str:
    """The kinds of the tokens: prefixes of one shape differ in words, numbers, times, and in how many blanks there are inside."""
    *others, last = _TOKEN.findall(prefix)
    return "".join(map(_kind, others)) + (last if last.isspace() else _kind(last))


def _prefix_pattern(prefixes: Sequence[str]) -> str:
    """A regex of prefixes of one shape: what is always the same, as it is; a group for each word that names a source."""
    made, number = "", len(prefixes)
    for values in zip(*map(_TOKEN.findall, prefixes), strict=True):
        seen, kind = set(values), _kind(values[0])
        is_number = all(value.isdecimal() for value in seen)
        if kind == "t":
            made += _TIME
        elif kind == " ":
            made += re.escape(values[0]) if len(seen) == 1 else "[ \\t]{1,60}+"
        elif kind != "w" or (len(seen) == 1 and not is_number):
            made += re.escape(values[0])
        else:
            word = r"\d{1,40}+" if is_number else r"\w{1,100}+"
            if made == "<":  # the priority of syslog
                made += word
                continue
            # what is another one in each line names no source
            made += f"({word})" if len(seen) <= max(1, number // (2 if number < 16 else 4)) else word
    return made
