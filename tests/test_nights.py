"""Night after night: however a recording is split and delivered, the tables are those of one run over all of it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from logs import configuration
from tables import rows_of
from test_hostile import CUTS, WITH_TRACE

from jobs import errors
from jobs.engine import grouped, local_store
from jobs.engine.rows import Frame, to_dicts
from jobs.engine.run_tables import RunTables
from jobs.nightly import updates
from jobs.nightly_audit import main

SAMPLES = Path(__file__).parents[1] / "sample_logs"
RECORDINGS = (
    "3.9.1-kraft/controller-failover", "2.8.2-default/delete-topic-dead-broker", "3.3.2-trace/cancel-reassignment",
    "3.3.2-trace/delete-topic-dead-broker+3.3.2-trace/cancel-reassignment", "3.3.2-default/reassign",
    "2.5.1-default/delete-topic", "3.9.1-default/controlled-shutdown",
)  # fmt: skip
STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")
# more of them by hand: NIGHTS=3 SEEDS=1,2,3
NIGHTS = int(os.environ.get("NIGHTS", "2"))
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "0").split(",")]

ABORTED = "a run that is aborted"

# path below the cluster's folder -> what lies there
Files = dict[str, bytes]

pytestmark = pytest.mark.spark


def whole(recording: str) -> Files:
    """All logs of a recording, or of several: a cluster that was wiped in between."""
    files: Files = {}
    for folder in (SAMPLES / name for name in recording.split("+")):
        for log in sorted(folder.glob("*/*.log")):
            path = str(log.relative_to(folder))
            files[path] = files.get(path, b"") + log.read_bytes()
    return {path: content for path, content in files.items() if content}


def records(content: bytes) -> list[tuple[str, bytes]]:
    """(time stamp, text) of every record, in the order of the file."""
    found: list[tuple[str, bytes]] = []
    for line in content.splitlines(keepends=True):
        if begin := STAMP.match(line):
            found.append((begin.group(1).decode(), line))
        elif found:
            found[-1] = found[-1][0], found[-1][1] + line
    return found


def merged(files: Files) -> Files:
    """One file a node, as a console has it."""
    nodes: dict[str, list[tuple[str, bytes]]] = {}
    for path, content in files.items():
        nodes.setdefault(Path(path).parts[0], []).extend(records(content))
    return {
        f"{node}/console.log": b"".join(text for _, text in sorted(told, key=lambda one: one[0])) for node, told in nodes.items()
    }


def by_time(files: Files, chance: random.Random) -> list[Files]:
    """Every file cut at the same moments, as a collector that comes by the hour has them."""
    stamps = sorted(stamp for content in files.values() for stamp, _ in records(content))
    moments = sorted(chance.sample(stamps, NIGHTS - 1))
    nights: list[Files] = [{} for _ in range(NIGHTS)]
    for path, content in files.items():
        for stamp, text in records(content):
            night = nights[sum(moment <= stamp for moment in moments)]
            night[path] = night.get(path, b"") + text
    return nights


def by_record(files: Files, chance: random.Random) -> list[Files]:
    """Every file rotated where its size is reached."""
    nights: list[Files] = [{} for _ in range(NIGHTS)]
    for path, content in files.items():
        told = records(content)
        cuts = sorted(chance.randrange(len(told)) for _ in range(NIGHTS - 1))
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(told)], strict=True)):
            if end > begin:
                nights[number][f"{path}.{number}"] = b"".join(text for _, text in told[begin:end])
    return nights


def grown(files: Files, chance: random.Random) -> list[Files]:
    """The same files every night, each longer than before and cut off anywhere, in the middle of a line or of a stack trace."""
    lengths = {path: sorted(chance.randrange(1, len(content)) for _ in range(NIGHTS - 1)) for path, content in files.items()}
    early = [{path: content[: lengths[path][night]] for path, content in files.items()} for night in range(NIGHTS - 1)]
    return [*early, files]


def late_node(files: Files, chance: random.Random) -> list[Files]:
    """One node after the other."""
    nights: list[Files] = [{} for _ in range(NIGHTS)]
    nodes = sorted({Path(path).parts[0] for path in files})
    chance.shuffle(nodes)
    for path, content in files.items():
        nights[nodes.index(Path(path).parts[0]) % NIGHTS][path] = content
    return nights


def forgotten(files: Files, chance: random.Random) -> list[Files]:
    """Cut by time; what one node wrote on the first night comes on the last."""
    nights = by_time(files, chance)
    node = chance.choice(sorted({Path(path).parts[0] for path in files}))
    for path in [path for path in nights[0] if Path(path).parts[0] == node]:
        nights[-1][f"{path}.forgotten"] = nights[0].pop(path)
    return nights


def in_any_order(files: Files, chance: random.Random) -> list[Files]:
    """Pieces of all files, delivered as it happens."""
    nights: list[Files] = [{} for _ in range(NIGHTS)]
    for number, night in enumerate(by_record(files, chance)):
        for path, content in night.items():
            nights[chance.randrange(NIGHTS)][f"{path}-{number}"] = content
    return nights


class Late(random.Random):
    """Chooses what comes when most is over."""

    def sample(self, population: Any, k: int, **_: Any) -> Any:
        return population[len(population) * 6 // 7 :][:k]


def at_the_end(files: Files, _: random.Random) -> list[Files]:
    """Cut by time, when most is over: timelines go on from what they held."""
    return by_time(files, Late())


WAYS: tuple[Callable[[Files, random.Random], list[Files]], ...] = (
    by_time,
    by_record,
    grown,
    late_node,
    forgotten,
    in_any_order,
    at_the_end,
)


def cases() -> Iterator[tuple[str, Files, list[Files]]]:
    """(name, all logs, what is delivered each night): every way and every recording, as chance brings them together."""
    for seed in SEEDS:
        for number, way in enumerate(WAYS):
            recording = RECORDINGS[(number + seed) % len(RECORDINGS)]
            name = f"{way.__name__}-{seed}-{re.sub(r'[/+]', '-', recording)}"
            files = whole(recording) if (seed + number) % 3 else merged(whole(recording))
            yield name, files, way(files, random.Random(name))


def growing_metadata_log() -> tuple[Files, list[Files]]:
    """A dump is taken of the whole log every night: what is new in it touches its topics."""
    recording = "3.9.1-kraft/controller-failover"
    dump = (SAMPLES / recording / "metadata-log.txt").read_bytes()
    # half of the changes come on the second night
    early = dump.splitlines(keepends=True)[: -dump.count(b"PARTITION_CHANGE_RECORD") // 2]
    nights = at_the_end(whole(recording), random.Random(0))
    for night, content in zip(nights, (b"".join(early), dump), strict=False):
        night["metadata-log.txt"] = content
    return {**whole(recording), "metadata-log.txt": dump}, nights


def cut_short() -> tuple[Files, list[Files]]:
    """The last record is not written out on the first night."""
    log = "broker-1/state-change.log"
    return {log: WITH_TRACE}, [{log: WITH_TRACE[: CUTS["between two frames"]]}, {log: WITH_TRACE}, *[{}] * (NIGHTS - 2)]


def aborted() -> tuple[Files, list[Files]]:
    """What is new on the second night a run lands that does not come to its end."""
    files = {path: content for path, content in whole("3.3.2-trace/delete-topic-dead-broker").items() if "server" not in path}
    nights = by_time(files, random.Random(1))
    # as files grow: nothing is new to the run that comes to its end but what the other one has left
    nights[1] = {path: b"".join(night.get(path, b"") for night in nights[:2]) for path in files}
    return files, nights


# they touch some of what is there, and no cluster is made anew as a whole for them
LITTLE: dict[str, Callable[[], tuple[Files, list[Files]]]] = {
    "a metadata log that grows": growing_metadata_log,
    "a record that is whole now": cut_short,
    ABORTED: aborted,
}


def deliver(folder: Path, files: Files) -> None:
    """The folder holds these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def audit(root: Path, tables: Path, delivered: dict[str, Files], engine: str) -> int:
    """The exit code of one run over all clusters that something was delivered for."""
    some = {name: files for name, files in delivered.items() if files}
    for name, files in some.items():
        deliver(root / name, files)
    config = configuration(root / "audit.toml", {name: root / name for name in some})
    return main(["audit", "--config", str(config), "--tables", str(tables), "--engine", engine])


