"""Build the verdict of a run: short text for a person, or one JSON object."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.checking import harms, story_harms
from jobs.checking.finding_identity import known_as
from jobs.checking.harms import Harm
from jobs.checking.ranking import is_never_hidden, is_over, worst_first
from jobs.checking.window import Window
from jobs.engine import queries
from jobs.engine.queries import Queries
from jobs.engine.rows import quoted, to_dicts
from jobs.engine.run_tables import RunTables
from parsers.explanation import counted
from schemas import SEVERITIES
from schemas.durations import two_units
from schemas.moments import moment

# most causes with detail and proof, and most infos by title; each further error has a line of its own
SHOWN, SHOWN_INFOS = 10, 3
# errors that an earlier run resolved and that ended before this time are only counted
RECENT = timedelta(days=7)
# a story that was last seen this long before the end of the logs is not called ongoing
STILL_SO = timedelta(minutes=1)
# most findings of one check in one cluster with their first record
PROVEN = 25
# most masked texts that no rule reads
UNKNOWN = 50
SHOWN_UNKNOWN = 3
# most effects below their cause, except errors; most records of a finding with text; most partitions by name
SHOWN_EFFECTS = 3
RECORDS = 5
NAMED = 20
# table -> name of a count -> its SQL
COUNTED = {
    "partition_timeline": {
        "partitions": "count(DISTINCT incarnation, topic, partition)",
        "intervals": "count(*)",
    },
    "reassignments": {"reassignments": "count(*)"},
    "topic_deletions": {"topic deletions": "count(*)"},
    "controllers": {"controller terms": "count(*)"},
}


Story = tuple[dict[str, Any], list[dict[str, Any]]]


@dataclass(frozen=True)
class RunResults:
    """The content of the tables about the clusters of a run, after the run."""

    findings: list[dict[str, Any]]
    counts: dict[str, dict[str, int]]
    not_shown: dict[str, list[str]]
    proof: dict[str, dict[str, Any]]
    # rows of the view unknown_statements by cluster, the most frequent first
    unknown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # fingerprint -> its subjects: partitions (number), first (topic, partition), some (names), replicas,
    # topics
    subjects: dict[str, dict[str, Any]] = field(default_factory=dict)
    # fingerprint of each finding of a story -> the story's harm to producers and consumers
    harms: dict[str, list[Harm]] = field(default_factory=dict)


def read(store: RunTables, clusters: list[str], now: Mapping[str, datetime | None]) -> RunResults:
    """Read findings, their harm, counts and gaps of the clusters.

    now: cluster -> the moment that its findings are measured against.
    """
    tables = {
        name: store.read(name, clusters) for name in (*COUNTED, "coverage", "finding_subjects", "durability")
    }
    asked = queries.over(store.spark, tables.values())
    for name, rows in tables.items():
        asked.view(f"stored_{name}", rows)
    findings, proof = _findings(store, clusters)
    counts, not_shown, unknown = _counts(store, asked, clusters)
    return RunResults(
        findings,
        counts,
        not_shown,
        proof,
        unknown,
        _subjects(asked),
        story_harms.of_stories(asked, findings, now),
    )


def _findings(
    store: RunTables, clusters: list[str]
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the findings, worst first, with moments in UTC without a zone.

    And record_id -> record for the first PROVEN of a check.
    """
    findings = sorted(
        (_without_zone(row) for row in to_dicts(store.read("findings", clusters))), key=worst_first
    )
    ids = []
    so_far: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        kind = (finding["cluster"], finding["check_id"])
        so_far[kind] += 1
        if so_far[kind] <= PROVEN:
            ids += finding["evidence"][:RECORDS]
    if not ids:
        return findings, {}
    columns = ["record_id", "item", "file", "record_no", "raw"]
    records = store.records(clusters, ids, columns, (finding["first_seen"] for finding in findings))
    return findings, {row["record_id"]: row for row in records.to_pylist() if row.pop("item") == 0}


