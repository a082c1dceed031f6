"""Define events, their order, and lists of ids. Plain Python: no Spark, no I/O, no clock."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

Ids = Sequence[int]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# a tool's output about a partition, which is no line of a log; `logger` names the tool
CHECKPOINT = "checkpoint"


class Event(NamedTuple):
    """A row of table `events` with the columns that timelines use. ts: microseconds since 1970 UTC."""

    record_id: str
    item: int
    node: int | None
    file: str
    record_no: int
    ts: int | None
    level: str | None
    logger: str | None
    event_type: str
    says: str | None
    topic: str | None = None
    partition: int | None = None
    replica: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    controller: int | None = None
    controller_epoch: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: Ids | None = None
    partition_epoch: int | None = None
    replicas: Ids | None = None
    adding_replicas: Ids | None = None
    removing_replicas: Ids | None = None
    target_replicas: Ids | None = None
    previous_isr: Ids | None = None
    topic_id: str | None = None
    broker: int | None = None
    broker_epoch: int | None = None
    partitions_named: int | None = None
    error_code: str | None = None
    cluster_id: str | None = None
    kafka_version: str | None = None
    text: str | None = None
    elr: Ids | None = None
    last_known_elr: Ids | None = None
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    quorum_node: int | None = None
    raft_epoch: int | None = None
    metadata_offset: int | None = None
    brokers: Ids | None = None
    rack: str | None = None
    config: str | None = None
    config_value: str | None = None
    request: str | None = None
    error_class: str | None = None

    @property
    def is_present(self) -> bool:
        """Return whether it shows a state, and not a request or a failure."""
        return self.says in ("happened", "is")


EVENT_COLUMNS: tuple[str, ...] = Event._fields
_OF_CLUSTERS = (
    "broker_epoch",
    "partitions_named",
    "error_code",
    "cluster_id",
    "kafka_version",
    "fenced",
    "in_controlled_shutdown",
    "quorum_node",
    "raft_epoch",
    "brokers",
    "rack",
    "config",
    "config_value",
    "request",
    "error_class",
)
_OF_PARTITIONS = ("leader_epoch",)
# lists of brokers with replicas of a partition
MEMBER_LISTS = (
    "isr",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "target_replicas",
    "previous_isr",
    "elr",
    "last_known_elr",
)
# other columns may be null in the events that a partition is folded from, and in those that cluster evidence
# is built from
PARTITION_COLUMNS = tuple(name for name in EVENT_COLUMNS if name not in _OF_CLUSTERS)
EVIDENCE_COLUMNS = tuple(name for name in EVENT_COLUMNS if name not in _OF_PARTITIONS)


def moment_of(microseconds: int) -> datetime:
    """Return the moment of microseconds since 1970, UTC."""
    return EPOCH + timedelta(microseconds=microseconds)


class PartitionKey(NamedTuple):
    """A partition of one incarnation of a cluster."""

    incarnation: int
    topic: str
    partition: int


def with_next(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each item with the one after it; None after the last."""
    return pairwise([*items, None])


def without(ids: Ids | None, others: Ids | None) -> list[int] | None:
    """Return the ids that are not among others, each once, in their order."""
    return None if ids is None or others is None else [one for one in dict.fromkeys(ids) if one not in others]


def same_set(ids: Ids | None, others: Ids | None) -> bool:
    """Return whether both lists are known and have the same ids."""
    return ids is not None and others is not None and set(ids) == set(others)


def in_any_order(ids: Ids | None) -> tuple[int, ...] | None:
    """Return a value that is equal for lists with the same ids in any order."""
    return None if ids is None else tuple(sorted(ids))
