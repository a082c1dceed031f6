"""`broker_outages`: find when each broker did not serve, from what it and the controllers print."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from jobs.timelines.event import Event, with_next
from jobs.timelines.incarnations import CLOCK_SKEW
from parsers.meanings import event_types, loggers

# what an event shows about the node that prints it (`node`), or about the broker that it names (`broker`)
STOPPING = "stopping"
STOPPED = "stopped"
FAILED = "failed"
LOST = "lost"
STARTING = "starting"
SERVING = "serving"
# it asks the controller to stop (KRaft: and is unfenced; 3.3, BrokerHeartbeatManager): it served until then
SERVED = "served"
# a record of the metadata log fences a broker that is lost, or one that asks to stop and leads nothing (3.9,
# ReplicationControlManager)
FENCED = "fenced"
_STOPS = frozenset({STOPPING, STOPPED, SERVED})
# a list of all live brokers contains it, or does not; KNOWN: it is a broker, and nothing more is known
PRESENT, ABSENT, KNOWN = "present", "absent", "known"
# the first list of a controller that has just started does not contain it: it may have been down long before
UNSEEN = "unseen"
# it has replicas, and a list leaves it out before any other line names it
LEFT_OUT = "left_out"
_MISSING = frozenset({ABSENT, UNSEEN, LEFT_OUT})
# it takes part: it is controller, receives requests of a controller, or leads (KRaft)
WORKING = "working"
# its process runs (KRaft: its controller works, which needs no session of the broker)
RUNNING = "running"
_WORKS = frozenset({WORKING, RUNNING})
# the starting process finds that the one before it has closed its logs, or has not
CLEAN, UNCLEAN = "clean", "unclean"
# its address is taken: this process never was the broker
IN_VAIN = "in_vain"
_TAKEN = "all of the SocketServer Acceptors"
# the new brokers in the line of a changed list
_ADDED = re.compile(r"Newly added brokers: (\d{1,9}(?:,\d{1,9})*), deleted", re.ASCII)
# these do not show that its own process was logged by then
_ASIDE = _MISSING | _WORKS | frozenset({KNOWN, CLEAN, UNCLEAN, IN_VAIN})


def _meanings() -> dict[str, tuple[str, str, frozenset[str]]]:
    """Return event type -> (what it shows, about whom, last parts of the loggers that count.

    empty: any logger).
    """
    words = {
        "node_stopping": (STOPPING, "node"),
        "broker_stopping": (STOPPING, "broker"),
        "broker_served": (SERVED, "broker"),
        "node_stopped": (STOPPED, "node"),
        "node_failed": (FAILED, "node"),
        "node_lost": (LOST, "node"),
        "broker_lost": (LOST, "broker"),
        "broker_fenced": (FENCED, "broker"),
        "node_starting": (STARTING, "node"),
        "node_serving": (SERVING, "node"),
        "broker_serving": (SERVING, "broker"),
        # a broker that stops may be elected while the others are down already
        "node_present": (PRESENT, "node"),
        "broker_known": (KNOWN, "broker"),
        "closed_its_logs": (CLEAN, "node"),
        "left_its_logs_open": (UNCLEAN, "node"),
    }
    return {
        event_type: (*meaning, some)
        for word, meaning in words.items()
        for event_type, some in loggers(word).items()
    }


_MEANINGS = _meanings()
# lists of all live brokers; one may be empty
_LISTS = event_types("lists_live_brokers")
# every process of a ZooKeeper broker logs its start and stop once, about when it registers and when it stops
CONTROLLER_THREAD = "ControllerEventManager$ControllerEventThread"
# events whose meaning is the state that the broker changes to
_CHANGES = event_types("changes_broker_state")
BROKER_EVENTS = _CHANGES.union(_MEANINGS, _LISTS)
_STARTS = event_types("node_starting")


def is_of_broker(e: Event) -> bool:
    """Return whether an event shows something about a broker."""
    return e.event_type in BROKER_EVENTS or is_of_controller_thread(e)


def is_of_controller_thread(e: Event) -> bool:
    """Return whether an event is of the thread of a ZooKeeper controller, which every broker runs."""
    return e.event_type == "thread_changed" and (e.logger or "").endswith(CONTROLLER_THREAD)


def is_failed_change(e: Event) -> bool:
    """Return whether a ZooKeeper controller fails to process a change of the live brokers.

    Source: KafkaController.processBrokerChange, 1.1 to 3.9.
    """
    return e.event_type == "event_failed" and e.text == "BrokerChange"


def begins_controller_thread(e: Event) -> bool:
    """Return whether a broker starts the thread of its ZooKeeper controller."""
    return is_of_controller_thread(e) and e.text == "Starting"


def is_start(e: Event) -> bool:
    """Return whether an event shows that a process starts."""
    return e.event_type in _STARTS or begins_controller_thread(e)


# a node with only these events may be a controller of a KRaft quorum, which is no broker
_OF_ANY_NODE = event_types("by_any_node")

# causes of outages
SHUT_DOWN = "shut_down"  # it was asked to stop, or asked the controller for it
CRASHED = "crashed"  # its session ended, or it started again, and nothing asked it to stop
SESSION_LOST = (
    "session_lost"  # its session ended (KRaft: it was fenced); nothing shows that the process ended
)
BROKE_DOWN = "broke_down"  # it gave up by itself: all log directories failed, an error at the start
ABSENT_AT_START = "absent"  # a controller that had just started did not find it; since when is unknown
FIRST_START = "first_start"  # these logs begin with its start
_PROCESS_ENDED = frozenset({SHUT_DOWN, CRASHED, BROKE_DOWN})


# brokers of a cluster that is shut down stop one after another within this time
STOPPING_TOGETHER = 15 * 60 * 1_000_000
# a broker that stops is listed as live until its session is closed: after three requests to the controller
# and closing its logs
STILL_LISTED = 5 * 60 * 1_000_000
_ELECTED = event_types("begins_zookeeper_term")
RENOUNCED = event_types("renounces_term")
# a controller that renounces this soon after it fenced a broker, or fails in fencing it, has not written the
# fencing
RENOUNCED_AT_ONCE, FENCE_FAILS = 1_000_000, 30_000_000
_FENCING = "maybeFenceReplicas"
# a controller replays what it has written within this time
REPLAYED_AT_ONCE = 1_000_000
# the session of a process that has died ends within this time
SESSION_ENDS = 60_000_000
# lines within this time after a start in vain are of that process
ENDS_IN_VAIN = 30_000_000
# a controller that is elected this soon after its start has not seen the others stop
FIRST_LIST = 15_000_000
# brokers of a cluster that is started start one after another within this time
START_TOGETHER = 5 * 60 * 1_000_000
# an elected controller reads the live brokers, and logs them as new, within this time
READS_AGAIN = 5_000_000
# up to 1.0 a broker registers at the end of its start: up to this long after the start of its controller
# thread or its election
REGISTERS_LATE = 30_000_000
# a broker that registers may be listed as live this much later
LISTED_LATE = 10_000_000
# a log has broken off where it has no line about brokers for longer
BREAKS_OFF = 300_000_000
# a changed list may be logged this long before the change itself, or before the controller fails in it
CHANGE_LOGGED_LATE = 1_000_000


class Outage(NamedTuple):
    """A time in which a broker did not serve. Columns of `broker_outages` after the incarnation.

    Times are microseconds.
    """

    broker: int | None
    since: int
    until: int | None
    down_until: int | None
    how: str
    starting_at: int | None
    all_since: int | None
    stop_asked: bool | None
    evidence: list[str]

    @property
    def is_end_seen(self) -> bool:
        """Return whether lines show when it ended, or it has not ended."""
        return self.until == self.down_until


class Observation(NamedTuple):
    """A state of a broker that a record shows.

    epoch: its broker epoch; -1: unknown. is_own: the broker itself printed it, with its own clock.
    """

    ts: int
    shows: str
    record_id: str
    epoch: int = -1
    is_own: bool = False


class _Open:
    """An outage that has not ended yet."""

    def __init__(self, first: Observation, how: str, epoch: int) -> None:
        self.since, self.how = first.ts, how
        # the newest known broker epoch
        self.epoch = epoch
        self.is_first_start = how == FIRST_START
        self.is_left_out = first.shows == LEFT_OUT
        # only a start shows that the process before it has ended
        self.is_by_start = first.shows == STARTING
        # the last start failed
        self.has_failed = False
        self.down_until = first.ts
        self.starting_at: int | None = None
        self.stop_asked = None if first.shows == FENCED else False
        # a process was asked to stop, and none has started since
        self.is_stopping = False
        self.stopping_at = first.ts
        self.closed_logs: set[str] = set()
        self.evidence = [first.record_id]

    def is_back(self, observation: Observation) -> bool:
        """Return whether an observation shows that the broker serves.

        A list of live brokers may name it though it stops.
        """
        if observation.shows == SERVING:
            return True
        # WORKING and RUNNING have the time of the broker's own clock
        works = _WORKS if self.how in _PROCESS_ENDED else {WORKING}
        if observation.shows != PRESENT and not (
            observation.shows in works and observation.ts > self.down_until + CLOCK_SKEW
        ):
            return False
        return not (
            self.how == SHUT_DOWN
            and self.starting_at is None
            and observation.ts < self.stopping_at + STILL_LISTED
        )

    def outage(self, broker: int, until: int | None, down_until: int | None) -> Outage:
        """Return the outage with its final cause."""
        how, asked = self.how, self.stop_asked
        if how == CRASHED and self.closed_logs == {CLEAN}:
            how, asked = SHUT_DOWN, True
        elif how == BROKE_DOWN and self.is_first_start and until is not None:
            how = FIRST_START  # it took several attempts
        elif self.is_left_out and until is not None and until - self.since <= START_TOGETHER:
            how = FIRST_START
        return Outage(
            broker, self.since, until, down_until, how, self.starting_at, None, asked, self.evidence
        )

    def has_served_since(self, lost: Observation) -> bool:
        """Return whether the lost session is that of the last started process, and not an older one."""
        if self.starting_at is None:
            return False
        if self.how == FIRST_START or lost.epoch < 0 or self.epoch < 0:
            return self.how == FIRST_START or lost.ts > self.starting_at + SESSION_ENDS
        return lost.epoch > self.epoch

    def is_of_another_process(self, observation: Observation) -> bool:
        """Return whether a second process was started and failed while the first one kept running."""
        return (
            self.is_by_start and self.has_failed and observation.shows in {PRESENT, SERVED, SERVING, *_WORKS}
        )

    def ended(self, broker: int, observation: Observation) -> Outage:
        """Return the outage with its end. observation: shows that the broker serves, or served until then."""
        down_until = observation.ts if observation.shows == SERVING else self.down_until
        if observation.shows in {SERVING, PRESENT, *_WORKS}:
            self.add(observation)
        return self.outage(broker, observation.ts, down_until)

    def add(self, observation: Observation) -> None:
        """Add an observation during the outage."""
        if observation.shows in _STOPS:
            self.stop_asked, self.stopping_at, self.is_stopping = True, observation.ts, True
        elif self.stop_asked is None and observation.shows != FENCED:
            self.stop_asked = False
        if observation.shows in {CLEAN, UNCLEAN}:
            self.closed_logs.add(observation.shows)
        elif observation.shows == STARTING:
            # the last start counts: earlier ones failed
            self.starting_at = observation.ts
            self.is_stopping = self.has_failed = False
            self.closed_logs.clear()
            if self.how == SESSION_LOST:
                self.how = CRASHED
        elif observation.shows in _STOPS and self.how == SESSION_LOST:
            self.how = SHUT_DOWN
        elif observation.shows == FAILED and self.how in {SESSION_LOST, FIRST_START, CRASHED}:
            self.how = BROKE_DOWN
        if observation.shows == FAILED:
            self.has_failed = True
        elif observation.shows == STOPPED:
            self.starting_at = None
        elif observation.shows in {LOST, FENCED}:
            self.is_by_start = False
        self.down_until = observation.ts
        if observation.record_id not in self.evidence and len(self.evidence) < 12:
            self.evidence.append(observation.record_id)


def outages(
    events: Iterable[Event],
    assigned: Mapping[int, int | None] | None = None,
    more: Mapping[int, Sequence[Observation]] | None = None,
    *,
    named: Mapping[int, int] | None = None,
    is_heard: bool = True,
) -> list[Outage]:
    """Return all outages of one incarnation, by broker and time.

    After them the outages of all brokers (broker None).
    events: in any order; events without a time stamp do not count. assigned: broker with replicas -> since
    when at the latest; None: unknown.
    more: further observations, derived from several records; WORKING and RUNNING count only for nodes that
    are known to be brokers.
    named: broker -> when the first line named it. is_heard: lines list brokers, and there are logs of every
    named node; otherwise outages of all brokers cannot be shown.
    """
    dated = [e for e in events if e.ts is not None]
    observations = _by_broker(dated)
    for broker, observation in _left_out(dated, observations, assigned or {}):
        observations[broker] = sorted([observation, *observations.get(broker, ())])
    for broker, some in (more or {}).items():
        if broker in observations or any(observation.shows not in _WORKS for observation in some):
            observations[broker] = sorted({*observations.get(broker, ()), *some})
    for broker, times in _before_registration(dated).items():
        if broker in observations:
            observations[broker] = _registered(observations[broker], times)
    in_order = sorted(((e.ts, e.record_id, e.node) for e in dated if e.ts is not None), key=itemgetter(0))
    found = [
        _as_far_as_watched(outage, observations[broker], in_order)
        for broker in sorted(observations)
        for outage in _of_broker(broker, observations[broker])
    ]
    whole: list[Outage] = []
    if (
        is_heard and observations.keys() >= (assigned or {}).keys()
    ):  # without observations of a broker it is not known that it was down
        known = {
            broker: [observation.ts for observation in some if observation.shows not in _ASIDE]
            for broker, some in observations.items()
        }
        asked = {
            broker: [observation for observation in some if observation.shows == SERVED]
            for broker, some in observations.items()
        }
        since = {broker: min(times) for broker, times in known.items() if times}
        for broker, some in observations.items():
            first = next((observation for observation in some if observation.shows not in _ASIDE), None)
            if first is not None and first.shows in _STOPS | {LOST}:
                # it served before, and nothing shows since when
                since[broker] = 0
        for broker, at in (named or {}).items():
            since[broker] = min(at, since.get(broker, at))
        whole = list(_of_all(found, since, asked))
    return [outage._replace(all_since=_within(outage, whole)) for outage in found] + whole


def _as_far_as_watched(
    outage: Outage, observations: Sequence[Observation], events: Sequence[tuple[int, str, int | None]]
) -> Outage:
    """Return an outage whose end counts as seen only where logs cover the time before it.

    A broker that logs the end of its own session, as a controller does, may have a new one a moment later.
    Where its log then breaks off, and no other node logs anything, these logs do not show for how long it did
    not serve.
    observations: of the broker, in order. events: (time, record id, node), in order.
    """
    if outage.how not in {CRASHED, SESSION_LOST} or outage.until is None or not outage.is_end_seen:
        return outage
    begin = _span(observations, outage.since, outage.since)
    lost = {one.record_id for one in begin if one.shows in {LOST, FENCED}}
    if not any(
        record_id in lost and node == outage.broker
        for _, record_id, node in _span(events, outage.since, outage.since)
    ):
        return outage
    end = outage.until if outage.starting_at is None else outage.starting_at
    between = _span(events, outage.since, end)
    times = [outage.since, *(ts for ts, _, _ in between), end]
    if any(node != outage.broker for _, _, node in between) or all(
        b - a <= BREAKS_OFF for a, b in pairwise(times)
    ):
        return outage
    return outage._replace(down_until=outage.since)


def _span(rows: Sequence[Any], first: int, last: int) -> Sequence[Any]:
    """Return the rows, in the order of their first value, a time, that are between two times."""
    return rows[bisect_left(rows, first, key=itemgetter(0)) : bisect_right(rows, last, key=itemgetter(0))]


def left_out(events: Iterable[Event], assigned: Iterable[int]) -> set[int]:
    """Return the brokers with replicas that a controller's list leaves out before they are named."""
    dated = [e for e in events if e.ts is not None]
    return {broker for broker, _ in _left_out(dated, _by_broker(dated), dict.fromkeys(assigned, 0))}


