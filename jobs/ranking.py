"""The order in which findings are listed, the same in the verdict, the report, JSON and alerts; and which stand below their cause. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import schemas
from schemas import SEVERITIES

# of severities: from this one on each finding has a line of its own wherever findings are listed
NEVER_HIDDEN = "error"

Rank = tuple[bool, int, int]


def rank(*, severity: str, check_id: str, is_over: bool) -> Rank:
    """Sort key of what a finding costs, the worst first: what is resolved last, then severity, then the harm of its check.

    A check that this version does not have counts as housekeeping.
    """
    harm = schemas.harms().get(check_id, schemas.HARMS[-1])
    return is_over, -SEVERITIES.index(severity), schemas.HARMS.index(harm)


def worst_first(finding: Mapping[str, Any]) -> tuple[Rank, bool, datetime, str, str]:
    """Sort key of a row of `findings`: its rank, then the time when it began (without one: last), title and fingerprint."""
    return _of_row(finding), *by_time(finding["first_seen"]), finding["title"], finding["fingerprint"]


def by_time(first_seen: datetime | None) -> tuple[bool, datetime]:
    """Sort key of a time stamp in UTC, with a zone or without; where there is none, that comes last."""
    return first_seen is None, (first_seen or datetime.min).replace(tzinfo=None)


def is_never_hidden(finding: Mapping[str, Any]) -> bool:
    """Whether a list must name the finding, however long the list becomes."""
    return SEVERITIES.index(finding["severity"]) >= SEVERITIES.index(NEVER_HIDDEN)


def by_cause(findings: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each finding that stands on its own, with those that stand below it, its effects; the order stays.

    An effect stands below its cause where the given findings have the cause and the effect does not rank before it: an effect that is worse
    than its cause must not be hidden by it.
    """
    known = {finding["fingerprint"]: finding for finding in findings}
    effects: dict[str, list[dict[str, Any]]] = {}
    causes = []
    for finding in findings:
        top = _stands_below(finding, known)
        if top is finding:
            causes.append(finding)
        else:
            effects.setdefault(top["fingerprint"], []).append(finding)
    return [(cause, effects.get(cause["fingerprint"], [])) for cause in causes]


def _stands_below(finding: dict[str, Any], known: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The cause that a finding is listed under, or the finding itself."""
    top, passed = finding, {finding["fingerprint"]}
    while (cause := known.get(top.get("caused_by") or "")) is not None:
        if cause["fingerprint"] in passed or _of_row(top) < _of_row(cause):
            break
        passed.add(cause["fingerprint"])
        top = cause
    return top


def _of_row(finding: Mapping[str, Any]) -> Rank:
    return rank(severity=finding["severity"], check_id=finding["check_id"], is_over=finding["status"] == "resolved")
