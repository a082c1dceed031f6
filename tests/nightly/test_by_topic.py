"""The rows of topics that are rebuilt."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.engine.rows import to_dicts
from jobs.nightly.by_topic import TOPICS, RebuiltTopics

ROWS = pa.table({"cluster": ["a", "a", "b", "b", "c"], "topic": ["t", "u", "t", "u", "u"]})
TOPIC_T = pa.Table.from_pylist([{"cluster": "a", "topic": "t"}], TOPICS)


def selected(rows: pa.Table) -> list[str]:
    return [row["cluster"] + row["topic"] for row in to_dicts(rows)]


@pytest.mark.parametrize(("clusters", "of"), [("", ["at"]), ("b", ["at", "bt", "bu"])])
def test_rows_of_some_topics(clusters: str, of: list[str]) -> None:
    rebuilt = RebuiltTopics.of_any(clusters, TOPIC_T)
    assert sorted(selected(rebuilt.of(ROWS))) == of
    assert sorted(selected(rebuilt.of(ROWS)) + selected(rebuilt.not_of(ROWS))) == sorted(selected(ROWS))
