"""Bytes that no logger means to write: none of them ends a run, loses another record or makes one up."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import errors
from jobs.config import Cluster
from jobs.engine.store import Store
from jobs.files import ingest
from jobs.landing import new_records
from jobs.nightly_audit import main
from parsers.events import Parser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARSER = Parser()
SPEAKER = "[Controller id=1 epoch=5]"
LOGGER = "(state.change.logger)"


def change(replica: int, second: int = 12) -> str:
    """A record that every file has: what is around it must not harm it."""
    move = "from OnlineReplica to OfflineReplica"
    return f"[2026-11-20 10:09:{second:02d},175] TRACE {SPEAKER} Changed state of replica {replica} for partition a-0 {move} {LOGGER}"


def text(*lines: str, end: str = "\n") -> bytes:
    return end.join([*lines, ""]).encode()


def cut(line: str, *at: int, stream: str = "stdout") -> list[str]:
    """A line in pieces, as a container runtime writes it."""
    ends = [0, *at, len(line)]
    flags = ["P"] * len(at) + ["F"]
    return [
        f"2026-11-20T10:09:12.175123456Z {stream} {flag} {line[begin:end]}"
        for begin, end, flag in zip(ends, ends[1:], flags, strict=False)
    ]


# another service writes into the same file, and is interrupted by it
FOREIGN = [
    "2026-11-20 10:09:12,175 INFO [main] [server.py:172] [trace_id=0 span_id=0] - Recommendation service started",
    '{"message":"Connected to broker at kafka:9092","severity":"info","timestamp":"2026-11-20T10:09:12.175Z"}',
]


def leaders(partitions: int) -> str:
    """One record of some 100 bytes for each partition."""
    each = ",".join(
        f"orders-{n} -> (Leader:2,ISR:2,LeaderRecoveryState:RECOVERED,LeaderEpoch:{n},ZkVersion:3,ControllerEpoch:1)"
        for n in range(partitions)
    )
    return f"[2026-11-20 10:09:13,000] TRACE [Controller id=3] All leaders = {each} (kafka.controller.KafkaController)"


MANY = 9_000
FRAMES = [f"\tat kafka.controller.KafkaController.run{n}(KafkaController.scala:{n})" for n in range(10_000)]
# name of a file -> its bytes, the replicas whose record must be found in it
FILES: dict[str, tuple[bytes, set[int]]] = {
    "nul.log": (text(change(1)) + b"\0" * 5000 + text(change(2)), {1, 2}),
    "crlf.log": (text(change(3), change(4), end="\r\n"), {3, 4}),
    "cut.log": (text(change(5)) + change(6).encode()[:95], {5}),
    "no newline at the end.log": (text(change(7)) + change(8).encode(), {7, 8}),
    "invalid.log": (text(change(9)) + b"\xff\xfe\xc3( \xe2\x82\n" + text(change(10)), {9, 10}),
    "bom.log": (b"\xef\xbb\xbf" + text(change(11)), {11}),
    "trace.log": (
        text(change(12), "kafka.common.StateChangeFailedException: no", *FRAMES, change(13)),
        {12, 13},
    ),
    "bracket.log": (
        text(change(14), "a.b.CException: x", "[1, 2, 3] are missing", "[2026] not a time", change(15)),
        {14, 15},
    ),
    "backwards.log": (text(change(16, 50), change(17, 2), change(18, 30)), {16, 17, 18}),
    "wide.log": (text(change(19), leaders(MANY), "x" * 10_000_000, change(20)), {19, 20}),
    "forged.log": (
        text(
            f"[2026-11-20 10:09:12,175] INFO {SPEAKER} Client {change(21)} said so (kafka.controller.KafkaController)",
            f"a.b.CException: {change(22)}",
            f"\tat {change(23)}",
            change(24),
        ),
        {24},
    ),
    'it\'s a "name" `with` $(everything) \u00fc\u4e2d\n; DROP TABLE events --.log': (text(change(25)), {25}),
    "packed.log.gz": (gzip.compress(text(change(26))), {26}),
    "colours.log": (text("\x1b[32m" + change(27) + "\x1b[0m"), {27}),
    "cri.log": (
        text(
            *cut(change(30)),
            *cut(change(31), 40, 41, 90)[:2],
            *cut("a warning", stream="stderr"),
            *cut(change(31), 40, 41, 90)[2:],
        ),
        {30, 31},
    ),
    "compose.log": (
        text(*(f"app_1 | {line}" for line in (change(32), *FOREIGN, change(33), *FOREIGN))),
        {32, 33},
    ),
    "lone\rreturn.log": (text(change(28) + "\r" + change(29)), {28, 29}),
}


@pytest.fixture(scope="module")
def landed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, dict[str, set[int]], int]:
    """(what was read, name of a file -> replicas of its records, events of the longest record)."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (content, _) in FILES.items():
        (folder / "logs" / name).parent.mkdir(exist_ok=True)
        (folder / "logs" / name).write_bytes(content)
    files = ingest.find(Cluster("c", (str(folder / "logs"),)))
    assert {file.path.name for file in files if file.usable} == set(FILES)
    store = Store(spark, folder / "tables")
    store.open()
    read = new_records.land(store, files)
    found: dict[str, set[int]] = {name: set() for name in FILES}
    changes = store.table("events").filter("event_type = 'replica_state_changed'").select("file", "replica")
    for row in changes.collect():
        found[Path(row.file).name].add(row.replica)
    led = store.table("events").filter(
        "event_type = 'leaders_at_shutdown' AND partition = leader_epoch AND leader = 2"
    )
    return read, found, led.count()


