"""Derive what the partitions of a cluster share.

That is: incarnations, mode, controllers, brokers, topic ids, files.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

from jobs.timelines.cluster_evidence import (
    AS_BROKER,
    AS_CONTROLLER,
    CONTROLLER_LOG,
    ELECTED,
    KRAFT_BROKER,
    KRAFT_CONTROLLER,
    METADATA_DUMP,
    METADATA_LOG,
    PARTITION_RECORDS,
    REGISTERED_BY_ZOOKEEPER,
    SERVER_LOG,
    STATE_CHANGE_LOG,
    TERM_ENDED,
    ZOOKEEPER_CONTROLLER,
    ClusterEvidence,
    Named,
    RecordPlace,
    begins_metadata_log,
    earlier,
    in_files,
    is_from_memory,
    is_registered_by_zookeeper,
    later,
    log_of,
    mentions,
)
from jobs.timelines.event import Event, PartitionKey, with_next
from jobs.timelines.incarnations import Lineage, Marker, folder_of, incarnation, incarnation_ends, lineages
from jobs.timelines.kraft_facts import FOREVER, KRaftFacts, Span, kraft_facts, registration_observations
from jobs.timelines.outages import RUNNING, WORKING, Observation, Outage, is_start, left_out, outages
from jobs.timelines.settings import Setting, setting_of

SortKey = tuple[int, int, int, int, int]
# a running node may write nothing for this long: brokers and controllers have tasks that log every few
# minutes
QUIET = 3_600_000_000
# a node that names another cluster is refused within this time (microseconds)
REFUSED_WITHIN = QUIET // 6
# the span of lines without a time stamp: their time counts as 0
UNDATED: Span = (-1, 1)


@dataclass(frozen=True)
class IncarnationFacts:
    """The facts that all partitions of one incarnation share. Times are microseconds.

    end: when it ended; None: it did not. kraft_since: from when on KRaft controllers run it (-1: always);
    None: ZooKeeper controllers do.
    deposed: controller epoch -> since when a later one is known. elected: controller epoch, node and time of
    elections.
    deletions: topic -> its `deletion_completed`. starts: broker -> its `broker_started`. tracers: nodes that
    print replica states.
    places: (node, file, log) -> rank among the files of the cluster. heard: when there is a controller.log of
    the active ZooKeeper controller. keeps: event type -> fields that the rules say are unchanged.
    """

    number: int = 1
    end: int | None = None
    kraft_since: int | None = None
    deposed: Mapping[int, int] = field(default_factory=dict)
    elected: Sequence[tuple[int, int | None, int]] = ()
    deletions: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    starts: Mapping[int, Sequence[Event]] = field(default_factory=dict)
    tracers: frozenset[int | None] = frozenset()
    places: Mapping[tuple[int | None, str, int], int] = field(default_factory=dict)
    heard: Sequence[Span] = ()
    keeps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kraft: KRaftFacts = field(default_factory=KRaftFacts)

    def is_deposed(self, e: Event) -> bool:
        """Return whether a controller prints a state from memory after a later one was elected.

        A controller that was paused or cut off works until it learns that it was deposed.
        """
        if not is_from_memory(e):
            return False
        epoch = self.controller_epoch_of(e)
        since = None if epoch is None else self.deposed.get(epoch)
        return since is not None and (e.ts or 0) > since

    def controller_epoch_of(self, e: Event) -> int | None:
        """Return the controller epoch of a line.

        If the line names none, it is the epoch of the node's last election.
        """
        if e.controller_epoch is not None:
            return e.controller_epoch
        return max(
            (own for own, node, at in self.elected if node == e.node and at <= (e.ts or 0)), default=None
        )

    def hears_controller(self, since: int | None, until: int | None) -> bool:
        """Return whether a log of the active ZooKeeper controller covers the time between two moments."""
        heard_until = since or 0
        for begun, ended in self.heard:
            if begun <= heard_until < ended:
                heard_until = ended
        return heard_until > max(since or 0, until or 0)

    def is_of_kraft(self, e: Event) -> bool:
        """Return whether KRaft controllers run the cluster at the time of an event."""
        return self.is_kraft_at(e.ts)

    def is_kraft_at(self, ts: int | None) -> bool:
        """Return whether KRaft controllers run the cluster at a moment."""
        return self.kraft_since is not None and (
            self.kraft_since < 0 or (ts is not None and ts >= self.kraft_since)
        )

    def sort_key(self, e: Event, tiebreak: int = 1) -> SortKey:
        """Return the order of an event: time, then tiebreak, then the place in the logs.

        tiebreak: what Kafka does first within a millisecond.
        """
        return e.ts or 0, tiebreak, self.places[e.node, e.file, log_of(e.logger)], e.record_no, e.item


class NamedNode(NamedTuple):
    """A node that lines name.

    since: the first time in microseconds; -1: unknown. logs: which of Kafka's logs exist for it (bits).
    is_broker, is_controller: whether it may be one; under KRaft lines name it as such.
    """

    since: int
    is_broker: bool
    is_controller: bool
    logs: int


class Heard(NamedTuple):
    """A time in which changes would have been logged.

    until: the last line; quiet_until: a running node may write nothing until then.
    """

    since: int
    until: int
    quiet_until: int


class ClusterFacts:
    """The facts that the partitions of a cluster share.

    of_name: the clusters that logged under its name. by_number: incarnation -> its facts.
    """

    def __init__(self, evidence: ClusterEvidence, keeps: Mapping[str, Sequence[str]]) -> None:
        self.evidence = evidence
        self.keeps = keeps
        self.of_name: list[Lineage] = lineages(self._markers(), evidence.newest_of_places())
        self.kraft_since = _kraft_since(self._mode_events())
        self.places = file_ranks(evidence)

    @classmethod
    def of(cls, evidence: ClusterEvidence, keeps: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Return the facts that follow from the evidence.

        keeps: event type -> fields that the rules say are unchanged.
        """
        return cls(evidence, keeps or {})

    def to_json(self) -> str:
        """Return the evidence from which they are derived, as JSON."""
        return self.evidence.to_json()

    @classmethod
    def from_json(cls, text: str, keeps: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Return the facts of the output of `to_json`."""
        return cls.of(ClusterEvidence.from_json(text), keeps)

    def _markers(self) -> list[Marker]:
        heard = [
            Marker(ts, epoch, folder=folder, node=node, heard=True)
            for (epoch, _), places in self.evidence.sent.items()
            for (folder, node), (ts, _) in sorted(places.items(), key=lambda one: one[1])[:1]
        ]
        daily = [
            Marker(line.ts, epoch, folder=folder_of(line.file), node=node, is_daily=True)
            for (epoch, node), days in self.evidence.terms.items()
            for line in days.values()
            if line.ts is not None
        ]
        of_kraft = [
            Marker(ts, kraft=True)
            for name, days in self.evidence.mode_events.items()
            for ts, _ in days.values()
            if name in KRAFT_BROKER | KRAFT_CONTROLLER and ts is not None
        ]
        begun = [
            Marker(e.ts, folder=folder_of(e.file), node=e.node, started=True)
            for e in self.evidence.cluster_events.values()
            if e.ts is not None and is_start(e)
        ]
        registered = [
            Marker(e.ts, folder=folder_of(e.file), node=e.node, registered=(e.broker, e.broker_epoch))
            for e in self.evidence.cluster_events.values()
            # broker epochs of KRaft are offsets of its metadata log
            if e.ts is not None
            and e.broker is not None
            and e.broker_epoch is not None
            and is_registered_by_zookeeper(e)
        ]
        return (
            heard
            + daily
            + of_kraft
            + begun
            + registered
            + [
                Marker(
                    e.ts,
                    e.controller_epoch if e.event_type in ELECTED else None,
                    self._joined(e),
                    begins_metadata_log(e),
                    folder_of(e.file),
                    e.node,
                )
                for e in self.evidence.cluster_events.values()
                if e.ts is not None
                and (e.event_type in ELECTED or e.cluster_id is not None or begins_metadata_log(e))
            ]
        )

    def _joined(self, e: Event) -> str | None:
        """Return the cluster id of a line.

        None if the node was refused for it: the cluster is still the one before.
        """
        if e.cluster_id is None or e.ts is None:
            return None
        refused = self.evidence.foreign.get((folder_of(e.file), e.node), {}).values()
        is_refused = any(first[0] < e.ts + REFUSED_WITHIN and e.ts <= last[0] for first, last in refused)
        return None if is_refused else e.cluster_id

    @property
    def kafka_version(self) -> str | None:
        """Return the last version that a line names; None: no line names one."""
        named = [e for e in self.ordered_events if e.kafka_version is not None]
        return named[-1].kafka_version if named else None

    @property
    def cluster_ids(self) -> frozenset[str]:
        """Return the cluster ids that lines name."""
        return frozenset(e.cluster_id for e in self.ordered_events if e.cluster_id is not None)

    @property
    def has_metadata_log(self) -> bool:
        """Return whether a dump of the metadata log is among the logs."""
        return any(e.logger == METADATA_LOG for e in self.ordered_events)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the incarnations."""
        return sorted(self.by_number)

    def hears_of(self, e: Event) -> bool:
        """Return whether the logs had begun when a checkpoint was taken; earlier changes are in no log."""
        since = self.evidence.changes_since
        return e.ts is not None and since is not None and since <= e.ts

    def incarnation_of(self, e: Event) -> int:
        """Return the incarnation of an event."""
        return incarnation(self.of_name, e.file, e.node, e.ts)

    def _mode_events(self, number: int | None = None) -> dict[str, Named]:
        """Return event type that shows the mode -> first and last time, in one incarnation or in all."""
        found: dict[str, Named] = {}
        for name, days in self.evidence.mode_events.items():
            every = [
                ts
                for span in days.values()
                for ts in span
                if number is None or self.of_name[0].number_at(ts) == number
            ]
            if every:
                some = [ts for ts in every if ts is not None]
                found[name] = min(some, default=None), max(some, default=None)
        for e in self.evidence.cluster_events.values():
            if is_registered_by_zookeeper(e) and (
                number is None or self.of_name[0].number_at(e.ts) == number
            ):
                first, last = found.get(e.event_type, (e.ts, e.ts))
                found[e.event_type] = earlier(first, e.ts), later(last, e.ts)
        return found

    def may_elect_last_leader(self, number: int) -> bool:
        """Return whether controllers may elect the last leader as recovering (KIP-966: KRaft from 3.7 on)."""
        mode_events = self._mode_events(number) if len(self.of_name) == 1 else self._mode_events()
        is_of_zookeeper = self[number].kraft_since is None and bool(
            mode_events.keys() & (ZOOKEEPER_CONTROLLER | REGISTERED_BY_ZOOKEEPER)
        )
        version = [int(part) for part in (self.kafka_version or "").split(".")[:2] if part.isdecimal()]
        return not is_of_zookeeper and not (len(version) == 2 and version < [3, 7])

    def _kraft_since_of(self, number: int) -> int | None:
        """Return `kraft_since` of one incarnation; that of the cluster if its own lines do not show the mode."""
        mode_events = self._mode_events(number) if len(self.of_name) == 1 else {}
        return _kraft_since(mode_events) if mode_events else self.kraft_since

    def __getitem__(self, number: int) -> IncarnationFacts:
        return self.by_number.get(number) or IncarnationFacts(
            number, kraft_since=self.kraft_since, places=self.places, keeps=self.keeps
        )

    def key_of(self, e: Event) -> PartitionKey | None:
        """Return the partition whose history an event belongs to.

        None: no partition, or a line from memory of a deposed controller.
        Records of a metadata log name their topic by its id.
        """
        if e.partition is None:
            return None
        number = self.incarnation_of(e)
        topic = e.topic or self[number].kraft.names.get(e.topic_id or "")
        if (
            topic is None
            or (not e.topic and e.event_type not in PARTITION_RECORDS)
            or self[number].is_deposed(e)
        ):
            return None
        return PartitionKey(number, topic, e.partition)

    def order(self, e: Event) -> SortKey:
        """Return the order of an event of the cluster."""
        return e.ts or 0, 1, self.places[e.node, e.file, log_of(e.logger)], e.record_no, e.item

    @cached_property
    def ordered_events(self) -> list[Event]:
        """Return the cluster events, in order."""
        return sorted(self.evidence.cluster_events.values(), key=self.order)

    @cached_property
    def settings_by_number(self) -> dict[int, list[Setting]]:
        """Return incarnation -> logged settings of min.insync.replicas, in order of time."""
        found: dict[int, list[Setting]] = {}
        for (topic, value, (folder, node)), (ts, _) in self.evidence.created.items():
            number = incarnation(self.of_name, f"{folder}/", node, ts)
            found.setdefault(number, []).append(Setting(ts, topic, value))
        for number, events in self.events_by_number.items():
            found.setdefault(number, []).extend(one for e in events if (one := setting_of(e)))
        return {number: sorted(settings, key=lambda one: one.ts) for number, settings in found.items()}

    @cached_property
    def events_by_number(self) -> dict[int, list[Event]]:
        """Return incarnation -> its cluster events, in order."""
        found: dict[int, list[Event]] = {number: [] for one in self.of_name for number in one.numbers}
        for e in self.ordered_events:
            found.setdefault(self.incarnation_of(e), []).append(e)
        return found

    @cached_property
    def by_number(self) -> dict[int, IncarnationFacts]:
        """Return incarnation -> what its partitions share."""
        events = self.events_by_number
        ends = incarnation_ends(self.of_name)
        ids = self._topic_ids(events)
        return {
            number: IncarnationFacts(
                number=number,
                end=ends.get(number),
                kraft_since=kraft_since,
                deposed=_deposed(some),
                elected=_elected(some),
                deletions=_by(some, "deletion_completed", "topic"),
                starts=_by(some, "broker_started", "broker"),
                tracers=self._tracers(number),
                places=self.places,
                heard=self._heard(number),
                keeps=self.keeps,
                kraft=KRaftFacts() if kraft_since is None else kraft_facts(some, ids.get(number, {})),
            )
            for number, some in events.items()
            for kraft_since in [self._kraft_since_of(number)]
        }

    def left_out(self, number: int, assigned: Iterable[int]) -> set[int]:
        """Return the brokers with replicas for which `outages` needs to know since when they have them."""
        return left_out(self.events_by_number.get(number, ()), assigned)

    def outages(self, number: int, assigned: Mapping[int, int | None] | None = None) -> list[Outage]:
        """Return the outages of one incarnation.

        assigned: broker with replicas -> since when; None: unknown, or not needed.
        """
        more = registration_observations(self[number].kraft)
        for work in (self.work_by_number, self.runs_by_number):
            for broker, observations in work.get(number, {}).items():
                more.setdefault(broker, []).extend(observations)
        named = self.named_by_number.get(number, {})
        brokers = {node: one.since for node, one in named.items() if one.is_broker}
        return outages(
            self.events_by_number[number],
            assigned,
            more,
            named=brokers,
            is_heard=self.hears_every_node(number),
        )

    @cached_property
    def named_by_number(self) -> dict[int, dict[int, NamedNode]]:
        """Return incarnation -> every node that a line names or that wrote a line."""
        heard = self.evidence.logs_of_nodes()
        found: dict[int, dict[int, NamedNode]] = {}
        for (folder, of_node), nodes in self.evidence.named.items():
            for (node, role), (first, last) in nodes.items():
                for number in self._numbers_of(folder, of_node, first, last):
                    # every ZooKeeper broker may be controller
                    is_of_zookeeper = not self[number].is_kraft_at(last)
                    mine, since = found.setdefault(number, {}), -1 if first is None else first
                    before = mine.get(node, NamedNode(since, False, False, heard.get(node, 0)))
                    mine[node] = NamedNode(
                        min(before.since, since),
                        before.is_broker or is_of_zookeeper or role == AS_BROKER,
                        before.is_controller or is_of_zookeeper or role == AS_CONTROLLER,
                        before.logs,
                    )
        return found

    def hears_every_node(self, number: int) -> bool:
        """Return whether lines list brokers of an incarnation, and there are logs of every named node.

        Otherwise there may be further brokers.
        A dump of the metadata log has all changes of brokers and partitions.
        """
        return number in self.listed_in and (
            number in self.dumped_in or all(one.logs for one in self.named_by_number.get(number, {}).values())
        )

    def hears_every_controller(self, number: int) -> bool:
        """Return whether there is a controller's log of every possible controller.

        With ZooKeeper these are all brokers, with KRaft the voters.
        """
        controllers = [one for one in self.named_by_number.get(number, {}).values() if one.is_controller]
        return number in self.dumped_in or (
            bool(controllers) and all(one.logs & CONTROLLER_LOG for one in controllers)
        )

    @cached_property
    def newest_of_nodes(self) -> dict[int, int]:
        """Return node -> the time stamp of its last line."""
        found: dict[int, int] = {}
        for (node, _), span in self.evidence.files.items():
            if node is not None and span.last is not None:
                found[node] = max(found.get(node, span.last), span.last)
        return found

    @cached_property
    def newest_server_logs(self) -> dict[int, int]:
        """Return node -> the time stamp of its last line, of nodes with other logs than state-change.log."""
        logs = self.evidence.logs_of_nodes()
        return {
            node: newest
            for node, newest in self.newest_of_nodes.items()
            if logs.get(node, 0) & ~STATE_CHANGE_LOG
        }

    @cached_property
    def controller_heard(self) -> dict[int, list[Heard]]:
        """Return incarnation -> spans in which decisions of controllers are logged, in order.

        The active ZooKeeper controller has a log then, or any KRaft controller: all of them replay what the
        active one decides.
        """
        return self._controllers_heard(
            lambda folder, node, logs: bool(logs & (CONTROLLER_LOG | METADATA_DUMP))
        )

    @cached_property
    def changes_heard(self) -> dict[int, list[Heard]]:
        """Return incarnation -> spans in which controllers log leaders and ISRs.

        KRaft: at DEBUG, and dumps of the metadata log.
        """
        printers = self.evidence.change_printers
        return self._controllers_heard(
            lambda folder, node, logs: bool(logs & METADATA_DUMP) or (folder, node) in printers
        )

    def _controllers_heard(self, of_kraft: Callable[[str, int | None, int], bool]) -> dict[int, list[Heard]]:
        """Return incarnation -> spans with logs of controllers.

        of_kraft: whether files of a folder and node with these logs count.
        """
        spans: dict[int, list[Heard]] = {}
        for (node, file), span in self.evidence.files.items():
            if (
                of_kraft(folder_of(file), node, span.logs)
                and span.first is not None
                and span.last is not None
            ):
                for number in self._numbers_of(folder_of(file), node, span.first, span.last):
                    spans.setdefault(number, []).append(Heard(span.first, span.last, span.last + QUIET))
        return {
            number: _joined(
                spans.get(number, [])
                if self[number].kraft_since is not None or number in self.dumped_in
                else self._active_until_quiet(number)
            )
            for number in self.events_by_number
        }

    @cached_property
    def dumped_in(self) -> frozenset[int]:
        """Return the incarnations that have a dump of the metadata log."""
        dumps = [
            (node, file, span)
            for (node, file), span in self.evidence.files.items()
            if span.logs & METADATA_DUMP
        ]
        return frozenset(
            number
            for node, file, span in dumps
            for number in self._numbers_of(folder_of(file), node, span.first, span.last)
        )

    @cached_property
    def listed_in(self) -> frozenset[int]:
        """Return the incarnations in which a line lists brokers: live brokers, replicas or an ISR."""
        spans = self.evidence.listed.items()
        return frozenset(number for place, span in spans for number in self._numbers_of(*place, *span))

    def _numbers_of(self, folder: str, node: int | None, first: int | None, last: int | None) -> range:
        """Return the incarnations of the lines of a place that were written between two moments."""
        begun, ended = (incarnation(self.of_name, f"{folder}/", node, ts) for ts in (first, last))
        return range(min(begun, ended), max(begun, ended) + 1)

    @cached_property
    def first_lines(self) -> dict[tuple[int, int, int | None], RecordPlace]:
        """Return (incarnation, controller epoch, node) -> the first line of the node in this term."""
        found: dict[tuple[int, int, int | None], RecordPlace] = {}
        for (epoch, node), days in self.evidence.terms.items():
            for line in days.values():
                key = incarnation(self.of_name, line.file, node, line.ts), epoch, node
                found[key] = min(found.get(key, line), line, key=in_files)
        return found

    @cached_property
    def work_by_number(self) -> dict[int, dict[int, list[Observation]]]:
        """Return incarnation -> broker -> lines that show that it takes part.

        They are the first and the last of an hour, and the first of a term of its own. Lines of a ZooKeeper
        controller that the broker is back count, too. Later lines of a controller's term, and requests to
        itself, do not: a controller may write them without a session.
        """
        begun = self._begun(of_kraft=False)
        return self._by_number([*mentions(self.evidence.worked), *mentions(self.evidence.taken_back), *begun])

    @cached_property
    def runs_by_number(self) -> dict[int, dict[int, list[Observation]]]:
        """Return incarnation -> broker -> lines that begin a term of the KRaft controller in its process."""
        return self._by_number(self._begun(of_kraft=True), RUNNING)

    def _begun(self, of_kraft: bool) -> list[tuple[str, int | None, int | None, str]]:
        """Return the first line of each term with a higher epoch than all before, as `mentions`."""
        begun: list[tuple[str, int | None, int | None, str]] = []
        newest: dict[int, int] = {}
        for (number, epoch, node), line in sorted(self.first_lines.items(), key=lambda one: one[1].ts or 0):
            if self[number].is_kraft_at(line.ts) == of_kraft and epoch >= newest.setdefault(number, epoch):
                newest[number] = epoch
                begun.append((folder_of(line.file), node, line.ts, line.record_id))
        return begun

    @cached_property
    def alive_by_number(self) -> dict[int, dict[int, list[Observation]]]:
        """Return incarnation -> broker -> lines of its process: `work_by_number` and all its terms."""
        return self._by_number([*mentions(self.evidence.worked), *mentions(self.evidence.spoke)])

    @cached_property
    def led_by_number(self) -> dict[int, dict[int, list[Observation]]]:
        """Return incarnation -> broker -> lines that only a controller prints: first and last of an hour."""
        return self._by_number(mentions(self.evidence.led))

    def _by_number(
        self, lines: Iterable[tuple[str, int | None, int | None, str]], shows: str = WORKING
    ) -> dict[int, dict[int, list[Observation]]]:
        found: dict[int, dict[int, list[Observation]]] = {}
        for folder, node, ts, record_id in sorted(
            {one for one in lines if one[2] is not None}, key=lambda one: one[2:]
        ):
            if node is not None and ts is not None:
                number = incarnation(self.of_name, f"{folder}/", node, ts)
                found.setdefault(number, {}).setdefault(node, []).append(Observation(ts, shows, record_id))
        return found

    @cached_property
    def heard_until(self) -> dict[int, int]:
        """Return ended incarnation -> the time stamp of its last line: its state is known until then."""
        ends = incarnation_ends(self.of_name)
        return {
            number: max(
                (e.ts for e in self.events_by_number.get(number, ()) if e.ts is not None and e.ts < end),
                default=end,
            )
            for number, end in ends.items()
        }

    @cached_property
    def newest_by_number(self) -> dict[int, int]:
        """Return incarnation -> when it ended, or the newest time stamp of its files."""
        found: dict[int, int] = {}
        for (node, file), span in self.evidence.files.items():
            if span.last is not None:
                number = incarnation(self.of_name, file, node, span.last)
                found[number] = max(found.get(number, span.last), span.last)
        return found | incarnation_ends(self.of_name)

    def _is_of(self, number: int, file: str, node: int | None) -> bool:
        """Return whether a file of a node belongs to the cluster of an incarnation."""
        if len(self.of_name) == 1:
            return True
        found = incarnation(self.of_name, file, node, None)
        return any(found in one.numbers for one in self.of_name if number in one.numbers)

    def _tracers(self, number: int) -> frozenset[int | None]:
        """Return the nodes of the cluster of one incarnation that print replica states."""
        return frozenset(
            node for folder, node in self.evidence.tracers if self._is_of(number, f"{folder}/", node)
        )

    def _heard(self, number: int) -> list[Span]:
        """Return the spans of one incarnation in which there is a controller.log of the active controller.

        A controller is active until a line shows the next one. A file without time stamps counts as that of
        the active controller.
        """
        return [span for span, _, _ in self._active_controllers(number)]

    def _active_until_quiet(self, number: int) -> Iterable[Heard]:
        """Yield the spans of `_heard` up to the last line of the active controller.

        Its resignation or the next start of its process also ends a span.
        If there is a controller's log of every broker, the next controller would have been logged after that.
        """
        newest = self.newest_of_nodes
        every = max(newest.values(), default=-1) if self.hears_every_controller(number) else None
        events = [e for e in self.events_by_number[number] if e.event_type in TERM_ENDED or is_start(e)]
        for (since, until), node, begun in self._active_controllers(number):
            resigned = min(
                (e.ts for e in events if e.node == node and e.ts is not None and begun < e.ts < until),
                default=None,
            )
            if resigned is not None and every is not None:
                yield Heard(since, max(resigned, min(every, until)), min(max(resigned, every) + QUIET, until))
                continue
            end = until if resigned is None else resigned
            last = end if node is None else min(end, newest.get(node, end))
            yield Heard(since, last, min(end, last + QUIET))

    def _active_controllers(self, number: int) -> list[tuple[Span, int | None, int]]:
        """Return (span of `_heard`, node of this controller.log, its first line as active controller)."""
        logs_undated = (span.logs for span in self.evidence.files.values() if span.first is None)
        undated: list[tuple[Span, int | None, int]] = []
        if any(logs & CONTROLLER_LOG for logs in logs_undated):
            undated = [(UNDATED, None, -1)]
        files: dict[int | None, list[int]] = defaultdict(list)
        for (node, file), span in self.evidence.files.items():
            is_controller_log = bool(span.logs & CONTROLLER_LOG) and self._is_of(number, file, node)
            if is_controller_log and span.first is not None and span.last is not None:
                files[node] += [span.first, span.last]
        end = incarnation_ends(self.of_name).get(number, FOREVER)
        begun: dict[tuple[int, int | None], int] = {}
        for term, places in self.evidence.sent.items():
            for (folder, node), (ts, _) in places.items():
                if incarnation(self.of_name, f"{folder}/", node, ts) == number:
                    begun[term] = min(begun.get(term, ts), ts)
        terms: dict[int, tuple[int, int | None]] = {}
        for (epoch, node), ts in sorted(begun.items(), key=lambda one: (one[0][0], one[1])):
            # of a migrated cluster the quorum may elect in an epoch that a ZooKeeper controller had
            terms.setdefault(epoch, (ts, node))
        found = []
        for n, ((ts, node), after) in enumerate(with_next(terms.values())):
            since, until = ts if n else -1, end if after is None else after[0]
            if node in files and max(since, min(files[node])) < until:
                found.append(((max(since, min(files[node])), until), node, ts))
        return undated + found

    def _numbers_from_to(self, first: int | None, last: int | None) -> range:
        """Return the incarnations between two moments, if all are of one cluster."""
        return range(self.of_name[0].number_at(first), self.of_name[0].number_at(last) + 1)

    def _topic_ids(self, events: Mapping[int, Sequence[Event]]) -> dict[int, dict[str, dict[str, Named]]]:
        """Return incarnation -> topic -> its ids under KRaft controllers, with first and last mention.

        events: by incarnation. Lines may name an id before its incarnation is known to have begun. A topic
        that existed when KRaft controllers took over keeps its id.
        """
        if self.kraft_since is None:
            return {}
        found: dict[int, dict[str, dict[str, Named]]] = defaultdict(dict)
        deleted = {
            e.topic: e.ts or 0
            for some in events.values()
            for e in some
            if e.event_type == "deletion_completed"
        }
        for topic, ids in self.evidence.topic_ids.items():
            # named last before they took over, and not deleted since
            newest = max(
                ((last or 0, which) for which, (_, last) in ids.items() if (last or 0) < self.kraft_since),
                default=None,
            )
            kept = newest[1] if newest and newest[0] > deleted.get(topic, -1) else None
            for which, (first, last) in ids.items():
                if (last or 0) >= self.kraft_since or which == kept:
                    for number in self._numbers_from_to(first, last) if len(self.of_name) == 1 else events:
                        found[number].setdefault(topic, {})[which] = first, last
        return found


def _joined(spans: Iterable[Heard]) -> list[Heard]:
    """Return the spans in order, overlapping ones joined."""
    found: list[Heard] = []
    for one in sorted(spans):
        if found and one.since <= found[-1].quiet_until:
            before = found[-1]
            found[-1] = Heard(before.since, *max(before[1:], one[1:]))
        else:
            found.append(one)
    return found


def _by(events: Iterable[Event], event_type: str, name: str) -> dict[Any, list[Event]]:
    """Return events of a type by the value of one of their fields."""
    found: dict[Any, list[Event]] = defaultdict(list)
    for e in events:
        if e.event_type == event_type and (key := getattr(e, name)) is not None:
            found[key].append(e)
    return dict(found)


def _elected(events: Iterable[Event]) -> list[tuple[int, int | None, int]]:
    """Return controller epoch, node and time of each election."""
    elections = (e for e in events if e.event_type in ELECTED)
    return [
        (e.controller_epoch, e.node, e.ts)
        for e in elections
        if e.controller_epoch is not None and e.ts is not None
    ]


def _deposed(events: Iterable[Event]) -> dict[int, int]:
    """Return controller epoch -> time of the first election in a later epoch."""
    elections = [(epoch, at) for epoch, _, at in _elected(events)]
    found: dict[int, int] = {}
    first: int | None = None
    for epoch in sorted({epoch for epoch, _ in elections}, reverse=True):
        if first is not None:
            found[epoch] = first
        own = min(at for one, at in elections if one == epoch)
        first = own if first is None else min(first, own)
    return found


def _kraft_since(mode_events: Mapping[str, Named]) -> int | None:
    """Return from when on KRaft controllers run a cluster: -1: its logs show no other mode.

    None: they show no KRaft controller. A migrated cluster has logs of both modes (KIP-866). Its brokers
    print lines of KRaft before the migration ends: without logs of KRaft controllers these lines count from
    the last line of a ZooKeeper controller on.
    """
    by_controller = mode_events.keys() & KRAFT_CONTROLLER
    types = by_controller or mode_events.keys() & KRAFT_BROKER
    of_zookeeper = mode_events.keys() & ZOOKEEPER_CONTROLLER
    first = min((at for name in types if (at := mode_events[name][0]) is not None), default=None)
    # migrated brokers keep registering with ZooKeeper until all brokers are migrated
    registered = (mode_events[name][0] for name in mode_events.keys() & REGISTERED_BY_ZOOKEEPER)
    if not of_zookeeper and not any(at is not None and first is not None and at < first for at in registered):
        return -1 if types else None
    if by_controller or first is None:
        return first
    return max([first, *(at + 1 for name in of_zookeeper if (at := mode_events[name][1]) is not None)])


def file_ranks(evidence: ClusterEvidence) -> dict[tuple[int | None, str, int], int]:
    """Return (node, file, log) -> rank.

    Rotated files of one log follow one another. Logs that share files on a node count as the lowest of them,
    so that a cut does not change the order.
    """
    merged: dict[int | None, int] = defaultdict(int)
    for (node, _), span in evidence.files.items():
        merged[node] |= span.logs if span.logs.bit_count() > 1 else 0
    keys = {}
    for (node, file), span in evidence.files.items():
        for log in (STATE_CHANGE_LOG, CONTROLLER_LOG, SERVER_LOG, METADATA_DUMP):
            lowest = merged[node] & -merged[node] if merged[node] & log else log
            keys[node, file, log] = (
                node is not None,
                node or 0,
                lowest,
                span.first is not None,
                span.first or 0,
                file,
            )
    rank = {key: number for number, key in enumerate(sorted(set(keys.values())))}
    return {which: rank[key] for which, key in keys.items()}


@dataclass(frozen=True)
class Affected:
    """Which partitions a change of the facts affects.

    whole: every partition is rebuilt. topics, brokers: partitions of these topics, and those with a replica
    on these brokers, are folded from their stored state; `fold` reports if that is not enough.
    """

    whole: bool = False
    topics: frozenset[str] = frozenset()
    brokers: frozenset[int] = frozenset()


def affected(before: ClusterFacts | None, now: ClusterFacts) -> Affected:
    """Return which partitions a change of the facts affects.

    All of the cluster: incarnations or the mode change; the order of known files changes; a known node begins
    to trace; older logs make a known checkpoint count; or, before the newest known moment, one of these
    changes: deposed controllers, active controllers, replays, ELRs, snapshots.

    Those of a topic: its ids, their first mention or their removal change; it is deleted; its ELRs are
    cleared.

    Those with a replica on a broker: a start or a registration of the broker changes.
    """
    if before is None or _of_all(before, before.evidence.newest) != _of_all(
        now, before.evidence.newest, before
    ):
        return Affected(whole=True)
    topics: set[str] = set()
    brokers: set[int] = set()
    for number in {*before.numbers, *now.numbers}:
        then, since = before[number], now[number]
        topics |= _differing(then.deletions, since.deletions) | _differing(
            then.kraft.topic_ids, since.kraft.topic_ids
        )
        brokers |= _differing(then.starts, since.starts) | _differing(then.kraft.brokers, since.kraft.brokers)
        changed_ids = _differing(then.kraft.removed, since.kraft.removed) | _differing(
            then.kraft.removals, since.kraft.removals
        )
        changed_ids |= _differing(then.kraft.named_since, since.kraft.named_since)
        topics |= {since.kraft.names[which] for which in changed_ids if which in since.kraft.names}
        new_clears = [e for e in since.kraft.clears if e not in then.kraft.clears]
        topics |= {e.topic for e in new_clears if e.topic}
        if any(not e.topic for e in new_clears):
            topics |= since.kraft.topic_ids.keys()
    return Affected(False, frozenset(topics), frozenset(brokers))


def _differing(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> set[Any]:
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def _of_all(facts: ClusterFacts, ts: int, known: ClusterFacts | None = None) -> tuple[object, ...]:
    """Return the facts about all partitions up to a moment.

    known: only files and nodes of these facts count.
    """
    of = (known or facts).evidence
    files = sorted((key for key in facts.places if key[:2] in of.files), key=lambda key: facts.places[key])
    nodes = {node for node, _ in of.files}
    by_number = {
        number: (
            facts[number].end,
            facts[number].kraft_since,
            {epoch: at for epoch, at in facts[number].deposed.items() if at < ts},
            [one for one in facts[number].elected if one[2] <= ts],
            [(since, min(until, ts)) for since, until in facts[number].heard if since <= ts],
            facts[number].kraft.up_to(ts),
            facts[number].tracers & nodes,
            {
                file: at
                for file, at in facts[number].kraft.snapshots.items()
                if any(file == one for _, one in of.files)
            },
        )
        for number in (known or facts).numbers
    }
    starts = [
        (one.starts, one.numbers) if one.starts or len(facts.of_name) > 1 else () for one in facts.of_name
    ]
    since = facts.evidence.changes_since
    heard = {at for at in of.checkpoints if since is not None and since <= at}
    return starts, facts.kraft_since, heard, files, by_number
