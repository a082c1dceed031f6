"""The timelines of a handful of events, as the audit makes them in one piece, and their verdict by the truth."""

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
class Told:
    """The rows of one cluster."""

    facts: ClusterFacts
    folded: dict[PartitionKey, Folded] = field(default_factory=dict)
    deletions: list[tuple[Any, ...]] = field(default_factory=list)
    discontinuities: list[tuple[Any, ...]] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """Of partition_timeline, as `truth` takes them."""
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
    """With what the rules say."""
    return ClusterFacts.of(ClusterEvidence.of(events), KEEPS)


def by_partition(events: Iterable[Event], facts: ClusterFacts) -> dict[PartitionKey, list[Event]]:
    """The events of each partition."""
    found: dict[PartitionKey, list[Event]] = defaultdict(list)
    for e in events:
        key = facts.key_of(e)
        if key is not None:
            found[key].append(e)
    return dict(found)


def tell(events: Iterable[Event]) -> Told:
    """All timelines of one cluster, in one piece."""
    events = list(events)
    told = Told(facts_of(events))
    for key, own in by_partition(events, told.facts).items():
        told.folded[key] = fold(key, None, own, told.facts)
    by_topic: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        if e.topic is not None and is_about_deletion(e):
            by_topic[e.topic].append(e)
    told.deletions = [row for some in by_topic.values() for row in topic_deletions(some, told.facts)] + kraft_topic_deletions(
        told.facts
    )
    breaks = ((key, one) for key, folded in told.folded.items() for one in folded.breaks)
    told.discontinuities = discontinuities(breaks, told.facts)
    return told


@cache
def told_of(recording: Path, pattern: str = LOGS) -> Told:
    """All timelines of the files of a recording. Whoever asks gets the same: it is not to be changed."""
    return tell(recorded(recording, pattern))


@cache
def truth_of(recording: Path) -> truth.Truth:
    """The truth beside a recording. Whoever asks gets the same: it is not to be changed."""
    return truth.read_truth(recording)


@cache
def verdict(recording: Path, pattern: str = LOGS) -> truth.Verdict:
    """What the truth says to the timelines of the files of a recording."""
    return truth.compare_with(truth_of(recording), told_of(recording, pattern).rows(), "/".join(recording.parts[-3:]))
