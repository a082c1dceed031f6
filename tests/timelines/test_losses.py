"""Losses and their acks, from rows and lines of a few seconds and from recordings with their truth."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import truth
from hypothesis import given
from hypothesis import strategies as st
from logs import LOGS, NODE_FOLDER, PARSER, microseconds, recordings, records
from timelines import COLUMNS, recorded_timelines, truth_of

from jobs.timelines.losses import (
    ALL,
    DECIDING,
    LINES,
    SOME,
    TAIL,
    UNCLEAN,
    Around,
    Crash,
    Interval,
    Loss,
    LossLine,
    losses,
)

SECOND = 1_000_000
# for two clusters under one name the truth is that of the first, or begins with the migration
SEVERAL_CLUSTERS = ("cluster-wipe", "zk-to-kraft")
# lines that show losses, before they are parsed
LOSS_LINES = re.compile(
    r"RECOVERING|eaderRecoveryState=1|Elect leader|runcat|starts at |Completed load|Loading producer state|high watermark"
)


def rows(
    *steps: tuple[float, int, list[int]], replicas: list[int] | None = None, **changed: Any
) -> list[Interval]:
    """(second, leader, ISR) each, one epoch after the other. changed: of the last one."""
    ends = [step[0] for step in steps[1:]] + [None]
    found = [
        Interval(
            int(second * SECOND),
            None if end is None else int(end * SECOND),
            leader,
            n,
            n,
            isr,
            replicas,
            None,
            False,
            f"step {n}",
        )
        for n, ((second, leader, isr), end) in enumerate(zip(steps, ends, strict=True))
    ]
    return [*found[:-1], found[-1]._replace(**changed)]


def line(second: float, event_type: str, node: int | None = None, **named: Any) -> LossLine:
    given = dict.fromkeys(LossLine._fields) | {
        "ts": int(second * SECOND),
        "event_type": event_type,
        "node": node,
        "record_id": f"{event_type} {second}",
    }
    return LossLine(**given | named)


def difference(second: float, leader: int, epoch: int, text: str | None = None) -> LossLine:
    """Return the line of a KRaft controller about an unclean election."""
    return line(
        second,
        "unclean_leader_elected",
        101,
        leader=leader,
        leader_epoch=epoch,
        leader_recovery_state="RECOVERING",
        text=text,
    )


def of(found: list[Loss]) -> list[tuple[str, int, bool, int | None, list[str] | None]]:
    return [(loss.kind, loss.leader, loss.is_certain, loss.records, loss.acks) for loss in found]


UNCLEAN_ROWS = rows((0, 1, [1, 2]), (10, 1, [1]), (20, -1, [1]), (30, 2, [2]))
BACK = [line(50, "log_load_completed", 1, end_offset=16), line(51, "log_truncated", 1, start_offset=6)]


def test_which_acks_an_unclean_election_hurts() -> None:
    """acks=all was refused if fewer than min.insync.replicas were in sync without the elected replica."""
    for least, acks in ((1, ALL), (2, SOME), (None, None)):
        assert of(losses(UNCLEAN_ROWS, BACK, Around(least))) == [(UNCLEAN, 2, True, 10, acks)]
    # two were in sync without it for a while
    longer = rows((0, 1, [1, 2, 3]), (5, 1, [1, 3]), (10, 1, [1]), (20, -1, [1]), (30, 2, [2]))
    assert of(losses(longer, BACK, Around(2))) == [(UNCLEAN, 2, True, 10, ALL)]
    assert of(losses(longer, BACK, Around(3))) == [(UNCLEAN, 2, True, 10, SOME)]
    # the logs do not show since when it was not in sync
    assert of(losses(longer[1:], BACK, Around(3))) == [(UNCLEAN, 2, True, 10, None)]
    assert of(losses(UNCLEAN_ROWS, [], Around(1))) == [(UNCLEAN, 2, True, None, ALL)]


def test_a_line_that_names_the_elected_replica_as_eligible_before() -> None:
    """KIP-966: the last leader or an eligible replica lacks nothing.

    Without other files the line alone shows it.
    """
    last = difference(30, 2, 3, "elr: [1] -> [], lastKnownElr: [2] -> [], ")
    assert losses([], [last], Around(1)) == []
    assert losses(UNCLEAN_ROWS, [last], Around(1)) == []
    assert losses([], [difference(30, 2, 3, "elr: [2] -> [], ")], Around(1)) == []
    # lines of other nodes add nothing
    recovers = line(30.5, "leader_recovering", 2, leader_recovery_state="RECOVERING")
    assert losses([], [last, recovers], Around(1)) == []
    other = difference(30, 2, 3, "elr: [1] -> [], lastKnownElr: [1] -> [], ")
    assert of(losses([], [other, recovers], Around(1))) == [(UNCLEAN, 2, True, None, None)]


def test_an_election_that_may_have_been_clean() -> None:
    """The logs do not show whether it was clean, and the loss says so."""
    recovers = line(30, "leader_recovering", 2, leader_recovery_state="RECOVERING")
    assert of(losses([], [recovers], Around(1))) == [(UNCLEAN, 2, False, None, None)]
    # there is no other way to recover before 3.7, and with ZooKeeper
    assert of(losses([], [recovers], Around(1, may_be_last_leader=False))) == [(UNCLEAN, 2, True, None, None)]
    # the rows show the last leader, unless some are missing
    assert of(losses(UNCLEAN_ROWS, [recovers], Around(1))) == [(UNCLEAN, 2, True, None, ALL)]
    again = rows((0, 2, [2]), (20, -1, []), (30, 2, [2]))
    assert losses(again, [recovers], Around(1)) == []
    gap = [
        again[0],
        *(row._replace(leader_epoch=n + 7, partition_epoch=n + 7) for n, row in enumerate(again[1:])),
    ]
    assert of(losses(gap, [recovers], Around(1))) == [(UNCLEAN, 2, False, None, None)]
    # up to 0.11 the ISR of the only replica is empty while its broker is down
    selected = line(30, "unclean_leader_selected", 3, leader=2, brokers=[2])
    assert of(losses([], [selected], Around(1))) == [(UNCLEAN, 2, False, None, None)]
    assert of(losses([], [selected._replace(brokers=[2, 4])], Around(1))) == [(UNCLEAN, 2, True, None, None)]
    assert losses(rows((0, 2, [2]), (30, 2, [2]), replicas=[2]), [selected], Around(1)) == []


def test_rows_show_an_unclean_election_only_where_nothing_is_missing() -> None:
    assert of(losses(UNCLEAN_ROWS, [], Around(1))) == [(UNCLEAN, 2, True, None, ALL)]
    before, last = UNCLEAN_ROWS[:-1], UNCLEAN_ROWS[-1]
    for changed in (
        # the ISR may have grown in between
        last._replace(partition_epoch=5),
        last._replace(leader_epoch=5, partition_epoch=None),
        last._replace(inferred=True),
        last._replace(isr=[1, 2]),
        last._replace(leader_epoch=0, partition_epoch=0),
        last._replace(reassignment_phase="B"),
    ):
        assert losses([*before, changed], [], Around(1)) == []
    assert losses([*before[:-1], before[-1]._replace(inferred=True), last], [], Around(1)) == []


def test_records_that_a_crashed_leader_truncated() -> None:
    """acks=all lost none of them if the successor had been in sync.

    A loss of an unclean election is not counted twice.
    """
    clean = rows((0, 1, [1, 2]), (20, -1, [2]), (21, 2, [2]))
    starts = line(21, "leader_started", 2, start_offset=6, leader_epoch=2)
    died = Around(1, crashes=[Crash(1, 20 * SECOND, 49 * SECOND)])
    assert of(losses(clean, [starts, *BACK], died)) == [(TAIL, 2, True, 10, SOME)]
    # others may have led in between
    gap = [*clean[:2], clean[2]._replace(leader_epoch=7, partition_epoch=7)]
    assert of(losses(gap, [starts, *BACK], died)) == [(TAIL, 2, True, 10, None)]
    found = losses(UNCLEAN_ROWS, [starts._replace(ts=30 * SECOND), *BACK], died)
    assert of(found) == [(UNCLEAN, 2, True, 10, ALL)]
    assert losses(clean, [starts, *BACK], Around(1)) == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3, unique=True)), max_size=5),
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(sorted(LINES - DECIDING)), st.integers(0, 3)),
        max_size=6,
    ),
)
def test_nothing_is_lost_without_a_line_that_decides(
    steps: list[tuple[int, list[int]]], named: list[tuple[int, str, int]]
) -> None:
    """Checks fold only partitions that have such a line, or were without a leader."""
    history = (
        rows(*((10 * n, leader, isr) for n, (leader, isr) in enumerate(steps)), replicas=[0, 1, 2, 3])
        if steps
        else []
    )
    lines = [
        line(at, what, node, start_offset=6, end_offset=16, high_watermark=9, text="12", leader_epoch=1)
        for at, what, node in named
    ]
    crashes = [Crash(broker, 20 * SECOND, 49 * SECOND) for broker in range(4)]
    assert losses(history, lines, Around(1, crashes=crashes)) == []


def test_a_line_that_decides_alone_may_show_a_loss() -> None:
    assert losses([], [difference(30, 2, 3)], Around(1))


# -- recordings ----------------------------------------------------------------------------------------------


def lines_of(recording: Path) -> dict[tuple[str, int], list[LossLine]]:
    """Return partition -> lines about it that show losses."""
    found: dict[tuple[str, int], list[LossLine]] = defaultdict(list)
    for path in sorted(recording.glob(LOGS)):
        folder = NODE_FOLDER.search(path.parent.name)
        for number, text in records(path.read_text("utf-8").splitlines()):
            record = PARSER.record(text) if LOSS_LINES.search(text) else None
            if record is None or record.ts is None or not PARSER.in_scope(record):
                continue
            for event in PARSER.events(record):
                if (
                    event.get("topic") is None
                    or event.get("partition") is None
                    or event["event_type"] is None
                ):
                    continue
                given = {"ts": microseconds(record.ts), "record_id": f"{path}:{number}"}
                named = {name: event.get(name) for name in LossLine._fields} | given
                named["node"] = event.get("node", int(folder[1]) if folder else None)
                if named["event_type"] in LINES or named["leader_recovery_state"] in ("RECOVERING", "1"):
                    found[event["topic"], event["partition"]].append(LossLine(**named))
    return found


def unclean(generation: truth.PartitionGeneration) -> list[int]:
    """Leader epochs of the unclean elections of a partition, by the states that were written."""
    found, last = [], None
    for before, state in zip([None, *generation.states], generation.states, strict=False):
        is_alone = set(state.isr) == {state.leader}
        if before is not None and is_alone and state.leader not in (*before.isr, last):
            found.append(state.leader_epoch)
        last = state.leader if state.leader >= 0 else last
    return found


@pytest.mark.shared
@pytest.mark.parametrize(
    "recording",
    [one for one in recordings() if one.name not in SEVERAL_CLUSTERS],
    ids=lambda path: "/".join(path.parts[-2:]),
)
def test_unclean_elections_are_those_of_the_truth(recording: Path) -> None:
    """Findings and durability read all unclean elections and no others, with the number of lost records."""
    timelines, lines = recorded_timelines(recording), lines_of(recording)
    facts = timelines.facts
    around = Around(1, facts.may_elect_last_leader(1))
    found = []
    for key, folded in sorted(timelines.folded.items()):
        history = [
            Interval(*(row[COLUMNS.index(name)] for name in Interval._fields)) for row in folded.partitions
        ]
        for loss in losses(history, lines[key.topic, key.partition], around):
            assert loss.kind == UNCLEAN
            assert loss.is_certain
            found.append((key.topic, key.partition, loss.leader_epoch, loss.records))
    right = [
        (generation.topic, generation.partition, epoch)
        for generation in truth_of(recording).generations
        for epoch in unclean(generation)
    ]
    assert sorted(one[:3] for one in found) == sorted(right)
    # before the leader was killed ten records were written to each partition of ZooKeeper's recordings, three
    # of KRaft's (steps.jsonl)
    assert recording.name != "unclean" or {one[3] for one in found} == {
        3 if facts[1].kraft_since is not None else 10
    }
    # the brokers of one recording are stopped together
    assert bool(found) == (
        recording.name == "unclean" or "/".join(recording.parts[-2:]) == "0.10.2.2-default/reassign"
    )
