"""SHOW and DESCRIBE: what Spark answers about tables, views and their columns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.engine import MOMENT, QueryError

ANSWERED = "SHOW TABLES, SHOW VIEWS, SHOW COLUMNS IN and DESCRIBE"
_TABLES = re.compile(
    r"\s*SHOW\s+(TABLES|VIEWS)(?:\s+(?:IN|FROM)\s+`?default`?)?(?:\s+(?:LIKE\s+)?'([^']*)')?\s*", re.I
)
_COLUMNS = re.compile(
    r"\s*(SHOW\s+COLUMNS\s+(?:IN|FROM)|DESC(?:RIBE)?(?:\s+TABLE)?(?:\s+EXTENDED|\s+FORMATTED)?)\s+(?:`?default`?\.)?`?(\w+)`?\s*",
    re.I,
)
# Delta's names of types that Spark's DESCRIBE writes otherwise
_TYPES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
_ARROW_TYPES = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.int16(): "smallint",
    pa.int8(): "tinyint",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    MOMENT: "timestamp",
}


@dataclass(frozen=True)
class OfNames:
    """SHOW TABLES or SHOW VIEWS. pattern: of the names; None: all."""

    views_only: bool
    pattern: re.Pattern[str] | None

    def rows(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the rows for the names of tables and views, or of views only."""
        return [("", name, True) for name in names if self.pattern is None or self.pattern.fullmatch(name)]

    @property
    def heads(self) -> tuple[str, ...]:
        """Return the names of its columns."""
        return ("namespace", "viewName" if self.views_only else "tableName", "isTemporary")


@dataclass(frozen=True)
class OfColumns:
    """DESCRIBE or SHOW COLUMNS of a table or view."""

    table: str
    names_only: bool

    def rows(self, columns: Sequence[tuple[str, str, str | None]]) -> list[tuple[Any, ...]]:
        """Return the rows for columns: name, type, comment."""
        return [column[: len(self.heads)] for column in columns]

    @property
    def heads(self) -> tuple[str, ...]:
        """Return the names of its columns."""
        return ("col_name",) if self.names_only else ("col_name", "data_type", "comment")


def listing(sql: str) -> OfNames | OfColumns | None:
    """Return what a statement asks to list; None: it is another one.

    Raises QueryError where this engine lists nothing like it.
    """
    if found := _TABLES.fullmatch(sql):
        like = (
            "|".join(re.escape(one).replace(r"\*", ".*") for one in found[2].split("|")) if found[2] else None
        )
        return OfNames(found[1].upper() == "VIEWS", re.compile(like, re.I) if like else None)
    if found := _COLUMNS.fullmatch(sql):
        return OfColumns(found[2].lower(), found[1].upper().startswith("SHOW"))
    if re.match(r"\s*(SHOW|DESC|DESCRIBE)\b", sql, re.I):
        raise QueryError(f"the local engine answers {ANSWERED} a table; --engine spark answers the others")
    return None


def type_name(kind: Any) -> str:
    """Return a type, as Delta writes it in JSON, as Spark's DESCRIBE writes it."""
    if isinstance(kind, str):
        return _TYPES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{type_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_name(kind['keyType'])},{type_name(kind['valueType'])}>"
    fields = ",".join(f"{one['name']}:{type_name(one['type'])}" for one in kind["fields"])
    return f"struct<{fields}>"


def arrow_type_name(kind: pa.DataType) -> str:
    """Return a type of Arrow's as Spark's DESCRIBE writes it."""
    if pa.types.is_list(kind):
        return f"array<{arrow_type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{arrow_type_name(kind.key_type)},{arrow_type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = ",".join(f"{one.name}:{arrow_type_name(one.type)}" for one in kind)
        return f"struct<{fields}>"
    return _ARROW_TYPES.get(kind, str(kind))
