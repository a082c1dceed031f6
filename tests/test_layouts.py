"""Layouts: every ConversionPattern becomes a header parser, or a sentence that says why not."""

from __future__ import annotations

import pytest
from samples import MATCHER

from parsers.layouts import from_conversion_pattern, layouts
from parsers.patterns import DefinitionError, check_dialect, to_python

STATEMENT = "Changed partition audit-0 state from NonExistentPartition to NewPartition with assigned replicas 1,2,3"
SLOTS = {"date": "2026-11-20", "clock": "10:09:12", "level": "INFO", "logger": "state.change.logger"}

PRINTED = {
    "[%d] %p %m (%c)%n": "[{day} {time},175] INFO {message} (state.change.logger)",
    "[%d] [%p] [%t] [%c] - %m%n": ("[{day} {time},175] [INFO] [event-thread] [state.change.logger] - {message}"),
    "%d{ISO8601} %p %m (%c) [%t]%n": "{day} {time},175 INFO {message} (state.change.logger) [event-thread]",
    "%d{ISO8601} %p %c: %m%n": "{day} {time},175 INFO state.change.logger: {message}",
    "%d %-5p [%t] %c{2}: %m%n": "{day} {time},175 INFO  [main] state.change.logger: {message}",
    "[%d{yyyy-MM-dd HH:mm:ss.SSS}] %5p %c - %m%n": "[{day} {time}.175]  INFO state.change.logger - {message}",
    "%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %level %logger %msg%n": ("{day}T{time}.175+01:00 INFO state.change.logger {message}"),
    "%d{yyyy-MM-dd HH:mm:ss,SSS}{GMT+9} %p %m (%c:%L)%n": ("{day} {time},175 INFO {message} (state.change.logger:7)"),
}


def printed_by(pattern: str) -> str:
    """What log4j prints with a ConversionPattern."""
    message = f"[Controller id=1 epoch=1] {STATEMENT}"
    return PRINTED[pattern].format(day="2026-11-20", time="10:09:12", message=message)


@pytest.mark.parametrize("pattern", PRINTED)
def test_what_a_conversion_pattern_prints_is_read(pattern: str) -> None:
    head, line, record = from_conversion_pattern(pattern, "test")
    text = printed_by(pattern)
    found = to_python(line).fullmatch(text)
    assert found is not None
    slots = found.groupdict()
    assert {name: slots[name] for name in SLOTS} == SLOTS
    assert slots["speaker"] == "[Controller id=1 epoch=1] "
    assert slots["statement"] == STATEMENT
    assert slots["fraction"] == "175"
    assert to_python(head).match(text)
    for part in (head, line, record):
        check_dialect(part, "test")


@pytest.mark.parametrize("pattern", PRINTED)
def test_lines_after_the_first_belong_to_the_record(pattern: str) -> None:
    head, _, record = from_conversion_pattern(pattern, "test")
    trace = "kafka.common.StateChangeFailedException: no leader\n\tat kafka.controller.A.run(A.scala:1)"
    found = to_python(record).fullmatch(printed_by(pattern) + "\n" + trace)
    assert found is not None
    assert found.group("statement") == STATEMENT
    assert not any(to_python(head).match(line) for line in trace.split("\n"))


def test_message_of_many_lines() -> None:
    """KafkaConfig prints its values as one message: the logger stands at the end of the last line."""
    record = MATCHER.record("[2026-11-20 10:09:02,417] INFO KafkaConfig values: \n\tbroker.id = 1\n (kafka.server.KafkaConfig)")
    assert record is not None
    assert (record.logger, record.level) == ("kafka.server.KafkaConfig", "INFO")


def test_zone_is_kept_with_the_time() -> None:
    _, line, _ = from_conversion_pattern("%d{yyyy-MM-dd HH:mm:ss,SSS Z} %p %m (%c)%n", "test")
    found = to_python(line).fullmatch("2026-11-20 10:09:12,175 +0930 INFO starting (kafka.server.KafkaServer)")
    assert found is not None
    assert found.group("zone") == "+0930"


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("[%d] %p %highlight %m%n", "%highlight is not supported"),
        ("[%d] %q %m%n", "%q is not supported"),
        ("[%d] %p (%c)%n", "no %m in the pattern"),
        ("[%d] %d %p %m%n", "%d stands twice"),
        ("%m %m%n", "%m stands twice"),
        ("[%d{dd.MM.yyyy HH:mm}] %p %m%n", "date format {dd.MM.yyyy HH:mm} is not supported"),
        ("[%d{ABSOLUTE}] %p %m%n", "date format {ABSOLUTE} is not supported"),
        ("[%d{UNIX_MILLIS}] %p %m%n", "date format {UNIX_MILLIS} is not supported"),
        ("", "no %m in the pattern"),
    ],
)
def test_unsupported_conversions_are_named(pattern: str, complaint: str) -> None:
    with pytest.raises(DefinitionError) as told:
        from_conversion_pattern(pattern, "layout strimzi")
    assert str(told.value).startswith("layout strimzi: ")
    assert complaint in str(told.value)


def test_samples_of_the_built_in_layouts() -> None:
    for layout in layouts():
        assert layout.samples, f"layout {layout.name} has no sample"
        for sample in layout.samples:
            record = MATCHER.record(sample["line"])
            assert record is not None, sample["line"]
            assert record.layout == layout.name
            assert {name: getattr(record, name) for name in sample["gives"]} == dict(sample["gives"])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\tat kafka.controller.KafkaController.run(KafkaController.scala:1)",
        "Caused by: java.io.IOException: Broken pipe",
        "[2026-11-20] INFO no clock (kafka.server.KafkaServer)",
        "[2026-11-20 10:09:12,175] NOTICE no such level (kafka.server.KafkaServer)",
        "GET /index.html HTTP/1.1",
        "prose (with an aside)",
        "٢٠٢٦-11-20 10:09:12,175 INFO digits of another script (kafka.server.KafkaServer)",
    ],
)
def test_other_lines_are_no_records(line: str) -> None:
    assert MATCHER.record(line, bare=False) is None
