"""When brokers did not serve: lines of a few seconds, and the outages that they tell."""

from pathlib import Path

from logs import recorded

from jobs.timelines import ClusterEvidence, ClusterFacts, Event, outages
from jobs.timelines.outages import Outage

SECOND = 1_000_000
CONTROLLER = "kafka.controller.KafkaController"
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
    """(broker, since, until, how) in seconds, without first starts; a record of the moment proves that all brokers were gone."""
    for one in found:
        if one.broker is None:
            assert one.since in [int(float(record.rsplit("-", 1)[1]) * SECOND) for record in one.evidence], one
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
    # nobody else asks the controller: it had come back in the meantime
    again = told(4000, "broker_shutting_down", 2, broker=1)
    assert brief(outages([*started(2), *seen[:2], again])) == [(1, 60, 4000, "shut_down"), (1, 4000, None, "shut_down")]
    assert brief(outages([*started(2), *seen[:2], again._replace(ts=66 * SECOND)])) == [(1, 60, None, "shut_down")]


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
    assert brief(outages([*up, *stop], assigned={3: None})) == [(1, 60, None, "shut_down"), (2, 80, None, "shut_down")]


def test_a_connection_does_not_make_a_broker() -> None:
    """Brokers of KRaft have connections to controllers, too, which go on when all brokers are shut down."""
    kraft = told(0, "broker_state_changed", 1, to_state="RECOVERY")
    broken = told(40, "node_disconnected", 1, by="org.apache.kafka.clients.NetworkClient", broker=101)

    def is_broker(*events: Event) -> bool:
        return ClusterFacts.of(ClusterEvidence.of([kraft, *events])).named_by_number[1][101].is_broker

    assert not is_broker(broken)
    assert is_broker(broken, told(41, "registration_changed", 1, broker=101))


def test_the_order_of_delivery_does_not_matter() -> None:
    some = [*started(1), *started(2), told(60, "broker_failed", 2, broker=1), *started(1, 88), told(200, "broker_stop_signal", 2)]
    assert outages(reversed(some)) == outages(some)


def test_what_is_kept_of_all_events_tells_the_same() -> None:
    """Night after night outages are told from the evidence alone."""
    recording = Path(__file__).parents[1] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
    events = recorded(recording)
    parts = [ClusterEvidence.of(events[n::3]) for n in range(3)]
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
    seen = [told(60, "broker_fenced", 9, broker=1, broker_epoch=5), told(90, "broker_process_started")]
    seen.append(told(500, "broker_fenced", 9, broker=1, broker_epoch=80))
    life = told(2, "broker_unfenced", 9, broker=1, broker_epoch=5)
    first, second = outages([life, *seen])[:2]
    assert brief([first, second]) == [(1, 60, 500, "crashed"), (1, 500, None, "session_lost")]
    # it had come back by then; up to its start it was surely gone
    assert (first.down_until, first.is_end_seen, second.is_end_seen) == (90 * SECOND, False, True)


def test_what_only_shows_that_a_broker_had_come_back() -> None:
    gone = [*started(1), *started(2), told(60, "broker_failed", 2, broker=1)]
    listed = [told(at, "active_brokers", 2, brokers=brokers) for at, brokers in ((70, [2]), (4000, [1, 2]))]
    (outage,) = [o for o in outages([*gone, *listed]) if o.how == "session_lost"]
    assert (outage.until, outage.down_until) == (4000 * SECOND, 70 * SECOND)
    (outage,) = [o for o in outages([*gone, told(90, "broker_started", 2, broker=1)]) if o.how == "session_lost"]
    assert (outage.until, outage.down_until) == (90 * SECOND, 90 * SECOND)
    # that all were gone at once nobody tells: it may have come back long before the other went
    last = told(3990, "broker_stopping", 2)
    assert not [o for o in outages([*gone, listed[1], last]) if o.broker is None]


def sent(second: float, node: int, epoch: int) -> Event:
    """A broker takes in what the controller of an epoch, broker 2, sends."""
    return told(
        second, "become_started", node, by="state.change.logger", controller=2, controller_epoch=epoch, topic="a", partition=0
    )


