"""The command `audit`: run the stages, print the verdict, return the exit code."""

import argparse
import hashlib
import json
import os
import shlex
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from jobs import config as configuration
from jobs import errors, pipeline, progress, terminal
from jobs.arguments import add_command, add_wait, parsed_days, parsed_moment
from jobs.checking.contracts import add_data_docs
from jobs.checking.window import Window
from jobs.engine import ENGINES, choice, limits
from jobs.errors import InputError, UsageError
from jobs.files import accounting, cluster_names
from jobs.landing import tool_outputs
from jobs.landing.logs import Outcome, nothing_found, warn_of
from jobs.location import SCHEME, root_of, spark_uri
from jobs.progress import stage, warn
from jobs.reporting import output, targets
from parsers.explanation import counted, visible
from parsers.rules import RuleSet, built_in, load

EXAMPLES = """\
examples:
  kafka-audit audit /var/log/kafka --tables /data/audit
  kafka-audit audit broker-1/ broker-2/ 'old/*.gz' --tables /tmp/audit --cluster payments --timezone Europe/Berlin
  kafka-audit audit --config audit.toml --tables /data/audit --json
  kafka-audit audit /var/log/kafka --tables /data/audit --checkpoint describe.txt --at 2026-03-01T04:00:00Z
  spark-submit .. jobs/nightly_audit.py audit 's3a://logs/payments/*/*.log*' --tables s3a://audit/payments

exit codes:
  0 clean   1 findings at or above --fail-on   2 wrong usage or configuration
  3 no log, nothing recognised, a file unreadable, or another time zone than the one given
  4 an alert could not be delivered   70 internal error or a broken table contract
"""


def add_arguments(commands: Any) -> None:
    """Add `audit` to the command line."""
    audit = add_command(
        commands,
        "audit",
        lambda options: Audit(options).run(),
        "--rules",
        summary="read logs, update the tables, give a verdict",
        examples=EXAMPLES,
    )
    audit.add_argument(
        "logs",
        nargs="*",
        metavar="LOGS",
        help="files, globs, folders (searched in depth), archives (.tar, .zip; .gz, .zst, .xz, .bz2, .lz4), URIs that Spark can read, "
        "or - for standard input",
    )
    audit.add_argument(
        "--tables", required=True, metavar="DIR", help="folder or URI of the Delta tables; created if missing"
    )
    audit.add_argument(
        "--cluster", metavar="NAME", help="name of the cluster (default: the name of the folder given)"
    )
    audit.add_argument(
        "--timezone",
        default=None,
        metavar="ZONE",
        help="zone of the time stamps: an IANA name or GMT+09:30 (default UTC)",
    )
    audit.add_argument("--kafka-version", metavar="V", help="Kafka version, where the lines do not show it")
    days = audit.add_mutually_exclusive_group()
    days.add_argument("--day", metavar="D", help="only records of this day, 2026-03-01")
    days.add_argument("--days", metavar="D..E", help="only records of these days, both included")
    days.add_argument(
        "--since",
        metavar="TIME",
        help="report findings from this time on: a time, a day, or how long before the end of the logs (2h, 7d); all records are read",
    )
    audit.add_argument("--until", metavar="TIME", help="report findings up to this time; a day counts whole")
    audit.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="ID",
        help="report findings about this node, and those about none; may be repeated",
    )
    audit.add_argument(
        "--config",
        type=Path,
        metavar="audit.toml",
        help="clusters (instead of LOGS), thresholds, silences, alerts",
    )
    audit.add_argument("--report", type=Path, metavar="FILE.html", help="write a self-contained HTML report")
    add_data_docs(audit)
    audit.add_argument(
        "--metrics",
        type=Path,
        metavar="FILE.prom",
        help="write metrics for node_exporter's textfile collector, whatever the exit code",
    )
    output.add_arguments(audit, json_help="the verdict as one JSON object, the same as --output-format json")
    audit.add_argument(
        "--fail-on",
        choices=["critical", "error", "warning", "info"],
        default="error",
        help="exit with 1 from this severity on (default error)",
    )
    audit.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 where there are findings, too; other codes stay"
    )
    audit.add_argument(
        "--now", metavar="TIME", help="reference time for durations (default: the newest time stamp)"
    )

    audit.add_argument(
        "--checkpoint",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="what kafka-topics --describe, zookeeper-shell, kafka-metadata-shell, -metadata-quorum or -reassign-partitions printed: compared with the "
        "timelines; may be repeated",
    )
    audit.add_argument(
        "--at",
        metavar="TIME",
        help="when it was printed (default: as the file's name or zookeeper-shell's mtime says)",
    )
    add_wait(audit)
    audit.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="local: computes on this machine without Java; spark: on Spark; auto: spark under spark-submit, where a Spark master or remote is "
        "configured, and for what only Spark reads or writes, else local",
    )
    limits.add_argument(audit)