def _left_out(
    events: Iterable[Event],
    observations: Mapping[int, Sequence[Observation]],
    assigned: Mapping[int, int | None],
) -> Iterator[tuple[int, Observation]]:
    """Yield an observation of each broker with replicas that a list leaves out before it is named."""
    lists = sorted(
        (e.ts, e.record_id, frozenset((*(e.brokers or ()), e.node)))
        for e in events
        if e.event_type == "active_brokers" and e.ts is not None
    )
    for broker, since in sorted(assigned.items()):
        first = min(
            (
                observation.ts
                for observation in observations.get(broker, ())
                if observation.shows not in _MISSING
            ),
            default=None,
        )
        for ts, record_id, present in lists:
            if (
                broker not in present
                and (first is None or ts < first)
                and since is not None
                and since <= ts + FIRST_LIST
            ):
                yield broker, Observation(ts, LEFT_OUT, record_id)
                break


def _within(outage: Outage, whole: list[Outage]) -> int | None:
    """Return the begin of the outage of all brokers that this outage is a part of; None: of none."""
    for every in whole:
        if 0 <= every.since - outage.since <= STOPPING_TOGETHER and (
            outage.until is None or outage.until > every.since
        ):
            return every.since
    return None


def _by_broker(events: list[Event]) -> dict[int, list[Observation]]:
    """Return broker -> its observations, in order of time."""
    observations: dict[int, list[Observation]] = defaultdict(list)
    brokers: set[int] = set()
    listed: list[Event] = []
    appeared: list[Event] = []
    renounced = [
        (e.node, e.ts, FENCE_FAILS if e.request == _FENCING else RENOUNCED_AT_ONCE)
        for e in events
        if e.event_type in RENOUNCED and e.ts is not None
    ]
    unchanged: dict[tuple[int | None, int | None, int | None], list[int]] = defaultdict(list)
    for e in events:
        if e.event_type == "broker_registration_unchanged" and e.fenced and e.ts is not None:
            unchanged[e.node, e.broker, e.broker_epoch].append(e.ts)
    for event in events:
        if not is_of_broker(event):
            continue
        assert event.ts is not None
        if event.event_type == "broker_fenced":
            if any(node == event.node and 0 <= at - event.ts <= within for node, at, within in renounced):
                continue
            replayed = unchanged.get((event.node, event.broker, event.broker_epoch), ())
            if event.broker is not None and any(0 <= at - event.ts <= REPLAYED_AT_ONCE for at in replayed):
                # it was fenced before, and the controller has no session of it since it became active
                observations[event.broker].append(Observation(event.ts, UNSEEN, event.record_id))
                brokers.add(event.broker)
                continue
        if event.event_type in _LISTS:
            listed.append(event)
            continue
        for shows, broker in _about(event):
            if event.event_type == "broker_started":
                appeared.append(event)
                brokers.add(broker)
                break
            observations[broker].append(
                Observation(
                    event.ts,
                    shows,
                    event.record_id,
                    -1 if event.broker_epoch is None else event.broker_epoch,
                    event.node == broker,
                )
            )
            if event.event_type not in _OF_ANY_NODE:
                brokers.add(broker)
    begun: dict[int | None, list[int]] = defaultdict(list)
    for node, some in observations.items():
        begun[node] = [observation.ts for observation in some if observation.shows in {STARTING, SERVING}]
    for event in appeared:
        begun[event.broker].append(event.ts or 0)
    for event in events:
        # a controller that is elected again after its own session ended has not seen the others stop, either
        if event.event_type == "controller_resigned" and event.ts is not None:
            begun[event.node].append(event.ts)
    read = _lists_of_terms(events)
    for event in appeared:
        assert event.ts is not None
        assert event.broker is not None
        lists = [one for at, one in read.get(event.node, {}).items() if 0 <= event.ts - at <= READS_AGAIN]
        # a broker that is not in the list that the controller read before has registered since
        left_out = [
            one
            for one in lists
            if one is not None and (one.ts or 0) <= event.ts and event.broker not in (one.brokers or ())
        ]
        is_found = bool(lists) and not left_out
        observations[event.broker].append(
            Observation(event.ts, PRESENT if is_found else SERVING, event.record_id)
        )
    refused = _refused(events)
    for broker, some in observations.items():
        some[:] = [
            s
            for s in some
            if s.shows != SERVING or not any(abs(s.ts - at) <= LISTED_LATE for at in refused.get(broker, ()))
        ]
    changed = {
        broker: [observation.ts for observation in some if observation.shows in {LOST, SERVING}]
        for broker, some in observations.items()
    }
    for event in listed:
        assert event.ts is not None
        present = {broker for broker in event.brokers or () if event.ts not in refused.get(broker, ())}
        brokers |= present
        # a controller that is not in the list that it reads has just started, or its session had ended
        is_early = event.event_type == "active_brokers" and event.node not in present
        is_first = is_early or any(0 <= event.ts - at <= FIRST_LIST for at in begun[event.node])
        for broker in brokers:
            if event.event_type == "broker_change" and any(
                0 <= at - event.ts <= CHANGE_LOGGED_LATE for at in changed.get(broker, ())
            ):
                continue
            # the controller itself may not have registered again after its session ended
            if broker in present or broker != event.node:
                observations[broker].append(
                    Observation(
                        event.ts,
                        PRESENT if broker in present else UNSEEN if is_first else ABSENT,
                        event.record_id,
                    )
                )
    return {broker: sorted(observations[broker]) for broker in brokers if broker in observations}


