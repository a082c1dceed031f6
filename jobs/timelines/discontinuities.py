"""`discontinuities`: where a line names another state to begin with than the one before it left, and why.

The state machines print every change at TRACE, so a break means that something was not heard: a new controller begins with what it finds
in ZooKeeper, a wiped cluster with nothing, and everything else is lines that are not there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobs.timelines.cluster_evidence import ELECTED, HOUR
from jobs.timelines.events import Event, PartitionKey
from jobs.timelines.facts import ClusterFacts

NOWHERE = ("NonExistentPartition", "NonExistentReplica")
# in one batch of a controller all partitions of a new cluster are created (microseconds)
ONE_BATCH = 60_000_000
# a copy of a line may carry a later time stamp; a replica that goes the same way twice has gone back in between, which takes a broker that
# comes or goes, or its answer (microseconds)
ONE_COPY = 1_000_000
WIPED = "wiped_cluster"


class StateLine(NamedTuple):
    """The last line that left a replica, or the partition, in a state. pos: of it among those of the partition. before: those that came
    less than ONE_COPY before it, without their own.
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
    """A line whose state to begin with is not the one that is held. replica: null, the partition itself. known_epoch: the newest controller
    epoch that the partition's lines before it name. is_copy: it says what `held` says, again.
    """

    replica: int | None
    at: int | None
    node: int | None
    controller_epoch: int | None
    level: str | None
    from_state: str
    record_id: str
    held: StateLine
    known_epoch: int | None
    is_copy: bool = False

    @classmethod
    def of(cls, values: Sequence[Any]) -> "Break":
        """Of the values that JSON has of it."""
        made = cls(*values)
        return made._replace(held=StateLine(*made.held))


@dataclass
class Lines:
    """What is held of the lines so far. last: replica (null: the partition) -> its last line. deleted: position of the last deletion of the
    topic. known_epoch: the last controller epoch that was named.
    """

    count: int = 0
    last: dict[int | None, StateLine] = field(default_factory=dict)
    deleted: int = -1
    known_epoch: int | None = None
    breaks: list[Break] = field(default_factory=list)

    def hear(self, events: Iterable[Event]) -> None:
        """Goes on. events: in order, of the partition and the `deletion_completed` of its topic."""
        for e in events:
            self.count += 1
            if e.event_type == "deletion_completed":
                self.deleted = self.count
            elif (left := _state_left(e)) is not None:
                self._hear_state(e, left)

    def _hear_state(self, e: Event, left: str) -> None:
        held = self.last.get(e.replica)
        line = StateLine(self.count, left, e.ts, e.from_state, e.record_id, e.controller_epoch, e.node)
        if held is not None and e.from_state not in (None, held.state) and not self._is_new(e, held):
            original = next((one for one in (held, *_before(held)) if _is_copy(line, one)), None)
            where = e.replica, e.ts, e.node, e.controller_epoch
            broken = Break(
                *where, e.level, str(e.from_state), e.record_id, original or held, self.known_epoch, original is not None
            )
            self.breaks.append(broken._replace(held=broken.held._replace(before=())))
            if original is not None:
                return  # the replica is where the newest line left it
        self.last[e.replica] = line if held is None else line._replace(before=_shortly_before(line, held))
        if e.controller_epoch is not None:
            self.known_epoch = e.controller_epoch

    def _is_new(self, e: Event, held: StateLine) -> bool:
        """Whether the topic was deleted after the line before, and is created anew."""
        return e.from_state in NOWHERE and self.deleted > held.pos


def _before(line: StateLine) -> list[StateLine]:
    """Those before it, of the values that JSON has of them, too."""
    return [StateLine(*one) for one in line.before]


def _shortly_before(line: StateLine, held: StateLine) -> list[StateLine]:
    if line.ts is None:
        return []
    return [one for one in (*_before(held), held._replace(before=())) if one.ts is not None and line.ts - one.ts < ONE_COPY]


def _is_copy(line: StateLine, other: StateLine) -> bool:
    """Whether it is the same move, told by the same controller at the same time or right afterwards."""
    if line.ts is None or other.ts is None or (line.from_state, line.state) != (other.from_state, other.state):
        return False
    same = (line.node, line.controller_epoch) == (other.node, other.controller_epoch)
    return same and 0 <= line.ts - other.ts < ONE_COPY


