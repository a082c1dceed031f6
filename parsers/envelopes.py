"""Learn and remove envelopes: text of a collector, shell or mail program around lines of a log.

A file whose lines begin with a known header has no envelope. Else the envelope is learned from the first
lines: a prefix that repeats before the header, a JSON string or a CSV field that begins with one, or one
inside of the other. It applies to the whole file. A header begins a record only directly after the learned
prefix, or at the beginning of the string: a message may quote a header.
"""

import csv
import html
import json
import quopri
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
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

# most lines that an envelope is learned from; most characters of a prefix; most layers
MOST_LINES = 1_000
LONGEST_PREFIX = 300
DEEPEST = 4
# a prefix must be before this share of the lines, or before this number of records
LEAST_SHARE, ENOUGH = 0.5, 20
# least share of the records of a JSON log that contain a line of another log
LEAST_INSIDE = 0.2
# most different sources (hosts, containers) of one file
MOST_SOURCES = 200
# most shapes of prefixes, for files of several programs
MOST_SHAPES = 8
# most characters of a suffix; least share of the lines that end with it
LONGEST_SUFFIX = 60
LEAST_WITH_END = 0.5
# most lines whose ends are compared
COMPARED = 50
# most characters of a column's name
SHOWN = 40
# most fields of a row that are examined
MOST_COLUMNS = 40
# most lines of a quoted CSV field, most characters of a row
LONGEST_FIELD = 2_000
LONGEST_ROW = LONGEST_REST + LONGEST_LINE
csv.field_size_limit(LONGEST_ROW)
# most brackets around an object of a JSON document, most characters of an object
MOST_AROUND = 8
LONGEST_DOCUMENT = 4 * LONGEST_ROW
# least number of bytes of a text
SHORTEST_TEXT = 20
# possible widths of a terminal, in columns
WIDTHS = range(40, 500)
DELIMITERS = {",": "CSV", "\t": "TSV", ";": "CSV with semicolons"}
EVERY = "*"
# node in a name of a host, pod, container or file
NODE_NAME = re.compile(
    r"(?<![A-Za-z])(?:broker|node|kafka|controller|server)[-_.]?(\d{1,9})(?![\d\[])", re.IGNORECASE
)
# keys whose values name a source
SOURCE_KEY = re.compile(
    r"(?:^|[._])(?:host|hostname|name|pod|pod_name|container|container_name|container_id|source|file|filename|path|node|stream|service)$"
)
MESSAGE_KEYS = {"message", "msg", "log"}
TIME_KEYS = ("@timestamp", "time", "timestamp", "_time", "ts", "datetime", "date")
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|[+\-]\d\d:?\d\d))?")
# a time is one token: no part of it names a source
_TIME = r"(?:\d{4}-\d\d-\d\d[T ]|[^\W\d]{2,15}\.? {1,2}\d{1,2},? )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+\-]\d\d:?\d\d))?"
_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
_TOKEN = re.compile(rf"{_TIME}|\w+|[ \t]+|.", re.DOTALL)
_IS_TIME = re.compile(_TIME)
_OF_A_LOG = re.compile(r"TRACE|DEBUG|INFO|WARN|ERROR|FATAL|kafka|state\.change", re.IGNORECASE)
_DECODER = json.JSONDecoder()
SESSION = "session of script(1)"
# kind of text -> patterns of the begin and the end of a log in it
_FENCES = {
    "block of Markdown": (r"\s{0,3}(?:```|~~~)[\w+.\-]{0,20}", r"(?:```|~~~)\s{0,9}"),
    "block of Jira": (r"\{(?:noformat|code)(?::[^}\n]{0,100})?\}", r"\{(?:noformat|code)\}\s{0,9}"),
    "block of HTML": (
        r"[^\n]{0,200}?<(?:pre|code)\b[^>\n]{0,200}>(?:<code\b[^>\n]{0,200}>)?",
        r"</(?:pre|code)>[^\n]{0,200}",
    ),
    "session of script(1)": (
        r"Script started on [^\n]*",
        r"(?:Script done on |[\w.\-]{1,60}@[\w.\-]{1,100}:[^\n]{0,100}[$#] )[^\n]*",
    ),
    "kubectl describe": (r"\s{2,20}Message:\s{1,20}", r"\s{2,20}(?:Exit Code|Started):\s[^\n]*"),
}
# characters at the end of a line in which the end of a block is searched
LONGEST_CLOSING = 1_000
# changes of text by programs that it was copied from or sent through
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl"}
_LIGATURE = re.compile("[\ufb00-\ufb04]")
_PAGE = re.compile(r"\s{0,60}(?:Page )?\d{1,4}(?: (?:of|/) \d{1,4})?\s{0,60}")
_ENTITY = re.compile(r"&(?:gt|lt|quot|amp|apos|#39|#x27|#34);")
# the characters that ligatures and entities replace
_TWO_LETTERS = re.compile("f[fil]")
_MARKUP = re.compile('[<>"]')
_SOFT_BREAK = re.compile(r"=$")
_IS_QUOTED_PRINTABLE = re.compile(r"Content-Transfer-Encoding:\s{0,9}quoted-printable\s{0,9}", re.IGNORECASE)
# `cat -A`: a tab, and the bytes of a letter beyond ASCII
_CARETS = re.compile(r"\^I|M-[a-t](?:M-(?:\^[@-_]|[ -?])){1,3}")
LIGATURES = "ligatures"
ENTITIES = "HTML entities"
QUOTED_PRINTABLE = "quoted-printable"
TABS = "tabs as #011"
CARETS = "tabs as ^I"
NO_BREAK = "no-break spaces"
LINE_ENDS = "line ends as #012"
ESCAPES = "line ends as \\n"

_TABS = {TABS: "#011", CARETS: "^I"}
# kind -> (line end, tab)
_ENDS = {LINE_ENDS: ("#012", "#011"), ESCAPES: ("\\n", "\\t")}
# (text before, text behind) a line end and a tab: a stack trace, Kafka's printed configuration
_AROUND_END = (("", "at "), ("values: ", ""))


@dataclass(frozen=True)
class KnownForm:
    """An entry of envelopes.toml."""

    name: str
    sample: str
    prefix: str = ""
    keys: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()


