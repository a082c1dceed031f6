"""Describe the harm of a story to producers and consumers: lost, unavailable or at risk. Pure.

A story is a finding without a known cause, with all findings that follow from it (`ranking.by_cause`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import schemas
from jobs.checking.ranking import by_cause, is_never_hidden, worst_first
from parsers.explanation import counted
from schemas import SEVERITIES
from schemas.durations import two_units
from schemas.moments import moment

# kinds of harm, the worst first
LOST, MAYBE_LOST, UNAVAILABLE, AT_RISK = KINDS = ("lost", "maybe_lost", "unavailable", "at_risk")
HEADS = {LOST: "Lost", MAYBE_LOST: "Possibly lost", UNAVAILABLE: "Unavailable", AT_RISK: "At risk"}
# most topics that a sentence names
NAMED = 3
NOTHING_SHOWN = "No line shows that a partition was unavailable, at risk or lost."


@dataclass(frozen=True)
class Harm:
    """One kind of harm of one story.

    topics: the first names of topic_count, sorted. longest_seconds: of one partition; null: not known. until:
    end of the harm of the last partition; null: it lasts, or it has no duration (a loss). records: lower
    limit of those lost in unclean elections; null: not known.
    """

    kind: str
    partitions: int
    topics: tuple[str, ...]
    topic_count: int
    since: datetime | None = None
    until: datetime | None = None
    lasts: bool = False
    longest_seconds: float | None = None
    records: int | None = None


def stories(findings: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the stories of findings that are not silenced, the worst first.

    A silenced cause hides no effect.
    """
    return by_cause(sorted((finding for finding in findings if not finding.get("silenced")), key=worst_first))


