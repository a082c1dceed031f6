"""Episodes of partitions and the outages that explain them, from short timelines."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.timelines.episodes import KINDS, DeletionTimes, Episode, Surroundings, TimelineStep, episodes
from jobs.timelines.outages import ABSENT_AT_START, CRASHED, FIRST_START, SESSION_LOST, SHUT_DOWN, Outage
from parsers.definitions import EPISODES

SECOND = 1_000_000
NOW = 1000


def micros(second: float | None) -> int | None:
    """Return a second in microseconds."""
    return None if second is None else int(second * SECOND)


def steps(
    *rows: tuple[float, int, list[int]],
    replicas: list[int] | None = None,
    epochs: list[int] | None = None,
    end: float | None = None,
) -> list[TimelineStep]:
    """Return steps.

    rows: (second, leader, ISR) each. epochs: partition epochs, by default 0, 1, ..; end: of the last row.
    """
    ends = [row[0] for row in rows[1:]] + [end]
    partition_epochs = epochs or list(range(len(rows)))
    return [
        TimelineStep(
            valid_from=micros(second),
            valid_to=micros(until),
            state="OnlinePartition" if leader >= 0 else "OfflinePartition",
            leader=leader,
            leader_epoch=None,
            partition_epoch=epoch,
            isr=isr,
            replicas=[1, 2, 3] if replicas is None else replicas or None,
            adding_replicas=None,
            removing_replicas=None,
            record_id=f"r{n}",
        )
        for n, ((second, leader, isr), until, epoch) in enumerate(
            zip(rows, ends, partition_epochs, strict=True)
        )
    ]


def down(broker: int | None, since: float, until: float | None, how: str = SHUT_DOWN) -> Outage:
    """Return an outage of a broker; of all brokers where None."""
    back = micros(until)
    return Outage(
        broker,
        int(since * SECOND),
        back,
        back,
        how,
        None,
        int(since * SECOND) if broker is None else None,
        None,
        [f"o{broker}-{since}"],
    )


def around(*outages: Outage, **known: Any) -> Surroundings:
    """Return the surroundings of a partition with these outages."""
    return Surroundings(now=NOW * SECOND, outages=outages, **known)


def found(
    kind: str, history: list[TimelineStep], by: Surroundings | None = None, **more: Any
) -> list[Episode]:
    """Return the episodes of a kind."""
    return [episode for episode in episodes(history, by or around(), **more) if episode.kind == kind]


def brief(some: list[Episode]) -> list[tuple[Any, ...]]:
    """Return (replica, since, until, ended) in seconds."""
    return [
        (episode.replica, episode.since / SECOND, episode.until / SECOND, episode.ended) for episode in some
    ]


def up(episode: Episode) -> list[tuple[float, float]]:
    """Return the times in which the broker of its replica was not down, in seconds."""
    return [(since / SECOND, until / SECOND) for since, until in episode.up or ()]


ALL = [1, 2, 3]


def test_the_kinds_that_a_check_may_be_about() -> None:
    assert set(EPISODES) == set(KINDS)


def test_a_follower_leaves_the_isr_and_returns() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, ALL))
    (episode,) = found("out_of_sync", history)
    assert brief([episode]) == [(3, 10, 40, True)]
    assert (episode.returned, episode.missing, episode.record_id, episode.evidence) == (
        True,
        [3],
        "r1",
        ["r1"],
    )
    assert brief(found("out_of_sync", history[:2])) == [(3, 10, 40, True)]
    assert brief(found("out_of_sync", steps((0, 1, ALL), (10, 1, [1, 2])))) == [(3, 10, NOW, False)]
    # only the leader stayed in sync: the cause may be the leader and not the follower
    assert [one.returned for one in found("out_of_sync", steps((0, 1, ALL), (10, 1, [1]), (40, 1, ALL)))] == [
        False,
        False,
    ]
    # rows that show the ISR without a leader
    rows = steps((0, 1, ALL), (10, 1, [1, 2]), (20, 1, [1, 2]), (40, 1, ALL), (60, 1, [1, 2]), (80, 1, ALL))
    unled = [step._replace(leader=None) if n in (2, 3) else step for n, step in enumerate(rows)]
    assert brief(found("out_of_sync", unled)) == [(3, 10, 40, True), (3, 60, 80, True)]
    # an added replica need not be in sync
    assert not found("out_of_sync", [history[1]._replace(adding_replicas=[3])])


def test_an_episode_continues_from_row_to_row() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (20, 1, [1]), (30, 1, [1, 2]), (40, 1, ALL))
    assert brief(found("out_of_sync", history)) == [(2, 20, 30, True), (3, 10, 40, True)]
    assert brief(found("last_in_sync", history)) == [(1, 20, 30, True)]
    (three,) = [episode for episode in found("out_of_sync", history) if episode.replica == 3]
    assert three.evidence == ["r1", "r2", "r3"]


def test_a_partition_that_is_online_again_has_a_leader() -> None:
    history = steps((0, 1, ALL), (10, -1, [1]), (40, -1, [1]), (70, -1, [1]), (90, 1, [1]))
    online = [*history[:2], history[2]._replace(state="OnlinePartition"), *history[3:]]
    assert brief(found("leaderless", history)) == [(None, 10, 90, True)]
    assert brief(found("leaderless", online)) == [(None, 10, 40, True), (None, 70, 90, True)]
    # the leader is lost first, the state changes later
    first = [history[0], history[1]._replace(state="OnlinePartition"), *history[2:]]
    assert brief(found("leaderless", first)) == [(None, 10, 90, True)]


def test_missing_epochs_end_an_episode() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, [1, 2]), (70, 1, ALL), epochs=[4, 5, 9, 10])
    assert brief(found("out_of_sync", history)) == [(3, 10, 10, True), (3, 40, 70, True)]
    history = steps((0, 1, ALL), (10, -1, [1]), (40, -1, [1]), (70, 1, [1]), epochs=[4, 5, 7, 8])
    assert brief(found("leaderless", history)) == [(None, 10, 10, True), (None, 40, 70, True)]
    # leader epochs, too: they grew by more than two
    far = [
        step._replace(partition_epoch=None, leader_epoch=epoch)
        for step, epoch in zip(history, (4, 5, 9, 10), strict=True)
    ]
    assert brief(found("leaderless", far)) == [(None, 10, 10, True), (None, 40, 70, True)]


def test_an_epoch_that_falls_is_of_another_topic_of_that_name() -> None:
    history = steps((0, 1, ALL), (10, 1, [1]), (400, 1, [1]), (700, 1, ALL), epochs=[7, 8, 0, 1])
    assert [
        (*one, episode.is_begin_seen)
        for episode in found("last_in_sync", history)
        for one in brief([episode])
    ] == [
        (1, 10, 10, True, True),
        (1, 400, 700, True, False),
    ]
    loose = [
        step._replace(partition_epoch=None, leader_epoch=epoch)
        for step, epoch in zip(history, (3, 4, 0, 0), strict=True)
    ]
    assert brief(found("last_in_sync", loose)) == [(1, 10, 10, True), (1, 400, 700, True)]


def test_the_last_line_of_an_incarnation_ends_an_episode() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), end=500)
    assert brief(found("out_of_sync", history, around(heard_until=60 * SECOND))) == [(3, 10, 60, True)]
    assert brief(found("out_of_sync", history, around(heard_until=5 * SECOND))) == [(3, 10, 10, True)]


def test_replicas_that_have_changed() -> None:
    """A broker is in sync that is none of the replicas."""
    assert not found("out_of_sync", steps((0, 4, [4, 1])))
    assert not found("last_in_sync", steps((0, 4, [4])))


def test_whether_the_end_is_seen() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, ALL))
    assert [one.is_end_seen for one in found("out_of_sync", history)] == [True]
    # epochs are missing, the leader is lost, or no row follows
    for some, by in (
        (steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, [1, 2]), epochs=[1, 2, 9]), around()),
        (history, around(down(1, 30, 60))),
        (history[:2], around(heard_until=20 * SECOND)),
        (steps((0, 1, ALL), (10, 1, [1, 2])), around()),
    ):
        assert not found("out_of_sync", some, by)[0].is_end_seen


def test_min_isr() -> None:
    history = steps((0, 1, ALL), (10, 1, [1]), (20, 1, ALL))
    assert brief(found("below_min_isr", history, min_isr=2)) == [(None, 10, 20, True)]
    assert not found("below_min_isr", history)
    assert not found("below_min_isr", history, min_isr=1)
    # a topic with one replica is not below its min ISR
    assert not found("below_min_isr", steps((0, 1, [1]), replicas=[1]), min_isr=2)
    assert brief(found("below_min_isr", steps((0, 1, [1]), replicas=[]), min_isr=2)) == [
        (None, 0, NOW, False)
    ]


def test_the_preferred_leader() -> None:
    assert brief(found("not_preferred", steps((0, 1, ALL), (10, 2, ALL), (30, 1, ALL)))) == [
        (1, 10, 30, True)
    ]
    assert not found("not_preferred", steps((0, 2, [2, 3])))


def test_the_outage_that_explains_an_episode() -> None:
    history = steps((0, 1, ALL), (10, 2, [2, 3]), (90, 2, ALL))
    (episode,) = found("out_of_sync", history, around(down(1, 8, 80), down(1, 300, 310), down(3, 9, 80)))
    assert (episode.cause_broker, episode.cause_since, episode.cause_how) == (1, 8 * SECOND, SHUT_DOWN)
    # the end of a session is logged later than its consequences; a request to stop is not
    assert [
        one.cause_broker for one in found("out_of_sync", history, around(down(1, 30, 80, SESSION_LOST)))
    ] == [1]
    assert [
        one.cause_broker for one in found("out_of_sync", history, around(down(1, 30, 80, SHUT_DOWN)))
    ] == [None]
    # an outage that was over long before
    assert [one.cause_broker for one in found("out_of_sync", history, around(down(1, 1, 4)))] == [None]


def test_the_last_outage_is_the_cause() -> None:
    history = steps((0, 1, [1, 2]), (10, -1, [1]), (90, 1, [1]), replicas=[1, 2])
    (episode,) = found("leaderless", history, around(down(1, 9, 80), down(2, 2, 80)))
    assert (episode.missing, episode.cause_broker) == ([1], 1)
    # an empty ISR: the brokers of the ISR before are missing
    (episode,) = found(
        "leaderless",
        [history[0], history[1]._replace(isr=[]), history[2]],
        around(down(1, 4, 80), down(2, 9, 80)),
    )
    assert (episode.missing, episode.cause_broker) == ([1, 2], 2)


def test_a_cluster_that_is_shut_down_loses_its_leaders_first() -> None:
    history = steps((0, 1, [1]), (10, -1, [1]), (900, 1, [1]), replicas=[1])
    (episode,) = found("leaderless", history, around(down(None, 15, 800)))
    assert (episode.cause_broker, episode.cause_since, episode.cause_all_since) == (
        None,
        15 * SECOND,
        15 * SECOND,
    )
    # it had no leader before the outage
    assert [one.cause_since for one in found("leaderless", history, around(down(None, 30, 800)))] == [None]


def test_an_outage_of_the_leader_ends_an_episode() -> None:
    history = steps((0, 1, ALL), (10, 1, [1]), (90, 1, ALL))
    assert brief(found("last_in_sync", history, around(down(1, 50, 80)))) == [(1, 10, 50, True)]
    assert brief(found("last_in_sync", history, around(down(1, 50, 80, FIRST_START)))) == [(1, 10, 90, True)]
    assert brief(found("last_in_sync", history, around(down(2, 50, 80)))) == [(1, 10, 90, True)]
    assert brief(found("out_of_sync", history, around(down(None, 50, 80)))) == [
        (2, 10, 50, True),
        (3, 10, 50, True),
    ]


def test_a_broker_that_was_down_for_a_part_of_it() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    (episode,) = found("out_of_sync", history, around(down(3, 60, 90), down(3, 200, 210, SESSION_LOST)))
    assert (episode.cause_broker, episode.down_meanwhile, up(episode)) == (
        None,
        [3],
        [(10, 60), (90, 200), (210, 400)],
    )
    (episode,) = found("out_of_sync", history, around(down(3, 60, None)))
    assert (episode.ended, up(episode)) == (True, [(10, 60)])
    # an outage that begins at its end is no cause
    (episode,) = found("out_of_sync", history, around(down(3, 399, 450)))
    assert (episode.down_meanwhile, up(episode)) == (None, [(10, 400)])
    # an outage that explains it, logged late
    (episode,) = found("out_of_sync", history, around(down(3, 30, 90, SESSION_LOST)))
    assert (episode.cause_broker, up(episode)) == (3, [(90, 400)])
    (episode,) = found("out_of_sync", history, around(down(3, 11, None)))
    assert up(episode) == []


def test_own_lines_show_until_when_a_process_was_up() -> None:
    """A start that is the first line about an outage does not show that the broker served up to then."""
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    for outage in (
        down(3, 60, 90, CRASHED),
        down(3, 60, 90, ABSENT_AT_START),
        down(3, 60, 90)._replace(starting_at=60 * SECOND),
    ):
        assert [up(one) for one in found("out_of_sync", history, around(outage))] == [[(90, 400)]]
        own = {3: [(5 * SECOND, "early"), (40 * SECOND, "own")]}
        assert [up(one) for one in found("out_of_sync", history, around(outage, own_lines=own))] == [
            [(10, 40), (90, 400)]
        ]


def test_an_isr_that_was_short_before_an_outage() -> None:
    """It has another cause; without partition epochs the ISR may have grown in between."""
    history = steps((0, 1, ALL), (10, 1, [1]), (90, -1, [1]), (120, 1, [1]), (400, 1, ALL))
    by = around(down(1, 89, 119), down(2, 60, 150))
    (first, second) = [episode for episode in found("out_of_sync", history, by) if episode.replica == 2]
    assert (first.cause_broker, first.is_begin_seen, up(first)) == (None, True, [(10, 60)])
    assert (second.cause_broker, second.is_begin_seen, up(second)) == (None, False, [(150, 400)])
    loose = [step._replace(partition_epoch=None) for step in history]
    assert [
        one.cause_broker
        for one in found("out_of_sync", loose, by)
        if one.replica == 2 and one.since > 90 * SECOND
    ] == [2]
    # a stopping broker has asked the controller before
    assert [
        one.cause_broker for one in found("last_in_sync", history, around(down(1, 89, 119), down(2, 30, 150)))
    ] == [None, 2]
    # an outage that was noticed late may have begun before
    unnoticed = around(down(1, 89, 119), down(2, 60, 150, CRASHED))
    assert [
        one.cause_broker for one in found("last_in_sync", history, unnoticed) if one.since > 90 * SECOND
    ] == [2]
    # a replica that need not be in sync yet
    history[2] = history[2]._replace(adding_replicas=[2])
    assert [one.is_begin_seen for one in found("out_of_sync", history) if one.since > 90 * SECOND] == [
        True,
        False,
    ]


def test_an_isr_without_a_named_leader() -> None:
    """A controller that prints only the ISR and its version does not name the leader (KafkaController, 2.7 to
    3.2).
    """
    rows = steps((10, 1, [1, 2]), (90, 1, ALL))
    history = [step._replace(leader=None, leader_epoch=None) for step in rows]
    assert brief(found("out_of_sync", history)) == [(3, 10, 90, True)]
    assert brief(found("below_min_isr", history, min_isr=3)) == [(None, 10, 90, True)]
    assert not found("not_preferred", [step._replace(replicas=[3, 2, 1]) for step in history])
    # the leader may be any of the ISR, and no other broker
    for outage, until in (
        (down(1, 50, 60), 50),
        (down(2, 50, 60), 50),
        (down(3, 50, 60), 90),
        (down(2, 5, 60), 90),
    ):
        assert brief(found("out_of_sync", history, around(outage))) == [(3, 10, until, True)]
    assert brief(found("out_of_sync", history, around(down(1, 5, 60), down(2, 5, 60)))) == [(3, 10, 10, True)]


def test_lines_of_a_missing_broker_show_that_it_was_alive() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    own = {3: [(5 * SECOND, "early"), (60 * SECOND, "own"), (500 * SECOND, "late")]}
    (episode,) = found("out_of_sync", history, around(own_lines=own))
    assert (episode.alive_at, episode.signs) == (60 * SECOND, ["own"])
    # lines of another broker show nothing
    (episode,) = found("out_of_sync", history, around(own_lines={2: own[3]}))
    assert (episode.alive_at, episode.signs) == (None, [])
    last = steps((0, 1, ALL), (10, 1, [1]), (400, 1, ALL))
    assert [one.alive_at for one in found("last_in_sync", last, around(own_lines=own))] == [None]
    assert [one.alive_at for one in found("last_in_sync", last, around(own_lines=own | {2: own[3]}))] == [
        60 * SECOND
    ]


def test_a_topic_that_is_deleted_is_not_missed() -> None:
    history = steps((0, 1, ALL), (10, -1, [1]), (400, 1, ALL))
    for deletion, left in (
        (DeletionTimes(5 * SECOND, 30 * SECOND), 0),
        (DeletionTimes(15 * SECOND, None), 0),
        (DeletionTimes(None, None), 0),
        (DeletionTimes(60 * SECOND, None), 0),
        (DeletionTimes(500 * SECOND, None), 1),
        (DeletionTimes(2 * SECOND, 8 * SECOND), 1),
    ):
        assert len(found("leaderless", history, deletions=[deletion])) == left
    # a follower that is out of sync may be so for other reasons
    assert (
        len(
            found(
                "out_of_sync",
                steps((0, 1, ALL), (10, 1, [1, 2])),
                deletions=[DeletionTimes(60 * SECOND, None)],
            )
        )
        == 1
    )
    assert not found(
        "out_of_sync", steps((0, 1, ALL), (10, 1, [1, 2])), deletions=[DeletionTimes(15 * SECOND, None)]
    )


def test_a_topic_that_no_later_list_names_is_deleted() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (20, 1, [1, 2]))
    lists = [(5 * SECOND, frozenset({"a"})), (60 * SECOND, frozenset({"b"}))]
    assert brief(found("out_of_sync", history, around(topics_listed=lists), topic="a")) == [(3, 10, 20, True)]
    assert brief(found("out_of_sync", history, around(topics_listed=lists[:1]), topic="a")) == [
        (3, 10, NOW, False)
    ]


def test_an_isr_that_grew_with_an_election_had_grown_before() -> None:
    rows = steps((0, 1, ALL), (10, 1, [1]), (90, 2, [1, 2]))
    history = [
        step._replace(partition_epoch=None, leader_epoch=epoch)
        for step, epoch in zip(rows, (4, 5, 6), strict=True)
    ]
    assert brief(found("last_in_sync", history)) == [(1, 10, 10, True)]
    # the rows of one leader show when the ISR grew
    assert brief(found("last_in_sync", [*history[:2], history[2]._replace(leader=1, leader_epoch=5)])) == [
        (1, 10, 90, True)
    ]


def test_the_last_replica_in_sync_is_down() -> None:
    history = steps((0, 1, ALL), (100, 1, [1]), (400, 1, ALL))
    assert brief(found("last_in_sync", history, around(down(1, 60, 300)))) == [(1, 100, 100, True)]
    # it returns and is still alone, as a further row shows
    again = steps((0, 1, ALL), (100, 1, [1]), (300, 1, [1]), (400, 1, ALL))
    assert brief(found("last_in_sync", again, around(down(1, 200, 290)))) == [
        (1, 100, 200, True),
        (1, 300, 400, True),
    ]
    assert brief(found("below_min_isr", again, around(down(1, 200, 290)), min_isr=2)) == [
        (None, 100, 400, True)
    ]
    # it returns and leads
    assert brief(found("last_in_sync", history, around(down(1, 60, 102)))) == [(1, 100, 400, True)]


def test_a_follower_of_a_leader_that_is_down() -> None:
    history = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    assert brief(found("out_of_sync", history, around(down(1, 30, 60)))) == [(3, 10, 30, True)]
    leaderless = steps((0, 1, ALL), (10, -1, [1]), (60, 1, [1]), (90, 1, ALL))
    assert brief(found("out_of_sync", leaderless)) == [(2, 60, 90, True), (3, 60, 90, True)]


def test_rows_without_values_show_no_episode() -> None:
    (step,) = steps((0, -1, [1]))
    assert list(episodes([step._replace(leader=None)], around())) == []
    assert list(episodes([step._replace(valid_from=None)], around())) == []
    assert list(episodes([step._replace(state="NonExistentPartition")], around())) == []
    # a deleted topic ends its episodes
    end = step._replace(
        valid_from=60 * SECOND, state="NonExistentPartition", leader=None, isr=None, partition_epoch=None
    )
    assert brief(found("leaderless", [step._replace(valid_to=60 * SECOND), end])) == [(None, 0, 60, True)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([-1, 1, 2]),
            st.lists(st.sampled_from(ALL), unique=True, min_size=1),
            st.integers(1, 2),
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.integers(0, 90), st.integers(1, 30)), max_size=4),
)
def test_whatever_happens(
    rows: list[tuple[int, list[int], int]], outages: list[tuple[int | None, int, int]]
) -> None:
    """Every episode lies within the rows that show it, no two of one kind and replica overlap, and each has a
    record.
    """
    epochs = [sum(far for _, _, far in rows[: n + 1]) for n in range(len(rows))]
    history = steps(*[(10 * n, leader, isr) for n, (leader, isr, _) in enumerate(rows)], epochs=epochs)
    some = list(
        episodes(
            history,
            around(*(down(broker, since, since + long) for broker, since, long in outages)),
            min_isr=2,
        )
    )
    by_key: dict[tuple[str, int | None], list[Episode]] = {}
    for episode in some:
        assert 0 <= episode.since <= episode.until <= NOW * SECOND
        assert episode.record_id in episode.evidence
        assert history[episode.since // (10 * SECOND)].record_id == episode.record_id
        by_key.setdefault((episode.kind, episode.replica), []).append(episode)
    for these in by_key.values():
        assert all(one.until <= other.since for one, other in pairwise(these))
    is_leaderless = {n for n, (leader, _, _) in enumerate(rows) if leader == -1}
    begun = {episode.since // (10 * SECOND) for episode in some if episode.kind == "leaderless"}
    assert begun <= is_leaderless
    assert all(n in begun or n - 1 in is_leaderless for n in is_leaderless)


def test_whether_the_begin_of_an_episode_is_seen() -> None:
    def begins(*rows: tuple[float, int, list[int]], epochs: list[int] | None = None) -> list[bool]:
        history = steps(*rows, replicas=[1], epochs=epochs)
        return [episode.is_begin_seen for episode in episodes(history, Surroundings(now=micros(NOW) or 0))]

    assert begins((0, 1, [1]), (60, -1, [1])) == [True]
    # the first row; or epochs are missing in between
    assert begins((60, -1, [1])) == [False]
    assert begins((0, 1, [1]), (60, -1, [1]), epochs=[3, 7]) == [False]
    # a starting broker prints what it finds: epochs show that another leader was before, but not when
    assert begins((60, 1, [1]), (60, -1, [1])) == [False]
    assert begins((0, 1, [1]), (60, 1, [1]), (60, -1, [1])) == [True]
    assert begins((0, 1, [1]), (60, 1, [1]), (60, -1, [1]), epochs=[3, 7, 8]) == [False]


def test_the_only_replica_in_sync_leads_where_no_leader_is_named() -> None:
    first, alone, unnamed = steps((0, 2, [1, 2]), (10, 2, [2]), (20, 2, [2]), replicas=[1, 2])
    history = [first, alone, unnamed._replace(leader=None)]

    def until(*outages: Outage) -> list[float]:
        found = episodes(history, Surroundings(now=micros(NOW) or 0, outages=outages))
        return [episode.until / SECOND for episode in found if episode.kind == "last_in_sync"]

    assert until() == [NOW]
    assert until(down(2, 100, None)) == [100]
    assert until(down(1, 100, None)) == [NOW]


def test_a_partition_whose_leader_is_missing_for_the_controller() -> None:
    """The controller still names the last leader.

    Nobody leads until the next election, so nobody knows the ISR.
    """
    rows = steps((0, 1, ALL), (10, 1, [1]), (20, 1, [1]), (50, 1, [1]), (90, 1, ALL), epochs=[0, 1, 1, 2, 3])
    epochs = (5, 5, 5, 6, 6)
    history = [step._replace(leader_epoch=epoch) for step, epoch in zip(rows, epochs, strict=True)]
    history[2] = history[2]._replace(state="OfflinePartition")
    assert brief(found("last_in_sync", history)) == [(1, 10, 20, True), (1, 50, 90, True)]
    assert not found("leaderless", history)
    # a new leader epoch shows that it is online again
    history[3] = history[3]._replace(state="OfflinePartition")
    assert brief(found("last_in_sync", history)) == [(1, 10, 20, True), (1, 50, 90, True)]


def test_an_isr_from_lists_may_have_grown_since() -> None:
    """Lists of a controller name no partition epoch."""
    rows = steps((0, 1, ALL), (10, 1, [1, 2]))
    history = [step._replace(partition_epoch=None, leader_epoch=5) for step in rows]
    assert brief(found("out_of_sync", rows)) == [(3, 10, NOW, False)]
    assert brief(found("out_of_sync", history)) == [(3, 10, 10, True)]
    # a broker that is down joins no ISR
    assert brief(found("out_of_sync", history, around(down(3, 5, 300)))) == [(3, 10, 300, True)]
    assert brief(found("out_of_sync", history, around(down(3, 5, None)))) == [(3, 10, NOW, False)]
    alone = [step._replace(isr=[1]) if step.isr == [1, 2] else step for step in history]
    assert brief(found("last_in_sync", alone, around(down(3, 5, 300)))) == [(1, 10, 10, True)]
    assert brief(found("last_in_sync", alone, around(down(3, 5, 300), down(2, 8, 200)))) == [
        (1, 10, 200, True)
    ]
    # listed once more
    again = [*history, history[1]._replace(valid_from=micros(90), leader_epoch=6)]
    assert brief(found("out_of_sync", again)) == [(3, 10, 90, True)]


def test_an_open_episode_ends_with_the_logs_that_would_show_its_end() -> None:
    """Every replica is sent the next leader; the leader and the active controller log the ISR."""

    def end(leader: int, isr: list[int], kind: str, **around: Any) -> tuple[float, bool]:
        rows = steps((100, 1, [1, 2, 3]), (200, leader, isr), replicas=[1, 2, 3])
        found = episodes(rows, Surroundings(now=NOW * SECOND, quiet=10 * SECOND, **around))
        (one,) = [episode for episode in found if episode.kind == kind]
        return one.until / SECOND, one.ended

    assert end(-1, [3], "leaderless") == (NOW, False)
    assert end(-1, [3], "leaderless", written_until={2: NOW * SECOND}) == (NOW, False)
    assert end(-1, [3], "leaderless", written_until={2: (NOW - 10) * SECOND}) == (NOW, False)
    assert end(-1, [3], "leaderless", written_until={2: 400 * SECOND, 9: NOW * SECOND}) == (400, True)
    assert end(-1, [3], "leaderless", written_until={9: NOW * SECOND}) == (200, True)
    heard = [(100 * SECOND, 600 * SECOND, 600 * SECOND)]
    assert end(-1, [3], "leaderless", written_until={}, controller_heard=heard) == (600, True)
    assert end(1, [1], "last_in_sync", written_until={1: NOW * SECOND}) == (NOW, False)
    assert end(1, [1], "last_in_sync", written_until={1: 300 * SECOND, 2: NOW * SECOND}) == (300, True)


def test_an_open_episode_ends_when_the_replica_in_sync_is_removed() -> None:
    """Its topic was deleted: a reassignment takes a replica out of the ISR before it removes its files."""
    rows = steps((100, 1, [1, 2, 3]), (200, -1, [3]), replicas=[1, 2, 3])

    def end(*removed: tuple[float, int]) -> tuple[float, bool]:
        at = {("orders", 0): [(int(second * SECOND), node) for second, node in removed]}
        (one,) = found("leaderless", rows, around(removed=at), topic="orders")
        return one.until / SECOND, one.ended

    assert end((250, 3)) == (250, True)
    assert end((250, 1)) == (NOW, False)
    assert end((150, 3)) == (NOW, False)
