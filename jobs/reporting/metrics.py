"""Write the metrics of a run to a text file for node_exporter's textfile collector.

A run that reaches its verdict writes all metrics. A run that ends before keeps those of the previous run,
except those about its own end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import schemas
from jobs import errors
from jobs.reporting.targets import partial

PREFIX = "kafka_audit_"
SUCCESS = (errors.CLEAN, errors.FINDINGS)
ENDED, DURATION, EXIT_CODE = "last_run_timestamp_seconds", "last_run_duration_seconds", "last_run_exit_code"
SUCCEEDED = "last_success_timestamp_seconds"
RECORDS = ("recognised", "unrecognised", "drifted", "out_of_scope")


@dataclass(frozen=True)
class Run:
    """The values of the metrics.

    findings: rows of `findings` of all clusters of the run. counts: cluster -> RECORDS -> number. hours:
    (cluster, column of `coverage`, its value) -> node hours. newest: cluster -> the newest moment of its
    logs, UTC without a zone. undelivered: sink -> messages that could not be delivered. not_audited: clusters
    whose logs could not be audited.
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
    not_audited: Sequence[str] = ()


class _Gauges:
    """The gauges of the file."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def __call__(self, name: str, text: str, *labels: str) -> Gauge:
        """Add a gauge."""
        return Gauge(f"{PREFIX}{name}", text, labels, registry=self.registry)

    def end(self, code: int, started_at: datetime, finished_at: datetime, succeeded: float | None) -> bytes:
        """Add the gauges about the end of the run and return the text.

        succeeded: end of the last successful run before, in seconds; None: not known.
        """
        self(ENDED, "End of the last run, whatever its exit code.").set(finished_at.timestamp())
        self(DURATION, "Duration of the last run.").set((finished_at - started_at).total_seconds())
        self(EXIT_CODE, "Exit code of the last run.").set(code)
        succeeded = finished_at.timestamp() if code in SUCCESS else succeeded
        if succeeded is not None:
            self(SUCCEEDED, "End of the last run that ended with code 0 or 1.").set(succeeded)
        return generate_latest(self.registry)


def exposition(run: Run, succeeded: float | None = None) -> bytes:
    """Return the text in Prometheus's exposition format 0.0.4.

    succeeded: end of the last successful run before, in seconds.
    """
    gauge = _Gauges()

    findings = gauge(
        "findings", "Findings that are not resolved.", "cluster", "check", "severity", "silenced"
    )
    is_open = [row for row in run.findings if row["status"] != "resolved"]
    counted = Counter(
        (row["cluster"], row["check_id"], row["severity"], str(bool(row.get("silenced"))).lower())
        for row in is_open
    )
    # a check without findings is 0, so that an alerting rule sees the value fall
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
        begun = [
            r["first_seen"]
            for r in is_open
            if r["cluster"] == cluster and r["first_seen"] and not r.get("silenced")
        ]
        until = run.newest.get(cluster)
        age.labels(cluster).set(max((until - min(begun)).total_seconds(), 0) if begun and until else 0)
        if until:
            newest.labels(cluster).set(until.replace(tzinfo=UTC).timestamp())

    records = gauge(
        "records", "Records of the logs in the tables, by what became of them.", "cluster", "kind"
    )
    for cluster in run.clusters:
        for kind in RECORDS:
            records.labels(cluster, kind).set(run.counts.get(cluster, {}).get(kind, 0))
    covered = gauge(
        "coverage_seconds",
        "Time of the logs, summed over nodes, by how much they can show.",
        "cluster",
        "what",
        "shown",
    )
    for key, hours in sorted(run.hours.items()):
        covered.labels(*key).set(3600 * hours)

    audited = gauge(
        "cluster_audited",
        "1: the last run audited the cluster; 0: it found no logs that it could audit.",
        "cluster",
    )
    for cluster in run.clusters:
        audited.labels(cluster).set(cluster not in run.not_audited)
    undelivered = gauge("alerts_undelivered", "Messages that the last run could not deliver.", "sink")
    for sink, count in run.undelivered.items():
        undelivered.labels(sink).set(count)
    return gauge.end(run.exit_code, run.started_at, run.finished_at, succeeded)


class _Before:
    """The metrics of an earlier run in the file; none where it cannot be read."""

    def __init__(self, path: Path) -> None:
        try:
            self.families = list(text_string_to_metric_families(path.read_text("utf-8")))
        except (OSError, ValueError):
            self.families = []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics except those about the end of the run."""
        of_end = {f"{PREFIX}{name}" for name in (ENDED, DURATION, EXIT_CODE, SUCCEEDED)}
        yield from (family for family in self.families if family.name not in of_end)

    def value(self, name: str) -> float | None:
        """Return the value of a metric without labels."""
        return next(
            (family.samples[0].value for family in self.families if family.name == f"{PREFIX}{name}"), None
        )


def write(path: Path, run: Run) -> None:
    """Write all metrics of a run that reached its verdict."""
    _replace(path, exposition(run, _Before(path).value(SUCCEEDED)))


def write_end(path: Path, code: int, started_at: datetime) -> None:
    """Write the metrics about the end of a run and keep the others.

    Do nothing where `write` has written the same end.
    """
    before, finished_at = _Before(path), datetime.now(UTC)
    is_written = (before.value(ENDED) or 0) >= started_at.timestamp()
    written = before.value(EXIT_CODE)
    # with --exit-zero the process ends with 0 while the file has 1
    if is_written and (written == code or (written in SUCCESS and code in SUCCESS)):
        return
    gauge = _Gauges()
    gauge.registry.register(before)
    _replace(path, gauge.end(code, started_at, finished_at, before.value(SUCCEEDED)))


def _replace(path: Path, text: bytes) -> None:
    """Replace the file in one step, so that the collector never reads half of it."""
    draft = partial(path)
    try:
        draft.write_bytes(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
