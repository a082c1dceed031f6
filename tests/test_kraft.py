"""KRaft: partitions from text logs, from a dump of the metadata log, and from both."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import truth
from frames import frame
from test_timelines import events as said
from test_timelines import types_of

from jobs import errors, events, ingest
from jobs.config import Cluster
from jobs.nightly_audit import main
from jobs.old_timelines import kraft, kraft_replicas, metadata_log, night, order
from jobs.store import Store
from parsers.rules import built_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE = Path(__file__).parents[1] / "sample_logs" / "3.9.1-kraft" / "controller-failover"
pytestmark = pytest.mark.spark


def rows_of(spark: SparkSession, tables: Path, table: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in Store(spark, tables).table(table).collect()]


def checks_of(spark: SparkSession, tables: Path) -> set[str]:
    """The checks that are violated."""
    return {row["check_id"] for row in rows_of(spark, tables, "findings")}


def judged(spark: SparkSession, tables: Path, recordings: Path) -> dict[str, truth.Verdict]:
    """Cluster -> verdict; a cluster is named after its recording's folder below `recordings`."""
    told: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(spark, tables, "partition_timeline"):
        told.setdefault(row["cluster"], []).append(row)
    return {name: truth.compare(recordings / name, rows) for name, rows in told.items()}


def audit_of(logs: list[Path], tables: Path) -> int:
    return main(["audit", *map(str, logs), "--cluster", SAMPLE.name, "--tables", str(tables)])


def test_text_logs_of_restarted_controllers(spark: SparkSession, tmp_path: Path) -> None:
    assert audit_of(sorted(SAMPLE.glob("node-*")), tmp_path) == errors.CLEAN
    verdict = judged(spark, tmp_path, SAMPLE.parent)[SAMPLE.name]
    assert verdict.precise, truth.details(verdict)
    assert verdict.rows("mixed") == 0
    assert verdict.shown_assignments == verdict.true_assignments
    assert verdict.misses_by_reason()["missing"] == 0
    moved = rows_of(spark, tmp_path, "reassignments")
    assert Counter(row["outcome"] for row in moved) == {"completed": 2}
    assert {row["source"] for row in rows_of(spark, tmp_path, "partition_timeline")} == {"logs"}
    states = {row["state"] for row in rows_of(spark, tmp_path, "replica_timeline")}
    assert states == {"KRaftOnline", "KRaftControlledShutdown", "KRaftFenced", "KRaftRemoved"}


def test_the_metadata_log_alone(spark: SparkSession, tmp_path: Path) -> None:
    assert audit_of([SAMPLE / "metadata-log.txt"], tmp_path) == errors.CLEAN
    verdict = judged(spark, tmp_path, SAMPLE.parent)[SAMPLE.name]
    assert (verdict.precise, verdict.misses) == (True, []), truth.details(verdict)


def test_the_metadata_log_wins_over_text_and_a_difference_is_a_finding(spark: SparkSession, tmp_path: Path) -> None:
    given = tmp_path / SAMPLE.name
    shutil.copytree(SAMPLE, given)
    tables = tmp_path / "tables"
    assert audit_of([given], tables) == errors.CLEAN
    assert {row["source"] for row in rows_of(spark, tables, "partition_timeline")} == {"metadata_log"}
    assert "log_differs_from_metadata" not in checks_of(spark, tables)
    # a line about an epoch that the metadata log has with another ISR
    log = given / "node-1" / "state-change.log"
    text = log.read_text("utf-8")
    honest = next(line for line in text.splitlines() if "Leader orders-" in line and ", ISR [" in line)
    before, isr, after = honest.partition(", ISR [")
    log.write_text(text.replace(honest, before + isr + "9," + after), "utf-8")
    tables = tmp_path / "others"
    assert audit_of([given], tables) == errors.CLEAN
    assert "log_differs_from_metadata" in checks_of(spark, tables)
    verdict = judged(spark, tables, SAMPLE.parent)[SAMPLE.name]
    assert (verdict.precise, verdict.misses) == (True, []), truth.details(verdict)


