"""Outages of brokers, from lines of a few seconds."""

from pathlib import Path

from logs import recorded

from jobs.timelines import ClusterEvidence, ClusterFacts, Event, outages
from jobs.timelines.outages import Outage

SECOND = 1_000_000
CONTROLLER = "kafka.controller.KafkaController"
SERVER, RAFT, LIFECYCLE = (
    "kafka.server.KafkaServer",
    "kafka.server.KafkaRaftServer",
    "kafka.server.BrokerLifecycleManager",
)


def logged(second: float, event_type: str, node: int = 1, *, by: str = SERVER, **named: object) -> Event:
    """Return an event at a second."""
    where = {
        "node": node,
        "file": f"broker-{node}/server.log",
        "record_no": 1,
        "ts": int(second * SECOND),
        "level": "INFO",
        "logger": by,
    }
    return Event(
        record_id=f"{event_type}-{node}-{second}",
        item=0,
        event_type=event_type,
        says="happened",
        **where,
        **named,
    )  # type: ignore[arg-type]


def started(node: int, second: float = 0) -> list[Event]:
    """Return the lines of a broker of ZooKeeper mode that starts within two seconds."""
    return [
        logged(second, "broker_starting", node),
        logged(second + 2, "broker_registered", node, by="kafka.zk.KafkaZkClient", broker=node),
    ]


def brief(found: list[Outage]) -> list[tuple]:
    """(broker, since, until, how) in seconds, without first starts.

    The evidence of an outage of all brokers must have a record of its begin.
    """
    for one in found:
        if one.broker is None:
            assert one.since in [int(float(record.rsplit("-", 1)[1]) * SECOND) for record in one.evidence], (
                one
            )
    seconds = [[None if at is None else at / SECOND for at in (o.since, o.until)] for o in found]
    return [(o.broker, *at, o.how) for o, at in zip(found, seconds, strict=True) if o.how != "first_start"]


def test_a_broker_that_is_asked_to_stop() -> None:
    stop = [
        logged(60, "broker_stop_signal"),
        logged(60, "broker_stopping"),
        logged(63, "broker_stopped"),
        *started(1, 70),
    ]
    assert brief(outages([*started(1), *started(2), *stop])) == [(1, 60, 72, "shut_down")]
    # only the controller's lines
    seen = [
        logged(60, "broker_shutting_down", 2, broker=1),
        logged(62, "broker_failed", 2, broker=1),
        logged(72, "broker_started", 2, broker=1),
    ]
    assert brief(outages([*started(2), *seen])) == [(1, 60, 72, "shut_down")]
    # a broker that asks the controller again was back in the meantime
    again = logged(4000, "broker_shutting_down", 2, broker=1)
    assert brief(outages([*started(2), *seen[:2], again])) == [
        (1, 60, 4000, "shut_down"),
        (1, 4000, None, "shut_down"),
    ]
    assert brief(outages([*started(2), *seen[:2], again._replace(ts=66 * SECOND)])) == [
        (1, 60, None, "shut_down")
    ]


def test_a_broker_that_dies() -> None:
    seen = [logged(60, "broker_failed", 2, broker=1), logged(90, "broker_started", 2, broker=1)]
    assert brief(outages([*started(1), *started(2), *seen, *started(1, 88)])) == [(1, 60, 90, "crashed")]
    assert brief(outages([*started(1), *started(2), seen[0]])) == [(1, 60, None, "session_lost")]
    assert brief(outages([*started(1), *started(2), *seen])) == [(1, 60, 90, "session_lost")]
    # no other node noticed it: its own start is the first line
    assert brief(outages([*started(1), *started(2), *started(1, 88)])) == [(1, 88, 90, "crashed")]


def test_a_clock_that_is_ahead_makes_no_second_outage() -> None:
    seen = [
        *started(2),
        logged(1, "broker_started", 2, broker=1),
        logged(60, "broker_failed", 2, broker=1),
        logged(90, "broker_started", 2, broker=1),
    ]
    for seconds in (3, 20, 50):
        late = [*started(1, 1 + seconds), *started(1, 88 + seconds)]
        assert brief(outages([*seen, *late])) == [(1, 60, 90, "session_lost")]
    # others saw a further registration: it started twice
    again = logged(96, "broker_started", 2, broker=1)
    assert brief(outages([*started(1), *seen, *started(1, 93), again])) == [
        (1, 60, 90, "session_lost"),
        (1, 93, 95, "crashed"),
    ]
    assert brief(outages([*started(1), *seen, *started(1, 93), *started(1, 100)])) == [
        (1, 60, 90, "session_lost"),
        (1, 100, 102, "crashed"),
    ]
    # a session was lost and returned without a start; long after that the broker starts again
    assert brief(outages([*started(1), *seen[:2], *seen[3:], *started(1, 200)]))[-1] == (
        1,
        200,
        202,
        "crashed",
    )


def test_a_broker_whose_logs_begin_with_its_stop_served_before() -> None:
    dead = [logged(60, "broker_failed", 2, broker=1), logged(61, "broker_failed", 2, broker=2)]
    back = [*started(1, 70), *started(2, 80)]
    stop = [logged(300, "broker_stop_signal", 3), logged(300, "broker_stopping", 3)]
    assert [
        one for one in brief(outages([*started(1), *started(2), *dead, *back, *stop])) if one[0] is None
    ] == []
    # it joined later
    whole = outages([*started(1), *started(2), *dead, *back, *started(3, 200), *stop])
    assert [one[:3] for one in brief(whole) if one[0] is None] == [(None, 61, 72)]


