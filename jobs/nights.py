"""What a night changes in the timelines: its own events, the kept states of the partitions that they are about, and rows that are not settled.

A partition's history is folded (`jobs.timelines`) from its events. What the fold keeps of a partition is a row of `partition_states`, what it
needs to know of the whole cluster one of `cluster_facts`, which also says up to which version of `events` the timelines go. Late events
make a state stale: that partition is folded again from all of its events, and no other.

Rows are written in an order that bears being interrupted: the states first, with the version of `events` that they know, the facts last.
States of a version that the facts do not know were left by a run that did not come to its end; their partitions are folded again.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

import schemas
from jobs import coverage, folding
from jobs.folding import MOST_ON_DRIVER
from jobs.frames import computed_once, differing, framed, in_plan, read_often, where_few
from jobs.partition_spells import IS_WRONG
from jobs.store import EVENT, PARTITION_KEY, VERSION, Store, in_clusters, moment, of_logs, quoted, run_concurrently
from jobs.timelines import (
    CODE_VERSION,
    EVENT_COLUMNS,
    Affected,
    Break,
    ClusterFacts,
    Event,
    PartitionKey,
    Summary,
    affected,
    controllers,
    discontinuities,
    kraft_topic_deletions,
    tells_deletion,
    topic_deletions,
)

# columns of a change data feed
CHANGE = ("_change_type", "_commit_version", "_commit_timestamp")
Keeps = Mapping[str, Sequence[str]]
# so long before the first moment that something new is about checks look back
LOOKED_BACK = timedelta(hours=24)
TIMELINES = ("partition_timeline", "replica_timeline", "reassignments")
# replica states in which a replica may stay for good
AT_REST = ("OnlineReplica", "NonExistentReplica", "KRaftOnline", "KRaftRemoved")


@dataclass(frozen=True)
class Known:
    """What `cluster_facts` has of a cluster: up to which versions of tables its timelines go, what all its partitions share, what its
    findings were asked for with (`checks.asked`), and its settings in audit.toml that assignments and durability were told with.
    """

    events_version: int
    passed_over_version: int
    facts: ClusterFacts
    asked: str
    configured: str


@dataclass(frozen=True)
class Night:
    """What there is to do.

    events: new rows of `events` that a rule recognises: cluster and EVENT_COLUMNS. removed: rows that are not there any more, likewise.
    since: clusters whose history is continued, and what is known of them. anew: clusters all of whose events are in `events`.
    events_version: of the table, with these. count: of the new ones. hours: of all new rows.
    keeps: event type -> columns that are as they were before, by the rules.
    """

    events: DataFrame
    removed: DataFrame | None
    since: Mapping[str, Known]
    anew: frozenset[str]
    events_version: int
    count: int
    hours: coverage.Hours
    keeps: Keeps

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.count and self.removed is None

    @property
    def asked(self) -> set[str]:
        """What the findings of its clusters were asked for with."""
        return {one.asked for one in self.since.values()}

    @property
    def is_small(self) -> bool:
        """Whether it is folded on the driver."""
        return self.count <= MOST_ON_DRIVER


def known(store: Store, clusters: Iterable[str], keeps: Keeps) -> dict[str, Known]:
    """Cluster -> what was known when its timelines were made. Those that another version of the code has made are left out."""
    rows = store.rows_of("cluster_facts", clusters).filter(F.col("code_version") == CODE_VERSION).collect()
    return {
        row.cluster: Known(
            row.events_version, row.passed_over_version, ClusterFacts.from_json(row.facts, keeps), row.asked, row.configured
        )
        for row in rows
    }


def _recognised(rows: DataFrame, *more: str) -> DataFrame:
    return rows.filter("event_type IS NOT NULL").select("cluster", *EVENT_COLUMNS, *more)


def read(store: Store, clusters: Sequence[str], keeps: Keeps) -> Night:
    """What came to clusters since their timelines were made."""
    since = known(store, clusters, keeps)
    changes = store.changes("events", min(one.events_version for one in since.values())) if since else None
    if changes is None:
        since = {}
    anew = frozenset(clusters) - since.keys()
    came, removed = [], None
    if changes is not None:
        later = " OR ".join(f"cluster = {quoted(n)} AND {VERSION} > {one.events_version}" for n, one in since.items())
        came.append(changes.inserted.filter(later).drop(*CHANGE))
        if changes.deleted is not None:
            removed = _recognised(changes.deleted.filter(later)).localCheckpoint()
            removed = None if removed.isEmpty() else removed
    if anew:
        came.append(store.rows_of("events", anew))
    rows = reduce(DataFrame.unionByName, came)
    count = F.count_if(F.col("event_type").isNotNull())
    told = rows.agg(count.alias("count"), *_span("ts")).first()
    assert told is not None
    events = _recognised(rows)
    if told["count"] <= MOST_ON_DRIVER:
        events = events.localCheckpoint()
    version = store.version("events") if changes is None else changes.version
    return Night(events, removed, since, anew, version, told["count"], _hours(told), keeps)


def _span(moment: str) -> list[Column]:
    hour = F.date_trunc("hour", moment)
    return [F.min(hour).alias("first"), F.max(hour).alias("last"), F.count_if(F.col(moment).isNull()).alias("undated")]


def _hours(told: Row) -> coverage.Hours:
    return coverage.Hours(told["first"], told["last"], told["undated"] > 0)


@dataclass(frozen=True)
class Continued:
    """What a night means for a cluster whose history it continues.

    before: what was known. since: the first moment (UTC without a zone) that anything new is about, what was the newest one or earlier.
    """

    before: ClusterFacts
    since: datetime


@dataclass(frozen=True)
class Made:
    """What the tables are made of: what is known of each cluster that has events, and versions of tables that are in it.

    continued: by cluster; of the others all is new. topics: cluster and topic of those of whose partitions one was folded; None: none was.
    is_new: whether that differs from what `cluster_facts` has.
    """

    facts: Mapping[str, ClusterFacts]
    continued: Mapping[str, Continued]
    topics: DataFrame | None
    events_version: int
    passed_over_version: int
    is_new: bool

    def looked_back(self, clusters: Iterable[str]) -> dict[str, datetime]:
        """Cluster -> since when checks look at all that there is, UTC without a zone; those of which everything is new are left out."""
        return {name: self.continued[name].since - LOOKED_BACK for name in clusters if name in self.continued}


def update(store: Store, night: Night) -> Made:
    """Brings timelines and coverage of the clusters up to date."""
    facts = {name: one.facts for name, one in night.since.items()} if night.is_empty else _facts(store, night)
    (anew, topics, version), counted = run_concurrently(
        partial(_update_timelines, store, night, facts), partial(_update_coverage, store, night, facts)
    )
    is_new = bool(night.anew) or any(
        (version, counted) != (one.events_version, one.passed_over_version) for one in night.since.values()
    )
    return Made(facts, _continued(night, facts.keys() - anew), topics, version, counted, is_new)


def _continued(night: Night, clusters: Iterable[str]) -> dict[str, Continued]:
    found = {}
    for name in clusters:
        before = night.since[name].facts
        moments = [at for at in (naive(before.summary.newest), night.hours.first) if at is not None]
        if moments:
            found[name] = Continued(before, min(moments))
    return found


def _update_timelines(
    store: Store, night: Night, facts: Mapping[str, ClusterFacts]
) -> tuple[frozenset[str], DataFrame | None, int]:
    """out: the clusters that were folded anew, `Made.topics`, the version of `events`."""
    if night.is_empty:
        return night.anew, None, night.events_version
    before = {name: one.facts for name, one in night.since.items()}
    changed = {name: affected(before.get(name), now) for name, now in facts.items()}
    anew = frozenset(name for name, what in changed.items() if what.whole or name in night.anew)
    version = night.events_version
    if _correct_incarnations(store, night, facts, anew):
        version = store.version("events")
    folded = _fold(store, night, facts, changed, anew)
    touched = _write(store, folded, version, sorted(facts.keys() - anew), sorted(anew))
    run_concurrently(partial(_write_cluster_tables, store, facts), partial(_write_deletions, store, night, facts, anew))
    return anew, computed_once(touched.select("cluster", "topic").distinct()), version


def _update_coverage(store: Store, night: Night, facts: Mapping[str, ClusterFacts]) -> int:
    """Counts the hours again about which there is something new. out: the version of `passed_over` that is counted."""
    known_versions = [one.passed_over_version for one in night.since.values()]
    changes = store.changes("passed_over", min(known_versions)) if known_versions else None
    hours = None
    if changes is not None:
        told = changes.inserted.agg(*_span("hour")).first()
        assert told is not None
        hours = night.hours.with_others(_hours(told))
    for clusters, again in ((night.since.keys() & facts.keys(), hours), (night.anew & facts.keys(), None)):
        if not clusters or (again is not None and again.is_none):
            continue
        events, passed_over = (store.rows_of(table, clusters) for table in ("events", "passed_over"))
        held = None if again is None else store.rows_of("coverage", clusters)
        store.replace("coverage", clusters, coverage.coverage(events, passed_over, held, again))
    return store.version("passed_over") if changes is None else changes.version


def note(store: Store, made: Made, asked: str, configured: Mapping[str, str]) -> None:
    """The tables are those of `events` and `passed_over` in these versions, the findings those asked for: the next night goes on from here.

    configured: cluster -> its settings in audit.toml.
    """
    if not made.facts:
        return  # nothing was recognised
    versions = (CODE_VERSION, made.events_version, made.passed_over_version)
    rows = [(name, one.to_json(), *versions, asked, configured.get(name, "")) for name, one in made.facts.items()]
    store.replace("cluster_facts", made.facts, _table("cluster_facts", rows))


def naive(microseconds: int) -> datetime | None:
    """A moment as Spark's rows have it; -1 is none."""
    return None if microseconds < 0 else datetime(1970, 1, 1) + timedelta(microseconds=microseconds)


