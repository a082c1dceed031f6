"""Which finding follows from which, by the rules of `schemas/causes.toml`. Pure.

A cause and its effect concern the same broker, partition, topic or cluster, and their times fit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

import schemas

Finding = dict[str, Any]
# the value that two findings share, such as ("orders", 3) for one partition
Subject = tuple[Any, ...]


def with_causes(found: Sequence[Finding], subjects: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Return the findings with `caused_by`, the fingerprint of the cause; null: not known.

    found: rows of `findings`, times with a zone or in UTC. subjects: rows of `finding_subjects`. A
    `caused_by` that names one of `found` is kept. No finding causes itself, directly or through others.
    """
    causes = {row["fingerprint"]: row["caused_by"] for row in found}
    causes = {name: cause if cause in causes else None for name, cause in causes.items()}
    about = _About(found, subjects)
    for rule in schemas.cause_rules():
        known = _by_subject(found, rule, about)
        for row in found if known else ():
            name = row["fingerprint"]
            if causes[name] is not None or row["check_id"] not in rule.effects or row["first_seen"] is None:
                continue
            fitting = {
                cause["fingerprint"]: cause
                for one in about.subjects(row, rule.subject)
                for cause in known.get(one, ())
            }
            for cause in sorted(fitting.values(), key=lambda cause: _nearest_first(cause, row)):
                if _fits(cause, row, rule) and not _leads_to(cause["fingerprint"], name, causes):
                    causes[name] = cause["fingerprint"]
                    break
    return [row | {"caused_by": causes[row["fingerprint"]]} for row in found]


class _About:
    """The subjects of findings, by the kinds that rules name."""

    def __init__(self, found: Iterable[Finding], subjects: Iterable[Mapping[str, Any]]) -> None:
        self._partitions: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for one in subjects:
            self._partitions[one["fingerprint"]].add((one["topic"], one["partition"]))
        for row in found:
            if row["topic"] is not None and row["partition"] is not None:
                self._partitions[row["fingerprint"]].add((row["topic"], row["partition"]))

    def subjects(self, row: Finding, kind: str) -> Iterator[Subject]:
        """Yield the subjects of a finding; a rule joins two findings that share one."""
        if kind == "cluster":
            yield (row["cluster"],)
            return
        of_cluster = row["cluster"], row["incarnation"]
        if kind == "broker":
            broker = row["node"] if row["replica"] is None else row["replica"]
            if broker is not None:
                yield *of_cluster, broker
            return
        partitions = self._partitions.get(row["fingerprint"], set())
        if kind == "partition":
            yield from ((*of_cluster, *one) for one in partitions)
            return
        topics = {topic for topic, _ in partitions} | ({row["topic"]} if row["topic"] is not None else set())
        yield from ((*of_cluster, topic) for topic in topics)


def _by_subject(
    found: Iterable[Finding], rule: schemas.CauseRule, about: _About
) -> dict[Subject, list[Finding]]:
    """Return the findings that a rule allows as cause, by their subjects."""
    known = defaultdict(list)
    for row in found:
        if (
            row["check_id"] == rule.check
            and row["first_seen"] is not None
            and fnmatchcase(row["title"], rule.title)
        ):
            for subject in about.subjects(row, rule.subject):
                known[subject].append(row)
    return dict(known)


def _fits(cause: Finding, effect: Finding, rule: schemas.CauseRule) -> bool:
    """Return whether the times allow that one follows from the other."""
    slack, gap = timedelta(seconds=rule.slack_seconds), timedelta(minutes=rule.gap_minutes)
    (begin, end), (since, until) = _span(cause), _span(effect)
    if cause["check_id"] == effect["check_id"]:
        # where findings begin together, the first one is the cause
        return (begin, cause["fingerprint"]) < (since, effect["fingerprint"]) and since - begin <= gap
    if end + gap < since or until + timedelta(seconds=rule.clock_seconds) < begin:
        return False
    return begin <= since + slack if rule.begins == "before" else begin <= until + slack


def _nearest_first(cause: Finding, effect: Finding) -> tuple[bool, timedelta, str]:
    """Sort key: the last cause before the effect is first, then causes that began later."""
    distance = _span(effect)[0] - _span(cause)[0]
    return distance < timedelta(), abs(distance), cause["fingerprint"]


def _leads_to(name: str, goal: str, causes: Mapping[str, str | None]) -> bool:
    """Return whether a finding is another one or follows from it."""
    passed = set()
    at: str | None = name
    while at is not None and at not in passed:
        if at == goal:
            return True
        passed.add(at)
        at = causes.get(at)
    return False


def _span(row: Finding) -> tuple[datetime, datetime]:
    """Return first and last moment of a finding that has a time stamp, in UTC."""
    first = _utc(row["first_seen"])
    return first, max(first, _utc(row["last_seen"])) if row["last_seen"] is not None else first


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