def test_a_log_that_breaks_off_does_not_show_how_long_a_session_was_lost() -> None:
    lost = logged(60, "broker_failed", 1, broker=1)
    later = [logged(63, "controller_moved", 1), *started(1, 25_000)]
    (first_start, alone, _) = outages([*started(1), lost, *later])
    assert first_start.how == "first_start"
    assert (alone.since, alone.until, alone.down_until, alone.how) == (
        60 * SECOND,
        25_002 * SECOND,
        60 * SECOND,
        "crashed",
    )
    # no line of a start is in these logs
    (_, alone, whole) = outages([*started(1), lost, later[0], started(1, 25_000)[1]])
    for one in (alone, whole):
        assert (one.since, one.until, one.down_until) == (60 * SECOND, 25_002 * SECOND, 60 * SECOND)
    # its log goes on until it has a new session
    (_, alone, _) = outages([*started(1), lost, started(1, 80)[1]])
    assert (alone.since, alone.until, alone.down_until, alone.how) == (
        60 * SECOND,
        82 * SECOND,
        82 * SECOND,
        "session_lost",
    )
    # another node has logged the end of the session
    noticed = outages([*started(1), *started(2), logged(60, "broker_failed", 2, broker=1), *later])
    assert [(one.since, one.is_end_seen) for one in noticed if one.how == "crashed"] == [(60 * SECOND, True)]
    # another node would have logged its return
    watched = outages([*started(1), *started(2), lost, *later, logged(20_000, "controller_moved", 2)])
    assert [(one.since, one.until, one.is_end_seen) for one in watched if one.how == "crashed"] == [
        (60 * SECOND, 25_002 * SECOND, True)
    ]


def test_a_new_controller_lists_who_is_alive() -> None:
    listed = logged(60, "active_brokers", 2, brokers=[2])
    assert brief(outages([*started(1), *started(2), listed])) == [(1, 60, None, "session_lost")]
    # one that stops is listed until its session is closed, and not for days
    stop = [logged(60, "broker_shutting_down", 2, broker=1)]
    listed = [logged(at, "active_brokers", 2, brokers=[1, 2]) for at in (90, 4000)]
    assert brief(outages([*started(1), *started(2), *stop, *listed])) == [(1, 60, 4000, "shut_down")]
    alone = [
        *stop,
        logged(61, "broker_shutting_down", 2, broker=2),
        logged(4000, "active_brokers", 1, brokers=[1]),
    ]
    assert brief(outages([*started(1), *started(2), *alone]))[0] == (1, 60, 4000, "shut_down")
    # at the first start the others are not up yet, and that is no outage
    early = logged(2, "active_brokers", 2, brokers=[2])
    assert brief(outages([*started(2), early, *started(1, 5)])) == []


def test_kraft_fences_and_unfences() -> None:
    up = [
        logged(0, "server_status_changed"),
        logged(3, "broker_state_changed", by=LIFECYCLE, to_state="RUNNING"),
    ][1:]
    fenced = [logged(40, "broker_fenced", 101, broker=1), logged(45, "broker_unfenced", 101, broker=1)]
    assert brief(outages([*up, logged(3, "broker_unfenced", 101, broker=2), *fenced])) == [
        (1, 40, 45, "session_lost")
    ]


def test_a_broker_that_asks_to_stop_has_served() -> None:
    """The line that it was unfenced is missing: there is no log of the controller that printed it."""
    up = [logged(3, "broker_unfenced", 101, broker=broker) for broker in (1, 2)]
    fenced = [
        logged(40, "broker_fenced", 101, broker=1),
        logged(9000, "controlled_shutdown_granted", 102, broker=1),
    ]
    assert brief(outages([*up, *fenced])) == [(1, 40, 9000, "session_lost"), (1, 9000, None, "shut_down")]
    # its own log shows first that it stops
    stop = [logged(60, "broker_stop_signal"), logged(61, "controlled_shutdown_granted", 101, broker=1)]
    assert brief(outages([*up, *stop])) == [(1, 60, None, "shut_down")]


def test_a_controller_of_a_quorum_is_no_broker() -> None:
    quorum = [
        logged(0, "broker_process_started", 101),
        logged(1, "broker_running", 101, by=RAFT),
        logged(60, "broker_stop_signal", 101),
    ]
    assert outages(quorum) == []


def test_an_outage_of_all_brokers() -> None:
    up = [*started(1), *started(2)]
    stop = [logged(60, "broker_stopping", 1), logged(80, "broker_stopping", 2)]
    found = outages([*up, *stop, *started(1, 100)])
    assert brief(found) == [
        (1, 60, 102, "shut_down"),
        (2, 80, None, "shut_down"),
        (None, 80, 102, "shut_down"),
    ]
    assert {o.all_since for o in found if o.how == "shut_down"} == {80 * SECOND}
    died = [logged(60, "broker_failed", 2, broker=1), logged(80, "broker_stopping", 2)]
    assert brief(outages([*up, *died]))[-1] == (None, 80, None, "crashed")
    # a broker that only assignments name may have kept serving
    assert brief(outages([*up, *stop], assigned={3: None})) == [
        (1, 60, None, "shut_down"),
        (2, 80, None, "shut_down"),
    ]


