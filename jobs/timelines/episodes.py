"""Find the episodes in which something was wrong with a partition, and the outages that explain them.

Times are microseconds.
"""

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
# these are about brokers that are missing from the ISR
_OF_MISSING = frozenset({OUT_OF_SYNC, LAST_IN_SYNC, BELOW_MIN_ISR})
# these end when nobody is left who knows the ISR of the leader
_OF_LEADER = frozenset({OUT_OF_SYNC, LAST_IN_SYNC})

SECOND = 1_000_000
# an outage may be logged this long after its first consequence; longer if the end of a session shows it
LOGGED_LATE, SESSION_ENDS_LATE = 2 * SECOND, 30 * SECOND
# a consequence of an outage may be logged this long after the outage
FOLLOWS_LATE = 5 * SECOND
# a cluster that is shut down may lose leaders this long before its last broker
LEADERS_LOST_EARLIER = 10 * SECOND
# a deletion may be logged this long after its first consequence
DELETION_LOGGED_LATE = 10 * SECOND
MOST_RECORDS = 10


class TimelineStep(NamedTuple):
    """A row of `partition_timeline`. Its order is that of the steps."""

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
        """Return the replicas that have to be in sync: without those that a reassignment adds or removes.

        None where the ISR shows that the replicas are others by now.
        """
        if not set(self.isr or ()).issubset(self.replicas or ()):
            return None
        moving = {*(self.adding_replicas or ()), *(self.removing_replicas or ())}
        return (
            None
            if self.replicas is None
            else [broker for broker in dict.fromkeys(self.replicas) if broker not in moving]
        )

    def lacks(self, brokers: Iterable[int]) -> bool:
        """Return whether all of these brokers have to be in sync and none of them is."""
        some = set(brokers)
        return (
            bool(some)
            and self.isr is not None
            and some.isdisjoint(self.isr)
            and some.issubset(self.owed or ())
        )

    def is_followed_by(self, after: "TimelineStep") -> bool:
        """Return whether the epochs show that no step between these two is missing.

        Without partition epochs: an election adds nobody to an ISR, so an ISR that grew with an election had
        grown before.
        """
        if self.partition_epoch is None or after.partition_epoch is None:
            has_grown = bool(self.isr and after.isr) and set(self.isr or ()) < set(after.isr or ())
            if has_grown and (self.leader_epoch or 0) < (after.leader_epoch or 0):
                return False
        return _next_to(self.leader_epoch, after.leader_epoch, 2) and _next_to(
            self.partition_epoch, after.partition_epoch, 1
        )


def _next_to(epoch: int | None, after: int | None, most: int) -> bool:
    """Return whether an epoch follows another one, at most `most` later.

    Epochs begin at 0 with a topic and grow (PartitionStateMachine, 0.8 to 3.9; KRaft): a smaller one is of
    another topic of that name.
    """
    return epoch is None or after is None or epoch <= after <= epoch + most


