"""What a run changes in the timelines: its own events, the stored states of their partitions, and rows that are not settled.

A partition's history is folded (`jobs.timelines`) from its events. The state of the fold of a partition is a row of `partition_states`. The facts
of the whole cluster are a row of `cluster_facts`, which also has the version of `events` that the timelines include. Late events
make a state stale: that partition is folded again from all of its events, and no other.

Rows are written in an order that survives an interruption: the states first, with the version of `events` that they include, the facts last.
States of a later version than the facts were left by an interrupted run; their partitions are folded again.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from jobs.engine.queries import read_often
from jobs.engine.rows import (
    EVERY,
    Frame,
    Where,
    above,
    any_of,
    at_or_after,
    at_or_before,
    by_batch,
    by_cluster,
    coalesced,
    column_names,
    computed,
    differing,
    distinct,
    extremes,
    from_day,
    having,
    is_empty,
    is_known,
    is_null,
    is_true,
    lacking,
    looked_up,
    marked,
    marked_with_any,
    not_before,
    of_clusters,
    one_of,
    run_concurrently,
    select,
    span,
    starts_with,
    to_dicts,
    to_table,
    together,
    unpacked,
    where,
    with_values,
)
from jobs.engine.run_tables import EVENT, OF_LOGS, PARTITION_KEY, UNSETTLED, VERSION, RunTables
from jobs.nightly import coverage, folding
from jobs.nightly.by_topic import TOPIC, TOPICS
from jobs.nightly.partition_spells import IS_WRONG
from jobs.timelines import (
    EVENT_COLUMNS,
    SEMANTICS_VERSION,
    Affected,
    Break,
    ClusterEvidence,
    ClusterFacts,
    Event,
    PartitionKey,
    affected,
    controllers,
    discontinuities,
    kraft_topic_deletions,
    tells_deletion,
    topic_deletions,
)
from jobs.timelines.events import EPOCH

Keeps = Mapping[str, Sequence[str]]
# checks read the rows from this long before the first moment that new records are about
LOOKED_BACK = timedelta(hours=24)
TIMELINES = ("partition_timeline", "replica_timeline", "reassignments")
# replica states in which a replica may stay for good
AT_REST = ("OnlineReplica", "NonExistentReplica", "KRaftOnline", "KRaftRemoved")


@dataclass(frozen=True)
class StoredFacts:
    """What `cluster_facts` has of a cluster: up to which versions of tables its timelines go, what all its partitions share, what its
    findings depend on (`checks.asked`), and its settings in audit.toml that assignments and durability depend on.
    """

    events_version: int
    passed_over_version: int
    facts: ClusterFacts
    asked: str
    configured: str


@dataclass(frozen=True)
class NewRecords:
    """The new records of a run, and what is known of their clusters.

    events: new rows of `events` that a rule recognises: cluster and EVENT_COLUMNS. removed: rows that were removed, likewise.
    since: clusters whose history is continued, and what is known of them. anew: clusters all of whose events are in `events`.
    events_version: of the table, with these. count: of the new ones. hours: of all new rows.
    keeps: event type -> columns that are as they were before, by the rules.
    """

    events: Frame
    removed: Frame | None
    since: Mapping[str, StoredFacts]
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
        """What the findings of its clusters depend on."""
        return {one.asked for one in self.since.values()}


def known(store: RunTables, clusters: Iterable[str], keeps: Keeps) -> dict[str, StoredFacts]:
    """Return cluster -> the facts that its timelines were made with, without those of another version of the code."""
    return {
        row["cluster"]: StoredFacts(
            row["events_version"],
            row["passed_over_version"],
            ClusterFacts.from_json(row["facts"], keeps),
            row["asked"],
            row["configured"],
        )
        for row in to_dicts(store.read("cluster_facts", clusters, one_of("code_version", [str(SEMANTICS_VERSION)])))
    }


def _recognised(rows: Frame) -> Frame:
    return select(where(rows, is_known("event_type")), "cluster", *EVENT_COLUMNS)


def read(store: RunTables, clusters: Sequence[str], keeps: Keeps) -> NewRecords:
    """Return the records that clusters have got since their timelines were made."""
    since = known(store, clusters, keeps)
    changes = store.changes("events", min(one.events_version for one in since.values())) if since else None
    if changes is None:
        since = {}
    anew = frozenset(clusters) - since.keys()
    came: list[Frame] = []
    removed = None
    if changes is not None:
        later = by_cluster({name: above(VERSION, one.events_version) for name, one in since.items()})
        came.append(where(changes.inserted, later))
        if changes.deleted is not None:
            gone = computed(_recognised(where(changes.deleted, later)))
            removed = None if is_empty(gone) else gone
    if anew:
        came.append(store.read("events", anew, EVERY, ["cluster", *EVENT_COLUMNS]))
    rows = together(*(select(some, "cluster", *EVENT_COLUMNS) for some in came))
    count, hours = _counted(rows, "ts", "event_type")
    events = read_often(_recognised(rows))
    version = store.version("events") if changes is None else changes.version
    return NewRecords(events, removed, since, anew, version, count, hours, keeps)


def _counted(rows: Frame, moment: str, column: str) -> tuple[int, coverage.Hours]:
    """How many rows have a column, and the hours of all."""
    told = span(rows, moment, column)
    return told["count"], coverage.Hours(told["first"], told["last"], told["undated"] > 0)


@dataclass(frozen=True)
class Resumed:
    """The effect of a run on a cluster whose history it continues.

    before: what was known. since: the first moment (UTC without a zone) that anything new is about, what was the newest one or earlier.
    """

    before: ClusterFacts
    since: datetime


@dataclass(frozen=True)
class Updated:
    """The facts of each cluster with events, and the versions of the tables that they include.

    continued: by cluster; of the others all is new. topics: cluster and topic of those of whose partitions one was folded; None: none was.
    is_new: whether that differs from what `cluster_facts` has.
    """

    facts: Mapping[str, ClusterFacts]
    continued: Mapping[str, Resumed]
    topics: Frame | None
    events_version: int
    passed_over_version: int
    is_new: bool

    def looked_back(self, clusters: Iterable[str]) -> dict[str, datetime]:
        """Return cluster -> the moment from which checks read all rows, UTC without a zone; clusters that are all new are left out."""
        return {name: self.continued[name].since - LOOKED_BACK for name in clusters if name in self.continued}


def update(store: RunTables, night: NewRecords) -> Updated:
    """Update timelines and coverage of the clusters."""
    facts = {name: one.facts for name, one in night.since.items()} if night.is_empty else _facts(store, night)
    (anew, topics, version), counted = run_concurrently(
        partial(_update_timelines, store, night, facts), partial(_update_coverage, store, night, facts)
    )
    is_new = bool(night.anew) or any(
        (version, counted) != (one.events_version, one.passed_over_version) for one in night.since.values()
    )
    return Updated(facts, _continued(night, facts.keys() - anew), topics, version, counted, is_new)


def _continued(night: NewRecords, clusters: Iterable[str]) -> dict[str, Resumed]:
    found = {}
    for name in clusters:
        before = night.since[name].facts
        moments = [at for at in (naive(before.evidence.newest), night.hours.first) if at is not None]
        if moments:
            found[name] = Resumed(before, min(moments))
    return found


def _update_timelines(
    store: RunTables, night: NewRecords, facts: Mapping[str, ClusterFacts]
) -> tuple[frozenset[str], Frame | None, int]:
    """Update the timelines. out: the clusters that were rebuilt, `Updated.topics`, the version of `events`."""
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
    return anew, computed(distinct(select(touched, "cluster", "topic"))), version


def _update_coverage(store: RunTables, night: NewRecords, facts: Mapping[str, ClusterFacts]) -> int:
    """Count the hours with new records again. out: the version of `passed_over` that is counted."""
    known_versions = [one.passed_over_version for one in night.since.values()]
    changes = store.changes("passed_over", min(known_versions)) if known_versions else None
    hours = None
    if changes is not None:
        hours = night.hours.with_others(_counted(changes.inserted, "hour", "hour")[1])
    for clusters, again in ((night.since.keys() & facts.keys(), hours), (night.anew & facts.keys(), None)):
        if not clusters or (again is not None and again.is_none):
            continue
        events, passed_over, held = (store.read(table, clusters) for table in ("events", "passed_over", "coverage"))
        store.replace("coverage", clusters, coverage.coverage(events, passed_over, held, store.schema("coverage"), again))
    return store.version("passed_over") if changes is None else changes.version


def note(store: RunTables, made: Updated, asked: str, configured: Mapping[str, str]) -> None:
    """Note the versions of `events` and `passed_over` that the tables follow, and what findings depend on: the next run continues from them.

    configured: cluster -> its settings in audit.toml.
    """
    if not made.facts:
        return  # nothing was recognised
    versions = (str(SEMANTICS_VERSION), made.events_version, made.passed_over_version)
    rows = [(name, one.to_json(), *versions, asked, configured.get(name, "")) for name, one in made.facts.items()]
    store.replace("cluster_facts", made.facts, _table("cluster_facts", rows))


def naive(microseconds: int) -> datetime | None:
    """A moment as Spark's rows have it; -1 is none."""
    return None if microseconds < 0 else datetime(1970, 1, 1) + timedelta(microseconds=microseconds)


