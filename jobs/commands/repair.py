"""The command `repair`: rebuild damaged tables from `events` or from their readable files.

A damaged table is moved to `_damaged/TABLE.N`, never deleted. Its readable rows are first written to a new
table, `_repaired/TABLE`, which then replaces it. `cluster_facts` is moved before any other table, so that the
next run rebuilds all derived tables even if the repair is interrupted.
"""

import argparse
import contextlib
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import schemas
from jobs import config as configuration
from jobs import errors
from jobs.arguments import add_command
from jobs.commands.audit import add_wait, ruleset_of
from jobs.engine import damage, upgrade
from jobs.engine.damage import LOG, UNREADABLE, Log
from jobs.errors import UsageError
from jobs.location import local_folder, root_of
from jobs.progress import stage
from parsers.explanation import counted

if TYPE_CHECKING:
    from jobs.engine.delta_rs import DeltaRsTables
    from jobs.engine.run_tables import RunTables

EXAMPLES = """\
examples:
  kafka-audit repair --tables /data/audit
  kafka-audit repair --tables /data/audit --config audit.toml      # with its racks, topics and rules

exit codes:
  0 all tables can be read   2 wrong usage, or another run is active
"""
ASIDE, REPAIRED = "_damaged", "_repaired"
# columns of tables whose contract has no key; rows of one finding and subject may differ in their times
KEYLESS = {
    "passed_over": ("cluster", "record"),
    "finding_subjects": ("cluster", "fingerprint", "topic", "partition", "replica"),
    "alerts": ("cluster", "fingerprint", "sink", "state", "occurrence", "tried_at"),
    "audit_runs": ("run_id",),
}
# findings and their subjects
SUBJECTS = {"findings", "finding_subjects"}
# table that cannot be derived -> consequence of lost rows
LOSSES = {
    "events": "the next audit reads them again from the logs that still exist",
    "passed_over": "counts of records out of scope are too low until their logs are read again",
    "findings": "findings that are still open are found again, as new ones",
    "finding_subjects": "the next audit writes the subjects of open findings again",
    "alerts": "messages that were delivered may be sent once more",
    "audit_runs": "the ledger of runs has a gap",
    "checkpoints": "give the outputs of the tools again with --checkpoint",
}


def add_arguments(commands: Any) -> None:
    """Add `repair` to the command line."""
    command = add_command(
        commands,
        "repair",
        run,
        "--tables --rules",
        summary="rebuild damaged tables; say what was lost",
        examples=EXAMPLES,
    )
    command.add_argument("--config", type=Path, metavar="audit.toml", help="racks, topics and rules")
    add_wait(command)


def run(options: argparse.Namespace) -> int:
    """Repair the tables, print what was rebuilt and lost, and return the exit code. Raises UsageError."""
    from jobs.engine import lease

    root = root_of(options.tables)
    folder = local_folder(root)
    if folder is None:
        raise UsageError(
            f"--tables {options.tables}: tables are repaired in a folder of this machine; copy them there, and back"
        )
    if not folder.is_dir():
        raise UsageError(
            f"--tables {options.tables}: no such folder; give the one that `kafka-audit audit` wrote"
        )
    config = configuration.load(options.config) if options.config else configuration.Config()
    ruleset = ruleset_of(options.rules or config.rules)
    with lease.acquire(root, uuid.uuid4().hex[:16], options.wait) as own_lease:
        with stage("look at all files") as doing:
            found = damage.examined(root, versions=own_lease.versions, thorough=True)
            doing.note(counted(len(found), "damaged table"))
        # the losses are printed first, because rebuilding may fail
        for repaired in _repair(folder, found):
            print(repaired.sentence(), flush=True)
        own_lease.versions = {}
        is_rebuilt = _rebuild(root, ruleset, config, own_lease)
    if is_rebuilt:
        print("Timelines, and all tables derived from them, were rebuilt from events.")
    print("All tables can be read." if found or is_rebuilt else "No table is damaged.")
    return errors.CLEAN


