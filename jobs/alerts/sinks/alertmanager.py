"""Alertmanager: POST /api/v2/alerts (api/v2/openapi.yaml, 0.16 and later)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from jobs.alerts import text
from jobs.alerts.outbox import DIGEST, FIRING, Message
from jobs.alerts.sink import Request, stamp
from jobs.alerts.sinks.http import AuthenticatedHttpSink
from jobs.alerts.text import Context

# alerts of one request
BATCH = 50
PATH = "/api/v2/alerts"


@dataclass(frozen=True, kw_only=True)
class Alertmanager(AuthenticatedHttpSink):
    """Posts alerts; Alertmanager keeps each until it is resolved under the same labels."""

    type: ClassVar[str] = "alertmanager"
    keeps_incidents: ClassVar[bool] = True
    is_idempotent: ClassVar[bool] = True

    limit: int = 50
    ended: bool = False
    # days after which Alertmanager resolves an alert that it has not received again
    expires_days: int = 30

    def requests(self, messages: Sequence[Message], context: Context) -> list[Request]:
        """Return requests of up to BATCH alerts each."""
        batches = [tuple(messages[start : start + BATCH]) for start in range(0, len(messages), BATCH)]
        url = None if self.url is None else self.target(self.url)
        return [
            Request(
                some,
                [self.payload(one, context) for one in some],
                url,
                labels=tuple(self.labels(one, context) for one in some),
            )
            for some in batches
        ]

    def target(self, url: str) -> str:
        """Return the address that takes alerts."""
        return url.rstrip("/").removesuffix(PATH) + PATH

    def must_be_repeated(self, delivered_at: datetime, now: datetime) -> bool:
        """Return whether half of the time until the alert expires is over."""
        return now - delivered_at > timedelta(days=self.expires_days) / 2

    def labels(self, message: Message, context: Context) -> str:
        """Return what identifies the alert, as JSON: the labels of its first message, if it had one."""
        for item in message.items:
            if item.fired and item.fired.labels:
                return item.fired.labels
        first = message.findings[0]
        labels: dict[str, object] = {
            "severity": message.severity,
            "cluster": context.plain(message.cluster, 249),
            "fingerprint": message.key,
        }
        if message.digest:
            labels["alertname"] = DIGEST
        else:
            labels["alertname"] = "kafka_audit_test" if context.test else first.check_id
            labels |= {
                "topic": context.plain(first.topic, 249) if first.topic else None,
                "partition": first.partition,
            }
            labels |= {"replica": first.replica, "node": first.node}
        return json.dumps(
            {name: str(value) for name, value in labels.items() if value is not None}, sort_keys=True
        )

    def payload(self, message: Message, context: Context) -> Any:
        """Return a postableAlert.

        A firing alert ends so late that Alertmanager does not resolve it between two runs.
        """
        first = message.findings[0]
        lasts = timedelta(minutes=5) if context.test else timedelta(days=self.expires_days)
        ends = context.now + lasts if message.state == FIRING else context.now
        started = min(
            (finding.first_seen for finding in message.findings if finding.first_seen), default=None
        )
        evidence = [] if message.digest else text.proof(first, context)
        body: dict[str, Any] = {
            "labels": json.loads(self.labels(message, context)),
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
