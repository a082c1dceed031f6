"""What one partition of a KRaft cluster went through, from a dump of its metadata log: the truth itself, record by record.

As PartitionRegistration.merge() and the ReplicationControlManager (org.apache.kafka.controller) do it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from jobs.timelines.events import Event, Ids
from jobs.timelines.facts import IncarnationFacts
from jobs.timelines.kraft import RowBuilder, make_final, rows_of, shared_by
from jobs.timelines.kraft_assignments import Version
from jobs.timelines.kraft_facts import KRaftFacts
from jobs.timelines.rows import Final, Row, Rows


class Registration(NamedTuple):
    """What holds after a record."""

    version: Version
    elr: Ids
    last_known_elr: Ids


@dataclass
class History:
    """at: place in the log of the newest record; one before it makes the partition be read anew. covered: up to when a snapshot stands for the
    log. topic_id: of what holds. tail: rows after the final ones. ids: the topic ids that were known. shared: what the facts said about the log up to `at`.
    """

    at: float = -1
    count: int = 0
    covered: int | None = None
    topic_id: str | None = None
    held: Registration | None = None
    builder: RowBuilder = field(default_factory=RowBuilder)
    final: Final = field(default_factory=Final)
    tail: list[Row] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    shared: int = 0
    is_stale: bool = False


def fold(history: History, topic: str, events: Sequence[Event], facts: IncarnationFacts) -> Rows:
    """Continues a history, in place. events: records of this partition alone, of every topic id of its topic."""
    kraft = facts.kraft
    shared = _of_topic(topic, kraft)
    placed = _in_place(history, [e for e in events if e.topic_id in kraft.names], kraft)
    ids = list(kraft.topic_ids.get(topic, ()))
    # records that came before that of their topic were nobody's
    history.is_stale |= history.count > 0 and ids != history.ids
    history.ids = ids
    is_other = history.count > 0 and history.shared != _shared(history, topic, shared, kraft)
    history.is_stale |= is_other or any(at <= history.at for at, _ in placed)
    for at, e in sorted([*placed, *shared], key=lambda one: (one[0], one[1].record_id)):
        if at > history.at:
            history.at, history.count = at, history.count + 1
            _add(history, e)
    lives: list[list[Row]] = [[]]
    for row in history.tail:
        lives[-1].append(row)
        if row.state == "NonExistentPartition":
            lives.append([])
    result = rows_of(history.final, lives, facts)
    at_rest = [n for n, row in enumerate(history.tail) if row.replicas is not None and not (row.adding or row.removing)]
    if at_rest:
        make_final(history.final, result, history.tail[at_rest[-1]].pos, kraft.brokers)
        del history.tail[: at_rest[-1] + 1]
    history.shared = _shared(history, topic, shared, kraft)
    return result


def _of_topic(topic: str, facts: KRaftFacts) -> list[tuple[float, Event]]:
    """Records that remove a topic, and that clear ELRs of it or of all, at their places in the log."""
    removals = [e for which, e in facts.removals.items() if facts.names.get(which) == topic]
    clears = [e for e in facts.clears if e.topic in (topic, None, "")]
    return [(float(e.metadata_offset or 0), e) for e in (*removals, *clears)]


def _shared(history: History, topic: str, shared: Iterable[tuple[float, Event]], facts: KRaftFacts) -> int:
    """What tells whether the facts about the log up to `at` are as they were."""
    ids = sorted(e.record_id for at, e in shared if at <= history.at)
    return crc32(repr((ids, shared_by(history.final, -1, topic, facts))).encode())


def _in_place(history: History, events: Sequence[Event], facts: KRaftFacts) -> list[tuple[float, Event]]:
    """The records that count, at their places in the log.

    A snapshot numbers its records from 0; they stand for the log up to the last record that it covers. Where the log itself holds the
    creation of a partition, the snapshot of it says nothing new.
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


def _add(history: History, e: Event) -> None:
    """Adds the row that a record makes, if any."""
    if e.event_type == "remove_topic_record":
        if history.held and history.topic_id == e.topic_id:
            history.tail.append(history.builder.end(history.count, e.ts, e.record_id))
            history.held = None
        return
    if e.event_type == "partition_record" and history.topic_id != e.topic_id:
        history.topic_id, history.builder = e.topic_id, RowBuilder(history.builder.latest)
    before, history.held = history.held, merge(history.held, e, history.count)
    if history.held is not None and history.held is not before:
        history.tail.append(history.builder.row(history.held.version))


def merge(held: Registration | None, e: Event, pos: int) -> Registration | None:
    """What holds after a record; null before the creation of the partition, without which nothing is known.

    The partition epoch grows by one with each change, the leader epoch with each that names a leader, be it the same one. A record that
    clears ELRs (KIP-966) changes the partitions that have one.
    """
    adding, removing = e.adding_replicas, e.removing_replicas
    if e.event_type == "partition_record":
        lists = e.isr, e.replicas, adding or [], removing or []
        version = Version(pos, e.ts, e.record_id, e.partition_epoch, e.leader, e.leader_epoch, *lists)
        return Registration(version, e.elr or [], e.last_known_elr or [])
    if held is None or (e.event_type == "clear_elr_record" and not (held.elr or held.last_known_elr)):
        return held
    last = held.version
    epoch = None if last.epoch is None else last.epoch + 1
    leader_epoch = None if last.leader_epoch is None else last.leader_epoch + (e.leader is not None)
    version = Version(pos, e.ts, e.record_id, epoch, e.leader, leader_epoch, e.isr, e.replicas, adding, removing)
    version.learn(last)
    elr, last_known = held.elr if e.elr is None else e.elr, held.last_known_elr if e.last_known_elr is None else e.last_known_elr
    return Registration(version, elr, last_known)
