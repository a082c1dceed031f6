"""Compute how long a topic was durable and available, from the intervals of its partitions. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from jobs.nightly.min_isr import MinIsr
from jobs.timelines.event import EPOCH, moment_of
from jobs.timelines.losses import UNCLEAN, Around, Interval, LossLine, losses

Row = Mapping[str, Any]
Span = tuple[datetime, datetime]

SECONDS = (
    "covered",
    "full_isr",
    "under_replicated",
    "at_min_isr",
    "below_min_isr",
    "at_isr_1",
    "leaderless",
    "unknown",
    "refused_min_1",
    "refused_min_2",
)
# conditions whose episodes are counted, and the longest is kept
EPISODES = ("leaderless", "below_min_isr")
TIMELINE_COLUMNS = (
    "partition",
    "step",
    "valid_from",
    "valid_to",
    "leader",
    "isr",
    "replicas",
    "adding_replicas",
    "reassignment_phase",
    "leader_epoch",
    "partition_epoch",
    "inferred",
    "state",
    "record_id",
)
# of intervals that have not ended
OPEN_COLUMNS = (
    "partition",
    "valid_from",
    "valid_to",
    "leader",
    "isr",
    "replicas",
    "adding_replicas",
    "state",
)
# of events that show unclean elections, and the records that a replica had and truncated
EVENT_COLUMNS = ("topic", "partition", *LossLine._fields)
EVIDENCE = 20
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Shared:
    """What the topics of a cluster share.

    now: newest time stamp of its logs. silent: spans in which no node wrote a line. deleted: topic -> spans
    in which its deletion was pending.
    fenced: broker -> spans in which it was fenced (KRaft). A partition whose last known leader is fenced has
    lost it; only a live broker with a replica logs the next leader. around: what losses are judged by.
    """

    now: datetime
    min_isr: MinIsr = field(default_factory=MinIsr)
    silent: tuple[Span, ...] = ()
    deleted: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    fenced: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)
    around: Around = field(default_factory=Around)


@dataclass
class Tally:
    """Seconds of partitions in a span, and what happened in it."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECONDS, 0.0))
    times: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EPISODES, 0))
    longest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(EPISODES, 0.0))
    partitions: set[int] = field(default_factory=set)
    unclean_elections: int = 0
    records_lost: int | None = None
    record_ids: dict[str, None] = field(default_factory=dict)


def silent_spans(hours: Iterable[datetime]) -> tuple[Span, ...]:
    """Return the spans without a line between the first and the last hour.

    hours: with lines, from `coverage`.
    """
    known = sorted(set(hours))
    step = timedelta(hours=1)
    return tuple((before + step, after) for before, after in pairwise(known) if after - before > step)


def fenced_spans(
    brokers: Iterable[tuple[datetime, Iterable[int]]], now: datetime
) -> dict[int, tuple[Span, ...]]:
    """Return broker -> spans in which it was fenced.

    brokers: (time, brokers that are fenced from then on), in order of time.
    """
    since: dict[int, datetime] = {}
    found: dict[int, list[Span]] = {}
    for ts, ids in (*brokers, (now, ())):
        fenced = set(ids)
        for broker in since.keys() - fenced:
            found.setdefault(broker, []).append((since.pop(broker), ts))
        since |= dict.fromkeys(fenced - since.keys(), ts)
    return {broker: tuple(spans) for broker, spans in found.items()}


def conditions(row: Row, least: int) -> tuple[str, ...]:
    """Return the names of the SECONDS that an interval counts for. least: min.insync.replicas then.

    Under-replicated is defined as in Kafka's own metric (Partition.isUnderReplicated): replicas that are
    being added do not count.
    """
    leader, isr, replicas = row["leader"], row["isr"], row["replicas"]
    if leader is not None and leader < 0:
        return ("covered", "leaderless", "refused_min_1", "refused_min_2")
    if leader is None or isr is None or replicas is None:
        return ("unknown",)
    in_sync, assigned = len(isr), len(replicas) - len(row["adding_replicas"] or ())
    found = ["covered", "full_isr" if in_sync >= assigned else "under_replicated"]
    if in_sync < least:
        found.append("below_min_isr")
    elif in_sync == least and in_sync < assigned:
        found.append("at_min_isr")
    if in_sync == 1:
        found.append("at_isr_1")
    if in_sync < 2:
        found.append("refused_min_2")
    return tuple(found)