def rows(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each finding whose subjects are harmed: fingerprint, story, whole, part, is_open.

    story: the fingerprint of its first cause. whole: the kind of harm where a subject is a partition; part:
    where it is a replica; null: none.
    """
    harms, found = schemas.harms(), []
    for cause, effects in stories(findings):
        for finding in (cause, *effects):
            harm = harms.get(finding["check_id"])
            is_error = SEVERITIES.index(finding["severity"]) >= SEVERITIES.index("error")
            whole, part = {
                "loss": (LOST if is_error else MAYBE_LOST,) * 2,
                "unavailability": (UNAVAILABLE, AT_RISK),
                "risk": (AT_RISK, AT_RISK),
            }.get(harm or "", (None, None))
            if whole is not None:
                of_story = {"fingerprint": finding["fingerprint"], "story": cause["fingerprint"]}
                found.append(
                    of_story | {"whole": whole, "part": part, "is_open": finding["status"] != "resolved"}
                )
    return found


def sentences(harms: Sequence[Harm], now: datetime | None) -> list[str]:
    """Return one sentence per kind of harm, the worst first. now: the newest moment of the logs, UTC."""
    return [_sentence(harm, now) for harm in sorted(harms, key=lambda harm: KINDS.index(harm.kind))]


def of_story(
    members: Sequence[Mapping[str, Any]], known: Mapping[str, Sequence[Harm]], now: datetime | None
) -> list[str]:
    """Return the sentences about one story; for an error without visible harm, NOTHING_SHOWN.

    members: its findings, its cause first. known: harm by fingerprint. now: the newest moment of the logs,
    UTC.
    """
    found = sentences(known.get(members[0]["fingerprint"], ()), now)
    if not found and any(is_never_hidden(finding) for finding in members):
        return [NOTHING_SHOWN]
    return found


def by_finding(
    findings: Iterable[dict[str, Any]],
    known: Mapping[str, Sequence[Harm]],
    now: Mapping[str, datetime | None],
) -> dict[str, tuple[str, ...]]:
    """Return the sentences about the story of each finding, by fingerprint.

    findings: rows of `findings`. known: harm by fingerprint. now: cluster -> the newest moment of its logs,
    UTC.
    """
    said: dict[str, tuple[str, ...]] = {}
    for cause, effects in stories(findings):
        story = tuple(of_story((cause, *effects), known, now.get(cause["cluster"])))
        said |= {finding["fingerprint"]: story for finding in (cause, *effects)}
    return said


def _sentence(harm: Harm, now: datetime | None) -> str:
    what = f"{counted(harm.partitions, 'partition')} of {_names(harm)}"
    if harm.kind in (LOST, MAYBE_LOST):
        if harm.records:
            return f"{HEADS[harm.kind]}: at least {counted(harm.records, 'record')} in {what}."
        # a finding of the story may name a number, so this sentence has none
        return f"{HEADS[harm.kind]}: records in {what}."
    length = ""
    if harm.longest_seconds and harm.longest_seconds >= 1:
        # logs notice the begin late, so the length is a lower limit
        length = (
            f", {'the longest ' if harm.partitions > 1 else ''}for at least {two_units(harm.longest_seconds)}"
        )
    if harm.lasts:
        end = f"; still so at {moment(now)}" if now else "; still so at the end of these logs"
    else:
        end = f"; over at {moment(harm.until)}" if harm.until else ""
    return f"{HEADS[harm.kind]}: {what}{length}{end}."


def _names(harm: Harm) -> str:
    names = ", ".join(harm.topics[:NAMED])
    left = harm.topic_count - min(len(harm.topics), NAMED)
    return f"{names} and {counted(left, 'more topic')}" if left else names


def of_row(row: Mapping[str, Any], records: int | None = None) -> Harm:
    """Return the harm of a row of SQL; times without a zone."""
    return Harm(
        kind=row["kind"],
        partitions=row["partitions"],
        topics=tuple(row["topics"]),
        topic_count=row["topic_count"],
        since=row["since"] and row["since"].replace(tzinfo=None),
        until=row["until"] and row["until"].replace(tzinfo=None),
        lasts=row["lasts"],
        longest_seconds=row["longest"],
        records=records,
    )


# Harm by story. Reads stored_finding_subjects, harmed_findings (`rows`) and clusters_now. A harm without an
# end lasts until now. A partition that is unavailable is not counted as at risk.
SQL = f"""
WITH harmed AS (
  SELECT h.story, CASE WHEN s.replica IS NULL OR h.whole IN ('{LOST}', '{MAYBE_LOST}') THEN h.whole ELSE h.part END AS kind, s.topic, s.partition, s.since, s.until,
    h.is_open, n.now
  FROM stored_finding_subjects s
  JOIN harmed_findings h ON h.fingerprint = s.fingerprint
  LEFT JOIN clusters_now n ON n.cluster = s.cluster
), worst AS (
  SELECT *, max(CASE WHEN kind = '{UNAVAILABLE}' THEN 1 ELSE 0 END) OVER (PARTITION BY story, topic, partition) AS is_unavailable FROM harmed
)
SELECT story, kind, count(DISTINCT struct(topic, partition)) AS partitions, count(DISTINCT topic) AS topic_count,
  slice(array_sort(collect_set(topic)), 1, {NAMED}) AS topics, min(since) AS since, max(until) AS until, bool_or(until IS NULL AND is_open) AS lasts,
  CAST(max(unix_millis(coalesce(until, CASE WHEN is_open THEN now END)) - unix_millis(since)) AS DOUBLE) / 1000 AS longest
FROM worst
WHERE (kind <> '{AT_RISK}' OR is_unavailable = 0) AND (until IS NULL OR until > since OR kind IN ('{LOST}', '{MAYBE_LOST}'))
GROUP BY story, kind
"""

# Records that each story lost, from stored_durability: those of unclean elections on its topics and days,
# where lines show a number.
LOST_SQL = f"""
SELECT story, CAST(sum(records_lost) AS BIGINT) AS records
FROM (
  SELECT DISTINCT h.story, d.cluster, d.topic, d.day, d.records_lost
  FROM stored_finding_subjects s
  JOIN harmed_findings h ON h.fingerprint = s.fingerprint AND h.whole = '{LOST}'
  JOIN stored_durability d ON d.cluster = s.cluster AND d.topic = s.topic AND d.day = CAST(s.since AS DATE)
  WHERE d.records_lost IS NOT NULL
)
GROUP BY story
"""