@pytest.mark.parametrize("name", FILES, ids=[repr(name)[:30] for name in FILES])
def test_a_file(landed: tuple[Any, dict[str, set[int]], int], name: str) -> None:
    assert landed[1][name] == FILES[name][1]


def test_a_record_of_almost_a_megabyte(landed: tuple[Any, dict[str, set[int]], int]) -> None:
    assert landed[2] == MANY


def test_every_record_is_accounted_for(landed: tuple[Any, dict[str, set[int]], int]) -> None:
    read, _, _ = landed
    assert read.new == read.recognised + read.unrecognised + read.drifted
    assert read.records == read.new + read.out_of_scope
    assert (read.out_of_scope, read.newly_counted) == (2 * len(FOREIGN), 2 * len(FOREIGN))
    assert read.unfinished == 1


def grown(folder: Path, content: bytes) -> list[ingest.LogFile]:
    folder.mkdir(exist_ok=True)
    (folder / "state-change.log").write_bytes(content)
    return ingest.find(Cluster("c", (str(folder),)))


def test_a_record_that_is_being_written_is_read_when_it_is(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, tmp_path / "tables")
    store.open()
    whole = text(change(1), change(2), change(3))
    cut = len(text(change(1), change(2))) + 80
    for content, new, unfinished in ((whole[:cut], 2, 1), (whole, 1, 0), (whole, 0, 0)):
        read = new_records.land(store, grown(tmp_path / "logs", content))
        assert (read.new, read.unfinished) == (new, unfinished)
        assert read.unrecognised == read.drifted == 0
    assert store.table("events").count() == 3


FAILED = (change(2), "java.io.IOException: Broken pipe", "\tat a.b.C.d(C.java:1)", "\t... 3 more")
WITH_TRACE = text(change(1), *FAILED, change(3))
CUTS = {
    "after the first line": len(text(change(1), FAILED[0])),
    "within the exception": len(text(change(1), FAILED[0])) + 12,
    "between two frames": len(text(change(1), *FAILED[:3])),
    "before the end of the last frame": len(text(change(1), *FAILED)) - 1,
    "at the first character of the next": len(text(change(1), *FAILED)) + 1,
    "within the next time stamp": len(text(change(1), *FAILED)) + 12,
    "after the next time stamp": len(text(change(1), *FAILED)) + 26,
}


