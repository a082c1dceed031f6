"""What a run is told by audit.toml: clusters and where their logs are, thresholds, silences, alert sinks.

Every mistake is a UsageError that names file and key, and the nearest known one, before a log is read.
"""

import difflib
import fnmatch
import importlib.util
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import schemas
from jobs.errors import UsageError
from jobs.location import SCHEME

SEVERITIES = ("info", "warning", "error", "critical")


@dataclass(frozen=True)
class Cluster:
    """One cluster of a run."""

    name: str
    logs: tuple[str, ...]
    timezone: str = "UTC"
    kafka_version: str | None = None
    racks: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Topic:
    """What audit.toml says about topics: globs of topic and cluster, and min.insync.replicas."""

    name: str
    min_insync_replicas: int
    cluster: str = "*"


@dataclass(frozen=True)
class Slo:
    """How available topics must be: globs, percent of the time that logs cover, over the last days; acks as producers set it."""

    availability: float
    topic: str = "*"
    cluster: str = "*"
    acks: str = "all"
    days: int = 30


@dataclass(frozen=True)
class Threshold:
    """The value of a threshold where both globs match; of several that match, the last one counts."""

    name: str
    value: int
    topic: str = "*"
    cluster: str = "*"


@dataclass(frozen=True)
class Silence:
    """Findings that nobody is told about until a moment; every condition is a glob, all that are given must match.

    broker: the node or the replica of a finding. until: None = for good.
    """

    check: str = "*"
    cluster: str = "*"
    topic: str | None = None
    broker: str | None = None
    fingerprint: str | None = None
    until: datetime | None = None
    reason: str | None = None
    who: str | None = None

    def holds_at(self, moment: datetime) -> bool:
        """Whether it has not expired."""
        return self.until is None or moment < self.until

    def conditions(self) -> str:
        """`check leader_imbalance, topic tmp-*`"""
        given = {"check": self.check, "cluster": self.cluster, "topic": self.topic, "broker": self.broker}
        given["fingerprint"] = self.fingerprint
        return ", ".join(f"{name} {value}" for name, value in given.items() if value not in {None, "*"})

    def because(self) -> str:
        """`migration, until 2026-12-24 00:00 UTC, by Ann`"""
        until = f"until {self.until:%Y-%m-%d %H:%M} UTC" if self.until else "for good"
        return ", ".join([self.reason or "no reason given", until, *([f"by {self.who}"] if self.who else [])])


@dataclass(frozen=True)
class Sink:
    """Where alerts go. Secrets are held by the name of their environment variable only; see `docs/guides/alerts.md`."""

    name: str
    type: str
    url: str | None = None
    url_env: str | None = None
    severity: str = "error"
    checks: tuple[str, ...] = ("*",)
    clusters: tuple[str, ...] = ("*",)
    # findings of a cluster that are told one by one; of more, one digest
    limit: int = 10
    timeout_seconds: int = 10
    # whether a finding that was over before anybody was told of it is worth a message
    ended: bool = True
    token_env: str | None = None
    routing_key_env: str | None = None
    user: str | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    starttls: bool = False
    sender: str | None = None
    to: tuple[str, ...] = ()
    # after so many days Alertmanager takes an alert as resolved that it has not heard of again
    expires_days: int = 30

    def secret_names(self) -> tuple[str, ...]:
        """The environment variables that it needs."""
        names = (self.url_env, self.token_env, self.routing_key_env, self.password_env)
        return tuple(name for name in names if name is not None)


