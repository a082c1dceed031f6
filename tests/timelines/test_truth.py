"""Tests of `truth`: small truths, rows with one known fault each, and every recording compared with itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import truth
from truth import Verdict, compare, perfect_rows

RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"
START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)

Row = dict[str, Any]
Write = Mapping[str, Any]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line, default=str) + "\n" for line in lines), encoding="utf-8")
    return path


def numbered(writes: Iterable[Write]) -> list[Write]:
    return [{"session": "controller", "zxid": hex(zxid), **write} for zxid, write in enumerate(writes, 1)]


def controller(seconds: float = 0) -> Write:
    return {"time": stamp(seconds), "op": "create", "path": "/controller", "value": {"brokerid": 1}}


def broker(seconds: float, broker_id: int) -> Write:
    return {"time": stamp(seconds), "op": "create", "path": f"/brokers/ids/{broker_id}", "value": {}}


def session_closed(seconds: float, *paths: str) -> Write:
    return {"time": stamp(seconds), "op": "closeSession", "removes": list(paths)}


def delete(seconds: float, path: str) -> Write:
    return {"time": stamp(seconds), "op": "delete", "path": path}


def state(
    seconds: float, version: int, leader: int, leader_epoch: int, isr: list[int], **other: Any
) -> Write:
    value = {"leader": leader, "leader_epoch": leader_epoch, "isr": isr, "controller_epoch": 1}
    path = f"/brokers/topics/{other.pop('topic', 'orders')}/partitions/0/state"
    operation = "create" if version == 0 else "setData"
    return {
        "time": stamp(seconds),
        "op": operation,
        "path": path,
        "value": value,
        "version": version,
        **other,
    }


def topic(
    seconds: float, replicas: list[int], adding: Any = (), removing: Any = (), name: str = "orders"
) -> Write:
    """The topic znode; before 2.4 (adding None) it has no AR and no RR."""
    value: dict[str, Any] = {"partitions": {"0": replicas}}
    if adding is not None:
        value["adding_replicas"] = {"0": list(adding)} if adding else {}
        value["removing_replicas"] = {"0": list(removing)} if removing else {}
    return {"time": stamp(seconds), "op": "setData", "path": f"/brokers/topics/{name}", "value": value}


def reassign(seconds: float, target: list[int] | None) -> Write:
    partitions = [] if target is None else [{"topic": "orders", "partition": 0, "replicas": target}]
    path = "/admin/reassign_partitions"
    return {"time": stamp(seconds), "op": "setData", "path": path, "value": {"partitions": partitions}}


REASSIGNMENT = [
    controller(),
    *(broker(0.1, broker_id) for broker_id in (1, 2, 3, 4)),
    topic(1, [1, 2, 3]),
    state(1.1, 0, 1, 0, [1, 2, 3]),
    topic(10, [2, 3, 4, 1], [4], [1]),
    state(10.1, 1, 1, 1, [1, 2, 3]),
    state(12, 2, 1, 1, [1, 2, 3, 4], session="broker 1"),
    state(12.1, 3, 2, 2, [1, 2, 3, 4]),
    state(12.12, 4, 2, 3, [2, 3, 4]),
    topic(12.2, [2, 3, 4]),
    state(60, 5, 3, 4, [3, 4]),
]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """One partition, 2.4 or later, reassigned from 1,2,3 to 2,3,4."""
    write_lines(tmp_path / "truth-txn.jsonl", numbered(REASSIGNMENT))
    scenario_over = {"time": stamp(50), "step": "scenario over; shutting the cluster down"}
    write_lines(tmp_path / "steps.jsonl", [scenario_over, {"time": stamp(70), "step": "zookeeper stopped"}])
    return tmp_path


def recorded(folder: Path, writes: Iterable[Write]) -> Path:
    write_lines(folder / "truth-txn.jsonl", numbered(writes))
    return folder


def with_partition_epoch(rows: Iterable[Row], epoch: int) -> Row:
    """The first row that shows this partition epoch, to be spoilt."""
    return next(row for row in rows if row["partition_epoch"] == epoch)


def is_perfect(verdict: Verdict) -> bool:
    complete = (verdict.recall, verdict.assignment_recall) == (100.0, 100.0)
    return complete and not verdict.problems and not verdict.misses


def faults(verdict: Verdict) -> dict[str, int]:
    counts = {
        "wrong": verdict.wrong_rows,
        "early": verdict.early_rows,
        "out of order": verdict.out_of_order_rows,
        "mixed": verdict.mixed_rows,
        "broken": verdict.broken_rows,
    }
    return {kind: count for kind, count in counts.items() if count}


# ------------------------------------------------------------------------------------------------ perfect


def test_perfect_timeline_scores_all(recording: Path) -> None:
    verdict = compare(recording, perfect_rows(recording))
    assert is_perfect(verdict)
    assert (verdict.true_states, verdict.shown_states) == (6, 6)
    assert (verdict.true_assignments, verdict.shown_assignments) == (3, 3)
    assert verdict.observed_rows == 9


def test_no_rows_show_nothing(recording: Path) -> None:
    verdict = compare(recording, [])
    assert (verdict.recall, verdict.assignment_recall, verdict.observed_rows) == (0.0, 0.0, 0)
    assert verdict.precise


def test_perfect_timeline_survives_json(recording: Path, tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "rows.jsonl", perfect_rows(recording))
    assert is_perfect(compare(recording, truth.read_rows(rows)))


def test_rows_may_be_in_any_order_in_the_file(recording: Path) -> None:
    assert is_perfect(compare(recording, reversed(perfect_rows(recording))))


def test_columns_that_a_json_writer_left_out_are_null(recording: Path) -> None:
    rows = [
        {name: value for name, value in row.items() if value is not None} for row in perfect_rows(recording)
    ]
    assert is_perfect(compare(recording, rows))


# ------------------------------------------------------------------------------------------------ precision


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isr", [1, 2]),
        ("isr", [1, 2, 3, 3]),
        ("isr", []),
        ("leader", 3),
        ("leader", -1),
        ("leader_epoch", 2),
        ("partition_epoch", 99),
        ("replicas", [2, 3, 1, 4]),
        ("replicas", [2, 3, 4, 1, 5]),
        ("adding_replicas", []),
        ("adding_replicas", [1]),
        ("removing_replicas", [1, 2]),
    ],
)
def test_wrong_value_is_a_wrong_row(recording: Path, name: str, value: Any) -> None:
    rows = perfect_rows(recording)
    with_partition_epoch(rows, 2)[name] = value
    verdict = compare(recording, rows)
    assert faults(verdict) == {"wrong": 1}
    assert not verdict.precise


def test_wrong_isr_is_a_miss_too(recording: Path) -> None:
    rows = perfect_rows(recording)
    with_partition_epoch(rows, 2)["isr"] = [1, 2]
    verdict = compare(recording, rows)
    assert (verdict.true_states, verdict.shown_states) == (6, 5)
    assert [miss.interval.value.begun for miss in verdict.misses] == [at(12)]


def test_isr_has_no_order(recording: Path) -> None:
    rows = perfect_rows(recording)
    for row in rows:
        row["isr"] = row["isr"] and row["isr"][::-1]
    assert is_perfect(compare(recording, rows))


def test_swapped_rows_are_out_of_order(recording: Path) -> None:
    rows = perfect_rows(recording)
    one, other = with_partition_epoch(rows, 2), with_partition_epoch(rows, 3)
    for name in truth.STATE_FIELDS:
        one[name], other[name] = other[name], one[name]
    verdict = compare(recording, rows)
    assert faults(verdict) == {"out of order": 1}
    assert verdict.shown_states == 5


def test_going_back_to_an_older_state_is_out_of_order(recording: Path) -> None:
    rows = perfect_rows(recording)
    rows.append({**with_partition_epoch(rows, 1), "step": 10, "valid_from": at(61)})
    verdict = compare(recording, rows)
    assert verdict.out_of_order_rows == 1
    assert verdict.wrong_rows == 0
    assert verdict.recall == 100.0


def test_going_back_to_an_older_assignment_is_out_of_order(recording: Path) -> None:
    rows = perfect_rows(recording)
    rows[-1].update(replicas=[1, 2, 3])
    assert compare(recording, rows).out_of_order_rows == 1


@pytest.mark.parametrize(("milliseconds", "early_rows"), [(1, 0), (2, 1), (5000, 1)])
def test_row_that_begins_before_the_truth_is_early(
    recording: Path, milliseconds: int, early_rows: int
) -> None:
    rows = perfect_rows(recording)
    row = with_partition_epoch(rows, 5)
    row["valid_from"] -= timedelta(milliseconds=milliseconds)
    verdict = compare(recording, rows)
    assert faults(verdict) == ({"early": 1} if early_rows else {})
    assert verdict.shown_states == 6


def test_assignment_shown_before_it_was_written_is_early(recording: Path) -> None:
    rows = perfect_rows(recording)
    with_partition_epoch(rows, 4).update(replicas=[2, 3, 4], adding_replicas=[], removing_replicas=[])
    assert faults(compare(recording, rows)) == {"early": 1}


def test_late_rows_are_not_wrong_but_measured(recording: Path) -> None:
    rows = perfect_rows(recording)
    for row in rows:
        row["valid_from"] += timedelta(seconds=1)
        row["valid_to"] = row["valid_to"] and row["valid_to"] + timedelta(seconds=1)
    verdict = compare(recording, rows)
    assert is_perfect(verdict)
    assert verdict.delays == [1.0] * 6


def test_rows_without_time_are_judged_by_their_order(recording: Path) -> None:
    rows = [{**row, "valid_from": None, "valid_to": None} for row in perfect_rows(recording)]
    assert is_perfect(compare(recording, rows))


def test_true_values_of_different_times_are_mixed(recording: Path) -> None:
    rows = perfect_rows(recording)
    last = rows[-1]
    last.update(replicas=[2, 3, 4, 1], adding_replicas=[4], removing_replicas=[1])
    rows = [row for row in rows if row["replicas"] != [2, 3, 4]]
    last["step"] = len(rows)
    rows[-1] = last
    assert faults(compare(recording, rows)) == {"mixed": 1}


def test_null_is_not_wrong(recording: Path) -> None:
    rows = perfect_rows(recording)
    with_partition_epoch(rows, 2)["isr"] = None
    verdict = compare(recording, rows)
    assert verdict.precise
    assert [miss.seen for miss in verdict.misses] == ["shown without isr"]


def test_nulls_do_not_hide_a_wrong_leader(recording: Path) -> None:
    rows = perfect_rows(recording)
    with_partition_epoch(rows, 2).update(isr=None, partition_epoch=None, leader=4)
    assert faults(compare(recording, rows)) == {"wrong": 1}


def test_inferred_rows_are_not_judged_and_show_nothing(recording: Path) -> None:
    rows = perfect_rows(recording)
    with_partition_epoch(rows, 2)["inferred"] = True
    with_partition_epoch(rows, 5).update(inferred=True, leader=1)
    verdict = compare(recording, rows)
    assert verdict.precise
    assert (verdict.inferred_rows, verdict.inferred_never_true) == (2, 1)
    assert sorted(miss.seen for miss in verdict.misses) == ["inferred", "shown nowhere"]


def test_a_partition_that_never_existed_is_wrong(recording: Path) -> None:
    rows = perfect_rows(recording)
    rows.append({**rows[0], "partition": 7})
    assert faults(compare(recording, rows)) == {"wrong": 1}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows[3].update(step=99),
        lambda rows: rows[3].update(step=rows[2]["step"]),
        lambda rows: rows[-1].update(valid_to=at(59)),
        lambda rows: rows[3].update(valid_from=at(13)),
    ],
)
def test_intervals_that_do_not_follow_each_other_are_broken(
    recording: Path, spoil: Callable[[list[Row]], None]
) -> None:
    rows = perfect_rows(recording)
    spoil(rows)
    assert compare(recording, rows).broken_rows


# ------------------------------------------------------------------------------------------------ recall


@pytest.mark.parametrize(
    ("partition_epoch", "reason"), [(0, "missing"), (1, "missing"), (2, "superseded"), (5, "at_shutdown")]
)
def test_dropped_row_is_a_miss_with_its_reason(recording: Path, partition_epoch: int, reason: str) -> None:
    rows = [row for row in perfect_rows(recording) if row["partition_epoch"] != partition_epoch]
    verdict = compare(recording, [{**row, "step": step} for step, row in enumerate(rows, 1)])
    assert verdict.precise
    assert verdict.shown_states == 5
    assert {reason: count for reason, count in verdict.misses_by_reason().items() if count} == {reason: 1}


def test_assignment_needs_all_three_lists(recording: Path) -> None:
    rows = [{**row, "removing_replicas": None} for row in perfect_rows(recording)]
    verdict = compare(recording, rows)
    assert verdict.precise
    assert (verdict.recall, verdict.shown_assignments) == (100.0, 0)
    assert {miss.seen for miss in verdict.misses} == {"shown without removing_replicas"}


def test_writes_of_a_topic_queued_for_deletion(tmp_path: Path) -> None:
    queued = {"time": stamp(5), "op": "create", "path": "/admin/delete_topics/orders", "value": None}
    writes = [controller(), broker(0, 1), topic(1, [1]), state(1, 0, 1, 0, [1]), queued]
    folder = recorded(tmp_path, [*writes, state(6, 1, -1, 1, [1]), delete(9, "/brokers/topics/orders")])
    assert compare(folder, []).misses_by_reason()["being_deleted"] == 1


def test_writes_without_a_live_replica(tmp_path: Path) -> None:
    writes = [controller(), broker(0, 1), topic(1, [1]), state(1, 0, 1, 0, [1])]
    folder = recorded(tmp_path, [*writes, session_closed(5, "/brokers/ids/1"), state(6, 1, -1, 1, [1])])
    assert compare(folder, []).misses_by_reason()["no_live_replica"] == 1


def test_deletion_supersedes_the_last_state(tmp_path: Path) -> None:
    end = delete(1.4, "/brokers/topics/orders/partitions/0/state")
    folder = recorded(tmp_path, [controller(), broker(0, 1), topic(1, [1]), state(1, 0, 1, 0, [1]), end])
    assert compare(folder, []).misses_by_reason()["superseded"] == 1


# ------------------------------------------------------------------------------------------------ ZooKeeper


def created_twice(between: Iterable[Write]) -> list[Write]:
    """The same topic with the same first state, before and after something."""
    return [
        topic(1, [1, 2]),
        state(1, 0, 1, 0, [1, 2]),
        *between,
        topic(20, [1, 2]),
        state(20, 0, 1, 0, [1, 2]),
    ]


DELETION = [delete(10, "/brokers/topics/orders/partitions/0/state"), delete(10.1, "/brokers/topics/orders")]


def test_a_topic_that_is_created_again_is_another_generation(tmp_path: Path) -> None:
    folder = recorded(tmp_path, created_twice(DELETION))
    rows = perfect_rows(folder)
    assert [row["state"] for row in rows].count("NonExistentPartition") == 1
    verdict = compare(folder, rows)
    assert is_perfect(verdict)
    assert (verdict.true_states, verdict.true_assignments) == (2, 2)


def test_rows_of_the_first_generation_do_not_show_the_second(tmp_path: Path) -> None:
    folder = recorded(tmp_path, created_twice(DELETION))
    verdict = compare(folder, perfect_rows(folder)[:3])
    assert verdict.precise
    assert (verdict.shown_states, verdict.shown_assignments) == (1, 1)


def test_wipe_begins_a_new_incarnation(tmp_path: Path) -> None:
    first, second = numbered(created_twice([])[:2]), numbered(created_twice([])[2:])
    wiped = {"time": stamp(15), "op": "cluster_wiped"}
    folder = tmp_path
    write_lines(folder / "truth-txn.jsonl", [*first, wiped, *second])
    rows = perfect_rows(folder)
    assert [row["incarnation"] for row in rows] == [1, 1, 1, 2, 2]
    assert is_perfect(compare(folder, rows))
    joined = [{**row, "incarnation": 1, "step": step} for step, row in enumerate(rows, 1)]
    assert compare(folder, joined).shown_states == 1


BEFORE_2_4 = [
    controller(),
    topic(1, [1, 2, 3], None),
    state(1.1, 0, 1, 0, [1, 2, 3]),
    reassign(10, [2, 3, 5]),
    topic(10.1, [5, 1, 2, 3], None),
    topic(11, [5, 1, 2, 3], None),
    topic(20, [2, 3, 5], None),
    reassign(20.1, None),
]


def test_before_2_4_adding_and_removing_follow_from_the_target(tmp_path: Path) -> None:
    assignments = truth.read_truth(recorded(tmp_path, BEFORE_2_4)).generations[0].assignments
    assert [(one.replicas, set(one.adding), set(one.removing), one.ordered) for one in assignments] == [
        ((1, 2, 3), set(), set(), True),
        ((5, 1, 2, 3), {5}, {1}, False),
        ((2, 3, 5), set(), set(), True),
    ]


@pytest.mark.parametrize(("position", "is_wrong"), [(2, False), (-1, True)])
def test_before_2_4_replicas_have_no_order_during_a_reassignment(
    tmp_path: Path, position: int, is_wrong: bool
) -> None:
    folder = recorded(tmp_path, BEFORE_2_4)
    rows = perfect_rows(folder)
    rows[position]["replicas"] = rows[position]["replicas"][::-1]
    assert faults(compare(folder, rows)) == ({"wrong": 1} if is_wrong else {})


def test_before_2_4_adding_only_ends_with_the_request(tmp_path: Path) -> None:
    writes = [topic(1, [1], None), reassign(5, [1, 2]), topic(5.1, [1, 2], None), topic(9, [1, 2], None)]
    folder = recorded(tmp_path, [*writes, reassign(9.1, None)])
    assignments = truth.read_truth(folder).generations[0].assignments
    assert [(one.begun, set(one.adding)) for one in assignments] == [
        (at(1), set()),
        (at(5.1), {2}),
        (at(9.1), set()),
    ]


def test_same_assignment_written_again_is_no_new_one(recording: Path) -> None:
    folder = recorded(recording, [*REASSIGNMENT, topic(61, [2, 3, 4])])
    assert compare(folder, []).true_assignments == 3


def test_write_with_another_session_is_the_leaders(recording: Path) -> None:
    states = truth.read_truth(recording).generations[0].states
    assert [one.partition_epoch for one in states if one.writer == "leader"] == [2]


# ------------------------------------------------------------------------------------------------ KRaft


def registration(seconds: float, partition_epoch: int, **changed: Any) -> Write:
    lists = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "addingReplicas": [], "removingReplicas": []}
    epochs = {"leader": 1, "leaderEpoch": 0, "partitionEpoch": partition_epoch, "new": partition_epoch == 0}
    return {"ts": stamp(seconds), "topic": "orders", "partition": 0, **lists, **epochs, **changed}


REGISTRATIONS = [
    registration(1, 0),
    registration(2, 1, replicas=[4, 1, 2, 3], addingReplicas=[4], removingReplicas=[3]),
    registration(3, 2, replicas=[4, 1, 2], isr=[1, 2, 4], leaderEpoch=1),
    registration(50, 3, replicas=[4, 1, 2], isr=[1, 2], leaderEpoch=1),
]


@pytest.fixture
def kraft_recording(tmp_path: Path) -> Path:
    write_lines(tmp_path / "timeline.jsonl", REGISTRATIONS)
    stopping = [{"ts": stamp(45), "action": "SIGTERM"}, {"ts": stamp(51), "action": "ended"}]
    write_lines(tmp_path / "steps.jsonl", [{"ts": stamp(40), "action": "describe"}, *stopping])
    return tmp_path


def test_kraft_record_is_state_and_assignment(kraft_recording: Path) -> None:
    rows = perfect_rows(kraft_recording)
    verdict = compare(kraft_recording, rows)
    assert is_perfect(verdict)
    assert (len(rows), verdict.true_states, verdict.true_assignments) == (4, 4, 3)


def test_kraft_old_replicas_with_a_new_epoch_are_mixed(kraft_recording: Path) -> None:
    rows = perfect_rows(kraft_recording)
    rows[1].update(replicas=[1, 2, 3], adding_replicas=[], removing_replicas=[])
    assert faults(compare(kraft_recording, rows)) == {"mixed": 1}


def test_kraft_shutdown_is_the_last_run_of_signals(kraft_recording: Path) -> None:
    assert compare(kraft_recording, []).misses_by_reason() == {
        "superseded": 0,
        "at_shutdown": 1,
        "being_deleted": 0,
        "no_live_replica": 0,
        "missing": 3,
    }


def test_kraft_fenced_broker_is_not_live(kraft_recording: Path) -> None:
    changes = [(0, 1, -1), (2.5, 1, 1)]
    records = [
        {
            "ts": stamp(seconds),
            "type": "BROKER_REGISTRATION_CHANGE_RECORD",
            "data": {"brokerId": one, "fenced": fenced},
        }
        for seconds, one, fenced in changes
    ]
    write_lines(kraft_recording / "metadata-log.jsonl", records)
    assert compare(kraft_recording, []).misses_by_reason()["no_live_replica"] == 1


def test_kraft_timelines_are_incarnations(tmp_path: Path) -> None:
    for number in (1, 2):
        write_lines(tmp_path / f"timeline-{number}.jsonl", REGISTRATIONS)
    rows = perfect_rows(tmp_path)
    assert [row["incarnation"] for row in rows] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert is_perfect(compare(tmp_path, rows))


def test_kraft_a_removed_topic_ends_the_generation(tmp_path: Path) -> None:
    removed = {"ts": stamp(60), "topic": "orders", "partition": 0, "removed": True}
    write_lines(tmp_path / "timeline.jsonl", [*REGISTRATIONS, removed, registration(70, 0)])
    verdict = compare(tmp_path, perfect_rows(tmp_path))
    assert is_perfect(verdict)
    assert verdict.true_states == 5


def test_rows_older_than_a_migration_are_not_judged(tmp_path: Path) -> None:
    write_lines(tmp_path / "timeline.jsonl", [registration(30, 7, leaderEpoch=4, new=True)])
    migrated = perfect_rows(tmp_path)[0]
    older = {**migrated, "partition_epoch": 6, "leader": 3, "valid_from": at(5)}
    known_before = {**migrated, "step": 2, "valid_from": at(10)}
    verdict = compare(tmp_path, [older, known_before])
    assert is_perfect(verdict)
    assert (verdict.unjudged_rows, verdict.observed_rows) == (1, 1)


def test_a_migration_continues_the_generation_of_zookeeper(tmp_path: Path) -> None:
    """The partition has one generation.

    Writes to both ZooKeeper and the metadata log count in the metadata log only.
    """
    older = [controller(), topic(0.5, [1, 2, 3]), state(1, 0, 1, 0, [1, 2, 3]), state(30, 1, 1, 0, [1, 2])]
    written_to_both = [state(45, 2, 2, 1, [2]), delete(60, "/brokers/topics/orders")]
    write_lines(tmp_path / "truth-txn.jsonl", numbered([*older, *written_to_both]))
    taken_over, changed = (
        registration(40, 1, isr=[1, 2]),
        registration(44, 2, isr=[2], leader=2, leaderEpoch=1),
    )
    removed = {"ts": stamp(59), "topic": "orders", "partition": 0, "removed": True}
    write_lines(tmp_path / "timeline.jsonl", [taken_over, changed, removed, registration(70, 0)])
    first, second = truth.read_truth(tmp_path).generations
    assert [(one.partition_epoch, one.begun) for one in first.states] == [
        (0, at(1)),
        (1, at(30)),
        (2, at(44)),
    ]
    assert [(one.replicas, one.begun) for one in first.assignments] == [((1, 2, 3), at(0.5))]
    assert (first.since_creation, first.ended, len(second.states)) == (True, at(59), 1)
    rows = perfect_rows(tmp_path)
    assert is_perfect(compare(tmp_path, rows))
    for row in rows:
        if row["partition_epoch"] == 2:
            row["valid_from"] = at(40)
    assert compare(tmp_path, rows).early_rows == 1


@pytest.mark.parametrize(("version", "early_rows"), [("3.6.2", 0), ("3.8.1", 0), ("3.9.1", 1)])
def test_old_kraft_stamps_records_after_logging_them(
    kraft_recording: Path, version: str, early_rows: int
) -> None:
    write_lines(kraft_recording / "recording.json", [{"version": version}])
    rows = perfect_rows(kraft_recording)
    rows[1]["valid_from"] -= timedelta(milliseconds=51)
    assert compare(kraft_recording, rows).early_rows == early_rows


# ------------------------------------------------------------------------------------------------ the program


@pytest.mark.parametrize(
    "spoil",
    [
        {"isr": "1,2,3"},
        {"leader": "1"},
        {"inferred": None},
        {"partition": None},
        {"valid_from": "yesterday"},
    ],
)
def test_row_of_other_types_is_refused(recording: Path, spoil: Row) -> None:
    rows = perfect_rows(recording)
    with pytest.raises(ValueError, match="not a row of partition_timeline"):
        compare(recording, [{**rows[0], **spoil}])


def test_rows_of_two_clusters_are_refused(recording: Path) -> None:
    rows = [{**row, "cluster": cluster} for cluster in ("a", "b") for row in perfect_rows(recording)]
    with pytest.raises(ValueError, match="several clusters"):
        compare(recording, rows)


def test_program_prints_a_table_and_names_faults(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = perfect_rows(recording)
    perfect = write_lines(tmp_path / "perfect.jsonl", rows)
    with_partition_epoch(rows, 2)["isr"] = [1]
    faulty = write_lines(tmp_path / "faulty.jsonl", rows)
    assert truth.main([str(recording), str(perfect)]) == 0
    assert "100.0 %" in capsys.readouterr().out
    assert truth.main([str(recording), str(faulty), "--verbose"]) == 1
    printed = capsys.readouterr().out
    assert "wrong state: orders-0" in printed
    assert "in truth partition epoch 2, leader 1, leader epoch 1, ISR [1,2,3,4], by the leader" in printed
    assert "superseded: orders-0" in printed
    assert truth.main([str(tmp_path / "nothing"), str(perfect)]) == 2


# ------------------------------------------------------------------------------------------------ recordings


def recording_folders() -> list[Path]:
    truths = [*RECORDINGS.glob("*/*/*/truth-txn.jsonl"), *RECORDINGS.glob("*/*/*/timeline*.jsonl")]
    return sorted({path.parent for path in truths})


@pytest.mark.shared
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"no recordings beside the repository ({RECORDINGS})")
def test_perfect_rows_of_every_recording_score_all() -> None:
    folders = recording_folders()
    verdicts = [compare(folder, perfect_rows(folder)) for folder in folders]
    assert len(verdicts) == 77
    assert [verdict.recording for verdict in verdicts if not is_perfect(verdict)] == []
    assert all(verdict.true_states and verdict.true_assignments for verdict in verdicts)


@pytest.mark.shared
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"no recordings beside the repository ({RECORDINGS})")
def test_one_wrong_row_is_found_in_every_recording() -> None:
    unnoticed = []
    for folder in recording_folders():
        rows = perfect_rows(folder)
        row = [row for row in rows if row["partition_epoch"] is not None][-1]
        row["isr"] = [*row["isr"], 999]
        if faults(compare(folder, rows)) != {"wrong": 1}:
            unnoticed.append(folder)
    assert unnoticed == []
