"""The samples of all rules, and the place of each captured value in a sample's line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import schemas
from parsers.events import Parser
from parsers.layouts import shapes
from parsers.patterns import compiled
from parsers.records import Record
from parsers.rules import ITEMS, Rule, built_in

PARSER = Parser()
NUMBER = re.compile(r"-?\d+")
BROKER_STATE = re.compile(r"(?<=brokerId=)\d+")


@dataclass(frozen=True)
class Sample:
    """One sample of one rule; `gives` has one entry an item."""

    rule: Rule
    line: str
    gives: tuple[Mapping[str, Any], ...]

    @cached_property
    def record(self) -> Record:
        """Return the record of the line."""
        record = PARSER.record(self.line)
        assert record is not None, self.line
        return record


@dataclass(frozen=True)
class Value:
    """A captured value and its place in the line.

    item: number of its item; None if it belongs to the whole record.
    """

    column: str
    item: int | None
    start: int
    end: int

    @property
    def kind(self) -> str:
        """Return its type in the vocabulary."""
        return schemas.vocabulary()[self.column]["type"]


def samples() -> list[Sample]:
    """Return all samples of all built-in rules."""
    return [
        Sample(rule, sample["line"], tuple(sample.get("gives_each", [sample.get("gives", {})])))
        for rule in built_in().rules
        for sample in rule.samples
    ]


def values(sample: Sample) -> Iterator[Value]:
    """Yield every value that the rule captures from the statement, in any order."""
    header = next(
        found
        for pattern in [layout.line for layout in shapes().layouts]
        + [layout.record for layout in shapes().layouts if layout.record]
        if (found := compiled(pattern).fullmatch(sample.line))
    )
    at = header.start("statement")
    statement = header.group("statement")
    found = compiled(sample.rule.pattern).fullmatch(statement)
    assert found is not None, statement
    for column, text in found.groupdict().items():
        if text and column != ITEMS:
            yield Value(column, None, at + found.start(column), at + found.end(column))
    if sample.rule.each is not None and found.group(ITEMS):
        within = at + found.start(ITEMS)
        for number, item in enumerate(compiled(sample.rule.each).finditer(found.group(ITEMS))):
            for column, text in item.groupdict().items():
                if text:
                    yield Value(column, number, within + item.start(column), within + item.end(column))


def leaders_of(number: int) -> str:
    """Return a record with partitions of one topic, 0 and up, 115 characters each. number: of partitions."""
    state = "(Leader:2,ISR:2,3,LeaderRecoveryState:RECOVERED,LeaderEpoch:2,ZkVersion:3,ControllerEpoch:1)"
    states = ",".join(f"orders-{partition} -> {state}" for partition in range(number))
    head = "[2026-11-20 10:19:53,006] TRACE [Controller id=3] All leaders ="
    return f"{head} {states} (kafka.controller.KafkaController)"


SAMPLES = samples()
