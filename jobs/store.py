"""The Delta tables: created from `schemas/tables`, compared with it, written and read. One writer at a time."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import schemas
from jobs.errors import UsageError
from parsers.compile import quoted


def at_once(*tasks: Callable[[], None]) -> None:
    """Runs tasks in threads of their own: most of the time of a small job is the driver's. The first error is raised."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def bytes_under(folder: Path) -> int:
    """Bytes of a table's data files, old versions included; 0 where there is no such table."""
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def in_clusters(clusters: Iterable[str]) -> str:
    """A SQL condition."""
    return f"cluster IN ({', '.join(map(quoted, clusters))})"


def vocabulary_ddl() -> str:
    """Column definitions of the vocabulary, as they stand in `events`."""
    return ",\n".join(
        f"  {name} {schemas.SPARK_TYPES[word['type']]} COMMENT {quoted(word['comment'])}"
        for name, word in schemas.vocabulary().items()
    )


class Store:
    """The tables under one folder. As a context manager: nothing is being written any more when it is left."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        # whether rows that were written or read once are kept, for all that asks for them afterwards
        self.keeps_rows = False
        self._kept: dict[str, DataFrame] = {}
        # tables created in this run: what is known to be empty need not be read
        self._blank: set[str] = set()
        # rows that are kept are written while others go on with them
        self._writers = ThreadPoolExecutor(2)
        self._writing: dict[str, Future[None]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: Any, *_: Any) -> None:
        wait(self._writing.values())
        if failed is None:
            self.written()

    def written(self, *tables: str) -> None:
        """Waits until what was given to these tables, or to all of them, is written. Raises what stood in its way."""
        for table in tables or list(self._writing):
            if table in self._writing:
                self._writing[table].result()

    def _write(self, table: str, save: Callable[[], None], in_memory: bool) -> None:
        """in_memory: what is saved need not be computed any more, nor is it read from the table."""
        self.written(table)
        self._blank.discard(table)
        if in_memory:
            self._writing[table] = self._writers.submit(save)
        else:
            save()

    def path(self, table: str) -> Path:
        """Folder of a table."""
        return self.root / table

    def exists(self, table: str) -> bool:
        """Whether the table has been created."""
        return (self.path(table) / "_delta_log").is_dir()

    def open(self, with_views: bool = True) -> None:
        """Creates missing tables, registers all of them and the views. Raises UsageError where a column's type differs.

        Columns that a newer version of the product has are added; nothing is ever dropped.
        """
        # a name space of its own, so that one session may open several folders
        space = "audit_" + hashlib.sha256(str(self.root).encode()).hexdigest()[:12]
        self.spark.sql(f"CREATE DATABASE IF NOT EXISTS {space}")
        self.spark.sql(f"USE {space}")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._open, schemas.statements("tables")))
        if with_views:
            for view in schemas.statements("views"):
                self.spark.sql(view.sql)

    def view(self, name: str) -> DataFrame:
        """A view as it is now, also where `open` was told to leave them out."""
        (definition,) = (view for view in schemas.statements("views") if view.name == name)
        self.spark.sql(definition.sql)
        return self.spark.table(name)

    def _open(self, definition: schemas.Statement) -> None:
        location = quoted(str(self.path(definition.name)))
        if not self.exists(definition.name):
            sql = definition.sql.replace("{table}", definition.name).replace("'{location}'", location)
            self.spark.sql(sql.replace("{vocabulary}", vocabulary_ddl()))
            self._blank.add(definition.name)
            return
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {definition.name} USING delta LOCATION {location}")
        wanted = columns_of(definition)
        present = {field.name: field.dataType.simpleString() for field in self.spark.table(definition.name).schema.fields}
        missing = []
        for name, kind in wanted.items():
            if name not in present:
                missing.append(f"{name} {kind}")
            elif present[name].replace(" ", "").upper() != kind.replace(" ", "").upper():
                raise UsageError(
                    f"Table {definition.name} under {self.root} has {name} {present[name]}, this version needs {kind}; "
                    "give --tables another folder, or migrate the table"
                )
        if missing:
            self.spark.sql(f"ALTER TABLE {definition.name} ADD COLUMNS ({', '.join(missing)})")

    def table(self, name: str) -> DataFrame:
        """The table as it is now."""
        self.written(name)
        return self.spark.table(name)

    def is_blank(self, table: str) -> bool:
        """Whether the table is known to hold no row, having been created in this run."""
        return table in self._blank

    def append(self, table: str, rows: DataFrame) -> None:
        """Adds rows; columns by name."""
        kept = self._kept.pop(table, None)
        if kept is not None:
            rows = rows.select(*kept.columns).localCheckpoint()
            self._kept[table] = self._as_one(kept.unionByName(rows))
        written = rows.write.format("delta").mode("append")
        self._write(table, partial(written.save, str(self.path(table))), in_memory=kept is not None)

    def version(self, table: str) -> int:
        """Number of the table's last commit."""
        self.written(table)
        return max(int(path.stem) for path in (self.path(table) / "_delta_log").glob("*.json") if path.stem.isdigit())

    def _built(self) -> dict[str, int]:
        noted = self.root / "_built.json"
        return json.loads(noted.read_text("utf-8")) if noted.is_file() else {}

    def built_from(self, clusters: Iterable[str]) -> int | None:
        """The version of `events` that the timelines of clusters were made from; None where that is not known any more."""
        built = self._built()
        versions = [built.get(cluster) for cluster in clusters]
        if not self.exists("events") or any(version is None for version in versions):
            return None
        oldest = min(version for version in versions if version is not None)
        return None if self._files_since("events", oldest) is None else oldest

    def is_built(self, clusters: Iterable[str]) -> bool:
        """Whether the timelines of clusters were made from `events` as it is now."""
        built, now = self._built(), self.version("events")
        return all(built.get(cluster) == now for cluster in clusters)

    def note_built(self, clusters: Iterable[str], without_any: Iterable[str] = ()) -> None:
        """The timelines of clusters are those of `events` as it is now; so are those of clusters that never had any."""
        now = self.version("events")
        built = dict.fromkeys(without_any, now) | self._built() | dict.fromkeys(clusters, now)
        (self.root / "_built.json").write_text(json.dumps(built), "utf-8")

    def at_version(self, table: str, version: int) -> DataFrame:
        """The table as it was after a commit, with the columns that it has now."""
        then = self.spark.read.format("delta").option("versionAsOf", version).load(str(self.path(table)))
        return then.select(
            *[
                F.col(field.name) if field.name in then.columns else F.lit(None).cast(field.dataType).alias(field.name)
                for field in self.table(table).schema.fields
            ]
        )

    def changed_since(self, table: str, version: int, keys: Sequence[str]) -> DataFrame:
        """The rows that later commits have added, and those that they have taken away; not those that only lie in another file now.

        keys: columns that tell a row.
        """
        files = self._files_since(table, version)
        assert files is not None, "the version is one that `built_from` gave"
        if not files[1]:
            return self._rows_in(table, files[0])
        added, removed = (self._rows_in(table, some) for some in files)
        new = added.join(removed.select(*keys), list(keys), "left_anti")
        return new.unionByName(removed.join(added.select(*keys), list(keys), "left_anti"))

    def _files_since(self, table: str, version: int) -> tuple[list[str], list[str]] | None:
        """(data files that commits after a version have added and none has removed, those of that version which they have removed).

        None where the log does not tell it: where commits are gone (Delta keeps them for 30 days), or where files hold rows that are
        deleted, or columns under other names: the protocol asks for more than a reader of version 1 then.
        """
        added: dict[str, None] = {}
        removed: list[str] = []
        for number in range(version + 1, self.version(table) + 1):
            try:
                actions = map(
                    json.loads, (self.path(table) / "_delta_log" / f"{number:020d}.json").read_text("utf-8").splitlines()
                )
            except FileNotFoundError:
                return None
            for action in actions:
                if "add" in action:
                    added[action["add"]["path"]] = None
                elif "remove" in action:
                    path = action["remove"]["path"]
                    if path in added:
                        del added[path]
                    else:
                        removed.append(path)
                elif action.get("protocol", {}).get("minReaderVersion", 1) > 1:
                    return None
        return self._paths(table, added), self._paths(table, removed)

    def _paths(self, table: str, files: Iterable[str]) -> list[str]:
        return [str(self.path(table) / unquote(file)) for file in files]

    def _rows_in(self, table: str, files: list[str]) -> DataFrame:
        schema = self.table(table).schema
        return self.spark.read.schema(schema).parquet(*files) if files else self.spark.createDataFrame([], schema)

    def delete(self, table: str, condition: str) -> None:
        """Removes the rows for which a SQL condition holds."""
        self._delta(table).delete(condition)

    def update(self, table: str, condition: Column, values: dict[str, Column]) -> None:
        """Gives the rows for which a condition holds other values."""
        self._delta(table).update(condition, values)

    def _delta(self, table: str) -> Any:
        """The table to be changed in another way than these: it is read again when rows are asked for."""
        from delta.tables import DeltaTable

        self.written(table)
        self._kept.pop(table, None)
        return DeltaTable.forPath(self.spark, str(self.path(table)))

    def rows_of(self, table: str, clusters: Iterable[str]) -> DataFrame:
        """The rows of some clusters: those kept, if they are."""
        if table in self._kept:
            return self._kept[table].filter(in_clusters(clusters))
        return self.table(table).filter(in_clusters(clusters))

    def keep(self, table: str) -> None:
        """Reads the rows once and for all, unless there are too many or they are kept already.

        Delta makes a table's list of files out of its log by a job, which takes three times longer than to read some thousand rows.
        """
        if self.keeps_rows and table not in self._kept:
            files = ([], []) if table in self._blank else self._files_since(table, -1)
            self._kept[table] = self._as_one(self.table(table) if files is None else self._rows_in(table, files[0]))

    def _as_one(self, rows: DataFrame) -> DataFrame:
        """The rows, in memory; where a session has one partition, in one: they are never shuffled then."""
        if self.spark.conf.get("spark.sql.shuffle.partitions") == "1":
            rows = rows.coalesce(1)
        return rows.localCheckpoint()

    def replace(self, table: str, clusters: Iterable[str], rows: DataFrame) -> None:
        """Replaces all rows of some clusters in one commit, or in none if those that were kept are the same."""
        of_these = in_clusters(clusters)
        if self.keeps_rows:
            # so few that to write those of other clusters again takes less than to find out which files hold none of these
            self.keep(table)
            before = self._kept[table]
            rows = self._as_one(before.filter(f"NOT {of_these}").unionByName(rows, allowMissingColumns=True))
            self._kept[table] = rows
            if _same_rows(before, rows):
                return
        written = rows.write.format("delta").mode("overwrite")
        if not self.keeps_rows:
            written = written.option("replaceWhere", of_these)
        self._write(table, partial(written.save, str(self.path(table))), in_memory=self.keeps_rows)

    def exchange(self, table: str, clusters: Iterable[str], old: DataFrame, new: DataFrame) -> None:
        """Puts new rows of some clusters in the place of old ones, in one commit, or in none where they are the same.

        Of a timeline only those files are written again that reach into the time of the first difference.
        """
        names = self.table(table).columns
        counted = old.select(*names, F.lit(-1).alias("n")).unionByName(new.select(*names, F.lit(1).alias("n")))
        changed = counted.groupBy(*names).agg(F.sum("n").alias("n")).filter("n <> 0").localCheckpoint()
        timed = "valid_to" in names
        ends = F.col("valid_to") if timed else F.lit(None).cast("timestamp")
        told = changed.agg(F.count("*").alias("count"), F.min(ends).alias("since")).first()
        assert told is not None
        if not told["count"]:
            return
        condition = in_clusters(clusters)
        if timed:
            later = f" OR valid_to >= TIMESTAMP {quoted(told.since.isoformat(sep=' '))}" if told.since else ""
            condition += f" AND (valid_to IS NULL{later})"
        held = self.table(table).filter(condition).select(*names, F.lit(1).alias("n"))
        left = (
            held.unionByName(changed).groupBy(*names).agg(F.sum("n").alias("n")).filter("n > 0").select(*names).localCheckpoint()
        )
        # what is over lies in files of its own, which later runs leave alone; coalesce: a union of alike partitions would mix them
        parted = left.filter(ends.isNotNull()).unionByName(left.filter(ends.isNull()).coalesce(1))
        self._kept.pop(table, None)
        parted.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(str(self.path(table)))

    @staticmethod
    @contextmanager
    def sole_writer(root: Path) -> Iterator[None]:
        """Holds the lock of the tables under `root`. Raises UsageError if another run has it, or nothing can be written there."""
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--tables {root}: {error.strerror}; give a folder that can be written") from None
        if not os.access(root, os.W_OK):
            raise UsageError(f"--tables {root} cannot be written; give another folder")
        with (root / "_lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"Another run is writing to {root}; wait for it, or give --tables another folder") from None
            yield


def _same_rows(some: DataFrame, others: DataFrame) -> bool:
    """Whether two small frames with the same columns hold the same rows, in whatever order."""
    return sorted(map(repr, some.collect())) == sorted(map(repr, others.collect()))


def columns_of(definition: schemas.Statement) -> dict[str, str]:
    """Column name -> type of a table definition, in order."""
    import re

    body = definition.sql.replace("{vocabulary},", "\n".join(
        f"  {name} {schemas.SPARK_TYPES[word['type']]} COMMENT ''," for name, word in schemas.vocabulary().items()
    ))  # fmt: skip
    return {
        name: kind.strip()
        for name, kind in re.findall(r"^  (\w+) ([A-Z]+(?:<.*>)?)(?: NOT NULL)?(?: COMMENT .*)?$", body, re.MULTILINE)
    }
