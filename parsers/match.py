"""Reference matcher: what a record says, on Python's `re`. Samples, lint and `explain` use it; Spark must agree with it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import schemas
from parsers.layouts import (
    EPOCH_INSTANT,
    EPOCH_MILLIS,
    EPOCH_MS,
    EPOCH_SECONDS,
    ISO_WHOLE,
    LEVELS,
    SPEAKER,
    Layout,
    Wrapper,
    wrapping,
)
from parsers.patterns import GROUP, NOT_PRINTED, THROWABLE, to_python
from parsers.rules import ITEMS, Rule, RuleSet, built_in, full_name

_NOT_PRINTED = re.compile(NOT_PRINTED)
_INT_RANGE = {"int": 2**31, "bigint": 2**63}


@dataclass(frozen=True)
class Record:
    """A record whose head is known. `ts` is `yyyy-MM-dd HH:mm:ss.SSS` and the zone, if the line or the layout names one.

    rest: the lines after the first, or the stack trace inside of it. fits: whether the layout takes all of it; if not, its slots
    are empty and the statement is the first line.
    """

    layout: str
    ts: str | None
    level: str | None
    logger: str | None
    thread: str | None
    speaker: str
    statement: str
    rest: str
    fits: bool = True


def typed(text: str, kind: str) -> Any:
    """A captured text as the vocabulary's type; None where it is empty or does not fit."""
    if text == "":
        return None
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
    if kind == "int_list":
        ids = re.findall(r"-?\d+", re.sub(r"brokerEpoch=-?\d+", "", text), re.ASCII)
        return [int(n) for n in ids if abs(int(n)) < 2**31]
    return int(text) if re.fullmatch(r"-?\d+", text) and abs(int(text)) < _INT_RANGE[kind] else None


class Unwrapper:
    """Takes from a line what no layout prints: control characters, colours, what a collector put before it."""

    def __init__(self, wrappers: Iterable[Wrapper]) -> None:
        self._pattern = to_python(GROUP.sub("(?:", wrapping(wrappers)))

    def __call__(self, line: str) -> str:
        line = _NOT_PRINTED.sub("", line).rstrip("\r")
        found = self._pattern.match(line)
        return line[found.end() :] if found else line


