"""Logs as bug reports, chats, mails and exports have them give the events of the log itself.

Known forms have a name.
"""

from __future__ import annotations

import html
import json
import subprocess
import time
from pathlib import Path

import pytest
from envelopes import ENVELOPES, HEADER, grouped, prefixed
from hypothesis import given, settings
from hypothesis import strategies as st
from reports import REPORTS, cloudwatch
from test_envelopes import FORGED, PARSER, PLAIN, QUOTED, WANTED, change, read, rows, texts

from parsers.envelopes import _object, reader_of
from parsers.explanation import explain
from parsers.records import json_header

LINE = PLAIN[0]
PLAIN_ONES = {"Grafana, with labels", "grep -C", "tail of several files"}
# log4j2's GelfLayout; GELF of Docker has no _logger
GELF = {
    "version": "1.1",
    "host": "kafka4",
    "timestamp": 1795171130.637,
    "level": 6,
    "_thread": "main",
    "_logger": "state.change.logger",
}
SAID = "[Controller id=4 epoch=5] Changed state of replica 1 for partition a-0 from OnlineReplica to OfflineReplica"


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_gives_the_events_of_the_log(name: str, tmp_path: Path) -> None:
    _, wanted = rows(tmp_path / "plain.log", "\n".join(PLAIN) + "\n")
    file, found = rows(tmp_path / "report", "\n".join(REPORTS[name](PLAIN)) + "\n")
    assert found == wanted
    assert (file.kind, file.node) == ("log", 4)
    # what separates parts of a plain log is no envelope
    assert file.read_as or name in PLAIN_ONES


