"""Run the stages of an audit: land the logs, rebuild what they change, check the result.

Each stage gets the results of the previous ones. The tables (`RunTables`) are those of either engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import rebuilding
from jobs.config import Cluster, Config, Silence
from jobs.files import accounting
from jobs.globs import matches
from jobs.landing import tool_outputs
from jobs.landing.logs import Outcome, outcome, read_logs
from jobs.progress import stage, warn
from parsers.rules import RuleSet

if TYPE_CHECKING:
    from jobs.checking.checks import Clock
    from jobs.engine.in_process import Ahead
    from jobs.engine.run_tables import RunTables
    from jobs.files.ingest import LogFile
    from jobs.landing.new_records import IngestSummary
    from jobs.nightly.updates import NewRecords, Updated


@dataclass(frozen=True)
class Asked:
    """The parameters of a run.

    days: first and last day of the records to read; None: all. now: the moment that findings are measured
    against (UTC); None: the newest record. moment: silences that end before it have expired. checks_again:
    run the checks even without new records. data_docs: folder for Great Expectations' Data Docs.
    """

    run_id: str
    config: Config
    ruleset: RuleSet
    days: tuple[date, date] | None
    now: datetime | None
    moment: datetime
    checks_again: bool
    data_docs: Path | None

    @property
    def clusters(self) -> list[str]:
        """Return the names of its clusters."""
        return [cluster.name for cluster in self.config.clusters]

    @property
    def silences(self) -> list[Silence]:
        """Return the silences that have not expired."""
        return [silence for silence in self.config.silences if silence.is_active_at(self.moment)]


@dataclass(frozen=True)
class FoundFiles:
    """The files of a run. tool_files: outputs of Kafka's tools, whose content is in `outputs`.

    remote: the `remote.Remote` of files at URIs. ahead: the logs, if they are already being parsed.
    """

    logs: Sequence[LogFile]
    tool_files: Sequence[LogFile]
    outputs: Sequence[tool_outputs.ToolOutput]
    remote: Sequence[Any] = ()
    ahead: Ahead | None = None


@dataclass(frozen=True)
class LandResult:
    """The result of `land`. files: all of the run. inputs: rows of table `inputs`."""

    files: Sequence[LogFile]
    read: IngestSummary
    outputs: Sequence[tool_outputs.ToolOutput]
    inputs: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class RebuildResult:
    """The result of `rebuild`. audited: clusters without a problem. configured: cluster -> settings.

    reset: clusters whose settings changed.
    """

    new_events: NewRecords
    tables: Updated
    outcomes: Sequence[Outcome]
    audited: Sequence[str]
    configured: Mapping[str, str]
    reset: Collection[str]


@dataclass(frozen=True)
class CheckResult:
    """The result of `check`. failed: check -> why it could not be run.

    queries: over the checked tables; None: nothing was checked.
    finish: must be called after the run is recorded; the next run continues from there.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    queries: Any = None
    finish: Callable[[], None] = lambda: None


def run(tables: RunTables, asked: Asked, found: FoundFiles) -> tuple[LandResult, RebuildResult, CheckResult]:
    """Run each stage for all clusters at once, because a stage costs about the same for one or many."""
    landed = land(tables, asked, found)
    rebuilt = rebuild(tables, asked, landed)
    checked = check(tables, asked, landed, rebuilt)
    rebuilding.rebuild_others(tables, asked.clusters, asked.ruleset, asked.config)
    return landed, rebuilt, checked


def land(tables: RunTables, asked: Asked, found: FoundFiles) -> LandResult:
    """Read the logs into the tables. Raises InputError where no log is left."""
    from jobs.nightly import last_run

    with stage("open tables") as doing:
        tables.open(asked.ruleset)
        tables.apply_rules(asked.ruleset)
        if tables.rules_changed.records:
            doing.note(f"{tables.rules_changed.records:,} records parsed again by other rules")
    files, read = read_logs(
        tables, found.logs, asked.ruleset, days=asked.days, remote=found.remote, ahead=found.ahead
    )
    tables.drop_skipped(asked.clusters, asked.ruleset)
    inputs = accounting.rows([*files, *found.tool_files], read.by_file, asked.run_id)
    if last_run.restore(tables, asked.clusters):
        warn("an earlier run was interrupted; this one completes it")
    outputs = tool_outputs.land(tables, found.outputs) if found.outputs else ()
    return LandResult([*files, *found.tool_files], read, outputs, inputs)


