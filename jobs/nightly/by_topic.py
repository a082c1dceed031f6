"""Topic after topic through a function of plain rows: on the driver where there are few rows, else by Spark's workers."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from jobs.engine.rows import EVERY, Fold, Frame, Where, fold_groups, having, lacking, of_clusters, one_of, together, where

KEY = ("cluster", "incarnation", "topic")
TOPIC = ("cluster", "topic")
# topics that a condition names
MOST_NAMED = 1_000
TOPICS = pa.schema([(name, pa.string()) for name in TOPIC])


@dataclass(frozen=True)
class ToldAnew:
    """Topics about which all is told anew. clusters: those of which every topic is; topics: TOPIC of others."""

    clusters: frozenset[str]
    topics: Frame

    @classmethod
    def of_any(cls, clusters: Iterable[str], topics: Frame | None, others: Iterable[tuple[str, str]] = ()) -> "ToldAnew":
        """topics: TOPIC of some; others: further ones."""
        more = pa.Table.from_pylist([dict(zip(TOPIC, one, strict=True)) for one in others], TOPICS)
        return cls(frozenset(clusters), more if topics is None else together(topics, more))

    @property
    def likely(self) -> Where:
        """Holds for the rows of these topics, and where they are few for hardly any other: of a large table no more need be read."""
        if not isinstance(self.topics, pa.Table) or self.topics.num_rows > MOST_NAMED:
            return EVERY
        return of_clusters(self.clusters) | one_of("topic", set(self.topics["topic"].to_pylist()))

    def of(self, rows: Frame) -> Frame:
        """The rows of these topics; in: rows with TOPIC."""
        whole = of_clusters(self.clusters)
        return together(where(rows, whole), having(where(rows, ~whole), self.topics, TOPIC))

    def not_of(self, rows: Frame) -> Frame:
        """The rows of all other topics."""
        return lacking(where(rows, ~of_clusters(self.clusters)), self.topics, TOPIC)


def fold_topics(one: Frame, other: Frame, fold: Fold, schema: pa.Schema) -> Frame:
    """Folds the rows of each topic of one incarnation. in: rows with KEY. out: KEY and what the fold returns, as schema has it."""
    return fold_groups(one, other, KEY, fold, schema)