@cache
def envelope_entries() -> dict[str, dict[str, Any]]:
    """Return the entries of envelopes.toml."""
    return tomllib.loads(files(__name__.split(".")[0]).joinpath("envelopes.toml").read_text("utf-8"))


@cache
def known_forms() -> tuple[KnownForm, ...]:
    """Return the envelopes of envelopes.toml, which have names."""
    found = []
    for entry in envelope_entries().values():
        names = (frozenset(entry.get(kind, ())) for kind in ("keys", "columns"))
        found.append(KnownForm(entry["name"], entry["sample"], entry.get("prefix", ""), *names))
    return tuple(found)


def _form_of(names: Collection[str], kind: str) -> str:
    """Return the name of the known form that has most of the names. kind: keys, columns."""
    found = [known for known in known_forms() if getattr(known, kind) and getattr(known, kind) <= set(names)]
    return max(found, key=lambda known: len(getattr(known, kind))).name if found else ""


def _keys(content: Any, path: str = "") -> Iterator[str]:
    """Yield the keys of a JSON object in the notation of envelopes.toml."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield f"{path}{key}"
            yield from _keys(value, f"{path}{key}.")


@dataclass(frozen=True)
class Prefix:
    """Text before each line. patterns: with a group for each part that names the source of the line."""

    patterns: tuple[str, ...]
    example: str

    @property
    def about(self) -> str:
        """Return a description for people."""
        name = next(
            (
                known.name
                for known in known_forms()
                if known.prefix and _compiled(known.prefix).fullmatch(self.example)
            ),
            "",
        )
        return f"{name} prefix {self.example!r}".lstrip()


@dataclass(frozen=True)
class Fence:
    """A block of a text; lines outside of it belong to no record. kind: of _FENCES."""

    kind: str

    @property
    def about(self) -> str:
        """Return a description for people."""
        return self.kind


@dataclass(frozen=True)
class Changed:
    """Text in which some characters were changed.

    kind: LIGATURES, ENTITIES, QUOTED_PRINTABLE, TABS, CARETS, NO_BREAK, LINE_ENDS, ESCAPES.
    """

    kind: str

    @property
    def about(self) -> str:
        """Return a description for people."""
        return self.kind


@dataclass(frozen=True)
class Suffix:
    """Text after each line: tags, marks of line ends. One blank means any number of blanks.

    of_records: it ends each record; other lines do not have it.
    """

    text: str
    of_records: bool = False

    @property
    def about(self) -> str:
        """Return a description for people."""
        return f"suffix {self.text!r}" if self.text.strip() else "lines filled with blanks"


@dataclass(frozen=True)
class Wrapped:
    """Lines that a terminal has wrapped at a width."""

    width: int

    @property
    def about(self) -> str:
        """Return a description for people."""
        return f"lines wrapped at {self.width} columns"


@dataclass(frozen=True)
class JsonText:
    """JSON that is spread over lines, or has several objects per line.

    depth: number of brackets around each object.
    """

    depth: int

    @property
    def about(self) -> str:
        """Return a description for people."""
        return "JSON document" if self.depth else "JSON objects"


@dataclass(frozen=True)
class JsonString:
    """One JSON object per line, in which a string is the line of the log.

    path: keys of the string; EVERY: each item of a list.
    lines: each string is one line, and ends with a line end unless it is cut; else it is a whole record or,
    with `several`, some records.
    form: name among `known_forms`; empty: none of them.
    """

    path: tuple[str, ...]
    lines: bool
    several: bool = False
    form: str = ""

    @property
    def about(self) -> str:
        """Return a description for people."""
        return f"{self.form} JSON".lstrip() + (f", string {'.'.join(self.path)}" if self.path else " strings")


@dataclass(frozen=True)
class Column:
    """A row of CSV or TSV, one field of which is the line of the log.

    to_the_end: the last field, which may contain delimiters.
    several: a field may contain several records. form: name among `known_forms`; empty: none of them.
    """

    delimiter: str
    index: int
    name: str = ""
    to_the_end: bool = False
    several: bool = False
    form: str = ""

    @property
    def about(self) -> str:
        """Return a description for people."""
        return f"{self.form} {DELIMITERS[self.delimiter]}, column {self.name or self.index + 1}".lstrip()


Layer = Prefix | Suffix | Fence | Changed | Wrapped | JsonText | JsonString | Column


class Contradiction(NamedTuple):
    """A record whose log ident has another node than its envelope.

    line: its number among the lines that the envelope was learned from. nodes: number of different nodes in
    the names of these lines.
    """

    line: int
    named: int
    own: int
    nodes: int

    @property
    def about(self) -> str:
        """Return a description for people."""
        return f"only as log lines name it: line {self.line:,} is of node {self.own}, but its envelope names {self.named}"


@dataclass(frozen=True)
class Envelope:
    """The text around the lines of a file, from the outermost to the innermost layer; no layers: none.

    names_node: its names give the node. contradiction: the record because of which they do not. bare: its
    records have no time stamps of their own. sources: number of alternating streams in the lines that it was
    learned from.
    """

    layers: tuple[Layer, ...]
    names_node: bool = False
    bare: bool = False
    sources: int = 0
    contradiction: Contradiction | None = None

    @property
    def is_of_lines(self) -> bool:
        """Return whether each line is a line of one log with a prefix, so that the file may be split."""
        return self.sources == 1 and not self.bare and all(isinstance(layer, Prefix) for layer in self.layers)

    @property
    def about(self) -> str:
        """Return a description for people, such as `JSON, string log, then prefix '> '`."""
        return ", then ".join(layer.about for layer in self.layers)


class Inside(NamedTuple):
    """A line of the log without its envelope.

    begins   a record may begin with it
    own      a line as it was written, no event of a collector
    outside  a line of the text around the log, which belongs to no record
    source   distinguishes alternating streams, by the envelope
    names    of hosts, containers and files in the envelope
    ts       time stamp of the envelope
    """

    text: str
    begins: bool = True
    source: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    ts: str | None = None
    own: bool = True
    outside: bool = False


# -- opening -----------------------------------------------------------------------------------------------


def _strings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, text) of every string in a JSON value."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, (*path, key))
    elif isinstance(value, list):
        if (text := _text_of(value)) is not None:
            yield path, text
            return
        for inner in value:
            yield from _strings(inner, (*path, EVERY))


def _text_of(numbers: list[Any]) -> str | None:
    """Return the text of bytes: the journal exports text with colours or tabs so; None for other lists."""
    if len(numbers) < SHORTEST_TEXT or not all(type(one) is int and 0 <= one < 256 for one in numbers):
        return None
    return bytes(numbers).decode("utf-8", "replace")


def _at(value: Any, path: Sequence[str]) -> Iterator[str]:
    """Yield the strings at a path."""
    if not path:
        text = _text_of(value) if isinstance(value, list) else value
        if isinstance(text, str):
            yield text
    elif path[0] == EVERY and isinstance(value, list):
        for inner in value:
            yield from _at(inner, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


# text after a JSON string: other items of a list, other fields of logfmt
_AFTER_STRING = re.compile(r"\s{0,60},?\s{0,60}|\s{1,60}[\w.\-]{1,60}=[^\n]*")


def _object(text: str) -> Any:
    """Parse a line that is a JSON object, list or string, or one as Python prints it.

    None where it is none.
    """
    if text[:1] == '"':
        return _string(text) or _of_python(text)
    if text[:1] in {"'", "(", "b"}:
        return _of_python(text)
    if text[:1] not in {"{", "["}:
        return None
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return _of_python(text)
    return value if text[end:].strip() in {"", ","} else None


# a string or bytes as Python prints them, or text around them
_PYTHON = re.compile(
    r"""(b?(?:'(?:[^'\\\n]|\\[^\n])*+'|"(?:[^"\\\n]|\\[^\n])*+"))|[\[\]{}(),:\s]++|-?\d++(?:\.\d++)?+|None|True|False"""
)
_IN_JSON = str.maketrans("()", "[]")
_CONSTANTS = {"None": "null", "True": "true", "False": "false"}


