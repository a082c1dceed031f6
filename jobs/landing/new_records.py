"""Write logs to table `events`: parse splits on all cores, drop duplicates, append the other records."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from jobs.batches.record_blocks import Block, Last, StoredRecords, cut_short, firsts, with_schema
from jobs.engine.conflicts import Conflict
from jobs.errors import ConservationError
from jobs.files import ingest
from jobs.files.ingest import LogFile, Split
from parsers.events import (
    EVENTS,
)
from parsers.rules import RuleSet, built_in

if TYPE_CHECKING:
    from jobs.engine.in_process import Ahead

# how often a run searches for duplicates again because another run has appended
MOST_LOOKS = 5


@dataclass(frozen=True)
class IngestSummary:
    """The counts of one run.

    new = recognised + unrecognised + drifted; records = new + stored before + out_of_scope.
    unfinished: records at the end of a file that are still being written; a later run reads them.
    completed: records that earlier runs read cut short and this run read whole.
    by_file: number of a file among those that are read -> the counts that `accounting.rows` reads.
    """

    lines: int
    records: int
    new: int
    recognised: int
    unrecognised: int
    drifted: int
    out_of_scope: int
    newly_counted: int
    unfinished: int
    completed: int
    by_file: Mapping[int, Counter[str]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return the counts as notes for people."""
        found = [
            f"{self.lines:,} lines",
            f"{self.records:,} records",
            f"{self.new:,} new",
            f"{self.out_of_scope:,} of loggers out of scope",
        ]
        if self.unfinished:
            found.append(f"{self.unfinished:,} not written out yet, at the end of a file")
        return found


# -- parsing -----------------------------------------------------------------------------------------------


# -- duplicates --------------------------------------------------------------------------------------------


class Parsed(Protocol):
    """Parsed splits: `InProcess`, `OnWorkers` or `OnPool` of `jobs.engine`."""

    splits: Sequence[Split]
    blocks: list[Block]

    def duplicates(self, table: str, stored: "StoredRecords") -> tuple[Any, int]:
        """Return the records that are duplicates, in this run or stored, and their number."""

    def records_at(self, moments: set[datetime]) -> list[Last]:
        """Return the records that have one of these time stamps."""

    def append(self, store: Any, table: str, dropped: Any, cut_short: set[str], after: int) -> Counter[str]:
        """Append the rows that are no duplicates; return the number of records by kind.

        after: the commit up to which duplicates were searched.
        """

    def close(self) -> None:
        """Free memory and files."""


# -- records that were cut short ---------------------------------------------------------------------------


def _incomplete(store: Any, clusters: Sequence[str], parsed: "Parsed") -> tuple[set[str], set[str]]:
    """Return the ids of records that were cut short and are whole elsewhere: (this run's, earlier runs')."""
    from jobs.engine.rows import at_one_of, is_known, is_true, to_table

    def stored(condition: Any) -> list[Last]:
        if store.has_none("events"):
            return []
        return firsts(
            to_table(store.read("events", clusters, condition & is_known("ts"), [*Last._fields, "item"]))
        )

    ends = [block.last for block in parsed.blocks if block.last and block.last.ts]
    early = stored(is_true("ends_file"))
    fresh = parsed.records_at({last.ts for last in [*ends, *early] if last.ts})
    return cut_short(
        ends, [*fresh, *stored(at_one_of("ts", [last.ts for last in ends if last.ts]))]
    ), cut_short(early, fresh)


# -- landing -----------------------------------------------------------------------------------------------


def _clusters(files: Sequence[LogFile]) -> list[str]:
    return sorted({file.cluster for file in files if file.usable})


def land(
    store: Any,
    files: Sequence[LogFile],
    ruleset: RuleSet | None = None,
    *,
    days: tuple[date, date] | None = None,
    remote: Sequence[Any] = (),
    ahead: "Ahead | None" = None,
) -> IngestSummary:
    """Append new records to `events` and `passed_over`; a second call adds nothing.

    days: first and last day of the records, in the zone of the log; None: all. remote: the `remote.Remote` of
    files at URIs.
    ahead: the same files, if they are being parsed. Raises ConservationError where a record is lost.
    """
    from jobs.engine.rows import run_concurrently

    clusters = _clusters(files)
    parsed: Parsed = store.parsed(files, ruleset, days, remote) if ahead is None else ahead.parsed()
    try:
        totals, files_read = conserved(parsed.splits, parsed.blocks), by_file(parsed.blocks)
        (appended, completed), (skipped, _) = run_concurrently(
            lambda: _land(store, clusters, parsed, "events", totals["in_scope"]),
            lambda: _land(store, clusters, parsed, "passed_over", totals["out_of_scope"]),
        )
    finally:
        parsed.close()
    return IngestSummary(
        lines=totals["lines"],
        records=totals["in_scope"] + totals["out_of_scope"],
        new=appended["records"],
        recognised=appended["recognised"],
        unrecognised=appended["records"] - appended["recognised"] - appended["drifted"],
        drifted=appended["drifted"],
        out_of_scope=totals["out_of_scope"],
        newly_counted=skipped["records"],
        unfinished=totals["unfinished"],
        completed=completed,
        by_file=files_read,
    )


