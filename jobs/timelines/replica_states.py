"""ZooKeeper mode: in which state the controller held every replica of a partition.

Where the log prints `Changed state of replica` (state.change.logger at TRACE: the default up to 2.5), that is it. From 2.6 on the default
is INFO, and the states follow from other lines of the controller.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from jobs.timelines.events import Event, Ids, without
from jobs.timelines.kraft_facts import Standing
from jobs.timelines.rows import Assigned, less_repeated
from parsers.meanings import event_types

# what the controller does with the replica that a line names, beside printing the line (kafka.controller.*, 2.6 to 3.9): `after removing
# replica` is printed while that replica goes offline; the rest is the TopicDeletionManager's
OF_NAMED_REPLICA = (
    dict.fromkeys(event_types("makes_replica_offline"), "OfflineReplica")
    | dict.fromkeys(event_types("makes_replica_ineligible"), "ReplicaDeletionIneligible")
    | dict.fromkeys(event_types("makes_replica_deleted"), "ReplicaDeletionSuccessful")
)


class ReplicaState(NamedTuple):
    """A replica was in a state from then on. from_state: that before it, where the line says."""

    pos: int
    ts: int | None
    record_id: str
    replica: int
    state: str
    from_state: str | None = None
    inferred: bool = False


def printed_state(e: Event, pos: int) -> Iterator[ReplicaState]:
    """The state that a line prints: an applied change, or the map that a starting controller prints."""
    is_applied = e.says == "happened" and e.event_type == "replica_state_changed"
    if e.replica is not None and e.to_state is not None and (is_applied or e.says == "is"):
        yield ReplicaState(pos, e.ts, e.record_id, e.replica, e.to_state, e.from_state)


def inferred_states(e: Event, pos: int, held: Assigned | None) -> Iterator[ReplicaState]:
    """States that follow from a line of a node that prints none. held: the assignment so far.

    onNewPartitionCreation makes the replicas with the partition; a reassignment makes the added replicas when it begins (A2), and the old
    ones are gone when the assignment without them is written. By then those added are online (B1), or gone, too, where it was cancelled.
    """
    for ids, state in _inferred(e, held):
        for replica in ids or ():
            yield ReplicaState(pos, e.ts, e.record_id, replica, state, inferred=True)


def _inferred(e: Event, held: Assigned | None) -> Iterator[tuple[Ids | None, str]]:
    kind = e.event_type
    if kind in OF_NAMED_REPLICA and e.replica is not None:
        yield [e.replica], OF_NAMED_REPLICA[kind]
    elif kind == "partition_new":
        yield e.replicas, "NewReplica"
    elif kind == "assignment_updated":
        yield e.adding_replicas, "NewReplica"
        if held and held.is_moving and not e.adding_replicas and not e.removing_replicas:
            yield [replica for replica in held.adding or () if replica in (e.replicas or ())], "OnlineReplica"
            yield without(held.replicas, e.replicas), "NonExistentReplica"
    elif held is None:
        return
    elif kind == "partition_online" and e.from_state == "NewPartition":
        yield held.replicas, "OnlineReplica"
    elif kind == "reassignment_caught_up":
        yield held.adding, "OnlineReplica"
    elif kind == "deletion_completed":
        yield held.replicas, "NonExistentReplica"
    elif kind == "broker_started" and e.broker is not None and e.broker in (without(held.replicas, held.adding or []) or ()):
        yield [e.broker], "OnlineReplica"


def states_by_replica(printed: Iterable[ReplicaState], standing: Mapping[int, tuple[int, Standing]]) -> dict[int, list[Standing]]:
    """Replica -> states states one after the other, from that in which it is `standing` on, where it has one."""
    found = {replica: [held] for replica, (_, held) in standing.items()}
    for one in printed:
        states = found.setdefault(one.replica, [])
        if not states and one.from_state not in (None, "NonExistentReplica"):
            # the first line tells what was before it
            states.append(Standing(None, str(one.from_state), one.record_id))
        states.append(Standing(one.ts, one.state, one.record_id, one.inferred))
    return {replica: less_repeated(states, lambda one: one.state) for replica, states in found.items()}