def _lists_of_terms(events: list[Event]) -> dict[int | None, dict[int, Event | None]]:
    """Return node -> time of its election -> the list of live brokers that it then read.

    Source: KafkaController.initializeControllerContext, 0.8 to 3.9.
    """
    found: dict[int | None, dict[int, Event | None]] = defaultdict(dict)
    pending: dict[int | None, dict[str, int]] = defaultdict(dict)
    of_terms = (
        e
        for e in events
        if e.ts is not None and (e.event_type in _ELECTED or e.event_type == "active_brokers")
    )
    for e in sorted(of_terms, key=lambda e: (e.ts, e.event_type == "active_brokers", e.record_id)):
        assert e.ts is not None
        if e.event_type == "active_brokers":
            found[e.node].update(dict.fromkeys(pending.pop(e.node, {}).values(), e))
            continue
        if e.event_type in pending[e.node]:
            # of another term
            pending[e.node].clear()
        pending[e.node][e.event_type] = e.ts
        found[e.node][e.ts] = None
    return found


def _before_registration(events: list[Event]) -> dict[int, list[int]]:
    """Return broker -> times of elections or controller starts before it had registered.

    Up to 1.0 KafkaServer.startup registers the broker (KafkaHealthcheck) after it has started the controller,
    whose thread does not name the broker yet; from 1.1 on before that. In any version an elected broker that
    is not in the list that it reads has not registered.
    """
    found: dict[int, list[int]] = defaultdict(list)
    for node, terms in _lists_of_terms(events).items():
        if node is not None:
            found[node] += [
                at
                for at, listed in terms.items()
                if listed is not None and node not in (listed.brokers or ())
            ]
    for e in events:
        if begins_controller_thread(e) and e.controller is None and e.node is not None and e.ts is not None:
            found[e.node].append(e.ts)
    return found


