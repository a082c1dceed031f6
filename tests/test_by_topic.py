"""Topics about which all is told anew: which rows are theirs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.engine.rows import EVERY, here, where
from jobs.nightly import by_topic
from jobs.nightly.by_topic import TOPICS, ToldAnew

ROWS = pa.table({"cluster": ["a", "a", "b", "b", "c"], "topic": ["t", "u", "t", "u", "u"]})
TOPIC_T = pa.Table.from_pylist([{"cluster": "a", "topic": "t"}], TOPICS)


def told(rows: pa.Table) -> list[str]:
    return [row["cluster"] + row["topic"] for row in here(rows)]


@pytest.mark.parametrize(
    ("clusters", "likely", "of"), [("", ["at", "bt"], ["at"]), ("b", ["at", "bt", "bu"], ["at", "bt", "bu"])]
)
def test_few_topics_are_named(clusters: str, likely: list[str], of: list[str]) -> None:
    anew = ToldAnew.of_any(clusters, TOPIC_T)
    assert told(where(ROWS, anew.likely)) == likely
    assert sorted(told(anew.of(ROWS))) == sorted(told(anew.of(where(ROWS, anew.likely)))) == of
    assert sorted(told(anew.of(ROWS)) + told(anew.not_of(ROWS))) == sorted(told(ROWS))


def test_of_many_topics_all_rows_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_topic, "MOST_NAMED", 1)
    assert ToldAnew.of_any((), TOPIC_T, [("b", "u")]).likely == EVERY
    assert told(where(ROWS, ToldAnew.of_any((), None, [("b", "u")]).likely)) == ["au", "bu", "cu"]
