"""Every given file and line is accounted for."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Expectation
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import rows_of
from test_archives import LINE
from test_containers import tar, write, zipped

from jobs import errors
from jobs.config import Cluster
from jobs.engine import in_process
from jobs.files import accounting, ingest
from jobs.files.accounting import looks_like, sentences, without_logs
from jobs.landing import new_records
from jobs.nightly_audit import main

EXPECTED = Path(__file__).parents[1] / "accounting.jsonl"
AT = "2026-11-20T10:09:03.001000000Z stdout"
FAILED = LINE.replace("INFO", "ERROR") + "java.io.IOException: no\n\tat a.b.C(D.java:1)\n\nCaused by: x\n"
FOREIGN = (
    "2026-11-20 10:09:12,175 INFO [main] [server.py:172] [trace_id=0] - Recommendation service started\n"
)
OTHER_LOGGER = "[2026-11-20 10:09:04,000] INFO Creating /brokers (kafka.zk.KafkaZkClient)\n[2026-11-20 10:09:04,000] INFO hello (com.example.App)\n"
BARE = "[Broker id=3] Sending StopReplica request for 1 replicas to broker 1 (state.change.logger)\n"
DESCRIBED = "Topic: a\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\n"
# twenty kinds of files that lie in one folder
FILES: dict[str, bytes] = {
    "01-plain.log": (LINE * 3).encode(),
    "02-stack-traces.log": (FAILED * 2 + LINE).encode(),
    "03-prose-before.log": ("Picked up JAVA_TOOL_OPTIONS\nnext\n" + LINE).encode(),
    "04-crlf.log": (LINE * 2 + FAILED).replace("\n", "\r\n").encode(),
    "05-two-programs.log": (LINE + FOREIGN + OTHER_LOGGER + LINE).encode(),
    "06-bare.log": (BARE * 2 + "prose between records\nmore prose\n" + BARE).encode(),
    "07-utf-16.log": ("\ufeff" + LINE * 2).encode("utf-16-le"),
    "08-packed.log.gz": gzip.compress((LINE * 4).encode()),
    "09-bundle.tar.gz": gzip.compress(
        tar({"broker-3/server.log": OTHER_LOGGER.encode(), "broker-3/notes.txt": b"notes\n"})
    ),
    "10-bundle.zip": zipped({"controller.log.gz": gzip.compress(LINE.encode())}),
    "11-cut-by-cri.log": f"{AT} P {LINE[:40]}\n{AT} F {LINE[40:]}{AT} F {LINE}".encode(),
    "12-long-line.log": (
        LINE + "[2026-11-20 10:09:04,000] INFO " + "x" * 1_100_000 + " (kafka.controller.KafkaController)\n"
    ).encode(),
    "13-unended.log": (LINE * 2 + LINE[:60]).encode(),
    "14-describe-2026-11-20T10:00:00Z.txt": DESCRIBED.encode(),
    "15-empty.log": b"",
    "16-notes.txt": b"Dear diary,\ntoday nothing happened.\n",
    "17-metrics.json": b'{"step": "start", "took": 3}\n',
    "18-truncated.log.gz": gzip.compress(LINE.encode())[:-6],
    "19-foreign.rar": b"Rar!\x1a\x07" + bytes(40),
    "20-damaged.tar.gz": gzip.compress(tar({"server.log": LINE.encode()})[:700]),
}


def accounts(folder: Path) -> tuple[list[ingest.LogFile], list[dict[str, Any]]]:
    """The files of a folder and their rows of `inputs`."""
    files = ingest.find(Cluster("c", (str(folder),)))
    parsed = in_process.parsed_in_process(files, None)
    new_records.conserved(parsed.splits, parsed.blocks)
    rows = accounting.rows(files, new_records.by_file(parsed.blocks), "run")
    return files, [row | {"file": row["file"].removeprefix(f"{folder}/")} for row in rows]


def test_twenty_kinds_of_files(tmp_path: Path, expect: Expectation) -> None:
    write(tmp_path, FILES)
    (tmp_path / "21-link").symlink_to(tmp_path / "nowhere")
    rows = accounts(tmp_path)[1]
    expect(
        EXPECTED,
        sorted(
            ({name: value for name, value in row.items() if value is not None} for row in rows),
            key=lambda row: row["file"],
        ),
    )
    notes = "\n".join(sentences(rows))
    assert notes.startswith(
        "Read: 14 logs, 52 lines = 32 records + 13 continuation lines + 3 records of other programs + 4 lines without a record."
    )
    assert (
        "Skipped of 23 files: 1 empty, 3 unrelated, 1 skipped, 3 unreadable (table inputs has the reasons). 1 output of Kafka's tools."
        in notes
    )


LINES = [
    LINE,
    FAILED,
    FOREIGN,
    OTHER_LOGGER,
    BARE,
    "prose\n",
    "\n",
    f"{AT} P {LINE[:40]}\n",
    f"{AT} F rest\n",
    "\tat a.b.C(D.java:1)\n",
    "\r",
]


@given(st.lists(st.sampled_from(LINES), max_size=12), st.sampled_from(["", "no line end"]))
@settings(max_examples=150)
def test_the_sum_of_lines_is_exact(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str
) -> None:
    """Whatever stands in a log: `rows` raises where the kinds of lines do not add up to those of the file."""
    folder = tmp_path_factory.mktemp("sum")
    text = LINE + "".join(lines) + end
    (folder / "server.log").write_bytes(text.encode())
    ((row,),) = [accounts(folder)[1]]
    assert row["lines"] == len(re.findall(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z", text))
    assert row["lines"] == sum(row[name] for name in accounting.COUNTED)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("\n\n  \n", "blank lines"),
        ("\x7fELF\x02\x01" + "\x00\x01" * 400, "no text"),
        ('{"step": "start", "level": 3}\n', "JSON with the keys step, level,"),
        ("<html>\n<body>\n", "XML or HTML: <html>"),
        ("[2026-11-20T10:09:03.001+0000][info][gc] GC(0) Pause Young\n", "garbage collection"),
        ("2026-11-20 10:09:03 | broker | started\n", "a log in another layout: 2026-11-20 10:09:03 | broker"),
        ("<134>1 2026-11-20T10:09:03Z host cron - - - x\n", "a text: <134>1"),
        (
            "WzIwMjYtMTEtMjAgMTA6MDk6MTIsMTc1XSBJTkZPIFtCcm9rZXIgaWQ9M10gU3RvcHBlZCBmZXRj\n" * 3,
            "base64; `base64 -d",
        ),
        (
            "To: x\n\n"
            + "WzIwMjYtMTEtMjAgMTA6MDk6MTIsMTc1XSBJTkZPIFtCcm9rZXIgaWQ9M10gU3RvcHBlZCBmZXRj\n" * 3,
            "the text of the mail",
        ),
        ("Nov 20 10:09:03 host cron[1]: x\n", "a log in another layout: Nov 20"),
        ("Dear diary,\n", "a text: Dear diary,"),
        ("a\x1b[2Jb\n", r"a text: a\x1b[2Jb"),
    ],
)
def test_a_text_without_records_is_described(text: str, what: str) -> None:
    assert what in looks_like(text)


def test_a_given_path_without_logs_is_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "logs/a.log": LINE.encode(),
            "none/notes.txt": b"Dear diary,\n",
            "none/more.txt": b"x\n",
            "empty.log": b"",
        },
    )
    given = [str(tmp_path / name) for name in ("logs", "none", "empty.log", "lo*", "*/notes.txt", "none/")]
    found = without_logs(given, ingest.find(Cluster("c", tuple(given))))
    assert [text.partition(": nothing was read: ")[0] for text in found] == [
        given[1],
        given[2],
        given[4],
        given[5],
    ]
    assert found[1].endswith("it is empty")
    assert "it looks like a text: Dear diary," in found[2]
    assert "kafka-audit layout FILE" in found[2]


def test_logs_without_time_stamps_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("INFO [Broker id=3] Stopped fetchers (state.change.logger)\n")
    files = ingest.find(ingest.Cluster("c", (str(tmp_path),)))
    counts = {0: Counter(lines=1, begun=1)}
    notes = accounting.sentences(accounting.rows(files, counts, "run"))
    assert (
        "1 log without time stamps: records keep the order of the file, and durations are not known." in notes
    )


@pytest.mark.parametrize(
    "given",
    [
        "logs",
        "./logs",
        "logs/",
        "logs//broker-1",
        ".",
        "logs/../logs",
        "logs/**/*.log*",
        "./logs/*/server.log",
        "lo*",
        "logs/broker-?",
        "**/*.log",
    ],
)
@pytest.mark.parametrize("relative", [True, False])
def test_a_given_path_with_a_log_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, relative: bool
) -> None:
    write(tmp_path, {"logs/broker-1/server.log": LINE.encode(), "logs/controller.log": LINE.encode()})
    monkeypatch.chdir(tmp_path)
    one = given if relative else f"{tmp_path}/{given}"
    assert without_logs([one], ingest.find(Cluster("c", (one,)))) == []


@pytest.mark.spark
def test_a_given_path_without_logs_ends_with_code_3(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {"controller.log": (LINE * 2 + FAILED).encode(), "notes.txt": b"Dear diary,\n"})
    logs = [str(tmp_path / "controller.log"), str(tmp_path / "notes.txt")]
    arguments = ["audit", *logs, "--tables", str(tmp_path / "tables"), "--cluster", "c"]
    for _ in range(2):
        assert main(arguments) == errors.INPUT
        said = capsys.readouterr().out
        assert f"Not read: {logs[1]}: nothing was read: it looks like a text: Dear diary,." in said
        assert (
            "Read: 1 log, 7 lines = 3 records + 4 continuation lines + 0 records of other programs + 0 lines without a record."
            in said
        )
    rows = {Path(row["file"]).name: row for row in rows_of(tmp_path / "tables", "inputs")}
    assert (rows["controller.log"]["lines"], rows["controller.log"]["continuation_lines"]) == (7, 4)
    assert (rows["notes.txt"]["kind"], rows["notes.txt"]["lines"]) == ("unrelated", None)
    assert main([*arguments, "--json"]) == errors.INPUT
    assert [row["kind"] for row in json.loads(capsys.readouterr().out)["inputs"]] == ["log", "unrelated"]


def test_a_log_in_another_layout_is_named_with_what_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker-1" / "server.log"
    path.parent.mkdir()
    path.write_text("[10:09:12,175] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)\n")
    arguments = ["audit", str(path), "--tables", str(tmp_path / "tables"), "--engine", "local", "--json"]
    assert main(arguments) == errors.INPUT
    (cluster,) = json.loads(capsys.readouterr().out)["clusters"]
    assert f"`kafka-audit layout {path}` shows" in cluster["problem"]