class Episode(NamedTuple):
    """A time in which one thing was wrong with a partition.

    until: when it was over, or the last moment that the logs show it: its begin where epochs are missing, the
    last line of an incarnation that ended, the begin of an outage of all brokers or of the leader.
    is_begin_seen, is_end_seen: lines show that it was not so before, that it was over then. returned
    (out_of_sync): the replica is in the next known ISR, and others had stayed in it. missing: brokers that
    caused it. up (out_of_sync): the times within it, from and to, in which its broker is not known to be
    down.

    cause_broker (null: all brokers), cause_since, cause_until, cause_how, cause_all_since: the outage that
    explains it, as in broker_outages; null: the logs show none; cause_end_seen: lines show the end of the
    outage. down_meanwhile: missing brokers that were down for a part of it.
    alive_at: set if no outage explains the episode and all missing brokers wrote within it: when the first of
    their last lines was written.
    signs: the records that show this.
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
    """The facts of one incarnation besides the steps of its partitions.

    now: the newest moment of the logs. topics_listed: all topics that a controller listed, in order of time.
    heard_until: the last line of an incarnation that ended. own_lines: broker -> (time, record) of its own
    lines, in order of time. written_until: node -> its last line (None: unknown, no episode is cut).
    controller_heard: when controllers log leaders and ISRs (`facts.Heard`). quiet: how long a running node
    may write nothing. removed: (topic, partition) -> (time, node) of replicas whose files were set aside for
    deletion.
    """

    now: int
    heard_until: int | None = None
    outages: Sequence[Outage] = ()
    own_lines: Mapping[int, Sequence[tuple[int, str]]] = field(default_factory=dict)
    topics_listed: Sequence[tuple[int, frozenset[str]]] = ()
    written_until: Mapping[int, int] | None = None
    controller_heard: Sequence[tuple[int, int, int]] = ()
    quiet: int = 0
    removed: Mapping[tuple[str, int], Sequence[tuple[int, int]]] = field(default_factory=dict)

    def logged_until(self, nodes: Iterable[int], since: int) -> tuple[int, int]:
        """Return up to when the logs of nodes or of the active controller would show a change.

        out: (their last line, that plus `quiet`).
        """
        if self.written_until is None:
            return self.now, self.now
        lasts = [self.written_until[node] for node in nodes if node in self.written_until]
        ends = [(max(last, since), last + self.quiet) for last in lasts if since <= last + self.quiet]
        ends += [(until, quiet) for begun, until, quiet in self.controller_heard if begun <= since <= quiet]
        return max((until for until, _ in ends), default=since), max(
            (quiet for _, quiet in ends), default=since
        )

    def newest_own_line(self, broker: int, at: int) -> tuple[int, str] | None:
        """Return the newest line of a broker up to a moment."""
        lines = self.own_lines.get(broker, ())
        place = bisect_right(lines, at, key=lambda line: line[0])
        return lines[place - 1] if place else None


class DeletionTimes(NamedTuple):
    """A deletion of the partition's topic. requested_at: null: unknown; completed_at: null: not yet."""

    requested_at: int | None
    completed_at: int | None

    def explains(self, episode: Episode) -> bool:
        """Return whether the deletion explains an episode.

        A waiting deletion may be logged long after it has removed the leader.
        """
        until = episode.until if episode.kind == LEADERLESS else episode.since + DELETION_LOGGED_LATE
        begun = self.requested_at is None or self.requested_at <= until
        return begun and (self.completed_at is None or episode.since <= self.completed_at)


def episodes(
    steps: Sequence[TimelineStep],
    around: Surroundings,
    *,
    topic: str = "",
    partition: int = 0,
    min_isr: int | None = None,
    deletions: Iterable[DeletionTimes] = (),
) -> Iterator[Episode]:
    """Yield the episodes of one partition of one incarnation that no deletion explains.

    min_isr: its min.insync.replicas.
    """
    unlisted_at = [at for at, topics in around.topics_listed if topic not in topics]
    shown = [
        step
        for step in steps
        if step.leader is not None or step.isr is not None or step.state == "NonExistentPartition"
    ]
    known_deletions = list(deletions)
    for span in _step_spans(shown, min_isr, around):
        episode = _episode(shown, span, around)
        if episode is None or any(one.explains(episode) for one in known_deletions):
            continue
        if any(episode.since < at <= episode.until for at in unlisted_at):
            # the topic was deleted in the meantime
            episode = episode._replace(
                until=max(episode.since, shown[span.last].valid_from or 0), ended=True, is_end_seen=False
            )
        removed_at = [
            at
            for at, node in around.removed.get((topic, partition), ())
            if episode.since < at <= episode.until and node in {*(episode.isr or ()), episode.leader}
        ]
        if removed_at:
            # a replica in sync is removed with its partition only
            episode = episode._replace(until=min(removed_at), ended=True, is_end_seen=False)
        if episode.kind in _OF_MISSING:
            episode = _until_last_row(episode, shown[span.last], around)
        episode = _until_logs_end(episode, shown[span.last], around)
        explained = _with_cause(
            _cut(episode._replace(min_isr=min_isr), around), _missing_since(shown, span, episode), around
        )
        yield _with_liveness(explained, around) if episode.kind in _OF_MISSING else explained


def _may_lead(leader: int | None, isr: Iterable[int] | None) -> set[int]:
    """Return the possible leaders: all of the ISR where a line does not name the leader.

    A controller that prints the ISR that a leader has written does not name it (KafkaController, 2.7 to 3.2).
    """
    return set(isr or ()) if leader is None else {leader}


