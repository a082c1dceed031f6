"""Who was leader, in sync, assigned, being added or removed, and in which state, at every moment."""

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.store import EVENT, Store, at_once, in_clusters, quoted
from jobs.timelines import (
    controllers,
    deletions,
    discontinuities,
    kraft,
    kraft_replicas,
    metadata_log,
    order,
    partitions,
    reassignments,
    replicas,
    touched,
)
from parsers.rules import RuleSet

# columns of `events` that no timeline is made of: every step would carry them along
UNREAD = (
    "raw", "layout", "drifted", "leader_recovery_state", "start_offset", "high_watermark", "end_offset", "election_strategy",
    "election_type", "trigger", "correlation_id", "partitions_named", "is_new", "path", "incarnation_id", "quorum_node", "raft_epoch",
    "metadata_version", "config", "config_value", "latest_controller_epoch", "error_class", "error_message", "statement",
)  # fmt: skip


def kept_columns(spark: SparkSession, ruleset: RuleSet) -> DataFrame:
    """event_type, keeps ARRAY<STRING>: what each statement leaves as it was."""
    rows = ", ".join(
        f"({quoted(rule.name)}, array({', '.join(quoted(name) for name in rule.keeps)}))" for rule in ruleset.rules if rule.keeps
    )
    rows = rows or "('', array(''))"
    return spark.sql(f"SELECT event_type, CAST(keeps AS ARRAY<STRING>) AS keeps FROM VALUES {rows} AS t(event_type, keeps)")


def in_incarnations(
    store: Store, clusters: list[str], events: DataFrame
) -> tuple[DataFrame, dict[str, list[order.Cluster]], bool]:
    """(events with their incarnation and overruled BOOLEAN, the clusters under each name, whether any has or had several incarnations).

    Corrects `events.incarnation` where it differs.
    """
    found = order.clusters(events)
    number = order.incarnation(found)
    several = any(map(order.ends, found.values())) or not events.filter("incarnation > 1").isEmpty()
    if several:
        store.update("events", F.expr(in_clusters(clusters)) & (F.col("incarnation") != number), {"incarnation": number})
    others = [name for name in events.columns if name != "incarnation"]
    numbered = events.select(*others, number.alias("incarnation"))
    return numbered.select("*", order.overruled(found).alias("overruled")), found, several


def kraft_begins(said: DataFrame) -> dict[str, datetime | None]:
    """Cluster -> since when it is run by KRaft controllers: None where its logs know no other mode. Others are left out.

    in: events. A cluster that was migrated has logs of both modes (KIP-866); its brokers speak like those of KRaft before it is one.
    """
    told = F.col("event_type").isin(*kraft.CONTROLLER_TOLD, "partition_record")
    of_broker = F.col("event_type").isin(*kraft.BROKER_SIGNS)
    by_zookeeper = F.col("event_type").isin("partition_new", "partition_online", "assignment_updated", "topics_changed")
    signs = said.filter(told | of_broker | by_zookeeper).groupBy("cluster").agg(
        F.count_if(told).alias("told"),
        F.count_if(of_broker).alias("of_broker"),
        F.min(F.when(told, F.col("ts"))).alias("since"),
        F.count_if(by_zookeeper).alias("before"),
    )  # fmt: skip
    rows = signs.filter("told > 0 OR (of_broker > 0 AND before = 0)").collect()
    return {row.cluster: row.since if row.before else None for row in rows}


def kraft_registrations(events: DataFrame) -> DataFrame:
    """What KRaft partitions went through: from a metadata log where there is one, else from text.

    in: events of KRaft clusters with file_ts. out: as `partitions.of_kraft` takes it.
    """
    lives = order.in_memory(kraft.topic_lives(events))
    dumped = order.in_memory(metadata_log.in_sequence(metadata_log.registrations(events), lives))
    told = kraft.registrations(events, lives).join(
        F.broadcast(dumped.select(*kraft.LIFE).distinct()), list(kraft.LIFE), "left_anti"
    )
    return told.unionByName(dumped).localCheckpoint()


