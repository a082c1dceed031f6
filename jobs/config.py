"""What a run is told: clusters, where their logs are, thresholds. Unknown keys are errors that name the nearest known one."""

import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jobs.errors import UsageError


@dataclass(frozen=True)
class Thresholds:
    """From when on a state is worth a finding."""

    leaderless_seconds: int = 30
    reassignment_minutes: int = 60


@dataclass(frozen=True)
class Cluster:
    """One cluster of a run."""

    name: str
    logs: tuple[str, ...]
    timezone: str = "UTC"
    kafka_version: str | None = None


@dataclass(frozen=True)
class Config:
    """Everything that audit.toml may hold."""

    clusters: tuple[Cluster, ...]
    thresholds: Thresholds = field(default_factory=Thresholds)
    rules: Path | None = None


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


def _only_known(given: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.0)
            raise UsageError(f"{where}: unknown key {key!r}; did you mean {near[0]!r}?")


KINDS = {int: "a whole number", str: "a text", list: "a list", dict: "a table"}


def _typed(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{where} must be {KINDS[kind]}")
    return value


def load(path: Path) -> Config:
    """Reads audit.toml; `logs` and `rules` are relative to its folder. Raises UsageError."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path}: {error}") from None
    _only_known(content, ("cluster", "thresholds", "rules"), str(path))
    clusters = []
    for number, entry in enumerate(_typed(content.get("cluster", []), list, f"{path}: cluster"), 1):
        where = f"{path}: cluster {number}"
        _typed(entry, dict, where)
        _only_known(entry, ("name", "logs", "timezone", "kafka_version"), where)
        for key in ("name", "logs"):
            if key not in entry:
                raise UsageError(f"{where}: {key} is missing")
        logs = [_typed(item, str, f"{where}: logs") for item in _typed(entry["logs"], list, f"{where}: logs")]
        clusters.append(
            Cluster(
                name=_typed(entry["name"], str, f"{where}: name"),
                logs=tuple(str(path.parent / item) for item in logs),
                timezone=check_timezone(_typed(entry.get("timezone", "UTC"), str, f"{where}: timezone")),
                kafka_version=_typed(entry["kafka_version"], str, f"{where}: kafka_version")
                if "kafka_version" in entry
                else None,
            )
        )
    if not clusters:
        raise UsageError(f"{path}: no [[cluster]]")
    names = [cluster.name for cluster in clusters]
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: two clusters have the same name")
    thresholds = _typed(content.get("thresholds", {}), dict, f"{path}: thresholds")
    known = [entry.name for entry in fields(Thresholds)]
    _only_known(thresholds, known, f"{path}: thresholds")
    for key, value in thresholds.items():
        _typed(value, int, f"{path}: thresholds.{key}")
    rules = path.parent / _typed(content["rules"], str, f"{path}: rules") if "rules" in content else None
    return Config(tuple(clusters), Thresholds(**thresholds), rules)
