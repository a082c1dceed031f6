"""Update the timelines with the new records of a run.

A partition's history is folded (`jobs.timelines`) from its events. The state of a partition's fold is a row
of `partition_states`. The facts of the whole cluster are a row of `cluster_facts`, which also has the version
of `events` that the timelines include. Late events make a state stale: only that partition is folded again
from all of its events.

Rows are written in an order that survives an interruption: the states first, with the version of `events`
that they include, the facts last. States of a later version than the facts were left by an interrupted run;
their partitions are folded again.
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
from jobs.batches import folding
from jobs.batches.types import table_schema
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
    spans,
    starts_with,
    to_dicts,
    to_table,
    together,
    unpacked,
    where,
    with_values,
)
from jobs.engine.run_tables import EVENT, OF_LOGS, PARTITION_KEY, UNSETTLED, VERSION, RunTables
from jobs.nightly import coverage
from jobs.nightly.by_topic import TOPIC, TOPICS
from jobs.nightly.partition_episodes import IS_WRONG
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
    is_about_deletion,
    kraft_topic_deletions,
    topic_deletions,
)
from jobs.timelines.event import EPOCH

Keeps = Mapping[str, Sequence[str]]
# checks read the rows from this long before the first moment that new records are about
LOOKED_BACK = timedelta(hours=24)
TIMELINES = ("partition_timeline", "replica_timeline", "reassignments")
# replica states in which a replica may stay for good
AT_REST = ("OnlineReplica", "NonExistentReplica", "KRaftOnline", "KRaftRemoved")


@dataclass(frozen=True)
class StoredFacts:
    """The row of a cluster in `cluster_facts`.

    events_version, passed_over_version: the versions of the tables that its timelines include. facts: shared
    by all its partitions.
    asked: what its findings depend on (`checks.asked`). configured: its settings in audit.toml that
    assignments and durability depend on.
    """

    events_version: int
    passed_over_version: int
    facts: ClusterFacts
    asked: str
    configured: str


@dataclass(frozen=True)
class NewRecords:
    """The new records of a run, and the stored facts of their clusters.

    events: new rows of `events` that a rule recognises: cluster and EVENT_COLUMNS. removed: rows that were
    removed, likewise.
    stored: the stored facts of clusters whose history is resumed. rebuilt: clusters all of whose events are
    in `events`.
    events_version: version of the table that includes the new rows. count: number of new events. begins, hours:
    cluster -> its earliest new moment, and the hours of all new rows, UTC without a zone.
    keeps: event type -> columns that the rules say are unchanged.
    """

    events: Frame
    removed: Frame | None
    stored: Mapping[str, StoredFacts]
    rebuilt: frozenset[str]
    events_version: int
    count: int
    begins: Mapping[str, datetime]
    hours: coverage.Hours
    keeps: Keeps

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.count and self.removed is None

    @property
    def asked(self) -> set[str]:
        """Return what the stored findings depend on."""
        return {one.asked for one in self.stored.values()}


def stored_facts(store: RunTables, clusters: Iterable[str], keeps: Keeps) -> dict[str, StoredFacts]:
    """Return cluster -> its stored facts, without those of another version of the code."""
    return {
        row["cluster"]: StoredFacts(
            row["events_version"],
            row["passed_over_version"],
            ClusterFacts.from_json(row["facts"], keeps),
            row["asked"],
            row["configured"],
        )
        for row in to_dicts(
            store.read("cluster_facts", clusters, one_of("code_version", [str(SEMANTICS_VERSION)]))
        )
    }


def _recognised(rows: Frame) -> Frame:
    return select(where(rows, is_known("event_type")), "cluster", *EVENT_COLUMNS)


def read(store: RunTables, clusters: Sequence[str], keeps: Keeps) -> NewRecords:
    """Return the records of clusters that their timelines do not include yet."""
    stored = stored_facts(store, clusters, keeps)
    changes = store.changes("events", min(one.events_version for one in stored.values())) if stored else None
    if changes is None:
        stored = {}
    rebuilt = frozenset(clusters) - stored.keys()
    inserted: list[Frame] = []
    removed = None
    if changes is not None:
        later = by_cluster({name: above(VERSION, one.events_version) for name, one in stored.items()})
        inserted.append(where(changes.inserted, later))
        if changes.deleted is not None:
            deleted = computed(_recognised(where(changes.deleted, later)))
            removed = None if is_empty(deleted) else deleted
    if rebuilt:
        inserted.append(store.read("events", rebuilt, EVERY, ["cluster", *EVENT_COLUMNS]))
    rows = together(*(select(some, "cluster", *EVENT_COLUMNS) for some in inserted))
    counted = spans(rows, "cluster", "ts", "event_type")
    begins = {
        row["cluster"]: row["first"].replace(tzinfo=None) for row in counted if row["first"] is not None
    }
    count = sum(row["count"] for row in counted)
    events = read_often(_recognised(rows), count=count)
    version = store.version("events") if changes is None else changes.version
    return NewRecords(events, removed, stored, rebuilt, version, count, begins, _hours(counted), keeps)


def _hours(counted: Sequence[Mapping[str, Any]]) -> coverage.Hours:
    """counted: as `spans` returns it."""
    first, last = (
        [row[end].replace(minute=0, second=0, microsecond=0, tzinfo=None) for row in counted if row[end]]
        for end in ("first", "last")
    )
    undated = any(row["undated"] for row in counted)
    return coverage.Hours(min(first, default=None), max(last, default=None), undated)


@dataclass(frozen=True)
class Resumed:
    """The effect of a run on a cluster whose history it continues.

    before: the facts before the run. since: their newest moment, or the first new one if that is earlier (UTC
    without a zone). is_late: a new record is older than the newest one before.
    """

    before: ClusterFacts
    since: datetime
    is_late: bool


@dataclass(frozen=True)
class Updated:
    """The facts of each cluster with events, and the versions of the tables that they include.

    resumed: by cluster; clusters without an entry were rebuilt. topics: cluster and topic of the folded
    partitions; None: none was folded.
    is_new: whether this differs from `cluster_facts`.
    """

    facts: Mapping[str, ClusterFacts]
    resumed: Mapping[str, Resumed]
    topics: Frame | None
    events_version: int
    passed_over_version: int
    is_new: bool

    def looked_back(self, clusters: Iterable[str]) -> dict[str, datetime]:
        """Return cluster -> the moment from which checks read all rows, without rebuilt clusters.

        Moments are in UTC without a zone.
        """
        return {name: self.resumed[name].since - LOOKED_BACK for name in clusters if name in self.resumed}


def update(store: RunTables, records: NewRecords) -> Updated:
    """Update timelines and coverage of the clusters."""
    facts = (
        {name: one.facts for name, one in records.stored.items()}
        if records.is_empty
        else _facts(store, records)
    )
    (rebuilt, topics, version), (counted, hours) = run_concurrently(
        partial(_update_timelines, store, records, facts), partial(_update_coverage, store, records, facts)
    )
    is_new = bool(records.rebuilt) or any(
        (version, counted) != (one.events_version, one.passed_over_version) for one in records.stored.values()
    )
    return Updated(facts, _resumed(records, hours, facts.keys() - rebuilt), topics, version, counted, is_new)


def _resumed(
    records: NewRecords, others: coverage.Hours | None, clusters: Iterable[str]
) -> dict[str, Resumed]:
    """others: the hours of new records out of scope, which fill gaps in the logs; None: unknown."""
    found = {}
    for name in clusters:
        before = records.stored[name].facts
        newest = naive(before.evidence.newest)
        moments = [at for at in (newest, records.hours.first) if at is not None]
        if moments:
            is_later = (
                newest is not None
                and others is not None
                and records.removed is None
                and not records.hours.undated
                and records.begins.get(name, newest) >= newest
                and (others.first is None or others.first + coverage.HOUR > newest)
            )
            found[name] = Resumed(before, min(moments), is_late=not is_later)
    return found


def _update_timelines(
    store: RunTables, records: NewRecords, facts: Mapping[str, ClusterFacts]
) -> tuple[frozenset[str], Frame | None, int]:
    """Update the timelines.

    out: the clusters that were rebuilt, `Updated.topics`, the version of `events`.
    """
    if records.is_empty:
        return records.rebuilt, None, records.events_version
    before = {name: one.facts for name, one in records.stored.items()}
    changed = {name: affected(before.get(name), now) for name, now in facts.items()}
    rebuilt = frozenset(name for name, what in changed.items() if what.whole or name in records.rebuilt)
    version = records.events_version
    if _correct_incarnations(store, records, facts, rebuilt):
        version = store.version("events")
    folded = _fold(store, records, facts, changed, rebuilt)
    touched = _write(store, folded, version, sorted(facts.keys() - rebuilt), sorted(rebuilt))
    run_concurrently(
        partial(_write_cluster_tables, store, facts),
        partial(_write_deletions, store, records, facts, rebuilt),
    )
    return rebuilt, computed(distinct(select(touched, "cluster", "topic"))), version


def _update_coverage(
    store: RunTables, records: NewRecords, facts: Mapping[str, ClusterFacts]
) -> tuple[int, coverage.Hours | None]:
    """Count the hours with new records again.

    out: the version of `passed_over` that the counts include, and the hours of its new rows (None: unknown).
    """
    known_versions = [one.passed_over_version for one in records.stored.values()]
    changes = store.changes("passed_over", min(known_versions)) if known_versions else None
    hours = others = None
    if changes is not None:
        others = _hours(spans(changes.inserted, "cluster", "hour", "hour"))
        hours = records.hours.with_others(others)
    for clusters, recounted in (
        (records.stored.keys() & facts.keys(), hours),
        (records.rebuilt & facts.keys(), None),
    ):
        if not clusters or (recounted is not None and recounted.is_none):
            continue
        of_events, of_hour = (
            (EVERY, EVERY) if recounted is None else (recounted.contain("ts"), recounted.contain("hour"))
        )
        events = store.read("events", clusters, of_events, coverage.EVENT_COLUMNS)
        passed_over = store.read("passed_over", clusters, of_hour, coverage.PASSED_OVER_COLUMNS)
        stored = store.read("coverage", clusters)
        store.replace(
            "coverage",
            clusters,
            coverage.coverage(events, passed_over, stored, store.schema("coverage"), recounted),
        )
    return store.version("passed_over") if changes is None else changes.version, others


def note(store: RunTables, updated: Updated, asked: str, configured: Mapping[str, str]) -> None:
    """Store for the next run which versions the tables include and what findings depend on.

    The versions are those of `events` and `passed_over`.
    configured: cluster -> its settings in audit.toml.
    """
    if not updated.facts:
        return  # nothing was recognised
    versions = (str(SEMANTICS_VERSION), updated.events_version, updated.passed_over_version)
    rows = [
        (name, one.to_json(), *versions, asked, configured.get(name, ""))
        for name, one in updated.facts.items()
    ]
    store.replace("cluster_facts", updated.facts, _table("cluster_facts", rows))


def naive(microseconds: int) -> datetime | None:
    """Return a moment as Spark's rows have it, UTC without a zone; None for -1."""
    return None if microseconds < 0 else datetime(1970, 1, 1) + timedelta(microseconds=microseconds)


