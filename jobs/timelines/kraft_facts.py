"""Derive what all partitions of a KRaft cluster share.

That is: topic ids, broker registrations, active and replaying controllers. Sources: BrokerRegistration,
BrokerControlState, QuorumController (org.apache.kafka.controller, org.apache.kafka.metadata).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jobs.timelines.cluster_evidence import (
    ACTING,
    CONTROLLER_RUNS,
    REGISTRATION_DECIDED,
    REGISTRATION_RECORDED,
    REGISTRATION_REPLAYED,
    Named,
)
from jobs.timelines.event import Event, with_next
from jobs.timelines.outages import (
    ABSENT,
    KNOWN,
    PRESENT,
    RENOUNCED,
    RENOUNCED_AT_ONCE,
    SERVED,
    SERVING,
    Observation,
)
from jobs.timelines.outages import FENCED as OBSERVED_FENCED
from parsers.meanings import event_types

FENCED = "KRaftFenced"
ONLINE = "KRaftOnline"
LEAVING = "KRaftControlledShutdown"
UNREGISTERED = "KRaftUnregistered"
REGISTERED = event_types("registers_broker")
# all in microseconds. For this long after its start, or until it is active, a controller may print history
REPLAY = 60_000_000
# a controller prints the consequences of a request within this time
AT_ONCE = 1_000_000
# lines of two nodes about one record are at most this far apart
NEAR = 10_000_000
FOREVER = 1 << 62
Span = tuple[int, int]


class Standing(NamedTuple):
    """A replica or a broker was in a state from this moment on.

    ts: microseconds; None: before the logs begin.
    """

    ts: int | None
    state: str
    record_id: str
    inferred: bool = True


@dataclass(frozen=True)
class KRaftFacts:
    """The facts that all partitions of a KRaft cluster share. Times are microseconds.

    topic_ids: topic -> its topic ids, the oldest first. names: topic id -> topic. named_since: topic id ->
    when a line first names it.
    removed: topic id -> time and record of the topic's removal. replays: node -> spans in which its lines may
    be history that a starting controller reads. deposed: node -> spans in which it worked as active
    controller though another was elected: its decisions are reverted.
    active: spans with a log of the active controller. unexplained: when it accepted more reassignments than
    it printed.
    brokers: broker -> its registrations. fencings: broker -> spans in which a controller decided to fence it
    and wrote that.
    without_elr: the Kafka version has no eligible leader replicas (KIP-966). elr_since: when they were
    enabled. clears: records that clear ELRs. removals: records that remove topics. snapshots: file of a
    metadata snapshot -> up to when it covers the log.
    """

    topic_ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    named_since: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, tuple[int | None, str]] = field(default_factory=dict)
    replays: Mapping[int | None, Sequence[Span]] = field(default_factory=dict)
    deposed: Mapping[int | None, Sequence[Span]] = field(default_factory=dict)
    active: Sequence[Span] = ()
    unexplained: Sequence[int] = ()
    brokers: Mapping[int, Sequence[Standing]] = field(default_factory=dict)
    fencings: Mapping[int, Sequence[Span]] = field(default_factory=dict)
    without_elr: bool = False
    elr_since: int | None = None
    clears: Sequence[Event] = ()
    removals: Mapping[str, Event] = field(default_factory=dict)
    snapshots: Mapping[str, int] = field(default_factory=dict)

    def removed_at(self, topic_id: str) -> int:
        """Return when a topic was removed; FOREVER if it was not."""
        return self.removed[topic_id][0] or 0 if topic_id in self.removed else FOREVER

    def is_seen_removed(self, topic_id: str) -> bool:
        """Return whether the removal of a topic was printed when it happened, and not later.

        A starting controller prints removals that it reads.
        """
        return topic_id in self.removed and not self.is_read_at(self.removed_at(topic_id))

    def is_replayed(self, e: Event) -> bool:
        """Return whether a line may be history that a starting controller reads."""
        return any(since <= (e.ts or 0) < until for since, until in self.replays.get(e.node, ()))

    def is_deposed(self, e: Event) -> bool:
        """Return whether a line is a decision that is reverted."""
        return any(since <= (e.ts or 0) <= until for since, until in self.deposed.get(e.node, ()))

    def is_read_at(self, ts: int) -> bool:
        """Return whether a controller is starting at a moment, and reads history."""
        return any(since <= ts < until for spans in self.replays.values() for since, until in spans)

    def hears_controller(self, since: int | None, until: int | None) -> bool:
        """Return whether there is a log of the active controller for all the time between two moments."""
        return any(begun <= (since or 0) and (until or 0) <= ended for begun, ended in self.active)

    def nothing_unexplained(self, since: int | None, until: int | None) -> bool:
        """Return whether the active controller printed all accepted reassignments between two moments."""
        asked = any((since or 0) - NEAR <= at <= (until or 0) + NEAR for at in self.unexplained)
        return not asked and self.hears_controller(since, until)

    def up_to(self, ts: int) -> tuple[object, ...]:
        """Return the facts about all partitions up to a moment."""

        def clipped(spans: Iterable[Span]) -> list[Span]:
            return [(since, min(until, ts)) for since, until in spans if since <= ts]

        replays, deposed = (
            {node: some for node, spans in by_node.items() if (some := clipped(spans))}
            for by_node in (self.replays, self.deposed)
        )
        elr = self.elr_since if self.elr_since is not None and self.elr_since <= ts else None
        clears = [e.record_id for e in self.clears if not e.topic and (e.ts or 0) <= ts]
        return (
            replays,
            deposed,
            clipped(self.active),
            [at for at in self.unexplained if at <= ts],
            self.without_elr,
            elr,
            clears,
        )


def kraft_facts(events: Sequence[Event], topic_ids: Mapping[str, Mapping[str, Named]]) -> KRaftFacts:
    """Return the facts of one incarnation.

    events: its cluster events, in order. topic_ids: topic -> topic id -> first and last mention.
    """
    of_type: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        of_type[e.event_type].append(e)
    removals: dict[str, Event] = {}
    for e in events:
        if e.event_type in ("topic_removed", "remove_topic_record") and e.topic_id:
            removals.setdefault(e.topic_id, e)
    majors = [
        int(e.kafka_version.split(".")[0])
        for e in events
        if e.kafka_version and e.kafka_version.split(".")[0].isdecimal()
    ]
    runs = [e for e in events if e.event_type in CONTROLLER_RUNS]
    registrations = REGISTRATION_REPLAYED | REGISTRATION_DECIDED | REGISTRATION_RECORDED
    removed: dict[str, list[tuple[int, Event]]] = defaultdict(list)
    for n, e in enumerate(of_type["topic_removed"]):
        if e.topic_id:
            removed[e.topic_id].append((n, e))
    brokers = broker_registrations(
        [e for e in events if e.event_type in registrations and e.broker is not None]
    )
    return KRaftFacts(
        topic_ids={topic: _oldest_first(ids, removed) for topic, ids in topic_ids.items()},
        names={which: topic for topic, ids in topic_ids.items() for which in ids},
        named_since={which: first or 0 for ids in topic_ids.values() for which, (first, _) in ids.items()},
        removed={which: (e.ts, e.record_id) for which, ((_, e), *_) in removed.items()},
        replays=_replays(runs),
        deposed=_deposed(runs, [e for e in events if e.event_type in RENOUNCED]),
        active=_active(runs),
        unexplained=_unexplained(of_type["reassignments_accepted"], of_type["assignment_changed"]),
        brokers=brokers,
        fencings=_fencings(brokers, events),
        without_elr=bool(majors) and max(majors) < 4,
        elr_since=min((e.ts or 0 for e in of_type["feature_replayed"] if _enables_elr(e)), default=None),
        clears=of_type["clear_elr_record"],
        removals={which: e for which, e in removals.items() if e.event_type == "remove_topic_record"},
        snapshots={
            e.file: int(e.text) * 1000
            for e in of_type["snapshot_header_record"]
            if e.text and e.text.isdecimal()
        },
    )


def _oldest_first(ids: Mapping[str, Named], removals: Mapping[str, Sequence[tuple[int, Event]]]) -> list[str]:
    """Return the topic ids of a topic, the oldest first.

    That is the order of their first mention, except for ids that are read late. A starting controller, or a
    broker that finds a folder, names a removed topic. An id that lines still name after that removal is
    newer, and of two ids that a controller reads the first is the older. removals: topic id -> place in
    order, and event.
    """
    removed = {which: removals.get(which, ()) for which in ids}
    removed_at = {which: some[0][1].ts or 0 if some else FOREVER for which, some in removed.items()}
    named = {which: min(removed_at[which], last or 0) for which, (_, last) in ids.items()}
    read = {which: {e.node: n for n, e in some} for which, some in removed.items()}

    def was_before(one: str, other: str) -> bool:
        return removed_at[one] < named[other] or any(
            read[one][node] < n for node, n in read[other].items() if node in read[one]
        )

    found: list[str] = []
    for which in sorted(ids, key=lambda one: (ids[one][0] or 0, one)):
        later = (
            (n for n, other in enumerate(found) if was_before(which, other)) if removed[which] else iter(())
        )
        found.insert(next(later, len(found)), which)
    return found


def _enables_elr(e: Event) -> bool:
    _, named, version = (e.text or "").partition("eligible.leader.replicas.version to ")
    return bool(named) and version[:1] in "123456789"


def _replays(runs: Iterable[Event]) -> Mapping[int | None, list[Span]]:
    """Return node -> spans in which its lines may be history.

    They are from its start until it is active, or has read all.
    """
    found: dict[int | None, list[Span]] = defaultdict(list)
    for e in runs:
        at = e.ts or 0
        if e.event_type == "quorum_controller_created":
            found[e.node].append((at, at + REPLAY))
        elif e.node in found and e.event_type == "controller_activated":
            since, until = found[e.node][-1]
            found[e.node][-1] = since, min(until, at)
    return dict(found)


def _deposed(runs: Iterable[Event], renounced: Iterable[Event]) -> Mapping[int | None, list[Span]]:
    """Return node -> spans in which it was deposed, until it renounces.

    They begin with the election of another controller, or shortly before it renounces. A process that was
    paused first does what is due by its clock, and only then learns of the election (QuorumController,
    KafkaRaftClient).
    """
    elected = [
        (epoch, e.node, e.ts or 0)
        for e in runs
        if e.event_type == "controller_activated"
        or (e.event_type == "quorum_leader_learned" and e.quorum_node is not None)
        for epoch in [e.controller_epoch if e.raft_epoch is None else e.raft_epoch]
        if epoch is not None
    ]
    found: dict[int | None, list[Span]] = defaultdict(list)
    for e in renounced:
        own, until = FOREVER if e.controller_epoch is None else e.controller_epoch, e.ts or 0
        since = [at for epoch, node, at in elected if epoch > own and node != e.node and at < until]
        found[e.node].append((min([*since, until - RENOUNCED_AT_ONCE]), until))
    return dict(found)


def _active(runs: Sequence[Event]) -> list[Span]:
    """Return the spans in which controllers with logs were active.

    Not every elected controller becomes active, and there may be times without one. A controller that acts
    without a line of becoming active was active when its log began.
    """
    first: dict[int | None, int] = {}
    for e in runs:
        first.setdefault(e.node, e.ts or 0)
    begun: dict[int, int] = {}
    heard: set[int] = set()
    for e in runs:
        epoch = e.raft_epoch if e.raft_epoch is not None else e.controller_epoch
        if e.event_type in ACTING and not begun:
            begun[-1] = first[e.node]
            heard.add(-1)
        if epoch is None:
            continue
        if e.event_type == "controller_activated":
            heard.add(epoch)
        elif e.event_type != "quorum_leader_learned" or e.quorum_node is None or e.quorum_node in first:
            continue
        begun[epoch] = min(begun.get(epoch, FOREVER), e.ts or 0)
    found: list[Span] = []
    for epoch, after in with_next(sorted(begun)):
        if epoch in heard:
            since = found.pop()[0] if found and found[-1][1] == begun[epoch] else begun[epoch]
            found.append((since, begun.get(after, FOREVER)))
    return found


def _unexplained(accepted: Sequence[Event], changed: Sequence[Event]) -> list[int]:
    """Return when more reassignments were accepted than printed at once.

    Those not printed were complete at once.
    """
    found = []
    for e in accepted:
        printed = {
            (c.topic, c.partition)
            for c in changed
            if c.node == e.node and 0 <= (c.ts or 0) - (e.ts or 0) <= AT_ONCE
        }
        if (e.partitions_named or FOREVER) > len(printed):
            found.append(e.ts or 0)
    return found


def broker_registrations(events: Sequence[Event]) -> dict[int, list[Standing]]:
    """Return broker -> the states of its registration, from each change on.

    events: in order, each with a broker. A dump of the metadata log has all changes. Without it they are
    collected from the controllers: changes that controllers replay are numbered from the registration (its
    broker epoch) on, so that duplicates of a starting controller are recognised.
    """
    dumped = [e for e in events if e.event_type in REGISTRATION_RECORDED]
    placed = [(FOREVER if e.metadata_offset is None else e.metadata_offset, e) for e in dumped]
    found: dict[int, list[Standing]] = defaultdict(list)
    for _, e in sorted(
        placed if dumped else _once(events), key=lambda one: (one[1].ts or 0, one[0], one[1].record_id)
    ):
        state = _registration(e)
        assert e.broker is not None
        if state and (not found[e.broker] or found[e.broker][-1].state != state):
            found[e.broker].append(Standing(e.ts, state, e.record_id))
    return dict(found)


def _fencings(brokers: Mapping[int, Sequence[Standing]], events: Iterable[Event]) -> dict[int, list[Span]]:
    """Return broker -> spans from a controller's decision to fence it to the latest time of that record.

    Registrations do not count.
    """
    registered = {e.record_id for e in events if e.event_type in REGISTERED}
    return {
        broker: [
            (one.ts, one.ts + AT_ONCE)
            for one in standings
            if one.state == FENCED and one.ts is not None and one.record_id not in registered
        ]
        for broker, standings in brokers.items()
    }


def _once(events: Iterable[Event]) -> list[tuple[int, Event]]:
    """Return each printed registration once, with its place among those of its broker."""
    placed: list[tuple[int, Event]] = []
    numbered: dict[tuple[int, int, int], Event] = {}
    at: dict[tuple[int, int | None], tuple[int, int]] = {}
    for e in events:
        assert e.broker is not None
        if e.event_type in REGISTERED:
            at[e.broker, e.node] = e.broker_epoch or 0, 0
        if e.event_type in REGISTRATION_DECIDED or (e.broker, e.node) not in at:
            placed.append((FOREVER, e))
            continue
        epoch, number = at[e.broker, e.node]
        at[e.broker, e.node] = epoch, number + 1
        known = numbered.setdefault((e.broker, epoch, number), e)
        if (e.ts or 0) < (known.ts or 0):
            numbered[e.broker, epoch, number] = e
    later: dict[int, int] = {}
    for broker, epoch, number in sorted(numbered, reverse=True):
        # a change is no later than the next one
        e = numbered[broker, epoch, number]
        later[broker] = min(e.ts or 0, later.get(broker, FOREVER))
        placed.append((epoch * 1000 + number, e._replace(ts=later[broker])))
    return placed


def registration_observations(kraft: KRaftFacts) -> dict[int, list[Observation]]:
    """Return broker -> observations from its registrations.

    They are for times without a log of the active controller, which prints them itself. Controlled shutdowns
    always count: files of the active controller may be missing. Of the history that a starting controller
    reads, only the last state counts, and its time is unknown.
    """
    spans = [span for some in kraft.replays.values() for span in some]
    found: dict[int, list[Observation]] = {}
    for broker, standings in kraft.brokers.items():
        observations = found.setdefault(broker, [])
        for n, (standing, after) in enumerate(with_next(standings)):
            if (ts := standing.ts) is None or (standing.state != LEAVING and kraft.hears_controller(ts, ts)):
                continue
            read = [(since, until) for since, until in spans if since <= ts < until]
            if any(after is not None and since <= (after.ts or 0) < until for since, until in read):
                continue
            meanings = (
                {ONLINE: PRESENT, FENCED: ABSENT}
                if read
                else {ONLINE: SERVING, FENCED: OBSERVED_FENCED, LEAVING: SERVED}
            )
            if n == 0 and not read:
                meanings[FENCED] = KNOWN  # it registers for the first time
            if (shows := meanings.get(standing.state)) is not None:
                observations.append(Observation(ts, shows, standing.record_id))
    return found


def _registration(e: Event) -> str | None:
    """Return the state of a broker that an event shows; None if the event changes something else."""
    if "unregister" in e.event_type:
        return UNREGISTERED
    if e.fenced:
        return FENCED
    if e.in_controlled_shutdown:
        return LEAVING
    return ONLINE if e.fenced is False else None