def _of_python(text: str) -> Any:
    """Parse a line that is an object, list or string as Python prints it; None where it is none."""
    parts, at = [], 0
    try:
        while at < len(text):
            if (found := _PYTHON.match(text, at)) is None:
                return None
            part, at = found.group(), found.end()
            parts.append(
                json.dumps(_without_escapes(part))
                if found.group(1)
                else _CONSTANTS.get(part, part.translate(_IN_JSON))
            )
        return json.loads("".join(parts).strip().removesuffix(","))
    except (ValueError, OverflowError, RecursionError):
        return None


_ESCAPE = re.compile(r"""\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([ntr\\'"]))|\\""")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def _without_escapes(literal: str) -> str:
    """Parse a string literal of Python. Raises ValueError where it is none."""

    def character(found: re.Match[str]) -> str:
        code = found.group(1) or found.group(2) or found.group(3)
        if code:
            return chr(int(code, 16))
        if not found.group(4):
            raise ValueError("no escape of Python")
        return _ESCAPED.get(found.group(4), found.group(4))

    if literal[0] == "b" and not literal.isascii():
        raise ValueError("Python escapes these bytes")
    text = _ESCAPE.sub(character, literal.removeprefix("b")[1:-1])
    return text.encode("latin-1").decode("utf-8", "replace") if literal[0] == "b" else text


def _string(text: str) -> str | None:
    """Parse the JSON string at the beginning of a line.

    None where there is none, or the line is a row of CSV.
    """
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) and _AFTER_STRING.fullmatch(text, end) else None


def _is_time(text: str) -> bool:
    """Return whether an item of a list is the time of a line."""
    return text.isdecimal() or time_text(text) is not None


def _time_of(content: Any) -> str | None:
    """Return the time that a JSON object gives for its line."""
    if isinstance(content, dict):
        for key in TIME_KEYS:
            value = content.get(key)
            text = value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
            if re.fullmatch(r"\d{19}", text):  # nanoseconds
                text = text[:-6]
            if text and (found := time_text(text)):
                return found
    return None


def printed(line: str) -> str:
    """Return a line without characters that no layout prints."""
    return NOT_PRINTED.sub("", line) if is_odd(line) else line


def _fields(text: str, delimiter: str) -> list[str]:
    """Return the fields of a row, which may have several lines; none where it is too long or no row."""
    try:
        return next(csv.reader([part + "\n" for part in text.split("\n")], delimiter=delimiter), [])
    except csv.Error:
        return []