def conserved(splits: Sequence[Split], blocks: Iterable[Block]) -> Counter[str]:
    """Return the counts of all blocks. Raises ConservationError where a line or a record is missing."""
    totals = Counter[str]()
    lines = Counter[tuple[int, int]]()
    for one in blocks:
        totals.update(one.counts)
        lines[one.place] += one.counts["lines"]
    for split, after in pairwise(splits):
        if split.number == after.number:
            conserve(
                f"lines of {split.file.name}", after.line_no - split.line_no, lines[split.number, split.begin]
            )
    conserve("records begun", totals["begun"], totals["records"] + totals["unfinished"])
    conserve(
        "records read", totals["records"], totals["in_scope"] + totals["out_of_scope"] + totals["other_days"]
    )
    return totals


def by_file(blocks: Iterable[Block]) -> dict[int, Counter[str]]:
    """Return the counts of each file, by its number. Lines are counted before they are joined."""
    found = defaultdict[int, Counter[str]](Counter)
    for one in blocks:
        found[one.place[0]].update(one.counts)
        found[one.place[0]]["lines"] += one.counts["joined"]
    return dict(found)


def conserve(what: str, expected: int, found: int) -> None:
    """Raise ConservationError unless the numbers are the same: no record may be lost or counted twice."""
    if found != expected:
        raise ConservationError(
            f"{expected:,} {what}, but {found:,} of them accounted for; please report this with the log"
        )


def _land(
    store: Any, clusters: Sequence[str], parsed: "Parsed", table: str, read: int
) -> tuple[Counter[str], int]:
    """Return (counts of appended records, number of earlier records that they complete).

    read: number of records for the table.
    Raises ConservationError unless each record is appended or a duplicate.
    """
    if not read:
        return Counter(), 0
    for _ in range(MOST_LOOKS):
        try:
            return _land_once(store, clusters, parsed, table, read)
        except Conflict:
            # another run has appended after the search for duplicates, so more records may be duplicates
            store.forget(table)
    raise Conflict.on(table)


def _land_once(
    store: Any, clusters: Sequence[str], parsed: "Parsed", table: str, read: int
) -> tuple[Counter[str], int]:
    """Do the same as `_land`, once.

    Raises Conflict, before anything is appended, where another run has appended.
    """
    seen = store.looked_at(table)
    dropped, duplicates = parsed.duplicates(table, StoredRecords.of(store, clusters, table, parsed.blocks))
    incomplete, completed = set[str](), set[str]()
    if table == "events" and 0 < duplicates < read:  # one of two equal records may be cut short
        incomplete, completed = _incomplete(store, clusters, parsed)
    if completed:
        from jobs.engine.rows import one_of

        store.delete(table, one_of("record_id", completed))
        before, seen = seen, store.version(table)
        if seen > before + 1:
            raise Conflict.on(table)
    appended = parsed.append(store, table, dropped, incomplete, seen) if duplicates < read else Counter[str]()
    accounted = appended["records"] + duplicates
    # a record that is cut short may be a duplicate, too
    conserve(
        f"records for {table}", read, read if accounted <= read <= accounted + len(incomplete) else accounted
    )
    return appended, len(completed)


def events_of(
    logs: Sequence[str], cluster: str = "cluster", timezone: str = "UTC", ruleset: RuleSet | None = None
) -> pa.Table:
    """Return the events of some logs (files, globs, folders) without duplicates, with the columns of table
    `events`. No Spark.
    """
    from jobs.engine.in_process import parsed_in_process

    ruleset = ruleset or built_in()
    parsed = parsed_in_process(ingest.find(ingest.Cluster(cluster, tuple(logs), timezone), ruleset), ruleset)
    return with_schema(parsed.rows("events", parsed.duplicates("events")[0], set()), EVENTS)
