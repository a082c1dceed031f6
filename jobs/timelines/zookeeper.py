"""What one partition went through under ZooKeeper controllers: a fold over its events.

Three things change, each with lines of its own: the state znode (leader, leader epoch, ISR; its version is the partition epoch), the
assignment (RS, AR, RR), and the controller's states of the partition and its replicas. What comes late changes earlier rows, so `add_event`
collects what lines assert, and `build_rows` makes rows of it. Source: kafka.controller.KafkaController, 0.10 to 3.9.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import schemas
from jobs.timelines.events import Event, Ids, same_set, with_next, without
from jobs.timelines.facts import IncarnationFacts
from jobs.timelines.generation_evidence import GenerationEvidence, Told
from jobs.timelines.kraft_facts import Standing
from jobs.timelines.replica_states import ReplicaState, inferred_states, printed_state, states_by_replica
from jobs.timelines.rows import Assigned, Final, Reassignment, Row, Rows, is_target, phase, reassignment
from jobs.timelines.zookeeper_assignments import Requested, add_request, assignments
from jobs.timelines.zookeeper_versions import ProposedIsr, Values, Version, before_all, in_order
from parsers.meanings import event_types

LEADER_DURING_DELETE = -2
PARTITION_STATES = frozenset(schemas.machines()["partition"])
# what only the leader prints
LEADERS_OWN = event_types("by_leader")
PROPOSED, ANSWERED = event_types("proposes_isr"), event_types("answers_proposed_isr")
# of a reassignment (KafkaController.maybeTriggerPartitionReassignment)
REFUSED = ("reassignment_failed", "reassignments_refused")
# what is in the znode of the topic before the controller acts on it
ANNOUNCED = event_types("announces_partitions")
# so many things may be asserted before the beginning of a history is settled; what is younger than this (microseconds) never is
KEPT, UNSETTLED = 30, 60_000_000


class Mark(NamedTuple):
    """Anything else. what: `caught_up`, `deleted`, `requested`, one of REFUSED, or the partition's state from then on."""

    pos: int
    ts: int | None
    record_id: str
    what: str
    target: Ids | None = None


@dataclass
class Life:
    """What has been asserted of a partition since its creation, or since its history was settled.

    requested: leader epoch -> what requests carry. is_written: whether writes of its assignment are known. target: what a reassignment
    aims at. created_with: replicas without a reassignment. at_rest: what was assigned when the reassignment began. printed_values: values
    of versions, settled ones too. gaps: settled epochs that no line names. leader_epoch: up to which assignments are settled.
    signs: what tells it from another one.
    """

    versions: dict[int, Version] = field(default_factory=dict)
    loose: list[Version] = field(default_factory=list)
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
    signs: GenerationEvidence = field(default_factory=GenerationEvidence)

    @property
    def is_gone(self) -> bool:
        """Whether the deletion of the topic was seen, and nothing since."""
        return bool(self.marks) and self.marks[-1].what == "deleted"

    def __len__(self) -> int:
        return sum(map(len, (self.versions, self.loose, self.marks, self.proposed, self.replica_states)))


@dataclass
class History:
    """The state of the fold. newest: time of the last event. count: of events. is_first: nothing was settled, no life has ended. since:
    position up to which all is final, since_ts: when that was. brokers: that ever held a replica. shared: what the facts said of its topic and brokers up to `newest`.
    """

    newest: int = -1
    count: int = 0
    is_first: bool = True
    since: int = 0
    life: Life = field(default_factory=Life)
    final: Final = field(default_factory=Final)
    brokers: set[int] = field(default_factory=set)
    shared: int = 0
    since_ts: int | None = None
    is_stale: bool = False


def fold(history: History, topic: str, events: Iterable[Event], facts: IncarnationFacts) -> Rows:
    """Continues a history, in place. events: of this partition alone. Where it `is_stale` then, all has to be read anew."""
    rows = Rows(history.final.steps, history.since_ts)
    for e in in_order_of_events(history, topic, events, facts):
        told = Told.by(e, facts)
        if _is_created(history.life, e) or history.life.signs.shows_another(e, told, is_gone=history.life.is_gone):
            settle(history, build_rows(history, rows, facts), history.count, history.newest)
            history.life = Life()
        history.newest = max(history.newest, e.ts or 0)
        history.count += 1
        history.life.signs.add(e, told)
        add_event(history.life, history.count, e, facts)
    current = build_rows(history, rows, facts)
    if len(history.life) > KEPT:
        settle_up_to(history, current, facts)
    history.shared = _shared(history, topic, facts)
    return rows