def _registered(observations: Sequence[Observation], early: Iterable[int]) -> list[Observation]:
    """Return the observations of a broker without those that it serves before a logged registration."""
    spans = []
    for at in early:
        registered = [s.ts for s in observations if s.shows == SERVING and at < s.ts <= at + REGISTERS_LATE]
        if registered:
            spans.append((at, min(registered)))
    return [
        s
        for s in observations
        if s.shows not in {SERVING, PRESENT, WORKING} or not any(at <= s.ts < until for at, until in spans)
    ]


def _refused(events: list[Event]) -> dict[int, list[int]]:
    """Return broker -> times at which a ZooKeeper controller failed to add it, by its printed list.

    The registration names no endpoint that the controller can use. It remains in ZooKeeper, and the
    controller sends the broker nothing.
    """
    failed = [(e.node, e.ts) for e in events if is_failed_change(e) and e.ts is not None]
    found: dict[int, list[int]] = defaultdict(list)
    for e in events if failed else ():
        if e.event_type == "broker_change" and e.ts is not None:
            added = _ADDED.match(e.text or "")
            if added and any(node == e.node and 0 <= at - e.ts <= CHANGE_LOGGED_LATE for node, at in failed):
                for broker in added[1].split(","):
                    found[int(broker)].append(e.ts)
    return found


