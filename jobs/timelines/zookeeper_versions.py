"""ZooKeeper mode: the versions of a partition's state znode (leader, leader epoch, ISR), put in Kafka's own order.

The version of the znode is the partition epoch. Lines that name it are lines about one version, whatever clock wrote them; lines that do
not (up to 2.6 most) stand where their time puts them, unless a version with an epoch has the same values.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from jobs.timelines.events import Ids, in_any_order, same_set, with_next

Values = tuple[int | None, int | None, tuple[int, ...] | None]


@dataclass(slots=True)
class Version:
    """What lines say of one version of the znode: of a partition epoch or, where they print none, of a moment.

    keeps: fields that are as in the version before (`keeps` of the rules). elects: it elects a leader of an online partition. is_counted:
    no line prints the epoch; it orders the version and is not told. is_by_leader: the leader wrote it, up to 2.6.
    is_written: who wrote it prints it; requests may carry what was before. begun: the leader epoch in which its leader, who wrote it, began to lead.
    """

    pos: int
    ts: int | None
    record_id: str
    epoch: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: Ids | None = None
    keeps: tuple[str, ...] = ()
    elects: bool = False
    is_counted: bool = False
    inferred: bool = False
    is_by_leader: bool = False
    is_written: bool = False
    begun: int | None = None

    def copy(self) -> "Version":
        """The same, to be changed."""
        return Version(*(getattr(self, name) for name in self.__slots__))

    @property
    def values(self) -> Values:
        """What makes two versions one where an epoch is not printed."""
        return self.leader, self.leader_epoch, in_any_order(self.isr)

    @property
    def is_whole(self) -> bool:
        """Whether everything is known and printed."""
        return None not in (self.epoch, self.leader, self.leader_epoch, self.isr) and not self.is_counted and not self.inferred

    def learn(self, other: "Version", names: Iterable[str] = ("leader", "leader_epoch", "isr")) -> None:
        """Fills what is not known yet."""
        for name in names:
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))


class ProposedIsr(NamedTuple):
    """A leader is about to write an ISR (up to 2.3 no line says that it did)."""

    pos: int
    ts: int | None
    record_id: str
    writer: int | None
    before: Ids | None
    isr: Ids | None


class LeaderWrite(NamedTuple):
    """A proposed ISR that became a version, or is likely to have. proof: the leader's next proposal, which begins with this ISR."""

    version: Version
    is_proven: bool
    proof_pos: int | None
    proof_ts: int | None


def in_order(
    printed: Mapping[int, Version],
    loose: Sequence[Version],
    proposed: Sequence[ProposedIsr],
    caught_up: Sequence[tuple[int, int | None, str]],
    printed_values: set[Values],
) -> list[Version]:
    """The versions with what is known of each, and where in the history of the partition each began.

    printed: by partition epoch. loose: without one. caught_up: position, time and record of when the target replicas of a reassignment
    were. printed_values: of versions with an epoch that are final.
    """
    known = {epoch: version.copy() for epoch, version in printed.items()}
    writes = leader_writes(proposed, known)
    for write in writes:
        if write.is_proven:
            version = replace(
                write.version, inferred=False, pos=_END if write.proof_pos is None else write.proof_pos, ts=write.proof_ts
            )
            assert version.epoch is not None
            known.setdefault(version.epoch, version).learn(version)
    values = printed_values | {version.values for version in known.values()}
    ordered = [known[epoch] for epoch in sorted(known)]
    # it began no later than the first line about it, and than any line about a later one
    for later, version in pairwise(reversed(ordered)):
        if later.pos < version.pos:
            version.pos, version.ts = later.pos, later.ts
    for before, version in pairwise(ordered):
        if _follows(before, version):
            version.learn(before, version.keeps)
    _learn_leader_epochs(ordered)
    found = [
        *ordered,
        *(w.version for w in writes if w.version.epoch not in known or w.version.pos < known[w.version.epoch].pos),
        *_unexplained(ordered, loose, values),
        *_before_election(caught_up, ordered),
    ]
    return found


# a leader epoch that no line tells
_UNKNOWN = -2
# later than all that is told: a write that is proven by the room that later epochs leave begins no later than they do
_END = 1 << 62


def _follows(before: Version, version: Version) -> bool:
    return before.epoch is not None and version.epoch == before.epoch + 1


def _learn_leader_epochs(ordered: Iterable[Version]) -> None:
    """Gives what leaders wrote the leader epoch in which they began to lead, where the epochs since a version that has both prove it.

    A controller raises both by one, a leader the partition epoch alone; so what the partition epoch has grown more than the leader epoch is
    what leaders wrote. If that is as much as they print, no controller has written since the leader began.
    """
    base, writes = None, 0
    for version in ordered:
        writes += version.is_by_leader
        if version.leader_epoch is None and version.begun is not None and base is not None:
            epoch, leader_epoch = base
            if _epoch(version) - epoch - (version.begun - leader_epoch) == writes:
                version.leader_epoch = version.begun
        if version.leader_epoch is not None:
            base, writes = (_epoch(version), version.leader_epoch), 0


