"""`broker_outages`: when each broker did not serve, from what it and the controllers print."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jobs.timelines.events import Event, with_next
from jobs.timelines.incarnations import CLOCK_SKEW
from parsers.meanings import event_types, loggers

# what an event says about a broker: about its speaker (`node`), or about the one that it names (`broker`)
STOPPING, STOPPED, FAILED, LOST, STARTING, SERVING = "stopping", "stopped", "failed", "lost", "starting", "serving"
# it asks the controller to stop (KRaft: and is unfenced; 3.3, BrokerHeartbeatManager): it served up to then
SERVED = "served"
# a record of the metadata log: so is a broker fenced that is lost, and one that asks to stop and leads nothing (3.9, ReplicationControlManager)
FENCED = "fenced"
_STOPS = frozenset({STOPPING, STOPPED, SERVED})
# in a list of all live brokers: who stands in it, and who does not; KNOWN: no more than that it is a broker
PRESENT, ABSENT, KNOWN = "present", "absent", "known"
# the first list of a controller that has started just now: who is not in it may have gone long before
UNSEEN = "unseen"
# it holds replicas, and a list leaves it out before anything else is told of it
LEFT_OUT = "left_out"
_MISSING = frozenset({ABSENT, UNSEEN, LEFT_OUT})
# it takes part: it is controller, takes in what a controller sends, or leads (KRaft)
WORKING = "working"
# its process runs (KRaft: with a controller, which needs no session of the broker)
RUNNING = "running"
_WORKS = frozenset({WORKING, RUNNING})
# of the process that starts: the one before it has closed its logs, or has not
CLEAN, UNCLEAN = "clean", "unclean"
# its address is taken: it never was the broker
IN_VAIN = "in_vain"
_TAKEN = "all of the SocketServer Acceptors"
# those that are new in a list that changes
_ADDED = re.compile(r"Newly added brokers: (\d{1,9}(?:,\d{1,9})*), deleted", re.ASCII)
# these do not show that its own life was logged by then
_ASIDE = _MISSING | _WORKS | frozenset({KNOWN, CLEAN, UNCLEAN, IN_VAIN})


def _signs() -> dict[str, tuple[str, str, frozenset[str]]]:
    """Return event type -> (what it says, whom it is about, last parts of the loggers that it is taken from; empty: any)."""
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
        # a broker that stops may be elected while the others have gone
        "node_present": (PRESENT, "node"),
        "broker_known": (KNOWN, "broker"),
        "closed_its_logs": (CLEAN, "node"),
        "left_its_logs_open": (UNCLEAN, "node"),
    }
    return {event_type: (*meaning, some) for word, meaning in words.items() for event_type, some in loggers(word).items()}


_SIGNS = _signs()
# lists of all live brokers; one may be empty
_LISTS = event_types("lists_live_brokers")
# of a ZooKeeper broker: printed once by every process, about when it registers, and when it stops
CONTROLLER_THREAD = "ControllerEventManager$ControllerEventThread"
# these say it by the state that the broker goes to
_CHANGES = event_types("changes_broker_state")
BROKER_EVENTS = _CHANGES.union(_SIGNS, _LISTS)
_STARTS = event_types("node_starting")


def is_of_broker(e: Event) -> bool:
    """Whether an event says something about a broker's life."""
    return e.event_type in BROKER_EVENTS or is_of_controller_thread(e)


def is_of_controller_thread(e: Event) -> bool:
    """Whether an event is of the thread of a ZooKeeper controller, which every broker runs."""
    return e.event_type == "thread_changed" and (e.logger or "").endswith(CONTROLLER_THREAD)


def is_failed_change(e: Event) -> bool:
    """Whether a ZooKeeper controller fails while it takes in which brokers came and went (KafkaController.processBrokerChange, 1.1 to 3.9)."""
    return e.event_type == "event_failed" and e.text == "BrokerChange"


def begins_controller_thread(e: Event) -> bool:
    """Whether a broker begins the thread of its ZooKeeper controller."""
    return is_of_controller_thread(e) and e.text == "Starting"


def is_start(e: Event) -> bool:
    """Whether a process says that it starts."""
    return e.event_type in _STARTS or begins_controller_thread(e)


# a node that only says these may be a controller of a KRaft quorum, which is no broker
_OF_ANY_NODE = event_types("by_any_node")

