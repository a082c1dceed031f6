"""What a log record says and why, or how far each rule and layout got with it, as text. No Spark."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import schemas
from parsers.events import Parser
from parsers.patterns import DefinitionError, compiled
from parsers.records import Record, RecordReader, split_lines
from parsers.rules import Rule, built_in, load

SHOWN_RULES = 5
SHOWN_LAYOUTS = 3
SHOWN_ITEMS = 20
SHOWN_CELLS = 300  # characters of one value
WIDTH = 100  # characters of a statement around its mark
EXPECTED = 60  # characters of what a pattern goes on with
# patterns are not tried on longer records: nobody reads those, and a hostile one would take minutes
LONGEST = 1_000_000
MOST_RECORDS = 1_000
LEAST_START = 4  # shorter beginnings tell nothing about what was meant
ALIKE = 0.75  # least likeness of a statement's beginning and a rule's `starts`
LABEL = 13
CARET = "^ matched up to here"


# -- how far a pattern gets --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """How far a pattern got: `at` characters fit its beginning; `expected` is the pattern's next piece.

    `expected` is empty where the pattern was used up and the text goes on.
    """

    at: int
    expected: str


_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[()|]", re.DOTALL)
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d*,?\d*\})\??")
_OPENING = re.compile(r"\((?:\?:|\?P<\w+>)?")
_TAKES_ANYTHING = re.compile(r"\.[*+]|\((?:\?:|\?P<\w+>)?\.[*+]\)")


def _closing(pattern: str, at: int) -> int:
    """Position after the parenthesis that closes the one at `at`."""
    depth = 0
    while at < len(pattern):
        if pattern[at] == "(":
            depth += 1
        elif pattern[at] == ")":
            depth -= 1
            if depth == 0:
                return at + 1
        found = _ATOM.match(pattern, at) if pattern[at] not in "()|" else None
        at = found.end() if found else at + 1
    return at


def _pieces(pattern: str) -> list[str]:
    """The pattern's parts one after the other, each with its quantifier; one part if it is a choice."""
    found, at = [], 0
    while at < len(pattern):
        begin = at
        if pattern[at] == "|":
            return [pattern]
        if pattern[at] == "(":
            at = _closing(pattern, at)
        else:
            atom = _ATOM.match(pattern, at)
            at = atom.end() if atom else at + 1
        quantifier = _QUANTIFIER.match(pattern, at)
        at = quantifier.end() if quantifier else at
        found.append(pattern[begin:at])
    return found


@lru_cache(maxsize=1_000)
def _beginnings(pattern: str) -> list[tuple[str, str]]:
    """(beginning that is a pattern itself, next piece) from the empty beginning to the whole pattern.

    Where one of them does not match a text, no longer one does. Groups that stand once are entered.
    """
    found: list[tuple[str, str]] = []
    before = ""
    for piece in _pieces(pattern):
        opening = _OPENING.match(piece)
        if opening and piece.endswith(")") and _closing(piece, 0) == len(piece):
            inner = _pieces(piece[opening.end() : -1])
            if len(inner) > 1:
                for beginning, following in _beginnings(piece[opening.end() : -1])[:-1]:
                    found.append((before + opening.group() + beginning + ")", following))
                before += piece
                continue
        found.append((before, piece))
        before += piece
    return [*found, (before, "")]


def reach(pattern: re.Pattern[str], text: str) -> Reach:
    """How far a compiled pattern got with the text, by bisection over its beginnings."""
    steps = _beginnings(pattern.pattern)
    low, high = 0, len(steps) - 1
    matched = None
    while low < high:
        middle = (low + high + 1) // 2
        found = re.compile(steps[middle][0], pattern.flags).match(text)
        if found:
            low, matched = middle, found
        else:
            high = middle - 1
    if low == 0 or matched is None:
        return Reach(0, _following(steps, 0))
    while low > 0 and low < len(steps) - 1 and _TAKES_ANYTHING.fullmatch(steps[low - 1][1]):
        # what takes anything has run to the end in search of the next piece: the mark stands before it
        low -= 1
        matched = re.compile(steps[low][0], pattern.flags).match(text) or matched
    return Reach(matched.end(), _following(steps, low))