def _without_zone(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def _counts(
    store: RunTables, asked: Queries, clusters: list[str]
) -> tuple[dict[str, dict[str, int]], dict[str, list[str]], dict[str, list[dict[str, Any]]]]:
    """Return by cluster: counts, what its logs do not show, frequent texts that no rule reads."""
    counts: dict[str, dict[str, int]] = {name: {} for name in clusters}
    not_shown: dict[str, list[str]] = {name: [] for name in clusters}
    some = [
        f"SELECT cluster, {quoted(name)} AS name, {aggregate} AS things FROM stored_{table} GROUP BY cluster"
        for table, things in COUNTED.items()
        for name, aggregate in things.items()
    ]
    for row in asked.rows(*some):
        counts[row["cluster"]][row["name"]] = row["things"]
    numbers = ("records", "recognised", "unrecognised", "drifted", "out_of_scope")
    for row in asked.rows(
        f"""SELECT cluster, {", ".join(f"sum({name}) AS {name}" for name in numbers)}, count_if(replica_states = 'observed') AS traced,
          array_sort(collect_set(CASE WHEN replica_states = 'no_file' THEN node END)) AS no_file,
          count_if(node IS NULL AND records > 0 AND coalesce(substring(logger, 1, 2) <> '__', true)) AS no_node,
          count_if(logger LIKE 'org.apache.kafka.controller.%') AS quorum
        FROM stored_coverage GROUP BY cluster"""
    ):
        counts[row["cluster"]] |= {name: row[name] for name in numbers if row[name] is not None}
        if not row["traced"] and not row["quorum"]:  # KRaft has no replica states to print
            not_shown[row["cluster"]].append(
                "replica states are inferred: state.change.logger is not at TRACE (log4j.logger.state.change.logger=TRACE shows them)"
            )
        if nodes := row["no_file"]:
            not_shown[row["cluster"]].append(
                f"hours without a state-change.log of node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
            )
        if row["no_node"]:
            not_shown[row["cluster"]].append("some records do not show which node wrote them")
    unknown: dict[str, list[dict[str, Any]]] = {}
    for name in clusters:
        if counts[name].get("unrecognised") or counts[name].get("drifted"):
            unknown[name] = store.unknown_statements(name, UNKNOWN)
    return counts, not_shown, unknown


def _subjects(asked: Queries) -> dict[str, dict[str, Any]]:
    """Return fingerprint -> its subjects; see RunResults."""
    # subjects that are partitions are before those that are replicas
    rows = asked.rows(
        f"""SELECT fingerprint, count(DISTINCT struct(topic, partition)) AS partitions,
          min_by(struct(topic, partition), struct(replica IS NOT NULL AS is_replica, since, topic, partition)) AS first,
          slice(array_sort(collect_set(concat_ws('-', topic, partition))), 1, {NAMED}) AS some, array_sort(collect_set(replica)) AS replicas,
          array_sort(collect_set(topic)) AS topics
        FROM stored_finding_subjects GROUP BY fingerprint"""
    )
    return {
        row["fingerprint"]: {
            "partitions": row["partitions"],
            "first": (row["first"]["topic"], row["first"]["partition"]),
            "some": row["some"],
            "replicas": row["replicas"],
            "topics": row["topics"],
        }
        for row in rows
    }


def within(results: RunResults, window: Window, now: Mapping[str, datetime | None]) -> RunResults:
    """Return the results with only the findings in a window.

    now: cluster -> the moment that its findings are measured against.
    """
    if not window:
        return results
    replicas = {fingerprint: one["replicas"] for fingerprint, one in results.subjects.items()}
    kept = [
        f
        for f in results.findings
        if window.has(f, now.get(f["cluster"]), replicas.get(f["fingerprint"], ()))
    ]
    return replace(results, findings=kept)


def at_or_above(findings: list[dict[str, Any]], severity: str) -> list[dict[str, Any]]:
    """Return the findings of a severity or a worse one that are neither resolved nor silenced."""
    least = SEVERITIES.index(severity)
    return [
        f
        for f in findings
        if f["status"] != "resolved" and not f.get("silenced") and SEVERITIES.index(f["severity"]) >= least
    ]


def printable(text: str, width: int) -> str:
    """Return the first line of a text without control characters, at most `width` characters long."""
    clean = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text.split("\n", 1)[0][: width + 1]
    )
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def of_each_severity(findings: Sequence[dict[str, Any]]) -> str:
    """Return the number of findings by severity, such as `1 critical, 2 errors`."""
    found = Counter(finding["severity"] for finding in findings)
    # critical and info have no plural
    return ", ".join(
        counted(found[name], name) if name in {"error", "warning"} else f"{found[name]:,} {name}"
        for name in reversed(SEVERITIES)
        if found[name]
    )