# how a broker went
SHUT_DOWN = "shut_down"  # it was told to stop, or asked the controller for it
CRASHED = "crashed"  # its session ended, or it started anew, and nothing told it to stop
SESSION_LOST = "session_lost"  # its session ended (KRaft: it was fenced); nothing shows that the process ended
BROKE_DOWN = "broke_down"  # it gave up by itself: all log directories failed, an error at the start
ABSENT_AT_START = "absent"  # a controller that had just started did not find it; nobody tells since when
FIRST_START = "first_start"  # these logs begin with its start
_PROCESS_ENDED = frozenset({SHUT_DOWN, CRASHED, BROKE_DOWN})


# brokers of a cluster that is shut down go one after another, within this time
STOPPING_TOGETHER = 15 * 60 * 1_000_000
# a broker that stops is in the list of the live ones until its session is closed: three requests to the controller, then its logs
STILL_LISTED = 5 * 60 * 1_000_000
_ELECTED = event_types("begins_zookeeper_term")
RENOUNCED = event_types("renounces_term")
# a controller that learns so soon after it fenced a broker that it is none has not written it; or this is what it fails in
RENOUNCED_AT_ONCE, FENCE_FAILS = 1_000_000, 30_000_000
_FENCING = "maybeFenceReplicas"
# what a controller has written comes back to it within this time
REPLAYED_AT_ONCE = 1_000_000
# the session of a process that has died ends within this time
SESSION_ENDS = 60_000_000
# what a process that was started in vain says within this time is about itself
ENDS_IN_VAIN = 30_000_000
# who is elected so soon after its start takes over what others left; later, it has seen them go
FIRST_LIST = 15_000_000
# brokers of a cluster that is started come one after another, within this time
START_TOGETHER = 5 * 60 * 1_000_000
# a controller that is elected reads who lives, and calls them new, within this time
READS_AGAIN = 5_000_000
# up to 1.0 a broker registers at the end of its start, so long after its controller thread has started, or it was elected
REGISTERS_LATE = 30_000_000
# a broker that registers is in the list of the live ones so much later
LISTED_LATE = 10_000_000
# a list that changes is told so long before the change itself, or before the controller fails in it
CHANGE_TOLD_LATE = 1_000_000


class Outage(NamedTuple):
    """A time in which a broker did not serve; the columns of table `broker_outages` after cluster and incarnation. Times are microseconds."""

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
        """Whether lines tell when it ended, or none does."""
        return self.until == self.down_until


class Sign(NamedTuple):
    """What a record says of a broker. epoch: its broker epoch; -1: not told."""

    ts: int
    said: str
    record_id: str
    epoch: int = -1


