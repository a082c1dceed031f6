"""What each type of sink is sent, in its own format. Pure; secrets are put in by `sending`.

Alertmanager: POST /api/v2/alerts, api/v2/openapi.yaml (0.16 and later). PagerDuty: Events API v2. Slack: incoming webhooks, Block Kit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from jobs.alerts import text
from jobs.alerts.outbox import FIRING, Finding, Message
from jobs.alerts.text import Context
from jobs.config import PAGERDUTY_URL, Sink

Json = Any
# alerts of one request
BATCH = 50
SLACK_SECTION = 2900
DIGEST = "findings_digest"


@dataclass(frozen=True)
class Request:
    """One request to a sink, and the messages that it delivers.

    url: None where the sink's environment variable holds it. body: JSON, an EmailMessage, or (title, text) for apprise. labels: those
    of each message (Alertmanager).
    """

    messages: tuple[Message, ...]
    body: Json
    url: str | None
    headers: dict[str, str] = field(default_factory=dict)
    labels: tuple[str | None, ...] = ()


def requests(sink: Sink, messages: Sequence[Message], context: Context) -> list[Request]:
    """The requests that deliver messages, in order."""
    if sink.type == "alertmanager":
        batches = [messages[start : start + BATCH] for start in range(0, len(messages), BATCH)]
        return [_alertmanager(sink, batch, context) for batch in batches]
    make = {"pagerduty": pagerduty, "slack": slack, "webhook": webhook, "mail": mail, "apprise": notification}[sink.type]
    url = sink.url or (PAGERDUTY_URL if sink.type == "pagerduty" and not sink.url_env else None)
    return [Request((message,), make(message, context), url, {"Idempotency-Key": key_of(message)}) for message in messages]


def key_of(message: Message) -> str:
    """The same for the same message about the same occurrence, however often it is sent."""
    return f"{message.key}/{message.state}/{max(item.occurrence for item in message.items)}"


def stamp(moment: datetime) -> str:
    """RFC 3339, milliseconds, UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- Alertmanager ------------------------------------------------------------------------------------------


def _alertmanager(sink: Sink, messages: Sequence[Message], context: Context) -> Request:
    labels = tuple(json.dumps(labels_of(message, context), sort_keys=True) for message in messages)
    body = [alert(message, json.loads(of_it), context) for message, of_it in zip(messages, labels, strict=True)]
    url = None if sink.url is None else api_of(sink.url)
    return Request(tuple(messages), body, url, labels=labels)


def api_of(url: str) -> str:
    """The address that takes alerts."""
    return url.rstrip("/").removesuffix("/api/v2/alerts") + "/api/v2/alerts"


def labels_of(message: Message, context: Context) -> dict[str, str]:
    """What identifies the alert: as it was sent before, if it was."""
    for item in message.items:
        if item.fired and item.fired.labels:
            return json.loads(item.fired.labels)
    first = message.findings[0]
    labels: dict[str, object] = {
        "severity": first.severity,
        "cluster": context.plain(message.cluster, 249),
        "fingerprint": message.key,
    }
    if message.digest:
        return {name: str(value) for name, value in ({"alertname": DIGEST} | labels).items()}
    labels["alertname"] = "kafka_audit_test" if context.test else first.check_id
    labels |= {"topic": context.plain(first.topic, 249) if first.topic else None, "partition": first.partition}
    labels |= {"replica": first.replica, "node": first.node}
    return {name: str(value) for name, value in labels.items() if value is not None}


def alert(message: Message, labels: dict[str, str], context: Context) -> Json:
    """A postableAlert. One that fires ends so far ahead that Alertmanager does not take silence for the end of it."""
    first = message.findings[0]
    lasts = timedelta(minutes=5) if context.test else timedelta(days=message.sink.expires_days)
    ends = context.now + lasts if message.state == FIRING else context.now
    started = min((finding.first_seen for finding in message.findings if finding.first_seen), default=None)
    evidence = [] if message.digest else text.proof(first, context)
    body: dict[str, Any] = {
        "labels": labels,
        "annotations": {
            "summary": text.summary(message, context),
            "description": f"{text.description(message, context)}\n{text.more(message, context)}",
            "evidence": "\n".join(evidence),
        },
        "endsAt": stamp(ends),
    }
    if started is not None and started < ends:
        body["startsAt"] = stamp(started)
    if address := text.report(message, context):
        body["generatorURL"] = address
    return body


