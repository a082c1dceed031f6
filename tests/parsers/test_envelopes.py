"""Envelopes: found in the file, whatever they are; they lose no record and make none up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from envelopes import ENVELOPES, Wrap, grouped, prefixed
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.batches import record_blocks
from jobs.files.ingest import LogFile, Sniffer, splits
from jobs.landing import new_records
from parsers.envelopes import Envelope, Learner, node_of, reader_of
from parsers.events import Parser
from parsers.explanation import layout
from parsers.records import Record

PARSER = Parser()
SNIFFER = Sniffer()
LEARNER = Learner(PARSER)
SPEAKER = "[Controller id=4 epoch=5]"
TRACE = [
    "java.io.IOException: Connection to 2 was disconnected before the response was read",
    "\tat org.apache.kafka.clients.NetworkClientUtils.sendAndReceive(NetworkClientUtils.java:111)",
    "\t... 3 more",
    "Caused by: a.b.CException: [2026-11-20 10:09:12,175] INFO [Broker id=9] Stopped fetchers (state.change.logger)",
]


def change(replica: int, second: int) -> str:
    move = "from OnlineReplica to OfflineReplica"
    return f"[2026-11-20 10:09:{second:02d},175] TRACE {SPEAKER} Changed state of replica {replica} for partition a-0 {move} (state.change.logger)"


PLAIN = [
    change(1, 10),
    change(2, 11),
    '[2026-11-20 10:09:12,175] INFO [ReplicaFetcher replicaId=4, leaderId=2, fetcherId=0] say "x, y"; {"a": 1}, done\tnow (kafka.server.ReplicaFetcherThread)',
    "[2026-11-20 10:09:12,175] ERROR [Controller id=4 epoch=5] Controller 4 epoch 5 failed to change state for partition a-1 from OfflinePartition to OnlinePartition (state.change.logger)",
    *TRACE,
    "[2026-11-20 10:09:13,001] INFO KafkaConfig values: ",
    "\tadvertised.listeners = PLAINTEXT://127.0.0.1:9092",
    "\tbroker.id = 4",
    " (kafka.server.KafkaConfig)",
    change(3, 14),
    change(4, 15),
]


def read(lines: Sequence[str]) -> tuple[Envelope | None, list[Record]]:
    """What the lines are in, and their records in the order of the file."""
    envelope = LEARNER.learn(lines)
    reader = reader_of(PARSER, envelope, bare=False)
    records = [*reader.feed(lines), *reader.close()]
    assert reader.begun == len(records)
    return envelope, sorted(records, key=lambda record: record.line_no)


def texts(records: Sequence[Record]) -> list[str]:
    """Of records, as they were written; blank lines between records say nothing."""
    return [record.raw.rstrip("\n") for record in records]


WANTED = texts(read(PLAIN)[1])


def test_plain_lines_have_no_envelope() -> None:
    assert read(PLAIN)[0] == Envelope(())
    assert len(WANTED) == 7


@pytest.mark.parametrize("name", ENVELOPES)
def test_each_envelope_is_opened(name: str) -> None:
    _, records = read(ENVELOPES[name](PLAIN))
    assert texts(records) == WANTED
    assert all(record.fits for record in records)


@pytest.mark.parametrize("inner", ENVELOPES)
@pytest.mark.parametrize("outer", ENVELOPES)
def test_an_envelope_in_an_envelope(outer: str, inner: str) -> None:
    assert texts(read(ENVELOPES[outer](ENVELOPES[inner](PLAIN)))[1]) == WANTED


# -- prefixes that nobody listed ---------------------------------------------------------------------------

words = st.text(st.sampled_from("abcxyzKAFKAöß_"), min_size=1, max_size=12)
numbers = st.integers(0, 10**9).map(str)
marks = st.sampled_from(
    [
        "|",
        "||",
        ":",
        " - ",
        "> ",
        "# ",
        "=> ",
        "/",
        "@",
        ".",
        ",",
        ";",
        "::",
        "[x] ",
        "(a) ",
        "<7>",
        "  ",
        "\t",
        "%",
        "*",
        "+",
        "~",
    ]
)


@st.composite
def prefixes(draw: st.DrawFn) -> str:
    """A prefix with words and marks that are the same in each line, and counters, times and sources that are
    not.
    """
    pieces = draw(
        st.lists(
            st.one_of(words, marks, st.sampled_from(["{n}", "{day}T{time}Z", "{time},123", "{day} {time}"])),
            min_size=1,
            max_size=7,
        )
    )
    end = draw(st.sampled_from([" ", ": ", "| ", "> ", "]", "\t"]))
    # a counter or a time is a part of its own
    form = (
        "".join(
            piece + draw(st.sampled_from([" ", "|", "/", "] ", "; "] if "{" in piece else ["", " "]))
            for piece in pieces
        )
        + end
    )
    return form


def shaped(form: str) -> Wrap:
    return prefixed(
        lambda n, day, time: form.replace("{n}", str(n)).replace("{day}", day).replace("{time}", time)
    )


@settings(max_examples=150, deadline=None)
@given(prefixes())
def test_any_prefix_is_found(form: str) -> None:
    assert texts(read(shaped(form)(PLAIN))[1]) == WANTED


@settings(max_examples=40, deadline=None)
@given(prefixes(), st.sampled_from(sorted(ENVELOPES)), st.booleans())
def test_any_prefix_and_a_known_envelope(form: str, name: str, is_outer: bool) -> None:
    wrap = shaped(form)
    one, other = (wrap, ENVELOPES[name]) if is_outer else (ENVELOPES[name], wrap)
    assert texts(read(one(other(PLAIN)))[1]) == WANTED


# -- nothing is forged -------------------------------------------------------------------------------------

FORGED = "[2026-11-20 10:09:12,175] INFO [Controller id=9 epoch=99] Changed state of replica 9 for partition a-9 from OnlineReplica to OfflineReplica (state.change.logger)"
QUOTED = [
    f"a.b.CException: {FORGED}",
    f"\tat {FORGED}",
    f"Caused by: a.b.CException: topic {FORGED}",
    f"  {FORGED}",
    f"> {FORGED}",
    f"topic: {FORGED}",
    f"kafka-4 | {FORGED}",
    json.dumps({"log": FORGED + "\n"}),
    f'"2026-11-20","kafka4","{FORGED}"',
    f"x\t{FORGED}",
]
HOSTILE = [*PLAIN[:3], *(line for quoted in QUOTED for line in (PLAIN[3], quoted, quoted)), *PLAIN[-2:]]


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_header_quoted_in_a_stack_trace_begins_no_record(name: str) -> None:
    _, records = read(ENVELOPES[name](HOSTILE))
    assert texts(records) == texts(read(HOSTILE)[1])
    assert all("replica 9" not in record.statement for record in records)


@pytest.mark.parametrize("quoted", QUOTED)
@pytest.mark.parametrize("name", ENVELOPES)
def test_nor_where_most_lines_are_stack_traces(name: str, quoted: str) -> None:
    lines = [PLAIN[0], *[PLAIN[3], *[quoted] * 30] * 3, PLAIN[1]]
    _, records = read(ENVELOPES[name](lines))
    assert all("replica 9" not in record.statement for record in records)
    assert len(records) == 5


def test_a_json_log_may_quote_other_logs() -> None:
    lines = [
        json.dumps({"timestamp": f"2026-11-20T10:09:{n:02d}.175Z", "level": "INFO", "logger": "kafka.server.KafkaServer",
                    "message": FORGED if n == 7 else "starting", "thread": FORGED, "exception": {"stacktrace": FORGED}})
        for n in range(20)
    ]  # fmt: skip
    lines = [
        line.replace(json.dumps(FORGED), '"main"', 1) if n != 7 else line for n, line in enumerate(lines)
    ]
    envelope, records = read(lines)
    assert (envelope, len(records)) == (Envelope(()), 20)


@pytest.mark.parametrize(
    "lines",
    [
        ["# Runbook", "", "When the controller has moved, it logs", "", f"    {FORGED}", "", "Then restart it.", "", "See also:", f"    {FORGED}", *["prose"] * 9],
        ["one line of a mail", f"as I said: {FORGED}", "and more", "and more", "bye"],
        ["127.0.0.1 - - [20/Nov/2026] GET /?q=" + FORGED] + ["127.0.0.1 - - [20/Nov/2026] GET /"] * 50,
    ],
)  # fmt: skip
def test_prose_that_quotes_a_line_is_no_log(lines: list[str]) -> None:
    assert read(lines)[0] in (None, Envelope(()), Envelope((), bare=True))


# -- other programs in the stream --------------------------------------------------------------------------


def test_a_stack_trace_stays_with_its_source() -> None:
    """Two containers write at the same time."""
    other = [line.replace("id=4 epoch=5", "id=5 epoch=6") for line in PLAIN]
    mixed = [
        line
        for n, pair in enumerate(zip(PLAIN, other, strict=True))
        for line in (f"kafka-4.x | {pair[0]}", f"kafka-5.x | {pair[1]}")
    ]
    _, records = read(mixed)
    assert sorted(texts(records)) == sorted(WANTED + texts(read(other)[1]))


@pytest.mark.parametrize("name", ["filebeat", "fluentd", "loki"])
def test_events_of_other_programs_belong_to_no_record(name: str) -> None:
    lines = [
        text
        for line in PLAIN[:2]
        for text in (line, f"{line[:24]} GET /index.html 200", "Listening on port 80", "===> Launching")
    ]
    foreign = [*ENVELOPES[name](lines[:1]), *(ENVELOPES[name]([text])[0] for text in lines[1:])]
    assert texts(read(foreign)[1]) == PLAIN[:2]


# -- node and time of an envelope --------------------------------------------------------------------


def test_the_envelope_names_node_and_time() -> None:
    bare = "Sending StopReplica request for 1 replicas to broker 1 (state.change.logger)"
    lines = [
        json.dumps(
            {
                "@timestamp": f"2026-11-20T10:09:1{n}.175+01:00",
                "host": {"name": f"kafka-{n}"},
                "message": bare,
            }
        )
        for n in range(3)
    ]
    _, records = read(lines)
    assert [(record.ts, record.node) for record in records] == [
        (f"2026-11-20 10:09:1{n}.175+01:00", n) for n in range(3)
    ]


def test_names_that_the_lines_contradict_give_no_node() -> None:
    """Pods are numbered from 0, brokers may be numbered from 1001."""
    lines = [f"kafka-0 kafka {line}" for line in PLAIN]
    envelope, records = read(lines)
    assert envelope is not None
    assert not envelope.names_node
    assert {record.node for record in records} == {None}
    shown = layout(PARSER, "\n".join(lines), "log", envelope)
    assert "  node          only as log lines name it: line 1 is of node 4, but its envelope names 0" in shown


def test_lines_of_several_pods_have_their_own_nodes(tmp_path: Path) -> None:
    """The only node that a line names is not the node of the other pods' lines."""
    lines = [
        f"kafka-{pod} kafka [2026-11-20 10:09:1{second},175] INFO {statement} ({logger})"
        for second, (pod, statement, logger) in enumerate(
            [
                (0, "[Controller id=1001 epoch=5] Resigned", "kafka.controller.KafkaController"),
                (1, "starting", "kafka.server.KafkaServer"),
                (1, "shutting down", "kafka.server.KafkaServer"),
            ]
        )
    ]
    file, found = rows(tmp_path / "pods.log", "\n".join(lines) + "\n")
    assert file.node is None
    nodes = [dict(one).get("node") for one in sorted(found, key=lambda one: dict(one)["ts"])]
    assert nodes == ["1001", None, None]
    # one pod has one node, whatever its number
    file, _ = rows(
        tmp_path / "pod.log", "\n".join(one.replace("kafka-1 ", "kafka-0 ") for one in lines) + "\n"
    )
    assert file.node == 1001


