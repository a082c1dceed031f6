"""KRaft text: which assignment held in which partition epoch.

Every change of a partition is one record and one partition epoch (PartitionRegistration.merge). Brokers print the epoch with what they
apply; controllers print changes of the assignment without it, in their order, and once more when they start. So the one is laid along the
other: for each version the set of changes that may have been made by then, as all lines together allow. What they leave open is not told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from jobs.timelines.events import Ids, same_set
from jobs.timelines.kraft_facts import KRaftFacts

VALUES = ("leader", "leader_epoch", "isr", "replicas", "adding", "removing")


@dataclass(slots=True)
class Version:
    """What lines say of one partition epoch or, without one, of a moment. is_difference: what no line says is as it was in the epoch before.
    made: how many of the printed changes of the assignment were made by then, where that is certain. altered_by: the leader that altered the ISR and nothing else.
    is_read: only controllers that start tell of it, which read what was before.
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
    made: int | None = None
    altered_by: int | None = None
    is_read: bool = False

    def copy(self) -> "Version":
        """The same, to be changed."""
        return Version(*(getattr(self, name) for name in self.__slots__))

    @property
    def is_whole(self) -> bool:
        """Whether everything is known."""
        return None not in (self.epoch, self.leader, self.leader_epoch, self.isr, self.replicas)

    def learn(self, other: "Version | Change", names: Iterable[str] = VALUES) -> None:
        """Fills what is not known yet."""
        for name in names:
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))

    def begin_by(self, pos: int, ts: int | None, record_id: str | None = None) -> None:
        """It began no later than this. record_id: what shows it, where that is another record than those about it."""
        if pos < self.pos:
            self.pos, self.ts, self.record_id = pos, ts, record_id or self.record_id