def scope(store: RunTables, updated: Updated, clusters: Iterable[str], days: int = 0) -> dict[str, Frame]:
    """Return the rows that checks and contracts read, by table.

    They are the rows that the run has written and those that are still valid. From timelines: all rows from a
    day before the first new event on, open rows that show a problem, and rows of folded topics that may have
    changed. For subjects of unresolved findings also the open rows, and all rows since the first of these
    findings. For rebuilt clusters all rows. days: number of further days of `durability`.
    """
    names = sorted(clusters)
    looked_at = [name for name in schemas.contracts() if name not in ("findings", "finding_subjects")]
    begins = updated.looked_back(names)
    whole = of_clusters(set(names) - begins.keys())

    def since(column: str, moments: Mapping[str, datetime] = begins) -> Where:
        return whole | by_cluster({name: at_or_after(column, at) for name, at in moments.items()})

    # checks read lines of logs, not outputs of tools
    of_events = OF_LOGS & (is_null("ts") | since("ts")) if begins else OF_LOGS
    asked = dict.fromkeys(looked_at, (names,)) | {
        "events": (names, of_events, list(schemas.columns("events")))
    }
    read = run_concurrently(*(partial(store.read, name, *given) for name, given in asked.items()))
    tables: dict[str, Frame] = dict(zip(looked_at, read, strict=True))
    if not begins:
        return _read_often(tables, are_tables=True)
    reported = _reported(store, names)
    folded = (
        set()
        if updated.topics is None
        else {(row["cluster"], row["topic"]) for row in to_dicts(updated.topics)}
    )
    rows = [(*key, reported.get(key), key in folded) for key in sorted(reported.keys() | folded)]
    topics = (
        pa.table(
            [pa.array(some, one.type) for some, one in zip(zip(*rows, strict=True), LOOKED_AT, strict=True)],
            schema=LOOKED_AT,
        )
        if rows
        else LOOKED_AT.empty_table()
    )
    # a finding about partitions may have begun together with a finding that is resolved by now
    first = dict(begins)
    for (name, _), at in reported.items():
        first[name] = min(first.get(name, at), at)
    conditions = {
        "coverage": is_null("hour") | since("hour"),
        "durability": whole
        | by_cluster(
            {name: from_day("day", _day_from(at - timedelta(days + 1))) for name, at in begins.items()}
        ),
        "topic_assignments": is_null("valid_to") | since("valid_to"),
        "broker_load": is_null("valid_to") | since("valid_to"),
        "broker_outages": is_null("until") | since("until", {name: first[name] for name in begins}),
    }
    for table, condition in conditions.items():
        tables[table] = where(tables[table], condition)
    is_valid = is_null("valid_to")
    is_reported = is_known("reported")
    may_change = is_true("folded") & UNSETTLED
    moved = since("started_at") | since("completed_at")
    ended = not_before("completed_at", "reported") | is_null("completed_at") & not_before(
        "started_at", "reported"
    )
    over = since("valid_from") | since("valid_to") | not_before("valid_to", "reported")
    for table, condition in {
        "partition_timeline": is_valid & (is_reported | IS_WRONG) | over,
        "replica_timeline": is_valid & (is_reported | ~one_of("state", AT_REST)) | over,
        "reassignments": one_of("outcome", ["in_progress"]) | moved | ended,
    }.items():
        columns = list(schemas.columns(table))
        marked_rows = looked_up(tables[table], topics, TOPIC)
        tables[table] = select(where(marked_rows, condition | may_change), *columns)
    return _read_often(tables)