def test_a_broker_that_works_is_back() -> None:
    gone = [*started(1), *started(2), sent(10, 1, 5), sent(10, 2, 5), told(60, "broker_failed", 2, broker=1)]

    def of_facts(*more: Event) -> list[tuple]:
        return brief(ClusterFacts.of(ClusterEvidence.of([*gone, *more])).outages(1))

    assert of_facts() == [(1, 60, None, "session_lost")]
    assert of_facts(sent(500, 2, 6), sent(501, 1, 6)) == [(1, 60, 501, "session_lost")]
    # its clock may be fast
    assert of_facts(sent(58, 2, 6), sent(62, 1, 6)) == [(1, 60, None, "session_lost")]


def test_a_broker_whose_replicas_are_moved_to_online_again() -> None:
    """The controller.log is not here any more."""
    gone = [*started(1), *started(2), told(60, "broker_failed", 2, broker=1)]
    online = told(
        500, "replica_state_changed", 2, by="state.change.logger", controller=2, controller_epoch=5, topic="a", partition=0,
        replica=1, from_state="OfflineReplica", to_state="OnlineReplica",
    )  # fmt: skip

    def of_facts(event: Event) -> list[tuple]:
        evidence = ClusterEvidence.of([*gone, event])
        assert ClusterEvidence.from_json(evidence.to_json()) == evidence
        return brief(ClusterFacts.of(ClusterEvidence.of(gone) + ClusterEvidence.of([event])).outages(1))

    assert of_facts(online) == [(1, 60, 500, "session_lost")]
    # replicas of a new partition are moved to it wherever they are; it fails; another broker's
    for other in ({"from_state": "NewReplica"}, {"says": "failed"}, {"replica": 2}):
        assert of_facts(online._replace(**other)) == [(1, 60, None, "session_lost")]


def test_what_a_controller_sends_to_itself_needs_no_session() -> None:
    def of_facts(*more: Event) -> list[tuple]:
        return brief(
            ClusterFacts.of(
                ClusterEvidence.of([*started(1), *started(2), told(60, "broker_failed", 1, broker=2), *more])
            ).outages(1)
        )

    own = [sent(at, 2, 5) for at in (50, 500, 900)]
    assert of_facts(*own) == [(2, 60, None, "session_lost")]
    # what a voter of a quorum reads of its own disk while it starts is no work, either
    read = told(700, "raft_state_changing", 2, by="org.apache.kafka.raft.QuorumState", controller=3, controller_epoch=8)
    assert of_facts(read) == [(2, 60, None, "session_lost")]
    # elected again, it has one
    assert of_facts(*own, sent(950, 2, 7), sent(990, 2, 7)) == [(2, 60, 950, "session_lost")]
    # but not where it goes on in a term whose successor is known
    later = sent(940, 1, 8)._replace(node=3, controller=3, record_id="later")
    assert of_facts(*own, later, sent(950, 2, 7)) == [(2, 60, None, "session_lost")]
    # a controller of a KRaft quorum needs no session of the broker in its process
    mode = told(1, "partition_registered", 1, by="org.apache.kafka.controller.ReplicationControlManager", topic="a", partition=0)
    assert of_facts(mode, *own, sent(950, 2, 7)) == [(2, 60, None, "session_lost")]
    # but it shows that the process runs again
    stopped = [told(at, name, 2, by=SERVER) for at, name in ((50, "broker_stopping"), (58, "broker_stopped"))]
    assert of_facts(mode, *stopped, sent(950, 2, 7)) == [(2, 50, 950, "shut_down")]


