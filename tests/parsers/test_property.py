"""Samples with other numbers and names are read the same way; garbage raises no exception."""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from samples import BROKER_STATE, NUMBER, PARSER, SAMPLES, Sample, Value, values

CONTROLLER_LOGGERS = ("state.change.logger", "kafka.controller.")
CONTROLLER_SAMPLES = [
    sample
    for sample in SAMPLES
    if (sample.record.logger or "").endswith(CONTROLLER_LOGGERS[0]) or CONTROLLER_LOGGERS[1] in sample.line
]
# one strategy for all draws: hypothesis looks at every sample when a strategy is created
A_SAMPLE = st.sampled_from(SAMPLES)
LONGEST_TOPIC = ("a.b_c-9" * 36)[:249]
INT_MAX, BIGINT_MAX = 2**31 - 1, 2**63 - 1

# edges first: hypothesis takes the first of several more often
ids = st.one_of(st.sampled_from([0, 1, INT_MAX]), st.integers(0, INT_MAX))
offsets = st.one_of(st.sampled_from([0, BIGINT_MAX]), st.integers(0, BIGINT_MAX))
# names that Kafka allows; some look like a partition, a number or a list on purpose
topics = st.one_of(
    st.sampled_from(
        [
            "__consumer_offsets",
            "a",
            "orders-1",
            "2020-logs-1",
            "1",
            "-",
            "-1",
            "a.b_c-d",
            "9-9-9",
            "x" * 249,
            LONGEST_TOPIC,
        ]
    ),
    st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=30).filter(
        lambda name: name not in {".", ".."}
    ),
)


def replaced(
    value: Value, text: str, numbers: Iterator[int], large: Iterator[int], names: Iterator[str]
) -> tuple[str, Any]:
    """Draw (new text, expected value); a text that is no number and no topic is unchanged."""
    if value.column == "topic":
        name = next(names)
        return name, name
    if value.kind in {"int", "bigint"}:
        number = next(numbers if value.kind == "int" else large)
        return str(number), number
    if value.kind == "int_list":
        found: list[int] = []

        def other(_: object) -> str:
            found.append(next(numbers))
            return str(found[-1])

        return (BROKER_STATE if "brokerId=" in text else NUMBER).sub(other, text), found
    return text, None


def varied(
    sample: Sample, numbers: list[int], large: list[int], names: list[str]
) -> tuple[str, list[tuple[Value, Any]]]:
    """Draw the line of a sample with other values; return it with the values."""
    line = sample.line
    expected = []
    sources = cycle(numbers), cycle(large), cycle(names)
    for value in sorted(values(sample), key=lambda v: -v.start):
        text, read = replaced(value, line[value.start : value.end], *sources)
        if read is not None:
            line = line[: value.start] + text + line[value.end :]
            expected.append((value, read))
    return line, expected


def test_there_are_samples_of_the_controller() -> None:
    assert len(CONTROLLER_SAMPLES) > 300
    assert (
        sum(1 for sample in CONTROLLER_SAMPLES for value in values(sample) if value.column == "topic") > 100
    )


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(ids, min_size=7, max_size=7),
    st.lists(offsets, min_size=3, max_size=3),
    st.lists(topics, min_size=3, max_size=3),
)
@example([0, 1, INT_MAX, 7, 12, 5, 3], [0, BIGINT_MAX, 77], ["2020-logs-1", "1", "-"])
@example([5, 0, 9, INT_MAX, 1, 2, 3], [0, BIGINT_MAX, 77], ["9-9-9", "-1", LONGEST_TOPIC])
def test_other_values_are_read(numbers: list[int], large: list[int], names: list[str]) -> None:
    for sample in SAMPLES:
        line, expected = varied(sample, numbers, large, names)
        record = PARSER.record(line)
        assert record is not None, line
        events = PARSER.events(record)
        assert {event["event_type"] for event in events} == {sample.rule.name}, line
        of_items = {(value.item, value.column) for value, _ in expected if value.item is not None}
        for value, read in expected:
            for number, event in enumerate(events):
                if value.item == number or (value.item is None and (number, value.column) not in of_items):
                    assert event.get(value.column) == read, (value.column, line)


@settings(max_examples=300)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes(content: bytes) -> None:
    record = PARSER.record(content.decode("utf-8", "replace"))
    if record is not None:
        PARSER.events(record)


@settings(max_examples=400)
@given(st.data())
def test_cut_and_spliced_samples(data: st.DataObject) -> None:
    """Lines as after a full disk, a crash, or two threads that write one file."""
    one, other = (data.draw(A_SAMPLE).line for _ in range(2))
    at, to = data.draw(st.integers(0, len(one))), data.draw(st.integers(0, len(other)))
    rubbish = data.draw(
        st.sampled_from(
            ["", "\x00" * 8, "\x01", "\ufffd", "\n", "\r\n", "$1", "\\", "(", "]", "\u2028", "9" * 40]
        )
    )
    record = PARSER.record(one[:at] + rubbish + other[to:])
    if record is not None:
        for event in PARSER.events(record):
            assert event["event_type"] is None or not event["drifted"]


@settings(max_examples=200)
@given(st.data())
def test_any_statement_of_a_known_beginning(data: st.DataObject) -> None:
    """A statement that begins like a rule is read by it, or is drift."""
    sample = data.draw(A_SAMPLE)
    rest = data.draw(st.text(max_size=80))
    record = PARSER.record(
        f"[2026-11-20 10:09:12,175] INFO {sample.rule.starts[0]}{rest} (state.change.logger)"
    )
    if record is not None:
        assert PARSER.events(record)