def test_a_connection_does_not_make_a_broker() -> None:
    """Brokers of KRaft have connections to controllers, too, which keep running when all brokers are shut
    down.
    """
    kraft = logged(0, "broker_state_changed", 1, to_state="RECOVERY")
    broken = logged(40, "node_disconnected", 1, by="org.apache.kafka.clients.NetworkClient", broker=101)

    def is_broker(*events: Event) -> bool:
        return ClusterFacts.of(ClusterEvidence.of([kraft, *events])).named_by_number[1][101].is_broker

    assert not is_broker(broken)
    assert is_broker(broken, logged(41, "registration_changed", 1, broker=101))


def test_the_order_of_delivery_does_not_matter() -> None:
    some = [
        *started(1),
        *started(2),
        logged(60, "broker_failed", 2, broker=1),
        *started(1, 88),
        logged(200, "broker_stop_signal", 2),
    ]
    assert outages(reversed(some)) == outages(some)


def test_stored_evidence_gives_the_same_outages() -> None:
    """Later runs find outages from the stored evidence alone."""
    recording = Path(__file__).parents[2] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
    events = recorded(recording)
    parts = [ClusterEvidence.of(events[n::3]) for n in range(3)]
    facts = ClusterFacts.of(parts[0] + parts[1] + parts[2])
    found = outages(events)
    assert found
    assert outages(facts.events_by_number[1]) == found


THREAD = "kafka.controller.ControllerEventManager$ControllerEventThread"


def test_a_controller_log_alone_shows_a_restart() -> None:
    ends, starts = (
        logged(at, "thread_changed", by=THREAD, text=text)
        for at, text in ((60, "Shutting down"), (75, "Starting"))
    )
    assert brief(outages([ends, starts]))[:1] == [(1, 60, 75, "shut_down")]
    assert outages([starts]) == []
    assert (
        outages(
            [
                logged(
                    60,
                    "thread_changed",
                    by="kafka.server.NodeToControllerRequestThread",
                    text="Shutting down",
                )
            ]
        )
        == []
    )


def test_a_broker_that_is_elected_while_it_stops_does_not_serve_again() -> None:
    stop = [
        logged(60, "broker_stop_signal"),
        logged(63, "controller_elected", by="kafka.controller.KafkaController"),
    ]
    assert brief(outages([*started(1), *stop]))[:1] == [(1, 60, None, "shut_down")]
    # a new process serves, however soon it starts
    again = [
        *stop,
        logged(70, "broker_starting"),
        logged(75, "controller_elected", by="kafka.controller.KafkaController"),
    ]
    assert brief(outages([*started(1), *again]))[:1] == [(1, 60, 75, "shut_down")]


