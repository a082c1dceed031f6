"""Fold partitions and topics in the processes of the pool: DuckDB sorts their rows, and each process gets
whole ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.batches import folding
from jobs.engine.database import identifier
from jobs.engine.pool import Pool, shared
from jobs.engine.relation import Relation
from jobs.engine.work import SIDE, apply_to_groups, fold, summaries
from jobs.timelines import ClusterEvidence, ClusterFacts

if TYPE_CHECKING:
    from jobs.engine.rows import Fold

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
    """Fold partitions.

    rows: events and states, as `updates` gives them; root: of the tables; folder: below it, for files that
    are read as long as the relation is.

    out: `folding.OUTPUT`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for one in facts.values():
        one.by_number  # noqa: B018  # computed once, not by every process
    given = shared((dict(facts), at_once), folder / "given")
    events, states = (some.aligned(folding.INPUT) for some in rows)
    chunks = map(_filled, _whole_groups(events.union(states), folding.GROUP, ORDER))
    paths = [str(path) for path in pool.map(partial(fold, given, folder), chunks) if path is not None]
    return Relation.of_files(paths, folding.OUTPUT, root)


def map_groups(
    pool: Pool,
    given: Path,
    rows: tuple[Relation, Relation],
    by: Sequence[str],
    function: Fold,
    *,
    schema: pa.Schema,
) -> pa.Table:
    """Return what `rows.map_groups` returns. given: a file to write, for what all pieces of work share."""
    columns = [tuple(name for name in one.column_names if name not in by) for one in rows]
    # both sides may have a column of one name
    sides = [
        one.select(*by, **{f"{number}_{name}": name for name in some})
        for number, (one, some) in enumerate(zip(rows, columns, strict=True))
    ]
    marked = [one.with_column(SIDE, pa.int32(), str(number)) for number, one in enumerate(sides)]
    every = pa.schema(
        [
            *(rows[0].schema.field(name) for name in by),
            *(f for one in marked for f in one.schema if f.name not in (*by, SIDE)),
            pa.field(SIDE, pa.int32()),
        ]
    )
    shared((tuple(by), columns, every, function, schema), given)
    order = ", ".join(f"{identifier(name)} NULLS FIRST" for name in by)
    chunks = map(_filled, _whole_groups(marked[0].aligned(every).union(marked[1].aligned(every)), by, order))
    return pa.concat_tables([schema.empty_table(), *pool.map(partial(apply_to_groups, given), chunks)])


def _whole_groups(rows: Relation, by: Sequence[str], order: str) -> Iterator[pa.Table]:
    """Yield the rows in order; the rows that have the same values of some columns are in one piece."""
    kept: list[pa.RecordBatch] = []
    for batch in rows.batches(order, CHUNK):
        kept.append(batch)
        if sum(one.num_rows for one in kept) < CHUNK:
            continue
        some = pa.Table.from_batches(kept)
        same = reduce(pc.and_, (_is_as_last(some[name]) for name in by))
        if begin := some.num_rows - pc.sum(same).as_py():
            yield some.slice(0, begin)
            kept = some.slice(begin).to_batches()
    if kept:
        yield pa.Table.from_batches(kept)


def _is_as_last(column: pa.ChunkedArray) -> Any:
    """Return where a column has its last value; null is one."""
    last = column[-1]
    return pc.fill_null(pc.equal(column, last), False) if last.is_valid else pc.is_null(column)


def _filled(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return the columns that have a value.

    Two thirds of an event's columns are null, and passing them on costs as much.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    return table.select([name for name in table.column_names if table[name].null_count < table.num_rows])
