"""Lines are joined to records, with the same line numbers and ids wherever a file is split."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.batches import record_blocks
from jobs.config import Cluster
from jobs.files import ingest
from jobs.landing import new_records
from parsers.events import Parser, moments, zone
from parsers.records import Headers

PARSER = Parser()
TRACE = [
    "java.io.IOException: Broken pipe",
    "\tat a.b.C.d(C.java:1)",
    "Caused by: java.lang.Error",
    "\t... 3 more",
]
Found = tuple[int, str]


def header(number: int, second: int | None = None) -> str:
    at = number % 60 if second is None else second
    return f"[2026-11-20 10:09:{at:02d},175] INFO statement {number} (kafka.controller.KafkaController)"


def parsed(folder: Path, size: int) -> list[record_blocks.Block]:
    files = [file for file in ingest.find(Cluster("c", (str(folder),))) if file.usable]
    splits = ingest.splits(files, PARSER, size)
    for file in files:
        ends = [(split.begin, split.end) for split in splits if split.file == file]
        assert [begin for begin, _ in ends] == [0, *(end for _, end in ends[:-1])]
        assert ends[-1][1] == file.length
    blocks = [block for split in splits for block in record_blocks.parse(split, PARSER)]
    numbers = [block.number for block in blocks if block.table == "events"]
    assert numbers == sorted(set(numbers))
    new_records.conserved(splits, blocks)
    return blocks


def rows_of(blocks: Iterable[record_blocks.Block]) -> list[dict[str, Any]]:
    rows = [row for block in blocks if block.table == "events" for row in block.rows.to_pylist()]
    found = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return sorted(found, key=lambda row: (row["file"], row["record_no"], row["item"]))


def read(folder: Path, size: int = 300) -> tuple[list[list[Found]], int]:
    """Return (line number and text of every record of each file, number of splits)."""
    blocks = parsed(folder, size)
    records_by_file: dict[str, list[Found]] = {}
    for row in rows_of(blocks):
        records_by_file.setdefault(row["file"], []).append((row["record_no"], row["raw"]))
    return [records_by_file[file] for file in sorted(records_by_file)], len({block.place for block in blocks})


def expected(content: Iterable[str]) -> list[Found]:
    """The same, found by going through the lines one after the other."""
    records: list[Found] = []
    for line_no, line in enumerate(content, 1):
        if line.startswith("[2026-"):
            records.append((line_no, line))
        elif records:
            records[-1] = (records[-1][0], f"{records[-1][1]}\n{line}")
    return records


def write(folder: Path, files: list[list[str]], newline: str = "\n", packed: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    for number, content in enumerate(files):
        text = (newline.join(content) + newline).encode()
        (folder / f"{number}.log{'.gz' if packed else ''}").write_bytes(
            gzip.compress(text) if packed else text
        )
    return folder


FILES = [
    # begins in the middle of a stack trace, after a rotation
    [*TRACE[1:], header(1), *TRACE, header(2), header(3), *TRACE[:1], *(f"\tat a.b.C.d(C.java:{n})" for n in range(60)), header(4)],
    # ends in a stack trace
    [*(header(n) for n in range(5, 45)), *TRACE],
    # has one record, after lines that belong to none
    ["prose", "", "  more prose", header(45)],
]  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CR LF"])
def test_records_of_files_that_are_split(tmp_path: Path, newline: str) -> None:
    records_by_file, splits = read(write(tmp_path / "logs", FILES, newline))
    assert splits > 10
    assert records_by_file == [expected(content) for content in FILES]


def test_records_of_packed_files(tmp_path: Path) -> None:
    records_by_file, splits = read(write(tmp_path / "logs", FILES, packed=True))
    assert splits == len(FILES)
    assert records_by_file == [expected(content) for content in FILES]


def test_bare_lines_keep_only_stack_traces(tmp_path: Path) -> None:
    """Lines without time stamps may be mixed with prose, which belongs to no record."""
    one, two = (
        f"Sending StopReplica request for {n} replicas to broker 1 (state.change.logger)" for n in (1, 2)
    )
    folder = write(
        tmp_path / "logs", [["We saw this:", one, *TRACE, "", "and then", two, "and that was all"]]
    )
    records_by_file, _ = read(folder)
    assert records_by_file == [[(2, "\n".join([one, *TRACE])), (9, two)]]


@st.composite
def logs(draw: Any) -> list[str]:
    """Draw lines in order of time; lines of one second may have equal texts."""
    found, second = [header(0, 9)], 10
    for number in draw(st.lists(st.integers(0, 9), max_size=40)):
        second += number == 0 and second < 59
        found.append(
            header(number, second)
            if number < 5
            else draw(st.sampled_from([*TRACE, "", "prose", "[2026] no time"]))
        )
    return found


@settings(max_examples=150)
@given(logs(), st.integers(30, 400), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_any_split_gives_the_same_records(
    tmp_path_factory: Any, lines: list[str], size: int, ended: bool, newline: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    text = newline.join(lines) + (newline if ended else "")
    (folder / "a.log").write_bytes(text.encode())
    whole, cut = (rows_of(parsed(folder, at)) for at in (10**9, size))
    assert [row["record_no"] for row in whole] == [line_no for line_no, _ in expected(lines)]
    assert cut == whole


def test_blocks_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "logs", FILES, "\r\n")
    whole = rows_of(parsed(folder, 10**9))
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(ingest, "BLOCK", size)
        assert rows_of(parsed(folder, 10**9)) == whole


PIECES = [
    "[2026-11-20 10:09:04,175]", "[2026-11-20T10:09:04+02:00]", " INFO ", " WARN", "[Controller id=1] ", "[", "]", "Broker 3 epoch 4 ", "stat", " (",
    "kafka.Log)", "(kafka.log.Log:12)  ", "\x1b[31m", "\x00", "\u2028", "é", "",
]  # fmt: skip


@given(
    st.lists(
        st.one_of(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.just(header(4))), max_size=6
    )
)
def test_headers_of_many_lines_are_those_of_each_line(lines: list[str]) -> None:
    """`at_once` returns the header of each line, or None where the lines must be read one by one."""
    headers = Headers([layout for layout in PARSER.ruleset.layouts if not layout.bare][:1])
    found = headers.at_once(lines)
    if found is not None:
        assert list(found) == [headers.of_line(line) for line in lines]
    else:
        assert not lines or any(odd in line for line in lines for odd in "\x00\x1b[")


def test_a_header_does_not_continue_in_the_next_line() -> None:
    lines = [
        header(1),
        "[2026-11-20 10:09:04,175] INFO [cut",
        "short] statement (kafka.controller.KafkaController)",
    ]
    found = list(PARSER.records("\n".join(lines)))
    assert [(record.line_no, record.raw) for record in found] == [(1, lines[0]), (2, "\n".join(lines[1:]))]


@pytest.mark.parametrize("name", ["UTC", "Asia/Tokyo"])
def test_a_year_that_no_log_has_is_no_time(name: str) -> None:
    """A broken clock: a row of each day up to year 9999 would take hours."""
    good = "2026-11-20 10:09:12.175"
    texts = [
        "0001-01-01 00:00:00.000",
        "1969-12-31 23:00:00.000",
        good,
        "2100-01-01 00:00:00",
        "9999-12-31 23:59:59",
    ]
    found = moments(texts, zone(name)).to_pylist()
    assert [at is not None for at in found] == [text == good for text in texts]
    assert moments([good], zone(name)).to_pylist() == [found[2]]
