"""The checking stage: turn violations into findings and validate the written tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.checking import causes, checks, contracts, finding_identity, finding_lifecycle
from jobs.checking.checks import Clock
from jobs.engine import queries
from jobs.engine.rows import having, run_concurrently, select, to_dicts
from jobs.nightly import updates
from parsers.explanation import counted

if TYPE_CHECKING:
    from jobs.engine.run_tables import RunTables
    from jobs.nightly.updates import Updated
    from jobs.pipeline import Asked

Row = dict[str, Any]


def write(
    tables: RunTables, asked: Asked, rebuilt: Updated, clocks: Sequence[Clock]
) -> tuple[Mapping[str, str], queries.Queries, list[str]]:
    """Write the findings of clusters.

    Returns check -> why it could not be run; queries over the checked tables; messages about the contracts
    that passed. Raises ContractError where a written table breaks its contract.
    """
    names = [clock.cluster for clock in clocks]
    days = max((slo.days for slo in asked.config.slos), default=0)
    audited = updates.scope(tables, rebuilt, names, days)
    looked_at = {**audited, "partitions_now": updates.partitions_now(tables, rebuilt, audited, names)}
    over = queries.over(tables.spark, looked_at.values())
    validation = _Validation(tables, asked)
    (failed, changed), passed = run_concurrently(
        lambda: _find(tables, asked, rebuilt, looked_at, clocks, over=over),
        partial(validation.run, over, audited, audited),
    )
    notes = [passed]
    if changed:
        proofs = [{"record_id": one} for one in {one for row in changed for one in row["evidence"]}]
        quoted = tables.table_of("events", proofs).select(["record_id"])
        present = {
            row["record_id"]
            for row in to_dicts(having(select(audited["events"], "record_id"), quoted, ["record_id"]))
        }
        if others := set(quoted["record_id"].to_pylist()) - present:
            found = tables.records(names, others, ["record_id"], (row["first_seen"] for row in changed))
            present |= set(found["record_id"].to_pylist())
        events = tables.table_of("events", [{"record_id": one} for one in present]).select(["record_id"])
        findings, subjects = (tables.read(table, names) for table in ("findings", "finding_subjects"))
        some = {"findings": tables.table_of("findings", changed), "finding_subjects": subjects}
        known = {"events": events, "findings": findings}
        notes.append(
            validation.run(queries.over(tables.spark, [*some.values(), *known.values()]), some, known)
        )
    return failed, over, notes


def write_unchanged(tables: RunTables, asked: Asked, clocks: Sequence[Clock]) -> None:
    """Write the findings of clusters without new records, because silences may have begun or ended."""
    before = to_dicts(tables.read("findings", [clock.cluster for clock in clocks]))
    _update(tables, asked, finding_lifecycle.unresolved(before), before, clocks)


class _Validation:
    """Validates contracts: the local engine by SQL; a run on Spark, and Data Docs, by Great Expectations."""

    def __init__(self, tables: RunTables, asked: Asked) -> None:
        self._spark, self._docs = tables.spark, asked.data_docs
        self._suites: Any = None

    def run(self, over: queries.Queries, some: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
        """Validate rows and return a message about what passed. Raises ContractError.

        some: table -> rows. whole: all rows of tables that their rules read.
        """
        if self._spark is None and self._docs is None:
            count = contracts.validate(over, some, whole)
        else:
            if self._suites is None:
                from jobs.checking import expectations

                kinds = contracts.KINDS if self._spark is None else contracts.NOT_ENFORCED
                self._suites = expectations.Suites(self._docs, kinds)
            before = self._suites.count
            found = (
                self._suites.of_rows(over, some, whole)
                if over.spark is None
                else self._suites.of_frames(over.spark, some, whole)
            )
            self._suites.write_docs()
            contracts.raise_for(found)
            count = self._suites.count - before
        return f"{counted(count, 'contract')} of {counted(len(some), 'table')} passed"


def _find(
    tables: RunTables,
    asked: Asked,
    rebuilt: Updated,
    audited: Mapping[str, Any],
    clocks: Sequence[Clock],
    *,
    over: queries.Queries,
) -> tuple[Mapping[str, str], list[Row]]:
    """Write the findings.

    Returns check -> why it could not be run, and the findings that this run has changed.
    """
    config, names = asked.config, [clock.cluster for clock in clocks]
    facts = {name: rebuilt.facts[name] for name in names}
    checks.register(over, audited, list(clocks), facts, thresholds=config.thresholds, slos=config.slos)
    given = checks.present(over)
    given |= {"metadata_log"} if any(facts[name].has_metadata_log for name in names) else set()
    given |= {"cluster_ids"} if any(len(facts[name].cluster_ids) > 1 for name in names) else set()
    given |= {"slos"} if config.slos else set()
    found = checks.violations(over, given)
    before = to_dicts(tables.read("findings", names))
    begins = {name: at.replace(tzinfo=UTC) for name, at in rebuilt.looked_back(names).items()}
    matches = finding_identity.matched(found.rows, before, begins)
    current = finding_lifecycle.without_old(matches.found, matches.before, begins)
    stored = to_dicts(tables.read("finding_subjects", names))
    stored = [
        row | {"fingerprint": matches.fingerprints.get(row["fingerprint"], row["fingerprint"])}
        for row in stored
    ]
    about = finding_lifecycle.subjects(current, stored)
    changed = _update(tables, asked, current, matches.before, clocks, about=about)
    if changed:
        tables.replace("finding_subjects", names, tables.table_of("finding_subjects", about))
    return found.failed, changed


def _update(
    tables: RunTables,
    asked: Asked,
    found: Sequence[Row],
    before: Sequence[Row],
    clocks: Sequence[Clock],
    *,
    about: Sequence[Row] | None = None,
) -> list[Row]:
    """Write the findings and return those that this run has changed. found: the findings of this run.

    about: rows of `finding_subjects`; None where nothing was checked, so that causes do not change.
    """
    now = {clock.cluster: clock.now and clock.now.replace(tzinfo=UTC) for clock in clocks}
    findings = finding_lifecycle.updated(found, before, now, asked.run_id, asked.silences)
    if about is not None:
        findings = causes.with_causes(findings, about)
    changed = [row for row in findings if row["run_id"] == asked.run_id]
    causes_before = {row["fingerprint"]: row["caused_by"] for row in before}
    if changed or any(row["caused_by"] != causes_before.get(row["fingerprint"]) for row in findings):
        tables.replace("findings", list(now), tables.table_of("findings", findings))
    return changed
