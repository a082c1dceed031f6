"""Spells: times in which one thing was wrong with a partition, with the outage of a broker that explains it. Times are microseconds."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jobs.timelines.outages import ABSENT_AT_START, CRASHED, FIRST_START, SESSION_LOST, SHUT_DOWN, Outage

LEADERLESS = "leaderless"
OUT_OF_SYNC = "out_of_sync"  # of one follower
LAST_IN_SYNC = "last_in_sync"  # one replica in sync of several
BELOW_MIN_ISR = "below_min_isr"
NOT_PREFERRED = "not_preferred"  # the preferred leader is in sync and does not lead
KINDS = (LEADERLESS, OUT_OF_SYNC, LAST_IN_SYNC, BELOW_MIN_ISR, NOT_PREFERRED)
# of these it is asked whether the brokers that are missing lived
_OF_MISSING = frozenset({OUT_OF_SYNC, LAST_IN_SYNC, BELOW_MIN_ISR})
# of these the leader tells
_OF_LEADER = frozenset({OUT_OF_SYNC, LAST_IN_SYNC})

SECOND = 1_000_000
# an outage is told so long after the first change that follows from it, one that a session's end tells later
TOLD_LATE, SESSION_ENDS_LATE = 2 * SECOND, 30 * SECOND
# and a change that follows from it so long after it is over
FOLLOWS_LATE = 5 * SECOND
# a cluster that is shut down loses leaders so long before its last broker
GOES_FIRST = 10 * SECOND
# a deletion is told so long after the first change that follows from it
DELETION_TOLD_LATE = 10 * SECOND
MOST_RECORDS = 10


class Step(NamedTuple):
    """A row of `partition_timeline`, in the order of its steps."""

    valid_from: int | None
    valid_to: int | None
    state: str | None
    leader: int | None
    leader_epoch: int | None
    partition_epoch: int | None
    isr: list[int] | None
    replicas: list[int] | None
    adding_replicas: list[int] | None
    removing_replicas: list[int] | None
    record_id: str | None

    @property
    def owed(self) -> list[int] | None:
        """The replicas that have to be in sync: one that a reassignment adds or removes need not. Null where the ISR shows that they are others now."""
        if not set(self.isr or ()).issubset(self.replicas or ()):
            return None
        moving = {*(self.adding_replicas or ()), *(self.removing_replicas or ())}
        return None if self.replicas is None else [broker for broker in dict.fromkeys(self.replicas) if broker not in moving]

    def lacks(self, brokers: Iterable[int]) -> bool:
        """Whether all of some brokers have to be in sync and none of them is."""
        some = set(brokers)
        return bool(some) and self.isr is not None and some.isdisjoint(self.isr) and some.issubset(self.owed or ())

    def is_followed_by(self, after: "Step") -> bool:
        """Whether nothing was in between, by the epochs: else nobody tells what it was.

        Where partition epochs are not told: an election adds nobody to an ISR, so one that grew with it had grown before.
        """
        if self.partition_epoch is None or after.partition_epoch is None:
            has_grown = bool(self.isr and after.isr) and set(self.isr or ()) < set(after.isr or ())
            if has_grown and (self.leader_epoch or 0) < (after.leader_epoch or 0):
                return False
        return _next_to(self.leader_epoch, after.leader_epoch, 2) and _next_to(self.partition_epoch, after.partition_epoch, 1)


def _next_to(epoch: int | None, after: int | None, most: int) -> bool:
    """One that falls is of another topic of that name: both begin at 0 when it is created, and grow (PartitionStateMachine, 0.8 to 3.9; KRaft)."""
    return epoch is None or after is None or epoch <= after <= epoch + most


class Spell(NamedTuple):
    """until: when it was over, or the last moment that the logs tell of it: its begin where epochs are missing, the last line of an incarnation that
    ended, the begin of an outage of all brokers or of the leader. is_begin_seen, is_end_seen: lines tell that it was not so before, that it was over
    then. returned (out_of_sync): the
    replica is in the next ISR that is known, and others had stayed in it. missing: the brokers that are blamed, at the begin.
    up (out_of_sync): the times of it, from and to, in which its broker was not down, as far as that is known.

    cause_broker (null: all of them), cause_since, cause_until, cause_how, cause_all_since: the outage that explains it, as in broker_outages; null:
    the logs name none; cause_end_seen: lines tell that it was over then. down_meanwhile: those of the missing that were down for a part of it.
    alive_at: where no outage explains it and all of the missing wrote within the spell, when one of them did. signs: these records.
    """

    kind: str
    replica: int | None
    since: int
    until: int
    ended: bool
    is_begin_seen: bool
    is_end_seen: bool
    leader: int | None
    isr: list[int] | None
    replicas: list[int] | None
    min_isr: int | None
    record_id: str | None
    evidence: list[str]
    returned: bool = False
    missing: list[int] | None = None
    alive_at: int | None = None
    up: list[tuple[int, int]] | None = None
    down_meanwhile: list[int] | None = None
    signs: list[str] | None = None
    cause_broker: int | None = None
    cause_since: int | None = None
    cause_until: int | None = None
    cause_end_seen: bool | None = None
    cause_how: str | None = None
    cause_all_since: int | None = None


@dataclass(frozen=True)
class Surroundings:
    """What the spells of one incarnation are judged by.

    now: the newest moment of the logs. topics_listed: when a controller told all topics that there are, in order of time. heard_until: the last
    line of an incarnation that ended. signs: broker -> (time, record) in order of time of lines of its own. written_until: node -> its last
    line (null: not known, nothing is cut). controller_heard: when controllers log leaders and ISRs (`facts.Heard`). quiet: for how long a node whose
    log goes on may write nothing.
    """

    now: int
    heard_until: int | None = None
    outages: Sequence[Outage] = ()
    signs: Mapping[int, Sequence[tuple[int, str]]] = field(default_factory=dict)
    topics_listed: Sequence[tuple[int, frozenset[str]]] = ()
    written_until: Mapping[int, int] | None = None
    controller_heard: Sequence[tuple[int, int, int]] = ()
    quiet: int = 0

    def logged_until(self, nodes: Iterable[int], since: int) -> tuple[int, int]:
        """Up to when logs of nodes, or of the controller in charge, would show that something has changed since a moment: (last line, with quiet)"""
        if self.written_until is None:
            return self.now, self.now
        lasts = [self.written_until[node] for node in nodes if node in self.written_until]
        ends = [(max(last, since), last + self.quiet) for last in lasts if since <= last + self.quiet]
        ends += [(until, quiet) for begun, until, quiet in self.controller_heard if begun <= since <= quiet]
        return max((until for until, _ in ends), default=since), max((quiet for _, quiet in ends), default=since)

    def newest_sign(self, broker: int, at: int) -> tuple[int, str] | None:
        """The newest one up to a moment."""
        signs = self.signs.get(broker, ())
        place = bisect_right(signs, at, key=lambda sign: sign[0])
        return signs[place - 1] if place else None


class Deletion(NamedTuple):
    """A deletion of the partition's topic. requested_at, completed_at: null: not known, not yet."""

    requested_at: int | None
    completed_at: int | None

    def explains(self, spell: Spell) -> bool:
        """Whether something is wrong because the topic goes. A deletion that waits may be told long after it took the leader away."""
        until = spell.until if spell.kind == LEADERLESS else spell.since + DELETION_TOLD_LATE
        begun = self.requested_at is None or self.requested_at <= until
        return begun and (self.completed_at is None or spell.since <= self.completed_at)