def _about(event: Event) -> Iterator[tuple[str, int]]:
    """Yield (what an event shows, about which broker)."""
    if event.event_type in _CHANGES:
        to_state = event.to_state or ("PENDING_CONTROLLED_SHUTDOWN" if event.in_controlled_shutdown else "")
        shows = {"RUNNING": SERVING, "PENDING_CONTROLLED_SHUTDOWN": STOPPING, "SHUTTING_DOWN": STOPPING}.get(
            to_state
        )
        whose = event.node if event.broker is None else event.broker
        if shows is not None and whose is not None:
            yield shows, whose
        return
    if event.event_type == "thread_changed":
        shows = {"Starting": SERVING, "Shutting down": STOPPING}.get(event.text or "")
        if shows is not None and event.node is not None:
            yield shows, event.node
        return
    shows, whom, loggers = _MEANINGS[event.event_type]
    if event.event_type == "broker_start_failed" and (event.text or "").startswith(_TAKEN):
        shows, loggers = IN_VAIN, frozenset()
    if loggers and (event.logger or "").rsplit(".", 1)[-1] not in loggers:
        return
    if (broker := event.node if whom == "node" else event.broker) is not None:
        yield shows, broker


def _of_broker(broker: int, observations: list[Observation]) -> Iterator[Outage]:
    """Yield the outages of one broker. observations: in order of time."""
    now: _Open | None = None
    known, epoch, served_at = False, -1, -LISTED_LATE
    in_vain = -ENDS_IN_VAIN
    late = _logged_late(observations)
    for observation, after in with_next(observations):
        if observation in late or (now is not None and _outlives_its_process(observation, after)):
            continue
        if observation.shows == IN_VAIN:
            in_vain = observation.ts
            if now is not None and now.is_by_start:
                known, now = not now.is_first_start, None
            continue
        if observation.shows in {FAILED, STOPPING, STOPPED} and observation.ts < in_vain + ENDS_IN_VAIN:
            continue
        if observation.shows in _MISSING and observation.ts < served_at + LISTED_LATE:
            continue
        if now is None:
            how = _OPENS.get(observation.shows)
            if observation.shows == STARTING:
                how = CRASHED if known else FIRST_START
            elif observation.shows in {ABSENT, UNSEEN} and known:
                how = SESSION_LOST if observation.shows == ABSENT else ABSENT_AT_START
            elif observation.shows == LEFT_OUT:
                how = ABSENT_AT_START
            if how is not None:
                now = _Open(observation, how, epoch)
                now.add(observation)
        elif (
            observation.shows == SERVED
            and (not now.is_stopping or observation.ts > now.stopping_at + STILL_LISTED)
        ) or (observation.shows == LOST and now.has_served_since(observation)):
            # it served until then: only a serving broker asks to stop or loses the session of a newer
            # registration
            if not now.is_of_another_process(observation):
                yield now.ended(broker, observation)
            now = _Open(observation, SHUT_DOWN if observation.shows == SERVED else SESSION_LOST, epoch)
            now.add(observation)
        elif now.is_back(observation):
            if not now.is_of_another_process(observation):
                yield now.ended(broker, observation)
            now = None
        elif observation.shows in _MISSING:
            now.down_until = observation.ts
        elif observation.shows not in {PRESENT, KNOWN, *_WORKS}:
            now.add(observation)
        known = known or observation.shows not in _ASIDE
        epoch = max(epoch, observation.epoch)
        served_at = observation.ts if observation.shows == SERVING else served_at
    if now is not None:
        yield now.outage(broker, None, None)