def _counts_text(counts: dict[str, int]) -> str:
    names = ("partitions", "reassignments", "topic deletions", "controller terms")
    return ", ".join(counted(counts[name], name.removesuffix("s")) for name in names if counts.get(name))


def when(story: Story, now: datetime | None) -> str:
    """Return the time of a story in words. now: the newest moment of the logs, UTC."""
    members = (story[0], *story[1])
    begins = [finding["first_seen"] for finding in members if finding["first_seen"] is not None]
    if not begins:
        return "These logs carry no time stamps."
    begin = min(_naive(at) for at in begins)
    end = max(
        _naive(finding["last_seen"] or finding["first_seen"])
        for finding in members
        if finding["first_seen"] is not None
    )
    length = two_units((end - begin).total_seconds())
    if is_over(story):
        return (
            f"Over: from {moment(begin)} to {moment(end, begin)} ({length})."
            if end > begin
            else f"Over: at {moment(begin)}."
        )
    is_last_seen_before_end = now is not None and _naive(now) > end + STILL_SO
    if is_last_seen_before_end and now is not None:
        when_seen = (
            f"At {moment(begin)}"
            if end == begin
            else f"From {moment(begin)}, last seen at {moment(end, begin)} ({length})"
        )
        return f"{when_seen}; the logs go on to {moment(now, begin)}."
    if end == begin:
        return f"Not over: at {moment(begin)}."
    return f"Not over: since {moment(begin)}, last seen at {moment(end, begin)} ({length})."