@dataclass(frozen=True)
class Config:
    """Everything that audit.toml may hold."""

    clusters: tuple[Cluster, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    silences: tuple[Silence, ...] = ()
    sinks: tuple[Sink, ...] = ()
    topics: tuple[Topic, ...] = ()
    slos: tuple[Slo, ...] = ()
    report_url: str | None = None
    rules: Path | None = None


CLUSTER_KEYS = ("name", "logs", "timezone", "kafka_version", "racks")
TOPIC_KEYS = ("name", "cluster", "min_insync_replicas")
SLO_KEYS = ("topic", "cluster", "availability", "acks", "days")
SILENCE_CONDITIONS = ("check", "cluster", "topic", "broker", "fingerprint")
SILENCE_KEYS = (*SILENCE_CONDITIONS, "until", "reason", "who")
SINK_KEYS = ("name", "type", "url", "url_env", "severity", "checks", "clusters", "limit", "timeout_seconds", "ended")
HTTP_KEYS = ("token_env", "user", "password_env", "ca_file")


@dataclass(frozen=True)
class SinkType:
    """What tells one type of sink from others: its keys beside SINK_KEYS, and its defaults."""

    keys: tuple[str, ...]
    limit: int
    ended: bool


SINK_TYPES = {
    "alertmanager": SinkType((*HTTP_KEYS, "expires_days"), limit=50, ended=False),
    "pagerduty": SinkType(("routing_key_env", "ca_file"), limit=10, ended=False),
    "slack": SinkType(("ca_file",), limit=5, ended=True),
    "webhook": SinkType(HTTP_KEYS, limit=10, ended=True),
    "mail": SinkType(("sender", "to", "user", "password_env", "starttls", "ca_file"), limit=5, ended=True),
    "apprise": SinkType((), limit=5, ended=True),
}
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@cache
def glob_pattern(glob: str) -> str:
    """The regular expression of a glob, for Python's fullmatch and between ^ and $ for Java; `*` and `?` only."""
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in glob)


def matches(globs: Iterable[str], name: str) -> bool:
    """Whether one of the globs takes the whole name."""
    return any(re.fullmatch(glob_pattern(glob), name, re.DOTALL) for glob in globs)


def check_names() -> list[str]:
    """The checks that there are."""
    return [check.name for check in schemas.statements("checks")]


def expired_silences(config: Config, moment: datetime) -> list[str]:
    """A sentence for each silence whose time is over at that moment (UTC)."""
    return [
        f"The silence of {silence.conditions()} ({silence.because()}) has expired; remove it from audit.toml, or give it more time"
        for silence in config.silences
        if not silence.holds_at(moment)
    ]


