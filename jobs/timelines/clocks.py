"""Check the time zone of logs against the metadata log, whose clock is UTC."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jobs.timelines.event import Event

MINUTE = 60_000_000
# lines of a registration are printed within AT_ONCE of its record; a time zone shifts them by at least APART
AT_ONCE, APART = MINUTE // 6, 20 * MINUTE
# no time zone is further from UTC, in winter or in summer
FURTHEST = 15 * 60 * MINUTE
REGISTRATIONS = 2


class ZoneError(NamedTuple):
    """By how many microseconds logs are later than the metadata log.

    record_id, metadata_record_id: the records of one registration in both.
    """

    later: int
    broker: int
    broker_epoch: int
    record_id: str
    metadata_record_id: str


def zone_error(events: Iterable[Event]) -> ZoneError | None:
    """Return the error if logs were read with another time zone than they were printed in.

    None: no registration shows one.
    events: of one cluster. A broker prints that it has registered (kafka.server.BrokerLifecycleManager), the
    active controller that it accepts the broker (ClusterControlManager, from 3.7.1 on). Both print the broker
    epoch: the offset of the record in the metadata log, whose time is in UTC. Replayed lines do not count: a
    controller may replay records at any later time. All distances have to be the same.
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
    """Yield (broker, broker epoch) -> line, then -> record, of registrations with a single moment."""
    found: tuple[dict[tuple[int, int], list[Event]], ...] = ({}, {})
    for e in events:
        if e.ts is None or e.broker is None or e.broker_epoch is None:
            continue
        if e.event_type == "register_broker_record":
            found[1].setdefault((e.broker, e.broker_epoch), []).append(e)
        elif e.event_type == "broker_registering" or (
            e.event_type == "broker_registered" and e.broker == e.node
        ):
            found[0].setdefault((e.broker, e.broker_epoch), []).append(e)
    for side in found:
        first = {key: min(some, key=_ts) for key, some in side.items()}
        yield {
            key: first[key]
            for key, some in side.items()
            if all(_ts(e) - _ts(first[key]) <= AT_ONCE for e in some)
        }
