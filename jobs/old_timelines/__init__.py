"""Who was leader, in sync, assigned, being added or removed, and in which state, at every moment."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.old_timelines import (
    controllers,
    deletions,
    discontinuities,
    kraft,
    kraft_changes,
    kraft_replicas,
    metadata_log,
    night,
    order,
    partitions,
    reassignments,
    replicas,
    touched,
    witnesses,
)
from jobs.store import Store, at_once, in_clusters, quoted
from parsers.rules import RuleSet


def kept_columns(spark: SparkSession, ruleset: RuleSet) -> DataFrame:
    """event_type, keeps ARRAY<STRING>: what each statement leaves as it was."""
    rows = ", ".join(
        f"({quoted(rule.name)}, array({', '.join(quoted(name) for name in rule.keeps)}))" for rule in ruleset.rules if rule.keeps
    )
    rows = rows or "('', array(''))"
    return spark.sql(f"SELECT event_type, CAST(keeps AS ARRAY<STRING>) AS keeps FROM VALUES {rows} AS t(event_type, keeps)")


def correct_incarnations(store: Store, found: dict[str, list[order.Cluster]], which: Column) -> None:
    """Corrects `events.incarnation` where it differs. which: the rows that may."""
    number = order.incarnation(found)
    store.update("events", which & (F.col("incarnation") != number), {"incarnation": number})


def kraft_registrations(events: DataFrame, shared: DataFrame, lives: DataFrame, anchors: DataFrame | None = None) -> DataFrame:
    """What KRaft partitions went through: from a metadata log where there is one, else from text.

    in: as `kraft.registrations`. out: as `partitions.of_kraft` takes it.
    """
    dumped = order.in_memory(metadata_log.in_sequence(metadata_log.registrations(events), lives))
    told = kraft.registrations(events, shared, lives, anchors).join(
        F.broadcast(dumped.select(*kraft.LIFE).distinct()), list(kraft.LIFE), "left_anti"
    )
    return told.unionByName(dumped).localCheckpoint()


def by_mode(events: DataFrame, since: dict[str, datetime | None]) -> tuple[DataFrame, DataFrame | None]:
    """(events of ZooKeeper controllers' time, those of KRaft controllers', None where no cluster has any)."""
    if not since:
        return events, None
    in_kraft = kraft.by_kraft(since)
    return order.in_memory(events.filter(~in_kraft)), events.filter(in_kraft)


def replica_intervals(
    shared: DataFrame,
    of_zookeeper: DataFrame,
    intervals: DataFrame,
    *,
    since: dict[str, datetime | None],
    tracers: DataFrame,
    going_on: Sequence[tuple[DataFrame, DataFrame]] = (),
) -> DataFrame:
    """`replica_timeline` of clusters of either kind.

    shared: all events or the `witnesses` among them; of_zookeeper: those of the events that `by_mode` gives as such; intervals:
    `partition_timeline`; tracers: `replicas.tracing`; going_on: as `Touched.by_mode` gives it.
    """
    on_by_zookeeper, on_by_kraft = going_on or (None, None)
    before = replicas.timeline(of_zookeeper, intervals, tracers, on_by_zookeeper)
    if not since:
        return replicas.with_isr(before, intervals)
    of_kraft = intervals.filter(kraft.by_kraft(since, "valid_from"))
    # brokers register with the KRaft controllers before the first partition does
    registering = shared.filter(in_clusters(since))
    told = kraft_replicas.after_zookeeper(before, kraft_replicas.timeline(registering, of_kraft, on_by_kraft), since)
    return replicas.with_isr(told.localCheckpoint(), intervals)


def topic_deletions(
    events: DataFrame, lives: DataFrame | None, since: dict[str, datetime | None], marks: touched.Touched | None
) -> DataFrame:
    """`topic_deletions` of clusters of either kind. lives: `kraft.topic_lives`, if there is a KRaft one. marks: only what these name."""
    told = deletions.deletions(marks.of_deletions(events) if marks else events)
    if lives is None:
        return told
    return told.unionByName(kraft.deletions(events.filter(kraft.by_kraft(since)), marks.of_deletions(lives) if marks else lives))


def rebuild(store: Store, clusters: list[str], ruleset: RuleSet, come: night.News | None = None) -> DataFrame | None:
    """Writes the timelines of clusters anew from their events.

    come: only what it touches is written. None: everything is. Returns what `Store.note_built` keeps for the next run; None where rows
    are kept: all of them are read then.
    """
    if come is None:
        return _anew(store, clusters, ruleset)
    then, now = night.shared(come.held.shared), night.shared(come.told.filter("event_type IS NOT NULL").localCheckpoint())
    whole = night.changed_for_all(store, clusters, come, then, now)
    told = [_anew(store, sorted(whole), ruleset)] if whole else []
    if others := [name for name in clusters if name not in whole]:
        told.append(_further(store, others, ruleset, come, now))
    return reduce(DataFrame.unionByName, [rows for rows in told if rows is not None])


def _anew(store: Store, clusters: list[str], ruleset: RuleSet) -> DataFrame | None:
    """All of their timelines."""
    said = night.recognised(store.rows_of("events", clusters), clusters)
    if not store.keeps_rows:
        said = said.localCheckpoint()
    known = night.shared(said)
    if any(map(order.ends, known.found.values())) or not said.filter("incarnation > 1").isEmpty():
        correct_incarnations(store, known.found, F.expr(in_clusters(clusters)))
    spoken = order.in_order(known.spoken).localCheckpoint()
    _write(store, clusters, ruleset, replace(known, spoken=spoken), spoken)
    return None if store.keeps_rows else night.Witnesses.among(spoken).rows()


def _further(store: Store, clusters: list[str], ruleset: RuleSet, come: night.News, now: night.Shared) -> DataFrame:
    """What is new of their timelines."""
    of_these = F.expr(in_clusters(clusters))
    found = {name: some for name, some in now.found.items() if name in clusters}
    came, went = (
        night.in_incarnations(rows.filter(of_these & F.col("event_type").isNotNull()), found) for rows in (come.came, come.went)
    )
    several = {name for name, some in found.items() if order.ends(some)}
    if several:
        span = come.came.filter(of_these).agg(F.min("ts").alias("first"), F.max("ts").alias("last")).first()
        assert span is not None
        recent = F.col("ts").isNull() | F.col("ts").between(F.lit(span["first"]), F.lit(span["last"]))
        correct_incarnations(store, found, F.expr(in_clusters(several)) & recent)
    files = order.files(now.spoken.filter(of_these)).localCheckpoint()
    told = night.in_incarnations(witnesses.of(order.in_order(now.spoken.filter(of_these), files)), found).localCheckpoint()
    lines = discontinuities.Since(
        then=order.in_order(come.held.lines.filter(of_these), files),
        new=order.in_order(came.filter("NOT overruled").select(*witnesses.COLUMNS), files),
        gone=went,
    )
    events = night.in_incarnations(night.recognised(store.rows_of("events", clusters), clusters), found)
    known = night.Shared(found, {name: at for name, at in now.since.items() if name in clusters}, order.in_order(told, files))
    before = order.in_order(night.in_incarnations(come.held.shared.filter(of_these), found), files)
    marks = touched.find(
        came.unionByName(went),
        intervals=store.rows_of("partition_timeline", clusters),
        anchored=frozenset(clusters) - several,
        in_kraft=kraft_changes.Changes.between(before, known.spoken, known.since) if known.since else None,
    )
    _write(store, clusters, ruleset, known, order.in_order(events, files), marks=marks, lines=lines)
    last = discontinuities.last_lines(lines.then.unionByName(lines.new)).select(*witnesses.COLUMNS)
    return night.Witnesses(told.select(*witnesses.COLUMNS), last).rows()


def _write(
    store: Store, clusters: list[str], ruleset: RuleSet, known: night.Shared, spoken: DataFrame, *,
    marks: touched.Touched | None = None, lines: discontinuities.Since | None = None,
) -> None:  # fmt: skip
    """Writes the five timelines and the discontinuities of clusters.

    spoken: their events in order. marks and lines: only what these name is made anew.
    """
    ends = {name: order.ends(some) for name, some in known.found.items()}
    since = known.since
    heard = spoken.filter("NOT overruled")
    kept = kept_columns(store.spark, ruleset)
    lives = order.in_memory(kraft.topic_lives(known.spoken, since)) if since else None
    before = store.rows_of("partition_timeline", clusters) if marks else None

    def read(marks: touched.Touched | None) -> tuple[DataFrame, DataFrame, DataFrame]:
        """(events of ZooKeeper controllers, observations, `partition_timeline` of what is made anew)"""
        events = heard if marks is None else marks.events(heard).localCheckpoint()
        of_zookeeper, of_kraft = by_mode(events, since)
        registered, anchors = None, None
        if of_kraft is not None and lives is not None:
            if marks is not None:
                of_kraft, anchors = marks.of_kraft(of_kraft), marks.anchors_of_kraft()
            registered = kraft_registrations(of_kraft, known.spoken, lives, anchors)
        told = partitions.observations(of_zookeeper, kept, registered)
        told = (told if marks is None else marks.going_on(told)).localCheckpoint()
        intervals = partitions.close_ended_incarnations(partitions.timeline(told, marked=bool(since)), ends)
        if marks is not None:
            intervals = order.numbered_on(intervals, marks.anchors, *order.PARTITION)
        return of_zookeeper, told, intervals.localCheckpoint()

    def write(table: str, rows: DataFrame, made_anew: Callable[[DataFrame], DataFrame] | None = None) -> None:
        if marks is None:
            store.replace(table, clusters, rows)
        else:
            old = store.rows_of(table, clusters)
            store.exchange(table, clusters, made_anew(old) if made_anew else old, rows)

    def of_partitions() -> None:
        of_zookeeper, told, intervals = read(marks)
        proven = marks
        if marks is not None and before is not None:
            differing = marks.differing(marks.intervals(before), intervals).localCheckpoint()
            if not differing.isEmpty():
                proven = marks.without_anchors_of(differing)
                of_zookeeper, told, intervals = read(proven)
        tracers = replicas.tracing(known.spoken)

        def partitions_and_replicas() -> None:
            write("partition_timeline", intervals, proven.intervals if proven else None)
            if proven is None:
                stood = replica_intervals(known.spoken, of_zookeeper, intervals, since=since, tracers=tracers)
                write("replica_timeline", partitions.close_ended_incarnations(stood, ends))
            else:
                held = proven.replicas_held(store.rows_of("replica_timeline", clusters)).localCheckpoint()
                stood = replica_intervals(
                    known.spoken, of_zookeeper, intervals, since=since, tracers=tracers, going_on=tuple(proven.by_mode(held))
                )
                rows = partitions.close_ended_incarnations(stood, ends)
                write("replica_timeline", rows, lambda old: proven.replica_intervals(old, held))

        def all_reassignments() -> None:
            write("reassignments", reassignments.reassignments(told), proven.reassignments if proven else None)

        at_once(partitions_and_replicas, all_reassignments)

    def all_others() -> None:
        write("controllers", controllers.reigns(known.spoken))
        write("topic_deletions", topic_deletions(heard, lives, since, marks), marks.of_deletions if marks else None)
        topics = lines.to_read(store.rows_of("discontinuities", clusters)) if lines else None
        found = lines.breaks(heard, topics) if lines else discontinuities.breaks(heard)
        write(
            "discontinuities",
            discontinuities.discontinuities(found, heard),
            lambda old: discontinuities.of_topics(old, topics),
        )

    at_once(of_partitions, all_others)
