"""The tables on this machine without Java: the same answers as Spark's, nothing but the tables, and no
process of Java's.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import schemas
from jobs import engine, errors
from jobs.engine.literals import one_of, quoted
from jobs.engine.local import LocalTables
from jobs.engine.local_store import LocalStore
from jobs.engine.relation import session
from jobs.engine.rows import Where, at_or_after, at_or_before, by_cluster, is_null
from jobs.errors import UsageError
from jobs.nightly_audit import main

if TYPE_CHECKING:
    from jobs.engine.store import Store

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
# imports of these packages fail and are noted
BLOCKED = """\
import os, sys
tried = []
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "delta", "great_expectations", "pandas"):
            tried.append(name)
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Hook())
from jobs.nightly_audit import main
"""
# runs a command
WITHOUT_SPARK = (
    BLOCKED
    + """\
code = main(sys.argv[1:])
assert not {*tried} - {os.environ.get("MAY_BE_TRIED")}, tried
sys.exit(code)
"""
)


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of one run, written by Spark's engine."""
    tables = tmp_path_factory.mktemp("audited")
    assert main(["audit", str(SAMPLE), "--tables", str(tables)]) == errors.CLEAN
    return tables


def asked(tables: engine.Tables, query: str) -> list[str]:
    """What `sql --json` would print."""
    from jobs.analysis import json_lines

    answer = tables.query(query)
    rows = [
        row for batch in answer.batches for row in zip(*map(engine.values_of, batch.columns), strict=True)
    ]
    return list(json_lines(answer.schema.names, rows))


# -- the same answers ----------------------------------------------------------------------------------------

QUERIES = """
SELECT count(*), max(ts), min(ts) FROM events
SELECT event_type, count(*) n FROM events GROUP BY ALL HAVING n > 10 ORDER BY 2 DESC, 1 LIMIT 5
SELECT topic, partition, explode(isr) AS b FROM partition_timeline ORDER BY topic, partition, step, b LIMIT 5
SELECT topic, pos, b FROM partition_timeline LATERAL VIEW posexplode(isr) x AS pos, b ORDER BY topic, pos, b LIMIT 5
SELECT topic, b FROM partition_timeline LATERAL VIEW OUTER explode(isr) x AS b ORDER BY topic, b LIMIT 5
SELECT topic, max(leader_epoch) FROM partition_timeline GROUP BY topic WITH ROLLUP ORDER BY 1, 2 LIMIT 3
SELECT date_trunc('HOUR', ts), count(*) FROM events GROUP BY 1 ORDER BY 1
SELECT count(*) FROM events WHERE ts BETWEEN '2026-11-20 10:09:00' AND '2026-11-20 10:10:00'
SELECT count(*) FROM events e WHERE e.ts >= TIMESTAMP '2026-11-20T12:09:30+02:00' AND e.topic IS NULL
SELECT count(*) FROM events WHERE '2026-11-20 10:09:30' < ts
SELECT count(*) FROM events WHERE ts > (SELECT max(ts) FROM events) - INTERVAL 10 SECONDS
SELECT count(*) FROM events WHERE raw RLIKE 'epoch=\\\\d+'
SELECT n, lag(n) OVER (ORDER BY n) AS before FROM VALUES (1), (NULL), (3) AS t(n) ORDER BY n
SELECT * FROM VALUES (1, 'a'), (2, 'b')
SELECT id FROM range(1, 4)
VALUES (1, 'a'), (2, 'b')
TABLE controllers
FROM events SELECT count(*) WHERE topic IS NULL
SELECT * FROM findings ORDER BY fingerprint
SELECT * FROM events ORDER BY file, record_no, item LIMIT 30
SELECT title, status, ts, raw FROM proof WHERE check_id = 'topic_deletion_blocked' ORDER BY ts, raw
SELECT * FROM open_findings
SELECT * FROM partitions_now ORDER BY topic, partition
SELECT * FROM unknown_statements
SELECT layouts, layouts['log4j_default'] AS n FROM coverage ORDER BY node, hour, logger LIMIT 5
SELECT requested_at, blocked_by, blocked_by[0].partition FROM topic_deletions
SELECT topic, inline(blocked_by) FROM topic_deletions ORDER BY 2
WITH a AS (SELECT topic, count(*) AS n FROM events GROUP BY topic) SELECT * FROM a ORDER BY n DESC, topic LIMIT 3
SELECT count(*) FROM events e LEFT SEMI JOIN partition_timeline t USING (record_id)
SELECT topic IN (SELECT topic FROM topic_deletions) AS d, count(*) FROM partition_timeline GROUP BY 1 ORDER BY 1
SELECT count(1), sum(partition), max(partition) + 1, upper(max(topic)), -max(partition), concat('a', max(topic)) FROM partition_timeline
SELECT CASE WHEN max(partition) > 1 THEN 'a' END, max(partition) IS NULL, max(partition) IS NOT NULL, NOT (max(partition) > 1) FROM events
SELECT count(DISTINCT topic), round(avg(partition)), count(*) FILTER (WHERE partition > 0), max(topic) LIKE 'a%' FROM partition_timeline
SELECT CAST(max(ts) AS STRING), max(ts) - min(ts) AS span, DATE '2026-01-01' FROM events
SHOW COLUMNS IN controllers
""".strip().splitlines()  # fmt: skip


