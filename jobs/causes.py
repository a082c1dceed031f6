"""Causes first: what follows from a finding stands below it."""

from collections.abc import Sequence
from typing import Any


def by_cause(findings: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each finding that has no cause among the given ones, with those that follow from it; the order stays."""
    known = {finding["fingerprint"] for finding in findings}
    effects: dict[str, list[dict[str, Any]]] = {}
    causes = []
    for finding in findings:
        cause = finding.get("caused_by")
        if cause is not None and cause in known and cause != finding["fingerprint"]:
            effects.setdefault(cause, []).append(finding)
        else:
            causes.append(finding)
    return [(cause, effects.get(cause["fingerprint"], [])) for cause in causes]