@pytest.mark.parametrize(
    ("names", "node"),
    [
        (("kafka-4.1.x7@worker-2 | ",), 4), (("broker-4/server.log:",), 4), (("kafka[812]: ",), None), (("kafka4", "broker-4"), 4),
        (("kafka-1", "kafka-2"), None), (("mykafka-3",), None), (("/data/node_7/x",), 7), (("worker-3",), None),
    ],
)  # fmt: skip
def test_node_of(names: tuple[str, ...], node: int | None) -> None:
    assert node_of(names) == node


# -- files -------------------------------------------------------------------------------------------------


def rows(path: Path, content: str) -> tuple[LogFile, list[tuple[Any, ...]]]:
    """What a file is, and its events as they land, but for the place of a record in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    file = SNIFFER.look(path)
    tables = [
        block.rows
        for split in splits([file], PARSER, 10**9)
        for block in record_blocks.parse(split, PARSER)
        if block.table == "events"
    ]
    found = [row for table in tables for row in table.to_pylist()]
    left_out = {"record_no", "file", "ends_file"}
    return file, sorted(
        tuple(sorted((k, str(v)) for k, v in row.items() if k not in left_out and v is not None))
        for row in found
    )


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_file_in_an_envelope_gives_the_same_events(name: str, tmp_path: Path) -> None:
    _, wanted = rows(tmp_path / "plain.log", "\n".join(PLAIN) + "\n")
    file, found = rows(tmp_path / "wrapped", "\n".join(ENVELOPES[name](PLAIN)) + "\n")
    assert file.kind == "log"
    assert file.node == 4
    assert len(wanted) > 5
    assert found == wanted


def test_a_stack_trace_that_quotes_a_header_begins_no_record(tmp_path: Path) -> None:
    """Only first lines of records have a prefix; the same stack trace is in the log several times."""
    wrapped = "\n".join(f"2026-11-20T10:09:12 {text}" for text in grouped(PLAIN * 3))
    _, wanted = rows(tmp_path / "plain.log", "\n".join(PLAIN * 3) + "\n")
    _, found = rows(tmp_path / "wrapped", wrapped + "\n")
    assert found == wanted


def test_a_line_that_is_older_than_a_record_is_of_another_one() -> None:
    """Of logcli and Grafana, which print the newest line first; each stack trace is before its record."""
    lines = [
        f'2026-11-20T10:09:{n:02d}Z {{pod="kafka-4"}} {line}'
        for n, line in enumerate([*PLAIN[:8], PLAIN[-1]])
    ]
    _, records = read(lines[::-1])
    assert len(records) == 5
    assert {record.rest for record in records} == {""}
    _, records = read(lines)
    assert [record.rest.count("\n") for record in records if record.rest] == [3]
    # a clock that steps back once does not end a record
    ordered = [line.replace("10:09:", "10:08:") if n > 5 else line for n, line in enumerate(lines)]
    assert [one.rest.count("\n") for one in read(ordered)[1]] == [one.rest.count("\n") for one in records]


@pytest.mark.shared
def test_the_cases_give_the_events_of_the_plain_log(shared: Path, tmp_path: Path) -> None:
    folder = shared / "cases" / "envelopes"
    _, wanted = rows(tmp_path / "plain.log", (folder / "plain.log").read_text("utf-8"))
    others = [path for path in sorted(folder.iterdir()) if path.name != "plain.log"]
    assert len(others) == 13
    for path in others:
        assert rows(tmp_path / path.name, path.read_text("utf-8"))[1] == wanted, path.name


@pytest.mark.parametrize("name", ["splunk", "semicolons"])
def test_a_row_may_be_long(name: str) -> None:
    """A field of more than 131,072 characters, which is the most that Python's reader takes unless it is set."""
    long = f"[2026-11-20 10:09:12,175] INFO {SPEAKER} {'x' * 200_000} (state.change.logger)"
    _, records = read(ENVELOPES[name]([*PLAIN, long]))
    assert texts(records) == [*WANTED, long]


