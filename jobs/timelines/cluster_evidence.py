"""Keep the part of a cluster's events from which the facts that its partitions share are derived.

Evidence of any part of the events can be added to it. The order does not matter: every field is a union, a
smallest or a largest value.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Self

from jobs.timelines.event import CHECKPOINT, MEMBER_LISTS, Event
from jobs.timelines.incarnations import Place, folder_of
from jobs.timelines.outages import BROKER_EVENTS, is_failed_change, is_of_controller_thread
from jobs.timelines.settings import setting_of
from parsers.meanings import event_types

ELECTED = event_types("begins_zookeeper_term")
# a controller's own lines that its term has begun; lines of others that name the controller; lines that a
# term is over
TERM_BEGUN = ELECTED | event_types("begins_quorum_term", "begins_migration_term", "shows_begun_term")
ELECTION_HEARD = event_types("names_controller")
TERM_ENDED = event_types("ends_term")
# lines that a ZooKeeper broker prints only while it is controller
LEADING = event_types("shows_controller_at_work")
# lines that only brokers of a KRaft cluster, only KRaft controllers, or only ZooKeeper controllers print
KRAFT_BROKER = event_types("only_kraft_broker")
KRAFT_CONTROLLER = event_types("only_kraft_controller", "changes_kraft_partition")
ZOOKEEPER_CONTROLLER = LEADING | event_types("only_zookeeper_controller")
OF_MODE = KRAFT_BROKER | KRAFT_CONTROLLER | ZOOKEEPER_CONTROLLER
# registrations of brokers: printed again by a starting controller, decided by the active one, recorded in a
# dump of its log
REGISTRATION_REPLAYED = event_types("replays_registration")
REGISTRATION_DECIDED = event_types("decides_registration")
REGISTRATION_RECORDED = event_types("records_registration")
# lines that only the active KRaft controller prints
ACTING = REGISTRATION_DECIDED | event_types("only_active_kraft_controller")
CONTROLLER_RUNS = ACTING | event_types("shows_kraft_controller")
PARTITION_RECORDS = event_types("records_partition")
TOPIC_REMOVED = event_types("removes_topic")
BROKERS_NAMED = event_types("names_brokers", "lists_live_brokers")
REGISTERED_BY_ZOOKEEPER = event_types("names_broker_epoch")
# events that are stored whole
CLUSTER_EVENTS = frozenset().union(
    TERM_BEGUN,
    ELECTION_HEARD,
    TERM_ENDED,
    REGISTRATION_REPLAYED,
    REGISTRATION_DECIDED,
    REGISTRATION_RECORDED,
    CONTROLLER_RUNS,
    TOPIC_REMOVED,
    BROKER_EVENTS,
    BROKERS_NAMED,
    REGISTERED_BY_ZOOKEEPER,
    event_types("renounces_term", "kept_with_cluster"),
)
HOUR, DAY = 3_600_000_000, 86_400_000_000
# number of the newest lines from memory that are stored of each controller term, to count those of a deposed
# controller
MOST_FROM_MEMORY = 1000
STATE_CHANGE_LOG, CONTROLLER_LOG, SERVER_LOG, METADATA_DUMP = 1, 2, 4, 8
# logger of the records of a dumped metadata log
METADATA_LOG = "__cluster_metadata"
# of a KRaft controller: at INFO it prints new partitions and assignments, at DEBUG also leaders and ISRs
REPLICATION_CONTROL = "org.apache.kafka.controller.ReplicationControlManager"


@cache
def log_of(logger: str | None) -> int:
    """Return the file of a logger in Kafka's own configuration, or METADATA_DUMP."""
    if logger is None:
        return SERVER_LOG
    if logger == METADATA_LOG:
        return METADATA_DUMP
    return (
        STATE_CHANGE_LOG
        if logger.endswith("state.change.logger")
        else CONTROLLER_LOG
        if ".controller" in logger
        else SERVER_LOG
    )


def is_cluster_event(e: Event) -> bool:
    """Return whether an event is stored: it shows something that partitions share."""
    if e.event_type in CLUSTER_EVENTS:
        return e.event_type != "assignment_changed" or e.partition_epoch is None
    return (
        is_of_controller_thread(e)
        or is_failed_change(e)
        or e.cluster_id is not None
        or e.kafka_version is not None
        or begins_metadata_log(e)
    )


