"""Logs in archives, in several layers, from standard input: the same events as the plain files, and nothing
is ever written.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import py7zr
import pytest
from test_archives import LINE, PACK

from jobs import errors
from jobs.config import Cluster
from jobs.engine import in_process
from jobs.files import archives, ingest
from jobs.files.archives import Limits
from jobs.landing import new_records
from jobs.nightly_audit import main

SAMPLE = Path(__file__).parents[2] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
Files = dict[str, bytes]


def tar(files: Files) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return content.getvalue()


def zipped(files: Files) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def seven_zipped(
    files: Files,
    filters: list[dict[str, int]] | None = None,
    password: str | None = None,
    encoded: bool = True,
) -> bytes:
    content = io.BytesIO()
    with py7zr.SevenZipFile(content, "w", filters=filters, password=password) as archive:
        archive.set_encoded_header_mode(encoded)
        for name, text in files.items():
            archive.writestr(text, name)
    return content.getvalue()


def with_header(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The .7z with another list of files, which is not packed.

    Its checksums are right. 7zFormat.txt, SignatureHeader.
    """
    _, at, size, _ = struct.unpack("<IQQI", content[8:32])
    header = change(content[32 + at : 32 + at + size])
    start = struct.pack("<QQI", at, len(header), zlib.crc32(header))
    return content[:8] + struct.pack("<I", zlib.crc32(start)) + start + content[32 : 32 + at] + header


def each(pack: Callable[[bytes], bytes], files: Files, suffix: str) -> Files:
    return {f"{name}.{suffix}": pack(text) for name, text in files.items()}


CONTAINERS: dict[str, Callable[[Files], Files]] = {
    "plain": lambda files: files,
    **{codec: lambda files, codec=codec: each(PACK[codec], files, codec) for codec in PACK},
    "tar": lambda files: {"b.tar": tar(files)},
    "tgz": lambda files: {"b.tgz": gzip.compress(tar(files))},
    **{
        f"tar.{codec}": lambda files, codec=codec: {f"b.tar.{codec}": PACK[codec](tar(files))}
        for codec in PACK
    },
    "zip": lambda files: {"b.zip": zipped(files)},
    "7z": lambda files: {"b.7z": seven_zipped(files)},
    **{
        f"7z of {name}": lambda files, filters=filters: {"b.7z": seven_zipped(files, filters)}
        for name, filters in (
            ("LZMA", [{"id": py7zr.FILTER_LZMA, "preset": 6}]),
            ("BCJ and LZMA2", [{"id": py7zr.FILTER_X86}, {"id": py7zr.FILTER_LZMA2, "preset": 1}]),
            ("Deflate", [{"id": py7zr.FILTER_DEFLATE}]),
            ("BZip2", [{"id": py7zr.FILTER_BZIP2}]),
            ("PPMd", [{"id": py7zr.FILTER_PPMD, "order": 6, "mem": 24}]),
            ("Zstandard", [{"id": py7zr.FILTER_ZSTD, "level": 3}]),
            ("copies", [{"id": py7zr.FILTER_COPY}]),
        )
    },
    "gz in 7z": lambda files: {"b.7z": seven_zipped(each(gzip.compress, files, "gz"))},
    "7z in tar.gz": lambda files: {"b.tar.gz": gzip.compress(tar({"inner.7z": seven_zipped(files)}))},
    "7z in 7z": lambda files: {"b.7z": seven_zipped({"inner.7z": seven_zipped(files)})},
    "without a suffix": lambda files: {"bundle": gzip.compress(tar(files))},
    "gz in tar": lambda files: {"b.tar": tar(each(gzip.compress, files, "gz"))},
    "xz in zip": lambda files: {"b.zip": zipped(each(PACK["xz"], files, "xz"))},
    "tar.gz in zip": lambda files: {"b.zip": zipped({"inner.tar.gz": gzip.compress(tar(files))})},
    "zip in tar.gz": lambda files: {"b.tar.gz": gzip.compress(tar({"inner.zip": zipped(files)}))},
    "gz in zip in tar": lambda files: {"b.tar": tar({"i.zip": zipped(each(gzip.compress, files, "gz"))})},
    "side by side": lambda files: (
        files | each(PACK["zst"], files, "zst") | {"b.tar.gz": gzip.compress(tar(files))}
    ),
    "a node an archive": lambda files: {
        f"{node}.tar.gz": gzip.compress(
            tar({Path(name).name: text for name, text in files.items() if name.startswith(node)})
        )
        for node in ("broker-1", "broker-2", "broker-3")
    },
    "paths of Windows": lambda files: {
        "b.zip": zipped({"C:\\kafka\\" + name.replace("/", "\\"): text for name, text in files.items()})
    },
    "names that lead out": lambda files: {
        "b.tar": tar({f"../../{name}": text for name, text in files.items()})
    },
    "absolute names": lambda files: {
        "b.tar": tar({f"/var/log/{name}": text for name, text in files.items()})
    },
    "UTF-16": lambda files: {name: text.decode().encode("utf-16") for name, text in files.items()},
    "UTF-16 without a mark, in tar.gz": lambda files: {
        "b.tgz": gzip.compress(tar({name: text.decode().encode("utf-16-be") for name, text in files.items()}))
    },
    "CRLF": lambda files: {name: text.replace(b"\n", b"\r\n") for name, text in files.items()},
}