@pytest.fixture(scope="module")
def both(audited: Path) -> tuple[engine.Tables, engine.Tables]:
    """The tables on this machine, and the same on Spark."""
    return engine.opened(audited), engine.opened(audited, "spark")


@pytest.mark.parametrize("query", QUERIES)
def test_the_answers_of_both_engines(both: tuple[engine.Tables, engine.Tables], query: str) -> None:
    local, spark = both
    assert isinstance(local, LocalTables)
    assert asked(local, query) == asked(spark, query)


def test_tables_and_views_are_listed(audited: Path) -> None:
    local = engine.opened(audited)
    names = [row["tableName"] for row in local.query("SHOW TABLES").rows()]
    assert names == sorted(one.name for kind in ("tables", "views") for one in schemas.statements(kind))
    assert [row["viewName"] for row in local.query("SHOW VIEWS LIKE 'p*'").rows()] == [
        "partitions_now",
        "proof",
    ]
    described = local.query("DESCRIBE controllers").rows()
    assert described[0] == {"col_name": "cluster", "data_type": "string", "comment": "Cluster"}
    types = {row["col_name"]: row["data_type"] for row in local.query("DESCRIBE TABLE proof").rows()}
    assert (types["ts"], types["node"]) == ("timestamp", "int")


def test_a_view_that_needs_what_re2_lacks(tables: Store) -> None:
    """`unknown_statements` masks names and numbers by lookarounds."""
    texts = ["Moved orders-17 to disk 3", "Moved payments-4 to disk 12", "Hello"]
    row = {
        "item": 0,
        "cluster": "c",
        "incarnation": 1,
        "file": "f",
        "drifted": False,
        "level": "INFO",
        "layout": "l",
        "logger": "x",
    }
    rows = [
        row | {"record_id": str(n), "record_no": n, "raw": text, "statement": text}
        for n, text in enumerate(texts)
    ]
    tables.append("events", tables.table_of("events", rows))
    local = engine.opened(tables.root)
    assert asked(local, "SELECT masked, records FROM unknown_statements") == [
        '{"masked": "Moved TOPIC-N to disk N", "records": 2}',
        '{"masked": "Hello", "records": 1}',
    ]


# -- nothing but the tables ----------------------------------------------------------------------------------