def test_a_term_of_a_cluster_that_is_set_up_anew() -> None:
    """Its epochs begin again: the broker was controller in the same epoch of the life before."""
    day = 86_400
    up = [told(at, "cluster_id_told", node, cluster_id=name) for at, name in ((0, "A"), (day, "B")) for node in (1, 2)]
    lives = [*started(1), *started(2), sent(10, 2, 2), *started(1, day + 1), *started(2, day + 1)]
    facts = ClusterFacts.of(
        ClusterEvidence.of([*up, *lives, told(day + 60, "broker_failed", 1, broker=2), sent(day + 500, 2, 2)])
    )
    assert facts.numbers == [1, 2]
    assert brief(facts.outages(2)) == [(2, day + 60, day + 500, "session_lost")]
    # the epoch that an election finds is of the one before
    read = told(1400, "controller_epoch_read", 2, by=CONTROLLER, controller=2, controller_epoch=2)
    assert (2, 2) not in ClusterEvidence.of([read]).terms


def test_the_logs_that_a_process_closed() -> None:
    again = [told(88, "broker_starting"), told(91, "broker_registered", by="kafka.zk.KafkaZkClient", broker=1)]
    clean, unclean = (told(89, f"log_dir_{how}", by="kafka.log.LogManager") for how in ("clean", "unclean"))
    assert brief(outages([*started(1), *started(2), *again])) == [(1, 88, 91, "crashed")]
    assert brief(outages([*started(1), *started(2), *again, clean])) == [(1, 88, 91, "shut_down")]
    assert brief(outages([*started(1), *started(2), *again, clean, unclean])) == [(1, 88, 91, "crashed")]


def test_a_controller_that_fences_and_is_none_any_more() -> None:
    up = [told(3, "broker_unfenced", 101, broker=broker) for broker in (1, 2)]
    fence, renounced = told(40, "broker_fenced", 101, broker=1), told(40.3, "controller_renounced", 101)
    assert brief(outages([*up, fence])) == [(1, 40, None, "session_lost")]
    assert brief(outages([*up, fence, renounced])) == []
    # this is what it fails in
    failed = told(60, "active_controller_failed", 101, request="maybeFenceReplicas")
    assert brief(outages([*up, fence, failed])) == []
    assert brief(outages([*up, fence, failed._replace(request="writeNoOpRecord")])) == [(1, 40, None, "session_lost")]


def test_a_broker_that_is_fenced_once_more_was_gone_before() -> None:
    """4.0: a controller that becomes active has no session of a broker that is fenced already, and fences it when none begins."""
    up = [told(3, "broker_unfenced", 101, broker=broker) for broker in (1, 2)]
    fence = told(40, "broker_fenced", 101, broker=1, broker_epoch=5)
    unchanged = told(40.01, "broker_registration_unchanged", 101, broker=1, broker_epoch=5, fenced=True)
    assert brief(outages([*up, fence])) == [(1, 40, None, "session_lost")]
    assert brief(outages([*up, fence, unchanged])) == [(1, 40, None, "absent")]
    # of another registration, of one that was not fenced, of another controller
    for other in (unchanged._replace(broker_epoch=4), unchanged._replace(fenced=False), unchanged._replace(node=102)):
        assert brief(outages([*up, fence, other])) == [(1, 40, None, "session_lost")]
    # it was told before when it went
    before = told(20, "broker_fenced", 101, broker=1, broker_epoch=5)
    assert brief(outages([*up, before, fence, unchanged])) == [(1, 20, None, "session_lost")]


