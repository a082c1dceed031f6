"""Delta tables in a local folder, read and written by this process with deltalake (delta-rs): those of the
local engine, and small ones of Spark.

Spark asks three queries of its own for the files of a Delta table before the first of its rows, and as many
around a commit. Over some twenty tables of a few rows each, that is most of the time of a small run
(tests/benchmarks/small_runs.py).
"""

import json
import operator
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from pyarrow import fs

import schemas
from jobs.batches.types import delta_schema
from jobs.engine import upgrade
from jobs.engine.conflicts import LANDING, Conflict
from jobs.engine.damage import LOG
from jobs.engine.files import DataFile, FileWriter
from jobs.engine.listing import type_name
from jobs.engine.rows import quoted
from jobs.location import PLAIN

# bytes of unpacked rows, as a line of a log may have any length: of a search's result, and of a table that is
# read as a whole
MOST_BYTES = 512 * 1024 * 1024
MOST_BYTES_OF_TABLE = 64 * 1024 * 1024
# rows that this process searches; Spark's workers search larger tables
MOST_SCANNED = 20_000_000
# features of tables that are written here: of others deltalake refuses some (clustering), and some would need
# more than files and rows
WRITTEN = {"appendOnly", "invariants", "changeDataFeed", "checkConstraints"}
# properties of tables, and Delta's first writer version that enforces CHECK constraints
CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
WRITER_VERSION = "delta.minWriterVersion"
CONSTRAINTS_SINCE = 3
# a property of tables, and the number of files from which on they are merged into one, as Spark does it
AUTO_COMPACT = "delta.autoOptimize.autoCompact"
COMPACTED_FROM = 50
# rows that Spark reads as a whole: it shares out a file of several such groups
ROW_GROUP = 20_000
# what a change data feed adds to the columns of its table
CHANGE_FEED = pa.schema(
    [
        ("_change_type", pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)
# what deltalake raises where it cannot do something: a feature, a file system without hard links
LEFT_TO_SPARK = (DeltaError, OSError, pa.ArrowException)
# which files of a table are replaced: column, comparison, value
Filters = Sequence[tuple[str, str, Any]]
# values of the columns that a table is partitioned by, and the condition for the rows with them, a
# `pyarrow.compute.Expression`
Staying = Sequence[tuple[Mapping[str, Any], Any]]


def files_of(clusters: Collection[str], *, keeps_settled: bool) -> Filters:
    """Return which files of a partitioned table are replaced: those of some clusters, or of what is not
    settled of them.
    """
    return [("cluster", "in", sorted(clusters)), *([("settled", "=", "false")] if keeps_settled else [])]


@dataclass(frozen=True)
class Read:
    """rows: of a table (is_whole), or of some clusters; None: too many for this process."""

    rows: pa.Table | None
    is_whole: bool


@contextmanager
def _left_to_spark() -> Iterator[None]:
    """Ignore errors of what deltalake cannot do."""
    try:
        yield
    except LEFT_TO_SPARK:
        pass
    except BaseException as error:
        # a panic of Rust is no Exception, and has no name that can be imported
        if type(error).__name__ != "PanicException":
            raise


def vocabulary_ddl() -> str:
    """Column definitions of the vocabulary, as `events` has them."""
    return ",\n".join(
        f"  {name} {schemas.SPARK_TYPES[word['type']]} COMMENT {quoted(word['comment'])}"
        for name, word in schemas.vocabulary().items()
    )


class DeltaRsTables:
    """The tables of a folder, read and written with delta-rs.

    Whatever it cannot do is None or False, and left to Spark.
    """

    def __init__(self, folder: Path, most_rows: int = sys.maxsize) -> None:
        """most_rows: number of rows that are read; more are left to Spark."""
        self.folder = folder
        self.most_rows = most_rows
        is_alone = most_rows == sys.maxsize
        self.most_bytes = sys.maxsize if is_alone else MOST_BYTES
        self.most_bytes_of_table = sys.maxsize if is_alone else MOST_BYTES_OF_TABLE
        self.most_scanned = sys.maxsize if is_alone else MOST_SCANNED

    @classmethod
    def of(cls, folder: Path | None, most_rows: int = sys.maxsize) -> "DeltaRsTables | None":
        """Return None where deltalake cannot reach the tables."""
        return cls(folder, most_rows) if folder is not None and PLAIN.fullmatch(str(folder)) else None

    def _opened(self, table: str) -> DeltaTable | None:
        with _left_to_spark():
            return DeltaTable(str(self.folder / table))
        return None

    def _dataset(self, table: str, opened: DeltaTable) -> ds.FileSystemDataset:
        # deltalake's own file system is Python, which Arrow's threads may still call when the process ends:
        # it aborts
        return opened.to_pyarrow_dataset(
            filesystem=fs.SubTreeFileSystem(str(self.folder / table), fs.LocalFileSystem())
        )

    def has_log(self, table: str) -> bool:
        """Return whether there is a log of Delta's, readable or not."""
        return (self.folder / table / LOG).is_dir()

    def schema(self, table: str) -> dict[str, Any] | None:
        """Return its columns, as Delta and Spark write them in JSON."""
        opened = self._opened(table)
        return None if opened is None else json.loads(opened.schema().to_json())

    def described(self, table: str) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]] | None:
        """Return its columns, as `schema` gives them, its properties, and the columns that it is partitioned
        by.
        """
        with _left_to_spark():
            if (opened := self._opened(table)) is not None:
                metadata = opened.metadata()
                return (
                    json.loads(opened.schema().to_json()),
                    metadata.configuration,
                    tuple(metadata.partition_columns),
                )
        return None

    def present(self, table: str) -> upgrade.Present | None:
        """Return what a table is like; None where there is none, or deltalake does not read it."""
        known = self.described(table)
        if known is None:
            return None
        columns, properties, by = known
        return upgrade.Present(
            {one["name"]: type_name(one["type"]) for one in columns["fields"]}, properties, by
        )

    def set_properties(self, table: str, properties: Mapping[str, str]) -> bool:
        """Set properties of a table; return whether that was done."""
        opened = self._opened(table)
        if opened is None or not _is_written(opened):
            return False
        with _left_to_spark():
            protocol = (
                _with_protocol(properties)
                if opened.protocol().min_writer_version < CONSTRAINTS_SINCE
                else properties
            )
            opened.alter.set_table_properties(dict(protocol), raise_if_not_exists=False)
            return True
        return False

    def is_writable(self, table: str) -> bool:
        """Return whether a table that is there has only features that are written here."""
        opened = self._opened(table)
        return opened is not None and _is_written(opened)

    def version(self, table: str) -> int | None:
        """Return the number of its last commit."""
        opened = self._opened(table)
        return None if opened is None else opened.version()

    def create(
        self,
        table: str,
        columns: Mapping[str, Any],
        by: Sequence[str],
        properties: Mapping[str, str],
        about: str,
    ) -> bool:
        """An empty table; whether it is there now.

        columns: as `schema` gives them; by: those that it is partitioned by.
        """
        schema, path = Schema.from_json(json.dumps(columns)), str(self.folder / table)
        with _left_to_spark():
            DeltaTable.create(
                path,
                schema,
                partition_by=list(by),
                configuration=_with_protocol(properties),
                description=about,
                raise_if_key_not_exists=False,
            )
            return True
        return False

    def create_as_defined(self, table: str) -> bool:
        """Create an empty table as this version defines it; return whether that was done."""
        return self.create(
            table,
            delta_schema(table),
            schemas.partition_columns(table),
            upgrade.properties(table),
            schemas.comment(table),
        )

    def rows(self, table: str, clusters: Collection[str] = ()) -> Read | None:
        """Return the rows of a table where they are few, else those of some clusters.

        None where deltalake does not read it.
        """
        with _left_to_spark():
            if (opened := self._opened(table)) is not None:
                found = self._dataset(table, opened)
                groups = (group for fragment in found.get_fragments() for group in fragment.row_groups)
                if (
                    found.count_rows() <= self.most_rows
                    and sum(group.total_byte_size for group in groups) <= self.most_bytes_of_table
                ):
                    return Read(found.to_table(), is_whole=True)
                mine = pc.field("cluster").isin(sorted(clusters))
                if not clusters or self._few(found, ["cluster"], mine) is None:
                    return Read(None, is_whole=False)
                return Read(self._few(found, found.schema.names, mine), is_whole=False)
        return None

    def rows_at(self, table: str, version: int) -> pa.Table | None:
        """Return all rows of an earlier version; None where deltalake does not read it."""
        with _left_to_spark():
            return self._dataset(table, DeltaTable(str(self.folder / table), version=version)).to_table()
        return None

    def rows_where(self, table: str, columns: Sequence[str], where: Any) -> pa.Table | None:
        """Return some columns of the rows that meet a condition, a `pyarrow.compute.Expression`.

        None where deltalake does not read the table, there is too much to search, or too many rows meet it.
        """
        with _left_to_spark():
            if (opened := self._opened(table)) is not None:
                every = self._dataset(table, opened)
                if every.count_rows() <= self.most_scanned:
                    return self._few(every, columns, where)
        return None

    def _few(self, every: ds.FileSystemDataset, columns: Sequence[str], where: Any) -> pa.Table | None:
        """Return some columns of the rows that meet a condition; None where these are more than the limits."""
        found, rows, size = [], 0, 0
        for batch in _matching(every, columns, where):
            found.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > self.most_rows or size > self.most_bytes:
                return None
        return pa.Table.from_batches(found, pa.schema([every.schema.field(name) for name in columns]))

    def changes(self, table: str, after: int) -> tuple[pa.Table, int] | None:
        """Return what versions after one have changed, and the newest version.

        The table's change data feed has the changes. None where they are many.
        """
        with _left_to_spark():
            if (opened := self._opened(table)) is not None:
                reader = pa.RecordBatchReader.from_stream(
                    opened.load_cdf(starting_version=after + 1, allow_out_of_range=True)
                )
                batches: list[pa.RecordBatch] = []
                rows = size = 0
                for batch in reader:
                    batches.append(batch)
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    if rows > self.most_rows or size > self.most_bytes:
                        return None
                columns = [*pa.schema(opened.schema().to_arrow()), *CHANGE_FEED]
                return aligned(
                    pa.Table.from_batches(batches, reader.schema), pa.schema(columns)
                ), opened.version()
        return None

    def append(self, table: str, rows: pa.Table, after: int | None = None) -> bool:
        """Add rows, columns by name; return whether that was done.

        after: only as the commit after that one; else raises Conflict.
        """
        return self._write(table, "append", rows, after=after)

    def overwrite(self, table: str, rows: pa.Table, of: Filters = (), staying: Staying = ()) -> bool:
        """Replace all rows, or those in partitions that meet a condition, columns by name.

        Return whether that was done.

        staying: rows of these partitions that are written again; there may be many.
        """
        return self._write(table, "overwrite", rows, of, staying=staying)

    def delete_matching(self, table: str, values: pa.Table, keys: Sequence[str]) -> bool:
        """Remove rows with the same keys; return whether that was done."""
        same = " AND ".join(f't."{name}" = v."{name}"' for name in keys)
        return self._changed(
            table,
            lambda opened, properties: (
                opened.merge(values, same, "v", "t", commit_properties=properties)
                .when_matched_delete()
                .execute()
            ),
        )

    def set_matching(self, table: str, values: pa.Table, keys: Sequence[str], others: Sequence[str]) -> bool:
        """Update rows from those with the same keys; return whether that was done."""
        same = " AND ".join(f't."{name}" = v."{name}"' for name in keys)
        assignments = {f'"{name}"': f'v."{name}"' for name in others}
        return self._changed(
            table,
            lambda opened, properties: (
                opened.merge(values, same, "v", "t", commit_properties=properties)
                .when_matched_update(assignments)
                .execute()
            ),
        )

    def merge(
        self, table: str, values: pa.Table, keys: Sequence[str], columns: Sequence[str], removed: str
    ) -> bool:
        """Replace rows with the same keys and add the others; return whether that was done.

        removed: condition for those that are removed instead.
        """
        same = " AND ".join(f't."{name}" = v."{name}"' for name in keys)
        assignments = {f'"{name}"': f'v."{name}"' for name in columns}
        return self._changed(
            table,
            lambda opened, properties: (
                opened.merge(values, same, "v", "t", commit_properties=properties)
                .when_matched_delete(removed)
                .when_matched_update(assignments)
                .when_not_matched_insert(assignments, f"NOT ({removed})")
                .execute()
            ),
        )

    def set_null(self, table: str, column: str) -> bool:
        """Remove the values of a column; return whether that was done, or there is no such column."""
        known = self.schema(table)
        if known is not None and column not in (one["name"] for one in known["fields"]):
            return True
        return self._changed(
            table,
            lambda opened, properties: opened.update(
                {column: "NULL"}, predicate=f"{column} IS NOT NULL", commit_properties=properties
            ),
        )

    def remove_lost_files(self, table: str) -> int | None:
        """Remove the files that do not exist from the log; return the number of remaining rows.

        None where that was not done.
        """
        with _left_to_spark():
            if (opened := self._opened(table)) is not None:
                opened.repair()
                return opened.count()
        return None

    def _changed(self, table: str, change: Callable[[DeltaTable, CommitProperties], Any]) -> bool:
        opened = self._opened(table)
        if opened is None or not _is_written(opened):
            return False
        return self._is_committed(table, opened.version(), lambda properties: change(opened, properties))

    def _is_committed(
        self, table: str, version: int, commit: Callable[[CommitProperties], Any], after: int | None = None
    ) -> bool:
        """Return whether a commit to a table of a version was made: deltalake can fail after its commit, too.

        Raises Conflict.
        """
        key = uuid.uuid4().hex
        numbers = [] if after is None else [Transaction(LANDING, after + 1)]
        retries = None if after is None else 0
        is_conflict = False
        with _left_to_spark():
            try:
                commit(
                    CommitProperties(
                        {"userMetadata": key}, max_commit_retries=retries, app_transactions=numbers
                    )
                )
                return True
            except CommitFailedError:
                is_conflict = True
        now = self._opened(table)
        if now is None or now.version() == version:
            return False
        if any(commit.get("userMetadata") == key for commit in now.history(now.version() - version)):
            return True
        if is_conflict:
            raise Conflict.on(table)
        return False

    def _write(
        self,
        table: str,
        mode: str,
        rows: pa.Table,
        of: Filters = (),
        *,
        staying: Staying = (),
        after: int | None = None,
    ) -> bool:
        opened = self._to_write(table, after)
        if opened is None:
            return False
        by = opened.metadata().partition_columns
        files: list[DataFile] | None = None
        with _left_to_spark():
            rows = aligned(rows, pa.schema(opened.schema().to_arrow()))
            files = [
                self._file(table, part.schema, part.combine_chunks().to_batches(ROW_GROUP), values)
                for values, part in parts(rows, by)
            ]
            every: Any = self._dataset(table, opened) if staying else None
            for values, which in staying:
                schema = pa.schema([one for one in every.schema if one.name not in by])
                mine = reduce(
                    operator.and_, (pc.field(name) == value for name, value in values.items()), which
                )
                files.append(self._file(table, schema, _matching(every, schema.names, mine), values))
        return files is not None and self._are_committed(table, opened, mode, files, of, after=after)

    def add_files(self, table: str, files: Sequence[DataFile], after: int | None = None) -> bool:
        """Move files of other processes into a table; return whether that was done. after: as for `append`.

        Where it was not done, the files are still at their old place. Raises OSError where they cannot be
        moved.
        """
        opened = self._to_write(table, after)
        if opened is None:
            return False
        moved = [replace(one, path=self.folder / table / one.path.name) for one in files]
        is_there = False
        try:
            for one, there in zip(files, moved, strict=True):
                one.path.rename(there.path)
            is_there = self._are_committed(table, opened, "append", moved, after=after)
        finally:
            if not is_there:
                for one, there in zip(files, moved, strict=True):
                    if there.path.exists():
                        there.path.rename(one.path)
        return is_there

    def replace_by_files(self, table: str, files: Sequence[DataFile], of: Filters) -> bool:
        """Replace all files, or those in partitions that meet a condition, by files that are in the table's
        folder.
        """
        opened = self._to_write(table, None)
        return opened is not None and self._are_committed(table, opened, "overwrite", files, of)

    def _to_write(self, table: str, after: int | None) -> DeltaTable | None:
        opened = self._opened(table)
        if opened is None or not _is_written(opened):
            return None
        if after is not None and opened.version() != after:
            raise Conflict.on(table)
        return opened

    def _are_committed(
        self,
        table: str,
        opened: DeltaTable,
        mode: str,
        files: Sequence[DataFile],
        of: Filters = (),
        *,
        after: int | None = None,
    ) -> bool:
        actions = [_added(one) for one in files]
        by = opened.metadata().partition_columns

        def commit(properties: CommitProperties) -> None:
            opened.create_write_transaction(
                actions, mode, opened.schema(), by, list(of) or None, commit_properties=properties
            )

        if not self._is_committed(table, opened.version(), commit, after):
            return False
        with _left_to_spark():
            if (
                opened.metadata().configuration.get(AUTO_COMPACT) == "true"
                and len(opened.file_uris()) >= COMPACTED_FROM
            ):
                opened.optimize.compact()
        return True

    def _file(
        self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], values: Mapping[str, Any]
    ) -> DataFile:
        """Write a file of the table and return it."""
        file = FileWriter(self.folder / table, schema, values)
        for batch in batches:
            file.add(batch)
        return file.close()


