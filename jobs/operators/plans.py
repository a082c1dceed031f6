"""Judge a reassignment plan by the timelines of its partitions. Pure.

A plan is what kafka-reassign-partitions takes and prints: JSON of topic, partition and replicas. Phases are
those of partition_timeline: U: the new assignment is written, A: replicas catch up, B: they have caught up
and roles change hands.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from schemas.moments import moment

Row = Mapping[str, Any]
Key = tuple[str, int]

REFUSED = ("reassignment_failed", "reassignment_refused", "reassignments_refused")
REQUESTED = ("reassignment_requested", "assignment_updating")


class PlanError(ValueError):
    """A text is no plan; the message says why."""


@dataclass(frozen=True)
class PlannedMove:
    """One partition of a plan.

    replicas: its target; null: the output names only the replicas before, `original`.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    original: tuple[int, ...] | None = None


# -- reading -------------------------------------------------------------------------------------------------


def parse(text: str) -> list[PlannedMove]:
    """Return the moves of a plan, in its order. Raises PlanError.

    text: the JSON of --reassignment-json-file; what --generate prints (the current and the proposed
    assignment); or what --execute prints (only the assignment before the moves).
    """
    blocks = _blocks(text)
    if not blocks:
        raise PlanError(
            "contains no JSON of a plan; give the file of --reassignment-json-file, or what --generate or --execute printed"
        )
    read = [_moves(block) for block in blocks[:2]]
    if len(read) == 2:
        before = {(move.topic, move.partition): move.replicas for move in read[0]}
        return [
            PlannedMove(m.topic, m.partition, m.replicas, before.get((m.topic, m.partition))) for m in read[1]
        ]
    if "Current partition replica assignment" in text:
        started = _started(text)
        moves = [PlannedMove(m.topic, m.partition, None, m.replicas) for m in read[0]]
        return [m for m in moves if not started or f"{m.topic}-{m.partition}" in started]
    return read[0]


def _blocks(text: str) -> list[Any]:
    """Return the JSON objects in a text, in order. Raises PlanError."""
    decoder = json.JSONDecoder()
    found, at = [], text.find("{")
    while at >= 0:
        try:
            block, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            where = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
            raise PlanError(f"is no JSON{where}") from None
        found.append(block)
        at = text.find("{", end)
    return found


def _started(text: str) -> set[str]:
    """Return the partitions that --execute reports as started (2.6 and later)."""
    for line in text.splitlines():
        head, found, names = line.partition("Successfully started partition reassignment")
        if found and not head:
            return set(names.removeprefix("s").removeprefix(" for ").split(","))
    return set()


def _moves(block: Any) -> list[PlannedMove]:
    partitions = block.get("partitions") if isinstance(block, dict) else None
    if not isinstance(partitions, list) or not partitions:
        raise PlanError(
            'has no "partitions"; a plan is {"version": 1, "partitions": [{"topic": .., "partition": .., "replicas": [..]}]}'
        )
    if block.get("version", 1) != 1:
        raise PlanError(f"is of version {block['version']}; version 1 is known")
    found: dict[Key, PlannedMove] = {}
    for number, entry in enumerate(partitions, 1):
        move = _move(entry, number)
        if (move.topic, move.partition) in found:
            raise PlanError(f"names {move.topic}-{move.partition} twice")
        found[move.topic, move.partition] = move
    return list(found.values())


def _move(entry: Any, number: int) -> PlannedMove:
    values = entry if isinstance(entry, dict) else {}
    topic, partition, replicas = values.get("topic"), values.get("partition"), values.get("replicas")
    ids = isinstance(replicas, list) and all(type(replica) is int and replica >= 0 for replica in replicas)
    if (
        not isinstance(topic, str)
        or not topic
        or type(partition) is not int
        or partition < 0
        or not ids
        or not replicas
    ):
        raise PlanError(f"has no topic, partition and replicas in entry {number}")
    assert isinstance(replicas, list)
    if len(set(replicas)) < len(replicas):
        raise PlanError(f"names a broker twice among the replicas of {topic}-{partition}")
    log_dirs = values.get("log_dirs")
    if log_dirs is not None and (not isinstance(log_dirs, list) or len(log_dirs) != len(replicas)):
        raise PlanError(f"has not one of log_dirs for each replica of {topic}-{partition}")
    return PlannedMove(topic, partition, tuple(replicas))