def code_version() -> str:
    """Return the version of the installed product; `unpackaged` where it runs from a zip or a checkout."""
    try:
        return metadata.version("kafka-nightly-audit")
    except metadata.PackageNotFoundError:
        return "unpackaged"


def rules_version(site: Path | None = None) -> str:
    """Return a hash of the built-in rules and layouts and those of a site."""
    from importlib.resources import files

    digest = hashlib.sha256()
    root = files("parsers")
    own = sorted(site.glob("*.toml")) if site is not None else []
    for entry in [
        *sorted(root.joinpath("events").iterdir(), key=lambda e: e.name),
        root.joinpath("fragments.toml"),
        root.joinpath("layouts.toml"),
        root.joinpath("log_idents.toml"),
        *own,
    ]:
        if entry.name.endswith(".toml"):
            digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return digest.hexdigest()[:16]


def _configuration(options: argparse.Namespace) -> configuration.Config:
    if options.config:
        config = configuration.load(options.config)
        if not config.clusters:
            if not options.logs:
                raise UsageError(f"{options.config}: no [[cluster]] and no LOGS; give one of them")
            return replace(config, clusters=(_cluster(options),))
        if options.logs:
            raise UsageError(f"Give LOGS or the [[cluster]] of {options.config}, not both")
        for name in ("cluster", "timezone", "kafka_version"):
            if getattr(options, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} does not go with [[cluster]]; set it in {options.config}"
                )
        return config
    if not options.logs:
        raise UsageError(
            "No LOGS given; name the folder of controller.log and state-change.log, or --config audit.toml"
        )
    return configuration.Config((_cluster(options),))


def _cluster(options: argparse.Namespace) -> configuration.Cluster:
    name = options.cluster or cluster_names.of_logs(options.logs[0])
    timezone = configuration.check_timezone(options.timezone or "UTC")
    return configuration.Cluster(name, tuple(options.logs), timezone, options.kafka_version)


def ruleset_of(site: Path | None) -> RuleSet:
    """Return the built-in rules and those of a site's folder.

    Raises UsageError, which names file and rule, where these are wrong.
    """
    if site is None:
        return built_in()
    from parsers.definitions import problems

    if found := problems(site):
        more = (
            f" ({len(found) - SHOWN_PROBLEMS} more: kafka-audit lint --rules {site})"
            if len(found) > SHOWN_PROBLEMS
            else ""
        )
        raise UsageError("; ".join(found[:SHOWN_PROBLEMS]) + more)
    return load(site)


SHOWN_PROBLEMS = 5


