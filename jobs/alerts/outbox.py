"""Find the findings that each sink must be notified of, and group them into messages. Pure.

A finding is `firing` until it is resolved. Each (fingerprint, sink, state, occurrence) is delivered once. An
occurrence ends when the finding is resolved; the next one begins when it is reopened.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.alerts.sink import Sink
from jobs.checking import ranking
from jobs.globs import matches
from schemas import SEVERITIES

FIRING, RESOLVED = "firing", "resolved"
# a digest has this name where a finding has its check's
DIGEST = "findings_digest"
DIGEST_KEY = "digest-"
# a finding that was resolved before its first message is still sent for so long
RECENT_HOURS = 24
EPOCH = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Finding:
    """The columns of `findings` that alerts need; times are UTC with a zone, or None."""

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
    # fingerprint that sinks know the cause of this finding by
    caused_by: str | None = None
    # title of that cause
    cause: str | None = None
    # the harm of its story to producers and consumers, in the words of the verdict
    harms: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Return whether it is resolved."""
        return self.status == "resolved"


@dataclass(frozen=True)
class Sent:
    """A row of `alerts`: one finding that was sent to one sink, or failed to be sent.

    Times are UTC with a zone.
    digest: key of the digest, or of the story of another finding, that it was part of; None: the key was its
    own fingerprint.
    labels: JSON; Alertmanager resolves an alert only under the labels that it fired with.
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
        """Return the key of the row."""
        return self.cluster, self.fingerprint, self.sink, self.state, self.occurrence


@dataclass(frozen=True)
class Due:
    """A sink must be notified that a finding is in a state.

    tried: its row of an earlier run. fired: the row under which the sink knows the incident that is resolved
    or repeated now.
    """

    finding: Finding
    state: str
    occurrence: int
    tried: Sent | None = None
    fired: Sent | None = None


@dataclass(frozen=True)
class Message:
    """One message to a sink: a finding, a story (a cause and its consequences), or a digest.

    key: the same whenever the same message is sent again. lead: fingerprint of the first cause of a story.
    """

    sink: Sink
    cluster: str
    state: str
    key: str
    items: tuple[Due, ...]
    digest: bool = False
    lead: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return its findings, each once: the cause of a story first, then the worst first."""
        found = {item.finding.fingerprint: item.finding for item in self.items}
        return tuple(
            sorted(
                found.values(), key=lambda finding: (finding.fingerprint != self.lead, worst_first(finding))
            )
        )

    @property
    def severity(self) -> str:
        """Return the severity of its worst finding."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index)


def worst_first(finding: Finding) -> tuple[ranking.Rank, bool, datetime, str, str]:
    """Return the sort key of all lists of findings; a resolved finding keeps the rank that it had."""
    rank = ranking.rank(severity=finding.severity, check_id=finding.check_id, is_over=False)
    return rank, *ranking.by_time(finding.first_seen), finding.title, finding.fingerprint


def routed(sink: Sink, finding: Finding) -> bool:
    """Return whether the sink's severity, checks and clusters match a finding."""
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
    """Return what a sink must be notified of, in order.

    Undelivered rows are first, then firing findings, then resolved ones; of each, the worst first.
    sent: all rows of the sink. now: this machine's clock. newest: cluster -> newest moment of its logs.
    again: repeat all that is firing, because the sink has lost it.
    """
    history: dict[tuple[str, str], list[Sent]] = defaultdict(list)
    for row in sent:
        if row.sink == sink.name:
            history[row.cluster, row.fingerprint].append(row)
    found = []
    for finding in findings:
        rows = sorted(
            history[finding.cluster, finding.fingerprint],
            key=lambda row: (row.occurrence, row.state == RESOLVED),
        )
        wanted = routed(sink, finding) and not finding.silenced
        if not rows:
            recent = newest.get(finding.cluster, now) - timedelta(hours=RECENT_HOURS)
            if wanted and not finding.is_over:
                found.append(Due(finding, FIRING, 1))
            elif wanted and sink.ended and finding.last_seen is not None and finding.last_seen >= recent:
                found.append(Due(finding, RESOLVED, 1))
        else:
            found += _next(sink, finding, rows, wanted=wanted, now=now, again=again)
    return sorted(found, key=_order)