def test_what_a_standby_controller_prints() -> None:
    """The log of the active one is not here."""
    where = {"by": "org.apache.kafka.controller.ClusterControlManager", "broker": 1, "controller": 102}
    registered = told(1, "broker_registration_replayed", 102, broker_epoch=5, fenced=True, **where)
    unfenced = told(2, "broker_unfencing_replayed", 102, broker_epoch=5, fenced=False, **where)
    fenced = told(60, "broker_fencing_replayed", 102, broker_epoch=5, fenced=True, **where)
    again = [
        told(90, "broker_registration_replayed", 102, broker_epoch=9, fenced=True, **where),
        told(95, "broker_unfencing_replayed", 102, broker_epoch=9, fenced=False, **where),
    ]
    mode = told(
        1, "partition_registered", 102, by="org.apache.kafka.controller.ReplicationControlManager", topic="a", partition=0
    )

    def of_facts(*events: Event) -> list[Outage]:
        return [o for o in ClusterFacts.of(ClusterEvidence.of([mode, *events])).outages(1) if o.broker is not None]

    assert brief(of_facts(registered, unfenced, fenced)) == [(1, 60, None, "session_lost")]
    assert brief(of_facts(registered, unfenced, fenced, *again)) == [(1, 60, 95, "session_lost")]
    # what it reads when it starts is history
    start = told(0, "quorum_controller_created", 102, by="org.apache.kafka.controller.QuorumController")
    history = [registered, unfenced, fenced._replace(ts=2 * SECOND), *(e._replace(ts=2 * SECOND) for e in again)]
    assert of_facts(start, *history) == []


def test_the_first_list_of_a_controller_that_has_just_started() -> None:
    """Who is not in it may have gone long before; who goes while it serves is in a list that changes."""
    up = [*started(1), *started(2), *started(2, 5000)]
    listed = told(5003, "active_brokers", 2, brokers=[2])
    (outage,) = [o for o in outages([*up, listed]) if o.broker == 1 and o.how != "first_start"]
    assert (outage.since, outage.how) == (5003 * SECOND, "absent")
    later = told(6000, "active_brokers", 2, brokers=[2])
    (outage,) = [o for o in outages([*up, later]) if o.broker == 1 and o.how != "first_start"]
    assert (outage.since, outage.how) == (6000 * SECOND, "session_lost")


def test_a_controller_that_is_not_in_its_own_list() -> None:
    """It was elected before it registered again."""
    listed = told(60, "active_brokers", 2, brokers=[1])
    assert brief(outages([*started(1), *started(2), listed])) == []


def test_a_list_that_changes() -> None:
    up = [*started(1), *started(2)]
    lists = [told(at, "broker_change", 2, brokers=brokers) for at, brokers in ((60, [2]), (90, [1, 2]))]
    assert brief(outages([*up, *lists])) == [(1, 60, 90, "session_lost")]
    # the lines that tell it themselves follow at once
    lines = [told(60.02, "broker_failed", 2, broker=1), told(90.02, "broker_started", 2, broker=1)]
    assert brief(outages([*up, *lists, *lines])) == [(1, 60.02, 90.02, "session_lost")]


def test_a_broker_that_registers_is_listed_a_little_later() -> None:
    assert brief(outages([*started(1), *started(2), told(3, "active_brokers", 2, brokers=[2])])) == []


def test_a_second_process_is_started() -> None:
    """It fails, and the first one goes on."""
    again = [told(60, "broker_starting"), told(62, "broker_start_failed")]
    assert brief(outages([*started(1), *started(2), *again]))[:1] == [(1, 60, None, "broke_down")]
    assert brief(outages([*started(1), *started(2), *again, told(80, "active_brokers", 2, brokers=[1, 2])])) == []
    # whoever serves now is not the process that failed
    assert brief(outages([*started(1), *started(2), *again, told(80, "broker_started", 2, broker=1)])) == []
    assert brief(outages([*started(1), *started(2), *again, *started(1, 80)]))[:1] == [(1, 60, 82, "broke_down")]
    # its session had ended before
    lost = told(50, "broker_failed", 2, broker=1)
    told_back = told(80, "active_brokers", 2, brokers=[1, 2])
    assert brief(outages([*started(1), *started(2), lost, *again, told_back])) == [(1, 50, 80, "broke_down")]


def test_a_start_in_vain() -> None:
    """Its address is taken: it shuts itself down, and the broker that was there serves on."""
    up = [*started(1), *started(2)]
    taken = told(61, "broker_start_failed", text="all of the SocketServer Acceptors to be started")
    vain = [told(60, "broker_starting"), taken, told(62, "broker_stopping"), told(63, "broker_stopped")]
    assert brief(outages([*up, *vain])) == []
    # it was the first that was tried: what comes next is the first start
    assert [one.how for one in outages([*vain[:2], *started(1, 90)])] == ["first_start"]
    # its session had ended before
    lost = told(50, "broker_failed", 2, broker=1)
    assert brief(outages([*up, lost, *vain]))[:1] == [(1, 50, None, "crashed")]


