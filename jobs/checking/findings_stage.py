"""The checking stage: violations become findings, and the written tables are validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.checking import causes, checks, contracts, finding_identity, findings_life
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
    tables: RunTables, asked: Asked, made: Updated, clocks: Sequence[Clock]
) -> tuple[Mapping[str, str], queries.Queries, list[str]]:
    """Write the findings of clusters.

    out: check -> why it could not be run; queries over what was checked; what held, for people. Raises ContractError where what was written breaks
    its contract.
    """
    names = [clock.cluster for clock in clocks]
    days = max((slo.days for slo in asked.config.slos), default=0)
    audited = updates.scope(tables, made, names, days)
    looked_at = {**audited, "partitions_now": updates.partitions_now(tables, made, audited, names)}
    over = queries.over(tables.spark, looked_at.values())
    validated = _Validation(tables, asked)
    (failed, changed), held = run_concurrently(
        lambda: _find(tables, asked, made, looked_at, clocks, over=over), partial(validated.hold, over, audited, audited)
    )
    notes = [held]
    if changed:
        proofs = [{"record_id": one} for one in {one for row in changed for one in row["evidence"]}]
        wanted = tables.table_of("events", proofs).select(["record_id"])
        there = {row["record_id"] for row in to_dicts(having(select(audited["events"], "record_id"), wanted, ["record_id"]))}
        if others := set(wanted["record_id"].to_pylist()) - there:
            found = tables.records(names, others, ["record_id"], (row["first_seen"] for row in changed))
            there |= set(found["record_id"].to_pylist())
        events = tables.table_of("events", [{"record_id": one} for one in there]).select(["record_id"])
        findings, subjects = (tables.read(table, names) for table in ("findings", "finding_subjects"))
        some = {"findings": tables.table_of("findings", changed), "finding_subjects": subjects}
        known = {"events": events, "findings": findings}
        notes.append(validated.hold(queries.over(tables.spark, [*some.values(), *known.values()]), some, known))
    return failed, over, notes


def stand(tables: RunTables, asked: Asked, clocks: Sequence[Clock]) -> None:
    """Write the findings of clusters without new records: silences may have begun or ended."""
    before = to_dicts(tables.read("findings", [clock.cluster for clock in clocks]))
    _settle(tables, asked, findings_life.still(before), before, clocks)


class _Validation:
    """Whether rows keep their contracts: by SQL where this machine computes, else, and for Data Docs, by Great Expectations."""

    def __init__(self, tables: RunTables, asked: Asked) -> None:
        self._spark, self._docs = tables.spark, asked.data_docs
        self._suites: Any = None

    def hold(self, over: queries.Queries, some: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
        """Return what held. some: table -> rows; whole: all rows of tables that their rules read. Raises ContractError."""
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
                if self._spark is None
                else self._suites.of_frames(self._spark, some, whole)
            )
            self._suites.write_docs()
            contracts.raise_for(found)
            count = self._suites.count - before
        return f"{counted(count, 'contract')} of {counted(len(some), 'table')} passed"


def _find(
    tables: RunTables,
    asked: Asked,
    made: Updated,
    audited: Mapping[str, Any],
    clocks: Sequence[Clock],
    *,
    over: queries.Queries,
) -> tuple[Mapping[str, str], list[Row]]:
    """Write the findings. out: check -> why it could not be run; those that this run has changed."""
    config, names = asked.config, [clock.cluster for clock in clocks]
    facts = {name: made.facts[name] for name in names}
    checks.register(over, audited, list(clocks), facts, thresholds=config.thresholds, slos=config.slos)
    given = checks.present(over)
    given |= {"metadata_log"} if any(facts[name].has_metadata_log for name in names) else set()
    given |= {"cluster_ids"} if any(len(facts[name].cluster_ids) > 1 for name in names) else set()
    given |= {"slos"} if config.slos else set()
    found = checks.violations(over, given)
    before = to_dicts(tables.read("findings", names))
    begins = {name: at.replace(tzinfo=UTC) for name, at in made.looked_back(names).items()}
    lives = finding_identity.continued(found.rows, before, begins)
    news = findings_life.news(lives.found, lives.before, begins)
    stored = to_dicts(tables.read("finding_subjects", names))
    stored = [row | {"fingerprint": lives.fingerprints.get(row["fingerprint"], row["fingerprint"])} for row in stored]
    about = findings_life.subjects(news, stored)
    changed = _settle(tables, asked, news, lives.before, clocks, about=about)
    if changed:
        tables.replace("finding_subjects", names, tables.table_of("finding_subjects", about))
    return found.failed, changed


def _settle(
    tables: RunTables,
    asked: Asked,
    found: Sequence[Row],
    before: Sequence[Row],
    clocks: Sequence[Clock],
    *,
    about: Sequence[Row] | None = None,
) -> list[Row]:
    """Write the findings, `found` being what is violated now, and return those that this run has changed.

    about: rows of `finding_subjects`; None where nothing new was checked, so that causes do not change.
    """
    now = {clock.cluster: clock.now and clock.now.replace(tzinfo=UTC) for clock in clocks}
    settled = findings_life.settle(found, before, now, asked.run_id, asked.silences)
    if about is not None:
        settled = causes.with_causes(settled, about)
    changed = [row for row in settled if row["run_id"] == asked.run_id]
    causes_before = {row["fingerprint"]: row["caused_by"] for row in before}
    if changed or any(row["caused_by"] != causes_before.get(row["fingerprint"]) for row in settled):
        tables.replace("findings", list(now), tables.table_of("findings", settled))
    return changed
