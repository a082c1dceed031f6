"""min.insync.replicas of topics over time, from the lines that set it and audit.toml. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

NAME = "min.insync.replicas"
DEFAULT = 1  # Kafka's own
COLUMNS = ("ts", "topic", "broker", "config", "config_value", "record_no")


@dataclass(frozen=True)
class MinIsr:
    """What lines set, in order of time; null: removed. configured: globs of audit.toml, the first that fits counts where no line is about the topic."""

    topics: Mapping[str, tuple[tuple[datetime, int | None], ...]] = field(default_factory=dict)
    default: tuple[tuple[datetime, int | None], ...] = ()
    configured: tuple[tuple[str, int], ...] = ()

    def of(self, topic: str, moment: datetime | None = None) -> int:
        """The setting of a topic then (null: last known): by its own lines, else audit.toml, else the cluster's default, else 1."""
        own = _at(self.topics.get(topic, ()), moment)
        if own is not None:
            return own
        configured = next((value for glob, value in self.configured if fnmatchcase(topic, glob)), None)
        return configured or _at(self.default, moment) or DEFAULT

    def changes(self, topic: str) -> list[datetime]:
        """Moments at which it may change."""
        return sorted({ts for ts, _ in (*self.topics.get(topic, ()), *self.default)})


def _at(values: tuple[tuple[datetime, int | None], ...], moment: datetime | None) -> int | None:
    if not values:
        return None
    known = len(values) if moment is None else bisect_right(values, moment, key=lambda value: value[0])
    # a setting that is older than its first line is that of the line: lines are printed again when a broker starts
    return values[max(known, 1) - 1][1]


def from_events(events: Iterable[Mapping[str, Any]], configured: Iterable[tuple[str, int]] = ()) -> MinIsr:
    """in: rows of `events` of one cluster with the columns above."""
    topics: dict[str, list[tuple[datetime, int | None]]] = {}
    default: list[tuple[datetime, int | None]] = []
    for row in sorted((e for e in events if e["config"] == NAME and e["ts"]), key=lambda e: (e["ts"], e["record_no"])):
        text = row["config_value"]
        entry = (row["ts"], int(text) if text and text.isdecimal() else None)
        if row["topic"]:
            topics.setdefault(row["topic"], []).append(entry)
        elif row["broker"] is None:
            default.append(entry)
    return MinIsr({topic: tuple(some) for topic, some in topics.items()}, tuple(default), tuple(configured))
