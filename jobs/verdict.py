"""The verdict: short, for a person; or as one JSON object."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import functions as F

import schemas
from jobs.causes import by_cause
from jobs.config import SEVERITIES
from jobs.rows import run_concurrently
from jobs.store import Store
from parsers.explanation import counted

# causes with detail and proof, and infos by title
SHOWN, SHOWN_INFOS = 10, 3
# findings of one check in one cluster that come with their first record
PROVEN = 25
# kinds of text that no rule reads
UNKNOWN = 50
SHOWN_UNKNOWN = 3
# effects that are told below their cause, records of a finding that come with their text, partitions that are named
SHOWN_EFFECTS = 3
RECORDS = 5
NAMED = 20


@dataclass(frozen=True)
class Told:
    """What the tables hold after the run about the clusters of the run."""

    findings: list[dict[str, Any]]
    counts: dict[str, dict[str, int]]
    not_shown: dict[str, list[str]]
    proof: dict[str, dict[str, Any]]
    # rows of the view unknown_statements by cluster, the most frequent first
    unknown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # fingerprint -> partitions (how many), first (topic, partition), some (names), of what finding_subjects holds
    subjects: dict[str, dict[str, Any]] = field(default_factory=dict)


def gather(store: Store, clusters: list[str]) -> Told:
    """Reads findings, counts and gaps of the clusters."""
    (findings, proof), (counts, not_shown, unknown), subjects = run_concurrently(
        *(partial(told, store, clusters) for told in (_findings, _counts, _subjects))
    )
    return Told(findings, counts, not_shown, proof, unknown, subjects)


def _findings(store: Store, clusters: list[str]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The findings, worst first, and by its id each record that proves the first of them."""
    rank = {name: number for number, name in enumerate(SEVERITIES)}
    findings = [row.asDict() for row in store.rows_of("findings", clusters).collect()]
    findings.sort(
        key=lambda f: (
            f["status"] == "resolved",
            -rank[f["severity"]],
            f["check_id"] == "blind_spot",
            str(f["first_seen"]),
            f["title"],
        )
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
    rows = store.rows_with("events", clusters, "record_id", ids, ["record_id", "item", "file", "record_no", "raw"])
    return findings, {row["record_id"]: row for row in rows.to_pylist() if row.pop("item") == 0}


def _counts(
    store: Store, clusters: list[str]
) -> tuple[dict[str, dict[str, int]], dict[str, list[str]], dict[str, list[dict[str, Any]]]]:
    """Of each cluster what there is of it, what its logs do not show, and the most frequent texts that no rule reads."""
    # one row a table and cluster, in one query
    sizes = store.rows_of("partition_timeline", clusters).groupBy("cluster").agg(
        F.count_distinct("incarnation", "topic", "partition").alias("partitions"), F.count("*").alias("intervals")
    )  # fmt: skip
    for table, name in (
        ("reassignments", "reassignments"),
        ("topic_deletions", "topic deletions"),
        ("controllers", "controller terms"),
    ):
        some = store.rows_of(table, clusters).groupBy("cluster").agg(F.count("*").alias(name))
        sizes = sizes.unionByName(some, allowMissingColumns=True)
    numbers = ("records", "recognised", "unrecognised", "drifted", "out_of_scope")
    seen = store.rows_of("coverage", clusters).groupBy("cluster").agg(
        *[F.sum(name).alias(name) for name in numbers],
        F.count_if(F.col("replica_states") == "observed").alias("traced"),
        F.array_sort(F.collect_set(F.when(F.col("replica_states") == "no_file", F.col("node")))).alias("no_file"),
        F.count_if(F.col("node").isNull() & (F.col("records") > 0) & ~F.coalesce(F.col("logger").startswith("__"), F.lit(False))).alias("no_node"),
        F.count_if(F.col("logger").startswith("org.apache.kafka.controller.")).alias("quorum"),
    )  # fmt: skip
    counts: dict[str, dict[str, int]] = {name: {} for name in clusters}
    not_shown: dict[str, list[str]] = {name: [] for name in clusters}
    for row in sizes.unionByName(seen, allowMissingColumns=True).collect():
        told = {name: value for name, value in row.asDict().items() if value is not None}
        gaps = {name: told.pop(name, None) for name in ("traced", "no_file", "no_node", "quorum")}
        counts[told.pop("cluster")] |= told
        if "records" not in told:
            continue
        if not gaps["traced"] and not gaps["quorum"]:  # KRaft has no replica states to print
            not_shown[row.cluster].append(
                "replica states are inferred: state.change.logger is not at TRACE (log4j.logger.state.change.logger=TRACE shows them)"
            )
        if gaps["no_file"]:
            not_shown[row.cluster].append(
                f"hours without a state-change.log of node{'s' if len(gaps['no_file']) > 1 else ''} {', '.join(map(str, gaps['no_file']))}"
            )
        if gaps["no_node"]:
            not_shown[row.cluster].append("some records do not tell which node wrote them")
    unknown: dict[str, list[dict[str, Any]]] = {}
    for name in clusters:
        if counts[name].get("unrecognised") or counts[name].get("drifted"):
            rows = store.view_of_events("unknown_statements", [name]).limit(UNKNOWN)
            unknown[name] = [row.asDict() for row in rows.collect()]
    return counts, not_shown, unknown


def _subjects(store: Store, clusters: list[str]) -> dict[str, dict[str, Any]]:
    """Of each finding how many partitions it is about, the first of them and some names."""
    partition = F.struct("topic", "partition")
    rows = store.rows_of("finding_subjects", clusters).groupBy("fingerprint").agg(
        F.count_distinct(partition).alias("partitions"),
        # those that are about the partition as a whole first
        F.min_by(partition, F.struct(F.col("replica").isNotNull(), "since", "topic", "partition")).alias("first"),
        F.slice(F.array_sort(F.collect_set(F.concat_ws("-", "topic", "partition"))), 1, NAMED).alias("some"),
    )  # fmt: skip
    return {
        row.fingerprint: {"partitions": row.partitions, "first": tuple(row.first), "some": list(row.some)}
        for row in rows.collect()
    }


def at_or_above(findings: list[dict[str, Any]], severity: str) -> list[dict[str, Any]]:
    """Findings that are neither resolved nor silenced, of that severity or a worse one."""
    least = SEVERITIES.index(severity)
    return [
        f for f in findings if f["status"] != "resolved" and not f.get("silenced") and SEVERITIES.index(f["severity"]) >= least
    ]


def printable(text: str, width: int) -> str:
    """One line of a log for a terminal: no control characters, not longer than `width`."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text.split("\n", 1)[0][: width + 1])
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def of_each_severity(findings: Sequence[dict[str, Any]]) -> str:
    """`1 critical, 2 errors`"""
    found = Counter(finding["severity"] for finding in findings)
    # there is no plural of critical and info
    return ", ".join(
        counted(found[name], name) if name in {"error", "warning"} else f"{found[name]:,} {name}"
        for name in reversed(SEVERITIES)
        if found[name]
    )


def _summary(counts: dict[str, int]) -> str:
    names = ("partitions", "reassignments", "topic deletions", "controller terms")
    return ", ".join(counted(counts[name], name.removesuffix("s")) for name in names if counts.get(name))


def _finding_lines(finding: dict[str, Any], effects: list[dict[str, Any]], told: Told, *, cluster: str, tables: str) -> list[str]:
    """cluster: what stands before the title, where there are several."""
    news = f", {finding['status']}" if finding["status"] in {"new", "reopened"} else ""
    lines = [
        f"  [{finding['severity']}{news}] {cluster}{printable(finding['title'], 200)}",
        f"      {printable(finding['detail'] or '', 400)}",
    ]
    proof = told.proof.get(finding["evidence"][0])
    if proof:
        lines.append(f"      {printable(proof['raw'], 150)}")
        lines.append(f"      ({printable(proof['file'], 200)}, line {proof['record_no']})")
    for effect in effects[:SHOWN_EFFECTS]:
        lines.append(f"      follows from it: [{effect['severity']}] {printable(effect['title'], 200)}")
    if len(effects) > SHOWN_EFFECTS:
        lines.append(f"      and {len(effects) - SHOWN_EFFECTS:,} more follow from it")
    header = next((check.header for check in schemas.statements("checks") if check.name == finding["check_id"]), {})
    if "do" in header and finding["status"] != "resolved":
        lines.append(f"      What to do: {header['do']}")
    lines.append(f"      More: kafka-audit findings {finding['fingerprint'][:12]} --tables {tables}")
    return lines


def as_text(told: Told, outcomes: list[Any], tables: str, notes: Sequence[str] = ()) -> str:
    """The verdict as lines; notes are its last ones."""
    lines = []
    current = [f for f in told.findings if f["status"] != "resolved" and not f.get("silenced")]
    silenced = Counter(f["cluster"] for f in told.findings if f["status"] != "resolved" and f.get("silenced"))
    resolved = [f for f in told.findings if f["status"] == "resolved"]
    for outcome in outcomes:
        counts = told.counts[outcome.cluster]
        if outcome.problem:
            lines.append(f"{outcome.cluster}: not audited. {outcome.problem}")
            continue
        words = of_each_severity([f for f in current if f["cluster"] == outcome.cluster])
        quiet = f"; {silenced[outcome.cluster]} silenced" if silenced[outcome.cluster] else ""
        lines.append(f"{outcome.cluster}: {words or 'no findings'}{quiet}")
        told_of = [f"{counts.get(name, 0):,} {name}" for name in ("records", "recognised")]
        told_of += [f"{counts[name]:,} {name}" for name in ("unrecognised", "drifted") if counts.get(name)]
        lines.append("  " + "; ".join(filter(None, [_summary(counts), ", ".join(told_of)])))
    for heading, some in (("", current), ("Over by now:", resolved)):
        causes = by_cause(some)
        loud = [cause for cause in causes if cause[0]["severity"] != "info"]
        lines += [heading] if heading and loud else []
        for finding, effects in loud[:SHOWN]:
            name = f"{finding['cluster']}: " if len(outcomes) > 1 else ""
            lines += _finding_lines(finding, effects, told, cluster=name, tables=shlex.quote(tables))
        infos = [finding for finding, _ in causes if finding["severity"] == "info"] if some is current else []
        for finding in infos[:SHOWN_INFOS]:
            lines.append(f"  [info] {printable(finding['title'], 200)}")
        left = max(0, len(loud) - SHOWN) + max(0, len(infos) - SHOWN_INFOS)
        if left:
            lines.append(f"  and {left:,} more: kafka-audit findings --tables {shlex.quote(tables)}")
    for outcome in outcomes:
        for text in told.not_shown.get(outcome.cluster, []):
            lines.append(f"These logs cannot show everything about {outcome.cluster}: {text}.")
        unknown = told.unknown.get(outcome.cluster, [])
        if unknown:
            lines.append(
                f"Text of {outcome.cluster} that no rule reads, the most frequent (view unknown_statements has all of it):"
            )
        for row in unknown[:SHOWN_UNKNOWN]:
            lines.append(f"  {row['records']:,} {row['status']}, {row['logger'] or 'no logger'}: {printable(row['masked'], 150)}")
        for text in outcome.unreadable:
            lines.append(f"Not read: {printable(text, 300)}.")
    return "\n".join([*lines, *notes])


def as_json(told: Told, outcomes: list[Any], *, run_id: str, status: str, code: int, notes: Sequence[str] = ()) -> dict[str, Any]:
    """The verdict as one object."""
    return {
        "run_id": run_id,
        "status": status,
        "exit_code": code,
        "clusters": [
            {
                "cluster": outcome.cluster,
                "records_read": outcome.records,
                "records_new": outcome.new,
                "now": outcome.now,
                "problem": outcome.problem,
                "unreadable": list(outcome.unreadable),
                "counts": told.counts[outcome.cluster],
                "not_shown": told.not_shown[outcome.cluster],
                "unknown_statements": [
                    {name: value for name, value in row.items() if name != "cluster"}
                    for row in told.unknown.get(outcome.cluster, [])
                ],
            }
            for outcome in outcomes
        ],
        "findings": told.findings,
        "notes": list(notes),
    }
