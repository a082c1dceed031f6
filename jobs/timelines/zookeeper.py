"""Fold the events of one partition under ZooKeeper controllers.

Three things change, each with lines of its own: the state znode (leader, leader epoch, ISR; its version is
the partition epoch), the assignment (RS, AR, RR), and the controller's states of the partition and its
replicas. Late events change earlier rows, so `add_event` collects what lines say, and `build_rows` builds
rows from that. Source: kafka.controller.KafkaController, 0.10 to 3.9.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import schemas
from jobs.timelines.event import Event, Ids, same_set, with_next, without
from jobs.timelines.facts import IncarnationFacts
from jobs.timelines.generation_evidence import GenerationEvidence, WrittenEpochs
from jobs.timelines.kraft_facts import Standing
from jobs.timelines.replica_states import ReplicaState, inferred_states, printed_state, states_by_replica
from jobs.timelines.timeline_rows import (
    Assigned,
    Final,
    PartitionRows,
    Reassignment,
    Row,
    is_target,
    phase,
    reassignment,
)
from jobs.timelines.zookeeper_assignments import Requested, add_request, assignments
from jobs.timelines.zookeeper_versions import ProposedIsr, Values, ZnodeVersion, before_all, in_order
from parsers.meanings import event_types

LEADER_DURING_DELETE = -2
PARTITION_STATES = frozenset(schemas.machines()["partition"])
# lines that only the leader prints
LEADERS_OWN = event_types("by_leader")
PROPOSED, ANSWERED = event_types("proposes_isr"), event_types("answers_proposed_isr")
# refusals of a reassignment (KafkaController.maybeTriggerPartitionReassignment)
REFUSED = ("reassignment_failed", "reassignments_refused")
# lines about the znode of the topic before the controller acts on it
ANNOUNCED = event_types("announces_partitions")
# above this number of stored items the older ones become final, but never those younger than FINAL_AFTER
# (microseconds)
KEPT, FINAL_AFTER = 30, 60_000_000


class Mark(NamedTuple):
    """Another event.

    what: `caught_up`, `deleted`, `requested`, one of REFUSED, or the partition's state from then on.
    """

    pos: int
    ts: int | None
    record_id: str
    what: str
    target: Ids | None = None


@dataclass
class ZooKeeperGeneration:
    """The lines about a partition since its creation, or since its last final version.

    requested: leader epoch -> assignment in requests. is_written: whether writes of its assignment are known.
    target: target of the running reassignment. created_with: replicas without a reassignment. at_rest:
    assignment when the reassignment began. printed_values: values of versions, also of final ones. gaps:
    final epochs that no line names. leader_epoch: assignments are final up to it.
    evidence: what distinguishes it from another generation.
    """

    versions: dict[int, ZnodeVersion] = field(default_factory=dict)
    loose: list[ZnodeVersion] = field(default_factory=list)
    proposed: list[ProposedIsr] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    requested: dict[int, Requested] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    replica_states: list[ReplicaState] = field(default_factory=list)
    is_written: bool = False
    target: Ids | None = None
    created_with: Ids | None = None
    at_rest: Ids | None = None
    printed_values: set[Values] = field(default_factory=set)
    gaps: set[int] = field(default_factory=set)
    leader_epoch: int = -1
    evidence: GenerationEvidence = field(default_factory=GenerationEvidence)

    @property
    def is_deleted(self) -> bool:
        """Return whether the deletion of the topic is the last mark."""
        return bool(self.marks) and self.marks[-1].what == "deleted"

    def __len__(self) -> int:
        return sum(map(len, (self.versions, self.loose, self.marks, self.proposed, self.replica_states)))


@dataclass
class ZooKeeperHistory:
    """The state of the fold.

    newest: time of the last event. count: number of events. is_first: nothing is final, and no generation has
    ended. since: position up to which all is final; since_ts: its time. brokers: all brokers that had a
    replica. shared: digest of the facts about its topic and brokers up to `newest`.
    """

    newest: int = -1
    count: int = 0
    is_first: bool = True
    since: int = 0
    generation: ZooKeeperGeneration = field(default_factory=ZooKeeperGeneration)
    final: Final = field(default_factory=Final)
    brokers: set[int] = field(default_factory=set)
    shared: int = 0
    since_ts: int | None = None
    is_stale: bool = False


def fold(
    history: ZooKeeperHistory, topic: str, events: Iterable[Event], facts: IncarnationFacts
) -> PartitionRows:
    """Continue a history in place and return its rows.

    events: of this partition. If it `is_stale` then, it has to be rebuilt.
    """
    rows = PartitionRows(history.final.steps, history.since_ts)
    for e in in_order_of_events(history, topic, events, facts):
        written = WrittenEpochs.by(e, facts)
        if _is_created(history.generation, e) or history.generation.evidence.shows_another(
            e, written, is_deleted=history.generation.is_deleted
        ):
            finalise(history, build_rows(history, rows, facts), history.count, history.newest)
            history.generation = ZooKeeperGeneration()
        history.newest = max(history.newest, e.ts or 0)
        history.count += 1
        history.generation.evidence.add(e, written)
        add_event(history.generation, history.count, e, facts)
    current = build_rows(history, rows, facts)
    if len(history.generation) > KEPT:
        finalise_up_to(history, current, facts)
    history.shared = _shared(history, topic, facts)
    return rows


def _is_created(generation: ZooKeeperGeneration, e: Event) -> bool:
    """Return whether an event begins a generation.

    The partition is created; or its topic is new, and was deleted before or had later epochs; or an
    assignment is written after the deletion.
    """
    if e.says != "happened" or e.replica is not None:
        return False
    is_new = e.event_type == "topics_changed" and (
        generation.is_deleted or any(epoch > 0 for epoch in generation.versions)
    )
    is_assigned = (
        e.is_present and e.replicas is not None and (is_new or (generation.is_deleted and _is_written(e)))
    )
    return (e.from_state, e.to_state) == ("NonExistentPartition", "NewPartition") or is_assigned


def _is_written(e: Event) -> bool:
    """Return whether an assignment is written, and not only requested or announced."""
    return e.says == "happened" and e.event_type not in ANNOUNCED


def in_order_of_events(
    history: ZooKeeperHistory, topic: str, events: Iterable[Event], facts: IncarnationFacts
) -> list[Event]:
    """Return the events of a partition with those of its topic and of brokers with a replica, in order."""
    own = list(events)
    history.is_stale |= history.shared != _shared(history, topic, facts)
    newest, gaps = history.newest, history.generation.gaps
    history.is_stale |= any((e.ts or 0) <= newest or e.partition_epoch in gaps for e in own)
    history.brokers.update(replica for e in own for replica in e.replicas or ())
    starts = (
        e
        for broker in history.brokers & facts.starts.keys()
        for e in facts.starts[broker]
        if e.node not in facts.tracers
    )
    shared = [
        e
        for e in (*facts.deletions.get(topic, ()), *starts)
        if (e.ts or 0) > newest and not facts.is_of_kraft(e)
    ]
    return sorted(own + shared, key=lambda e: facts.sort_key(e, tiebreak(e)))


def _shared(history: ZooKeeperHistory, topic: str, facts: IncarnationFacts) -> int:
    """Return a digest of the facts about the time up to `newest`."""
    events = [*facts.deletions.get(topic, ())]
    for broker in history.brokers & facts.starts.keys():
        events += facts.starts[broker]
    return crc32("".join(sorted(e.record_id for e in events if (e.ts or 0) <= history.newest)).encode())


def tiebreak(e: Event) -> int:
    """Return the order within a millisecond.

    A reassignment is written before the epochs that it raises and reverted after all of them; the deletion of
    a topic is last.
    """
    if e.event_type == "deletion_completed":
        return 2
    if e.replicas is None or not e.is_present:
        return 1
    return 0 if e.adding_replicas or e.removing_replicas else 2 if e.event_type == "assignment_updated" else 1


# ---------------------------------------------------------------------------------------- what lines say


def add_event(generation: ZooKeeperGeneration, pos: int, e: Event, facts: IncarnationFacts) -> None:
    """Add what an event says."""
    source = pos, e.ts, e.record_id
    kind = e.event_type
    state = e.to_state if e.is_present else e.from_state if e.says == "failed" else None
    if e.replica is None and state in PARTITION_STATES:
        generation.marks.append(Mark(*source, str(state)))
    if e.is_present and e.leader != LEADER_DURING_DELETE:
        _add_version(generation, source, e, facts)
    if kind in PROPOSED:
        generation.proposed.append(
            ProposedIsr(*source, e.node if e.broker is None else e.broker, e.previous_isr, e.isr)
        )
    elif kind in ANSWERED:
        _forget_proposed(generation.proposed, e.node if e.broker is None else e.broker)
    elif kind == "reassignment_caught_up":
        generation.marks.append(Mark(*source, "caught_up"))
    elif kind == "reassignment_requested":
        generation.marks.append(Mark(*source, "requested", e.target_replicas))
        generation.target = e.target_replicas
    elif kind in REFUSED and not (e.text or "").startswith("because controller has moved"):
        # a deposed controller leaves the request to its successor
        generation.marks.append(Mark(*source, kind, e.target_replicas))
    elif kind == "deletion_completed" and (
        generation.versions or generation.loose or generation.assigned or generation.marks
    ):
        generation.marks.append(Mark(*source, "deleted"))
    generation.replica_states += printed_state(e, pos)
    if e.node not in facts.tracers:
        generation.replica_states += inferred_states(
            e, pos, generation.assigned[-1] if generation.assigned else None
        )
    if e.is_present and e.replicas is not None:
        _add_assignment(generation, source, e)


def _add_version(
    generation: ZooKeeperGeneration, source: tuple[int, int | None, str], e: Event, facts: IncarnationFacts
) -> None:
    """Add what an event says about the state znode."""
    keeps = facts.keeps.get(e.event_type, ())
    if e.leader is None and e.leader_epoch is None and e.isr is None and e.partition_epoch is None:
        return
    elects = e.says == "happened" and e.from_state == e.to_state == "OnlinePartition"
    known = generation.versions.get(e.partition_epoch) if e.partition_epoch is not None else None
    if known is not None and known.is_whole and not keeps:
        # most lines repeat known values
        known.elects |= elects
        known.is_written |= e.says == "happened"
        known.is_by_leader |= e.event_type == "isr_updated"
        return
    kept = tuple(name for name in keeps if name in ("leader", "leader_epoch", "isr"))
    leader = e.node if e.leader is None and e.event_type in LEADERS_OWN else e.leader
    version = ZnodeVersion(*source, e.partition_epoch, leader, e.leader_epoch, e.isr, kept, elects)
    version.begun = generation.evidence.led_since(e.node) if e.event_type == "isr_updated" else None
    version.is_by_leader, version.is_written = e.event_type == "isr_updated", e.says == "happened"
    if e.partition_epoch is None:
        if None not in (leader, e.leader_epoch, e.isr) and version.values not in generation.printed_values:
            generation.loose.append(version)
        return
    if known is None:
        known = generation.versions[e.partition_epoch] = version
    else:
        known.learn(version)
        known.elects |= elects
        known.is_by_leader |= version.is_by_leader
        known.is_written |= version.is_written
        known.begun = version.begun if known.begun is None else known.begun
        known.keeps += version.keeps
    if known.is_whole:
        generation.printed_values.add(known.values)


def _forget_proposed(proposed: list[ProposedIsr], writer: int | None) -> None:
    """Remove the last proposal of a leader, which a line answers."""
    for n in reversed(range(len(proposed))):
        if proposed[n].writer == writer:
            del proposed[n]
            return


def _add_assignment(generation: ZooKeeperGeneration, source: tuple[int, int | None, str], e: Event) -> None:
    """Add a written assignment, or that of a request.

    Up to 2.3 only RS is written: AR is the target without the replicas before, RR these without the target;
    RS equal to the target ends it.
    """
    assert e.replicas is not None
    is_written = _is_written(e)
    if not is_written and e.event_type not in ANNOUNCED:
        add_request(generation.requested, e)
        return
    if generation.is_written and not is_written:
        return
    generation.is_written |= is_written
    if e.adding_replicas == []:
        generation.created_with = e.replicas
    if is_written and e.adding_replicas is None and generation.target is None:
        # the logs begin during a reassignment: fewer replicas than before are the target
        before = generation.assigned[-1].replicas if generation.assigned else None
        is_ended = before is not None and set(e.replicas) < set(before)
        generation.assigned.append(
            Assigned(*source, e.replicas, [] if is_ended else None, [] if is_ended else None)
        )
        return
    is_reached = generation.target is None or same_set(generation.target, e.replicas)
    original = generation.at_rest if generation.at_rest is not None else generation.created_with
    adding: Ids | None = e.adding_replicas
    removing: Ids | None = e.removing_replicas
    if (
        not is_reached
        and adding is None
        and removing is None
        and original is not None
        and {*original, *(generation.target or ())} != set(e.replicas)
    ):
        # there is no line of the assignment before, or of this target
        generation.assigned.append(Assigned(*source, e.replicas, None, None))
        return
    if adding is None:
        adding = [] if is_reached else without(generation.target, original)
    if removing is None:
        removing = (
            [] if is_reached else without(e.replicas if original is None else original, generation.target)
        )
    if is_reached or e.adding_replicas == []:
        generation.at_rest = e.replicas
    generation.assigned.append(Assigned(*source, e.replicas, adding, removing))


# ---------------------------------------------------------------------------------------- the rows


def build_rows(history: ZooKeeperHistory, rows: PartitionRows, facts: IncarnationFacts) -> list[Row]:
    """Add the rows of the present generation.

    Return those of partition_timeline, from the last final one on.
    """
    generation, is_first = history.generation, history.is_first
    caught_up = [mark[:3] for mark in generation.marks if mark.what == "caught_up"]
    found = in_order(
        generation.versions, generation.loose, generation.proposed, caught_up, generation.printed_values
    )
    versions = [*before_all(found), *found] if is_first else found
    assigned = assignments(
        generation.assigned, generation.requested, versions, facts, generation.leader_epoch
    )
    assigned = [*_before_first(assigned), *assigned] if is_first else assigned
    later = (
        row
        for row in _changes_in_order(generation, versions, assigned)
        if is_first or row.pos > history.since
    )
    current = history.final.partitions(later, facts.end)
    kept = [row for _, row, _ in current]
    del rows.partitions[history.final.steps - rows.steps :]
    rows.partitions += current
    replaced_from = {replica: step for replica, (step, _) in history.final.standing.items()}
    rows.replicas = [row for row in rows.replicas if row.step < replaced_from.get(row.replica, 1)]
    rows.replicas += history.final.replicas(
        states_by_replica(generation.replica_states, history.final.standing), kept, facts.end
    )
    rows.reassignments += _reassignments(generation, assigned)
    return kept


def _before_first(assigned: Sequence[Assigned]) -> Iterator[Assigned]:
    """Yield the replicas before the first logged assignment, if that begins a reassignment."""
    if assigned and assigned[0].is_moving and assigned[0].adding is not None:
        yield Assigned(
            0, None, assigned[0].record_id, without(assigned[0].replicas, assigned[0].adding), [], [], True
        )


NOTHING_ASSIGNED = Assigned(0, None, "", None, None, None)
KINDS = {"caught_up": 0, "deleted": 3, **dict.fromkeys(PARTITION_STATES, 2)}


def _changes_in_order(
    generation: ZooKeeperGeneration, versions: Iterable[ZnodeVersion], assigned: Iterable[Assigned]
) -> Iterator[Row]:
    """Yield a row for each change of znode, assignment or state."""
    # a record may change several things: the assignment first, so that its phase includes the others
    changes: list[tuple[int, int, int, int, Any]] = [(a.pos, -1, 0, n, a) for n, a in enumerate(assigned)]
    changes += [(v.pos, -1 if v.epoch is None else v.epoch, 1, n, v) for n, v in enumerate(versions)]
    changes += [(m.pos, -1, KINDS[m.what], n, m) for n, m in enumerate(generation.marks) if m.what in KINDS]
    changes.sort(key=lambda change: change[:4])
    znode, assignment, state = ZnodeVersion(0, None, ""), NOTHING_ASSIGNED, None
    epoch_at_start, caught_up = None, False
    for (pos, _, kind, _, thing), after in with_next(changes):
        if kind == 1:
            znode = thing
            if assignment.replicas is not None and not set(znode.isr or ()) <= set(assignment.replicas):
                # the ISR is a part of the replicas: another assignment was written, whose lines are missing
                assignment = NOTHING_ASSIGNED
        elif isinstance(thing, Assigned):
            if is_target(thing, assignment) and not set(znode.isr or ()).isdisjoint(
                assignment.removing or ()
            ):
                # replicas leave the ISR before the assignment without them is written: the lines of that are
                # missing
                znode = ZnodeVersion(0, None, "")
            assignment, epoch_at_start, caught_up = thing, znode.leader_epoch, False
        elif thing.what == "caught_up":
            caught_up = True
        elif thing.what == "deleted":
            znode = ZnodeVersion(0, None, "")
            assignment = NOTHING_ASSIGNED._replace(inferred=True)
            state = "NonExistentPartition"
        else:
            state = thing.what
        # the changes of one record are one row; versions are several rows, even if one line proves them all
        if after is None or after[0] != pos or (kind == 1 and after[2] == 1):
            is_raised = znode.leader_epoch is not None and (
                epoch_at_start is None or znode.leader_epoch > epoch_at_start
            )
            which = phase(assignment.adding, assignment.removing, is_raised=is_raised, caught_up=caught_up)
            epoch = None if znode.is_counted else znode.epoch
            inferred = znode.inferred or assignment.inferred
            values = (
                znode.leader,
                znode.leader_epoch,
                znode.isr,
                epoch,
                *assignment[3:6],
                state,
                which,
                inferred,
            )
            yield Row(pos, thing.ts, *values, thing.record_id)


def _reassignments(generation: ZooKeeperGeneration, assigned: Sequence[Assigned]) -> Iterator[Reassignment]:
    """Yield reassignments: the written assignment that starts one, and the next, which ends it."""
    distinct: list[Assigned] = []
    for n, one in enumerate(assigned):
        # a new controller writes the running reassignment again
        if not n or not one.is_moving or one.values() != assigned[n - 1].values():
            distinct.append(one)
    for before, one, after in zip([None, *distinct], distinct, [*distinct[1:], None], strict=False):
        if one.is_moving:
            caught = (
                m.ts
                for m in generation.marks
                if m.what == "caught_up" and one.pos < m.pos and (after is None or m.pos <= after.pos)
            )
            yield reassignment(before, one, after, next(caught, None), reaches_target=is_target(after, one))
    yield from _never_started(generation.marks, assigned)


def _never_started(marks: Iterable[Mark], assigned: Sequence[Assigned]) -> Iterator[Reassignment]:
    """Yield requests that were refused while no reassignment was running.

    The request right before is the refused one. 2.4 and later refuse in one line, and in a second line if the
    request was in ZooKeeper.
    """
    current: Assigned | None = None
    before: Mark | None = None
    asked = [mark for mark in marks if mark.what in (*REFUSED, "requested")]
    both: list[Mark | Assigned] = [*asked, *assigned] if asked else []
    for one in sorted(both, key=lambda one: one.pos):
        if isinstance(one, Assigned):
            current, before = one, None
            continue
        is_repeated = one.what == REFUSED[1] and before is not None and before.what == REFUSED[0]
        if one.what in REFUSED and not is_repeated and not (current and current.is_moving):
            target = (
                one.target
                if one.target is not None
                else before.target
                if before and before.what == "requested"
                else None
            )
            yield Reassignment(
                one.pos,
                one.ts,
                None,
                None,
                current and current.replicas,
                target,
                [],
                [],
                "never_started",
                one.record_id,
            )
        before = one


# ---------------------------------------------------------------------------------------- rows that become final


def finalise_up_to(history: ZooKeeperHistory, rows: Sequence[Row], facts: IncarnationFacts) -> None:
    """Make all rows final up to the newest whole version without a running reassignment.

    Keep what later rows depend on.
    """
    generation = history.generation
    known = in_order(
        generation.versions, generation.loose, generation.proposed, [], generation.printed_values
    )
    assigned = assignments(generation.assigned, generation.requested, known, facts, generation.leader_epoch)
    moving = [
        (a.pos, after.pos if after else history.count) for a, after in with_next(assigned) if a.is_moving
    ]
    others: list[Any] = [*generation.replica_states, *assigned, *generation.marks]
    for base in sorted(known, key=lambda v: v.pos, reverse=True):
        at_once = any(one.ts == base.ts and one.pos > base.pos for one in others)
        is_old = (base.ts or 0) <= history.newest - FINAL_AFTER
        at_rest = not any(a <= base.pos <= z for a, z in moving) and not _completes(
            base, assigned, generation.requested
        )
        if base.is_whole and not at_once and is_old and at_rest:
            break
    else:
        return
    finalise(history, rows, base.pos, base.ts)
    assert base.epoch is not None
    assert base.leader_epoch is not None
    before = [epoch for epoch in generation.versions if epoch <= base.epoch]
    base.is_written |= any((v.leader_epoch or 0) < base.leader_epoch for v in generation.versions.values())
    generation.gaps |= set(range(min(before, default=base.epoch), base.epoch)) - set(before)
    generation.printed_values = {
        values for values in generation.printed_values if (values[1] or 0) >= base.leader_epoch
    }
    generation.versions = {base.epoch: base} | {
        epoch: v for epoch, v in generation.versions.items() if epoch > base.epoch
    }
    generation.loose = [v for v in generation.loose if v.pos > base.pos]
    generation.proposed = [one for one in generation.proposed if one.pos > base.pos]
    generation.assigned = [a for a in assigned if a.pos <= base.pos][-1:] + [
        a for a in generation.assigned if a.pos > base.pos
    ]
    generation.leader_epoch = base.leader_epoch
    generation.requested = {
        epoch: one for epoch, one in generation.requested.items() if epoch > base.leader_epoch
    }
    states = [m for m in generation.marks if m.pos <= base.pos and m.what in PARTITION_STATES]
    generation.marks = states[-1:] + [m for m in generation.marks if m.pos > base.pos]


def _completes(base: ZnodeVersion, assigned: Sequence[Assigned], requested: Mapping[int, Requested]) -> bool:
    """Return whether requests of the time of a version have other replicas than the version."""
    sent = requested.get(-1 if base.leader_epoch is None else base.leader_epoch)
    current = [a for a in assigned if a.pos <= base.pos][-1:]
    return (
        sent is not None
        and sent.replicas is not None
        and any(list(sent.replicas) != list(one.replicas or ()) for one in current)
    )


def finalise(history: ZooKeeperHistory, rows: Sequence[Row], pos: int, ts: int | None) -> None:
    """Make rows final up to a position and a moment, except the end of the last one.

    rows: as `build_rows` returns them.
    """
    kept = [row for row in rows if row.pos <= pos]
    if all(row in history.final.before for row in kept):
        kept = []  # the next line may show that a checkpoint is older, or does not count
    standings = states_by_replica(
        [one for one in history.generation.replica_states if one.pos <= pos], history.final.standing
    )
    if kept:
        history.final.extend(kept, standings)
    elif standings:
        _keep_standing(history.final, standings)
    history.generation.replica_states = [one for one in history.generation.replica_states if one.pos > pos]
    history.is_first, history.since, history.since_ts = False, pos, ts


def _keep_standing(final: Final, standings: Mapping[int, Sequence[Standing]]) -> None:
    """Make states of replicas final if no row of the partition becomes final."""
    for replica, states in standings.items():
        first = final.standing[replica][0] if replica in final.standing else 1
        final.standing[replica] = first + len(states) - 1, states[-1]