def _is_created(life: Life, e: Event) -> bool:
    """Whether an event begins a life: the partition is created; or its topic is new, which was known to be deleted or had later epochs than it
    begins with; or an assignment is written after the deletion.
    """
    if e.says != "happened" or e.replica is not None:
        return False
    is_new = e.event_type == "topics_changed" and (life.is_gone or any(epoch > 0 for epoch in life.versions))
    is_assigned = e.is_present and e.replicas is not None and (is_new or (life.is_gone and _is_written(e)))
    return (e.from_state, e.to_state) == ("NonExistentPartition", "NewPartition") or is_assigned


def _is_written(e: Event) -> bool:
    """Whether an assignment is, and not asked for or announced."""
    return e.says == "happened" and e.event_type not in ANNOUNCED


def in_order_of_events(history: History, topic: str, events: Iterable[Event], facts: IncarnationFacts) -> list[Event]:
    """What there is to hear: events of a partition, with those that tell of the topic or of brokers that hold a replica."""
    own = list(events)
    history.is_stale |= history.shared != _shared(history, topic, facts)
    newest, gaps = history.newest, history.life.gaps
    history.is_stale |= any((e.ts or 0) <= newest or e.partition_epoch in gaps for e in own)
    history.brokers.update(replica for e in own for replica in e.replicas or ())
    starts = (e for broker in history.brokers & facts.starts.keys() for e in facts.starts[broker] if e.node not in facts.tracers)
    shared = [e for e in (*facts.deletions.get(topic, ()), *starts) if (e.ts or 0) > newest and not facts.is_of_kraft(e)]
    return sorted(own + shared, key=lambda e: facts.sort_key(e, tiebreak(e)))


def _shared(history: History, topic: str, facts: IncarnationFacts) -> int:
    """What tells whether the facts about the time up to `newest` are as they were."""
    events = [*facts.deletions.get(topic, ())]
    for broker in history.brokers & facts.starts.keys():
        events += facts.starts[broker]
    return crc32("".join(sorted(e.record_id for e in events if (e.ts or 0) <= history.newest)).encode())


def tiebreak(e: Event) -> int:
    """Order within a millisecond: a reassignment is written before the epochs that it raises and taken back after all of them; a topic is
    gone after all else.
    """
    if e.event_type == "deletion_completed":
        return 2
    if e.replicas is None or not e.is_present:
        return 1
    return 0 if e.adding_replicas or e.removing_replicas else 2 if e.event_type == "assignment_updated" else 1


# ---------------------------------------------------------------------------------------- what lines assert


def add_event(life: Life, pos: int, e: Event, facts: IncarnationFacts) -> None:
    """Adds what an event asserts."""
    here = pos, e.ts, e.record_id
    kind = e.event_type
    state = e.to_state if e.is_present else e.from_state if e.says == "failed" else None
    if e.replica is None and state in PARTITION_STATES:
        life.marks.append(Mark(*here, str(state)))
    if e.is_present and e.leader != LEADER_DURING_DELETE:
        _add_version(life, here, e, facts)
    if kind in PROPOSED:
        life.proposed.append(ProposedIsr(*here, e.node if e.broker is None else e.broker, e.previous_isr, e.isr))
    elif kind in ANSWERED:
        _forget_proposed(life.proposed, e.node if e.broker is None else e.broker)
    elif kind == "reassignment_caught_up":
        life.marks.append(Mark(*here, "caught_up"))
    elif kind == "reassignment_requested":
        life.marks.append(Mark(*here, "requested", e.target_replicas))
        life.target = e.target_replicas
    elif kind in REFUSED and not (e.text or "").startswith("because controller has moved"):
        # a controller that has moved leaves what was asked of it to its successor
        life.marks.append(Mark(*here, kind, e.target_replicas))
    elif kind == "deletion_completed" and (life.versions or life.loose or life.assigned or life.marks):
        life.marks.append(Mark(*here, "deleted"))
    life.replica_states += printed_state(e, pos)
    if e.node not in facts.tracers:
        life.replica_states += inferred_states(e, pos, life.assigned[-1] if life.assigned else None)
    if e.is_present and e.replicas is not None:
        _add_assignment(life, here, e)


