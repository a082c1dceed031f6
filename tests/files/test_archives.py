"""Packed files: each codec is read by its content, and what expands without end costs seconds and is named."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from jobs import errors
from jobs.config import Cluster
from jobs.files import archives
from jobs.files.archives import DamagedError, LimitError, Limits, open_text
from jobs.files.ingest import find
from jobs.landing import new_records
from jobs.nightly_audit import main

LINE = "[2026-11-20 10:09:03,001] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)\n"


def of_arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(text: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:
            out.write(text)
        packed: bytes = sink.getvalue().to_pybytes()
        return packed

    return pack


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": of_arrow("zstd"),
    "lz4": of_arrow("lz4"),
}
# of lz4 255 bytes of text need one byte: nothing in it expands more
BOMBS = ("gz", "bz2", "xz", "zst", "lz4")
ENDLESS = {
    "NUL": lambda size: b"\0" * size,
    "one letter": lambda size: b"A" * size,
    "line ends": lambda size: b"\n" * size,
    "lines of NUL": lambda size: (b"\0" * 8191 + b"\n") * (size // 8192),
}


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "WINDOW", 4 * 1024 * 1024)


@pytest.mark.parametrize("codec", PACK)
def test_each_codec_is_read_under_any_file_name(tmp_path: Path, codec: str) -> None:
    text = b"".join(LINE.replace("001", f"{n:03d}").encode() for n in range(900))
    for name, content in (
        ("a.log.1", PACK[codec](text)),
        (f"b.log.{codec}", PACK[codec](text[:500]) + PACK[codec](text[500:])),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with open_text(path, (codec,)) as stream:
            assert stream.read() == text
        (found,) = find(Cluster("c", (str(path),)))
        assert (found.kind, found.length, found.first_ts, found.last_ts) == (
            "log", len(text), "2026-11-20 10:09:03.000", "2026-11-20 10:09:03.899",
        )  # fmt: skip


@pytest.mark.parametrize("codec", PACK)
def test_a_truncated_or_damaged_file_is_named(tmp_path: Path, codec: str) -> None:
    whole = PACK[codec](b"".join(f"{n * 7919 % 100_003} {LINE}".encode() for n in range(5000)))
    path = tmp_path / "a"
    for content, why in (
        (whole[: len(whole) // 2], "truncated"),
        (whole[:2000] + b"\xff" * 99 + whole[2099:], codec),
    ):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=why), open_text(path, (codec,)) as stream:
            stream.read()


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("codec", BOMBS)
def test_an_archive_that_repeats_itself_is_named_and_the_others_are_read(
    tmp_path: Path, codec: str, kind: str
) -> None:
    (tmp_path / f"state-change.log.{codec}").write_bytes(
        PACK[codec](LINE.encode() + ENDLESS[kind](50_000_000))
    )
    (tmp_path / "controller.log").write_text(LINE)
    kinds = {file.path.name: (file.kind, file.why) for file in find(Cluster("c", (str(tmp_path),)))}
    assert kinds["controller.log"] == ("log", "")
    found, why = kinds[f"state-change.log.{codec}"]
    assert found == "unreadable"
    assert "raise `ratio` in [limits] of audit.toml" in why


def test_a_bomb_costs_no_more_than_two_windows(tmp_path: Path) -> None:
    path = tmp_path / "a.log.zst"
    path.write_bytes(PACK["zst"](LINE.encode() + b"\0" * 1_500_000_000))
    begun = time.perf_counter()
    read: list[int] = []
    with pytest.raises(LimitError), open_text(path, ("zst",)) as stream:
        read.extend(map(len, iter(lambda: stream.read(1_000_000), b"")))
    assert sum(read) <= 2 * archives.WINDOW
    assert time.perf_counter() - begun < 5


@pytest.mark.usefixtures("small_window")
def test_a_log_that_packs_well_is_read(tmp_path: Path) -> None:
    """An exception that is logged every millisecond: xz stores little but the time stamps."""
    trace = "java.io.IOException: Broken pipe\n" + "".join(
        f"\tat a.b.C.d{n}(C.java:{n})\n" for n in range(200)
    )
    lines = (
        f"[2026-11-20 10:{n // 60000 % 60:02d}:{n // 1000 % 60:02d},{n % 1000:03d}] ERROR oops (a.b.C)\n"
        for n in range(5000)
    )
    text = b"".join((line + trace).encode() for line in lines)
    packed = lzma.compress(text)
    assert len(text) > 5 * archives.WINDOW
    assert len(text) > 250 * len(packed)
    (tmp_path / "server.log.xz").write_bytes(packed)
    (found,) = find(Cluster("c", (str(tmp_path),)))
    assert (found.kind, found.length) == ("log", len(text))


def test_limits_are_those_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "controller.log.gz").write_bytes(gzip.compress(LINE.encode() * 100))
    with (
        pytest.raises(LimitError, match="unpacked_gb"),
        open_text(tmp_path / "controller.log.gz", ("gz",), Limits(5000)) as stream,
    ):
        stream.read()
    (tmp_path / "audit.toml").write_text("[limits]\nratios = 5\n")
    given = [
        "audit",
        str(tmp_path),
        "--tables",
        str(tmp_path / "tables"),
        "--config",
        str(tmp_path / "audit.toml"),
    ]
    assert main(given) == errors.USAGE
    assert "limits: unknown key 'ratios'; did you mean 'ratio'?" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("codec", ["", "gz"])
def test_a_line_that_is_too_long_is_cut_and_kept(tmp_path: Path, codec: str, end: str) -> None:
    """Its beginning and its end stay, so that its logger is known, and it is neither drift nor another
    record.
    """
    prefix = "[2026-11-20 10:09:04,000] TRACE [Controller id=1] All leaders = "
    long = prefix + "é, " * 1_000_000 + " (kafka.controller.KafkaController)"
    text = end.join(
        [LINE.rstrip(), long, "\tat a.b.C(D.java:1)", LINE.rstrip().replace("03,001", "05,000"), ""]
    ).encode()
    path = tmp_path / "controller.log"
    path.write_bytes(PACK[codec](text) if codec else text)
    rows = sorted(new_records.events_of([str(path)]).to_pylist(), key=lambda row: row["record_no"])
    assert [row["record_no"] for row in rows] == [1, 2, 4]
    assert [row["event_type"] for row in rows[::2]] == ["controller_resigned"] * 2
    cut = rows[1]
    assert (cut["logger"], cut["drifted"]) == ("kafka.controller.KafkaController", False)
    assert cut["raw"].endswith("é,  (kafka.controller.KafkaController)\n\tat a.b.C(D.java:1)")
    assert len(cut["raw"]) < 1_000_100
    assert cut["cut_bytes"] == len(long.encode()) - len(cut["raw"].encode()) + len(
        " .. cut .. \n\tat a.b.C(D.java:1)"
    )
    assert [row["cut_bytes"] for row in (rows[0], rows[2])] == [None, None]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_line_of_just_one_megabyte_is_whole(tmp_path: Path, beyond: int) -> None:
    head, tail = "[2026-11-20 10:09:04,000] INFO ", " (kafka.controller.KafkaController)"
    line = head + "x" * (1_000_000 + beyond - len(head) - len(tail)) + tail
    path = tmp_path / "controller.log"
    path.write_text(f"{line}\n{LINE}")
    rows = {row["record_no"]: row for row in new_records.events_of([str(path)]).to_pylist()}
    assert (rows[1]["raw"] == line) == (beyond <= 0)
    assert rows[1]["cut_bytes"] == (None if beyond <= 0 else 1)


def test_a_record_does_not_depend_on_how_its_long_line_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever pieces it comes, plain, packed, or in pieces of a container runtime."""
    body = "".join(f"orders-{n} -> 1, " for n in range(150_000))
    long = f"[2026-11-20 10:09:04,000] TRACE [Controller id=1] All leaders = {body} (kafka.controller.KafkaController)"
    pieces = [long[at : at + 16_000] for at in range(0, len(long), 16_000)]
    flags = "P" * (len(pieces) - 1) + "F"
    wrapped = "".join(
        f"2026-11-20T10:09:04Z stdout {flag} {piece}\n" for flag, piece in zip(flags, pieces, strict=True)
    )
    (tmp_path / "plain.log").write_text(LINE + long + "\n")
    (tmp_path / "packed.log").write_bytes(gzip.compress((LINE + long + "\n").encode()))
    (tmp_path / "cri.log").write_text(wrapped)
    found = []
    for block in (4 * 1024 * 1024, 70_000):
        monkeypatch.setattr("jobs.files.ingest.BLOCK", block)
        for name in ("plain.log", "packed.log"):
            found += [
                row for row in new_records.events_of([str(tmp_path / name)]).to_pylist() if row["cut_bytes"]
            ]
    assert len({(row["record_id"], row["raw"], row["cut_bytes"]) for row in found}) == 1
    assert len(found) == 4
    (cut,) = new_records.events_of([str(tmp_path / "cri.log")]).to_pylist()
    assert cut["cut_bytes"] > 0
    assert len(cut["raw"]) < 1_000_100