def _logged_late(observations: Sequence[Observation]) -> set[Observation]:
    """Return the starts of a broker that its own clock, which is ahead, puts after their registration.

    Each start has one registration. Where others see one that no start precedes, and none after the start that
    follows, the start is that of the registration before.
    """
    late: set[Observation] = set()
    # a registration without a start before it; the start that follows
    registered_at: int | None = None
    start: list[Observation] = []
    started_at, is_serving = -CLOCK_SKEW - 1, False
    for observation in observations:
        ts, shows = observation.ts, observation.shows
        if not observation.is_own:
            if shows not in {SERVING, LOST}:
                continue
            is_soon = bool(start) and ts <= start[-1].ts + CLOCK_SKEW
            if is_soon and (shows == SERVING or not is_serving):
                late.difference_update(start)
            registered_at = None if ts <= started_at + CLOCK_SKEW or shows == LOST else ts
            start, is_serving = [], False
        elif shows in _STOPS | {FAILED} or (shows == STARTING and is_serving):
            registered_at, start, is_serving = None, [], False
            started_at = ts if shows == STARTING else started_at
        elif shows == STARTING or start:
            if registered_at is not None and ts <= registered_at + CLOCK_SKEW:
                start.append(observation)
                late.add(observation)
            elif shows == STARTING:
                started_at = ts
            is_serving = is_serving or shows == SERVING
    return late


