"""When brokers did not serve: lines of a few seconds, and the outages that they tell."""

from pathlib import Path

from logs import recorded

from jobs.timelines import ClusterFacts, Event, Summary, outages
from jobs.timelines.outages import Outage

SECOND = 1_000_000
SERVER, RAFT, LIFECYCLE = "kafka.server.KafkaServer", "kafka.server.KafkaRaftServer", "kafka.server.BrokerLifecycleManager"


def told(second: float, event_type: str, node: int = 1, *, by: str = SERVER, **named: object) -> Event:
    """An event after so many seconds."""
    where = {
        "node": node,
        "file": f"broker-{node}/server.log",
        "record_no": 1,
        "ts": int(second * SECOND),
        "level": "INFO",
        "logger": by,
    }
    return Event(record_id=f"{event_type}-{node}-{second}", item=0, event_type=event_type, says="happened", **where, **named)  # type: ignore[arg-type]


def started(node: int, second: float = 0) -> list[Event]:
    """A broker of ZooKeeper mode that comes up within two seconds."""
    return [
        told(second, "broker_starting", node),
        told(second + 2, "broker_registered", node, by="kafka.zk.KafkaZkClient", broker=node),
    ]


def brief(found: list[Outage]) -> list[tuple]:
    """(broker, since, until, how) in seconds, without first starts."""
    seconds = [[None if at is None else at / SECOND for at in (o.since, o.until)] for o in found]
    return [(o.broker, *at, o.how) for o, at in zip(found, seconds, strict=True) if o.how != "first_start"]


def test_a_broker_that_is_told_to_stop() -> None:
    stop = [told(60, "broker_stop_signal"), told(60, "broker_stopping"), told(63, "broker_stopped"), *started(1, 70)]
    assert brief(outages([*started(1), *started(2), *stop])) == [(1, 60, 72, "shut_down")]
    # the controller's view alone
    seen = [
        told(60, "broker_shutting_down", 2, broker=1),
        told(62, "broker_failed", 2, broker=1),
        told(72, "broker_started", 2, broker=1),
    ]
    assert brief(outages([*started(2), *seen])) == [(1, 60, 72, "shut_down")]


def test_a_broker_that_dies() -> None:
    seen = [told(60, "broker_failed", 2, broker=1), told(90, "broker_started", 2, broker=1)]
    assert brief(outages([*started(1), *started(2), *seen, *started(1, 88)])) == [(1, 60, 90, "crashed")]
    assert brief(outages([*started(1), *started(2), seen[0]])) == [(1, 60, None, "session_lost")]
    assert brief(outages([*started(1), *started(2), *seen])) == [(1, 60, 90, "session_lost")]
    # nobody noticed: its own start is the first sign
    assert brief(outages([*started(1), *started(2), *started(1, 88)])) == [(1, 88, 90, "crashed")]


def test_a_new_controller_lists_who_is_alive() -> None:
    listed = told(60, "active_brokers", 2, brokers=[2])
    assert brief(outages([*started(1), *started(2), listed])) == [(1, 60, None, "session_lost")]
    # one that stops is listed until its session is closed, and not for days
    stop = [told(60, "broker_shutting_down", 2, broker=1)]
    listed = [told(at, "active_brokers", 2, brokers=[1, 2]) for at in (90, 4000)]
    assert brief(outages([*started(1), *started(2), *stop, *listed])) == [(1, 60, 4000, "shut_down")]
    alone = [*stop, told(61, "broker_shutting_down", 2, broker=2), told(4000, "active_brokers", 1, brokers=[1])]
    assert brief(outages([*started(1), *started(2), *alone]))[0] == (1, 60, 4000, "shut_down")
    # at the first start the others are not up yet, and that is no outage
    early = told(2, "active_brokers", 2, brokers=[2])
    assert brief(outages([*started(2), early, *started(1, 5)])) == []


def test_kraft_fences_and_unfences() -> None:
    up = [told(0, "server_status_changed"), told(3, "broker_state_changed", by=LIFECYCLE, to_state="RUNNING")][1:]
    fenced = [told(40, "broker_fenced", 101, broker=1), told(45, "broker_unfenced", 101, broker=1)]
    assert brief(outages([*up, told(3, "broker_unfenced", 101, broker=2), *fenced])) == [(1, 40, 45, "session_lost")]


