"""Load audit.toml: clusters and the paths of their logs, thresholds, silences, alert sinks.

Every mistake raises UsageError before a log is read. It names file and key, and the nearest known key.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import schemas
from jobs.alerts.sink import Sink
from jobs.alerts.sinks import SINK_TYPES
from jobs.config_entry import Entry, check_url
from jobs.errors import UsageError
from jobs.files.archives import LIMITS, Limits
from jobs.location import SCHEME
from schemas.moments import moment


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
    """The min.insync.replicas of topics. name, cluster: globs."""

    name: str
    min_insync_replicas: int
    cluster: str = "*"


@dataclass(frozen=True)
class Slo:
    """A goal for the availability of topics: percent of the covered time of the last days.

    topic, cluster: globs. acks: of the producers.
    """

    availability: float
    topic: str = "*"
    cluster: str = "*"
    acks: str = "all"
    days: int = 30


@dataclass(frozen=True)
class Threshold:
    """The value of a threshold.

    topic, cluster: globs; of several thresholds that match, the last one counts.
    """

    name: str
    value: int
    topic: str = "*"
    cluster: str = "*"


@dataclass(frozen=True)
class Silence:
    """Findings about which no sink is notified. Every condition is a glob, and all given ones must match.

    broker: the node or the replica of a finding. until: end of the silence; None: it has none.
    """

    check: str = "*"
    cluster: str = "*"
    topic: str | None = None
    broker: str | None = None
    fingerprint: str | None = None
    until: datetime | None = None
    reason: str | None = None
    who: str | None = None

    def is_active_at(self, moment: datetime) -> bool:
        """Return whether the silence has not expired."""
        return self.until is None or moment < self.until

    def conditions(self) -> str:
        """Return its conditions, such as `check leader_imbalance, topic tmp-*`."""
        given = {"check": self.check, "cluster": self.cluster, "topic": self.topic, "broker": self.broker}
        given["fingerprint"] = self.fingerprint
        return ", ".join(f"{name} {value}" for name, value in given.items() if value not in {None, "*"})

    def because(self) -> str:
        """Return its reason, such as `migration, until 2026-12-24 00:00:00 UTC, by Ann`."""
        until = f"until {moment(self.until)}" if self.until else "for good"
        return ", ".join([self.reason or "no reason given", until, *([f"by {self.who}"] if self.who else [])])


@dataclass(frozen=True)
class Config:
    """The content of audit.toml."""

    clusters: tuple[Cluster, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    silences: tuple[Silence, ...] = ()
    sinks: tuple[Sink, ...] = ()
    topics: tuple[Topic, ...] = ()
    slos: tuple[Slo, ...] = ()
    report_url: str | None = None
    rules: Path | None = None
    limits: Limits = LIMITS


LIMIT_KEYS = ("unpacked_gb", "ratio", "temporary_gb")
CLUSTER_KEYS = ("name", "logs", "timezone", "kafka_version", "racks")
TOPIC_KEYS = ("name", "cluster", "min_insync_replicas")
SLO_KEYS = ("topic", "cluster", "availability", "acks", "days")
SILENCE_CONDITIONS = ("check", "cluster", "topic", "broker", "fingerprint")
SILENCE_KEYS = (*SILENCE_CONDITIONS, "until", "reason", "who")


def check_names() -> list[str]:
    """Return the names of all checks."""
    return [check.name for check in schemas.statements("checks")]


def expired_silences(config: Config, moment: datetime) -> list[str]:
    """Return a sentence for each silence that has expired at a moment (UTC)."""
    return [
        f"The silence of {silence.conditions()} ({silence.because()}) has expired; remove it from audit.toml, or give it more time"
        for silence in config.silences
        if not silence.is_active_at(moment)
    ]


def check_timezone(name: str) -> str:
    """Return a zone as Spark accepts it: an IANA name or a fixed offset (`GMT+09:30`, `+02:00`).

    Raises UsageError.
    """
    if offset := re.fullmatch(r"(?:GMT|UTC)?([+\-])(\d{1,2})(?::?(\d{2}))?", name):
        direction, hours, minutes = offset.groups()
        if int(hours) * 60 + int(minutes or 0) <= 18 * 60 and int(minutes or 0) < 60:
            return f"{direction}{int(hours):02d}:{minutes or '00'}"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"--timezone {name}: no such zone; give an IANA name such as Europe/Berlin, or an offset such as GMT+09:30"
        ) from None
    return name


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Read audit.toml; paths in it are relative to its folder. Raises UsageError.

    environment: must have the variables that the sinks name.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path}: {error}") from None
    whole = Entry(
        content,
        str(path),
        (
            "cluster",
            "limits",
            "thresholds",
            "threshold",
            "silence",
            "alert",
            "topic",
            "slo",
            "report_url",
            "rules",
        ),
    )
    clusters = tuple(_cluster(entry, path.parent) for entry in _entries(whole, "cluster", CLUSTER_KEYS))
    names = [cluster.name for cluster in clusters]
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: two clusters have the same name")
    sinks = tuple(_sinks(whole, names, path.parent, environment))
    for number, sink in enumerate(sinks, 1):
        if sink.name in {other.name for other in sinks[: number - 1]}:
            raise UsageError(
                f"{path}: alert {number}: name {sink.name!r} is that of another alert; each needs its own"
            )
    report_url = whole.text("report_url")
    if report_url is not None:
        check_url(report_url, whole, "report_url", ("http", "https"))
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
        limits=_limits(Entry(whole.table.get("limits", {}), f"{whole.where}: limits", LIMIT_KEYS)),
    )


def _limits(entry: Entry) -> Limits:
    unpacked = entry.number("unpacked_gb", LIMITS.unpacked // 10**9, least=1) * 10**9
    temporary = entry.number("temporary_gb", LIMITS.temporary // 10**9, least=1) * 10**9
    return Limits(unpacked, entry.number("ratio", LIMITS.ratio, least=1), temporary)


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
    """Return broker id -> rack, from { "1" = "r1", "2" = "r2" }."""
    given = entry.table.get("racks", {})
    if not isinstance(given, dict) or not all(
        key.isdecimal() and isinstance(rack, str) and rack for key, rack in given.items()
    ):
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
        found += [
            Threshold(name, entry.number(name, 0), entry.text("topic") or "*", cluster) for name in names
        ]
    return tuple(found)


def _silence(entry: Entry, clusters: list[str]) -> Silence:
    if not set(SILENCE_CONDITIONS) & set(entry.table):
        raise UsageError(f"{entry.where}: give at least one of {', '.join(SILENCE_CONDITIONS)}")
    broker, fingerprint = entry.table.get("broker"), entry.text("fingerprint")
    if fingerprint and "*" not in fingerprint:  # `findings` prints only its beginning
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


def _sinks(whole: Entry, clusters: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Sink]:
    """Yield the sink of each [[alert]], which may have the keys of its type and no other."""
    known = sorted({key for kind in SINK_TYPES.values() for key in kind.settings()})
    for where, table in _tables(whole, "alert"):
        entry = Entry(table, where, known)
        entry.required("name", "type")
        kind = entry.one_of("type", None, SINK_TYPES)
        named = Entry(table, f"{where} ({entry.text('name')!r})", known)
        for key in table:
            if key not in SINK_TYPES[kind].settings():
                raise named.wrong(key, f"does not go with type {kind!r}")
        yield SINK_TYPES[kind].of_entry(
            named, checks=check_names(), clusters=clusters, folder=folder, environment=environment
        )
