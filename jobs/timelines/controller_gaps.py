"""Find the intervals without a controller, from the ends of terms and the elections after them."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from jobs.timelines.cluster_evidence import ELECTION_HEARD, TERM_BEGUN, TERM_ENDED
from jobs.timelines.controllers import terms
from jobs.timelines.event import Event
from jobs.timelines.facts import ClusterFacts
from jobs.timelines.incarnations import CLOCK_SKEW, incarnation
from jobs.timelines.kraft_facts import FOREVER
from jobs.timelines.outages import FIRST_START, SHUT_DOWN, Outage

# a controller may still print lines this long after its term has ended or before the next one begins
AT_ONCE = 1_000_000


class ControllerGap(NamedTuple):
    """An interval without a controller.

    node: whose term ended. since, until: microseconds; until is None if no line shows another controller.
    is_end_seen: until is the next election, not only the first line of the next term. evidence: records.
    """

    incarnation: int
    node: int
    since: int
    until: int | None
    is_end_seen: bool
    evidence: list[str]


class _Begin(NamedTuple):
    """The begin of a term, or a later line of it.

    own: the controller's own line or request; lines of others may name the previous controller until its
    session ends.
    elected: the controller's own line that its term begins. epoch: controller epoch; -1: unknown.
    """

    ts: int
    node: int
    record_id: str
    own: bool
    epoch: int = -1
    elected: bool = False


def controller_gaps(facts: ClusterFacts) -> list[ControllerGap]:
    """Return the times from the end of each term to the next known term, in order of their begin.

    A term ends when its controller resigns or renounces, or when its broker is down. Every broker prints that
    it resigns when it stops: that line counts only for the broker of the last term.
    """
    begun: dict[int, list[_Begin]] = {}
    for number, epoch, node, ts, record_id in terms(facts):
        if node is not None and ts is not None:
            begun.setdefault(number, []).append(_Begin(ts, node, record_id, True, epoch))
    for (epoch, node), places in facts.evidence.sent.items():
        if node is not None:
            for (folder, of_node), (ts, record_id) in places.items():
                number = incarnation(facts.of_name, f"{folder}/", of_node, ts)
                begun.setdefault(number, []).append(_Begin(ts, node, record_id, True, epoch))
    found: list[ControllerGap] = []
    for number, events in facts.events_by_number.items():
        begins = sorted(
            [*begun.get(number, ()), *_begins(events)],
            key=lambda begin: (begin.ts, begin.node, not begin.elected, begin),
        )
        led = facts.led_by_number.get(number, {})
        ended = _of_incarnation(number, begins, sorted(_ends(events, facts.outages(number))))
        found += [one for one in ended if not _led_on(one, [line.ts for line in led.get(one.node, ())])]
    return sorted(found)


def _led_on(gap: ControllerGap, led: Iterable[int]) -> bool:
    """Return whether the node of the ended term was still controller.

    led: times of its lines that only a controller prints.
    """
    until = FOREVER if gap.until is None else gap.until
    return any(gap.since + AT_ONCE < ts < until - AT_ONCE for ts in led)


def _begins(events: Iterable[Event]) -> Iterable[_Begin]:
    for e in events:
        if e.ts is None:
            continue
        if e.event_type in TERM_BEGUN:
            named, own = e.node if e.controller is None else e.controller, True
        elif e.event_type == "controller_renounced" and e.quorum_node is not None:
            named, own = e.quorum_node, True
        elif e.event_type in ELECTION_HEARD:
            named, own = e.quorum_node if e.event_type == "quorum_leader_learned" else e.controller, False
        else:
            continue
        if named is not None:
            epoch = -1 if e.controller_epoch is None else e.controller_epoch
            yield _Begin(e.ts, named, e.record_id, own, epoch, e.event_type in TERM_BEGUN)


def _ends(events: Iterable[Event], outages: Iterable[Outage]) -> Iterable[tuple[int, int, str]]:
    """Yield (time, node, record) of each end of a term."""
    resigned = [
        (e.ts, e.node, e.record_id)
        for e in events
        if e.event_type in TERM_ENDED and e.ts is not None and e.node is not None
    ]
    yield from resigned
    for outage in outages:
        if outage.broker is None or outage.how == FIRST_START:
            continue
        # a controller that is asked to stop is controller until it resigns
        until = outage.since if outage.how != SHUT_DOWN else (outage.until or FOREVER) + CLOCK_SKEW
        if not any(node == outage.broker and outage.since <= at <= until for at, node, _ in resigned):
            yield outage.since, outage.broker, outage.evidence[0]


def _of_incarnation(
    number: int, begins: list[_Begin], ends: list[tuple[int, int, str]]
) -> Iterable[ControllerGap]:
    highest: dict[int, int] = {}
    # the highest epoch that the node of each begin had by then
    epochs = []
    for begin in begins:
        highest[begin.node] = max(highest.get(begin.node, -1), begin.epoch)
        epochs.append(highest[begin.node])
    gaps: dict[tuple[int, int | None], ControllerGap] = {}
    for since, node, record_id in ends:
        place = bisect_right(begins, since, key=lambda begin: begin.ts)
        if not place or begins[place - 1].node != node:
            continue
        reached = epochs[place - 1]
        # others may receive later what the previous controller sent
        after = next(
            (
                b
                for b in islice(begins, place, None)
                if (b.own or b.node != node) and (b.epoch < 0 or b.epoch > reached)
            ),
            None,
        )
        if after is not None and after.epoch > reached + 1 > 0:
            continue  # others were elected in between, at an unknown time
        until, is_seen = after and after.ts, after is None or after.elected
        evidence = [record_id, *([after.record_id] if after else [])]
        # a term may end in several ways before the next one begins: the first counts
        gaps.setdefault((node, until), ControllerGap(number, node, since, until, is_seen, evidence))
    return gaps.values()
