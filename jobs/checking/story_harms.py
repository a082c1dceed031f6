"""Query the harm of each story from `finding_subjects` and `durability`.

`harms` turns it into sentences.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jobs.checking import harms
from jobs.checking.harms import Harm
from jobs.engine.queries import Queries


def of_stories(
    asked: Queries, findings: list[dict[str, Any]], now: Mapping[str, datetime | None]
) -> dict[str, list[Harm]]:
    """Return the harm of each story, by the fingerprint of each of its findings.

    The number of lost records is that of `durability`. asked: queries over the views stored_finding_subjects
    and stored_durability.
    findings: rows of `findings` of whole clusters, moments in UTC without a zone. now: cluster -> the moment
    that its findings are measured against.
    """
    harmed = harms.rows(findings)
    if not harmed:
        return {}
    names = [
        ("fingerprint", pa.string()),
        ("story", pa.string()),
        ("whole", pa.string()),
        ("part", pa.string()),
        ("is_open", pa.bool_()),
    ]
    asked.view("harmed_findings", pa.Table.from_pylist(harmed, pa.schema(names)))
    moments = [{"cluster": name, "now": at and at.replace(tzinfo=UTC)} for name, at in now.items()]
    asked.view(
        "clusters_now",
        pa.Table.from_pylist(
            moments, pa.schema([("cluster", pa.string()), ("now", pa.timestamp("us", "UTC"))])
        ),
    )
    found: dict[str, list[Harm]] = {}
    lost = {row["story"]: row["records"] for row in asked.rows(harms.LOST_SQL)}
    for row in asked.rows(harms.SQL):
        records = lost.get(row["story"]) if row["kind"] == harms.LOST else None
        found.setdefault(row["story"], []).append(harms.of_row(row, records))
    members = {
        finding["fingerprint"]: cause
        for cause, effects in harms.stories(findings)
        for finding in (cause, *effects)
    }
    return {
        name: found[cause["fingerprint"]] for name, cause in members.items() if cause["fingerprint"] in found
    }
