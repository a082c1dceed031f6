"""One Delta table on this machine or in an object store: delta-rs lists its files, DuckDB reads them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from jobs.engine import NotReadable
from jobs.engine.database import Database, identifier, text, without_zone
from jobs.errors import UsageError
from jobs.location import SCHEME, delta_rs_uri
from parsers.explanation import visible

_DUCKDB_TYPES = {
    "string": "VARCHAR",
    "integer": "INTEGER",
    "long": "BIGINT",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "binary": "BLOB",
}


@dataclass
class Table:
    """A Delta table as it was when it was opened."""

    uri: str
    delta: DeltaTable
    is_local: bool
    # what DuckDB reads, and the columns that its files have; other columns are null
    _scan: str = ""
    _there: set[str] = field(default_factory=set)

    @classmethod
    def opened(cls, root: str, is_local: bool, name: str) -> "Table | None":
        """None where there is none.

        Raises NotReadable where it needs a feature that this engine does not read.
        """
        uri = f"{delta_rs_uri(root)}/{name}"
        try:
            table = DeltaTable(uri)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise UsageError(
                f"table {name} under {root} cannot be read: {visible(str(error).splitlines()[0])}"
            ) from None
        except BaseException as error:
            # a panic of Rust is no Exception, and has no name that can be imported
            if type(error).__name__ != "PanicException":
                raise
            raise UsageError(
                f"table {name} under {root} cannot be read: delta-rs does not understand its log"
            ) from None
        if table.protocol().min_reader_version > 1:
            features = (
                ", ".join(table.protocol().reader_features or ())
                or f"reader version {table.protocol().min_reader_version}"
            )
            raise NotReadable(f"table {name} under {root} needs {features}")
        return cls(uri, table, is_local)

    def check(self) -> None:
        """Raise NotReadable where some of its files belong to another table (a shallow clone)."""
        if self.is_local:
            _ = self._parts

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """Return its columns, as Delta writes them in JSON."""
        return json.loads(self.delta.schema().to_json())["fields"]

    @cached_property
    def _parts(self) -> dict[tuple[str | None, ...], list[str]]:
        """Values of the columns that it is partitioned by -> files with them."""
        by = self.delta.metadata().partition_columns
        found: dict[tuple[str | None, ...], list[str]] = {}
        actions = self.delta.get_add_actions(flatten=True)
        # column by column: pyarrow imports pandas to convert the whole, which takes longer than most queries
        columns = [actions.column(name).to_pylist() for name in ("path", *(f"partition.{one}" for one in by))]
        for path, *of_part in zip(*columns, strict=True):
            if SCHEME.match(path) or path.startswith("/"):
                raise NotReadable(f"the table {self.uri} has files in other folders")
            values = tuple(map(_text_of, of_part))
            found.setdefault(values, []).append(f"{self.uri}/{unquote(path)}")
        return found

    @property
    def is_registered(self) -> bool:
        """Return whether it was registered in a database, which reads the columns of its files."""
        return bool(self._scan)

    @property
    def files(self) -> list[str]:
        """Paths that DuckDB reads."""
        return [path for paths in self._parts.values() for path in paths] if self.is_local else []

    def register(self, database: Database, name: str) -> None:
        """Register it under a name: a view over its files with the columns and types of the table."""
        if not self.is_local:
            self._scan = identifier(f"{name}$")
            database.source(f"{name}$", self.delta.to_pyarrow_dataset())
            self._there = {one["name"] for one in self.fields}
            self.define(database, name)
            return
        by = self.delta.metadata().partition_columns
        scans = []
        for values, paths in self._parts.items():
            of_part = "".join(
                f", {_or_null(value)} AS {identifier(column)}"
                for column, value in zip(by, values, strict=True)
            )
            listed = ", ".join(map(text, paths))
            # Spark sometimes writes them into the files, too
            others = f"COLUMNS(lambda name: name NOT IN ({', '.join(map(text, by))}))" if by else "*"
            scans.append(
                f"SELECT {others}{of_part} FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
            )
        scan = "\nUNION ALL BY NAME\n".join(scans)
        self._scan = f"({scan or 'SELECT 1 AS nothing WHERE false'})"
        self._there = set(database.columns(self._scan))
        self.define(database, name)

    def define(self, database: Database, view: str, where: str = "true") -> None:
        """Define a view of the registered table.

        where: a condition in DuckDB's SQL that its rows meet; moments in it have a zone.
        """
        database.define(view, self.query(where))

    def query(self, where: str = "true") -> str:
        """Return a query in DuckDB's SQL for the rows that meet a condition.

        Moments have a zone in the condition, and none in the rows.
        """
        columns = ", ".join(f"{self._column(one)} AS {identifier(one['name'])}" for one in self.fields)
        return f"SELECT {columns} FROM {self._scan} WHERE {where}"

    def _column(self, one: Mapping[str, Any]) -> str:
        """Return a column with the type of the table, as an expression.

        Files of an earlier version may not have it.
        """
        name, kind = identifier(one["name"]), _duckdb_type(one["type"])
        if one["name"] not in self._there:
            return f"CAST(NULL AS {kind})"
        return without_zone(name) if kind == "TIMESTAMP" else f"CAST({name} AS {kind})"


def _text_of(value: Any) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _or_null(value: str | None) -> str:
    return "NULL" if value is None else text(value)


def _duckdb_type(kind: Any) -> str:
    """Return DuckDB's type for a type in Delta's JSON; moments are without a zone."""
    if isinstance(kind, str):
        return _DUCKDB_TYPES.get(kind, kind.upper())
    if kind["type"] == "array":
        return f"{_duckdb_type(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({_duckdb_type(kind['keyType'])}, {_duckdb_type(kind['valueType'])})"
    fields = ", ".join(f"{identifier(one['name'])} {_duckdb_type(one['type'])}" for one in kind["fields"])
    return f"STRUCT({fields})"
