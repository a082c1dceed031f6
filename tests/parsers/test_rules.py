"""The rules are sound, distinguished by the dispatch, and fast on any text."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from samples import PARSER, SAMPLES, leaders_of

from parsers.definitions import rule_problems
from parsers.layouts import shapes
from parsers.patterns import check_dialect, compiled
from parsers.rules import LogIdentPattern, RuleSet, built_in

MEGABYTE = 1024 * 1024
# a pattern that is linear needs some 10 ms for a megabyte; one that is not needs hours
PATIENCE = 2.0
A_LONG_TIME = 0.2
FILLERS = [
    "x",
    "9",
    " ",
    "[(",
    "a b ",
    "orders-0,",
    "a-1, ",
    "[Topic=a,Partition=0,Replica=1],",
    "a-0 -> List(1, 2), ",
]
RULESET: RuleSet = built_in()


class TooSlow(Exception):
    """A pattern did not come to an end in time."""


@contextmanager
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Of CPU time.

    Python's `re` looks for signals while it matches, so a pattern that runs away can be stopped.
    """

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_lint_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert rule_problems(RULESET) == []
    number = sum(len(rule.samples) for rule in RULESET.rules)
    with capsys.disabled():
        print(f"\n{len(RULESET.rules)} rules, {number} samples, {len(RULESET.loggers)} loggers")


@pytest.mark.parametrize("name", [rule.name for rule in RULESET.rules])
def test_samples_give_their_values(name: str) -> None:
    for sample in (sample for sample in SAMPLES if sample.rule.name == name):
        events = PARSER.events(sample.record)
        assert [event["event_type"] for event in events] == [name] * len(sample.gives), sample.line
        for event, expected in zip(events, sample.gives, strict=True):
            assert {column: event.get(column) for column in expected} == dict(expected), sample.line


def test_every_sample_is_accepted_by_its_own_rule_only() -> None:
    for sample in SAMPLES:
        statement = sample.record.statement
        claiming = [rule.name for rule in RULESET.rules if rule.claims(statement)]
        claimant = PARSER.claimant(sample.record)
        assert claimant is not None, sample.line
        assert claimant.name == sample.rule.name, sample.line
        assert [name for name in claiming if PARSER.accepts(name, statement)] == [sample.rule.name], (
            sample.line
        )


def test_no_rule_hides_another() -> None:
    """A rule that is asked later must have statements that no earlier one claims."""
    for number, rule in enumerate(RULESET.rules):
        for earlier in RULESET.rules[:number]:
            takes_every_start = all(start.startswith(earlier.starts) for start in rule.starts)
            takes_every_text = earlier.contains is None or earlier.contains in (rule.contains or "")
            assert not (takes_every_start and takes_every_text), (
                f"{earlier.name} takes all statements of {rule.name}"
            )


def test_names_are_unique() -> None:
    names = [rule.name for rule in RULESET.rules]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("ident", RULESET.log_idents, ids=lambda ident: ident.name)
def test_dialect_of_log_idents(ident: LogIdentPattern) -> None:
    check_dialect(ident.pattern, ident.name)


def test_dialect_of_rules_and_layouts() -> None:
    for rule in RULESET.rules:
        check_dialect(rule.pattern, rule.name)
        if rule.each is not None:
            check_dialect(rule.each, rule.name)
    for layout in shapes().layouts:
        for pattern in (layout.head, layout.line, layout.record):
            check_dialect(pattern, layout.name)


def _long(beginning: str, piece: str, size: int) -> str:
    return beginning + piece * (size // len(piece) + 1)


@pytest.mark.parametrize("filler", ["a", "orders-1, ", "1,2,3 ", "its own statement", "its own end"])
def test_a_line_of_a_megabyte_is_no_trap(filler: str) -> None:
    """Each pattern meets a line that begins as it likes and then goes on and on, as a garbled record does."""
    slow = []
    for rule in RULESET.rules:
        statement = next(sample.record.statement for sample in SAMPLES if sample.rule is rule)
        half = len(statement) * 2 // 3
        if filler == "its own statement":
            text = _long("", statement + " ", MEGABYTE)
        elif filler == "its own end":
            text = _long(statement[:half], statement[half:], MEGABYTE)
        else:
            text = _long(statement[:half], filler, MEGABYTE)
        try:
            with patience():
                PARSER.accepts(rule.name, text)
        except TooSlow:
            slow.append(f"{rule.file} [{rule.name}]")
    assert slow == []


@pytest.mark.parametrize("filler", FILLERS)
def test_long_values_are_read_fast(filler: str) -> None:
    """At every place where a sample has a value: a pattern that is not linear needs seconds for 20,000
    characters already.
    """
    slow = set()
    for sample in SAMPLES:
        statement = sample.record.statement
        found = compiled(sample.rule.pattern).fullmatch(statement)
        assert found is not None
        spans = [found.span(group) for group in found.groupdict()]
        places = {place for begin, end in spans if begin >= 0 for place in (begin, end)}
        for place in {len(sample.rule.starts[0]), len(statement), *places}:
            text = statement[:place] + filler * (20_000 // len(filler)) + statement[place:]
            began = time.process_time()
            PARSER.accepts(sample.rule.name, text)
            if time.process_time() - began > A_LONG_TIME:
                slow.add(sample.rule.name)
    assert slow == set()


@pytest.mark.parametrize("pattern", sorted({rule.each for rule in RULESET.rules if rule.each}))
def test_a_list_of_no_items_is_no_trap(pattern: str) -> None:
    """An item is looked for at every character of a list, which may be anything."""
    items = compiled(pattern)
    for filler in FILLERS:
        with patience():
            deque(items.finditer(filler * (50_000 // len(filler))), maxlen=0)


def test_a_record_of_ten_megabytes_is_read() -> None:
    """A controller prints the leader and ISR of a hundred thousand partitions as one record."""
    number = 10 * MEGABYTE // 100
    line = leaders_of(number)
    assert len(line) > 10 * MEGABYTE
    with patience(10):
        record = PARSER.record(line)
        assert record is not None
        events = PARSER.events(record)
    assert [event["partition"] for event in events] == list(range(number))
    assert {event["event_type"] for event in events} == {"leaders_at_shutdown"}


def test_a_partition_state_of_ten_megabytes_is_read_or_drift() -> None:
    """No request has that many brokers in its ISR, but a garbled one may look so."""
    brokers = ", ".join(["7"] * (10 * MEGABYTE // 3))
    sample = next(
        sample.line
        for sample in SAMPLES
        if "isr" in sample.rule.columns
        and "become-leader LeaderAndIsr" in sample.line
        and "isr=[" in sample.line
    )
    start, end = sample.index("isr=[") + 5, sample.index("]", sample.index("isr=["))
    with patience(10):
        record = PARSER.record(sample[:start] + brokers + sample[end:])
        assert record is not None
        (event,) = PARSER.events(record)
    assert event["drifted"] or len(event["isr"]) > 3_000_000