def _unexplained(ordered: Sequence[Version], loose: Iterable[Version], values: set[Values]) -> Iterator[Version]:
    """Versions told without an epoch, less those that one with an epoch explains, and those older than their time.

    Leader epochs are raised by controllers, who know them; an ISR that a leader wrote they learn seconds later. So what is told without an
    epoch in the leader epoch of such a version is older than that.
    """
    newest = -1
    learning: int | None = None
    for version in sorted([*ordered, *loose], key=lambda v: v.pos):
        leader_epoch = -1 if version.leader_epoch is None else version.leader_epoch
        if version.epoch is not None:
            learning = version.leader_epoch if version.is_by_leader else learning
            is_unknown = version.is_by_leader and version.leader_epoch is None
            learning = _UNKNOWN if is_unknown else learning
        elif version.values not in values and leader_epoch >= newest:
            if learning not in (_UNKNOWN, leader_epoch):
                yield version
            learning = leader_epoch if learning == _UNKNOWN else learning
        newest = max(newest, leader_epoch)


def leader_writes(proposed: Sequence[ProposedIsr], known: Mapping[int, Version]) -> list[LeaderWrite]:
    """What leaders wrote themselves, up to 2.3. known: versions by partition epoch.

    A write of the controller raises leader epoch and partition epoch by one, one of the leader the partition epoch alone, and a leader
    writes on condition that the partition epoch is the one it knows. So the n-th proposal since the leader epoch began makes its
    partition epoch plus n. It counts where it begins with the ISR of its leader epoch or of the proposal before it; the next proposal
    proves it, or a later version whose two epochs leave room for it. If neither is there and nothing later is known, it is likely and no
    more.
    """
    by_leader_epoch: dict[int, list[Version]] = defaultdict(list)
    of_epoch: dict[int, list[ProposedIsr]] = defaultdict(list)
    newest = -1
    versions = [version for version in known.values() if version.leader_epoch is not None] if proposed else []
    both: list[Version | ProposedIsr] = [*versions, *proposed]
    for one in sorted(both, key=lambda one: one.pos):
        if isinstance(one, ProposedIsr):
            of_epoch[newest].append(one)
        else:
            assert one.leader_epoch is not None
            by_leader_epoch[one.leader_epoch].append(one)
            newest = max(newest, one.leader_epoch)
    of_epoch.pop(-1, None)
    later = dict(pairwise(sorted(by_leader_epoch)))
    return [
        write
        for leader_epoch, its in of_epoch.items()
        for write in _writes_of(leader_epoch, its, by_leader_epoch, by_leader_epoch.get(later.get(leader_epoch, -1), []))
    ]


def _writes_of(
    leader_epoch: int, its: Sequence[ProposedIsr], by_leader_epoch: Mapping[int, Sequence[Version]], later: Sequence[Version]
) -> Iterator[LeaderWrite]:
    """Those in one leader epoch. its: what was proposed in it; later: versions of the next leader epoch that is known."""
    own = by_leader_epoch[leader_epoch]
    begun = min(own, key=_epoch)
    assert begun.epoch is not None
    limit = min(map(_epoch, later), default=None)
    # another leader epoch, of which nothing is here, may have begun before any of these
    is_current = leader_epoch > min(by_leader_epoch) or any(v.is_written for v in own)
    is_certain = is_current and all(v.leader_epoch == leader_epoch + 1 for v in later)
    # writes by leaders since the partition was created, as far as the two epochs tell
    room = max(_epoch(v) - (v.leader_epoch or 0) for v in (*own, *by_leader_epoch.get(leader_epoch + 1, ())))
    linked = [begun.leader == its[0].writer and same_set(begun.isr, its[0].before)]
    linked += [one.writer == after.writer and same_set(one.isr, after.before) for one, after in pairwise(its)]
    for n, (one, after) in enumerate(with_next(its)):
        epoch = begun.epoch + n + 1
        if not linked[n] or (limit is not None and epoch >= limit):
            return
        by_next = after is not None and linked[n + 1]
        is_proven = by_next or room >= epoch - leader_epoch
        if is_proven or (after is None and limit is None):
            values = one.writer, leader_epoch if is_certain else None, one.isr
            version = Version(one.pos, one.ts, one.record_id, epoch, *values, is_counted=True, inferred=True, is_by_leader=True)
            yield LeaderWrite(version, is_proven, *(after[:2] if by_next else (None, None)))


def _epoch(version: Version) -> int:
    assert version.epoch is not None
    return version.epoch


def _before_election(caught_up: Iterable[tuple[int, int | None, str]], ordered: Sequence[Version]) -> Iterator[Version]:
    """The version in which all target replicas were in the ISR, where no line prints it.

    A reassignment election changes the leader and leaves the ISR (ReassignPartitionLeaderElectionStrategy), so the ISR that the election
    prints is the one before it; the controller says when that was so: `have all caught up`.
    """
    caught_up = list(caught_up)
    for before, after in pairwise(ordered) if caught_up else ():
        raised = before.leader_epoch is not None and after.leader_epoch == before.leader_epoch + 1
        if after.elects and raised and after.isr is not None and _epoch(after) - _epoch(before) > 1:
            for mark in caught_up:
                if before.pos < mark[0] < after.pos:
                    yield Version(*mark, _epoch(after) - 1, before.leader, before.leader_epoch, after.isr, inferred=True)


def before_all(found: Sequence[Version]) -> Iterator[Version]:
    """What held before the first version that the logs show, where its change is known to have kept leader and ISR."""
    first = min(found, key=lambda v: (v.pos, v.epoch or -1), default=None)
    if first and {"leader", "isr"} <= set(first.keeps) and first.leader is not None and first.isr is not None:
        epoch, leader_epoch = (None if one is None else one - 1 for one in (first.epoch, first.leader_epoch))
        yield Version(0, None, first.record_id, epoch, first.leader, leader_epoch, first.isr, inferred=True)
