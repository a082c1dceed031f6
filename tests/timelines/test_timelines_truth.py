"""Compare the timelines of every recording, and of parts of it, with the recorded truth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import truth
from logs import recorded, recordings
from timelines import recorded_timelines, timelines_of, truth_of, verdict

from jobs.timelines import Event

pytestmark = pytest.mark.shared
LOGS = ("state-change.log", "controller.log", "server.log")
# up to 0.11 the line of a raised leader epoch is after that of the assignment, which was written later
MIXED = {"0.10.2.2-default/reassign": 1}


def name_of(recording: Path) -> str:
    return "/".join(recording.parts[-2:])


def parts(events: tuple[Event, ...]) -> Iterator[tuple[str, list[Event]]]:
    """Yield a missing part and the events without it: the files of one node, one kind of log, or the begin of
    all.
    """
    for node in sorted({e.node for e in events if e.node is not None}):
        yield f"node {node}", [e for e in events if e.node != node]
    for log in LOGS:
        yield log, [e for e in events if log not in e.file]
    times = sorted(e.ts for e in events if e.ts is not None)
    for begin in times[:: len(times) // 5][1:]:
        yield f"all before {begin}", [e for e in events if (e.ts or 0) >= begin]


@pytest.mark.parametrize("recording", recordings(), ids=lambda one: "/".join(one.parts[-3:]))
def test_missing_files_make_no_row_wrong(recording: Path) -> None:
    events = recorded(recording)
    found = verdict(recording)
    assert found.precise, truth.details(found)
    assert found.mixed_rows == MIXED.get(name_of(recording), 0), truth.details(found)
    known = truth_of(recording)
    # only the begin of the logs shows the incarnation and the mode
    is_one = not recording.name.startswith(("cluster-wipe", "zk-to-kraft"))
    for missing, some in parts(events):
        if missing.startswith("all before") and not is_one:
            continue
        found = truth.compare_with(known, timelines_of(some).rows(), missing)
        assert found.precise, f"without {missing}: {truth.details(found)}"


@pytest.mark.parametrize("recording", [one for one in recordings() if "/kraft/" in str(one)], ids=name_of)
def test_a_metadata_log_is_exact(recording: Path) -> None:
    """It shows every state and every assignment at its moment."""
    found = verdict(recording, "metadata-log*.txt")
    assert (found.precise, found.misses) == (True, []), truth.details(found)


def test_the_number_of_shown_states_and_assignments() -> None:
    """ZooKeeper mode shows all that lines say, KRaft text logs only what is certain."""
    shown: Counter[str] = Counter()
    for recording in recordings():
        found = verdict(recording)
        mode = recording.parts[-3]
        shown.update({
            f"{mode} states": found.shown_states, f"{mode} assignments": found.shown_assignments,
            f"{mode} rows": found.observed_rows, f"{mode} missing": found.misses_by_reason()["missing"],
        })  # fmt: skip
    assert shown == {
        "zk states": 1301, "zk assignments": 345, "zk rows": 2145, "zk missing": 0,
        "kraft states": 1219, "kraft assignments": 367, "kraft rows": 1323, "kraft missing": 1,
    }  # fmt: skip


# scenario of shared/kafka/scenario_epochs.json -> a partition of a recording with this scenario: (leader,
# leader epoch) step by step
COURSES = [
    ("testAutoPreferredReplicaLeaderElection", "zk/1.1.1-default/controlled-shutdown", "invoices", 0, [(2, 0), (3, 1), (2, 2)]),
    ("testAutoPreferredReplicaLeaderElection", "zk/2.5.1-default/controlled-shutdown", "invoices", 2, [(2, 0), (1, 1), (2, 2)]),
    ("testAutoPreferredReplicaLeaderElection", "zk/3.3.2-trace/controlled-shutdown", "invoices", 0, [(2, 0), (3, 1), (2, 2)]),
    ("testPreferredReplicaLeaderElection", "zk/3.3.2-default/broker-failure", "payments", 1, [(2, 0), (3, 1), (2, 2)]),
    ("testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled", "zk/1.1.1-default/controlled-shutdown", "single", 0,
     [(2, 0), (-1, 1), (2, 2)]),
    ("testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled", "zk/3.3.2-trace/controlled-shutdown", "single", 0,
     [(2, 0), (-1, 1), (2, 2)]),
    # A1 +1, B3 +1, B4 +1 for every removed replica
    ("testPartitionReassignment", "zk/3.3.2-default/reassign", "orders", 0, [(1, 0), (1, 1), (4, 2), (4, 3), (4, 4), (4, 5)]),
    # the leader, which is the controller, is killed: the next one takes it out of the ISR and elects
    ("testLeaderElectionAndEpoch", "zk/3.3.2-trace/controller-failover", "ledger", 0, [(1, 0), (-1, 1), (2, 2)]),
]  # fmt: skip


@pytest.mark.parametrize("course", COURSES, ids=lambda one: f"{one[0]}-{one[1]}")
def test_courses_of_kafkas_own_tests(
    course: tuple[str, str, str, int, list[tuple[int, int]]], shared: Path
) -> None:
    scenario, recording, topic, partition, steps = course
    found: list[tuple[int, int]] = []
    for row in recorded_timelines(shared / "recordings" / recording).rows():
        now = row["leader"], row["leader_epoch"]
        if (
            (row["topic"], row["partition"]) == (topic, partition)
            and row["leader"] is not None
            and now not in found[-1:]
        ):
            found.append(now)
    assert found[: len(steps)] == steps
    scenarios = {
        s["test"]: s["steps"]
        for s in json.loads((shared / "kafka" / "scenario_epochs.json").read_text())["scenarios"]
    }
    epochs = iter(epoch for _, epoch in steps)
    expected = [
        step["expect_leader_epoch"]
        for step in scenarios[scenario]
        if step["expect_leader_epoch"] <= steps[-1][1]
    ]
    assert expected
    assert all(epoch in epochs for epoch in expected)