def _outlives_its_process(observation: Observation, after: Observation | None) -> bool:
    """Return whether a list names a broker only because its session has not ended yet."""
    return (
        observation.shows == PRESENT
        and after is not None
        and after.shows in {LOST, *_MISSING}
        and after.ts < observation.ts + SESSION_ENDS
    )


_OPENS = {
    STOPPING: SHUT_DOWN,
    STOPPED: SHUT_DOWN,
    SERVED: SHUT_DOWN,
    FAILED: BROKE_DOWN,
    LOST: SESSION_LOST,
    FENCED: SESSION_LOST,
}


def _of_all(
    outages: list[Outage], known_since: dict[int, int], asked: Mapping[int, Sequence[Observation]]
) -> Iterator[Outage]:
    """Yield the times in which all known brokers were down.

    asked: broker -> its requests to the controller to stop, in order.
    """
    changes: list[tuple[int, int, Outage]] = []
    for outage in outages:
        if outage.how != FIRST_START:
            last = _last_request(outage, asked)
            # the record that shows that the broker was down by then is the first
            proof = outage.evidence if last is None else [last.record_id, *outage.evidence]
            changes.append(
                (
                    outage.since if last is None else last.ts,
                    1,
                    outage._replace(evidence=list(dict.fromkeys(proof))),
                )
            )
            if outage.until is not None:
                changes.append((outage.until, 0, outage))
    down: dict[int | None, Outage] = {}
    begun: tuple[int, list[Outage]] | None = None
    for at, is_begin, outage in sorted(changes, key=lambda change: change[:2]):
        if is_begin:
            down[outage.broker] = outage
            known = {broker for broker, since in known_since.items() if since <= at}
            if known <= down.keys() and all(_is_down_at(one, at) for one in down.values()):
                begun = at, list(down.values())
        else:
            if begun is not None:
                yield _together(*begun, outage.until)
                begun = None
            down.pop(outage.broker, None)
    if begun is not None:
        yield _together(*begun, None)


