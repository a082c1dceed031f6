"""Times and durations in words, the same everywhere."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from schemas.durations import two_units


def duration(length: float | timedelta) -> str:
    """`39 s`, `4 min 12 s`, `2 h 5 min`, `3 d 4 h`: the two largest units. length: seconds; below 10 s with tenths where they are given."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s" if seconds >= 0.05 else f"{seconds * 1000:.0f} ms"
    return two_units(int(seconds))


def moment(value: datetime) -> str:
    """`2026-11-20 10:09:12.175`, UTC. A value without a zone is local time of this machine, which is UTC during a run."""
    with suppress(OverflowError, ValueError, OSError):  # years 1 and 9999
        value = value.astimezone(UTC)
    return value.replace(tzinfo=None).isoformat(" ", "milliseconds")


def at(value: datetime) -> str:
    """`2026-11-20 10:09:12.175 UTC`"""
    return f"{moment(value)} UTC"


def span(first: datetime, last: datetime | None) -> str:
    """`2026-11-20 10:09:12.175 to 10:31:00.000 UTC (21 min 47 s)`; one moment where both are equal."""
    begin, end = moment(first), moment(last or first)
    if begin == end:
        return f"at {begin} UTC"
    length = (last or first) - first
    return f"{begin} to {end[11:] if begin[:10] == end[:10] else end} UTC ({duration(length)})"