class _Open:
    """An outage that goes on."""

    def __init__(self, first: Sign, how: str, epoch: int) -> None:
        self.since, self.how = first.ts, how
        # the newest broker epoch that it had
        self.epoch = epoch
        self.is_first_start = how == FIRST_START
        self.is_left_out = first.said == LEFT_OUT
        # a start is all that tells that the process before it has ended
        self.is_by_start = first.said == STARTING
        # the last start came to nothing
        self.has_failed = False
        self.down_until = first.ts
        self.starting_at: int | None = None
        self.stop_asked = None if first.said == FENCED else False
        # a process that was told to stop and did not start since
        self.is_stopping = False
        self.stopping_at = first.ts
        self.closed_logs: set[str] = set()
        self.evidence = [first.record_id]

    def is_back(self, sign: Sign) -> bool:
        """Whether a sign shows that the broker serves. A list of live brokers may name it though it stops."""
        if sign.said == SERVING:
            return True
        # by its own clock, it works
        works = _WORKS if self.how in _PROCESS_ENDED else {WORKING}
        if sign.said != PRESENT and not (sign.said in works and sign.ts > self.down_until + CLOCK_SKEW):
            return False
        return not (self.how == SHUT_DOWN and self.starting_at is None and sign.ts < self.stopping_at + STILL_LISTED)

    def outage(self, broker: int, until: int | None, down_until: int | None) -> Outage:
        """What it was, all told."""
        how, asked = self.how, self.stop_asked
        if how == CRASHED and self.closed_logs == {CLEAN}:
            how, asked = SHUT_DOWN, True
        elif how == BROKE_DOWN and self.is_first_start and until is not None:
            how = FIRST_START  # it took several attempts
        elif self.is_left_out and until is not None and until - self.since <= START_TOGETHER:
            how = FIRST_START
        return Outage(broker, self.since, until, down_until, how, self.starting_at, None, asked, self.evidence)

    def has_served_since(self, lost: Sign) -> bool:
        """Whether it is the session of the process that was started last, and not an older one, that was lost."""
        if self.starting_at is None:
            return False
        if self.how == FIRST_START or lost.epoch < 0 or self.epoch < 0:
            return self.how == FIRST_START or lost.ts > self.starting_at + SESSION_ENDS
        return lost.epoch > self.epoch

    def is_of_another_process(self, sign: Sign) -> bool:
        """Whether a second process was started, and failed, while the first one went on."""
        return self.is_by_start and self.has_failed and sign.said in {PRESENT, SERVED, SERVING, *_WORKS}

    def ended(self, broker: int, sign: Sign) -> Outage:
        """What it was, with a sign that shows that it is over: that the broker serves now, or that it did up to now."""
        down_until = sign.ts if sign.said == SERVING else self.down_until
        if sign.said in {SERVING, PRESENT, *_WORKS}:
            self.add(sign)
        return self.outage(broker, sign.ts, down_until)

    def add(self, sign: Sign) -> None:
        """One more sign of it."""
        if sign.said in _STOPS:
            self.stop_asked, self.stopping_at, self.is_stopping = True, sign.ts, True
        elif self.stop_asked is None and sign.said != FENCED:
            self.stop_asked = False
        if sign.said in {CLEAN, UNCLEAN}:
            self.closed_logs.add(sign.said)
        elif sign.said == STARTING:
            # the last start: earlier ones came to nothing
            self.starting_at = sign.ts
            self.is_stopping = self.has_failed = False
            self.closed_logs.clear()
            if self.how == SESSION_LOST:
                self.how = CRASHED
        elif sign.said in _STOPS and self.how == SESSION_LOST:
            self.how = SHUT_DOWN
        elif sign.said == FAILED and self.how in {SESSION_LOST, FIRST_START, CRASHED}:
            self.how = BROKE_DOWN
        if sign.said == FAILED:
            self.has_failed = True
        elif sign.said == STOPPED:
            self.starting_at = None
        elif sign.said in {LOST, FENCED}:
            self.is_by_start = False
        self.down_until = sign.ts
        if sign.record_id not in self.evidence and len(self.evidence) < 12:
            self.evidence.append(sign.record_id)


def outages(
    events: Iterable[Event],
    assigned: Mapping[int, int | None] | None = None,
    more: Mapping[int, Sequence[Sign]] | None = None,
    *,
    named: Mapping[int, int] | None = None,
    is_heard: bool = True,
) -> list[Outage]:
    """All outages of one incarnation, by broker and time; after them those in which no broker was left (broker None).

    events: in any order; those that say nothing of a broker, or have no time stamp, count for nothing. assigned: brokers that hold replicas,
    and since when at the latest; null: not known. more: what was put together from several records; of WORKING and RUNNING those that are
    known to be brokers otherwise count. named: every broker that any line names, since when. is_heard: lines list brokers, and there are
    logs of every node that any line names; without them nobody can say that no broker was left.
    """
    told = [e for e in events if e.ts is not None]
    signs = _by_broker(told)
    for broker, sign in _left_out(told, signs, assigned or {}):
        signs[broker] = sorted([sign, *signs.get(broker, ())])
    for broker, some in (more or {}).items():
        if broker in signs or any(sign.said not in _WORKS for sign in some):
            signs[broker] = sorted({*signs.get(broker, ()), *some})
    for broker, times in _before_registration(told).items():
        if broker in signs:
            signs[broker] = _registered(signs[broker], times)
    found = [outage for broker in sorted(signs) for outage in _of_broker(broker, signs[broker])]
    whole: list[Outage] = []
    if (
        is_heard and signs.keys() >= (assigned or {}).keys()
    ):  # of a broker that nothing is known about, it is not known that it was gone
        known = {broker: [sign.ts for sign in some if sign.said not in _ASIDE] for broker, some in signs.items()}
        asked = {broker: [sign for sign in some if sign.said == SERVED] for broker, some in signs.items()}
        since = {broker: min(times) for broker, times in known.items() if times}
        for broker, at in (named or {}).items():
            since[broker] = min(at, since.get(broker, at))
        whole = list(_of_all(found, since, asked))
    return [outage._replace(all_since=_within(outage, whole)) for outage in found] + whole


def left_out(events: Iterable[Event], assigned: Iterable[int]) -> set[int]:
    """Those of the brokers that hold replicas that a ZooKeeper controller's list leaves out before any line tells of them."""
    told = [e for e in events if e.ts is not None]
    return {broker for broker, _ in _left_out(told, _by_broker(told), dict.fromkeys(assigned, 0))}