HOSTILE = [
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_parquet('{events}')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM `{secret}`",
    "SELECT * FROM csv.`{secret}`",
    "SELECT * FROM parquet.`{events}`",
    "SELECT * FROM delta.`{root}/events`",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM (SELECT 1) a JOIN read_blob('{secret}') b ON true",
    "WITH a AS (SELECT 1) SELECT * FROM a, read_text('{secret}')",
    "SELECT (SELECT content FROM read_text('{secret}'))",
    "EXPLAIN COPY (SELECT 1) TO '{out}'",
    "EXPLAIN SELECT 1; COPY (SELECT 1) TO '{out}'",
    "EXPLAIN ANALYZE SELECT * FROM read_text('{secret}')",
    "FROM events COPY TO '{out}'",
    "SELECT 1 INTO t",
    "SELECT 'a\\'; COPY (SELECT 1) TO \\'{out}\\'; --'; COPY (SELECT 1) TO '{out}'",
    "COPY (SELECT 1) TO '{out}'",
    "ATTACH '{out}'",
    "INSTALL httpfs",
    "SET memory_limit = '1GB'",
    "PRAGMA database_list",
    "CREATE TABLE t AS SELECT 1",
    "TABLE '{secret}'",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_query_reads_and_writes_nothing_else(
    audited: Path, tmp_path: Path, capsys: Any, query: str
) -> None:
    secret, out = tmp_path / "secret.csv", tmp_path / "out.csv"
    secret.write_text("a,b\nhush,1\n")
    events = next((audited / "events").glob("*.parquet"))
    before = events.read_bytes()
    text = query.format(secret=secret, out=out, events=events, root=audited)
    capsys.readouterr()
    assert main(["sql", text, "--tables", str(audited)]) == errors.USAGE
    said = capsys.readouterr()
    assert not said.out
    assert "hush" not in said.err
    assert len(said.err.splitlines()) == 1
    assert not out.exists()
    assert events.read_bytes() == before


def test_a_text_with_a_statement_in_it_is_a_text(audited: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    text = f"a'; COPY (SELECT 1) TO '{out}'; --\\"
    assert asked(engine.opened(audited), f"SELECT {quoted(text)} AS a -- '; DROP TABLE x") == [
        json.dumps({"a": text})
    ]
    assert not out.exists()


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_literal_is_the_text(text: str) -> None:
    from jobs.engine.database import Database

    assert Database().rows(f"SELECT {quoted(text)} AS a WHERE {one_of(quoted(text), [text])}") == [
        {"a": text}
    ]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT leadr FROM partition_timeline", "no column leadr; did you mean leader"),
        ("SELECT * FROM evnts", "no table or view evnts; there is events"),
        ("SELECT foo(1)", "the local engine has no function foo; --engine spark has all of Spark's"),
        ("SELECT 1 +", "syntax error near '+' in line 1, column 10"),
        ("SELECT * FROM (SELECT topic, leader FROM partition_timeline) PIVOT (count(*) FOR leader IN (1, 2))", "does not run PIVOT"),
        ("SELECT count(*) FROM events VERSION AS OF 0", "earlier versions of a table are not read"),
        ("DESCRIBE HISTORY events", "SHOW COLUMNS IN and DESCRIBE a table; --engine spark answers the others"),
    ],
)  # fmt: skip
def test_what_does_not_run_is_one_sentence(audited: Path, capsys: Any, query: str, said: str) -> None:
    capsys.readouterr()
    assert main(["sql", query, "--tables", str(audited)]) == errors.USAGE
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.splitlines()) == 1


# -- tables of all kinds -------------------------------------------------------------------------------------


@pytest.fixture
def timeline(tables: Store) -> Callable[..., None]:
    """Writes intervals of a cluster, with Spark or with delta-rs."""

    def write(cluster: str, topics: list[str], with_spark: bool) -> None:
        from jobs.engine.rows import in_spark

        row = {
            "cluster": cluster,
            "incarnation": 1,
            "partition": 0,
            "step": 1,
            "inferred": False,
            "settled": False,
        }
        rows = tables.table_of(
            "partition_timeline",
            [
                row | {"topic": topic, "isr": [3, 1], "valid_from": datetime(2026, 1, 2, tzinfo=UTC)}
                for topic in topics
            ],
        )
        tables.append("partition_timeline", in_spark(tables.spark, rows) if with_spark else rows)

    return write


@pytest.mark.parametrize("with_spark", [True, False])
def test_values_of_partitions_are_read_as_they_are(
    tables: Store, timeline: Callable[..., None], with_spark: bool
) -> None:
    """They are in the paths of files, which Spark and Delta escape each in its own way."""
    names = ["plain", "with space", "a/b:c=d%20e+f", "quote's", "üñí", "100%"]
    for name in names:
        timeline(name, ["orders"], with_spark)
    local = LocalTables(tables.root)
    found = engine.rows_of(
        local.read("partition_timeline", ("cluster", "settled", "isr", "valid_from"), "NOT settled")
    )
    assert sorted(row["cluster"] for row in found) == sorted(names)
    assert {(row["settled"], tuple(row["isr"]), row["valid_from"]) for row in found} == {
        (False, (3, 1), datetime(2026, 1, 2, tzinfo=UTC))
    }
    for name in names:
        assert local.read("partition_timeline", ("topic",), one_of("cluster", [name])).num_rows == 1


def test_a_column_that_files_lack_is_null(tables: Store, timeline: Callable[..., None]) -> None:
    timeline("c", ["old"], False)
    tables.spark.sql(f"ALTER TABLE delta.`{tables.path('partition_timeline')}` ADD COLUMNS (later STRING)")
    assert asked(LocalTables(tables.root), "SELECT topic, later FROM partition_timeline") == [
        '{"topic": "old", "later": null}'
    ]
    tables.spark.sql(
        f"INSERT INTO delta.`{tables.path('partition_timeline')}` (cluster, incarnation, topic, partition, step, inferred, settled, later) VALUES ('c', 1, 'new', 0, 1, false, true, 'x')"
    )
    assert asked(LocalTables(tables.root), "SELECT topic, later FROM partition_timeline ORDER BY topic") == [
        '{"topic": "new", "later": "x"}',
        '{"topic": "old", "later": null}',
    ]