@pytest.fixture(scope="module")
def files() -> Files:
    return {
        str(path.relative_to(SAMPLE)): path.read_bytes() for path in sorted(SAMPLE.glob("broker-*/*.log*"))
    }


def write(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    """Events without what says where they were read."""
    found = new_records.events_of([str(folder)], "c").drop_columns(["file", "ends_file"]).to_pylist()
    return sorted(found, key=lambda row: (row["record_id"], row["item"]))


@pytest.fixture(scope="module")
def expected(files: Files, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return rows(write(tmp_path_factory.mktemp("plain"), files))


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_gives_the_events_of_plain_logs(
    files: Files, expected: list[dict[str, Any]], tmp_path: Path, kind: str
) -> None:
    folder = write(tmp_path / "logs", CONTAINERS[kind](files))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert rows(folder) == expected
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_member_is_named_by_its_path(files: Files, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "b.zip": zipped(
                {"inner.tar": tar({"broker-3/server.log": LINE.replace("[Controller id=1] ", "").encode()})}
            )
        },
    )
    (found,) = ingest.find(Cluster("c", (str(tmp_path),)))
    assert (found.name, found.node) == (f"{tmp_path}/b.zip!/inner.tar!/broker-3/server.log", 3)
    assert archives.read_as(found.layers) == "zip, tar"


def test_a_name_is_printed_as_text(tmp_path: Path) -> None:
    """A member cannot make a terminal act."""
    write(tmp_path, {"b.tar": tar({"\x1b[2J\n.log": LINE.encode()})})
    (found,) = ingest.find(Cluster("c", (str(tmp_path),)))
    assert found.name.endswith("b.tar!/\\x1b[2J\\n.log")


def test_an_archive_is_read_from_its_beginning_once(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"b.tar.gz": gzip.compress(tar(files))})
    found = ingest.find(Cluster("c", (str(tmp_path),)))
    begun: list[Path] = []
    walk = archives.walk

    def counted(path: Path, limits: Limits) -> Iterator[archives.Opened]:
        begun.append(path)
        return walk(path, limits)

    monkeypatch.setattr(archives, "walk", counted)
    for file in found:
        with file.open() as stream:
            stream.read(100)
    assert len(found) == len(files)
    assert len(begun) == 1
    # and from there again, where an earlier one is asked for
    with found[0].open() as stream:
        assert stream.read() == next(iter(files.values()))


def kinds(folder: Path, limits: Limits = archives.LIMITS) -> dict[str, tuple[str, str]]:
    found = ingest.find(Cluster("c", (str(folder),)), None, limits)
    return {file.name.removeprefix(f"{folder}/"): (file.kind, file.why) for file in found}


