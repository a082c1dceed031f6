"""Explain as text how a log record is parsed, or how far each rule and layout matches it. No Spark."""

import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import schemas
from parsers.envelopes import Envelope, Learner, reader_of
from parsers.events import Parser
from parsers.patterns import DefinitionError, compiled
from parsers.proposals import proposed
from parsers.records import Record, split_lines
from parsers.rules import Rule, built_in, load

SHOWN_RULES = 5
SHOWN_LAYOUTS = 3
SHOWN_ITEMS = 20
SHOWN_CELLS = 300  # characters of one value
WIDTH = 100  # characters of a statement around its mark
EXPECTED = 60  # characters of the next piece of a pattern
# patterns are not tried on longer records, because a hostile one would take minutes
LONGEST = 1_000_000
MOST_RECORDS = 1_000
LEAST_START = 4  # shorter beginnings do not show which rule was meant
ALIKE = 0.75  # least likeness of a statement's beginning and a rule's `starts`
CARET = "^ matched up to here"


# -- how far a pattern gets --------------------------------------------------------------------------------


class Reach(NamedTuple):
    """How far a pattern matches: `at` characters match its beginning.

    `expected` is the pattern's next piece.
    `expected` is empty where the whole pattern matches and the text continues.
    """

    at: int
    expected: str


_QUANTIFIER = r"(?:[*+?]|\{\d*,?\d*\})[?+]?"
_PIECE = re.compile(
    rf"\((?:\?(?:[:=!>]|<[=!]|P<\w+>))?|\)(?:{_QUANTIFIER})?|\||(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)(?:{_QUANTIFIER})?",
    re.DOTALL,
)
_TAKES_ANYTHING = re.compile(r"\.[*+]|\((?:\?:|\?P<\w+>)?\.[*+]\)")


@lru_cache(maxsize=1_000)
def _beginnings(pattern: str) -> list[tuple[str, int]]:
    """Return (beginning that is a pattern itself, its length), from the empty one to the whole.

    If one of them does not match a text, no longer one does: none ends inside of a choice or a repeated
    group.
    """
    found: list[tuple[str, int]] = []
    # of each open group: number of beginnings before it, whether it is a choice
    groups, before = [(1, False)], ""
    for piece in _PIECE.finditer(pattern):
        text = piece.group()
        if text == "|":
            groups[-1] = groups[-1][0], True
        elif text[0] == ")":
            begun, is_choice = groups.pop()
            if is_choice or text != ")":
                del found[begun:]
        else:
            if before[:1] != "(":
                found.append((pattern[: piece.start()] + ")" * (len(groups) - 1), piece.start()))
            if text[0] == "(":
                groups.append((len(found), False))
        before = text
    if groups[0][1]:
        del found[1:]
    return [*found, (pattern, len(pattern))]


def reach(pattern: re.Pattern[str], text: str) -> Reach:
    """Return how far a compiled pattern matches a text, by bisection over its beginnings."""
    whole, steps = pattern.pattern, _beginnings(pattern.pattern)

    def match(number: int) -> re.Match[str] | None:
        return re.compile(steps[number][0], pattern.flags).match(text)

    last = bisect_left(range(1, len(steps)), True, key=lambda number: match(number) is None)
    # a piece that matches anything has run to the end in search of the next one, so the mark is before it
    while 0 < last < len(steps) - 1 and _TAKES_ANYTHING.fullmatch(whole[steps[last - 1][1] : steps[last][1]]):
        last -= 1
    found, begin = match(last), steps[last][1]
    ends = [end for _, end in steps[last + 1 :]]
    end = max([end for end in ends if end <= begin + EXPECTED], default=min(ends, default=begin))
    expected = whole[begin:end].replace("(?P<", "(?<")
    return Reach(found.end() if found else 0, expected if end == len(whole) else f"{expected.rstrip()} ..")


# -- text for a terminal -----------------------------------------------------------------------------------


