"""Slack: incoming webhooks with Block Kit.

All text is of the type plain_text, in which nothing is mark-up.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from jobs.alerts import text
from jobs.alerts.outbox import Message
from jobs.alerts.sinks.http import HttpSink
from jobs.alerts.text import Context
from jobs.config_entry import Entry

# characters of a section: less than Slack's 3,000, because escaping lengthens a text
SECTION = 2900


@dataclass(frozen=True, kw_only=True)
class Slack(HttpSink):
    """Posts messages of an incoming webhook."""

    type: ClassVar[str] = "slack"

    limit: int = 5

    def check_address(self, entry: Entry, environment: Mapping[str, str]) -> None:
        """Refuse the address of a webhook in the configuration, because it is a secret. Raises UsageError."""
        super().check_address(entry, environment)
        if self.url and fnmatch.fnmatch(urlsplit(self.url).hostname or "", "*slack*.com"):
            raise entry.wrong(
                "url",
                "of a Slack webhook is a secret; give url_env, the name of an environment variable that contains it",
            )

    def payload(self, message: Message, context: Context) -> Any:
        """Return a message of an incoming webhook."""
        title = text.titled(message, context)
        page = text.page(message, context)
        sections = [page[start : start + SECTION] for start in range(0, len(page), SECTION)]
        return {
            "text": escaped(title),
            "mrkdwn": False,
            "unfurl_links": False,
            "blocks": [
                {"type": "header", "text": _plain_text(title, 150)},
                *({"type": "section", "text": _plain_text(section, 3000)} for section in sections),
            ],
        }


def escaped(plain: str) -> str:
    """Return the text as Slack asks for it: the rest cannot be mark-up, a link or a mention."""
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain_text(plain: str, limit: int) -> Any:
    """Return a text object; the text is cut if escaping makes it longer than the limit."""
    while len(escaped(plain)) > limit:
        plain = text.shortened(plain, len(plain) - max((len(escaped(plain)) - limit) // 5, 1))
    return {"type": "plain_text", "text": escaped(plain), "emoji": False}