def _ends(outage: Outage, before: TimelineStep, after: TimelineStep) -> bool:
    """Return whether an outage of the leader of a step, or of all brokers, began during the step."""
    if after.valid_from is None or not _silences(outage, _may_lead(before.leader, before.isr)):
        return False
    return (before.valid_from or 0) < outage.since < after.valid_from


def _silences(outage: Outage, leaders: Iterable[int]) -> bool:
    """Return whether nobody is left who logs the ISR: a possible leader is down, or all brokers."""
    return outage.broker is None or (outage.broker in leaders and outage.how != FIRST_START)


class _StepSpan(NamedTuple):
    """A condition, and the numbers of the first and the last step in which it was true."""

    kind: str
    replica: int | None
    first: int
    last: int


def _conditions(step: TimelineStep, min_isr: int | None) -> list[tuple[str, int | None]]:
    """Return what is wrong in a step: kind, and the replica if it is about one."""
    if step.state == "NonExistentPartition":
        return []
    # null: there is a leader, who logs the ISR
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
        if (
            replicas
            and step.leader not in (None, replicas[0])
            and replicas[0] in isr
            and len(owed or ()) == len(replicas)
        ):
            found.append((NOT_PREFERRED, replicas[0]))
    # without a leader there is nobody to follow
    return found + [
        (OUT_OF_SYNC, broker) for broker in owed or () if is_led and isr is not None and broker not in isr
    ]


def _step_spans(
    steps: Sequence[TimelineStep], min_isr: int | None, around: Surroundings
) -> Iterator[_StepSpan]:
    """Yield each condition with the steps in which it was true.

    If its leader is lost, it begins again with the next step.
    """
    begun: dict[tuple[str, int | None], int] = {}
    is_offline = False
    for n, step in enumerate(steps):
        # the log shows that a leader was elected, but not which
        is_elected = (
            n > 0
            and steps[n - 1].state == "OfflinePartition"
            and step.state == "OnlinePartition"
            and step.leader == -1
        )
        # a controller found the leader missing: up to the next election nobody leads who would know the ISR
        is_offline = step.state == "OfflinePartition" and (
            n == 0
            or (
                steps[n - 1].leader_epoch == step.leader_epoch
                and (is_offline or steps[n - 1].state != "OfflinePartition")
            )
        )
        conditions = [] if is_elected or (is_offline and step.leader != -1) else _conditions(step, min_isr)
        continues = n > 0 and steps[n - 1].is_followed_by(step)
        lost = bool(begun) and any(_ends(outage, steps[n - 1], step) for outage in around.outages)
        for key in [
            key for key in begun if not continues or key not in conditions or (lost and key[0] in _OF_LEADER)
        ]:
            yield _StepSpan(*key, begun.pop(key), n - 1)
        for key in conditions:
            begun.setdefault(key, n)
    for key, first in begun.items():
        yield _StepSpan(*key, first, len(steps) - 1)


