"""Run after run: store the rows and states of a cluster's partitions as the audit does, without an engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from timelines import KEEPS

from jobs.timelines import ClusterEvidence, ClusterFacts, Event, PartitionKey, affected, fold

Row = tuple[Any, ...]


@dataclass
class StoredRows:
    """The settled rows, the open rows and the state of one partition."""

    settled: list[list[Row]] = field(default_factory=lambda: [[], [], []])
    open: list[list[Row]] = field(default_factory=lambda: [[], [], []])
    state: str | None = None

    def rows(self) -> list[list[Row]]:
        """Return all rows without `settled`."""
        return [
            sorted(((*row[:-1],) for row in [*a, *b]), key=repr)
            for a, b in zip(self.settled, self.open, strict=True)
        ]


class Runs:
    """What a run stores for the next one.

    counts: of folds, of folds from the beginning, of rebuilt clusters.
    """

    def __init__(self) -> None:
        self.evidence = ClusterEvidence()
        self.facts: ClusterFacts | None = None
        self.events: list[Event] = []
        self.of_partition: dict[PartitionKey, list[Event]] = defaultdict(list)
        self.kept: dict[PartitionKey, StoredRows] = {}
        self.unknown: list[Event] = []
        self.counts: Counter[str] = Counter()

    def run(self, new: Iterable[Event]) -> None:
        """Run with new events, in any order."""
        new = list(new)
        self.events += new
        self.evidence = ClusterEvidence.from_json((self.evidence + ClusterEvidence.of(new)).to_json())
        before, self.facts = self.facts, ClusterFacts.of(self.evidence, KEEPS)
        scope = affected(before, self.facts)
        if scope.whole:
            self.counts["whole"] += before is not None
            self.kept.clear()
            self.of_partition.clear()
            self.unknown.clear()
            new = self.events
        delivered: dict[PartitionKey, list[Event]] = defaultdict(list)
        # records of a metadata log before that of their topic belong to its partitions now
        tried, self.unknown = [*self.unknown, *new], []
        for e in tried:
            key = self.facts.key_of(e)
            if key is not None:
                delivered[key].append(e)
                self.of_partition[key].append(e)
            elif e.partition is not None:
                self.unknown.append(e)
        for key, kept in self.kept.items():
            replicas = {replica for rows in (kept.settled[1], kept.open[1]) for replica, *_ in rows}
            replicas |= {one for row in kept.open[0] + kept.settled[0] for one in row[7] or ()}
            if key.topic in scope.topics or replicas & scope.brokers:
                delivered[key] += []
        for key, own in delivered.items():
            self._fold(key, own)

    def _fold(self, key: PartitionKey, own: list[Event]) -> None:
        assert self.facts is not None
        kept = self.kept.setdefault(key, StoredRows())
        self.counts["folds"] += 1
        folded = fold(key, kept.state, own, self.facts)
        if folded.is_stale:
            self.counts["from the beginning"] += 1
            kept = self.kept[key] = StoredRows()
            folded = fold(key, None, self.of_partition[key], self.facts)
            assert not folded.is_stale
        kept.state = folded.state
        for number, rows in enumerate((folded.partitions, folded.replicas, folded.reassignments)):
            kept.settled[number] += [row for row in rows if row[-1]]
            kept.open[number] = [row for row in rows if not row[-1]]

    def rows(self) -> dict[PartitionKey, list[list[Row]]]:
        """Return the intervals, replica intervals and reassignments of every partition."""
        return {key: kept.rows() for key, kept in sorted(self.kept.items())}
