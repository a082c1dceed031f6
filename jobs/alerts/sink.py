"""A sink: its settings, how messages become requests, and how a request reaches it.

Each type of sink is a module of `jobs.alerts.sinks` with one subclass of Sink. Its dataclass fields are its
keys in audit.toml. `SINK_TYPES` finds the module; no other code names it.
"""

from __future__ import annotations

import difflib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_type_hints
from urllib.parse import quote, urlsplit

import schemas
from jobs.config_entry import Entry, check_url, nearest

if TYPE_CHECKING:
    from jobs.alerts.outbox import Message
    from jobs.alerts.text import Context

# end of each key that names an environment variable
SECRET = "_env"
# characters; a shorter part of an address is not treated as a secret
SHORTEST_SECRET = 6
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Undelivered(Exception):
    """A request was not delivered; the text says why.

    refused: the sink understood the request and refused it, so it may accept others.
    """

    def __init__(self, text: str, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


@dataclass(frozen=True)
class Request:
    """One request to a sink, and the messages that it delivers.

    url: None if the address is in an environment variable. body: what the sink's `send` takes. labels: of
    each message (Alertmanager).
    """

    messages: tuple[Message, ...]
    body: Any
    url: str | None
    headers: dict[str, str] = field(default_factory=dict)
    labels: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Secrets:
    """The values of the environment variables that a sink names, by key without `_env`."""

    values: Mapping[str, str] = field(default_factory=dict)

    def get(self, key: str) -> str | None:
        """Return the value that the key `<key>_env` names, or None."""
        return self.values.get(key)

    def hidden(self) -> tuple[str, ...]:
        """Return the texts that no output may repeat, the longest first.

        They are the values, and the parts of an address that may be secret.
        """
        texts = list(self.values.values())
        if address := self.values.get("url"):
            parts = urlsplit(address)
            inner = [
                *parts.path.split("/"),
                parts.query,
                *parts.query.split("&"),
                parts.username or "",
                parts.password or "",
            ]
            inner += [piece.partition("=")[2] for piece in parts.query.split("&")] + [parts.path.strip("/")]
            texts += [piece for piece in inner if len(piece) >= SHORTEST_SECRET]
            if (
                parts.scheme not in {"http", "https", "smtp", "smtps"}
                and len(parts.netloc) >= SHORTEST_SECRET
            ):
                texts.append(parts.netloc)
        texts += [quote(text, safe="") for text in texts]
        return tuple(sorted(set(texts), key=len, reverse=True))


@dataclass(frozen=True, kw_only=True)
class Sink(ABC):
    """Where alerts are sent; see `docs/guides/alerts.md`.

    It has the names of the environment variables of its secrets, never their values. A subclass sets `type`,
    may set other defaults, and adds fields: str, int, bool, a list of texts (tuple) or a path to a file
    (Path). A field whose name ends with `_env` names an environment variable.
    """

    type: ClassVar[str]
    # the sink keeps an incident open until it is resolved under the same key; other sinks get messages that
    # people read
    keeps_incidents: ClassVar[bool] = False
    # an address in the configuration must have one of these schemes
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")
    # the address if the configuration gives none
    default_url: ClassVar[str | None] = None

    name: str
    url: str | None = None
    url_env: str | None = None
    severity: str = "error"
    checks: tuple[str, ...] = ("*",)
    clusters: tuple[str, ...] = ("*",)
    # stories of one cluster that get a message each; more become one digest
    limit: int = 10
    timeout_seconds: int = 10
    # whether to send a message about a finding that resolved before its first message
    ended: bool = True

    # -- configuration ---------------------------------------------------------------------------------------

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the keys of an [[alert]] of this type."""
        return ("type", *(one.name for one in fields(cls)))

    @classmethod
    def of_entry(
        cls,
        entry: Entry,
        *,
        checks: Iterable[str],
        clusters: Iterable[str],
        folder: Path,
        environment: Mapping[str, str],
    ) -> Self:
        """Return the sink that an [[alert]] describes. Raises UsageError that names file and key.

        checks, clusters: names that the globs may match. folder: the folder of audit.toml; paths are relative
        to it.
        """
        values: dict[str, Any] = {
            "severity": entry.one_of("severity", "error", schemas.SEVERITIES),
            "checks": entry.globs("checks", checks, "check"),
            "clusters": entry.globs("clusters", clusters, "cluster"),
        }
        kinds = get_type_hints(cls)
        for one in fields(cls):
            if one.name not in values and one.name in entry.table:
                values[one.name] = cls._value(entry, one.name, kinds[one.name], folder)
        entry.required(
            *(one.name for one in fields(cls) if one.name not in values and one.default is MISSING)
        )
        sink = cls(**values)
        sink._check_secrets(entry, environment)
        sink.check_address(entry, environment)
        for one in fields(cls):
            path = getattr(sink, one.name)
            if isinstance(path, Path) and not path.is_file():
                raise entry.wrong(one.name, f"names {path}, which does not exist")
        return sink

    @staticmethod
    def _value(entry: Entry, key: str, kind: Any, folder: Path) -> Any:
        plain = (
            next((one for one in get_args(kind) if one is not NoneType), kind)
            if NoneType in get_args(kind)
            else kind
        )
        if plain is bool:
            return entry.flag(key, False)
        if plain is int:
            return entry.number(key, 1, least=1)
        if plain is str:
            return entry.text(key)
        if plain is Path:
            text = entry.text(key)
            return None if text is None else folder / text
        return entry.texts(key)

    def check_address(self, entry: Entry, environment: Mapping[str, str]) -> None:
        """Check url and url_env. Raises UsageError, which never repeats a secret address."""
        if self.url and self.url_env:
            raise entry.wrong("url", "and url_env exclude each other")
        if self.url_env:
            check_url(environment[self.url_env], entry, "url_env", self.schemes)
        elif self.url:
            parts = check_url(self.url, entry, "url", self.schemes)
            if parts.password or parts.username:
                raise entry.wrong(
                    "url", "contains a user or password; give user and password_env, or url_env"
                )
        elif self.default_url is None:
            raise entry.wrong(
                "url", "is missing; give it, or url_env, the name of an environment variable that contains it"
            )

    def _check_secrets(self, entry: Entry, environment: Mapping[str, str]) -> None:
        for key, variable in self.secret_names().items():
            # the text may be the secret itself: do not repeat it
            if not ENVIRONMENT_NAME.fullmatch(variable):
                raise entry.wrong(key, "must be the name of an environment variable, not the secret itself")
            if not environment.get(variable):
                alike = [
                    name
                    for name in environment
                    if difflib.SequenceMatcher(None, name, variable).ratio() > 0.8
                ]
                near = f"; did you mean {nearest(variable, alike)}?" if alike else ""
                raise entry.wrong(key, f"names the environment variable {variable}, which is not set{near}")
        if (getattr(self, "user", None) is None) != (getattr(self, "password_env", None) is None):
            raise entry.wrong("user", "and password_env go together")

    def secret_names(self) -> dict[str, str]:
        """Return the environment variables that the sink needs, by key."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name.endswith(SECRET)}
        return {key: variable for key, variable in given.items() if variable is not None}

    def secrets(self, environment: Mapping[str, str]) -> Secrets:
        """Return the values that the configuration names."""
        names = self.secret_names()
        return Secrets(
            {
                key.removesuffix(SECRET): environment[name]
                for key, name in names.items()
                if environment.get(name)
            }
        )

    # -- messages --------------------------------------------------------------------------------------------

    @abstractmethod
    def payload(self, message: Message, context: Context) -> Any:
        """Return the body of the request that delivers one message, without secrets."""

    @abstractmethod
    def send(self, request: Request, secrets: Secrets) -> None:
        """Deliver one request. Raises Undelivered."""

    def requests(self, messages: Sequence[Message], context: Context) -> list[Request]:
        """Return the requests that deliver the messages, in order."""
        url = self.url or (None if self.url_env else self.default_url)
        return [
            Request(
                (one,),
                self.payload(one, context),
                url,
                {"Idempotency-Key": key_of(one)},
                (self.labels(one, context),),
            )
            for one in messages
        ]

    def labels(self, message: Message, context: Context) -> str | None:
        """Return the labels that identify the message at the sink, as JSON; None if it has none."""
        return None

    def must_be_repeated(self, delivered_at: datetime, now: datetime) -> bool:
        """Return whether an open incident must be sent again, so that the sink keeps it."""
        return False

    # -- what people see -------------------------------------------------------------------------------------

    def address(self) -> str:
        """Return where the sink is, without what may be secret in its address."""
        if self.url_env:
            return f"the address in ${self.url_env}"
        parts = urlsplit(self.url or self.default_url or "")
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" + (parts.path if self.url is None else "")

    def readable(self, body: Any) -> Any:
        """Return the body of a request as JSON values, for `--dry-run`."""
        return json.loads(json.dumps(body))


def deliver(sink: Sink, request: Request, secrets: Secrets) -> None:
    """Send one request. Raises Undelivered, whose text repeats no secret."""
    from jobs.alerts.text import without

    try:
        sink.send(request, secrets)
    except Undelivered as error:
        raise Undelivered(without(str(error), secrets.hidden()), error.refused) from None
    except Exception as error:
        # its text may contain the address
        raise Undelivered(f"failed with {type(error).__name__}") from None


def key_of(message: Message) -> str:
    """Return the same key for the same message about the same occurrence, however often it is sent."""
    return f"{message.key}/{message.state}/{max(item.occurrence for item in message.items)}"


def stamp(moment: datetime) -> str:
    """Return a time as RFC 3339, milliseconds, UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