def test_an_unreadable_member_is_named(tmp_path: Path) -> None:
    encrypted = bytearray(zipped({"a.log": LINE.encode(), "b.log": LINE.encode()}))
    # the flag of the first entry, in its own header and in the directory at the end
    encrypted[6] |= 1
    encrypted[encrypted.find(b"PK\x01\x02") + 8] |= 1
    deep = zipped({"1.zip": zipped({"2.zip": zipped({"a.log": LINE.encode()})})})
    many = LINE.encode()
    for _ in range(8):
        many = gzip.compress(many)
    write(
        tmp_path,
        {
            "e.zip": bytes(encrypted),
            "deep.zip": deep,
            "many.gz": many,
            "a.7z": b"7z\xbc\xaf\x27\x1c" + bytes(60),
            "e.7z": seven_zipped({"a.log": LINE.encode()}, password="secret"),
            "deep.7z": seven_zipped({"1.zip": zipped({"2.7z": seven_zipped({"a.log": LINE.encode()})})}),
            "good.log": LINE.encode(),
        },
    )
    found = kinds(tmp_path)
    assert {name for name, (kind, _) in found.items() if kind == "log"} == {"good.log", "e.zip!/b.log"}
    assert found["e.zip!/a.log"] == ("unreadable", "it is encrypted; unpack it")
    assert found["deep.zip!/1.zip!/2.zip"] == (
        "unreadable",
        "it is an archive in an archive in an archive; unpack it",
    )
    assert found["many.gz"] == ("unreadable", "it is packed more than 6 times; unpack it")
    assert found["a.7z"][1].startswith("the .7z is damaged: ")
    assert found["e.7z"] == ("unreadable", "it is encrypted; unpack it")
    assert found["deep.7z!/1.zip!/2.7z"] == found["deep.zip!/1.zip!/2.zip"]


