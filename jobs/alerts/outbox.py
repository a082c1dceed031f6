"""Which findings each sink must be told of, and in which messages. Pure: findings and what was sent before, in; messages out.

A finding is `firing` until it is resolved. Each (fingerprint, sink, state, occurrence) is delivered once; an occurrence ends when the
finding is resolved, and the next begins when it is reopened.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs import ranking
from jobs.alerts.sink import Sink
from jobs.globs import matches
from schemas import SEVERITIES

FIRING, RESOLVED = "firing", "resolved"
# what a digest is called where a finding is called by its check
DIGEST = "findings_digest"
# a finding that was over before anybody was told of it is news for so long
NEWS_HOURS = 24
EPOCH = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Finding:
    """A row of `findings`, as far as alerts need it; times are UTC with a zone, or None."""

    cluster: str
    fingerprint: str
    check_id: str
    severity: str
    status: str
    title: str
    detail: str | None = None
    advice: str | None = None
    topic: str | None = None
    partition: int | None = None
    replica: int | None = None
    node: int | None = None
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    silenced: bool = False
    evidence: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether it is resolved."""
        return self.status == "resolved"


@dataclass(frozen=True)
class Sent:
    """A row of `alerts`: what was sent, or tried to, about one finding to one sink; times are UTC with a zone.

    digest: the key of the digest that told of it; None: it had a message of its own.
    labels: Alertmanager's, as JSON: it resolves under the same ones only.
    """

    cluster: str
    fingerprint: str
    sink: str
    state: str
    occurrence: int
    tried_at: datetime
    attempts: int = 1
    delivered_at: datetime | None = None
    error: str | None = None
    digest: str | None = None
    labels: str | None = None

    @property
    def identity(self) -> tuple[str, str, str, str, int]:
        """What tells a row from all others."""
        return self.cluster, self.fingerprint, self.sink, self.state, self.occurrence


@dataclass(frozen=True)
class Due:
    """A sink must be told that a finding is in a state.

    tried: the row of it so far. fired: how the sink came to know the incident that is resolved now, or told once more.
    """

    finding: Finding
    state: str
    occurrence: int
    tried: Sent | None = None
    fired: Sent | None = None