# -- the reassignments of a partition ------------------------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """One reassignment of a partition.

    target: in the requested order if the logs show it (`ordered`; up to 2.3 they do not while it runs).
    ended_with: replicas at its end.
    moves_replicas: false for a change of order and for fewer replicas, which copy no data. phases: phase ->
    seconds.
    """

    started_at: datetime | None
    original: tuple[int, ...] | None
    target: tuple[int, ...]
    ordered: bool
    caught_up_at: datetime | None = None
    ended_at: datetime | None = None
    ended_with: tuple[int, ...] | None = None
    replaced: bool = False
    moves_replicas: bool = True
    phases: Mapping[str, float] = field(default_factory=dict)

    def is_to(self, target: Sequence[int]) -> bool:
        """Return whether its target is these replicas."""
        if self.completed and self.ended_with == tuple(target):
            return True
        return (
            self.target == tuple(target)
            if self.ordered
            else not self.completed and set(self.target) == set(target)
        )

    @property
    def completed(self) -> bool:
        """Return whether it ended with its target."""
        return self.ended_with is not None and not self.replaced and set(self.ended_with) == set(self.target)


@dataclass(frozen=True)
class PartitionHistory:
    """The reassignments of a partition until some moment.

    now: the last interval whose replicas are known; null: no log names the partition.
    lost: since when its replicas are not known any more: KRaft controllers do not log a change that only
    removes or reorders replicas.
    """

    attempts: tuple[Attempt, ...] = ()
    now: Row | None = None
    lost: datetime | None = None

    @property
    def replicas(self) -> tuple[int, ...]:
        """Return the last known replicas."""
        return tuple(self.now["replicas"] or ()) if self.now is not None else ()

    @property
    def running(self) -> Attempt | None:
        """Return the reassignment that is running, or None."""
        return (
            self.attempts[-1]
            if self.attempts and self.attempts[-1].ended_at is None and self.attempts[-1].moves_replicas
            else None
        )


def history(rows: Iterable[Row], at: datetime | None = None, ordered: bool = True) -> PartitionHistory:
    """Return the reassignments of one partition. at: later rows are left out.

    rows: of partition_timeline, of one partition in its last incarnation.
    ordered: Kafka 2.4 and later (KIP-455): while a reassignment runs, replicas are in the order of the
    target, and AR and RR are known.
    """
    seen = sorted(
        (r for r in rows if at is None or r["valid_from"] is None or r["valid_from"] <= at),
        key=lambda r: r["step"],
    )
    known = [row for row in seen if row["replicas"] is not None and row["state"] != "NonExistentPartition"]
    lost = seen[seen.index(known[-1]) + 1]["valid_from"] if known and seen[-1] is not known[-1] else None
    attempts: list[Attempt] = []
    before: tuple[int, ...] | None = None  # replicas outside of a reassignment
    for target, some in groupby(known, key=_target):
        intervals = list(some)
        replicas = tuple(intervals[0]["replicas"])
        if target is None:
            _end_attempt(attempts, before, intervals)
            before = tuple(intervals[-1]["replicas"])
            continue
        if attempts and attempts[-1].ended_at is None and attempts[-1].moves_replicas:
            attempts[-1] = _ended(attempts[-1], intervals[0]["valid_from"], replicas, replaced=True)
        caught_up = next((row["valid_from"] for row in intervals if row["reassignment_phase"] == "B"), None)
        removed = set(intervals[0]["removing_replicas"] or ())
        remaining = tuple(b for b in replicas if b not in removed)
        attempts.append(
            Attempt(
                intervals[0]["valid_from"],
                before,
                remaining,
                ordered,
                caught_up,
                phases=_phases(intervals, at),
            )
        )
    return PartitionHistory(tuple(attempts), known[-1] if known else None, lost)


def _phases(intervals: Sequence[Row], at: datetime | None) -> dict[str, float]:
    """Return the seconds in each phase, up to a moment."""
    found: dict[str, float] = {}
    for row in intervals:
        ends = [ts for ts in (row["valid_to"], at) if ts is not None]
        if row["reassignment_phase"] and row["valid_from"] is not None and ends:
            seconds = (min(ends) - row["valid_from"]).total_seconds()
            found[row["reassignment_phase"]] = round(found.get(row["reassignment_phase"], 0) + seconds, 3)
    return found


def _target(row: Row) -> frozenset[int] | None:
    """Return the replicas after the running reassignment; null if none is running."""
    if not (row["adding_replicas"] or row["removing_replicas"] or row["reassignment_phase"]):
        return None
    return frozenset(row["replicas"]) - frozenset(row["removing_replicas"] or ())


def _end_attempt(attempts: list[Attempt], before: tuple[int, ...] | None, intervals: Sequence[Row]) -> None:
    """End the running attempt, and add the changes without AR and RR.

    Such a change (of the order, fewer replicas) is an attempt that ends when it begins.
    """
    first = tuple(intervals[0]["replicas"])
    if attempts and attempts[-1].ended_at is None and attempts[-1].moves_replicas:
        attempts[-1] = _ended(attempts[-1], intervals[0]["valid_from"], first)
        before = first
    for row in intervals:
        replicas = tuple(row["replicas"])
        if before is not None and replicas != before:
            ts = row["valid_from"]
            attempts.append(Attempt(ts, before, replicas, True, ts, ts, replicas, moves_replicas=False))
        before = replicas


def _ended(
    attempt: Attempt, ts: datetime | None, replicas: tuple[int, ...], replaced: bool = False
) -> Attempt:
    caught_up = attempt.caught_up_at or (
        ts if not replaced and set(replicas) == set(attempt.target) else None
    )
    return replace(attempt, caught_up_at=caught_up, ended_at=ts, ended_with=replicas, replaced=replaced)


# -- the verdict ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The outcome of one move.

    status: not_requested, never_started, running, completed, cancelled, replaced, failed, already_there or
    not_known.
    waiting_for: replicas that are not in the ISR. down: those of them whose broker is down. replicas: the
    last known ones.
    busy: whether any reassignment of the partition is running. original: replicas before the move. phases:
    phase -> seconds.
    replicas_unknown: the logs do not show the replicas any more; status and replicas are the last known ones.
    offset: of the newest record that has one.
    """

    topic: str
    partition: int
    target_replicas: tuple[int, ...] | None
    status: str
    reason: str
    phase: str | None = None
    started_at: datetime | None = None
    caught_up_at: datetime | None = None
    completed_at: datetime | None = None
    waiting_for: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    original: tuple[int, ...] | None = None
    offset: int | None = None
    down: tuple[int, ...] = ()
    busy: bool = False
    replicas_unknown: bool = False
    phases: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def done(self) -> bool:
        """Return whether nothing is left to do."""
        return self.status in DONE