def scope(store: Store, made: Made, clusters: Iterable[str], days: int = 0) -> dict[str, DataFrame]:
    """What checks and contracts look at, by table: what the night has written and what is still so.

    Of timelines that is all rows of the time from a day before the first new event on, those that hold still and are not as they should
    be, and of topics that were folded those that may have changed; of what findings that are not resolved are about also what holds still,
    and all from the first of these on. Of clusters that were made anew everything. days: as many of `durability` more.
    """
    names = sorted(clusters)
    read = run_concurrently(*(partial(store.rows_of, name, names) for name in schemas.contracts()))
    tables = dict(zip(schemas.contracts(), read, strict=True))
    del tables["findings"], tables["finding_subjects"]
    # checks are about what logs say
    tables["events"] = of_logs(tables["events"])
    begins = made.looked_back(names)
    if not begins:
        return _read_often(tables)
    whole = [in_clusters(others)] if (others := set(names) - begins.keys()) else []

    def since(end: str, moments: Mapping[str, datetime] = begins) -> str:
        later = [f"cluster = {quoted(name)} AND {end} >= {moment(at)}" for name, at in moments.items()]
        return " OR ".join([*whole, *later])

    reported = computed_once(_reported(store, names))
    oldest = {row.cluster: row.first for row in reported.groupBy("cluster").agg(F.min("reported").alias("first")).collect()}
    topics = reported.withColumn("folded", F.lit(False))
    if made.topics is not None:
        folded = made.topics.select(
            "cluster", "topic", F.lit(None).cast("timestamp").alias("reported"), F.lit(True).alias("folded")
        )
        topics = topics.unionByName(folded)
    topics = topics.groupBy("cluster", "topic").agg(F.min("reported").alias("reported"), F.max("folded").alias("folded"))
    topics = F.broadcast(computed_once(topics))
    tables["events"] = tables["events"].filter(f"ts IS NULL OR {since('ts')}")
    tables["coverage"] = tables["coverage"].filter(f"hour IS NULL OR {since('hour')}")
    tables["durability"] = tables["durability"].filter(since(f"date_add(day, {days + 1})"))
    for table in ("topic_assignments", "broker_load"):
        tables[table] = tables[table].filter(f"valid_to IS NULL OR {since('valid_to')}")
    # what is reported of partitions may have begun with one that is over
    tables["broker_outages"] = tables["broker_outages"].filter(
        f"until IS NULL OR {since('until', {name: min(at, oldest.get(name, at)) for name, at in begins.items()})}"
    )
    holding = "valid_to IS NULL AND (reported IS NOT NULL OR {})"
    for table, begin, end, lasting in (
        ("partition_timeline", "valid_from", "valid_to", holding.format(IS_WRONG)),
        ("replica_timeline", "valid_from", "valid_to", holding.format(f"state NOT IN ({', '.join(map(quoted, AT_REST))})")),
        ("reassignments", "started_at", "coalesce(completed_at, started_at)", "outcome = 'in_progress'"),
    ):
        rows = tables[table]
        known = rows.join(topics, ["cluster", "topic"], "left")
        some = f"({lasting}) OR {since(begin)} OR {since(end)} OR (folded AND settled = false) OR {end} >= reported"
        tables[table] = known.filter(some).select(*rows.columns)
    return _read_often(tables)