# topics that checks read: begin of the first unresolved finding about them, and whether a partition was
# folded
LOOKED_AT = pa.schema([*TOPICS, ("reported", pa.timestamp("us", "UTC")), ("folded", pa.bool_())])


def _day_from(at: datetime) -> date:
    """Return the first day that begins at this moment or later."""
    return (at + timedelta(1) - timedelta(microseconds=1)).date()


def partitions_now(
    store: RunTables, updated: Updated, audited: Mapping[str, Frame], clusters: Collection[str]
) -> Frame:
    """Return the state of every partition: the rows of `partition_timeline` without an end.

    audited: `scope`, which has them all where no cluster's history is resumed.
    """
    whole = not updated.looked_back(clusters)
    rows = audited["partition_timeline"] if whole else store.read("partition_timeline", clusters)
    return read_often(where(rows, is_null("valid_to")))


def _reported(store: RunTables, clusters: Iterable[str]) -> dict[tuple[str, str], datetime]:
    """Return cluster and topic of unresolved findings -> begin of the first of them, UTC without a zone."""
    is_open = ~one_of("status", ["resolved"]) & is_known("first_seen")
    found = store.read("findings", clusters, is_open, ["cluster", "topic", "fingerprint", "first_seen"])
    first = {
        row["fingerprint"]: row["first_seen"] for row in to_dicts(select(found, "fingerprint", "first_seen"))
    }
    subjects = having(store.read("finding_subjects", clusters), found, ["fingerprint"])
    topics = together(
        select(found, "cluster", "fingerprint", "topic"), select(subjects, "cluster", "fingerprint", "topic")
    )
    reported: dict[tuple[str, str], datetime] = {}
    for row in to_dicts(distinct(where(topics, is_known("topic")))):
        key, at = (row["cluster"], row["topic"]), first[row["fingerprint"]].replace(tzinfo=None)
        reported[key] = min(reported.get(key, at), at)
    return reported