@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress], ids=["tar", "tar.gz"])
def test_members_before_the_damage_are_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    noise = random.Random(1).randbytes(5_000_000)
    whole = tar(
        {"a.log": LINE.encode() * 9, "noise": noise, "b.log": LINE.encode() * 9, "c.log": LINE.encode() * 9}
    )
    damaged = bytearray(whole)
    at = whole.find(b"c.log")
    damaged[at : at + 100] = b"\xff" * 100
    write(tmp_path, {"t.tar": pack(whole)[: len(pack(whole)) * 95 // 100], "d.tar": pack(bytes(damaged))})
    found = kinds(tmp_path)
    assert found["t.tar!/a.log"][0] == found["d.tar!/a.log"][0] == found["d.tar!/b.log"][0] == "log"
    assert found["d.tar"][0] == "unreadable"
    assert "b.log; what follows is skipped" in found["d.tar"][1]
    assert [why for _, why in found.values() if "truncated" in why]


def test_limits_apply_in_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One large member, and many of which each is small."""
    monkeypatch.setattr(archives, "WINDOW", 4 * 1024 * 1024)
    bomb, small = LINE.encode() + bytes(40_000_000), LINE.encode() + bytes(2_000_000)
    logs = {
        "one.tar.gz": gzip.compress(tar({"a.log": LINE.encode(), "bomb.log": bomb, "z.log": LINE.encode()})),
        "one.zip": zipped({"a.log": LINE.encode(), "bomb.log": bomb, "z.log": LINE.encode()}),
        "many.zip": zipped({f"{n:02d}.log": small for n in range(30)}),
        "inner.zip": zipped({"a.log": LINE.encode(), "bomb.log.gz": gzip.compress(bomb)}),
        "good.log": LINE.encode(),
    }
    found = kinds(write(tmp_path, logs))
    assert (
        found["good.log"][0]
        == found["one.tar.gz!/a.log"][0]
        == found["one.zip!/a.log"][0]
        == found["inner.zip!/a.log"][0]
        == "log"
    )
    for name in ("one.tar.gz!/bomb.log", "one.zip!/bomb.log", "inner.zip!/bomb.log.gz"):
        assert found[name][0] == "unreadable"
        assert "raise `ratio`" in found[name][1]
    assert "what follows is skipped" in found["many.zip"][1]
    assert sum(name.startswith("many.zip!/") for name in found) < 10


def test_a_7z_without_the_extra_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "py7zr" else find_spec(name, *rest)
    )
    write(tmp_path, {"b.7z": seven_zipped({"a.log": LINE.encode()})})
    assert kinds(tmp_path) == {
        "b.7z": ("unreadable", "it is a .7z; unpack it, or install kafka-nightly-audit[7z]")
    }


def test_limits_apply_in_a_7z(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 7z is read in its order, so that nothing behind a bomb can be read."""
    monkeypatch.setattr(archives, "WINDOW", 4 * 1024 * 1024)
    good = {"a.log": LINE.encode(), "bomb.log": LINE.encode() + bytes(60_000_000), "z.log": LINE.encode()}
    many = {f"{n:02d}.log": LINE.encode() + bytes(2_000_000) for n in range(30)}
    found = kinds(write(tmp_path, {"one.7z": seven_zipped(good), "many.7z": seven_zipped(many)}))
    assert found["one.7z!/a.log"][0] == "log"
    assert "raise `ratio`" in found["one.7z!/bomb.log"][1]
    assert "one.7z!/z.log" not in found
    assert "after its member bomb.log; what follows is skipped" in found["one.7z"][1]
    assert "what follows is skipped" in found["many.7z"][1]
    assert sum(name.startswith("many.7z!/") for name in found) < 10


def test_no_file_is_written_under_a_name_of_a_7z(tmp_path: Path) -> None:
    """Also one that leads out, one that is there twice, an empty one and one in another alphabet."""
    names = ["xx/xx/a.log", "x/same.log", "x/also.log", "x/leer.log", "x/журнал.log"]
    content = seven_zipped({name: b"" if "leer" in name else LINE.encode() for name in names}, encoded=False)

    def renamed(header: bytes) -> bytes:
        for old, new in (("xx/xx/a.log", "../../a.log"), ("x/also.log", "x/same.log")):
            assert header.count(old.encode("utf-16-le")) == 1
            header = header.replace(old.encode("utf-16-le"), new.encode("utf-16-le"))
        return header

    write(tmp_path / "logs", {"b.7z": with_header(content, renamed)})
    found = [file.name.partition("!/")[2] for file in ingest.find(Cluster("c", (str(tmp_path / "logs"),)))]
    assert sorted(found) == sorted(["../../a.log", "x/leer.log", "x/same.log", "x/same.log", "x/журнал.log"])
    assert [path.name for path in tmp_path.rglob("*")] == ["logs", "b.7z"]


@pytest.mark.parametrize("share", [3, 30, 90, 100])
def test_a_truncated_7z_is_named(tmp_path: Path, share: int) -> None:
    """Its list of files is at its end."""
    whole = seven_zipped({"a.log": LINE.encode() * 99, "noise": random.Random(1).randbytes(100_000)})
    write(tmp_path, {"b.7z": whole[: len(whole) * share // 100], "good.log": LINE.encode()})
    found = kinds(tmp_path)
    assert found["good.log"][0] == "log"
    assert (found.get("b.7z", ("", ""))[0] == "unreadable") == (share < 100)


def test_members_before_the_damage_of_a_7z_are_read(tmp_path: Path) -> None:
    whole = seven_zipped(
        {"a.log": LINE.encode() * 9, "noise": random.Random(1).randbytes(5_000_000), "b.log": LINE.encode()}
    )
    damaged = bytearray(whole)
    damaged[3_000_000:3_000_100] = bytes(100)
    found = kinds(write(tmp_path, {"b.7z": bytes(damaged)}))
    assert found["b.7z!/a.log"][0] == "log"
    assert "what follows is skipped" in found["b.7z"][1]


def test_a_7z_that_asks_for_memory_is_named(tmp_path: Path) -> None:
    """Its dictionary has 3 GB."""
    content = seven_zipped(
        {"a.log": LINE.encode() * 9}, [{"id": py7zr.FILTER_LZMA, "preset": 1}], encoded=False
    )

    def greedy(header: bytes) -> bytes:
        # the properties of LZMA: one byte, and the size of the dictionary
        at = header.index(b"\x03\x01\x01\x05") + 5
        return header[:at] + struct.pack("<I", 3 * 2**30) + header[at + 4 :]

    found = kinds(write(tmp_path, {"b.7z": with_header(content, greedy)}))
    assert found["b.7z"] == ("unreadable", "the .7z needs more than 1 GB of memory; unpack it")


def test_the_process_ends_with_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remembered(*given: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*given, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    write(
        tmp_path,
        {"b.7z": seven_zipped({"a.log": LINE.encode(), "noise": random.Random(1).randbytes(3_000_000)})},
    )
    texts = archives.walk(tmp_path / "b.7z")
    assert next(texts).layers[-1].name == "a.log"  # type: ignore[union-attr]
    assert started[0].poll() is None
    texts.close()  # type: ignore[attr-defined]
    assert started[0].poll() is not None


def test_a_temporary_file_is_bounded(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "b.tar.gz": gzip.compress(
                tar({"i.zip": zipped({"a.log": LINE.encode() * 100}), "b.log": LINE.encode()})
            )
        },
    )
    found = kinds(tmp_path, Limits(temporary=100))
    assert found["b.tar.gz!/b.log"][0] == "log"
    assert "temporary_gb" in found["b.tar.gz!/i.zip"][1]


def test_programs_are_no_archives_of_logs(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"kafka.jar": zipped({f"{n}.class": b"\xca\xfe\xba\xbe" for n in range(99)}), "a.log": LINE.encode()},
    )
    assert {name: kind for name, (kind, _) in kinds(tmp_path).items()} == {
        "kafka.jar": "unrelated",
        "a.log": "log",
    }


def test_standard_input(
    files: Files, expected: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(tar(files)))))
    found = ingest.find(Cluster("c", ("-",)), temporary=tmp_path)
    assert {file.name for file in found if file.usable} <= {f"-!/{name}" for name in files}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(200))))
    (found_one,) = ingest.find(Cluster("c", ("-",)), None, Limits(temporary=100), tmp_path)
    assert (found_one.name, found_one.kind) == ("-", "unreadable")


