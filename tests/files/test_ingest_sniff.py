"""What a file is and whose: found out from its beginning, never guessed, never with an exception."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from jobs.config import Cluster
from jobs.files.ingest import LOOK, LOOK_AT_MOST, LogFile, Sniffer, find

LINE = "[2026-11-20 10:09:03,001] INFO starting (kafka.server.KafkaServer)\n"
OF_BROKER_3 = "[2026-11-20 10:09:03,001] INFO [Broker id=3] Stopped fetchers (state.change.logger)\n"
OF_BROKER_4 = OF_BROKER_3.replace("id=3", "id=4")
OF_CONTROLLER_1 = OF_BROKER_3.replace("Broker id=3", "Controller id=1 epoch=5")
BARE = "[Broker id=3] Sending StopReplica request for 1 replicas to broker 1 (state.change.logger)\n"


@pytest.fixture(scope="module")
def sniffer() -> Sniffer:
    return Sniffer()


def look(sniffer: Sniffer, path: Path, content: bytes | str) -> LogFile:
    """Writes the file and looks into it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return sniffer.look(path)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param(LINE, "log", id="log"),
        pytest.param(LINE.rstrip("\n"), "log", id="log without a last newline"),
        pytest.param(LINE.replace("\n", "\r\n"), "log", id="log with CRLF"),
        pytest.param("Picked up JAVA_TOOL_OPTIONS\n" + LINE, "log", id="prose first"),
        pytest.param(
            "\tat a.b.C.d(C.scala:1)\n" * 10_000 + LINE,
            "log",
            id="a stack trace that a rotation cut off first",
        ),
        pytest.param(LINE.encode() + os.urandom(5000), "log", id="log that ends in rubbish"),
        pytest.param("\x00" * 4096 + "\n" + LINE, "log", id="NUL padding after a crash, then a log"),
        pytest.param(BARE, "bare", id="bare"),
        pytest.param(BARE * 3 + LINE, "log", id="bare lines and one with a time stamp"),
        pytest.param(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 64, "unrelated", id="binary"),
        pytest.param("127.0.0.1 - - [20/Nov/2026] GET /\n" * 500, "unrelated", id="another program's log"),
        pytest.param("\n" * 5000, "unrelated", id="blank lines"),
        pytest.param(
            '{"step": "start", "level": "TRACE", "time": "2026-11-20T10:09:03Z"}\n',
            "unrelated",
            id="JSON of another kind",
        ),
        pytest.param(
            '{"time":"2026-11-20T10:09:03Z","level":"info","msg":"x","logger":"kafka.server.KafkaServer"}\n',
            "log",
            id="JSON log",
        ),
        pytest.param("kafka-1  | " + LINE, "log", id="docker-compose"),
        pytest.param("2026-11-20T10:09:03.001Z stdout F " + LINE, "log", id="CRI"),
        pytest.param("x" * (2 * LOOK), "unrelated", id="one long line"),
        pytest.param(
            "# notes (about Kafka)\nsee kafka.server.KafkaServer\n", "unrelated", id="prose about Kafka"
        ),
    ],
)
def test_kinds(sniffer: Sniffer, tmp_path: Path, content: bytes | str, kind: str) -> None:
    found = look(sniffer, tmp_path / "a.log", content)
    assert found.kind == kind
    assert found.usable == (kind in {"log", "bare"})
    packed = look(
        sniffer,
        tmp_path / "a.log.gz",
        gzip.compress(content.encode() if isinstance(content, str) else content),
    )
    assert packed.kind == kind


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", [True, False])
def test_utf_16_is_read(sniffer: Sniffer, tmp_path: Path, encoding: str, mark: bool) -> None:
    """A redirection in Windows PowerShell writes it."""
    text = (LINE.replace("starting", "größe 日本") * 30).replace("\n", "\r\n")
    begin = "\ufeff" if mark and encoding != "utf-16" else ""
    found = look(sniffer, tmp_path / "a.log", (begin + text).encode(encoding))
    assert (found.kind, found.layers, found.length) == (
        "log",
        (f"utf-16-{'be' if encoding == 'utf-16-be' else 'le'}",),
        len(text.encode()),
    )
    with found.open() as stream:
        assert stream.read().decode() == text


def test_utf_8_with_a_byte_order_mark_is_a_log(sniffer: Sniffer, tmp_path: Path) -> None:
    assert look(sniffer, tmp_path / "a.log", b"\xef\xbb\xbf" + LINE.encode() * 2).kind == "log"


