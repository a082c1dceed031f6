"""A table or a column that a query names, and that there is not, is found by lint: in checks, facts, views,
contracts and in Python's texts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.definitions import _columns_of_tables, name_problems
from parsers.relations import output, problems, problems_of_modules, queries_of

TABLES = {
    "events": frozenset({"cluster", "ts", "topic", "replicas"}),
    "nodes": frozenset({"cluster", "node"}),
    "registered": None,
}
JOBS = Path(__file__).parents[2] / "jobs"


def test_ours_are_sound() -> None:
    assert name_problems(_columns_of_tables()) == []


def test_queries_of_modules_are_read() -> None:
    """Texts that are no whole query are few: examples of a command, and parts that a query is put together
    of.
    """
    modules = {str(path.relative_to(JOBS)): path.read_text("utf-8") for path in JOBS.rglob("*.py")}
    modules = {path: text for path, text in modules.items() if not path.startswith("engine/")}
    known = {**_columns_of_tables()}
    _, parts = problems_of_modules(modules, known)
    whole = sum(len(list(queries_of(text))) for text in modules.values()) - len(parts)
    assert whole >= 40
    assert len(parts) <= 8, parts


@pytest.mark.parametrize(
    ("table", "column", "places"),
    [
        ("events", "error_class", ("schemas/checks/",)),
        (
            "partition_timeline",
            "valid_to",
            ("schemas/contracts/partition_timeline.toml", "schemas/views/partitions_now.sql"),
        ),
        ("coverage", "replica_states", ("jobs/reporting/verdict.py:",)),
        ("durability", "min_insync_replicas", ("schemas/facts/min_isr.sql",)),
        ("findings", "check_id", ("schemas/views/proof.sql",)),
    ],
)
def test_a_renamed_column_is_found(table: str, column: str, places: tuple[str, ...]) -> None:
    tables = _columns_of_tables()
    assert column in (tables[table] or ())
    found = name_problems(tables | {table: (tables[table] or frozenset()) - {column} | {f"{column}_x"}})
    assert found
    assert all(one.endswith(f"has no column {column}") for one in found), found
    for place in places:
        assert any(one.startswith(place) for one in found), found


@pytest.mark.parametrize("table", ["coverage", "events", "reassignments"])
def test_a_renamed_table_is_found(table: str) -> None:
    tables = _columns_of_tables()
    found = name_problems(
        {f"{name}_x" if name == table else name: columns for name, columns in tables.items()}
    )
    assert any(
        one.endswith(f"there is no table {name}") for one in found for name in (table, f"audited_{table}")
    )


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT odd FROM events", ["events has no column odd"]),
        ("SELECT e.odd FROM audited_events e", ["e has no column odd"]),
        ("SELECT ts FROM odd", ["there is no table odd"]),
        ("WITH a AS (SELECT ts AS at FROM events) SELECT ts FROM a", ["a has no column ts"]),
        (
            "SELECT a.ts FROM (SELECT * FROM events) a JOIN nodes n ON n.odd = a.cluster",
            ["n has no column odd"],
        ),
        ("SELECT ts FROM events UNION ALL SELECT odd FROM events", ["events has no column odd"]),
        (
            "SELECT 1 FROM events e WHERE EXISTS (SELECT 1 FROM nodes n WHERE n.cluster = e.odd)",
            ["e has no column odd"],
        ),
    ],
)
def test_missing_tables_and_columns_are_found(sql: str, found: list[str]) -> None:
    assert problems(sql, TABLES) == found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ts AS at FROM events ORDER BY at",
        "SELECT ts, explode(replicas) AS replica FROM events",
        "SELECT transform(replicas, one -> one + 1) AS more FROM stored_events",
        "SELECT e.ts, m.whatever FROM events e JOIN registered m USING (cluster)",
        "SELECT topic, count(*) AS n FROM events GROUP BY topic HAVING n > 1",
        "SELECT 1 FROM events e WHERE EXISTS (SELECT 1 FROM nodes n WHERE n.cluster = e.cluster AND node = 1)",
        "SELECT inline(array(struct(ts))) FROM events",
    ],
)
def test_sound_queries_have_no_problem(sql: str) -> None:
    assert problems(sql, TABLES) == []


def test_output() -> None:
    assert output("SELECT *, 1 AS more FROM nodes", TABLES) == {"cluster", "node", "more"}
    assert output("SELECT * FROM registered", TABLES) is None


def test_places_in_python() -> None:
    source = "x = 1\nq = f'SELECT odd, {x} FROM events WHERE {x} AND topic = {x!r}'"
    assert problems_of_modules({"jobs/a.py": source}, TABLES) == (
        ["jobs/a.py:2: events has no column odd"],
        [],
    )
    assert problems_of_modules(
        {"jobs/a.py": "q = f'SELECT {x} FROM stored_{table} GROUP BY cluster'"}, TABLES
    ) == ([], [])