def check_timezone(name: str) -> str:
    """The zone as Spark takes it. Raises UsageError; IANA names and fixed offsets (`GMT+09:30`, `+02:00`) are known."""
    if offset := re.fullmatch(r"(?:GMT|UTC)?([+\-])(\d{1,2})(?::?(\d{2}))?", name):
        sign, hours, minutes = offset.groups()
        if int(hours) * 60 + int(minutes or 0) <= 18 * 60 and int(minutes or 0) < 60:
            return f"{sign}{int(hours):02d}:{minutes or '00'}"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"--timezone {name}: no such zone; give an IANA name such as Europe/Berlin, or an offset such as GMT+09:30"
        ) from None
    return name


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that looks most like one that is not known."""
    return difflib.get_close_matches(name, list(known), 1, 0.0)[0]


class Entry:
    """One table of the file. Values are asked for by type; what is wrong with one is a UsageError that names file and key."""

    def __init__(self, table: Any, where: str, known: Iterable[str]) -> None:
        if not isinstance(table, dict):
            raise UsageError(f"{where} must be a table")
        self.table, self.where = table, where
        known = list(known)
        for key in table:
            if key not in known:
                raise UsageError(f"{where}: unknown key {key!r}; did you mean {nearest(key, known)!r}?")

    def wrong(self, key: str, what: str) -> UsageError:
        """What is wrong with a key."""
        return UsageError(f"{self.where}: {key} {what}")

    def required(self, *keys: str) -> None:
        """Raises UsageError where one of the keys is missing."""
        for key in keys:
            if key not in self.table:
                raise self.wrong(key, "is missing")

    def text(self, key: str) -> str | None:
        """A text that is not empty, or None."""
        value = self.table.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self.wrong(key, "must be a text")
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts that is not empty."""
        value = self.table.get(key)
        if value is None:
            return default
        if not isinstance(value, list) or not value:
            raise self.wrong(key, 'must be a list of texts such as ["a", "b"]')
        if not all(isinstance(item, str) and item for item in value):
            raise self.wrong(key, "must be a text in every item")
        return tuple(value)

    def number(self, key: str, default: int, least: int = 0) -> int:
        """A whole number."""
        value = self.table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(key, "must be a whole number")
        if value < least:
            raise self.wrong(key, f"must be {least} or more")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def one_of(self, key: str, default: str | None, known: Iterable[str]) -> str:
        """One of the known texts."""
        value = self.text(key) or default
        if value is None or value not in (known := list(known)):
            raise self.wrong(key, f"{value!r} is none of {', '.join(known)}; did you mean {nearest(str(value), known)!r}?")
        return value

    def moment(self, key: str) -> datetime | None:
        """A time, UTC where it names no zone."""
        value = self.table.get(key)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = 0
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if value is None:
            return None
        if not isinstance(value, datetime):
            raise self.wrong(key, "must be a time such as 2026-12-24T00:00:00Z")
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)

    def globs(self, key: str, names: Iterable[str], what: str) -> tuple[str, ...]:
        """Globs of which each takes one of the names; any will do where no name is known."""
        given = self.texts(key, ("*",))
        names = list(names)
        for glob in given:
            if names and not any(matches([glob], name) for name in names):
                raise self.wrong(key, f"{glob!r} matches no {what}; the nearest is {nearest(glob, names)!r}")
        return given

    def glob(self, key: str, names: Iterable[str], what: str) -> str:
        """One such glob."""
        if (value := self.text(key)) is None:
            return "*"
        (found,) = Entry({key: [value]}, self.where, [key]).globs(key, names, what)
        return found


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Reads audit.toml; paths in it are relative to its folder. Raises UsageError.

    environment: where the variables that the sinks name must be.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path}: {error}") from None
    whole = Entry(
        content, str(path), ("cluster", "thresholds", "threshold", "silence", "alert", "topic", "slo", "report_url", "rules")
    )
    clusters = tuple(_cluster(entry, path.parent) for entry in _entries(whole, "cluster", CLUSTER_KEYS))
    names = [cluster.name for cluster in clusters]
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: two clusters have the same name")
    sinks = tuple(_sink(entry, names, path.parent, environment) for entry in _sink_entries(whole))
    for number, sink in enumerate(sinks, 1):
        if sink.name in {other.name for other in sinks[: number - 1]}:
            raise UsageError(f"{path}: alert {number}: name {sink.name!r} is that of another alert; each needs its own")
    report_url = whole.text("report_url")
    if report_url is not None:
        _check_url(report_url, whole, "report_url", ("http", "https"))
    rules = whole.text("rules")
    return Config(
        clusters=clusters,
        thresholds=_thresholds(whole, names),
        silences=tuple(_silence(entry, names) for entry in _entries(whole, "silence", SILENCE_KEYS)),
        sinks=sinks,
        topics=tuple(_topic(entry, names) for entry in _entries(whole, "topic", TOPIC_KEYS)),
        slos=tuple(_slo(entry, names) for entry in _entries(whole, "slo", SLO_KEYS)),
        report_url=report_url,
        rules=path.parent / rules if rules else None,
    )


def _tables(whole: Entry, kind: str) -> list[tuple[str, Any]]:
    value = whole.table.get(kind, [])
    if not isinstance(value, list):
        raise whole.wrong(kind, f"must be a list: write [[{kind}]]")
    return [(f"{whole.where}: {kind} {number}", table) for number, table in enumerate(value, 1)]


def _entries(whole: Entry, kind: str, known: Iterable[str]) -> list[Entry]:
    return [Entry(table, where, known) for where, table in _tables(whole, kind)]


def _cluster(entry: Entry, folder: Path) -> Cluster:
    entry.required("name", "logs")
    name, version = entry.text("name"), entry.text("kafka_version")
    assert name is not None
    logs = tuple(item if SCHEME.match(item) else str(folder / item) for item in entry.texts("logs"))
    return Cluster(name, logs, check_timezone(entry.text("timezone") or "UTC"), version, _racks(entry))


