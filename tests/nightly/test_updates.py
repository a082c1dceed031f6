"""Run after run: however a recording is split and delivered, the tables are those of one run over all of it."""

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
from jobs.engine import grouped, in_process
from jobs.engine.rows import Frame, to_dicts
from jobs.engine.run_tables import RunTables
from jobs.nightly import updates
from jobs.nightly_audit import main

SAMPLES = Path(__file__).parents[2] / "sample_logs"
RECORDINGS = (
    "3.9.1-kraft/controller-failover", "2.8.2-default/delete-topic-dead-broker", "3.3.2-trace/cancel-reassignment",
    "3.3.2-trace/delete-topic-dead-broker+3.3.2-trace/cancel-reassignment", "3.3.2-default/reassign",
    "2.5.1-default/delete-topic", "3.9.1-default/controlled-shutdown",
)  # fmt: skip
STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")
# more of them by hand: RUNS=4 SEEDS=1,2,3
RUNS = int(os.environ.get("RUNS", "3"))
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "0").split(",")]

ABORTED = "a run that is aborted"
# of a run that is not aborted
CODES = (errors.CLEAN, errors.FINDINGS, errors.INPUT)

# path below the cluster's folder -> content
Files = dict[str, bytes]

pytestmark = pytest.mark.spark


def whole(recording: str) -> Files:
    """Return all logs of a recording, or of several: a cluster that was wiped in between."""
    files: Files = {}
    for folder in (SAMPLES / name for name in recording.split("+")):
        for log in sorted(folder.glob("*/*.log")):
            path = str(log.relative_to(folder))
            files[path] = files.get(path, b"") + log.read_bytes()
    return {path: content for path, content in files.items() if content}


def records(content: bytes) -> list[tuple[str, bytes]]:
    """Return (time stamp, text) of every record, in the order of the file."""
    found: list[tuple[str, bytes]] = []
    for line in content.splitlines(keepends=True):
        if begin := STAMP.match(line):
            found.append((begin.group(1).decode(), line))
        elif found:
            found[-1] = found[-1][0], found[-1][1] + line
    return found


def merged(files: Files) -> Files:
    """Return one file for each node, like console output."""
    nodes: dict[str, list[tuple[str, bytes]]] = {}
    for path, content in files.items():
        nodes.setdefault(Path(path).parts[0], []).extend(records(content))
    return {
        f"{node}/console.log": b"".join(text for _, text in sorted(texts, key=lambda one: one[0]))
        for node, texts in nodes.items()
    }


def by_time(files: Files, chance: random.Random) -> list[Files]:
    """Cut every file at the same moments, like a collector that runs every hour."""
    stamps = sorted(stamp for content in files.values() for stamp, _ in records(content))
    moments = sorted(chance.sample(stamps, RUNS - 1))
    deliveries: list[Files] = [{} for _ in range(RUNS)]
    for path, content in files.items():
        for stamp, text in records(content):
            delivery = deliveries[sum(moment <= stamp for moment in moments)]
            delivery[path] = delivery.get(path, b"") + text
    return deliveries


def by_record(files: Files, chance: random.Random) -> list[Files]:
    """Cut every file by size, like rotation."""
    deliveries: list[Files] = [{} for _ in range(RUNS)]
    for path, content in files.items():
        found = records(content)
        cuts = sorted(chance.randrange(len(found)) for _ in range(RUNS - 1))
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(found)], strict=True)):
            if end > begin:
                deliveries[number][f"{path}.{number}"] = b"".join(text for _, text in found[begin:end])
    return deliveries


def grown(files: Files, chance: random.Random) -> list[Files]:
    """Deliver the same files in every run, longer each time and cut anywhere, also within a line or a stack
    trace.
    """
    lengths = {
        path: sorted(chance.randrange(1, len(content)) for _ in range(RUNS - 1))
        for path, content in files.items()
    }
    early = [
        {path: content[: lengths[path][delivery]] for path, content in files.items()}
        for delivery in range(RUNS - 1)
    ]
    return [*early, files]


def late_node(files: Files, chance: random.Random) -> list[Files]:
    """Deliver one node after the other."""
    deliveries: list[Files] = [{} for _ in range(RUNS)]
    nodes = sorted({Path(path).parts[0] for path in files})
    chance.shuffle(nodes)
    for path, content in files.items():
        deliveries[nodes.index(Path(path).parts[0]) % RUNS][path] = content
    return deliveries