def _add_version(life: Life, here: tuple[int, int | None, str], e: Event, facts: IncarnationFacts) -> None:
    """Adds what an event says of the state znode."""
    keeps = facts.keeps.get(e.event_type, ())
    if e.leader is None and e.leader_epoch is None and e.isr is None and e.partition_epoch is None:
        return
    elects = e.says == "happened" and e.from_state == e.to_state == "OnlinePartition"
    known = life.versions.get(e.partition_epoch) if e.partition_epoch is not None else None
    if known is not None and known.is_whole and not keeps:
        # most lines repeat what is known
        known.elects |= elects
        known.is_written |= e.says == "happened"
        known.is_by_leader |= e.event_type == "isr_updated"
        return
    kept = tuple(name for name in keeps if name in ("leader", "leader_epoch", "isr"))
    leader = e.node if e.leader is None and e.event_type in LEADERS_OWN else e.leader
    version = Version(*here, e.partition_epoch, leader, e.leader_epoch, e.isr, kept, elects)
    version.begun = life.signs.led_since(e.node) if e.event_type == "isr_updated" else None
    version.is_by_leader, version.is_written = e.event_type == "isr_updated", e.says == "happened"
    if e.partition_epoch is None:
        if None not in (leader, e.leader_epoch, e.isr) and version.values not in life.printed_values:
            life.loose.append(version)
        return
    if known is None:
        known = life.versions[e.partition_epoch] = version
    else:
        known.learn(version)
        known.elects |= elects
        known.is_by_leader |= version.is_by_leader
        known.is_written |= version.is_written
        known.begun = version.begun if known.begun is None else known.begun
        known.keeps += version.keeps
    if known.is_whole:
        life.printed_values.add(known.values)


def _forget_proposed(proposed: list[ProposedIsr], writer: int | None) -> None:
    """A line tells what became of the last proposal of a leader."""
    for n in reversed(range(len(proposed))):
        if proposed[n].writer == writer:
            del proposed[n]
            return


def _add_assignment(life: Life, here: tuple[int, int | None, str], e: Event) -> None:
    """Adds an assignment that is written, or what a request carries.

    Up to 2.3 RS alone is written: AR is the target less the replicas before, RR these less the target; RS equal to the target ends it.
    """
    assert e.replicas is not None
    is_written = _is_written(e)
    if not is_written and e.event_type not in ANNOUNCED:
        add_request(life.requested, e)
        return
    if life.is_written and not is_written:
        return
    life.is_written |= is_written
    if e.adding_replicas == []:
        life.created_with = e.replicas
    if is_written and e.adding_replicas is None and life.target is None:
        # the logs begin while it runs: fewer replicas than before are the target
        held = life.assigned[-1].replicas if life.assigned else None
        is_ended = held is not None and set(e.replicas) < set(held)
        life.assigned.append(Assigned(*here, e.replicas, [] if is_ended else None, [] if is_ended else None))
        return
    is_reached = life.target is None or same_set(life.target, e.replicas)
    original = life.at_rest if life.at_rest is not None else life.created_with
    adding: Ids | None = e.adding_replicas
    removing: Ids | None = e.removing_replicas
    if adding is None:
        adding = [] if is_reached else without(life.target, original)
    if removing is None:
        removing = [] if is_reached else without(e.replicas if original is None else original, life.target)
    if is_reached or e.adding_replicas == []:
        life.at_rest = e.replicas
    life.assigned.append(Assigned(*here, e.replicas, adding, removing))


# ---------------------------------------------------------------------------------------- the rows


def build_rows(history: History, rows: Rows, facts: IncarnationFacts) -> list[Row]:
    """Adds the rows of the present life. Returns those of partition_timeline, from the last final one on."""
    life, is_first = history.life, history.is_first
    caught_up = [mark[:3] for mark in life.marks if mark.what == "caught_up"]
    found = in_order(life.versions, life.loose, life.proposed, caught_up, life.printed_values)
    versions = [*before_all(found), *found] if is_first else found
    assigned = assignments(life.assigned, life.requested, versions, facts, life.leader_epoch)
    assigned = [*_before_first(assigned), *assigned] if is_first else assigned
    later = (row for row in _changes_in_order(life, versions, assigned) if is_first or row.pos > history.since)
    current = history.final.partitions(later, facts.end)
    kept = [row for _, row, _ in current]
    del rows.partitions[history.final.steps - rows.steps :]
    rows.partitions += current
    retold = {replica: step for replica, (step, _) in history.final.standing.items()}
    rows.replicas = [row for row in rows.replicas if row.step < retold.get(row.replica, 1)]
    rows.replicas += history.final.replicas(states_by_replica(life.replica_states, history.final.standing), kept, facts.end)
    rows.reassignments += _reassignments(life, assigned)
    return kept