def _episode(steps: Sequence[TimelineStep], span: _StepSpan, around: Surroundings) -> Episode | None:
    """Return the episode of a condition; None if the steps do not show when it began."""
    first, last = steps[span.first], steps[span.last]
    if first.valid_from is None:
        return None
    after = steps[span.last + 1] if span.last + 1 < len(steps) else None
    is_gap = after is not None and not last.is_followed_by(after)
    until = last.valid_from if is_gap else last.valid_to
    is_end_seen = not is_gap and until is not None
    if is_end_seen and until is not None and around.heard_until is not None and until > around.heard_until:
        until, is_end_seen = max(around.heard_until, last.valid_from or 0), False
    owed, stayed = first.owed or [], first.isr or []
    missing: list[int] | None = [broker for broker in owed if broker not in stayed]
    if span.kind == LEADERLESS:
        missing = first.isr or (steps[span.first - 1].isr if span.first else None) or first.replicas
    elif span.replica is not None and span.kind != LAST_IN_SYNC:
        missing = [span.replica]
    before = steps[span.first - 1] if span.first else None
    was_missing = span.kind in _OF_MISSING and before is not None and before.lacks(missing or ())
    is_next = after is not None and not is_gap and span.replica in (after.isr or ())
    records = dict.fromkeys(step.record_id for step in steps[span.first : span.last + 1] if step.record_id)
    return Episode(
        kind=span.kind,
        replica=span.replica,
        since=first.valid_from,
        until=around.now if until is None else max(until, first.valid_from),
        ended=until is not None,
        is_begin_seen=_was_something_before(steps, span.first) and not was_missing,
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


def _was_something_before(steps: Sequence[TimelineStep], at: int) -> bool:
    """Return whether another state is known for the time right before a step.

    What a starting broker prints was true before. That another state preceded it follows from epochs only,
    without a time.
    """
    n = at
    while n and steps[n - 1].is_followed_by(steps[n]):
        n -= 1
        if steps[n].valid_from != steps[at].valid_from:
            return True
    return False


def _cut(episode: Episode, around: Surroundings) -> Episode:
    """Return the episode up to the moment from which nobody is left who would know of it."""
    if episode.kind == LEADERLESS:
        return episode
    leaders = _may_lead(episode.leader, episode.isr) if episode.kind in _OF_LEADER else set()
    if leaders and all(
        any(_is_down(outage, leader, episode.since) for outage in around.outages) for leader in leaders
    ):
        return episode._replace(until=episode.since, ended=True, is_end_seen=False)
    ends = [
        outage.since
        for outage in around.outages
        if episode.since < outage.since < episode.until and _silences(outage, leaders)
    ]
    return episode._replace(until=min(ends), ended=True, is_end_seen=False) if ends else episode


def _until_logs_end(episode: Episode, last: TimelineStep, around: Surroundings) -> Episode:
    """Return an episode without an end up to where the logs end that would show the end.

    Every replica is sent the next leader; the leader writes the ISR.
    """
    if episode.ended:
        return episode
    nodes = {*(last.replicas or ()), *(last.isr or ())}
    if episode.kind in _OF_MISSING and last.leader is not None:
        nodes = {last.leader}
    last_row_at = last.valid_from or episode.since
    until, with_quiet = around.logged_until(nodes, last_row_at)
    return (
        episode
        if episode.until <= with_quiet
        else episode._replace(until=max(last_row_at, until), ended=True, is_end_seen=False)
    )


def _until_last_row(episode: Episode, last: TimelineStep, around: Surroundings) -> Episode:
    """Return the episode up to its last row if that has no partition epoch and no end is shown.

    The ISR may have grown since. The ISR does not grow while all missing brokers are down. Lists of a
    controller (0.8 to 1.0) name the leader epoch and no partition epoch.
    """
    if last.partition_epoch is not None or episode.is_end_seen:
        return episode
    last_row_at = last.valid_from or episode.since
    downs = [
        [_down_until(outage, around.now) for outage in around.outages if _covers(outage, broker, last_row_at)]
        for broker in episode.missing or ()
    ]
    until = max(last_row_at, min((max(ends, default=last_row_at) for ends in downs), default=last_row_at))
    return episode if episode.until <= until else episode._replace(until=until, ended=True, is_end_seen=False)


def _covers(outage: Outage, broker: int, at: int) -> bool:
    """Return whether a broker was down at a moment, counting outages that are logged late."""
    return (
        outage.broker == broker
        and outage.since <= at + SESSION_ENDS_LATE
        and (outage.until is None or outage.until > at)
    )


def _down_until(outage: Outage, now: int) -> int:
    """Return up to when lines show that a broker was down."""
    return now if outage.until is None else outage.down_until or outage.since


def _is_down(outage: Outage, broker: int | None, at: int) -> bool:
    """Return whether a broker was down at a moment that is well within the outage."""
    if outage.broker != broker or outage.how == FIRST_START:
        return False
    return outage.since + LOGGED_LATE < at and (
        outage.down_until is None or at + FOLLOWS_LATE < outage.down_until
    )


def _missing_since(steps: Sequence[TimelineStep], span: _StepSpan, episode: Episode) -> int:
    """Return since when the missing brokers are missing.

    The ISR may have lacked them while nobody led, and before.
    """
    n = span.first
    while (
        episode.kind in _OF_MISSING
        and n > 0
        and steps[n - 1].lacks(episode.missing or ())
        and None not in (steps[n - 1].partition_epoch, steps[n].partition_epoch)
        and steps[n - 1].is_followed_by(steps[n])
    ):
        n -= 1
    return min(episode.since, steps[n].valid_from or episode.since)


def _with_cause(episode: Episode, missing_since: int, around: Surroundings) -> Episode:
    """Return the episode with its cause: the last outage before it, or one noticed soon afterwards."""
    found = [outage for outage in around.outages if _explains(outage, episode, missing_since)]
    if not found:
        return episode
    cause = max(
        found,
        key=lambda o: (
            o.broker is not None,
            o.since <= episode.since + LOGGED_LATE,
            -abs(o.since - episode.since),
            -1 if o.broker is None else o.broker,
        ),
    )
    return episode._replace(
        cause_broker=cause.broker,
        cause_since=cause.since,
        cause_until=cause.until,
        cause_end_seen=cause.is_end_seen,
        cause_how=cause.how,
        cause_all_since=cause.all_since,
    )


def _explains(outage: Outage, episode: Episode, missing_since: int) -> bool:
    if outage.until is not None and outage.until + FOLLOWS_LATE < episode.since:
        return False
    if outage.broker is None:
        # a cluster that is shut down loses its leaders first
        return episode.kind == LEADERLESS and outage.since <= min(
            episode.until, episode.since + LEADERS_LOST_EARLIER
        )
    late = SESSION_ENDS_LATE if outage.how in (CRASHED, SESSION_LOST, ABSENT_AT_START) else LOGGED_LATE
    # an ISR that lacked the broker long before its outage has another cause; a broker that stops first asks
    # the controller, up to three times, five seconds apart (KafkaServer.controlledShutdown, 0.8 to 3.9)
    if _is_begin_known(outage) and outage.since > missing_since + SESSION_ENDS_LATE:
        return False
    return outage.broker in (episode.missing or ()) and outage.since <= episode.since + late


def _is_begin_known(outage: Outage) -> bool:
    """Return whether lines show when an outage began.

    A later start, or a list without the broker, shows only that it had begun.
    """
    return outage.how == SESSION_LOST or (outage.how == SHUT_DOWN and outage.starting_at != outage.since)


def _with_liveness(episode: Episode, around: Surroundings) -> Episode:
    """Return the episode with what lines show of whether the missing brokers were alive."""
    missing = episode.missing or []
    down = [
        outage
        for outage in around.outages
        if outage.broker in missing
        and outage.how != FIRST_START
        # an outage that begins at the end of the episode is no cause
        and (outage.since + LOGGED_LATE < episode.until or outage.since <= episode.since)
        and (outage.until is None or outage.until > episode.since)
    ]
    records = sorted({outage.evidence[0] for outage in down if outage.evidence})
    described = episode._replace(
        up=list(_up(episode, down, around)) if episode.kind == OUT_OF_SYNC else None,
        down_meanwhile=sorted({outage.broker for outage in down if outage.broker is not None})
        if down
        else None,
        signs=records,
    )
    if episode.cause_since is not None:
        return described
    newest = [around.newest_own_line(broker, episode.until) for broker in missing]
    lines = [line for line in newest if line is not None and line[0] >= episode.since]
    if not lines or len(lines) < len(missing):
        return described
    return described._replace(
        alive_at=min(at for at, _ in lines),
        signs=list(dict.fromkeys(record for _, record in sorted(lines))) + records,
    )


def _up(episode: Episode, down: Iterable[Outage], around: Surroundings) -> Iterator[tuple[int, int]]:
    """Yield the times of an episode of one replica outside the outages of its broker.

    The outage that explains it counts, too.
    """
    explained_until = episode.since if episode.cause_since is None else episode.cause_until
    begun = None if explained_until is None else max(episode.since, explained_until)
    for outage in sorted(down, key=lambda outage: outage.since):
        if begun is None:
            return
        up_until = _up_until(outage, begun, around)
        if up_until is not None and up_until > begun:
            yield begun, up_until
        begun = None if outage.until is None else max(begun, outage.until)
    if begun is not None and begun < episode.until:
        yield begun, episode.until


def _up_until(outage: Outage, since: int, around: Surroundings) -> int | None:
    """Return up to when a broker was up before an outage.

    If the begin is not logged, up to its last own line; None: unknown.
    """
    if _is_begin_known(outage):
        return outage.since
    line = None if outage.broker is None else around.newest_own_line(outage.broker, outage.since - 1)
    return line[0] if line is not None and line[0] >= since else None
