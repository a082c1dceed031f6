"""Order findings and group them to stories, for the verdict, the report, JSON and alerts. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import schemas
from schemas import SEVERITIES

# findings of this severity and above have a line of their own in every list
NEVER_HIDDEN = "error"

Rank = tuple[bool, int, int]


def rank(*, severity: str, check_id: str, is_over: bool) -> Rank:
    """Return the sort key of a finding, the worst first: unresolved first, then by severity, then by harm.

    A check that this version does not know counts as housekeeping.
    """
    harm = schemas.harms().get(check_id, schemas.HARMS[-1])
    return is_over, -SEVERITIES.index(severity), schemas.HARMS.index(harm)


def worst_first(finding: Mapping[str, Any]) -> tuple[Rank, bool, datetime, str, str]:
    """Return the sort key of a row of `findings`: rank, begin (without one: last), title and fingerprint."""
    return _of_row(finding), *by_time(finding["first_seen"]), finding["title"], finding["fingerprint"]


def by_time(first_seen: datetime | None) -> tuple[bool, datetime]:
    """Return the sort key of a time stamp in UTC, with a zone or without; a missing one is last."""
    return first_seen is None, (first_seen or datetime.min).replace(tzinfo=None)


def is_never_hidden(finding: Mapping[str, Any]) -> bool:
    """Return whether a list must name the finding, however long the list becomes."""
    return SEVERITIES.index(finding["severity"]) >= SEVERITIES.index(NEVER_HIDDEN)


def by_cause(findings: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the stories: each finding without a known cause, with all findings that follow from it.

    The order of the findings is kept: a story is listed where its worst finding is.
    """
    known = {finding["fingerprint"]: finding for finding in findings}
    stories: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        stories.setdefault(_first_cause(finding, known)["fingerprint"], []).append(finding)
    return [
        (known[name], [finding for finding in members if finding["fingerprint"] != name])
        for name, members in stories.items()
    ]


def is_over(story: tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]) -> bool:
    """Return whether a cause and all its effects are resolved."""
    return all(finding["status"] == "resolved" for finding in (story[0], *story[1]))


def _first_cause(finding: dict[str, Any], known: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the first cause of a finding among the known ones; the finding itself where it has none."""
    top, passed = finding, {finding["fingerprint"]}
    while (cause := known.get(top.get("caused_by") or "")) is not None and cause["fingerprint"] not in passed:
        passed.add(cause["fingerprint"])
        top = cause
    return top


def _of_row(finding: Mapping[str, Any]) -> Rank:
    return rank(
        severity=finding["severity"], check_id=finding["check_id"], is_over=finding["status"] == "resolved"
    )