def _racks(entry: Entry) -> dict[int, str]:
    """Broker id -> rack: { "1" = "r1", "2" = "r2" }."""
    given = entry.table.get("racks", {})
    if not isinstance(given, dict) or not all(key.isdecimal() and isinstance(rack, str) and rack for key, rack in given.items()):
        raise entry.wrong("racks", 'must be a table of broker ids such as { "1" = "rack-a", "2" = "rack-b" }')
    return {int(broker): rack for broker, rack in given.items()}


def _topic(entry: Entry, clusters: list[str]) -> Topic:
    entry.required("name", "min_insync_replicas")
    least = entry.number("min_insync_replicas", 1, least=1)
    return Topic(entry.text("name") or "*", least, entry.glob("cluster", clusters, "cluster"))


def _slo(entry: Entry, clusters: list[str]) -> Slo:
    entry.required("availability")
    percent = entry.table["availability"]
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent <= 100:
        raise entry.wrong("availability", "must be a percentage such as 99.95")
    cluster, acks = entry.glob("cluster", clusters, "cluster"), entry.one_of("acks", "all", ("all", "1"))
    return Slo(float(percent), entry.text("topic") or "*", cluster, acks, entry.number("days", 30, least=1))


def _thresholds(whole: Entry, clusters: list[str]) -> tuple[Threshold, ...]:
    known = list(schemas.thresholds())
    general = Entry(whole.table.get("thresholds", {}), f"{whole.where}: thresholds", known)
    found = [Threshold(name, general.number(name, 0)) for name in general.table]
    for entry in _entries(whole, "threshold", ("topic", "cluster", *known)):
        names = [name for name in entry.table if name in known]
        if len(names) == len(entry.table) or not names:
            raise UsageError(f"{entry.where}: give topic or cluster (globs), and one of {', '.join(known)}")
        cluster = entry.glob("cluster", clusters, "cluster")
        found += [Threshold(name, entry.number(name, 0), entry.text("topic") or "*", cluster) for name in names]
    return tuple(found)


def _silence(entry: Entry, clusters: list[str]) -> Silence:
    if not set(SILENCE_CONDITIONS) & set(entry.table):
        raise UsageError(f"{entry.where}: give at least one of {', '.join(SILENCE_CONDITIONS)}")
    broker, fingerprint = entry.table.get("broker"), entry.text("fingerprint")
    if fingerprint and "*" not in fingerprint:  # as `findings` prints it, its beginning
        fingerprint += "*"
    return Silence(
        check=entry.glob("check", check_names(), "check"),
        cluster=entry.glob("cluster", clusters, "cluster"),
        topic=entry.text("topic"),
        broker=str(broker) if type(broker) is int else entry.text("broker"),
        fingerprint=fingerprint,
        until=entry.moment("until"),
        reason=entry.text("reason"),
        who=entry.text("who"),
    )


def _sink_entries(whole: Entry) -> list[Entry]:
    """The [[alert]] tables, each with the keys of its type and no other."""
    known = (*SINK_KEYS, *sorted({key for kind in SINK_TYPES.values() for key in kind.keys}))
    found = []
    for where, table in _tables(whole, "alert"):
        entry = Entry(table, where, known)
        entry.required("name", "type")
        kind = entry.one_of("type", None, SINK_TYPES)
        named = Entry(table, f"{where} ({entry.text('name')!r})", known)
        for key in table:
            if key not in (*SINK_KEYS, *SINK_TYPES[kind].keys):
                raise named.wrong(key, f"does not go with type {kind!r}")
        found.append(named)
    return found


