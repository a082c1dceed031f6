"""Arguments that several commands have."""

from datetime import UTC, date, datetime
from typing import Any

from jobs.errors import UsageError


def add_wait(command: Any) -> None:
    """Adds --wait to a command that writes tables."""
    command.add_argument(
        "--wait",
        type=_seconds,
        default=0,
        metavar="SECONDS",
        help="how long to wait for another run that writes to the tables (default 0: end with code 2)",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def parsed_moment(text: str, what: str) -> datetime:
    """A time in UTC; one without a zone is taken as UTC. Raises UsageError, which names the option `what`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{what} {text}: give a time such as 2026-03-01T04:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def parsed_days(text: str, what: str) -> tuple[date, date]:
    """The first and the last of some days, both included. Raises UsageError, which names the option `what`."""
    try:
        first, _, last = text.partition("..")
        span = date.fromisoformat(first), date.fromisoformat(last or first)
    except ValueError:
        raise UsageError("--day takes 2026-03-01, --days 2026-03-01..2026-03-07") from None
    if span[1] < span[0]:
        raise UsageError(f"{what} {text}: the last day is before the first")
    return span