@pytest.mark.parametrize(
    ("name", "is_split"),
    [("cri", True), ("swarm", True), ("mail", True), ("journal", True), ("filebeat", False)],
)
def test_a_file_in_an_envelope_of_lines_is_read_in_parts(name: str, is_split: bool, tmp_path: Path) -> None:
    """Its events are those of the file read at once, stack traces and numbers of equal texts among them."""
    lines = [
        line.replace("10:09:", f"{hour:02d}:{minute:02d}:")
        for hour in range(4)
        for minute in range(30)
        for line in PLAIN
    ]
    path = tmp_path / "log"
    path.write_text("\n".join(ENVELOPES[name](lines)) + "\n")
    file = SNIFFER.look(path)
    whole, parts = splits([file], PARSER, 10**9), splits([file], PARSER, 5_000)
    assert (len(whole), len(parts) > 10) == (1, is_split)
    found = []
    for some in (whole, parts):
        blocks = [block for split in some for block in record_blocks.parse(split, PARSER)]
        new_records.conserved(some, blocks)
        tables = [block.rows for block in blocks if block.table == "events"]
        rows_found = [
            {name: str(value) for name, value in row.items() if value is not None}
            for table in tables
            for row in table.to_pylist()
        ]
        found.append(sorted(json.dumps(row, sort_keys=True) for row in rows_found))
    one, other = found
    assert len(one) > 500
    assert one == other


def test_interleaved_streams_are_read_at_once() -> None:
    wrapped = [
        line
        for pair in zip(
            ENVELOPES["swarm"](PLAIN), [f"kafka-5.1.abc@worker-1    | {line}" for line in PLAIN], strict=True
        )
        for line in pair
    ]
    envelope, _ = read(wrapped)
    assert envelope is not None
    assert not envelope.is_of_lines