def test_no_value_is_read_across_a_cut(tmp_path: Path) -> None:
    """Partitions that are named whole are events; of the one at the cut nothing is said."""
    each = [
        f"orders-{n} -> (Leader:2,ISR:2,LeaderRecoveryState:RECOVERED,LeaderEpoch:{n},ZkVersion:3,ControllerEpoch:1)"
        for n in range(20_000)
    ]
    line = f"[2026-11-20 10:09:13,000] TRACE [Controller id=3] All leaders = {','.join(each)} (kafka.controller.KafkaController)\n"
    (tmp_path / "controller.log").write_text(line)
    rows = new_records.events_of([str(tmp_path)]).to_pylist()
    assert {row["cut_bytes"] for row in rows} == {rows[0]["cut_bytes"]}
    assert len(line) - rows[0]["cut_bytes"] == 1_000_001
    whole = sum(len(one) + 1 for one in each[: len(rows)])
    assert 990_000 < whole < 1_000_000
    assert all((row["partition"], row["leader"], row["isr"]) == (row["leader_epoch"], 2, [2]) for row in rows)


def test_the_lines_after_the_first_are_bounded_and_counted(tmp_path: Path) -> None:
    failed = LINE.replace("INFO", "ERROR")
    (tmp_path / "controller.log").write_text(
        failed + "\tat " + "x" * 600_000 + "\n" + ("\tat " + "y" * 600_000 + "\n") * 9 + LINE
    )
    rows = {row["record_no"]: row for row in new_records.events_of([str(tmp_path)]).to_pylist()}
    assert rows.keys() == {1, 12}
    assert len(rows[1]["raw"]) + rows[1]["cut_bytes"] == len(failed) + 10 * 600_005 - 1
    assert len(rows[1]["raw"]) < 4_000_200


def test_memory_is_bounded_by_the_line_not_by_the_file() -> None:
    """A gigabyte without a line end is read in pieces."""
    import tracemalloc

    from jobs.files.ingest import blocks

    class Endless(io.RawIOBase):
        left = 300

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return b"x" * min(size, 1_000_000) if self.left >= 0 else b""

    tracemalloc.start()
    (lines,) = blocks(Endless())  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines[0].cut == 300_000_000 - 1_000_000
    assert peak < 40_000_000
