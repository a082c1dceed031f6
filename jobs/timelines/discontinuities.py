"""`discontinuities`: find lines that do not begin with the last logged state, and the cause.

The state machines print every change at TRACE, so a break means that something is missing: a new controller
begins with the state in ZooKeeper, a wiped cluster without one, and every other break is caused by missing
lines.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobs.timelines.cluster_evidence import ELECTED, HOUR
from jobs.timelines.event import Event, PartitionKey
from jobs.timelines.facts import ClusterFacts

NOWHERE = ("NonExistentPartition", "NonExistentReplica")
# a controller creates all partitions of a new cluster within this time (microseconds)
ONE_BATCH = 60_000_000
# a duplicate of a line may be up to this much later; a second change of the same kind takes longer, because a
# broker has to stop, start or answer in between (microseconds)
DUPLICATE_WITHIN = 1_000_000
WIPED = "wiped_cluster"


class StateLine(NamedTuple):
    """The last line that left a replica, or the partition, in a state.

    pos: its number among the lines of the partition. before: the lines less than DUPLICATE_WITHIN before it,
    without their own `before`.
    """

    pos: int
    state: str
    ts: int | None
    from_state: str | None
    record_id: str
    controller_epoch: int | None
    node: int | None
    before: Sequence["StateLine"] = ()


class Break(NamedTuple):
    """A line whose first state is not that of the line before.

    replica: None: the partition itself. previous: the line before. known_epoch: the newest controller epoch
    in earlier lines of the partition.
    is_duplicate: it repeats `previous`.
    """

    replica: int | None
    at: int | None
    node: int | None
    controller_epoch: int | None
    level: str | None
    from_state: str
    record_id: str
    previous: StateLine
    known_epoch: int | None
    is_duplicate: bool = False

    @classmethod
    def of(cls, values: Sequence[Any]) -> "Break":
        """Build a break from its values in JSON."""
        one = cls(*values)
        return one._replace(previous=StateLine(*one.previous))


@dataclass
class Lines:
    """The stored part of the lines so far.

    last: replica (None: the partition) -> its last line. deleted: number of the last deletion of the topic.
    known_epoch: the last named controller epoch.
    """

    count: int = 0
    last: dict[int | None, StateLine] = field(default_factory=dict)
    deleted: int = -1
    known_epoch: int | None = None
    breaks: list[Break] = field(default_factory=list)

    def add(self, events: Iterable[Event]) -> None:
        """Add events, in order: those of the partition and `deletion_completed` of its topic."""
        for e in events:
            self.count += 1
            if e.event_type == "deletion_completed":
                self.deleted = self.count
            elif (left := _state_left(e)) is not None:
                self._add_state(e, left)

    def _add_state(self, e: Event, left: str) -> None:
        previous = self.last.get(e.replica)
        line = StateLine(self.count, left, e.ts, e.from_state, e.record_id, e.controller_epoch, e.node)
        if (
            previous is not None
            and e.from_state not in (None, previous.state)
            and not self._is_new(e, previous)
        ):
            original = next((one for one in (previous, *_before(previous)) if _is_duplicate(line, one)), None)
            where = e.replica, e.ts, e.node, e.controller_epoch
            broken = Break(
                *where,
                e.level,
                str(e.from_state),
                e.record_id,
                original or previous,
                self.known_epoch,
                original is not None,
            )
            self.breaks.append(broken._replace(previous=broken.previous._replace(before=())))
            if original is not None:
                return  # the replica is in the state of the newest line
        self.last[e.replica] = (
            line if previous is None else line._replace(before=_shortly_before(line, previous))
        )
        if e.controller_epoch is not None:
            self.known_epoch = e.controller_epoch

    def _is_new(self, e: Event, previous: StateLine) -> bool:
        """Return whether the topic was deleted after the line before, and is created again."""
        return e.from_state in NOWHERE and self.deleted > previous.pos


def _before(line: StateLine) -> list[StateLine]:
    """Return the lines before it, also if they are plain values from JSON."""
    return [StateLine(*one) for one in line.before]


def _shortly_before(line: StateLine, previous: StateLine) -> list[StateLine]:
    if line.ts is None:
        return []
    return [
        one
        for one in (*_before(previous), previous._replace(before=()))
        if one.ts is not None and line.ts - one.ts < DUPLICATE_WITHIN
    ]


def _is_duplicate(line: StateLine, other: StateLine) -> bool:
    """Return whether the same controller prints the same change again, at once."""
    if (
        line.ts is None
        or other.ts is None
        or (line.from_state, line.state) != (other.from_state, other.state)
    ):
        return False
    same = (line.node, line.controller_epoch) == (other.node, other.controller_epoch)
    return same and 0 <= line.ts - other.ts < DUPLICATE_WITHIN


def _state_left(e: Event) -> str | None:
    """Return the state in which a line leaves a replica or partition; None: the line names none.

    `after removing replica 3 .. as part of transition to OfflineReplica` is printed during the change and
    names no state before.
    """
    if (e.says == "happened" and e.from_state is not None) or e.says == "is":
        return e.to_state
    return e.from_state if e.says == "failed" else None


def discontinuities(
    breaks: Iterable[tuple[PartitionKey, Break]], facts: ClusterFacts
) -> list[tuple[Any, ...]]:
    """Return rows of `discontinuities`.

    out: incarnation, topic, partition, replica, at, node, controller_epoch, held_state, held_since,
    found_state, cause, record_id, held_record_id. Times are microseconds. breaks: of one cluster.
    """
    breaks = list(breaks)
    wipes: dict[int, list[int]] = defaultdict(list)
    for key, one in breaks:
        if one.at is not None and not one.is_duplicate and _shows_wipe(key.topic, one):
            wipes[key.incarnation].append(one.at)
    elections: dict[int, list[int]] = defaultdict(list)
    for e in facts.ordered_events if breaks else ():
        if e.event_type in ELECTED and e.ts is not None:
            elections[facts.incarnation_of(e)].append(e.ts)
    found = [
        (
            *key,
            one.replica,
            one.at,
            one.node,
            one.controller_epoch,
            one.previous.state,
            one.previous.ts,
            one.from_state,
            _cause(key.topic, one, facts, elections[key.incarnation]),
            one.record_id,
            one.previous.record_id,
        )
        for key, one in breaks
        if not (facts.evidence.hides_state_before and _prints_new_state_twice(one))
    ]
    return wiped(found, wipes)


def _prints_new_state_twice(one: Break) -> bool:
    """Return whether it is no break in 0.8.0.

    PartitionStateMachine sets the new state of a partition that goes online, and then prints it as the state
    before, too.
    """
    return one.replica is None and one.from_state == "OnlinePartition"


def wiped(rows: Iterable[tuple[Any, ...]], wipes: Mapping[int, Iterable[int]]) -> list[tuple[Any, ...]]:
    """Return rows of `discontinuities`, some with the cause of a wipe that another partition shows.

    wipes: incarnation -> moments.
    """
    found = []
    for row in rows:
        number, at, state_since, found_state, cause = row[0], row[4], row[8], row[9], row[10]
        is_open = found_state in NOWHERE and cause != "duplicate" and None not in (at, state_since)
        is_wiped = is_open and any(state_since < moment <= at + ONE_BATCH for moment in wipes.get(number, ()))
        found.append((*row[:10], WIPED, *row[11:]) if is_wiped else row)
    return found


def _shows_wipe(topic: str, one: Break) -> bool:
    """Return whether it shows that the cluster was wiped.

    Controller epochs only grow. Internal topics are not deleted, and the log of the same controller would
    show a deletion.
    """
    epoch, known = one.controller_epoch, one.known_epoch
    if epoch is None:
        return False
    undeletable = topic.startswith("__") or (
        one.node is not None and one.node == one.previous.node and one.level == "TRACE"
    )
    is_first = epoch == 1 if known is None else epoch <= known
    return (known is not None and epoch < known) or (one.from_state in NOWHERE and undeletable and is_first)


def _cause(topic: str, one: Break, facts: ClusterFacts, elections: Iterable[int]) -> str:
    """Return why the line does not continue the one before."""
    previous, at = one.previous, one.at
    if one.is_duplicate or (at is not None and at == previous.ts and one.from_state == previous.from_state):
        return "duplicate"
    if _shows_wipe(topic, one):
        return WIPED
    epoch = one.controller_epoch
    if epoch is not None and previous.controller_epoch is not None and epoch > previous.controller_epoch:
        return "other_controller"
    # the map that a starting controller prints does not name its epoch
    if (
        previous.controller_epoch is None
        and None not in (previous.node, one.node)
        and previous.node != one.node
    ):
        return "other_controller"
    if (
        previous.controller_epoch is None
        and at is not None
        and previous.ts is not None
        and any(previous.ts < e <= at for e in elections)
    ):
        return "other_controller"
    between = set() if at is None or previous.ts is None else set(range(previous.ts // HOUR + 1, at // HOUR))
    logged = facts.evidence.logged_hours.get(one.node)
    # at INFO no change of a replica is printed, and no partition that goes offline or is removed
    if one.level != "TRACE" or (
        logged and (between & logged) - facts.evidence.traced_hours.get(one.node, set())
    ):
        return "level"
    return "hours_without_file" if logged is not None and between - logged else "file_missing"
