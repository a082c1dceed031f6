"""ZooKeeper mode: find the controller's state of every replica of a partition.

At TRACE (the default up to 2.5) state.change.logger prints `Changed state of replica`. From 2.6 on the
default is INFO, and the states follow from other lines of the controller.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from jobs.timelines.event import Event, Ids, without
from jobs.timelines.kraft_facts import Standing
from jobs.timelines.timeline_rows import Assigned, less_repeated
from parsers.meanings import event_types

# the state to which the controller moves the replica that a line names (kafka.controller.*, 2.6 to 3.9):
# `after removing replica` is printed while that replica goes offline; the other lines are those of the
# TopicDeletionManager
OF_NAMED_REPLICA = (
    dict.fromkeys(event_types("makes_replica_offline"), "OfflineReplica")
    | dict.fromkeys(event_types("makes_replica_ineligible"), "ReplicaDeletionIneligible")
    | dict.fromkeys(event_types("makes_replica_deleted"), "ReplicaDeletionSuccessful")
)


class ReplicaState(NamedTuple):
    """A replica was in a state from this moment on. from_state: the state before, if the line names it."""

    pos: int
    ts: int | None
    record_id: str
    replica: int
    state: str
    from_state: str | None = None
    inferred: bool = False


def printed_state(e: Event, pos: int) -> Iterator[ReplicaState]:
    """Yield the state that a line prints: an applied change, or an entry of a starting controller's map."""
    is_applied = e.says == "happened" and e.event_type == "replica_state_changed"
    if e.replica is not None and e.to_state is not None and (is_applied or e.says == "is"):
        yield ReplicaState(pos, e.ts, e.record_id, e.replica, e.to_state, e.from_state)


def inferred_states(e: Event, pos: int, assigned: Assigned | None) -> Iterator[ReplicaState]:
    """Yield states that follow from a line of a node that prints no states.

    assigned: the assignment so far. onNewPartitionCreation creates the replicas with the partition. A
    reassignment creates the added replicas when it begins (A2), and the old ones do not exist any more when
    the assignment without them is written. By then the added replicas are online (B1), or removed if it was
    cancelled.
    """
    for ids, state in _inferred(e, assigned):
        for replica in ids or ():
            yield ReplicaState(pos, e.ts, e.record_id, replica, state, inferred=True)


def _inferred(e: Event, assigned: Assigned | None) -> Iterator[tuple[Ids | None, str]]:
    kind = e.event_type
    if kind in OF_NAMED_REPLICA and e.replica is not None:
        yield [e.replica], OF_NAMED_REPLICA[kind]
    elif kind == "partition_new":
        yield e.replicas, "NewReplica"
    elif kind == "assignment_updated":
        yield e.adding_replicas, "NewReplica"
        if assigned and assigned.is_moving and not e.adding_replicas and not e.removing_replicas:
            yield (
                [replica for replica in assigned.adding or () if replica in (e.replicas or ())],
                "OnlineReplica",
            )
            yield without(assigned.replicas, e.replicas), "NonExistentReplica"
    elif assigned is None:
        return
    elif kind == "partition_online" and e.from_state == "NewPartition":
        yield assigned.replicas, "OnlineReplica"
    elif kind == "reassignment_caught_up":
        yield assigned.adding, "OnlineReplica"
    elif kind == "deletion_completed":
        yield assigned.replicas, "NonExistentReplica"
    elif (
        kind == "broker_started"
        and e.broker is not None
        and e.broker in (without(assigned.replicas, assigned.adding or []) or ())
    ):
        yield [e.broker], "OnlineReplica"


def states_by_replica(
    printed: Iterable[ReplicaState], standing: Mapping[int, tuple[int, Standing]]
) -> dict[int, list[Standing]]:
    """Return replica -> its states, one after the other, from its state in `standing` on if it has one."""
    found = {replica: [last] for replica, (_, last) in standing.items()}
    for one in printed:
        states = found.setdefault(one.replica, [])
        if not states and one.from_state not in (None, "NonExistentReplica"):
            # the first line names the state before it
            states.append(Standing(None, str(one.from_state), one.record_id))
        states.append(Standing(one.ts, one.state, one.record_id, one.inferred))
    return {replica: less_repeated(states, lambda one: one.state) for replica, states in found.items()}
