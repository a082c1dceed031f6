"""Layouts: every ConversionPattern becomes a header parser, or a sentence that says why not."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import PARSER

from jobs.files.ingest import Sniffer
from jobs.nightly_audit import main
from parsers.definitions import SLOTS
from parsers.events import Parser
from parsers.layouts import Layout, from_conversion_pattern, from_json, shapes
from parsers.months import month
from parsers.patterns import DefinitionError, compiled
from parsers.proposals import proposed
from parsers.records import STACK_TRACE, Record, json_header, time_text
from parsers.rules import built_in, load

if TYPE_CHECKING:
    pass

STATEMENT = (
    "Changed partition audit-0 state from NonExistentPartition to NewPartition with assigned replicas 1,2,3"
)
MESSAGE = f"[Controller id=1 epoch=1] {STATEMENT}"
TRACE = "kafka.common.StateChangeFailedException: no leader\n\tat kafka.controller.A.run(A.scala:1)"
ENTRIES = [*shapes().layouts, *shapes().wrappers]

# pattern -> (what log4j prints with it, the time that is read)
PRINTED = {
    "[%d] %p %m (%c)%n": ("[2026-11-20 10:09:12,175] INFO {} (state.change.logger)", ".175"),
    "[%d] %p %m (%c:%L)%n": ("[2026-11-20 10:09:12,175] INFO {} (state.change.logger:7)", ".175"),
    "[%d] [%p] [%t] [%c] - %m%n": ("[2026-11-20 10:09:12,175] [INFO] [main] [state.change.logger] - {}", ".175"),
    "[%d] (%c) [%t] %p - %m%n": ("[2026-11-20 10:09:12,175] (state.change.logger) [main] INFO - {}", ".175"),
    "%d{ISO8601} %p %m (%c) [%t]%n": ("2026-11-20 10:09:12,175 INFO {} (state.change.logger) [main]", ".175"),
    "%d{ISO8601} %p %c: %m%n": ("2026-11-20T10:09:12,175 INFO state.change.logger: {}", ".175"),
    "%d %-5p [%t] %c{2}: %m%n": ("2026-11-20 10:09:12,175 INFO  [main] change.logger: {}", ".175"),
    "[%d{yyyy-MM-dd HH:mm:ss.SSS}] %5p %c - %m%n": ("[2026-11-20 10:09:12.175]  INFO state.change.logger - {}", ".175"),
    "%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %level %logger %msg%n": (
        "2026-11-20T10:09:12.175+01:00 INFO state.change.logger {}", ".175+01:00"),
    "%d{yyyy-MM-dd HH:mm:ss,SSS}{GMT+9} %p %m (%c:%L)%n": (
        "2026-11-20 10:09:12,175 INFO {} (state.change.logger:7)", ".175+09:00"),
    "%d{yyyy-MM-dd HH:mm:ss,SSS}{Europe/Berlin} %p %m (%c)%n": (
        "2026-11-20 10:09:12,175 INFO {} (state.change.logger)", ".175 Europe/Berlin"),
    '%d{"yyyy-MM-dd HH:mm:ss,SSS", UTC} %p %m (%c)%n': ("2026-11-20 10:09:12,175 INFO {} (state.change.logger)", ".175Z"),
    "%d{yyyy-MM-dd HH:mm:ss,SSS Z} %p %m (%c)%n": ("2026-11-20 10:09:12,175 +0930 INFO {} (state.change.logger)", ".175+0930"),
    "%d{yyyy-MM-dd HH:mm:ss z} %p %m (%c)%n": ("2026-11-20 10:09:12 CET INFO {} (state.change.logger)", ""),
    "%d{ISO8601_BASIC} %p %m (%c)%n": ("20261120T100912,175 INFO {} (state.change.logger)", ".175"),
    "%d{COMPACT} %p %m (%c)%n": ("20261120100912175 INFO {} (state.change.logger)", ".175"),
    "%d{ISO8601_PERIOD_MICROS} %p %m (%c)%n": ("2026-11-20T10:09:12.175999 INFO {} (state.change.logger)", ".175"),
    "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n": ("26/11/20 10:09:12 INFO logger: {}", ""),
    "%d{dd.MM.yyyy HH:mm:ss.SSS} %p %c - %m%n": ("20.11.2026 10:09:12.175 INFO state.change.logger - {}", ".175"),
    "%p %d %c{1.} %m%n": ("INFO 2026-11-20 10:09:12,175 s.c.logger {}", ".175"),
    "%d [%t] %highlight{%-5level} %style{%logger{36}}{cyan} - %msg%n%throwable": (
        "2026-11-20 10:09:12,175 [main] INFO  state.change.logger - {}", ".175"),
    "%d %p %notEmpty{[%X{host}] }%c - %m%xEx{full}%n": ("2026-11-20 10:09:12,175 INFO [node-1] state.change.logger - {}", ".175"),
    "%d %p %c %M(%F:%L) %X{a} %x %r %pid - %replace{%m}{secret}{***}%n": (
        "2026-11-20 10:09:12,175 INFO state.change.logger run(A.scala:7) b [] 17 4711 - {}", ".175"),
    "%d %p %c: 100%% %m%n": ("2026-11-20 10:09:12,175 INFO state.change.logger: 100% {}", ".175"),
    "${PRE:-[}%d${POST:-]} %p %m (%c)%n": ("[2026-11-20 10:09:12,175] INFO {} (state.change.logger)", ".175"),
    "%black(%d) %highlight(%-5level) [%blue(%t)] %yellow(%C{1}): %c{0} %msg%n": (
        "2026-11-20 10:09:12,175 INFO  [main] A: logger {}", ".175"),
}  # fmt: skip


def parser_of(*layouts: Layout) -> Parser:
    """A parser that knows only these layouts."""
    from dataclasses import replace

    return Parser(replace(built_in(), layouts=layouts, log_idents=()))


def read_by(pattern: str, text: str) -> Record | None:
    return parser_of(from_conversion_pattern(pattern, "test", "test")).record(text)


@pytest.mark.parametrize("pattern", PRINTED)
@pytest.mark.parametrize("trace", ["", "\n" + TRACE], ids=["", "stack trace"])
def test_output_of_a_conversion_pattern_is_read(pattern: str, trace: str) -> None:
    printed, fraction = PRINTED[pattern]
    record = read_by(pattern, printed.replace("{}", MESSAGE) + trace)
    assert record is not None
    assert record.fits
    assert record.ts == "2026-11-20 10:09:12" + fraction
    assert (record.level, record.logger) == ("INFO", "state.change.logger")
    assert (record.log_ident, record.statement) == ("[Controller id=1 epoch=1] ", STATEMENT)
    assert record.thread == ("main" if "main" in printed else None)
    assert record.rest == trace.lstrip()
    assert not any(read_by(pattern, line) for line in TRACE.split("\n"))


def test_an_exception_on_the_line_of_its_message() -> None:
    record = read_by(
        "%d %p %c: %m%ex%n", f"2026-11-20 10:09:12,175 INFO state.change.logger: {MESSAGE} {TRACE}"
    )
    assert record is not None
    assert (record.statement, record.rest) == (STATEMENT, TRACE)


def test_message_of_many_lines() -> None:
    """KafkaConfig prints its values as one message: the logger stands at the end of the last line."""
    record = PARSER.record(
        "[2026-11-20 10:09:02,417] INFO KafkaConfig values: \n\tbroker.id = 1\n (kafka.server.KafkaConfig)"
    )
    assert record is not None
    assert (record.logger, record.level) == ("kafka.server.KafkaConfig", "INFO")


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("[%d] %q %m%n", "conversion %q is not supported"),
        ("[%d] %caller{2} %m%n", "conversion %caller is not supported"),
        ("[%d] %p %highlight %m%n", "%highlight has nothing in braces"),
        ("[%d] %p (%c)%n", "no %m in the pattern"),
        ("[%d] %d %p %m%n", "%d is used twice"),
        ("%m %m%n", "%m is used twice"),
        (
            "[%d{dd.MM.yyyy HH:mm}] %p %m%n",
            "date format {dd.MM.yyyy HH:mm} is not supported: it has no time of day to the second",
        ),
        ("[%d{EEE MMM dd HH:mm:ss}] %p %m%n", "is not supported: EEE is no number"),
        ("[%d{yyyy-MM-dd hh:mm:ss a}] %p %m%n", "is not supported: hh is no number"),
        ("[%d{yyyy-MM-dd HH:mm:ss dd}{UTC}{de}] %p %d %m%n", "%d is used twice"),
        ("[%d{ABSOLUTE}] %p %m%n", "date format {ABSOLUTE} is not supported: it has no date"),
        ("[%d{UNIX}] %p %m%n", "date format {UNIX} is not supported: it is no date"),
        ("[%d{yyyy-MM-dd HH:mm:ss}{Moon/Base}] %p %m%n", "there is no time zone Moon/Base"),
        ("%d %p%n%m%n", "%n before %m is not supported"),
        ("%d %p %m%n -- %c", "text after %n is not supported"),
        ("%d %level{length=1} %m%n", "%level changes the names of the levels"),
        ("%d %.1p %m%n", "%p changes the names of the levels"),
        ("%d %notEmpty{%m}%n", "the message may not be inside %notEmpty"),
        ("%d{yyyy-MM-dd %m%n", "{ is not closed"),
        ("${LOG_PATTERN}%m%n", "${LOG_PATTERN} has no default; replace it by its value"),
        ("%m%n", "no record can be distinguished from other text"),
        ("%t %m%n", "no record can be distinguished from other text"),
        ("", "no %m in the pattern"),
    ],
)
def test_unsupported_conversions_are_named(pattern: str, complaint: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        from_conversion_pattern(pattern, "layout strimzi")
    assert str(raised.value).startswith("layout strimzi: ")
    assert complaint in str(raised.value)


# -- any pattern -------------------------------------------------------------------------------------------

threads = st.sampled_from(["main", "controller-event-thread", "kafka-request-handler-7", "127.0.0.1:51286"])
conversions = {
    "level": st.sampled_from([("%p", "{level}"), ("%-5p", "{level:<5}"), ("%5level", "{level:>5}"), ("[%-5p]", "[{level:<5}]")]),
    "thread": st.sampled_from([("[%t]", "[{thread}]"), ("[%15.15t]", "[{thread:>15.15}]"), ("<%thread>", "<{thread}>")]),
    "logger": st.sampled_from([("%c", "{logger}"), ("(%c:%L)", "({logger}:12)"), ("[%c]", "[{logger}]"), ("%-40c:", "{logger:<40}:")]),
    "other": st.sampled_from([("%X{id}", "x-1"), ("%r", "3980"), ("[%x]", "[]"), ("%notEmpty{<%X>}", ""), ("%%", "%"), ("---", "---")]),
}  # fmt: skip


@settings(max_examples=60)
@given(
    st.sampled_from([("%d", "2026-11-20 10:09:12,175"), ("[%d{ISO8601}]", "[2026-11-20T10:09:12,175]"),
                     ("%d{yyyy/MM/dd HH:mm:ss.SSS}", "2026/11/20 10:09:12.175")]),
    st.permutations(["level", "thread", "logger", "other", "other"]),
    st.data(),
)  # fmt: skip
def test_any_pattern_reads_what_it_prints(
    date: tuple[str, str], order: list[str], data: st.DataObject
) -> None:
    values = {"level": data.draw(st.sampled_from(["INFO", "WARN", "TRACE", "ERROR"])), "thread": data.draw(threads),
              "logger": data.draw(st.sampled_from(["state.change.logger", "kafka.controller.KafkaController"]))}  # fmt: skip
    pieces = [date, *(data.draw(conversions[name]) for name in order)]
    # a part of any content looks like the end of a message
    at = data.draw(st.integers(max(n for n, name in enumerate(order, 2) if name == "other"), len(pieces)))
    pattern = " ".join([*(p for p, _ in pieces[:at]), "%m", *(p for p, _ in pieces[at:])]) + "%n"
    printed = " ".join(
        [
            *(p.format(**values) for _, p in pieces[:at]),
            MESSAGE,
            *(p.format(**values) for _, p in pieces[at:]),
        ]
    )
    record = read_by(pattern, printed)
    assert record is not None, (pattern, printed)
    assert record.fits, (pattern, printed)
    assert record.ts == "2026-11-20 10:09:12.175"
    assert (record.level, record.logger) == (values["level"], values["logger"])
    shown = values["thread"][:15] if "%15.15t" in pattern else values["thread"]
    # padding after the message looks like blanks at its end
    assert (record.thread, record.log_ident, record.statement.rstrip()) == (
        shown,
        "[Controller id=1 epoch=1] ",
        STATEMENT,
    )


@given(st.text(st.sampled_from("%dpctmnLX{}[]() -.5,yMHs:'\\$"), max_size=25))
def test_any_text_is_a_layout_or_a_definition_error(pattern: str) -> None:
    try:
        layout = from_conversion_pattern(pattern, "here", "any")
    except DefinitionError:
        return
    for part in (layout.head, layout.line, layout.record):
        compiled(part)


# -- built-in layouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_samples_of_the_built_in_layouts(entry: Any) -> None:
    assert entry.samples
    for sample in entry.samples:
        record = PARSER.record(sample["line"])
        assert record is not None, sample["line"]
        wanted = (
            ({"layout": entry.name} if isinstance(entry, Layout) else {}) | sample["gives"] | {"fits": True}
        )
        assert {name: getattr(record, SLOTS.get(name, name)) for name in wanted} == wanted


@pytest.mark.shared
def test_every_record_of_the_corpus_has_its_header(shared: Path) -> None:
    """100 % of the records of every excerpt; what is no record is a line of a stack trace or of a message."""
    sniffer = Sniffer()
    for path in sorted((shared / "corpus" / "layouts").iterdir()):
        kind = sniffer.look(path).kind
        assert kind in {"log", "bare"}, path.name
        counted: Counter[str] = Counter()
        begun: list[list[str]] = []
        headers = PARSER.headers(kind == "bare")
        for line in path.read_text("utf-8").splitlines():
            unwrapped = PARSER.unwrapped(line)
            if headers.begins(unwrapped):
                begun.append([line])
            elif unwrapped.strip():
                assert begun, (path.name, line)
                continues = STACK_TRACE.match(unwrapped) or unwrapped[:1] in " \t"
                assert continues or line == "Shutdown completed", (path.name, line)
                begun[-1].append(line)
        for lines in begun:
            record = PARSER.record("\n".join(lines), bare=kind == "bare")
            assert record is not None
            assert record.fits, (path.name, lines[0])
            counted[record.layout] += 1
        assert sum(counted.values()) == len(begun) > 0
        assert len(counted) == 1, (path.name, counted)


def test_a_layout_may_change_in_the_middle_of_a_file() -> None:
    one = "[2026-11-20 10:09:12,175] INFO starting (kafka.server.KafkaServer)"
    for other in (
        sample["line"] for layout in shapes().layouts if not layout.bare for sample in layout.samples
    ):
        for text in (one, other, one + "\n" + TRACE, other.split("\n")[0]):
            record = PARSER.record(text)
            assert record is not None, text


@pytest.mark.parametrize(
    "layout", [lay for lay in shapes().layouts if not lay.bare], ids=lambda layout: layout.name
)
def test_a_header_quoted_in_an_exception_is_no_record(layout: Layout) -> None:
    """A line of any layout inside of a line of a stack trace begins nothing.

    One that is cut off at its header neither.
    """
    for sample in layout.samples:
        first = sample["line"].split("\n")[0]
        for forged in (
            "\tat " + first,
            "java.io.IOException: " + first,
            "Caused by: a.B: " + first,
            "  " + first,
            ">" + first,
            first[:20],
        ):
            assert PARSER.record(forged, bare=False) is None, forged


def test_wrappers_are_taken_off_every_line_and_from_any_layout() -> None:
    wrapped = ["kafka-1  | ", "\x1b[36mkafka_1  |\x1b[0m ", "2026-11-20T10:09:12.175Z stderr F ", "2026-11-20T10:09:12.175999999Z ",
               "kafka-1  | 2026-11-20T10:09:12.175999999Z ", "[pod/kafka-0/kafka] ", "STDOUT: ",
               "2026-11-20 10:09:12,175 INFO  t.c.Log - STDOUT: ", "Nov  2 10:09:12 node-1 kafka[7]: "]  # fmt: skip
    for layout in shapes().layouts:
        for text in (sample["line"] for sample in layout.samples):
            for wrapper in wrapped:
                record = PARSER.record("\n".join(wrapper + line for line in text.split("\n")))
                assert record == PARSER.record(text), wrapper + text


def test_a_wrapper_in_the_middle_of_a_line_stays() -> None:
    for text in (
        "[2026-11-20 10:09:12,175] INFO a kafka-1  | b STDOUT: c (kafka.server.KafkaServer)",
        '{"a": 1} | STDOUT: x',
    ):
        assert PARSER.unwrapped(text) == text


@pytest.mark.parametrize(
    ("cut", "log_ident", "full"),
    [
        ("KafkaController", "", "kafka.controller.KafkaController"),
        ("k.c.KafkaController", "", "kafka.controller.KafkaController"),
        ("k.controller.KafkaController", "", "kafka.controller.KafkaController"),
        ("change.logger", "", "state.change.logger"),
        ("s.c.logger", "", "state.change.logger"),
        ("logger", "[Broker id=1] ", "state.change.logger"),
        ("logger", "Controller 1 epoch 5 ", "state.change.logger"),
        ("logger", "", "logger"),
        ("k.a.logger", "", "k.a.logger"),
        ("request.logger", "", "request.logger"),
        ("Unheard", "", "Unheard"),
    ],
)
def test_abbreviated_loggers(cut: str, log_ident: str, full: str) -> None:
    record = read_by("%d %p %c{1} - %m%n", f"2026-11-20 10:09:12,175 INFO {cut} - {log_ident}text")
    assert record is not None
    assert record.logger == full
    assert built_in().in_scope(record.logger) == (full.startswith(("kafka.", "state.")))


# -- JSON --------------------------------------------------------------------------------------------------

JSON = next(layout for layout in shapes().layouts if layout.json)
SAID = {"timeMillis": 1795169352175, "level": "INFO", "loggerName": "state.change.logger", "message": MESSAGE}


def spoilt() -> list[str]:
    """JSON that is cut, garbled, lacks something, or is of other types than expected."""
    whole = json.dumps(SAID)
    found = [whole[:at] for at in range(60, len(whole), 7)]
    for key in SAID:
        found.append(json.dumps({name: value for name, value in SAID.items() if name != key}))
        found += [
            json.dumps(SAID | {key: value})
            for value in ("", None, {}, [], 7, True, {"a": [1]}, "NaN", "\x01", "a\nb")
        ]
    for thrown in ({}, [], "", 7, None, {"name": 5}, {"name": None, "message": "x"}, {"name": "a.B", "message": {"c": 1}},
                   {"extendedStackTrace": "a.BError: c\n\tat d"}, {"name": "a.BError", "extendedStackTrace": [1]}):  # fmt: skip
        found.append(json.dumps(SAID | {"thrown": thrown, "exception": thrown}))
    for text in (
        "99999999999999999999",
        "2026-11-20",
        "2026-11-20T10:09:12",
        "2026-11-20T10:09:12,1+02",
        "12345678901",
        "1795169352",
        "-1",
    ):
        found.append(json.dumps({"@timestamp": text, **{k: v for k, v in SAID.items() if k != "timeMillis"}}))
    found += [whole + "}", whole + " and more", whole.replace(": ", ":NaN, "), whole.replace('"', "'"), whole.replace("INFO", "info"),
              whole.replace("INFO", "NOTICE"), whole.replace('"level"', '"level": "WARN", "level"'), whole.replace("Controller", "\t"),
              whole.replace("Controller", "\\u0001\\u0000$1\\\\"), whole.replace("Controller", "\\x"), whole.replace("1795", "01795")]  # fmt: skip
    return found


def test_broken_json_is_no_exception() -> None:
    for text in spoilt():
        record = PARSER.record(text)
        assert record is None or record.fits or record.logger is None
    assert json_header(JSON, "{" * 100_000) is None


def test_times_of_json() -> None:
    assert time_text("1795169352175") == "2026-11-20 10:09:12.175Z"
    assert time_text("1795169352") == "2026-11-20 10:09:12.000Z"
    assert time_text('{"epochSecond":1795169352,"nanoOfSecond":5000000}') == "2026-11-20 10:09:12.005Z"
    assert time_text("2026-11-20 10:09:12,175") == "2026-11-20 10:09:12.175"
    assert time_text("2026-11-20T10:09:12.175999Z") == "2026-11-20 10:09:12.175Z"
    assert time_text("yesterday") is None


def test_json_keys_are_checked() -> None:
    with pytest.raises(DefinitionError, match="here: unknown slot when"):
        from_json({"when": "t"}, "here")
    with pytest.raises(DefinitionError, match="here: json names no key of the time"):
        from_json({"level": "l", "message": "m"}, "here")


# -- a site's own ------------------------------------------------------------------------------------------


def test_a_layout_of_ones_own_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "layouts.toml").write_text(
        '[ours]\nconversion_pattern = "%d|%p|%t|%c|%m%n"\n[pod]\nwrapper = "<\\\\d+>"\n'
    )
    record = Parser(load(tmp_path)).record(
        f"<7>2026-11-20 10:09:12,175|INFO|main|state.change.logger|{MESSAGE}"
    )
    assert record is not None
    assert (record.layout, record.logger, record.statement) == ("ours", "state.change.logger", STATEMENT)
    assert [layout.name for layout in load(tmp_path).layouts[1:]] == [
        layout.name for layout in shapes().layouts
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[ours", "layouts.toml: "),
        ("ours = 1", "layouts.toml [ours]: a layout is a table"),
        ('[ours]\nconversion_pattern = "%q"', "layouts.toml [ours]: conversion %q is not supported"),
        ('[ours]\npattern = "%m"', "layouts.toml [ours]: a pattern needs head and logger, too"),
        (
            '[ours]\npattern = "(?<statement>.*)"\nhead = ""\nlogger = "a.B"',
            "layouts.toml [ours]: the pattern has no group epoch_ms",
        ),
        ('[ours]\nconversion = "%m"', "layouts.toml [ours]: unknown key conversion"),
        (
            "[ours]\nprefix = ''",
            "layouts.toml [ours]: give one of conversion_pattern, json, pattern, wrapper",
        ),
        ('["Our own"]\nwrapper = "x"', "a name is of small letters"),
        ('[ours]\nwrapper = "(a|b)*"', "layouts.toml [ours]: a repeated group"),
    ],
)
def test_faults_of_a_layout_of_ones_own(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "layouts.toml").write_text(text)
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path)
    assert complaint in str(raised.value)


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
    assert PARSER.record(line, bare=False) is None


# -- kafka-audit layout ------------------------------------------------------------------------------------


def laid_out(path: Path, content: str | bytes, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and text of `kafka-audit layout`."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return main(["layout", str(path)]), capsys.readouterr().out


LINES = "".join(
    f"[2026-11-20 10:09:1{n},175] INFO [Broker id=3] Stopped fetchers (state.change.logger)\n"
    for n in range(5)
)


def test_layout_shows_how_a_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, plain = laid_out(tmp_path / "a.log", LINES, capsys)
    assert code == 0
    assert "nothing but the layout" in plain
    assert "log4j_default   [%d] %p %m (%c%notEmpty{:%L})%n" in plain
    assert "without a zone" in plain
    assert plain.count("[Broker id=3] Stopped fetchers") == 3
    wrapped = "".join(f"kafka-3.1.x7@worker | {line}\n" for line in LINES.splitlines())
    code, shown = laid_out(tmp_path / "b.log", wrapped, capsys)
    assert "prefix 'kafka-3.1.x7@worker | '" in shown
    assert "node 3, as the envelope names it" in shown
    packed = gzip.compress(LINES.replace(",175", ".175+01:00").encode())
    assert "a zone, which wins over --timezone" in laid_out(tmp_path / "c.log.gz", packed, capsys)[1]
    bare = "[Broker id=3] Sending StopReplica request for 1 replicas to broker 1 (state.change.logger)\n"
    assert "keep the order of the file" in laid_out(tmp_path / "d.log", bare, capsys)[1]


UNKNOWN = {
    "%d{dd.MM.yyyy HH:mm:ss,SSS} <%t> %-5p %c => %m%n": "20.11.2026 10:09:1{n},175 <main> INFO kafka.server.KafkaServer => starting {n}",
    "%d{yyyy/MM/dd HH:mm:ss} %-5p [%t] * %m%n": "2026/11/20 10:09:1{n} WARN  [main] * [Broker id=3] starting",
    "[%d{dd-MM-yyyy HH:mm:ss,SSS}] %-5p | %m (%c)%n": "[20-11-2026 10:09:1{n},175] INFO | [Broker id=3] starting (kafka.server.KafkaServer)",
}


@pytest.mark.parametrize("pattern", UNKNOWN)
def test_layout_proposes_a_pattern_that_reads_the_file(
    pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [UNKNOWN[pattern].replace("{n}", str(n)) for n in range(5)]
    code, shown = laid_out(tmp_path / "a.log", "\n".join([*lines, TRACE, ""]), capsys)
    # what ends with one of Kafka's loggers is read as lines without a time stamp
    assert code == (0 if pattern.endswith("(%c)%n") else 3)
    found = re.search(r'conversion_pattern = (".*")', shown)
    assert found, shown
    assert json.loads(found[1]) == pattern
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "layouts.toml").write_text(f"[own]\n{found[0]}\n")
    assert main(["layout", str(tmp_path / "a.log"), "--rules", str(tmp_path / "rules")]) == 0
    assert "layout        own" in capsys.readouterr().out


def test_layout_of_a_file_that_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = laid_out(tmp_path / "notes.txt", "Lorem ipsum\ndolor sit amet\n" * 9, capsys)
    assert code == 3
    assert "not read" in shown
    assert "conversion_pattern" not in shown
    assert main(["layout", str(tmp_path / "none.log")]) == 3


@given(st.text(max_size=300))
@settings(max_examples=60, deadline=None)
def test_a_proposal_never_fails(text: str) -> None:
    pattern = proposed(text.splitlines())
    assert pattern is None or from_conversion_pattern(pattern, "here")


@pytest.mark.parametrize(
    ("name", "number"),
    [("Nov", "11"), ("März", "03"), ("déc.", "12"), ("Okt", "10"), ("ноября", "11"), ("11月", "11"), ("noviembre", "11"), ("nobody", "nobody"),
     # October in Croatian, November in Polish
     ("lis", "lis")],
)  # fmt: skip
def test_names_of_months(name: str, number: str) -> None:
    assert month(name) == number


@pytest.mark.parametrize("stamp", ["20 Nov 2026 10:09:12,175", "20 нояб. 2026 10:09:12,175"])
def test_dates_with_the_name_of_the_month(stamp: str) -> None:
    record = read_by("[%d{DATE}] %p %m (%c)%n", f"[{stamp}] INFO {MESSAGE} (state.change.logger)")
    assert record is not None
    assert (record.ts, record.statement) == ("2026-11-20 10:09:12.175", STATEMENT)


def test_milliseconds_since_1970() -> None:
    record = read_by("%d{UNIX_MILLIS} %p %c - %m%n", f"1795169352175 INFO state.change.logger - {MESSAGE}")
    assert record is not None
    assert record.ts == "2026-11-20 10:09:12.175Z"


@pytest.mark.parametrize("zone", [" CET", " GMT+01:00"])
def test_no_pattern_is_proposed_that_takes_a_zone_for_the_message(zone: str) -> None:
    line = (
        f"[2026-11-20 10:20:04,880{zone}] INFO [Controller id=4] Resigned (kafka.controller.KafkaController)"
    )
    assert proposed([line] * 5) is None