class Opener:
    """Removes the envelope from the lines of one file. It keeps lines that continue in the next one."""

    def __init__(self, envelope: Envelope) -> None:
        self._layers = envelope.layers
        self._prefixes = {
            layer: [_compiled(pattern) for pattern in layer.patterns]
            for layer in self._layers
            if isinstance(layer, Prefix)
        }
        # by layer: the lines of a row whose quoted field is still open
        self._rows: dict[int, list[Inside]] = {}
        self._quotes: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        # by source: the beginning of a line that a collector has cut
        self._begun: dict[tuple[str, ...], str] = {}
        # by layer: whether the log has begun; a line that may continue; an open document
        self._is_inside: dict[int, bool] = {}
        self._unfinished: dict[int, Inside] = {}
        self._documents: dict[int, _Objects] = {}

    def __call__(self, line: str) -> Iterator[Inside]:
        """Yield the lines of the log that end with this line."""
        return self._open(Inside(printed(line)), 0)

    def _open(self, line: Inside, at: int) -> Iterator[Inside]:
        if at == len(self._layers):
            yield line
            return
        layer = self._layers[at]
        if isinstance(layer, Prefix):
            yield from self._open(self._without_prefix(layer, line), at + 1)
        elif isinstance(layer, Suffix):
            blanks = not layer.text.strip()
            has_it = blanks or layer.of_records or line.text.endswith(layer.text)
            outside = line.outside or not (has_it or not line.text.strip())
            text = line.text.rstrip(" ") if blanks else line.text.removesuffix(layer.text)
            yield from self._open(line._replace(text=text, outside=outside), at + 1)
        elif isinstance(layer, JsonString):
            for value in self._of_json(layer, line):
                yield from self._opened(value, at + 1, layer.several)
        elif isinstance(layer, Column):
            for value in self._of_row(layer, line, at):
                yield from self._opened(value, at + 1, layer.several)
        elif isinstance(layer, JsonText):
            for text in self._documents.setdefault(at, _Objects(layer.depth)).add(line.text):
                yield from self._open(line._replace(text=_in_one_line(text)), at + 1)
        elif isinstance(layer, Fence):
            for some in self._of_fence(layer, line, at):
                yield from self._open(some, at + 1)
        else:
            for some in self._whole_lines(layer, line, at):
                yield from self._open(some, at + 1)

    def _opened(self, value: Inside, at: int, several: bool) -> Iterator[Inside]:
        """Yield the lines of a string; only its first one may begin a record, unless it has several records."""
        for number, text in enumerate(split_lines(value.text)):
            begins = value.begins and (several or not number)
            yield from self._open(
                value._replace(text=printed(text), begins=begins, own=value.own or (several and number > 0)),
                at,
            )

    def _of_fence(self, layer: Fence, line: Inside, at: int) -> Iterator[Inside]:
        opens, closes = _fence(layer.kind)
        if not self._is_inside.get(at):
            if (found := opens.match(line.text)) and not closes.fullmatch(line.text, found.end()):
                self._is_inside[at] = True
                rest = line.text[found.end() :]
                # the rest is a line of the log, or describes the block
                yield line._replace(text=rest, outside=not rest.strip())
            else:
                yield line._replace(outside=True)
            return
        if found := closes.search(line.text, max(0, len(line.text) - LONGEST_CLOSING)):
            # the output of another command follows a prompt
            self._is_inside[at] = layer.kind == SESSION
            yield line._replace(text=line.text[: found.start()], outside=not found.start())
            if found.start():
                yield line._replace(text="", outside=True)
            return
        yield line

    def _whole_lines(self, layer: Changed | Wrapped, line: Inside, at: int) -> Iterator[Inside]:
        """Yield lines as they were written; a line that continues waits for the next one."""
        before = self._unfinished.pop(at, None)
        if isinstance(layer, Wrapped):
            if before is not None and (not self._is_rest(line.text) or len(before.text) > LONGEST_ROW):
                yield before
                before = None
            whole = line if before is None else before._replace(text=before.text + line.text)
            if len(line.text) == layer.width:
                self._unfinished[at] = whole
                return
            yield whole
        elif layer.kind == QUOTED_PRINTABLE:
            whole = line if before is None else before._replace(text=before.text + line.text)
            if _SOFT_BREAK.search(line.text) and len(whole.text) < LONGEST_ROW:
                self._unfinished[at] = whole._replace(text=whole.text[:-1])
                return
            yield whole._replace(
                text=quopri.decodestring(whole.text.encode("utf-8", "replace")).decode("utf-8", "replace")
            )
        elif layer.kind in _ENDS:
            end, tab = _ENDS[layer.kind]
            for number, text in enumerate(line.text.split(end)):
                yield line._replace(text=text.replace(tab, "\t"), begins=line.begins and not number)
        elif layer.kind != LIGATURES or not _PAGE.fullmatch(line.text):
            yield line._replace(text=_changed_back(layer.kind, line.text))

    def _is_rest(self, text: str) -> bool:
        """Return whether a line may be the rest of the previous one."""
        return not STACK_TRACE.match(text) and not _STAMP.match(text)

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
            # a line of another program, or a truncated one
            return
        named = tuple(
            text
            for path, text in _strings(content)
            if path and path != layer.path and SOURCE_KEY.search(path[-1]) and len(text) < LONGEST_PREFIX
        )
        for value in _at(content, layer.path):
            if EVERY in layer.path and _is_time(value):
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
    def pending(self) -> int:
        """Return the number of lines that wait for the next one."""
        documents = sum(one.lines for one in self._documents.values())
        return sum(map(len, self._rows.values())) + len(self._begun) + len(self._unfinished) + documents

    def close(self) -> Iterator[Inside]:
        """Yield lines and rows that have not ended."""
        for source, text in self._begun.items():
            yield Inside(text, source=source)
        for row in self._rows.values():
            yield from (line._replace(begins=False) for line in row)
        self._begun, self._rows = {}, {}
        for at, line in sorted(self._unfinished.items()):
            layer = self._layers[at]
            if isinstance(layer, Changed):
                yield from self._open(line._replace(text=_changed_back(layer.kind, line.text)), at + 1)
            else:
                yield from self._open(line, at + 1)
        self._unfinished = {}


def _changed_back(kind: str, text: str) -> str:
    """Return the text as it was written."""
    if kind == ENTITIES:
        return html.unescape(text)
    if kind == LIGATURES:
        return text.translate(_LIGATURES)
    if kind == NO_BREAK:
        return text.replace("\xa0", " ")
    if kind == CARETS:
        return _CARETS.sub(_without_carets, text)
    return text.replace("#011", "\t") if kind == TABS else text


def _without_carets(found: re.Match[str]) -> str:
    """Return the letter that `cat -A` shows as these characters; other text stays."""
    shown = found.group()
    if shown == "^I":
        return "\t"
    codes = [ord(one[-1]) ^ (0xC0 if one[0] == "^" else 0x80) for one in shown.split("M-")[1:]]
    try:
        return bytes(codes).decode("utf-8")
    except UnicodeDecodeError:
        return shown


