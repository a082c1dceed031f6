"""KRaft text logs: find the assignment of each partition epoch.

Every change of a partition is one record and one partition epoch (PartitionRegistration.merge). Brokers print
the epoch with what they apply; controllers print changes of the assignment without it, in order, and again
when they start. So each version gets the set of changes that may have been applied by then, as far as all
lines together allow. What remains open is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from jobs.timelines.event import Ids, same_set
from jobs.timelines.kraft_facts import KRaftFacts

VALUES = ("leader", "leader_epoch", "isr", "replicas", "adding", "removing")


@dataclass(slots=True)
class EpochVersion:
    """The values in lines of one partition epoch or, without an epoch, of a moment.

    is_difference: values that no line prints are those of the epoch before. applied: number of the printed
    changes of the assignment that were applied by then, if certain. altered_by: the leader that altered the
    ISR and nothing else. is_read: only starting controllers, which read history, print it.
    """

    pos: int
    ts: int | None
    record_id: str
    epoch: int | None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: Ids | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    is_difference: bool = False
    inferred: bool = False
    applied: int | None = None
    altered_by: int | None = None
    is_read: bool = False

    def copy(self) -> "EpochVersion":
        """Return a copy that can be changed."""
        return EpochVersion(*(getattr(self, name) for name in self.__slots__))

    @property
    def is_whole(self) -> bool:
        """Return whether all values are known."""
        return None not in (self.epoch, self.leader, self.leader_epoch, self.isr, self.replicas)

    def learn(self, other: "EpochVersion | Change", names: Iterable[str] = VALUES) -> None:
        """Fill unknown values from another version."""
        for name in names:
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))

    def begin_by(self, pos: int, ts: int | None, record_id: str | None = None) -> None:
        """Move the begin to this position if that is earlier.

        record_id: the record that shows it, if it is another one.
        """
        if pos < self.pos:
            self.pos, self.ts, self.record_id = pos, ts, record_id or self.record_id


class Change(NamedTuple):
    """A change of the assignment.

    None: not changed, or unknown. is_printed: by controllers; else other lines show the change.
    """

    pos: int
    ts: int | None
    record_id: str
    leader: int | None
    isr: Ids | None
    replicas: Ids | None
    adding: Ids | None
    removing: Ids | None
    is_printed: bool = True
    leader_epoch: None = None

    @property
    def content(self) -> tuple[object, ...]:
        """Return the printed values."""
        return self.leader, *(ids and tuple(ids) for ids in self[4:8])

    @property
    def is_moving(self) -> bool:
        """Return whether a reassignment is running after it."""
        return bool(self.adding or self.removing)


NOT_KNOWN = Change(0, None, "", None, None, None, None, None, False)


def lay_along(
    versions: Sequence[EpochVersion], printed: Iterable[Change], base: int
) -> tuple[list[Change], list[set[int]]]:
    """Return the assignments, and for each version the numbers of those that it may have.

    The first assignment is that before all changes.
    versions: in order of their epochs. printed: changes in order. base: the first whole epoch. If no change
    explains a version, a change is added that no controller printed.
    """
    from_base = bool(versions) and versions[0].epoch == base
    changes = _whole_assignments(printed, versions[0] if from_base else None)
    applied: list[set[int]] = []
    for u, v in zip([None, *versions], versions, strict=False):
        before, records = (applied[-1], _records(u, v)) if u else ({0}, 0 if from_base else v.epoch or 0)
        ways = ((i, j) for i in before for j in range(i, min(i + records, len(changes) - 1) + 1))
        now = {
            j
            for i, j in ways
            if agrees(v, changes[j]) and (u is None or follows(u, v, changes[i + 1 : j + 1]))
        }
        if v.replicas is not None:
            # the first assignment is unknown, but it was a single one
            first = NOT_KNOWN._replace(replicas=v.replicas)
            others = [may for one, may in zip(versions, applied, strict=False) if not agrees(one, first)]
            now -= {j for j in now if changes[j].replicas is None and any(j in may for may in others)}
        if not now:
            now = {max(before) + 1}
            changes.insert(max(now), Change(*NOT_KNOWN[:5], v.replicas, v.adding, v.removing, False))
        n = max(now)
        if len(now) == 1 and changes[n].replicas is None and v.replicas is not None:
            changes[n] = changes[n]._replace(replicas=v.replicas, adding=v.adding, removing=v.removing)
        applied.append(now)
    for n in reversed(range(len(versions) - 1)):
        u, v = versions[n : n + 2]
        possible = {
            i
            for i in applied[n]
            if any(i <= j and follows(u, v, changes[i + 1 : j + 1]) for j in applied[n + 1])
        }
        # contradicting lines exclude nothing
        applied[n] = possible or applied[n]
    return changes, applied


def _records(u: EpochVersion, v: EpochVersion) -> int:
    assert u.epoch is not None
    assert v.epoch is not None
    return v.epoch - u.epoch


def _whole_assignments(printed: Iterable[Change], base: EpochVersion | None) -> list[Change]:
    """Return the assignment before all changes, and the whole assignment after each change.

    None in a change leaves a list as it is.
    """
    last = (
        NOT_KNOWN
        if base is None
        else NOT_KNOWN._replace(replicas=base.replicas, adding=base.adding, removing=base.removing)
    )
    changes = [last]
    for one in printed:
        left = {
            name: getattr(last, name)
            for name in ("replicas", "adding", "removing")
            if getattr(one, name) is None
        }
        last = one._replace(**left)
        changes.append(last)
    return changes


def agrees(v: EpochVersion, assignment: Change) -> bool:
    """Return whether a version may have an assignment.

    The replicas include ISR (Replicas.validateIsr) and leader.
    """
    if assignment.replicas is not None:
        other_replicas = v.replicas is not None and list(v.replicas) != list(assignment.replicas)
        in_charge = set() if v.leader is None or v.leader < 0 else {v.leader}
        if other_replicas or not in_charge.union(v.isr or ()) <= set(assignment.replicas):
            return False
    return all(
        a is None or b is None or set(a) == set(b)
        for a, b in ((v.adding, assignment.adding), (v.removing, assignment.removing))
    )


def follows(u: EpochVersion, v: EpochVersion, applied: Sequence[Change]) -> bool:
    """Return whether version v can follow u with these changes of the assignment between them.

    Each change is one record. The leader epoch grows only with a record that names a leader, which a printed
    change shows.
    """
    records, printed = _records(u, v), [change for change in applied if change.is_printed]
    grown = None if u.leader_epoch is None or v.leader_epoch is None else v.leader_epoch - u.leader_epoch
    if len(applied) > records:
        return False
    if grown is not None and not 0 <= grown - sum(
        change.leader is not None for change in printed
    ) <= records - len(printed):
        return False
    if records > 1 or not applied:
        return True
    isr = u.isr if printed and applied[0].isr is None else applied[0].isr
    return (isr is None or v.isr is None or same_set(isr, v.isr)) and applied[0].leader in (None, v.leader)


def place(
    known: dict[int, EpochVersion], changes: Sequence[Change], applied: dict[int, set[int]]
) -> list[int]:
    """Assign changes to the versions that they created.

    If the records between two versions are as many as the changes, each record is a change.
    known, applied: by epoch. Return the numbers of the printed changes without a known epoch.
    """
    left = {number for number, change in enumerate(changes) if change.is_printed}
    for (before, first), (after, last) in pairwise(list(applied.items())):
        if not (len(first) == len(last) == 1 and after - before == max(last) - max(first)):
            continue
        for epoch, number in enumerate(range(max(first) + 1, max(last) + 1), before + 1):
            change, u = changes[number], known.get(epoch - 1)
            if not change.is_printed or u is None:
                continue
            v = known.setdefault(epoch, EpochVersion(*change[:3], epoch))
            v.begin_by(*change[:3])
            v.learn(change)
            v.learn(u, ("leader", "isr"))
            if v.leader_epoch is None and u.leader_epoch is not None:
                v.leader_epoch = u.leader_epoch + (change.leader is not None)
            applied[epoch] = {number}
            left.discard(number)
    return sorted(left)


def assign(
    versions: Sequence[EpochVersion],
    changes: Sequence[Change],
    applied: Mapping[int | None, set[int]],
    facts: KRaftFacts,
) -> None:
    """Set the replicas of versions where they are certain.

    They are certain as long as no change was printed or possible without a line, and also if they are the
    same before and after that.
    """
    last = [changes[max(applied[v.epoch])] if len(applied[v.epoch]) == 1 else None for v in versions]
    links: list[bool | None] = [None]
    for n, (u, v) in enumerate(pairwise(versions), 1):
        now = last[n]
        is_certain = now is not None and not may_hide(u, v, now, facts)
        links.append(is_certain if now is last[n - 1] is not None else None)
        if v.replicas is None and links[n] is None and is_certain and now is not None and now.is_printed:
            v.replicas = now.replicas
    known = [v.replicas for v in versions]
    before, after = _nearest(known, links), _nearest(known[::-1], [None, *links[:0:-1]])[::-1]
    for v, change, (one, is_sure), (other, other_is_sure) in zip(versions, last, before, after, strict=True):
        v.replicas = (
            one if is_sure or (one is not None and one == other) else other if other_is_sure else None
        )
        if change is not None and v.replicas is not None:
            v.learn(change, ("adding", "removing"))


def _nearest(known: Sequence[Ids | None], links: Iterable[bool | None]) -> list[tuple[Ids | None, bool]]:
    """Return the last known value up to each item, and whether it is certain.

    links: to the item before; None: the value ends.
    """
    found: list[tuple[Ids | None, bool]] = []
    value: Ids | None = None
    is_sure = False
    for one, link in zip(known, links, strict=False):
        value, is_sure = (
            (one, True) if one is not None else (None, False) if link is None else (value, is_sure and link)
        )
        found.append((value, is_sure))
    return found


def may_hide(u: EpochVersion, v: EpochVersion, assignment: Change, facts: KRaftFacts) -> bool:
    """Return whether the assignment may have changed from version u to v without a line.

    At INFO controllers print only changes of AR and RR: no change that only removes or reorders replicas,
    which is complete at once (ReplicationControlManager.replay, PartitionChangeBuilder). Such a record raises
    the leader epoch if a replica leaves; it elects another leader only in place of one that leaves.
    """
    since = None if u.is_read else u.ts
    if v.is_difference or facts.nothing_unexplained(since, v.ts):
        return False
    if assignment.is_moving or _records(u, v) > 1:
        return not (assignment.is_moving and facts.hears_controller(since, v.ts))
    if u.leader_epoch == v.leader_epoch:
        return u.isr is None or v.isr is None or same_set(u.isr, v.isr)
    stays = v.isr is not None and (
        same_set(v.isr, assignment.replicas) or (u.leader != v.leader and u.leader in v.isr)
    )
    return v.leader != -1 and not stays
