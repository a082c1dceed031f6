"""The work of a process of the pool. It imports no database: these processes parse, fold and write files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.batches import folding, record_blocks
from jobs.batches.record_blocks import Block
from jobs.batches.types import table_schema
from jobs.engine import rows_of
from jobs.engine.files import DataFile, FileWriter
from jobs.engine.pool import loaded
from jobs.files.ingest import Split
from jobs.timelines import EVENT_COLUMNS, ClusterEvidence
from parsers.events import Parser
from parsers.rules import built_in

# of records: the block, their place in it, what is the same for copies
IDS = pa.schema([("number", pa.int64()), ("place", pa.int32()), ("id", pa.binary())])
# a column of rows of two sides: the number of the side
SIDE = "side"
# parsers by the file that their rules are in
_parsers: dict[Path | None, Parser] = {}
# the rules that come with the product are compiled before processes are forked
built_in()


@dataclass(frozen=True)
class Landing:
    """The rows of one table that some splits give.

    numbers: of the blocks, one a row group. ids: a file of IDS. counts: as `record_blocks.counted` has them.
    """

    table: str
    file: DataFile
    numbers: tuple[int, ...]
    ids: Path
    counts: Counter[str]


def parse(
    given: Path, folders: Mapping[str, Path], splits: Sequence[Split]
) -> tuple[list[Block], list[Landing]]:
    """Parse splits and write their rows, a file a table. The blocks that are returned have none.

    given: a file with (rules or None, days). folders: table -> where its rows are written to.
    """
    ruleset, days = loaded(given)
    key = None if ruleset is None else given
    if key not in _parsers:
        _parsers[key] = Parser(ruleset or built_in())
    blocks: list[Block] = []
    written: dict[str, _Written] = {}
    for block in (block for split in splits for block in record_blocks.parse(split, _parsers[key], days)):
        assert block.rows is not None
        if block.rows.num_rows:
            if block.table not in written:
                written[block.table] = _Written(block.table, folders[block.table])
            written[block.table].add(block)
        blocks.append(replace(block, rows=None, ids=()))
    return blocks, [one.close() for one in written.values()]


class _Written:
    """The files of a table that some splits give."""

    def __init__(self, table: str, folder: Path) -> None:
        self.table, self._schema = table, table_schema(table)
        self._file = FileWriter(folder, self._schema)
        self._ids_path = self._file.path.with_suffix(".ids")
        self._ids = pq.ParquetWriter(self._ids_path, IDS, use_dictionary=False, compression="none")
        self._numbers: list[int] = []
        self._counts = Counter[str]()

    def add(self, block: Block) -> None:
        """Write the rows of a block, and the ids of its records."""
        assert block.rows is not None
        rows = record_blocks.with_schema(block.rows, self._schema)
        self._file.add(rows)
        self._numbers.append(block.number)
        self._counts += record_blocks.counted(self.table, rows)
        count = len(block.ids)
        self._ids.write(
            pa.table(
                [pa.repeat(block.number, count), pa.array(range(count), pa.int32()), list(block.ids)],
                schema=IDS,
            )
        )

    def close(self) -> Landing:
        """Return what was written."""
        self._ids.close()
        return Landing(self.table, self._file.close(), tuple(self._numbers), self._ids_path, self._counts)


def rewrite(
    one: Landing, dropped: Mapping[int, Sequence[int]], cut_short: set[str]
) -> tuple[DataFile | None, Counter[str]]:
    """Write a file again without some records.

    dropped: number of a block -> places of records; cut_short: ids of others.

    Return the file, and how many records of what kind it has; None where no row is left.
    """
    source = pq.ParquetFile(one.file.path)
    target = FileWriter(one.file.path.parent, table_schema(one.table))
    counts = Counter[str]()
    for group, number in enumerate(one.numbers):
        rows = record_blocks.remaining(
            source.read_row_group(group), table_schema(one.table), dropped.get(number, ()), cut_short
        )
        target.add(rows)
        counts += record_blocks.counted(one.table, rows)
    file = target.close()
    return (file if file.rows else None), counts


def summaries(events_of_clusters: pa.Table) -> dict[str, ClusterEvidence]:
    """Return, by cluster, the summary of its events. in: cluster and some of EVENT_COLUMNS."""
    names = [name for name in events_of_clusters.column_names if name != "cluster"]
    return folding.evidence_by_cluster(events_of_clusters.select(["cluster", *names]).to_batches(), names)


def fold(given: Path, folder: Path, rows: pa.Table) -> Path | None:
    """Fold whole partitions, and write what that gives to a file of `folding.OUTPUT`. None: it gives nothing.

    given: a file with (facts by cluster, events that are folded at once). rows: columns of `folding.INPUT`
    that have a value, in order.
    """
    facts, at_once = loaded(given)
    file = FileWriter(folder, folding.OUTPUT)
    batches = record_blocks.with_schema(rows, folding.INPUT).to_batches()
    for batch in folding.fold_groups(batches, EVENT_COLUMNS, facts, at_once):
        file.add(batch)
    made = file.close()
    return made.path if made.rows else None


def apply_to_groups(given: Path, rows: pa.Table) -> pa.Table:
    """Fold the rows of both sides that have the same values of some columns.

    given: a file with (these columns, the other columns of each side, all columns, the function, the columns
    of its rows). rows: columns that have a value; those of a side begin with its number, and SIDE says of
    which a row is.
    """
    by, columns, every, function, schema = loaded(given)
    whole = record_blocks.with_schema(rows, every)
    groups: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = {}
    for number, some in enumerate(columns):
        mine = whole.filter(pc.equal(whole[SIDE], number)).select(
            [*by, *(f"{number}_{name}" for name in some)]
        )
        for row in rows_of(mine.rename_columns([*by, *some])):
            groups.setdefault(tuple(row[name] for name in by), ([], []))[number].append(row)
    found = [
        {**dict(zip(by, key, strict=True)), **row}
        for key, both in groups.items()
        for row in function(key, *both)
    ]
    return pa.Table.from_pylist(found, schema=schema)
