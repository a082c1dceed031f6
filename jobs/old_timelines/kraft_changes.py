"""What new events change in KRaft clusters beside the partitions that they name: brokers, topics that have another id, all."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines import kraft, kraft_replicas, metadata_log, order
from jobs.store import in_clusters

TOPIC = ("cluster", "topic")
EPOCH = (*TOPIC, "partition", "partition_epoch")
# what is said about a topic and changes all of its partitions
OF_TOPIC = (*kraft.REMOVED, "clear_elr_record")
LISTS = ("isr", "adding_replicas", "removing_replicas")


def _differing(one: DataFrame, other: DataFrame) -> DataFrame:
    """Rows that are in one of two frames alone."""
    return one.exceptAll(other).unionByName(other.exceptAll(one))


def everywhere(before: DataFrame, now: DataFrame, new: DataFrame) -> DataFrame:
    """cluster: those of which everything is made anew.

    Where a controller's start is told late, which makes history of lines that were known before; whether its Kafkas know eligible
    leader replicas; where the metadata log has all ELRs cleared, or which part of it a snapshot is that was read before.
    before, now: `witnesses` of earlier runs and of all, new: events that this run brought. All are of KRaft clusters.
    """
    newest = before.groupBy("cluster", "node").agg(F.max("ts").alias("newest"))
    starts = new.filter(F.col("event_type").isin(*kraft.MARKS)).select("cluster", "node", "ts")
    late = starts.join(F.broadcast(newest), ["cluster", "node"]).filter("ts IS NULL OR ts <= newest")
    modes = _differing(kraft.elr_modes(before), kraft.elr_modes(now))
    headers = new.filter("event_type = 'snapshot_header_record'").select("cluster", "file")
    placed = headers.join(before.select("cluster", "file"), ["cluster", "file"], "left_semi")
    cleared = new.filter("event_type = 'clear_elr_record' AND topic IS NULL")
    return reduce(DataFrame.unionByName, [rows.select("cluster") for rows in (late, modes, placed, cleared)])


def tells_more(new: DataFrame, intervals: DataFrame) -> DataFrame:
    """Those events about an epoch of a partition that tell of it what is not known. A starting controller prints all that ever was.

    in: events of KRaft clusters with partition_epoch; `partition_timeline`. out: events.
    """
    values = (*kraft.STATE, *kraft.ASSIGNMENT)
    held = intervals.select(*[F.col(name).alias(f"held_{name}") for name in (*EPOCH, *values)])

    def agrees(name: str) -> Column:
        said, known = kraft.leader() if name == "leader" else F.col(name), F.col(f"held_{name}")
        same = F.array_sort(said) == F.array_sort(known) if name in LISTS else said == known
        return said.isNull() | F.coalesce(same, F.lit(False))

    same_epoch = [F.col(name) == F.col(f"held_{name}") for name in EPOCH]
    return new.join(held, reduce(and_, [*same_epoch, *map(agrees, values)]), "left_anti")


@dataclass(frozen=True)
class Changes:
    """since: as `night.kraft_begins` gives it. lives: `kraft.topic_lives` of all. renamed: cluster, topic, whose ids are others than they
    were. brokers: cluster, broker, since: whose registrations are. has_metadata_log: whether there is a dump of one.
    """

    since: Mapping[str, datetime | None]
    lives: DataFrame
    renamed: DataFrame
    brokers: DataFrame
    has_metadata_log: bool

    @classmethod
    def between(cls, before: DataFrame, now: DataFrame, since: Mapping[str, datetime | None]) -> Self:
        """before, now: `witnesses` in order, of earlier runs and of all."""
        then, told = (rows.filter(in_clusters(since)).localCheckpoint() for rows in (before, now))
        lives = [order.in_memory(kraft.topic_lives(rows, since)) for rows in (then, told)]
        states = [kraft_replicas.broker_states(rows).drop("seq").localCheckpoint() for rows in (then, told)]
        return cls(
            since=since,
            lives=lives[1],
            renamed=order.in_memory(_differing(*lives).select(*TOPIC).distinct()),
            brokers=order.in_memory(_differing(*states).groupBy("cluster", "broker").agg(order.earliest().alias("since"))),
            has_metadata_log=not told.filter(F.col("logger") == metadata_log.LOGGER).isEmpty(),
        )

    def _of_ids(self, events: DataFrame) -> DataFrame:
        """The topics that events name by their ids."""
        ids = F.broadcast(events.select("cluster", "topic_id"))
        return self.lives.join(ids, ["cluster", "topic_id"], "left_semi").select(*TOPIC)

    def whole_topics(self, new: DataFrame) -> DataFrame:
        """cluster, topic: those of which all partitions are made anew, from their whole history.

        new: events of KRaft clusters. A topic whose name was used before has several lives, which only all of its lines tell apart.
        """
        several = self.lives.filter("topic_life > 0").select(*TOPIC).join(new.select(*TOPIC), list(TOPIC), "left_semi")
        recorded = new.filter(F.col("topic").isNull() & F.col("event_type").isin(*metadata_log.RECORDS))
        return self.renamed.unionByName(several).unionByName(self._of_ids(recorded))

    def deleted_topics(self, new: DataFrame) -> DataFrame:
        """cluster, topic: those of whose deletion events tell. new: events of KRaft clusters."""
        return self.renamed.unionByName(self._of_ids(new.filter(kraft.tells_removal())))