def _before_first(assigned: Sequence[Assigned]) -> Iterator[Assigned]:
    """The replicas before the first assignment that the logs show, where it begins a reassignment."""
    if assigned and assigned[0].is_moving and assigned[0].adding is not None:
        yield Assigned(0, None, assigned[0].record_id, without(assigned[0].replicas, assigned[0].adding), [], [], True)


NOTHING_ASSIGNED = Assigned(0, None, "", None, None, None)
KINDS = {"caught_up": 0, "deleted": 3, **dict.fromkeys(PARTITION_STATES, 2)}


def _changes_in_order(life: Life, versions: Iterable[Version], assigned: Iterable[Assigned]) -> Iterator[Row]:
    """What held after each change: three stories in one."""
    # a record may change more than one thing: the assignment first, so that its phase covers the rest
    changes: list[tuple[int, int, int, int, Any]] = [(a.pos, -1, 0, n, a) for n, a in enumerate(assigned)]
    changes += [(v.pos, -1 if v.epoch is None else v.epoch, 1, n, v) for n, v in enumerate(versions)]
    changes += [(m.pos, -1, KINDS[m.what], n, m) for n, m in enumerate(life.marks) if m.what in KINDS]
    changes.sort(key=lambda change: change[:4])
    znode, assignment, state = Version(0, None, ""), NOTHING_ASSIGNED, None
    epoch_at_start, caught_up = None, False
    for (pos, _, kind, _, thing), after in with_next(changes):
        if kind == 1:
            znode = thing
            if assignment.replicas is not None and not set(znode.isr or ()) <= set(assignment.replicas):
                # the ISR is a part of the replicas: others were assigned, whose lines are not here
                assignment = NOTHING_ASSIGNED
        elif isinstance(thing, Assigned):
            if is_target(thing, assignment) and not set(znode.isr or ()).isdisjoint(assignment.removing or ()):
                # replicas leave the ISR before the assignment without them is written: their lines are not here
                znode = Version(0, None, "")
            assignment, epoch_at_start, caught_up = thing, znode.leader_epoch, False
        elif thing.what == "caught_up":
            caught_up = True
        elif thing.what == "deleted":
            znode, assignment, state = Version(0, None, ""), NOTHING_ASSIGNED._replace(inferred=True), "NonExistentPartition"
        else:
            state = thing.what
        # what one record changes is one change; versions are several, also when one line proves them all
        if after is None or after[0] != pos or (kind == 1 and after[2] == 1):
            is_raised = znode.leader_epoch is not None and (epoch_at_start is None or znode.leader_epoch > epoch_at_start)
            which = phase(assignment.adding, assignment.removing, is_raised=is_raised, caught_up=caught_up)
            epoch = None if znode.is_counted else znode.epoch
            inferred = znode.inferred or assignment.inferred
            values = znode.leader, znode.leader_epoch, znode.isr, epoch, *assignment[3:6], state, which, inferred
            yield Row(pos, thing.ts, *values, thing.record_id)


def _reassignments(life: Life, assigned: Sequence[Assigned]) -> Iterator[Reassignment]:
    """From the written assignment that starts one to the next, which ends it."""
    news: list[Assigned] = []
    for n, one in enumerate(assigned):
        # a controller that takes over writes once more what it finds running
        if not n or not one.is_moving or one.values() != assigned[n - 1].values():
            news.append(one)
    for before, one, after in zip([None, *news], news, [*news[1:], None], strict=False):
        if one.is_moving:
            caught = (
                m.ts for m in life.marks if m.what == "caught_up" and one.pos < m.pos and (after is None or m.pos <= after.pos)
            )
            yield reassignment(before, one, after, next(caught, None), reaches_target=is_target(after, one))
    yield from _never_started(life.marks, assigned)