def test_a_late_word_about_a_topic_whose_name_is_used_again(spark: SparkSession) -> None:
    """No interval of the topic before lasts into the time of the one that has its name now."""
    line = {"event_type": "leader_started", "topic": "t", "partition": 0, "leader_epoch": 0}
    old, new = ({"topic_id": letter * 22} for letter in "AB")
    told = said(
        spark,
        line | old | {"s": 1, "node": 1, "partition_epoch": 0},
        line | new | {"s": 10, "node": 2, "partition_epoch": 0},
        line | old | {"s": 20, "node": 1, "partition_epoch": 1},
    )
    lives = kraft.topic_lives(told, {"c": None})
    found = kraft.registrations(told, told, lives).orderBy("topic_life", "seq").collect()
    assert [(row.topic_life, row.partition_epoch, row.ts.second) for row in found] == [(0, 0, 1), (0, 1, 10), (1, 0, 10)]


def test_a_migrated_cluster_leaves_the_steps_of_others_alone(spark: SparkSession) -> None:
    """Of a timeline that goes on, the first step is not 1."""
    types = {name: kind for name, kind in types_of("replica_timeline").items() if name != "in_isr"}
    usual = {"incarnation": 1, "topic": "t", "partition": 0, "replica": 1, "inferred": True, "valid_to": None}

    def intervals(*rows: tuple[str, int, str, str]) -> DataFrame:
        named = ("cluster", "step", "state", "valid_from")
        return frame(spark, types, [usual | dict(zip(named, row, strict=True)) | {"record_id": row[2]} for row in rows])

    before = intervals(
        ("migrated", 1, "NewReplica", "2026-11-20 10:00:00"), ("migrated", 2, "OnlineReplica", "2026-11-20 10:00:01")
    )
    since = intervals(("migrated", 1, "KRaftOnline", "2026-11-20 11:00:00"), ("other", 7, "KRaftFenced", "2026-11-20 09:00:00"))
    begun = {"migrated": datetime(2026, 11, 20, 11), "other": None}
    told = kraft_replicas.after_zookeeper(before, since, begun).orderBy("cluster", "step").collect()
    assert [(row.cluster, row.step, row.state, row.valid_to is None) for row in told] == [
        ("migrated", 1, "NewReplica", False),
        ("migrated", 2, "OnlineReplica", False),
        ("migrated", 3, "KRaftOnline", True),
        ("other", 7, "KRaftFenced", True),
    ]


def record(offset: int, kind: str, **data: Any) -> str:
    payload = json.dumps({"type": kind, "version": 0, "data": data}, separators=(",", ":"))
    return f"| offset: {offset} CreateTime: {1795169500000 + offset * 1000} keySize: -1 valueSize: 9 sequence: -1 headerKeys: [] payload: {payload}"


def partition(offset: int, number: int, epoch: int = 0, leader_epoch: int = 0, **more: Any) -> str:
    values = {
        "partitionId": number, "topicId": "AAAAAAAAAAAAAAAAAAAAAA", "replicas": [1, 2], "isr": [1, 2], "removingReplicas": [],
        "addingReplicas": [], "leader": 1, "leaderEpoch": leader_epoch, "partitionEpoch": epoch,
    }  # fmt: skip
    return record(offset, "PARTITION_RECORD", **values | more)


def change(offset: int, number: int, **more: Any) -> str:
    return record(offset, "PARTITION_CHANGE_RECORD", partitionId=number, topicId="AAAAAAAAAAAAAAAAAAAAAA", **more)


def registrations(spark: SparkSession, folder: Path, dumps: dict[str, list[str]]) -> list[tuple]:
    """(partition, offset, partition epoch, leader epoch, leader, ISR, deleted) of every registration, in order."""
    folder.mkdir(exist_ok=True)
    for name, lines in dumps.items():
        (folder / name).write_text("\n".join(["Dumping data/00000000000000000000.log", *lines]) + "\n", "utf-8")
    files = ingest.find(Cluster("c", (str(folder),)))
    store = Store(spark, folder / "tables")
    store.open()
    with ingest.staged(files, folder / "staging") as source:
        events.land(store, ingest.read(spark, source, built_in()), source, built_in())
    told = metadata_log.registrations(store.table("events"))
    return [
        (row.partition, row.at, row.partition_epoch, row.leader_epoch, row.leader, row.isr, row.deleted)
        for row in told.orderBy("partition", "at").collect()
    ]


