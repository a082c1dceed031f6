"""ZooKeeper mode: order the versions of a partition's state znode (leader, leader epoch, ISR).

The version of the znode is the partition epoch. All lines that name it are about one version, whatever their
clock. Lines without it (most up to 2.6) are ordered by their time, unless a version with an epoch has the
same values.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from jobs.timelines.event import Ids, in_any_order, same_set, with_next

Values = tuple[int | None, int | None, tuple[int, ...] | None]


@dataclass(slots=True)
class ZnodeVersion:
    """One version of the znode: the values in lines of a partition epoch or, without an epoch, of a moment.

    keeps: fields that are as in the version before (`keeps` of the rules). elects: it elects a leader of an
    online partition. is_counted: no line prints the epoch; it only orders the version. is_by_leader: the
    leader wrote it, up to 2.6. is_written: its writer prints it; requests may have older values. begun: the
    leader epoch in which the leader that wrote it began to lead.
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

    def copy(self) -> "ZnodeVersion":
        """Return a copy that can be changed."""
        return ZnodeVersion(*(getattr(self, name) for name in self.__slots__))

    @property
    def values(self) -> Values:
        """Return the values that identify a version without an epoch."""
        return self.leader, self.leader_epoch, in_any_order(self.isr)

    @property
    def is_whole(self) -> bool:
        """Return whether all values are known and printed."""
        return (
            None not in (self.epoch, self.leader, self.leader_epoch, self.isr)
            and not self.is_counted
            and not self.inferred
        )

    def learn(self, other: "ZnodeVersion", names: Iterable[str] = ("leader", "leader_epoch", "isr")) -> None:
        """Fill unknown values from another version."""
        for name in names:
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))


class ProposedIsr(NamedTuple):
    """An ISR that a leader is about to write (up to 2.3 no line shows that it was written)."""

    pos: int
    ts: int | None
    record_id: str
    writer: int | None
    before: Ids | None
    isr: Ids | None


class LeaderWrite(NamedTuple):
    """A proposed ISR that became a version, or probably did.

    proof: the leader's next proposal, which begins with this ISR.
    """

    version: ZnodeVersion
    is_proven: bool
    proof_pos: int | None
    proof_ts: int | None


def in_order(
    printed: Mapping[int, ZnodeVersion],
    loose: Sequence[ZnodeVersion],
    proposed: Sequence[ProposedIsr],
    caught_up: Sequence[tuple[int, int | None, str]],
    printed_values: set[Values],
) -> list[ZnodeVersion]:
    """Return the versions in order, with all known values and the position where each began.

    printed: by partition epoch. loose: versions without one. caught_up: position, time and record of lines
    that the target replicas of a reassignment have caught up. printed_values: values of final versions with
    an epoch.
    """
    known = {epoch: version.copy() for epoch, version in printed.items()}
    writes = leader_writes(proposed, known)
    for write in writes:
        if write.is_proven:
            version = replace(
                write.version,
                inferred=False,
                pos=_END if write.proof_pos is None else write.proof_pos,
                ts=write.proof_ts,
            )
            assert version.epoch is not None
            known.setdefault(version.epoch, version).learn(version)
    values = printed_values | {version.values for version in known.values()}
    ordered = [known[epoch] for epoch in sorted(known)]
    # a version began no later than the first line about it or about a later version
    for later, version in pairwise(reversed(ordered)):
        if later.pos < version.pos:
            version.pos, version.ts = later.pos, later.ts
    for before, version in pairwise(ordered):
        if _follows(before, version):
            version.learn(before, version.keeps)
    _learn_leader_epochs(ordered)
    found = [
        *ordered,
        *(
            w.version
            for w in writes
            if w.version.epoch not in known or w.version.pos < known[w.version.epoch].pos
        ),
        *_unexplained(ordered, loose, values),
        *_before_election(caught_up, ordered),
    ]
    return found


# an unknown leader epoch
_UNKNOWN = -2
# later than all lines: a write that only later epochs prove begins no later than these
_END = 1 << 62


def _follows(before: ZnodeVersion, version: ZnodeVersion) -> bool:
    return before.epoch is not None and version.epoch == before.epoch + 1