DONE = ("completed", "already_there")


def judge(
    move: PlannedMove,
    past: PartitionHistory,
    events: Iterable[Row] = (),
    replica_states: Mapping[int, str] | None = None,
    *,
    prints_all: bool = True,
) -> Verdict:
    """Return the outcome of a move.

    events: rows of `events` about the partition, up to the same moment. replica_states: broker -> state of
    its replica then.
    prints_all: whether the logs have every change of the assignment. KRaft controllers at INFO log none that
    only removes or reorders replicas.
    """
    verdict = _judge(move, past, events, replica_states or {})
    last = f"its last known replicas are {_ids(past.replicas)}"
    since = f"since {moment(past.lost)} the logs do not show its replicas" if past.lost is not None else None
    if verdict.status == "not_requested" and _needs_no_copy(move, past) and (since or not prints_all):
        why = (
            []
            if prints_all
            else [
                "KRaft controllers at INFO do not log a reassignment that only removes or reorders replicas"
            ]
        )
        return replace(
            verdict,
            status="not_known",
            reason="; ".join([*why, *([since] if since else []), last]),
            replicas_unknown=True,
        )
    if since and verdict.status == "already_there":
        return replace(verdict, status="not_known", reason=f"{since}; {last}", replicas_unknown=True)
    if since:
        return replace(verdict, reason=f"{verdict.reason}; {since}", replicas_unknown=True)
    return verdict