def begins_metadata_log(e: Event) -> bool:
    """Return whether an event is the first record of a metadata log."""
    return e.metadata_offset == 0 and e.event_type in ("metadata_record", "quorum_leader_record")


def is_of_other_cluster(e: Event) -> bool:
    """Return whether a node is refused for its cluster id, or refuses its ZooKeeper.

    Source: KafkaRaftClient; KafkaServer.startup, 2.4 to 3.9.
    """
    return e.error_code == "INCONSISTENT_CLUSTER_ID" or (e.error_class or "").endswith(
        "InconsistentClusterIdException"
    )


def is_registered_by_zookeeper(e: Event) -> bool:
    """Return whether a line names a broker epoch of ZooKeeper."""
    return e.event_type in REGISTERED_BY_ZOOKEEPER and (e.logger or "").startswith(
        ("kafka.zk.", "kafka.controller.")
    )


def prints_replica_state(e: Event) -> bool:
    """Return whether a line names a replica's state and the state before.

    Nodes that print all states do so.
    """
    if e.replica is None or e.from_state is None or e.partition is None:
        return False
    return (e.event_type == "replica_state_changed" and e.says == "happened") or (
        e.says == "is" and e.to_state is not None
    )


def takes_back(e: Event) -> bool:
    """Return whether a controller moves a replica online again: its broker has registered.

    Source: KafkaController.onBrokerStartup, 0.8.2 to 3.9. Replicas of a new partition, also on dead brokers,
    are NewReplica before.
    """
    return (
        e.event_type == "replica_state_changed"
        and e.says == "happened"
        and e.from_state == "OfflineReplica"
        and e.to_state == "OnlineReplica"
        and e.replica is not None
    )


def is_from_memory(e: Event) -> bool:
    """Return whether a controller prints a state from memory.

    Its writes have an epoch, which shows their order, or are refused.
    """
    if e.controller is None or e.controller != e.node or e.topic is None:
        return False
    return e.partition_epoch is None and (
        e.says == "is" or e.to_state is not None or e.from_state is not None
    )


class FileSpan(NamedTuple):
    """First and last time stamp of a file (microseconds), and which of Kafka's logs are in it (bits)."""

    first: int | None
    last: int | None
    logs: int


class RecordPlace(NamedTuple):
    """Time and place of a record. Its order is that of the files."""

    ts: int | None
    log: int
    file: str
    record_no: int
    record_id: str


Term = tuple[int, int | None]
# when and in which record
Mention = tuple[int, str]
# the first and the last time stamp of lines that name something
Named = tuple[int | None, int | None]
# larger numbers are no node ids: NetworkClient numbers its connections to a coordinator down from 2^31 - 1
LARGEST_NODE = 1_000_000_000
# the role in which a line names a node
AS_WRITER, AS_CONTROLLER, AS_BROKER, AS_PEER = 0, 1, 2, 3
# lines about a connection do not say what the other end is
CONNECTIONS = "org.apache.kafka.clients.NetworkClient"
# place -> hour since 1970 -> the first and the last mention
Hours = dict[Place, dict[int, tuple[Mention, Mention]]]


