"""Logs as bug reports, chats, mails and exports have them give the events of the log itself; known forms have a name."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from envelopes import ENVELOPES, prefixed
from reports import REPORTS
from test_envelopes import FORGED, LEARNER, PARSER, PLAIN, QUOTED, read, rows, texts

from parsers.envelopes import known_forms, reader_of
from parsers.explanation import explain

LINE = PLAIN[0]


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_gives_the_events_of_the_log(name: str, tmp_path: Path) -> None:
    _, wanted = rows(tmp_path / "plain.log", "\n".join(PLAIN) + "\n")
    file, found = rows(tmp_path / "report", "\n".join(REPORTS[name](PLAIN)) + "\n")
    assert found == wanted
    assert (file.kind, file.node) == ("log", 4)
    assert file.read_as


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("quoted", QUOTED)
def test_a_report_forges_no_record(name: str, quoted: str) -> None:
    lines = [PLAIN[0], *[PLAIN[3], *[quoted] * 6] * 3, PLAIN[1]]
    _, records = read(REPORTS[name](lines))
    assert all("replica 9" not in record.statement for record in records)
    assert len(records) == 5


def test_a_line_that_a_record_holds_begins_no_record() -> None:
    """Strings of one record each, most with further lines: one that looks like a header is a part of the message."""
    events = [json.dumps({"message": f"{line}\n{FORGED}" if number % 2 else line}) for number, line in enumerate([LINE] * 8)]
    _, records = read(events)
    assert len(records) == 8
    assert all("replica 9" not in record.statement for record in records)


@pytest.mark.parametrize("form", known_forms(), ids=lambda form: form.name)
def test_known_forms_have_a_name(form) -> None:
    if form.prefix:
        lines = [form.sample + line for line in PLAIN]
    else:
        lines = [line.replace("LINE", LINE) for _ in range(3) for line in form.sample.split("\n")]
    envelope = LEARNER.learn(lines)
    assert envelope is not None
    assert envelope.about.startswith(form.name)
    reader = reader_of(PARSER, envelope, bare=False)
    assert LINE in texts([*reader.feed(lines), *reader.close()])


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