def spells(
    steps: Sequence[Step],
    around: Surroundings,
    *,
    topic: str = "",
    min_isr: int | None = None,
    deletions: Iterable[Deletion] = (),
) -> Iterator[Spell]:
    """The spells of one partition of one incarnation; those that a deletion explains are left out. min_isr: its min.insync.replicas."""
    gone_at = [at for at, topics in around.topics_listed if topic not in topics]
    told = [step for step in steps if step.leader is not None or step.isr is not None or step.state == "NonExistentPartition"]
    goes = list(deletions)
    for held in _held(told, min_isr, around):
        spell = _spell(told, held, around)
        if spell is None or any(one.explains(spell) for one in goes):
            continue
        if any(spell.since < at <= spell.until for at in gone_at):
            # the topic went in the meantime
            spell = spell._replace(until=max(spell.since, told[held.last].valid_from or 0), ended=True, is_end_seen=False)
        if spell.kind in _OF_MISSING:
            spell = _as_far_as_told(spell, told[held.last], around)
        spell = _as_far_as_logged(spell, told[held.last], around)
        explained = _with_cause(_cut(spell._replace(min_isr=min_isr), around), _missing_since(told, held, spell), around)
        yield _with_life(explained, around) if spell.kind in _OF_MISSING else explained


def _may_lead(leader: int | None, isr: Iterable[int] | None) -> set[int]:
    """Who leads: one of the ISR where a line names none, as a controller does not that prints what a leader made of it (KafkaController, 2.7 to 3.2)."""
    return set(isr or ()) if leader is None else {leader}


