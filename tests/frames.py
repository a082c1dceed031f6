"""Small frames from SQL VALUES, because `createDataFrame` starts Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def literal(value: Any, kind: str) -> str:
    """Return a value as a SQL expression of a type."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"CAST('{escaped}' AS {kind})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, list | tuple | set):
        inner = kind.removeprefix("ARRAY<").removesuffix(">")
        return f"CAST(array({', '.join(literal(one, inner) for one in value)}) AS {kind})"
    if isinstance(value, Mapping):
        fields = dict(
            field.strip().split(": ") for field in kind.removeprefix("STRUCT<").removesuffix(">").split(",")
        )
        members = [f"'{name}', {literal(value[name], type_)}" for name, type_ in fields.items()]
        return f"named_struct({', '.join(members)})"
    return f"CAST({value} AS {kind})"


def frame(spark: SparkSession, types: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return a frame of these columns; a column that a row does not name is null."""
    cells: list[Sequence[str]] = []
    for row in rows:
        assert set(row) <= set(types), f"no such column: {set(row) - set(types)}"
        cells.append([literal(row.get(name), kind) for name, kind in types.items()])
    if not cells:
        columns = ", ".join(f"{literal(None, kind)} AS {name}" for name, kind in types.items())
        return spark.sql(f"SELECT {columns} WHERE false")
    values = ", ".join(f"({', '.join(row)})" for row in cells)
    return spark.sql(f"SELECT * FROM VALUES {values} AS t({', '.join(types)})")
