"""The command `reassignment`: show the outcome of a reassignment plan, from the tables alone."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import schemas
from jobs import analysis, errors, terminal
from jobs.arguments import add_command, parsed_moment
from jobs.engine import Tables
from jobs.engine.literals import one_of
from jobs.errors import UsageError
from jobs.operators import plans
from jobs.progress import warn
from parsers.explanation import visible
from schemas.moments import moment

EXAMPLES = """\
statuses:
  not_requested      no line shows it
  never_started      asked for, and nothing followed
  running            in phase U (assignment written), A (replicas catch up) or B (caught up, roles change hands)
  completed          its replicas are those of the plan
  cancelled          it ended with other replicas
  replaced           another plan took its place
  failed             refused; the line says why
  already_there      nothing was to be done
  not_known          these logs cannot show it; the reason says why

examples:
  kafka-audit reassignment plan.json --tables /data/audit
  kafka-audit reassignment plan.json --tables /data/audit --at 2026-03-01T04:00:00Z --json
  kafka-audit reassignment execute-output.txt --tables /data/audit
  kafka-audit reassignment plan.json --tables /data/audit --format verify-old
  kafka-audit reassignment plan.json --tables /data/audit --rollback > rollback.json

exit codes: 0 every partition is completed or already there, 1 not, 2 wrong usage or no plan
"""
MAX_PLAN = 256 * 1024 * 1024  # bytes; a plan of a million partitions has some 100 MB
# log lines of KRaft controllers that have each change of a partition
# (PartitionRegistration.maybeLogPartitionChange)
PRINTS_ALL = (
    "level IN ('DEBUG', 'TRACE') AND logger = 'org.apache.kafka.controller.ReplicationControlManager'"
)
EVENT_COLUMNS = (
    "ts",
    "topic",
    "partition",
    "event_type",
    "target_replicas",
    "replicas",
    "removing_replicas",
    "start_offset",
    "end_offset",
    "high_watermark",
    "raw",
    "record_no",
)


def add_arguments(commands: Any) -> None:
    """Add `reassignment` to the command line."""
    command = add_command(
        commands,
        "reassignment",
        run,
        "--tables --cluster",
        summary="what became of a plan of kafka-reassign-partitions",
        examples=EXAMPLES,
    )
    command.add_argument(
        "plan",
        metavar="PLAN.json",
        help="what --reassignment-json-file takes, or --generate or --execute printed; '-' reads stdin",
    )
    command.add_argument(
        "--at", metavar="TIME", help="as it was at this moment (default: the end of the logs)"
    )
    form = command.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=["verify", "verify-old"],
        help="the words of kafka-reassign-partitions --verify: 2.6 and later, before",
    )
    form.add_argument(
        "--rollback", action="store_true", help="the plan that brings the partitions back, as JSON"
    )
    form.add_argument("--json", action="store_true", help="JSON Lines")


def run(options: argparse.Namespace) -> int:
    """Print the outcome of each move; the exit code says whether all are done. Raises UsageError."""
    moves = _moves(options.plan)
    at = parsed_moment(options.at, "--at") if options.at else None
    if "partition_timeline" not in analysis.present(options.tables):
        raise UsageError(
            f"--tables {options.tables} has no partition_timeline; run `kafka-audit audit` on it first"
        )
    tables = analysis.opened(options.tables, ("partition_timeline", "replica_timeline", "events"))
    name, rows = _rows(tables, moves, options.cluster)
    verdicts, version = _judged(tables, name, rows, moves, at)
    for verdict in verdicts if options.format else ():
        if verdict.status == "not_known":
            warn(f"{visible(verdict.topic)}-{verdict.partition} is not known: {visible(verdict.reason)}")
    if options.rollback:
        print(plans.rollback(verdicts))
    elif options.format == "verify-old":
        sys.stdout.write(plans.verify_old_text(verdicts))
    elif options.format == "verify":
        sys.stdout.write(
            plans.verify_text(
                verdicts, "complete" if 0 < version < schemas.version_number("3.0.0") else "completed"
            )
        )
    else:
        now = at or max(
            (ts for row in rows for ts in (row["valid_from"], row["valid_to"]) if ts), default=None
        )
        terminal.show(as_json(verdicts, now) if options.json else as_text(name, verdicts, now), styled=False)
    return errors.CLEAN if all(verdict.done for verdict in verdicts) else errors.FINDINGS


def _moves(given: str) -> list[plans.PlannedMove]:
    try:
        with nullcontext(sys.stdin.buffer) if given == "-" else Path(given).open("rb") as source:
            data = source.read(MAX_PLAN + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{given}: {error.strerror}; give the file of --reassignment-json-file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{given} is no text; give the file of --reassignment-json-file") from None
    if len(data) > MAX_PLAN:
        raise UsageError(f"{given} is larger than {MAX_PLAN // 1024 // 1024} MB; a plan is not")
    try:
        return plans.parse(text)
    except plans.PlanError as error:
        raise UsageError(f"{given} {error}") from None


def _rows(
    tables: Tables, moves: Sequence[plans.PlannedMove], cluster: str | None
) -> tuple[str, list[analysis.Row]]:
    """Return the cluster of a plan and the rows of partition_timeline of its topics. Raises UsageError.

    The rows are those of the last incarnation.
    """
    topics = sorted({move.topic for move in moves})
    rows = analysis.rows_where(tables, "partition_timeline", one_of("topic", topics))
    clusters = sorted({row["cluster"] for row in rows})
    if not rows:
        named = ", ".join(map(visible, topics[:3])) + (
            f" and {len(topics) - 3} more" if len(topics) > 3 else ""
        )
        raise UsageError(
            f"No log knows a topic of the plan ({named}); are these the tables of another cluster?"
        )
    if cluster is not None and cluster not in clusters:
        raise UsageError(
            f"Cluster {visible(cluster)} knows no topic of the plan; {', '.join(map(visible, clusters))} does"
        )
    if cluster is None and len(clusters) > 1:
        named = ", ".join(map(visible, clusters[: analysis.NEAR]))
        raise UsageError(
            f"Topics of the plan are in {len(clusters)} clusters; say which one with --cluster: {named}"
        )
    mine = [row for row in rows if row["cluster"] == (cluster or clusters[0])]
    last = max(row["incarnation"] for row in mine)
    return cluster or clusters[0], [row for row in mine if row["incarnation"] == last]


def _judged(
    tables: Tables,
    name: str,
    rows: list[analysis.Row],
    moves: Sequence[plans.PlannedMove],
    at: datetime | None,
) -> tuple[list[plans.Verdict], int]:
    """Return (verdicts in the order of the plan, the Kafka version as a number, 0 if no line shows it)."""
    asked = {(move.topic, move.partition) for move in moves}
    of_cluster = one_of("cluster", [name])
    of_topics = f"{of_cluster} AND {one_of('topic', sorted({topic for topic, _ in asked}))}"
    is_relevant = f"({one_of('event_type', [*plans.REFUSED, *plans.REQUESTED])} OR coalesce(start_offset, end_offset, high_watermark) > 0)"
    events = analysis.rows_where(
        tables, "events", f"{of_topics} AND partition IS NOT NULL AND {is_relevant}", EVENT_COLUMNS
    )
    events.sort(key=lambda event: (event["ts"] is not None, event["ts"], event["record_no"]))
    states = analysis.rows_where(tables, "replica_timeline", of_topics)
    versions = analysis.rows_where(
        tables, "events", f"{of_cluster} AND kafka_version IS NOT NULL", ("ts", "kafka_version")
    )
    (debug,) = tables.query(f"SELECT min(ts) AS since FROM events WHERE {of_cluster} AND {PRINTS_ALL}").rows()
    debug_since = debug["since"]
    ordered = not any(event["event_type"] == "reassignment_requested" for event in events)
    intervals = _by_partition(rows, asked)
    events_until = _by_partition((e for e in events if at is None or (e["ts"] and e["ts"] <= at)), asked)
    in_kraft = {(s["topic"], s["partition"]) for s in states if (s["state"] or "").startswith("KRaft")}
    states_then = _by_partition(
        (s for s in states if (s["valid_to"] is None if at is None else analysis.covers(s, at))), asked
    )

    def judged(move: plans.PlannedMove) -> plans.Verdict:
        key = move.topic, move.partition
        history = plans.history(intervals.get(key, ()), at, ordered)
        return plans.judge(
            move,
            history,
            events_until.get(key, ()),
            {row["replica"]: row["state"] for row in states_then.get(key, ())},
            prints_all=key not in in_kraft or _is_all_printed(history, debug_since),
        )

    verdicts = [judged(move) for move in moves]
    known = [
        schemas.version_number(row["kafka_version"])
        for row in versions
        if at is None or (row["ts"] and row["ts"] <= at)
    ]
    return verdicts, max(known, default=0)


def _is_all_printed(history: plans.PartitionHistory, debug_since: datetime | None) -> bool:
    """Return whether the logs of a KRaft cluster have every change after the last one that they show.

    A dump of the metadata log has every change, and so do controllers at DEBUG. debug_since: time of their
    first DEBUG line.
    """
    if history.now is None or debug_since is None:
        return history.now is not None and history.now["source"] == "metadata_log"
    begin = history.now["valid_from"]
    return history.now["source"] == "metadata_log" or (begin is not None and debug_since <= begin)


def _by_partition(
    rows: Iterable[analysis.Row], asked: set[tuple[str, int]]
) -> dict[tuple[str, int], list[analysis.Row]]:
    found: dict[tuple[str, int], list[analysis.Row]] = {}
    for row in rows:
        if (row["topic"], row["partition"]) in asked:
            found.setdefault((row["topic"], row["partition"]), []).append(row)
    return found


def as_json(verdicts: Sequence[plans.Verdict], now: datetime | None) -> Iterator[str]:
    """Return JSON Lines.

    expected_end: the estimate for the whole plan, at each move that is still running.
    """
    end = plans.expected_end(verdicts, now) if now else None
    for verdict in verdicts:
        values = {**vars(verdict), "expected_end": end if verdict.status == "running" else None}
        yield json.dumps({name: analysis.plain(value) for name, value in values.items()})


def as_text(name: str, verdicts: list[plans.Verdict], now: datetime | None) -> Iterator[str]:
    """Return the lines for people. now: the moment of the verdicts."""
    when = f" at {moment(now)}" if now else ""
    yield f"{len(verdicts)} partitions of the plan in {visible(name)}{when}"
    heads = ("partition", "to", "status", "ph", "begun", "caught up", "completed", "seconds U/A/B")
    yield from analysis.text_table(heads, [_cells(verdict) for verdict in verdicts], terminal.width())
    yield ""
    for verdict in verdicts:
        if verdict.status != "completed" or verdict.replicas_unknown:
            yield f"{visible(verdict.topic)}-{verdict.partition}: {visible(verdict.reason)}"
    counts = Counter(verdict.status for verdict in verdicts)
    yield ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    offsets = [verdict.offset for verdict in verdicts if verdict.offset is not None]
    if offsets:
        yield f"Logged offsets: {sum(offsets):,} in {len(offsets)} partitions (records, not bytes; the logs show no bytes)"
    if now and (end := plans.expected_end(verdicts, now)):
        added, left = plans.progress(verdicts)
        yield f"Expected end: {moment(end)}, an estimate from the pace so far: {added - left} of {added} added replicas are in the ISR"


def _cells(verdict: plans.Verdict) -> list[Any]:
    times = [
        moment(ts) if ts else None for ts in (verdict.started_at, verdict.caught_up_at, verdict.completed_at)
    ]
    seconds = "/".join(str(verdict.phases.get(phase, "-")) for phase in "UAB") if verdict.phases else None
    to = ",".join(map(str, verdict.target_replicas or ())) or "?"
    return [f"{verdict.topic}-{verdict.partition}", to, verdict.status, verdict.phase, *times, seconds]
