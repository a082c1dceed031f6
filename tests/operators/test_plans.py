"""Reassignment plans: parsing, and the outcome of a move, from plain rows."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from jobs.operators import plans

T0 = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def interval(step: int, begin: float, end: float | None, replicas: list[int] | None, *moving):
    """moving: adding, removing, phase, ISR."""
    adding, removing, phase, isr = moving or ([], [], None, replicas)
    return {
        "step": step, "valid_from": at(begin), "valid_to": None if end is None else at(end), "replicas": replicas, "isr": isr,
        "adding_replicas": adding, "removing_replicas": removing, "reassignment_phase": phase, "state": "OnlinePartition",
    }  # fmt: skip


def event(event_type: str, seconds: float, **values):
    return dict.fromkeys(("target_replicas", "replicas", "removing_replicas", "start_offset", "end_offset", "high_watermark")) | {
        "event_type": event_type, "ts": at(seconds), "raw": "[..] ERROR refused (kafka.controller.KafkaController)\njava.lang.X",
    } | values  # fmt: skip


MOVE = plans.PlannedMove("orders", 0, (4, 5))
MOVED = [
    interval(1, 0, 10, [1, 2]),
    interval(2, 10, 11, [4, 5, 1, 2], [4, 5], [1, 2], "U", [1, 2]),
    interval(3, 11, 20, [4, 5, 1, 2], [4, 5], [1, 2], "A", [1, 2, 5]),
    interval(4, 20, 21, [4, 5, 1, 2], [4, 5], [1, 2], "B", [1, 2, 4, 5]),
    interval(5, 21, None, [4, 5]),
]
OTHER = interval(4, 20, None, [6, 1, 2], [6], [2], "U", [1, 2])


def verdict(rows, seconds=None, move=MOVE, events=(), **more) -> plans.Verdict:
    return plans.judge(move, plans.history(rows, None if seconds is None else at(seconds)), events, **more)


def test_every_phase_of_a_move():
    assert verdict(MOVED, 5).status == "not_requested"
    found = verdict(MOVED, 15, replica_states={4: "OfflineReplica"})
    assert (found.status, found.phase, found.waiting_for, found.down) == ("running", "A", (4,), (4,))
    assert found.reason == "waits for 4; broker 4 is down"
    assert verdict(MOVED, 20.5).phase == "B"
    done = verdict(MOVED)
    assert (done.status, done.started_at, done.caught_up_at, done.completed_at) == (
        "completed",
        at(10),
        at(20),
        at(21),
    )
    assert done.phases == {"U": 1.0, "A": 9.0, "B": 1.0}
    assert done.original == (1, 2)


@pytest.mark.parametrize(
    ("rows", "events", "status"),
    [
        ([interval(1, 0, None, [4, 5])], [], "already_there"),
        ([interval(1, 0, 10, [5, 4]), interval(2, 10, None, [4, 5])], [], "completed"),
        ([*MOVED[:3], interval(4, 20, None, [1, 2])], [], "cancelled"),
        ([*MOVED[:3], OTHER], [], "replaced"),
        ([*MOVED, interval(6, 30, None, [6, 5])], [], "replaced"),
        (
            [interval(1, 0, None, [1, 2])],
            [event("reassignment_requested", 5, target_replicas=[4, 5])],
            "never_started",
        ),
        ([interval(1, 0, None, [1, 2])], [event("reassignment_failed", 5)], "failed"),
        (
            [interval(1, 0, None, [1, 2])],
            [event("reassignment_requested", 5, target_replicas=[6, 5])],
            "not_requested",
        ),
        ([], [], "not_requested"),
    ],
)
def test_statuses_of_moves(rows, events, status):
    found = verdict(rows, events=events)
    assert found.status == status
    assert found.done == (status in {"already_there", "completed"})


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ((2, 1), "not_known"),
        ((1,), "not_known"),
        ((3, 1, 2), "not_known"),
        ((1, 2, 4), "not_requested"),
        ((1, 2, 3), "already_there"),
    ],
)
def test_kraft_logs_no_move_that_only_removes_or_reorders_replicas(target, status):
    past = plans.history([interval(1, 0, None, [1, 2, 3])])
    move = plans.PlannedMove("orders", 0, target)
    found = plans.judge(move, past, prints_all=False)
    assert (found.status, found.replicas_unknown) == (status, status == "not_known")
    # a dump of the metadata log, controllers at DEBUG, and ZooKeeper mode log each change
    assert plans.judge(move, past).status == (
        "already_there" if status == "already_there" else "not_requested"
    )
    # a request that was refused or not carried out is logged
    requested = event("reassignment_requested", 5, target_replicas=list(target))
    assert plans.judge(move, past, [requested], prints_all=False).status in ("never_started", "already_there")


def test_a_move_is_not_known_once_its_replicas_are_not_logged():
    past = plans.history([interval(1, 0, 10, [4, 5]), interval(2, 10, None, None)])
    found = plans.judge(MOVE, past)
    assert (found.status, found.replicas_unknown) == ("not_known", True)
    assert (
        found.reason
        == "since 2026-11-20 10:00:10 UTC the logs do not show its replicas; its last known replicas are 4,5"
    )


def test_up_to_2_3_the_order_is_known_only_at_the_end():
    rows = [
        interval(1, 0, 10, [1, 2]),
        interval(2, 10, 20, [5, 1, 2, 4], [4, 5], [1, 2], "A", [1, 2]),
        interval(3, 20, None, [4, 5]),
    ]
    assert plans.judge(MOVE, plans.history(rows, at(15), ordered=False)).status == "running"
    assert plans.judge(MOVE, plans.history(rows, at(15), ordered=True)).status == "not_requested"
    assert (
        plans.judge(plans.PlannedMove("orders", 0, (5, 4)), plans.history(rows, ordered=False)).status
        == "not_requested"
    )
    assert plans.judge(MOVE, plans.history(rows, ordered=False)).status == "completed"


def test_the_reason_names_since_when_replicas_are_not_known():
    found = verdict([*MOVED, interval(6, 40, None, None)])
    assert (found.status, found.replicas_unknown) == ("completed", True)
    assert found.reason.endswith("since 2026-11-20 10:00:40 UTC the logs do not show its replicas")


def test_the_verify_texts_of_the_tool():
    running, done = verdict(MOVED, 15), verdict(MOVED)
    cancelled = verdict([*MOVED[:3], interval(4, 20, None, [1, 2])])
    assert (
        plans.verify_text([running])
        == "Status of partition reassignment:\nReassignment of partition orders-0 is still in progress.\n"
    )
    assert plans.verify_text([done]).splitlines()[1] == "Reassignment of partition orders-0 is completed."
    assert plans.verify_text([cancelled]).splitlines()[1] == (
        "There is no active reassignment of partition orders-0, but replica set is 1,2 rather than 4,5."
    )
    assert plans.verify_old_text([done, running, cancelled]) == (
        "Status of partition reassignment: \n"
        "Reassignment of partition orders-0 completed successfully\n"
        "Reassignment of partition orders-0 is still in progress\n"
        "ERROR: Assigned replicas (1,2) don't match the list of replicas for reassignment (4,5) for partition orders-0\n"
        "Reassignment of partition orders-0 failed\n"
    )


def test_rollback_and_the_expected_end():
    assert json.loads(plans.rollback([verdict(MOVED)])) == {
        "version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}],
    }  # fmt: skip
    # one of two added replicas caught up in five seconds
    assert plans.expected_end([verdict(MOVED, 15)], at(15)) == at(20)
    assert plans.expected_end([verdict(MOVED)], at(30)) is None
    assert plans.progress([verdict(MOVED, 15)]) == (2, 1)


CURRENT = (
    '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
)
PROPOSED = CURRENT.replace("[1,2]", "[4,5]")


def test_plans_are_parsed_from_files_and_output():
    assert plans.parse(PROPOSED) == [MOVE]
    generated = f"Current partition replica assignment\n{CURRENT}\n\nProposed partition reassignment configuration\n{PROPOSED}\n"
    assert plans.parse(generated) == [plans.PlannedMove("orders", 0, (4, 5), (1, 2))]
    executed = (
        f"Current partition replica assignment\n\n{CURRENT}\n\nSave this to use as the --reassignment-json-file option during rollback\n"
        "Successfully started partition reassignments for orders-0,orders-1\n"
    )
    (move,) = plans.parse(executed)
    assert (move.replicas, move.original) == (None, (1, 2))
    assert verdict(MOVED, move=move).target_replicas == (4, 5)
    assert verdict(MOVED, 5, move=move).status == "not_requested"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON of a plan"),
        ("hello", "no JSON of a plan"),
        ('{"version": 1, "partitions": [', "is no JSON (line 1"),
        ("{" * 100_000, "is no JSON"),
        ("{}", 'has no "partitions"'),
        ('{"topics": [{"topic": "orders"}], "version": 1}', 'has no "partitions"'),
        ('{"version": 2, "partitions": [{"topic": "a", "partition": 0, "replicas": [1]}]}', "version 2"),
        ('{"partitions": [{"topic": "a", "partition": -1, "replicas": [1]}]}', "in entry 1"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}', "in entry 1"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": ["1"]}]}', "in entry 1"),
        ('{"partitions": [7]}', "in entry 1"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}', "twice"),
        (CURRENT.replace('["any","any"]', '["any"]'), "log_dirs"),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}, {"topic": "a", "partition": 0, "replicas": [2]}]}',
            "a-0 twice",
        ),
    ],
)
def test_a_text_that_is_no_plan_is_an_error(text, why):
    with pytest.raises(plans.PlanError) as raised:
        plans.parse(text)
    assert why in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
