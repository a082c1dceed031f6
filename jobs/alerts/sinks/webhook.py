"""A webhook of your own: JSON, version 1 (docs/guides/alerts.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jobs.alerts import text
from jobs.alerts.outbox import Finding, Message
from jobs.alerts.sink import stamp
from jobs.alerts.sinks.http import AuthenticatedHttpSink
from jobs.alerts.text import Context


@dataclass(frozen=True, kw_only=True)
class Webhook(AuthenticatedHttpSink):
    """Posts one JSON object a message; the header Idempotency-Key identifies it."""

    type: ClassVar[str] = "webhook"

    def payload(self, message: Message, context: Context) -> Any:
        """Return the JSON object."""
        return {
            "version": 1,
            "key": message.key,
            "state": message.state,
            "test": context.test,
            "cluster": context.plain(message.cluster, 249),
            "severity": message.severity,
            "summary": text.summary(message, context),
            "text": text.page(message, context),
            "count": len(message.findings),
            "findings": [_row(finding, context) for finding in message.findings[: text.NAMED]],
        }


def _row(finding: Finding, context: Context) -> Any:
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
        "harms": [context.plain(harm, 300) for harm in finding.harms],
        "detail": context.plain(finding.detail or "", 700),
        "evidence": text.proof(finding, context),
    }