def partitions_now(store: Store, made: Made, audited: Mapping[str, DataFrame], clusters: Collection[str]) -> DataFrame:
    """What holds of every partition: the rows of `partition_timeline` that have no end.

    audited: `scope`, which has them all where no cluster's history is continued.
    """
    whole = not made.looked_back(clusters)
    rows = audited["partition_timeline"] if whole else store.rows_of("partition_timeline", clusters)
    return read_often(rows.filter("valid_to IS NULL"))


def _reported(store: Store, clusters: Iterable[str]) -> DataFrame:
    """cluster and topic of what findings are about that are not resolved, reported: since when the first of them is."""
    found = store.rows_of("findings", clusters).filter("status <> 'resolved' AND first_seen IS NOT NULL")
    own = found.filter("topic IS NOT NULL").select("cluster", "topic", "first_seen")
    subjects = store.rows_of("finding_subjects", clusters).select("cluster", "fingerprint", "topic")
    every = own.unionByName(subjects.join(found.select("fingerprint", "first_seen"), "fingerprint").select(*own.columns))
    return every.groupBy("cluster", "topic").agg(F.min("first_seen").alias("reported"))


def _read_often(tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Rows that many queries read; of events checks read some columns only (`checks.register`)."""
    often = (
        partial(in_plan, rows, is_wide=True) if name == "events" else partial(read_often, rows) for name, rows in tables.items()
    )
    return dict(zip(tables, run_concurrently(*often), strict=True))


def _table(table: str, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Rows of a table. rows: values of its columns, time stamps as microseconds."""
    kinds = schemas.columns(table)
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    arrays = [folding.array(values, folding.ARROW_TYPES[kind]) for values, kind in zip(columns, kinds.values(), strict=True)]
    return pa.table(arrays, names=list(kinds))


# -- what all partitions of a cluster share ------------------------------------------------------------------


def _facts(store: Store, night: Night) -> dict[str, ClusterFacts]:
    """Cluster -> what is known now."""
    told = _summaries(night.events, night.is_small)
    lost = _lost(night)
    if lost:
        whole = _recognised(store.rows_of("events", sorted(lost)))
        told |= _summaries(whole, night.is_small)
    found = {}
    for name in sorted(night.anew | night.since.keys()):
        new = told.get(name, Summary())
        if name in night.anew and name not in told:
            continue  # nothing was recognised in its logs
        found[name] = ClusterFacts.of(new if name in night.anew | lost else night.since[name].facts.summary + new, night.keeps)
    return found


def _summaries(events: DataFrame, is_small: bool) -> dict[str, Summary]:
    """Cluster -> the summary of its events. in: cluster and EVENT_COLUMNS."""
    if is_small:
        return folding.summaries(events.toArrow().to_batches(), EVENT_COLUMNS)

    def of_part(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        found = folding.summaries(batches, EVENT_COLUMNS)
        yield pa.record_batch([list(found), [one.to_json() for one in found.values()]], names=["cluster", "summary"])

    found: dict[str, Summary] = {}
    for row in events.mapInArrow(of_part, "cluster STRING, summary STRING").collect():
        part = Summary.from_json(row.summary)
        found[row.cluster] = found[row.cluster] + part if row.cluster in found else part
    return found


def _lost(night: Night) -> set[str]:
    """Clusters whose summary rests on a record that is not there any more."""
    if night.removed is None:
        return set()
    gone: dict[str, set[str]] = {}
    for row in night.removed.select("cluster", "record_id").distinct().collect():
        gone.setdefault(row.cluster, set()).add(row.record_id)
    return {
        name
        for name, ids in gone.items()
        if name in night.since and any(one in told for told in [night.since[name].facts.to_json()] for one in ids)
    }


def _correct_incarnations(store: Store, night: Night, facts: Mapping[str, ClusterFacts], anew: Iterable[str]) -> bool:
    """Corrects `events.incarnation`, as which 1 is landed; whether there was something to correct."""
    before = {name: one.facts for name, one in night.since.items()}
    several = {name for name in facts if len(facts[name].numbers) > 1 or (name in before and len(before[name].numbers) > 1)}
    if not several:
        return False
    condition = _where_new(night, several, several.intersection(anew))
    rows = store.rows_of("events", several).alias("t").filter(condition)
    numbered = computed_once(_incarnations(rows, {name: facts[name] for name in several}, is_small=night.is_small))
    if numbered.isEmpty():
        return False
    store.set_matching("events", condition, numbered, EVENT)
    return True


def _where_new(night: Night, clusters: Iterable[str], anew: Collection[str]) -> str:
    """A condition for table t that holds for all rows of the time that new events are of. anew: clusters all of whose rows are new."""
    continued = sorted(set(clusters) - set(anew))
    conditions = [f"t.{in_clusters(anew)}"] if anew else []
    if continued:
        times = (
            night.events.filter(in_clusters(continued))
            .groupBy("cluster")
            .agg(F.min("ts").alias("first"), F.max("ts").alias("last"))
        )
        spans = {row.cluster: f"t.ts BETWEEN {moment(row.first)} AND {moment(row.last)}" for row in times.collect() if row.first}
        conditions += [f"t.cluster = {quoted(name)} AND (t.ts IS NULL OR {spans.get(name, 'false')})" for name in continued]
    return f"({' OR '.join(conditions)})"


def _incarnations(rows: DataFrame, facts: Mapping[str, ClusterFacts], *, is_small: bool) -> DataFrame:
    """record_id, item, incarnation of rows of `events` that have another one."""
    names = ("record_id", "item", "node", "file", "ts")
    given = rows.select("cluster", "incarnation", *names)

    def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            events = folding.events_of([batch.drop_columns("incarnation")], names)
            numbers = [facts[cluster].incarnation_of(event) for cluster, event in events]
            yield pa.record_batch(
                [batch["record_id"], batch["item"], pa.array(numbers, pa.int32()), batch["incarnation"]],
                names=["record_id", "item", "incarnation", "before"],
            )

    kinds = "record_id STRING, item INT, incarnation INT, before INT"
    if is_small:
        table = given.toArrow()
        found = (
            rows.sparkSession.createDataFrame(pa.Table.from_batches(list(numbered(table.to_batches())))) if len(table) else None
        )
        if found is None:
            return rows.select("record_id", "item", "incarnation").limit(0)
    else:
        found = given.mapInArrow(numbered, kinds)
    return found.filter("incarnation <> before").select("record_id", "item", "incarnation")


# -- partitions ----------------------------------------------------------------------------------------------


def topic_named(events: DataFrame, facts: Mapping[str, ClusterFacts]) -> tuple[DataFrame, Column]:
    """Events, and the topic that each is about; records of a metadata log name it by its id."""
    names = [
        (cluster, topic_id, topic)
        for cluster, one in facts.items()
        for number in one.numbers
        for topic_id, topic in one[number].kraft.names.items()
    ]
    topic = F.col("topic")
    if names:
        known = pa.table(list(zip(*names, strict=True)), names=["named_cluster", "named_id", "name"])
        same = (F.col("cluster") == F.col("named_cluster")) & (F.col("topic_id") == F.col("named_id")) & F.col("topic").isNull()
        events = events.join(F.broadcast(events.sparkSession.createDataFrame(known)), same, "left")
        topic = F.coalesce("topic", "name")
    return events, topic


def _keyed(events: DataFrame, facts: Mapping[str, ClusterFacts]) -> DataFrame:
    """Events about partitions, with the partition: PARTITION_KEY and EVENT_COLUMNS."""
    events, topic = topic_named(events, facts)
    keys = [topic.alias("key_topic"), F.col("partition").alias("key_partition")]
    return events.select("cluster", *keys, *EVENT_COLUMNS).filter("key_topic IS NOT NULL AND key_partition IS NOT NULL")


def _keys(keyed: DataFrame) -> DataFrame:
    return keyed.select("cluster", F.col("key_topic").alias("topic"), F.col("key_partition").alias("partition")).distinct()


def _states_about(store: Store, keyed: DataFrame, changed: Mapping[str, Affected], removed: DataFrame | None) -> DataFrame:
    """Rows of `partition_states`: of many those of some topics, where none but these may be touched."""
    if not store.has_few("partition_states", changed) and not any(what.brokers for what in changed.values()):
        named = [_keys(keyed), *([] if removed is None else [removed])]
        topics = where_few(reduce(DataFrame.unionByName, named).select("topic").distinct())
        if topics is not None:
            wanted = {*topics["topic"].to_pylist(), *(topic for what in changed.values() for topic in what.topics)}
            return store.rows_about("partition_states", changed, "topic", wanted)
    return store.rows_of("partition_states", changed)


def _touched_states(
    store: Store, night: Night, keyed: DataFrame, changed: Mapping[str, Affected], removed: DataFrame | None
) -> DataFrame:
    """The states of partitions that new events are about, or what has changed about their topic or one of their brokers.

    keyed: new events. out: `partition_states`. A state is empty where it is of no use: a run that did not come to its end has left it, or an
    event that it knows is not there any more.
    """
    spark = store.spark
    states = _states_about(store, keyed, changed, removed)
    touched = F.col("is_new")
    states = states.join(F.broadcast(_keys(keyed).withColumn("is_new", F.lit(True))), list(PARTITION_KEY), "left")
    topics = [(name, topic) for name, what in changed.items() for topic in what.topics]
    if topics:
        frame = spark.createDataFrame(pa.table(list(zip(*topics, strict=True)), names=["cluster", "topic"]))
        states = states.join(F.broadcast(frame.withColumn("of_topic", F.lit(True))), ["cluster", "topic"], "left")
        touched |= F.col("of_topic")
    for name, what in changed.items():
        if what.brokers:
            brokers = F.array(*map(F.lit, sorted(what.brokers)))
            touched |= (F.col("cluster") == name) & F.arrays_overlap("brokers", brokers)
    unfit = F.expr(" OR ".join(f"cluster = {quoted(n)} AND events_version > {night.since[n].events_version}" for n in changed))
    if removed is not None:
        states = states.join(F.broadcast(removed.withColumn("is_removed", F.lit(True))), list(PARTITION_KEY), "left")
        touched |= F.col("is_removed")
        unfit |= F.coalesce("is_removed", F.lit(False))
    return states.filter(F.coalesce(touched, F.lit(False))).select(
        "cluster", F.col("topic").alias("key_topic"), F.col("partition").alias("key_partition"),
        F.when(unfit, "").otherwise(F.col("state")).alias("state"), F.col("incarnation").alias("state_incarnation"),
        F.col("brokers").alias("state_brokers"),
    )  # fmt: skip


NO_STATE = {"state": "string", "state_incarnation": "int", "state_brokers": "array<int>"}


def _through(
    keyed: DataFrame, states: DataFrame | None, facts: Mapping[str, ClusterFacts], at_once: int | None, *, may_be_few: bool = True
) -> DataFrame:
    """Folds partitions, few events and states on the driver. keyed: events; states: as `_touched_states` gives them.

    out: `folding.OUTPUT`, computed once.
    """
    spark = keyed.sparkSession
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in NO_STATE.items()]
    rows = keyed.select("cluster", "key_topic", "key_partition", *nothing, *EVENT_COLUMNS)
    if states is not None:
        rows = rows.unionByName(states, allowMissingColumns=True)
    keys = ["cluster", "key_topic", "key_partition"]
    few = where_few(rows, MOST_ON_DRIVER) if may_be_few else None
    if few is not None:
        batches = folding.fold_groups(folding.in_groups(few, keys), EVENT_COLUMNS, facts, at_once)
        made = list(batches) or [pa.RecordBatch.from_pylist([], schema=folding.OUTPUT)]
        return spark.createDataFrame(pa.Table.from_batches(made, folding.OUTPUT))
    for one in facts.values():
        one.by_number  # noqa: B018  # computed once, not by every worker
    shared = spark.sparkContext.broadcast(dict(facts))
    grouped = rows.repartition(*keys).sortWithinPartitions(*keys, F.col("state").isNull(), "ts")
    folded = grouped.mapInArrow(
        lambda batches: folding.fold_groups(batches, EVENT_COLUMNS, shared.value, at_once), folding.OUTPUT_DDL
    )
    return folded.localCheckpoint()


@dataclass(frozen=True)
class FoldedRows:
    """rows: `folding.OUTPUT` of all partitions that were folded. refolded: PARTITION_KEY of those that were so from their beginning on; None: none."""

    rows: DataFrame
    refolded: DataFrame | None


def _fold(
    store: Store, night: Night, facts: Mapping[str, ClusterFacts], changed: Mapping[str, Affected], anew: frozenset[str]
) -> FoldedRows:
    """Folds what a night is about."""
    continued = {name: what for name, what in changed.items() if name not in anew}
    events = night.events
    if more := anew - night.anew:
        events = events.filter(f"NOT {in_clusters(more)}").unionByName(_recognised(store.rows_of("events", more)))
    keyed, states, removed = _keyed(events, facts), None, None
    if night.removed is not None:
        removed = _keys(_keyed(night.removed, facts))
    if continued:
        states = _touched_states(store, night, keyed.filter(in_clusters(continued)), continued, removed)
    rows = _through(keyed, states, facts, folding.EVENTS_AT_ONCE, may_be_few=night.is_small)
    refolded = None
    # in one piece only where pieces in order of time do not do
    for at_once in (folding.EVENTS_AT_ONCE, None):
        stale = _stale(rows)
        if refolded is None and removed is not None:
            stale = stale.unionByName(removed).distinct()
        stale = computed_once(stale)
        if stale.isEmpty():
            break
        refolded = stale if refolded is None else refolded
        history = _keyed(_recognised(store.rows_of("events", facts)), facts).alias("e")
        same = F.expr("e.cluster = s.cluster AND e.key_topic = s.topic AND e.key_partition = s.partition")
        mine = history.join(F.broadcast(stale.alias("s")), same, "left_semi")
        again = _through(mine, None, facts, at_once)
        rows = rows.join(F.broadcast(stale), list(PARTITION_KEY), "left_anti").unionByName(again)
    return FoldedRows(rows, refolded)


def _stale(rows: DataFrame) -> DataFrame:
    return rows.filter("is_stale").select(*PARTITION_KEY).distinct()


def _write(store: Store, folded: FoldedRows, version: int, continued: Sequence[str], anew: Sequence[str]) -> DataFrame:
    """Replaces what was folded. version: of `events`. continued, anew: the clusters. out: PARTITION_KEY of what was folded."""
    touched = folded.rows.filter("partition_states IS NOT NULL").select(*PARTITION_KEY).distinct()
    if folded.refolded is not None:
        touched = touched.unionByName(folded.refolded).distinct()
    touched = computed_once(touched)

    def new(table: str) -> DataFrame:
        return folded.rows.filter(f"{table} IS NOT NULL").select(*folding.PARTITION, f"{table}.*")

    def states() -> None:
        made = [F.lit(CODE_VERSION).alias("code_version"), F.lit(version).cast("bigint").alias("events_version")]
        store.replace_partitions("partition_states", continued, anew, touched, new("partition_states").select("*", *made))

    def intervals(table: str) -> None:
        rows = new(table)
        if continued and folded.refolded is not None:
            rows = _less_what_stands(store, table, rows, folded.refolded, continued)
        store.replace_partitions(table, continued, anew, touched, rows)

    states()
    run_concurrently(*(partial(intervals, table) for table in TIMELINES))
    return touched


def _less_what_stands(store: Store, table: str, rows: DataFrame, refolded: DataFrame, continued: Sequence[str]) -> DataFrame:
    """New rows less those of partitions folded from their beginning whose settled rows stand as they are; of the others these are removed."""
    of_them = partial(DataFrame.join, other=F.broadcast(refolded), on=list(PARTITION_KEY), how="left_semi")
    old, new = (
        of_them(some.filter("settled")).select(*schemas.columns(table)) for some in (store.rows_of(table, continued), rows)
    )
    other = differing(old, new, PARTITION_KEY)
    if not other.isEmpty():
        store.delete_matching(table, f"t.{in_clusters(continued)} AND t.settled", other)
    same = refolded.join(F.broadcast(other), list(PARTITION_KEY), "left_anti").withColumn("settled", F.lit(True))
    return rows.join(F.broadcast(same), [*PARTITION_KEY, "settled"], "left_anti")


def _write_cluster_tables(store: Store, facts: Mapping[str, ClusterFacts]) -> None:
    """Tables that are told from the facts, or from few rows of all partitions: written where they differ."""
    breaks: dict[str, list[tuple[PartitionKey, Break]]] = {}
    held = store.rows_that_have("partition_states", facts, "breaks", [*folding.PARTITION, "breaks"])
    for cluster, *key, text in folding.rows_of(held.to_batches()):
        breaks.setdefault(cluster, []).extend((PartitionKey(*key), Break.of(one)) for one in json.loads(text))
    terms = [(name, *row) for name, one in facts.items() for row in controllers(one)]
    found = [(name, *row) for name, one in facts.items() for row in discontinuities(breaks.get(name, []), one)]
    assigned = _assigned_brokers(store, facts)
    gone = [
        (name, number, *outage)
        for name, one in facts.items()
        for number in one.events_by_number
        for outage in one.outages(number, assigned.get((name, number)))
    ]
    told = {"controllers": terms, "discontinuities": found, "broker_outages": gone}
    run_concurrently(*(partial(store.replace, table, facts, _table(table, rows)) for table, rows in told.items()))


def _assigned_brokers(store: Store, facts: Mapping[str, ClusterFacts]) -> dict[tuple[str, int], dict[int, int | None]]:
    """Cluster and incarnation -> the brokers that hold replicas, and since when (microseconds) where that matters."""
    found: dict[tuple[str, int], dict[int, int | None]] = {}
    for batch in store.rows_that_have("partition_states", facts, "brokers", ["cluster", "incarnation", "brokers"]).to_batches():
        of_row = batch.select(["cluster", "incarnation"]).take(pc.list_parent_indices(batch["brokers"]))
        each = pa.Table.from_batches([of_row]).append_column("broker", pc.list_flatten(batch["brokers"]))
        for cluster, number, broker in folding.rows_of(each.group_by(each.column_names).aggregate([]).to_batches()):
            found.setdefault((cluster, number), {})[broker] = None
    asked = [
        (*key, broker) for key, brokers in found.items() if key[0] in facts for broker in facts[key[0]].left_out(key[1], brokers)
    ]
    if asked:
        names = ["cluster", "incarnation", "replica"]
        frame = store.spark.createDataFrame(pa.table(list(zip(*asked, strict=True)), names=names))
        rows = store.rows_about("replica_timeline", facts, "replica", {broker for *_, broker in asked})
        first = F.unix_micros(F.min("valid_from")).alias("since")
        for cluster, number, broker, since in rows.join(F.broadcast(frame), names).groupBy(*names).agg(first).collect():
            found[cluster, number][broker] = since
    return found


def _write_deletions(store: Store, night: Night, facts: Mapping[str, ClusterFacts], anew: frozenset[str]) -> None:
    """`topic_deletions`: under ZooKeeper controllers anew for topics about which something new is told, under KRaft ones from the facts."""
    signs = "topic IS NOT NULL AND (event_type LIKE 'deletion_%' OR to_state = 'ReplicaDeletionIneligible')"
    whole = anew | {name for name, one in facts.items() if one.kraft_since is not None and one.kraft_since >= 0}
    rows = [(name, *row) for name, one in facts.items() for row in kraft_topic_deletions(one)]
    by_topic = [name for name, one in facts.items() if name not in whole and one.kraft_since is None]
    told, kept = store.rows_of("events", whole or {""}), None
    if by_topic:
        new = night.events if night.removed is None else night.events.unionByName(night.removed)
        topics = computed_once(new.filter(in_clusters(by_topic)).filter(signs).select("cluster", "topic").distinct())
        kept = store.rows_of("topic_deletions", by_topic)
        if not topics.isEmpty():
            kept = kept.join(F.broadcast(topics), ["cluster", "topic"], "left_anti")
            again = store.rows_of("events", by_topic).join(F.broadcast(topics), ["cluster", "topic"], "left_semi")
            told = told.unionByName(again)
        elif not rows and not whole:
            return
    by_name: dict[tuple[str, str], list[Event]] = {}
    for cluster, event in folding.events_of(_recognised(told.filter(signs)).toArrow().to_batches(), EVENT_COLUMNS):
        one = facts[cluster]
        if event.topic and tells_deletion(event) and not one[one.incarnation_of(event)].is_of_kraft(event):
            by_name.setdefault((cluster, event.topic), []).append(event)
    rows += [(cluster, *row) for (cluster, _), events in by_name.items() for row in topic_deletions(events, facts[cluster])]
    made = _table("topic_deletions", rows)
    store.replace("topic_deletions", facts, made if kept is None else framed(store.spark, made).unionByName(kept))
