"""Who was leader, in sync, assigned, being added or removed, and in which state, at every moment."""

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.store import Store, at_once, in_clusters, quoted
from jobs.timelines import controllers, deletions, order, partitions, reassignments, replicas
from parsers.rules import RuleSet


def kept_columns(spark: SparkSession, ruleset: RuleSet) -> DataFrame:
    """event_type, keeps ARRAY<STRING>: what each statement leaves as it was."""
    rows = ", ".join(
        f"({quoted(rule.name)}, array({', '.join(quoted(name) for name in rule.keeps)}))" for rule in ruleset.rules if rule.keeps
    )
    rows = rows or "('', array(''))"
    return spark.sql(f"SELECT event_type, CAST(keeps AS ARRAY<STRING>) AS keeps FROM VALUES {rows} AS t(event_type, keeps)")


def in_incarnations(store: Store, clusters: list[str], events: DataFrame) -> tuple[DataFrame, dict[str, list[datetime]]]:
    """(events with their incarnation, when each incarnation but the first began); corrects `events.incarnation` where it differs."""
    starts = {cluster: order.incarnation_starts(some) for cluster, some in order.signs(events).items()}
    number = order.incarnation(starts)
    if any(starts.values()) or not events.filter("incarnation > 1").isEmpty():
        from delta.tables import DeltaTable

        DeltaTable.forPath(store.spark, str(store.path("events"))).update(
            F.expr(in_clusters(clusters)) & (F.col("incarnation") != number), {"incarnation": number}
        )
        store.forget("events")
    others = [name for name in events.columns if name != "incarnation"]
    return events.select(*others, number.alias("incarnation")), starts


def rebuild(store: Store, clusters: list[str], ruleset: RuleSet) -> None:
    """Writes the five timelines of clusters anew from their events."""
    said = store.rows_of("events", clusters).filter("event_type IS NOT NULL").drop("raw")
    if not store.keeps_rows:
        said = said.localCheckpoint()
    in_lives, starts = in_incarnations(store, clusters, said)
    events = order.in_order(in_lives).localCheckpoint()
    told = partitions.observations(events, kept_columns(store.spark, ruleset)).localCheckpoint()

    def write(table: str, rows: DataFrame) -> None:
        store.replace(table, clusters, rows)

    def partitions_then_replicas() -> None:
        intervals = partitions.close_ended_incarnations(partitions.timeline(told), starts).localCheckpoint()
        write("partition_timeline", intervals)
        write("replica_timeline", partitions.close_ended_incarnations(replicas.timeline(events, intervals), starts))

    def all_others() -> None:
        write("controllers", controllers.reigns(events))
        write("topic_deletions", deletions.deletions(events))
        write("reassignments", reassignments.reassignments(told))

    at_once(partitions_then_replicas, all_others)
