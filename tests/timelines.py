"""Build the timelines of events in one piece, as the audit does, and compare them with the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import truth
from logs import LOGS, keeps, moment, recorded

from jobs.timelines import (
    ClusterEvidence,
    ClusterFacts,
    Event,
    Folded,
    PartitionKey,
    discontinuities,
    fold,
    is_about_deletion,
    kraft_topic_deletions,
    topic_deletions,
)

COLUMNS = (
    "step", "valid_from", "valid_to", "leader", "leader_epoch", "isr", "partition_epoch", "replicas", "adding_replicas", "removing_replicas",
    "state", "reassignment_phase", "inferred", "record_id", "source", "settled",
)  # fmt: skip
KEEPS = keeps()


@dataclass
class Timelines:
    """The timelines of one cluster."""

    facts: ClusterFacts
    folded: dict[PartitionKey, Folded] = field(default_factory=dict)
    deletions: list[tuple[Any, ...]] = field(default_factory=list)
    discontinuities: list[tuple[Any, ...]] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """Return rows of partition_timeline as `truth` takes them."""
        return [
            {
                "cluster": "c",
                **key._asdict(),
                **dict(zip(COLUMNS, row, strict=True)),
                "valid_from": moment(row[1]),
                "valid_to": moment(row[2]),
            }
            for key, folded in sorted(self.folded.items())
            for row in folded.partitions
        ]


def facts_of(events: Iterable[Event]) -> ClusterFacts:
    """Return the facts of events, with `keeps` of the rules."""
    return ClusterFacts.of(ClusterEvidence.of(events), KEEPS)


def by_partition(events: Iterable[Event], facts: ClusterFacts) -> dict[PartitionKey, list[Event]]:
    """Return the events of each partition."""
    found: dict[PartitionKey, list[Event]] = defaultdict(list)
    for e in events:
        key = facts.key_of(e)
        if key is not None:
            found[key].append(e)
    return dict(found)


def timelines_of(events: Iterable[Event]) -> Timelines:
    """Return all timelines of one cluster, folded in one piece."""
    events = list(events)
    timelines = Timelines(facts_of(events))
    for key, own in by_partition(events, timelines.facts).items():
        timelines.folded[key] = fold(key, None, own, timelines.facts)
    by_topic: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        if e.topic is not None and is_about_deletion(e):
            by_topic[e.topic].append(e)
    timelines.deletions = [
        row for some in by_topic.values() for row in topic_deletions(some, timelines.facts)
    ] + kraft_topic_deletions(timelines.facts)
    breaks = ((key, one) for key, folded in timelines.folded.items() for one in folded.breaks)
    timelines.discontinuities = discontinuities(breaks, timelines.facts)
    return timelines


@cache
def recorded_timelines(recording: Path, pattern: str = LOGS) -> Timelines:
    """Return all timelines of the files of a recording. The result is cached: do not change it."""
    return timelines_of(recorded(recording, pattern))


@cache
def truth_of(recording: Path) -> truth.Truth:
    """Return the truth beside a recording. The result is cached: do not change it."""
    return truth.read_truth(recording)


@cache
def verdict(recording: Path, pattern: str = LOGS) -> truth.Verdict:
    """Compare the timelines of the files of a recording with the truth."""
    return truth.compare_with(
        truth_of(recording), recorded_timelines(recording, pattern).rows(), "/".join(recording.parts[-3:])
    )