def _ends(outage: Outage, before: Step, after: Step) -> bool:
    """Whether the leader of a step, or all brokers, went in it."""
    if after.valid_from is None or not _silences(outage, _may_lead(before.leader, before.isr)):
        return False
    return (before.valid_from or 0) < outage.since < after.valid_from


def _silences(outage: Outage, leaders: Iterable[int]) -> bool:
    """Whether it is of one that may lead, or of all brokers: nobody is left who tells of the ISR."""
    return outage.broker is None or (outage.broker in leaders and outage.how != FIRST_START)


class _Held(NamedTuple):
    """A condition that held from one step to another; their numbers."""

    kind: str
    replica: int | None
    first: int
    last: int


def _conditions(step: Step, min_isr: int | None) -> list[tuple[str, int | None]]:
    """What is wrong: kind and, where it is about one, the replica."""
    if step.state == "NonExistentPartition":
        return []
    # null: there is one that tells of the ISR
    is_led = step.leader is None or step.leader >= 0
    owed, isr, replicas = step.owed, step.isr, step.replicas
    found: list[tuple[str, int | None]] = []
    if not is_led:
        found.append((LEADERLESS, None))
    elif isr is not None:
        if len(isr) == 1 and owed is not None and len(owed) > 1:
            found.append((LAST_IN_SYNC, isr[0]))
        if min_isr is not None and len(isr) < (min_isr if owed is None else min(min_isr, len(owed))):
            found.append((BELOW_MIN_ISR, None))
        if replicas and step.leader not in (None, replicas[0]) and replicas[0] in isr and len(owed or ()) == len(replicas):
            found.append((NOT_PREFERRED, replicas[0]))
    # without a leader there is nobody to follow
    return found + [(OUT_OF_SYNC, broker) for broker in owed or () if is_led and isr is not None and broker not in isr]


def _held(steps: Sequence[Step], min_isr: int | None, around: Surroundings) -> Iterator[_Held]:
    """Each time in which a condition held from step to step. One whose leader goes may hold again from the next step on."""
    begun: dict[tuple[str, int | None], int] = {}
    is_offline = False
    for n, step in enumerate(steps):
        is_elected = n > 0 and steps[n - 1].state == "OfflinePartition" and step.state == "OnlinePartition" and step.leader == -1
        # that its leader is another one now is told, but not which
        # a controller found its leader gone: up to the next election nobody leads who would know the ISR
        is_offline = step.state == "OfflinePartition" and (
            n == 0
            or (steps[n - 1].leader_epoch == step.leader_epoch and (is_offline or steps[n - 1].state != "OfflinePartition"))
        )
        conditions = [] if is_elected or (is_offline and step.leader != -1) else _conditions(step, min_isr)
        goes_on = n > 0 and steps[n - 1].is_followed_by(step)
        lost = bool(begun) and any(_ends(outage, steps[n - 1], step) for outage in around.outages)
        for key in [key for key in begun if not goes_on or key not in conditions or (lost and key[0] in _OF_LEADER)]:
            yield _Held(*key, begun.pop(key), n - 1)
        for key in conditions:
            begun.setdefault(key, n)
    for key, first in begun.items():
        yield _Held(*key, first, len(steps) - 1)


def _spell(steps: Sequence[Step], held: _Held, around: Surroundings) -> Spell | None:
    """What steps say of it; null where they do not say when it began."""
    first, last = steps[held.first], steps[held.last]
    if first.valid_from is None:
        return None
    after = steps[held.last + 1] if held.last + 1 < len(steps) else None
    is_gap = after is not None and not last.is_followed_by(after)
    until = last.valid_from if is_gap else last.valid_to
    is_end_seen = not is_gap and until is not None
    if is_end_seen and until is not None and around.heard_until is not None and until > around.heard_until:
        until, is_end_seen = max(around.heard_until, last.valid_from or 0), False
    owed, stayed = first.owed or [], first.isr or []
    missing: list[int] | None = [broker for broker in owed if broker not in stayed]
    if held.kind == LEADERLESS:
        missing = first.isr or (steps[held.first - 1].isr if held.first else None) or first.replicas
    elif held.replica is not None and held.kind != LAST_IN_SYNC:
        missing = [held.replica]
    before = steps[held.first - 1] if held.first else None
    was_missing = held.kind in _OF_MISSING and before is not None and before.lacks(missing or ())
    is_next = after is not None and not is_gap and held.replica in (after.isr or ())
    records = dict.fromkeys(step.record_id for step in steps[held.first : held.last + 1] if step.record_id)
    return Spell(
        kind=held.kind,
        replica=held.replica,
        since=first.valid_from,
        until=around.now if until is None else max(until, first.valid_from),
        ended=until is not None,
        is_begin_seen=_was_something_before(steps, held.first) and not was_missing,
        is_end_seen=is_end_seen,
        leader=last.leader,
        isr=last.isr,
        replicas=last.replicas,
        min_isr=None,
        record_id=first.record_id,
        evidence=list(records)[:MOST_RECORDS],
        returned=is_next and (len(stayed) > 1 or len(owed) == 2),
        missing=missing,
    )


