"""The command `findings`: list findings, or show one with its evidence and the lines around it."""

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobs import errors, terminal
from jobs.analysis import opened, plain, rows_where
from jobs.arguments import add_command
from jobs.checking.finding_identity import known_as
from jobs.checking.ranking import is_never_hidden, worst_first
from jobs.engine import Tables
from jobs.engine.literals import moment as moment_literal
from jobs.engine.literals import one_of, quoted
from jobs.errors import UsageError
from jobs.globs import matches
from jobs.reporting import output
from parsers.explanation import counted, visible
from schemas import SEVERITIES, moments, wording

EXAMPLES = """\
examples:
  kafka-audit findings --tables /data/audit
  kafka-audit findings --tables /data/audit --severity error --topic 'orders*' --status open
  kafka-audit findings 3f9c0a12 --tables /data/audit            # one finding, its proof, and what all nodes logged around it
  kafka-audit findings --tables /data/audit --json              # one object a finding
  kafka-audit findings --tables /data/audit --output-format markdown     # a table for a ticket
"""
OPEN = ("new", "open", "reopened")
STATUSES = ("open", "new", "reopened", "resolved", "all")
# most resolved findings below error that are listed, unless --status resolved asks for all
OVER = 10
# most records of a finding that are shown with those around them, and the greatest distance in minutes
ANCHORS = 5
AROUND_MINUTES = 60
RAW = 300

Row = dict[str, Any]


def add_arguments(commands: Any) -> None:
    """Add `findings` to the command line."""
    command = add_command(
        commands,
        "findings",
        run,
        "--tables",
        summary="what is wrong; one finding with its evidence in context",
        examples=EXAMPLES,
    )
    command.add_argument(
        "fingerprint", nargs="?", metavar="FINGERPRINT", help="one finding; its first characters are enough"
    )
    command.add_argument("--check", metavar="GLOB", help="only findings of such checks")
    command.add_argument("--cluster", metavar="GLOB")
    command.add_argument("--topic", metavar="GLOB", help="only findings about a partition of such topics")
    command.add_argument("--severity", choices=tuple(reversed(SEVERITIES)), help="from this severity on")
    command.add_argument(
        "--status",
        choices=STATUSES,
        default="all",
        help="open: new, open and reopened ones (default: all, what is over last)",
    )
    command.add_argument(
        "--lines", type=int, default=3, metavar="N", help="lines of each node before and after (default 3)"
    )
    output.add_arguments(command, json_help="JSON Lines, the same as --output-format json")


def run(options: argparse.Namespace) -> int:
    """Print findings and return the exit code. Raises UsageError."""
    names = (
        ("findings", "events")
        if options.fingerprint
        else ("findings", "finding_subjects")
        if options.topic
        else ("findings",)
    )
    tables = opened(options.tables, names)
    rows = [
        {"silenced": False, "silence": None, "caused_by": None} | row
        for row in rows_where(tables, "findings", "true")
    ]
    if options.fingerprint:
        finding = found_by(options.fingerprint, rows)
        proof, lines = _around(tables, finding, max(options.lines, 0))
        if options.output_format == "json":
            parts = {"proof": [vars(line) for line in proof], "context": [vars(line) for line in lines]}
            print(json.dumps(plain(finding | parts)))
        elif options.output_format != "text":
            terminal.show(output.findings(options.output_format, [finding]), styled=False)
        else:
            terminal.show(in_full(finding, proof, lines))
        return errors.CLEAN
    about = _about_topic(tables, options.topic) if options.topic else frozenset()
    selected = [row for row in rows if is_selected(row, options, about)]
    if options.output_format == "json":
        for row in sorted(selected, key=worst_first):
            print(json.dumps(plain(row | {"silenced": bool(row["silenced"])})))
    elif options.output_format != "text":
        terminal.show(output.findings(options.output_format, selected), styled=False)
    else:
        terminal.show(listed(selected, len(rows), everything=options.status == "resolved"))
    return errors.CLEAN


def _about_topic(tables: Tables, topic: str) -> frozenset[str]:
    """Return the fingerprints of findings with a subject in matching topics.

    A finding about several topics has no topic itself.
    """
    if not tables.has("finding_subjects"):
        return frozenset()
    rows = tables.query("SELECT DISTINCT fingerprint, topic FROM finding_subjects").rows()
    return frozenset(row["fingerprint"] for row in rows if matches([topic], row["topic"]))


