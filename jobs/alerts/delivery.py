"""Deliver what is due and record it: read `findings` and the outbox `alerts`, send, write the outbox.

A delivery is recorded before the next message of its sink is sent. So a killed run repeats at most one
message, under the same key.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jobs.alerts.outbox import Finding, Message, Sent, due, messages, outcome
from jobs.alerts.sink import Request, Secrets, Sink, Undelivered, deliver
from jobs.alerts.text import LINES, Context, ProofLine
from jobs.checking import harms, story_harms
from jobs.checking.finding_identity import known_as
from jobs.config import Config
from jobs.engine import Tables, queries, rows_of
from jobs.engine.literals import one_of
from parsers.explanation import counted
from schemas import wording

TIMES = ("tried_at", "delivered_at")
# a sink gets three times its time limit, and these seconds more
PATIENCE = 15
Record = Callable[[Sequence[Sent]], None]


@dataclass(frozen=True)
class Delivered:
    """The outcome of one run's messages to one sink. error: why the first failed message failed."""

    sink: str
    messages: int
    failed: int
    error: str | None

    def sentence(self) -> str:
        """Return the sentence of the verdict."""
        if self.error is None:
            return f"Alerts: {counted(self.messages, 'message')} to {self.sink}."
        return f"Alerts: {self.failed:,} of {counted(self.messages, 'message')} to {self.sink} could not be delivered ({self.error}); the next run tries again."


# -- the pure part -----------------------------------------------------------------------------------------


def plan(
    sinks: Iterable[Sink],
    findings: Sequence[Finding],
    sent: Sequence[Sent],
    *,
    now: datetime,
    newest: Mapping[str, datetime],
    again: str | None = None,
) -> dict[str, list[Message]]:
    """Return sink -> its messages, in order.

    again: the sink that is notified again of all that is firing.
    """
    found = {}
    for sink in sinks:
        items = due(sink, findings, sent, now=now, newest=newest, again=again == sink.name)
        found[sink.name] = messages(sink, items, findings, sent)
    return found


def finding_of(row: Mapping[str, Any]) -> Finding:
    """Return a row of `findings` as a Finding, with the fingerprint that sinks know it by.

    row: its times are UTC without a zone.
    """
    values: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Finding)}
    values["fingerprint"] = known_as(row)
    values |= {name: in_utc(row[name]) for name in ("first_seen", "last_seen")}
    return Finding(
        **values | {"silenced": bool(row.get("silenced")), "evidence": tuple(row["evidence"] or ())}
    )


def findings_of(rows: Iterable[Mapping[str, Any]], harms: Mapping[str, tuple[str, ...]]) -> list[Finding]:
    """Return rows of `findings` with the fingerprints that sinks know them and their causes by.

    harms: what `harms.by_finding` returns.
    """
    some = list(rows)
    names = {row["fingerprint"]: known_as(row) for row in some}
    titles = {row["fingerprint"]: row["title"] for row in some}
    return [
        replace(
            finding_of(row),
            caused_by=names.get(row.get("caused_by")),
            cause=titles.get(row.get("caused_by")),
            harms=harms.get(row["fingerprint"], ()),
        )
        for row in some
    ]


