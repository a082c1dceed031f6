"""ZooKeeper mode: what tells that a topic is another one than before, where no line shows that it was deleted and created anew.

Partition epochs and leader epochs begin again with a topic and only grow till its end, and no topic id is used twice (KIP-516, from 2.8 on).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from zlib import crc32

from jobs.timelines.cluster_evidence import CONTROLLER_LOG, log_of
from jobs.timelines.events import Event
from jobs.timelines.facts import IncarnationFacts
from parsers.meanings import event_types

LEADER_STARTED = "leader_started"
# what a broker does on the word of a controller, in later leader epochs alone
STARTED = event_types("starts_replica")


class Told(NamedTuple):
    """What a controller writes or sends. Once elected it reads what was written before, so a later one never tells of an earlier partition epoch."""

    controller_epoch: int
    partition_epoch: int

    @classmethod
    def by(cls, e: Event, facts: IncarnationFacts) -> Self | None:
        """Null where it is no word of a controller, or names no partition epoch."""
        if e.partition_epoch is None or not e.is_present:
            return None
        epoch = e.controller_epoch
        if epoch is None and log_of(e.logger) == CONTROLLER_LOG:
            epoch = facts.controller_epoch_of(e)
        return None if epoch is None else cls(epoch, e.partition_epoch)


class Start(NamedTuple):
    """When a broker began to lead or to follow, in which leader epoch. file: a checksum of its name."""

    leader_epoch: int
    ts: int
    file: int
    record_no: int

    @classmethod
    def by(cls, e: Event) -> Self | None:
        """Null where it names no leader epoch."""
        if e.leader_epoch is None:
            return None
        return cls(e.leader_epoch, e.ts or 0, crc32(e.file.encode()), e.record_no)

    def is_later_than(self, other: Self) -> bool:
        """Whether it was written later; within one file the order of lines tells, whatever the clock did."""
        return self.ts > other.ts and (self.file != other.file or self.record_no > other.record_no)


NOTHING_TOLD = Told(-1, -1)


@dataclass
class GenerationEvidence:
    """What is known of one life. told: what the newest controller told of the newest version. topic_id: as leaders name it; a broker that
    finds a folder may name one of the past. started: broker -> its last start.
    """

    told: Told = NOTHING_TOLD
    topic_id: str | None = None
    started: dict[int | None, Start] = field(default_factory=dict)

    def shows_another(self, e: Event, told: Told | None, *, is_gone: bool) -> bool:
        """Whether an event is about another life. told: what it is as a controller's word. is_gone: this one's end was seen."""
        if told is not None:
            is_later = told.controller_epoch > self.told.controller_epoch
            return is_later and (is_gone or told.partition_epoch < self.told.partition_epoch)
        if e.event_type not in STARTED:
            return False
        start, before = Start.by(e), self.started.get(e.node)
        if start and before and start.leader_epoch < before.leader_epoch:
            return start.is_later_than(before)
        return e.event_type == LEADER_STARTED and None not in (self.topic_id, e.topic_id) and self.topic_id != e.topic_id

    def add(self, e: Event, told: Told | None) -> None:
        """Adds what an event of this life shows."""
        if told is not None:
            self.told = max(self.told, told)
        elif e.event_type in STARTED:
            if start := Start.by(e):
                self.started[e.node] = max(self.started.get(e.node, start), start)
            if e.event_type == LEADER_STARTED and e.topic_id is not None:
                self.topic_id = e.topic_id

    def led_since(self, node: int | None) -> int | None:
        """The leader epoch in which a broker began to lead or to follow last."""
        return self.started[node].leader_epoch if node in self.started else None

    def to_plain(self) -> list[Any]:
        """As `of_plain` takes it."""
        return [self.told, self.topic_id, [(broker, *one) for broker, one in self.started.items()]]

    @classmethod
    def of_plain(cls, held: list[Any]) -> Self:
        """Of what `to_plain` gives."""
        told, topic_id, started = held
        return cls(Told(*told), topic_id, {broker: Start(*one) for broker, *one in started})
