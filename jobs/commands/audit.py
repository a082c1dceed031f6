"""The command `audit`: stages in order, verdict, exit code."""

import argparse
import hashlib
import json
import os
import shlex
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from jobs import config as configuration
from jobs import errors, progress, terminal
from jobs.arguments import add_wait, parsed_days, parsed_moment
from jobs.checking.contracts import add_data_docs
from jobs.checking.window import Window
from jobs.engine import ENGINES, choice, limits
from jobs.errors import InputError, UsageError
from jobs.globs import matches
from jobs.landing import accounting, cluster_names, tool_outputs
from jobs.location import SCHEME, root_of
from jobs.progress import stage, warn
from jobs.reporting import output
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
    """Adds `audit` to the command line."""
    audit = commands.add_parser(
        "audit",
        help="read logs, update the tables, give a verdict",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    audit.set_defaults(run=lambda options: Audit(options).run())
    audit.add_argument(
        "logs",
        nargs="*",
        metavar="LOGS",
        help="files, globs, folders (searched in depth), archives (.tar, .zip; .gz, .zst, .xz, .bz2, .lz4), URIs that Spark can read, "
        "or - for standard input",
    )
    audit.add_argument("--tables", required=True, metavar="DIR", help="folder or URI of the Delta tables; made if missing")
    audit.add_argument("--cluster", metavar="NAME", help="name of the cluster (default: the name of the folder given)")
    audit.add_argument(
        "--timezone", default=None, metavar="ZONE", help="zone of the time stamps: an IANA name or GMT+09:30 (default UTC)"
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
        "--config", type=Path, metavar="audit.toml", help="clusters (instead of LOGS), thresholds, silences, alerts"
    )
    audit.add_argument("--report", type=Path, metavar="FILE.html", help="write a self-contained HTML report")
    add_data_docs(audit)
    audit.add_argument("--metrics", type=Path, metavar="FILE.prom", help="write metrics for node_exporter's textfile collector")
    output.add_arguments(audit, json_help="the verdict as one JSON object, the same as --output-format json")
    audit.add_argument(
        "--fail-on",
        choices=["critical", "error", "warning", "info"],
        default="error",
        help="exit with 1 from this severity on (default error)",
    )
    audit.add_argument("--exit-zero", action="store_true", help="exit with 0 where there are findings, too; other codes stay")
    audit.add_argument("--now", metavar="TIME", help="reference time for durations (default: the newest time stamp)")

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
        "--at", metavar="TIME", help="when it was printed (default: as the file's name or zookeeper-shell's mtime says)"
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
    audit.add_argument(
        "--rules", type=Path, metavar="DIR", help="a folder of rule files and layouts of your own, read with the built-in ones"
    )


def code_version() -> str:
    """Version of the installed product; from a zip, the one in its rules' company is not known."""
    try:
        return metadata.version("kafka-nightly-audit")
    except metadata.PackageNotFoundError:
        return "unpackaged"


def rules_version(site: Path | None = None) -> str:
    """Hash of everything that decides what a line says: our rules and layouts, and a site's own."""
    from importlib.resources import files

    digest = hashlib.sha256()
    root = files("parsers")
    own = sorted(site.glob("*.toml")) if site is not None else []
    for entry in [*sorted(root.joinpath("events").iterdir(), key=lambda e: e.name), root.joinpath("fragments.toml"),
                  root.joinpath("layouts.toml"), root.joinpath("speakers.toml"), *own]:  # fmt: skip
        if entry.name.endswith(".toml"):
            digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return digest.hexdigest()[:16]


def _configuration(options: argparse.Namespace) -> configuration.Config:
    if options.config:
        config = configuration.load(options.config)
        if not config.clusters:
            if not options.logs:
                raise UsageError(f"{options.config}: no [[cluster]], and no LOGS given; one of them tells what to read")
            return replace(config, clusters=(_cluster(options),))
        if options.logs:
            raise UsageError(f"Give LOGS or the [[cluster]] of {options.config}, not both")
        for name in ("cluster", "timezone", "kafka_version"):
            if getattr(options, name):
                raise UsageError(f"--{name.replace('_', '-')} does not go with [[cluster]]; set it in {options.config}")
        return config
    if not options.logs:
        raise UsageError("No LOGS given; name the folder that holds controller.log and state-change.log, or --config audit.toml")
    return configuration.Config((_cluster(options),))


def _cluster(options: argparse.Namespace) -> configuration.Cluster:
    name = options.cluster or cluster_names.of_logs(options.logs[0])
    timezone = configuration.check_timezone(options.timezone or "UTC")
    return configuration.Cluster(name, tuple(options.logs), timezone, options.kafka_version)


def ruleset_of(site: Path | None) -> RuleSet:
    """Our rules, and those of a site's own folder once it is found to be sound. Raises UsageError naming file and rule."""
    if site is None:
        return built_in()
    from parsers.definitions import problems

    if found := problems(site):
        more = f" ({len(found) - SHOWN_PROBLEMS} more: kafka-audit lint --rules {site})" if len(found) > SHOWN_PROBLEMS else ""
        raise UsageError("; ".join(found[:SHOWN_PROBLEMS]) + more)
    return load(site)


SHOWN_PROBLEMS = 5


@dataclass(frozen=True)
class Outcome:
    """What became of one cluster; the counts are those of the whole run."""

    cluster: str
    records: int
    new: int
    out_of_scope: int
    unreadable: tuple[str, ...]
    problem: str | None
    now: datetime | None
    # rows of `inputs`
    inputs: tuple[dict[str, Any], ...] = ()


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
            raise UsageError("--at tells when a --checkpoint was printed; give that, too")
        at = parsed_moment(options.at, "--at") if options.at else None
        self.outputs = tool_outputs.given(options.checkpoint, at, [cluster.name for cluster in self.config.clusters])
        if options.metrics:
            from jobs.reporting import metrics

            metrics.check_path(options.metrics)
        if options.report:
            from jobs.reporting import report

            report.prepare_path(options.report)
        given_logs = [one for cluster in self.config.clusters for one in cluster.logs]
        self.engine = choice.chosen(options.engine, options.tables, given_logs)
        self.run_id = uuid.uuid4().hex[:16]
        self.started_at = datetime.now(UTC)
        # check -> why it could not be run
        self.failed_checks: Mapping[str, str] = {}
        # logs that are no files of this machine
        self.remote: list[Any] = []
        # logs that are parsed already: `events.Ahead`
        self.ahead: Any = None
        # what is left to do once the run is recorded
        self.finish: Callable[[], None] = lambda: None
        # outputs of tools among the logs; rows of `inputs`
        self.found: list[Any] = []
        self.inputs: list[dict[str, Any]] = []
        # over what checks look at; None: nothing was checked
        self.queries: Any = None
        # loads Great Expectations while the JVM starts; None: this run may not need it
        self.warm_up: threading.Thread | None = None
        # `expectations.Suites` of this run
        self.suites: Any = None
        # by which a silence has expired
        self.moment = self.now or self.started_at

    def run(self) -> int:
        """The exit code. Raises AuditError where nothing could be done."""
        with tempfile.TemporaryDirectory(prefix="kafka-audit-") as folder:
            return self._run(Path(folder))

    def _run(self, temporary: Path) -> int:
        from jobs.checking import expectations
        from jobs.engine import damage, lease
        from jobs.engine.store import Store
        from jobs.landing import events, ingest

        with stage("find logs") as doing:
            files = [
                file
                for cluster in self.config.clusters
                for file in ingest.find(cluster, self.ruleset, self.config.limits, temporary)
            ]
            self.outputs += tool_outputs.among(files)
            doing.note(f"{sum(f.usable for f in files):,} logs among {sum(f.alike for f in files):,} files")
            if self.outputs:
                doing.note(f"{len(self.outputs):,} checkpoints")
        at_uris = [cluster for cluster in self.config.clusters if any(map(SCHEME.match, cluster.logs))]
        _warn_of(files)
        for file in files:
            read = accounting.read_as(file) or file.why or file.kind
            progress.detail(f"{visible(file.name)}: {read}{'' if file.node is None else f', node {file.node}'}")
        if not at_uris and not any(f.usable for f in files):
            raise InputError(_nothing_found(files))
        self.found = [file for file in files if file.kind == "checkpoint"]
        files = [file for file in files if file.kind != "checkpoint"]
        root = root_of(self.options.tables)
        if self.engine == "local":
            from jobs.engine.local_store import LocalStore

            try:
                with lease.held(root, self.run_id, self.options.wait) as held, closing(LocalStore(root, held.check)) as tables:
                    tables.announce = self._announce
                    damage.refuse(root, versions=held.versions)
                    code = self._verdict(tables, self._audit(tables, files))
                    held.versions = tables.versions()
                    return code
            except choice.OnlySpark as reason:
                if self.options.engine == "local":
                    raise UsageError(f"{reason}; use --engine spark") from None
                choice.require_spark(str(reason))
                print(f"kafka-audit: {reason}; Spark computes this run", file=sys.stderr)
                self.engine = "spark"
        if not at_uris and events.are_few(files):
            self.ahead = events.Ahead(files, self.ruleset, self.days)
        self.warm_up = threading.Thread(target=expectations.preload, daemon=True)
        self.warm_up.start()
        size = None if at_uris else sum(f.length for f in files)
        with ExitStack() as ends:
            # a run that finds another one at work in a folder of this machine starts no JVM
            spark = _started(size) if lease.needs_spark(root) else None
            held = ends.enter_context(lease.held(root, self.run_id, self.options.wait, spark))
            spark = spark or _started(size)
            if at_uris:
                with stage("fetch logs", spark) as doing:
                    self.remote = self._fetch(spark, at_uris)
                    fetched = [file for one in self.remote for file in one.files]
                    doing.note(f"{sum(f.usable for f in fetched):,} logs among {len(fetched):,} files")
                _warn_of(fetched)
                files += fetched
            store = Store(spark, root, held.check)
            damage.refuse(root, versions=held.versions)
            code = self._verdict(store, self._audit(store, files))
            held.versions = store.versions()
            spark.catalog.clearCache()
            return code

    def _announce(self, estimate: str) -> None:
        """Warns of a long run. estimate: how long, and why."""
        warn(f"{estimate}. It goes on. A Spark cluster shares the work: {_submitted(self.options)}")

    def _fetch(self, spark: Any, clusters: list[configuration.Cluster]) -> list[Any]:
        from jobs.engine import remote

        return [found for cluster in clusters if (found := remote.find(spark, cluster, self.ruleset, self.config.limits))]

    def _audit(self, store: Any, files: list[Any]) -> list[Outcome]:
        """All clusters at once: a stage costs the same for one or for many."""
        from jobs.checking import checks, findings_life
        from jobs.commands import rebuilding
        from jobs.engine.rows import here
        from jobs.nightly import last_run, nights

        spark = store.spark
        files, read = self._read(store, files)
        self.inputs = accounting.rows([*files, *self.found], read.by_file, self.run_id)
        if last_run.restore(store, [cluster.name for cluster in self.config.clusters]):
            warn("an earlier run was interrupted; this one completes it")
        if self.outputs:
            self.outputs = tool_outputs.land(store, self.outputs)
        # what a run has landed that did not come to its end is still new
        keeps = rebuilding.keeps_of(self.ruleset)
        night = nights.read(store, [cluster.name for cluster in self.config.clusters], keeps)
        with stage("timelines, coverage", spark) as doing:
            made = nights.update(store, night)
            doing.note(f"{night.count:,} new events")
        outcomes = [self._outcome(cluster, files, made.facts.get(cluster.name), read) for cluster in self.config.clusters]
        audited = [outcome.cluster for outcome in outcomes if outcome.problem is None]
        configured = {cluster.name: self._configured(cluster) for cluster in self.config.clusters}
        reset = [name for name, one in night.since.items() if one.configured != configured[name]]
        if audited and (reset or not night.is_empty):
            with stage("assignments, durability", spark):
                self._derive(store, made, (made.facts.keys() - made.continued.keys()).union(reset))
        if audited and (self.outputs or not (night.is_empty or store.has_none("checkpoints"))):
            with stage("checkpoints", spark):
                outputs = [output for output in self.outputs if output.cluster in audited]
                tool_outputs.write(store, outputs, {name: made.facts[name] for name in audited})
        clocks = self._clocks(outcomes, made.facts)
        asked = checks.asked(clocks, self.config.thresholds, self.config.slos, self._silences(), self.outputs)
        # a report is drawn of what checks look at
        if audited and (made.is_new or reset or night.asked != {asked} or self.options.report):
            with stage("checks, contracts", spark) as doing:
                facts = {name: made.facts[name] for name in audited}
                days = max((slo.days for slo in self.config.slos), default=0)
                for note in self._check(store, made, nights.scope(store, made, facts, days), clocks):
                    doing.note(note)
            self.finish = partial(nights.note, store, made, "" if self.failed_checks else asked, configured)
        elif audited:
            with stage("nothing new to check", spark):
                before = here(store.read("findings", audited))
                self._settle(store, findings_life.still(before), before, clocks)
        if stale := store.stale_clusters():
            others = sorted(stale.difference(cluster.name for cluster in self.config.clusters))
            if others:
                with stage("rebuild other clusters", spark) as doing:
                    rebuilding.rebuild(store, others, self.ruleset, self.config)
                    doing.note(", ".join(others))
        store.rebuilt()
        return outcomes

    def _configured(self, cluster: configuration.Cluster) -> str:
        """What of audit.toml assignments and durability of a cluster are told with, as JSON."""
        topics = [(t.name, t.min_insync_replicas) for t in self.config.topics if matches([t.cluster], cluster.name)]
        return json.dumps([sorted(cluster.racks.items()), topics])

    def _derive(self, store: Any, made: Any, anew: Collection[str]) -> None:
        """Writes what is told topic by topic. made: `nights.Made`; anew: clusters all of whose topics are told anew."""
        from jobs.engine.rows import run_concurrently
        from jobs.operators import assignments, durability

        racks = {cluster.name: cluster.racks for cluster in self.config.clusters}
        run_concurrently(
            lambda: assignments.write(store, made, anew, racks),
            lambda: durability.write(store, made, anew, self.config),
        )

    def _check(self, store: Any, made: Any, audited: dict[str, Any], clocks: list[Any]) -> Iterator[str]:
        """Writes the findings; raises ContractError where what was written breaks its contract.

        made: `nights.Made`; audited: table -> the rows to be looked at. out: what held, for people.
        """
        from jobs.checking import contracts
        from jobs.engine import queries
        from jobs.engine.rows import having, here, run_concurrently, select
        from jobs.nightly import nights

        def guard(asked: Any, some: dict[str, Any], whole: dict[str, Any]) -> str:
            if self.engine == "local" and self.options.data_docs is None:
                count = contracts.validate(asked, some, whole)
                return f"{counted(count, 'rule')} hold for {', '.join(some)}"
            suites = self._suites()
            before = suites.count
            found = suites.of_frames(store.spark, some, whole) if self.engine == "spark" else suites.of_rows(asked, some, whole)
            suites.write_docs()
            contracts.raise_for(found)
            return f"{counted(suites.count - before, 'rule')} hold for {', '.join(some)}"

        names = [clock.cluster for clock in clocks]
        looked_at = {**audited, "partitions_now": nights.partitions_now(store, made, audited, names)}
        self.queries = queries.over(store.spark, looked_at.values())
        changed, held = run_concurrently(
            lambda: self._find(store, made, looked_at, clocks), partial(guard, self.queries, audited, audited)
        )
        yield held
        if changed:
            proofs = [{"record_id": one} for one in {one for row in changed for one in row["evidence"]}]
            wanted = store.table_of("events", proofs).select(["record_id"])
            there = {row["record_id"] for row in here(having(select(audited["events"], "record_id"), wanted, ["record_id"]))}
            if others := set(wanted["record_id"].to_pylist()) - there:
                found = store.records(names, others, ["record_id"], (row["first_seen"] for row in changed))
                there |= set(found["record_id"].to_pylist())
            events = store.table_of("events", [{"record_id": one} for one in there]).select(["record_id"])
            findings, subjects = (store.read(table, names) for table in ("findings", "finding_subjects"))
            told = {"findings": store.table_of("findings", changed), "finding_subjects": subjects}
            known = {"events": events, "findings": findings}
            yield guard(queries.over(store.spark, [*told.values(), *known.values()]), told, known)

    def _suites(self) -> Any:
        """Great Expectations' suites of this run."""
        from jobs.checking import contracts, expectations

        if self.suites is None:
            if self.warm_up is not None:
                self.warm_up.join()
            kinds = contracts.NOT_ENFORCED if self.engine == "spark" else contracts.KINDS
            self.suites = expectations.Suites(self.options.data_docs, kinds)
        return self.suites

    def _find(self, store: Any, made: Any, audited: dict[str, Any], clocks: list[Any]) -> Any:
        """Writes the findings; returns those that this run has changed."""
        from jobs.checking import checks, findings_life
        from jobs.engine.rows import here
        from jobs.landing import identity

        names = [clock.cluster for clock in clocks]
        facts = {name: made.facts[name] for name in names}
        checks.register(self.queries, audited, clocks, facts, thresholds=self.config.thresholds, slos=self.config.slos)
        given = checks.present(self.queries)
        given |= {"metadata_log"} if any(facts[name].has_metadata_log for name in names) else set()
        given |= {"cluster_ids"} if any(len(facts[name].cluster_ids) > 1 for name in names) else set()
        given |= {"slos"} if self.config.slos else set()
        found = checks.violations(self.queries, given)
        self.failed_checks = found.failed
        before = here(store.read("findings", names))
        begins = {name: at.replace(tzinfo=UTC) for name, at in made.looked_back(names).items()}
        lives = identity.continued(found.rows, before, begins)
        news = findings_life.news(lives.found, lives.before, begins)
        stored = here(store.read("finding_subjects", names))
        stored = [row | {"fingerprint": lives.fingerprints.get(row["fingerprint"], row["fingerprint"])} for row in stored]
        about = findings_life.subjects(news, stored)
        changed = self._settle(store, news, lives.before, clocks, about)
        if changed:
            store.replace("finding_subjects", names, store.table_of("finding_subjects", about))
        return changed

    def _settle(
        self, store: Any, found: list[Any], before: list[Any], clocks: list[Any], about: list[dict[str, Any]] | None = None
    ) -> list[Any]:
        """Write the findings, `found` being what is violated now, and return those that this run has changed.

        about: rows of `finding_subjects`; null where nothing new was checked, so that causes are those of before.
        """
        from jobs.checking import causes, findings_life

        now = {clock.cluster: clock.now and clock.now.replace(tzinfo=UTC) for clock in clocks}
        settled = findings_life.settle(found, before, now, self.run_id, self._silences())
        if about is not None:
            settled = causes.with_causes(settled, about)
        changed = [row for row in settled if row["run_id"] == self.run_id]
        causes_before = {row["fingerprint"]: row["caused_by"] for row in before}
        if changed or any(row["caused_by"] != causes_before.get(row["fingerprint"]) for row in settled):
            store.replace("findings", list(now), store.table_of("findings", settled))
        return changed

    def _silences(self) -> list[Any]:
        return [silence for silence in self.config.silences if silence.holds_at(self.moment)]

    def _read(self, store: Any, files: list[Any]) -> tuple[list[Any], Any]:
        """(the files, what was read); what is left of them is read anew where logs have gone away in the meantime."""
        from jobs.landing import ingest

        with stage("open tables", store.spark) as doing:
            store.open(self.ruleset)
            store.apply_rules(self.ruleset)
            if store.rules_changed.records:
                doing.note(f"{store.rules_changed.records:,} records read again by other rules")
        left = ingest.still_there(files)
        while True:
            if left != files:
                self.ahead = None
            _warn_of([file for file in left if file not in files])
            files = left
            if not any(file.usable for file in files):
                raise InputError(_nothing_found(files))
            try:
                return files, self._land(store, files)
            except Exception:
                left = ingest.still_there(files)
                if left == files:
                    raise

    def _land(self, store: Any, files: list[Any]) -> Any:
        """Reads the logs into the tables."""
        from jobs.landing import events

        with stage("read records", store.spark) as doing:
            read = events.land(store, files, self.ruleset, days=self.days, remote=self.remote, ahead=self.ahead)
            counts = [
                f"{read.lines:,} lines",
                f"{read.records:,} records",
                f"{read.new:,} new",
                f"{read.out_of_scope:,} of loggers out of scope",
            ]
            if read.unfinished:
                counts.append(f"{read.unfinished:,} not written out yet, at the end of a file")
            doing.note(", ".join(counts))
        store.drop_skipped([cluster.name for cluster in self.config.clusters], self.ruleset)
        return read

    def _outcome(self, cluster: configuration.Cluster, files: list[Any], facts: Any, read: Any) -> Outcome:
        from jobs.nightly import nights
        from jobs.timelines import zone_error

        mine = [file for file in files if file.cluster == cluster.name]
        unreadable = tuple(f"{f.name}: {f.why}" for f in mine if f.kind == "unreadable")
        inputs = tuple(row for row in self.inputs if row["cluster"] == cluster.name)
        problem = None
        if not any(file.usable for file in mine):
            problem = _nothing_found(mine)
        elif facts is None:
            problem = "No statement of a Kafka controller or broker was recognised in its logs."
        elif error := zone_error(facts.ordered_events):
            problem = _other_zone(error)
        newest = nights.naive(facts.summary.newest) if facts is not None else None
        now = self.now.replace(tzinfo=None) if self.now else newest
        if problem is None:
            mine += [file for file in self.found if file.kind == "checkpoint" and file.cluster == cluster.name]
            unreadable += tuple(accounting.gave_nothing([one for one in cluster.logs if not SCHEME.match(one)], mine))
        return Outcome(cluster.name, read.records, read.new, read.out_of_scope, unreadable, problem, now, inputs)

    def _clocks(self, outcomes: list[Outcome], facts: Mapping[str, Any]) -> list[Any]:
        from jobs.checking.checks import Clock

        versions = {cluster.name: cluster.kafka_version for cluster in self.config.clusters}
        return [
            Clock(
                cluster=outcome.cluster,
                now=outcome.now,
                incarnation=max(facts[outcome.cluster].numbers),
                kafka_version=versions[outcome.cluster] or facts[outcome.cluster].kafka_version,
            )
            for outcome in outcomes
            if outcome.problem is None
        ]

    def _verdict(self, store: Any, outcomes: list[Outcome]) -> int:
        from jobs.engine import damage
        from jobs.reporting import verdict

        problems = [o for o in outcomes if o.problem or o.unreadable]
        gathered = verdict.gather(store, [o.cluster for o in outcomes], {o.cluster: o.now for o in outcomes})
        told = verdict.within(gathered, self.window, {o.cluster: o.now for o in outcomes})
        failing = verdict.at_or_above(told.findings, self.options.fail_on)
        code = errors.INPUT if problems else errors.FINDINGS if failing else errors.CLEAN
        status = {errors.INPUT: "input_problem", errors.FINDINGS: "findings", errors.CLEAN: "clean"}[code]
        notes = (
            store.upgrade.sentences() + store.rules_changed.sentences() + configuration.expired_silences(self.config, self.moment)
        )
        notes += [f"check {name} could not be run: {why}" for name, why in self.failed_checks.items()]
        if left_out := len(gathered.findings) - len(told.findings):
            notes.append(
                f"{counted(left_out, 'finding')} outside of --since, --until and --node: kafka-audit findings --tables {self.options.tables}"
            )
        if self.failed_checks:
            damage.refuse(store.root, thorough=True)
            code = errors.INTERNAL
        delivered: list[Any] = []
        try:
            delivered = self._deliver(store, gathered.findings, outcomes) if self.config.sinks else []
        except Exception as error:
            # the verdict is told whatever becomes of the alerts; an error of ours may hold an address that is a secret
            notes.append(f"alerts could not be delivered: internal error: {type(error).__name__}; the next run tries again")
            code = max(code, errors.DELIVERY)
        notes += [report.sentence() for report in delivered]
        if any(report.failed for report in delivered):
            code = max(code, errors.DELIVERY)
        if self.options.metrics:
            self._measure(store, gathered, outcomes, delivered, code)
        if self.options.report:
            from jobs.reporting import pictures, report

            with stage("report"):
                whose = [o.cluster for o in outcomes if not o.problem]
                shown = pictures.gather(self.queries, whose, _with_subject(told)) if self.queries else pictures.Pictures()
                report.write(self.options.report, told, outcomes, self.run_id, shown)
        form = self.options.output_format
        if form == "text":
            _show(verdict.as_text(told, outcomes, self.options.tables, [*self._accounted(outcomes), *notes], self.run_id))
        elif form == "json":
            whole = {"inputs": self.inputs} | verdict.as_json(
                told, outcomes, run_id=self.run_id, status=status, code=self._shown(code), notes=notes
            )
            _show(json.dumps(whole, default=str), styled=False)
        else:
            _show("\n".join(output.verdict(form, told.findings, outcomes, notes)), styled=False)
        store.replace("inputs", [o.cluster for o in outcomes], store.table_of("inputs", self.inputs))
        self._record(store, outcomes, status)
        # after the record: what the next run starts from is what a completed run has left
        self.finish()
        return self._shown(code)

    def _shown(self, code: int) -> int:
        """The exit code, by --exit-zero."""
        return errors.CLEAN if self.options.exit_zero and code == errors.FINDINGS else code

    def _accounted(self, outcomes: list[Outcome]) -> Iterator[str]:
        for outcome in outcomes:
            name = f"{outcome.cluster}: " if len(outcomes) > 1 else ""
            yield from (name + sentence for sentence in accounting.sentences(outcome.inputs))

    def _deliver(self, store: Any, findings: list[dict[str, Any]], outcomes: list[Outcome]) -> list[Any]:
        """Sends the alerts that are due; what became of each sink that had some."""
        from jobs import engine
        from jobs.alerts import delivery

        with stage("alerts") as doing:
            newest = {o.cluster: o.now.replace(tzinfo=UTC) for o in outcomes if o.now is not None}
            tables = engine.opened(store.root, names=("alerts", "events"), store=store)
            append = partial(store.append, "alerts")
            outbox = delivery.Outbox(tables, append, self.config, [o.cluster for o in outcomes], os.environ)
            reports = outbox.deliver(delivery.findings_of(findings), newest)
            doing.note(delivery.counts(reports))
        return reports

    def _measure(self, store: Any, told: Any, outcomes: list[Outcome], delivered: list[Any], code: int) -> None:
        """Writes --metrics."""
        from jobs.engine import queries
        from jobs.reporting import metrics

        names = [outcome.cluster for outcome in outcomes]
        rows = store.read("coverage", names)
        asked = queries.over(store.spark, [rows])
        asked.view("told_coverage", rows)
        kinds = [
            f"SELECT cluster, '{what}' AS what, {what} AS shown, count(*) AS hours FROM told_coverage WHERE {what} IS NOT NULL GROUP BY cluster, {what}"
            for what in ("replica_states", "partition_changes")
        ]
        hours = {(row["cluster"], row["what"], row["shown"]): row["hours"] for row in asked.rows(*kinds)}
        run = metrics.Run(
            clusters=names,
            findings=told.findings,
            counts=told.counts,
            hours=hours,
            newest={outcome.cluster: outcome.now for outcome in outcomes if outcome.now is not None},
            exit_code=code,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            undelivered={report.sink: report.failed for report in delivered}
            | {sink.name: 0 for sink in self.config.sinks if sink.name not in {report.sink for report in delivered}},
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
    """The command that runs an audit on a Spark cluster."""
    given = ["--config", str(options.config)] if options.config else options.logs
    command = ["spark-submit", "--master", "URL", "jobs/nightly_audit.py", "audit", *given, "--tables", str(options.tables)]
    for name in ("cluster", "timezone", "kafka_version"):
        if value := getattr(options, name):
            command += [f"--{name.replace('_', '-')}", value]
    return shlex.join(command)


def _started(size: int | None) -> Any:
    """A session. size: of the logs; None: not known yet."""
    from jobs.engine import session

    with stage("start Spark"):
        return session.start(size)


def _with_subject(told: Any) -> list[dict[str, Any]]:
    """The findings with `subject`: the (topic, partition) that stands for what each is about, or None."""
    found = []
    for finding in told.findings:
        own = (finding["topic"], finding["partition"]) if finding["partition"] is not None else None
        found.append(finding | {"subject": own or told.subjects.get(finding["fingerprint"], {}).get("first")})
    return found


def _warn_of(files: list[Any]) -> None:
    for file in files:
        if file.kind == "unreadable":
            warn(f"{file.name}: {file.why}; passed over, all other files are read")


def _nothing_found(files: list[Any]) -> str:
    """Why there is nothing to audit, and what to do."""
    if not files:
        return "No file there. Give the folder that holds controller.log and state-change.log."
    unreadable = [f for f in files if f.kind == "unreadable"]
    empty = [f for f in files if f.kind == "empty"]
    count = sum(file.alike for file in files)
    if unreadable:
        return f"No readable log among {counted(count, 'file')}: {unreadable[0].name}: {unreadable[0].why}."
    if len(empty) == len(files):
        return f"{files[0].name} is empty." if count == 1 else f"All {count:,} files are empty."
    other = max(files, key=lambda file: ("skipped", "empty", "checkpoint", "unrelated").index(file.kind))
    what = other.why or ("it is the output of one of Kafka's tools" if other.kind == "checkpoint" else "it is empty")
    return (
        f"None of {counted(count, 'file')} holds a Kafka log record; {visible(other.name)}, for one: {what}. "
        "Give the folder that holds controller.log and state-change.log; `kafka-audit explain LINE` tells about a line."
    )


def _other_zone(error: Any) -> str:
    """error: `timelines.clocks.ZoneError`."""
    minutes = round(abs(error.later) / 60e6)
    return (
        f"Its brokers print the same registrations {minutes // 60}:{minutes % 60:02d} h {'later' if error.later > 0 else 'earlier'} than its metadata log, "
        f"which is in UTC, has them (broker {error.broker}, epoch {error.broker_epoch}: records {error.record_id} and {error.metadata_record_id}): the logs "
        "are in another time zone than they were read in. Give it (--timezone, or timezone in audit.toml), and another folder for the tables."
    )


def _show(text: str, styled: bool = True) -> None:
    """Prints; a reader that has gone away changes nothing about the run."""
    try:
        terminal.show(text.split("\n"), styled)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