@cache
def _fence(kind: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of (the begin of a block, its end with the rest of the line)."""
    opens, closes = _FENCES[kind]
    return re.compile(opens), re.compile(rf"{closes if closes[0] != chr(92) + 's' else '^' + closes}$")


class _Objects:
    """Extracts objects from JSON with any line breaks. depth: brackets around each.

    lines: number of waiting lines.
    """

    def __init__(self, depth: int) -> None:
        self._depth, self._open, self._in_string = depth, 0, False
        self._parts: list[str] = []
        self._size = self.lines = 0

    def add(self, line: str) -> Iterator[str]:
        """Yield the objects that end on this line."""
        begin = 0 if self._parts else None
        self.lines += bool(self._parts)
        for found in _JSON_MARK.finditer(line):
            mark = found.group()
            if mark == '"':
                self._in_string = not self._in_string
            elif self._in_string or mark[0] == "\\":
                continue
            elif mark in "{[":
                if mark == "{" and self._open == self._depth:
                    begin, self._parts, self._size = found.start(), [], 0
                self._open += 1
            else:
                self._open = max(self._open - 1, 0)
                if mark == "}" and self._open == self._depth and (self._parts or begin is not None):
                    yield "\n".join([*self._parts, line[begin or 0 : found.end()]])
                    self._parts, begin, self.lines = [], None, 0
        if begin is not None:
            self._parts.append(line[begin:])
            self._size += len(line)
            self.lines = self.lines or 1
            if self._size > LONGEST_DOCUMENT:
                self._open, self._in_string, self._parts, self._size, self.lines = 0, False, [], 0, 0


# a quote with the text before it, or a whole attribute with its value
_OPENING_QUOTE = re.compile(r'[\w.\-]="[^"\[\]{}\n]{0,200}"(?=[\s\]])|(?<!\\)(")')
_BRACKETS = re.compile(r"[\s\[\]{},]*")
_JSON_MARK = re.compile(r'\\.|["{}\[\]]')


# -- reading -----------------------------------------------------------------------------------------------


class EnvelopeReader(RecordReader):
    """A RecordReader for a file in an envelope.

    Lines of several sources may alternate; each stack trace stays with its record.
    """

    def __init__(self, headers: Headers, envelope: Envelope, line_no: int = 1) -> None:
        super().__init__(headers, printed, line_no=line_no)
        self._opener, self._envelope = Opener(envelope), envelope
        self._sources: dict[tuple[str, ...], _Source] = {}
        # the lines of a record after its first one have no prefix that names their source
        self._is_of_records = any(isinstance(layer, Suffix) and layer.of_records for layer in envelope.layers)

    def _feed(self, lines: Sequence[str]) -> Iterator[Record]:
        for line in lines:
            pending, found = self._opener.pending, list(self._opener(line))
            # a line that neither yields a line nor waits is no line of the log
            self.lines += len(found) or int(self._opener.pending <= pending)
            for inside in found:
                yield from self._take(inside)
            self._next += 1

    def _take(self, inside: Inside) -> Iterator[Record]:
        if inside.outside and not (inside.begins and self._headers.begins(inside.text)):
            for one in self._sources.values():
                one.end()
            return
        source = self._sources.get(inside.source)
        if inside.begins and self._headers.begins(inside.text):
            self.begun += 1
            if source:
                yield source.record()
            elif len(self._sources) >= MOST_SOURCES:
                # a part of the prefix that differs in each line names no source
                yield self._sources.pop(next(iter(self._sources))).record()
            header = self._headers.of_line(inside.text)
            node = node_of(inside.names) if self._envelope.names_node else None
            goes_back = source is None or source.is_newer_than(inside)
            self._sources[inside.source] = _Source(
                self._headers, self._next, inside, header, node, goes_back=goes_back
            )
            return
        if source is None and self._is_of_records and len(self._sources) == 1:
            (source,) = self._sources.values()
        if source:
            self.continued += source.add(inside)

    def close(self, without_last_line: bool = False) -> Iterator[Record]:
        """Yield the last record of each source, the latest first."""
        for inside in self._opener.close():
            self.lines += 1
            yield from self._take(inside)
        for source in sorted(self._sources.values(), key=lambda one: -one.line_no):
            yield source.record()
        self._sources = {}


class _Source(RecordReader):
    """The unfinished record of one source."""

    def __init__(
        self,
        headers: Headers,
        line_no: int,
        inside: Inside,
        header: Any,
        node: int | None,
        *,
        goes_back: bool,
    ) -> None:
        """goes_back: the record before is newer, or there is none."""
        super().__init__(headers, printed)
        self.line_no, self._node, self._ts, self._goes_back = line_no, node, inside.ts, goes_back
        self._line_no, self._first, self._header, self._ended = line_no, inside.text, header, False

    def add(self, inside: Inside) -> bool:
        """Add a line that begins no record; return whether it belongs to this record.

        A separate string that is no part of a stack trace is of another program. Where the newest line is
        first, as logcli and Grafana print it, a line that is older than the record is of another one.
        """
        if self._goes_back and self.is_newer_than(inside):
            self._ended = True
        if (
            not inside.own
            and inside.begins
            and inside.text[:1] not in {" ", "\t"}
            and not STACK_TRACE.match(inside.text)
        ):
            self._ended = True
        self._add(inside.text)
        return not self._ended

    def is_newer_than(self, inside: Inside) -> bool:
        """Return whether the record is newer than a line, by their envelopes."""
        return bool(inside.ts and self._ts and inside.ts < self._ts)

    def end(self) -> None:
        """End the record: no further line belongs to it."""
        self._ended = True

    def record(self) -> Record:
        """Return the record, completed from its envelope."""
        found = self._record()
        return found._replace(ts=found.ts or self._ts if found.fits else None, node=self._node)


def node_of(source: Sequence[str]) -> int | None:
    """Return the node in the names of a source; None where they have none, or several."""
    found = {number for text in source for number in NODE_NAME.findall(text)}
    return int(found.pop()) if len(found) == 1 else None


# -- learning ----------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """Layers, and the number of records in the examined lines; a record that fits a layout counts twice."""

    layers: tuple[Layer, ...]
    records: int
    fit: bool = True


def reader_of(parser: Parser, envelope: Envelope | None, bare: bool, line_no: int = 1) -> RecordReader:
    """Return a reader for the lines of one file. bare: its records have no time stamps."""
    if envelope is None:
        return parser.reader(bare, line_no)
    if not envelope.layers:
        return RecordReader(parser.headers(bare), printed, stack_traces_only=bare, line_no=line_no)
    return EnvelopeReader(parser.headers(envelope.bare), envelope, line_no)


class Learner:
    """Learns the envelope of a file from its first lines."""

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

    def _has_head(self, text: str) -> bool:
        """Return whether a header begins near the begin of a text."""
        return self._head_at(text, 0, LONGEST_PREFIX) is not None

    def headers(self, envelope: Envelope) -> Headers:
        """Return the headers of the records in an envelope."""
        return self._bare if envelope.bare else self._headers

    def learn(self, lines: Sequence[str]) -> Envelope | None:
        """Return the envelope of a file that begins with these lines; None where it is no log."""
        some = [printed(line) for line in lines if line.strip()][:MOST_LINES]
        # an envelope that a plain log quotes is a part of its messages
        if any(line[0] != "{" and self._headers.begins(line) for line in some if line):
            found = self._text(some, 0, self._headers) or self._opened_row(some)
            return self._envelope(found, self._headers, some) if found else Envelope(())
        if not any(map(_OF_A_LOG.search, some)):
            return None
        for headers in (self._headers, self._bare):
            if found := self._learn(some, 0, headers):
                return self._envelope(found, headers, some)
        return None

    def _envelope(self, found: _Found, headers: Headers, lines: Sequence[str]) -> Envelope:
        envelope = Envelope(found.layers, bare=headers is self._bare)
        if not found.layers:
            return envelope
        opener = Opener(envelope)
        sources = len(
            {inside.source for line in lines for inside in opener(line) if headers.begins(inside.text)}
        )
        envelope = replace(envelope, sources=sources)
        contradiction = self._contradiction(envelope, lines)
        return replace(envelope, names_node=contradiction is None, contradiction=contradiction)

    def _text(self, texts: Sequence[str], depth: int, headers: Headers) -> _Found | None:
        """Find a layer of a text: a block, a suffix, changed characters or wrapped lines."""
        if depth >= DEEPEST or headers is not self._headers:
            return None
        layer = self._fenced(texts) or self._suffixed(texts) or self._changed(texts) or self._wrapped(texts)
        if layer is None:
            return None
        opener = Opener(Envelope((layer,)))
        inside = [one.text for text in texts for one in opener(text) if not one.outside]
        inside += [one.text for one in opener.close() if not one.outside]
        inner = self._learn(inside, depth + 1, headers)
        return inner and _Found((layer, *inner.layers), inner.records, inner.fit)

    def _fenced(self, texts: Sequence[str]) -> Fence | None:
        """Find the block of the first record."""
        for number, text in enumerate(texts):
            for kind in _FENCES:
                found = _fence(kind)[0].match(text)
                if found is None:
                    continue
                rest = text[found.end() :]
                log = [rest] if rest.strip() else texts[number + 1 : number + 4]
                if any(map(self._has_head, log)):
                    return Fence(kind)
            if self._headers.begins(text):
                return None
        return None

    def _suffixed(self, texts: Sequence[str]) -> Suffix | None:
        """Find a common end of all lines without which their records fit a layout."""
        begun = [number for number, text in enumerate(texts) if self._headers.begins(text)]
        some = [text for text in texts[begun[0] : begun[-1] + 1] if text.strip()] if begun else []
        first = [texts[number] for number in begun]
        if len(some) < 3:
            return None
        if len(set(map(len, some))) == 1 and 2 * sum(text[-1:] == " " for text in some) > len(some):
            return Suffix(" ")
        if sum(self._headers.of_line(text) is not None for text in first) * 5 > len(first):
            return None
        common = _common_end(some)
        pairs = pairwise(some[:COMPARED])
        ends = {end for pair in pairs if (end := _common_end(pair)) and end != common}
        often = [
            end for end in ends if sum(text.endswith(end) for text in some) >= LEAST_WITH_END * len(some)
        ]
        for end, of_records in ((common, False), (max(often, key=len, default=""), True)):
            for begin in range(len(end) - 1, -1, -1):
                suffix = end[begin:]
                whole = [self._headers.of_line(text.removesuffix(suffix)) is not None for text in first]
                if sum(whole) * 2 > len(whole):
                    return Suffix(suffix, of_records)
        return None

    def _changed(self, texts: Sequence[str]) -> Changed | None:
        """Find a change of characters in all lines with a header.

        A log that quotes such text has other lines, too.
        """
        broken = sum(map(bool, map(_SOFT_BREAK.search, texts)))
        is_said = any(map(_IS_QUOTED_PRINTABLE.fullmatch, texts))
        if broken and (is_said or (broken * 5 >= len(texts) and any("=3D" in text for text in texts))):
            return Changed(QUOTED_PRINTABLE)
        for kind, change, original in ((ENTITIES, _ENTITY, _MARKUP), (LIGATURES, _LIGATURE, _TWO_LETTERS)):
            # most texts have no such characters, and a search for headers takes long
            if any(map(change.search, texts)):
                lines = [text for text in texts if self._has_head(text)]
                if any(map(change.search, lines)) and not any(map(original.search, lines)):
                    return Changed(kind)
        others = [text for text in texts if not self._headers.begins(text)]
        if any(map(self._headers.begins, (text.replace("\xa0", " ") for text in others if "\xa0" in text))):
            return Changed(NO_BREAK)
        if not any("\t" in text for text in texts):
            # a stack trace, or values of KafkaConfig, in the line of their record
            for kind, ends in _ENDS.items():
                some = tuple(f"{before}{''.join(ends)}{after}" for before, after in _AROUND_END)
                ended = [text for text in texts if any(one in text for one in some)]
                if any(self._has_head(text) and self._headers.begins(text) for text in ended):
                    return Changed(kind)
            return next(
                (
                    Changed(kind)
                    for kind, tab in _TABS.items()
                    if any(text.startswith(tab) for text in others)
                ),
                None,
            )
        return None

    def _wrapped(self, texts: Sequence[str]) -> Wrapped | None:
        """Find a width that no line exceeds and at which records continue in the next line."""
        width = max(map(len, texts), default=0)
        full = sum(len(text) == width for text in texts)
        if width not in WIDTHS or full < 2 or full * 10 < len(texts):
            return None
        layer = Wrapped(width)
        opener = Opener(Envelope((layer,)))
        whole = [one.text for text in texts for one in opener(text)] + [one.text for one in opener.close()]
        before, after = (
            sum(self._headers.of_line(text) is not None for text in some) for some in (texts, whole)
        )
        return layer if after > before and after * 2 > sum(map(self._headers.begins, texts)) else None

    def _opened_row(self, texts: Sequence[str]) -> _Found | None:
        """Find rows of CSV with several records in a field, the first one before any at a line's begin."""
        begun = next((number for number, text in enumerate(texts) if self._headers.begins(text)), 0)
        if not any(text.count('"') % 2 and self._quoted_head(text, ",;") for text in texts[:begun]):
            return None
        return self._column(texts, 0, self._headers, ",;")

    def _quoted_head(self, text: str, delimiters: str) -> bool:
        """Return whether the first quoted field of a row begins with a header."""
        before, quote, _ = text[:LONGEST_PREFIX].partition('"')
        is_row = quote and "\t" not in before and before[-1:] in ("", *delimiters)
        return bool(is_row and self._headers.begins(text[len(before) + 1 :]))

    def _contradiction(self, envelope: Envelope, lines: Sequence[str]) -> Contradiction | None:
        """Return the first record whose log ident has another node than its envelope.

        One such record is enough for the whole file: its pods are numbered differently from its nodes.
        """
        reader = EnvelopeReader(self._parser.headers(envelope.bare), replace(envelope, names_node=True))
        records = [*reader.feed(lines), *reader.close()]
        nodes = len({record.node for record in records} - {None})
        for record in records:
            ident = self._parser.log_ident(record.log_ident)
            if ident is not None and ident.node is not None and record.node not in (None, ident.node):
                return Contradiction(record.line_no, record.node, ident.node, nodes)
        return None

    def _begins(self, text: str, headers: Headers) -> bool:
        """Return whether a record begins with the text; data that is no log may be JSON with a level, too."""
        return headers.begins(text) and (text[:1] != "{" or headers.of_line(text) is not None)

    def _learn(self, lines: Sequence[str], depth: int, headers: Headers) -> _Found | None:
        texts = [printed(line) for line in lines]
        first = [text for text in texts if self._begins(text, headers)]
        begun = sum(1 + (headers.of_line(text) is not None) for text in first)
        found = None
        # a log with plain lines only quotes JSON
        if depth < DEEPEST and all(text[:1] == "{" for text in first):
            found = self._json(texts, depth, headers, of_log=bool(first))
        if found and found.records >= LEAST_INSIDE * begun:
            return found
        if begun:
            return (self._text(texts, depth, headers) if depth else None) or _Found(
                (), begun, begun > len(first)
            )
        if depth == DEEPEST:
            return None
        if found := self._text(texts, depth, headers) or self._documents(texts, depth, headers):
            return found
        # text between a prefix and a header is a part of the message, even a tab
        if found := self._column(texts, depth, headers, ",;"):
            return found
        prefix = self._prefix(texts, depth, headers) if headers is self._headers else None
        return prefix if prefix and prefix.fit else self._column(texts, depth, headers, "\t") or prefix

    def _documents(self, texts: Sequence[str], depth: int, headers: Headers) -> _Found | None:
        """Find JSON that is spread over lines; the outermost objects with records count."""
        if not texts or texts[0].lstrip()[:1] not in ("{", "["):
            return None
        for around in range(MOST_AROUND):
            objects = _Objects(around)
            found_objects = [one for text in texts for one in objects.add(text)]
            # a JSON log has one object per line
            if (found_objects and any("\n" in one for one in found_objects)) or (
                not around and len(found_objects) > len(texts)
            ):
                found_objects = [_in_one_line(one) for one in found_objects]
                # JsonLayout of log4j2
                begun = sum(self._begins(one, headers) for one in found_objects)
                if begun * 2 > len(found_objects):
                    return _Found((JsonText(around),), 2 * begun)
                inner = self._json(found_objects, depth + 1, headers, of_log=False)
                if inner:
                    return _Found((JsonText(around), *inner.layers), inner.records, inner.fit)
        return None

    def _json(self, texts: Sequence[str], depth: int, headers: Headers, of_log: bool) -> _Found | None:
        """Find a string in JSON objects, at least half of the lines.

        of_log: the objects are records of a log themselves.
        """
        objects = [content for text in texts if (content := _object(text)) is not None]
        if not objects or len(objects) < LEAST_SHARE * self._with_text(texts):
            return None
        # quotes are doubled in CSV
        if isinstance(objects[0], str) and any(text[:1] == '"' and _object(text) is None for text in texts):
            return None
        values: dict[tuple[str, ...], list[str]] = {}
        for content in objects:
            for path, value in _strings(content):
                if EVERY in path and _is_time(value):
                    continue
                values.setdefault(path, []).append(value)
        best: _Found | None = None
        longest, form = 0, _form_of(list(_keys(objects[0])), "keys")
        for path, strings in values.items():
            if not any(len(value) > 20 for value in strings) or (
                of_log and path[-1:] and path[-1] not in MESSAGE_KEYS
            ):
                continue
            several = self._several(strings)
            lines = self._first_lines(strings, several)
            found = self._learn(lines, depth + 1, headers)
            # a shortened copy of the string has the same number of records
            size = sum(map(len, strings))
            if found and (best is None or (found.records, size) > (best.records, longest)):
                longest = size
                ended = sum(value.endswith("\n") for value in strings)
                single = sum("\n" not in value[:-1] for value in strings)
                best = _Found(
                    (
                        JsonString(path, ended * 2 > len(strings) and single == len(strings), several, form),
                        *found.layers,
                    ),
                    found.records,
                )
        return best

    @staticmethod
    def _with_text(texts: Sequence[str]) -> int:
        """Return the number of lines that have more than brackets."""
        return sum(not _BRACKETS.fullmatch(text) for text in texts)

    def _several(self, strings: Sequence[str]) -> bool:
        """Return whether the strings have several records each: more begin on later lines than on first ones."""
        begun = [
            [self._headers.begins(line) for line in split_lines(value)] for value in strings if "\n" in value
        ]
        return sum(sum(one[1:]) for one in begun) > max(1, sum(one[0] for one in begun), len(strings) // 2)

    @staticmethod
    def _first_lines(strings: Sequence[str], several: bool) -> list[str]:
        """Return the lines to learn from: the first line of each string, or all."""
        some = [split_lines(value) for value in strings if value.strip()]
        return [line for lines in some for line in (lines if several else lines[:1])]

    def _column(self, texts: Sequence[str], depth: int, headers: Headers, delimiters: str) -> _Found | None:
        """Find a quoted field of CSV, or a field of TSV."""
        best: _Found | None = None
        for delimiter in delimiters:
            rows = [row for row in self._rows(texts, delimiter) if len(row) > 1]
            for index in range(min(max(map(len, rows), default=0), MOST_COLUMNS)):
                values = [row[index] for row in rows if index < len(row)]
                is_last = delimiter == "\t" and sum(index == len(row) - 1 for row in rows) * 2 > len(rows)
                if is_last:
                    values = [
                        text.split(delimiter, index)[index]
                        for text in texts
                        if text.count(delimiter) >= index
                    ]
                if sum(len(value) > 20 for value in values) < LEAST_SHARE * len(rows):
                    continue
                several = not is_last and self._several(values)
                found = self._learn(self._first_lines(values, several), depth + 1, headers)
                if found and (best is None or found.records > best.records):
                    name = rows[0][index] if index < len(rows[0]) and len(rows[0][index]) < SHOWN else ""
                    column = Column(delimiter, index, name, is_last, several, _form_of(rows[0], "columns"))
                    best = _Found((column, *found.layers), found.records, found.fit)
        return best

    def _rows(self, texts: Sequence[str], delimiter: str) -> list[list[str]]:
        """Return the rows; without quotes only those of TSV, because messages have commas."""
        if delimiter == "\t":
            return [text.split(delimiter) for text in texts if delimiter in text]
        if not any(
            (text[:1] == '"' and f'"{delimiter}' in text) or self._quoted_head(text, delimiter)
            for text in texts
        ):
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
        """Find prefixes of some shapes before most lines."""
        by_shape: dict[str, list[str]] = {}
        for text in texts:
            if (prefix := self._before(text, headers)) is not None:
                by_shape.setdefault(_shape(prefix), []).append(prefix)
        only_one = self._with_text(texts) <= 3
        found = sorted(
            (one for one in by_shape.values() if len(one) >= 2 or only_one), key=len, reverse=True
        )[:MOST_SHAPES]
        patterns = {_prefix_pattern(one): one for one in found}
        # text between a prefix and a header is a part of the message
        after_match = {pattern: _after_a_match(pattern) for pattern in patterns}
        known = {*patterns, *filter(None, after_match.values())}
        shortest = [
            pattern
            for pattern, prefixes in patterns.items()
            if not any(other != pattern and _compiled(other).match(prefixes[0]) for other in known)
        ]
        if not shortest:
            return None
        others = [other for one in shortest if (other := after_match[one])]
        shortest += [other for other in others if any(map(_compiled(other).match, texts))]
        layer = Prefix(tuple(shortest), patterns[shortest[0]][0])
        kept = [patterns[pattern] for pattern in shortest if pattern in patterns]
        matches = [_compiled(pattern).match for pattern in layer.patterns]
        rests, after = [], 0
        for text in texts:
            if begins := next((begins for match in matches if (begins := match(text))), None):
                after += 1
                rests.append(text[begins.end() :])
        if after < LEAST_SHARE * self._with_text(texts) and sum(map(len, kept)) < ENOUGH:
            return None
        inner = self._learn(rests, depth + 1, headers)
        return inner and _Found((layer, *inner.layers), inner.records, inner.fit)

    def _before(self, text: str, headers: Headers) -> str | None:
        """Return the text before the header, or before a JSON object at the end of the line.

        None where there is neither, or the line is one of a stack trace, which quotes the header.
        """
        if text[:1] == "{" or STACK_TRACE.match(text):
            return None
        at, first = 1, None
        while at < min(len(text), LONGEST_PREFIX) and (
            found := self._head_at(text, at, at + 2 * LONGEST_PREFIX)
        ):
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
        # the value of an attribute (`ip="10.0.0.4"`) is a part of the prefix
        quotes = [found.start(1) for found in _OPENING_QUOTE.finditer(text, 1, LONGEST_PREFIX) if found[1]]
        direct = next(
            (
                at
                for at in quotes
                if self._head_at(text, at, at + LONGEST_PREFIX) and self._quoted_line(text[at:])
            ),
            None,
        )
        quote = direct if direct is not None else next(iter(quotes), -1)
        return text[:quote] if quote > 0 and self._head_at(text, quote) else None

    def _quoted_line(self, text: str) -> bool:
        """Return whether a quoted string is a line of the log."""
        value = _string(text)
        return value is not None and self._headers.begins(value)


def _in_one_line(text: str) -> str:
    """Return a JSON object in one line: no string of it has a line end."""
    return text.replace("\n", " ")


def _common_end(texts: Sequence[str]) -> str:
    """Return the longest common end of some texts, of at most LONGEST_SUFFIX characters."""
    common = texts[0][-LONGEST_SUFFIX:]
    while not all(text.endswith(common) for text in texts):
        common = common[1:]
    return common


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _after_a_match(pattern: str) -> str | None:
    """Return the pattern of `grep -A` for lines after a match, which has dashes instead of colons.

    None: no prefix of grep.
    """
    if pattern[-1:] != ":":
        return None
    head, colon, number = pattern[:-1].rpartition(":")
    return f"{head}-{number}-" if colon and "d{1,40}" in number else f"{pattern[:-1]}-"


def _kind(token: str) -> str:
    """Return the kind of a token; tokens of one kind may differ between prefixes of one shape."""
    if _IS_TIME.fullmatch(token):
        return "t"
    return " " if token.isspace() else "w" if token[0].isalnum() or token[0] == "_" else token


def _shape(prefix: str) -> str:
    """Return the shape of a prefix.

    Prefixes of one shape differ in words, numbers, times and the number of inner blanks.
    """
    *others, last = _TOKEN.findall(prefix)
    return "".join(map(_kind, others)) + (last if last.isspace() else _kind(last))


def _prefix_pattern(prefixes: Sequence[str]) -> str:
    """Return a regex of prefixes of one shape, with a group for each word that names a source."""
    regex, number = "", len(prefixes)
    for values in zip(*map(_TOKEN.findall, prefixes), strict=True):
        seen, kind = set(values), _kind(values[0])
        is_number = all(value.isdecimal() for value in seen)
        if kind == "t":
            regex += _TIME
        elif kind == " ":
            regex += re.escape(values[0]) if len(seen) == 1 else "[ \\t]{1,60}+"
        elif kind != "w" or (len(seen) == 1 and not is_number):
            regex += re.escape(values[0])
        else:
            word = r"\d{1,40}+" if is_number else r"\w{1,100}+"
            if regex == "<":  # the priority of syslog
                regex += word
                continue
            # a word that differs in each line names no source
            regex += f"({word})" if len(seen) <= max(1, number // (2 if number < 16 else 4)) else word
    return regex