class Change(NamedTuple):
    """A change of the assignment; null: not a part of it, or not known. is_printed: by controllers; else other lines show that it was made."""

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
        """What is printed."""
        return self.leader, *(ids and tuple(ids) for ids in self[4:8])

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is running after it."""
        return bool(self.adding or self.removing)


NOT_KNOWN = Change(0, None, "", None, None, None, None, None, False)


def lay_along(versions: Sequence[Version], printed: Iterable[Change], base: int) -> tuple[list[Change], list[set[int]]]:
    """The changes of the assignment, before them what held at first; and for each version the numbers of those that may have been the last.

    versions: in order of their epochs. printed: in order. base: the first epoch of which all is known. Where none of the changes explains
    what a version says, one was made that nobody printed.
    """
    from_base = bool(versions) and versions[0].epoch == base
    changes = _with_what_they_leave(printed, versions[0] if from_base else None)
    made: list[set[int]] = []
    for u, v in zip([None, *versions], versions, strict=False):
        before, records = (made[-1], _records(u, v)) if u else ({0}, 0 if from_base else v.epoch or 0)
        ways = ((i, j) for i in before for j in range(i, min(i + records, len(changes) - 1) + 1))
        now = {j for i, j in ways if agrees(v, changes[j]) and (u is None or follows(u, v, changes[i + 1 : j + 1]))}
        if v.replicas is not None:
            # what held at first is not known, but it was one assignment
            held = NOT_KNOWN._replace(replicas=v.replicas)
            others = [may for one, may in zip(versions, made, strict=False) if not agrees(one, held)]
            now -= {j for j in now if changes[j].replicas is None and any(j in may for may in others)}
        if not now:
            now = {max(before) + 1}
            changes.insert(max(now), Change(*NOT_KNOWN[:5], v.replicas, v.adding, v.removing, False))
        n = max(now)
        if len(now) == 1 and changes[n].replicas is None and v.replicas is not None:
            changes[n] = changes[n]._replace(replicas=v.replicas, adding=v.adding, removing=v.removing)
        made.append(now)
    for n in reversed(range(len(versions) - 1)):
        u, v = versions[n : n + 2]
        possible = {i for i in made[n] if any(i <= j and follows(u, v, changes[i + 1 : j + 1]) for j in made[n + 1])}
        # lines that contradict one another rule out nothing
        made[n] = possible or made[n]
    return changes, made


def _records(u: Version, v: Version) -> int:
    assert u.epoch is not None
    assert v.epoch is not None
    return v.epoch - u.epoch


def _with_what_they_leave(printed: Iterable[Change], base: Version | None) -> list[Change]:
    """The changes with what holds after each (null leaves a list as it is), before them what holds at first."""
    last = NOT_KNOWN if base is None else NOT_KNOWN._replace(replicas=base.replicas, adding=base.adding, removing=base.removing)
    changes = [last]
    for one in printed:
        left = {name: getattr(last, name) for name in ("replicas", "adding", "removing") if getattr(one, name) is None}
        last = one._replace(**left)
        changes.append(last)
    return changes


def agrees(v: Version, held: Change) -> bool:
    """Whether an assignment may have held in a version. The ISR is a part of the replicas (Replicas.validateIsr), and so is the leader."""
    if held.replicas is not None:
        other_replicas = v.replicas is not None and list(v.replicas) != list(held.replicas)
        in_charge = set() if v.leader is None or v.leader < 0 else {v.leader}
        if other_replicas or not in_charge.union(v.isr or ()) <= set(held.replicas):
            return False
    return all(a is None or b is None or set(a) == set(b) for a, b in ((v.adding, held.adding), (v.removing, held.removing)))


def follows(u: Version, v: Version, made: Sequence[Change]) -> bool:
    """Whether version v can come after u with these changes of the assignment between them.

    Each is one record. The leader epoch grows with a record that names a leader, which a printed change shows, and with no other.
    """
    records, printed = _records(u, v), [change for change in made if change.is_printed]
    grown = None if u.leader_epoch is None or v.leader_epoch is None else v.leader_epoch - u.leader_epoch
    if len(made) > records:
        return False
    if grown is not None and not 0 <= grown - sum(change.leader is not None for change in printed) <= records - len(printed):
        return False
    if records > 1 or not made:
        return True
    isr = u.isr if printed and made[0].isr is None else made[0].isr
    return (isr is None or v.isr is None or same_set(isr, v.isr)) and made[0].leader in (None, v.leader)


def place(known: dict[int, Version], changes: Sequence[Change], made: dict[int, set[int]]) -> list[int]:
    """Tells versions of the changes that made them. Where as many were made between two as there are records, each is one of these.

    known, made: by epoch. Returns the numbers of the printed changes whose epoch is not known.
    """
    left = {number for number, change in enumerate(changes) if change.is_printed}
    for (before, first), (after, last) in pairwise(list(made.items())):
        if not (len(first) == len(last) == 1 and after - before == max(last) - max(first)):
            continue
        for epoch, number in enumerate(range(max(first) + 1, max(last) + 1), before + 1):
            change, u = changes[number], known.get(epoch - 1)
            if not change.is_printed or u is None:
                continue
            v = known.setdefault(epoch, Version(*change[:3], epoch))
            v.begin_by(*change[:3])
            v.learn(change)
            v.learn(u, ("leader", "isr"))
            if v.leader_epoch is None and u.leader_epoch is not None:
                v.leader_epoch = u.leader_epoch + (change.leader is not None)
            made[epoch] = {number}
            left.discard(number)
    return sorted(left)


def assign(
    versions: Sequence[Version], changes: Sequence[Change], made: Mapping[int | None, set[int]], facts: KRaftFacts
) -> None:
    """Gives versions the replicas that they had, where these are certain: as long as no change was made, and none may have been without a
    line; there too, if the replicas are the same before and after it.
    """
    last = [changes[max(made[v.epoch])] if len(made[v.epoch]) == 1 else None for v in versions]
    links: list[bool | None] = [None]
    for n, (u, v) in enumerate(pairwise(versions), 1):
        now = last[n]
        surely = now is not None and not may_hide(u, v, now, facts)
        links.append(surely if now is last[n - 1] is not None else None)
        if v.replicas is None and links[n] is None and surely and now is not None and now.is_printed:
            v.replicas = now.replicas
    known = [v.replicas for v in versions]
    before, after = _nearest(known, links), _nearest(known[::-1], [None, *links[:0:-1]])[::-1]
    for v, change, (one, is_sure), (other, other_is_sure) in zip(versions, last, before, after, strict=True):
        v.replicas = one if is_sure or (one is not None and one == other) else other if other_is_sure else None
        if change is not None and v.replicas is not None:
            v.learn(change, ("adding", "removing"))


def _nearest(known: Sequence[Ids | None], links: Iterable[bool | None]) -> list[tuple[Ids | None, bool]]:
    """What is known last up to each, and whether it surely holds on. links, to the one before: null: it does not."""
    found: list[tuple[Ids | None, bool]] = []
    held: Ids | None = None
    is_sure = False
    for one, link in zip(known, links, strict=False):
        held, is_sure = (one, True) if one is not None else (None, False) if link is None else (held, is_sure and link)
        found.append((held, is_sure))
    return found


def may_hide(u: Version, v: Version, held: Change, facts: KRaftFacts) -> bool:
    """Whether the assignment may have been changed from version u to v though no line says so.

    At INFO controllers print changes of AR and RR alone: not one that only removes or reorders replicas and so is complete at once
    (ReplicationControlManager.replay, PartitionChangeBuilder). Such a record raises the leader epoch if a replica leaves; it elects another
    leader only in the place of one that leaves.
    """
    since = None if u.is_read else u.ts
    if v.is_difference or facts.nothing_unexplained(since, v.ts):
        return False
    if held.is_moving or _records(u, v) > 1:
        return not (held.is_moving and facts.hears_controller(since, v.ts))
    if u.leader_epoch == v.leader_epoch:
        return u.isr is None or v.isr is None or same_set(u.isr, v.isr)
    stays = v.isr is not None and (same_set(v.isr, held.replicas) or (u.leader != v.leader and u.leader in v.isr))
    return v.leader != -1 and not stays
