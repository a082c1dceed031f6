"""What new events touch, and that nothing else is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from frames import frame
from pyspark.sql import functions as F
from test_timelines import events, types_of

from jobs.old_timelines import kraft_changes, touched
from jobs.store import Store

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

ASSIGNED = [("a", 0, [1, 2]), ("a", 1, [2, 3]), ("b", 0, [3, 1])]
BEFORE = [{"s": s, "event_type": "partition_online", "topic": t, "partition": p} for s, (t, p, _) in enumerate(ASSIGNED)]
# what happens -> the new event, the partitions that are made anew
TOUCHES: dict[str, tuple[dict[str, Any], Collection[tuple[str, int]]]] = {
    "a partition": ({"event_type": "isr_shrunk", "topic": "a", "partition": 1, "replica": 2}, {("a", 1)}),
    "a topic": ({"event_type": "deletion_completed", "topic": "a"}, {("a", 0), ("a", 1)}),
    "a broker": ({"event_type": "broker_started", "broker": 1}, {("a", 0), ("b", 0)}),
    "none": ({"event_type": "controller_resigned"}, set()),
}
ID = {"topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}
IN_KRAFT: dict[str, tuple[dict[str, Any], Collection[tuple[str, int]]]] = {
    "a partition": ({"event_type": "partition_changed", "topic": "a", "partition": 0}, {("a", 0)}),
    "a topic that is gone": ({"event_type": "topic_removed", "topic": "a"} | ID, {("a", 0), ("a", 1)}),
    "a topic by another id": ({"event_type": "topic_registered", "topic": "a"} | ID, {("a", 0), ("a", 1)}),
    "a topic that is named again": ({"event_type": "topic_registered", "topic": "a"}, set()),
    "a broker that starts": ({"event_type": "broker_started", "broker": 1}, {("a", 0), ("b", 0)}),
    "a broker that is fenced": ({"event_type": "broker_fenced", "broker": 3, "fenced": True}, {("a", 1), ("b", 0)}),
    "a broker in no other state": ({"event_type": "broker_unfenced", "broker": 2, "fenced": False}, set()),
    "a controller's start": ({"event_type": "quorum_controller_created"}, set()),
}
# before, in KRaft
UNFENCED = {"s": 8, "event_type": "broker_unfenced", "broker": 2, "fenced": False}
TRACED = {"event_type": "replica_state_changed", "topic": "a", "partition": 0, "replica": 1, "from_state": "NewReplica"}
# what happens -> the new event; whether a cluster of that mode is made anew as a whole
FOR_ALL: dict[str, tuple[dict[str, Any], bool]] = {
    "none": ({"event_type": "controller_resigned"}, False),
    "the level of a node": (TRACED, True),
    "the order of files": ({"event_type": "controller_resigned", "ts": "2026-11-20 09:00:00"}, True),
}
DUMP = {"logger": "__cluster_metadata", "file": "metadata-log.txt"}
FOR_ALL_IN_KRAFT: dict[str, tuple[dict[str, Any], bool]] = {
    "a partition": ({"event_type": "partition_changed", "topic": "b", "partition": 0}, False),
    "a controller's start": ({"event_type": "quorum_controller_created"}, False),
    "a controller's start that comes late": ({"event_type": "controller_activated", "s": 1}, True),
    "a broker": ({"event_type": "broker_fencing_replayed", "broker": 1}, False),
    "the first version": ({"event_type": "broker_started", "kafka_version": "3.9.1"}, True),
    "a record of the metadata log": ({"event_type": "metadata_record", **DUMP}, False),
    "the metadata log clears all ELRs": ({"event_type": "clear_elr_record", **DUMP}, True),
    "a snapshot of the metadata log": ({"event_type": "snapshot_header_record", **DUMP}, False),
}


def intervals(spark: SparkSession) -> DataFrame:
    rows = [{"topic": t, "partition": p, "replicas": r, "cluster": "c", "incarnation": 1} for t, p, r in ASSIGNED]
    return frame(spark, types_of("partition_timeline"), rows)


@pytest.mark.parametrize(
    ("new", "expected", "in_kraft"),
    [pytest.param(*case, False, id=name) for name, case in TOUCHES.items()]
    + [pytest.param(*case, True, id=f"KRaft: {name}") for name, case in IN_KRAFT.items()],
)
def test_what_an_event_touches(spark: SparkSession, new: dict, expected: Collection, in_kraft: bool) -> None:
    before, after = (events(spark, *rows) for rows in ([*BEFORE, UNFENCED] if in_kraft else BEFORE, [{"s": 9} | new]))
    timeline = intervals(spark)
    beside = kraft_changes.Changes.between(before, before.unionByName(after), {"c": None}) if in_kraft else None
    found = touched.find(after, intervals=timeline, in_kraft=beside)
    assert {(row.topic, row.partition) for row in found.rows(timeline).collect()} == expected
    # to make them anew, all that was ever said about them is read
    read = {(row.topic, row.partition) for row in found.events(before).collect()}
    assert read == expected


@pytest.mark.parametrize(
    ("new", "expected", "in_kraft"),
    [pytest.param(*case, False, id=name) for name, case in FOR_ALL.items()]
    + [pytest.param(*case, True, id=f"KRaft: {name}") for name, case in FOR_ALL_IN_KRAFT.items()],
)
def test_what_an_event_changes_for_all(spark: SparkSession, new: dict, expected: bool, in_kraft: bool) -> None:
    before, after = (events(spark, *rows).drop("log", "file_ts") for rows in (BEFORE, [{"s": 9} | new]))
    changed = touched.everywhere(before, before.unionByName(after), after, in_kraft={"c": None} if in_kraft else {})
    assert changed == ({"c"} if expected else frozenset())


def held(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Intervals of a partition at rest, one an hour from 08:00 on, each with the next epochs."""
    some = []
    for step, row in enumerate(rows, 1):
        begin, end = f"2026-11-20 {7 + step:02d}:00:00", f"2026-11-20 {8 + step:02d}:00:00" if step < len(rows) else None
        key = {"cluster": "c", "incarnation": 1, "topic": "a", "partition": 0, "step": step, "valid_from": begin, "valid_to": end}
        values = {"leader": 1, "leader_epoch": step, "isr": [1, 2], "partition_epoch": step, "replicas": [1, 2], "source": "logs"}
        some.append(key | values | {"state": "OnlinePartition", "inferred": False} | row)
    return frame(spark, types_of("partition_timeline"), some)