def by_kraft(since: dict[str, datetime | None]) -> Column:
    """BOOLEAN: whether an event is of a time when its cluster had KRaft controllers. since: as `kraft_begins` gives it."""
    cases = [
        f"WHEN cluster = {quoted(name)} THEN " + ("true" if at is None else f"ts >= TIMESTAMP {quoted(at.isoformat(sep=' '))}")
        for name, at in since.items()
    ]
    return F.coalesce(F.expr(f"CASE {' '.join(cases)} END"), F.lit(False))


def by_mode(events: DataFrame, since: dict[str, datetime | None]) -> tuple[DataFrame, DataFrame | None]:
    """(events of ZooKeeper controllers' time, those of KRaft controllers', None where no cluster has any)."""
    if not since:
        return events, None
    in_kraft = by_kraft(since)
    return order.in_memory(events.filter(~in_kraft)), events.filter(in_kraft)


def replica_intervals(
    events: DataFrame,
    of_zookeeper: DataFrame,
    intervals: DataFrame,
    *,
    since: dict[str, datetime | None],
    tracers: DataFrame,
    going_on: tuple[DataFrame, DataFrame] | None = None,
) -> DataFrame:
    """`replica_timeline` of clusters of either kind.

    of_zookeeper: those of the events that `by_mode` gives as such; intervals: `partition_timeline`; tracers: `replicas.tracing`;
    going_on: as `replicas.timeline` takes it.
    """
    if not since:
        return replicas.with_isr(replicas.timeline(of_zookeeper, intervals, tracers, going_on), intervals)
    in_kraft = by_kraft(since)
    of_kraft = intervals.withColumn("ts", F.col("valid_from")).filter(in_kraft).drop("ts")
    before = replicas.timeline(of_zookeeper, intervals, tracers, going_on)
    # brokers register with the KRaft controllers before the first partition does
    registering = events.filter(in_clusters(since))
    told = kraft_replicas.after_zookeeper(before, kraft_replicas.timeline(registering, of_kraft), since)
    return replicas.with_isr(told.localCheckpoint(), intervals)


def topic_deletions(events: DataFrame, since: dict[str, datetime | None]) -> DataFrame:
    """`topic_deletions` of clusters of either kind."""
    told = deletions.deletions(events)
    return told.unionByName(kraft.deletions(events.filter(by_kraft(since)))) if since else told


def partition_observations(of_zookeeper: DataFrame, of_kraft: DataFrame | None, rules: DataFrame) -> DataFrame:
    """`partitions.observations` of clusters of either kind. in: events as `by_mode` gives them."""
    return partitions.observations(of_zookeeper, rules, None if of_kraft is None else kraft_registrations(of_kraft))


def recognised(events: DataFrame, clusters: list[str]) -> DataFrame:
    """The events of clusters that a timeline may rest on, less what is UNREAD."""
    return events.filter(F.expr(in_clusters(clusters)) & F.col("event_type").isNotNull()).drop(*UNREAD)


def touched_since(
    store: Store,
    clusters: list[str],
    version: int,
    now: DataFrame,
    files: DataFrame,
    *,
    found: dict[str, list[order.Cluster]] | None,
    since: dict[str, datetime | None],
) -> touched.Touched:
    """What the events touch that came after a version of `events`, or went with it.

    now: all events of the clusters, in their incarnations; files: their `order.files`. found and since: as `order.clusters` and
    `kraft_begins` give them; None: no cluster has or had more than one incarnation.
    """
    before = recognised(store.at_version("events", version), clusters)
    changed = store.changed_since("events", version, EVENT)
    new = recognised(changed, clusters).select(*touched.TOLD).localCheckpoint()
    then, since_then = {} if found is None else order.clusters(before), kraft_begins(before)

    def lived_otherwise(name: str) -> bool:
        now_and_then = ([one.lives for one in some.get(name, [order.Cluster((), (1,))])] for some in (found or {}, then))
        in_lives = next(now_and_then) != next(now_and_then)
        return in_lives or (name in since, since.get(name)) != (name in since_then, since_then.get(name))

    intervals = store.rows_of("partition_timeline", clusters)
    whole = frozenset(filter(lived_otherwise, clusters))
    return touched.find(
        before, now, new, files=files, intervals=intervals, whole=whole, in_kraft=frozenset(since),
        anchored=frozenset(name for name in clusters if not order.ends((found or {}).get(name, [order.Cluster((), (1,))]))),
    )  # fmt: skip


