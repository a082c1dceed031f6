"""Parquet files of Delta tables, written by this process or by one of a pool, before a commit makes them rows
of a table.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# folder inside that of a table, for files that are not committed yet. Delta's readers skip names that begin
# so
FOLDER = "_landing"
# columns whose values all differ: a text takes as much room in a file as in memory (as session.py has it for
# Spark)
NO_DICTIONARY = ("record_id", "raw")


@dataclass(frozen=True)
class DataFile:
    """A file of rows.

    values: of the columns that its table is partitioned by, which are no columns of the file.
    """

    path: Path
    rows: int
    size: int
    values: Mapping[str, Any] = field(default_factory=dict)


class FileWriter:
    """Writes one file, row group by row group; one row group is in memory."""

    def __init__(self, folder: Path, schema: pa.Schema, values: Mapping[str, Any] | None = None) -> None:
        """folder: of the table, or one beside its files.

        No value of a partition column is a part of the file's name.
        """
        self.path = folder / f"{uuid.uuid4().hex}.snappy.parquet"
        self._values = values or {}
        self._rows = 0
        plain = [one for one in schema.names if one not in NO_DICTIONARY]
        self._writer = pq.ParquetWriter(self.path, schema, use_dictionary=plain)

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Write rows as one row group."""
        if rows.num_rows:
            self._writer.write(rows, row_group_size=rows.num_rows)
            self._rows += rows.num_rows

    def close(self) -> DataFile:
        """Finish the file and return it."""
        self._writer.close()
        return DataFile(self.path, self._rows, self.path.stat().st_size, self._values)