ISR = {"s": 9, "event_type": "isr_updated", "says": "happened", "topic": "a", "partition": 0, "ts": "2026-11-20 12:00:00"}
# the last intervals -> the new event, the step that the timeline goes on from
GOES_ON: dict[str, tuple[list[dict[str, Any]], dict[str, Any], int | None]] = {
    "at rest": ([{}, {}, {}], ISR | {"partition_epoch": 4}, 3),
    "a late word about an epoch": ([{}, {}, {}], ISR | {"partition_epoch": 2}, 2),
    "no epoch known": ([{}, {}, {"partition_epoch": None}], ISR, 2),
    "a value was derived": ([{}, {}, {"inferred": True}], ISR, 2),
    "a reassignment runs": ([{}, {"adding_replicas": [3]}, {"reassignment_phase": "A"}], ISR, 1),
    "clocks may differ": ([{}, {}, {}], ISR | {"ts": "2026-11-20 10:00:30"}, 2),
    "a record of before": ([{}, {}, {}], ISR | {"ts": "2026-11-20 07:00:00"}, None),
    "no time stamp": ([{}, {}, {}], ISR | {"ts": None}, None),
}


@pytest.mark.parametrize(("rows", "new", "expected"), GOES_ON.values(), ids=GOES_ON)
def test_where_a_timeline_goes_on(spark: SparkSession, rows: list[dict], new: dict, expected: int | None) -> None:
    old = [
        {"s": hour, "event_type": "isr_updated", "topic": "a", "partition": 0, "ts": f"2026-11-20 {hour:02d}:00:00"}
        for hour in (8, 9, 10)
    ]
    before, after = (events(spark, *given) for given in (old, [new]))
    timeline = held(spark, *rows)
    found = touched.find(after, intervals=timeline, anchored=frozenset({"c"}))
    assert [row.step for row in found.anchors.collect()] == ([] if expected is None else [expected])
    # what was so at the anchor's begin is not read again, nor are the rows before it written
    begin = expected or 0
    assert sorted(row.ts.hour for row in found.events(before).collect()) == [hour for hour in (8, 9, 10) if hour > 7 + begin]
    assert sorted(row.step for row in found.intervals(timeline).collect()) == [step for step in (1, 2, 3) if step >= begin]


CHANGED = {
    "s": 9,
    "event_type": "partition_changed",
    "topic": "a",
    "partition": 0,
    "ts": "2026-11-20 12:00:00",
    "partition_epoch": 4,
}
REPLAYED = CHANGED | {"event_type": "partition_registered", "partition_epoch": 1, "leader": 1, "isr": [2, 1], "replicas": [1, 2]}
GOES_ON_IN_KRAFT: dict[str, tuple[list[dict[str, Any]], dict[str, Any], int | None]] = {
    "a change": ([{}, {}, {}], CHANGED, 3),
    "what is known is printed again": ([{}, {}, {}], REPLAYED, 3),
    "another value of an epoch that is known": ([{}, {}, {}], REPLAYED | {"isr": [1]}, 1),
    "an epoch that is not known": ([{"partition_epoch": 0}, {}, {}], REPLAYED, 1),
    "the assignment changes": ([{}, {}, {}], CHANGED | {"event_type": "assignment_changed", "partition_epoch": None}, None),
    "the assignment has changed": ([{"replicas": [1, 3]}, {}, {}], CHANGED | {"partition_epoch": 1, "leader": 2}, None),
    "its topic goes": ([{}, {}, {}], {"s": 9, "event_type": "topic_removed", "topic": "a"} | ID, None),
    "its topic has another id": ([{}, {}, {}], CHANGED | ID, None),
}