def test_texts_that_a_merge_of_delta_rs_wrote_are_compared(
    tables: Store, timeline: Callable[..., None]
) -> None:
    """It writes them as string_view, which Arrow does not compare."""
    timeline("c", ["a", "b"], False)
    values = pa.table({"topic": ["a"], "state": ["OnlinePartition"]})
    DeltaTable(tables.path("partition_timeline")).merge(
        values, 't."topic" = v."topic"', "v", "t"
    ).when_matched_update({"state": "v.state"}).execute()
    assert asked(
        LocalTables(tables.root), "SELECT topic FROM partition_timeline WHERE state = 'OnlinePartition'"
    ) == ['{"topic": "a"}']


def test_tables_without_rows(tables: Store) -> None:
    local = engine.opened(tables.root)
    assert isinstance(local, LocalTables)
    assert asked(local, "SELECT count(*) AS n, max(ts) AS ts FROM events") == ['{"n": 0, "ts": null}']
    assert local.read("events").schema.names == local.query("SELECT * FROM events").schema.names


def test_a_feature_that_is_not_read_here_is_left_to_spark(
    tables: Store, timeline: Callable[..., None]
) -> None:
    timeline("c", ["a"], True)
    tables.spark.sql(
        f"ALTER TABLE delta.`{tables.path('partition_timeline')}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    assert not isinstance(engine.opened(tables.root, names=["partition_timeline"]), LocalTables)
    # of others nothing is asked
    assert isinstance(engine.opened(tables.root, names=["events"]), LocalTables)
    with pytest.raises(
        UsageError, match="needs deletionVectors; the local engine does not read it, --engine spark does"
    ):
        engine.opened(tables.root, "local", ["partitions_now"])


@pytest.mark.parametrize("root", ["hdfs://h/audit", "dbfs:/audit"])
def test_places_that_delta_rs_does_not_reach(root: str) -> None:
    with pytest.raises(UsageError, match="use --engine spark"):
        engine.opened(root, "local")


def test_a_span_of_time_is_looked_for_where_it_is(audited: Path) -> None:
    """A condition on a moment reaches the scan of the files, beneath the cast of moments."""

    def plan(where: str) -> str:
        (row,) = engine.opened(audited).query(f"EXPLAIN SELECT count(raw) FROM events e WHERE {where}").rows()
        return row["plan"]

    for where in (
        "ts >= '2026-11-20 10:09:30'",
        "e.ts BETWEEN '2026-11-20' AND TIMESTAMP '2026-11-20T12:09:30+02:00' AND node = 1",
    ):
        scan = plan(where).split("READ_PARQUET")[1]
        assert "Filters" in scan
        assert "2026-11-20" in scan
    assert "2026-11-20" not in plan("ts >= '2026-11-20 10:09:30' OR node = 1").split("READ_PARQUET")[1]


def test_a_place_that_is_not_of_this_machine_is_read_by_arrow(
    audited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As object stores are; the credentials would be those of the environment."""
    by_duckdb = engine.opened(audited)
    by_arrow = LocalTables(audited.as_uri())
    by_arrow._folder = None
    for query in QUERIES:
        assert asked(by_arrow, query) == asked(by_duckdb, query)


# -- how rows are printed ------------------------------------------------------------------------------------


def test_formats(audited: Path, capsys: Any, tmp_path: Path) -> None:
    query = "SELECT ts, isr, 'a,\"b\n' AS text, NULL AS nothing, true AS yes, 1.5D AS n FROM partition_timeline JOIN (SELECT record_id, ts FROM events WHERE item = 0) USING (record_id) WHERE leader = 2 ORDER BY step, ts"
    capsys.readouterr()

    def printed(form: str) -> str:
        assert main(["sql", query, "--tables", str(audited), "--format", form]) == errors.CLEAN
        return capsys.readouterr().out

    rows = [json.loads(line) for line in printed("json").splitlines()]
    assert rows[0] == {
        "ts": "2026-11-20T10:09:13.926Z",
        "isr": [2, 3, 1],
        "text": 'a,"b\n',
        "nothing": None,
        "yes": True,
        "n": 1.5,
    }
    head, *others = csv.reader(io.StringIO(printed("csv")))
    assert head == list(rows[0])
    assert others[0] == ["2026-11-20T10:09:13.926Z", "[2, 3, 1]", 'a,"b\n', "", "true", "1.5"]
    assert len(others) == len(rows)
    assert printed("table").splitlines()[0].split() == head
    file = tmp_path / "rows.parquet"
    with file.open("wb") as out:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "jobs.nightly_audit",
                "sql",
                query,
                "--tables",
                audited,
                "--format",
                "parquet",
            ],
            stdout=out,
            check=True,
            cwd=ROOT,
        )
    found = pq.read_table(file)
    assert found.num_rows == len(rows)
    assert found["ts"][0].as_py() == datetime(2026, 11, 20, 10, 9, 13, 926_000, tzinfo=UTC)
    assert found["isr"][0].as_py() == [2, 3, 1]


def test_engines_of_a_query(audited: Path, capsys: Any) -> None:
    for name in engine.ENGINES:
        capsys.readouterr()
        assert (
            main(["sql", "SELECT count(*) FROM events", "--tables", str(audited), "--json", "--engine", name])
            == errors.CLEAN
        )
        assert json.loads(capsys.readouterr().out) == {"count(1)": 1207}


# -- without Java --------------------------------------------------------------------------------------------

READING = [
    ["sql", "SELECT count(*) FROM events"],
    ["sql", "SELECT * FROM unknown_statements"],
    ["sql", "SHOW TABLES"],
    ["findings"],
    ["findings", "FINGERPRINT"],
    ["timeline", "keep-0"],
    ["timeline", "audit"],
    ["assignments"],
    ["assignments", "--what-if", "broker=1:down"],
    ["durability", "--by-day"],
    ["durability", "keep", "--partitions"],
    ["reassignment", "PLAN"],
    ["alerts", "--config", "CONFIG", "--dry-run"],
]  # fmt: skip


# runs commands, one after another, each with its own list of imports that were tried; prints what they print
ONE_BY_ONE = (
    BLOCKED
    + """\
import contextlib, io, json
found = []
for command in json.loads(sys.argv[1]):
    tried.clear()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(command)
    found.append((code, out.getvalue(), tried[:]))
print(json.dumps(found))
"""
)


@pytest.fixture(scope="module")
def commands(audited: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the words of each command of READING -> its arguments."""
    folder = tmp_path_factory.mktemp("commands")
    plan, config = folder / "plan.json", folder / "audit.toml"
    plan.write_text(
        '{"version": 1, "partitions": [{"topic": "keep", "partition": 0, "replicas": [2, 3, 1]}]}'
    )
    config.write_text(
        '[[alert]]\nname = "hook"\ntype = "webhook"\nurl = "http://127.0.0.1:9"\nseverity = "info"\n'
    )
    (finding,) = (
        engine.opened(audited).query("SELECT fingerprint FROM findings WHERE check_id = 'broker_down'").rows()
    )
    names = {"PLAN": str(plan), "CONFIG": str(config), "FINGERPRINT": finding["fingerprint"][:12]}
    return {
        " ".join(words): [*(names.get(one, one) for one in words), "--tables", str(audited)]
        for words in READING
    }


@pytest.fixture(scope="module")
def without_java(
    commands: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[int, str, list[str]]]:
    """Return what each command returns, prints and tries to import where there is neither Java nor Spark.

    One process runs all of them, because each process imports for a second.
    """
    folder = str(tmp_path_factory.mktemp("nothing"))
    done = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE, json.dumps(list(commands.values()))],
        env={"PATH": folder, "JAVA_HOME": folder, "HOME": folder, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(commands, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("words", map(" ".join, READING))
def test_reading_commands_need_no_java(
    commands: dict[str, list[str]],
    without_java: dict[str, tuple[int, str, list[str]]],
    capsys: Any,
    words: str,
) -> None:
    code, printed, tried = without_java[words]
    assert code == errors.CLEAN
    # to give DuckDB rows, pyarrow asks whether pandas is there
    assert {*tried} - ({"pandas"} if words.startswith("alerts") else set()) == set()
    capsys.readouterr()
    assert main(commands[words]) == errors.CLEAN
    assert printed == capsys.readouterr().out
    assert len(printed.splitlines()) > 1 or "unknown_statements" in words


DAY = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    """Return a store whose table `events` has three files, each with the records of one day, the last one DAY."""
    with contextlib.closing(LocalStore(tmp_path_factory.mktemp("three_days"))) as store:
        store.open()
        for days in range(3):
            row = {"item": 0, "cluster": "c", "incarnation": 1, "file": "f", "drifted": False, "raw": "r"}
            at = DAY - timedelta(days=days)
            rows = [
                row | {"record_id": f"{days}-{n}", "record_no": n, "ts": at + timedelta(seconds=n)}
                for n in range(9)
            ]
            store.append("events", store.table_of("events", rows))
        yield store


@pytest.mark.parametrize(
    "condition",
    [
        at_or_after("ts", DAY),
        is_null("ts") | at_or_after("ts", DAY),
        is_null("ts") | at_or_after("ts", DAY) & at_or_before("ts", DAY + timedelta(days=1)),
        by_cluster({"c": is_null("ts") | at_or_after("ts", DAY)}),
    ],
    ids=lambda one: one.sql,
)
def test_a_run_reads_only_files_with_rows_of_the_time(three_days: LocalStore, condition: Where) -> None:
    rows = three_days.read("events", ["c"], condition, ["record_id"])
    assert sorted(row["record_id"] for row in rows.table().to_pylist()) == [f"0-{n}" for n in range(9)]
    assert row_groups_read(rows.folder, rows.sql) == "1 / 3"


def row_groups_read(folder: str | None, sql: str) -> str:
    """Return how many row groups DuckDB reads for a query."""
    with session(folder) as database:
        plan = database._database.execute(f"EXPLAIN ANALYZE {sql}").fetchall()[0][1]
    (found,) = re.findall(r"Row Groups Scanned: (\d+ / \d+)", plan)
    return found


def test_records_are_found_by_id_and_time(three_days: LocalStore) -> None:
    ids, end = ["0-1", "1-1", "2-1"], DAY + timedelta(days=1)
    found = three_days.rows_with("events", ["c"], "record_id", ids, ["record_id"], span=("ts", DAY, end))
    assert found["record_id"].to_pylist() == ["0-1"]
    every = three_days.rows_with("events", ["c"], "record_id", ids, ["record_id"])
    assert sorted(every["record_id"].to_pylist()) == ids


def test_a_line_is_explained_without_java(tmp_path: Path) -> None:
    line = "[2026-03-01 12:00:00,123] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "explain", line],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == errors.CLEAN, done.stderr
    assert (
        "  rule          controller_resigned (parsers/events/controller_failover.toml), says: happened"
        in done.stdout.splitlines()
    )


def test_the_zone_of_the_machine_changes_nothing(audited: Path) -> None:
    query = "SELECT ts, date_format(ts, 'HH:mm') AS hm, current_timestamp() - max(ts) OVER () < INTERVAL 9999 DAYS AS a FROM events ORDER BY ts DESC LIMIT 1"
    answers = []
    for zone in ("UTC", "America/New_York"):
        code = (
            "import sys; from jobs import engine; print(engine.opened(sys.argv[1]).query(sys.argv[2]).rows())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, audited, query],
            env={**os.environ, "TZ": zone, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(done.stdout)
    assert answers[0] == answers[1]
    assert "10:10" in answers[0]


def test_tables_in_an_object_store_are_read_without_java(audited: Path, tmp_path: Path) -> None:
    """With the credentials of the environment; by the scheme that Hadoop uses, too."""
    import boto3

    command = [
        "sql",
        "SELECT count(*) AS n, max(ts) AS newest FROM events WHERE ts > '2026-11-20 10:10:00'",
        "--json",
        "--tables",
    ]
    with s3.endpoint() as place:
        environment = {
            **place.environment,
            "PATH": str(tmp_path),
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
        }
        # pyarrow's datasets look for it, and do without it
        environment["MAY_BE_TRIED"] = "pandas"
        client = boto3.client(
            "s3",
            endpoint_url=place.url,
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )
        for file in sorted(path for path in audited.rglob("*") if path.is_file()):
            client.upload_file(str(file), place.bucket, f"tables/{file.relative_to(audited)}")
        for scheme in ("s3", "s3a"):
            root = f"{scheme}://{place.bucket}/tables"
            done = subprocess.run(
                [sys.executable, "-c", WITHOUT_SPARK, *command, root],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == errors.CLEAN, done.stderr
            assert json.loads(done.stdout) == {"n": 506, "newest": "2026-11-20T10:10:19.651Z"}
        nowhere = f"s3://{place.bucket}/none"
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, *command, nowhere],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (errors.USAGE, "")
        assert "holds no tables" in done.stderr