def test_a_broker_that_asks_to_stop_has_served() -> None:
    """No line tells that it was unfenced: the controller that printed it has no log here."""
    up = [told(3, "broker_unfenced", 101, broker=broker) for broker in (1, 2)]
    fenced = [told(40, "broker_fenced", 101, broker=1), told(9000, "controlled_shutdown_granted", 102, broker=1)]
    assert brief(outages([*up, *fenced])) == [(1, 40, 9000, "session_lost"), (1, 9000, None, "shut_down")]
    # its own log tells first that it stops
    stop = [told(60, "broker_stop_signal"), told(61, "controlled_shutdown_granted", 101, broker=1)]
    assert brief(outages([*up, *stop])) == [(1, 60, None, "shut_down")]


def test_a_controller_of_a_quorum_is_no_broker() -> None:
    quorum = [
        told(0, "broker_process_started", 101),
        told(1, "broker_running", 101, by=RAFT),
        told(60, "broker_stop_signal", 101),
    ]
    assert outages(quorum) == []


def test_all_of_them() -> None:
    up = [*started(1), *started(2)]
    stop = [told(60, "broker_stopping", 1), told(80, "broker_stopping", 2)]
    found = outages([*up, *stop, *started(1, 100)])
    assert brief(found) == [(1, 60, 102, "shut_down"), (2, 80, None, "shut_down"), (None, 80, 102, "shut_down")]
    assert {o.all_since for o in found if o.how == "shut_down"} == {80 * SECOND}
    died = [told(60, "broker_failed", 2, broker=1), told(80, "broker_stopping", 2)]
    assert brief(outages([*up, *died]))[-1] == (None, 80, None, "crashed")
    # a broker that assignments name and no line tells of may have served on
    assert brief(outages([*up, *stop], assigned=[3])) == [(1, 60, None, "shut_down"), (2, 80, None, "shut_down")]


def test_the_order_of_delivery_does_not_matter() -> None:
    some = [*started(1), *started(2), told(60, "broker_failed", 2, broker=1), *started(1, 88), told(200, "broker_stop_signal", 2)]
    assert outages(reversed(some)) == outages(some)


def test_what_is_kept_of_all_events_tells_the_same() -> None:
    """Night after night outages are told from the summary alone."""
    recording = Path(__file__).parents[1] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
    events = recorded(recording)
    parts = [Summary.of(events[n::3]) for n in range(3)]
    facts = ClusterFacts.of(parts[0] + parts[1] + parts[2])
    found = outages(events)
    assert found
    assert outages(facts.events_by_number[1]) == found


THREAD = "kafka.controller.ControllerEventManager$ControllerEventThread"


def test_controller_log_alone_tells_of_a_restart() -> None:
    ends, starts = (told(at, "thread_changed", by=THREAD, text=text) for at, text in ((60, "Shutting down"), (75, "Starting")))
    assert brief(outages([ends, starts]))[:1] == [(1, 60, 75, "shut_down")]
    assert outages([starts]) == []
    assert outages([told(60, "thread_changed", by="kafka.server.NodeToControllerRequestThread", text="Shutting down")]) == []


def test_who_is_elected_while_it_stops_does_not_serve_again() -> None:
    stop = [told(60, "broker_stop_signal"), told(63, "controller_elected", by="kafka.controller.KafkaController")]
    assert brief(outages([*started(1), *stop]))[:1] == [(1, 60, None, "shut_down")]
    # a new process is another matter, however soon
    again = [*stop, told(70, "broker_starting"), told(75, "controller_elected", by="kafka.controller.KafkaController")]
    assert brief(outages([*started(1), *again]))[:1] == [(1, 60, 75, "shut_down")]


def test_a_broker_that_nobody_has_seen_yet_is_no_survivor() -> None:
    lists = [told(at, "active_brokers", 1, brokers=brokers) for at, brokers in ((5, (1,)), (90, (1, 2)))]
    stop = [told(60, "broker_stop_signal"), *started(1, 80)]
    found = outages([*started(1), *lists, *stop])
    assert [(o.since // SECOND, o.until and o.until // SECOND) for o in found if o.broker is None] == [(60, 82)]


def test_a_broker_whose_session_ends_twice_served_in_between() -> None:
    seen = [told(60, "broker_fenced", 9, broker=1), told(90, "broker_process_started"), told(500, "broker_fenced", 9, broker=1)]
    life = told(2, "broker_unfenced", 9, broker=1)
    assert brief(outages([life, *seen]))[:2] == [(1, 60, 500, "crashed"), (1, 500, None, "session_lost")]