def _learn_leader_epochs(ordered: Iterable[ZnodeVersion]) -> None:
    """Set the leader epoch of leaders' writes, if the epochs since a version with both epochs prove it.

    A controller raises both epochs by one, a leader only the partition epoch. So the difference of their
    growth is the number of leaders' writes. If leaders print that number, no controller has written since the
    leader began.
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


def _unexplained(
    ordered: Sequence[ZnodeVersion], loose: Iterable[ZnodeVersion], values: set[Values]
) -> Iterator[ZnodeVersion]:
    """Yield versions without an epoch that no version with an epoch explains, and that are not outdated.

    Controllers raise leader epochs, and so know them; they learn an ISR that a leader wrote seconds later. So
    a version without an epoch, in the leader epoch of a leader's write, is older than that write.
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


def leader_writes(proposed: Sequence[ProposedIsr], known: Mapping[int, ZnodeVersion]) -> list[LeaderWrite]:
    """Return the writes of leaders, up to 2.3. known: versions by partition epoch.

    A controller's write raises leader epoch and partition epoch by one, a leader's write only the partition
    epoch. A leader writes only if the partition epoch is the one that it knows. So the n-th proposal since
    the begin of the leader epoch is n partition epochs later. A proposal counts if it begins with the ISR of
    its leader epoch or of the proposal before. It is proven by the next proposal, or by a later version whose
    epochs leave room for it; without both, and if nothing later is known, it is only probable.
    """
    by_leader_epoch: dict[int, list[ZnodeVersion]] = defaultdict(list)
    of_epoch: dict[int, list[ProposedIsr]] = defaultdict(list)
    newest = -1
    versions = [version for version in known.values() if version.leader_epoch is not None] if proposed else []
    both: list[ZnodeVersion | ProposedIsr] = [*versions, *proposed]
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
        for write in _writes_of(
            leader_epoch, its, by_leader_epoch, by_leader_epoch.get(later.get(leader_epoch, -1), [])
        )
    ]


def _writes_of(
    leader_epoch: int,
    its: Sequence[ProposedIsr],
    by_leader_epoch: Mapping[int, Sequence[ZnodeVersion]],
    later: Sequence[ZnodeVersion],
) -> Iterator[LeaderWrite]:
    """Yield the writes of one leader epoch.

    its: its proposals; later: versions of the next known leader epoch.
    """
    own = by_leader_epoch[leader_epoch]
    begun = min(own, key=_epoch)
    assert begun.epoch is not None
    limit = min(map(_epoch, later), default=None)
    # another leader epoch, which is not logged, may have begun before any of these
    is_current = leader_epoch > min(by_leader_epoch) or any(v.is_written for v in own)
    is_certain = is_current and all(v.leader_epoch == leader_epoch + 1 for v in later)
    # writes by leaders since the creation of the partition, by the difference of the two epochs
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
            version = ZnodeVersion(
                one.pos,
                one.ts,
                one.record_id,
                epoch,
                *values,
                is_counted=True,
                inferred=True,
                is_by_leader=True,
            )
            yield LeaderWrite(version, is_proven, *(after[:2] if by_next else (None, None)))


def _epoch(version: ZnodeVersion) -> int:
    assert version.epoch is not None
    return version.epoch


def _before_election(
    caught_up: Iterable[tuple[int, int | None, str]], ordered: Sequence[ZnodeVersion]
) -> Iterator[ZnodeVersion]:
    """Yield the version in which all target replicas were in the ISR, if no line prints it.

    A reassignment election changes the leader and keeps the ISR (ReassignPartitionLeaderElectionStrategy), so
    the election prints the ISR before it. The controller prints the time of that: `have all caught up`.
    """
    caught_up = list(caught_up)
    for before, after in pairwise(ordered) if caught_up else ():
        raised = before.leader_epoch is not None and after.leader_epoch == before.leader_epoch + 1
        if after.elects and raised and after.isr is not None and _epoch(after) - _epoch(before) > 1:
            for mark in caught_up:
                if before.pos < mark[0] < after.pos:
                    yield ZnodeVersion(
                        *mark, _epoch(after) - 1, before.leader, before.leader_epoch, after.isr, inferred=True
                    )


def before_all(found: Sequence[ZnodeVersion]) -> Iterator[ZnodeVersion]:
    """Yield the version before the first logged one, if that is known to keep leader and ISR."""
    first = min(found, key=lambda v: (v.pos, v.epoch or -1), default=None)
    if first and {"leader", "isr"} <= set(first.keeps) and first.leader is not None and first.isr is not None:
        epoch, leader_epoch = (None if one is None else one - 1 for one in (first.epoch, first.leader_epoch))
        yield ZnodeVersion(
            0, None, first.record_id, epoch, first.leader, leader_epoch, first.isr, inferred=True
        )
