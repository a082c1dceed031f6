"""What all partitions of a KRaft cluster share: topic ids, registrations of brokers, when controllers were active and what they replay.

Sources: BrokerRegistration, BrokerControlState, QuorumController (org.apache.kafka.controller, org.apache.kafka.metadata).
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
from jobs.timelines.events import Event, with_next
from jobs.timelines.outages import ABSENT, KNOWN, PRESENT, RENOUNCED, RENOUNCED_AT_ONCE, SERVED, SERVING, Sign
from jobs.timelines.outages import FENCED as SAID_FENCED
from parsers.meanings import event_types

FENCED, ONLINE, LEAVING, UNREGISTERED = "KRaftFenced", "KRaftOnline", "KRaftControlledShutdown", "KRaftUnregistered"
REGISTERED = event_types("registers_broker")
# all microseconds. What a controller prints so long after its start may be history, if it does not become active before
REPLAY = 60_000_000
# a controller prints what follows from a request within this time
AT_ONCE = 1_000_000
# what two nodes say of one record lies no further apart
NEAR = 10_000_000
FOREVER = 1 << 62
Span = tuple[int, int]


class Standing(NamedTuple):
    """A replica, or a broker, was in a state from then on. ts: microseconds, null: before these logs begin."""

    ts: int | None
    state: str
    record_id: str
    inferred: bool = True


@dataclass(frozen=True)
class KRaftFacts:
    """Times are microseconds.

    topic_ids: topic -> its topic ids, the oldest first. names: topic id -> topic. named_since: topic id -> when a line first
    names it. removed: topic id -> when that topic was, and the record.
    replays: node -> when its lines may be history, which a starting controller reads. deposed: node -> when it went on as the active
    controller though another was elected: what it decides then is taken back. active: when the log of the active controller is
    here. unexplained: when it accepted more reassignments than it printed. brokers: broker -> its registrations. fencings: broker -> spans in which a controller decided to fence it and wrote that. without_elr: no Kafka
    knows eligible leader replicas (KIP-966); elr_since: when they were enabled. clears: records that clear ELRs. removals: records that
    remove topics. snapshots: file of a metadata snapshot -> up to when it covers the log.
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

    def gone_at(self, topic_id: str) -> int:
        """When a topic was removed."""
        return self.removed[topic_id][0] or 0 if topic_id in self.removed else FOREVER

    def is_seen_removed(self, topic_id: str) -> bool:
        """Whether a topic was removed when that was printed; what a starting controller reads was so before."""
        return topic_id in self.removed and not self.is_read_at(self.gone_at(topic_id))

    def is_replayed(self, e: Event) -> bool:
        """Whether a line may be history that a starting controller reads."""
        return any(since <= (e.ts or 0) < until for since, until in self.replays.get(e.node, ()))

    def is_deposed(self, e: Event) -> bool:
        """Whether a line is a decision that is taken back."""
        return any(since <= (e.ts or 0) <= until for since, until in self.deposed.get(e.node, ()))

    def is_read_at(self, ts: int) -> bool:
        """Whether a controller starts at a moment, which reads what was before."""
        return any(since <= ts < until for spans in self.replays.values() for since, until in spans)

    def hears_controller(self, since: int | None, until: int | None) -> bool:
        """Whether the log of the active controller is here, all the time between two moments."""
        return any(begun <= (since or 0) and (until or 0) <= ended for begun, ended in self.active)

    def nothing_unexplained(self, since: int | None, until: int | None) -> bool:
        """Whether the active controller accepted no reassignment between two moments that it did not print."""
        asked = any((since or 0) - NEAR <= at <= (until or 0) + NEAR for at in self.unexplained)
        return not asked and self.hears_controller(since, until)

    def up_to(self, ts: int) -> tuple[object, ...]:
        """What these facts say of the time up to a moment about all partitions."""

        def clipped(spans: Iterable[Span]) -> list[Span]:
            return [(since, min(until, ts)) for since, until in spans if since <= ts]

        replays, deposed = (
            {node: some for node, spans in by_node.items() if (some := clipped(spans))}
            for by_node in (self.replays, self.deposed)
        )
        elr = self.elr_since if self.elr_since is not None and self.elr_since <= ts else None
        clears = [e.record_id for e in self.clears if not e.topic and (e.ts or 0) <= ts]
        return replays, deposed, clipped(self.active), [at for at in self.unexplained if at <= ts], self.without_elr, elr, clears