def test_a_record_that_was_cut_short_is_completed(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, tmp_path / "tables")
    store.open()
    folders = {name: tmp_path / f"{number}" for number, name in enumerate(CUTS)}

    def deliver(content: Callable[[str], bytes], **given: Any) -> new_records.IngestSummary:
        files = [replace(file, cluster=name) for name in CUTS for file in grown(folders[name], content(name))]
        return new_records.land(store, files, **given)

    def stored() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {name: set() for name in CUTS}
        for row in store.table("events").collect():
            found[row.cluster].add(row.raw)
        return found

    expected = {change(1), "\n".join(FAILED), change(3)}
    early = deliver(lambda name: WITH_TRACE[: CUTS[name]])
    assert (early.new, early.unfinished) == (2 * len(CUTS), 0)
    for name, raws in stored().items():
        assert len(raws) == 2, name
        assert all(any(whole.startswith(raw) for whole in expected) for raw in raws), name
    # a run that is about other days leaves it as it is
    other_day = deliver(lambda name: WITH_TRACE, days=(date(2000, 1, 1), date(2000, 1, 1)))
    assert (other_day.new, other_day.completed) == (0, 0)
    assert store.table("events").count() == 2 * len(CUTS)
    late = deliver(lambda name: WITH_TRACE)
    assert late.completed == 3
    assert stored() == dict.fromkeys(CUTS, expected)
    # an early copy that comes once more is none of them, neither later nor in the same run
    again = deliver(lambda name: WITH_TRACE[: CUTS[name]])
    assert (again.new, again.completed) == (0, 0)
    assert store.table("events").count() == 3 * len(CUTS)
    other = Store(spark, tmp_path / "other")
    other.open()
    for folder in folders.values():
        (folder / "copy.log").write_bytes(WITH_TRACE)
    files = [
        replace(file, cluster=name)
        for name in CUTS
        for file in ingest.find(Cluster(name, (str(folders[name]),)))
    ]
    new_records.land(other, files)
    assert other.table("events").count() == 3 * len(CUTS)


def test_a_corrupt_archive_is_named_and_the_others_are_read(
    spark: SparkSession, capsys: Any, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    packed = bytearray(gzip.compress(text(*[change(n, n % 60) for n in range(3000)])))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "logs" / "bad.log.gz").write_bytes(packed)
    (tmp_path / "logs" / "good.log").write_bytes(text(change(1)))
    code = main(["audit", str(tmp_path / "logs"), "--tables", str(tmp_path / "tables")])
    said = capsys.readouterr()
    assert code == errors.INPUT
    assert "bad.log.gz" in said.err
    assert (tmp_path / "tables" / "events" / "_delta_log").is_dir()


def test_ten_logs_among_many_files(tmp_path: Path) -> None:
    """Files without interest are counted, not kept."""
    for n in range(3000):
        (tmp_path / f"{n}.txt").write_text("nothing of interest\n" if n % 3 else "")
    for n in range(10):
        (tmp_path / f"controller.log.{n}").write_bytes(text(change(n)))
    files = ingest.find(Cluster("c", (str(tmp_path),)))
    assert sum(file.usable for file in files) == 10
    kinds = Counter[str]()
    for file in files:
        kinds[file.kind] += file.alike
    assert kinds == {"log": 10, "empty": 1000, "unrelated": 2000}
    assert len(files) < 70


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=60)), max_size=8), st.data()
)
@settings(max_examples=100)
def test_pieces_of_lines_are_joined(lines: list[tuple[str, str]], data: st.DataObject) -> None:
    """Whatever line is cut wherever, and whatever another stream writes in between."""
    lines = [(stream, "".join(line.split("\n"))) for stream, line in lines]
    streams: dict[str, list[str]] = {"stdout": [], "stderr": []}
    for stream, line in lines:
        streams[stream] += cut(
            line, *sorted(data.draw(st.lists(st.integers(0, len(line)), max_size=3))), stream=stream
        )
    mixed = []
    while any(streams.values()):
        mixed.append(
            streams[data.draw(st.sampled_from([name for name, rest in streams.items() if rest]))].pop(0)
        )
    joined = list(PARSER.joined(mixed))
    for name in streams:
        assert [PARSER.unwrapped(line) for line in joined if f" {name} " in line[:40]] == [
            PARSER.unwrapped(f"2026-11-20T10:09:12.175123456Z {name} F {line}")
            for stream, line in lines
            if stream == name
        ]


def test_a_cut_file_is_known_and_its_end_too(tmp_path: Path) -> None:
    whole = cut(change(1), 40)
    for content, is_cut, open_end in (
        (cut(change(1)), False, False),
        (whole, True, False),
        ([*whole, whole[0]], True, True),
    ):
        (tmp_path / "a.log").write_bytes(text(*content))
        file = ingest.Sniffer().look(tmp_path / "a.log")
        assert (file.kind, file.cut, file.open_end) == ("log", is_cut, open_end)