def _read_often(tables: Mapping[str, Frame], *, are_tables: bool = False) -> dict[str, Frame]:
    often = run_concurrently(*(partial(read_often, rows, is_table=are_tables) for rows in tables.values()))
    return dict(zip(tables, often, strict=True))


def _table(table: str, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Return rows of a table. rows: values of its columns, time stamps as microseconds."""
    schema = table_schema(table)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(list(map(folding.array, columns, schema.types)), schema=schema)


# -- what all partitions of a cluster share ------------------------------------------------------------------


def _facts(store: RunTables, records: NewRecords) -> dict[str, ClusterFacts]:
    """Return cluster -> its facts with the new records."""
    evidence = dict(store.summed(records.events))
    lost = _lost(records)
    if lost:
        evidence |= store.summed(_recognised(store.read("events", lost)))
    found = {}
    for name in sorted(records.rebuilt | records.stored.keys()):
        new = evidence.get(name, ClusterEvidence())
        if name in records.rebuilt and name not in evidence:
            continue  # nothing was recognised in its logs
        found[name] = ClusterFacts.of(
            new if name in records.rebuilt | lost else records.stored[name].facts.evidence + new,
            records.keeps,
        )
    return found


def _lost(records: NewRecords) -> set[str]:
    """Return the clusters whose stored evidence includes a record that was removed."""
    if records.removed is None:
        return set()
    removed_ids: dict[str, set[str]] = {}
    for row in to_dicts(distinct(select(records.removed, "cluster", "record_id"))):
        removed_ids.setdefault(row["cluster"], set()).add(row["record_id"])
    return {
        name
        for name, ids in removed_ids.items()
        if name in records.stored
        and any(one in evidence for evidence in [records.stored[name].facts.to_json()] for one in ids)
    }


def _correct_incarnations(
    store: RunTables, records: NewRecords, facts: Mapping[str, ClusterFacts], rebuilt: Iterable[str]
) -> bool:
    """Correct `events.incarnation`, which is 1 in new rows.

    Return whether there was something to correct.
    """
    before = {name: one.facts for name, one in records.stored.items()}
    several = {
        name
        for name in facts
        if len(facts[name].numbers) > 1 or (name in before and len(before[name].numbers) > 1)
    }
    if not several:
        return False
    new = _new(records, several, several.intersection(rebuilt))
    numbered = computed(
        _incarnations(store.read("events", several, new), {name: facts[name] for name in several})
    )
    if is_empty(numbered):
        return False
    store.set_matching("events", new, numbered, EVENT)
    return True


def _new(records: NewRecords, clusters: Iterable[str], rebuilt: Collection[str]) -> Where:
    """Return the condition for all rows of the time of new events.

    rebuilt: clusters whose rows are all new.
    """
    resumed = sorted(set(clusters) - set(rebuilt))
    of_time = dict.fromkeys(resumed, is_null("ts"))
    if resumed:
        for row in extremes(where(records.events, of_clusters(resumed)), ["cluster"], "ts"):
            if row["first"] is not None:
                of_time[row["cluster"]] |= at_or_after("ts", row["first"]) & at_or_before("ts", row["last"])
    return any_of([of_clusters(rebuilt), by_cluster(of_time)])


def _incarnations(rows: Frame, facts: Mapping[str, ClusterFacts]) -> Frame:
    """Return record_id, item and right incarnation of the rows of `events` that have another one."""
    names = ("record_id", "item", "node", "file", "ts")
    given = select(rows, "cluster", "incarnation", *names)

    def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            events = folding.events_of([batch.drop_columns("incarnation")], names)
            numbers = pa.array(
                [facts[cluster].incarnation_of(event) for cluster, event in events], pa.int32()
            )
            corrected = pa.record_batch([batch["record_id"], batch["item"], numbers], schema=NUMBERED)
            yield corrected.filter(pc.not_equal(numbers, batch["incarnation"]))

    return by_batch(given, numbered, NUMBERED)


NUMBERED = pa.schema([("record_id", pa.string()), ("item", pa.int32()), ("incarnation", pa.int32())])


# -- partitions ----------------------------------------------------------------------------------------------


def topic_named(events: Frame, facts: Mapping[str, ClusterFacts]) -> Frame:
    """Return events with key_topic, the topic of each.

    Records of a metadata log name the topic by its id.
    """
    names = {
        (cluster, topic_id): topic
        for cluster, one in facts.items()
        for number in one.numbers
        for topic_id, topic in one[number].kraft.names.items()
    }
    rows = [(*key, topic) for key, topic in names.items()]
    topics_of_ids = pa.Table.from_pylist([dict(zip(NAMED.names, row, strict=True)) for row in rows], NAMED)
    found = coalesced(
        looked_up(events, topics_of_ids, ["cluster", "topic_id"]), "key_topic", "topic", "name_of_id"
    )
    return select(found, *(name for name in column_names(events)), "key_topic")


NAMED = pa.schema([("cluster", pa.string()), ("topic_id", pa.string()), ("name_of_id", pa.string())])


def _keyed(events: Frame, facts: Mapping[str, ClusterFacts]) -> Frame:
    """Return the events of partitions. out: cluster, key_topic, key_partition and EVENT_COLUMNS."""
    named = select(
        topic_named(events, facts), "cluster", "key_topic", *EVENT_COLUMNS, key_partition="partition"
    )
    return where(named, is_known("key_topic") & is_known("key_partition"))


def _keys(keyed: Frame) -> Frame:
    return distinct(select(keyed, "cluster", topic="key_topic", partition="key_partition"))


def _states_about(store: RunTables, keys: Sequence[Frame], changed: Mapping[str, Affected]) -> Frame:
    """Return rows of `partition_states`: at least those that changes may affect."""
    if any(what.brokers for what in changed.values()):
        return store.read("partition_states", changed)
    others = pa.table(
        {
            "topic": pa.array(
                sorted({topic for what in changed.values() for topic in what.topics}), pa.string()
            )
        }
    )
    return store.rows_about(
        "partition_states", changed, "topic", together(*(select(some, "topic") for some in keys), others)
    )


def _touched_states(
    store: RunTables,
    records: NewRecords,
    keyed: Frame,
    changed: Mapping[str, Affected],
    removed: Frame | None,
) -> Frame:
    """Return the states of partitions that new events affect.

    Events may affect them directly or by a change of their topic or of one of their brokers.
    keyed: new events. removed: PARTITION_KEY. out: the columns of `folding.INPUT` that are a state's. An
    unusable state is empty: an interrupted run has left it, or an event that it includes was removed.
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
    unfit = by_cluster(
        {name: above("events_version", records.stored[name].events_version) for name in changed}
    )
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
    """rows: `folding.OUTPUT` of all folded partitions.

    refolded: PARTITION_KEY of those folded from all their events; None: none.
    """

    rows: Frame
    refolded: Frame | None


def _fold(
    store: RunTables,
    records: NewRecords,
    facts: Mapping[str, ClusterFacts],
    changed: Mapping[str, Affected],
    rebuilt: frozenset[str],
) -> FoldedRows:
    """Fold the partitions that a run concerns."""
    resumed = {name: what for name, what in changed.items() if name not in rebuilt}
    events = records.events
    if more := rebuilt - records.rebuilt:
        events = together(where(events, ~of_clusters(more)), _recognised(store.read("events", more)))
    keyed, removed = _keyed(events, facts), None
    no_states = states = folding.INPUT.empty_table()
    if records.removed is not None:
        removed = _keys(_keyed(records.removed, facts))
    if resumed:
        states = _touched_states(store, records, where(keyed, of_clusters(resumed)), resumed, removed)
    rows = store.folded(keyed, states, facts, folding.EVENTS_AT_ONCE)
    refolded = None
    # a partition that is stale even after folding in pieces is folded in one piece
    for at_once in (folding.EVENTS_AT_ONCE, None):
        stale = _partitions(where(rows, is_true("is_stale")))
        if refolded is None and removed is not None:
            stale = distinct(together(stale, removed))
        stale = computed(stale)
        if is_empty(stale):
            break
        refolded = stale if refolded is None else refolded
        history = _keyed(_recognised(store.read("events", facts)), facts)
        mine = having(
            history, select(stale, "cluster", key_topic="topic", key_partition="partition"), folding.GROUP
        )
        again = store.folded(computed(mine), no_states, facts, at_once)
        rows = together(lacking(rows, stale, PARTITION_KEY), again)
    return FoldedRows(rows, refolded)


def _partitions(rows: Frame) -> Frame:
    return distinct(select(rows, *PARTITION_KEY))


def _write(
    store: RunTables, folded: FoldedRows, version: int, resumed: Sequence[str], rebuilt: Sequence[str]
) -> Frame:
    """Replace the rows of folded partitions.

    version: of `events`. resumed, rebuilt: clusters. out: PARTITION_KEY of these partitions.
    """
    touched = _partitions(where(folded.rows, is_known("partition_states")))
    if folded.refolded is not None:
        touched = distinct(together(touched, folded.refolded))
    touched = computed(touched)

    def new(table: str) -> Frame:
        return unpacked(where(folded.rows, is_known(table)), table, *folding.PARTITION)

    def intervals(table: str) -> None:
        rows = new(table)
        if resumed and folded.refolded is not None:
            rows = _without_stored_rows(store, table, rows, folded.refolded, resumed)
        store.replace_partitions(table, resumed, rebuilt, touched, rows)

    states = with_values(new("partition_states"), code_version=str(SEMANTICS_VERSION), events_version=version)
    store.replace_partitions("partition_states", resumed, rebuilt, touched, states)
    run_concurrently(*(partial(intervals, table) for table in TIMELINES))
    return touched


def _without_stored_rows(
    store: RunTables, table: str, rows: Frame, refolded: Frame, resumed: Sequence[str]
) -> Frame:
    """Return the new rows of refolded partitions without settled rows that are stored already.

    Remove stored ones that differ.
    """
    old, new = (
        select(having(where(some, is_true("settled")), refolded, PARTITION_KEY), *schemas.columns(table))
        for some in (store.read(table, resumed), rows)
    )
    other = differing(old, new, PARTITION_KEY)
    if not is_empty(other):
        store.delete_matching(table, of_clusters(resumed) & is_true("settled"), other)
    same = with_values(lacking(refolded, other, PARTITION_KEY), settled=True)
    return lacking(rows, same, [*PARTITION_KEY, "settled"])


def _write_cluster_tables(store: RunTables, facts: Mapping[str, ClusterFacts]) -> None:
    """Write the tables that follow from the facts and from breaks and brokers in `partition_states`."""
    breaks: dict[str, list[tuple[PartitionKey, Break]]] = {}
    rows = store.rows_that_have("partition_states", facts, "breaks", [*folding.PARTITION, "breaks"])
    for cluster, *key, text in folding.rows_of(rows.to_batches()):
        breaks.setdefault(cluster, []).extend((PartitionKey(*key), Break.of(one)) for one in json.loads(text))
    terms = [(name, *row) for name, one in facts.items() for row in controllers(one)]
    found = [
        (name, *row) for name, one in facts.items() for row in discontinuities(breaks.get(name, []), one)
    ]
    assigned = _assigned_brokers(store, facts)
    down = [
        (name, number, *outage)
        for name, one in facts.items()
        for number in one.events_by_number
        for outage in one.outages(number, assigned.get((name, number)))
    ]
    tables = {"controllers": terms, "discontinuities": found, "broker_outages": down}
    run_concurrently(
        *(partial(store.replace, table, facts, _table(table, rows)) for table, rows in tables.items())
    )


def _assigned_brokers(
    store: RunTables, facts: Mapping[str, ClusterFacts]
) -> dict[tuple[str, int], dict[int, int | None]]:
    """Return cluster and incarnation -> broker with replicas -> since when, where needed (microseconds)."""
    found: dict[tuple[str, int], dict[int, int | None]] = {}
    for batch in store.rows_that_have(
        "partition_states", facts, "brokers", ["cluster", "incarnation", "brokers"]
    ).to_batches():
        of_row = batch.select(["cluster", "incarnation"]).take(pc.list_parent_indices(batch["brokers"]))
        each = pa.Table.from_batches([of_row]).append_column("broker", pc.list_flatten(batch["brokers"]))
        for cluster, number, broker in folding.rows_of(
            each.group_by(each.column_names).aggregate([]).to_batches()
        ):
            found.setdefault((cluster, number), {})[broker] = None
    left_out = [
        (*key, broker)
        for key, brokers in found.items()
        if key[0] in facts
        for broker in facts[key[0]].left_out(key[1], brokers)
    ]
    if left_out:
        names = ["cluster", "incarnation", "replica"]
        left_out_replicas = pa.Table.from_pylist([dict(zip(names, one, strict=True)) for one in left_out])
        columns = [*names, "valid_from"]
        rows = store.read("replica_timeline", facts, is_known("replica"), columns)
        for row in extremes(having(rows, left_out_replicas, names), names, "valid_from"):
            found[row["cluster"], row["incarnation"]][row["replica"]] = row["first"] and (
                row["first"] - EPOCH
            ) // timedelta(microseconds=1)
    return found


def _write_deletions(
    store: RunTables, records: NewRecords, facts: Mapping[str, ClusterFacts], rebuilt: frozenset[str]
) -> None:
    """Update `topic_deletions`: under ZooKeeper, rebuild the topics with new records.

    Under KRaft, take all from the facts.
    """
    of_deletions = is_known("topic") & (
        starts_with("event_type", "deletion_")
        | one_of("to_state", ["ReplicaDeletionIneligible"])
        | one_of("event_type", ["replica_state_change_failed"])
    )
    whole = rebuilt | {
        name for name, one in facts.items() if one.kraft_since is not None and one.kraft_since >= 0
    }
    rows = [(name, *row) for name, one in facts.items() for row in kraft_topic_deletions(one)]
    by_topic = [name for name, one in facts.items() if name not in whole and one.kraft_since is None]
    columns = ["cluster", *EVENT_COLUMNS]
    events, others = _recognised(store.read("events", whole, of_deletions, columns)), None
    if by_topic:
        new = [records.events, *([] if records.removed is None else [records.removed])]
        topics = computed(
            distinct(select(where(together(*new), of_clusters(by_topic) & of_deletions), *TOPIC))
        )
        others = store.read("topic_deletions", by_topic)
        if not is_empty(topics):
            others = lacking(others, topics, TOPIC)
            stored = store.read("events", by_topic, of_deletions, columns)
            events = together(events, _recognised(having(stored, topics, TOPIC)))
        elif not rows and not whole:
            return
    by_name: dict[tuple[str, str], list[Event]] = {}
    for cluster, event in folding.events_of(to_table(events).to_batches(), EVENT_COLUMNS):
        one = facts[cluster]
        if event.topic and is_about_deletion(event) and not one[one.incarnation_of(event)].is_of_kraft(event):
            by_name.setdefault((cluster, event.topic), []).append(event)
    rows += [
        (cluster, *row)
        for (cluster, _), events in by_name.items()
        for row in topic_deletions(events, facts[cluster])
    ]
    rebuilt_rows = _table("topic_deletions", rows)
    store.replace(
        "topic_deletions", facts, rebuilt_rows if others is None else together(rebuilt_rows, others)
    )