def _rebuild(root: str, ruleset: Any, config: Any, own_lease: Any) -> bool:
    """Open the tables and rebuild derived ones where necessary; return whether it was.

    Spark does it where the local engine does not write the tables.
    """
    from jobs.engine import choice
    from jobs.engine.local_store import LocalStore

    try:
        with contextlib.closing(LocalStore(root, own_lease.check)) as tables:
            return _is_rebuilt(tables, ruleset, config, own_lease)
    except choice.OnlySpark as reason:
        choice.require_spark(str(reason))
    from jobs.engine import session
    from jobs.engine.store import Store

    with stage("start Spark"):
        spark = session.start()
    return _is_rebuilt(Store(spark, root, own_lease.check), ruleset, config, own_lease)


def _is_rebuilt(tables: "RunTables", ruleset: Any, config: Any, own_lease: Any) -> bool:
    from jobs import rebuilding

    tables.open(ruleset)
    if tables.is_rebuilding:
        if clusters := tables.clusters():
            with stage("rebuild from events") as doing:
                rebuilding.rebuild(tables, clusters, ruleset, config)
                doing.note(", ".join(clusters))
        tables.rebuilt()
    own_lease.versions = tables.versions()
    return tables.is_rebuilding


@dataclass(frozen=True)
class Repaired:
    """The result for one table. kept: number of rows; None: it is derived. lost_files: unreadable files.

    lost_rows: None: not known.
    """

    table: str
    why: Sequence[str]
    kept: int | None = None
    lost_files: int = 0
    lost_rows: int | None = 0

    def sentence(self) -> str:
        """Return the result as a sentence."""
        what = f"{self.table} ({'; '.join(self.why[:2])})"
        if self.kept is None:
            return f"{what}: is derived, and rebuilt from events."
        kept = f"{what}: {self.kept:,} rows were kept"
        if not self.lost_files and self.lost_rows == 0:
            return f"{kept}."
        rows = "rows" if self.lost_rows is None else f"up to {self.lost_rows:,} rows"
        files = f" in {counted(self.lost_files, 'file')}" if self.lost_files else ""
        return f"{kept}, {rows}{files} are lost: {LOSSES[self.table]}."


def _repair(folder: Path, found: Mapping[str, Sequence[str]]) -> list[Repaired]:
    """Replace damaged tables by readable ones.

    Derived tables are moved away, and the next opening creates them.
    """
    if not found:
        return []
    _set_aside(folder, upgrade.FACTS)
    repaired = []
    # the findings before their subjects
    for table, why in sorted(found.items(), key=lambda one: (one[0] == "finding_subjects", one[0])):
        if table in LOSSES:
            repaired.append(_salvage(folder, table, why))
        else:
            _set_aside(folder, table)
            repaired.append(Repaired(table, why))
    if SUBJECTS.intersection(found):
        _drop_orphans(folder)
        _forget_versions(folder)
    return repaired


def _drop_orphans(folder: Path) -> None:
    """Remove the subjects of lost findings. Raises UsageError."""
    subjects = _rows_of(folder, "finding_subjects")
    remaining = _of_findings(folder, subjects)
    if remaining.num_rows < subjects.num_rows and not _tables(folder).overwrite(
        "finding_subjects", remaining
    ):
        raise _not_written("finding_subjects", folder)


def _of_findings(folder: Path, subjects: pa.Table) -> pa.Table:
    """Return the rows of findings that exist."""
    findings = _rows_of(folder, "findings")
    return subjects.filter(
        pc.is_in(subjects["fingerprint"], value_set=findings["fingerprint"].combine_chunks())
    )


def _rows_of(folder: Path, table: str) -> pa.Table:
    """Return the rows of a table that can be read. Raises UsageError."""
    found = _tables(folder).rows(table)
    if found is None or found.rows is None:
        raise UsageError(f"table {table} under {folder} cannot be read")
    return _plain(found.rows)