class Audit:
    """One run of `kafka-audit audit`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.config = _configuration(options)
        self.rules = options.rules or self.config.rules
        self.ruleset = ruleset_of(self.rules)
        given = options.day or options.days
        self.days = parsed_days(given, "--days") if given else None
        self.window = Window.given(options.since, options.until, options.node)
        self.now = parsed_moment(options.now, "--now") if options.now else None
        if options.at and not options.checkpoint:
            raise UsageError("--at is the time of a --checkpoint; give that, too")
        at = parsed_moment(options.at, "--at") if options.at else None
        self.outputs = tool_outputs.given(
            options.checkpoint, at, [cluster.name for cluster in self.config.clusters]
        )
        if options.metrics:
            # node_exporter reads a folder that exists
            targets.prepare(options.metrics, "--metrics", makes_folder=False)
        if options.report:
            targets.prepare(options.report, "--report", makes_folder=True)
        given_logs = [one for cluster in self.config.clusters for one in cluster.logs]
        self.engine = choice.chosen(options.engine, options.tables, given_logs)
        self.run_id = uuid.uuid4().hex[:16]
        self.started_at = datetime.now(UTC)
        # silences that end before it have expired
        self.moment = self.now or self.started_at

    def run(self) -> int:
        """Run the audit and return the exit code. Raises AuditError where the run cannot continue."""
        with tempfile.TemporaryDirectory(prefix="kafka-audit-") as folder:
            return self._run(Path(folder))

    def _run(self, temporary: Path) -> int:
        from jobs.engine import damage

        found = self._found(temporary)
        root = root_of(self.options.tables)
        for opened in (self._on_this_machine, self._on_spark)[self.engine == "spark" :]:
            try:
                with opened(root, found) as (tables, own_lease, logs):
                    damage.refuse(root, versions=own_lease.versions)
                    code = self._verdict(tables, *pipeline.run(tables, self._asked(), logs))
                    own_lease.versions = tables.versions()
                    return code
            except choice.OnlySpark as reason:
                if self.options.engine == "local":
                    raise UsageError(f"{reason}; use --engine spark") from None
                choice.require_spark(str(reason))
                print(f"kafka-audit: {reason}; Spark computes this run", file=sys.stderr)
        raise AssertionError("Spark leaves nothing to others")

    def _asked(self) -> pipeline.Asked:
        return pipeline.Asked(
            self.run_id,
            self.config,
            self.ruleset,
            self.days,
            self.now,
            self.moment,
            # the pictures of a report are read from the views of the checks
            checks_again=bool(self.options.report),
            data_docs=self.options.data_docs,
        )

    def _found(self, temporary: Path) -> pipeline.FoundFiles:
        """Find the logs on this machine.

        Raises InputError where there are none on this machine or at URIs.
        """
        from jobs.files import ingest

        outputs = list(self.outputs)
        with stage("find logs") as doing:
            files = [
                file
                for cluster in self.config.clusters
                for file in ingest.find(cluster, self.ruleset, self.config.limits, temporary)
            ]
            outputs += tool_outputs.among(files)
            doing.note(f"{sum(f.usable for f in files):,} logs among {sum(f.alike for f in files):,} files")
            if outputs:
                doing.note(f"{len(outputs):,} checkpoints")
        # the error about a single file says the same
        warn_of(files if len(files) > 1 or any(file.usable for file in files) else ())
        for file in files:
            read = accounting.read_as(file) or file.why or file.kind
            progress.detail(
                f"{visible(file.name)}: {read}{'' if file.node is None else f', node {file.node}'}"
            )
        if not self._at_uris() and not any(f.usable for f in files):
            raise InputError(nothing_found(files))
        logs = [file for file in files if file.kind != "checkpoint"]
        return pipeline.FoundFiles(logs, [file for file in files if file.kind == "checkpoint"], outputs)

    def _at_uris(self) -> list[configuration.Cluster]:
        return [cluster for cluster in self.config.clusters if any(map(SCHEME.match, cluster.logs))]

    # -- the engine: only these lines of a run depend on it --------------------------------------------------

    @contextmanager
    def _on_this_machine(
        self, root: str, found: pipeline.FoundFiles
    ) -> Iterator[tuple[Any, Any, pipeline.FoundFiles]]:
        """Yield the tables, the lease and the logs of a run of the local engine.

        Raises OnlySpark where only Spark can write the tables.
        """
        from jobs.engine import lease
        from jobs.engine.local_store import LocalStore

        with (
            lease.acquire(root, self.run_id, self.options.wait) as own_lease,
            closing(LocalStore(root, own_lease.check)) as tables,
        ):
            tables.announce = self._announce
            yield tables, own_lease, found

    @contextmanager
    def _on_spark(
        self, root: str, found: pipeline.FoundFiles
    ) -> Iterator[tuple[Any, Any, pipeline.FoundFiles]]:
        """Yield the same for Spark. Small logs are parsed while it starts."""
        from jobs.checking import expectations
        from jobs.engine import file_systems, in_process, lease

        at_uris = self._at_uris()
        uris = [root, *(spark_uri(one) for cluster in at_uris for one in cluster.logs)]
        configured = choice.configured()
        if configured is None or not configured.is_elsewhere:
            file_systems.require_before_start(uris)
        if not at_uris and in_process.are_small(found.logs):
            found = replace(found, ahead=in_process.Ahead(found.logs, self.ruleset, self.days))
        threading.Thread(target=expectations.preload, daemon=True).start()
        with ExitStack() as ends:
            # if another run is active in a folder of this machine, no JVM is started
            spark = _started(uris) if lease.needs_spark(root) else None
            own_lease = ends.enter_context(lease.acquire(root, self.run_id, self.options.wait, spark))
            spark = spark or _started(uris)
            if at_uris:
                with stage("fetch logs") as doing:
                    remote = self._fetch(spark, at_uris)
                    fetched = [file for one in remote for file in one.files]
                    doing.note(f"{sum(f.usable for f in fetched):,} logs among {len(fetched):,} files")
                warn_of(fetched)
                found = replace(found, logs=[*found.logs, *fetched], remote=remote)
            from jobs.engine.store import Store

            yield Store(spark, root, own_lease.check), own_lease, found
            spark.catalog.clearCache()

    def _announce(self, estimate: str) -> None:
        """Warn of a long run. estimate: its duration and the reason."""
        warn(f"{estimate}. It continues. A Spark cluster shares the work: {_submitted(self.options)}")

    def _fetch(self, spark: Any, clusters: list[configuration.Cluster]) -> list[Any]:
        from jobs.engine import remote

        return [
            found
            for cluster in clusters
            if (found := remote.find(spark, cluster, self.ruleset, self.config.limits))
        ]

    def _verdict(
        self,
        store: Any,
        landed: pipeline.LandResult,
        rebuilt: pipeline.RebuildResult,
        checked: pipeline.CheckResult,
    ) -> int:
        """Print, deliver and record the result of a run; return the exit code."""
        from jobs.engine import damage
        from jobs.reporting import verdict

        outcomes = list(rebuilt.outcomes)
        problems = [o for o in outcomes if o.problem or o.unreadable]
        all_results = verdict.read(store, [o.cluster for o in outcomes], {o.cluster: o.now for o in outcomes})
        results = verdict.within(all_results, self.window, {o.cluster: o.now for o in outcomes})
        failing = verdict.at_or_above(results.findings, self.options.fail_on)
        code = errors.INPUT if problems else errors.FINDINGS if failing else errors.CLEAN
        status = {errors.INPUT: "input_problem", errors.FINDINGS: "findings", errors.CLEAN: "clean"}[code]
        notes = (
            store.upgrade.sentences()
            + store.rules_changed.sentences()
            + configuration.expired_silences(self.config, self.moment)
        )
        notes += [f"check {name} could not be run: {why}" for name, why in checked.failed.items()]
        if left_out := len(all_results.findings) - len(results.findings):
            notes.append(
                f"{counted(left_out, 'finding')} outside of --since, --until and --node: kafka-audit findings --tables {self.options.tables}"
            )
        if checked.failed:
            damage.refuse(store.root, thorough=True)
            code = errors.INTERNAL
        delivered: list[Any] = []
        try:
            delivered = self._deliver(store, all_results, outcomes) if self.config.sinks else []
        except Exception as error:
            # the verdict is printed even if alerts fail; an internal error may contain an address that is a
            # secret
            notes.append(
                f"alerts could not be delivered: internal error: {type(error).__name__}; the next run tries again"
            )
            code = max(code, errors.DELIVERY)
        notes += [report.sentence() for report in delivered]
        if any(report.failed for report in delivered):
            code = max(code, errors.DELIVERY)
        if self.options.report:
            from jobs.reporting import pictures, report

            with stage("report"):
                whose = [o.cluster for o in outcomes if not o.problem]
                shown = (
                    pictures.read(checked.queries, whose, _with_subject(results))
                    if checked.queries
                    else pictures.Pictures()
                )
                report.write(self.options.report, results, outcomes, self.run_id, shown)
        form = self.options.output_format
        if form == "text":
            _show(
                verdict.as_text(
                    results, outcomes, self.options.tables, [*self._accounted(outcomes), *notes], self.run_id
                )
            )
        elif form == "json":
            whole = {"inputs": landed.inputs} | verdict.as_json(
                results, outcomes, run_id=self.run_id, status=status, code=self._exit_code(code), notes=notes
            )
            _show(json.dumps(whole, default=str), styled=False)
        else:
            _show("\n".join(output.verdict(form, results.findings, outcomes, notes)), styled=False)
        store.replace("inputs", [o.cluster for o in outcomes], store.table_of("inputs", landed.inputs))
        self._record(store, outcomes, status)
        # after the record, because the next run continues from a completed run
        checked.finish()
        if self.options.metrics:
            self._measure(store, all_results, outcomes, delivered, code)
        return self._exit_code(code)

    def _exit_code(self, code: int) -> int:
        """Return the exit code, which --exit-zero may replace."""
        return errors.CLEAN if self.options.exit_zero and code == errors.FINDINGS else code

    def _accounted(self, outcomes: list[Outcome]) -> Iterator[str]:
        for outcome in outcomes:
            name = f"{outcome.cluster}: " if len(outcomes) > 1 else ""
            yield from (name + sentence for sentence in accounting.sentences(outcome.inputs))

    def _deliver(self, store: Any, results: Any, outcomes: list[Outcome]) -> list[Any]:
        """Send the alerts that are due and return a report for each sink that had some."""
        from jobs import engine
        from jobs.alerts import delivery
        from jobs.checking import harms

        with stage("alerts") as doing:
            newest = {o.cluster: o.now.replace(tzinfo=UTC) for o in outcomes if o.now is not None}
            tables = engine.opened(store.root, names=("alerts", "events"), store=store)
            append = partial(store.append, "alerts")
            outbox = delivery.Outbox(tables, append, self.config, [o.cluster for o in outcomes], os.environ)
            said = harms.by_finding(results.findings, results.harms, {o.cluster: o.now for o in outcomes})
            reports = outbox.deliver(delivery.findings_of(results.findings, said), newest)
            doing.note(delivery.counts(reports))
        return reports

    def _measure(
        self, store: Any, results: Any, outcomes: list[Outcome], delivered: list[Any], code: int
    ) -> None:
        """Write the file of --metrics."""
        from jobs.engine import queries
        from jobs.reporting import metrics

        names = [outcome.cluster for outcome in outcomes]
        rows = store.read("coverage", names)
        asked = queries.over(store.spark, [rows])
        asked.view("stored_coverage", rows)
        kinds = [
            f"SELECT cluster, '{what}' AS what, {what} AS shown, count(*) AS hours FROM stored_coverage WHERE {what} IS NOT NULL GROUP BY cluster, {what}"
            for what in ("replica_states", "partition_changes")
        ]
        hours = {(row["cluster"], row["what"], row["shown"]): row["hours"] for row in asked.rows(*kinds)}
        run = metrics.Run(
            clusters=names,
            findings=results.findings,
            counts=results.counts,
            hours=hours,
            newest={outcome.cluster: outcome.now for outcome in outcomes if outcome.now is not None},
            not_audited=[outcome.cluster for outcome in outcomes if outcome.problem],
            exit_code=code,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            undelivered={report.sink: report.failed for report in delivered}
            | {
                sink.name: 0
                for sink in self.config.sinks
                if sink.name not in {report.sink for report in delivered}
            },
        )
        metrics.write(self.options.metrics, run)

    def _record(self, store: Any, outcomes: list[Outcome], status: str) -> None:
        import pyarrow as pa

        from jobs.nightly import last_run

        given = {name: value for name, value in vars(self.options).items() if name != "run"}
        given["clusters"] = [asdict(cluster) for cluster in self.config.clusters]
        row = {
            "run_id": self.run_id,
            "started_at": self.started_at,
            "finished_at": datetime.now(UTC),
            "status": status,
            "records_read": outcomes[0].records,
            "records_new": outcomes[0].new,
            "records_out_of_scope": outcomes[0].out_of_scope,
            "rules_version": rules_version(self.rules),
            "code_version": code_version(),
            "parameters": json.dumps(given, default=str),
            "tables_at": last_run.versions(store),
        }
        store.append("audit_runs", pa.Table.from_pylist([row]))


def _submitted(options: argparse.Namespace) -> str:
    """Return the command that runs the audit on a Spark cluster."""
    given = ["--config", str(options.config)] if options.config else options.logs
    command = [
        "spark-submit",
        "--master",
        "URL",
        "jobs/nightly_audit.py",
        "audit",
        *given,
        "--tables",
        str(options.tables),
    ]
    for name in ("cluster", "timezone", "kafka_version"):
        if value := getattr(options, name):
            command += [f"--{name.replace('_', '-')}", value]
    return shlex.join(command)


def _started(uris: list[str]) -> Any:
    """Start a Spark session. uris: addresses whose file systems it needs."""
    from jobs.engine import file_systems, session

    with stage("start Spark"):
        spark = session.start()
    file_systems.require(spark, uris)
    return spark


def _with_subject(results: Any) -> list[dict[str, Any]]:
    """Return the findings with `subject`: the (topic, partition) that represents their subjects, or None."""
    found = []
    for finding in results.findings:
        own = (finding["topic"], finding["partition"]) if finding["partition"] is not None else None
        found.append(
            finding | {"subject": own or results.subjects.get(finding["fingerprint"], {}).get("first")}
        )
    return found


def _show(text: str, styled: bool = True) -> None:
    """Print text; the run continues where the reader has closed the pipe."""
    try:
        terminal.show(text.split("\n"), styled)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