def _needs_no_copy(move: PlannedMove, past: PartitionHistory) -> bool:
    """Return whether a move only removes or reorders replicas, so that no data is copied."""
    return bool(move.replicas) and set(move.replicas or ()) <= set(past.replicas)


def _judge(
    move: PlannedMove, past: PartitionHistory, events: Iterable[Row], replica_states: Mapping[int, str]
) -> Verdict:
    dated = sorted((e for e in events if e["ts"] is not None), key=lambda e: e["ts"])
    offset = next(
        (
            v
            for e in reversed(dated)
            if (v := max(e["start_offset"] or 0, e["end_offset"] or 0, e["high_watermark"] or 0))
        ),
        None,
    )
    target = move.replicas
    mine = [a for a in past.attempts if (a.is_to(target) if target else a.original == move.original)]
    last = mine[-1] if mine else None
    target = target or (last.ended_with if last and last.completed else last.target if last else None)
    base: dict[str, Any] = {
        "topic": move.topic,
        "partition": move.partition,
        "target_replicas": target,
        "replicas": past.replicas,
        "offset": offset,
    }
    base["busy"] = past.running is not None
    original = move.original or (last.original if last else past.replicas or None)
    base["original"] = original
    if past.now is None:
        return Verdict(**base, status="not_requested", reason="no log names this partition")
    if last is not None:
        base |= {"started_at": last.started_at, "caught_up_at": last.caught_up_at, "phases": last.phases}
        return _judge_attempt(past, last, base, replica_states)
    if past.replicas == target and past.running is None:
        return Verdict(
            **base, status="already_there", reason="its replicas have been these as far back as the logs go"
        )
    return _judge_unstarted(move, dated, past, base)


def _judge_attempt(
    past: PartitionHistory, last: Attempt, base: dict[str, Any], states: Mapping[int, str]
) -> Verdict:
    now = past.now
    assert now is not None
    target = base["target_replicas"]
    if last is past.running:
        isr = set(now["isr"] or ())
        waiting = tuple(b for b in target if b not in isr)
        down = tuple(b for b in waiting if states.get(b) in DOWN)
        what = f"waits for {_ids(waiting)}" if waiting else "its replicas are in the ISR"
        if down:
            what += f"; broker {_ids(down)} is down"
        phase = now["reassignment_phase"] or "A"
        return Verdict(**base, status="running", reason=what, phase=phase, waiting_for=waiting, down=down)
    later = past.attempts[past.attempts.index(last) + 1 :]
    if last.completed:
        if past.replicas == target and past.running is None:
            what = "it reached the replicas" if past.lost is not None else "its replicas are those"
            return Verdict(
                **base, status="completed", reason=f"{what} of the plan", completed_at=last.ended_at
            )
        what = f"completed, then moved on to {_ids(later[-1].target if later else past.replicas)}"
        return Verdict(**base, status="replaced", reason=what, completed_at=last.ended_at)
    if last.replaced:
        return Verdict(
            **base, status="replaced", reason=f"another plan took its place: {_ids(later[-1].target)}"
        )
    return Verdict(
        **base, status="cancelled", reason=f"it ended with the replicas {_ids(last.ended_with or ())}"
    )


def _judge_unstarted(
    move: PlannedMove, events: Sequence[Row], past: PartitionHistory, base: dict[str, Any]
) -> Verdict:
    target = base["target_replicas"]
    refused = [
        e for e in events if e["event_type"] in REFUSED and e["target_replicas"] in (None, list(target or ()))
    ]
    requested = [
        e for e in events if e["event_type"] in REQUESTED and set(_requested_target(e)) == set(target or ())
    ]
    where = f"its replicas are {_ids(past.replicas)}"
    if past.running is not None:
        where += f", and it is on the way to {_ids(past.running.target)}"
    if refused:
        first = str(refused[-1]["raw"] or "").splitlines()
        return Verdict(
            **base, status="failed", reason=f"{moment(refused[-1]['ts'])}: {first[0] if first else 'refused'}"
        )
    if requested:
        text = f"asked for at {moment(requested[-1]['ts'])}, and nothing followed; {where}"
        return Verdict(**base, status="never_started", reason=text)
    return Verdict(**base, status="not_requested", reason=f"no line shows it; {where}")