def _left_out(
    events: Iterable[Event], signs: Mapping[int, Sequence[Sign]], assigned: Mapping[int, int | None]
) -> Iterator[tuple[int, Sign]]:
    """What the first list says of a broker that it leaves out, where nothing was told of it before and it held replicas."""
    lists = sorted(
        (e.ts, e.record_id, frozenset((*(e.brokers or ()), e.node)))
        for e in events
        if e.event_type == "active_brokers" and e.ts is not None
    )
    for broker, since in sorted(assigned.items()):
        first = min((sign.ts for sign in signs.get(broker, ()) if sign.said not in _MISSING), default=None)
        for ts, record_id, present in lists:
            if broker not in present and (first is None or ts < first) and since is not None and since <= ts + FIRST_LIST:
                yield broker, Sign(ts, LEFT_OUT, record_id)
                break


def _within(outage: Outage, whole: list[Outage]) -> int | None:
    """Begin of the outage of all brokers that this one is a part of: it was going on then, and had begun shortly before."""
    for every in whole:
        if 0 <= every.since - outage.since <= STOPPING_TOGETHER and (outage.until is None or outage.until > every.since):
            return every.since
    return None


def _by_broker(events: list[Event]) -> dict[int, list[Sign]]:
    """What is said about each broker, in the order of time."""
    signs: dict[int, list[Sign]] = defaultdict(list)
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
                signs[event.broker].append(Sign(event.ts, UNSEEN, event.record_id))
                brokers.add(event.broker)
                continue
        if event.event_type in _LISTS:
            listed.append(event)
            continue
        for said, broker in _about(event):
            if event.event_type == "broker_started":
                appeared.append(event)
                brokers.add(broker)
                break
            signs[broker].append(Sign(event.ts, said, event.record_id, -1 if event.broker_epoch is None else event.broker_epoch))
            if event.event_type not in _OF_ANY_NODE:
                brokers.add(broker)
    begun: dict[int | None, list[int]] = defaultdict(list)
    for node, some in signs.items():
        begun[node] = [sign.ts for sign in some if sign.said in {STARTING, SERVING}]
    for event in appeared:
        begun[event.broker].append(event.ts or 0)
    for event in events:
        # of one that is elected again after its own session had ended, too
        if event.event_type == "controller_resigned" and event.ts is not None:
            begun[event.node].append(event.ts)
    read = _lists_of_terms(events)
    for event in appeared:
        assert event.ts is not None
        assert event.broker is not None
        lists = [one for at, one in read.get(event.node, {}).items() if 0 <= event.ts - at <= READS_AGAIN]
        # who is not in the list that it has read before has registered since
        left_out = [
            one for one in lists if one is not None and (one.ts or 0) <= event.ts and event.broker not in (one.brokers or ())
        ]
        is_found = bool(lists) and not left_out
        signs[event.broker].append(Sign(event.ts, PRESENT if is_found else SERVING, event.record_id))
    refused = _refused(events)
    for broker, some in signs.items():
        some[:] = [
            s for s in some if s.said != SERVING or not any(abs(s.ts - at) <= LISTED_LATE for at in refused.get(broker, ()))
        ]
    changed = {broker: [sign.ts for sign in some if sign.said in {LOST, SERVING}] for broker, some in signs.items()}
    for event in listed:
        assert event.ts is not None
        present = {broker for broker in event.brokers or () if event.ts not in refused.get(broker, ())}
        brokers |= present
        # a controller that is not in the list that it reads was started, or its session had ended
        is_early = event.event_type == "active_brokers" and event.node not in present
        is_first = is_early or any(0 <= event.ts - at <= FIRST_LIST for at in begun[event.node])
        for broker in brokers:
            if event.event_type == "broker_change" and any(
                0 <= at - event.ts <= CHANGE_TOLD_LATE for at in changed.get(broker, ())
            ):
                continue
            # whoever is controller may not have registered again after its session had ended
            if broker in present or broker != event.node:
                signs[broker].append(
                    Sign(event.ts, PRESENT if broker in present else UNSEEN if is_first else ABSENT, event.record_id)
                )
    return {broker: sorted(signs[broker]) for broker in brokers if broker in signs}


