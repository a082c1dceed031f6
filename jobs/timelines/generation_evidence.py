"""ZooKeeper mode: find a new generation of a topic whose deletion is not logged.

Partition epochs and leader epochs start again with a topic and only grow until its end. No topic id is used
twice (KIP-516, from 2.8 on).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from zlib import crc32

from jobs.timelines.cluster_evidence import CONTROLLER_LOG, log_of
from jobs.timelines.event import Event
from jobs.timelines.facts import IncarnationFacts
from parsers.meanings import event_types

LEADER_STARTED = "leader_started"
# a broker does this on request of a controller, and only in later leader epochs
STARTED = event_types("starts_replica")


class WrittenEpochs(NamedTuple):
    """Epochs that a controller writes or sends.

    An elected controller reads them first, so partition epochs never fall.
    """

    controller_epoch: int
    partition_epoch: int

    @classmethod
    def by(cls, e: Event, facts: IncarnationFacts) -> Self | None:
        """Return the epochs of an event; None: no controller wrote it, or it names no partition epoch."""
        if e.partition_epoch is None or not e.is_present:
            return None
        epoch = e.controller_epoch
        if epoch is None and log_of(e.logger) == CONTROLLER_LOG:
            epoch = facts.controller_epoch_of(e)
        return None if epoch is None else cls(epoch, e.partition_epoch)


class Start(NamedTuple):
    """The moment at which a broker began to lead or to follow, and its leader epoch.

    file: checksum of the file's name.
    """

    leader_epoch: int
    ts: int
    file: int
    record_no: int

    @classmethod
    def by(cls, e: Event) -> Self | None:
        """Return the start of an event; None: it names no leader epoch."""
        if e.leader_epoch is None:
            return None
        return cls(e.leader_epoch, e.ts or 0, crc32(e.file.encode()), e.record_no)

    def is_later_than(self, other: Self) -> bool:
        """Return whether it was written later; within one file the order of lines decides, not the clock."""
        return self.ts > other.ts and (self.file != other.file or self.record_no > other.record_no)


NONE_WRITTEN = WrittenEpochs(-1, -1)


@dataclass
class GenerationEvidence:
    """The evidence that identifies one generation of a topic.

    written: the newest partition epoch of the newest controller. topic_id: as leaders name it; a broker that
    finds a folder may name an old one. started: broker -> its last start.
    """

    written: WrittenEpochs = NONE_WRITTEN
    topic_id: str | None = None
    started: dict[int | None, Start] = field(default_factory=dict)

    def shows_another(self, e: Event, written: WrittenEpochs | None, *, is_deleted: bool) -> bool:
        """Return whether an event is of another generation.

        written: its epochs. is_deleted: whether this one's end was seen.
        """
        if written is not None:
            is_later = written.controller_epoch > self.written.controller_epoch
            return is_later and (is_deleted or written.partition_epoch < self.written.partition_epoch)
        if e.event_type not in STARTED:
            return False
        start, before = Start.by(e), self.started.get(e.node)
        if start and before and start.leader_epoch < before.leader_epoch:
            return start.is_later_than(before)
        return (
            e.event_type == LEADER_STARTED
            and None not in (self.topic_id, e.topic_id)
            and self.topic_id != e.topic_id
        )

    def add(self, e: Event, written: WrittenEpochs | None) -> None:
        """Add what an event of this generation shows."""
        if written is not None:
            self.written = max(self.written, written)
        elif e.event_type in STARTED:
            if start := Start.by(e):
                self.started[e.node] = max(self.started.get(e.node, start), start)
            if e.event_type == LEADER_STARTED and e.topic_id is not None:
                self.topic_id = e.topic_id

    def led_since(self, node: int | None) -> int | None:
        """Return the leader epoch in which a broker last began to lead or to follow."""
        return self.started[node].leader_epoch if node in self.started else None

    def to_plain(self) -> list[Any]:
        """Return plain values for `of_plain`."""
        return [self.written, self.topic_id, [(broker, *one) for broker, one in self.started.items()]]

    @classmethod
    def of_plain(cls, plain: list[Any]) -> Self:
        """Build from the plain values of `to_plain`."""
        written, topic_id, started = plain
        return cls(WrittenEpochs(*written), topic_id, {broker: Start(*one) for broker, *one in started})
