"""What was wrong with a partition and which outage explains it: rows of a timeline of a few seconds, and the spells that they give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.timelines.outages import ABSENT_AT_START, CRASHED, FIRST_START, SESSION_LOST, SHUT_DOWN, Outage
from jobs.timelines.spells import KINDS, Deletion, Spell, Step, Surroundings, spells
from parsers.definitions import SPELLS

SECOND = 1_000_000
NOW = 1000


def micros(second: float | None) -> int | None:
    """Of a second."""
    return None if second is None else int(second * SECOND)


def steps(
    *rows: tuple[float, int, list[int]],
    replicas: list[int] | None = None,
    epochs: list[int] | None = None,
    end: float | None = None,
) -> list[Step]:
    """(second, leader, ISR) each; epochs: partition epochs, one after the other where not given; end: of the last row."""
    ends = [row[0] for row in rows[1:]] + [end]
    told = epochs or list(range(len(rows)))
    return [
        Step(
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
        for n, ((second, leader, isr), until, epoch) in enumerate(zip(rows, ends, told, strict=True))
    ]


def gone(broker: int | None, since: float, until: float | None, how: str = SHUT_DOWN) -> Outage:
    """An outage of a broker, of all where null."""
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
    """What they are judged by."""
    return Surroundings(now=NOW * SECOND, outages=outages, **known)


def found(kind: str, told: list[Step], by: Surroundings | None = None, **more: Any) -> list[Spell]:
    """The spells of a kind."""
    return [spell for spell in spells(told, by or around(), **more) if spell.kind == kind]


def brief(some: list[Spell]) -> list[tuple[Any, ...]]:
    """(replica, since, until, ended) in seconds."""
    return [(spell.replica, spell.since / SECOND, spell.until / SECOND, spell.ended) for spell in some]


def up(spell: Spell) -> list[tuple[float, float]]:
    """When the broker of its replica was not down, in seconds."""
    return [(since / SECOND, until / SECOND) for since, until in spell.up or ()]


ALL = [1, 2, 3]


def test_the_kinds_that_a_check_may_be_about() -> None:
    assert set(SPELLS) == set(KINDS)


def test_a_follower_falls_out_and_comes_back() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, ALL))
    (spell,) = found("out_of_sync", told)
    assert brief([spell]) == [(3, 10, 40, True)]
    assert (spell.returned, spell.missing, spell.record_id, spell.evidence) == (True, [3], "r1", ["r1"])
    assert brief(found("out_of_sync", told[:2])) == [(3, 10, 40, True)]
    assert brief(found("out_of_sync", steps((0, 1, ALL), (10, 1, [1, 2])))) == [(3, 10, NOW, False)]
    # the leader alone has stayed: nobody would know whether it was the follower
    assert [one.returned for one in found("out_of_sync", steps((0, 1, ALL), (10, 1, [1]), (40, 1, ALL)))] == [False, False]
    # the ISR is told without a leader
    rows = steps((0, 1, ALL), (10, 1, [1, 2]), (20, 1, [1, 2]), (40, 1, ALL), (60, 1, [1, 2]), (80, 1, ALL))
    unled = [step._replace(leader=None) if n in (2, 3) else step for n, step in enumerate(rows)]
    assert brief(found("out_of_sync", unled)) == [(3, 10, 40, True), (3, 60, 80, True)]
    # one that is added need not be in sync
    assert not found("out_of_sync", [told[1]._replace(adding_replicas=[3])])


def test_a_spell_goes_on_from_row_to_row() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (20, 1, [1]), (30, 1, [1, 2]), (40, 1, ALL))
    assert brief(found("out_of_sync", told)) == [(2, 20, 30, True), (3, 10, 40, True)]
    assert brief(found("last_in_sync", told)) == [(1, 20, 30, True)]
    (three,) = [spell for spell in found("out_of_sync", told) if spell.replica == 3]
    assert three.evidence == ["r1", "r2", "r3"]


def test_a_partition_that_is_online_again_has_a_leader() -> None:
    told = steps((0, 1, ALL), (10, -1, [1]), (40, -1, [1]), (70, -1, [1]), (90, 1, [1]))
    online = [*told[:2], told[2]._replace(state="OnlinePartition"), *told[3:]]
    assert brief(found("leaderless", told)) == [(None, 10, 90, True)]
    assert brief(found("leaderless", online)) == [(None, 10, 40, True), (None, 70, 90, True)]
    # the leader is gone, and the state follows
    first = [told[0], told[1]._replace(state="OnlinePartition"), *told[2:]]
    assert brief(found("leaderless", first)) == [(None, 10, 90, True)]


def test_what_was_in_between_nobody_tells() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, [1, 2]), (70, 1, ALL), epochs=[4, 5, 9, 10])
    assert brief(found("out_of_sync", told)) == [(3, 10, 10, True), (3, 40, 70, True)]
    told = steps((0, 1, ALL), (10, -1, [1]), (40, -1, [1]), (70, 1, [1]), epochs=[4, 5, 7, 8])
    assert brief(found("leaderless", told)) == [(None, 10, 10, True), (None, 40, 70, True)]
    # leader epochs, too: two more than one change of leaders
    far = [step._replace(partition_epoch=None, leader_epoch=epoch) for step, epoch in zip(told, (4, 5, 9, 10), strict=True)]
    assert brief(found("leaderless", far)) == [(None, 10, 10, True), (None, 40, 70, True)]


def test_an_epoch_that_falls_is_of_another_topic_of_that_name() -> None:
    told = steps((0, 1, ALL), (10, 1, [1]), (400, 1, [1]), (700, 1, ALL), epochs=[7, 8, 0, 1])
    assert [(*one, spell.is_begin_seen) for spell in found("last_in_sync", told) for one in brief([spell])] == [
        (1, 10, 10, True, True),
        (1, 400, 700, True, False),
    ]
    loose = [step._replace(partition_epoch=None, leader_epoch=epoch) for step, epoch in zip(told, (3, 4, 0, 0), strict=True)]
    assert brief(found("last_in_sync", loose)) == [(1, 10, 10, True), (1, 400, 700, True)]


def test_the_last_line_of_a_life_ends_it() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), end=500)
    assert brief(found("out_of_sync", told, around(heard_until=60 * SECOND))) == [(3, 10, 60, True)]
    assert brief(found("out_of_sync", told, around(heard_until=5 * SECOND))) == [(3, 10, 10, True)]


def test_replicas_that_are_others_now() -> None:
    """Somebody is in sync who is none of them."""
    assert not found("out_of_sync", steps((0, 4, [4, 1])))
    assert not found("last_in_sync", steps((0, 4, [4])))


def test_whether_the_end_is_seen() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, ALL))
    assert [one.is_end_seen for one in found("out_of_sync", told)] == [True]
    # up to then nobody tells of another one, or the leader goes, or nothing comes after
    for some, by in (
        (steps((0, 1, ALL), (10, 1, [1, 2]), (40, 1, [1, 2]), epochs=[1, 2, 9]), around()),
        (told, around(gone(1, 30, 60))),
        (told[:2], around(heard_until=20 * SECOND)),
        (steps((0, 1, ALL), (10, 1, [1, 2])), around()),
    ):
        assert not found("out_of_sync", some, by)[0].is_end_seen


def test_min_isr() -> None:
    told = steps((0, 1, ALL), (10, 1, [1]), (20, 1, ALL))
    assert brief(found("below_min_isr", told, min_isr=2)) == [(None, 10, 20, True)]
    assert not found("below_min_isr", told)
    assert not found("below_min_isr", told, min_isr=1)
    # a topic of one replica has all of them
    assert not found("below_min_isr", steps((0, 1, [1]), replicas=[1]), min_isr=2)
    assert brief(found("below_min_isr", steps((0, 1, [1]), replicas=[]), min_isr=2)) == [(None, 0, NOW, False)]


def test_the_preferred_leader() -> None:
    assert brief(found("not_preferred", steps((0, 1, ALL), (10, 2, ALL), (30, 1, ALL)))) == [(1, 10, 30, True)]
    assert not found("not_preferred", steps((0, 2, [2, 3])))


def test_the_outage_that_explains_it() -> None:
    told = steps((0, 1, ALL), (10, 2, [2, 3]), (90, 2, ALL))
    (spell,) = found("out_of_sync", told, around(gone(1, 8, 80), gone(1, 300, 310), gone(3, 9, 80)))
    assert (spell.cause_broker, spell.cause_since, spell.cause_how) == (1, 8 * SECOND, SHUT_DOWN)
    # its session's end is told later than what follows from it, that somebody told it to stop is not
    assert [one.cause_broker for one in found("out_of_sync", told, around(gone(1, 30, 80, SESSION_LOST)))] == [1]
    assert [one.cause_broker for one in found("out_of_sync", told, around(gone(1, 30, 80, SHUT_DOWN)))] == [None]
    # long over
    assert [one.cause_broker for one in found("out_of_sync", told, around(gone(1, 1, 4)))] == [None]


def test_the_last_one_that_went_is_the_cause() -> None:
    told = steps((0, 1, [1, 2]), (10, -1, [1]), (90, 1, [1]), replicas=[1, 2])
    (spell,) = found("leaderless", told, around(gone(1, 9, 80), gone(2, 2, 80)))
    assert (spell.missing, spell.cause_broker) == ([1], 1)
    # an empty ISR: those of the one before
    (spell,) = found("leaderless", [told[0], told[1]._replace(isr=[]), told[2]], around(gone(1, 4, 80), gone(2, 9, 80)))
    assert (spell.missing, spell.cause_broker) == ([1, 2], 2)


def test_a_cluster_that_is_shut_down_loses_its_leaders_first() -> None:
    told = steps((0, 1, [1]), (10, -1, [1]), (900, 1, [1]), replicas=[1])
    (spell,) = found("leaderless", told, around(gone(None, 15, 800)))
    assert (spell.cause_broker, spell.cause_since, spell.cause_all_since) == (None, 15 * SECOND, 15 * SECOND)
    # it had none before
    assert [one.cause_since for one in found("leaderless", told, around(gone(None, 30, 800)))] == [None]


def test_nobody_is_left_who_would_know() -> None:
    told = steps((0, 1, ALL), (10, 1, [1]), (90, 1, ALL))
    assert brief(found("last_in_sync", told, around(gone(1, 50, 80)))) == [(1, 10, 50, True)]
    assert brief(found("last_in_sync", told, around(gone(1, 50, 80, FIRST_START)))) == [(1, 10, 90, True)]
    assert brief(found("last_in_sync", told, around(gone(2, 50, 80)))) == [(1, 10, 90, True)]
    assert brief(found("out_of_sync", told, around(gone(None, 50, 80)))) == [(2, 10, 50, True), (3, 10, 50, True)]


def test_a_broker_that_was_down_for_a_part_of_it() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    (spell,) = found("out_of_sync", told, around(gone(3, 60, 90), gone(3, 200, 210, SESSION_LOST)))
    assert (spell.cause_broker, spell.down_meanwhile, up(spell)) == (None, [3], [(10, 60), (90, 200), (210, 400)])
    (spell,) = found("out_of_sync", told, around(gone(3, 60, None)))
    assert (spell.ended, up(spell)) == (True, [(10, 60)])
    # what goes at its end has nothing to do with it
    (spell,) = found("out_of_sync", told, around(gone(3, 399, 450)))
    assert (spell.down_meanwhile, up(spell)) == (None, [(10, 400)])
    # one that explains it, told late
    (spell,) = found("out_of_sync", told, around(gone(3, 30, 90, SESSION_LOST)))
    assert (spell.cause_broker, up(spell)) == (3, [(90, 400)])
    (spell,) = found("out_of_sync", told, around(gone(3, 11, None)))
    assert up(spell) == []


def test_when_a_process_had_ended_its_own_lines_tell() -> None:
    """That its next start is the first that is told of it does not say that it served up to then."""
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    for outage in (
        gone(3, 60, 90, CRASHED),
        gone(3, 60, 90, ABSENT_AT_START),
        gone(3, 60, 90)._replace(starting_at=60 * SECOND),
    ):
        assert [up(one) for one in found("out_of_sync", told, around(outage))] == [[(90, 400)]]
        own = {3: [(5 * SECOND, "early"), (40 * SECOND, "own")]}
        assert [up(one) for one in found("out_of_sync", told, around(outage, signs=own))] == [[(10, 40), (90, 400)]]


def test_an_isr_that_was_short_before_a_broker_went() -> None:
    """It is so for another reason; where versions of the ISR are not told it may have grown in between."""
    told = steps((0, 1, ALL), (10, 1, [1]), (90, -1, [1]), (120, 1, [1]), (400, 1, ALL))
    by = around(gone(1, 89, 119), gone(2, 60, 150))
    (first, second) = [spell for spell in found("out_of_sync", told, by) if spell.replica == 2]
    assert (first.cause_broker, first.is_begin_seen, up(first)) == (None, True, [(10, 60)])
    assert (second.cause_broker, second.is_begin_seen, up(second)) == (None, False, [(150, 400)])
    loose = [step._replace(partition_epoch=None) for step in told]
    assert [one.cause_broker for one in found("out_of_sync", loose, by) if one.replica == 2 and one.since > 90 * SECOND] == [2]
    # one that stops has asked the controller before
    assert [one.cause_broker for one in found("last_in_sync", told, around(gone(1, 89, 119), gone(2, 30, 150)))] == [None, 2]
    # one that went unnoticed may have gone before
    unnoticed = around(gone(1, 89, 119), gone(2, 60, 150, CRASHED))
    assert [one.cause_broker for one in found("last_in_sync", told, unnoticed) if one.since > 90 * SECOND] == [2]
    # a replica that need not be in sync yet
    told[2] = told[2]._replace(adding_replicas=[2])
    assert [one.is_begin_seen for one in found("out_of_sync", told) if one.since > 90 * SECOND] == [True, False]


def test_an_isr_is_told_by_one_that_leads() -> None:
    """Who it is, is not named where a controller prints the ISR and its version alone (KafkaController, 2.7 to 3.2)."""
    rows = steps((10, 1, [1, 2]), (90, 1, ALL))
    told = [step._replace(leader=None, leader_epoch=None) for step in rows]
    assert brief(found("out_of_sync", told)) == [(3, 10, 90, True)]
    assert brief(found("below_min_isr", told, min_isr=3)) == [(None, 10, 90, True)]
    assert not found("not_preferred", [step._replace(replicas=[3, 2, 1]) for step in told])
    # it may be any of the ISR, and is none of the others
    for outage, until in ((gone(1, 50, 60), 50), (gone(2, 50, 60), 50), (gone(3, 50, 60), 90), (gone(2, 5, 60), 90)):
        assert brief(found("out_of_sync", told, around(outage))) == [(3, 10, until, True)]
    assert brief(found("out_of_sync", told, around(gone(1, 5, 60), gone(2, 5, 60)))) == [(3, 10, 10, True)]


def test_signs_of_life() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    own = {3: [(5 * SECOND, "early"), (60 * SECOND, "own"), (500 * SECOND, "late")]}
    (spell,) = found("out_of_sync", told, around(signs=own))
    assert (spell.alive_at, spell.signs) == (60 * SECOND, ["own"])
    # of another one nobody knows
    (spell,) = found("out_of_sync", told, around(signs={2: own[3]}))
    assert (spell.alive_at, spell.signs) == (None, [])
    last = steps((0, 1, ALL), (10, 1, [1]), (400, 1, ALL))
    assert [one.alive_at for one in found("last_in_sync", last, around(signs=own))] == [None]
    assert [one.alive_at for one in found("last_in_sync", last, around(signs=own | {2: own[3]}))] == [60 * SECOND]


def test_a_topic_that_is_deleted_is_not_missed() -> None:
    told = steps((0, 1, ALL), (10, -1, [1]), (400, 1, ALL))
    for deletion, left in (
        (Deletion(5 * SECOND, 30 * SECOND), 0),
        (Deletion(15 * SECOND, None), 0),
        (Deletion(None, None), 0),
        (Deletion(60 * SECOND, None), 0),
        (Deletion(500 * SECOND, None), 1),
        (Deletion(2 * SECOND, 8 * SECOND), 1),
    ):
        assert len(found("leaderless", told, deletions=[deletion])) == left
    # a follower that is out of sync may be so for other reasons
    assert len(found("out_of_sync", steps((0, 1, ALL), (10, 1, [1, 2])), deletions=[Deletion(60 * SECOND, None)])) == 1
    assert not found("out_of_sync", steps((0, 1, ALL), (10, 1, [1, 2])), deletions=[Deletion(15 * SECOND, None)])


def test_a_topic_that_is_in_no_later_list_has_gone() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (20, 1, [1, 2]))
    lists = [(5 * SECOND, frozenset({"a"})), (60 * SECOND, frozenset({"b"}))]
    assert brief(found("out_of_sync", told, around(topics_listed=lists), topic="a")) == [(3, 10, 20, True)]
    assert brief(found("out_of_sync", told, around(topics_listed=lists[:1]), topic="a")) == [(3, 10, NOW, False)]


def test_an_isr_that_grew_with_an_election_had_grown_before() -> None:
    rows = steps((0, 1, ALL), (10, 1, [1]), (90, 2, [1, 2]))
    told = [step._replace(partition_epoch=None, leader_epoch=epoch) for step, epoch in zip(rows, (4, 5, 6), strict=True)]
    assert brief(found("last_in_sync", told)) == [(1, 10, 10, True)]
    # the leader tells when it does
    assert brief(found("last_in_sync", [*told[:2], told[2]._replace(leader=1, leader_epoch=5)])) == [(1, 10, 90, True)]


def test_the_last_one_in_sync_is_gone() -> None:
    told = steps((0, 1, ALL), (100, 1, [1]), (400, 1, ALL))
    assert brief(found("last_in_sync", told, around(gone(1, 60, 300)))) == [(1, 100, 100, True)]
    # it comes back, and is alone still, by another line
    again = steps((0, 1, ALL), (100, 1, [1]), (300, 1, [1]), (400, 1, ALL))
    assert brief(found("last_in_sync", again, around(gone(1, 200, 290)))) == [(1, 100, 200, True), (1, 300, 400, True)]
    assert brief(found("below_min_isr", again, around(gone(1, 200, 290)), min_isr=2)) == [(None, 100, 400, True)]
    # it comes back, and leads
    assert brief(found("last_in_sync", told, around(gone(1, 60, 102)))) == [(1, 100, 400, True)]


def test_a_follower_of_a_broker_that_is_gone() -> None:
    told = steps((0, 1, ALL), (10, 1, [1, 2]), (400, 1, ALL))
    assert brief(found("out_of_sync", told, around(gone(1, 30, 60)))) == [(3, 10, 30, True)]
    leaderless = steps((0, 1, ALL), (10, -1, [1]), (60, 1, [1]), (90, 1, ALL))
    assert brief(found("out_of_sync", leaderless)) == [(2, 60, 90, True), (3, 60, 90, True)]


def test_rows_that_say_nothing() -> None:
    (step,) = steps((0, -1, [1]))
    assert list(spells([step._replace(leader=None)], around())) == []
    assert list(spells([step._replace(valid_from=None)], around())) == []
    assert list(spells([step._replace(state="NonExistentPartition")], around())) == []
    # a topic that is gone ends what was wrong with it
    end = step._replace(valid_from=60 * SECOND, state="NonExistentPartition", leader=None, isr=None, partition_epoch=None)
    assert brief(found("leaderless", [step._replace(valid_to=60 * SECOND), end])) == [(None, 0, 60, True)]


@given(
    st.lists(
        st.tuples(st.sampled_from([-1, 1, 2]), st.lists(st.sampled_from(ALL), unique=True, min_size=1), st.integers(1, 2)),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.integers(0, 90), st.integers(1, 30)), max_size=4),
)
def test_whatever_happens(rows: list[tuple[int, list[int], int]], outages: list[tuple[int | None, int, int]]) -> None:
    """Every spell lies within the rows that show it, no two of one kind and replica overlap, and each has a record."""
    epochs = [sum(far for _, _, far in rows[: n + 1]) for n in range(len(rows))]
    told = steps(*[(10 * n, leader, isr) for n, (leader, isr, _) in enumerate(rows)], epochs=epochs)
    some = list(spells(told, around(*(gone(broker, since, since + long) for broker, since, long in outages)), min_isr=2))
    by_key: dict[tuple[str, int | None], list[Spell]] = {}
    for spell in some:
        assert 0 <= spell.since <= spell.until <= NOW * SECOND
        assert spell.record_id in spell.evidence
        assert told[spell.since // (10 * SECOND)].record_id == spell.record_id
        by_key.setdefault((spell.kind, spell.replica), []).append(spell)
    for these in by_key.values():
        assert all(one.until <= other.since for one, other in pairwise(these))
    is_leaderless = {n for n, (leader, _, _) in enumerate(rows) if leader == -1}
    begun = {spell.since // (10 * SECOND) for spell in some if spell.kind == "leaderless"}
    assert begun <= is_leaderless
    assert all(n in begun or n - 1 in is_leaderless for n in is_leaderless)


def test_whether_lines_tell_when_it_began() -> None:
    def begins(*rows: tuple[float, int, list[int]], epochs: list[int] | None = None) -> list[bool]:
        told = steps(*rows, replicas=[1], epochs=epochs)
        return [spell.is_begin_seen for spell in spells(told, Surroundings(now=micros(NOW) or 0))]

    assert begins((0, 1, [1]), (60, -1, [1])) == [True]
    # the first that is known of it; some that is not told may have been in between
    assert begins((60, -1, [1])) == [False]
    assert begins((0, 1, [1]), (60, -1, [1]), epochs=[3, 7]) == [False]
    # a broker that starts prints what it finds: that another leader was before is told by epochs, and not when
    assert begins((60, 1, [1]), (60, -1, [1])) == [False]
    assert begins((0, 1, [1]), (60, 1, [1]), (60, -1, [1])) == [True]
    assert begins((0, 1, [1]), (60, 1, [1]), (60, -1, [1]), epochs=[3, 7, 8]) == [False]


def test_the_only_replica_in_sync_tells_of_the_isr_where_no_leader_is_named() -> None:
    first, alone, unnamed = steps((0, 2, [1, 2]), (10, 2, [2]), (20, 2, [2]), replicas=[1, 2])
    told = [first, alone, unnamed._replace(leader=None)]

    def until(*outages: Outage) -> list[float]:
        found = spells(told, Surroundings(now=micros(NOW) or 0, outages=outages))
        return [spell.until / SECOND for spell in found if spell.kind == "last_in_sync"]

    assert until() == [NOW]
    assert until(gone(2, 100, None)) == [100]
    assert until(gone(1, 100, None)) == [NOW]


def test_a_partition_whose_leader_a_controller_found_gone() -> None:
    """It names the last leader still; nobody leads until the next election, and nobody would know the ISR."""
    rows = steps((0, 1, ALL), (10, 1, [1]), (20, 1, [1]), (50, 1, [1]), (90, 1, ALL), epochs=[0, 1, 1, 2, 3])
    epochs = (5, 5, 5, 6, 6)
    told = [step._replace(leader_epoch=epoch) for step, epoch in zip(rows, epochs, strict=True)]
    told[2] = told[2]._replace(state="OfflinePartition")
    assert brief(found("last_in_sync", told)) == [(1, 10, 20, True), (1, 50, 90, True)]
    assert not found("leaderless", told)
    # where its being online is not told, a new leader epoch is
    told[3] = told[3]._replace(state="OfflinePartition")
    assert brief(found("last_in_sync", told)) == [(1, 10, 20, True), (1, 50, 90, True)]


def test_an_isr_that_lists_tell_may_have_grown_since() -> None:
    """Lists of a controller name no version of the znode."""
    rows = steps((0, 1, ALL), (10, 1, [1, 2]))
    told = [step._replace(partition_epoch=None, leader_epoch=5) for step in rows]
    assert brief(found("out_of_sync", rows)) == [(3, 10, NOW, False)]
    assert brief(found("out_of_sync", told)) == [(3, 10, 10, True)]
    # a broker that is down joins no ISR
    assert brief(found("out_of_sync", told, around(gone(3, 5, 300)))) == [(3, 10, 300, True)]
    assert brief(found("out_of_sync", told, around(gone(3, 5, None)))) == [(3, 10, NOW, False)]
    alone = [step._replace(isr=[1]) if step.isr == [1, 2] else step for step in told]
    assert brief(found("last_in_sync", alone, around(gone(3, 5, 300)))) == [(1, 10, 10, True)]
    assert brief(found("last_in_sync", alone, around(gone(3, 5, 300), gone(2, 8, 200)))) == [(1, 10, 200, True)]
    # told once more
    again = [*told, told[1]._replace(valid_from=micros(90), leader_epoch=6)]
    assert brief(found("out_of_sync", again)) == [(3, 10, 90, True)]


def test_what_goes_on_ends_with_the_logs_that_would_show_its_end() -> None:
    """Of a partition without a leader every replica is sent the next one; of an ISR its leader writes, and so does the controller in charge."""

    def end(leader: int, isr: list[int], kind: str, **around: Any) -> tuple[float, bool]:
        rows = steps((100, 1, [1, 2, 3]), (200, leader, isr), replicas=[1, 2, 3])
        found = spells(rows, Surroundings(now=NOW * SECOND, quiet=10 * SECOND, **around))
        (one,) = [spell for spell in found if spell.kind == kind]
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