def scope(store: RunTables, made: Updated, clusters: Iterable[str], days: int = 0) -> dict[str, Frame]:
    """Return the rows that checks and contracts read, by table: those that the run has written, and those that still hold.

    From timelines: all rows from a day before the first new event on, open rows that show a problem, and rows of folded topics that may have
    changed. For subjects of unresolved findings also the open rows, and all rows since the first of these findings. For rebuilt clusters all
    rows. days: this many more days of `durability`.
    """
    names = sorted(clusters)
    looked_at = [name for name in schemas.contracts() if name not in ("findings", "finding_subjects")]
    read = run_concurrently(*(partial(store.read, name, names) for name in looked_at))
    tables: dict[str, Frame] = dict(zip(looked_at, read, strict=True))
    # checks are about lines of logs
    tables["events"] = where(tables["events"], OF_LOGS)
    begins = made.looked_back(names)
    if not begins:
        return _asked_often(tables)
    whole = of_clusters(set(names) - begins.keys())

    def since(column: str, moments: Mapping[str, datetime] = begins) -> Where:
        return whole | by_cluster({name: at_or_after(column, at) for name, at in moments.items()})

    reported = _reported(store, names)
    folded = set() if made.topics is None else {(row["cluster"], row["topic"]) for row in to_dicts(made.topics)}
    rows = [(*key, reported.get(key), key in folded) for key in sorted(reported.keys() | folded)]
    topics = (
        pa.table(
            [pa.array(some, one.type) for some, one in zip(zip(*rows, strict=True), LOOKED_AT, strict=True)], schema=LOOKED_AT
        )
        if rows
        else LOOKED_AT.empty_table()
    )
    # a finding about partitions may have begun with one that is resolved
    first = dict(begins)
    for (name, _), at in reported.items():
        first[name] = min(first.get(name, at), at)
    conditions = {
        "events": is_null("ts") | since("ts"),
        "coverage": is_null("hour") | since("hour"),
        "durability": whole
        | by_cluster({name: from_day("day", _day_from(at - timedelta(days + 1))) for name, at in begins.items()}),
        "topic_assignments": is_null("valid_to") | since("valid_to"),
        "broker_load": is_null("valid_to") | since("valid_to"),
        "broker_outages": is_null("until") | since("until", {name: first[name] for name in begins}),
    }
    for table, condition in conditions.items():
        tables[table] = where(tables[table], condition)
    holds, is_reported, may_change = is_null("valid_to"), is_known("reported"), is_true("folded") & UNSETTLED
    moved = since("started_at") | since("completed_at")
    ended = not_before("completed_at", "reported") | is_null("completed_at") & not_before("started_at", "reported")
    over = since("valid_from") | since("valid_to") | not_before("valid_to", "reported")
    for table, condition in {
        "partition_timeline": holds & (is_reported | IS_WRONG) | over,
        "replica_timeline": holds & (is_reported | ~one_of("state", AT_REST)) | over,
        "reassignments": one_of("outcome", ["in_progress"]) | moved | ended,
    }.items():
        columns = list(schemas.columns(table))
        known = looked_up(tables[table], topics, TOPIC)
        tables[table] = select(where(known, condition | may_change), *columns)
    return _asked_often(tables)