def kraft_facts(events: Sequence[Event], topic_ids: Mapping[str, Mapping[str, Named]]) -> KRaftFacts:
    """events: the cluster events of one incarnation, in order. topic_ids: topic -> its topic ids, and when they are named."""
    of_type: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        of_type[e.event_type].append(e)
    removals: dict[str, Event] = {}
    for e in events:
        if e.event_type in ("topic_removed", "remove_topic_record") and e.topic_id:
            removals.setdefault(e.topic_id, e)
    majors = [int(e.kafka_version.split(".")[0]) for e in events if e.kafka_version and e.kafka_version.split(".")[0].isdecimal()]
    runs = [e for e in events if e.event_type in CONTROLLER_RUNS]
    told = REGISTRATION_REPLAYED | REGISTRATION_DECIDED | REGISTRATION_RECORDED
    gone: dict[str, list[tuple[int, Event]]] = defaultdict(list)
    for n, e in enumerate(of_type["topic_removed"]):
        if e.topic_id:
            gone[e.topic_id].append((n, e))
    brokers = broker_registrations([e for e in events if e.event_type in told and e.broker is not None])
    return KRaftFacts(
        topic_ids={topic: _oldest_first(ids, gone) for topic, ids in topic_ids.items()},
        names={which: topic for topic, ids in topic_ids.items() for which in ids},
        named_since={which: first or 0 for ids in topic_ids.values() for which, (first, _) in ids.items()},
        removed={which: (e.ts, e.record_id) for which, ((_, e), *_) in gone.items()},
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
        snapshots={e.file: int(e.text) * 1000 for e in of_type["snapshot_header_record"] if e.text and e.text.isdecimal()},
    )


def _oldest_first(ids: Mapping[str, Named], removals: Mapping[str, Sequence[tuple[int, Event]]]) -> list[str]:
    """The topic ids that a topic had one after the other: as lines begin to name them, but for those that are read late.

    A starting controller, or a broker that finds its folder, names a topic that is gone. What is named still when that is gone came after it;
    and of two that a controller reads the first one was first. removals: topic id -> place in order, and event.
    """
    told = {which: removals.get(which, ()) for which in ids}
    gone = {which: some[0][1].ts or 0 if some else FOREVER for which, some in told.items()}
    named = {which: min(gone[which], last or 0) for which, (_, last) in ids.items()}
    read = {which: {e.node: n for n, e in some} for which, some in told.items()}

    def was_before(one: str, other: str) -> bool:
        return gone[one] < named[other] or any(read[one][node] < n for node, n in read[other].items() if node in read[one])

    found: list[str] = []
    for which in sorted(ids, key=lambda one: (ids[one][0] or 0, one)):
        later = (n for n, other in enumerate(found) if was_before(which, other)) if told[which] else iter(())
        found.insert(next(later, len(found)), which)
    return found


def _enables_elr(e: Event) -> bool:
    _, named, version = (e.text or "").partition("eligible.leader.replicas.version to ")
    return bool(named) and version[:1] in "123456789"