def rebuild(store: Store, clusters: list[str], ruleset: RuleSet, version: int | None = None) -> None:
    """Writes the five timelines of clusters anew from their events.

    version: of `events`, before this run; only what later events touch is written. None: everything is.
    """
    said = recognised(store.rows_of("events", clusters), clusters)
    if version is None and not store.keeps_rows:
        said = said.localCheckpoint()
    in_lives, found, several = in_incarnations(store, clusters, said)
    ends = {name: order.ends(some) for name, some in found.items()}
    since = kraft_begins(said)
    files = order.files(in_lives) if version is None else order.files(in_lives).localCheckpoint()
    ordered = order.in_order(in_lives, files)
    marks = (
        None
        if version is None
        else touched_since(store, clusters, version, in_lives, files, found=found if several else None, since=since)
    )
    spoken = ordered.localCheckpoint() if marks is None else ordered
    heard = spoken.filter("NOT overruled")
    kept = kept_columns(store.spark, ruleset)
    before = store.rows_of("partition_timeline", clusters) if marks else None

    def read(marks: touched.Touched | None) -> tuple[DataFrame, DataFrame, DataFrame, DataFrame]:
        """(events, those of ZooKeeper controllers, observations, `partition_timeline` of what is made anew)"""
        events = heard if marks is None else marks.events(heard).localCheckpoint()
        of_zookeeper, of_kraft = by_mode(events, since)
        told = partition_observations(of_zookeeper, of_kraft, kept)
        told = (told if marks is None else marks.going_on(told)).localCheckpoint()
        intervals = partitions.close_ended_incarnations(partitions.timeline(told, marked=bool(since)), ends)
        return (
            events,
            of_zookeeper,
            told,
            (intervals if marks is None else order.numbered_on(intervals, marks.anchors, *order.PARTITION)).localCheckpoint(),
        )

    def write(table: str, rows: DataFrame, made_anew: Callable[[DataFrame], DataFrame] | None = None) -> None:
        if marks is None:
            store.replace(table, clusters, rows)
        else:
            old = store.rows_of(table, clusters)
            store.exchange(table, clusters, made_anew(old) if made_anew else old, rows)

    def of_partitions() -> None:
        events, of_zookeeper, told, intervals = read(marks)
        proven = marks
        if marks is not None and before is not None:
            differing = marks.differing(marks.intervals(before), intervals).localCheckpoint()
            if not differing.isEmpty():
                proven = marks.without_anchors_of(differing)
                events, of_zookeeper, told, intervals = read(proven)
        tracers = replicas.tracing(events if marks is None else in_lives)

        def partitions_and_replicas() -> None:
            write("partition_timeline", intervals, proven.intervals if proven else None)
            if proven is None:
                stood = replica_intervals(events, of_zookeeper, intervals, since=since, tracers=tracers)
                write("replica_timeline", partitions.close_ended_incarnations(stood, ends))
            else:
                held = proven.replicas_held(store.rows_of("replica_timeline", clusters)).localCheckpoint()
                stood = replica_intervals(
                    events, of_zookeeper, intervals, since=since, tracers=tracers, going_on=(proven.begins(), held)
                )
                rows = partitions.close_ended_incarnations(stood, ends)
                write("replica_timeline", rows, lambda old: proven.replica_intervals(old, held))

        def all_reassignments() -> None:
            write("reassignments", reassignments.reassignments(told), proven.reassignments if proven else None)

        at_once(partitions_and_replicas, all_reassignments)

    def all_others() -> None:
        write("controllers", controllers.reigns(spoken))
        of_topics = heard if marks is None else marks.of_deletions(heard)
        write("topic_deletions", topic_deletions(of_topics, since), marks.of_deletions if marks else None)
        # whole: what fills a gap or tells of an election changes causes everywhere
        write("discontinuities", discontinuities.discontinuities(heard))

    at_once(of_partitions, all_others)