@pytest.mark.parametrize(("rows", "new", "expected"), GOES_ON_IN_KRAFT.values(), ids=GOES_ON_IN_KRAFT)
def test_where_a_timeline_goes_on_in_kraft(spark: SparkSession, rows: list[dict], new: dict, expected: int | None) -> None:
    before = events(spark, {"s": 1, "event_type": "partition_registered", "topic": "a", "partition": 0, "topic_id": "B" * 22})
    after = events(spark, new)
    beside = kraft_changes.Changes.between(before, before.unionByName(after), {"c": None})
    found = touched.find(after, intervals=held(spark, *rows), anchored=frozenset({"c"}), in_kraft=beside)
    assert [row.step for row in found.anchors.collect()] == ([] if expected is None else [expected])


def test_what_comes_out_in_another_way_is_made_from_its_whole_history(spark: SparkSession) -> None:
    timeline = held(spark, {}, {}, {}, {})
    new = events(spark, ISR | {"ts": "2026-11-20 10:30:00"})
    found = touched.find(new, intervals=timeline, anchored=frozenset({"c"}))
    assert [row.step for row in found.anchors.collect()] == [3]
    again = found.intervals(timeline)
    assert found.differing(again, again).isEmpty()
    # what is after the first new event may differ, what is before it may not
    after = again.withColumn("leader", F.when(F.col("step") == 4, 2).otherwise(F.col("leader")))
    assert found.differing(again, after).isEmpty()
    earlier = held(spark, {}, {}, {"valid_to": "2026-11-20 10:15:00", "leader": 2})
    wrong = found.differing(again, found.intervals(earlier))
    assert [tuple(row) for row in wrong.collect()] == [("c", 1, "a", 0)]
    assert found.without_anchors_of(wrong).anchors.isEmpty()


def test_rows_that_stay_are_not_written(tables: Store) -> None:
    def interval(topic: str, step: int, end: str | None, leader: int = 1) -> dict[str, Any]:
        begin = f"2026-11-{step:02d} 00:00:00"
        key = {"cluster": "c", "incarnation": 1, "topic": topic, "partition": 0, "step": step}
        return key | {"valid_from": begin, "valid_to": end, "leader": leader, "inferred": False, "source": "logs"}

    def rows(*some: dict[str, Any]) -> DataFrame:
        return frame(tables.spark, types_of("partition_timeline"), some)

    def files() -> dict[str, set[tuple[str, int]]]:
        found: dict[str, set[tuple[str, int]]] = {}
        for row in tables.table("partition_timeline").select("topic", "step", "_metadata.file_name").collect():
            found.setdefault(row.file_name, set()).add((row.topic, row.step))
        return found

    def exchange(old: DataFrame, new: DataFrame) -> None:
        tables.exchange("partition_timeline", ["c"], old, new)

    day2, day3 = "2026-11-02 00:00:00", "2026-11-03 00:00:00"
    everything = rows(interval("a", 1, day2), interval("a", 2, None), interval("b", 1, day2), interval("b", 2, None))
    exchange(rows(), everything)
    before, version = files(), tables.version("partition_timeline")
    assert set(map(frozenset, before.values())) == {frozenset({("a", 1), ("b", 1)}), frozenset({("a", 2), ("b", 2)})}

    of_a = tables.table("partition_timeline").filter("topic = 'a'")
    exchange(of_a, rows(interval("a", 1, day2), interval("a", 2, None)))
    assert tables.version("partition_timeline") == version

    exchange(of_a, rows(interval("a", 1, day2), interval("a", 2, day3), interval("a", 3, None, leader=2)))
    after = files()
    assert tables.version("partition_timeline") == version + 1
    assert set.union(*after.values()) == {("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)}
    over = next(name for name, held in before.items() if ("a", 1) in held)
    assert after[over] == before[over]
    assert not any(name in before for name in after if name != over)

    # an interval of the past that has changed
    exchange(
        tables.table("partition_timeline").filter("topic = 'b'"), rows(interval("b", 1, day2, leader=7), interval("b", 2, None))
    )
    told = {(row.topic, row.step, row.leader) for row in tables.table("partition_timeline").collect()}
    assert told == {("a", 1, 1), ("a", 2, 1), ("a", 3, 2), ("b", 1, 7), ("b", 2, 1)}