def _next(
    sink: Sink, finding: Finding, rows: Sequence[Sent], *, wanted: bool, now: datetime, again: bool
) -> list[Due]:
    """Return what a sink must still be notified of about a finding: undelivered rows, and changes since."""
    last = rows[-1]
    fired = next((row for row in reversed(rows) if row.state == FIRING and row.delivered_at), None)
    found = [
        Due(finding, row.state, row.occurrence, row, fired if row.state == RESOLVED else None)
        for row in rows
        if row.delivered_at is None and (wanted or (row.state == RESOLVED and fired))
    ]
    if last.state == RESOLVED:
        return (
            [*found, Due(finding, FIRING, last.occurrence + 1)] if wanted and not finding.is_over else found
        )
    if finding.is_over and (found or last.delivered_at is not None):
        found.append(Due(finding, RESOLVED, last.occurrence, None, fired))
    elif (
        last.delivered_at is not None
        and not finding.is_over
        and sink.keeps_incidents
        and (again or sink.must_be_repeated(last.delivered_at, now))
    ):
        found.append(Due(finding, FIRING, last.occurrence, last, last))
    return found


def _order(item: Due) -> tuple[Any, ...]:
    """Return the sort key: undelivered rows in the order of their attempts, then firing before resolved."""
    waiting = item.tried is not None and item.tried.delivered_at is None
    tried_at = item.tried.tried_at if waiting and item.tried else EPOCH
    return not waiting, tried_at, item.state == RESOLVED, worst_first(item.finding), item.occurrence > 1


def messages(
    sink: Sink, items: Sequence[Due], findings: Iterable[Finding], sent: Iterable[Sent]
) -> list[Message]:
    """Return the messages that are due to a sink, in order.

    A cause and its consequences are one message. If a cluster has more messages than the sink's limit, they
    become one digest. An incident that a story or a digest opened is resolved when all its findings are.
    """
    known, rows = list(findings), [row for row in sent if row.sink == sink.name]
    causes = _first_causes(finding for finding in known if routed(sink, finding) and not finding.silenced)
    if sink.keeps_incidents:
        firing = [item for item in items if item.state == FIRING]
        joining = _joining([item for item in firing if not item.fired], known, rows, causes)
        opened = _grouped(
            sink, [item for item in firing if not item.fired and id(item) not in joining.taken], causes
        )
        again = [(item, item.fired.digest) for item in firing if item.fired] + joining.items
        once_more = _under_their_keys(sink, FIRING, again)
        over = [item for item in items if item.state == RESOLVED]
        found = opened + once_more + _resolving(sink, over, opened + once_more, known, rows)
    else:
        items = _pairs_as_resolved(items)
        found = _grouped(sink, items, causes)
    position = {id(item): number for number, item in enumerate(items)}
    return sorted(
        found, key=lambda message: min(position.get(id(item), len(items)) for item in message.items)
    )


def _first_causes(findings: Iterable[Finding]) -> dict[tuple[str, str], str]:
    """Return (cluster, fingerprint) -> fingerprint of its first cause; its own if it has none."""
    known = {(finding.cluster, finding.fingerprint): finding for finding in findings}
    found = {}
    for key in known:
        at, passed = key, {key}
        while (cause := (at[0], known[at].caused_by or "")) in known and cause not in passed:
            passed.add(cause)
            at = cause
        found[key] = at[1]
    return found


def _story(finding: Finding, causes: Mapping[tuple[str, str], str]) -> str:
    return causes.get((finding.cluster, finding.fingerprint), finding.fingerprint)


@dataclass(frozen=True)
class _Joining:
    """New findings that join incidents that are open at a sink.

    items: each new finding with the key of its incident, and the cause that opened it. taken: `id` of the
    items that join.
    """

    items: list[tuple[Due, str | None]]
    taken: frozenset[int]


def _joining(
    items: Sequence[Due],
    findings: Sequence[Finding],
    sent: Sequence[Sent],
    causes: Mapping[tuple[str, str], str],
) -> _Joining:
    """Return the new findings whose first cause is firing at the sink.

    The cause is sent again together with them.
    """
    by_name = {(finding.cluster, finding.fingerprint): finding for finding in findings}
    last: dict[tuple[str, str], Sent] = {}
    for row in sorted(sent, key=lambda row: (row.occurrence, row.state == RESOLVED)):
        last[row.cluster, row.fingerprint] = row
    due_now = {(item.finding.cluster, item.finding.fingerprint) for item in items}
    found, taken, named = list[tuple[Due, str | None]](), set[int](), set[tuple[str, str]]()
    for item in items:
        root = (item.finding.cluster, _story(item.finding, causes))
        opening = last.get(root)
        if root in due_now or opening is None or opening.state != FIRING or opening.delivered_at is None:
            continue
        taken.add(id(item))
        found.append((item, opening.digest or opening.fingerprint))
        if root not in named:
            named.add(root)
            found.append((Due(by_name[root], FIRING, opening.occurrence, opening, opening), opening.digest))
    return _Joining(found, frozenset(taken))


