"""`coverage`: what the logs of each node and hour can show. Counts batch by batch, then node by node."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.engine.rows import (
    NONE,
    Dicts,
    Frame,
    Where,
    above,
    at_or_after,
    before,
    by_batch,
    computed,
    extremes,
    is_known,
    is_null,
    map_groups,
    select,
    together,
    where,
)
from jobs.timelines.cluster_evidence import METADATA_LOG
from jobs.timelines.event import CHECKPOINT

STATE_CHANGE = "state.change.logger"
QUORUM_CONTROLLER = "org.apache.kafka.controller.QuorumController"
# sources of the state of a KRaft cluster: the lines of controllers that replay records, and a dump of the
# metadata log
REPLAYED = ("org.apache.kafka.controller.ReplicationControlManager", METADATA_LOG)
NODE = ("cluster", "node")
HOUR = timedelta(hours=1)
COUNTS = ("records", "recognised", "unrecognised", "drifted", "out_of_scope")
EVENT_COLUMNS = ("ts", "item", "event_type", "level", "drifted", "layout", "logger", *NODE)
PASSED_OVER_COLUMNS = (*NODE, "hour", "logger", "layout")
# number of records of a layout in an hour; traces: those at TRACE
PARTS = pa.schema(
    [
        ("cluster", pa.string()),
        ("node", pa.int32()),
        ("hour", pa.timestamp("us", "UTC")),
        ("logger", pa.string()),
        ("layout", pa.string()),
        *((name, pa.int64()) for name in (*COUNTS, "traces")),
    ]
)


@dataclass(frozen=True)
class Hours:
    """From the first to the last hour of some records, UTC without a zone.

    undated: there are some without a time stamp.
    """

    first: datetime | None
    last: datetime | None
    undated: bool

    @property
    def is_none(self) -> bool:
        """Return whether there are no records."""
        return self.first is None and not self.undated

    def with_others(self, other: "Hours") -> "Hours":
        """Return the span from the first to the last hour of both."""
        firsts, lasts = (
            [at for at in some if at] for some in ((self.first, other.first), (self.last, other.last))
        )
        return Hours(min(firsts, default=None), max(lasts, default=None), self.undated or other.undated)

    def contain(self, moment: str) -> Where:
        """Return the condition that the moment in a column is in these hours; never null.

        It is a range, so that files can be skipped.
        """
        undated = is_null(moment) if self.undated else NONE
        if self.first is None or self.last is None:
            return undated
        return (
            is_known(moment) & at_or_after(moment, self.first) & before(moment, self.last + HOUR)
        ) | undated


# -- counting ------------------------------------------------------------------------------------------------


def count_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn batches of EVENT_COLUMNS of `events` into PARTS.

    Outputs of tools do not count: they are no lines of a log.
    """
    for batch in batches:
        is_of_log = pc.fill_null(pc.not_equal(batch["event_type"], CHECKPOINT), True)
        rows = batch.filter(pc.and_(is_of_log, pc.equal(batch["item"], 0)))
        recognised, drifted = pc.is_valid(rows["event_type"]), pc.fill_null(rows["drifted"], False)
        yield from _summed(
            [
                *(rows[name] for name in NODE),
                pc.floor_temporal(rows["ts"], unit="hour"),
                rows["logger"],
                rows["layout"],
            ],
            recognised=recognised,
            unrecognised=pc.and_not(pc.invert(recognised), drifted),
            drifted=drifted,
            traces=pc.fill_null(pc.equal(rows["level"], "TRACE"), False),
        )