def _lists_of_terms(events: list[Event]) -> dict[int | None, dict[int, Event | None]]:
    """Node -> when it was elected -> the list of live brokers that it read then (KafkaController.initializeControllerContext, 0.8 to 3.9)."""
    found: dict[int | None, dict[int, Event | None]] = defaultdict(dict)
    pending: dict[int | None, dict[str, int]] = defaultdict(dict)
    of_terms = (e for e in events if e.ts is not None and (e.event_type in _ELECTED or e.event_type == "active_brokers"))
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
    """Broker -> when it was elected, or its controller thread started, before it had registered.

    Up to 1.0 KafkaServer.startup registers the broker (KafkaHealthcheck) after it has started the controller, whose thread does not name it
    yet; from 1.1 on before that. In any version a broker that is elected and not in the list that it reads then has not registered.
    """
    found: dict[int, list[int]] = defaultdict(list)
    for node, terms in _lists_of_terms(events).items():
        if node is not None:
            found[node] += [at for at, listed in terms.items() if listed is not None and node not in (listed.brokers or ())]
    for e in events:
        if begins_controller_thread(e) and e.controller is None and e.node is not None and e.ts is not None:
            found[e.node].append(e.ts)
    return found


def _registered(signs: Sequence[Sign], early: Iterable[int]) -> list[Sign]:
    """The signs of a broker without those that it serves between an early moment and its registration, where a line tells of that."""
    spans = []
    for at in early:
        registered = [s.ts for s in signs if s.said == SERVING and at < s.ts <= at + REGISTERS_LATE]
        if registered:
            spans.append((at, min(registered)))
    return [s for s in signs if s.said not in {SERVING, PRESENT, WORKING} or not any(at <= s.ts < until for at, until in spans)]


def _refused(events: list[Event]) -> dict[int, list[int]]:
    """Broker -> when a ZooKeeper controller failed to add it, by the list that it had printed.

    Its registration names no endpoint that the controller could use; it stays in ZooKeeper, and the controller sends it nothing.
    """
    failed = [(e.node, e.ts) for e in events if is_failed_change(e) and e.ts is not None]
    found: dict[int, list[int]] = defaultdict(list)
    for e in events if failed else ():
        if e.event_type == "broker_change" and e.ts is not None:
            added = _ADDED.match(e.text or "")
            if added and any(node == e.node and 0 <= at - e.ts <= CHANGE_TOLD_LATE for node, at in failed):
                for broker in added[1].split(","):
                    found[int(broker)].append(e.ts)
    return found


def _about(event: Event) -> Iterator[tuple[str, int]]:
    """(what it says, about which broker)"""
    if event.event_type in _CHANGES:
        to_state = event.to_state or ("PENDING_CONTROLLED_SHUTDOWN" if event.in_controlled_shutdown else "")
        said = {"RUNNING": SERVING, "PENDING_CONTROLLED_SHUTDOWN": STOPPING, "SHUTTING_DOWN": STOPPING}.get(to_state)
        whose = event.node if event.broker is None else event.broker
        if said is not None and whose is not None:
            yield said, whose
        return
    if event.event_type == "thread_changed":
        said = {"Starting": SERVING, "Shutting down": STOPPING}.get(event.text or "")
        if said is not None and event.node is not None:
            yield said, event.node
        return
    said, whom, loggers = _SIGNS[event.event_type]
    if event.event_type == "broker_start_failed" and (event.text or "").startswith(_TAKEN):
        said, loggers = IN_VAIN, frozenset()
    if loggers and (event.logger or "").rsplit(".", 1)[-1] not in loggers:
        return
    if (broker := event.node if whom == "node" else event.broker) is not None:
        yield said, broker


