"""Format moments in the one form of the verdict, the report, alerts and findings."""

from datetime import UTC, datetime

from schemas.durations import two_units


def moment(at: datetime, after: datetime | None = None) -> str:
    """Return a moment to the second, in UTC: `2026-11-20 10:09:12 UTC`, or `10:09:12 UTC` on the day of
    `after`.

    A moment without a zone is in UTC.
    """
    found = _in_utc(at)
    is_same_day = after is not None and _in_utc(after).date() == found.date()
    text = found.replace(tzinfo=None).isoformat(" ", "seconds")
    return f"{text[11:] if is_same_day else text} UTC"


def to_milliseconds(at: datetime) -> str:
    """Return `2026-11-20 10:09:12.175`, in UTC: for cells of tables and JSON, whose head or format names the
    zone.
    """
    return _in_utc(at).replace(tzinfo=None).isoformat(" ", "milliseconds")


def _in_utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        return at
    try:
        return at.astimezone(UTC)
    except OverflowError:  # years 1 and 9999
        return at


def span(first: datetime, last: datetime | None) -> str:
    """Return `2026-11-20 10:09:12 UTC to 10:31:00 UTC (21 min 48 s)`, or `at …` where both are in one second."""
    begin, end = moment(first), moment(last or first)
    if begin == end:
        return f"at {begin}"
    seconds = (
        _in_utc(last or first).replace(tzinfo=None) - _in_utc(first).replace(tzinfo=None)
    ).total_seconds()
    return f"{begin} to {moment(last or first, first)} ({two_units(seconds)})"
