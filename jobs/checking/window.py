"""Which findings a run reports: --since, --until and --node. Pure.

The run reads all records, because earlier ones show the state of partitions and brokers at --since.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from jobs.errors import UsageError

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
AGO = re.compile(rf"(\d{{1,6}}) ?([{''.join(UNITS)}])")
# a moment in UTC, or how long before the end of the logs
Bound = datetime | timedelta


def bound(text: str, what: str) -> Bound:
    """Parse a time (without a zone: UTC), a day, or a duration before the end of the logs.

    what: the option. --since begins with the first moment of a day, --until ends with the last one. Raises
    UsageError.
    """
    if found := AGO.fullmatch(text.strip()):
        return timedelta(**{UNITS[found[2]]: int(found[1])})
    try:
        if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
            day = date.fromisoformat(text)
            begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
            return begin + timedelta(days=1) - timedelta(microseconds=1) if what == "--until" else begin
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{what} {text}: give a time (2026-03-01T04:00:00Z), a day (2026-03-01), or how long ago (2h, 30m, 7d)"
        ) from None


def node_ids(texts: Collection[str]) -> frozenset[int]:
    """Parse the ids of `--node 3 --node 4,5`. Raises UsageError."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if wrong := [part for part in parts if not re.fullmatch(r"\d{1,9}", part)]:
        raise UsageError(f"--node {wrong[0]}: give ids of brokers or controllers, such as 3 or 3,4")
    return frozenset(map(int, parts))


@dataclass(frozen=True)
class Window:
    """Selects the findings that are reported; without bounds and nodes, all."""

    since: Bound | None = None
    until: Bound | None = None
    nodes: frozenset[int] = frozenset()

    @classmethod
    def given(cls, since: str | None, until: str | None, nodes: Collection[str]) -> "Window":
        """Parse the options of the command line. Raises UsageError."""
        begin, end = bound(since, "--since") if since else None, bound(until, "--until") if until else None
        if begin is not None and end is not None and type(begin) is type(end):
            is_reversed = begin < end if isinstance(begin, timedelta) else begin > end  # type: ignore[operator]
            if is_reversed:
                raise UsageError(f"--since {since} is after --until {until}")
        return cls(begin, end, node_ids(nodes))

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None or bool(self.nodes)

    def has(self, finding: Mapping[str, Any], now: datetime | None, replicas: Collection[int] = ()) -> bool:
        """Return whether a finding is reported: it overlaps the window, and it names one of the nodes or
        none.

        now: the end of the logs, UTC. replicas: brokers of the replicas that the finding is about. A finding
        without time stamps is always in the window.
        """
        named = {finding["node"], finding["replica"], *replicas} - {None}
        if self.nodes and named and not named & self.nodes:
            return False
        first, last = (_utc(finding[name]) for name in ("first_seen", "last_seen"))
        since, until = (_moment(one, now) for one in (self.since, self.until))
        return not ((since and last and last < since) or (until and first and first > until))


def _moment(one: Bound | None, now: datetime | None) -> datetime | None:
    if isinstance(one, timedelta):
        return None if now is None else (_utc(now) or now) - one
    return one


def _utc(at: datetime | None) -> datetime | None:
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