def tally(rows: Iterable[Row], events: Iterable[Row], topic: str, shared: Shared) -> dict[date, Tally]:
    """Return day (UTC) -> the tally of a topic.

    rows: its whole partition_timeline. events: about the topic.
    """
    days: dict[date, Tally] = {}
    about = _Topic.of(topic, shared)
    of_topic = list(events)
    for partition, history in _histories(rows):
        _tally_partition(days, history, about, _EVER)
        mine = [event for event in of_topic if event["partition"] == partition and event["ts"] is not None]
        _tally_unclean(days, history, mine, shared.around)
    return days


def tally_since(rows: Iterable[Row], topic: str, shared: Shared, since: date) -> dict[date, Tally]:
    """Return day (UTC) -> the tally of a topic from a day on, without its unclean elections, which depend on
    the whole history.

    rows: of partition_timeline, those that overlap these days.
    """
    days: dict[date, Tally] = {}
    about = _Topic.of(topic, shared)
    for _, history in _histories(rows):
        _tally_partition(days, history, about, datetime.combine(since, time(), UTC))
    return days


def tally_unchanged(rows: Iterable[Row], topic: str, shared: Shared, since: datetime) -> dict[date, Tally]:
    """Return day (UTC) -> the tally of a topic whose partitions have not changed since a moment.

    rows: of partition_timeline, one for each partition, with a leader or unknown, and not below min ISR.
    """
    days: dict[date, Tally] = {}
    about = _Topic.of(topic, shared)
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["state"] != "NonExistentPartition":
            sizes = (
                None if row[name] is None else len(row[name])
                for name in ("isr", "replicas", "adding_replicas")
            )
            alike.setdefault((row["leader"], *sizes), []).append(row)
    for some in alike.values():
        of_one: dict[date, Tally] = {}
        _tally_partition(of_one, some[:1], about, since)
        for day, one in of_one.items():
            whole = days.setdefault(day, Tally())
            whole.partitions.update(row["partition"] for row in some)
            for name, seconds in one.seconds.items():
                whole.seconds[name] += seconds * len(some)
    return days