def _state_left(e: Event) -> str | None:
    """The state that a line leaves a replica or partition in; null where it tells of none.

    `after removing replica 3 .. as part of transition to OfflineReplica` is printed on the way and names no state before.
    """
    if (e.says == "happened" and e.from_state is not None) or e.says == "is":
        return e.to_state
    return e.from_state if e.says == "failed" else None


def discontinuities(breaks: Iterable[tuple[PartitionKey, Break]], facts: ClusterFacts) -> list[tuple[Any, ...]]:
    """Rows of `discontinuities`: incarnation, topic, partition, replica, at, node, controller_epoch, held_state, held_since, found_state,
    cause, record_id, held_record_id. Times are microseconds. breaks: of one cluster.
    """
    breaks = list(breaks)
    wipes: dict[int, list[int]] = defaultdict(list)
    for key, one in breaks:
        if one.at is not None and not one.is_copy and _begins_anew(key.topic, one):
            wipes[key.incarnation].append(one.at)
    elections: dict[int, list[int]] = defaultdict(list)
    for e in facts.ordered_events if breaks else ():
        if e.event_type in ELECTED and e.ts is not None:
            elections[facts.incarnation_of(e)].append(e.ts)
    found = [
        (*key, one.replica, one.at, one.node, one.controller_epoch, one.held.state, one.held.ts, one.from_state,
         _cause(key.topic, one, facts, elections[key.incarnation]), one.record_id, one.held.record_id)
        for key, one in breaks
        if not (facts.evidence.hides_state_before and _tells_new_state_twice(one))
    ]  # fmt: skip
    return wiped(found, wipes)


def _tells_new_state_twice(one: Break) -> bool:
    """Whether it is no break in 0.8.0: PartitionStateMachine sets the new state and then prints it as the one before, too, where a
    partition goes online.
    """
    return one.replica is None and one.from_state == "OnlinePartition"


def wiped(rows: Iterable[tuple[Any, ...]], wipes: Mapping[int, Iterable[int]]) -> list[tuple[Any, ...]]:
    """Rows of `discontinuities`, of which some are explained by a wipe that another partition shows. wipes: incarnation -> moments."""
    found = []
    for row in rows:
        number, at, held_since, found_state, cause = row[0], row[4], row[8], row[9], row[10]
        is_open = found_state in NOWHERE and cause != "duplicate" and None not in (at, held_since)
        is_wiped = is_open and any(held_since < moment <= at + ONE_BATCH for moment in wipes.get(number, ()))
        found.append((*row[:10], WIPED, *row[11:]) if is_wiped else row)
    return found


def _begins_anew(topic: str, one: Break) -> bool:
    """Whether it shows that the cluster was wiped: the epoch of controllers only grows; nobody deletes an internal topic, and the log of
    the same controller would show a deletion.
    """
    epoch, known = one.controller_epoch, one.known_epoch
    if epoch is None:
        return False
    undeletable = topic.startswith("__") or (one.node is not None and one.node == one.held.node and one.level == "TRACE")
    is_first = epoch == 1 if known is None else epoch <= known
    return (known is not None and epoch < known) or (one.from_state in NOWHERE and undeletable and is_first)


def _cause(topic: str, one: Break, facts: ClusterFacts, elections: Iterable[int]) -> str:
    """Why the line does not go on from the one before it."""
    held, at = one.held, one.at
    if one.is_copy or (at is not None and at == held.ts and one.from_state == held.from_state):
        return "duplicate"
    if _begins_anew(topic, one):
        return WIPED
    epoch = one.controller_epoch
    if epoch is not None and held.controller_epoch is not None and epoch > held.controller_epoch:
        return "other_controller"
    # the map that a starting controller prints does not name its epoch
    if held.controller_epoch is None and None not in (held.node, one.node) and held.node != one.node:
        return "other_controller"
    if held.controller_epoch is None and at is not None and held.ts is not None and any(held.ts < e <= at for e in elections):
        return "other_controller"
    between = set() if at is None or held.ts is None else set(range(held.ts // HOUR + 1, at // HOUR))
    logged = facts.evidence.logged_hours.get(one.node)
    # at INFO neither a partition that goes offline nor one that goes away is printed, nor any change of a replica
    if one.level != "TRACE" or (logged and (between & logged) - facts.evidence.traced_hours.get(one.node, set())):
        return "level"
    return "hours_without_file" if logged is not None and between - logged else "file_missing"