def _forget_versions(folder: Path) -> None:
    """Delete the recorded versions, because those of findings are now of another table. Raises UsageError."""
    if "audit_runs" in (path.name for path in folder.iterdir()) and not _tables(folder).set_null(
        "audit_runs", "tables_at"
    ):
        raise _not_written("audit_runs", folder)


def _tables(folder: Path) -> "DeltaRsTables":
    # deltalake takes a tenth of a second to import, which other commands would pay for
    from jobs.engine.delta_rs import DeltaRsTables

    return DeltaRsTables(folder)


def _not_written(table: str, folder: Path) -> UsageError:
    return UsageError(
        f"table {table} cannot be written to {folder}; free space and run the same command again"
    )


def _set_aside(folder: Path, table: str) -> None:
    if (folder / table).exists():
        (folder / table).rename(_new_aside(folder, table))


def _new_aside(folder: Path, table: str) -> Path:
    """Return a free path to which a damaged table or its files can be moved."""
    (folder / ASIDE).mkdir(exist_ok=True)
    number = 1
    while (folder / ASIDE / f"{table}.{number}").exists():
        number += 1
    return folder / ASIDE / f"{table}.{number}"


def _salvage(folder: Path, table: str, why: Sequence[str]) -> Repaired:
    """Keep the readable rows of a table."""
    # a readable log shows which files are lost
    if all(one.startswith("file ") for one in why) and (repaired := _without_files(folder, table, why)):
        return repaired
    return _rewritten(folder, table, why)


def _without_files(folder: Path, table: str, why: Sequence[str]) -> Repaired | None:
    """Remove the damaged files from a table; None where delta-rs does not write it."""
    log = damage.read_log(folder / table)
    lost = [name for name in log.files if not damage.is_readable(folder / table / name)]
    aside = _new_aside(folder, table)
    for name in lost:
        if (folder / table / name).exists():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / table / name).rename(aside / name)
    kept = _tables(folder).remove_lost_files(table)
    if kept is None:
        return None
    rows = [log.files[name][1] for name in lost]
    return Repaired(table, why, kept, len(lost), None if None in rows else sum(one or 0 for one in rows))


def _rewritten(folder: Path, table: str, why: Sequence[str]) -> Repaired:
    """Write the readable rows to a new table and replace the old one by it."""
    readable = _rows(folder / table, damage.read_log(folder / table), table)
    new = _tables(folder / REPAIRED)
    shutil.rmtree(folder / REPAIRED / table, ignore_errors=True)
    (folder / REPAIRED).mkdir(exist_ok=True)
    is_written = new.create_as_defined(table) and (
        readable.rows is None or not readable.rows.num_rows or new.append(table, readable.rows)
    )
    if not is_written:
        raise _not_written(table, folder / REPAIRED)
    _set_aside(folder, table)
    (folder / REPAIRED / table).rename(folder / table)
    kept = 0 if readable.rows is None else readable.rows.num_rows
    return Repaired(table, why, kept, readable.lost_files, readable.lost_rows)


@dataclass(frozen=True)
class Readable:
    """The readable part of a table. lost_rows: None: not known."""

    rows: pa.Table | None
    lost_files: int
    lost_rows: int | None