def _with_protocol(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with the writer version that CHECK constraints need.

    By itself, delta-rs raises it for a change data feed only.
    """
    if (
        not any(name.startswith(upgrade.CONSTRAINT) for name in properties)
        or properties.get(CHANGE_DATA_FEED) == "true"
    ):
        return dict(properties)
    return {**properties, WRITER_VERSION: str(CONSTRAINTS_SINCE)}


def _added(file: DataFile) -> AddAction:
    values = {
        column: str(value).lower() if isinstance(value, bool) else value
        for column, value in file.values.items()
    }
    written = file.path.stat().st_mtime_ns // 10**6
    return AddAction(file.path.name, file.size, values, written, True, json.dumps({"numRecords": file.rows}))


def _matching(every: ds.FileSystemDataset, columns: Sequence[str], where: Any) -> Iterator[pa.RecordBatch]:
    """Yield some columns of the rows that meet a condition."""
    others = []
    for fragment in every.get_fragments():
        # deltalake's MERGE writes texts as string_view, which pyarrow cannot compare; such a table is small
        if any(map(pa.types.is_string_view, fragment.physical_schema.types)):
            yield from fragment.to_table(schema=every.schema).filter(where).select(list(columns)).to_batches()
        else:
            others.append(fragment)
    left = ds.FileSystemDataset(others, every.schema, every.format, every.filesystem)
    yield from left.to_batches(columns=list(columns), filter=where, batch_size=ROW_GROUP)


def _is_written(table: DeltaTable) -> bool:
    protocol = table.protocol()
    return protocol.min_reader_version == 1 and WRITTEN.issuperset(protocol.writer_features or ())


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of a table, by name; missing ones are null."""
    there = set(rows.column_names)
    columns = [
        rows[one.name].cast(one.type) if one.name in there else pa.nulls(rows.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, schema=schema)


def parts(rows: pa.Table, by: Collection[str]) -> list[tuple[dict[str, Any], pa.Table]]:
    """Return the rows by their values of some columns, and without these columns.

    Raises ArrowInvalid where one is null.
    """
    if not rows.num_rows:
        return []
    if not by:
        return [({}, rows)]
    if any(rows[column].null_count for column in by):
        raise pa.ArrowInvalid(f"null in {', '.join(by)}")
    found = []
    for values in rows.select(list(by)).group_by(list(by)).aggregate([]).to_pylist():
        mine = pa.array([True] * rows.num_rows)
        for column, value in values.items():
            mine = pc.and_(mine, pc.equal(rows[column], value))
        found.append((values, rows.filter(mine).drop_columns(list(by))))
    return found
