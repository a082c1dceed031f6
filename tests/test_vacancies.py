"""When nobody was controller: lines of a few seconds, and the times that they tell."""

from test_outages import SECOND, told

from jobs.timelines import ClusterEvidence, ClusterFacts, Event, vacancies


def elected(second: float, node: int, epoch: int) -> Event:
    """A broker says that it is the controller now."""
    return told(second, "controller_elected", node, controller=node, controller_epoch=epoch)


def brief(*events: Event) -> list[tuple]:
    """(whose term ended, since, until) in seconds."""
    found = vacancies(ClusterFacts.of(ClusterEvidence.of(events)))
    return [(one.node, one.since / SECOND, one.until and one.until / SECOND) for one in found]


def test_a_term_ends_and_another_begins() -> None:
    resigned = told(60, "controller_resigned", 1)
    assert brief(elected(10, 1, 1), resigned, elected(90, 2, 2)) == [(1, 60, 90)]
    assert brief(elected(10, 1, 1), resigned) == [(1, 60, None)]
    # the one that has it again
    assert brief(elected(10, 1, 1), resigned, elected(95, 1, 2)) == [(1, 60, 95)]
    (one,) = vacancies(ClusterFacts.of(ClusterEvidence.of([elected(10, 1, 1), resigned, elected(90, 2, 2)])))
    assert one.evidence == [resigned.record_id, elected(90, 2, 2).record_id]
    assert one.is_end_seen
    # its election is not there, but a line of its term
    line = told(90, "partition_online", 2, controller=2, controller_epoch=2, topic="a", partition=0)
    (one,) = vacancies(ClusterFacts.of(ClusterEvidence.of([elected(10, 1, 1), resigned, line])))
    assert (one.until, one.is_end_seen) == (90 * SECOND, False)


def test_one_that_goes_on_is_missed_by_nobody() -> None:
    """Days later, too: what is kept of all nights tells it."""
    ended = elected(10, 1, 1), told(60, "controller_resigned", 1)
    assert brief(*ended, told(90_000, "rebalance_checking", 1)) == []
    # another one, or one that says it while its term ends
    assert brief(*ended, told(90_000, "rebalance_checking", 2)) == [(1, 60, None)]
    assert brief(*ended, told(60.5, "rebalance_checking", 1)) == [(1, 60, None)]
    kept = ClusterEvidence.of([*ended, told(90_000, "rebalance_checking", 1)])
    assert ClusterEvidence.from_json(kept.to_json()) == kept


def test_every_broker_says_that_it_resigns() -> None:
    assert brief(elected(10, 1, 1), told(60, "controller_resigned", 2)) == []
    assert brief(told(60, "controller_resigned", 2)) == []


def test_the_controller_dies() -> None:
    alive = told(2, "broker_registered", 2, by="kafka.zk.KafkaZkClient", broker=2)
    died = told(60, "broker_failed", 3, broker=2)
    assert brief(alive, elected(10, 2, 1), died, told(61, "controller_resigned", 2), elected(70, 3, 2)) == [(2, 60, 70)]


def test_one_that_is_told_to_stop_is_controller_until_it_resigns() -> None:
    alive = told(2, "broker_registered", 2, by="kafka.zk.KafkaZkClient", broker=2)
    stops = told(60, "broker_stop_signal", 2)
    assert brief(alive, elected(10, 2, 1), stops, elected(90, 3, 2)) == [(2, 60, 90)]
    assert brief(alive, elected(10, 2, 1), stops, told(70, "controller_resigned", 2), elected(90, 3, 2)) == [(2, 70, 90)]


def test_what_others_say() -> None:
    ends = [elected(10, 1, 1), told(60, "controller_resigned", 1)]
    # up to the end of its session the one that is gone may be named
    assert brief(*ends, told(65, "controller_election_lost", 2, controller=1)) == [(1, 60, None)]
    assert brief(*ends, told(65, "controller_election_lost", 2, controller=3)) == [(1, 60, 65)]
    assert brief(*ends, told(65, "quorum_leader_learned", 2, quorum_node=3)) == [(1, 60, 65)]
    # nor is the election there, but a line in its epoch
    assert brief(*ends, told(80, "partition_online", 3, controller=3, controller_epoch=2, topic="a", partition=0)) == [
        (1, 60, 80)
    ]


def test_elections_that_nobody_tells() -> None:
    ends = [elected(10, 1, 1), told(60, "controller_resigned", 1)]
    # epoch 2 had somebody, too
    assert brief(*ends, elected(500, 3, 3)) == []
    # a broker takes in what the next one sends
    sent = told(63, "become_started", 4, by="state.change.logger", controller=2, controller_epoch=2, topic="a", partition=0)
    assert brief(*ends, sent, elected(500, 2, 3)) == [(1, 60, 63)]