def _following(steps: list[tuple[str, str]], at: int) -> str:
    """The pieces from a step on, up to a readable length."""
    text = ""
    for _, piece in steps[at:]:
        if text and len(text) + len(piece) > EXPECTED:
            return text.replace("(?P<", "(?<").rstrip() + " .."
        text += piece
    return text.replace("(?P<", "(?<")


# -- text for a terminal -----------------------------------------------------------------------------------


def visible(text: str) -> str:
    """The text with everything that a terminal would act on, or not show, as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    short = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}.get(char)
    code = ord(char)
    if short:
        return short
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _columns(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int = SHOWN_CELLS) -> str:
    """Visible, and not much longer than `width`; says how much is missing."""
    if len(text) <= width:
        return visible(text)
    return f"{visible(text[:width])}.. ({len(text) - width:,} characters more)"


def marked(text: str, at: int, indent: str) -> list[str]:
    """Two lines: the text (cut around the mark if it is long), a caret under its character number `at`."""
    begin, end = 0, len(text)
    if len(text) > WIDTH:
        begin = max(0, min(at - WIDTH * 6 // 10, len(text) - WIDTH))
        end = begin + WIDTH
    before = (".." if begin else "") + visible(text[begin:at])
    after = visible(text[at:end]) + (".." if end < len(text) else "")
    return [indent + before + after, indent + " " * _columns(before) + CARET]


def _row(label: str, text: str) -> str:
    return f"  {label:<{LABEL}} {text}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return cut("[" + ",".join(map(str, value)) + "]")
    return cut(str(value))


# -- records -----------------------------------------------------------------------------------------------


def records(text: str, parser: Parser) -> Iterator[tuple[int, Record | None, str]]:
    """(number of its first line, record, its text), as a night reads them.

    Lines before the first head come as one, without a record. Layouts without a time stamp count only where no other is found.
    """
    lines = [parser.unwrapped(line) for line in parser.joined(split_lines(text))]
    while lines and not lines[-1].strip():
        lines.pop()
    bare = not any(map(parser.headers(False).begins, lines))
    headers = parser.headers(bare)
    begun = next((at for at, line in enumerate(lines) if headers.begins(line)), len(lines))
    if any(line.strip() for line in lines[:begun]):
        yield 1, None, "\n".join(lines[:begun])
    reader = RecordReader(headers, parser.unwrapped, line_no=begun + 1)
    for record in chain(reader.feed(lines[begun:]), reader.close()):
        yield record.line_no, record, record.raw


def explain(text: str, site: Path | None) -> str:
    """For each record of the text: its header, the rule that claims it, every value; or how far rules got.

    `site` is a folder of rule files of one's own. Raises DefinitionError where those are wrong, and nothing
    because of the text.
    """
    if site is not None and not site.is_dir():
        raise DefinitionError(f"--rules {site}: no such folder")
    parser = Parser(load(site) if site is not None else built_in())
    found = list(records(text, parser))
    parts: list[str] = []
    for line_no, record, part in found[:MOST_RECORDS]:
        title = [f"line {line_no:,}"] if len(found) > 1 else []
        parts.append("\n".join(title + (_headless(parser, part) if record is None else _explained(parser, record))))
    if len(found) > MOST_RECORDS:
        parts.append(f"and {len(found) - MOST_RECORDS:,} records more; `kafka-audit audit` reads whole files")
    return "\n\n".join(parts) if parts else "Nothing but blank lines."


def _headless(parser: Parser, text: str) -> list[str]:
    """Says that no layout knows the first line, and how far the heads got that got furthest."""
    first, _, rest = text.partition("\n")
    first = first[:LONGEST]
    known = parser.ruleset.layouts
    lines = [f"No layout has a line with such a head. The nearest of {len(known)}:"]
    reached = [(layout, reach(compiled(layout.head), first)) for layout in known]
    reached.sort(key=lambda entry: (entry[0].bare, -entry[1].at))  # text of any kind goes far in a bare one
    for layout, got in reached[:SHOWN_LAYOUTS]:
        shown = f"{layout.name}   {layout.pattern or 'JSON'}"
        lines += ["", _row("layout", visible(shown)), *marked(first, got.at, "    ")]
        if got.expected:
            lines.append(f"    expected next: {visible(got.expected)}")
    if rest:
        lines += ["", f"  and {rest.count(chr(10)) + 1:,} further line(s) before a line with a known head"]
    lines += [
        "",
        "  In a log file, such lines belong to the record before them (a stack trace).",
        '  A layout of your own is one line of layouts.toml in the folder of --rules: [name] conversion_pattern = "..", as in log4j.',
    ]
    return lines


def _explained(parser: Parser, record: Record) -> list[str]:
    """Header, claim and values of one record."""
    first = record.raw.partition("\n")[0]
    lines = _header(parser, record)
    if not record.fits:
        layout = next(lay for lay in parser.ruleset.layouts if lay.name == record.layout)
        if layout.json:
            return [*lines, _row("unrecognised", "it is no JSON (is it cut off?), or has no time, level and message")]
        got = reach(compiled(layout.line), first[:LONGEST])
        lines += [
            _row(
                "unrecognised",
                "the head is known, the rest of the line does not fit (is it cut off?)",
            ),
            *marked(first[:LONGEST], got.at, "    "),
            f"    expected next: {visible(got.expected)}",
        ]
        return lines
    if len(record.statement) > LONGEST:
        claimant = parser.claimant(record)
        sent = f"the dispatch sends it to {claimant.name} ({claimant.file})" if claimant else "no rule knows its beginning"
        lines.append(_row("too long", f"{len(record.statement):,} characters: patterns are not tried here; {sent}"))
        return lines
    events = parser.events(record)
    lines += _error(events[0])
    rule = parser.claimant(record)
    if rule is not None and not events[0]["drifted"]:
        lines.append(_row("rule", f"{rule.name} ({rule.file}), says: {rule.says}"))
        return lines + _values(parser, record, rule, events)
    return lines + _unclaimed(parser, record, rule)


def _given(parser: Parser, record: Record) -> dict[str, Any]:
    """What the log ident says."""
    ident = parser.log_ident(record.log_ident)
    return {} if ident is None else {name: value for name, value in ident._asdict().items() if value is not None}


def _header(parser: Parser, record: Record) -> list[str]:
    zoned = record.ts is not None and re.search(r"[^\d.]", record.ts[19:])
    zone = "" if record.ts is None or zoned else " (in the zone of --timezone: the line names none)"
    if record.logger is None:
        anonymous = (
            "none in this layout: all of its records are in scope" if parser.in_scope(record) else "none: another program's"
        )
        scope = anonymous if record.fits else "not found"
    elif parser.ruleset.in_scope(record.logger):
        scope = f"{cut(record.logger)} (in scope)"
    else:
        scope = f"{cut(record.logger)} (out of scope: no rule is about it; counted, not stored)"
    lines = [
        _row("layout", record.layout),
        _row("time stamp", (visible(record.ts) if record.ts else "none in this layout") + zone),
        _row("level", record.level or "none"),
        _row("logger", scope),
    ]
    if record.thread:
        lines.append(_row("thread", cut(record.thread)))
    if record.log_ident:
        given = _given(parser, record)
        says = ", ".join(f"{name} = {_value(value)}" for name, value in given.items())
        lines.append(
            _row(
                "log ident",
                f"{cut(record.log_ident.strip())} gives {says or 'nothing: no speaker of speakers.toml'}",
            )
        )
    lines.append(_row("statement", cut(record.statement)))
    if record.rest.strip():
        lines.append(_row("further lines", f"{record.rest.count(chr(10)) + 1:,}, they belong to the record"))
    return lines


def _error(event: dict[str, Any]) -> list[str]:
    lines = []
    if event.get("error_class"):
        lines.append(_row("error class", cut(event["error_class"])))
    if event.get("error_message"):
        lines.append(_row("error message", cut(event["error_message"])))
    return lines


def _values(parser: Parser, record: Record, rule: Rule, events: list[dict[str, Any]]) -> list[str]:
    """Every column with its type; what differs between the items of a record stands below each item."""
    words = {"node": {"type": "int"}, **schemas.vocabulary()}
    origin = dict.fromkeys(_given(parser, record), "log ident") | dict.fromkeys(rule.implies, "implied")
    named = [name for name in words if any(name in event for event in events)]
    shared = [name for name in named if all(name in e and e[name] == events[0].get(name) for e in events)]
    width = max([len(name) for name in named], default=0)

    def line(name: str, value: Any, indent: str) -> str:
        kind = schemas.SPARK_TYPES[words[name]["type"]]
        note = f"   ({origin[name]})" if origin.get(name) else ""
        return f"{indent}{name:<{width}}  {kind:<10}  {_value(value)}{note}"

    lines = [line(name, events[0][name], "    ") for name in shared]
    if not named:
        lines.append("    no values: the statement's text is all that it says")
    if len(events) > 1:
        lines.append(_row("items", f"{len(events):,}, one event each"))
        for event in events[:SHOWN_ITEMS]:
            lines.append(f"    item {event['item']}")
            lines += [line(name, event[name], "      ") for name in named if name not in shared and name in event]
        if len(events) > SHOWN_ITEMS:
            lines.append(f"    and {len(events) - SHOWN_ITEMS:,} items more")
    missing = [name for name in rule.columns if name not in named]
    if missing:
        lines.append(f"    null: {', '.join(missing)}")
    return lines


def _unclaimed(parser: Parser, record: Record, rule: Rule | None) -> list[str]:
    """Drift or no rule at all, and how far the nearest rules got."""
    statement = record.statement
    if rule is not None:
        lines = [_row("drift", f"rule {rule.name} ({rule.file}) knows the beginning, but does not match")]
    elif not parser.in_scope(record):
        others = [r for r in parser.ruleset.rules if r.claims(statement)]
        if not others:
            return [_row("unrecognised", "its logger is out of scope")]
        knows = f"{others[0].name} ({others[0].file}) knows it of {', '.join(sorted(others[0].loggers))}"
        return [_row("unrecognised", f"its logger is out of scope; {knows}")]
    else:
        lines = [_row("unrecognised", "no rule knows the beginning")]
    near = nearest(parser, statement)
    if not near:
        return [*lines, "    No rule begins like it."]
    lines.append(_row("nearest", "the rules that got furthest"))
    for other, got, why in near:
        lines += [f"    {other.name} ({other.file})", *marked(statement, got.at, "      "), f"      {why}"]
    return lines


def nearest(parser: Parser, statement: str) -> list[tuple[Rule, Reach, str]]:
    """The rules that could have been meant, the furthest first, with what each would have needed next.

    Rules whose `starts` the statement has are tried in full, of the others the literal beginning is compared.
    """
    found: list[tuple[Rule, Reach, str]] = []
    claimed = [rule for rule in parser.ruleset.rules if rule.claims(statement)]
    for rule in parser.ruleset.rules:
        start = max(rule.starts, key=lambda s: _common(s, statement))
        common = _common(start, statement)
        if common < len(start):
            if common >= max(LEAST_START, min(8, len(start) - 1)):
                found.append((rule, Reach(common, start[common:]), f"expected next: {visible(start[common:])}"))
            continue
        if len(start) < LEAST_START and rule not in claimed:
            continue
        got = reach(compiled(rule.pattern), statement)
        if rule.contains is not None and rule.contains not in statement:
            why = f"this rule wants it to contain: {visible(rule.contains)}"
        elif parser.accepts(rule.name, statement):
            why = f"its pattern fits, but {claimed[0].name} is asked first" if claimed else "its pattern fits"
        else:
            why = f"expected next: {visible(got.expected)}" if got.expected else "expected: the end of the statement"
        found.append((rule, Reach(max(got.at, len(start)), got.expected), why))
    first = claimed[0].name if claimed else None
    found.sort(key=lambda entry: (entry[0].name != first, -entry[1].at, entry[0].name))
    if not found:
        return _alike(parser, statement)[:SHOWN_RULES]
    far = max(got.at for _, got, _ in found)
    return [entry for entry in found if entry[1].at * 4 >= far][:SHOWN_RULES]


def _alike(parser: Parser, statement: str) -> list[tuple[Rule, Reach, str]]:
    """Rules whose literal beginning is much like the statement's, where none begins the same."""
    scored = []
    for rule in parser.ruleset.rules:
        for start in rule.starts:
            likeness = SequenceMatcher(None, statement[: len(start)], start)
            if len(start) >= 8 and likeness.quick_ratio() >= ALIKE and likeness.ratio() >= ALIKE:
                scored.append((-likeness.ratio(), rule.name, rule, start))
    scored.sort(key=lambda entry: entry[:2])
    return [
        (rule, Reach(_common(start, statement), start), f"begins much alike: {visible(start)}") for _, _, rule, start in scored
    ]


def _common(start: str, statement: str) -> int:
    """Length of the common beginning."""
    for at, (a, b) in enumerate(zip(start, statement, strict=False)):
        if a != b:
            return at
    return min(len(start), len(statement))