def test_registrations_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    """PartitionRegistration.merge(): the same leader again raises its epoch; an ELR that is cleared raises the partition epoch."""
    topic = record(0, "TOPIC_RECORD", name="orders", topicId="AAAAAAAAAAAAAAAAAAAAAA")
    log = [
        topic, partition(1, 0), partition(2, 1),
        change(3, 0, isr=[1]),
        change(4, 0, leader=1),
        change(5, 0, isr=[], leader=-1, eligibleLeaderReplicas=[1], lastKnownElr=[1]),
        record(6, "CLEAR_ELR_RECORD", topicName="orders"),
        record(7, "CLEAR_ELR_RECORD", topicName="orders"),
        record(8, "NO_OP_RECORD"),
        record(9, "REMOVE_TOPIC_RECORD", topicId="AAAAAAAAAAAAAAAAAAAAAA"),
    ]  # fmt: skip
    # two voters have the same log
    assert registrations(spark, tmp_path / "log", {"node-1.txt": log, "node-2.txt": log}) == [
        (0, 1, 0, 0, 1, [1, 2], False),
        (0, 3, 1, 0, 1, [1], False),
        (0, 4, 2, 1, 1, [1], False),
        (0, 5, 3, 2, -1, [], False),
        (0, 6, 4, 2, -1, [], False),
        (0, 9, None, None, None, None, True),
        (1, 2, 0, 0, 1, [1, 2], False),
        (1, 9, None, None, None, None, True),
    ]


def test_a_snapshot_stands_where_the_log_begins_later(spark: SparkSession, tmp_path: Path) -> None:
    snapshot = [
        "| offset: 0 CreateTime: 1795169530500 keySize: 4 valueSize: 11 sequence: -1 headerKeys: [] "
        'SnapshotHeader {"version":0,"lastContainedLogTimestamp":1795169530000}',
        record(1, "TOPIC_RECORD", name="orders", topicId="AAAAAAAAAAAAAAAAAAAAAA"),
        partition(2, 0, epoch=7, leader_epoch=3),
    ]
    log = [change(30, 0, isr=[1]), change(31, 0, isr=[1, 2]), change(32, 0, isr=[2], leader=2)]
    assert registrations(spark, tmp_path / "log", {"snapshot.txt": snapshot, "log.txt": log}) == [
        (0, 30.5, 7, 3, 1, [1, 2], False),
        (0, 31, 8, 3, 1, [1, 2], False),
        (0, 32, 9, 4, 2, [2], False),
    ]


def test_two_metadata_logs_are_two_incarnations() -> None:
    from datetime import datetime, timedelta

    day = datetime(2026, 11, 20)
    begun = [order.Sign(day, begins_log=True), order.Sign(day + timedelta(hours=1), begins_log=True)]
    assert order.incarnation_starts(begun) == [begun[1].ts]
    named = [order.Sign(day - timedelta(seconds=5), cluster_id="A"), order.Sign(day + timedelta(minutes=59), cluster_id="B")]
    assert order.incarnation_starts([*begun, *named]) == [named[1].ts]


@pytest.mark.shared
def test_the_metadata_log_of_every_recording(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """Exact: every state and every assignment, each at its moment."""
    recordings = shared / "recordings"
    entries = [
        f'[[cluster]]\nname = "{folder.relative_to(recordings)}"\nlogs = ["{folder}/metadata-log*.txt"]\n'
        for folder in sorted(recordings.glob("kraft/*/*"))
        if folder.is_dir()
    ]
    config = tmp_path / "audit.toml"
    config.write_text("\n".join(entries), "utf-8")
    main(["audit", "--config", str(config), "--tables", str(tmp_path / "tables")])
    verdicts = judged(spark, tmp_path / "tables", recordings)
    assert len(verdicts) == len(entries) > 30
    assert [name for name, one in verdicts.items() if one.misses or not one.precise] == []


@pytest.mark.shared
@pytest.mark.parametrize("name", ["3.3.2-default/controller-failover", "4.1.2-debug/reassign", "4.1.2-default/topics"])
def test_text_logs_of_recordings(spark: SparkSession, shared: Path, tmp_path: Path, name: str) -> None:
    """Nothing wrong, early or out of order; at DEBUG nothing missing."""
    recording = shared / "recordings" / "kraft" / name
    main(["audit", *map(str, sorted(recording.glob("node-*"))), "--cluster", recording.name, "--tables", str(tmp_path)])
    verdict = judged(spark, tmp_path, recording.parent)[recording.name]
    assert verdict.precise, truth.details(verdict)
    assert verdict.shown_assignments == verdict.true_assignments
    assert verdict.misses_by_reason()["missing"] == 0
    assert "debug" not in name or verdict.recall == 100.0
    assert night.kraft_begins(Store(spark, tmp_path).table("events")) == {recording.name: None}