def rebuild(tables: RunTables, asked: Asked, landed: LandResult) -> RebuildResult:
    """Update all tables that are derived from events, including events of an interrupted run."""
    from jobs.engine.rows import run_concurrently
    from jobs.nightly import updates
    from jobs.operators import assignments, durability

    clusters = asked.config.clusters
    new_events = updates.read(tables, asked.clusters, rebuilding.keeps_of(asked.ruleset))
    with stage("timelines, coverage") as doing:
        rebuilt = updates.update(tables, new_events)
        doing.note(f"{new_events.count:,} new events")
    outcomes = [
        outcome(
            one, rebuilt.facts.get(one.name), landed.files, landed.read, inputs=landed.inputs, now=asked.now
        )
        for one in clusters
    ]
    audited = [one.cluster for one in outcomes if one.problem is None]
    configured = {one.name: _configured(asked.config, one) for one in clusters}
    reset = [name for name, one in new_events.stored.items() if one.configured != configured[name]]
    if audited and (reset or not new_events.is_empty):
        all_topics_of = (rebuilt.facts.keys() - rebuilt.resumed.keys()).union(reset)
        with stage("assignments, durability"):
            run_concurrently(
                partial(
                    assignments.write,
                    tables,
                    rebuilt,
                    all_topics_of,
                    {one.name: one.racks for one in clusters},
                ),
                partial(durability.write, tables, rebuilt, all_topics_of, asked.config),
            )
    if audited and (landed.outputs or not (new_events.is_empty or tables.has_none("checkpoints"))):
        with stage("checkpoints"):
            outputs = [output for output in landed.outputs if output.cluster in audited]
            tool_outputs.write(tables, outputs, {name: rebuilt.facts[name] for name in audited})
    return RebuildResult(new_events, rebuilt, outcomes, audited, configured, reset)


def check(tables: RunTables, asked: Asked, landed: LandResult, rebuilt: RebuildResult) -> CheckResult:
    """Write the findings. Raises ContractError where a written table breaks its contract."""
    from jobs.checking import checks, findings_stage
    from jobs.nightly import updates

    config, clocks = asked.config, _clocks(asked, rebuilt)
    now_asked = checks.asked(clocks, config.thresholds, config.slos, asked.silences, landed.outputs)
    is_new = rebuilt.tables.is_new or rebuilt.reset or rebuilt.new_events.asked != {now_asked}
    if not (is_new or asked.checks_again) or not rebuilt.audited:
        if rebuilt.audited:
            with stage("nothing new to check"):
                findings_stage.write_unchanged(tables, asked, clocks)
        return CheckResult()
    with stage("checks, contracts") as doing:
        failed, queries, notes = findings_stage.write(tables, asked, rebuilt.tables, clocks)
        for note in notes:
            doing.note(note)
    return CheckResult(
        failed,
        queries,
        partial(updates.note, tables, rebuilt.tables, "" if failed else now_asked, rebuilt.configured),
    )


def _configured(config: Config, cluster: Cluster) -> str:
    """Return what audit.toml sets for assignments and durability of a cluster, as JSON."""
    topics = [
        (one.name, one.min_insync_replicas) for one in config.topics if matches([one.cluster], cluster.name)
    ]
    return json.dumps([sorted(cluster.racks.items()), topics])


def _clocks(asked: Asked, rebuilt: RebuildResult) -> list[Clock]:
    from jobs.checking.checks import Clock

    versions = {cluster.name: cluster.kafka_version for cluster in asked.config.clusters}
    nows, facts = {one.cluster: one.now for one in rebuilt.outcomes}, rebuilt.tables.facts
    return [
        Clock(name, nows[name], max(facts[name].numbers), versions[name] or facts[name].kafka_version)
        for name in rebuilt.audited
    ]
