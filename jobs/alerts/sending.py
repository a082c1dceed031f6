"""How a request gets to its sink: HTTP, SMTP or apprise, with time-outs and retries. No error repeats an address or a secret."""

import contextlib
import smtplib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Self
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import MaxRetryError, ProtocolError, ReadTimeoutError, ResponseError
from urllib3.util import Retry

from jobs.alerts.payloads import Request, api_of
from jobs.alerts.text import without
from jobs.config import Sink

TRIES = 3
# seconds before the second try; doubled before each further one
BACKOFF = 0.5
# a sink that asks for more patience than so many seconds is asked again by the next run
PATIENCE = 15
TRY_LATER = (408, 425, 429, 500, 502, 503, 504)
# of an answer that refuses, so much is repeated
ANSWER = 200
# shorter parts of an address are not taken for a secret
SHORTEST_SECRET = 6


class Undelivered(Exception):
    """A request did not arrive; the text says why. refused: it was understood and refused, others may be taken."""

    def __init__(self, text: str, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


@dataclass(frozen=True)
class Secrets:
    """The values of the environment variables that a sink names."""

    url: str | None = None
    token: str | None = None
    routing_key: str | None = None
    password: str | None = None

    def hidden(self) -> tuple[str, ...]:
        """Texts that must not be repeated anywhere, the longest first: the values, and the parts of an address that may be secret."""
        values = [value for value in (self.url, self.token, self.routing_key, self.password) if value]
        for address in filter(None, [self.url]):
            parts = urlsplit(address)
            inner = [*parts.path.split("/"), parts.query, *parts.query.split("&"), parts.username or "", parts.password or ""]
            inner += [piece.partition("=")[2] for piece in parts.query.split("&")] + [parts.path.strip("/")]
            values += [piece for piece in inner if len(piece) >= SHORTEST_SECRET]
            if parts.scheme not in {"http", "https", "smtp", "smtps"} and len(parts.netloc) >= SHORTEST_SECRET:
                values.append(parts.netloc)
        values += [quote(value, safe="") for value in values]
        return tuple(sorted(set(values), key=len, reverse=True))


def secrets_of(sink: Sink, environment: Mapping[str, str]) -> Secrets:
    """The values that the sink's configuration names."""

    def value(name: str | None) -> str | None:
        return environment.get(name) if name else None

    return Secrets(value(sink.url_env), value(sink.token_env), value(sink.routing_key_env), value(sink.password_env))


def send(sink: Sink, request: Request, secrets: Secrets) -> None:
    """Delivers one request. Raises Undelivered."""
    try:
        if sink.type == "mail":
            _mail(sink, request.body, secrets)
        elif sink.type == "apprise":
            _apprise(request.body, secrets)
        else:
            _post(sink, request, secrets)
    except Undelivered as error:
        raise Undelivered(without(str(error), secrets.hidden()), error.refused) from None
    except Exception as error:
        # its text may hold the address
        raise Undelivered(f"failed with {type(error).__name__}") from None


# -- HTTP --------------------------------------------------------------------------------------------------


def _post(sink: Sink, request: Request, secrets: Secrets) -> None:
    url = request.url or (secrets.url or "")
    body = request.body
    if sink.type == "alertmanager":
        url = api_of(url)
    if sink.type == "pagerduty":
        body = {"routing_key": secrets.routing_key, **body}
    # who takes the same thing once only may be sent it again after a time-out
    same_again = sink.type in {"alertmanager", "pagerduty"}
    retry = _Patient(
        total=TRIES - 1,
        read=None if same_again else 0,
        redirect=0,
        allowed_methods=None,
        status_forcelist=TRY_LATER,
        backoff_factor=BACKOFF,
        raise_on_status=False,
        raise_on_redirect=False,
    )
    with requests.Session() as session:
        session.trust_env = True  # proxies
        session.mount("http://", HTTPAdapter(max_retries=retry))
        session.mount("https://", HTTPAdapter(max_retries=retry))
        headers = {"User-Agent": "kafka-audit", **request.headers}
        if secrets.token:
            headers["Authorization"] = f"Bearer {secrets.token}"
        with _spoken_of(sink):
            answer = session.post(
                url,
                json=body,
                headers=headers,
                auth=(sink.user, secrets.password or "") if sink.user else _NoAuth(),
                timeout=sink.timeout_seconds,
                verify=str(sink.ca_file) if sink.ca_file else True,
                allow_redirects=False,
                stream=True,
            )
            with answer:
                if 200 <= answer.status_code < 300:
                    return
                said = answer.raw.read(ANSWER * 4, decode_content=True).decode("utf-8", "replace")
        text = " ".join(without(said, secrets.hidden()).split())[:ANSWER]
        printable = "".join(c if c.isprintable() else "?" for c in text)
        refused = answer.status_code not in TRY_LATER
        raise Undelivered(f"answered {answer.status_code}" + (f": {printable}" if refused and printable else ""), refused)


class _Patient(Retry):
    """Does not wait longer than PATIENCE for a sink that asks for it (Retry-After): the next run tries again."""

    def increment(
        self,
        method: Any = None,
        url: Any = None,
        response: Any = None,
        error: Any = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Self:
        after = self.get_retry_after(response) if response is not None else None
        if after is not None and after > PATIENCE:
            raise MaxRetryError(_pool, url)
        return super().increment(method, url, response, error, _pool, _stacktrace)


class _NoAuth(requests.auth.AuthBase):
    """Keeps requests from looking for a password in ~/.netrc, which would replace our own header."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


@contextlib.contextmanager
def _spoken_of(sink: Sink) -> Any:
    """Turns what goes wrong on the way into a sentence without an address."""
    try:
        yield
    except requests.exceptions.SSLError as error:
        why = _cause(error, ssl.SSLError)
        detail = getattr(why, "verify_message", "") or getattr(why, "reason", "") or "TLS failed"
        raise Undelivered(f"its certificate is not accepted, or TLS failed: {detail}") from None
    except requests.exceptions.Timeout:
        raise Undelivered(f"no answer within {sink.timeout_seconds} s") from None
    except (requests.exceptions.RequestException, ProtocolError, OSError) as error:
        if _cause(error, ReadTimeoutError):
            raise Undelivered(f"no answer within {sink.timeout_seconds} s") from None
        if _cause(error, ConnectionRefusedError):
            raise Undelivered("connection refused") from None
        if _cause(error, ResponseError):
            raise Undelivered("asked to try again later, again and again") from None
        if _cause(error, ProtocolError):
            raise Undelivered("closed the connection without an answer that can be read") from None
        raise Undelivered(f"cannot be reached ({type(error).__name__})") from None


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """The first exception of a kind among what an exception was made from."""
    seen: list[Any] = [error]
    for one in seen:
        if isinstance(one, kind):
            return one
        reason = one.reason if isinstance(one, MaxRetryError) else None
        seen += [
            inner
            for inner in (*getattr(one, "args", ()), reason, getattr(one, "__cause__", None), getattr(one, "__context__", None))
            if isinstance(inner, BaseException) and inner not in seen
        ]
    return None


# -- mail and apprise --------------------------------------------------------------------------------------


def _mail(sink: Sink, message: EmailMessage, secrets: Secrets) -> None:
    parts = urlsplit(sink.url or secrets.url or "")
    context = ssl.create_default_context(cafile=str(sink.ca_file) if sink.ca_file else None)
    try:
        if parts.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                parts.hostname or "", parts.port or 465, timeout=sink.timeout_seconds, context=context
            )
        else:
            server = smtplib.SMTP(parts.hostname or "", parts.port or 25, timeout=sink.timeout_seconds)
        with server:
            if sink.starttls:
                server.starttls(context=context)
            if sink.user:
                server.login(sink.user, secrets.password or "")
            refused = server.send_message(message)
    except ssl.SSLError as error:
        raise Undelivered(f"its certificate is not accepted, or TLS failed: {error.reason}") from None
    except smtplib.SMTPResponseException as error:
        raise Undelivered(f"the mail server answered {error.smtp_code}", refused=error.smtp_code >= 500) from None
    except smtplib.SMTPRecipientsRefused:
        raise Undelivered("the mail server refused all recipients", refused=True) from None
    except TimeoutError:
        raise Undelivered(f"no answer within {sink.timeout_seconds} s") from None
    except ConnectionRefusedError:
        raise Undelivered("connection refused") from None
    except (smtplib.SMTPException, OSError) as error:
        raise Undelivered(f"cannot be reached ({type(error).__name__})") from None
    if refused:
        raise Undelivered(f"the mail server refused {len(refused)} of {len(sink.to)} recipients", refused=True)


def _apprise(body: tuple[str, str], secrets: Secrets) -> None:
    import logging

    import apprise

    logging.getLogger("apprise").disabled = True  # it logs addresses
    service = apprise.Apprise()
    if not service.add(secrets.url or ""):
        raise Undelivered("its address is none that apprise knows", refused=True)
    title, text = body
    if not service.notify(title=title, body=text, body_format=apprise.NotifyFormat.TEXT, interpret_escapes=False):
        raise Undelivered("apprise could not deliver it")
