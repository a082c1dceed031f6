"""Build the view `partition_episodes`: episodes in which something was wrong with a partition.

`jobs.timelines.episodes` finds them, topic by topic.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.batches.folding import PARTITION, rows_of
from jobs.batches.types import schema_of
from jobs.engine.rows import (
    Dicts,
    Frame,
    Where,
    at_or_before,
    by_cluster,
    distinct,
    having,
    in_microseconds,
    is_known,
    map_groups,
    one_of,
    select,
    to_table,
    where,
)
from jobs.nightly.by_topic import KEY
from jobs.timelines import ClusterFacts
from jobs.timelines.episodes import DeletionTimes, Surroundings, TimelineStep, episodes
from jobs.timelines.event import EPOCH
from jobs.timelines.facts import QUIET
from jobs.timelines.outages import Outage

# replicas of a row of `partition_timeline`; null if the list is empty
_HAS_ONE = pc.if_else(
    pc.list_value_length(pc.field("replicas")) > 0,
    pc.field("replicas"),
    pa.scalar(None, pa.list_(pa.int32())),
)
IS_WRONG = Where(
    "leader = -1 OR replicas IS NULL OR size(isr) < size(replicas) OR leader <> get(replicas, 0)",
    (pc.field("leader") == -1)
    | pc.field("replicas").is_null()
    | (pc.list_value_length(pc.field("isr")) < pc.list_value_length(pc.field("replicas")))
    | (pc.field("leader") != pc.list_element(_HAS_ONE, 0)),
)
# the fields of `Episode`
_COLUMNS = """cluster STRING, incarnation INT, topic STRING, partition INT, kind STRING, replica INT, since TIMESTAMP, until TIMESTAMP,
  ended BOOLEAN, is_begin_seen BOOLEAN, is_end_seen BOOLEAN, leader INT, isr ARRAY<INT>, replicas ARRAY<INT>, min_isr INT, record_id STRING, evidence ARRAY<STRING>, returned BOOLEAN,
  missing ARRAY<INT>, alive_at TIMESTAMP, up ARRAY<STRUCT<since: TIMESTAMP, until: TIMESTAMP>>,
  down_meanwhile ARRAY<INT>, signs ARRAY<STRING>, cause_broker INT, cause_since TIMESTAMP, cause_until TIMESTAMP, cause_end_seen BOOLEAN, cause_how STRING,
  cause_all_since TIMESTAMP"""


def partition_episodes(
    audited: Mapping[str, Frame],
    fact_tables: Mapping[str, Frame],
    now: Mapping[str, datetime | None],
    facts: Mapping[str, ClusterFacts],
) -> Frame:
    """Return the episodes in which something was wrong with partitions, from the rows that checks read.

    audited: `updates.scope`; fact_tables: min_isr and broker_signs of `schemas/facts`; now: cluster ->
    reference time of its findings (UTC without a zone). out: cluster, incarnation, topic, partition and the
    fields of `Episode`.
    """
    around = _surroundings(audited, fact_tables["broker_signs"], now, facts)
    smallest = {
        (cluster, number, topic): value
        for cluster, number, topic, value in _values(
            fact_tables["min_isr"], "cluster", "incarnation", "topic", "min_isr"
        )
    }
    timeline = audited["partition_timeline"]
    steps = having(timeline, distinct(select(where(timeline, IS_WRONG), *PARTITION)), PARTITION)
    # the output of a tool after the end of the logs counts when later logs are read
    by_logs = one_of("source", ("logs", "metadata_log"))
    known = by_cluster(
        {
            name: by_logs if at is None else by_logs | at_or_before("valid_from", at)
            for name, at in now.items()
        }
    )
    moments = ("valid_from", "valid_to")
    steps = in_microseconds(select(where(steps, known), *PARTITION, "step", *TimelineStep._fields), *moments)
    deleted = select(audited["topic_deletions"], "cluster", "incarnation", "topic", *DeletionTimes._fields)
    deletions = in_microseconds(deleted, *DeletionTimes._fields)

    def fold(key: tuple[Any, ...], rows: Dicts, deleted: Dicts) -> Iterable[dict[str, Any]]:
        surroundings = around.get(key[:2])
        if surroundings is None:
            return
        least = smallest.get(key, smallest.get((*key[:2], None)))
        known_deletions = [DeletionTimes(row["requested_at"], row["completed_at"]) for row in deleted]
        for partition, some in _by_partition(rows).items():
            for episode in episodes(
                some,
                surroundings,
                topic=key[2],
                partition=partition,
                min_isr=least,
                deletions=known_deletions,
            ):
                yield {"partition": partition, **episode._asdict()}

    return map_groups(steps, deletions, KEY, fold, schema_of(_COLUMNS))


def _by_partition(rows: Dicts) -> dict[int, list[TimelineStep]]:
    found: dict[int, list[TimelineStep]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["step"])):
        found.setdefault(row["partition"], []).append(
            TimelineStep(*(row[name] for name in TimelineStep._fields))
        )
    return found


def _surroundings(
    audited: Mapping[str, Frame],
    broker_signs: Frame,
    now: Mapping[str, datetime | None],
    facts: Mapping[str, ClusterFacts],
) -> dict[tuple[str, int], Surroundings]:
    """Return the surroundings by cluster and incarnation, without clusters that have no time stamp."""
    outages: dict[tuple[str, int], list[Outage]] = {}
    for cluster, number, *outage in _values(
        audited["broker_outages"], "cluster", "incarnation", *Outage._fields
    ):
        outages.setdefault((cluster, number), []).append(Outage(*outage))
    own_lines: dict[tuple[str, int], dict[int, list[tuple[int, str]]]] = {}
    of_brokers = where(broker_signs, is_known("broker"))
    for at, record_id, cluster, number, broker in sorted(
        _values(of_brokers, "ts", "record_id", "cluster", "incarnation", "broker")
    ):
        own_lines.setdefault((cluster, number), {}).setdefault(broker, []).append((at, record_id))
    for cluster, one in facts.items():
        for number, alive in one.alive_by_number.items():
            for broker, some in alive.items():
                own = own_lines.setdefault((cluster, number), {}).setdefault(broker, [])
                own[:] = sorted({*own, *((one.ts, one.record_id) for one in some)})
    listed: dict[tuple[str, int], dict[int, set[str]]] = {}
    lists = where(audited["events"], one_of("event_type", ["topics"]) & is_known("ts"))
    for at, cluster, number, topic in sorted(
        _values(lists, "ts", "cluster", "incarnation", "topic"), key=lambda row: row[0]
    ):
        listed.setdefault((cluster, number), {}).setdefault(at, set()).update(
            [] if topic is None else [topic]
        )
    removed: dict[tuple[str, int], dict[tuple[str, int], list[tuple[int, int]]]] = {}
    set_aside = where(audited["events"], one_of("event_type", ["log_deletion_scheduled"]) & is_known("ts"))
    for at, cluster, number, topic, partition, node in sorted(
        _values(
            where(set_aside, is_known("node")), "ts", "cluster", "incarnation", "topic", "partition", "node"
        )
    ):
        of_topics = removed.setdefault((cluster, number), {})
        of_topics.setdefault((topic, partition), []).append((at, node))
    moments = {
        name: (at.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
        for name, at in now.items()
        if at is not None
    }
    known = {(cluster, number) for cluster, one in facts.items() for number in one.by_number}
    return {
        (cluster, number): Surroundings(
            now=moments[cluster],
            heard_until=facts[cluster].heard_until.get(number),
            outages=outages.get((cluster, number), []),
            own_lines=own_lines.get((cluster, number), {}),
            topics_listed=[(at, frozenset(some)) for at, some in listed.get((cluster, number), {}).items()],
            # a topic may be deleted: state-change.log does not show that
            written_until=facts[cluster].newest_of_nodes
            if facts[cluster].controller_heard.get(number)
            else facts[cluster].newest_server_logs,
            controller_heard=facts[cluster].changes_heard.get(number, ()),
            quiet=QUIET,
            removed=removed.get((cluster, number), {}),
        )
        for cluster, number in {*known, *outages, *own_lines}
        if cluster in moments
    }


def _values(rows: Frame, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of the rows; moments are microseconds."""
    return rows_of(to_table(select(rows, *columns)).to_batches())
