"""Any service that the package apprise serves: Teams, Opsgenie, Telegram, ntfy, ..."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jobs.alerts import text
from jobs.alerts.outbox import Message
from jobs.alerts.sink import Request, Secrets, Sink, Undelivered
from jobs.alerts.text import Context
from jobs.config_entry import Entry


@dataclass(frozen=True, kw_only=True)
class Apprise(Sink):
    """Sends a title and a text to any service of apprise."""

    type: ClassVar[str] = "apprise"

    limit: int = 5

    def check_address(self, entry: Entry, environment: Mapping[str, str]) -> None:
        """Refuse an address in the configuration, because it contains a secret. Raises UsageError."""
        if self.url and self.url_env:
            raise entry.wrong("url", "and url_env exclude each other")
        if self.url:
            raise entry.wrong(
                "url",
                "of an apprise service contains its secret; give url_env, the name of an environment variable",
            )
        entry.required("url_env")
        if importlib.util.find_spec("apprise") is None:
            raise entry.wrong("type", "'apprise' needs the package of that name: pip install apprise")

    def payload(self, message: Message, context: Context) -> tuple[str, str]:
        """Return (title, text)."""
        return text.titled(message, context), text.page(message, context)

    def send(self, request: Request, secrets: Secrets) -> None:
        """Deliver one message. Raises Undelivered."""
        import logging

        import apprise

        logging.getLogger("apprise").disabled = True  # it logs addresses
        service: Any = apprise.Apprise()
        if not service.add(secrets.get("url") or ""):
            raise Undelivered("its address is none that apprise knows", refused=True)
        title, body = request.body
        if not service.notify(
            title=title, body=body, body_format=apprise.NotifyFormat.TEXT, interpret_escapes=False
        ):
            raise Undelivered("apprise could not deliver it")