def counted(count: int, thing: str) -> str:
    """Return a number with its noun: `1 partition`, `2,000 partitions`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def visible(text: str) -> str:
    """Return the text with an escape for each character that a terminal would interpret or not show."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str) -> str:
    """Return the visible text, cut to the width of a cell, with the number of missing characters."""
    more = len(text) - SHOWN_CELLS
    return visible(text) if more <= 0 else f"{visible(text[:SHOWN_CELLS])}.. ({more:,} characters more)"


def marked(text: str, at: int, indent: str) -> list[str]:
    """Return two lines: the text, cut around the mark, and a caret under character number `at`."""
    begin = max(0, min(at - WIDTH * 6 // 10, len(text) - WIDTH))
    end = begin + WIDTH
    before = (".." if begin else "") + visible(text[begin:at])
    after = visible(text[at:end]) + (".." if end < len(text) else "")
    columns = sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in before
    )
    return [indent + before + after, indent + " " * columns + CARET]


def _missed(text: str, at: int, why: str, indent: str) -> list[str]:
    """Return where a text stops matching, and what would have matched."""
    return [*marked(text, at, indent), indent + why]


def _expects(got: Reach) -> str:
    return f"expected next: {visible(got.expected)}" if got.expected else "expected: the end"


def _row(label: str, text: str) -> str:
    return f"  {label:<13} {text}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return cut(f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value))


# -- records -----------------------------------------------------------------------------------------------


def explain(text: str, site: Path | None) -> str:
    """Explain each record of a text: its header, its rule and values, or how far rules match.

    Layouts without a time stamp are tried only where no other one matches. site: a site's folder of rule
    files. Raises DefinitionError where these are wrong, and nothing because of the text.
    """
    if site is not None and not site.is_dir():
        raise DefinitionError(f"--rules {site}: no such folder")
    parser = Parser(load(site) if site is not None else built_in())
    lines = list(parser.joined(split_lines(text.rstrip("\r\n"))))
    unwrapped = [parser.unwrapped(line) for line in lines]
    bare = not any(map(parser.headers(False).begins, unwrapped))
    envelope = Learner(parser).learn(lines)
    reader = reader_of(parser, envelope if envelope and envelope.layers else None, bare)
    found = sorted((*reader.feed(lines), *reader.close()), key=lambda record: record.line_no)
    headless = unwrapped[: found[0].line_no - 1] if found else unwrapped
    parts = [(record.line_no, _explained(parser, record)) for record in found[:MOST_RECORDS]]
    if any(line.strip() for line in headless):
        parts.insert(0, (1, _headless(parser, headless)))
    explained = ["\n".join([f"line {line_no:,}"] * (len(parts) > 1) + part) for line_no, part in parts]
    if envelope and envelope.layers:
        explained.insert(0, _row("read as", visible(envelope.about)))
    if len(found) > MOST_RECORDS:
        explained.append(
            f"and {len(found) - MOST_RECORDS:,} records more; `kafka-audit audit` reads whole files"
        )
    return "\n\n".join(explained) or "Nothing but blank lines."


SHOWN_RECORDS = 3
PLAIN = "nothing but the layout"
KNOWN = "a collector's prefix (parsers/layouts.toml)"


def layout(parser: Parser, text: str, kind: str, envelope: Envelope | None, why: str = "") -> list[str]:
    """Return how a file that begins with the text is read, with three records; or a pattern to try.

    kind, why: as in `jobs.files.ingest.LogFile`.
    """
    if kind not in {"log", "bare"}:
        return (
            [_row("read as", "output of one of Kafka's tools")]
            if kind == "checkpoint"
            else _not_read(text, kind, why)
        )
    lines = split_lines(text)
    reader = reader_of(parser, envelope, kind == "bare")
    records = sorted((*reader.feed(lines), *reader.close()), key=lambda record: record.line_no)
    if not records:
        return _not_read(text, kind, why)
    wrapped = envelope is None and any(line != parser.unwrapped(line) for line in lines[:MOST_RECORDS])
    names = dict.fromkeys(record.layout for record in records)
    patterns = {one.name: one.pattern or "JSON" for one in parser.ruleset.layouts}
    found = [
        _row(
            "read as",
            visible(envelope.about) if envelope and envelope.layers else KNOWN if wrapped else PLAIN,
        ),
        *(_row("layout", visible(f"{name}   {patterns.get(name, '')}".rstrip())) for name in names),
        _row("time stamps", _stamps(records)),
        *([_row("node", envelope.contradiction.about)] if envelope and envelope.contradiction else []),
    ]
    # records of Kafka first, whole ones first
    for record in sorted(records, key=lambda one: (not one.fits, not parser.in_scope(one)))[:SHOWN_RECORDS]:
        parts = (record.ts or "no time stamp", record.level or "no level", record.logger or "no logger")
        found += ["", f"  line {record.line_no:,}: {'  '.join(map(cut, parts))}"]
        found.append(f"    {cut(record.log_ident + record.statement)}")
        if record.node is not None:
            found.append(f"    node {record.node}, as the envelope names it")
    if kind == "bare" and (pattern := proposed(lines)):
        found += ["", "  The lines seem to have time stamps, which no layout reads.", *_to_try(pattern)]
    return found


def _stamps(records: list[Record]) -> str:
    """Return a description of the time stamps."""
    stamps = [record.ts for record in records if record.ts]
    if not stamps:
        return "none: records keep the order of the file, and durations are not known"
    zones = sum(bool(re.search(r"[^\d.]", ts[19:])) for ts in stamps)
    return (
        "with a zone, which wins over --timezone"
        if zones == len(stamps)
        else "without a zone: --timezone gives it"
        if not zones
        else "some with a zone"
    )


def _not_read(text: str, kind: str, why: str) -> list[str]:
    """Return lines about a file that is not recognised: what it looks like, and a pattern to try."""
    found = [_row("not read", why or {"empty": "it is empty"}.get(kind, "no known layout has such lines"))]
    lines = split_lines(text)
    found += [f"    {cut(line)}" for line in lines[:SHOWN_RECORDS] if line.strip()]
    if pattern := proposed(lines):
        return [*found, "", *_to_try(pattern)]
    return found


def _to_try(pattern: str) -> list[str]:
    return [
        "  This pattern reads them. Put it into layouts.toml in the folder of --rules:",
        "    [own]",
        f"    conversion_pattern = {json.dumps(pattern)}",
    ]


def _headless(parser: Parser, lines: list[str]) -> list[str]:
    """Return lines about a first line that no layout matches, and how far the best heads match."""
    first, known = lines[0][:LONGEST], parser.ruleset.layouts
    found = [f"No layout has a line with such a head. The nearest of {len(known)}:"]
    reached = [(layout, reach(compiled(layout.head), first)) for layout in known]
    reached.sort(key=lambda entry: (entry[0].bare, -entry[1].at))  # any text matches much of a bare layout
    for layout, got in reached[:SHOWN_LAYOUTS]:
        shown = visible(f"{layout.name}   {layout.pattern or 'JSON'}")
        found += ["", _row("layout", shown), *_missed(first, got.at, _expects(got), "    ")]
    if len(lines) > 1:
        found += ["", f"  and {counted(len(lines) - 1, 'further line')} before a line with a known head"]
    return [
        *found,
        "",
        "  In a log file, such lines belong to the record before them (a stack trace).",
        '  A layout of your own is one line of layouts.toml in the folder of --rules: [name] conversion_pattern = "..", as in log4j.',
    ]


def _explained(parser: Parser, record: Record) -> list[str]:
    """Return lines about the header, the rule and the values of one record."""
    given = parser.log_ident(record.log_ident)
    of_ident = (
        {} if given is None else {name: value for name, value in given._asdict().items() if value is not None}
    )
    lines = _header(parser, record, of_ident)
    if not record.fits:
        layout = next(layout for layout in parser.ruleset.layouts if layout.name == record.layout)
        if layout.json:
            return [
                *lines,
                _row("unrecognised", "it is no JSON (is it cut off?), or has no time, level and message"),
            ]
        first = record.raw.partition("\n")[0][:LONGEST]
        got = reach(compiled(layout.line), first)
        lines.append(
            _row("unrecognised", "the head is known, the rest of the line does not fit (is it cut off?)")
        )
        return lines + _missed(first, got.at, _expects(got), "    ")
    rule = parser.claimant(record)
    if len(record.statement) > LONGEST:
        sent = f"the dispatch sends it to {_placed(rule)}" if rule else "no rule knows its beginning"
        return [
            *lines,
            _row("too long", f"{len(record.statement):,} characters: patterns are not tried; {sent}"),
        ]
    events = parser.events(record)
    for name in ("error_class", "error_message"):
        if events[0].get(name):
            lines.append(_row(name.replace("_", " "), cut(events[0][name])))
    if rule is None or events[0]["drifted"]:
        return lines + _unclaimed(parser, record, rule)
    return [
        *lines,
        _row("rule", f"{_placed(rule)}, says: {rule.says}"),
        *_values(rule, events, of_ident),
    ]


def _placed(rule: Rule) -> str:
    """Return a rule's name and file: below the repository if it is built in, else in the folder of --rules."""
    is_built_in = any(rule is one for one in built_in().rules)
    return f"{rule.name} ({'parsers/events/' if is_built_in else ''}{rule.file})"


def _header(parser: Parser, record: Record, of_ident: Mapping[str, Any]) -> list[str]:
    zoned = record.ts is None or re.search(r"[^\d.]", record.ts[19:])
    if not record.fits:
        logger = "not found"
    elif record.logger is None:
        logger = (
            "none in this layout: all of its records are in scope"
            if parser.in_scope(record)
            else "none: another program's"
        )
    else:
        out = "out of scope: no rule is about it; counted, not stored"
        logger = f"{cut(record.logger)} ({'in scope' if parser.in_scope(record) else out})"
    lines = [
        _row("layout", record.layout),
        _row("time stamp", visible(record.ts or "none in this layout") + ("" if zoned else UNZONED)),
        _row("level", record.level or "none"),
        _row("logger", logger),
    ]
    if record.thread:
        lines.append(_row("thread", cut(record.thread)))
    if record.log_ident:
        says = ", ".join(f"{name} = {_value(value)}" for name, value in of_ident.items())
        says = says or "nothing: no entry of log_idents.toml"
        lines.append(_row("log ident", f"{cut(record.log_ident.strip())} gives {says}"))
    lines.append(_row("statement", cut(record.statement)))
    if record.rest.strip():
        lines.append(_row("further lines", f"{record.rest.count(chr(10)) + 1:,}, they belong to the record"))
    return lines


UNZONED = " (in the zone of --timezone: the line names none)"


def _values(rule: Rule, events: list[dict[str, Any]], of_ident: Mapping[str, Any]) -> list[str]:
    """Return every column with its type and value; values that differ between items are below each item."""
    kinds = {"node": "int"} | {name: word["type"] for name, word in schemas.vocabulary().items()}
    origin = dict.fromkeys(of_ident, "   (log ident)") | dict.fromkeys(rule.implies, "   (implied)")
    named = [name for name in kinds if any(name in event for event in events)]
    shared = [
        name
        for name in named
        if all(name in event and event[name] == events[0].get(name) for event in events)
    ]
    width = max(map(len, named), default=0)

    def rows(event: Mapping[str, Any], names: list[str], indent: str) -> list[str]:
        return [
            f"{indent}{name:<{width}}  {schemas.SPARK_TYPES[kinds[name]]:<10}  {_value(event[name])}{origin.get(name, '')}"
            for name in names
            if name in event
        ]

    lines = (
        rows(events[0], shared, "    ")
        if named
        else ["    no values: the statement's text is all that it says"]
    )
    if len(events) > 1:
        lines.append(_row("items", f"{len(events):,}, one event each"))
        for event in events[:SHOWN_ITEMS]:
            lines += [
                f"    item {event['item']}",
                *rows(event, [name for name in named if name not in shared], "      "),
            ]
        if len(events) > SHOWN_ITEMS:
            lines.append(f"    and {len(events) - SHOWN_ITEMS:,} items more")
    missing = [name for name in rule.columns if name not in named]
    return lines + [f"    null: {', '.join(missing)}"] * bool(missing)


def _unclaimed(parser: Parser, record: Record, rule: Rule | None) -> list[str]:
    """Return lines about drift, or a statement that no rule matches, and how far the nearest rules match."""
    statement = record.statement
    if not parser.in_scope(record):
        knows = next(
            (
                f"; {_placed(r)} knows it of {', '.join(sorted(r.loggers))}"
                for r in parser.ruleset.rules
                if r.claims(statement)
            ),
            "",
        )
        return [_row("unrecognised", f"its logger is out of scope{knows}")]
    if rule is not None:
        lines = [_row("drift", f"rule {_placed(rule)} knows the beginning, but does not match")]
    else:
        lines = [_row("unrecognised", "no rule knows the beginning")]
    near = nearest(parser, statement)
    if not near:
        return [*lines, "    No rule begins like it."]
    lines.append(_row("nearest", "the rules that got furthest"))
    for other, at, why in near:
        lines += [f"    {_placed(other)}", *_missed(statement, at, why, "      ")]
    return lines


def nearest(parser: Parser, statement: str) -> list[tuple[Rule, int, str]]:
    """Return (rule, characters that match, next piece that it needs) of likely rules, best first.

    These are rules whose `starts` the statement mostly shares; if there are none, rules with a similar
    `starts`.
    """
    rules = parser.ruleset.rules
    claimed = [rule for rule in rules if rule.claims(statement)]
    found = []
    for rule in rules:
        common, start = max(
            ((_common(start, statement), start) for start in rule.starts), key=lambda entry: entry[0]
        )
        if common < len(start):
            if common >= max(LEAST_START, min(8, len(start) - 1)):
                found.append((rule, common, f"expected next: {visible(start[common:])}"))
        elif common >= LEAST_START or rule in claimed:
            got = reach(compiled(rule.pattern), statement)
            why = _expects(got)
            if rule.contains is not None and rule.contains not in statement:
                why = f"this rule wants it to contain: {visible(rule.contains)}"
            elif parser.accepts(rule.name, statement):
                why = "its pattern fits" + (f", but {claimed[0].name} is asked first" if claimed else "")
            found.append((rule, max(got.at, common), why))
    if found:
        found.sort(key=lambda entry: (entry[0] not in claimed[:1], -entry[1], entry[0].name))
        far = max(at for _, at, _ in found)
        return [entry for entry in found if entry[1] * 4 >= far][:SHOWN_RULES]
    starts = [(rule, start) for rule in rules for start in rule.starts if len(start) >= 8]
    scored = [
        (SequenceMatcher(None, statement[: len(start)], start).ratio(), rule, start) for rule, start in starts
    ]
    alike = sorted(
        (entry for entry in scored if entry[0] >= ALIKE), key=lambda entry: (-entry[0], entry[1].name)
    )
    return [
        (rule, _common(start, statement), f"begins much alike: {visible(start)}")
        for _, rule, start in alike[:SHOWN_RULES]
    ]


def _common(start: str, statement: str) -> int:
    """Return the length of the common beginning."""
    pairs = enumerate(zip(start, statement, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(start), len(statement)))
