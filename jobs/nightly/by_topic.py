"""Select the rows of topics that are rebuilt."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from jobs.engine.rows import EVERY, Frame, having, lacking, of_clusters, together, where
from jobs.engine.run_tables import RunTables

KEY = ("cluster", "incarnation", "topic")
TOPIC = ("cluster", "topic")
TOPICS = pa.schema([(name, pa.string()) for name in TOPIC])


@dataclass(frozen=True)
class RebuiltTopics:
    """Topics that are rebuilt. clusters: those whose topics are all rebuilt; topics: TOPIC of others."""

    clusters: frozenset[str]
    topics: Frame

    @classmethod
    def of_any(
        cls, clusters: Iterable[str], topics: Frame | None, others: Iterable[tuple[str, str]] = ()
    ) -> "RebuiltTopics":
        """Return the topics of whole clusters and single topics.

        topics: TOPIC of some; others: further ones.
        """
        more = pa.Table.from_pylist([dict(zip(TOPIC, one, strict=True)) for one in others], TOPICS)
        return cls(frozenset(clusters), more if topics is None else together(topics, more))

    def read(self, store: RunTables, table: str, clusters: Iterable[str], columns: Sequence[str]) -> Frame:
        """Return the columns of the stored rows of these topics. clusters: all. columns: with TOPIC."""
        some = store.rows_about(table, set(clusters) - self.clusters, "topic", self.topics, columns)
        return together(store.read(table, self.clusters, EVERY, columns), having(some, self.topics, TOPIC))

    def of(self, rows: Frame) -> Frame:
        """Return the rows of these topics. in: rows with TOPIC."""
        whole = of_clusters(self.clusters)
        return together(where(rows, whole), having(where(rows, ~whole), self.topics, TOPIC))

    def not_of(self, rows: Frame) -> Frame:
        """Return the rows of all other topics. in: rows with TOPIC."""
        return lacking(where(rows, ~of_clusters(self.clusters)), self.topics, TOPIC)