def _histories(rows: Iterable[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Yield (partition, its rows in order) without the time in which it does not exist."""
    ordered = sorted(rows, key=itemgetter("partition", "step"))
    for partition, some in groupby(ordered, key=itemgetter("partition")):
        yield partition, [row for row in some if row["state"] != "NonExistentPartition"]


@dataclass(frozen=True)
class _Topic:
    """What the partitions of a topic share.

    cuts: moments at which their intervals are cut, in order; pending: spans of its deletions.
    """

    name: str
    shared: Shared
    cuts: Sequence[datetime]
    pending: Sequence[Span]

    @classmethod
    def of(cls, name: str, shared: Shared) -> "_Topic":
        pending = shared.deleted.get(name, ())
        moments = (ts for span in (*shared.silent, *pending) for ts in span)
        return cls(name, shared, sorted({*shared.min_isr.changes(name), *moments}), pending)


def _tally_partition(days: dict[date, Tally], history: Sequence[Row], about: _Topic, first: datetime) -> None:
    """Add the seconds of a partition. first: the moment from which they count."""
    shared = about.shared
    before: set[str] = set()
    running: dict[str, float] = {}
    for row in history:
        if row["valid_from"] is None:
            continue
        fenced = shared.fenced.get(row["leader"], ())
        dark = (*shared.silent, *fenced)
        for begin, end in _pieces(
            max(row["valid_from"], first), row["valid_to"] or shared.now, about.cuts, fenced
        ):
            if any(since <= begin < until for since, until in about.pending):
                continue
            day = days.setdefault(begin.date(), Tally())
            day.partitions.add(row["partition"])
            unseen = any(silence <= begin < last for silence, last in dark)
            names = ("unknown",) if unseen else conditions(row, shared.min_isr.of(about.name, begin))
            seconds = (end - begin).total_seconds()
            for name in names:
                day.seconds[name] += seconds
            for name in EPISODES:
                fresh = name not in before or begin.time() == time()
                if name not in names:
                    running[name] = 0.0
                    continue
                running[name] = seconds if fresh else running.get(name, 0.0) + seconds
                day.times[name] += fresh
                day.longest[name] = max(day.longest[name], running[name])
                if row["record_id"] and len(day.record_ids) < EVIDENCE:
                    day.record_ids[row["record_id"]] = None
            before = set(names)


def _pieces(
    begin: datetime, end: datetime, cuts: Sequence[datetime], fenced: Sequence[Span]
) -> Iterable[Span]:
    """Return the parts of a span, cut at midnight, at the given moments, and where its leader was fenced or
    was not any more.
    """
    if begin >= end:
        return ()
    inner = set(cuts[bisect_right(cuts, begin) : bisect_left(cuts, end)])
    inner |= {ts for span in fenced for ts in span if begin < ts < end}
    midnight = datetime.combine(begin.date(), time(), UTC) + timedelta(days=1)
    while midnight < end:
        inner.add(midnight)
        midnight += timedelta(days=1)
    return pairwise([begin, *sorted(inner), end])


def _tally_unclean(
    days: dict[date, Tally], history: Sequence[Row], events: Sequence[Row], around: Around
) -> None:
    """Add the unclean elections that `losses` finds and is certain of, and the records that they lost."""
    rows = [Interval(*(_plain(row.get(name)) for name in Interval._fields)) for row in history]
    lines = [LossLine(*(_plain(event.get(name)) for name in LossLine._fields)) for event in events]
    for loss in losses(rows, lines, around):
        if loss.kind == UNCLEAN and loss.is_certain:
            day = days.setdefault(moment_of(loss.at).date(), Tally())
            day.unclean_elections += 1
            if loss.records is not None:
                day.records_lost = (day.records_lost or 0) + loss.records


def _plain(value: Any) -> Any:
    """Return a moment as microseconds since 1970, any other value unchanged."""
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def topic_rows(days: Mapping[date, Tally], topic: str, shared: Shared) -> list[dict[str, Any]]:
    """Return rows of `durability` of one topic, without cluster, incarnation and topic."""
    return [
        {
            "day": day,
            "partitions": len(one.partitions),
            **{name: round(seconds, 3) for name, seconds in one.seconds.items()},
            **{f"{name}_times": one.times[name] for name in EPISODES},
            **{f"{name}_longest": round(one.longest[name], 3) for name in EPISODES},
            "min_insync_replicas": shared.min_isr.of(topic, datetime.combine(day, time.max, UTC)),
            "unclean_elections": one.unclean_elections,
            "records_lost": one.records_lost,
            "record_ids": list(one.record_ids),
        }
        for day, one in sorted(days.items())
        if one.partitions
    ]


def continued(rows: Iterable[Row], stored: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows of a topic that count from a moment on, added to the stored ones that count up to it."""
    days = {row["day"]: dict(row) for row in stored}
    for row in rows:
        before = days.get(row["day"])
        days[row["day"]] = dict(row) | (
            {}
            if before is None
            else before
            | {name: round(before[name] + row[name], 3) for name in SECONDS}
            | {"min_insync_replicas": row["min_insync_replicas"]}
        )
    return list(days.values())


def with_stored_losses(rows: Iterable[Mapping[str, Any]], stored: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows of a topic without new records, with the stored elections and losses of their days."""
    known = {
        row["day"]: {name: row[name] for name in ("unclean_elections", "records_lost")} for row in stored
    }
    return [{**row, **known.get(row["day"], {})} for row in rows]


# -- shares ------------------------------------------------------------------------------------------


def availability(row: Mapping[str, Any], acks: str = "all") -> float | None:
    """Return the share of the covered time in which writes were possible, 0 .. 1.

    It is null if no time is covered. acks: `all` or `1`.
    """
    refused = row["leaderless"] + (row["below_min_isr"] if acks == "all" else 0)
    return 1 - refused / row["covered"] if row["covered"] else None


def nines(share: float | None) -> str:
    """Return a share as `99.98 %`, with as many digits as it takes to differ from 100 %."""
    if share is None:
        return "?"
    digits = 2
    while share < 1 and round(share * 100, digits) >= 100 and digits < 9:
        digits += 1
    return f"{100 if share >= 1 else share * 100:.{0 if share >= 1 else digits}f} %"


def summed(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of rows of `durability` of one topic; `partitions` is the largest."""
    some = list(rows)
    lost = [row["records_lost"] for row in some if row["records_lost"] is not None]
    return {
        "partitions": max(row["partitions"] for row in some),
        **{name: round(sum(row[name] for row in some), 3) for name in (*SECONDS, "unclean_elections")},
        **{f"{name}_times": sum(row[f"{name}_times"] for row in some) for name in EPISODES},
        **{f"{name}_longest": max(row[f"{name}_longest"] for row in some) for name in EPISODES},
        "min_insync_replicas": max(some, key=lambda row: row["day"])["min_insync_replicas"],
        "records_lost": sum(lost) if lost else None,
    }
