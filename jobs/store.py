"""The Delta tables: created from `schemas/tables`, compared with it, written and read. One writer at a time."""

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import schemas
from jobs.errors import UsageError
from parsers.compile import quoted

# columns that tell a row of `events`
EVENT = ("record_id", "item")
# folder beside the tables
WITNESSES = "_witnesses"
# of what is kept there: of another one, all is read once more
FORMAT = "2-"


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


@dataclass(frozen=True)
class Kept:
    """All rows of some clusters, in memory. any: whether there are some; None: nobody has asked."""

    rows: DataFrame
    clusters: frozenset[str]
    any: bool | None


@dataclass(frozen=True)
class Built:
    """What the timelines of a cluster were made from: versions of tables, and the folder of its witnesses (`jobs.old_timelines.witnesses`).

    witnesses: None where all rows are read at any rate.
    """

    events: int
    passed_over: int
    witnesses: str | None


@dataclass(frozen=True)
class Commits:
    """What some commits of a table have changed: data files added and not removed since, files of before that they removed.

    schema: as the last of them gives it; None where none gives one.
    """

    added: list[str]
    removed: list[str]
    schema: StructType | None


class Store:
    """The tables under one folder. As a context manager: nothing is being written any more when it is left."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        # whether rows that were written or read once are kept, for all that asks for them afterwards
        self.keeps_rows = False
        self._kept: dict[str, Kept] = {}
        # tables created in this run: what is known to be empty need not be read
        self._blank: set[str] = set()
        # version of each table before this run has written to it
        self._opened: dict[str, int] = {}
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
        """in_memory: what is saved need not be computed any more."""
        self.written(table)
        self._blank.discard(table)
        if in_memory:
            self._writing[table] = self._writers.submit(save)
        else:
            save()

    def _save(self, table: str, rows: DataFrame, mode: str, *, in_memory: bool, **options: str) -> None:
        written = rows.write.format("delta").mode(mode).options(**options)
        self._write(table, partial(written.save, str(self.path(table))), in_memory)

    def path(self, table: str) -> Path:
        """Folder of a table."""
        return self.root / table

    def exists(self, table: str) -> bool:
        """Whether the table has been created."""
        return (self.path(table) / "_delta_log").is_dir()

    def open(self) -> None:
        """Creates missing tables. Raises UsageError where a column's type differs.

        Columns that a newer version of the product has are added; nothing is ever dropped.
        """
        definitions = schemas.statements("tables")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._open, definitions))
        self._opened = {definition.name: self.version(definition.name) for definition in definitions}

    def _open(self, definition: schemas.Statement) -> None:
        table = self._identifier(definition.name)
        if not self.exists(definition.name):
            sql = definition.sql.replace("{table}", table).replace("'{location}'", quoted(str(self.path(definition.name))))
            self.spark.sql(sql.replace("{vocabulary}", vocabulary_ddl()))
            self._blank.add(definition.name)
            return
        present = {field.name: field.dataType.simpleString() for field in self._schema(definition.name).fields}
        missing = []
        for name, kind in columns_of(definition).items():
            if name not in present:
                missing.append(f"{name} {kind}")
            elif present[name].replace(" ", "").upper() != kind.replace(" ", "").upper():
                raise UsageError(
                    f"Table {definition.name} under {self.root} has {name} {present[name]}, this version needs {kind}; "
                    "give --tables another folder, or migrate the table"
                )
        if missing:
            self.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({', '.join(missing)})")

    def _identifier(self, table: str) -> str:
        """What SQL calls a table that the catalog need not know."""
        return f"delta.`{str(self.path(table)).replace('`', '``')}`"

    def register(self) -> None:
        """Lets SQL call the tables that are there, and the views of them, by name."""
        names = [definition.name for definition in schemas.statements("tables") if self.exists(definition.name)]
        for name in names:
            # of another folder, in the same session
            self.spark.sql(f"DROP TABLE IF EXISTS {name}")
            self.spark.sql(f"CREATE TABLE {name} USING delta LOCATION {quoted(str(self.path(name)))}")
        for view in schemas.statements("views"):
            try:
                self.spark.sql(view.sql)
            except PySparkException:
                continue  # of a table that is not there

    def view_of_events(self, name: str, clusters: Iterable[str]) -> DataFrame:
        """A view that is made of `events` alone, over the rows of some clusters."""
        (definition,) = (view for view in schemas.statements("views") if view.name == name)
        self.rows_of("events", clusters).createOrReplaceTempView("events")
        self.spark.sql(definition.sql)
        rows = self.spark.table(name)
        for view in (name, "events"):
            self.spark.catalog.dropTempView(view)
        return rows

    def table(self, name: str) -> DataFrame:
        """The table as it is now."""
        self.written(name)
        return self.spark.read.format("delta").load(str(self.path(name)))

    def _schema(self, table: str) -> StructType:
        """Delta loads a table's log for it, in a tenth of a second or two; the log is read by hand where that is possible."""
        commits = self._commits_since(table, -1)
        return self.table(table).schema if commits is None or commits.schema is None else commits.schema

    def append(self, table: str, rows: DataFrame) -> None:
        """Adds rows; columns by name, those that they have not are null."""
        kept = self._kept.pop(table, None)
        if kept is not None:
            rows = _with_columns_of(kept.rows.schema, rows)
            if kept.any is False:
                rows = whole = self._as_one(rows)
            else:
                rows = rows.localCheckpoint()
                whole = self._as_one(kept.rows.unionByName(rows))
            self._kept[table] = Kept(whole, kept.clusters, any=True)
        self._save(table, rows, "append", in_memory=kept is not None)

    def version(self, table: str) -> int:
        """Number of the table's last commit."""
        self.written(table)
        return max(int(path.stem) for path in (self.path(table) / "_delta_log").glob("*.json") if path.stem.isdigit())

    def _built(self) -> dict[str, Built]:
        noted = self.root / "_built.json"
        found = json.loads(noted.read_text("utf-8")) if noted.is_file() else {}
        # an earlier version of the product noted a number
        return {cluster: Built(**told) for cluster, told in found.items() if isinstance(told, dict)}

    def built_from(self, clusters: Sequence[str]) -> Built | None:
        """What the timelines of clusters were made from, at the earliest; None where that is not known any more.

        Its witnesses are named only if all of them have some.
        """
        built = self._built()
        known = [built[cluster] for cluster in clusters if cluster in built]
        if not self.exists("events") or len(known) < len(clusters):
            return None
        events, passed_over = (min(getattr(one, table) for one in known) for table in ("events", "passed_over"))
        if self._commits_since("events", events) is None or self._commits_since("passed_over", passed_over) is None:
            return None
        folders = [one.witnesses or "" for one in known]
        with_witnesses = all(name.startswith(FORMAT) and (self.root / WITNESSES / name).is_dir() for name in folders)
        return Built(events, passed_over, known[0].witnesses if with_witnesses else None)

    def witnesses(self, clusters: Iterable[str]) -> DataFrame:
        """Those that were noted for clusters when their timelines were made."""
        built = self._built()
        noted: dict[str, list[str]] = {}
        for cluster in clusters:
            noted.setdefault(str(built[cluster].witnesses), []).append(cluster)
        frames = []
        for folder, some in noted.items():  # there may be older ones of another cluster in it
            files = [str(file) for file in (self.root / WITNESSES / folder).glob("*.parquet")]
            frames.append(self.spark.read.parquet(*map(_path, files)).filter(in_clusters(some)))
        return reduce(DataFrame.unionByName, frames)

    def is_built(self, clusters: Iterable[str]) -> bool:
        """Whether the timelines of clusters were made from their rows of `events` as these are now."""
        built, now = self._built(), self.version("events")
        behind = [cluster for cluster in clusters if cluster not in built or built[cluster].events != now]
        if not behind:
            return True
        known = self.built_from(behind)
        if known is None:
            return False
        # other clusters may have been read since
        changed = self.changed_since("events", known.events, EVENT)
        return all(rows.filter(in_clusters(behind)).isEmpty() for rows in changed)

    def note_built(self, clusters: Iterable[str], witnesses: DataFrame | None = None, without_any: Iterable[str] = ()) -> None:
        """The timelines of clusters are those of `events` as it is now; so are those of clusters that never had any.

        witnesses: what the next run need know of all that is in there.
        """
        folder = None
        if witnesses is not None:
            folder = FORMAT + uuid.uuid4().hex[:16]
            witnesses.coalesce(1).write.parquet(str(self.root / WITNESSES / folder))
        now = Built(self.version("events"), self.version("passed_over"), folder)
        built = dict.fromkeys(without_any, now) | self._built() | dict.fromkeys(clusters, now)
        noted = self.root / "_built.json"
        draft = noted.with_suffix(".draft")
        draft.write_text(json.dumps({cluster: asdict(one) for cluster, one in built.items()}), "utf-8")
        draft.replace(noted)
        named = {one.witnesses for one in built.values()}
        for old in (self.root / WITNESSES).glob("*"):
            if old.name not in named:
                shutil.rmtree(old, ignore_errors=True)

    def changed_since(self, table: str, version: int, keys: Sequence[str]) -> tuple[DataFrame, DataFrame]:
        """(rows that later commits have added, rows that they have taken away), less those that only lie in another file now.

        keys: columns that tell a row.
        """
        commits = self._commits_since(table, version)
        assert commits is not None, "the version is one that `built_from` gave"
        schema = self.table(table).schema
        added, removed = (self._rows_in(files, schema) for files in (commits.added, commits.removed))
        if not commits.removed:
            return added, removed
        return (
            added.join(removed.select(*keys), list(keys), "left_anti"),
            removed.join(added.select(*keys), list(keys), "left_anti"),
        )

    def _commits_since(self, table: str, version: int) -> Commits | None:
        """What commits after a version have changed.

        None where it cannot be told any more: where commits are gone (Delta keeps them for 30 days) or files that they removed (VACUUM),
        or where files hold rows that are deleted, or columns under other names: the protocol asks for more than a reader of version 1
        then.
        """
        added: dict[str, None] = {}
        removed: list[str] = []
        schema = None
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
                elif "metaData" in action:
                    schema = StructType.fromJson(json.loads(action["metaData"]["schemaString"]))
                elif action.get("protocol", {}).get("minReaderVersion", 1) > 1:
                    return None
        added_paths, removed_paths = ([str(self.path(table) / unquote(file)) for file in files] for files in (added, removed))
        return Commits(added_paths, removed_paths, schema) if all(map(os.path.exists, removed_paths)) else None

    def _rows_in(self, files: list[str], schema: StructType) -> DataFrame:
        if not files:
            return self.spark.range(0).select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields])
        return self.spark.read.schema(schema).parquet(*map(_path, files))

    def delete(self, table: str, condition: str) -> None:
        """Removes the rows for which a SQL condition holds."""
        self._delta(table).delete(condition)

    def update(self, table: str, condition: Column, values: dict[str, Column]) -> None:
        """Gives the rows for which a condition holds other values."""
        kept = self._kept.get(table)
        if kept is None:
            self._delta(table).update(condition, values)
        elif not kept.rows.filter(condition).isEmpty():
            changed = {name: F.when(condition, value).otherwise(F.col(name)).alias(name) for name, value in values.items()}
            rows = self._as_one(kept.rows.select(*[changed.get(name, F.col(name)) for name in kept.rows.columns]))
            self._kept[table] = Kept(rows, kept.clusters, any=True)
            self._write_again(table, kept.clusters, rows)

    def _delta(self, table: str) -> Any:
        """The table to be changed in another way than these: it is read again when rows are asked for."""
        from delta.tables import DeltaTable

        self.written(table)
        self._kept.pop(table, None)
        return DeltaTable.forPath(self.spark, str(self.path(table)))

    def rows_of(self, table: str, clusters: Iterable[str]) -> DataFrame:
        """The rows of some clusters: those kept, if they are, or are to be."""
        wanted = frozenset(clusters)
        self.keep(table, wanted)
        kept = self._kept_of(table, wanted)
        if kept is None:
            return self.table(table).filter(in_clusters(sorted(wanted)))
        return kept.rows if wanted == kept.clusters else kept.rows.filter(in_clusters(sorted(wanted)))

    def rows_written(self, table: str, clusters: Iterable[str]) -> DataFrame:
        """The rows of some clusters that were written since the tables were opened, if only from one file to another.

        All where rows are kept, or where that cannot be told.
        """
        wanted = frozenset(clusters)
        commits = None if self._kept_of(table, wanted) else self._commits_since(table, self._opened[table])
        if commits is None:
            return self.rows_of(table, wanted)
        return self._rows_in(commits.added, self.table(table).schema).filter(in_clusters(sorted(wanted)))

    def _kept_of(self, table: str, clusters: Iterable[str]) -> Kept | None:
        kept = self._kept.get(table)
        return kept if kept is not None and frozenset(clusters) <= kept.clusters else None

    def has_none(self, table: str, clusters: Iterable[str]) -> bool:
        """Whether the table is known to hold no row of some clusters."""
        kept = self._kept_of(table, clusters)
        if kept is None:
            return table in self._blank
        if kept.any is None:
            kept = self._kept[table] = Kept(kept.rows, kept.clusters, any=not kept.rows.isEmpty())
        return not kept.any

    def keep(self, table: str, clusters: Iterable[str]) -> None:
        """Reads the rows of some clusters once and for all, unless there are too many or they are kept already."""
        if self.keeps_rows and table not in self._kept:
            rows = self._as_one(self._rows(table).filter(in_clusters(clusters)))
            self._kept[table] = Kept(rows, frozenset(clusters), any=False if table in self._blank else None)

    def _rows(self, table: str) -> DataFrame:
        """The table, by the files that its log lists: Delta makes that list by a job, which takes longer than to read some thousand rows."""
        self.written(table)
        commits = self._commits_since(table, -1)
        if commits is None or commits.schema is None:
            return self.table(table)
        return self._rows_in(commits.added, commits.schema)

    def _as_one(self, rows: DataFrame) -> DataFrame:
        """The rows, in memory; where a session has one partition, in one: they are never shuffled then."""
        return self._in_one(rows).localCheckpoint()

    def _in_one(self, rows: DataFrame) -> DataFrame:
        return rows.coalesce(1) if self.spark.conf.get("spark.sql.shuffle.partitions") == "1" else rows

    def replace(self, table: str, clusters: Iterable[str], rows: DataFrame) -> None:
        """Replaces all rows of some clusters in one commit, or in none if those that were kept are the same."""
        of_these = in_clusters(clusters)
        if not self.keeps_rows:
            self._save(table, rows, "overwrite", in_memory=False, replaceWhere=of_these)
            return
        kept = self._kept_of(table, clusters)
        before = self._rows(table) if kept is None else kept.rows
        old = [] if table in self._blank else before.filter(of_these).collect()
        rows = self._as_one(_with_columns_of(before.schema, rows))
        new = rows.collect()
        self._kept[table] = Kept(rows, frozenset(clusters), any=bool(new))
        if _same_rows(old, new):
            return
        if old:
            self._write_again(table, clusters, rows)
        else:
            self._save(table, rows, "append", in_memory=True)

    def _write_again(self, table: str, clusters: Iterable[str], rows: DataFrame) -> None:
        """Writes rows of some clusters, and with them those of all others.

        They are so few that it takes less than to find out which files hold none of these.
        """
        others = self._rows(table).filter(f"NOT {in_clusters(clusters)}")
        self._save(table, self._in_one(others.unionByName(rows)), "overwrite", in_memory=True)

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


def _path(file: str) -> str:
    """A path as Hadoop takes it when it reads: for a pattern."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", file)


def _with_columns_of(schema: StructType, rows: DataFrame) -> DataFrame:
    """The rows with the columns of a schema; those that they have not are null."""
    return rows.select(
        *[
            F.col(field.name) if field.name in rows.columns else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema.fields
        ]
    )


def _same_rows(some: Sequence[Row], others: Sequence[Row]) -> bool:
    """Whether they are the same, in whatever order."""
    return len(some) == len(others) and sorted(map(repr, some)) == sorted(map(repr, others))


def columns_of(definition: schemas.Statement) -> dict[str, str]:
    """Column name -> type of a table definition, in order."""

    body = definition.sql.replace("{vocabulary},", "\n".join(
        f"  {name} {schemas.SPARK_TYPES[word['type']]} COMMENT ''," for name, word in schemas.vocabulary().items()
    ))  # fmt: skip
    return {
        name: kind.strip()
        for name, kind in re.findall(r"^  (\w+) ([A-Z]+(?:<.*>)?)(?: NOT NULL)?(?: COMMENT .*)?$", body, re.MULTILINE)
    }
