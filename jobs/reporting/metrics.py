"""The metrics of a run: a text file for node_exporter's textfile collector."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

import schemas
from jobs.reporting.targets import partial

RECORDS = ("recognised", "unrecognised", "drifted", "out_of_scope")


@dataclass(frozen=True)
class Run:
    """What the metrics are made of.

    findings: rows of `findings` of all clusters of the run. counts: cluster -> RECORDS -> how many. hours: (cluster, what, how it is
    shown) -> node hours of `coverage`. newest: cluster -> the newest moment of its logs, UTC without a zone. undelivered: sink ->
    messages that could not be delivered.
    """

    clusters: Sequence[str]
    findings: Sequence[Mapping[str, Any]]
    counts: Mapping[str, Mapping[str, int]]
    hours: Mapping[tuple[str, str, str], int]
    newest: Mapping[str, datetime]
    exit_code: int
    started_at: datetime
    finished_at: datetime
    undelivered: Mapping[str, int] = field(default_factory=dict)


def exposition(run: Run) -> bytes:
    """The text, in Prometheus's exposition format 0.0.4."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"kafka_audit_{name}", text, labels, registry=registry)

    findings = gauge("findings", "Findings that are not resolved.", "cluster", "check", "severity", "silenced")
    is_open = [row for row in run.findings if row["status"] != "resolved"]
    counted = Counter(
        (row["cluster"], row["check_id"], row["severity"], str(bool(row.get("silenced"))).lower()) for row in is_open
    )
    # a check that finds nothing is 0, so that a rule sees it fall
    for cluster in run.clusters:
        for check in schemas.statements("checks"):
            counted.setdefault((cluster, check.name, check.header["severity"], "false"), 0)
    for labels, count in sorted(counted.items()):
        findings.labels(*labels).set(count)

    age = gauge(
        "oldest_open_finding_age_seconds",
        "From the begin of the oldest finding that is neither resolved nor silenced to the newest record; 0 where there is none.",
        "cluster",
    )
    newest = gauge("newest_record_timestamp_seconds", "Time of the newest record of the logs.", "cluster")
    for cluster in run.clusters:
        begun = [r["first_seen"] for r in is_open if r["cluster"] == cluster and r["first_seen"] and not r.get("silenced")]
        until = run.newest.get(cluster)
        age.labels(cluster).set(max((until - min(begun)).total_seconds(), 0) if begun and until else 0)
        if until:
            newest.labels(cluster).set(until.replace(tzinfo=UTC).timestamp())

    records = gauge("records", "Records of the logs in the tables, by what became of them.", "cluster", "kind")
    for cluster in run.clusters:
        for kind in RECORDS:
            records.labels(cluster, kind).set(run.counts.get(cluster, {}).get(kind, 0))
    covered = gauge(
        "coverage_seconds", "Time of the logs, summed over nodes, by how much they can show.", "cluster", "what", "shown"
    )
    for key, hours in sorted(run.hours.items()):
        covered.labels(*key).set(3600 * hours)

    undelivered = gauge("alerts_undelivered", "Messages that the last run could not deliver.", "sink")
    for sink, count in run.undelivered.items():
        undelivered.labels(sink).set(count)
    gauge("last_run_timestamp_seconds", "End of the last run.").set(run.finished_at.timestamp())
    gauge("last_run_duration_seconds", "Duration of the last run.").set((run.finished_at - run.started_at).total_seconds())
    gauge("last_run_exit_code", "Exit code of the last run.").set(run.exit_code)
    return generate_latest(registry)


def write(path: Path, run: Run) -> None:
    """Replaces the file in one step: the collector never reads half of it."""
    draft = partial(path)
    try:
        draft.write_bytes(exposition(run))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