def _never_started(marks: Iterable[Mark], assigned: Sequence[Assigned]) -> Iterator[Reassignment]:
    """Requests that were refused while no reassignment was running. The request right before is the one that is refused; 2.4 and later
    refuse in one line, and once more in another where the request stood in ZooKeeper.
    """
    held: Assigned | None = None
    before: Mark | None = None
    asked = [mark for mark in marks if mark.what in (*REFUSED, "requested")]
    both: list[Mark | Assigned] = [*asked, *assigned] if asked else []
    for one in sorted(both, key=lambda one: one.pos):
        if isinstance(one, Assigned):
            held, before = one, None
            continue
        said_before = one.what == REFUSED[1] and before is not None and before.what == REFUSED[0]
        if one.what in REFUSED and not said_before and not (held and held.is_moving):
            target = one.target if one.target is not None else before.target if before and before.what == "requested" else None
            yield Reassignment(
                one.pos, one.ts, None, None, held and held.replicas, target, [], [], "never_started", one.record_id
            )
        before = one


# ---------------------------------------------------------------------------------------- settling: what the state need not keep


def settle_up_to(history: History, rows: Sequence[Row], facts: IncarnationFacts) -> None:
    """Settles all up to the newest version that is known whole while nothing moves, and keeps of it what the rest rests on."""
    life = history.life
    known = in_order(life.versions, life.loose, life.proposed, [], life.printed_values)
    assigned = assignments(life.assigned, life.requested, known, facts, life.leader_epoch)
    moving = [(a.pos, after.pos if after else history.count) for a, after in with_next(assigned) if a.is_moving]
    others: list[Any] = [*life.replica_states, *assigned, *life.marks]
    for base in sorted(known, key=lambda v: v.pos, reverse=True):
        at_once = any(one.ts == base.ts and one.pos > base.pos for one in others)
        is_old = (base.ts or 0) <= history.newest - UNSETTLED
        at_rest = not any(a <= base.pos <= z for a, z in moving) and not _completes(base, assigned, life.requested)
        if base.is_whole and not at_once and is_old and at_rest:
            break
    else:
        return
    settle(history, rows, base.pos, base.ts)
    assert base.epoch is not None
    assert base.leader_epoch is not None
    before = [epoch for epoch in life.versions if epoch <= base.epoch]
    base.is_written |= any((v.leader_epoch or 0) < base.leader_epoch for v in life.versions.values())
    life.gaps |= set(range(min(before, default=base.epoch), base.epoch)) - set(before)
    life.printed_values = {values for values in life.printed_values if (values[1] or 0) >= base.leader_epoch}
    life.versions = {base.epoch: base} | {epoch: v for epoch, v in life.versions.items() if epoch > base.epoch}
    life.loose = [v for v in life.loose if v.pos > base.pos]
    life.proposed = [one for one in life.proposed if one.pos > base.pos]
    life.assigned = [a for a in assigned if a.pos <= base.pos][-1:] + [a for a in life.assigned if a.pos > base.pos]
    life.leader_epoch = base.leader_epoch
    life.requested = {epoch: one for epoch, one in life.requested.items() if epoch > base.leader_epoch}
    states = [m for m in life.marks if m.pos <= base.pos and m.what in PARTITION_STATES]
    life.marks = states[-1:] + [m for m in life.marks if m.pos > base.pos]


def _completes(base: Version, assigned: Sequence[Assigned], requested: Mapping[int, Requested]) -> bool:
    """Whether requests of the time of a version carry other replicas than it has."""
    sent = requested.get(-1 if base.leader_epoch is None else base.leader_epoch)
    held = [a for a in assigned if a.pos <= base.pos][-1:]
    return sent is not None and sent.replicas is not None and any(list(sent.replicas) != list(one.replicas or ()) for one in held)


def settle(history: History, rows: Sequence[Row], pos: int, ts: int | None) -> None:
    """Makes rows final up to a position and a moment, but for the end of the last one. rows: as `build_rows` returns them."""
    kept = [row for row in rows if row.pos <= pos]
    if all(row in history.final.before for row in kept):
        kept = []  # the next line may tell that a checkpoint is older, or does not count
    standings = states_by_replica([one for one in history.life.replica_states if one.pos <= pos], history.final.standing)
    if kept:
        history.final.extend(kept, standings)
    elif standings:
        _keep_standing(history.final, standings)
    history.life.replica_states = [one for one in history.life.replica_states if one.pos > pos]
    history.is_first, history.since, history.since_ts = False, pos, ts


def _keep_standing(final: Final, standings: Mapping[int, Sequence[Standing]]) -> None:
    """States of replicas become final where no row of the partition does."""
    for replica, states in standings.items():
        first = final.standing[replica][0] if replica in final.standing else 1
        final.standing[replica] = first + len(states) - 1, states[-1]