def _rows(path: Path, log: Log, table: str) -> Readable:
    """Return the rows of all readable files, the newest first.

    Files that the log does not name are read, too, because it may have gaps.
    """
    named = {name: rows for name, (_, rows) in log.files.items()}
    unnamed: set[str] = set()
    if path.is_dir():
        present = {str(file.relative_to(path)) for file in path.rglob("*.parquet") if LOG not in file.parts}
        unnamed = {name for name in present - named.keys() - log.removed if not name.startswith("_")}
    lost_files, tables = 0, []
    for name in sorted([*named, *unnamed], key=lambda one: _written_at(path / one), reverse=True):
        try:
            tables.append(pq.ParquetFile(path / name).read())
        except UNREADABLE:
            if name in named:
                lost_files += 1
    if not tables:
        return Readable(None, lost_files, None)
    columns = schemas.columns(table)
    plain = [_plain(one.select([name for name in one.column_names if name in columns])) for one in tables]
    rows = _of_newest(plain, _keys(table))
    if table == "events":
        rows = _whole(rows)
    if table == "finding_subjects":
        rows = _of_findings(path.parent, rows)
    if table == "findings" and "known_as" in rows.column_names:
        # an older file may have a finding under its former fingerprint
        is_renamed = pc.is_in(rows["fingerprint"], value_set=rows["known_as"].combine_chunks().drop_null())
        newest = pc.is_in(rows["fingerprint"], value_set=plain[0]["fingerprint"].combine_chunks())
        rows = rows.filter(pc.or_(pc.invert(is_renamed), newest))
    # without a log nothing shows whether other files were lost, too
    return Readable(rows, lost_files, None if not (path / LOG).is_dir() or lost_files else 0)


def _keys(table: str) -> Sequence[str]:
    """Return the columns by which rows in a newer file replace those in an older one."""
    return KEYLESS.get(table) or schemas.contracts()[table].key


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def _plain(rows: pa.Table) -> pa.Table:
    """Return the rows with one type for texts and moments, because delta-rs writes some texts as views."""

    def kind(of: pa.DataType) -> pa.DataType:
        if pa.types.is_string_view(of) or pa.types.is_large_string(of):
            return pa.string()
        if pa.types.is_timestamp(of):
            return pa.timestamp("us", "UTC")
        if pa.types.is_list(of) or pa.types.is_large_list(of):
            return pa.list_(kind(of.value_type))
        return of

    return rows.cast(pa.schema([pa.field(one.name, kind(one.type)) for one in rows.schema]))


def _of_newest(tables: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    """Return the rows of all tables, the newest table first.

    Where rows have the same key, those of the first table count.
    """
    numbered = [
        one.append_column("nth", pa.repeat(pa.scalar(number, pa.int32()), one.num_rows))
        for number, one in enumerate(tables)
    ]
    rows = pa.concat_tables(numbered, promote_options="default")
    known = [name for name in keys if name in rows.column_names]
    rows = rows.append_column("place", pa.array(range(rows.num_rows), pa.int64()))
    # a join would skip nulls, so groups are listed instead
    groups = (
        rows.select([*known, "nth", "place"]).group_by(known).aggregate([("nth", "min"), ("place", "list")])
    )
    first = (
        groups["nth_min"].combine_chunks().take(pc.list_parent_indices(groups["place_list"].combine_chunks()))
    )
    places = pc.list_flatten(groups["place_list"].combine_chunks())
    order = pc.sort_indices(places)
    return rows.filter(pc.equal(rows["nth"], first.take(order))).drop_columns(["nth", "place"])


def _whole(rows: pa.Table) -> pa.Table:
    """Return events without those of records that were cut short and are whole in another file."""
    from jobs.batches.record_blocks import LONGEST_CUT, cut_short, firsts

    if "ends_file" not in rows.column_names:
        return rows
    ends = [
        one
        for one in firsts(rows.filter(pc.fill_null(rows["ends_file"], False)))
        if one.ts and len(one.raw) <= LONGEST_CUT
    ]
    moments = pa.array(sorted({one.ts for one in ends if one.ts}), rows.schema.field("ts").type)
    incomplete = (
        cut_short(ends, firsts(rows.filter(pc.is_in(rows["ts"], value_set=moments)))) if ends else set()
    )
    return (
        rows.filter(
            pc.invert(pc.is_in(rows["record_id"], value_set=pa.array(sorted(incomplete), pa.string())))
        )
        if incomplete
        else rows
    )
