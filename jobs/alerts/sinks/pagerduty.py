"""PagerDuty: Events API v2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jobs.alerts import text
from jobs.alerts.outbox import DIGEST, FIRING, Message
from jobs.alerts.sink import Request, Secrets, stamp
from jobs.alerts.sinks.http import HttpSink
from jobs.alerts.text import Context


@dataclass(frozen=True, kw_only=True)
class PagerDuty(HttpSink):
    """Posts events; PagerDuty keeps an incident open until it is resolved under the same dedup_key."""

    type: ClassVar[str] = "pagerduty"
    keeps_incidents: ClassVar[bool] = True
    is_idempotent: ClassVar[bool] = True
    default_url: ClassVar[str | None] = "https://events.pagerduty.com/v2/enqueue"

    # name of the environment variable with the integration key
    routing_key_env: str
    ended: bool = False

    def body(self, request: Request, secrets: Secrets) -> Any:
        """Return the event with its routing_key."""
        return {"routing_key": secrets.get("routing_key"), **request.body}

    def payload(self, message: Message, context: Context) -> Any:
        """Return an event without its routing_key."""
        first = message.findings[0]
        event: dict[str, Any] = {
            "event_action": "trigger" if message.state == FIRING else "resolve",
            "dedup_key": message.key,
        }
        if message.state != FIRING:
            return event
        details = {"description": text.description(message, context), "more": text.more(message, context)}
        if not message.digest:
            details |= {"evidence": "\n".join(text.proof(first, context))}
        event["client"] = "kafka-audit"
        event["payload"] = {
            "summary": text.summary(message, context),
            "source": context.plain(message.cluster, 249),
            "severity": message.severity,
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
