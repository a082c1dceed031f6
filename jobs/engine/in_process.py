"""Parse short logs in the process of the run, which takes less time than to start a pool or Spark's workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from jobs import progress
from jobs.batches import record_blocks
from jobs.batches.record_blocks import Block, Last, StoredRecords
from jobs.files import ingest
from jobs.files.ingest import LogFile, Split
from parsers.events import Parser
from parsers.rules import RuleSet

# bytes of text that this process parses before others would have started
SMALL = 16 * 1024 * 1024


def are_small(files: Sequence[LogFile]) -> bool:
    """Return whether logs are small enough for one process to parse."""
    return sum(file.length for file in files if file.usable) < SMALL


class InProcess:
    """Splits parsed by the process of the run. blocks: with their rows."""

    def __init__(
        self, splits: Sequence[Split], parser: Parser, days: tuple[date, date] | None = None
    ) -> None:
        self.splits = splits
        progress.expect(sum(split.end - split.begin for split in splits))
        found: list[Block] = []
        for split in splits:
            found += record_blocks.parse(split, parser, days)
            progress.advance(split.end - split.begin)
        self.blocks = sorted(found, key=lambda block: block.number)

    def duplicates(
        self, table: str, stored: StoredRecords | None = None
    ) -> tuple[Mapping[int, Sequence[int]], int]:
        """Return (number of a block -> places of its duplicates, in this run or stored.

        The number of duplicates).
        """
        blocks = [block for block in self.blocks if block.table == table]
        seen = set() if stored is None else stored.among([one for block in blocks for one in block.ids])
        found = defaultdict[int, list[int]](list)
        for block in blocks:
            for place, record_id in enumerate(block.ids):
                if record_id in seen:
                    found[block.number].append(place)
                seen.add(record_id)
        return found, sum(map(len, found.values()))

    def records_at(self, moments: set[datetime]) -> list[Last]:
        """Return the records that have one of these time stamps."""
        return [
            last
            for block in self.blocks
            if block.table == "events"
            for last in record_blocks.records_at(block.rows, moments)
        ]

    def rows(self, table: str, dropped: Mapping[int, Sequence[int]], cut_short: set[str]) -> pa.Table:
        """Return the rows that are no duplicates."""
        schema = record_blocks.filled_columns(table, self.blocks)
        some = [
            record_blocks.remaining(one.rows, schema, dropped.get(one.number, ()), cut_short)
            for one in self.blocks
            if one.table == table
        ]
        return pa.concat_tables([schema.empty_table(), *some])

    def append(
        self, store: Any, table: str, dropped: Mapping[int, Sequence[int]], cut_short: set[str], after: int
    ) -> Counter[str]:
        """Append the rows that are no duplicates; return the number of records by kind.

        after: the commit up to which duplicates were searched.
        """
        rows = self.rows(table, dropped, cut_short)
        if rows.num_rows:
            store.append(table, rows, after)
        return record_blocks.counted(table, rows)

    def close(self) -> None:
        """Free memory."""
        self.blocks = []


class Ahead:
    """Small logs that are parsed while Spark starts and the tables are opened."""

    def __init__(
        self, files: Sequence[LogFile], ruleset: RuleSet | None = None, days: tuple[date, date] | None = None
    ) -> None:
        pool = ThreadPoolExecutor(1)
        self._parsing = pool.submit(parsed_in_process, files, ruleset, days)
        pool.shutdown(wait=False)

    def parsed(self) -> InProcess:
        """Return the parsed splits. Raises the error of the thread that parsed them."""
        return self._parsing.result()


def parsed_in_process(
    files: Sequence[LogFile], ruleset: RuleSet | None, days: tuple[date, date] | None = None
) -> InProcess:
    """Parse logs in the process of the run."""
    parser = Parser(ruleset)
    return InProcess(
        ingest.splits([file for file in files if file.usable], parser, ingest.LARGEST_SPLIT), parser, days
    )