def harms_of(tables: Tables, rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the harm of each finding as `harms.by_finding` words it. rows: all rows of `findings`."""
    findings = [
        dict(row)
        | {name: row[name] and row[name].replace(tzinfo=None) for name in ("first_seen", "last_seen")}
        for row in rows
    ]
    # an open finding was last seen at the end of the logs
    now: dict[str, datetime | None] = {row["cluster"]: None for row in findings}
    for row in findings:
        if row["last_seen"] is not None:
            now[row["cluster"]] = max(now[row["cluster"]] or row["last_seen"], row["last_seen"])
    read = {name: tables.read(name) for name in ("finding_subjects", "durability") if tables.has(name)}
    if len(read) < 2:
        return harms.by_finding(findings, {}, now)
    database = queries.over(None, read.values())
    for name, table in read.items():
        database.view(f"stored_{name}", table)
    return harms.by_finding(findings, story_harms.of_stories(database, findings, now), now)


def in_utc(moment: datetime | None) -> datetime | None:
    """Return a time of a table with its zone, UTC."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def checks() -> dict[str, str]:
    """Return check -> its name."""
    return {check: words.name for check, words in wording.wordings().items()}


def latest(rows: Iterable[Sent]) -> list[Sent]:
    """Return the newest row of each finding, sink, state and occurrence."""
    return list({row.identity: row for row in sorted(rows, key=lambda row: row.tried_at)}.values())


# -- sending -----------------------------------------------------------------------------------------------


def send_all(
    sinks: Sequence[Sink],
    planned: Mapping[str, Sequence[Message]],
    context: Context,
    environment: Mapping[str, str],
    record: Record,
) -> list[Delivered]:
    """Send to all sinks at once, to each in order; return a report of each sink with messages.

    record: takes rows of the outbox. Each delivery is recorded at once, the failures at the end.
    """
    busy = [sink for sink in sinks if planned[sink.name]]
    if not busy:
        return []

    def serve(sink: Sink) -> Delivered:
        return _serve(sink, sink.requests(planned[sink.name], context), sink.secrets(environment), record)

    with ThreadPoolExecutor(len(busy)) as pool:
        return list(pool.map(serve, busy))


def _serve(sink: Sink, requests: Sequence[Request], secrets: Secrets, record: Record) -> Delivered:
    """Send the requests of one sink, in order.

    A sink that cannot be reached is not tried again in this run. A sink that refuses one message is sent the
    next.
    """
    failed: list[tuple[Request, str]] = []
    down: str | None = None
    not_opened: set[str] = set()
    for request in requests:
        error = down
        if error is None and any(message.key in not_opened for message in request.messages):
            error = "an earlier message about it could not be delivered"
        if error is None:
            try:
                _bounded(sink, request, secrets)
            except Undelivered as problem:
                error = str(problem)
                down = None if problem.refused else error
        if error is None:
            record(_rows(request, None))
        else:
            failed.append((request, error))
            not_opened |= {message.key for message in request.messages}
    if failed:
        record([row for request, error in failed for row in _rows(request, error)])
    count, lost = (
        sum(len(request.messages) for request in some)
        for some in (requests, [request for request, _ in failed])
    )
    return Delivered(sink.name, count, lost, failed[0][1] if failed else None)


def _rows(request: Request, error: str | None) -> list[Sent]:
    now = datetime.now(UTC)
    labels = request.labels or (None,) * len(request.messages)
    return [
        row
        for message, of_it in zip(request.messages, labels, strict=True)
        for row in outcome(message, now, error, of_it)
    ]


def _bounded(sink: Sink, request: Request, secrets: Secrets) -> None:
    """Send within a time limit, also if the server answers byte after byte. Raises Undelivered."""
    problems: list[Undelivered] = []

    def attempt() -> None:
        try:
            deliver(sink, request, secrets)
        except Undelivered as problem:
            problems.append(problem)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    limit = 3 * sink.timeout_seconds + PATIENCE
    thread.join(limit)
    if thread.is_alive():
        raise Undelivered(f"no whole answer within {limit} s")
    if problems:
        raise problems[0]


# -- with the tables ---------------------------------------------------------------------------------------


@dataclass
class Outbox:
    """The outbox of some clusters, and the tables that the texts of alerts are built from."""

    tables: Tables
    append: Callable[[pa.Table], None]
    config: Config
    clusters: Sequence[str]
    environment: Mapping[str, str]

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.sent = latest(self._read())

    def _read(self) -> list[Sent]:
        if not self.tables.has("alerts"):
            return []
        rows = rows_of(self.tables.read("alerts", None, one_of("cluster", self.clusters)))
        return [Sent(**row | {name: in_utc(row[name]) for name in TIMES}) for row in rows]

    def record(self, rows: Sequence[Sent]) -> None:
        """Append rows to the table; return when they are stored."""
        with self.lock:
            self.append(pa.Table.from_pylist([asdict(row) for row in rows]))

    def context(
        self, planned: Mapping[str, Sequence[Message]], newest: Mapping[str, datetime], now: datetime
    ) -> Context:
        """Return what the texts of messages are built from, with the log lines that they show."""
        hidden = {text for sink in self.config.sinks for text in sink.secrets(self.environment).hidden()}
        plain = Context(
            tables=self.tables.root,
            now=now,
            checks=checks(),
            newest=newest,
            report_url=self.config.report_url,
            hidden=tuple(sorted(hidden, key=len, reverse=True)),
        )
        alone = [message.findings[0] for some in planned.values() for message in some if not message.digest]
        shown = sorted({record_id for finding in alone for record_id in finding.evidence[:LINES]})
        return replace(plain, lines=self._lines(shown)) if shown else plain

    def _lines(self, record_ids: Sequence[str]) -> dict[str, ProofLine]:
        columns = ["record_id", "ts", "node", "file", "record_no", "raw"]
        where = f"{one_of('cluster', self.clusters)} AND item = 0 AND {one_of('record_id', record_ids)}"
        return {
            row["record_id"]: ProofLine(
                row["ts"], row["node"], row["file"], row["record_no"], row["raw"][:2000]
            )
            for row in rows_of(self.tables.read("events", columns, where))
        }

    def deliver(
        self, findings: Sequence[Finding], newest: Mapping[str, datetime], again: str | None = None
    ) -> list[Delivered]:
        """Send what is due and record it; return the outcome of each sink that had something due."""
        now = datetime.now(UTC)
        planned = plan(self.config.sinks, findings, self.sent, now=now, newest=newest, again=again)
        if not any(planned.values()):
            return []
        context = self.context(planned, newest, now)
        return send_all(self.config.sinks, planned, context, self.environment, self.record)


def counts(reports: Iterable[Delivered]) -> str:
    """Return the counts for the progress line of the stage."""
    total: Counter[str] = Counter()
    for report in reports:
        total["delivered"] += report.messages - report.failed
        total["failed"] += report.failed
    return ", ".join(f"{count:,} {word}" for word, count in total.items() if count) or "nothing due"
