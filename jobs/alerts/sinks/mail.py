"""Mail over SMTP."""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from jobs.alerts import text
from jobs.alerts.outbox import FIRING, Message
from jobs.alerts.sink import Request, Secrets, Sink, Undelivered, key_of
from jobs.alerts.text import Context


@dataclass(frozen=True, kw_only=True)
class Mail(Sink):
    """Sends plain text mails."""

    type: ClassVar[str] = "mail"
    schemes: ClassVar[tuple[str, ...]] = ("smtp", "smtps")

    sender: str
    to: tuple[str, ...]
    limit: int = 5
    user: str | None = None
    password_env: str | None = None
    starttls: bool = False
    # certificate authority of the mail server
    ca_file: Path | None = None

    def payload(self, message: Message, context: Context) -> EmailMessage:
        """Return a plain text mail. A repetition has the same Message-ID, so mail programs recognise it."""
        mail = EmailMessage()
        mail["Subject"] = text.titled(message, context)
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.to)
        mail["Message-ID"] = f"<{key_of(message).replace('/', '.')}@kafka-audit>"
        if message.state != FIRING:
            mail["In-Reply-To"] = (
                f"<{key_of(message).replace('/', '.').replace(message.state, FIRING)}@kafka-audit>"
            )
        mail["Auto-Submitted"] = "auto-generated"
        mail["Date"] = format_datetime(context.now)
        mail.set_content(text.page(message, context))
        return mail

    def readable(self, body: Any) -> Any:
        """Return the lines of the mail."""
        return body.as_string().splitlines()

    def send(self, request: Request, secrets: Secrets) -> None:
        """Deliver one mail. Raises Undelivered."""
        parts = urlsplit(request.url or secrets.get("url") or "")
        context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        try:
            if parts.scheme == "smtps":
                server: smtplib.SMTP = smtplib.SMTP_SSL(
                    parts.hostname or "", parts.port or 465, timeout=self.timeout_seconds, context=context
                )
            else:
                server = smtplib.SMTP(parts.hostname or "", parts.port or 25, timeout=self.timeout_seconds)
            with server:
                if self.starttls:
                    server.starttls(context=context)
                if self.user:
                    server.login(self.user, secrets.get("password") or "")
                refused = server.send_message(request.body)
        except ssl.SSLError as error:
            raise Undelivered(f"its certificate is not accepted, or TLS failed: {error.reason}") from None
        except smtplib.SMTPResponseException as error:
            raise Undelivered(
                f"the mail server answered {error.smtp_code}", refused=error.smtp_code >= 500
            ) from None
        except smtplib.SMTPRecipientsRefused:
            raise Undelivered("the mail server refused all recipients", refused=True) from None
        except TimeoutError:
            raise Undelivered(f"no answer within {self.timeout_seconds} s") from None
        except ConnectionRefusedError:
            raise Undelivered("connection refused") from None
        except (smtplib.SMTPException, OSError) as error:
            raise Undelivered(f"cannot be reached ({type(error).__name__})") from None
        if refused:
            raise Undelivered(
                f"the mail server refused {len(refused)} of {len(self.to)} recipients", refused=True
            )