def _was_something_before(steps: Sequence[Step], at: int) -> bool:
    """Whether it is known what was in the time right before a step.

    What a broker prints when it starts has been so for a while; that something else had been so before is told by epochs alone, at no time.
    """
    n = at
    while n and steps[n - 1].is_followed_by(steps[n]):
        n -= 1
        if steps[n].valid_from != steps[at].valid_from:
            return True
    return False


def _cut(spell: Spell, around: Surroundings) -> Spell:
    """It, up to the moment at which nobody is left who would know."""
    if spell.kind == LEADERLESS:
        return spell
    leaders = _may_lead(spell.leader, spell.isr) if spell.kind in _OF_LEADER else set()
    if leaders and all(any(_is_down(outage, leader, spell.since) for outage in around.outages) for leader in leaders):
        return spell._replace(until=spell.since, ended=True, is_end_seen=False)
    ends = [outage.since for outage in around.outages if spell.since < outage.since < spell.until and _silences(outage, leaders)]
    return spell._replace(until=min(ends), ended=True, is_end_seen=False) if ends else spell


def _as_far_as_logged(spell: Spell, last: Step, around: Surroundings) -> Spell:
    """One without an end, up to where the logs end that would show one: every replica is sent the next leader, the leader writes the ISR."""
    if spell.ended:
        return spell
    nodes = {*(last.replicas or ()), *(last.isr or ())}
    if spell.kind in _OF_MISSING and last.leader is not None:
        nodes = {last.leader}
    told_at = last.valid_from or spell.since
    until, with_quiet = around.logged_until(nodes, told_at)
    return spell if spell.until <= with_quiet else spell._replace(until=max(told_at, until), ended=True, is_end_seen=False)


def _as_far_as_told(spell: Spell, last: Step, around: Surroundings) -> Spell:
    """It, up to when lines tell it where they do not count changes of the ISR, and no row tells its end: it may have grown since its last row.

    While all that are missing are down it does not grow. Lists of a controller (0.8 to 1.0) name the leader epoch and no version of the znode.
    """
    if last.partition_epoch is not None or spell.is_end_seen:
        return spell
    told_at = last.valid_from or spell.since
    downs = [
        [_down_until(outage, around.now) for outage in around.outages if _covers(outage, broker, told_at)]
        for broker in spell.missing or ()
    ]
    until = max(told_at, min((max(ends, default=told_at) for ends in downs), default=told_at))
    return spell if spell.until <= until else spell._replace(until=until, ended=True, is_end_seen=False)


def _covers(outage: Outage, broker: int, at: int) -> bool:
    """Whether a broker was down at a moment, lines that come late included."""
    return outage.broker == broker and outage.since <= at + SESSION_ENDS_LATE and (outage.until is None or outage.until > at)


def _down_until(outage: Outage, now: int) -> int:
    """Up to when lines show that a broker was down."""
    return now if outage.until is None else outage.down_until or outage.since


def _is_down(outage: Outage, broker: int | None, at: int) -> bool:
    """Whether lines show that a broker was gone at a moment, and not only about to come or to go."""
    if outage.broker != broker or outage.how == FIRST_START:
        return False
    return outage.since + TOLD_LATE < at and (outage.down_until is None or at + FOLLOWS_LATE < outage.down_until)


def _missing_since(steps: Sequence[Step], held: _Held, spell: Spell) -> int:
    """Since when those that it blames are missing: the versions of the ISR may tell that it lacked them while nobody led, and before."""
    n = held.first
    while (
        spell.kind in _OF_MISSING
        and n > 0
        and steps[n - 1].lacks(spell.missing or ())
        and None not in (steps[n - 1].partition_epoch, steps[n].partition_epoch)
        and steps[n - 1].is_followed_by(steps[n])
    ):
        n -= 1
    return min(spell.since, steps[n].valid_from or spell.since)