@pytest.mark.spark
def test_an_audit_of_standard_input_leaves_no_file(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(zipped(files))))
    assert main(["audit", "-", "--tables", str(tmp_path / "tables")]) in (errors.CLEAN, errors.FINDINGS)
    assert capsys.readouterr().out.startswith("cluster: ")
    assert not list((tmp_path / "temporary").glob("kafka-audit-*"))


@pytest.mark.spark
def test_workers_read_members(
    tables: Any, files: Files, expected: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "SMALL", 0)
    some = dict(list(files.items())[:4])
    write(
        tmp_path / "logs",
        {"b.tar.gz": gzip.compress(tar(some)), "b.zip": zipped(dict(list(files.items())[4:]))},
    )
    new_records.land(tables, ingest.find(Cluster("c", (str(tmp_path / "logs"),))))
    assert {row.record_id for row in tables.table("events").select("record_id").collect()} == {
        row["record_id"] for row in expected
    }


def test_a_pipe_is_read(tmp_path: Path) -> None:
    """As `<(zcat server.log.gz)` gives it."""
    import os
    import threading

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(LINE.encode()))
    writer.start()
    (tmp_path / "kept").mkdir()
    (found,) = ingest.find(Cluster("c", (str(tmp_path / "pipe"),)), temporary=tmp_path / "kept")
    writer.join()
    assert (found.name, found.kind) == (str(tmp_path / "pipe"), "log")
    # one that lies in a folder is none: nobody may ever write to it
    shutil.rmtree(tmp_path / "kept")
    assert kinds(tmp_path) == {"pipe": ("skipped", "it is no file")}