@dataclass(frozen=True)
class Message:
    """What a sink is sent in one piece: one finding, or a digest of many. key: the same for the same thing, however often it is sent."""

    sink: Sink
    cluster: str
    state: str
    key: str
    items: tuple[Due, ...]
    digest: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that it is about, the worst first, each once."""
        found = {item.finding.fingerprint: item.finding for item in self.items}
        return tuple(sorted(found.values(), key=worst_first))


def worst_first(finding: Finding) -> tuple[ranking.Rank, bool, datetime, str, str]:
    """Sort key: the order of all lists, except that a resolved finding counts as what it was."""
    rank = ranking.rank(severity=finding.severity, check_id=finding.check_id, is_over=False)
    return rank, *ranking.by_time(finding.first_seen), finding.title, finding.fingerprint


def routed(sink: Sink, finding: Finding) -> bool:
    """Whether the sink is told of such findings."""
    return (
        SEVERITIES.index(finding.severity) >= SEVERITIES.index(sink.severity)
        and matches(sink.checks, finding.check_id)
        and matches(sink.clusters, finding.cluster)
    )


def due(
    sink: Sink,
    findings: Iterable[Finding],
    sent: Iterable[Sent],
    *,
    now: datetime,
    newest: Mapping[str, datetime],
    again: bool = False,
) -> list[Due]:
    """What a sink must be told of, in order: what could not be delivered before, then what fires, then what is over; the worst first.

    sent: all rows of the sink. now: of this machine. newest: cluster -> the newest moment of its logs. again: what is firing is told
    once more (of a sink that has lost it).
    """
    history: dict[tuple[str, str], list[Sent]] = defaultdict(list)
    for row in sent:
        if row.sink == sink.name:
            history[row.cluster, row.fingerprint].append(row)
    found = []
    for finding in findings:
        rows = sorted(history[finding.cluster, finding.fingerprint], key=lambda row: (row.occurrence, row.state == RESOLVED))
        wanted = routed(sink, finding) and not finding.silenced
        if not rows:
            news = newest.get(finding.cluster, now) - timedelta(hours=NEWS_HOURS)
            if wanted and not finding.is_over:
                found.append(Due(finding, FIRING, 1))
            elif wanted and sink.ended and finding.last_seen is not None and finding.last_seen >= news:
                found.append(Due(finding, RESOLVED, 1))
        else:
            found += _next(sink, finding, rows, wanted=wanted, now=now, again=again)
    return sorted(found, key=_order)


def _next(sink: Sink, finding: Finding, rows: Sequence[Sent], *, wanted: bool, now: datetime, again: bool) -> list[Due]:
    """What follows on what a sink was told of a finding so far: what is not delivered, and what has changed since."""
    last = rows[-1]
    fired = next((row for row in reversed(rows) if row.state == FIRING and row.delivered_at), None)
    found = [
        Due(finding, row.state, row.occurrence, row, fired if row.state == RESOLVED else None)
        for row in rows
        if row.delivered_at is None and (wanted or (row.state == RESOLVED and fired))
    ]
    if last.state == RESOLVED:
        return [*found, Due(finding, FIRING, last.occurrence + 1)] if wanted and not finding.is_over else found
    if finding.is_over and (found or last.delivered_at is not None):
        found.append(Due(finding, RESOLVED, last.occurrence, None, fired))
    elif (
        last.delivered_at is not None
        and not finding.is_over
        and sink.holds_incidents
        and (again or sink.must_be_repeated(last.delivered_at, now))
    ):
        found.append(Due(finding, FIRING, last.occurrence, last, last))
    return found


def _order(item: Due) -> tuple[Any, ...]:
    """A finding that fires and is over at once is told in this order."""
    waiting = item.tried is not None and item.tried.delivered_at is None
    tried_at = item.tried.tried_at if waiting and item.tried else EPOCH
    return not waiting, tried_at, item.state == RESOLVED, worst_first(item.finding), item.occurrence > 1


def messages(sink: Sink, items: Sequence[Due], findings: Iterable[Finding], sent: Iterable[Sent]) -> list[Message]:
    """The messages that tell a sink what is due, in order.

    More findings of a cluster than the sink's limit make one digest. An incident that a digest opened is resolved when all that it
    told of is over.
    """
    if sink.holds_incidents:
        firing = [item for item in items if item.state == FIRING]
        opened = _grouped(sink, [item for item in firing if not item.fired])
        once_more = _under_their_keys(sink, FIRING, [(item, item.fired.digest) for item in firing if item.fired])
        found = opened + once_more + _resolving(sink, [item for item in items if item.state == RESOLVED], opened, findings, sent)
    else:
        items = _ended_tells_both(items)
        found = _grouped(sink, items)
    position = {id(item): number for number, item in enumerate(items)}
    return sorted(found, key=lambda message: min(position[id(item)] for item in message.items))


def _grouped(sink: Sink, items: Iterable[Due]) -> list[Message]:
    """One message a finding, or one digest a cluster and state."""
    groups: dict[tuple[str, str], dict[tuple[str, int], list[Due]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        groups[item.finding.cluster, item.state][item.finding.fingerprint, item.occurrence].append(item)
    found = []
    for (cluster, state), told in groups.items():
        if len(told) > sink.limit:
            some = tuple(item for pair in told.values() for item in pair)
            found.append(Message(sink, cluster, state, digest_key(some), some, digest=True))
        else:
            found += [Message(sink, cluster, state, fingerprint, tuple(pair)) for (fingerprint, _), pair in told.items()]
    return found


def _resolving(
    sink: Sink, items: Iterable[Due], firing: Iterable[Message], findings: Iterable[Finding], sent: Iterable[Sent]
) -> list[Message]:
    """What resolves incidents: each under the key that it was opened with, in this run or before."""
    opened = {(item.finding.fingerprint, item.occurrence): message for message in firing for item in message.items}
    open_now = {(finding.cluster, finding.fingerprint) for finding in findings if not finding.is_over}
    still_open = {
        row.digest for row in sent if row.digest and row.sink == sink.name and (row.cluster, row.fingerprint) in open_now
    }
    still_open |= {message.key for message in firing if any(not finding.is_over for finding in message.findings)}
    over = []
    for item in items:
        message = opened.get((item.finding.fingerprint, item.occurrence))
        digest = (message.key if message.digest else None) if message else item.fired.digest if item.fired else None
        if digest not in still_open:
            over.append((item, digest))
    return _under_their_keys(sink, RESOLVED, over)


def _under_their_keys(sink: Sink, state: str, items: Iterable[tuple[Due, str | None]]) -> list[Message]:
    """Messages about incidents that the sink knows, each with the digest that it was part of."""
    by_key: dict[tuple[str, str, bool], list[Due]] = defaultdict(list)
    for item, digest in items:
        by_key[item.finding.cluster, digest or item.finding.fingerprint, digest is not None].append(item)
    return [Message(sink, cluster, state, key, tuple(some), is_digest) for (cluster, key, is_digest), some in by_key.items()]


def _ended_tells_both(items: Sequence[Due]) -> list[Due]:
    """One message tells a person that something was so and is over: the pair goes as `resolved`."""
    over = {(item.finding.fingerprint, item.occurrence) for item in items if item.state == RESOLVED}
    return [replace(item, state=RESOLVED) if (item.finding.fingerprint, item.occurrence) in over else item for item in items]


def digest_key(items: Iterable[Due]) -> str:
    """The key of a digest: the same findings make the same one."""
    members = sorted(f"{item.finding.fingerprint}/{item.occurrence}" for item in items)
    return "digest-" + hashlib.sha256("|".join(members).encode()).hexdigest()[:32]


def outcome(message: Message, at: datetime, error: str | None, labels: str | None = None) -> list[Sent]:
    """The rows that say what became of a message; error: None where it was delivered."""
    rows = []
    for item in message.items:
        # a pair that one message tells of keeps both its rows
        state = item.tried.state if item.tried else item.state
        before = item.tried.attempts if item.tried else 0
        rows.append(
            Sent(
                cluster=message.cluster,
                fingerprint=item.finding.fingerprint,
                sink=message.sink.name,
                state=state,
                occurrence=item.occurrence,
                tried_at=at,
                attempts=before + 1,
                # what a sink is told again stays delivered
                delivered_at=at if error is None else item.tried.delivered_at if item.tried else None,
                error=error,
                digest=message.key if message.digest else None,
                labels=labels,
            )
        )
    return rows