def test_a_broker_without_a_line_yet_does_not_keep_the_cluster_up() -> None:
    lists = [logged(at, "active_brokers", 1, brokers=brokers) for at, brokers in ((5, (1,)), (90, (1, 2)))]
    stop = [logged(60, "broker_stop_signal"), *started(1, 80)]
    found = outages([*started(1), *lists, *stop])
    assert [(o.since // SECOND, o.until and o.until // SECOND) for o in found if o.broker is None] == [
        (60, 82)
    ]


def test_a_broker_whose_session_ends_twice_served_in_between() -> None:
    seen = [logged(60, "broker_fenced", 9, broker=1, broker_epoch=5), logged(90, "broker_process_started")]
    seen.append(logged(500, "broker_fenced", 9, broker=1, broker_epoch=80))
    served = logged(2, "broker_unfenced", 9, broker=1, broker_epoch=5)
    first, second = outages([served, *seen])[:2]
    assert brief([first, second]) == [(1, 60, 500, "crashed"), (1, 500, None, "session_lost")]
    # it was back by then; until its start it was certainly down
    assert (first.down_until, first.is_end_seen, second.is_end_seen) == (90 * SECOND, False, True)


def test_lines_that_only_show_that_a_broker_was_back() -> None:
    down = [*started(1), *started(2), logged(60, "broker_failed", 2, broker=1)]
    listed = [logged(at, "active_brokers", 2, brokers=brokers) for at, brokers in ((70, [2]), (4000, [1, 2]))]
    (outage,) = [o for o in outages([*down, *listed]) if o.how == "session_lost"]
    assert (outage.until, outage.down_until) == (4000 * SECOND, 70 * SECOND)
    (outage,) = [
        o for o in outages([*down, logged(90, "broker_started", 2, broker=1)]) if o.how == "session_lost"
    ]
    assert (outage.until, outage.down_until) == (90 * SECOND, 90 * SECOND)
    # no line shows that all were down at once: the first may have been back long before the other stopped
    last = logged(3990, "broker_stopping", 2)
    assert not [o for o in outages([*down, listed[1], last]) if o.broker is None]


def sent(second: float, node: int, epoch: int) -> Event:
    """Return the line of a broker that receives a request of broker 2, the controller of an epoch."""
    return logged(
        second,
        "become_started",
        node,
        by="state.change.logger",
        controller=2,
        controller_epoch=epoch,
        topic="a",
        partition=0,
    )


def test_a_broker_that_works_is_back() -> None:
    down = [
        *started(1),
        *started(2),
        sent(10, 1, 5),
        sent(10, 2, 5),
        logged(60, "broker_failed", 2, broker=1),
    ]

    def of_facts(*more: Event) -> list[tuple]:
        return brief(ClusterFacts.of(ClusterEvidence.of([*down, *more])).outages(1))

    assert of_facts() == [(1, 60, None, "session_lost")]
    assert of_facts(sent(500, 2, 6), sent(501, 1, 6)) == [(1, 60, 501, "session_lost")]
    # its clock may be fast
    assert of_facts(sent(58, 2, 6), sent(62, 1, 6)) == [(1, 60, None, "session_lost")]


def test_a_broker_whose_replicas_are_moved_to_online_again() -> None:
    """The controller.log is missing."""
    down = [*started(1), *started(2), logged(60, "broker_failed", 2, broker=1)]
    online = logged(
        500, "replica_state_changed", 2, by="state.change.logger", controller=2, controller_epoch=5, topic="a", partition=0,
        replica=1, from_state="OfflineReplica", to_state="OnlineReplica",
    )  # fmt: skip

    def of_facts(event: Event) -> list[tuple]:
        evidence = ClusterEvidence.of([*down, event])
        assert ClusterEvidence.from_json(evidence.to_json()) == evidence
        return brief(ClusterFacts.of(ClusterEvidence.of(down) + ClusterEvidence.of([event])).outages(1))

    assert of_facts(online) == [(1, 60, 500, "session_lost")]
    # replicas of a new partition may be on dead brokers; the change fails; a replica of another broker
    for other in ({"from_state": "NewReplica"}, {"says": "failed"}, {"replica": 2}):
        assert of_facts(online._replace(**other)) == [(1, 60, None, "session_lost")]


def test_what_a_controller_sends_to_itself_needs_no_session() -> None:
    def of_facts(*more: Event) -> list[tuple]:
        return brief(
            ClusterFacts.of(
                ClusterEvidence.of(
                    [*started(1), *started(2), logged(60, "broker_failed", 1, broker=2), *more]
                )
            ).outages(1)
        )

    own = [sent(at, 2, 5) for at in (50, 500, 900)]
    assert of_facts(*own) == [(2, 60, None, "session_lost")]
    # a voter of a quorum that reads its own disk while it starts does not work, either
    read = logged(
        700,
        "raft_state_changing",
        2,
        by="org.apache.kafka.raft.QuorumState",
        controller=3,
        controller_epoch=8,
    )
    assert of_facts(read) == [(2, 60, None, "session_lost")]
    # a broker that is elected again has a session
    assert of_facts(*own, sent(950, 2, 7), sent(990, 2, 7)) == [(2, 60, 950, "session_lost")]
    # but not if it sends in a term whose successor is known
    later = sent(940, 1, 8)._replace(node=3, controller=3, record_id="later")
    assert of_facts(*own, later, sent(950, 2, 7)) == [(2, 60, None, "session_lost")]
    # a controller of a KRaft quorum needs no session of the broker in its process
    mode = logged(
        1,
        "partition_registered",
        1,
        by="org.apache.kafka.controller.ReplicationControlManager",
        topic="a",
        partition=0,
    )
    assert of_facts(mode, *own, sent(950, 2, 7)) == [(2, 60, None, "session_lost")]
    # but it shows that the process runs again
    stopped = [
        logged(at, name, 2, by=SERVER) for at, name in ((50, "broker_stopping"), (58, "broker_stopped"))
    ]
    assert of_facts(mode, *stopped, sent(950, 2, 7)) == [(2, 50, 950, "shut_down")]


def test_a_term_of_a_cluster_that_is_set_up_again() -> None:
    """Its epochs begin again: the broker was controller in the same epoch of the incarnation before."""
    day = 86_400
    up = [
        logged(at, "cluster_id_named", node, cluster_id=name)
        for at, name in ((0, "A"), (day, "B"))
        for node in (1, 2)
    ]
    later = [*started(1), *started(2), sent(10, 2, 2), *started(1, day + 1), *started(2, day + 1)]
    facts = ClusterFacts.of(
        ClusterEvidence.of(
            [*up, *later, logged(day + 60, "broker_failed", 1, broker=2), sent(day + 500, 2, 2)]
        )
    )
    assert facts.numbers == [1, 2]
    assert brief(facts.outages(2)) == [(2, day + 60, day + 500, "session_lost")]
    # the epoch that an election finds is that of the controller before
    read = logged(1400, "controller_epoch_read", 2, by=CONTROLLER, controller=2, controller_epoch=2)
    assert (2, 2) not in ClusterEvidence.of([read]).terms


def test_the_logs_that_a_process_closed() -> None:
    again = [
        logged(88, "broker_starting"),
        logged(91, "broker_registered", by="kafka.zk.KafkaZkClient", broker=1),
    ]
    clean, unclean = (logged(89, f"log_dir_{how}", by="kafka.log.LogManager") for how in ("clean", "unclean"))
    assert brief(outages([*started(1), *started(2), *again])) == [(1, 88, 91, "crashed")]
    assert brief(outages([*started(1), *started(2), *again, clean])) == [(1, 88, 91, "shut_down")]
    assert brief(outages([*started(1), *started(2), *again, clean, unclean])) == [(1, 88, 91, "crashed")]


def test_a_controller_that_fences_and_then_renounces() -> None:
    up = [logged(3, "broker_unfenced", 101, broker=broker) for broker in (1, 2)]
    fence, renounced = logged(40, "broker_fenced", 101, broker=1), logged(40.3, "controller_renounced", 101)
    assert brief(outages([*up, fence])) == [(1, 40, None, "session_lost")]
    assert brief(outages([*up, fence, renounced])) == []
    # it fails in fencing
    failed = logged(60, "active_controller_failed", 101, request="maybeFenceReplicas")
    assert brief(outages([*up, fence, failed])) == []
    assert brief(outages([*up, fence, failed._replace(request="writeNoOpRecord")])) == [
        (1, 40, None, "session_lost")
    ]


def test_a_broker_that_is_fenced_again_was_down_before() -> None:
    """4.0: a controller that becomes active has no session of a broker that is fenced already, and fences it
    when none begins.
    """
    up = [logged(3, "broker_unfenced", 101, broker=broker) for broker in (1, 2)]
    fence = logged(40, "broker_fenced", 101, broker=1, broker_epoch=5)
    unchanged = logged(40.01, "broker_registration_unchanged", 101, broker=1, broker_epoch=5, fenced=True)
    assert brief(outages([*up, fence])) == [(1, 40, None, "session_lost")]
    assert brief(outages([*up, fence, unchanged])) == [(1, 40, None, "absent")]
    # of another registration, of one that was not fenced, of another controller
    for other in (
        unchanged._replace(broker_epoch=4),
        unchanged._replace(fenced=False),
        unchanged._replace(node=102),
    ):
        assert brief(outages([*up, fence, other])) == [(1, 40, None, "session_lost")]
    # an earlier line shows when it was fenced
    before = logged(20, "broker_fenced", 101, broker=1, broker_epoch=5)
    assert brief(outages([*up, before, fence, unchanged])) == [(1, 20, None, "session_lost")]


def test_what_a_standby_controller_prints() -> None:
    """The log of the active controller is missing."""
    where = {"by": "org.apache.kafka.controller.ClusterControlManager", "broker": 1, "controller": 102}
    registered = logged(1, "broker_registration_replayed", 102, broker_epoch=5, fenced=True, **where)
    unfenced = logged(2, "broker_unfencing_replayed", 102, broker_epoch=5, fenced=False, **where)
    fenced = logged(60, "broker_fencing_replayed", 102, broker_epoch=5, fenced=True, **where)
    again = [
        logged(90, "broker_registration_replayed", 102, broker_epoch=9, fenced=True, **where),
        logged(95, "broker_unfencing_replayed", 102, broker_epoch=9, fenced=False, **where),
    ]
    mode = logged(
        1,
        "partition_registered",
        102,
        by="org.apache.kafka.controller.ReplicationControlManager",
        topic="a",
        partition=0,
    )

    def of_facts(*events: Event) -> list[Outage]:
        return [
            o for o in ClusterFacts.of(ClusterEvidence.of([mode, *events])).outages(1) if o.broker is not None
        ]

    assert brief(of_facts(registered, unfenced, fenced)) == [(1, 60, None, "session_lost")]
    assert brief(of_facts(registered, unfenced, fenced, *again)) == [(1, 60, 95, "session_lost")]
    # what it reads when it starts is history
    start = logged(0, "quorum_controller_created", 102, by="org.apache.kafka.controller.QuorumController")
    history = [
        registered,
        unfenced,
        fenced._replace(ts=2 * SECOND),
        *(e._replace(ts=2 * SECOND) for e in again),
    ]
    assert of_facts(start, *history) == []


def test_the_first_list_of_a_controller_that_has_just_started() -> None:
    """A broker that is not in it may have been down long before; a later stop is in a changed list."""
    up = [*started(1), *started(2), *started(2, 5000)]
    listed = logged(5003, "active_brokers", 2, brokers=[2])
    (outage,) = [o for o in outages([*up, listed]) if o.broker == 1 and o.how != "first_start"]
    assert (outage.since, outage.how) == (5003 * SECOND, "absent")
    later = logged(6000, "active_brokers", 2, brokers=[2])
    (outage,) = [o for o in outages([*up, later]) if o.broker == 1 and o.how != "first_start"]
    assert (outage.since, outage.how) == (6000 * SECOND, "session_lost")


def test_a_controller_that_is_not_in_its_own_list() -> None:
    """It was elected before it registered again."""
    listed = logged(60, "active_brokers", 2, brokers=[1])
    assert brief(outages([*started(1), *started(2), listed])) == []


def test_a_list_that_changes() -> None:
    up = [*started(1), *started(2)]
    lists = [logged(at, "broker_change", 2, brokers=brokers) for at, brokers in ((60, [2]), (90, [1, 2]))]
    assert brief(outages([*up, *lists])) == [(1, 60, 90, "session_lost")]
    # the lines of the changes follow at once
    lines = [logged(60.02, "broker_failed", 2, broker=1), logged(90.02, "broker_started", 2, broker=1)]
    assert brief(outages([*up, *lists, *lines])) == [(1, 60.02, 90.02, "session_lost")]


def test_a_broker_that_registers_is_listed_a_little_later() -> None:
    assert brief(outages([*started(1), *started(2), logged(3, "active_brokers", 2, brokers=[2])])) == []


def test_a_second_process_is_started() -> None:
    """It fails, and the first one keeps running."""
    again = [logged(60, "broker_starting"), logged(62, "broker_start_failed")]
    assert brief(outages([*started(1), *started(2), *again]))[:1] == [(1, 60, None, "broke_down")]
    assert (
        brief(outages([*started(1), *started(2), *again, logged(80, "active_brokers", 2, brokers=[1, 2])]))
        == []
    )
    # the process that serves now is not the one that failed
    assert brief(outages([*started(1), *started(2), *again, logged(80, "broker_started", 2, broker=1)])) == []
    assert brief(outages([*started(1), *started(2), *again, *started(1, 80)]))[:1] == [
        (1, 60, 82, "broke_down")
    ]
    # its session had ended before
    lost = logged(50, "broker_failed", 2, broker=1)
    back = logged(80, "active_brokers", 2, brokers=[1, 2])
    assert brief(outages([*started(1), *started(2), lost, *again, back])) == [(1, 50, 80, "broke_down")]


def test_a_start_in_vain() -> None:
    """Its address is taken: it shuts itself down, and the running broker keeps serving."""
    up = [*started(1), *started(2)]
    taken = logged(61, "broker_start_failed", text="all of the SocketServer Acceptors to be started")
    vain = [logged(60, "broker_starting"), taken, logged(62, "broker_stopping"), logged(63, "broker_stopped")]
    assert brief(outages([*up, *vain])) == []
    # the next start is the first one that succeeds
    assert [one.how for one in outages([*vain[:2], *started(1, 90)])] == ["first_start"]
    # its session had ended before
    lost = logged(50, "broker_failed", 2, broker=1)
    assert brief(outages([*up, lost, *vain]))[:1] == [(1, 50, None, "crashed")]


def test_a_controller_that_is_elected_again_after_its_session() -> None:
    up = [*started(1), *started(2)]
    listed = logged(5003, "active_brokers", 2, brokers=[2])
    resigned = logged(5001, "controller_resigned", 2)
    assert [o.how for o in outages([*up, resigned, listed]) if o.since == 5003 * SECOND] == ["absent"]


def test_a_start_that_is_stopped() -> None:
    stopped = [logged(60, "broker_stop_signal"), logged(70, "broker_starting"), logged(75, "broker_stopped")]
    (outage,) = [
        o for o in outages([*started(1), *started(2), *stopped]) if o.broker == 1 and o.how != "first_start"
    ]
    assert (outage.since, outage.starting_at) == (60 * SECOND, None)


def test_a_broker_that_stops_its_fetchers() -> None:
    stops = logged(60, "fetchers_stopped_by_shutdown", by="state.change.logger", partitions_named=5)
    assert brief(outages([*started(1), *started(2), stops])) == [(1, 60, None, "shut_down")]


def test_the_first_and_the_last_line_of_work_of_an_hour_are_stored() -> None:
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
    """No line named it before."""
    seen = [*started(2), logged(60, "active_brokers", 2, brokers=[2])]
    assert brief(outages(seen)) == []
    assert brief(outages(seen, {1: 61 * SECOND, 2: None}))[:1] == [(1, 60, None, "absent")]
    back = logged(90, "broker_started", 2, broker=1)
    assert brief(outages([*seen, back._replace(ts=900 * SECOND)], {1: 50 * SECOND})) == [
        (1, 60, 900, "absent")
    ]
    # it is started with the others
    assert brief(outages([*seen, back], {1: 50 * SECOND})) == []
    # it got replicas later, or at an unknown time; a line named it before; it prints the list itself
    assert brief(outages(seen, {1: 80 * SECOND})) == []
    assert brief(outages(seen, {1: None})) == []
    assert brief(outages([*seen, *started(1)], {1: 0}))[0][3] == "session_lost"
    assert brief(outages([seen[-1]._replace(brokers=[])], {2: 0})) == []


def test_a_first_start_that_takes_several_attempts() -> None:
    failed = logged(5, "broker_start_failed")
    again = [
        logged(30, "broker_starting"),
        logged(32, "broker_registered", by="kafka.zk.KafkaZkClient", broker=1),
    ]
    assert [o.how for o in outages([logged(0, "broker_starting"), failed, *again]) if o.broker == 1] == [
        "first_start"
    ]
    assert [o.how for o in outages([logged(0, "broker_starting"), failed]) if o.broker == 1] == ["broke_down"]


def test_a_controller_that_reads_the_live_brokers_again() -> None:
    """It logs every broker that it finds as new: since when they are up is unknown."""
    down = [*started(1), *started(2), logged(60, "broker_failed", 2, broker=1)]
    elected = logged(500, "controller_elected", 2, by="kafka.controller.KafkaController")
    (outage,) = [
        o
        for o in outages([*down, elected, logged(501, "broker_started", 2, broker=1)])
        if o.how == "session_lost"
    ]
    assert (outage.until, outage.is_end_seen) == (501 * SECOND, False)
    (outage,) = [
        o
        for o in outages([*down, elected, logged(506, "broker_started", 2, broker=1)])
        if o.how == "session_lost"
    ]
    assert (outage.until, outage.is_end_seen) == (506 * SECOND, True)


def test_a_broker_that_is_new_since_the_read_list_has_registered() -> None:
    """KafkaController.initializeControllerContext reads the live brokers.

    A broker that a change adds has registered since.
    """
    down = [*started(1), *started(2), logged(60, "broker_shutting_down", 2, broker=1)]
    elected = logged(80, "controller_epoch_incremented", 2, by=CONTROLLER, controller=2, controller_epoch=3)
    listed, new = logged(80.5, "active_brokers", 2, brokers=[2]), logged(81, "broker_started", 2, broker=1)
    assert brief(outages([*down, elected, listed, new])) == [(1, 60, 81, "shut_down")]
    # it is in the list, or there is no list: it has not stopped yet
    for other in (
        [listed._replace(brokers=[1, 2])],
        [],
        [listed._replace(ts=90 * SECOND)],
        [listed._replace(node=3)],
    ):
        assert brief(outages([*down, elected, *other, new])) == [(1, 60, None, "shut_down")]
    # the list is of the term after
    second = elected._replace(ts=85 * SECOND, record_id="second")
    assert brief(outages([*down, elected, new, second, listed._replace(ts=86 * SECOND)])) == [
        (1, 60, None, "shut_down")
    ]


def test_a_broker_that_is_elected_before_it_registers() -> None:
    """Up to 1.0: the last running broker stops and is started again."""
    stop = [logged(60, "broker_shutting_down", 1, broker=1), logged(61, "broker_shutting_down", 1, broker=2)]
    elected = [
        logged(90, "thread_changed", by=THREAD, text="Starting"),
        logged(91, "controller_elected", by=CONTROLLER, controller=1),
        logged(91.1, "controller_epoch_incremented", by=CONTROLLER, controller=1, controller_epoch=7),
        logged(92, "active_brokers", 1, brokers=[]),
        sent(93, 1, 7)._replace(controller=1),
    ]
    new = logged(94, "broker_started", 1, broker=1)
    facts = ClusterFacts.of(ClusterEvidence.of([*started(1), *started(2), *stop, *elected, new]))
    found = brief(facts.outages(1))
    assert found == [(1, 60, 94, "shut_down"), (2, 61, None, "shut_down"), (None, 61, 94, "shut_down")]
    # without a line of the registration the other lines show that it was back
    assert brief(outages([*started(1), *started(2), *stop, *elected]))[0] == (1, 60, 90, "shut_down")
    # from 1.1 on it is in its own list, and its thread names it
    late = [elected[0]._replace(controller=1), *elected[1:3], elected[3]._replace(brokers=[1]), new]
    assert brief(outages([*started(1), *started(2), *stop, *late]))[0] == (1, 60, 90, "shut_down")


def test_an_empty_list() -> None:
    """A broker that reads it has not registered: it has just started, or its session had ended, so it did not
    see the others stop.
    """
    up = [*started(1), *started(2), *started(3)]
    listed = logged(60, "active_brokers", 2, brokers=[])
    assert brief(outages([*up, listed]))[:2] == [(1, 60, None, "absent"), (3, 60, None, "absent")]
    assert brief(outages([*up, listed._replace(brokers=[3])])) == [(1, 60, None, "absent")]
    assert brief(outages([*up, listed._replace(event_type="broker_change")]))[0] == (
        1,
        60,
        None,
        "session_lost",
    )


def test_a_session_that_outlives_its_process() -> None:
    stopped = [*started(1), *started(2), logged(60, "broker_stopping", 1)]
    listed = [logged(4000, "active_brokers", 2, brokers=[1, 2]), logged(4007, "broker_failed", 2, broker=1)]
    assert brief(outages([*stopped, *listed])) == [(1, 60, None, "shut_down")]
    assert brief(outages([*stopped, listed[0], listed[1]._replace(ts=4100 * SECOND)]))[0] == (
        1,
        60,
        4000,
        "shut_down",
    )


def test_a_broker_that_asks_to_stop_long_after_it_stopped() -> None:
    up = [logged(3, "broker_unfenced", 9, broker=1), logged(60, "broker_shutdown_granted", 9, broker=1)]
    again = logged(4000, "controlled_shutdown_granted", 9, broker=1)
    assert brief(outages([*up, again]))[:2] == [(1, 60, 4000, "shut_down"), (1, 4000, None, "shut_down")]


def test_a_registration_that_the_controller_fails_to_add() -> None:
    """It names no endpoint that the controller could use; the broker gives up seconds later."""
    up = [*started(1), *started(2), logged(60, "broker_failed", 2, broker=1)]
    added = "Newly added brokers: 1, deleted brokers: , bounced brokers: "
    again = [
        logged(88, "broker_starting"),
        logged(90, "broker_change", 2, brokers=[1, 2], text=added),
        logged(90.1, "thread_changed", by=THREAD, text="Starting"),
        logged(96, "thread_changed", by=THREAD, text="Shutting down"),
    ]
    failed = logged(90.01, "event_failed", 2, text="BrokerChange")
    assert brief(outages([*up, *again])) == [(1, 60, 90.1, "crashed"), (1, 96, None, "shut_down")]
    assert brief(outages([*up, *again, failed])) == [(1, 60, None, "crashed")]
    # of another controller, of another event, of a later change
    for other in (
        failed._replace(node=3),
        failed._replace(text="TopicChange"),
        failed._replace(ts=120 * SECOND),
    ):
        assert len(brief(outages([*up, *again, other]))) == 2
    back = logged(900, "broker_change", 2, brokers=[1, 2], text=added)
    assert brief(outages([*up, *again, failed, back])) == [(1, 60, 900, "crashed")]
    facts = ClusterFacts.of(ClusterEvidence.of([*up, *again, failed]))
    assert brief(facts.outages(1)) == [(1, 60, None, "crashed")]
    forged = logged(
        90, "broker_change", 2, brokers=[2], text=f"Newly added brokers: {'1' * 9999}, deleted brokers: "
    )
    assert brief(outages([*up, forged, failed])) == [(1, 60, None, "session_lost")]


def test_a_controller_that_asks_itself_to_stop_several_times() -> None:
    """While it cannot move all leaders it tries again five seconds later, and serves until then."""
    up = [*started(1), *started(2)]
    asks = [
        logged(at, "broker_shutting_down", 1, broker=broker)
        for at, broker in ((60, 1), (61, 2), (66, 1), (67, 2))
    ]
    found = brief(outages([*up, *asks, *(logged(61.5, "broker_stop_signal", node) for node in (1, 2))]))
    assert found == [(1, 60, None, "shut_down"), (2, 61, None, "shut_down"), (None, 67, None, "shut_down")]
    # a request after it was back is another stop
    again = [*asks[:2], *started(1, 100), logged(200, "broker_shutting_down", 1, broker=1)]
    assert [one for one in brief(outages([*up, *again])) if one[0] is None] == [
        (None, 61, 102, "shut_down"),
        (None, 200, None, "shut_down"),
    ]


def test_a_cluster_is_down_only_if_there_are_logs_of_all_nodes() -> None:
    """It is unknown whether a node without a log stopped that lines name as replica, leader or voter."""
    both = [*started(1), *started(2), logged(3, "active_brokers", 1, brokers=[1, 2])]
    down = [logged(second, "broker_stopped", node) for second, node in ((60, 1), (61, 2))]

    def is_down(*more: Event) -> bool:
        return None in [
            outage.broker for outage in ClusterFacts.of(ClusterEvidence.of([*both, *down, *more])).outages(1)
        ]

    assert is_down()
    assert not is_down(logged(40, "isr_updated", 1, topic="a", partition=0, isr=[1, 2, 3]))
    assert not is_down(logged(40, "partition_online", 1, topic="a", partition=0, leader=3))
    assert not is_down(
        logged(40, "raft_state_changed", 1, by="org.apache.kafka.raft.QuorumState", controller=3)
    )
    assert is_down(
        logged(40, "isr_updated", 1, isr=[1, 2, 3]), *started(3, 20), logged(62, "broker_stopped", 3)
    )
    assert not is_down(logged(40, "isr_updated", 1, isr=[1, 2, 3]), *started(3, 20))
    # no line lists brokers: there may be others
    alone = [*started(1), logged(60, "broker_stopped", 1)]
    assert [
        outage.broker
        for outage in ClusterFacts.of(ClusterEvidence.of(alone)).outages(1)
        if outage.how != "first_start"
    ] == [1]


def test_a_connection_to_a_controller_makes_it_no_broker() -> None:
    """`Node 101 disconnected` names a controller: it has no replicas, and all brokers are down without it."""
    client = "org.apache.kafka.clients.NetworkClient"
    control = "org.apache.kafka.controller.ReplicationControlManager"
    mode = logged(
        3,
        "partition_registered",
        101,
        by=control,
        topic="a",
        partition=0,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
    )
    both = [*started(1), *started(2)]
    down = [logged(second, "broker_stopped", node) for second, node in ((60, 1), (61, 2))]

    def whole(event_type: str, of: int) -> list[int | None]:
        lines = [
            logged(40, event_type, of, by=client, broker=101),
            logged(50, "raft_state_changed", 101, controller=101),
        ]
        facts = ClusterFacts.of(ClusterEvidence.of([mode, *both, *down, *lines]))
        assert {node: one.is_broker for node, one in facts.named_by_number[1].items()}[101] is False
        return [outage.since for outage in facts.outages(1) if outage.broker is None]

    for event_type in ("node_disconnected", "connection_throttled", "node_unreachable"):
        for of in (1, 101):
            assert len(whole(event_type, of)) == 1, event_type


def test_kraft_controllers_log_isrs_at_debug_only() -> None:
    control = "org.apache.kafka.controller.ReplicationControlManager"
    lines = [
        logged(10, "quorum_controller_created", 101, by="org.apache.kafka.controller.QuorumController"),
        logged(20, "partition_registered", 101, by=control, controller=101, topic="t", partition=0),
        logged(90, "partition_registered", 101, by=control, controller=101, topic="t", partition=1),
    ]
    facts = ClusterFacts.of(ClusterEvidence.of(lines))
    assert facts.controller_heard[1]
    assert facts.changes_heard[1] == []
    at_debug = [
        *lines,
        logged(30, "partition_changed", 101, by=control, controller=101)._replace(level="DEBUG"),
    ]
    facts = ClusterFacts.of(ClusterEvidence.from_json(ClusterEvidence.of(at_debug).to_json()))
    assert facts.changes_heard[1] == facts.controller_heard[1]


def test_a_controller_is_heard_up_to_the_end_of_its_term() -> None:
    quiet = 3600 * SECOND
    term = [
        logged(10, "controller_elected", 1, by=CONTROLLER, controller=1),
        logged(11, "controller_epoch_incremented", 1, by=CONTROLLER, controller=1, controller_epoch=4),
        logged(12, "active_brokers", 1, by=CONTROLLER, controller=1, controller_epoch=4, brokers=[1, 2]),
    ]

    def heard(*more: Event) -> list[tuple[float, float, float]]:
        spans = ClusterFacts.of(ClusterEvidence.of([*started(1), *term, *more])).controller_heard[1]
        return [
            (one.since / SECOND, one.until / SECOND, (one.quiet_until - one.until) / SECOND) for one in spans
        ]

    assert heard(logged(90, "broker_running", 1)) == [(0, 90, quiet / SECOND)]
    resigned = logged(50, "controller_resigned", 1, by=CONTROLLER, controller=1)
    assert heard(resigned, logged(90, "broker_running", 1)) == [(0, 50, 0)]
    # its process was killed and started again
    assert heard(*started(1, 70), logged(90, "broker_running", 1)) == [(0, 70, 0)]
    # there is also the controller's log of the other node, which may have been elected
    other = logged(60, "controller_resigned", 2, by=CONTROLLER, controller=2)
    assert heard(resigned, other, logged(90, "broker_running", 1)) == [(0, 90, quiet / SECOND)]