def forgotten(files: Files, chance: random.Random) -> list[Files]:
    """Cut by time; the first part of one node is delivered in the last run."""
    deliveries = by_time(files, chance)
    node = chance.choice(sorted({Path(path).parts[0] for path in files}))
    for path in [path for path in deliveries[0] if Path(path).parts[0] == node]:
        deliveries[-1][f"{path}.forgotten"] = deliveries[0].pop(path)
    return deliveries


def in_any_order(files: Files, chance: random.Random) -> list[Files]:
    """Deliver pieces of all files in any order."""
    deliveries: list[Files] = [{} for _ in range(RUNS)]
    for number, delivery in enumerate(by_record(files, chance)):
        for path, content in delivery.items():
            deliveries[chance.randrange(RUNS)][f"{path}-{number}"] = content
    return deliveries


class Late(random.Random):
    """Choose a moment near the end."""

    def sample(self, population: Any, k: int, **_: Any) -> Any:
        return population[len(population) * 6 // 7 :][:k]


def at_the_end(files: Files, _: random.Random) -> list[Files]:
    """Cut by time near the end, so that timelines resume from their stored states."""
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
    """Yield (name, all logs, files of each run) for every way of delivery, with a recording each."""
    for seed in SEEDS:
        for number, way in enumerate(WAYS):
            recording = RECORDINGS[(number + seed) % len(RECORDINGS)]
            name = f"{way.__name__}-{seed}-{re.sub(r'[/+]', '-', recording)}"
            files = whole(recording) if (seed + number) % 3 else merged(whole(recording))
            yield name, files, way(files, random.Random(name))


def growing_metadata_log() -> tuple[Files, list[Files]]:
    """Return dumps of a whole metadata log: its new records affect their topics."""
    recording = "3.9.1-kraft/controller-failover"
    dump = (SAMPLES / recording / "metadata-log.txt").read_bytes()
    # half of the changes are delivered in the second run
    early = dump.splitlines(keepends=True)[: -dump.count(b"PARTITION_CHANGE_RECORD") // 2]
    deliveries = at_the_end(whole(recording), random.Random(0))
    for delivery, content in zip(deliveries, (b"".join(early), dump), strict=False):
        delivery["metadata-log.txt"] = content
    return {**whole(recording), "metadata-log.txt": dump}, deliveries


def cut_short() -> tuple[Files, list[Files]]:
    """Return a log whose last record is cut in the first run."""
    log = "broker-1/state-change.log"
    return {log: WITH_TRACE}, [
        {log: WITH_TRACE[: CUTS["between two frames"]]},
        {log: WITH_TRACE},
        *[{}] * (RUNS - 2),
    ]


def aborted() -> tuple[Files, list[Files]]:
    """Return logs whose second part is landed by a run that is aborted."""
    files = {
        path: content
        for path, content in whole("3.3.2-trace/delete-topic-dead-broker").items()
        if "server" not in path
    }
    deliveries = by_time(files, random.Random(1))
    # the files grow: the completed run has nothing new but what the aborted one has left
    deliveries[1] = {path: b"".join(delivery.get(path, b"") for delivery in deliveries[:2]) for path in files}
    return files, deliveries


# they affect some partitions, and no cluster is rebuilt as a whole
LITTLE: dict[str, Callable[[], tuple[Files, list[Files]]]] = {
    "a metadata log that grows": growing_metadata_log,
    "a record that is whole now": cut_short,
    ABORTED: aborted,
}


def deliver(folder: Path, files: Files) -> None:
    """Write these files, and no others, into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def audit(root: Path, tables: Path, delivered: dict[str, Files], engine: str) -> int:
    """Run an audit of all clusters with delivered files; return the exit code."""
    some = {name: files for name, files in delivered.items() if files}
    for name, files in some.items():
        deliver(root / name, files)
    config = configuration(root / "audit.toml", {name: root / name for name in some})
    return main(["audit", "--config", str(config), "--tables", str(tables), "--engine", engine])


def rows(tables: Path) -> dict[tuple[str, str], list[str]]:
    """Return (cluster, table) -> its rows, without files and places in them, which depend on the cut."""
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
            values = {
                name: value
                for name, value in row.items()
                if name not in ("file", "record_no", "ends_file", "settled")
            }
            found.setdefault((row["cluster"], table), []).append(
                json.dumps(values, default=str, sort_keys=True)
            )
    return {key: sorted(some) for key, some in found.items()}


def phantoms(got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Return findings that one run over all logs does not have, though it has one about the same thing and
    time.
    """
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
    """Return rows of one that are not in the other."""
    left = sorted(set(one) - set(other)) or [f"{len(one)} rows"]
    return left[:at_most]


def power_cut(*_: object) -> None:
    raise RuntimeError("power cut")


def all_by_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the local engine treat these logs like large ones."""
    monkeypatch.setattr(in_process, "SMALL", 0)
    monkeypatch.setattr(grouped, "CHUNK", 200)


def in_one_run(folder: Path, chosen: list[tuple[str, Files, list[Files]]]) -> Path:
    """Return the tables of one run on Spark over all logs; the first test makes them."""
    if not any(folder.iterdir()):
        delivered = {name: files for name, files, _ in chosen}
        assert audit(folder, folder / "tables", delivered, "spark") in CODES
    return folder / "tables"


@pytest.fixture(scope="module")
def once(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of `in_one_run`."""
    return tmp_path_factory.mktemp("once")


@pytest.mark.parametrize(
    "engines",
    [
        # each engine makes the tables, and each continues those of the other one
        pytest.param(("spark", "local by the pool"), id="spark-pool-spark"),
        pytest.param(("local", "spark"), id="local-spark-local"),
    ],
)
def test_any_delivery_gives_the_tables_of_one_run(capsys, tmp_path, monkeypatch, once, engines):
    """The tables are those of one run on Spark, where engines take turns."""
    if "local by the pool" in engines:
        all_by_the_pool(monkeypatch)
    resumed_clusters: set[str] = set()
    refolded: set[str] = set()
    write = updates._write

    def recorded_write(
        store: RunTables, folded: updates.FoldedRows, version: int, resumed: list[str], rebuilt: list[str]
    ) -> Frame:
        some = set() if folded.refolded is None else {row["cluster"] for row in to_dicts(folded.refolded)}
        resumed_clusters.update(set(resumed) - some)
        refolded.update(some)
        return write(store, folded, version, resumed, rebuilt)

    monkeypatch.setattr(updates, "_write", recorded_write)
    chosen = [*cases(), *[(name, *given()) for name, given in LITTLE.items()]]
    (tmp_path / "runs").mkdir()
    for number in range(RUNS):
        delivered = {name: given[number] for name, _, given in chosen}
        engine = engines[number % len(engines)].partition(" ")[0]
        if number == 1:
            with monkeypatch.context() as patched:
                patched.setattr(updates, "_write", power_cut)
                only = {ABORTED: delivered[ABORTED]}
                assert audit(tmp_path / "runs", tmp_path / "tables", only, engine) == errors.INTERNAL
        assert audit(tmp_path / "runs", tmp_path / "tables", delivered, engine) in CODES
    # what this run writes is not recorded
    with monkeypatch.context() as patched:
        patched.setattr(updates, "_write", write)
        one_run = in_one_run(once, chosen)
    capsys.readouterr()
    for mode in ("kraft", "default"):
        assert any(mode in cluster for cluster in resumed_clusters), (
            f"no timeline was resumed from its stored state: {mode}"
        )
    assert refolded, "no partition was folded again"
    got, expected = rows(tmp_path / "tables"), rows(one_run)
    assert {
        json.loads(row)["source"] for row in expected["a metadata log that grows", "partition_timeline"]
    } == {"metadata_log"}
    wrong = {
        key: (
            differences(got.get(key, []), expected.get(key, [])),
            differences(expected.get(key, []), got.get(key, [])),
        )
        for key in sorted(got.keys() | expected.keys())
        if got.get(key) != expected.get(key)
    }
    found, known = (rows_of(tables, "findings") for tables in (tmp_path / "tables", one_run))
    opened, expected_open = (
        {row["fingerprint"]: row["title"] for row in some if row["status"] != "resolved"}
        for some in (found, known)
    )
    assert opened == expected_open
    assert {row["fingerprint"] for row in known} <= {row["fingerprint"] for row in found}
    assert phantoms(found, known) == []
    assert not wrong, "\n".join(
        f"{key}\n  only run by run: {a}\n  only in one run: {b}" for key, (a, b) in wrong.items()
    )