def test_truncated_gz(sniffer: Sniffer, tmp_path: Path) -> None:
    whole = gzip.compress(
        b"".join(LINE.encode() + os.urandom(200).hex().encode() + b"\n" for _ in range(5000))
    )
    found = look(sniffer, tmp_path / "a.log.gz", whole[: len(whole) // 2])
    assert (found.kind, found.why) == ("unreadable", "the .gz is truncated")


@pytest.mark.parametrize(
    "content", [b"\x1f\x8b", b"no gzip at all\n", gzip.compress(LINE.encode(), mtime=0)[:-4]]
)
def test_incomplete_gz(sniffer: Sniffer, tmp_path: Path, content: bytes) -> None:
    found = look(sniffer, tmp_path / "a.log.gz", content)
    assert found.kind == "unreadable"
    assert found.why


def test_an_unpacked_log_may_keep_its_packed_name(sniffer: Sniffer, tmp_path: Path) -> None:
    assert look(sniffer, tmp_path / "a.log.gz", LINE).kind == "log"


def test_damaged_gz(sniffer: Sniffer, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(os.urandom(3000).hex().encode() + LINE.encode()))
    packed[1000] ^= 0xFF
    assert look(sniffer, tmp_path / "a.log.gz", bytes(packed)).kind == "unreadable"


def test_missing_and_forbidden(sniffer: Sniffer, tmp_path: Path) -> None:
    found = sniffer.look(tmp_path / "none.log")
    assert found.kind == "unreadable"
    assert "No such file" in found.why
    assert sniffer.look(tmp_path).kind == "unreadable"


def test_a_header_behind_megabytes_of_prose_is_looked_for_up_to_a_limit(
    sniffer: Sniffer, tmp_path: Path
) -> None:
    prose = "Lorem ipsum dolor sit amet\n"
    near = prose * (LOOK_AT_MOST // 2 // len(prose))
    assert look(sniffer, tmp_path / "near.log", near + LINE).kind == "log"
    assert look(sniffer, tmp_path / "far.log", near * 3 + LINE).kind == "unrelated"


@pytest.mark.parametrize(
    ("folder", "content", "node"),
    [
        pytest.param("logs", LINE, None, id="nothing tells"),
        pytest.param("broker-3", LINE, 3, id="folder"),
        pytest.param("node-3", LINE, 3, id="folder node-3"),
        pytest.param("kafka-3", LINE, 3, id="folder kafka-3"),
        pytest.param("kafka_3/logs", LINE, 3, id="folder above"),
        pytest.param("kafka-1/broker-2", LINE, 2, id="the nearest folder"),
        pytest.param("broker-3x", LINE, None, id="another name"),
        pytest.param("logs", OF_BROKER_3, 3, id="lines"),
        pytest.param("broker-7", OF_BROKER_3, 3, id="lines before folder"),
        pytest.param("logs", OF_CONTROLLER_1, 1, id="controller"),
        pytest.param("logs", LINE + OF_BROKER_3, 3, id="a later line"),
        pytest.param("logs", OF_BROKER_3 + OF_BROKER_4, None, id="several nodes"),
        pytest.param("broker-4", OF_BROKER_3 + OF_BROKER_4, 4, id="several nodes, the folder's among them"),
        pytest.param(
            "broker-7", OF_BROKER_3 + OF_BROKER_4, None, id="several nodes, none of them the folder's"
        ),
        pytest.param("logs", BARE, 3, id="bare"),
    ],
)
def test_node(sniffer: Sniffer, tmp_path: Path, folder: str, content: str, node: int | None) -> None:
    assert look(sniffer, tmp_path / folder / "state-change.log", content).node == node


NAMES = [
    "with blank.log",
    "it's.log",
    'say "x".log',
    "two\nlines.log",
    "größe-日本.log",
    "a,b;c&d$e%20.log",
    "[abc].log",
    "{a,b}*.log",
    "_hidden.log",
    ".hidden.log",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_log_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / name).write_text(LINE)
    for given in (folder, folder / name):
        (found,) = find(Cluster("c", (str(given),)))
        assert (found.path, found.kind, found.cluster) == (folder / name, "log", "c")


def test_folders_are_searched_in_depth_and_no_file_is_read_twice(tmp_path: Path) -> None:
    for part in ("broker-1/server.log", "broker-2/old/server.log.1", "broker-2/notes.txt"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_text(LINE if "server" in part else "notes\n")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    found = find(
        Cluster(
            "c",
            (str(tmp_path), str(tmp_path / "broker-1/server.log"), str(tmp_path / "*/server.log")),
            timezone="+09:30",
        )
    )
    kinds = {str(file.path.relative_to(tmp_path)): (file.kind, file.node, file.timezone) for file in found}
    assert kinds == {
        "broker-1/server.log": ("log", 1, "+09:30"),
        "broker-2/old/server.log.1": ("log", 2, "+09:30"),
        "broker-2/notes.txt": ("unrelated", None, "+09:30"),
        "gone": ("skipped", None, "+09:30"),
    }
    assert len(found) == 4


def test_missing_paths_are_named_and_the_others_found(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(
        "[2026-03-01 12:00:00,000] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n"
    )
    (tmp_path / "link.log").symlink_to(tmp_path / "nowhere")
    given = [str(tmp_path / name) for name in ("none.log", "*.gz", "server.log", "link.log")]
    kinds = {file.path.name: (file.kind, file.why) for file in find(Cluster("c", tuple(given)))}
    assert kinds == {
        "none.log": ("unreadable", "no such file or folder"),
        "*.gz": ("unreadable", "no such file or folder"),
        "server.log": ("log", ""),
        "link.log": ("skipped", "it is a link to nothing"),
    }