def _of_broker(broker: int, signs: list[Sign]) -> Iterator[Outage]:
    """The outages of one broker; signs in the order of time."""
    now: _Open | None = None
    known, epoch, served_at = False, -1, -LISTED_LATE
    in_vain = -ENDS_IN_VAIN
    for sign, after in with_next(signs):
        if now is not None and _outlives_its_process(sign, after):
            continue
        if sign.said == IN_VAIN:
            in_vain = sign.ts
            if now is not None and now.is_by_start:
                known, now = not now.is_first_start, None
            continue
        if sign.said in {FAILED, STOPPING, STOPPED} and sign.ts < in_vain + ENDS_IN_VAIN:
            continue
        if sign.said in _MISSING and sign.ts < served_at + LISTED_LATE:
            continue
        if now is None:
            how = _OPENS.get(sign.said)
            if sign.said == STARTING:
                how = CRASHED if known else FIRST_START
            elif sign.said in {ABSENT, UNSEEN} and known:
                how = SESSION_LOST if sign.said == ABSENT else ABSENT_AT_START
            elif sign.said == LEFT_OUT:
                how = ABSENT_AT_START
            if how is not None:
                now = _Open(sign, how, epoch)
                now.add(sign)
        elif (sign.said == SERVED and (not now.is_stopping or sign.ts > now.stopping_at + STILL_LISTED)) or (
            sign.said == LOST and now.has_served_since(sign)
        ):
            # it served up to then: nobody else is asked to stop, or loses the session of a newer registration
            if not now.is_of_another_process(sign):
                yield now.ended(broker, sign)
            now = _Open(sign, SHUT_DOWN if sign.said == SERVED else SESSION_LOST, epoch)
            now.add(sign)
        elif now.is_back(sign):
            if not now.is_of_another_process(sign):
                yield now.ended(broker, sign)
            now = None
        elif sign.said in _MISSING:
            now.down_until = sign.ts
        elif sign.said not in {PRESENT, KNOWN, *_WORKS}:
            now.add(sign)
        known = known or sign.said not in _ASIDE
        epoch = max(epoch, sign.epoch)
        served_at = sign.ts if sign.said == SERVING else served_at
    if now is not None:
        yield now.outage(broker, None, None)


def _outlives_its_process(sign: Sign, after: Sign | None) -> bool:
    """Whether a list names a broker only because its session has not ended yet."""
    return sign.said == PRESENT and after is not None and after.said in {LOST, *_MISSING} and after.ts < sign.ts + SESSION_ENDS


_OPENS = {
    STOPPING: SHUT_DOWN,
    STOPPED: SHUT_DOWN,
    SERVED: SHUT_DOWN,
    FAILED: BROKE_DOWN,
    LOST: SESSION_LOST,
    FENCED: SESSION_LOST,
}


def _of_all(outages: list[Outage], known_since: dict[int, int], asked: Mapping[int, Sequence[Sign]]) -> Iterator[Outage]:
    """The times in which every broker that was known by then was gone. asked: broker -> its requests to the controller to stop, in order."""
    changes: list[tuple[int, int, Outage]] = []
    for outage in outages:
        if outage.how != FIRST_START:
            last = _last_request(outage, asked)
            # what shows that the broker was gone by then comes first
            proof = outage.evidence if last is None else [last.record_id, *outage.evidence]
            changes.append((outage.since if last is None else last.ts, 1, outage._replace(evidence=list(dict.fromkeys(proof)))))
            if outage.until is not None:
                changes.append((outage.until, 0, outage))
    gone: dict[int | None, Outage] = {}
    begun: tuple[int, list[Outage]] | None = None
    for at, going, outage in sorted(changes, key=lambda change: change[:2]):
        if going:
            gone[outage.broker] = outage
            known = {broker for broker, since in known_since.items() if since <= at}
            if known <= gone.keys() and all(_is_gone_at(one, at) for one in gone.values()):
                begun = at, list(gone.values())
        else:
            if begun is not None:
                yield _together(*begun, outage.until)
                begun = None
            gone.pop(outage.broker, None)
    if begun is not None:
        yield _together(*begun, None)


def _last_request(outage: Outage, asked: Mapping[int, Sequence[Sign]]) -> Sign | None:
    """The last time that a broker asks to stop after the first one: while the controller cannot move all leaders, it still leads."""
    if outage.how != SHUT_DOWN or outage.broker is None:
        return None
    end = outage.since + STILL_LISTED if outage.until is None else min(outage.since + STILL_LISTED, outage.until - 1)
    return max((sign for sign in asked.get(outage.broker, ()) if outage.since < sign.ts <= end), default=None)


def _is_gone_at(outage: Outage, at: int) -> bool:
    """Whether a broker of which nobody saw when it came back was still gone: it went shortly before, or a line says so."""
    return outage.is_end_seen or at <= max(outage.since + STOPPING_TOGETHER, outage.down_until or 0)


def _together(since: int, members: list[Outage], until: int | None) -> Outage:
    # of one that was gone when somebody looked for the first time nobody knows how it went
    asked = {m.stop_asked for m in members if since - m.since <= STOPPING_TOGETHER and m.how != ABSENT_AT_START}
    how = SHUT_DOWN if True in asked and False not in asked else CRASHED
    evidence = list(dict.fromkeys(record for member in members for record in member.evidence[:2]))
    seen = [max(since, member.down_until) for member in members if member.down_until is not None]
    return Outage(None, since, until, None if until is None else min(seen), how, None, since, asked == {True}, evidence[:20])
