"""Base classes of the sinks that take a POST over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from jobs.alerts.sink import Request, Secrets, Sink


@dataclass(frozen=True, kw_only=True)
class HttpSink(Sink):
    """Sends each body by POST: what `payload` returns, a text as plain text and anything else as JSON."""

    # the sink handles the same body only once
    is_idempotent: ClassVar[bool] = False

    # certificate authority of the sink
    ca_file: Path | None = None

    def target(self, url: str) -> str:
        """Return the address that takes the body."""
        return url

    def body(self, request: Request, secrets: Secrets) -> Any:
        """Return the body with the secrets that it needs."""
        return request.body

    def send(self, request: Request, secrets: Secrets) -> None:
        """Deliver one request. Raises Undelivered."""
        from jobs.alerts.posting import post

        post(
            self.target(request.url or secrets.get("url") or ""),
            self.body(request, secrets),
            headers=request.headers,
            secrets=secrets,
            timeout_seconds=self.timeout_seconds,
            user=getattr(self, "user", None),
            ca_file=self.ca_file,
            is_idempotent=self.is_idempotent,
        )


@dataclass(frozen=True, kw_only=True)
class AuthenticatedHttpSink(HttpSink):
    """Sends with a bearer token, or with user and password."""

    token_env: str | None = None
    user: str | None = None
    password_env: str | None = None
