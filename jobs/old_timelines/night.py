"""What a night starts from, and what it brings: events that came and went, and what they change for all partitions of a cluster."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines import discontinuities, kraft, order, touched, witnesses
from jobs.store import EVENT, Built, Store, in_clusters

# columns of `events` that no timeline is made of: every step would carry them along
UNREAD = (
    "raw", "layout", "drifted", "leader_recovery_state", "start_offset", "high_watermark", "end_offset", "election_strategy",
    "election_type", "trigger", "correlation_id", "partitions_named", "is_new", "path", "incarnation_id", "quorum_node", "raft_epoch",
    "metadata_version", "config", "config_value", "latest_controller_epoch", "error_class", "error_message", "statement",
)  # fmt: skip


def recognised(events: DataFrame, clusters: list[str]) -> DataFrame:
    """The events of clusters that a timeline may rest on, less what is UNREAD."""
    return events.filter(F.expr(in_clusters(clusters)) & F.col("event_type").isNotNull()).drop(*UNREAD)


def in_incarnations(events: DataFrame, found: dict[str, list[order.Cluster]]) -> DataFrame:
    """Events with their incarnation and overruled BOOLEAN. found: as `order.clusters` gives it."""
    others = [name for name in events.columns if name not in {"incarnation", "overruled"}]
    numbered = events.select(*others, order.incarnation(found).alias("incarnation"))
    return numbered.select("*", order.overruled(found).alias("overruled"))


def kraft_begins(said: DataFrame) -> dict[str, datetime | None]:
    """Cluster -> since when it is run by KRaft controllers: None where its logs know no other mode. Others are left out.

    in: events. A cluster that was migrated has logs of both modes (KIP-866); its brokers speak like those of KRaft before it is one.
    """
    told = F.col("event_type").isin(*kraft.CONTROLLER_SIGNS)
    of_broker = F.col("event_type").isin(*kraft.BROKER_SIGNS)
    by_zookeeper = F.col("event_type").isin(*kraft.ZOOKEEPER_SIGNS)
    signs = said.filter(told | of_broker | by_zookeeper).groupBy("cluster").agg(
        F.count_if(told).alias("told"),
        F.count_if(of_broker).alias("of_broker"),
        F.min(F.when(told, F.col("ts"))).alias("since"),
        F.count_if(by_zookeeper).alias("before"),
    )  # fmt: skip
    rows = signs.filter("told > 0 OR (of_broker > 0 AND before = 0)").collect()
    return {row.cluster: row.since if row.before else None for row in rows}


@dataclass(frozen=True)
class Witnesses:
    """What the next run need know of all events. Both with `witnesses.COLUMNS`.

    shared: `witnesses.of` them. lines: `discontinuities.last_lines`.
    """

    shared: DataFrame
    lines: DataFrame

    @classmethod
    def among(cls, spoken: DataFrame) -> Self:
        """in: events in order and in their incarnations, with overruled."""
        lines = discontinuities.last_lines(spoken.filter("NOT overruled")).select(*witnesses.COLUMNS)
        return cls(witnesses.of(spoken).localCheckpoint(), lines.localCheckpoint())

    @classmethod
    def of_rows(cls, rows: DataFrame) -> Self:
        """in: as `rows` gives them."""
        return cls(*(rows.filter(which).select(*witnesses.COLUMNS) for which in ("NOT is_line", "is_line")))

    def rows(self) -> DataFrame:
        """Both in one, with is_line BOOLEAN."""
        return self.shared.select("*", F.lit(False).alias("is_line")).unionByName(
            self.lines.select("*", F.lit(True).alias("is_line"))
        )


@dataclass(frozen=True)
class News:
    """What came since the timelines of clusters were made.

    held: what was known then, without what went. came, went: events. bereft: clusters that lost a witness, and have no other like it.
    counted: rows of `passed_over` that came.
    """

    held: Witnesses
    came: DataFrame
    went: DataFrame
    bereft: frozenset[str]
    counted: DataFrame

    @property
    def moments(self) -> DataFrame:
        """moment TIMESTAMP: when all of that was, records out of scope to the hour."""
        events = self.came.unionByName(self.went).select(F.col("ts").alias("moment"))
        return events.unionByName(self.counted.select(F.col("hour").alias("moment")))

    @property
    def told(self) -> DataFrame:
        """Events that tell what all partitions share, of then and now, and all that is new."""
        return self.held.shared.unionByName(self.came.select(*witnesses.COLUMNS))


def news(store: Store, clusters: list[str], built: Built) -> News:
    """What came to clusters after what `Store.built_from` gave."""
    columns = dict.fromkeys((*witnesses.COLUMNS, *touched.TOLD))
    came, went = (
        order.in_memory(rows.filter(in_clusters(clusters)).select(*columns))
        for rows in store.changed_since("events", built.events, EVENT)
    )
    held = store.witnesses(clusters).localCheckpoint()
    left, lost = (Witnesses.of_rows(held.join(went.select(*EVENT), list(EVENT), how)) for how in ("left_anti", "left_semi"))
    # of a record that was cut short and is whole now
    others = came.select(*[F.col(name).alias(f"of_{name}") for name in witnesses.ALIKE])
    alike = [F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in witnesses.ALIKE]
    bereft = lost.shared.join(others, alike, "left_anti").select("cluster").distinct().collect()
    counted, _ = store.changed_since("passed_over", built.passed_over, ("cluster", "record"))
    return News(left, came, went, frozenset(row.cluster for row in bereft), counted.filter(in_clusters(clusters)))


@dataclass(frozen=True)
class Shared:
    """What all partitions of some clusters share.

    found: as `order.clusters` gives it. since: as `kraft_begins` does. spoken: events in order that tell of reigns.
    """

    found: dict[str, list[order.Cluster]]
    since: dict[str, datetime | None]
    spoken: DataFrame

    def lives_of(self, cluster: str) -> object:
        """When its incarnations began, and since when KRaft controllers run it."""
        known = self.found.get(cluster, [order.Cluster((), (1,))])
        return [one.lives for one in known], cluster in self.since, self.since.get(cluster)

    def elections_of(self, cluster: str) -> set[tuple[int, int, datetime]]:
        """As `order.Cluster` has them."""
        return {election for one in self.found.get(cluster, ()) for election in one.elections}


def shared(told: DataFrame) -> Shared:
    """What events tell of that, all or the `witnesses` among them."""
    found = order.clusters(told)
    return Shared(found, kraft_begins(told), in_incarnations(told, found))


def changed_for_all(store: Store, clusters: list[str], come: News, then: Shared, now: Shared) -> frozenset[str]:
    """Clusters of which everything is made anew.

    Beside those of `touched.everywhere`: where a witness went, lives have changed, or an election that comes late makes worthless what
    was heard before.
    """
    new = come.came.unionByName(come.went).filter("event_type IS NOT NULL")
    some = come.bereft | {name for name in clusters if then.lives_of(name) != now.lives_of(name)}
    some |= touched.everywhere(come.held.shared, now.spoken, new, in_kraft=now.since)
    newest = {row.cluster: row.newest for row in come.held.shared.groupBy("cluster").agg(F.max("ts").alias("newest")).collect()}
    late = [
        name
        for name in newest
        if name not in some and any(at < newest[name] for *_, at in now.elections_of(name) - then.elections_of(name))
    ]
    if late:
        held = recognised(store.rows_of("events", late), late)
        before, after = (order.overruled({name: one.found[name] for name in late if name in one.found}) for one in (then, now))
        differ = in_incarnations(held, now.found).drop("overruled").filter(before != after)
        some |= {row.cluster for row in differ.select("cluster").distinct().collect()}
    return frozenset(some)