def _replays(runs: Iterable[Event]) -> Mapping[int | None, list[Span]]:
    """Node -> when its lines may be history that it reads: from its start until it is active, or must have read all."""
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
    """Node -> from when another had been elected, or a moment before it says so, until it says that it is not active any more.

    A process that stood still first does what is due by its clock, and only then hears of the election (QuorumController, KafkaRaftClient).
    """
    elected = [
        (epoch, e.node, e.ts or 0)
        for e in runs
        if e.event_type == "controller_activated" or (e.event_type == "quorum_leader_learned" and e.quorum_node is not None)
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
    """When controllers were active whose logs are here.

    Between two of them nobody is; not everybody who is elected becomes active. Who acts without having become active was so when its log
    began.
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
    """When more partitions were to be reassigned than the controller printed at once. What it does not print was complete at once."""
    found = []
    for e in accepted:
        printed = {(c.topic, c.partition) for c in changed if c.node == e.node and 0 <= (c.ts or 0) - (e.ts or 0) <= AT_ONCE}
        if (e.partitions_named or FOREVER) > len(printed):
            found.append(e.ts or 0)
    return found


def broker_registrations(events: Sequence[Event]) -> dict[int, list[Standing]]:
    """Broker -> what its registration was, from each change on. events: in order, each with a broker.

    A dump of the metadata log says it all. Else it is put together from the controllers: what they replay is numbered from the
    registration (its broker epoch) on, so that the copy of it that a starting controller prints is known for what it is.
    """
    dumped = [e for e in events if e.event_type in REGISTRATION_RECORDED]
    placed = [(FOREVER if e.metadata_offset is None else e.metadata_offset, e) for e in dumped]
    found: dict[int, list[Standing]] = defaultdict(list)
    for _, e in sorted(placed if dumped else _once(events), key=lambda one: (one[1].ts or 0, one[0], one[1].record_id)):
        state = _registration(e)
        assert e.broker is not None
        if state and (not found[e.broker] or found[e.broker][-1].state != state):
            found[e.broker].append(Standing(e.ts, state, e.record_id))
    return dict(found)


def _fencings(brokers: Mapping[int, Sequence[Standing]], events: Iterable[Event]) -> dict[int, list[Span]]:
    """Broker -> when a controller decided to fence it, and when the record of it was written at the latest. A registration fences nobody."""
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
    """Registrations that controllers print, each once, with its place among those of its broker."""
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
        # it was said no later than what comes after it
        e = numbered[broker, epoch, number]
        later[broker] = min(e.ts or 0, later.get(broker, FOREVER))
        placed.append((epoch * 1000 + number, e._replace(ts=later[broker])))
    return placed


def registration_signs(kraft: KRaftFacts) -> dict[int, list[Sign]]:
    """Broker -> what its registrations say of its outages, where the log of the active controller, which says it itself, is not here; that it
    is told to stop in any case: files of the active one may be missing.

    Of what a starting controller reads the last word counts; when it came to be so nobody tells.
    """
    spans = [span for some in kraft.replays.values() for span in some]
    found: dict[int, list[Sign]] = {}
    for broker, standings in kraft.brokers.items():
        signs = found.setdefault(broker, [])
        for n, (standing, after) in enumerate(with_next(standings)):
            if (ts := standing.ts) is None or (standing.state != LEAVING and kraft.hears_controller(ts, ts)):
                continue
            read = [(since, until) for since, until in spans if since <= ts < until]
            if any(after is not None and since <= (after.ts or 0) < until for since, until in read):
                continue
            told = {ONLINE: PRESENT, FENCED: ABSENT} if read else {ONLINE: SERVING, FENCED: SAID_FENCED, LEAVING: SERVED}
            if n == 0 and not read:
                told[FENCED] = KNOWN  # it registers for the first time
            if (said := told.get(standing.state)) is not None:
                signs.append(Sign(ts, said, standing.record_id))
    return found


def _registration(e: Event) -> str | None:
    """The state that an event about a broker shows; null where it changes something else."""
    if "unregister" in e.event_type:
        return UNREGISTERED
    if e.fenced:
        return FENCED
    if e.in_controlled_shutdown:
        return LEAVING
    return ONLINE if e.fenced is False else None
