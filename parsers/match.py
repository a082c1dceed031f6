"""Reference matcher: what a record says, on Python's `re`. Samples, lint and `explain` use it; Spark must agree with it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import schemas
from parsers.layouts import layouts
from parsers.patterns import to_python
from parsers.rules import ITEMS, Rule, RuleSet, built_in

# first line of a stack trace: `kafka.common.StateChangeFailedException: Failed to elect leader ..`
THROWABLE = r"(?:Caused by: )?([\w.$]+\.[\w$]*(?:Exception|Error|Throwable)[\w$]*)(?:: (.*))?"
# what no layout prints, but crashes (NUL padding) and terminals (colours) leave
NOT_PRINTED = re.compile("[\x00\x01]|\x1b\\[[0-9;]*[A-Za-z]")
_INT_RANGE = {"int": 2**31, "bigint": 2**63}


@dataclass(frozen=True)
class Record:
    """A record whose header was understood. `ts` is as printed, `yyyy-MM-dd HH:mm:ss.SSS`, in no zone of its own."""

    layout: str
    ts: str | None
    level: str | None
    logger: str | None
    thread: str | None
    speaker: str
    statement: str
    rest: str


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


def in_utc(millis: int) -> str | None:
    """Milliseconds since 1970 as a record's time stamp; None beyond the year 9999."""
    try:
        moment = datetime.fromtimestamp(millis // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%d %H:%M:%S}.{millis % 1000:03d}Z"


class Matcher:
    """A rule set compiled for Python."""

    def __init__(self, ruleset: RuleSet | None = None) -> None:
        self.ruleset = ruleset or built_in()
        self._layouts = [(lay, to_python(lay.head), to_python(lay.line), to_python(lay.record)) for lay in layouts()]
        self._rules = {rule.name: (rule, to_python(rule.pattern)) for rule in self.ruleset.rules}
        self._items = {rule.name: to_python(rule.each.pattern) for rule in self.ruleset.rules if rule.each}
        self._speakers = [(speaker, to_python(speaker.pattern)) for speaker in self.ruleset.speakers]

    def record(self, text: str, bare: bool = True) -> Record | None:
        """The header of a record (its lines joined by newlines), or None if no layout has such a line."""
        text = NOT_PRINTED.sub("", text).rstrip("\r\n")
        first, newline, rest = text.partition("\n")
        for layout, head, line, whole in self._layouts:
            if (layout.bare and not bare) or not head.match(first):
                continue
            found = line.fullmatch(first) if not newline else whole.fullmatch(text)
            found = found or (line.fullmatch(first) if newline else None)
            slots: Mapping[str, str | None] = found.groupdict() if found else {}
            ts = None
            if slots.get("date"):
                fraction = slots.get("fraction")
                ts = f"{slots['date']} {slots['clock']}" + (f".{fraction}" if fraction else "") + (slots.get("zone") or "")
            elif millis := slots.get("epoch_ms"):
                ts = in_utc(int(millis))
            return Record(
                layout.name,
                ts,
                slots.get("level"),
                layout.logger or slots.get("logger"),
                slots.get("thread"),
                slots.get("speaker") or "",
                slots.get("statement") or ("" if found else first),
                rest,
            )
        return None

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
        return self._rules[rule][1].fullmatch(statement) is not None

    def claimant(self, record: Record) -> Rule | None:
        """The rule that the dispatch chooses, or None where the logger is out of scope or no rule knows the text."""
        if not self.ruleset.in_scope(record.logger):
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
        found = self._rules[rule.name][1].fullmatch(record.statement)
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
        items = list(self._items[rule.name].finditer(found.group(ITEMS) or ""))
        return [event | columns(item.groupdict()) | {"item": number} for number, item in enumerate(items)] or [event]