@dataclass
class ClusterEvidence:
    """The part of some events from which facts of a cluster are derived. Hours and days are since 1970.

    `hour -> lines` has the first and the last line of each hour, with time and record.

    cluster_events       by record and item
    files                (node, file) -> its span
    traced_hours         node -> hours in which it wrote state changes at TRACE
    logged_hours         node -> hours in which it wrote state changes
    mode_events          event type -> day -> the first and the last time stamp
    terms                (controller epoch, node) -> day -> the first line of it
    from_memory          (controller epoch, node) -> the newest time stamps of lines from memory
    sent                 (controller epoch, node) -> place -> time stamp and record of its first line, or of
                         the first request that it sent
    topic_ids            topic -> id -> first and last time stamp that names it
    worked               place -> hour -> lines that a broker takes part: it receives a controller's request,
                         or leads (KRaft)
    spoke                place -> hour -> lines of its own terms as a controller
    led                  place -> hour -> lines that only a controller prints
    taken_back           (folder of a ZooKeeper controller, broker) -> hour -> lines that show that the broker
                         is back
    foreign              place -> hour -> lines that its node was refused because of another cluster id
    tracers              places whose state-change.log is at TRACE: as controllers they print all states of
                         replicas
    change_printers      places of KRaft controllers at DEBUG: they print each change of a partition
    checkpoints          times of checkpoints, which are no lines of a log
    named                place -> (node, role) -> first and last time stamp of its lines that name the node
    listed               place -> first and last time stamp of its lines that list brokers: the live ones,
                         replicas, an ISR
    created              (topic, its min.insync.replicas, place) -> the first time stamp, and the record, of a
                         log that is created with it
    hides_state_before   whether lines name a replica's new state without the one before, as
                         ReplicaStateMachine of 0.8.0 does
    """

    cluster_events: dict[tuple[str, int], Event] = field(default_factory=dict)
    files: dict[tuple[int | None, str], FileSpan] = field(default_factory=dict)
    traced_hours: dict[int | None, set[int]] = field(default_factory=dict)
    logged_hours: dict[int | None, set[int]] = field(default_factory=dict)
    mode_events: dict[str, dict[int, Named]] = field(default_factory=dict)
    terms: dict[Term, dict[int, RecordPlace]] = field(default_factory=dict)
    from_memory: dict[Term, list[int]] = field(default_factory=dict)
    sent: dict[Term, dict[Place, Mention]] = field(default_factory=dict)
    topic_ids: dict[str, dict[str, Named]] = field(default_factory=dict)
    worked: Hours = field(default_factory=dict)
    spoke: Hours = field(default_factory=dict)
    led: Hours = field(default_factory=dict)
    taken_back: Hours = field(default_factory=dict)
    foreign: Hours = field(default_factory=dict)
    tracers: set[Place] = field(default_factory=set)
    change_printers: set[Place] = field(default_factory=set)
    checkpoints: set[int] = field(default_factory=set)
    named: dict[Place, dict[tuple[int, int], Named]] = field(default_factory=dict)
    listed: dict[Place, Named] = field(default_factory=dict)
    created: dict[tuple[str, int, Place], tuple[int, str]] = field(default_factory=dict)
    hides_state_before: bool = False

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return the evidence of some events of one cluster."""
        evidence = cls()
        for e in events:
            evidence._add(e)
        for times in evidence.from_memory.values():
            times[:] = sorted(times)[-MOST_FROM_MEMORY:]
        return evidence

    def _add(self, e: Event) -> None:
        kind, ts, log = e.event_type, e.ts, log_of(e.logger)
        self._add_names(e)
        if kind == CHECKPOINT:
            self.checkpoints |= set() if ts is None else {ts}
            return
        span = self.files.get((e.node, e.file))
        if span is None:
            self.files[e.node, e.file] = FileSpan(ts, ts, log)
        elif not span.logs & log or (ts is not None and not (span.first or 0) <= ts <= (span.last or -1)):
            self.files[e.node, e.file] = _joined(span, FileSpan(ts, ts, log))
        if log == STATE_CHANGE_LOG and ts is not None:
            self.logged_hours.setdefault(e.node, set()).add(ts // HOUR)
            if e.level == "TRACE":
                self.tracers.add((folder_of(e.file), e.node))
                self.traced_hours.setdefault(e.node, set()).add(ts // HOUR)
        if e.level == "DEBUG" and e.logger == REPLICATION_CONTROL:
            self.change_printers.add((folder_of(e.file), e.node))
        if kind in LEADING:
            _add_hour(self.led, e)
        if kind == "replica_state_changed":
            self.hides_state_before |= e.from_state is None
            if takes_back(e):
                _add_hour(self.taken_back, e._replace(node=e.replica))
        if is_of_other_cluster(e):
            _add_hour(self.foreign, e)
        if kind == "roles_changing" and e.text == "local leaders":
            _add_hour(self.worked, e)
        if e.controller_epoch is not None and e.controller is not None:
            if ts is not None:
                places = self.sent.setdefault((e.controller_epoch, e.controller), {})
                place = (folder_of(e.file), e.node)
                first_mention = ts, e.record_id
                places[place] = min(places.get(place, first_mention), first_mention)
            if e.controller != e.node and log == STATE_CHANGE_LOG:
                _add_hour(self.worked, e)
            # up to 2.0 an elected controller reads the epoch of the one before
            if e.controller == e.node and kind != "controller_epoch_read":
                _add_hour(self.spoke, e)
                self._add_own_line(e, log)
        if kind in OF_MODE:
            days = self.mode_events.setdefault(kind, {})
            days[_day(ts)] = _named_from_to(days.get(_day(ts), (ts, ts)), (ts, ts))
        if e.topic_id is not None and e.topic is not None:
            ids = self.topic_ids.setdefault(e.topic, {})
            first, last = ids.get(e.topic_id, (ts, ts))
            ids[e.topic_id] = earlier(first, ts), later(last, ts)
        if prints_replica_state(e):
            self.tracers.add((folder_of(e.file), e.node))
        setting = setting_of(e)
        if setting is not None and kind == "log_created" and setting.topic and setting.value:
            with_it = setting.topic, setting.value, (folder_of(e.file), e.node)
            self.created[with_it] = min(
                self.created.get(with_it, (setting.ts, e.record_id)), (setting.ts, e.record_id)
            )
        elif setting is not None or is_cluster_event(e):
            self.cluster_events[e.record_id, e.item] = e

    def _add_names(self, e: Event) -> None:
        """Add the nodes that a line names, and the node that wrote it."""
        # lines of the quorum, and those about connections to it, name voters
        is_of_quorum = e.event_type == "node_unreachable" or ".raft." in (e.logger or "")
        lists = [ids for name in MEMBER_LISTS if (ids := getattr(e, name))]
        if e.brokers is not None and not is_of_quorum:
            # the list of the live brokers may be empty
            lists.append(e.brokers)
        as_broker = AS_CONTROLLER if is_of_quorum else AS_PEER if e.logger == CONNECTIONS else AS_BROKER
        named = {(node, AS_BROKER) for ids in lists for node in ids}
        named |= {(node, as_broker) for node in (e.leader, e.broker, e.replica) if node is not None}
        named |= {(node, AS_CONTROLLER) for node in (e.controller, e.quorum_node) if node is not None}
        if is_of_quorum:
            named |= {(node, AS_CONTROLLER) for node in e.brokers or ()}
        if e.node is not None:
            named.add((e.node, AS_WRITER))
        place = folder_of(e.file), e.node
        span = e.ts, e.ts
        if lists:
            self.listed[place] = _named_from_to(self.listed.get(place, span), span)
        known = self.named.setdefault(place, {})
        for key in named:
            if 0 <= key[0] < LARGEST_NODE:
                known[key] = _named_from_to(known[key], span) if key in known else span

    def _add_own_line(self, e: Event, log: int) -> None:
        """Add a line that a controller prints in a term of its own."""
        assert e.controller_epoch is not None
        term = e.controller_epoch, e.node
        line = RecordPlace(e.ts, log, e.file, e.record_no, e.record_id)
        days = self.terms.setdefault(term, {})
        day = _day(e.ts)
        if day not in days or in_files(line) < in_files(days[day]):
            days[day] = line
        if e.ts is not None and is_from_memory(e):
            self.from_memory.setdefault(term, []).append(e.ts)

    def __add__(self, other: "ClusterEvidence") -> "ClusterEvidence":
        """Return the evidence of the events of both. No event may be in both."""
        both = ClusterEvidence(
            cluster_events=self.cluster_events | other.cluster_events,
            files=_merged(self.files, other.files, _joined),
            traced_hours=_merged(self.traced_hours, other.traced_hours, set.union),
            logged_hours=_merged(self.logged_hours, other.logged_hours, set.union),
            mode_events=_merged(
                self.mode_events, other.mode_events, lambda a, b: _merged(a, b, _named_from_to)
            ),
            terms=_merged(
                self.terms, other.terms, lambda a, b: _merged(a, b, lambda x, y: min(x, y, key=in_files))
            ),
            from_memory=_merged(
                self.from_memory, other.from_memory, lambda a, b: sorted([*a, *b])[-MOST_FROM_MEMORY:]
            ),
            sent=_merged(self.sent, other.sent, lambda a, b: _merged(a, b, min)),
            worked=_merged(self.worked, other.worked, lambda a, b: _merged(a, b, _first_and_last)),
            spoke=_merged(self.spoke, other.spoke, lambda a, b: _merged(a, b, _first_and_last)),
            led=_merged(self.led, other.led, lambda a, b: _merged(a, b, _first_and_last)),
            taken_back=_merged(
                self.taken_back, other.taken_back, lambda a, b: _merged(a, b, _first_and_last)
            ),
            foreign=_merged(self.foreign, other.foreign, lambda a, b: _merged(a, b, _first_and_last)),
            topic_ids=_merged(self.topic_ids, other.topic_ids, lambda a, b: _merged(a, b, _named_from_to)),
            tracers=self.tracers | other.tracers,
            change_printers=self.change_printers | other.change_printers,
            checkpoints=self.checkpoints | other.checkpoints,
            named=_merged(self.named, other.named, lambda a, b: _merged(a, b, _named_from_to)),
            listed=_merged(self.listed, other.listed, _named_from_to),
            created=_merged(self.created, other.created, min),
            hides_state_before=self.hides_state_before or other.hides_state_before,
        )
        return both

    @property
    def changes_since(self) -> int | None:
        """Return the oldest time stamp of the files that print changes of partitions; None if there is none."""
        logs = STATE_CHANGE_LOG | CONTROLLER_LOG
        return min(
            (span.first for span in self.files.values() if span.logs & logs and span.first is not None),
            default=None,
        )

    @property
    def newest(self) -> int:
        """Return the newest time stamp; -1 if there is none."""
        return max((span.last for span in self.files.values() if span.last is not None), default=-1)

    def logs_of_nodes(self) -> dict[int | None, int]:
        """Return node -> those of Kafka's logs that have a record of it which a rule matches (bits)."""
        found: dict[int | None, int] = {}
        for (node, _), span in self.files.items():
            found[node] = found.get(node, 0) | span.logs
        return found

    def newest_of_places(self) -> dict[Place, int]:
        """Return place -> its newest time stamp."""
        found: dict[Place, int] = {}
        for (node, file), span in self.files.items():
            place = folder_of(file), node
            found[place] = max(found.get(place, -1), -1 if span.last is None else span.last)
        return found

    def to_json(self) -> str:
        """Return JSON, which is the same for equal evidence."""
        defaults = Event._field_defaults
        events = [
            {name: value for name, value in e._asdict().items() if value is not None or name not in defaults}
            for _, e in sorted(self.cluster_events.items())
        ]
        return json.dumps(
            {
                "cluster_events": events,
                "files": _sorted((*key, *span) for key, span in self.files.items()),
                "traced_hours": _sorted((node, sorted(hours)) for node, hours in self.traced_hours.items()),
                "logged_hours": _sorted((node, sorted(hours)) for node, hours in self.logged_hours.items()),
                "mode_signs": _sorted(
                    (name, day, *span)
                    for name, days in self.mode_events.items()
                    for day, span in days.items()
                ),
                "terms": _sorted(
                    (*term, day, *line) for term, days in self.terms.items() for day, line in days.items()
                ),
                "from_memory": _sorted((*term, times) for term, times in self.from_memory.items()),
                "sent": _sorted(
                    (*term, *place, *first)
                    for term, places in self.sent.items()
                    for place, first in places.items()
                ),
                "worked": _hour_rows(self.worked),
                "spoke": _hour_rows(self.spoke),
                "led": _hour_rows(self.led),
                "taken_back": _hour_rows(self.taken_back),
                "foreign": _hour_rows(self.foreign),
                "topic_ids": {
                    topic: dict(sorted(ids.items())) for topic, ids in sorted(self.topic_ids.items())
                },
                "tracers": _sorted(self.tracers),
                "change_printers": _sorted(self.change_printers),
                "checkpoints": sorted(self.checkpoints),
                "named": _sorted(
                    (*place, *key, *span)
                    for place, nodes in self.named.items()
                    for key, span in nodes.items()
                ),
                "listed": _sorted((*place, *span) for place, span in self.listed.items()),
                "created": _sorted(
                    (topic, value, *place, *first) for (topic, value, place), first in self.created.items()
                ),
                "hides_state_before": self.hides_state_before,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the evidence of the output of `to_json`."""
        stored = json.loads(text)
        terms: dict[Term, dict[int, RecordPlace]] = {}
        for epoch, node, day, *line in stored["terms"]:
            terms.setdefault((epoch, node), {})[day] = RecordPlace(*line)
        sent: dict[Term, dict[Place, Mention]] = {}
        for epoch, node, folder, of_node, ts, record_id in stored["sent"]:
            sent.setdefault((epoch, node), {})[folder, of_node] = ts, record_id
        mode_events: dict[str, dict[int, Named]] = {}
        for name, day, first, last in stored["mode_signs"]:
            mode_events.setdefault(name, {})[day] = first, last
        named: dict[Place, dict[tuple[int, int], Named]] = {}
        for folder, of_node, node, role, first, last in stored["named"]:
            named.setdefault((folder, of_node), {})[node, role] = first, last
        return cls(
            cluster_events={(e["record_id"], e["item"]): Event(**e) for e in stored["cluster_events"]},
            files={(node, file): FileSpan(*span) for node, file, *span in stored["files"]},
            traced_hours={node: set(hours) for node, hours in stored["traced_hours"]},
            logged_hours={node: set(hours) for node, hours in stored["logged_hours"]},
            mode_events=mode_events,
            terms=terms,
            from_memory={(epoch, node): times for epoch, node, times in stored["from_memory"]},
            sent=sent,
            worked=_hours_of(stored["worked"]),
            spoke=_hours_of(stored["spoke"]),
            led=_hours_of(stored["led"]),
            taken_back=_hours_of(stored["taken_back"]),
            foreign=_hours_of(stored.get("foreign", ())),
            topic_ids={
                topic: {name: (a, z) for name, (a, z) in ids.items()}
                for topic, ids in stored["topic_ids"].items()
            },
            tracers={(folder, node) for folder, node in stored["tracers"]},
            change_printers={(folder, node) for folder, node in stored.get("change_printers", ())},
            checkpoints=set(stored["checkpoints"]),
            named=named,
            listed={(folder, node): (first, last) for folder, node, first, last in stored["listed"]},
            created={
                (topic, value, (folder, node)): (ts, record)
                for topic, value, folder, node, ts, record in stored["created"]
            },
            hides_state_before=stored["hides_state_before"],
        )


def _add_hour(hours: Hours, e: Event) -> None:
    """Add a line to the hours of its node."""
    if e.ts is None or e.node is None:
        return
    mention = e.ts, e.record_id
    mine, hour = hours.setdefault((folder_of(e.file), e.node), {}), e.ts // HOUR
    known = mine.get(hour)
    if known is None:
        mine[hour] = mention, mention
    elif not known[0] <= mention <= known[1]:
        mine[hour] = _first_and_last(known, (mention, mention))


def _hour_rows(hours: Hours) -> list[Any]:
    return _sorted(
        (*place, hour, *first, *last) for place, mine in hours.items() for hour, (first, last) in mine.items()
    )


def mentions(hours: Hours) -> Iterator[tuple[str, int | None, int, str]]:
    """Yield (folder, node, time stamp, record) of each line."""
    for (folder, node), mine in hours.items():
        for ts, record_id in {mention for both in mine.values() for mention in both}:
            yield folder, node, ts, record_id


def _hours_of(rows: Iterable[Any]) -> Hours:
    found: Hours = {}
    for folder, node, hour, *mention in rows:
        found.setdefault((folder, node), {})[hour] = (mention[0], mention[1]), (mention[2], mention[3])
    return found


def _merged(one: Mapping[Any, Any], other: Mapping[Any, Any], merge: Any) -> dict[Any, Any]:
    """Return the union of two dictionaries; values of common keys are merged."""
    return {**one, **{key: merge(one[key], value) if key in one else value for key, value in other.items()}}


def _first_and_last(one: tuple[Mention, Mention], other: tuple[Mention, Mention]) -> tuple[Mention, Mention]:
    return min(one[0], other[0]), max(one[1], other[1])


def _sorted(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=repr)


def _day(ts: int | None) -> int:
    """Return the day since 1970; -1 for None."""
    return -1 if ts is None else ts // DAY


def in_files(line: RecordPlace) -> tuple[Any, ...]:
    """Return the order of a line; lines without a time stamp are first."""
    return (line.ts is not None, line.ts or 0, *line[1:])


def earlier(one: int | None, other: int | None) -> int | None:
    """Return the earlier of two moments, either of which may be unknown."""
    return other if one is None else one if other is None else min(one, other)


def later(one: int | None, other: int | None) -> int | None:
    """Return the later of two moments, either of which may be unknown."""
    return other if one is None else one if other is None else max(one, other)


def _joined(one: FileSpan, other: FileSpan) -> FileSpan:
    return FileSpan(earlier(one.first, other.first), later(one.last, other.last), one.logs | other.logs)


def _named_from_to(one: Named, other: Named) -> Named:
    return earlier(one[0], other[0]), later(one[1], other[1])