def _sink(entry: Entry, clusters: list[str], folder: Path, environment: Mapping[str, str]) -> Sink:
    name, kind = entry.text("name"), entry.one_of("type", None, SINK_TYPES)
    assert name is not None
    ca_file = entry.text("ca_file")
    sink = Sink(
        name=name,
        type=kind,
        url=entry.text("url"),
        url_env=entry.text("url_env"),
        severity=entry.one_of("severity", "error", SEVERITIES),
        checks=entry.globs("checks", check_names(), "check"),
        clusters=entry.globs("clusters", clusters, "cluster"),
        limit=entry.number("limit", SINK_TYPES[kind].limit, least=1),
        timeout_seconds=entry.number("timeout_seconds", 10, least=1),
        ended=entry.flag("ended", SINK_TYPES[kind].ended),
        token_env=entry.text("token_env"),
        routing_key_env=entry.text("routing_key_env"),
        user=entry.text("user"),
        password_env=entry.text("password_env"),
        ca_file=folder / ca_file if ca_file else None,
        starttls=entry.flag("starttls", False),
        sender=entry.text("sender"),
        to=entry.texts("to"),
        expires_days=entry.number("expires_days", 30, least=1),
    )
    _check_secrets(sink, entry, environment)
    _check_address(sink, entry, environment)
    if sink.ca_file and not sink.ca_file.is_file():
        raise entry.wrong("ca_file", f"names {sink.ca_file}, and there is no such file")
    return sink


def _check_secrets(sink: Sink, entry: Entry, environment: Mapping[str, str]) -> None:
    for key in ("url_env", "token_env", "routing_key_env", "password_env"):
        variable = getattr(sink, key)
        if variable is None:
            continue
        # the text may be the secret itself: it is not repeated
        if not ENVIRONMENT_NAME.fullmatch(variable):
            raise entry.wrong(key, "must be the name of an environment variable, not the secret itself")
        if not environment.get(variable):
            alike = [name for name in environment if difflib.SequenceMatcher(None, name, variable).ratio() > 0.8]
            near = f"; did you mean {nearest(variable, alike)}?" if alike else ""
            raise entry.wrong(key, f"names the environment variable {variable}, which is not set{near}")
    if sink.type == "pagerduty":
        entry.required("routing_key_env")
    if sink.type == "mail":
        entry.required("sender", "to")
    if (sink.user is None) != (sink.password_env is None):
        raise entry.wrong("user", "and password_env go together")


def _check_address(sink: Sink, entry: Entry, environment: Mapping[str, str]) -> None:
    if sink.url and sink.url_env:
        raise entry.wrong("url", "and url_env exclude each other")
    if sink.type == "apprise":
        if sink.url:
            raise entry.wrong("url", "of an apprise service holds its secret; give url_env, the name of an environment variable")
        entry.required("url_env")
        if importlib.util.find_spec("apprise") is None:
            raise entry.wrong("type", "'apprise' needs the package of that name: pip install apprise")
        return
    if sink.url is None and sink.url_env is None:
        if sink.type == "pagerduty":
            return
        raise entry.wrong("url", "is missing; give it, or url_env, the name of an environment variable that holds it")
    schemes = ("smtp", "smtps") if sink.type == "mail" else ("http", "https")
    if sink.url_env:
        _check_url(environment[sink.url_env], entry, "url_env", schemes)
        return
    assert sink.url is not None
    parts = _check_url(sink.url, entry, "url", schemes)
    if parts.password or parts.username:
        raise entry.wrong("url", "holds a user or password; give user and password_env, or url_env")
    if sink.type == "slack" and fnmatch.fnmatch(parts.hostname or "", "*slack*.com"):
        raise entry.wrong(
            "url", "of a Slack webhook is a secret; give url_env, the name of an environment variable that holds it"
        )


def _check_url(url: str, entry: Entry, key: str, schemes: tuple[str, ...]) -> SplitResult:
    """Its parts. Raises UsageError without the text of an address that an environment variable holds."""
    try:
        parts = urlsplit(url)
        sound = (
            parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0 and not re.search(r"[\s\x00-\x1f]", url)
        )
    except ValueError:
        sound = False
    if sound:
        return parts
    shown = "names an environment variable that holds no" if key.endswith("_env") else f"{url!r} is no"
    raise entry.wrong(key, f"{shown} address such as {schemes[0]}://host:port")
