"""A table that breaks its contract ends the run with 70, and all ways to validate it name the same table,
rule and row.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import schemas
from jobs import errors
from jobs.batches.types import table_schema
from jobs.checking import contracts
from jobs.checking.contracts import Violation, rules_of
from jobs.engine.database import Database
from jobs.engine.delta_rs import DeltaRsTables
from jobs.engine.frames import IN_PROCESS
from jobs.nightly import updates
from jobs.nightly_audit import main

pytestmark = pytest.mark.great_expectations

SAMPLE = Path(__file__).parents[2] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"

Row = dict[str, Any]

# a valid row has these values beside those that `valid` makes
VALID: dict[str, Row] = {
    "events": {"raw": "a line"},
    "broker_load": {"leaders": 1, "replicas": 1},
    "coverage": {"records": 4, "recognised": 1, "unrecognised": 1, "drifted": 1, "out_of_scope": 1},
    "discontinuities": {"held_state": "a", "found_state": "b"},
    "findings": {"evidence": ["known"]},
    "finding_subjects": {"fingerprint": "known"},
}
# table -> words of a rule over rows -> the values with which a row violates it
PLANTS: dict[str, dict[str, Row]] = {
    "events": {"the first row of a record has its text": {"item": 0, "raw": None}},
    "partition_timeline": {"an interval ends no earlier than it begins, and steps count from 1": {"step": 0}},
    "discontinuities": {"the two states of a break differ": {"found_state": "a"}},
    "topic_assignments": {
        "an interval ends no earlier than it begins": {"valid_from": "2026-03-02", "valid_to": "2026-03-01"}
    },
    "broker_load": {"a broker has at least 1 replica, and no more leaders than replicas": {"leaders": 2}},
    "durability": {
        "covered is the sum of full_isr, under_replicated and leaderless": {"covered": 1.0},
        "a partition has no more seconds than the day": {"partitions": 1, "unknown": 86_500.0},
    },
    "findings": {
        "a finding names at least 1 record as evidence": {"evidence": []},
        "every record that a finding names is in events": {"evidence": ["nowhere"]},
    },
    "finding_subjects": {"the finding of a subject is in findings": {"fingerprint": "nowhere"}},
    "broker_outages": {
        "an outage ends no earlier than it begins": {"since": "2026-03-02", "until": "2026-03-01"}
    },
    "coverage": {"records is the sum of recognised, unrecognised, drifted and out_of_scope": {"records": 5}},
}


def valid(table: str, number: int) -> Row:
    """A row that violates no rule; the columns that name it have values of its own, numbers in reverse order."""
    contract = schemas.contracts()[table]
    row: Row = {}
    for name in schemas.columns(table):
        kind = schemas.columns(table)[name]
        if name in contract.values:
            row[name] = contract.values[name][0]
        elif name in schemas.required(table) or name in contract.shown:
            row[name] = {
                "STRING": f"row {number}", "INT": 9000 - number, "BIGINT": 9000 - number, "DOUBLE": 0.0, "BOOLEAN": False,
                "DATE": "2026-03-01", "TIMESTAMP": "2026-03-01", "ARRAY<STRING>": ["x"],
            }.get(kind, [])  # fmt: skip
        else:
            row[name] = None
    return row | VALID.get(table, {})


# table, rule, number of violating rows, and the columns that name one of them
Named = tuple[str, str, int, tuple[tuple[str, str], ...]]
# number of violating rows of a rule; more than Great Expectations returns for a query
FEW, MANY = 3, 300
VIOLATED_BY_MANY = ("broker_load", "a broker has at least 1 replica, and no more leaders than replicas")


def planted(table: str) -> tuple[pa.Table, set[Named]]:
    """Return rows of a table and what has to be found in them.

    Several rows violate each rule, in reverse order; where they share a key, two of each do.
    """
    known = (
        {"fingerprint": "known"}
        if table == "findings"
        else {"record_id": "known"}
        if table == "events"
        else {}
    )
    rows, planted_at = [valid(table, 0) | known], []
    number = 1
    for rule in rules_of(table):
        some = MANY if (table, rule.words) == VIOLATED_BY_MANY else FEW
        begin = len(rows)
        for one in reversed(range(number, number + some)):
            row = valid(table, one)
            if rule.kind == "required":
                row[rule.columns[0]] = None
            elif rule.kind == "values":
                row[rule.columns[0]] = f"odd {one}"
            elif rule.kind == "rows":
                row |= PLANTS[table][rule.words]
            rows += [row] * (2 if rule.kind == "key" else 1)
        planted_at.append((rule, slice(begin, len(rows))))
        number += some
    columns = [_column([row[one.name] for row in rows], one.type) for one in table_schema(table)]
    found = pa.table(columns, names=table_schema(table).names)
    texts = found.to_pylist()
    expected = set()
    for rule, places in planted_at:
        more = {"record_id": "nowhere"} if table == "findings" and "record_id" in rule.shown else {}
        samples = [
            tuple((name, text_of(value)) for name in rule.shown if (value := (row | more)[name]) is not None)
            for row in texts[places]
        ]
        least = min(samples, key=lambda one: [dict(one).get(name, "") for name in rule.shown])
        expected.add((table, rule.words, len(samples), least))
    return found, expected


def text_of(value: Any) -> str:
    """Return a value as a violation names it."""
    return str(value).removesuffix("+00:00")


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    texts = pa.types.is_temporal(kind)
    return (
        pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(kind) if texts else pa.array(values, kind)
    )


def named(found: list[Violation]) -> set[Named]:
    return {(one.table, one.rule, one.rows, tuple(one.sample.items())) for one in found}


@pytest.fixture(scope="module")
def plants() -> tuple[dict[str, pa.Table], set[Any]]:
    rows, expected = {}, set()
    for table in schemas.contracts():
        rows[table], more = planted(table)
        expected |= more
    return rows, expected


def test_every_rule_over_rows_has_a_plant() -> None:
    over_rows = {
        table: {rule.words for rule in contract.rules} for table, contract in schemas.contracts().items()
    }
    assert {table: words for table, words in over_rows.items() if words} == {
        table: set(one) for table, one in PLANTS.items()
    }


VALUES = [(table, column) for table, contract in schemas.contracts().items() for column in contract.values]


@pytest.mark.parametrize(("table", "column"), VALUES)
def test_delta_refuses_a_value_that_is_not_allowed(table: str, column: str, tmp_path: Path) -> None:
    tables = DeltaRsTables(tmp_path, sys.maxsize)
    assert tables.create_as_defined(table)
    is_null_allowed = column not in schemas.required(table)
    for value, is_allowed in [
        *((one, True) for one in schemas.contracts()[table].values[column]),
        (None, is_null_allowed),
        ("odd", False),
    ]:
        row = valid(table, 1) | {column: value}
        rows = pa.table(
            [_column([row[one.name]], one.type) for one in table_schema(table)], schema=table_schema(table)
        )
        with contextlib.nullcontext() if is_allowed else pytest.raises((DeltaError, pa.ArrowInvalid)):
            write_deltalake(tmp_path / table, rows, mode="append")


def test_the_local_engine_names_every_violation(plants) -> None:
    rows, expected = plants
    database = Database()
    contracts.register(database, rows, rows)
    found = contracts.violations(database.rows, [rule for table in rows for rule in rules_of(table)])
    assert named(found) == expected


def without_java() -> None:
    """Make Java impossible to find in this process."""
    os.environ.update(PATH="", JAVA_HOME="")


@pytest.fixture(scope="module")
def apart() -> Iterator[Callable[..., Any]]:
    """Return what calls a function in a process of its own: a JVM does not start in one in which pandas'
    expectations have asked DuckDB. All calls are in one process, because Great Expectations loads in 3 s.
    """
    with multiprocessing.get_context("spawn").Pool(1, without_java) as pool:
        yield lambda function, *given: pool.apply(function, given)


def validated(rows: dict[str, pa.Table], docs: Path) -> tuple[list[Violation], int]:
    from jobs.checking import expectations

    suites = expectations.Suites(docs)
    found = suites.of_rows(Database(), rows, rows)
    suites.write_docs()
    return found, suites.count


def error_of(rows: dict[str, pa.Table]) -> str:
    """What is said of a rule that cannot be evaluated."""
    from jobs.checking import expectations

    broken = contracts.ContractRule(
        "events", "rows", "odd", (), ("record_id",), "SELECT no_such FROM {batch}"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(expectations, "rules_of", lambda table: (broken,))
        with pytest.raises(errors.ContractError) as raised:
            expectations.Suites().of_rows(Database(), {"events": rows["events"]}, rows)
    return str(raised.value)


def test_great_expectations_names_the_same_without_java(apart, plants, tmp_path) -> None:
    rows, expected = plants
    found, count = apart(validated, rows, tmp_path / "docs")
    assert named(found) == expected
    assert count == len(expected)
    pages = [page.read_text() for page in (tmp_path / "docs").rglob("*.html")]
    assert any("a finding names at least 1 record as evidence" in page for page in pages)


def test_a_rule_that_cannot_be_evaluated_is_no_violation(apart, plants) -> None:
    rows, _ = plants
    assert apart(error_of, rows).startswith("events: the rule 'odd' could not be evaluated")


@pytest.mark.spark
def test_great_expectations_names_the_same_on_spark(spark, plants) -> None:
    from jobs.checking import expectations

    rows, expected = plants
    found = expectations.Suites().of_frames(spark, rows, rows)
    assert named(found) == expected


def said(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def check(code: int, out: str, err: str, *words: str) -> None:
    assert code == errors.INTERNAL
    assert out == ""
    (sentence,) = [line for line in err.splitlines() if line.startswith("error: ")]
    for word in ("the tables break their contract", *words):
        assert word in sentence
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "rows_of",
    [
        "local",
        pytest.param("spark, few", marks=pytest.mark.spark),
        pytest.param("spark, many", marks=pytest.mark.spark),
    ],
)
def test_a_broken_contract_ends_the_run(request, capsys, tmp_path, monkeypatch, rows_of) -> None:
    from jobs.checking import expectations

    engine = rows_of.split(",")[0]
    if engine == "spark":
        request.getfixturevalue("spark")
    if rows_of == "spark, many":
        # only `events` has more rows
        monkeypatch.setenv(IN_PROCESS, "1000")
    by: set[str] = set()
    for name in ("of_rows", "of_frames"):
        validate = getattr(expectations.Suites, name)

        def noted(*given: Any, validate: Any = validate, name: str = name) -> Any:
            by.add(name)
            return validate(*given)

        monkeypatch.setattr(expectations.Suites, name, noted)
    audit = ("audit", str(SAMPLE), "--tables", str(tmp_path / "tables"), "--engine", engine)
    deletions = updates.topic_deletions
    monkeypatch.setattr(
        updates,
        "topic_deletions",
        lambda *given: [(*row[:6], "vanished", *row[7:]) for row in deletions(*given)],
    )
    words = (
        "topic_deletions: 1 row violates 'outcome is one of completed, pending, blocked'",
        "outcome=vanished",
    )
    docs = tmp_path / "docs"
    check(*said(capsys, *audit, *(("--data-docs", str(docs)) if engine == "spark" else ())), *words)
    assert (docs / "index.html").is_file() == (engine == "spark")
    assert by == {"local": set(), "spark, few": {"of_rows"}, "spark, many": {"of_frames"}}[rows_of]
    # what was written stays, and no run is recorded that ended well
    assert DeltaTable(str(tmp_path / "tables" / "events")).to_pyarrow_table().num_rows
    assert not DeltaTable(str(tmp_path / "tables" / "audit_runs")).to_pyarrow_table().num_rows
    if rows_of == "spark, many":
        return
    # the next run rebuilds what was wrong, though nothing is new in the logs. Who validated it does not matter
    monkeypatch.setattr(updates, "topic_deletions", deletions)
    assert said(capsys, *audit)[0] == errors.CLEAN
    assert (
        "vanished"
        not in DeltaTable(str(tmp_path / "tables" / "topic_deletions"))
        .to_pyarrow_table()["outcome"]
        .to_pylist()
    )


def ran(*arguments: str) -> tuple[int, str, str]:
    """Return the exit code of a command and what it prints; see `apart`."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def test_the_command_names_rows_that_were_changed_by_hand(apart, tmp_path) -> None:
    tables, docs = tmp_path / "tables", tmp_path / "docs"
    audit = (
        "audit",
        str(SAMPLE),
        "--tables",
        str(tables),
        "--engine",
        "local",
        "--data-docs",
        str(tmp_path / "of-a-run"),
    )
    check_it = ("contracts", "--tables", str(tables))
    code, out, err = apart(ran, *check_it)
    assert (code, out) == (errors.USAGE, "")
    assert f"There are no tables under {tables}" in err
    assert apart(ran, *audit)[0] == errors.CLEAN
    assert (tmp_path / "of-a-run" / "index.html").is_file()
    assert apart(ran, *check_it, "--data-docs", str(docs)) == (
        errors.CLEAN,
        "160 contracts of 15 tables passed\n",
        "",
    )
    assert (docs / "index.html").is_file()
    findings = DeltaTable(str(tables / "findings"))
    of_check = {"predicate": "check_id = 'broker_down'"}
    with pytest.raises(DeltaError, match="failed validation check"):
        findings.update(updates={"severity": "'loud'"}, **of_check)
    findings.update(updates={"evidence": "make_array('nowhere')"}, **of_check)
    # files that are committed as they are bypass Delta's constraints
    rows = DeltaTable(str(tables / "findings")).to_pyarrow_table()
    place, is_mine = rows.column_names.index("severity"), pc.equal(rows["check_id"], "broker_down")
    loud = rows.set_column(place, rows.schema.field(place), pc.if_else(is_mine, "loud", rows["severity"]))
    assert DeltaRsTables(tables).overwrite("findings", loud)
    check(
        *apart(ran, *check_it),
        "findings: 1 row violates 'severity is one of critical, error, warning, info'",
        "severity=loud",
        "findings: 1 row violates 'every record that a finding names is in events'",
        "record_id=nowhere",
    )