def rows(tables: Path) -> dict[tuple[str, str], list[str]]:
    """(cluster, table) -> its rows, less what names files and places in them, which another cut changes."""
    names = (
        "events",
        "partition_timeline",
        "replica_timeline",
        "reassignments",
        "topic_deletions",
        "controllers",
        "discontinuities",
        "coverage",
        "passed_over",
        "broker_outages",
        "topic_assignments",
        "broker_load",
        "durability",
    )
    found: dict[tuple[str, str], list[str]] = {}
    for table in names:
        for row in rows_of(tables, table):
            told = {name: value for name, value in row.items() if name not in ("file", "record_no", "ends_file", "settled")}
            found.setdefault((row["cluster"], table), []).append(json.dumps(told, default=str, sort_keys=True))
    return {key: sorted(some) for key, some in found.items()}


def phantoms(got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Findings that one run over all logs does not have, though it has one of the same thing at the same time."""
    known = {row["fingerprint"] for row in expected}
    return [
        f"{row['cluster']}: {row['title']}, {row['first_seen']}"
        for row in got
        for other in expected
        if row["fingerprint"] not in known
        and [row[name] for name in ("cluster", "incarnation", "check_id", "thing")]
        == [other[name] for name in ("cluster", "incarnation", "check_id", "thing")]
        and None not in (row["first_seen"], other["first_seen"])
        and row["first_seen"] <= other["last_seen"]
        and other["first_seen"] <= row["last_seen"]
    ]


def differences(one: list[str], other: list[str], at_most: int = 3) -> list[str]:
    """Rows of one that the other has not."""
    left = sorted(set(one) - set(other)) or [f"{len(one)} rows"]
    return left[:at_most]


def power_cut(*_: object) -> None:
    raise RuntimeError("power cut")


def all_by_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the local engine does with large logs it does with these."""
    monkeypatch.setattr(local_store, "SOONER_HERE", 0)
    monkeypatch.setattr(grouped, "CHUNK", 200)


@pytest.mark.parametrize(
    "engines",
    [
        pytest.param(("spark", "spark", "spark"), id="spark"),
        pytest.param(("local", "spark", "local"), id="local-spark-local"),
        pytest.param(("local", "local", "local"), id="local-by-the-pool"),
    ],
)
def test_any_delivery_gives_the_tables_of_one_run(spark, capsys, tmp_path, monkeypatch, engines):
    """Of one run on Spark, whatever the engines are that take turns."""
    if set(engines) == {"local"}:
        all_by_the_pool(monkeypatch)
    continued: set[str] = set()
    refolded: set[str] = set()
    write = updates._write

    def noted(store: RunTables, folded: updates.FoldedRows, version: int, goes_on: list[str], anew: list[str]) -> Frame:
        some = set() if folded.refolded is None else {row["cluster"] for row in to_dicts(folded.refolded)}
        continued.update(set(goes_on) - some)
        refolded.update(some)
        return write(store, folded, version, goes_on, anew)

    monkeypatch.setattr(updates, "_write", noted)
    chosen = [*cases(), *[(name, *given()) for name, given in LITTLE.items()]]
    for folder in ("nights", "once"):
        (tmp_path / folder).mkdir()
    told = (errors.CLEAN, errors.FINDINGS, errors.INPUT)
    for number in range(NIGHTS):
        delivered = {name: given[number] for name, _, given in chosen}
        if number == 1:
            with monkeypatch.context() as patched:
                patched.setattr(updates, "_write", power_cut)
                assert (
                    audit(tmp_path / "nights", tmp_path / "tables", {ABORTED: delivered[ABORTED]}, engines[number])
                    == errors.INTERNAL
                )
        assert audit(tmp_path / "nights", tmp_path / "tables", delivered, engines[number]) in told
    assert audit(tmp_path / "once", tmp_path / "expected", {name: files for name, files, _ in chosen}, "spark") in told
    capsys.readouterr()
    for mode in ("kraft", "default"):
        assert any(mode in cluster for cluster in continued), f"no timeline went on from what is kept: {mode}"
    assert refolded, "no partition was folded again"
    got, expected = rows(tmp_path / "tables"), rows(tmp_path / "expected")
    assert {json.loads(row)["source"] for row in expected["a metadata log that grows", "partition_timeline"]} == {"metadata_log"}
    wrong = {
        key: (differences(got.get(key, []), expected.get(key, [])), differences(expected.get(key, []), got.get(key, [])))
        for key in sorted(got.keys() | expected.keys())
        if got.get(key) != expected.get(key)
    }
    found, known = (rows_of(tmp_path / folder, "findings") for folder in ("tables", "expected"))
    opened, wanted = (
        {row["fingerprint"]: row["title"] for row in some if row["status"] != "resolved"} for some in (found, known)
    )
    assert opened == wanted
    assert {row["fingerprint"] for row in known} <= {row["fingerprint"] for row in found}
    assert phantoms(found, known) == []
    assert not wrong, "\n".join(f"{key}\n  only night by night: {a}\n  only in one run: {b}" for key, (a, b) in wrong.items())