# topics that are read: since when a finding about them lasts, and whether a partition was folded
LOOKED_AT = pa.schema([*TOPICS, ("reported", pa.timestamp("us", "UTC")), ("folded", pa.bool_())])


def _day_from(at: datetime) -> date:
    """The first day that begins then or later."""
    return (at + timedelta(1) - timedelta(microseconds=1)).date()


def partitions_now(store: RunTables, made: Updated, audited: Mapping[str, Frame], clusters: Collection[str]) -> Frame:
    """Return the state of every partition: the rows of `partition_timeline` without an end.

    audited: `scope`, which has them all where no cluster's history is continued.
    """
    whole = not made.looked_back(clusters)
    rows = audited["partition_timeline"] if whole else store.read("partition_timeline", clusters)
    return read_often(where(rows, is_null("valid_to")))


def _reported(store: RunTables, clusters: Iterable[str]) -> dict[tuple[str, str], datetime]:
    """Return cluster and topic of unresolved findings -> begin of the first of them, UTC without a zone."""
    is_open = ~one_of("status", ["resolved"]) & is_known("first_seen")
    found = store.read("findings", clusters, is_open, ["cluster", "topic", "fingerprint", "first_seen"])
    first = {row["fingerprint"]: row["first_seen"] for row in to_dicts(select(found, "fingerprint", "first_seen"))}
    subjects = having(store.read("finding_subjects", clusters), found, ["fingerprint"])
    told = together(select(found, "cluster", "fingerprint", "topic"), select(subjects, "cluster", "fingerprint", "topic"))
    reported: dict[tuple[str, str], datetime] = {}
    for row in to_dicts(distinct(where(told, is_known("topic")))):
        key, at = (row["cluster"], row["topic"]), first[row["fingerprint"]].replace(tzinfo=None)
        reported[key] = min(reported.get(key, at), at)
    return reported