def _with_cause(spell: Spell, missing_since: int, around: Surroundings) -> Spell:
    """It, with the last of the brokers that went, lines that come late included; else one whose session ended soon afterwards."""
    found = [outage for outage in around.outages if _explains(outage, spell, missing_since)]
    if not found:
        return spell
    cause = max(
        found,
        key=lambda o: (
            o.broker is not None,
            o.since <= spell.since + TOLD_LATE,
            -abs(o.since - spell.since),
            -1 if o.broker is None else o.broker,
        ),
    )
    return spell._replace(
        cause_broker=cause.broker,
        cause_since=cause.since,
        cause_until=cause.until,
        cause_end_seen=cause.is_end_seen,
        cause_how=cause.how,
        cause_all_since=cause.all_since,
    )


def _explains(outage: Outage, spell: Spell, missing_since: int) -> bool:
    if outage.until is not None and outage.until + FOLLOWS_LATE < spell.since:
        return False
    if outage.broker is None:
        # a cluster that is shut down loses its leaders first
        return spell.kind == LEADERLESS and outage.since <= min(spell.until, spell.since + GOES_FIRST)
    late = SESSION_ENDS_LATE if outage.how in (CRASHED, SESSION_LOST, ABSENT_AT_START) else TOLD_LATE
    # an ISR that was short long before a broker went is so for another reason; one that stops asks the controller first, up to three
    # times, five seconds apart (KafkaServer.controlledShutdown, 0.8 to 3.9)
    if _is_begin_known(outage) and outage.since > missing_since + SESSION_ENDS_LATE:
        return False
    return outage.broker in (spell.missing or ()) and outage.since <= spell.since + late


def _is_begin_known(outage: Outage) -> bool:
    """Whether lines tell when it began, and not only that it had: a start, or a list that a broker is missing from."""
    return outage.how == SESSION_LOST or (outage.how == SHUT_DOWN and outage.starting_at != outage.since)


def _with_life(spell: Spell, around: Surroundings) -> Spell:
    """It, with what is known of the life of the brokers that were missing."""
    missing = spell.missing or []
    down = [
        outage
        for outage in around.outages
        if outage.broker in missing
        and outage.how != FIRST_START
        # what goes at its end has nothing to do with it
        and (outage.since + TOLD_LATE < spell.until or outage.since <= spell.since)
        and (outage.until is None or outage.until > spell.since)
    ]
    records = sorted({outage.evidence[0] for outage in down if outage.evidence})
    told = spell._replace(
        up=list(_up(spell, down, around)) if spell.kind == OUT_OF_SYNC else None,
        down_meanwhile=sorted({outage.broker for outage in down if outage.broker is not None}) if down else None,
        signs=records,
    )
    if spell.cause_since is not None:
        return told
    newest = [around.newest_sign(broker, spell.until) for broker in missing]
    wrote = [sign for sign in newest if sign is not None and sign[0] >= spell.since]
    if not wrote or len(wrote) < len(missing):
        return told
    return told._replace(
        alive_at=min(at for at, _ in wrote), signs=list(dict.fromkeys(record for _, record in sorted(wrote))) + records
    )


def _up(spell: Spell, down: Iterable[Outage], around: Surroundings) -> Iterator[tuple[int, int]]:
    """The times of a spell of one replica outside of the outages of its broker, and of the one that explains it: that may be told late."""
    explained_until = spell.since if spell.cause_since is None else spell.cause_until
    begun = None if explained_until is None else max(spell.since, explained_until)
    for outage in sorted(down, key=lambda outage: outage.since):
        if begun is None:
            return
        went = _up_until(outage, begun, around)
        if went is not None and went > begun:
            yield begun, went
        begun = None if outage.until is None else max(begun, outage.until)
    if begun is not None and begun < spell.until:
        yield begun, spell.until


def _up_until(outage: Outage, since: int, around: Surroundings) -> int | None:
    """Up to when a broker that served at a moment lived before an outage: where its end went unnoticed, up to its last own line; null: nobody tells."""
    if _is_begin_known(outage):
        return outage.since
    sign = None if outage.broker is None else around.newest_sign(outage.broker, outage.since - 1)
    return sign[0] if sign is not None and sign[0] >= since else None
