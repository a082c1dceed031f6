"""Restore the findings of the last completed run.

A run that completes an interrupted one compares with these. A run is complete when its row is in
`audit_runs`. That row is written last, and names the versions of the tables at the end of the run.
"""

import json
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from jobs.engine.rows import Frame, distinct, select, to_dicts

# tables that a run compares with the result of earlier runs
COMPARED = ("findings", "finding_subjects")
# completed runs that are searched for one with findings of completed runs only
MOST_RUNS = 20


def versions(store: Any) -> str:
    """Return the current versions of the tables, for `audit_runs.tables_at`."""
    return json.dumps({table: store.version(table) for table in COMPARED})


def restore(store: Any, clusters: Collection[str]) -> bool:
    """Undo what interrupted runs have written into COMPARED. Return whether there was anything to undo.

    Where Delta no longer has the version of the last completed run, the tables do not change.
    """
    found = _runs_of(store.read("findings", clusters))
    if not found:
        return False
    runs = sorted(to_dicts(store.whole("audit_runs")), key=lambda row: row["finished_at"], reverse=True)
    completed = {row["run_id"] for row in runs}
    if all(ids <= completed for ids in found.values()):
        return False
    for run in runs[:MOST_RUNS]:
        if not run["tables_at"]:
            continue
        found_at = {
            table: store.rows_at(table, clusters, version)
            for table, version in json.loads(run["tables_at"]).items()
        }
        rows = {table: some for table, some in found_at.items() if some is not None}
        if len(rows) < len(found_at):
            continue  # files of that version were removed
        if all(ids <= completed for ids in _runs_of(rows["findings"]).values()):
            _put_back(store, clusters, rows)
            return True
    # clusters of which no run was ever completed
    never = [name for name, ids in found.items() if not ids & completed]
    never = [name for name in never if not to_dicts(store.read("cluster_facts", [name]))]
    _put_back(store, never, {table: store.table_of(table, []) for table in COMPARED})
    return bool(never)


def _runs_of(findings: Frame) -> dict[str, set[str]]:
    """Return cluster -> the runs that last changed its findings."""
    found: dict[str, set[str]] = {}
    for row in to_dicts(distinct(select(findings, "cluster", "run_id"))):
        found.setdefault(row["cluster"], set()).add(row["run_id"])
    return found


def _put_back(store: Any, clusters: Collection[str], rows: dict[str, pa.Table]) -> None:
    """Restore findings last: they show whether there is something to undo."""
    for table in reversed(COMPARED):
        if clusters:
            store.replace(table, clusters, rows[table])