def _asked_often(tables: Mapping[str, Frame]) -> dict[str, Frame]:
    often = run_concurrently(*(partial(read_often, rows) for rows in tables.values()))
    return dict(zip(tables, often, strict=True))


def _table(table: str, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Rows of a table. rows: values of its columns, time stamps as microseconds."""
    kinds = schemas.columns(table)
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    arrays = [folding.array(values, folding.ARROW_TYPES[kind]) for values, kind in zip(columns, kinds.values(), strict=True)]
    return pa.table(arrays, names=list(kinds))


# -- what all partitions of a cluster share ------------------------------------------------------------------


def _facts(store: RunTables, night: NewRecords) -> dict[str, ClusterFacts]:
    """Return cluster -> its facts now."""
    told = dict(store.summed(night.events))
    lost = _lost(night)
    if lost:
        told |= store.summed(_recognised(store.read("events", lost)))
    found = {}
    for name in sorted(night.anew | night.since.keys()):
        new = told.get(name, ClusterEvidence())
        if name in night.anew and name not in told:
            continue  # nothing was recognised in its logs
        found[name] = ClusterFacts.of(new if name in night.anew | lost else night.since[name].facts.evidence + new, night.keeps)
    return found


def _lost(night: NewRecords) -> set[str]:
    """Return the clusters whose evidence depends on a record that was removed."""
    if night.removed is None:
        return set()
    gone: dict[str, set[str]] = {}
    for row in to_dicts(distinct(select(night.removed, "cluster", "record_id"))):
        gone.setdefault(row["cluster"], set()).add(row["record_id"])
    return {
        name
        for name, ids in gone.items()
        if name in night.since and any(one in told for told in [night.since[name].facts.to_json()] for one in ids)
    }


def _correct_incarnations(store: RunTables, night: NewRecords, facts: Mapping[str, ClusterFacts], anew: Iterable[str]) -> bool:
    """Correct `events.incarnation`, which is 1 in new rows; return whether there was something to correct."""
    before = {name: one.facts for name, one in night.since.items()}
    several = {name for name in facts if len(facts[name].numbers) > 1 or (name in before and len(before[name].numbers) > 1)}
    if not several:
        return False
    new = _new(night, several, several.intersection(anew))
    numbered = computed(_incarnations(store.read("events", several, new), {name: facts[name] for name in several}))
    if is_empty(numbered):
        return False
    store.set_matching("events", new, numbered, EVENT)
    return True


def _new(night: NewRecords, clusters: Iterable[str], anew: Collection[str]) -> Where:
    """Return all rows of the time of new events. anew: clusters whose rows are all new."""
    continued = sorted(set(clusters) - set(anew))
    of_time = dict.fromkeys(continued, is_null("ts"))
    if continued:
        for row in extremes(where(night.events, of_clusters(continued)), ["cluster"], "ts"):
            if row["first"] is not None:
                of_time[row["cluster"]] |= at_or_after("ts", row["first"]) & at_or_before("ts", row["last"])
    return any_of([of_clusters(anew), by_cluster(of_time)])


def _incarnations(rows: Frame, facts: Mapping[str, ClusterFacts]) -> Frame:
    """record_id, item, incarnation of rows of `events` that have another one."""
    names = ("record_id", "item", "node", "file", "ts")
    given = select(rows, "cluster", "incarnation", *names)

    def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            events = folding.events_of([batch.drop_columns("incarnation")], names)
            numbers = pa.array([facts[cluster].incarnation_of(event) for cluster, event in events], pa.int32())
            told = pa.record_batch([batch["record_id"], batch["item"], numbers], schema=NUMBERED)
            yield told.filter(pc.not_equal(numbers, batch["incarnation"]))

    return by_batch(given, numbered, NUMBERED)


NUMBERED = pa.schema([("record_id", pa.string()), ("item", pa.int32()), ("incarnation", pa.int32())])


# -- partitions ----------------------------------------------------------------------------------------------


def topic_named(events: Frame, facts: Mapping[str, ClusterFacts]) -> Frame:
    """Events with key_topic, the topic that each is about; records of a metadata log name it by its id."""
    names = {
        (cluster, topic_id): topic
        for cluster, one in facts.items()
        for number in one.numbers
        for topic_id, topic in one[number].kraft.names.items()
    }
    rows = [(*key, topic) for key, topic in names.items()]
    known = pa.Table.from_pylist([dict(zip(NAMED.names, row, strict=True)) for row in rows], NAMED)
    found = coalesced(looked_up(events, known, ["cluster", "topic_id"]), "key_topic", "topic", "name_of_id")
    return select(found, *(name for name in column_names(events)), "key_topic")


NAMED = pa.schema([("cluster", pa.string()), ("topic_id", pa.string()), ("name_of_id", pa.string())])


def _keyed(events: Frame, facts: Mapping[str, ClusterFacts]) -> Frame:
    """Events about partitions, with the partition: cluster, key_topic, key_partition and EVENT_COLUMNS."""
    named = select(topic_named(events, facts), "cluster", "key_topic", *EVENT_COLUMNS, key_partition="partition")
    return where(named, is_known("key_topic") & is_known("key_partition"))


def _keys(keyed: Frame) -> Frame:
    return distinct(select(keyed, "cluster", topic="key_topic", partition="key_partition"))


def _states_about(store: RunTables, keys: Sequence[Frame], changed: Mapping[str, Affected]) -> Frame:
    """Rows of `partition_states`: at least those of some topics, or all where partitions of other topics may be touched."""
    if any(what.brokers for what in changed.values()):
        return store.read("partition_states", changed)
    others = pa.table({"topic": pa.array(sorted({topic for what in changed.values() for topic in what.topics}), pa.string())})
    return store.rows_about("partition_states", changed, "topic", together(*(select(some, "topic") for some in keys), others))


def _touched_states(
    store: RunTables, night: NewRecords, keyed: Frame, changed: Mapping[str, Affected], removed: Frame | None
) -> Frame:
    """Return the states of partitions that new events concern, directly or by a change of their topic or of one of their brokers.

    keyed: new events. removed: PARTITION_KEY. out: the columns of `folding.INPUT` that are a state's. A state is empty where it cannot be
    used: an interrupted run has left it, or an event that it includes was removed.
    """
    keys = [_keys(keyed), *([] if removed is None else [removed])]
    states = marked(_states_about(store, keys, changed), together(*keys), PARTITION_KEY, "is_about")
    topics = pa.Table.from_pylist(
        [{"cluster": name, "topic": one} for name, what in changed.items() for one in what.topics], TOPICS
    )
    states = marked(states, topics, TOPIC, "is_of_topic")
    touched = is_true("is_about") | is_true("is_of_topic")
    for number, (name, what) in enumerate(changed.items()):
        if what.brokers:
            states = marked_with_any(states, "brokers", what.brokers, f"is_on_{number}")
            touched |= of_clusters([name]) & is_true(f"is_on_{number}")
    unfit = by_cluster({name: above("events_version", night.since[name].events_version) for name in changed})
    if removed is not None:
        states = marked(states, removed, PARTITION_KEY, "is_removed")
        unfit |= is_true("is_removed")
    states = computed(where(states, touched))
    states = together(where(states, ~unfit), with_values(where(states, unfit), state=""))
    return select(
        states,
        "cluster",
        "state",
        key_topic="topic",
        key_partition="partition",
        state_incarnation="incarnation",
        state_brokers="brokers",
    )


@dataclass(frozen=True)
class FoldedRows:
    """rows: `folding.OUTPUT` of all folded partitions. refolded: PARTITION_KEY of those that were folded from their beginning on; None: none."""

    rows: Frame
    refolded: Frame | None


def _fold(
    store: RunTables, night: NewRecords, facts: Mapping[str, ClusterFacts], changed: Mapping[str, Affected], anew: frozenset[str]
) -> FoldedRows:
    """Fold the partitions that a run concerns."""
    continued = {name: what for name, what in changed.items() if name not in anew}
    events = night.events
    if more := anew - night.anew:
        events = together(where(events, ~of_clusters(more)), _recognised(store.read("events", more)))
    keyed, removed = _keyed(events, facts), None
    no_states = states = folding.INPUT.empty_table()
    if night.removed is not None:
        removed = _keys(_keyed(night.removed, facts))
    if continued:
        states = _touched_states(store, night, where(keyed, of_clusters(continued)), continued, removed)
    rows = store.folded(keyed, states, facts, folding.EVENTS_AT_ONCE)
    refolded = None
    # in one piece only where pieces in order of time are not enough
    for at_once in (folding.EVENTS_AT_ONCE, None):
        stale = _partitions(where(rows, is_true("is_stale")))
        if refolded is None and removed is not None:
            stale = distinct(together(stale, removed))
        stale = computed(stale)
        if is_empty(stale):
            break
        refolded = stale if refolded is None else refolded
        history = _keyed(_recognised(store.read("events", facts)), facts)
        mine = having(history, select(stale, "cluster", key_topic="topic", key_partition="partition"), folding.GROUP)
        again = store.folded(mine, no_states, facts, at_once)
        rows = together(lacking(rows, stale, PARTITION_KEY), again)
    return FoldedRows(rows, refolded)


def _partitions(rows: Frame) -> Frame:
    return distinct(select(rows, *PARTITION_KEY))


def _write(store: RunTables, folded: FoldedRows, version: int, continued: Sequence[str], anew: Sequence[str]) -> Frame:
    """Replace the rows of folded partitions. version: of `events`. continued, anew: the clusters. out: PARTITION_KEY of the folded partitions."""
    touched = _partitions(where(folded.rows, is_known("partition_states")))
    if folded.refolded is not None:
        touched = distinct(together(touched, folded.refolded))
    touched = computed(touched)

    def new(table: str) -> Frame:
        return unpacked(where(folded.rows, is_known(table)), table, *folding.PARTITION)

    def intervals(table: str) -> None:
        rows = new(table)
        if continued and folded.refolded is not None:
            rows = _without_stored_rows(store, table, rows, folded.refolded, continued)
        store.replace_partitions(table, continued, anew, touched, rows)

    made = with_values(new("partition_states"), code_version=str(SEMANTICS_VERSION), events_version=version)
    store.replace_partitions("partition_states", continued, anew, touched, made)
    run_concurrently(*(partial(intervals, table) for table in TIMELINES))
    return touched


def _without_stored_rows(store: RunTables, table: str, rows: Frame, refolded: Frame, continued: Sequence[str]) -> Frame:
    """Return the new rows without settled ones that are stored already, of partitions folded from their beginning; remove stored ones that differ."""
    old, new = (
        select(having(where(some, is_true("settled")), refolded, PARTITION_KEY), *schemas.columns(table))
        for some in (store.read(table, continued), rows)
    )
    other = differing(old, new, PARTITION_KEY)
    if not is_empty(other):
        store.delete_matching(table, of_clusters(continued) & is_true("settled"), other)
    same = with_values(lacking(refolded, other, PARTITION_KEY), settled=True)
    return lacking(rows, same, [*PARTITION_KEY, "settled"])


def _write_cluster_tables(store: RunTables, facts: Mapping[str, ClusterFacts]) -> None:
    """Write the tables that are made from the facts, or from few rows of all partitions, where they differ."""
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


def _assigned_brokers(store: RunTables, facts: Mapping[str, ClusterFacts]) -> dict[tuple[str, int], dict[int, int | None]]:
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
        wanted = pa.Table.from_pylist([dict(zip(names, one, strict=True)) for one in asked])
        columns = [*names, "valid_from"]
        rows = store.read("replica_timeline", facts, is_known("replica"), columns)
        for row in extremes(having(rows, wanted, names), names, "valid_from"):
            found[row["cluster"], row["incarnation"]][row["replica"]] = row["first"] and (row["first"] - EPOCH) // timedelta(
                microseconds=1
            )
    return found


def _write_deletions(store: RunTables, night: NewRecords, facts: Mapping[str, ClusterFacts], anew: frozenset[str]) -> None:
    """Update `topic_deletions`: with ZooKeeper, rebuild the topics with new records; with KRaft, take all from the facts."""
    signs = is_known("topic") & (
        starts_with("event_type", "deletion_")
        | one_of("to_state", ["ReplicaDeletionIneligible"])
        | one_of("event_type", ["replica_state_change_failed"])
    )
    whole = anew | {name for name, one in facts.items() if one.kraft_since is not None and one.kraft_since >= 0}
    rows = [(name, *row) for name, one in facts.items() for row in kraft_topic_deletions(one)]
    by_topic = [name for name, one in facts.items() if name not in whole and one.kraft_since is None]
    told, kept = _recognised(store.read("events", whole, signs)), None
    if by_topic:
        new = [night.events, *([] if night.removed is None else [night.removed])]
        topics = computed(distinct(select(where(together(*new), of_clusters(by_topic) & signs), *TOPIC)))
        kept = store.read("topic_deletions", by_topic)
        if not is_empty(topics):
            kept = lacking(kept, topics, TOPIC)
            told = together(told, _recognised(having(store.read("events", by_topic, signs), topics, TOPIC)))
        elif not rows and not whole:
            return
    by_name: dict[tuple[str, str], list[Event]] = {}
    for cluster, event in folding.events_of(to_table(told).to_batches(), EVENT_COLUMNS):
        one = facts[cluster]
        if event.topic and tells_deletion(event) and not one[one.incarnation_of(event)].is_of_kraft(event):
            by_name.setdefault((cluster, event.topic), []).append(event)
    rows += [(cluster, *row) for (cluster, _), events in by_name.items() for row in topic_deletions(events, facts[cluster])]
    made = _table("topic_deletions", rows)
    store.replace("topic_deletions", facts, made if kept is None else together(made, kept))
