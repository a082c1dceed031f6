"""Queries in Spark's SQL: literal answers, of Spark and of DuckDB, where the two differ when nobody sees to
it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.engine.database import Database
from jobs.engine.frames import ROWS_SENT
from jobs.engine.queries import FAILED, InSpark, Queries, over, read_often
from jobs.engine.relation import Relation
from jobs.engine.rows import computed, in_spark

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
    made: Queries = InSpark(spark) if request.param == "Spark" else Database()
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
        # fields that are null are written
        (
            "to_json(struct(max(n) AS n, CAST(NULL AS INT) AS m), map('ignoreNullFields', 'false'))",
            '{"n":2,"m":null}',
        ),
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
        # places in lists begin with 0 in functions, too
        ("transform(array(5, 6), (one, place) -> one + place)", [5, 7]),
        ("filter(array(5, 6), (one, place) -> place > 0)", [6]),
        ("forall(array(1, 2), one -> one > 1)", False),
        ("array_position(array(4, 5), 5)", 2),
        ("array_position(array(4, 5), 6)", 0),
        ("array_prepend(array(1), 2)", [2, 1]),
        ("array_union(array(1, 2), array(2, 3))", [1, 2, 3]),
        ("array_intersect(array(1, 2), array(2))", [2]),
        ("arrays_overlap(array(1), array(1, 2))", True),
        ("array_repeat('x', 2)", ["x", "x"]),
        ("size(array_distinct(collect_list(n) FILTER (WHERE n > 5)))", 0),
        ("element_at(array(4, 5), -1)", 5),
        ("sort_array(array(2, NULL, 1))", [None, 1, 2]),
        ("sort_array(array(2, 1), false)", [2, 1]),
        ("array_append(array(1), 2)", [1, 2]),
        ("bool_or(n > 1)", True),
        ("some(n > 5)", False),
        ("every(n > 0)", True),
        # casts to whole numbers cut, and make seconds of moments
        ("CAST(1.7 AS INT)", 1),
        ("CAST(-1.7 AS BIGINT)", -1),
        ("CAST('12' AS INT)", 12),
        ("CAST(true AS INT)", 1),
        ("int('3')", 3),
        ("CAST(max(ts) AS BIGINT)", 1795168800),
        # casts to fractions make seconds with milliseconds of moments
        ("CAST(max(ts) AS DOUBLE)", 1795168800.9),
        ("round(double(max(ts)) - CAST(min(ts) AS DOUBLE), 3)", 0.7),
        ("CAST('1.5' AS DOUBLE)", 1.5),
        ("CAST(max(n) AS DOUBLE)", 2.0),
        ("unix_timestamp(max(ts))", 1795168800),
        ("unix_timestamp('2026-11-20 10:00', 'yyyy-MM-dd HH:mm')", 1795168800),
        ("pmod(-7, 3)", 2),
        # days of the week, spans between moments, units, patterns
        ("dayofweek(max(ts))", 6),
        ("weekday(max(ts))", 4),
        ("extract(DOW FROM max(ts))", 6),
        ("timestampdiff(MINUTE, TIMESTAMP '2026-01-01 00:00:59', TIMESTAMP '2026-01-01 00:02:00')", 1),
        ("datediff(DATE '2026-01-03', DATE '2026-01-01')", 2),
        ("date_format(max(ts), 'yyyyMMdd HH:mm:ss.SSS')", "20261120 10:00:00.900"),
        ("date_format(max(ts), \"yyyy-MM-dd'T'HH\")", "2026-11-20T10"),
        ("date_trunc('MM', max(ts))", datetime(2026, 11, 1, tzinfo=UTC)),
        ("trunc(DATE '2026-03-05', 'MM')", date(2026, 3, 1)),
        ("date_add(DATE '2026-03-05', 1)", date(2026, 3, 6)),
        ("date_sub(DATE '2026-03-05', 1)", date(2026, 3, 4)),
        ("to_date('20261120', 'yyyyMMdd')", date(2026, 11, 20)),
        ("timestamp_seconds(1795168800)", at(0)),
        # moments that have a zone
        ("min(ts) >= TIMESTAMP '2026-11-20 12:00:00.2+02:00'", True),
        ("min(ts) > TIMESTAMP '2026-11-20 12:00:00.2+02:00'", False),
        ("min(ts) = '2026-11-20T10:00:00.2Z'", True),
        ("TIMESTAMP '2026-11-20 12:00:00+02:00'", at(0)),
        ("max(ts) - min(ts)", timedelta(milliseconds=700)),
        # texts and their patterns
        ("regexp_replace('a1b22', '([0-9]+)', '<$1>')", "a<1>b<22>"),
        ("regexp_replace('abc', '(?<=a)b', 'X')", "aXc"),
        ("regexp_replace('topic-3', '([a-z]+)-([0-9]+)(?![0-9])', '$2-$1')", "3-topic"),
        ("regexp_extract('a1b22', '(?<=b)([0-9])', 1)", "2"),
        ("'ab' RLIKE 'a(?!c)'", True),
        ("'a_b' LIKE 'a\\_b'", True),
        ("'axb' LIKE 'a\\_b'", False),
        ("substring_index('a.b.c', '.', 2)", "a.b"),
        ("substring_index('a.b.c', '.', -1)", "c"),
        ("split('a b  c', ' ')", ["a", "b", "", "c"]),
        ("initcap('hello world')", "Hello World"),
        ('"double"', "double"),
    ],
)
def test_an_expression(queries: Queries, expression: str, told: Any) -> None:
    rows = queries.rows(f"SELECT {expression} AS told FROM some")
    assert [row["told"] for row in rows] == [told] * len(rows)
    assert rows


def test_queries(queries: Queries) -> None:
    queries.function(
        "CREATE OR REPLACE TEMPORARY FUNCTION twice(n INT, of STRING) RETURNS STRING RETURN\nconcat(n * 2, ' ', of)"
    )
    one = "SELECT twice(n, 'times') AS told FROM some WHERE n = 1"
    assert queries.rows(one, one) == [{"told": "2 times"}] * 2
    queries.view("more", queries.frame("SELECT n, ts, row_number() OVER (ORDER BY n, ts) AS place FROM some"))
    # nulls come first
    assert [row["n"] for row in queries.rows("SELECT n FROM more ORDER BY place")] == [None, 1, 2, 2]
    absent = "SELECT a.n FROM some a LEFT ANTI JOIN more b ON b.n = a.n AND b.place > 2"
    assert sorted(repr(row["n"]) for row in queries.rows(absent)) == ["1", "None"]
    spread = (
        "SELECT explode(sequence(1, 3)) AS n UNION ALL SELECT inline(array(struct(4 AS n), struct(5 AS n)))"
    )
    assert sorted(row["n"] for row in queries.rows(spread)) == [1, 2, 3, 4, 5]
    for broken in ("SELECT nothing FROM some", "SELECT FROM FROM"):
        with pytest.raises(FAILED):
            queries.rows(broken)


def test_few_rows_are_asked_here(spark: Any) -> None:
    assert isinstance(over(spark, [ROWS, ROWS]), Database)
    assert isinstance(over(spark, [ROWS, in_spark(spark, ROWS)]), InSpark)


def test_a_query_reads_no_file(tmp_path: Any) -> None:
    """Whatever would come into its text."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for text in (
        f"SELECT * FROM read_csv('{secret}')",
        f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
        "INSTALL httpfs",
    ):
        with pytest.raises(duckdb.Error):
            Database()._database.execute(text)
    assert not (tmp_path / "out.csv").exists()


class Frame:
    """A frame of Spark with some rows that fails where more are fetched than Spark may send."""

    sparkSession = object()

    def __init__(self, rows: int, *, stored: bool = False) -> None:
        self.rows, self.stored, self.computed = rows, stored, 0

    def localCheckpoint(self) -> Frame:
        self.computed += 1
        return Frame(self.rows, stored=True)

    def count(self) -> int:
        assert self.stored, "rows are computed only to be counted"
        return self.rows

    def toArrow(self) -> pa.Table:
        assert self.rows <= ROWS_SENT, "rows are fetched"
        return pa.table({"number": range(self.rows)})


@pytest.mark.parametrize("rows", [0, 3, ROWS_SENT, ROWS_SENT + 1])
def test_spark_computes_rows_once_and_sends_them_where_they_are_few(rows: int) -> None:
    few, frame = rows <= ROWS_SENT, Frame(rows)
    found = computed(frame)
    assert frame.computed == 1
    assert isinstance(found, Relation if few else Frame)
    assert found.count() == rows
    known = read_often(frame, count=rows)
    assert frame.computed == 1, "the number was known"
    assert isinstance(known, Relation) if few else known is frame
    assert read_often(frame, is_table=True) is frame
