"""Parse logs in the processes of the pool: they write files beside the tables, DuckDB finds duplicates, and a
commit adds the files.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from jobs.batches import record_blocks
from jobs.batches.record_blocks import SCHEMAS, Last
from jobs.engine.database import text
from jobs.engine.files import FOLDER
from jobs.engine.local import LocalTables
from jobs.engine.pool import Pool, shared
from jobs.engine.work import Landing, parse, rewrite
from jobs.files.ingest import Split, split_size
from parsers.events import Parser
from parsers.rules import built_in

# what is the same for copies of a record, as the tables have it
_ID = {"events": "unhex(record_id)", "passed_over": "unhex(lpad(hex(record), 16, '0'))"}
_FIRST_ITEM = {"events": "item = 0", "passed_over": "true"}


def clear(root: Path) -> None:
    """Remove the files of a run that was interrupted. Only the run that holds the lease may call it."""
    for table in SCHEMAS:
        shutil.rmtree(root / table / FOLDER, ignore_errors=True)


class OnPool:
    """Splits that the processes of the pool have parsed. Their rows are in files."""

    def __init__(
        self,
        pool: Pool,
        root: Path,
        splits: Sequence[Split],
        parser: Parser,
        *,
        days: tuple[date, date] | None = None,
        done: Callable[[int], None] = lambda _: None,
    ) -> None:
        """root: of the tables.

        done: called with the bytes of text that were parsed, some splits at a time.
        """
        self.splits = splits
        self._pool, self._root = pool, root
        clear(root)
        folders = {table: root / table / FOLDER for table in SCHEMAS}
        for folder in folders.values():
            folder.mkdir()
        rules = None if parser.ruleset is built_in() else parser.ruleset
        given = shared((rules, days), folders["events"] / f"given-{uuid.uuid4().hex}")
        self.blocks: list[record_blocks.Block] = []
        self._landings: list[Landing] = []
        tasks = list(_tasks(splits, pool.workers))
        parsed = pool.map(parse, repeat(given, len(tasks)), repeat(folders, len(tasks)), tasks)
        for task, (blocks, landings) in zip(tasks, parsed, strict=True):
            self.blocks += blocks
            self._landings += landings
            done(sum(map(_length, task)))
        self.blocks.sort(key=lambda block: block.number)

    def _of(self, table: str) -> list[Landing]:
        return [one for one in self._landings if one.table == table]

    def duplicates(self, table: str, landed: record_blocks.StoredRecords) -> tuple[pa.Table, int]:
        """Return the duplicates as rows (number of a block, place in it), and how many they are."""
        ids = f"(SELECT * FROM read_parquet([{', '.join(text(str(one.ids)) for one in self._of(table))}]))"
        tables = LocalTables(str(self._root))
        is_empty = landed.store.has_none(table)
        database = tables.database([] if is_empty else [table], [str(one.ids) for one in self._of(table)])
        repeated = f"SELECT id FROM {ids} GROUP BY id HAVING count(*) > 1"
        nth = "row_number() OVER (PARTITION BY id ORDER BY number, place)"
        again = f"SELECT number, place, {nth} AS nth FROM {ids} SEMI JOIN ({repeated}) USING (id)"
        found = f"SELECT number, place FROM ({again}) WHERE nth > 1"
        if not is_empty:
            # below the view of the table, so that files and row groups of other times are skipped
            time = record_blocks.TIMES[table]
            span = (
                "false"
                if landed.first is None
                else f"{time} BETWEEN {_moment(landed.first)} AND {_moment(landed.final)}"
            )
            tables.define(database, table, "landed", f"{_FIRST_ITEM[table]} AND ({time} IS NULL OR {span})")
            clusters = ", ".join(map(text, landed.clusters))
            known = f"SELECT {_ID[table]} AS id FROM landed WHERE cluster IN ({clusters})"
            found += f" UNION SELECT number, place FROM {ids} SEMI JOIN ({known}) USING (id)"
        schema, batches = database.answer(found)
        places = pa.Table.from_batches(batches, schema)
        return places, places.num_rows

    def records_at(self, moments: set[datetime]) -> list[Last]:
        """Return the records that have one of these time stamps."""
        paths = [str(one.file.path) for one in self._of("events")]
        if not paths or not moments:
            return []
        wanted = pa.array(sorted(moments), pa.timestamp("us", "UTC"))
        at = (pc.field("item") == 0) & pc.field("ts").isin(wanted)
        rows = ds.dataset(paths, format="parquet").to_table(columns=[*Last._fields, "item"], filter=at)
        return record_blocks.firsts(rows)

    def append(
        self, store: Any, table: str, dropped: pa.Table, cut_short: set[str], after: int
    ) -> Counter[str]:
        """Commit the remaining rows to a table and return the number of records by kind.

        dropped: as `duplicates` returns it.
        """
        by_number = defaultdict[int, list[int]](list)
        for number, place in zip(*(dropped[name].to_pylist() for name in ("number", "place")), strict=True):
            by_number[number].append(place)
        touched = {number for number, places in by_number.items() if places} | self._blocks_with(
            table, cut_short
        )
        same: list[Landing] = []
        changed: list[Landing] = []
        for one in self._of(table):
            (changed if touched.intersection(one.numbers) else same).append(one)
        counts = sum((one.counts for one in same), Counter[str]())
        files = [one.file for one in same]
        without: list[Mapping[int, Sequence[int]]] = [
            {number: by_number[number] for number in one.numbers if number in by_number} for one in changed
        ]
        for file, left in self._pool.map(rewrite, changed, without, repeat(cut_short, len(changed))):
            counts += left
            files += [file] if file is not None else []
        store.append_files(table, files, after)
        return counts

    def _blocks_with(self, table: str, cut_short: set[str]) -> set[int]:
        """Numbers of the blocks that hold some records."""
        if not cut_short:
            return set()
        wanted = pc.field("id").isin(pa.array([bytes.fromhex(one) for one in cut_short], pa.binary()))
        ids = ds.dataset([str(one.ids) for one in self._of(table)], format="parquet")
        return set(ids.to_table(columns=["number"], filter=wanted)["number"].to_pylist())

    def close(self) -> None:
        """Remove the files that no table has taken in."""
        clear(self._root)


def _tasks(splits: Sequence[Split], workers: int) -> Iterator[list[Split]]:
    """Yield the splits that are parsed into one file; small logs share one."""
    most = split_size((split.file for split in splits if not split.begin), workers)
    task: list[Split] = []
    for split in splits:
        if task and sum(map(_length, [*task, split])) > most:
            yield task
            task = []
        task.append(split)
    if task:
        yield task


def _length(split: Split) -> int:
    return split.end - split.begin


def _moment(at: datetime | None) -> str:
    assert at is not None
    return f"TIMESTAMPTZ '{at.isoformat()}'"
