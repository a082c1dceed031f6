"""Read the logs of a run into the tables and report on each cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from jobs.config import Cluster
from jobs.errors import InputError
from jobs.files import accounting, ingest
from jobs.files.ingest import LogFile
from jobs.landing import new_records
from jobs.location import SCHEME
from jobs.progress import stage, warn
from jobs.timelines import moment_of, zone_error
from parsers.explanation import counted, visible
from parsers.rules import RuleSet

if TYPE_CHECKING:
    from jobs.engine.in_process import Ahead
    from jobs.engine.run_tables import RunTables
    from jobs.timelines import ClusterFacts


_NOT_RECOGNISED = (
    "No statement of a Kafka controller or broker was recognised in its logs; `kafka-audit layout {}` shows how "
    "one is read. Another layout needs an entry in layouts.toml, and wrapped lines must be joined."
)


@dataclass(frozen=True)
class Outcome:
    """The result for one cluster; the counts are those of the whole run."""

    cluster: str
    records: int
    new: int
    out_of_scope: int
    unreadable: tuple[str, ...]
    problem: str | None
    now: datetime | None
    # rows of `inputs`
    inputs: tuple[dict[str, Any], ...] = ()


def read_logs(
    tables: RunTables,
    logs: Sequence[LogFile],
    ruleset: RuleSet,
    *,
    days: tuple[date, date] | None,
    remote: Sequence[Any],
    ahead: Ahead | None,
) -> tuple[Sequence[LogFile], new_records.IngestSummary]:
    """Read logs into the tables and return the logs that were read, and the counts.

    Where a log was removed meanwhile, the others are read again. remote, ahead: as for `new_records.land`. Raises
    InputError where no log is left.
    """
    files, left = list(logs), ingest.unchanged(list(logs))
    while True:
        if left != files:
            ahead = None
        warn_of(file for file in left if file not in files)
        files = left
        if not any(file.usable for file in files):
            raise InputError(nothing_found(files))
        try:
            with stage("read records") as doing:
                read = new_records.land(tables, files, ruleset, days=days, remote=remote, ahead=ahead)
                for note in read.notes():
                    doing.note(note)
            return files, read
        except Exception:
            left = ingest.unchanged(files)
            if left == files:
                raise


def outcome(
    cluster: Cluster,
    facts: ClusterFacts | None,
    files: Iterable[LogFile],
    read: new_records.IngestSummary,
    *,
    inputs: Iterable[dict[str, Any]],
    now: datetime | None,
) -> Outcome:
    """Return the result for a cluster.

    facts: None: nothing was recognised. files: of the run. inputs: rows of `inputs`. now: UTC; None: the
    newest record.
    """
    every = [file for file in files if file.cluster == cluster.name]
    mine = [file for file in every if file.kind != "checkpoint"]
    unreadable = tuple(f"{file.name}: {file.why}" for file in mine if file.kind == "unreadable")
    problem = None
    if not any(file.usable for file in mine):
        problem = nothing_found(mine)
    elif facts is None:
        problem = _NOT_RECOGNISED.format(visible(next(file for file in mine if file.usable).name))
    elif error := zone_error(facts.ordered_events):
        problem = _other_zone(error)
    if problem is None:
        unreadable += tuple(
            accounting.without_logs([one for one in cluster.logs if not SCHEME.match(one)], every)
        )
    newest = (
        moment_of(facts.evidence.newest).replace(tzinfo=None)
        if facts is not None and facts.evidence.newest >= 0
        else None
    )
    return Outcome(
        cluster.name,
        read.records,
        read.new,
        read.out_of_scope,
        unreadable,
        problem,
        now.replace(tzinfo=None) if now else newest,
        tuple(row for row in inputs if row["cluster"] == cluster.name),
    )


def warn_of(files: Iterable[LogFile]) -> None:
    """Warn of files that cannot be read."""
    for file in files:
        if file.kind == "unreadable":
            warn(f"{file.name}: {file.why}; skipped, all other files are read")


def nothing_found(files: Sequence[LogFile]) -> str:
    """Return why nothing can be audited, and what to do."""
    if not files:
        return "No file was found. Give the folder of controller.log and state-change.log."
    missing = [f for f in files if f.why == ingest.MISSING]
    if len(missing) == len(files):
        return f"{visible(missing[0].name)}: {ingest.MISSING}; give the folder of controller.log and state-change.log"
    unreadable = [f for f in files if f.kind == "unreadable"]
    empty = [f for f in files if f.kind == "empty"]
    count = sum(file.alike for file in files)
    if unreadable:
        return f"No readable log among {counted(count, 'file')}: {unreadable[0].name}: {unreadable[0].why}."
    if len(empty) == len(files):
        return f"{files[0].name} is empty." if count == 1 else f"All {count:,} files are empty."
    other = max(files, key=lambda file: ("skipped", "empty", "checkpoint", "unrelated").index(file.kind))
    what = other.why or (
        "it is the output of one of Kafka's tools" if other.kind == "checkpoint" else "it is empty"
    )
    return (
        f"None of {counted(count, 'file')} has a Kafka log record; for example, {visible(other.name)}: {what}. "
        "Give the folder of controller.log and state-change.log; `kafka-audit explain LINE` shows the rule of a line."
    )


def _other_zone(error: Any) -> str:
    """Return the message of a `timelines.clocks.ZoneError`."""
    minutes = round(abs(error.later) / 60e6)
    return (
        f"Its brokers print the same registrations {minutes // 60}:{minutes % 60:02d} h {'later' if error.later > 0 else 'earlier'} than its metadata log, "
        f"which is in UTC, has them (broker {error.broker}, epoch {error.broker_epoch}: records {error.record_id} and {error.metadata_record_id}): the logs "
        "are in another time zone than they were read in. Give it (--timezone, or timezone in audit.toml), and another folder for the tables."
    )
