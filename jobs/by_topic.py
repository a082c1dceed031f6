"""Topic after topic through a function of plain rows: on the driver where there are few rows, else by Spark's workers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.frames import of_rows
from jobs.store import in_clusters, run_concurrently
from jobs.timelines import ClusterFacts
from jobs.timelines.events import moment_of

# a row takes some 20 microseconds and 1 KB here; workers need seconds before the first one
MOST_ON_DRIVER = 100_000
KEY = ("cluster", "incarnation", "topic")
Rows = list[dict[str, Any]]
# (the values of KEY, rows of the one frame, rows of the other) -> rows without KEY
Fold = Callable[[tuple[Any, ...], Rows, Rows], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True)
class ToldAnew:
    """Topics about which all is told anew. clusters: those of which every topic is; topics: cluster and topic of others."""

    clusters: frozenset[str]
    topics: DataFrame | None

    @classmethod
    def of_any(
        cls, spark: SparkSession, clusters: Iterable[str], topics: DataFrame | None, others: Iterable[tuple[str, str]] = ()
    ) -> "ToldAnew":
        """topics: cluster and topic; others: further ones."""
        listed = sorted(others)
        if listed:
            more = spark.createDataFrame(pa.table(list(zip(*listed, strict=True)), names=["cluster", "topic"]))
            topics = more if topics is None else topics.unionByName(more).distinct()
        return cls(frozenset(clusters), topics)

    def _marked(self, rows: DataFrame) -> DataFrame:
        marked = rows.withColumn("of_cluster", F.expr(in_clusters(self.clusters) if self.clusters else "false"))
        if self.topics is None:
            return marked.withColumn("anew", F.col("of_cluster")).drop("of_cluster")
        topics = F.broadcast(self.topics.withColumn("named", F.lit(True)))
        marked = marked.join(topics, ["cluster", "topic"], "left")
        return marked.withColumn("anew", F.expr("of_cluster OR named IS NOT NULL")).drop("of_cluster", "named")

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows of these topics; in: rows with cluster and topic."""
        return self._marked(rows).filter("anew").select(*rows.columns)

    def not_of(self, rows: DataFrame) -> DataFrame:
        """The rows of all other topics."""
        return self._marked(rows).filter("NOT anew").select(*rows.columns)


def fold_topics(one: DataFrame, other: DataFrame, fold: Fold, schema: Any) -> DataFrame:
    """Folds the rows of each topic of one incarnation. in: two frames with KEY. out: KEY and what the fold returns, as schema has it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    spark, arrow = one.sparkSession, to_arrow_schema(schema)

    def folded(key: tuple[Any, ...], some: Rows, others: Rows) -> Rows:
        return [{**dict(zip(KEY, key, strict=True)), **row} for row in fold(key, some, others)]

    def of_worker(key: Any, some: Any, others: Any) -> Any:
        rows = folded(tuple(value.as_py() for value in key), some.to_pylist(), others.to_pylist())
        return pa.Table.from_pylist(rows, schema=arrow)

    few = run_concurrently(*(frame.limit(MOST_ON_DRIVER + 1).toArrow for frame in (one, other)))
    if all(table.num_rows <= MOST_ON_DRIVER for table in few):
        some, others = (_by_topic(table) for table in few)
        rows = [row for key in {**some, **others} for row in folded(key, some.get(key, []), others.get(key, []))]
        return of_rows(spark, rows, schema)
    # columns of their own: both sides may come from one frame
    one, other = one.toDF(*one.columns), other.toDF(*other.columns)
    return one.groupBy(*KEY).cogroup(other.groupBy(*KEY)).applyInArrow(of_worker, schema)


def _by_topic(table: pa.Table) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row in table.to_pylist():
        found.setdefault(tuple(row[name] for name in KEY), []).append(row)
    return found


def shared_events(facts: ClusterFacts) -> dict[int, Rows]:
    """Incarnation -> the events that its topics share, as rows of `events`."""
    return {
        number: [
            {**event._asdict(), "incarnation": number, "ts": None if event.ts is None else moment_of(event.ts)}
            for event in events
        ]
        for number, events in facts.events_by_number.items()
    }