def _naive(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo is not None else at


def harm_sentences(story: Story, results: RunResults, now: datetime | None) -> list[str]:
    """Return the sentences about a story's harm; see `harms.of_story`."""
    return harms.of_story((story[0], *story[1]), results.harms, now and _naive(now))


def worst_of(story: Story) -> dict[str, Any]:
    """Return the worst finding of a story; a resolved one only where all are resolved."""
    return min((story[0], *story[1]), key=worst_first)


def headline(story: Story) -> dict[str, Any]:
    """Return the finding that a story is listed by.

    It is the cause, or the worst finding where only the cause is resolved.
    """
    return worst_of(story) if story[0]["status"] == "resolved" and not is_over(story) else story[0]


def others(story: Story) -> list[tuple[str, dict[str, Any]]]:
    """Return (Cause or Consequence, finding) for each finding of a story that is not its headline."""
    head = headline(story)
    words = [("Cause", story[0]), *(("Consequence", effect) for effect in story[1])]
    return [(word, finding) for word, finding in words if finding is not head]


def advice(story: Story) -> list[str]:
    """Return the advice for an unresolved story.

    It is that of its headline, its cause and, where it is worse, its worst finding.
    """
    if is_over(story):
        return []
    about = [headline(story), story[0]]
    worst = worst_of(story)
    if SEVERITIES.index(worst["severity"]) > SEVERITIES.index(story[0]["severity"]):
        about.append(worst)
    texts = (finding.get("advice") for finding in about)
    return list(dict.fromkeys(printable(text, 600) for text in texts if text))


def _story_lines(
    story: Story, results: RunResults, now: datetime | None, *, cluster: str, tables: str
) -> list[str]:
    """Return the lines of a story; the first one has its worst severity.

    cluster: text before the title, if there are several.
    """
    finding, around = headline(story), others(story)
    first = f"  {_tag(worst_of(story))} {cluster}{printable(finding['title'], 200)}"
    lines = [first, f"      {when(story, now)}"]
    lines += [f"      {printable(text, 300)}" for text in harm_sentences(story, results, now)]
    # a resolved warning needs no action; `findings` shows its details
    is_brief = is_over(story) and not any(is_never_hidden(one) for one in (story[0], *story[1]))
    if not is_brief:
        lines.append(f"      {printable(finding['detail'] or '', 400)}")
    proof = None if is_brief else results.proof.get(finding["evidence"][0])
    if proof:
        lines.append(f"      {printable(proof['raw'], 150)}")
        lines.append(f"      ({printable(proof['file'], 200)}, line {proof['record_no']})")
    shown = [one for number, one in enumerate(around) if number < SHOWN_EFFECTS or is_never_hidden(one[1])]
    for word, one in shown:
        tag = (
            f"[{one['severity']}, resolved]"
            if one["status"] == "resolved" and not is_over(story)
            else _tag(one)
        )
        lines.append(f"      {word}: {tag} {printable(one['title'], 200)}")
    if len(around) > len(shown):
        lines.append(f"      and {counted(len(around) - len(shown), 'more consequence')}")
    lines += [f"      What to do: {text}" for text in advice(story)]
    lines.append(f"      More: kafka-audit findings {known_as(finding)[:12]} --tables {tables}")
    return lines


def _one_line(finding: dict[str, Any], cluster: str = "") -> str:
    """Return a finding as severity and title. cluster: text before the title, if there are several."""
    return f"  {_tag(finding)} {cluster}{printable(finding['title'], 200)}"


def _tag(finding: dict[str, Any]) -> str:
    return f"[{finding['severity']}{_new_status(finding)}]"


def _new_status(finding: dict[str, Any]) -> str:
    return (
        f", {finding['status']}"
        if finding["severity"] != "info" and finding["status"] in {"new", "reopened"}
        else ""
    )


def _is_past(finding: dict[str, Any], outcomes: Sequence[Any], run_id: str | None) -> bool:
    """Return whether an earlier run resolved a finding that ended RECENT before the end of the logs."""
    now = next((outcome.now for outcome in outcomes if outcome.cluster == finding["cluster"]), None)
    ended = finding["last_seen"]
    if finding["run_id"] == run_id or now is None or ended is None:
        return False
    return bool(ended < now.replace(tzinfo=None) - RECENT)


def as_text(
    results: RunResults,
    outcomes: list[Any],
    tables: str,
    notes: Sequence[str] = (),
    run_id: str | None = None,
) -> str:
    """Return the verdict as text, with the notes at its end.

    Stories are in the order of `ranking`: the first SHOWN with proof, each further error in a line of its
    own, the others only counted.
    run_id: of this run; the findings that it has resolved are listed, however long ago they ended.
    """
    lines = []
    current = [f for f in results.findings if f["status"] != "resolved" and not f.get("silenced")]
    silenced = Counter(
        f["cluster"] for f in results.findings if f["status"] != "resolved" and f.get("silenced")
    )
    for outcome in outcomes:
        counts = results.counts[outcome.cluster]
        if outcome.problem:
            lines.append(f"{outcome.cluster}: not audited. {outcome.problem}")
            continue
        words = of_each_severity([f for f in current if f["cluster"] == outcome.cluster])
        quiet = f"; {silenced[outcome.cluster]} silenced" if silenced[outcome.cluster] else ""
        lines.append(f"{outcome.cluster}: {words or 'no findings'}{quiet}")
        read = [f"{counts.get(name, 0):,} {name}" for name in ("records", "recognised")]
        read += [f"{counts[name]:,} {name}" for name in ("unrecognised", "drifted") if counts.get(name)]
        read += [f"{counts['out_of_scope']:,} out of scope"] if counts.get("out_of_scope") else []
        lines.append("  " + "; ".join(filter(None, [_counts_text(counts), ", ".join(read)])))
    stories = harms.stories(results.findings)
    now = {outcome.cluster: outcome.now for outcome in outcomes}
    for heading, over in (("", False), ("Resolved:", True)):
        some = [story for story in stories if is_over(story) is over]
        loud = [
            story for story in some if any(finding["severity"] != "info" for finding in (story[0], *story[1]))
        ]
        lines += [heading] if heading and loud else []
        left = 0
        for number, (finding, effects) in enumerate(loud):
            name = f"{finding['cluster']}: " if len(outcomes) > 1 else ""
            errors = [one for one in (finding, *effects) if is_never_hidden(one)]
            if number < SHOWN:
                of_cluster = now.get(finding["cluster"])
                lines += _story_lines(
                    (finding, effects), results, of_cluster, cluster=name, tables=shlex.quote(tables)
                )
            elif errors and not (over and all(_is_past(one, outcomes, run_id) for one in errors)):
                lines += [
                    _one_line(one, name) for one in (errors if finding in errors else [finding, *errors])
                ]
            else:
                left += 1
        infos = [] if over else [story[0] for story in some if story not in loud]
        # gaps of the logs matter only where nothing else was found
        infos = [finding for finding in infos if finding["check_id"] != "blind_spot" or not loud]
        lines += [
            _one_line(one, f"{one['cluster']}: " if len(outcomes) > 1 else "") for one in infos[:SHOWN_INFOS]
        ]
        left += max(0, len(infos) - SHOWN_INFOS)
        if left:
            lines.append(f"  and {left:,} more: kafka-audit findings --tables {shlex.quote(tables)}")
    for outcome in outcomes:
        mine = [f for f in current if f["cluster"] == outcome.cluster]
        is_known = any(is_never_hidden(f) or f["check_id"] == "blind_spot" for f in mine)
        for text in [] if is_known else results.not_shown.get(outcome.cluster, []):
            lines.append(f"These logs cannot show everything about {outcome.cluster}: {text}.")
        unknown = results.unknown.get(outcome.cluster, [])
        if unknown:
            lines.append(
                f"Text of {outcome.cluster} that no rule reads, the most frequent (all of it is in the view unknown_statements):"
            )
        for row in unknown[:SHOWN_UNKNOWN]:
            lines.append(
                f"  {row['records']:,} {row['status']}, {row['logger'] or 'no logger'}: {printable(row['masked'], 150)}"
            )
        for text in outcome.unreadable:
            lines.append(f"Not read: {printable(text, 300)}.")
    return "\n".join([*lines, *notes])


def _records_of(outcome: Any, clusters: int) -> int:
    """Return the number of records that were read of a cluster; outcome.records counts all clusters."""
    return (
        outcome.records
        if clusters == 1
        else sum((row.get("records") or 0) + (row.get("other_records") or 0) for row in outcome.inputs)
    )


def as_json(
    results: RunResults,
    outcomes: list[Any],
    *,
    run_id: str,
    status: str,
    code: int,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the verdict as one object."""
    return {
        "run_id": run_id,
        "status": status,
        "exit_code": code,
        "records_read": max((outcome.records for outcome in outcomes), default=0),
        "records_new": max((outcome.new for outcome in outcomes), default=0),
        "clusters": [
            {
                "cluster": outcome.cluster,
                "records_read": _records_of(outcome, len(outcomes)),
                # new records are not counted by cluster
                "records_new": outcome.new if len(outcomes) == 1 else None,
                "now": outcome.now,
                "problem": outcome.problem,
                "unreadable": list(outcome.unreadable),
                "counts": results.counts[outcome.cluster],
                "not_shown": results.not_shown[outcome.cluster],
                "unknown_statements": [
                    {name: value for name, value in row.items() if name != "cluster"}
                    for row in results.unknown.get(outcome.cluster, [])
                ],
            }
            for outcome in outcomes
        ],
        "stories": [
            {
                "cluster": cause["cluster"],
                "cause": cause["fingerprint"],
                "effects": [effect["fingerprint"] for effect in effects],
                "over": is_over((cause, effects)),
                "harms": [vars(harm) for harm in results.harms.get(cause["fingerprint"], ())],
            }
            for cause, effects in harms.stories(results.findings)
        ],
        "findings": results.findings,
        "notes": list(notes),
    }