class Joiner:
    """Puts lines together that a collector has cut: each piece but the last is marked as partial."""

    def __init__(self, wrappers: Iterable[Wrapper]) -> None:
        self._patterns = [to_python(wrapper.pattern) for wrapper in wrappers if "(?<partial>" in wrapper.pattern]

    def _piece(self, line: str) -> re.Match[str] | None:
        return next((found for pattern in self._patterns if (found := pattern.match(line))), None)

    def knows(self, line: str) -> bool:
        """Whether the line is of a collector that cuts lines."""
        return self._piece(line) is not None

    def is_partial(self, line: str) -> bool:
        """Whether the line goes on in another one."""
        found = self._piece(line)
        return found is not None and found["partial"] is not None

    def __call__(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines (without their ends), each whole; in the order in which they end. What has no end comes last."""
        begun: dict[str, list[str]] = {}
        for line in lines:
            found = self._piece(line)
            if found is None:
                yield line
                continue
            pieces = begun.setdefault(found["stream"], [])
            pieces.append(line[found.end() :] if pieces else line)
            if found["partial"] is None:
                yield "".join(begun.pop(found["stream"]))
        yield from map("".join, begun.values())


def _not_json(text: str) -> float:
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_constant=_not_json)
_ISO_WHOLE, _MILLIS, _SECONDS = to_python(ISO_WHOLE), to_python(EPOCH_MILLIS), to_python(EPOCH_SECONDS)
_INSTANT, _SPEAKER = to_python(EPOCH_INSTANT), to_python(SPEAKER)


def _at(content: Mapping[str, Any], path: str) -> str | None:
    """What stands at a path as text: a key, or key b of object a for `a.b`; None where nothing does, or an empty text."""
    value = content.get(path)
    outer, dot, inner = path.partition(".")
    if value is None and dot:
        value = content.get(outer)
        value = value.get(inner) if isinstance(value, dict) else None
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def time_text(text: str) -> str | None:
    """`yyyy-MM-dd HH:mm:ss.SSS` and the zone, of ISO text or a count since 1970; None of other text."""
    if found := _ISO_WHOLE.fullmatch(text):
        values = {name: value or "" for name, value in found.groupdict().items()}
        return "{date} {clock}{fraction}{zone}".format_map(values).replace(",", ".")
    millis = None
    if _MILLIS.fullmatch(text):
        millis = int(text)
    elif _SECONDS.fullmatch(text):
        millis = int(text) * 1000
    elif found := _INSTANT.fullmatch(text):
        millis = int(found["seconds"]) * 1000 + int(found["nanos"] or 0) // 1_000_000
    if millis is None:
        return None
    return f"{datetime.fromtimestamp(millis // 1000, UTC):%Y-%m-%d %H:%M:%S}.{millis % 1000:03d}Z"


def json_slots(layout: Layout, line: str) -> dict[str, str | None] | None:
    """The slots of a JSON record; None where it is no JSON, or has no time, level and message."""
    assert layout.json is not None
    try:
        content, _ = _DECODER.raw_decode(line)
    except (ValueError, RecursionError):
        return None
    keys = layout.json

    def first(slot: str, text: bool = False) -> str | None:
        found = [value for path in keys[slot] if (value := _at(content, path)) and not (text and value[0] in "[{")]
        return found[0] if found else None

    time, level, message = first("time"), (first("level") or "").upper(), first("message")
    ts = time_text(time) if time else None
    if ts is None or level not in LEVELS or message is None:
        return None
    thrown = first("stack_trace", text=True)
    if thrown is None and (error_class := first("error_class")):
        thrown = error_class + (f": {said}" if (said := first("error_message")) else "")
    message = message.replace("\x01", "").rstrip("\r\n")
    speaker = _SPEAKER.match(message)
    at = speaker.end() if speaker else 0
    slots = {"logger": first("logger"), "thread": first("thread"), "thrown": thrown}
    slots = {name: value and value.replace("\x01", "") for name, value in slots.items()}
    return {"json": ts, "level": level, "speaker": message[:at], "statement": message[at:], **slots}


class Matcher:
    """A rule set compiled for Python."""

    def __init__(self, ruleset: RuleSet | None = None) -> None:
        self.ruleset = ruleset or built_in()
        self.unwrapped = Unwrapper(self.ruleset.wrappers)
        self.joined = Joiner(self.ruleset.wrappers)
        self._layouts = [(lay, to_python(lay.head), to_python(lay.line)) for lay in self.ruleset.layouts]
        self._spanning = [(lay, head, to_python(lay.record)) for lay, head, _ in self._layouts if lay.record]
        self._rules = {rule.name: rule for rule in self.ruleset.rules}
        self._own_marks = to_python(self.ruleset.own_marks(self.ruleset.layouts))
        self._anonymous = {layout.name for layout in self.ruleset.layouts if not layout.names_logger}
        self._speakers = [(speaker, to_python(speaker.pattern)) for speaker in self.ruleset.speakers]

    def record(self, text: str, bare: bool = True) -> Record | None:
        """The header of a record (its lines joined by newlines), or None if no layout has such a line."""
        text = "\n".join(map(self.unwrapped, self.joined(text.rstrip("\r\n").split("\n"))))
        first, newline, rest = text.partition("\n")
        begun = [(layout, line) for layout, head, line in self._layouts if (bare or not layout.bare) and head.match(first)]
        if not begun:
            return None
        for layout, line in begun:
            if layout.json:
                if said := json_slots(layout, first):
                    return self._record(layout, said, rest)
            elif found := line.fullmatch(text):
                return self._record(layout, found.groupdict(), rest)
        for layout, head, record in self._spanning if newline else ():
            if (bare or not layout.bare) and head.match(first) and (found := record.fullmatch(text)):
                return self._record(layout, found.groupdict(), rest)
        return Record(begun[0][0].name, None, None, None, None, "", first, rest, fits=False)

    def _record(self, layout: Layout, slots: Mapping[str, str | None], rest: str) -> Record:
        values = {name: value or "" for name, value in slots.items()}
        logger, speaker = layout.logger or values.get("logger") or None, values.get("speaker", "")
        ts = layout.time.format_map(values).replace(",", ".")
        return Record(
            layout=layout.name,
            ts=(time_text(ts) if layout.time == EPOCH_MS else ts) or None,
            level=values.get("level") or None,
            logger=full_name(logger, speaker, self.ruleset) if logger and layout.cuts else logger,
            thread=values.get("thread") or None,
            speaker=speaker,
            statement=values["statement"],
            rest="\n".join(filter(None, (values.get("thrown"), rest))),
        )

    def speaker(self, text: str) -> dict[str, Any]:
        """node, controller, controller_epoch, topic, partition as the speaker gives them."""
        for speaker, pattern in self._speakers:
            if found := pattern.fullmatch(text):
                words = {key: value for key, value in found.groupdict().items() if value}
                if speaker.is_controller:
                    words["controller"] = words["node"]
                return {key: typed(value, "string" if key == "topic" else "int") for key, value in words.items()}
        return {}

    def accepts(self, rule: str, statement: str) -> bool:
        """Whether the rule's pattern takes the whole statement."""
        return to_python(self._rules[rule].pattern).fullmatch(statement) is not None

    def in_scope(self, record: Record) -> bool:
        """Whether the record is kept: its logger is one that rules are about, or nothing says that it is another program's."""
        if not record.fits:
            return self._own_marks.search(record.statement) is not None
        if record.logger is None:
            return record.layout in self._anonymous or bool(self.speaker(record.speaker))
        return self.ruleset.in_scope(record.logger)

    def claimant(self, record: Record) -> Rule | None:
        """The rule that the dispatch chooses, or None where the logger is out of scope or no rule knows the text."""
        if not record.fits or not self.in_scope(record):
            return None
        return next((rule for rule in self.ruleset.rules if rule.claims(record.statement)), None)

    def events(self, record: Record) -> list[dict[str, Any]]:
        """What the record says: one dict an item, of event_type, says and the captured columns.

        One dict with event_type None where nothing is known (`drifted` tells why).
        """
        spoken = self.speaker(record.speaker)
        common: dict[str, Any] = {"item": 0, "event_type": None, "says": None, "drifted": False, **spoken}
        for line in record.rest.split("\n"):
            if thrown := re.fullmatch(THROWABLE, line.strip("\r")):
                common |= {"error_class": thrown.group(1), "error_message": thrown.group(2) or None}
                break
        rule = self.claimant(record)
        if rule is None:
            return [common]
        found = to_python(rule.pattern).fullmatch(record.statement)
        if found is None:
            return [common | {"drifted": True}]
        kinds = schemas.vocabulary()
        said = {"event_type": rule.name, "says": rule.says}

        def columns(groups: Mapping[str, str | None]) -> dict[str, Any]:
            values = {name: typed(text or "", kinds[name]["type"]) for name, text in groups.items() if name != ITEMS}
            return {name: value for name, value in values.items() if value is not None}

        event = common | said | dict(rule.implies) | columns(found.groupdict())
        if rule.each is None:
            return [event]
        items = list(to_python(rule.each.pattern).finditer(found.group(ITEMS) or ""))
        return [event | columns(item.groupdict()) | {"item": number} for number, item in enumerate(items)] or [event]
