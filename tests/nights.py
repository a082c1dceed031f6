"""Night after night: the rows and states of a cluster's partitions, kept as the audit keeps them, without a JVM."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from timelines import KEEPS

from jobs.timelines import ClusterEvidence, ClusterFacts, Event, PartitionKey, affected, fold

Row = tuple[Any, ...]


@dataclass
class Kept:
    """Of one partition: rows that are settled, those that are open, and its state."""

    settled: list[list[Row]] = field(default_factory=lambda: [[], [], []])
    open: list[list[Row]] = field(default_factory=lambda: [[], [], []])
    state: str | None = None

    def rows(self) -> list[list[Row]]:
        """All, without what says whether they are settled."""
        return [sorted(((*row[:-1],) for row in [*a, *b]), key=repr) for a, b in zip(self.settled, self.open, strict=True)]


class Nights:
    """What a night leaves to the next one. counts: of folds, and of those from the beginning."""

    def __init__(self) -> None:
        self.evidence = ClusterEvidence()
        self.facts: ClusterFacts | None = None
        self.events: list[Event] = []
        self.of_partition: dict[PartitionKey, list[Event]] = defaultdict(list)
        self.kept: dict[PartitionKey, Kept] = {}
        self.unknown: list[Event] = []
        self.counts: Counter[str] = Counter()

    def night(self, new: Iterable[Event]) -> None:
        """Events that came, in any order."""
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
        came: dict[PartitionKey, list[Event]] = defaultdict(list)
        # records of a metadata log that came before that of their topic are its partitions' now
        tried, self.unknown = [*self.unknown, *new], []
        for e in tried:
            key = self.facts.key_of(e)
            if key is not None:
                came[key].append(e)
                self.of_partition[key].append(e)
            elif e.partition is not None:
                self.unknown.append(e)
        for key, kept in self.kept.items():
            replicas = {replica for rows in (kept.settled[1], kept.open[1]) for replica, *_ in rows}
            replicas |= {one for row in kept.open[0] + kept.settled[0] for one in row[7] or ()}
            if key.topic in scope.topics or replicas & scope.brokers:
                came[key] += []
        for key, own in came.items():
            self._fold(key, own)

    def _fold(self, key: PartitionKey, own: list[Event]) -> None:
        assert self.facts is not None
        kept = self.kept.setdefault(key, Kept())
        self.counts["folds"] += 1
        told = fold(key, kept.state, own, self.facts)
        if told.is_stale:
            self.counts["from the beginning"] += 1
            kept = self.kept[key] = Kept()
            told = fold(key, None, self.of_partition[key], self.facts)
            assert not told.is_stale
        kept.state = told.state
        for number, rows in enumerate((told.partitions, told.replicas, told.reassignments)):
            kept.settled[number] += [row for row in rows if row[-1]]
            kept.open[number] = [row for row in rows if not row[-1]]

    def rows(self) -> dict[PartitionKey, list[list[Row]]]:
        """Of every partition: intervals, those of its replicas, reassignments."""
        return {key: kept.rows() for key, kept in sorted(self.kept.items())}