def test_the_documents_list_each_form() -> None:
    """That each one is read is tested above, and that others are named below."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "layouts.md"
    listed = [
        row.strip("| ").split(" | ")
        for row in page.read_text("utf-8").partition("<!-- forms -->")[2].strip().split("\n")[2:]
    ]
    assert [name for name, _, now in listed if now == f"{len(WANTED)} of {len(WANTED)}"] == list(REPORTS)
    assert {name for name, _, now in listed if now.startswith("named: ")} == {"RTF", "HTML in one line"}
    assert len([before for _, before, _ in listed if before != "7 of 7"]) > 20


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("quoted", QUOTED)
def test_a_report_forges_no_record(name: str, quoted: str) -> None:
    lines = [PLAIN[0], *[PLAIN[3], *[quoted] * 6] * 3, PLAIN[1]]
    _, records = read(REPORTS[name](lines))
    assert all("replica 9" not in record.statement for record in records)
    assert len(records) == 5


def test_a_line_inside_of_a_record_begins_no_record() -> None:
    """Strings of one record each, most with further lines: one that looks like a header is a part of the
    message.
    """
    events = [
        json.dumps({"message": f"{line}\n{FORGED}" if number % 2 else line})
        for number, line in enumerate([LINE] * 8)
    ]
    _, records = read(events)
    assert len(records) == 8
    assert all("replica 9" not in record.statement for record in records)


def test_explain_says_how_lines_are_read() -> None:
    assert "docker service logs prefix" in explain("\n".join(ENVELOPES["swarm"](PLAIN)), None)


def test_a_prefix_without_a_name_is_shown() -> None:
    envelope, _ = read(prefixed(lambda n, day, time: "site=eu7 :: ")(PLAIN))
    assert envelope is not None
    assert envelope.about == "prefix 'site=eu7 :: '"


@pytest.mark.parametrize("name", ["script(1)", "StackOverflow, HTML", "JIRA", "kubectl describe"])
def test_a_long_line_in_a_block_takes_no_time(name: str) -> None:
    long = PLAIN[0].replace("(state.change.logger)", "a@b:" * 200_000 + " (state.change.logger)")
    envelope, _ = read(REPORTS[name](PLAIN))
    assert envelope is not None
    reader = reader_of(PARSER, envelope, bare=False)
    begun = time.process_time()
    records = [*reader.feed(REPORTS[name]([*PLAIN, long, long, PLAIN[0]])), *reader.close()]
    assert len(records) == 10
    assert time.process_time() - begun < 2


def test_gelf_layout_of_log4j2() -> None:
    thrown = "java.io.IOException: Broken pipe\n\tat a.b.C.d(C.java:1)\n"
    lines = [
        json.dumps(GELF | {"short_message": SAID}),
        json.dumps(GELF | {"level": 3, "short_message": SAID, "full_message": thrown}),
    ] * 3
    envelope, records = read(lines)
    assert envelope is not None
    assert not envelope.layers
    assert {
        (one.layout, one.logger, one.thread, one.log_ident + one.statement, one.ts) for one in records
    } == {("gelf", "state.change.logger", "main", SAID, "2026-11-20 10:38:50.637Z")}
    assert [(one.level, one.rest) for one in records[:2]] == [("INFO", ""), ("ERROR", thrown)]


@pytest.mark.parametrize("hostile", [
    {"short_message": f'"_logger":"state.change.logger","level":6 {LINE}'},
    {"short_message": LINE, "level": 6.5, "_logger": "a"},
    {"short_message": LINE, "level": 9, "_logger": "a"},
    {"short_message": LINE, "_logger": ""},
    {"level": {"level": 6}, "_logger": "a", "short_message": LINE},
])  # fmt: skip
def test_a_number_is_a_level_only_beside_the_keys_of_gelf(hostile: dict[str, object]) -> None:
    """Neither a message that quotes the keys, nor another number, nor an object with it."""
    layout = next(one for one in PARSER.ruleset.layouts if one.name == "gelf")
    plain = {name: value for name, value in GELF.items() if name != "_logger"}
    assert json_header(layout, json.dumps(plain | hostile)) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (r"{\rtf1\ansi\deff0" + "\n" + "\\par\n".join(PLAIN) + "}", "it is RTF; save it as plain text"),
        ("<p>" + "<br>".join(PLAIN) + "</p>", "its lines end with <br>; `sed"),
        ("<body>\n<div>log: " + "<br />".join(PLAIN) + "</div>\n</body>", "its lines end with <br>; `sed"),
        ("\\n".join(PLAIN), "its line ends are the text \\n; `sed 's/\\\\n/\\n/g' FILE"),
        (repr(PLAIN * 1000), "it is one line of Python of more than 1,000,000 characters"),
    ],
    ids=["RTF", "HTML", "HTML with other lines", "line ends", "Python"],
)
def test_files_without_lines_are_named_with_a_remedy(content: str, why: str, tmp_path: Path) -> None:
    """Nothing of it is read: most of it would be lost, or pass for another statement."""
    file, found = rows(tmp_path / "report", content)
    assert (file.kind, found) == ("unreadable", [])
    assert file.why.startswith(why)


def test_an_element_of_xml_may_have_several_lines(tmp_path: Path) -> None:
    """Only the last line of each record ends with the tags."""
    before, after = '<result offset="0"><v trim="0">', "</v></result>"
    texts = [before + html.escape(text) + after for text in grouped(PLAIN) * 3]
    _, wanted = rows(tmp_path / "plain.log", "\n".join(PLAIN * 3) + "\n")
    file, found = rows(tmp_path / "report", "\n".join(["<results>", *texts]) + "\n")
    assert file.read_as.endswith("HTML entities")
    assert found == wanted


@pytest.mark.parametrize(
    ("name", "before", "end", "tab"),
    [
        ("line ends as #012", "Nov 20 10:09:13 kafka4 kafka[812]: ", "#012", "#011"),
        ("line ends as \\n", "", "\\n", "\\t"),
    ],
)
def test_line_ends_as_text(name: str, before: str, end: str, tab: str, tmp_path: Path) -> None:
    plain = [line.replace("\t", " ") if HEADER.match(line) else line for line in PLAIN]
    _, wanted = rows(tmp_path / "plain.log", "\n".join(plain) + "\n")
    lines = [before + text.replace("\n", end).replace("\t", tab) for text in grouped(plain)]
    file, found = rows(tmp_path / "report", "\n".join(lines) + "\n")
    assert found == wanted
    assert file.read_as.endswith(name)


def test_no_break_spaces(tmp_path: Path) -> None:
    """Chats and pages put them into all lines, or into some."""
    _, wanted = rows(tmp_path / "plain.log", "\n".join(PLAIN) + "\n")
    for number in (0, 1, len(PLAIN)):
        lines = PLAIN[:number] + [line.replace(" ", "\xa0") for line in PLAIN[number:]]
        file, found = rows(tmp_path / "report", "\n".join(lines) + "\n")
        assert found == wanted
        assert file.read_as == ("" if number == len(PLAIN) else "no-break spaces")


RECORD = {
    "timestamp": 1795169352175,
    "level": "ERROR",
    "logger": "state.change.logger",
    "message": "[Controller id=4 epoch=5] Controller 4 epoch 5 failed to change state for partition a-1",
}


@pytest.mark.parametrize(("before", "after"), [("", ""), ("[\n", "\n]")])
def test_a_record_of_json_may_have_several_lines(before: str, after: str) -> None:
    """JsonLayout of log4j2 prints it so unless it is compact."""
    text = before + ",\n".join([json.dumps(RECORD, indent=2)] * 3) + after
    _, records = read(text.split("\n"))
    assert [(one.logger, one.level, one.ts) for one in records] == [
        ("state.change.logger", "ERROR", "2026-11-20 10:09:12.175Z")
    ] * 3


@pytest.mark.parametrize("more", ["000", "000000"])
def test_micros_and_nanos_are_a_time(more: str) -> None:
    _, records = read([json.dumps(RECORD | {"timestamp": int(f"{RECORD['timestamp']}{more}")})] * 2)
    assert {one.ts for one in records} == {"2026-11-20 10:09:12.175Z"}


def test_a_message_of_json_may_end_with_a_stack_trace() -> None:
    trace = "java.io.IOException: Broken pipe\n\tat a.b.C.d(C.java:1)"
    _, records = read([json.dumps(RECORD | {"message": f"{RECORD['message']}\n{trace}"})] * 2)
    assert {one.rest for one in records} == {trace}
    assert {one.log_ident + one.statement for one in records} == {RECORD["message"]}


def test_gcp_layout_of_log4j2() -> None:
    record = {
        "timestamp": "2026-11-20T10:09:12.175Z",
        "severity": "ERROR",
        "message": SAID,
        "_exception": {"exception_class": "a.BError", "stack_trace": "a.BError: c\n\tat d"},
        "_thread": "main",
        "_logger": "state.change.logger",
    }
    _, records = read([json.dumps(record)] * 2)
    assert {(one.logger, one.thread, one.rest) for one in records} == {
        ("state.change.logger", "main", "a.BError: c\n\tat d")
    }


def test_bytes_as_numbers_are_text(tmp_path: Path) -> None:
    """The journal exports lines with colours so; other lines are strings."""
    _, wanted = rows(tmp_path / "plain.log", "\n".join(PLAIN) + "\n")
    lines = [
        json.dumps({"MESSAGE": list(text.encode()) if number % 2 else text, "_HOSTNAME": "kafka4"})
        for number, text in enumerate(grouped(PLAIN))
    ]
    file, found = rows(tmp_path / "report", "\n".join(lines) + "\n")
    assert found == wanted
    assert "string MESSAGE" in file.read_as


def test_the_cure_for_html_gives_the_log(tmp_path: Path) -> None:
    path = tmp_path / "report"
    file, _ = rows(path, "<p>" + "<br>".join(PLAIN[:2]) + "<br />" + "<br/>".join(PLAIN[-2:]) + "</p>")
    command = (
        file.why.partition("`")[2].partition("`")[0].replace("FILE.log", "cured").replace("FILE", "report")
    )
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert len(rows(tmp_path / "other", (tmp_path / "cured").read_text())[1]) == 4


@pytest.mark.parametrize(
    "text", ["'a' + 'b'", "['a'", "('a', b)", r"'\d'", "'\\x'", "[" * 5000 + "'a'", "'a'x", "b'é'", "{'a'}"]
)
def test_text_that_python_does_not_print_is_no_string(text: str) -> None:
    """Nothing is computed, and nothing is said on standard error."""
    assert _object(text) is None


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.text() | st.none() | st.booleans() | st.integers(),
        lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    )
)
def test_python_literals_are_read_as_json(content: object) -> None:
    if isinstance(content, str | list | dict):
        assert _object(repr(content)) == content or not content


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from(["list", "object", "string", "lines"]), st.integers(0, 2)),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_a_log_in_any_json_gives_its_events(shape: list[str | int], is_pretty: bool) -> None:
    """A log as one string, a string a line, in lists and objects of any depth, in one line of a file or over
    many.
    """
    content: object = list(PLAIN) if "lines" in shape else "\n".join(PLAIN)
    for one in shape:
        if one == "list":
            content = [content]
        elif one == "object":
            content = {"kind": "logs", "data": content}
        elif isinstance(one, int):
            content = {"id": one, "pod": {"name": "kafka-4"}, f"part{one}": content}
    _, records = read(json.dumps(content, indent=1 if is_pretty else None).split("\n"))
    assert texts(records) == WANTED


def test_lines_that_a_terminal_has_filled_with_blanks(tmp_path: Path) -> None:
    """Blanks at the end of a line look the same as padding."""
    _, wanted = rows(tmp_path / "plain.log", "\n".join(line.rstrip(" ") for line in PLAIN) + "\n")
    _, found = rows(tmp_path / "report", "\n".join(line.ljust(200) for line in PLAIN) + "\n")
    assert found == wanted


@pytest.mark.parametrize("records", [5_000, 60_000])
def test_a_long_log_in_one_line_of_json(records: int, tmp_path: Path) -> None:
    """It is read as a whole, or named with the command that writes its lines.

    Nothing is read of a part of it.
    """
    lines = [change(number % 3 + 1, number % 60) for number in range(records)]
    for name, content in (("string", {"log": "\n".join(lines)}), ("list", cloudwatch(lines))):
        file, found = rows(tmp_path / f"{name}.json", json.dumps(content) + "\n")
        if len(json.dumps(content)) < 1_000_000:
            assert len(found) == records
        else:
            assert (file.kind, found) == ("unreadable", [])
            assert "jq -r '.. | strings' FILE" in file.why