def count_passed_over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn batches of `passed_over` into PARTS."""
    for batch in batches:
        keys = [batch[name] for name in (*NODE, "hour", "logger", "layout")]
        yield from _summed(keys, out_of_scope=pa.array([True] * batch.num_rows, pa.bool_()))


def _summed(keys: Sequence[pa.Array], **counted: pa.Array) -> list[pa.RecordBatch]:
    """Return PARTS. keys: its columns up to the layout. counted: column -> whether a record counts there."""
    rows = len(keys[0])
    names = PARTS.names[: len(keys)]
    counts = [
        counted.get(name, pa.array([name == "records"] * rows, pa.bool_()))
        for name in PARTS.names[len(keys) :]
    ]
    table = pa.table([*keys, *(pc.cast(one, pa.int64()) for one in counts)], names=PARTS.names)
    sums = table.group_by(names).aggregate([(name, "sum") for name in PARTS.names[len(keys) :]])
    summed = [*(sums[name] for name in names), *(sums[f"{name}_sum"] for name in PARTS.names[len(keys) :])]
    return pa.table(summed, names=PARTS.names).cast(PARTS).to_batches()


# -- from counts to coverage ---------------------------------------------------------------------------------


@dataclass
class _Counted:
    """Records of a logger in an hour. layouts: layout -> number of its records."""

    counts: dict[str, int]
    layouts: dict[str, int]
    is_traced: bool = False


def _counted(parts: Dicts, stored: Dicts) -> dict[tuple[datetime | None, str | None], _Counted]:
    """Return the counts by hour and logger. parts: rows of PARTS; stored: rows of `coverage`."""
    found: dict[tuple[datetime | None, str | None], _Counted] = {}
    for row in parts:
        one = found.setdefault((row["hour"], row["logger"]), _Counted(dict.fromkeys(COUNTS, 0), {}))
        for name in COUNTS:
            one.counts[name] += row[name]
        layout = row["layout"] or "-"
        one.layouts[layout] = one.layouts.get(layout, 0) + row["records"]
        one.is_traced |= row["traces"] > 0
    for row in stored:
        is_traced = row["logger"] == STATE_CHANGE and row["replica_states"] == "observed"
        found[row["hour"], row["logger"]] = _Counted(
            {name: row[name] for name in COUNTS}, dict(row["layouts"] or ()), is_traced
        )
    return found


def of_node(
    node: int | None, parts: Dicts, stored: Dicts, span: tuple[datetime, datetime] | None
) -> Iterator[dict[str, Any]]:
    """Yield one row for each hour and logger of a node: the columns of `coverage` without NODE.

    parts: rows of PARTS. stored: rows of `coverage` that are not counted again. span: first and last hour of
    the cluster's logs. state.change.logger prints replica states only at TRACE (its default up to 2.5); at
    INFO they can be inferred. An hour without records of this logger is `no_file` outside the time span of
    the node's file; inside it, nothing happened.
    """
    counted = _counted(parts, stored)
    loggers = {logger for _, logger in counted}
    # a KRaft controller that is no broker never writes a state-change.log
    if (
        node is not None
        and span is not None
        and (STATE_CHANGE in loggers or QUORUM_CONTROLLER not in loggers)
    ):
        for number in range((span[1] - span[0]) // HOUR + 1):
            counted.setdefault(
                (span[0] + number * HOUR, STATE_CHANGE), _Counted(dict.fromkeys(COUNTS, 0), {})
            )
    changes = {hour: one for (hour, logger), one in counted.items() if logger == STATE_CHANGE}
    written = [hour for hour, one in changes.items() if hour is not None and one.counts["records"]]
    if_not_traced = "observed" if any(one.is_traced for one in changes.values()) else "inferable"
    for (hour, logger), one in counted.items():
        controls = (logger or "").startswith("kafka.controller")
        if logger == STATE_CHANGE:
            is_within = bool(written) and hour is not None and min(written) <= hour <= max(written)
            is_covered = one.counts["records"] > 0 or is_within
            states, partitions = (
                ("observed" if one.is_traced else if_not_traced, "observed")
                if is_covered
                else ("no_file", "no_file")
            )
        else:
            states = "inferable" if controls else "not_logged"
            partitions = (
                "observed" if controls or logger in ("kafka.cluster.Partition", *REPLAYED) else "not_logged"
            )
        layouts = sorted(one.layouts.items())
        shown = {"replica_states": states, "partition_changes": partitions}
        yield {"hour": hour, "logger": logger, **one.counts, "layouts": layouts, **shown}


def coverage(
    events: Frame, passed_over: Frame, stored: Frame, schema: pa.Schema, again: Hours | None = None
) -> Frame:
    """Return `coverage`: one row for each node, hour and logger.

    in: EVENT_COLUMNS of `events` and PASSED_OVER_COLUMNS of `passed_over` in the hours that are counted.
    stored: the rows of `coverage` so far. schema: of `coverage`. again: the hours that are counted again; all
    other hours keep their stored rows. None: all hours are counted.
    """
    parts = computed(
        together(
            by_batch(select(events, *EVENT_COLUMNS), count_events, PARTS),
            by_batch(select(passed_over, *PASSED_OVER_COLUMNS), count_passed_over, PARTS),
        )
    )
    stays = above("records", 0) & (NONE if again is None else ~again.contain("hour"))
    others = where(stored, stays)
    spans: dict[str, list[datetime]] = {}
    for some in (parts, others):
        for row in extremes(where(some, is_known("hour")), ["cluster"], "hour"):
            spans.setdefault(row["cluster"], []).extend((row["first"], row["last"]))

    def fold(key: tuple[Any, ...], some: Dicts, stored: Dicts) -> Iterable[Mapping[str, Any]]:
        hours = spans.get(key[0])
        return of_node(key[1], some, stored, (min(hours), max(hours)) if hours else None)

    return map_groups(parts, others, NODE, fold, schema)