def is_selected(row: Row, options: argparse.Namespace, about: Container[str] = ()) -> bool:
    """Return whether the filters select a finding.

    about: fingerprints of findings with a subject in the selected topics.
    """
    status = {"all": (*OPEN, "resolved"), "open": OPEN}.get(options.status, (options.status,))
    least = SEVERITIES.index(options.severity) if options.severity else 0
    return (
        row["status"] in status
        and SEVERITIES.index(row["severity"]) >= least
        and (options.check is None or matches([options.check], row["check_id"]))
        and (options.cluster is None or matches([options.cluster], row["cluster"]))
        and (options.topic is None or row["fingerprint"] in about or _is_named(row["topic"], options.topic))
    )


def _is_named(topic: str | None, glob: str) -> bool:
    return topic is not None and matches([glob], topic)


def found_by(fingerprint: str, rows: Sequence[Row]) -> Row:
    """Return the finding whose fingerprint begins like this.

    Raises UsageError where it is none, or several.
    The fingerprint that people know (`known_as`) has priority.
    """
    begin = fingerprint.lower()
    found = [row for row in rows if known_as(row).startswith(begin)] or [
        row for row in rows if row["fingerprint"].startswith(begin)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"{len(found)} findings begin with {visible(fingerprint)}: {', '.join(known_as(r)[:16] for r in found[:5])}"
        )
    near = difflib.get_close_matches(fingerprint, [known_as(row)[: len(fingerprint)] for row in rows], 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else "; `kafka-audit findings` lists them"
    raise UsageError(f"No finding begins with {visible(fingerprint)}{hint}")


def listed(rows: Sequence[Row], known: int, everything: bool = False) -> Iterator[str]:
    """Yield findings as lines, the worst first, resolved ones last; every error is listed.

    known: their number without filters.
    """
    now = sorted((row for row in rows if row["status"] != "resolved"), key=worst_first)
    over = [row for row in rows if row["status"] == "resolved"]
    if not rows:
        yield "No findings." if not known else f"None of the {known:,} findings matches."
    for row in now:
        yield from _entry(row)
    minor = sorted(
        (row for row in over if not is_never_hidden(row)), key=lambda row: str(row["last_seen"]), reverse=True
    )
    shown = sorted(
        [row for row in over if is_never_hidden(row)] + (minor if everything else minor[:OVER]),
        key=worst_first,
    )
    if shown and not everything:
        yield f"Resolved ({len(over):,}):"
    for row in shown:
        yield from _entry(row)
    if len(shown) < len(over):
        yield f"  and {len(over) - len(shown):,} more: --status resolved"


def _entry(row: Row) -> Iterator[str]:
    yield f"{known_as(row)[:16]}  {row['severity']}, {row['status']}  {visible(row['title'])}"
    silence = f"; silenced: {visible(row['silence'] or '')}" if row["silenced"] else ""
    caused = f"; caused by {row['caused_by'][:16]}" if row["caused_by"] else ""
    yield f"{'':16}  {visible(row['cluster'])}, {when(row)}{caused}{silence}"


def span(row: Row) -> str:
    """Return the time of a finding, such as `2026-11-20 10:09:12.175 to 10:31:00.000 UTC (21 min 47 s)`."""
    return (
        "no time stamps" if row["first_seen"] is None else moments.span(row["first_seen"], row["last_seen"])
    )


def when(row: Row) -> str:
    """Return the span of a resolved finding, or the begin of an open one."""
    if row["status"] == "resolved" or row["first_seen"] is None:
        return span(row)
    seen = f", last seen at {moments.moment(row['last_seen'], row['first_seen'])}" if row["last_seen"] else ""
    return f"since {moments.moment(row['first_seen'])}{seen}"


# -- one finding -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogLine:
    """A record of any node. evidence: it is part of the proof."""

    ts: datetime | None
    node: int | None
    file: str
    record_no: int
    raw: str
    record_id: str
    evidence: bool
    anchor: int


def _around(tables: Tables, finding: Row, lines: int) -> tuple[list[LogLine], list[LogLine]]:
    """Return (the finding's records, some of them with lines of each node around), by time."""
    cluster, incarnation = quoted(finding["cluster"]), finding["incarnation"]
    about = f"cluster = {cluster} AND incarnation = {incarnation} AND item = 0"
    of_proof = f"SELECT {LINE} FROM events WHERE {about} AND {one_of('record_id', finding['evidence'])} ORDER BY ts, file, record_no"
    proof = tables.query(of_proof).rows()
    anchors = [*proof[: ANCHORS - 1], *proof[ANCHORS - 1 :][-1:]]
    proven = {row["record_id"] for row in proof}
    found: dict[str, LogLine] = {}
    for number, anchor in enumerate(anchors):
        for row in [anchor, *(_neighbours(tables, about, anchor, lines) if lines else [])]:
            line = LogLine(**row, evidence=row["record_id"] in proven, anchor=number)
            found.setdefault(row["record_id"], line)
    around = sorted(
        found.values(), key=lambda line: (line.ts is None, line.ts or 0, line.file, line.record_no)
    )
    return [LogLine(**row, evidence=True, anchor=number) for number, row in enumerate(proof)], around


LINE = "ts, node, file, record_no, record_id, substring(raw, 1, 2000) AS raw"


def _neighbours(tables: Tables, about: str, anchor: Row, lines: int) -> list[Row]:
    """Return the records around one: by node and time, or by file and number without time stamps.

    about: an SQL condition.
    """
    ts, file, number = anchor["ts"], quoted(anchor["file"]), anchor["record_no"]

    def side(later: bool) -> str:
        than, end, way = (">", 1, "ASC") if later else ("<", -1, "DESC")
        if ts is None:
            near, order = f"file = {file} AND record_no {than} {number}", f"record_no {way}"
        else:
            at, limit = moment_literal(ts), moment_literal(ts + timedelta(minutes=end * AROUND_MINUTES))
            first, last = (at, limit) if later else (limit, at)
            beyond = f"(ts {than} {at} OR ts = {at} AND (file {than} {file} OR file = {file} AND record_no {than} {number}))"
            near = f"ts BETWEEN {first} AND {last} AND {beyond}"
            order = f"ts {way}, file {way}, record_no {way}"
        return f"SELECT {LINE}, row_number() OVER (PARTITION BY node ORDER BY {order}) AS distance FROM events WHERE {about} AND {near}"

    names = "ts, node, file, record_no, record_id, raw"
    found = tables.query(
        f"SELECT {names} FROM ({side(False)} UNION ALL {side(True)}) WHERE distance <= {lines}"
    )
    return found.rows()


def in_full(finding: Row, proof: Sequence[LogLine], lines: Sequence[LogLine]) -> Iterator[str]:
    """Yield one finding as text: its records, then what all nodes logged around some of them."""
    yield f"{visible(finding['title'])}"
    yield f"  {finding['severity']}, {finding['status']}, {visible(finding['cluster'])}, {when(finding)}"
    if finding["silenced"]:
        yield f"  silenced: {visible(finding['silence'] or '')}"
    yield f"  check {finding['check_id']}, fingerprint {known_as(finding)}"
    if finding["caused_by"]:
        yield f"  caused by {finding['caused_by']}"
    if finding["detail"]:
        yield f"  {visible(finding['detail'])}"
    if finding.get("advice"):
        yield f"  What to do: {visible(finding['advice'])}"
    words = wording.wordings().get(finding["check_id"])
    if words is not None:
        yield f"  Why it matters: {' '.join(words.why.split())}"
    yield ""
    missing = len(finding["evidence"]) - len(proof)
    yield f"Proof: {counted(len(proof), 'record')}{f' ({missing:,} more not in these tables)' if missing else ''}, by time:"
    for line in proof:
        yield from _line(line)
    if len(lines) == sum(line.evidence for line in lines):
        return
    nodes = Counter(line.node for line in lines)
    yield ""
    yield f"Around it, from the logs of {counted(len(nodes), 'node')} (> marks the proof):"
    before: LogLine | None = None
    for line in lines:
        if before is not None and line.anchor != before.anchor:
            yield "  .."
        yield from _line(line)
        before = line


def _line(line: LogLine) -> Iterator[str]:
    node = "node ?" if line.node is None else f"node {line.node}"
    text = visible(line.raw.split("\n", 1)[0])
    yield f"{'>' if line.evidence else ' '} {node}  {text if len(text) <= RAW else text[: RAW - 1] + '…'}"
    yield f"          {visible(line.file)}:{line.record_no}"
