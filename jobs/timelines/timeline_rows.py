"""Define the rows of both modes: intervals, reassignments, and which of them are final.

pos: order of the events of one partition. ts: microseconds since 1970 UTC.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from jobs.timelines.event import Ids, in_any_order, same_set, with_next, without
from jobs.timelines.kraft_facts import Standing

Item = TypeVar("Item")


class Row(NamedTuple):
    """An interval of `partition_timeline` without its end."""

    pos: int
    ts: int | None
    leader: int | None
    leader_epoch: int | None
    isr: Ids | None
    partition_epoch: int | None
    replicas: Ids | None
    adding: Ids | None
    removing: Ids | None
    state: str | None
    phase: str | None
    inferred: bool
    record_id: str

    def values(self) -> tuple[object, ...]:
        """Return the values that equal rows have in common."""
        return (*self[2:4], in_any_order(self.isr), *self[5:12])

    def assignment(self) -> tuple[object, ...]:
        """Return RS in its order, and AR and RR, whose order has no meaning."""
        return self.replicas and tuple(self.replicas), in_any_order(self.adding), in_any_order(self.removing)

    @property
    def is_something(self) -> bool:
        """Return whether the row has a value."""
        return any(value is not None for value in self[2:11])


class ReplicaRow(NamedTuple):
    """An interval of `replica_timeline`."""

    replica: int
    step: int
    begun: Standing
    until: int | None
    in_isr: bool | None


class Reassignment(NamedTuple):
    """A row of `reassignments`. target: None: not logged."""

    pos: int
    started_at: int | None
    caught_up_at: int | None
    completed_at: int | None
    original: Ids | None
    target: Ids | None
    adding: Ids | None
    removing: Ids | None
    outcome: str
    record_id: str


@dataclass
class PartitionRows:
    """Rows of one partition after the final ones.

    partitions: step, row and end, after `steps` final rows. replicas: replace the stored rows of a replica
    from their first step on.
    reassignments: replace those that began after `since` (microseconds; None: all).
    """

    steps: int = 0
    since: int | None = None
    partitions: list[tuple[int, Row, int | None]] = field(default_factory=list)
    replicas: list[ReplicaRow] = field(default_factory=list)
    reassignments: list[Reassignment] = field(default_factory=list)


@dataclass
class Final:
    """The final rows of a partition.

    steps: number of rows before `last`, the newest final row, whose end may still change. isr: the ISR before
    `last`. standing: replica -> step and begin of its interval when `last` began. is_foreign: all final rows
    are of another mode. before: rows of checkpoints, in order; they count up to the first row of the logs.
    Each fold sets them again.
    """

    steps: int = 0
    last: Row | None = None
    isr: Ids | None = None
    standing: dict[int, tuple[int, Standing]] = field(default_factory=dict)
    is_foreign: bool = False
    before: Sequence[Row] = ()

    def partitions(self, later: Iterable[Row], end: int | None) -> list[tuple[int, Row, int | None]]:
        """Return step, row and end, from `last` on.

        later: the rows after it. Equal neighbours become one row.
        """
        of_logs = [row for row in later if row.is_something]
        # a first row without a time is the state before the logs begin
        of_checkpoints = (
            []
            if self.last
            else [row for row in self.before if not of_logs or (row.ts or 0) < (of_logs[0].ts or 0)]
        )
        kept = less_repeated(of_checkpoints, Row.values) + less_repeated(
            [*([self.last] if self.last else []), *of_logs], Row.values
        )
        return [
            (step, row, end if after is None or after.ts is None else after.ts)
            for step, (row, after) in enumerate(with_next(kept), self.steps + 1)
        ]

    def replicas(
        self, standings: Mapping[int, Sequence[Standing]], rows: Sequence[Row], end: int | None
    ) -> list[ReplicaRow]:
        """Return rows of replicas.

        standings: replica -> its states from that in `standing` on, if any. rows: those of `partitions`.
        """
        begins = [row.ts or 0 for row in rows]
        found = []
        for replica, states in standings.items():
            first = self.standing[replica][0] if replica in self.standing else 1
            for step, (one, after) in enumerate(with_next(states), first):
                until = end if after is None or after.ts is None else after.ts
                at = len(rows) if until is None else bisect_left(begins, until)
                isr = rows[at - 1].isr if at else self.isr
                found.append(ReplicaRow(replica, step, one, until, None if isr is None else replica in isr))
        return found

    def extend(self, kept: Sequence[Row], standings: Mapping[int, Sequence[Standing]]) -> None:
        """Make rows final.

        kept: the final rows of `partitions`; standings: as `replicas` takes it, up to the begin of the last
        of these.
        """
        last = kept[-1]
        for replica, states in standings.items():
            if states:
                first = self.standing[replica][0] if replica in self.standing else 1
                self.standing[replica] = first + len(states) - 1, states[-1]
        before = [row.isr for row in kept if (row.ts or 0) < (last.ts or 0)]
        self.isr = before[-1] if before else self.isr
        self.steps, self.last, self.is_foreign = self.steps + len(kept) - 1, last, False


def less_repeated(items: Iterable[Item], value: Callable[[Item], Any]) -> list[Item]:
    """Return items without those that have the value of the item before."""
    return [next(equal) for _, equal in groupby(items, value)]


def phase(
    adding: Ids | None, removing: Ids | None, *, is_raised: bool, caught_up: bool = False
) -> str | None:
    """Return the phase of a reassignment; None outside one.

    U: the assignment is written. A: the leader knows it, because its epoch was raised. B: all target replicas
    are in sync, or none was added.
    """
    if not adding and not removing:
        return None
    return "B" if caught_up or (is_raised and not adding) else "A" if is_raised else "U"


class Assigned(NamedTuple):
    """An assignment, and when it was written. None: unknown."""

    pos: int
    ts: int | None
    record_id: str
    replicas: Ids | None
    adding: Ids | None
    removing: Ids | None
    inferred: bool = False

    @property
    def is_moving(self) -> bool:
        """Return whether a reassignment is running."""
        return bool(self.adding or self.removing)

    def values(self) -> tuple[object, ...]:
        """Return the values that equal assignments have in common."""
        return tuple(map(in_any_order, self[3:6]))


def reassignment(
    before: Assigned | None,
    one: Assigned,
    after: Assigned | None,
    caught_up_at: int | None,
    *,
    reaches_target: bool,
) -> Reassignment:
    """Return the reassignment that an assignment begins.

    The next assignment completes, replaces or cancels it.
    before, after: None: unknown; the time of an inferred one is unknown. reaches_target: whether the next
    assignment is the target.
    """
    outcome = "completed" if reaches_target else "cancelled"
    outcome = "in_progress" if after is None else "replaced" if after.is_moving else outcome
    at_rest = before is not None and before.replicas is not None and not before.is_moving
    return Reassignment(
        one.pos,
        one.ts,
        caught_up_at,
        after.ts if after is not None and outcome == "completed" and not after.inferred else None,
        before.replicas if before is not None and at_rest else without(one.replicas, one.adding),
        without(one.replicas, one.removing),
        one.adding,
        one.removing,
        outcome,
        one.record_id,
    )


def is_target(after: Assigned | None, one: Assigned) -> bool:
    """Return whether an assignment is the target of the one before it."""
    return after is not None and same_set(after.replicas, without(one.replicas, one.removing))
