"""Intervals without a controller, from lines of a few seconds."""

from test_outages import SECOND, logged

from jobs.timelines import ClusterEvidence, ClusterFacts, Event, controller_gaps


def elected(second: float, node: int, epoch: int) -> Event:
    """Return the line with which a broker becomes controller."""
    return logged(second, "controller_elected", node, controller=node, controller_epoch=epoch)


def brief(*events: Event) -> list[tuple]:
    """Return (node whose term ended, since, until) in seconds."""
    found = controller_gaps(ClusterFacts.of(ClusterEvidence.of(events)))
    return [(one.node, one.since / SECOND, one.until and one.until / SECOND) for one in found]


def test_a_term_ends_and_another_begins() -> None:
    resigned = logged(60, "controller_resigned", 1)
    assert brief(elected(10, 1, 1), resigned, elected(90, 2, 2)) == [(1, 60, 90)]
    assert brief(elected(10, 1, 1), resigned) == [(1, 60, None)]
    # the same node is elected again
    assert brief(elected(10, 1, 1), resigned, elected(95, 1, 2)) == [(1, 60, 95)]
    (one,) = controller_gaps(
        ClusterFacts.of(ClusterEvidence.of([elected(10, 1, 1), resigned, elected(90, 2, 2)]))
    )
    assert one.evidence == [resigned.record_id, elected(90, 2, 2).record_id]
    assert one.is_end_seen
    # only a line of its term is logged, not its election
    line = logged(90, "partition_online", 2, controller=2, controller_epoch=2, topic="a", partition=0)
    (one,) = controller_gaps(ClusterFacts.of(ClusterEvidence.of([elected(10, 1, 1), resigned, line])))
    assert (one.until, one.is_end_seen) == (90 * SECOND, False)


def test_a_controller_that_works_on_leaves_no_gap() -> None:
    """This is found days later, too, from the stored evidence of the cluster."""
    ended = elected(10, 1, 1), logged(60, "controller_resigned", 1)
    assert brief(*ended, logged(90_000, "rebalance_checking", 1)) == []
    # a line of another node, or one that is printed while the term ends
    assert brief(*ended, logged(90_000, "rebalance_checking", 2)) == [(1, 60, None)]
    assert brief(*ended, logged(60.5, "rebalance_checking", 1)) == [(1, 60, None)]
    evidence = ClusterEvidence.of([*ended, logged(90_000, "rebalance_checking", 1)])
    assert ClusterEvidence.from_json(evidence.to_json()) == evidence


def test_every_stopping_broker_prints_that_it_resigns() -> None:
    assert brief(elected(10, 1, 1), logged(60, "controller_resigned", 2)) == []
    assert brief(logged(60, "controller_resigned", 2)) == []


def test_the_controller_dies() -> None:
    alive = logged(2, "broker_registered", 2, by="kafka.zk.KafkaZkClient", broker=2)
    died = logged(60, "broker_failed", 3, broker=2)
    assert brief(alive, elected(10, 2, 1), died, logged(61, "controller_resigned", 2), elected(70, 3, 2)) == [
        (2, 60, 70)
    ]


def test_a_stopping_controller_is_controller_until_it_resigns() -> None:
    alive = logged(2, "broker_registered", 2, by="kafka.zk.KafkaZkClient", broker=2)
    stops = logged(60, "broker_stop_signal", 2)
    assert brief(alive, elected(10, 2, 1), stops, elected(90, 3, 2)) == [(2, 60, 90)]
    assert brief(
        alive, elected(10, 2, 1), stops, logged(70, "controller_resigned", 2), elected(90, 3, 2)
    ) == [(2, 70, 90)]


def test_lines_of_other_nodes() -> None:
    ends = [elected(10, 1, 1), logged(60, "controller_resigned", 1)]
    # others may name the previous controller until its session ends
    assert brief(*ends, logged(65, "controller_election_lost", 2, controller=1)) == [(1, 60, None)]
    assert brief(*ends, logged(65, "controller_election_lost", 2, controller=3)) == [(1, 60, 65)]
    assert brief(*ends, logged(65, "quorum_leader_learned", 2, quorum_node=3)) == [(1, 60, 65)]
    # only a line in the next epoch is logged, not the election
    assert brief(
        *ends, logged(80, "partition_online", 3, controller=3, controller_epoch=2, topic="a", partition=0)
    ) == [(1, 60, 80)]


def test_elections_that_are_not_logged() -> None:
    ends = [elected(10, 1, 1), logged(60, "controller_resigned", 1)]
    # there was a controller in epoch 2
    assert brief(*ends, elected(500, 3, 3)) == []
    # a broker receives a request of the next controller
    sent = logged(
        63,
        "become_started",
        4,
        by="state.change.logger",
        controller=2,
        controller_epoch=2,
        topic="a",
        partition=0,
    )
    assert brief(*ends, sent, elected(500, 2, 3)) == [(1, 60, 63)]
