"""Build the view `losses`: records that partitions lost or may have lost.

`jobs.timelines.losses` finds them, topic by topic.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.compute as pc

from jobs.batches.folding import PARTITION
from jobs.batches.types import schema_of
from jobs.engine.rows import (
    Dicts,
    Frame,
    Where,
    distinct,
    having,
    in_microseconds,
    is_known,
    map_groups,
    one_of,
    select,
    to_dicts,
    together,
    where,
)
from jobs.nightly.by_topic import KEY
from jobs.timelines import ClusterFacts
from jobs.timelines.losses import DECIDING, LINES, RECOVERING, Around, Crash, Interval, LossLine, losses
from jobs.timelines.outages import CRASHED

_OF_A_PARTITION = is_known("topic") & is_known("partition")
_IS_RECOVERING = one_of("leader_recovery_state", RECOVERING)
# events that `losses` reads, and those without which it finds nothing
ABOUT_LOSSES = (_IS_RECOVERING | one_of("event_type", sorted(LINES))) & _OF_A_PARTITION
_DECIDES = (_IS_RECOVERING | one_of("event_type", sorted(DECIDING))) & _OF_A_PARTITION
_IS_OFFLINE = Where("leader = -1", pc.field("leader") == -1)
# the fields of `Loss`
_COLUMNS = """cluster STRING, incarnation INT, topic STRING, partition INT, kind STRING, at TIMESTAMP, leader INT, node INT, leader_epoch INT,
  is_certain BOOLEAN, records BIGINT, cut_from BIGINT, cut_to BIGINT, acks ARRAY<STRING>, largest_isr INT, died_at TIMESTAMP, evidence ARRAY<STRING>"""


def partition_losses(
    audited: Mapping[str, Frame], fact_tables: Mapping[str, Frame], facts: Mapping[str, ClusterFacts]
) -> Frame:
    """Return the losses of the partitions that checks read.

    audited: `updates.scope`; fact_tables: min_isr of `schemas/facts`. out: cluster, incarnation, topic,
    partition and the fields of `Loss`.
    """
    events = where(audited["events"], ABOUT_LOSSES & is_known("ts"))
    timeline = audited["partition_timeline"]
    partitions = distinct(
        together(
            select(where(timeline, _IS_OFFLINE), *PARTITION), select(where(events, _DECIDES), *PARTITION)
        )
    )
    rows = in_microseconds(
        select(having(timeline, partitions, PARTITION), *PARTITION, "step", *Interval._fields),
        "valid_from",
        "valid_to",
    )
    lines = in_microseconds(
        select(having(events, partitions, PARTITION), *PARTITION, *LossLine._fields), "ts"
    )
    around = arounds(audited["broker_outages"], facts)
    smallest = {
        (row["cluster"], row["incarnation"], row["topic"]): row["min_isr"]
        for row in to_dicts(select(fact_tables["min_isr"], "cluster", "incarnation", "topic", "min_isr"))
    }

    def fold(key: tuple[Any, ...], rows: Dicts, lines: Dicts) -> Iterable[dict[str, Any]]:
        known = around.get(key[:2], Around())
        known = known._replace(min_isr=smallest.get(key, smallest.get((*key[:2], None))))
        for partition, (history, events_of_partition) in by_partition(rows, lines).items():
            for loss in losses(history, events_of_partition, known):
                yield {"partition": partition, **loss._asdict()}

    return map_groups(rows, lines, KEY, fold, schema_of(_COLUMNS))


def by_partition(rows: Dicts, lines: Dicts) -> dict[int, tuple[list[Interval], list[LossLine]]]:
    """Return partition -> its intervals, in order, and the lines about it; moments are microseconds."""
    found: dict[int, tuple[list[Interval], list[LossLine]]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["step"])):
        found.setdefault(row["partition"], ([], []))[0].append(
            Interval(*(row[name] for name in Interval._fields))
        )
    for line in lines:
        found.setdefault(line["partition"], ([], []))[1].append(
            LossLine(*(line[name] for name in LossLine._fields))
        )
    return found


def arounds(outages: Frame, facts: Mapping[str, ClusterFacts]) -> dict[tuple[str, int], Around]:
    """Return (cluster, incarnation) -> the surroundings of losses, without min.insync.replicas."""
    crashes: dict[tuple[str, int], list[Crash]] = {}
    died = in_microseconds(
        select(
            where(outages, one_of("how", [CRASHED]) & is_known("broker")),
            "cluster",
            "incarnation",
            *Crash._fields,
        ),
        "since",
        "until",
    )
    for row in to_dicts(died):
        crashes.setdefault((row["cluster"], row["incarnation"]), []).append(
            Crash(*(row[name] for name in Crash._fields))
        )
    return {
        (name, number): Around(
            may_be_last_leader=one.may_elect_last_leader(number),
            crashes=sorted(crashes.get((name, number), [])),
        )
        for name, one in facts.items()
        for number in one.numbers
    }