DOWN = ("OfflineReplica", "KRaftFenced", "KRaftUnregistered", "KRaftRemoved")


def _requested_target(event: Row) -> list[int]:
    if event["target_replicas"] is not None:
        return list(event["target_replicas"])
    removed = set(event["removing_replicas"] or ())
    return [b for b in event["replicas"] or () if b not in removed]


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "none"


# -- the whole plan ------------------------------------------------------------------------------------------


def expected_end(verdicts: Sequence[Verdict], now: datetime) -> datetime | None:
    """Return an estimate of when the plan will be done, at the pace so far.

    The pace is that of replicas that have caught up since the first move began.
    """
    began = [
        v.started_at for v in verdicts if v.started_at is not None and v.status in ("running", "completed")
    ]
    if not began or not any(v.status == "running" for v in verdicts):
        return None
    added, left = progress(verdicts)
    done, passed = added - left, now - min(began)
    return now + passed * (left / done) if done > 0 and left > 0 and passed > timedelta() else None


def progress(verdicts: Iterable[Verdict]) -> tuple[int, int]:
    """Return (replicas that running and completed moves add, those of them that are not in the ISR)."""
    moving = [v for v in verdicts if v.status in ("running", "completed")]
    added = [[b for b in v.target_replicas or () if b not in (v.original or ())] for v in moving]
    return sum(map(len, added)), sum(
        b in v.waiting_for for v, new in zip(moving, added, strict=True) for b in new
    )


def verify_text(verdicts: Iterable[Verdict], done: str = "completed") -> str:
    """Return what kafka-reassign-partitions --verify of 2.6 and later prints.

    Source: ReassignPartitionsCommand; the lines about throttles that it clears are left out.
    done: its word for completed, `complete` in 2.6 to 2.8.
    """
    lines = ["Status of partition reassignment:"]
    for v in sorted(verdicts, key=lambda v: (v.topic, v.partition)):
        name = f"{v.topic}-{v.partition}"
        if v.busy:
            lines.append(f"Reassignment of partition {name} is still in progress.")
        elif v.replicas == v.target_replicas:
            lines.append(f"Reassignment of partition {name} is {done}.")
        else:
            rather = ",".join(map(str, v.target_replicas or ()))
            lines.append(
                f"There is no active reassignment of partition {name}, but replica set is {','.join(map(str, v.replicas))} rather than {rather}."
            )
    return "\n".join(lines) + "\n"


def verify_old_text(verdicts: Iterable[Verdict]) -> str:
    """Return the same as versions 1.0 to 2.5 print it, in the order of the plan."""
    lines = ["Status of partition reassignment: "]
    for v in verdicts:
        name = f"{v.topic}-{v.partition}"
        if v.busy:
            lines.append(f"Reassignment of partition {name} is still in progress")
        elif v.replicas == v.target_replicas:
            lines.append(f"Reassignment of partition {name} completed successfully")
        else:
            now, target = (",".join(map(str, ids or ())) for ids in (v.replicas, v.target_replicas))
            lines.append(
                f"ERROR: Assigned replicas ({now}) don't match the list of replicas for reassignment ({target}) for partition {name}"
            )
            lines.append(f"Reassignment of partition {name} failed")
    return "\n".join(lines) + "\n"


def rollback(verdicts: Iterable[Verdict]) -> str:
    """Return the plan that moves every partition back to its replicas before, in the tool's JSON."""
    partitions = [
        {
            "topic": v.topic,
            "partition": v.partition,
            "replicas": list(v.original),
            "log_dirs": ["any"] * len(v.original),
        }
        for v in verdicts
        if v.original
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