def rotate(path: Path) -> None:
    path.rename(path.with_name(path.name + ".away"))


def restart(path: Path) -> None:
    rotate(path)
    path.write_bytes(text(change(59)))


HAPPENS: dict[str, tuple[Callable[[Path], Any], bool]] = {
    "renamed": (rotate, False),
    "begun again": (restart, False),
    "removed": (Path.unlink, False),
    "emptied": (lambda path: path.write_bytes(b""), False),
    "grown": (lambda path: path.write_bytes(text(*map(change, range(3)))), True),
}


@pytest.mark.parametrize(("happens", "usable"), HAPPENS.values(), ids=HAPPENS)
def test_a_file_is_looked_at_again(tmp_path: Path, happens: Callable[[Path], Any], usable: bool) -> None:
    before = grown(tmp_path, text(change(1), change(2)))
    happens(tmp_path / "state-change.log")
    (after,) = ingest.unchanged(before)
    assert after.usable == usable
    assert usable or after.why.startswith(ingest.ROTATED)


def test_a_file_that_is_removed_while_it_is_read(
    spark: SparkSession, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is named, all others are read, and its records are read once it is found under its new name."""
    (tmp_path / "logs").mkdir()
    removed = tmp_path / "logs" / "state-change.log"
    removed.write_bytes(text(change(1), change(2), change(3)))
    (tmp_path / "logs" / "controller.log").write_bytes(text(change(4)))
    before = ingest.splits

    def then(*arguments: Any) -> Any:
        found = before(*arguments)
        monkeypatch.undo()
        restart(removed)
        return found

    monkeypatch.setattr(ingest, "splits", then)
    arguments = ["audit", str(tmp_path / "logs"), "--tables", str(tmp_path / "tables"), "--json"]
    assert main(arguments) == errors.INPUT
    said = capsys.readouterr()
    assert "state-change.log: it was rotated away" in said.err
    assert "Traceback" not in said.err

    def stored() -> list[int]:
        rows = spark.read.format("delta").load(str(tmp_path / "tables" / "events"))
        return sorted(row.replica for row in rows.filter("event_type = 'replica_state_changed'").collect())

    assert 4 in stored()
    assert main(arguments) == errors.CLEAN
    assert stored() == [1, 2, 3, 4, 59]
    assert not list((tmp_path / "tables" / "_staging").glob("*"))


LINES = [
    change(1),
    f"[2026-11-20 10:09:12,175] INFO [Broker id=3] Stopped fetchers for 3 partitions {LOGGER}",
    "\tat a.b.C(D.java:1)",
]


@st.composite
def spliced(draw: Callable[..., Any]) -> bytes:
    """Pieces of real lines and any bytes between them."""
    pieces = draw(
        st.lists(st.one_of(st.sampled_from(LINES).map(str.encode), st.binary(max_size=60)), max_size=12)
    )
    cuts = draw(st.lists(st.integers(0, 120), min_size=len(pieces), max_size=len(pieces)))
    return b"".join(
        piece[cut % (len(piece) + 1) :] + draw(st.sampled_from([b"", b"\n", b"\r\n", b"\0"]))
        for piece, cut in zip(pieces, cuts, strict=True)
    )


@given(spliced())
@settings(max_examples=300)
def test_the_parser_takes_any_bytes(content: bytes) -> None:
    for line in content.decode("utf-8", "replace").split("\n"):
        if record := PARSER.record(line):
            assert PARSER.events(record)


def test_spark_takes_any_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """A hundred such files in one run; `land` itself raises where a record is lost or counted twice."""
    made: list[bytes] = []

    @given(spliced())
    @settings(max_examples=100)
    def make(content: bytes) -> None:
        made.append(content)

    make()
    (tmp_path / "logs").mkdir()
    for number, content in enumerate(made):
        (tmp_path / "logs" / f"{number}.log").write_bytes(text(change(number % 40, number % 60)) + content)
    files = ingest.find(Cluster("c", (str(tmp_path / "logs"),)))
    store = Store(spark, tmp_path / "tables")
    store.open()
    read = new_records.land(store, files)
    assert read.new >= 40
    assert store.table("events").filter("item = 0").count() == read.new