def _grouped(sink: Sink, items: Iterable[Due], causes: Mapping[tuple[str, str], str]) -> list[Message]:
    """Return one message per story, or one digest per cluster and state."""
    groups: dict[tuple[str, str], dict[str, dict[tuple[str, int], list[Due]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for item in items:
        finding = item.finding
        stories = groups[finding.cluster, item.state]
        stories[_story(finding, causes)].setdefault((finding.fingerprint, item.occurrence), []).append(item)
    found = []
    for (cluster, state), stories in groups.items():
        if len(stories) > sink.limit:
            some = tuple(item for pairs in stories.values() for pair in pairs.values() for item in pair)
            found.append(Message(sink, cluster, state, digest_key(some), some, digest=True))
            continue
        for root, pairs in stories.items():
            if len({fingerprint for fingerprint, _ in pairs}) > 1:
                found.append(
                    _of_story(sink, cluster, state, root, [item for pair in pairs.values() for item in pair])
                )
            else:
                found += [
                    Message(sink, cluster, state, fingerprint, tuple(pair))
                    for (fingerprint, _), pair in pairs.items()
                ]
    return found


def _of_story(sink: Sink, cluster: str, state: str, root: str, items: Sequence[Due]) -> Message:
    """Return the message about a cause and its effects.

    Without the cause, its key is that of the worst effect.
    """
    names = {item.finding.fingerprint for item in items}
    key = root if root in names else min((item.finding for item in items), key=worst_first).fingerprint
    return Message(sink, cluster, state, key, tuple(items), lead=key)


def _resolving(
    sink: Sink,
    items: Iterable[Due],
    firing: Iterable[Message],
    findings: Iterable[Finding],
    sent: Iterable[Sent],
) -> list[Message]:
    """Return the messages that resolve incidents, each under the key that it was opened with."""
    opened = {
        (item.finding.fingerprint, item.occurrence): message for message in firing for item in message.items
    }
    open_now = {(finding.cluster, finding.fingerprint) for finding in findings if not finding.is_over}
    # a finding's own incident stays open while the finding fires (`due`); the incident of a story or digest,
    # while any of its findings does
    still_open = {row.digest for row in sent if row.digest and (row.cluster, row.fingerprint) in open_now}
    still_open |= {
        message.key
        for message in firing
        if any(
            not finding.is_over and (message.digest or finding.fingerprint != message.key)
            for finding in message.findings
        )
    }
    over = []
    for item in items:
        message = opened.get((item.finding.fingerprint, item.occurrence))
        name = item.finding.fingerprint
        key = message.key if message else (item.fired.digest if item.fired else None) or name
        if key not in still_open:
            over.append((item, None if key == name else key))
    return _under_their_keys(sink, RESOLVED, over)


def _under_their_keys(sink: Sink, state: str, items: Iterable[tuple[Due, str | None]]) -> list[Message]:
    """Return messages about incidents that the sink knows, each under the key that opened it."""
    by_key: dict[tuple[str, str], dict[tuple[str, int, str], Due]] = defaultdict(dict)
    for item, key in items:
        name = item.finding.fingerprint
        by_key[item.finding.cluster, key or name].setdefault((name, item.occurrence, item.state), item)
    return [
        Message(
            sink,
            cluster,
            state,
            key,
            tuple(some.values()),
            digest=key.startswith(DIGEST_KEY),
            lead=key if len(some) > 1 and not key.startswith(DIGEST_KEY) else None,
        )
        for (cluster, key), some in by_key.items()
    ]


def _pairs_as_resolved(items: Sequence[Due]) -> list[Due]:
    """Return the items with each pair of start and end as `resolved`.

    One message to a person covers both.
    """
    over = {(item.finding.fingerprint, item.occurrence) for item in items if item.state == RESOLVED}
    return [
        replace(item, state=RESOLVED) if (item.finding.fingerprint, item.occurrence) in over else item
        for item in items
    ]


def digest_key(items: Iterable[Due]) -> str:
    """Return the key of a digest: the same for the same findings."""
    members = sorted(f"{item.finding.fingerprint}/{item.occurrence}" for item in items)
    return DIGEST_KEY + hashlib.sha256("|".join(members).encode()).hexdigest()[:32]


def outcome(message: Message, at: datetime, error: str | None, labels: str | None = None) -> list[Sent]:
    """Return the rows of `alerts` for a message that was tried. error: None if it was delivered."""
    rows = []
    for item in message.items:
        # a start and an end that are one message keep a row each
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
                # a failed repetition does not undo the delivery
                delivered_at=at if error is None else item.tried.delivered_at if item.tried else None,
                error=error,
                digest=message.key if message.key != item.finding.fingerprint else None,
                labels=labels,
            )
        )
    return rows
