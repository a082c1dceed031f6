"""min.insync.replicas of topics over time, from the lines that set it and audit.toml. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase

from jobs.timelines import Setting, moment_of

DEFAULT = 1  # Kafka's own


@dataclass(frozen=True)
class MinIsr:
    """Logged settings, in order of time; null: removed.

    default: of the cluster. of_brokers: the smallest that brokers were started with.
    configured: globs of audit.toml; the first that matches counts if no line sets the topic.
    """

    topics: Mapping[str, tuple[tuple[datetime, int | None], ...]] = field(default_factory=dict)
    default: tuple[tuple[datetime, int | None], ...] = ()
    of_brokers: int | None = None
    configured: tuple[tuple[str, int], ...] = ()

    def of(self, topic: str, moment: datetime | None = None) -> int:
        """Return the setting of a topic at a moment (None: the last).

        The order is: its own lines, audit.toml, the cluster's lines, the brokers' lines, Kafka's default.
        """
        own = _at(self.topics.get(topic, ()), moment)
        if own is not None:
            return own
        configured = next((value for glob, value in self.configured if fnmatchcase(topic, glob)), None)
        return configured or _at(self.default, moment) or self.of_brokers or DEFAULT

    def changes(self, topic: str) -> list[datetime]:
        """Return the moments at which the setting of a topic may change."""
        return sorted({ts for ts, _ in (*self.topics.get(topic, ()), *self.default)})

    def largest(self) -> int:
        """Return the largest value that any topic may have had."""
        logged = [value for some in (*self.topics.values(), self.default) for _, value in some]
        others = [self.of_brokers, *(value for _, value in self.configured)]
        return max(value for value in (DEFAULT, *logged, *others) if value is not None)

    def smallest(self) -> dict[str | None, int]:
        """Return topic -> the smallest value that lines show, which proves that a smaller ISR was too small.

        null: every other topic.
        """
        found = {topic: [value for _, value in changes if value] for topic, changes in self.topics.items()}
        others = [value for _, value in self.default if value] or (
            [self.of_brokers] if self.of_brokers else []
        )
        return {topic: min(values) for topic, values in [*found.items(), (None, others)] if values}


def _at(values: tuple[tuple[datetime, int | None], ...], moment: datetime | None) -> int | None:
    if not values:
        return None
    known = len(values) if moment is None else bisect_right(values, moment, key=lambda value: value[0])
    # the first line of a setting counts for the time before it, too: a broker that starts prints its settings
    # again
    return values[max(known, 1) - 1][1]


def from_lines(settings: Iterable[Setting], configured: Iterable[tuple[str, int]] = ()) -> MinIsr:
    """Return what settings of one incarnation say. settings: in order of time."""
    topics: dict[str, list[tuple[datetime, int | None]]] = {}
    default: list[tuple[datetime, int | None]] = []
    of_brokers: set[int] = set()
    for ts, topic, value, of_broker in settings:
        if of_broker:
            of_brokers |= {value} if value else set()
        else:
            (topics.setdefault(topic, []) if topic else default).append((moment_of(ts), value))
    return MinIsr(
        {topic: tuple(some) for topic, some in topics.items()},
        tuple(default),
        min(of_brokers, default=None),
        tuple(configured),
    )
