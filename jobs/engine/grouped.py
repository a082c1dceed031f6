"""Fold partitions in the processes of the pool: DuckDB sorts their rows, and each process gets whole partitions and writes a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from jobs.engine.pool import Pool, shared
from jobs.engine.relation import Relation
from jobs.engine.work import fold, summaries
from jobs.nightly import folding
from jobs.timelines import ClusterEvidence, ClusterFacts

# events of whole partitions that a process folds at once
CHUNK = 25_000
# states first, then events in order of time
ORDER = ", ".join((*folding.GROUP, "state IS NULL", "ts NULLS FIRST"))


def summed(pool: Pool, events: Relation) -> dict[str, ClusterEvidence]:
    """Return, by cluster, the summary of its events. in: cluster and EVENT_COLUMNS."""
    found: dict[str, ClusterEvidence] = {}
    for part in pool.map(summaries, (_filled(batch) for batch in events.batches(size=CHUNK))):
        for name, one in part.items():
            found[name] = found[name] + one if name in found else one
    return found


def folded(
    pool: Pool,
    root: str,
    folder: Path,
    rows: tuple[Relation, Relation],
    *,
    facts: Mapping[str, ClusterFacts],
    at_once: int | None,
) -> Relation:
    """Fold partitions. rows: events and states, as `updates` gives them; root: of the tables; folder: below it, for files that are read as long as the relation is.

    out: `folding.OUTPUT`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for one in facts.values():
        one.by_number  # noqa: B018  # computed once, not by every process
    given = shared((dict(facts), at_once), folder / "given")
    events, states = (some.aligned(folding.INPUT) for some in rows)
    chunks = map(_filled, _whole_groups(events.union(states)))
    paths = [str(path) for path in pool.map(partial(fold, given, folder), chunks) if path is not None]
    return Relation.of_files(paths, folding.OUTPUT, root)


def _whole_groups(rows: Relation) -> Iterator[pa.Table]:
    """Yield the rows in order; the rows of a partition are in one piece."""
    kept: list[pa.RecordBatch] = []
    for batch in rows.batches(ORDER, CHUNK):
        kept.append(batch)
        if sum(one.num_rows for one in kept) < CHUNK:
            continue
        some = pa.Table.from_batches(kept)
        same = None
        for name in folding.GROUP:
            is_last = pc.equal(some[name], some[name][-1])
            same = is_last if same is None else pc.and_(same, is_last)
        if begin := some.num_rows - pc.sum(same).as_py():
            yield some.slice(0, begin)
            kept = some.slice(begin).to_batches()
    if kept:
        yield pa.Table.from_batches(kept)


def _filled(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return the columns that have a value. Two thirds of an event's columns are null, and passing them on costs as much."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    return table.select([name for name in table.column_names if table[name].null_count < table.num_rows])
