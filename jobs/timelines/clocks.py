"""The clock of a metadata log and those of the logs beside it: is the time zone right that the logs are read with?"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jobs.timelines.events import Event

MINUTE = 60_000_000
# lines of a registration are printed within seconds of its record; so far apart are two clocks that no time server sets right
AT_ONCE, APART = MINUTE // 6, 20 * MINUTE
# of the zones that there are the furthest from UTC, in winter or in summer
FURTHEST = 15 * 60 * MINUTE
REGISTRATIONS = 2


class ZoneError(NamedTuple):
    """By how much logs tell the same registrations later than the metadata log (microseconds), and the records of one: of log and metadata log."""

    later: int
    broker: int
    broker_epoch: int
    record_id: str
    metadata_record_id: str


def zone_error(events: Iterable[Event]) -> ZoneError | None:
    """What shows that logs were read with another time zone than they were printed in; None where nothing does.

    events: of one cluster. A broker prints that it has registered (kafka.server.BrokerLifecycleManager), the active controller that it lets it
    (ClusterControlManager, from 3.7.1 on), both with the broker epoch, the offset of the record in the metadata log, whose time is in UTC. What
    a controller replays counts for nothing: it may do so at any later time. All have to be apart by the same time.
    """
    printed, written = _by_registration(events)
    pairs = [(key, printed[key], written[key]) for key in printed.keys() & written.keys()]
    if len(pairs) < REGISTRATIONS:
        return None
    distances = [_ts(line) - _ts(record) for _, line, record in pairs]
    least, most = min(distances), max(distances)
    nearest, furthest = sorted((abs(least), abs(most)))
    if most - least > AT_ONCE or nearest < APART or furthest > FURTHEST:
        return None
    (broker, epoch), line, record = min(pairs, key=lambda one: one[0])
    return ZoneError(least, broker, epoch, line.record_id, record.record_id)


def _ts(e: Event) -> int:
    assert e.ts is not None
    return e.ts


def _by_registration(events: Iterable[Event]) -> Iterator[dict[tuple[int, int], Event]]:
    """(broker, broker epoch) -> the line, the record; of those that are told at one moment only."""
    found: tuple[dict[tuple[int, int], list[Event]], ...] = ({}, {})
    for e in events:
        if e.ts is None or e.broker is None or e.broker_epoch is None:
            continue
        if e.event_type == "register_broker_record":
            found[1].setdefault((e.broker, e.broker_epoch), []).append(e)
        elif e.event_type == "broker_registering" or (e.event_type == "broker_registered" and e.broker == e.node):
            found[0].setdefault((e.broker, e.broker_epoch), []).append(e)
    for side in found:
        first = {key: min(some, key=_ts) for key, some in side.items()}
        yield {key: first[key] for key, some in side.items() if all(_ts(e) - _ts(first[key]) <= AT_ONCE for e in some)}
