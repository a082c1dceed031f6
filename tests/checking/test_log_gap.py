"""The pauses that the check `log_gap` looks at are those between one record of a node and the next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

import schemas
from jobs.batches.types import schema_of
from jobs.engine.database import Database

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTES = 10
EVENTS = schema_of(
    "cluster STRING, incarnation INT, node INT, ts TIMESTAMP, record_id STRING, record_no BIGINT"
)
OUTAGES = schema_of("cluster STRING, incarnation INT, broker INT, since TIMESTAMP, until TIMESTAMP")
(CHECK,) = (one for one in schemas.statements("checks") if one.name == "log_gap")
Record = tuple[int, int, float]


def gaps(records: Sequence[Record]) -> list[tuple[int, int, str, str]]:
    """(incarnation, node, record before, record after) of pauses, as the check's query finds them."""
    rows = [
        {
            "cluster": "c",
            "incarnation": number,
            "node": node,
            "ts": NOON + timedelta(seconds=at),
            "record_id": f"r{place}",
            "record_no": place,
        }
        for place, (number, node, at) in enumerate(records)
    ]
    with Database() as database:
        database.view("audited_events", pa.Table.from_pylist(rows, schema=EVENTS))
        database.view("audited_broker_outages", OUTAGES.empty_table())
        database.function(
            f"CREATE OR REPLACE TEMPORARY FUNCTION log_gap_minutes(cluster STRING, topic STRING) RETURNS INT RETURN {MINUTES}"
        )
        found = database.rows(CHECK.part("gaps"))
    return sorted((row["incarnation"], row["node"], row["record_before"], row["record_id"]) for row in found)


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 7200).map(lambda n: n / 2)),
        max_size=25,
    )
)
# exactly ten minutes are no pause; pauses side by side; records every five minutes between two pauses
@example([(1, 1, 0), (1, 1, 600), (1, 1, 1200.5)])
@example([(1, 1, 0.5), (1, 1, 601), (1, 1, 1260), (1, 1, 1919.5), (1, 2, 300)])
@example([(1, 1, at) for at in (0, 3000, 3300, 3600, 3900, 6600)])
def test_pauses_are_those_between_neighbours(records: list[Record]) -> None:
    expected = []
    for key in {(number, node) for number, node, _ in records}:
        mine = sorted(
            (at, place) for place, (number, node, at) in enumerate(records) if (number, node) == key
        )
        expected += [(*key, f"r{a[1]}", f"r{b[1]}") for a, b in pairwise(mine) if b[0] - a[0] > MINUTES * 60]
    assert gaps(records) == sorted(expected)
