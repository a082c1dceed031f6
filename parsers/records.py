"""Turn the text of a log into records: remove prefixes, join pieces, read headers.

A record is a line with a known header and the lines up to the next one. All text is `str`; a line ends at LF,
CR LF or CR.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from parsers.layouts import (
    EPOCH_INSTANT,
    EPOCH_MILLIS,
    EPOCH_MS,
    EPOCH_SECONDS,
    ISO_WHOLE,
    LEVELS,
    LOG_IDENT,
    Layout,
    Wrapper,
    wrapping,
)
from parsers.months import month
from parsers.patterns import GROUP, THROWABLE_CLASS, compiled

# characters that no layout prints: NUL padding of crashes, colours of terminals, byte order marks of editors
NOT_PRINTED = re.compile(r"[\x00\x01]|\x1B\[[0-9;?]*[A-Za-z]|\x1B\][^\x07\x1B\n]{0,200}\x07|\A\uFEFF")
_LINE_END = re.compile(r"\r\n|\n|\r")
# most lines of a record; a million lines of prose are no stack trace
LONGEST_TAIL = 20_000
# most characters of the lines after the first; more are counted as cut
LONGEST_REST = 4_000_000
# most characters of a line; a longer one loses its middle, because in most layouts the logger ends the line
LONGEST_LINE = 1_000_000
END_OF_LINE = 4_000
# replaces the middle of a line; it has no digit that a rule could read as a value
CUT = " .. cut .. "
# separators that tools print between parts of their output: grep -C, tail of several files
BETWEEN = re.compile(r"--|==> [^\n]{1,300} <==")
# lines that belong to a record in a file without time stamps, where people may write between records
STACK_TRACE = re.compile(rf"\s+at |\s*\.\.\. \d+ more|Caused by: |{THROWABLE_CLASS}(?::|$)")
_SLOTS = ("level", "logger", "thread", "log_ident", "statement", "thrown")
_GROUP_NAME = re.compile(r"\{\w+\}")


class Record(NamedTuple):
    """One record of a log.

    line_no     line of its file on which it begins, from 1
    layout      name of the layout that its header has
    ts          `yyyy-MM-dd HH:mm:ss[.SSS][zone]` as printed; None where the layout prints none
    level       log4j's level
    logger      as printed; in full where the layout abbreviates it and rules cover it
    thread      None where the layout prints none
    log_ident   text of the component before its statement (`logIdent` of Kafka's `Logging`), with the blank
                after it
    statement   the message without it
    rest        the lines after the first, or the stack trace in the first one
    raw         the whole record, as it was before a collector changed it
    fits        whether the layout matches the whole record; if not, the statement is the first line, and no
                other value is known
    cut         bytes that were left out, because a line or the record was too long
    node        the node that its envelope names; None where it names none
    """

    line_no: int
    layout: str
    ts: str | None
    level: str | None
    logger: str | None
    thread: str | None
    log_ident: str
    statement: str
    rest: str
    raw: str
    fits: bool = True
    cut: int = 0
    node: int | None = None


class CutLine(str):
    """A line whose middle is left out. cut: number of missing bytes."""

    cut: int


class LineBuilder:
    """Joins the pieces of a line in bounded memory: the middle of a line that is too long is left out."""

    def __init__(self) -> None:
        self._beginning: list[str] = []
        self._room = LONGEST_LINE - END_OF_LINE
        self._end, self._cut = "", 0

    def add(self, piece: str, cut: int = 0) -> None:
        """Append to the line. cut: number of bytes missing in the piece itself."""
        self._cut += cut
        if self._room:
            self._beginning.append(piece[: self._room])
            piece = piece[self._room :]
            self._room -= len(self._beginning[-1])
        self._end += piece
        if len(self._end) > END_OF_LINE:
            left_out, self._end = self._end[:-END_OF_LINE], self._end[-END_OF_LINE:]
            self._cut += len(left_out.encode("utf-8", "replace"))

    def line(self) -> str:
        """Return the line, a `CutLine` where something is left out.

        The result does not depend on how the text was cut into pieces.
        """
        beginning = "".join(self._beginning)
        if not self._cut:
            return beginning + self._end
        line = CutLine(beginning + CUT + self._end)
        line.cut = self._cut
        return line


# (layout, ts, level, logger, thread, log_ident, statement, thrown)
Header = tuple[str, str | None, str | None, str | None, str | None, str, str, str | None]
FullName = Callable[[str, str], str]


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without line ends.

    A text that ends with a line end has an empty last line.
    """
    return _LINE_END.split(text) if "\r" in text else text.split("\n")


def is_odd(text: str) -> bool:
    """Return whether the text has characters that no layout prints."""
    return "\x00" in text or "\x01" in text or "\x1b" in text or "\ufeff" in text


class Unwrapper:
    """Removes from a line what no layout prints: control characters, colours, a collector's prefix."""

    def __init__(self, wrappers: Iterable[Wrapper]) -> None:
        self._wrapping = compiled(GROUP.sub("(?:", wrapping(wrappers))).match

    def __call__(self, line: str) -> str:
        if is_odd(line):
            line = NOT_PRINTED.sub("", line)
        found = self._wrapping(line)
        return line[found.end() :] if found else line


class Joiner:
    """Joins lines that a collector has cut: each piece except the last is marked as partial."""

    def __init__(self, wrappers: Iterable[Wrapper]) -> None:
        self._patterns = [
            compiled(wrapper.pattern) for wrapper in wrappers if "(?<partial>" in wrapper.pattern
        ]

    def _piece(self, line: str) -> re.Match[str] | None:
        return next((found for pattern in self._patterns if (found := pattern.match(line))), None)

    def knows(self, line: str) -> bool:
        """Return whether the line is of a collector that cuts lines."""
        return self._piece(line) is not None

    def is_partial(self, line: str) -> bool:
        """Return whether the line continues in another one."""
        found = self._piece(line)
        return found is not None and found["partial"] is not None

    def __call__(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield whole lines without line ends, in the order in which they end; lines without an end are last."""
        begun: dict[str, LineBuilder] = {}
        for line in lines:
            found = self._piece(line)
            if found is None:
                yield line
                continue
            stream = found["stream"]
            is_begun = stream in begun
            begun.setdefault(stream, LineBuilder()).add(
                line[found.end() :] if is_begun else line, line.cut if isinstance(line, CutLine) else 0
            )
            if found["partial"] is None:
                yield begun.pop(stream).line()
        yield from (whole.line() for whole in begun.values())


# -- headers -----------------------------------------------------------------------------------------------


def _not_json(text: str) -> float:
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_constant=_not_json)
_ISO_WHOLE, _MILLIS, _SECONDS = compiled(ISO_WHOLE), compiled(EPOCH_MILLIS), compiled(EPOCH_SECONDS)
_MICROS_OR_NANOS = re.compile(r"([0-9]{12,13})(?:[0-9]{3}){1,2}")
_INSTANT, _LOG_IDENT = compiled(EPOCH_INSTANT), compiled(LOG_IDENT)


def _at(content: Mapping[str, Any], path: str) -> str | None:
    """Return the value at a path as text: a key, or key b of object a for `a.b`.

    None where there is none or it is empty.
    """
    value = content.get(path)
    outer, dot, inner = path.partition(".")
    if value is None and dot:
        value = content.get(outer)
        value = value.get(inner) if isinstance(value, dict) else None
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def time_text(text: str) -> str | None:
    """Return `yyyy-MM-dd HH:mm:ss.SSS` and the zone, from ISO text or a count since 1970.

    None for other text.
    """
    if found := _ISO_WHOLE.fullmatch(text):
        return "{date} {clock}{fraction}{zone}".format_map(found.groupdict("")).replace(",", ".")
    millis = None
    if _MILLIS.fullmatch(text):
        millis = int(text)
    elif found := _MICROS_OR_NANOS.fullmatch(text):
        millis = int(found[1])
    elif found := _SECONDS.fullmatch(text):
        millis = int(found["seconds"]) * 1000 + int((found["fraction"] or "0").ljust(3, "0")[:3])
    elif found := _INSTANT.fullmatch(text):
        millis = int(found["seconds"]) * 1000 + int(found["nanos"] or 0) // 1_000_000
    if millis is None:
        return None
    return f"{datetime.fromtimestamp(millis // 1000, UTC):%Y-%m-%d %H:%M:%S}.{millis % 1000:03d}Z"


def json_header(layout: Layout, line: str) -> Header | None:
    """Return the header of a JSON record; None where it is no JSON, or lacks time, level or message."""
    assert layout.json is not None
    try:
        content, _ = _DECODER.raw_decode(line)
    except (ValueError, RecursionError):
        return None
    keys = layout.json

    def first(slot: str, text: bool = False) -> str | None:
        found = [
            value for path in keys[slot] if (value := _at(content, path)) and not (text and value[0] in "[{")
        ]
        return found[0].replace("\x01", "") if found else None

    time = first("time")
    level = (first("level") or "").upper()
    message = first("message")
    logger = first("logger")
    if layout.levels:
        level = layout.levels.get(level, "") if logger else ""
    ts = time_text(time) if time else None
    if ts is None or level not in LEVELS or message is None:
        return None
    thrown = first("stack_trace", text=True)
    if thrown is None and (error_class := first("error_class")):
        thrown = error_class + (f": {said}" if (said := first("error_message")) else "")
    message = message.rstrip("\r\n")
    said, _, rest = message.partition("\n")
    if thrown is None and STACK_TRACE.match(rest):
        message, thrown = said, rest
    ident = _LOG_IDENT.match(message)
    at = ident.end() if ident else 0
    return layout.name, ts, level, logger, first("thread") or None, message[:at], message[at:], thrown


def _with_month_number(time: Callable[[Sequence[str]], Any], at: int) -> Callable[[Sequence[str]], Any]:
    """Return a function that converts the name of a month, at one place of a time, to its number."""

    def parts(groups: Sequence[str]) -> Any:
        found = time(groups)
        return (*found[:at], month(found[at]), *found[at + 1 :])

    return parts


def _header_of(
    layout: Layout, regex: re.Pattern[str], full_name: FullName
) -> Callable[[Sequence[str]], Header]:
    """Return a function from the groups of a regex, empty where they do not match, to a header.

    The last group never matches.
    """

    def values(names: Sequence[str]) -> Callable[[Sequence[str]], Any]:
        return (
            itemgetter(*(regex.groupindex.get(name, 0) - 1 for name in names)) if names else lambda groups: ()
        )

    name, fixed_logger, cuts, is_count = layout.name, layout.logger, layout.cuts, layout.time == EPOCH_MS
    time, slots, template = values(layout.time_groups), values(_SLOTS), _GROUP_NAME.sub("%s", layout.time)
    if "month_name" in layout.time_groups:
        time = _with_month_number(time, layout.time_groups.index("month_name"))

    def header(groups: Sequence[str]) -> Header:
        ts = (template % time(groups)).replace(",", ".")
        level, logger, thread, ident, statement, thrown = slots(groups)
        if cuts and logger:
            logger = full_name(logger, ident)
        if is_count:
            ts = time_text(ts)
        return (
            name,
            ts or None,
            level or None,
            fixed_logger or logger or None,
            thread or None,
            ident,
            statement,
            thrown or None,
        )

    return header


class Headers:
    """Reads headers by a list of layouts.

    The first one that matches the whole first line counts, else the first one that matches all lines.
    """

    def __init__(
        self, layouts: Sequence[Layout], full_name: FullName = lambda logger, log_ident: logger
    ) -> None:
        """full_name: returns a logger in full, from an abbreviated logger and the log ident."""
        self._is_head = compiled(
            "|".join(f"(?:{GROUP.sub('(?:', layout.head)})" for layout in layouts) or "(?!)"
        ).match
        self._lines = [self._reader(layout, layout.line, full_name) for layout in layouts]
        self._heads = [(layout.name, compiled(layout.head).match) for layout in layouts]
        self._whole = [self._reader(layout, layout.record, full_name) for layout in layouts if layout.record]
        # the first layout is that of most logs
        self._first: tuple[Any, Any, int] | None = None
        if layouts and layouts[0].time_groups:
            regex = compiled(f"(?m)^(?:(?:{layouts[0].line})|[^\\n]*)$(?<absent>(?!))?")
            date = regex.groupindex[layouts[0].time_groups[0]] - 1
            self._first = regex.findall, _header_of(layouts[0], regex, full_name), date

    @staticmethod
    def _reader(layout: Layout, pattern: str, full_name: FullName) -> Callable[[str], Header | None]:
        if layout.json:
            is_head = compiled(layout.head).match
            return lambda line: json_header(layout, line) if line[:1] == "{" and is_head(line) else None
        regex = compiled(f"(?:{pattern})(?<absent>(?!))?")
        fullmatch, of_groups = regex.fullmatch, _header_of(layout, regex, full_name)
        return lambda text: of_groups(found.groups("")) if (found := fullmatch(text)) else None

    def at_once(self, lines: Sequence[str]) -> Sequence[Header | None] | None:
        """Return the headers of lines in the first layout; None: read them one by one.

        An item is None where a line has no header in it.
        """
        text = "\n".join(lines)
        # lines with characters that no layout prints are cleaned one by one
        if self._first is None or is_odd(text):
            return None
        find_all, of_groups, date = self._first
        found = find_all(text)
        # a header does not continue in the next line
        return (
            [of_groups(groups) if groups[date] else None for groups in found]
            if len(found) == len(lines)
            else None
        )

    def begins(self, line: str) -> bool:
        """Return whether the line begins a record."""
        return self._is_head(line) is not None

    def of_line(self, line: str) -> Header | None:
        """Return the header of a record whose message is one line."""
        return next((header for read in self._lines if (header := read(line))), None)

    def of_text(self, text: str) -> Header | None:
        """Return the header of a record whose message has several lines, one with the layout's end."""
        return next((header for read in self._whole if (header := read(text))), None)

    def layout_of(self, line: str) -> str:
        """Return the first layout whose head matches."""
        return next(name for name, match in self._heads if match(line))


# -- records -----------------------------------------------------------------------------------------------


class RecordReader:
    """Joins the lines of one file to records.

    The lines are fed in order, in any pieces; `close` returns the last record.
    """

    def __init__(
        self,
        headers: Headers,
        unwrapped: Callable[[str], str],
        *,
        stack_traces_only: bool = False,
        line_no: int = 1,
    ) -> None:
        """stack_traces_only: other lines between records belong to no record. line_no: of the first line."""
        self._headers, self._unwrapped, self._stack_traces_only = headers, unwrapped, stack_traces_only
        self._next = line_no
        # the unfinished record
        self._line_no, self._first, self._header, self._tail = 0, "", None, []  # type: int, str, Header | None, list[str]
        self._ended = True
        # of the unfinished record: characters after the first line, bytes that were left out
        self._rest = self._cut = 0
        # numbers of lines read, of records begun, of further lines of records; other lines belong to no
        # record
        self.lines = self.begun = self.continued = 0

    def feed(self, lines: Sequence[str]) -> Iterator[Record]:
        """Return the records that end within these lines."""
        begin = 0
        for place, line in enumerate(lines):
            if type(line) is CutLine:
                yield from self._feed(lines[begin : place + 1])
                self._cut += line.cut
                begin = place + 1
        yield from self._feed(lines[begin:] if begin else lines)

    def _feed(self, lines: Sequence[str]) -> Iterator[Record]:
        headers, unwrapped, record_of = self._headers, self._unwrapped, Record._make
        begins, of_line = headers.begins, headers.of_line
        line_no = self._next
        self._next += len(lines)
        self.lines += len(lines)
        for printed, known in zip(lines, headers.at_once(lines) or repeat(None), strict=False):
            line, header = printed, known
            if header is None:
                line = unwrapped(line)
                if not begins(line):
                    self._add(line)
                    line_no += 1
                    continue
                header = of_line(line)
            self.begun += 1
            if self._line_no:
                # most records are one line
                if self._header and not self._tail and not self._header[7] and not self._cut:
                    yield record_of((self._line_no, *self._header[:7], "", self._first, True, 0, None))
                else:
                    yield self._record()
            self._line_no = line_no
            self._first = line
            self._header = header
            self._tail = []
            self._ended = False
            self._rest = self._cut = 0
            line_no += 1

    def _add(self, line: str) -> None:
        """Add a line that begins no record."""
        if line[:1] in {"-", "="} and BETWEEN.fullmatch(line):
            # tail prints a blank line before the name of a file
            if line[0] == "=" and self._tail and not self._tail[-1] and not self._ended:
                self._tail.pop()
                self.continued -= 1
            self._ended = True
        if self._stack_traces_only and not STACK_TRACE.match(line):
            self._ended = True
        if self._line_no and not self._ended:
            self.continued += 1
            self._rest += len(line)
            if len(self._tail) < LONGEST_TAIL and self._rest <= LONGEST_REST:
                self._tail.append(line)
            else:
                self._cut += len(line.encode("utf-8", "replace")) + 1

    def _record(self) -> Record:
        tail = "\n".join(self._tail)
        raw = f"{self._first}\n{tail}" if self._tail else self._first
        header = self._header or (self._headers.of_text(raw) if self._tail else None)
        if header is None:
            layout = self._headers.layout_of(self._first)
            return Record(
                self._line_no, layout, None, None, None, None, "", self._first, tail, raw, False, self._cut
            )
        rest = "\n".join(filter(None, (header[7], tail)))
        return Record(self._line_no, *header[:7], rest, raw, True, self._cut)

    def close(self, without_last_line: bool = False) -> Iterator[Record]:
        """Return the last record of the text.

        without_last_line: leave out its last line, unless it is its only one.
        """
        if without_last_line and self._tail and self._line_no + len(self._tail) == self._next - 1:
            self._tail.pop()
            self.continued -= 1
        if self._line_no:
            yield self._record()
            self._line_no = 0
