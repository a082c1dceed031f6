"""Queries in Spark's SQL: literal answers, of Spark and of DuckDB, where the two differ when nobody sees to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.queries import FAILED, InProcess, InSpark, Queries, over
from jobs.rows import in_spark

pytestmark = pytest.mark.spark

MOMENT = pa.timestamp("us", "UTC")


def at(second: float) -> datetime:
    return datetime(2026, 11, 20, 10, 0, 0, round(second * 1e6), tzinfo=UTC)


ROWS = pa.table(
    {
        "n": pa.array([1, 2, None, 2], pa.int32()),
        "text": pa.array(["b", "a", None, "b\0c"]),
        "list": pa.array([[3, 1, 3], [], None, [2]], pa.list_(pa.int32())),
        "ts": pa.array([at(0.7), at(0.2), None, at(0.9)], MOMENT),
    }
)


@pytest.fixture(params=["Spark", "DuckDB"])
def queries(request: pytest.FixtureRequest, spark: Any) -> Queries:
    made: Queries = InSpark(spark) if request.param == "Spark" else InProcess()
    made.view("some", ROWS)
    return made


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        # null makes null of what is put together, and is passed over in lists that are joined
        ("concat('x', max(n), NULL)", None),
        ("concat('x', max(n), '-', true)", "x2-true"),
        ("concat_ws('|', 'x', NULL, 1)", "x|1"),
        ("array_join(array(1, NULL, 2), ',')", "1,2"),
        # lists begin with 0 and have their order
        ("array(4, 5)[1]", 5),
        ("get(array(4, 5), 1)", 5),
        ("get(array(4, 5), 2)", None),
        ("slice(array(4, 5, 6), 1, 2)", [4, 5]),
        ("array_distinct(array('b', 'a', 'b'))", ["b", "a"]),
        ("array_distinct(array('b', NULL, 'a', 'b', NULL))", ["b", None, "a"]),
        ("array_distinct(collect_list(n) FILTER (WHERE n > 5))", []),
        ("array_distinct(CASE WHEN max(n) > 5 THEN array(1) END)", None),
        ("size(array_distinct(transform(sequence(1, 200000), one -> one % 100000)))", 100_000),
        ("array_sort(array('b', NULL, 'a'))", ["a", "b", None]),
        ("array_sort(collect_list(list))", [[], [2], [3, 1, 3]]),
        ("array_sort(collect_set(n))", [1, 2]),
        ("collect_list(n) FILTER (WHERE n > 5)", []),
        ("array_sort(collect_set(CASE WHEN n > 5 THEN n END))", []),
        ("flatten(array_sort(collect_list(list)))", [2, 3, 1, 3]),
        ("transform(array(1, 2), one -> one + 1)", [2, 3]),
        ("exists(array(1, 2), one -> one > 1)", True),
        ("exists(array(1), one -> one > 1)", False),
        ("array_compact(array(1, NULL))", [1]),
        ("array_except(array(1, 2), array(2))", [1]),
        # counts of nothing are none
        ("count_if(n > 5)", 0),
        ("count_if(n IS NULL AND n > 1)", 0),
        ("count(DISTINCT n, text)", 3),
        ("count(DISTINCT struct(n, text))", 4),
        # what is null where the smallest is counts, what is measured by null does not
        ("min_by(n, ts)", 2),
        ("max_by(CASE WHEN text = 'b' THEN n END, ts)", None),
        ("min_by(n, CASE WHEN n = 1 THEN ts END)", 1),
        ("min_by(text, struct(n, ts))", None),
        ("max(struct(text, n)).n", 2),
        ("sum(n)", 5),
        # moments
        ("unix_seconds(max(ts)) - unix_seconds(TIMESTAMP '2026-11-20 10:00:00')", 0),
        ("unix_millis(max(ts)) - unix_millis(min(ts))", 700),
        ("date_format(max(ts), 'yyyy-MM-dd HH:mm:ss')", "2026-11-20 10:00:00"),
        ("concat(date_trunc('HOUR', max(ts)))", "2026-11-20 10:00:00"),
        ("concat(max(ts))", "2026-11-20 10:00:00.9"),
        ("min(ts) + make_dt_interval(0, 0, 0, 3) - INTERVAL 3 SECONDS", at(0.2)),
        ("max(ts) + make_dt_interval(1, 2, 3, 4) = max(ts) + INTERVAL 1 DAY + INTERVAL 7384 SECONDS", True),
        # numbers
        ("floor(unix_seconds(max(ts)) / 1000000)", 1795),
        ("concat(floor(7 / 2))", "3"),
        ("7 / 2", 3.5),
        ("concat(round(7 / 3, 1), ' s')", "2.3 s"),
        ("percentile_approx(n, array(0.1, 0.5, 0.9))", [1, 2, 2]),
        ("try_cast('x' AS INT)", None),
        # texts
        ("max(text)", "b\0c"),
        ("substring('abc', 1, 2)", "ab"),
        ("regexp_extract('epoch=17 of 18', 'epoch=([0-9]+)', 1)", "17"),
        ("regexp_extract('none', 'epoch=([0-9]+)', 1)", ""),
        ("regexp_replace('a1b22', '[0-9]+', '#')", "a#b#"),
        ("'pay\\nments' RLIKE '^(?s:pay.*)$'", True),
        ("sha2('x', 256)", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"),
        ("concat('it\\'s ', 'a\\\\b')", "it's a\\b"),
    ],
)
def test_an_expression(queries: Queries, expression: str, told: Any) -> None:
    rows = queries.rows(f"SELECT {expression} AS told FROM some")
    assert [row["told"] for row in rows] == [told] * len(rows)
    assert rows


def test_queries(queries: Queries) -> None:
    queries.function("CREATE OR REPLACE TEMPORARY FUNCTION twice(n INT, of STRING) RETURNS STRING RETURN\nconcat(n * 2, ' ', of)")
    one = "SELECT twice(n, 'times') AS told FROM some WHERE n = 1"
    assert queries.rows(one, one) == [{"told": "2 times"}] * 2
    queries.view("more", queries.frame("SELECT n, ts, row_number() OVER (ORDER BY n, ts) AS place FROM some"))
    # nulls come first
    assert [row["n"] for row in queries.rows("SELECT n FROM more ORDER BY place")] == [None, 1, 2, 2]
    absent = "SELECT a.n FROM some a LEFT ANTI JOIN more b ON b.n = a.n AND b.place > 2"
    assert sorted(repr(row["n"]) for row in queries.rows(absent)) == ["1", "None"]
    spread = "SELECT explode(sequence(1, 3)) AS n UNION ALL SELECT inline(array(struct(4 AS n), struct(5 AS n)))"
    assert sorted(row["n"] for row in queries.rows(spread)) == [1, 2, 3, 4, 5]
    for broken in ("SELECT nothing FROM some", "SELECT FROM FROM"):
        with pytest.raises(FAILED):
            queries.rows(broken)


def test_few_rows_are_asked_here(spark: Any) -> None:
    assert isinstance(over(spark, [ROWS, ROWS]), InProcess)
    assert isinstance(over(spark, [ROWS, in_spark(spark, ROWS)]), InSpark)


def test_a_query_reads_no_file(tmp_path: Any) -> None:
    """Whatever would come into its text."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for text in (f"SELECT * FROM read_csv('{secret}')", f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'", "INSTALL httpfs"):
        with pytest.raises(duckdb.Error):
            InProcess()._database.execute(text)
    assert not (tmp_path / "out.csv").exists()
