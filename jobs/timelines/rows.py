"""The rows that both modes tell: intervals of partitions and replicas, reassignments, and what of them is final.

`pos` orders what is told of one partition; ts is microseconds since 1970 UTC.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from jobs.timelines.events import Ids, in_any_order, same_set, with_next, without
from jobs.timelines.kraft_facts import Standing

Item = TypeVar("Item")


class Row(NamedTuple):
    """An interval of `partition_timeline`, but for its end."""

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
        """What makes two rows one."""
        return (*self[2:4], in_any_order(self.isr), *self[5:12])

    def assignment(self) -> tuple[object, ...]:
        """RS in its order; AR and RR, whose order has no meaning."""
        return self.replicas and tuple(self.replicas), in_any_order(self.adding), in_any_order(self.removing)

    @property
    def is_something(self) -> bool:
        """Whether it says anything."""
        return any(value is not None for value in self[2:11])


class ReplicaRow(NamedTuple):
    """An interval of `replica_timeline`."""

    replica: int
    step: int
    begun: Standing
    until: int | None
    in_isr: bool | None


class Reassignment(NamedTuple):
    """A row of `reassignments`. target: null where nobody tells it."""

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
class Rows:
    """Of one partition. Those of partition_timeline come after `steps` that are final, those of a replica replace its rows from the first
    step here on, reassignments those that began after `since` (microseconds; null: all). In `partitions`: step, row, when it ended.
    """

    steps: int = 0
    since: int | None = None
    partitions: list[tuple[int, Row, int | None]] = field(default_factory=list)
    replicas: list[ReplicaRow] = field(default_factory=list)
    reassignments: list[Reassignment] = field(default_factory=list)


@dataclass
class Final:
    """What is final. steps: number of the rows before `last`, the newest final one, of which only the end may change. isr: the ISR up to its
    time. standing: replica -> step and begin of the interval that it was in when `last` began. is_foreign: all this is of another mode.
    before: what checkpoints told, in order; it counts up to the first row that is not theirs. It is given to each fold anew.
    """

    steps: int = 0
    last: Row | None = None
    isr: Ids | None = None
    standing: dict[int, tuple[int, Standing]] = field(default_factory=dict)
    is_foreign: bool = False
    before: Sequence[Row] = ()

    def partitions(self, later: Iterable[Row], end: int | None) -> list[tuple[int, Row, int | None]]:
        """Step, row and end, from `last` on. later: the rows after it; equal neighbours are one, but for what a checkpoint and a line tell."""
        told = [row for row in later if row.is_something]
        # where the first row has no time, the logs tell what was before them
        silent = [] if self.last else [row for row in self.before if not told or (row.ts or 0) < (told[0].ts or 0)]
        kept = less_repeated(silent, Row.values) + less_repeated([*([self.last] if self.last else []), *told], Row.values)
        return [
            (step, row, end if after is None or after.ts is None else after.ts)
            for step, (row, after) in enumerate(with_next(kept), self.steps + 1)
        ]

    def replicas(self, standings: Mapping[int, Sequence[Standing]], rows: Sequence[Row], end: int | None) -> list[ReplicaRow]:
        """standings: replica -> its states from that in `standing` on, where it has one. rows: those of `partitions`."""
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
        """Makes rows final. kept: those of `partitions` that are; standings: as `replicas` takes it, up to the begin of the last of these."""
        last = kept[-1]
        for replica, states in standings.items():
            if states:
                first = self.standing[replica][0] if replica in self.standing else 1
                self.standing[replica] = first + len(states) - 1, states[-1]
        before = [row.isr for row in kept if (row.ts or 0) < (last.ts or 0)]
        self.isr = before[-1] if before else self.isr
        self.steps, self.last, self.is_foreign = self.steps + len(kept) - 1, last, False


def less_repeated(items: Iterable[Item], value: Callable[[Item], Any]) -> list[Item]:
    """Items less those whose value is that of the one before."""
    return [next(equal) for _, equal in groupby(items, value)]


def phase(adding: Ids | None, removing: Ids | None, *, is_raised: bool, caught_up: bool = False) -> str | None:
    """U: the assignment is written; A: the leader knows, for its epoch was raised; B: all target replicas are in sync, or there was none to
    wait for. Null outside a reassignment.
    """
    if not adding and not removing:
        return None
    return "B" if caught_up or (is_raised and not adding) else "A" if is_raised else "U"


class Assigned(NamedTuple):
    """One assignment, and when it was written. null: not known."""

    pos: int
    ts: int | None
    record_id: str
    replicas: Ids | None
    adding: Ids | None
    removing: Ids | None
    inferred: bool = False

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is running."""
        return bool(self.adding or self.removing)

    def values(self) -> tuple[object, ...]:
        """What makes two assignments one."""
        return tuple(map(in_any_order, self[3:6]))


def reassignment(
    before: Assigned | None, one: Assigned, after: Assigned | None, caught_up_at: int | None, *, reaches_target: bool
) -> Reassignment:
    """What began with an assignment that moves replicas, and how it ended: the next assignment completes, replaces or cancels it.

    before, after: null where none is known; an inferred one does not tell the moment. reaches_target: whether the assignment after it is the target.
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
    """Whether an assignment is what the one before it aims at."""
    return after is not None and same_set(after.replicas, without(one.replicas, one.removing))