def _last_request(outage: Outage, asked: Mapping[int, Sequence[Observation]]) -> Observation | None:
    """Return the last request to stop: a broker still leads while the controller cannot move all leaders."""
    if outage.how != SHUT_DOWN or outage.broker is None:
        return None
    end = (
        outage.since + STILL_LISTED
        if outage.until is None
        else min(outage.since + STILL_LISTED, outage.until - 1)
    )
    return max(
        (observation for observation in asked.get(outage.broker, ()) if outage.since < observation.ts <= end),
        default=None,
    )


def _is_down_at(outage: Outage, at: int) -> bool:
    """Return whether a broker was still down at a moment.

    If the end was not seen, the outage has to begin shortly before, or a line has to show it.
    """
    return outage.is_end_seen or at <= max(outage.since + STOPPING_TOGETHER, outage.down_until or 0)


def _together(since: int, members: list[Outage], until: int | None) -> Outage:
    # it is unknown how a broker stopped that was down at the first observation
    asked = {
        m.stop_asked for m in members if since - m.since <= STOPPING_TOGETHER and m.how != ABSENT_AT_START
    }
    how = SHUT_DOWN if True in asked and False not in asked else CRASHED
    evidence = list(dict.fromkeys(record for member in members for record in member.evidence[:2]))
    seen = [max(since, member.down_until) for member in members if member.down_until is not None]
    return Outage(
        None,
        since,
        until,
        None if until is None else min(seen),
        how,
        None,
        since,
        asked == {True},
        evidence[:20],
    )