def test_a_controller_that_is_elected_again_after_its_session() -> None:
    up = [*started(1), *started(2)]
    listed = told(5003, "active_brokers", 2, brokers=[2])
    resigned = told(5001, "controller_resigned", 2)
    assert [o.how for o in outages([*up, resigned, listed]) if o.since == 5003 * SECOND] == ["absent"]


def test_a_start_that_is_stopped() -> None:
    stopped = [told(60, "broker_stop_signal"), told(70, "broker_starting"), told(75, "broker_stopped")]
    (outage,) = [o for o in outages([*started(1), *started(2), *stopped]) if o.broker == 1 and o.how != "first_start"]
    assert (outage.since, outage.starting_at) == (60 * SECOND, None)


def test_a_broker_that_stops_its_fetchers() -> None:
    stops = told(60, "fetchers_stopped_by_shutdown", by="state.change.logger", partitions_named=5)
    assert brief(outages([*started(1), *started(2), stops])) == [(1, 60, None, "shut_down")]


def test_what_is_kept_of_work_is_the_first_and_the_last_line_of_an_hour() -> None:
    some = [sent(at, 1, 5) for at in (10, 500, 900, 3700)]
    kept = ClusterEvidence.of(some[:2]) + ClusterEvidence.of(some[2:])
    assert kept == ClusterEvidence.of(some)
    assert ClusterEvidence.from_json(kept.to_json()) == kept
    (hours,) = kept.worked.values()
    assert {hour: (first[0] // SECOND, last[0] // SECOND) for hour, (first, last) in hours.items()} == {
        0: (10, 900),
        1: (3700, 3700),
    }


def test_a_broker_with_replicas_that_the_first_list_leaves_out() -> None:
    """Nothing was told of it before."""
    seen = [*started(2), told(60, "active_brokers", 2, brokers=[2])]
    assert brief(outages(seen)) == []
    assert brief(outages(seen, {1: 61 * SECOND, 2: None}))[:1] == [(1, 60, None, "absent")]
    back = told(90, "broker_started", 2, broker=1)
    assert brief(outages([*seen, back._replace(ts=900 * SECOND)], {1: 50 * SECOND})) == [(1, 60, 900, "absent")]
    # it is started with the others
    assert brief(outages([*seen, back], {1: 50 * SECOND})) == []
    # it was given replicas later, or nobody knows when; it has been heard of before; it is the one that speaks
    assert brief(outages(seen, {1: 80 * SECOND})) == []
    assert brief(outages(seen, {1: None})) == []
    assert brief(outages([*seen, *started(1)], {1: 0}))[0][3] == "session_lost"
    assert brief(outages([seen[-1]._replace(brokers=[])], {2: 0})) == []


def test_a_first_start_that_takes_several_attempts() -> None:
    failed = told(5, "broker_start_failed")
    again = [told(30, "broker_starting"), told(32, "broker_registered", by="kafka.zk.KafkaZkClient", broker=1)]
    assert [o.how for o in outages([told(0, "broker_starting"), failed, *again]) if o.broker == 1] == ["first_start"]
    assert [o.how for o in outages([told(0, "broker_starting"), failed]) if o.broker == 1] == ["broke_down"]


def test_a_controller_that_reads_again_who_lives() -> None:
    """It calls new whoever it finds: since when nobody tells."""
    gone = [*started(1), *started(2), told(60, "broker_failed", 2, broker=1)]
    elected = told(500, "controller_elected", 2, by="kafka.controller.KafkaController")
    (outage,) = [o for o in outages([*gone, elected, told(501, "broker_started", 2, broker=1)]) if o.how == "session_lost"]
    assert (outage.until, outage.is_end_seen) == (501 * SECOND, False)
    (outage,) = [o for o in outages([*gone, elected, told(506, "broker_started", 2, broker=1)]) if o.how == "session_lost"]
    assert (outage.until, outage.is_end_seen) == (506 * SECOND, True)


def test_who_is_new_since_the_list_that_a_controller_read_has_registered() -> None:
    """KafkaController.initializeControllerContext reads who lives; whoever a change adds to that has come since."""
    gone = [*started(1), *started(2), told(60, "broker_shutting_down", 2, broker=1)]
    elected = told(80, "controller_epoch_incremented", 2, by=CONTROLLER, controller=2, controller_epoch=3)
    listed, new = told(80.5, "active_brokers", 2, brokers=[2]), told(81, "broker_started", 2, broker=1)
    assert brief(outages([*gone, elected, listed, new])) == [(1, 60, 81, "shut_down")]
    # it is in the list, or none is here: it has not left yet
    for other in ([listed._replace(brokers=[1, 2])], [], [listed._replace(ts=90 * SECOND)], [listed._replace(node=3)]):
        assert brief(outages([*gone, elected, *other, new])) == [(1, 60, None, "shut_down")]
    # the list is of the term after
    second = elected._replace(ts=85 * SECOND, record_id="second")
    assert brief(outages([*gone, elected, new, second, listed._replace(ts=86 * SECOND)])) == [(1, 60, None, "shut_down")]


def test_a_broker_that_is_elected_before_it_registers() -> None:
    """Up to 1.0: it alone is left, stops, and is started again."""
    stop = [told(60, "broker_shutting_down", 1, broker=1), told(61, "broker_shutting_down", 1, broker=2)]
    elected = [
        told(90, "thread_changed", by=THREAD, text="Starting"),
        told(91, "controller_elected", by=CONTROLLER, controller=1),
        told(91.1, "controller_epoch_incremented", by=CONTROLLER, controller=1, controller_epoch=7),
        told(92, "active_brokers", 1, brokers=[]),
        sent(93, 1, 7)._replace(controller=1),
    ]
    new = told(94, "broker_started", 1, broker=1)
    facts = ClusterFacts.of(ClusterEvidence.of([*started(1), *started(2), *stop, *elected, new]))
    found = brief(facts.outages(1))
    assert found == [(1, 60, 94, "shut_down"), (2, 61, None, "shut_down"), (None, 61, 94, "shut_down")]
    # where no line tells of the registration, the others show that it came back
    assert brief(outages([*started(1), *started(2), *stop, *elected]))[0] == (1, 60, 90, "shut_down")
    # from 1.1 on it is in its own list, and its thread names it
    late = [elected[0]._replace(controller=1), *elected[1:3], elected[3]._replace(brokers=[1]), new]
    assert brief(outages([*started(1), *started(2), *stop, *late]))[0] == (1, 60, 90, "shut_down")


def test_an_empty_list() -> None:
    """Whoever reads it has not registered: it has just started, or its session had ended, and did not see the others go."""
    up = [*started(1), *started(2), *started(3)]
    listed = told(60, "active_brokers", 2, brokers=[])
    assert brief(outages([*up, listed]))[:2] == [(1, 60, None, "absent"), (3, 60, None, "absent")]
    assert brief(outages([*up, listed._replace(brokers=[3])])) == [(1, 60, None, "absent")]
    assert brief(outages([*up, listed._replace(event_type="broker_change")]))[0] == (1, 60, None, "session_lost")


def test_a_session_that_outlives_its_process() -> None:
    stopped = [*started(1), *started(2), told(60, "broker_stopping", 1)]
    listed = [told(4000, "active_brokers", 2, brokers=[1, 2]), told(4007, "broker_failed", 2, broker=1)]
    assert brief(outages([*stopped, *listed])) == [(1, 60, None, "shut_down")]
    assert brief(outages([*stopped, listed[0], listed[1]._replace(ts=4100 * SECOND)]))[0] == (1, 60, 4000, "shut_down")


def test_a_broker_that_asks_to_stop_long_after_it_stopped() -> None:
    up = [told(3, "broker_unfenced", 9, broker=1), told(60, "broker_shutdown_granted", 9, broker=1)]
    again = told(4000, "controlled_shutdown_granted", 9, broker=1)
    assert brief(outages([*up, again]))[:2] == [(1, 60, 4000, "shut_down"), (1, 4000, None, "shut_down")]


def test_a_registration_that_the_controller_fails_to_add() -> None:
    """It names no endpoint that the controller could use; the broker gives up seconds later."""
    up = [*started(1), *started(2), told(60, "broker_failed", 2, broker=1)]
    added = "Newly added brokers: 1, deleted brokers: , bounced brokers: "
    again = [
        told(88, "broker_starting"),
        told(90, "broker_change", 2, brokers=[1, 2], text=added),
        told(90.1, "thread_changed", by=THREAD, text="Starting"),
        told(96, "thread_changed", by=THREAD, text="Shutting down"),
    ]
    failed = told(90.01, "event_failed", 2, text="BrokerChange")
    assert brief(outages([*up, *again])) == [(1, 60, 90.1, "crashed"), (1, 96, None, "shut_down")]
    assert brief(outages([*up, *again, failed])) == [(1, 60, None, "crashed")]
    # another controller's, another event's, a change that goes well later on
    for other in (failed._replace(node=3), failed._replace(text="TopicChange"), failed._replace(ts=120 * SECOND)):
        assert len(brief(outages([*up, *again, other]))) == 2
    back = told(900, "broker_change", 2, brokers=[1, 2], text=added)
    assert brief(outages([*up, *again, failed, back])) == [(1, 60, 900, "crashed")]
    facts = ClusterFacts.of(ClusterEvidence.of([*up, *again, failed]))
    assert brief(facts.outages(1)) == [(1, 60, None, "crashed")]
    forged = told(90, "broker_change", 2, brokers=[2], text=f"Newly added brokers: {'1' * 9999}, deleted brokers: ")
    assert brief(outages([*up, forged, failed])) == [(1, 60, None, "session_lost")]


def test_a_controller_that_asks_itself_to_stop_several_times() -> None:
    """While it cannot move all leaders it tries again five seconds later, and serves up to then."""
    up = [*started(1), *started(2)]
    asks = [told(at, "broker_shutting_down", 1, broker=broker) for at, broker in ((60, 1), (61, 2), (66, 1), (67, 2))]
    found = brief(outages([*up, *asks, *(told(61.5, "broker_stop_signal", node) for node in (1, 2))]))
    assert found == [(1, 60, None, "shut_down"), (2, 61, None, "shut_down"), (None, 67, None, "shut_down")]
    # a request after it has come back is another stop
    again = [*asks[:2], *started(1, 100), told(200, "broker_shutting_down", 1, broker=1)]
    assert [one for one in brief(outages([*up, *again])) if one[0] is None] == [
        (None, 61, 102, "shut_down"),
        (None, 200, None, "shut_down"),
    ]


def test_a_cluster_is_down_only_where_all_of_it_is_heard() -> None:
    """Of a node that lines name, as replica, leader or voter, and that has no log, nobody knows whether it went, too."""
    both = [*started(1), *started(2), told(3, "active_brokers", 1, brokers=[1, 2])]
    gone = [told(second, "broker_stopped", node) for second, node in ((60, 1), (61, 2))]

    def is_down(*more: Event) -> bool:
        return None in [outage.broker for outage in ClusterFacts.of(ClusterEvidence.of([*both, *gone, *more])).outages(1)]

    assert is_down()
    assert not is_down(told(40, "isr_updated", 1, topic="a", partition=0, isr=[1, 2, 3]))
    assert not is_down(told(40, "partition_online", 1, topic="a", partition=0, leader=3))
    assert not is_down(told(40, "raft_state_changed", 1, by="org.apache.kafka.raft.QuorumState", controller=3))
    assert is_down(told(40, "isr_updated", 1, isr=[1, 2, 3]), *started(3, 20), told(62, "broker_stopped", 3))
    assert not is_down(told(40, "isr_updated", 1, isr=[1, 2, 3]), *started(3, 20))
    # no line lists brokers: there may be others
    alone = [*started(1), told(60, "broker_stopped", 1)]
    assert [outage.broker for outage in ClusterFacts.of(ClusterEvidence.of(alone)).outages(1) if outage.how != "first_start"] == [
        1
    ]


def test_a_connection_to_a_controller_makes_it_no_broker() -> None:
    """`Node 101 disconnected` names a controller: it holds no replicas, and the brokers are all down without it."""
    client = "org.apache.kafka.clients.NetworkClient"
    control = "org.apache.kafka.controller.ReplicationControlManager"
    mode = told(3, "partition_registered", 101, by=control, topic="a", partition=0, replicas=[1, 2], isr=[1, 2], leader=1)
    both = [*started(1), *started(2)]
    gone = [told(second, "broker_stopped", node) for second, node in ((60, 1), (61, 2))]

    def whole(event_type: str, of: int) -> list[int | None]:
        lines = [told(40, event_type, of, by=client, broker=101), told(50, "raft_state_changed", 101, controller=101)]
        facts = ClusterFacts.of(ClusterEvidence.of([mode, *both, *gone, *lines]))
        assert {node: one.is_broker for node, one in facts.named_by_number[1].items()}[101] is False
        return [outage.since for outage in facts.outages(1) if outage.broker is None]

    for event_type in ("node_disconnected", "connection_throttled", "node_unreachable"):
        for of in (1, 101):
            assert len(whole(event_type, of)) == 1, event_type


def test_kraft_controllers_log_isrs_at_debug_only() -> None:
    control = "org.apache.kafka.controller.ReplicationControlManager"
    lines = [
        told(10, "quorum_controller_created", 101, by="org.apache.kafka.controller.QuorumController"),
        told(20, "partition_registered", 101, by=control, controller=101, topic="t", partition=0),
        told(90, "partition_registered", 101, by=control, controller=101, topic="t", partition=1),
    ]
    facts = ClusterFacts.of(ClusterEvidence.of(lines))
    assert facts.controller_heard[1]
    assert facts.changes_heard[1] == []
    at_debug = [*lines, told(30, "partition_changed", 101, by=control, controller=101)._replace(level="DEBUG")]
    facts = ClusterFacts.of(ClusterEvidence.from_json(ClusterEvidence.of(at_debug).to_json()))
    assert facts.changes_heard[1] == facts.controller_heard[1]


def test_a_controller_is_heard_up_to_the_end_of_its_term() -> None:
    quiet = 3600 * SECOND
    term = [
        told(10, "controller_elected", 1, by=CONTROLLER, controller=1),
        told(11, "controller_epoch_incremented", 1, by=CONTROLLER, controller=1, controller_epoch=4),
        told(12, "active_brokers", 1, by=CONTROLLER, controller=1, controller_epoch=4, brokers=[1, 2]),
    ]

    def heard(*more: Event) -> list[tuple[float, float, float]]:
        spans = ClusterFacts.of(ClusterEvidence.of([*started(1), *term, *more])).controller_heard[1]
        return [(one.since / SECOND, one.until / SECOND, (one.quiet_until - one.until) / SECOND) for one in spans]

    assert heard(told(90, "broker_running", 1)) == [(0, 90, quiet / SECOND)]
    resigned = told(50, "controller_resigned", 1, by=CONTROLLER, controller=1)
    assert heard(resigned, told(90, "broker_running", 1)) == [(0, 50, 0)]
    # its process was killed and started again
    assert heard(*started(1, 70), told(90, "broker_running", 1)) == [(0, 70, 0)]
    # the controller's log of the other one, which may have been elected, is there as well
    other = told(60, "controller_resigned", 2, by=CONTROLLER, controller=2)
    assert heard(resigned, other, told(90, "broker_running", 1)) == [(0, 90, quiet / SECOND)]