# -- PagerDuty ---------------------------------------------------------------------------------------------


def pagerduty(message: Message, context: Context) -> Json:
    """An event without its routing_key."""
    first = message.findings[0]
    event: dict[str, Any] = {"event_action": "trigger" if message.state == FIRING else "resolve", "dedup_key": message.key}
    if message.state != FIRING:
        return event
    details = {"description": text.description(message, context), "more": text.more(message, context)}
    if not message.digest:
        details |= {"evidence": "\n".join(text.proof(first, context))}
    event["client"] = "kafka-audit"
    event["payload"] = {
        "summary": text.summary(message, context),
        "source": context.plain(message.cluster, 249),
        "severity": first.severity,
        "class": DIGEST if message.digest else first.check_id,
        "group": context.plain(message.cluster, 249),
        "custom_details": details,
    }
    if first.topic and not message.digest:
        event["payload"]["component"] = text.where(first, context, 255)
    if first.first_seen is not None:
        event["payload"]["timestamp"] = stamp(first.first_seen)
    if address := text.report(message, context):
        event["client_url"] = address
    return event


# -- what people read --------------------------------------------------------------------------------------


def escaped(plain: str) -> str:
    """As Slack asks for: what is left cannot be mark-up, a link or a mention."""
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack(message: Message, context: Context) -> Json:
    """A message of an incoming webhook. All text is of the type plain_text, in which nothing is mark-up."""
    title = text.titled(message, context)
    page = text.page(message, context)
    sections = [page[start : start + SLACK_SECTION] for start in range(0, len(page), SLACK_SECTION)]
    return {
        "text": escaped(title),
        "mrkdwn": False,
        "unfurl_links": False,
        "blocks": [
            {"type": "header", "text": _plain_text(title, 150)},
            *({"type": "section", "text": _plain_text(section, 3000)} for section in sections),
        ],
    }


def _plain_text(plain: str, limit: int) -> Json:
    """A text object; escaping makes it longer than its limit allows only where it is cut for it."""
    while len(escaped(plain)) > limit:
        plain = text.shortened(plain, len(plain) - max((len(escaped(plain)) - limit) // 5, 1))
    return {"type": "plain_text", "text": escaped(plain), "emoji": False}


def webhook(message: Message, context: Context) -> Json:
    """Our own format (README, "Alerts")."""
    return {
        "version": 1,
        "key": message.key,
        "state": message.state,
        "test": context.test,
        "cluster": context.plain(message.cluster, 249),
        "severity": message.findings[0].severity,
        "summary": text.summary(message, context),
        "text": text.page(message, context),
        "count": len(message.findings),
        "findings": [_row(finding, context) for finding in message.findings[: text.NAMED]],
    }


def _row(finding: Finding, context: Context) -> Json:
    times = {"first_seen": finding.first_seen, "last_seen": finding.last_seen}
    return {
        "fingerprint": finding.fingerprint,
        "check_id": finding.check_id,
        "severity": finding.severity,
        "status": finding.status,
        "topic": context.plain(finding.topic, 249) if finding.topic else None,
        "partition": finding.partition,
        "replica": finding.replica,
        "node": finding.node,
        **{name: stamp(value) if value else None for name, value in times.items()},
        "title": context.plain(finding.title, 400),
        "detail": context.plain(finding.detail or "", 700),
        "evidence": text.proof(finding, context),
    }


def mail(message: Message, context: Context) -> EmailMessage:
    """A plain text mail. Its Message-ID is the same however often it is sent, so that it can be told for the same one."""
    sink = message.sink
    made = EmailMessage()
    made["Subject"] = text.titled(message, context)
    made["From"] = sink.sender
    made["To"] = ", ".join(sink.to)
    made["Message-ID"] = f"<{key_of(message).replace('/', '.')}@kafka-audit>"
    if message.state != FIRING:
        made["In-Reply-To"] = f"<{key_of(message).replace('/', '.').replace(message.state, FIRING)}@kafka-audit>"
    made["Auto-Submitted"] = "auto-generated"
    made["Date"] = format_datetime(context.now)
    made.set_content(text.page(message, context))
    return made


def notification(message: Message, context: Context) -> tuple[str, str]:
    """(title, text) for the services that apprise serves."""
    return text.titled(message, context), text.page(message, context)
