"""Read the tables by an engine that is not Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable


def rows_of(tables: Path, table: str, cluster: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table, or those of one cluster; moments are UTC without a zone, as in Spark."""
    found = DeltaTable(str(tables / table)).to_pyarrow_table()
    for number, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            found = found.set_column(number, column.name, found[column.name].cast(pa.timestamp("us")))
    rows = found.to_pylist(maps_as_pydicts="strict")
    return rows if cluster is None else [row for row in rows if row["cluster"] == cluster]
