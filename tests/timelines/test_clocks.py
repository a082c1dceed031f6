"""The time zone of logs beside a metadata log, by registrations that both have."""

import pytest
from test_outages import SECOND, logged

from jobs.timelines import ClusterEvidence, ClusterFacts, Event, is_cluster_event, zone_error

HOUR = 3600


def registered(second: float, broker: int, epoch: int) -> Event:
    """Return the line of a broker that it has registered."""
    return logged(second, "broker_registered", broker, broker=broker, broker_epoch=epoch)


def record(second: float, broker: int, epoch: int) -> Event:
    """Return the record of a registration in the metadata log."""
    return logged(second, "register_broker_record", 0, broker=broker, broker_epoch=epoch)


def hours(*events: Event) -> float | None:
    error = zone_error(events)
    return None if error is None else round(error.later / SECOND / HOUR, 2)


@pytest.mark.parametrize("later", [9, 5.75, -8, 9.15])
def test_logs_in_another_zone(later: float) -> None:
    records = [record(100, 1, 5), record(101, 2, 7), record(9000, 1, 90)]
    lines = [
        registered(later * HOUR + 100.4, 1, 5),
        registered(later * HOUR + 102, 2, 7),
        registered(later * HOUR + 9000, 1, 90),
    ]
    assert hours(*records, *lines) == later
    # these lines are stored for later runs
    assert all(map(is_cluster_event, [*records, *lines]))
    assert hours(*ClusterFacts.of(ClusterEvidence.of([*records, *lines])).ordered_events) == later


def test_lines_of_a_controller_show_it_too() -> None:
    lines = [
        logged(9 * HOUR + 100, "broker_registering", 101, broker=broker, broker_epoch=epoch)
        for broker, epoch in ((1, 5), (2, 7))
    ]
    assert hours(record(100, 1, 5), record(101, 2, 7), *lines) == 9
    assert all(map(is_cluster_event, lines))


def test_logs_in_the_zone_that_they_were_read_in() -> None:
    assert hours(record(100, 1, 5), record(101, 2, 7), registered(100.4, 1, 5), registered(102, 2, 7)) is None
    # a clock that is off by minutes is no time zone
    assert hours(record(100, 1, 5), record(101, 2, 7), registered(700, 1, 5), registered(701, 2, 7)) is None


def test_registrations_that_show_no_time_zone() -> None:
    later = 9 * HOUR
    records = record(100, 1, 5), record(101, 2, 7)
    # a single registration may be of another incarnation
    assert hours(*records, registered(later + 100, 1, 5), registered(later + 101, 2, 8)) is None
    # different distances; more than time zones differ; twice in one log
    assert hours(*records, registered(later + 100, 1, 5), registered(later + 190, 2, 7)) is None
    assert hours(*records, registered(later + 100, 1, 5), registered(102, 2, 7)) is None
    assert hours(*records, registered(30 * HOUR, 1, 5), registered(30 * HOUR, 2, 7)) is None
    again = (
        registered(later + 100, 1, 5),
        registered(later + 101, 2, 7),
        registered(later + 101, 2, 7)._replace(ts=5),
    )
    assert hours(*records, *again) is None
    # a starting controller reads its whole log and prints all of it again
    replayed = [
        logged(later + 100, "broker_registration_replayed", 101, broker=b, broker_epoch=epoch)
        for b, epoch in ((1, 5), (2, 7))
    ]
    assert hours(*records, *replayed) is None
    # only the broker itself prints it when it happens
    heard = logged(later + 101, "broker_registered", 3, broker=2, broker_epoch=7)
    assert hours(*records, registered(later + 100, 1, 5), heard) is None
