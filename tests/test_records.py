"""Lines put together to records, with their line numbers, wherever Spark cuts a file."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.config import Cluster
from jobs.ingest import find, lines, records, staged
from parsers.layouts import layouts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMED = [layout for layout in layouts() if not layout.bare]
BARE = [layout for layout in layouts() if layout.bare]
SIZE_OF_SPLIT = "spark.sql.files.maxPartitionBytes"
TRACE = [
    "java.io.IOException: Broken pipe",
    "\tat a.b.C.d(C.java:1)",
    "Caused by: java.lang.Error",
    "\t... 3 more",
]
Record = tuple[int, int, str, str | None]


def header(number: int) -> str:
    return f"[2026-11-20 10:09:{number % 60:02d},175] INFO statement {number} (kafka.controller.KafkaController)"


@pytest.fixture
def tiny_splits(spark: SparkSession) -> Iterator[None]:
    """Files are cut every 300 bytes."""
    spark.conf.set(SIZE_OF_SPLIT, "300")
    yield
    spark.conf.unset(SIZE_OF_SPLIT)


def read(spark: SparkSession, folder: Path, kind: str = "log") -> tuple[list[Record], int, int, int]:
    """(file_no, line_no, head, tail) of every record; how many lines, lines that begin none, splits."""
    with staged(find(Cluster("c", (str(folder),))), folder.parent / "staging") as source:
        numbered, survey = lines(spark, source.of_kind(kind), TIMED if kind == "log" else BARE)
        total, continued = survey.lines, survey.continued
        found = records(numbered, survey, stack_traces_only=kind == "bare")
        rows: list[Any] = found.collect()
        splits = numbered.rdd.getNumPartitions() if continued else 0
    assert all(row.raw == row.head + ("" if row.tail is None else "\n" + row.tail) for row in rows)
    told = sorted(((row.file_no, row.line_no, row.head, row.tail) for row in rows), key=lambda row: row[:2])
    return told, total, continued, splits


def expected(files: list[list[str]]) -> list[Record]:
    """The same, found by going through the lines one after the other."""
    told: list[Record] = []
    for file_no, content in enumerate(files):
        begun: tuple[int, str, list[str]] | None = None
        for line_no, line in enumerate([*content, None], 1):
            if line is None or line.startswith("[2026-"):
                if begun:
                    told.append((file_no, begun[0], begun[1], "\n".join(begun[2]) or None))
                begun = (line_no, line, []) if line is not None else None
            elif begun:
                begun[2].append(line)
    return told


def write(folder: Path, files: list[list[str]], newline: str = "\n", packed: bool = False) -> Path:
    folder.mkdir()
    for number, content in enumerate(files):
        text = (newline.join(content) + newline).encode()
        (folder / f"{number}.log{'.gz' if packed else ''}").write_bytes(gzip.compress(text) if packed else text)
    return folder


FILES = [
    # begins in the middle of a stack trace: a rotation cut it off
    [
        *TRACE[1:],
        header(1),
        *TRACE,
        header(2),
        header(3),
        *TRACE[:1],
        *(f"\tat a.b.C.d(C.java:{n})" for n in range(60)),
        header(4),
    ],
    # ends in one
    [*(header(n) for n in range(5, 45)), *TRACE],
    # orphans only before its one record
    ["prose", "", "  more prose", header(45)],
]


@pytest.mark.usefixtures("tiny_splits")
def test_records_of_files_that_are_split(spark: SparkSession, tmp_path: Path) -> None:
    told, total, continued, splits = read(spark, write(tmp_path / "logs", FILES))
    assert splits > 15
    assert told == expected(FILES)
    assert total == sum(map(len, FILES))
    assert continued == sum(not line.startswith("[2026-") for content in FILES for line in content)


def test_records_of_whole_files_packed_and_with_crlf(spark: SparkSession, tmp_path: Path) -> None:
    told, total, _, _ = read(spark, write(tmp_path / "logs", FILES, newline="\r\n", packed=True))
    assert told == expected(FILES)
    assert total == sum(map(len, FILES))


def test_files_without_stack_traces(spark: SparkSession, tmp_path: Path) -> None:
    files = [[header(n) for n in range(10)], [header(10)]]
    told, total, continued, _ = read(spark, write(tmp_path / "logs", files))
    assert (told, total, continued) == (expected(files), 11, 0)


def test_of_bare_lines_only_stack_traces_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """Between lines without time stamps stands what people write: prose belongs to no record."""
    one, two = (f"Sending StopReplica request for {n} replicas to broker 1 (state.change.logger)" for n in (1, 2))
    folder = write(tmp_path / "logs", [["We saw this:", one, *TRACE, "", "and then", two, "and that was all"]])
    told, total, _, _ = read(spark, folder, "bare")
    assert told == [(0, 2, one, "\n".join(TRACE)), (0, 9, two, None)]
    assert total == 10
