"""HTTP to a sink, with time-outs and retries. No error repeats an address or a secret."""

import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import MaxRetryError, ProtocolError, ReadTimeoutError, ResponseError
from urllib3.util import Retry

from jobs.alerts.sink import Secrets, Undelivered
from jobs.alerts.text import without

TRIES = 3
# seconds before the second try; doubled before each further one
BACKOFF = 0.5
# seconds; a sink that asks for a longer wait is tried again by the next run
PATIENCE = 15
PLAIN_TEXT = "text/plain; charset=utf-8"
TRY_LATER = (408, 425, 429, 500, 502, 503, 504)
# characters of a refusing answer that the error repeats
ANSWER = 200


def post(
    url: str,
    body: Any,
    *,
    headers: Mapping[str, str],
    secrets: Secrets,
    timeout_seconds: int,
    user: str | None = None,
    ca_file: Path | None = None,
    is_idempotent: bool = False,
) -> None:
    """Send a body: a text as it is, anything else as JSON. Raises Undelivered.

    secrets: a token is sent in the header, a password with the user.
    is_idempotent: the sink handles the same body only once, so it may be sent again after a time-out.
    """
    retry = _Patient(
        total=TRIES - 1,
        read=None if is_idempotent else 0,
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
        is_text = isinstance(body, str)
        # a header of the sink replaces ours
        sent = (
            {"User-Agent": "kafka-audit"} | ({"Content-Type": PLAIN_TEXT} if is_text else {}) | dict(headers)
        )
        if token := secrets.get("token"):
            sent["Authorization"] = f"Bearer {token}"
        with _without_address(timeout_seconds):
            answer = session.post(
                url,
                data=body.encode() if is_text else None,
                json=None if is_text else body,
                headers=sent,
                auth=(user, secrets.get("password") or "") if user else _NoAuth(),
                timeout=timeout_seconds,
                verify=str(ca_file) if ca_file else True,
                allow_redirects=False,
                stream=True,
            )
            with answer:
                if 200 <= answer.status_code < 300:
                    return
                refusal = answer.raw.read(ANSWER * 4, decode_content=True).decode("utf-8", "replace")
        text = " ".join(without(refusal, secrets.hidden()).split())[:ANSWER]
        printable = "".join(c if c.isprintable() else "?" for c in text)
        refused = answer.status_code not in TRY_LATER
        raise Undelivered(
            f"answered {answer.status_code}" + (f": {printable}" if refused and printable else ""), refused
        )


class _Patient(Retry):
    """Waits no longer than PATIENCE for a sink that asks for it (Retry-After): the next run tries again."""

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
def _without_address(timeout_seconds: int) -> Any:
    """Turn an error of the connection into an Undelivered whose text has no address."""
    try:
        yield
    except requests.exceptions.SSLError as error:
        why = _cause(error, ssl.SSLError)
        detail = getattr(why, "verify_message", "") or getattr(why, "reason", "") or "TLS failed"
        raise Undelivered(f"its certificate is not accepted, or TLS failed: {detail}") from None
    except requests.exceptions.Timeout:
        raise Undelivered(f"no answer within {timeout_seconds} s") from None
    except (requests.exceptions.RequestException, ProtocolError, OSError) as error:
        if _cause(error, ReadTimeoutError):
            raise Undelivered(f"no answer within {timeout_seconds} s") from None
        if _cause(error, ConnectionRefusedError):
            raise Undelivered("connection refused") from None
        if _cause(error, ResponseError):
            raise Undelivered("asked to try again later, again and again") from None
        if _cause(error, ProtocolError):
            raise Undelivered("closed the connection without an answer that can be read") from None
        raise Undelivered(f"cannot be reached ({type(error).__name__})") from None


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Return the first exception of a kind among the causes of an exception."""
    seen: list[Any] = [error]
    for one in seen:
        if isinstance(one, kind):
            return one
        reason = one.reason if isinstance(one, MaxRetryError) else None
        seen += [
            inner
            for inner in (
                *getattr(one, "args", ()),
                reason,
                getattr(one, "__cause__", None),
                getattr(one, "__context__", None),
            )
            if isinstance(inner, BaseException) and inner not in seen
        ]
    return None
