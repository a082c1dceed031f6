"""Fold the records of one partition of a KRaft cluster, from a dump of its metadata log.

Source: PartitionRegistration.merge() and ReplicationControlManager (org.apache.kafka.controller).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from jobs.timelines.event import Event, Ids
from jobs.timelines.facts import IncarnationFacts
from jobs.timelines.kraft import RowBuilder, make_final, rows_of, shared_by
from jobs.timelines.kraft_assignments import EpochVersion
from jobs.timelines.kraft_facts import KRaftFacts
from jobs.timelines.timeline_rows import Final, PartitionRows, Row


class Registration(NamedTuple):
    """The state of the partition after a record."""

    version: EpochVersion
    elr: Ids
    last_known_elr: Ids


@dataclass
class MetadataLogHistory:
    """The state of the fold.

    at: offset of the newest record; an earlier record makes the partition stale. covered: up to when a
    snapshot replaces the log.
    topic_id: of the registration. tail: rows after the final ones. ids: the known topic ids. shared: digest
    of the facts about the log up to `at`.
    """

    at: float = -1
    count: int = 0
    covered: int | None = None
    topic_id: str | None = None
    registration: Registration | None = None
    builder: RowBuilder = field(default_factory=RowBuilder)
    final: Final = field(default_factory=Final)
    tail: list[Row] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    shared: int = 0
    is_stale: bool = False


def fold(
    history: MetadataLogHistory, topic: str, events: Sequence[Event], facts: IncarnationFacts
) -> PartitionRows:
    """Continue a history in place and return its rows.

    events: records of this partition, of every topic id of its topic.
    """
    kraft = facts.kraft
    shared = _of_topic(topic, kraft)
    placed = _in_place(history, [e for e in events if e.topic_id in kraft.names], kraft)
    ids = list(kraft.topic_ids.get(topic, ()))
    # records before that of their topic belonged to no partition
    history.is_stale |= history.count > 0 and ids != history.ids
    history.ids = ids
    is_other = history.count > 0 and history.shared != _shared(history, topic, shared, kraft)
    history.is_stale |= is_other or any(at <= history.at for at, _ in placed)
    for at, e in sorted([*placed, *shared], key=lambda one: (one[0], one[1].record_id)):
        if at > history.at:
            history.at, history.count = at, history.count + 1
            _add(history, e)
    generations: list[list[Row]] = [[]]
    for row in history.tail:
        generations[-1].append(row)
        if row.state == "NonExistentPartition":
            generations.append([])
    result = rows_of(history.final, generations, facts)
    at_rest = [
        n
        for n, row in enumerate(history.tail)
        if row.replicas is not None and not (row.adding or row.removing)
    ]
    if at_rest:
        make_final(history.final, result, history.tail[at_rest[-1]].pos, kraft.brokers)
        del history.tail[: at_rest[-1] + 1]
    history.shared = _shared(history, topic, shared, kraft)
    return result


def _of_topic(topic: str, facts: KRaftFacts) -> list[tuple[float, Event]]:
    """Return the records that remove a topic, or clear ELRs of it or of all topics, with their offsets."""
    removals = [e for which, e in facts.removals.items() if facts.names.get(which) == topic]
    clears = [e for e in facts.clears if e.topic in (topic, None, "")]
    return [(float(e.metadata_offset or 0), e) for e in (*removals, *clears)]


def _shared(
    history: MetadataLogHistory, topic: str, shared: Iterable[tuple[float, Event]], facts: KRaftFacts
) -> int:
    """Return a digest of the facts about the log up to `at`."""
    ids = sorted(e.record_id for at, e in shared if at <= history.at)
    return crc32(repr((ids, shared_by(history.final, -1, topic, facts))).encode())


def _in_place(
    history: MetadataLogHistory, events: Sequence[Event], facts: KRaftFacts
) -> list[tuple[float, Event]]:
    """Return the records that count, with their offsets.

    A snapshot numbers its records from 0; they replace the log up to the last record that it covers. If the
    log itself has the creation of a partition, the snapshot of it has nothing new.
    """
    logged = [e for e in events if e.file not in facts.snapshots]
    found = [(float(e.metadata_offset or 0), e) for e in logged]
    created = {e.topic_id for e in logged if e.event_type == "partition_record"}
    for e in events:
        covered = facts.snapshots.get(e.file)
        if covered is None or e.event_type != "partition_record" or e.topic_id in created:
            continue
        history.is_stale |= history.count > 0
        history.covered = max(covered, history.covered or 0)
        found.append((max((at for at, one in found if (one.ts or 0) <= covered), default=-1) + 0.5, e))
    history.is_stale |= history.count > 0 and any((e.ts or 0) <= (history.covered or -1) for e in logged)
    return found


def _add(history: MetadataLogHistory, e: Event) -> None:
    """Add the row of a record, if it changes the partition."""
    if e.event_type == "remove_topic_record":
        if history.registration and history.topic_id == e.topic_id:
            # the clocks of controllers differ: a topic is not removed before its last change
            removed = max((at for at in (history.builder.latest, e.ts) if at is not None), default=None)
            history.tail.append(history.builder.end(history.count, removed, e.record_id))
            history.registration = None
        return
    if e.event_type == "partition_record" and history.topic_id != e.topic_id:
        history.topic_id, history.builder = e.topic_id, RowBuilder(history.builder.latest)
    before, history.registration = history.registration, merge(history.registration, e, history.count)
    if history.registration is not None and history.registration is not before:
        history.tail.append(history.builder.row(history.registration.version))


def merge(before: Registration | None, e: Event, pos: int) -> Registration | None:
    """Return the state after a record; None before the creation of the partition.

    The partition epoch grows by one with each change, the leader epoch with each change that names a leader,
    even the same one. A record that clears ELRs (KIP-966) changes the partitions that have one.
    """
    adding, removing = e.adding_replicas, e.removing_replicas
    if e.event_type == "partition_record":
        lists = e.isr, e.replicas, adding or [], removing or []
        version = EpochVersion(pos, e.ts, e.record_id, e.partition_epoch, e.leader, e.leader_epoch, *lists)
        return Registration(version, e.elr or [], e.last_known_elr or [])
    if before is None or (e.event_type == "clear_elr_record" and not (before.elr or before.last_known_elr)):
        return before
    last = before.version
    epoch = None if last.epoch is None else last.epoch + 1
    leader_epoch = None if last.leader_epoch is None else last.leader_epoch + (e.leader is not None)
    version = EpochVersion(
        pos, e.ts, e.record_id, epoch, e.leader, leader_epoch, e.isr, e.replicas, adding, removing
    )
    version.learn(last)
    elr = before.elr if e.elr is None else e.elr
    last_known = before.last_known_elr if e.last_known_elr is None else e.last_known_elr
    return Registration(version, elr, last_known)
