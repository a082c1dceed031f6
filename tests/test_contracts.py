"""A table that does not keep its contract ends the run with 70, and nothing claims success then."""

import re
from pathlib import Path

import pytest

import schemas
from jobs import contracts, errors, nights
from jobs.engine.database import Database
from jobs.nightly_audit import main
from jobs.queries import InSpark
from jobs.store import Store

SAMPLE = Path(__file__).parents[1] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"

pytestmark = pytest.mark.spark


def said(capsys, tables: Path, *more: str) -> tuple[int, str, str]:
    code = main(["audit", str(SAMPLE), "--tables", str(tables), *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def check(code: int, out: str, err: str, *words: str) -> None:
    assert code == errors.INTERNAL
    assert out == ""
    (sentence,) = [line for line in err.splitlines() if line.startswith("kafka-audit: ")]
    for word in ("break their contract", *words):
        assert word in sentence
    assert "rules hold" not in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of tables that one run breaks and another one mends."""
    return tmp_path_factory.mktemp("contracts") / "tables"


def test_a_broken_contract_ends_the_run(spark, capsys, folder, monkeypatch):
    told = nights.topic_deletions
    monkeypatch.setattr(nights, "topic_deletions", lambda *given: [(*row[:6], "vanished", *row[7:]) for row in told(*given)])
    check(
        *said(capsys, folder),
        "topic_deletions.outcome",
        "'is one of completed, pending, blocked'",
        "1 row, for example",
        '"topic":"audit"',
    )
    # what was written stays, and no run is recorded that ended well
    store = Store(spark, folder)
    assert store.table("events").count() > 0
    assert store.table("audit_runs").isEmpty()
    # what did not hold is made anew, though nothing is new in the logs
    monkeypatch.setattr(nights, "topic_deletions", told)
    assert said(capsys, folder)[0] == errors.CLEAN
    assert store.table("topic_deletions").filter("outcome = 'vanished'").isEmpty()


def test_a_table_that_was_changed_by_hand(spark, capsys, folder):
    if not folder.exists():
        assert said(capsys, folder)[0] == errors.CLEAN
    runs = len(list((folder / "audit_runs" / "_delta_log").glob("*.json")))
    intervals, terms = (f"delta.`{folder / table}`" for table in ("partition_timeline", "controllers"))
    spark.sql(f"UPDATE {intervals} SET step = 0, state = 'Odd' WHERE topic = 'keep' AND step = 1")
    spark.sql(f"INSERT INTO {terms} SELECT * FROM {terms}")
    words = ("partition_timeline.*: 'ends_before_it_begins'", "partition_timeline.state", '"state":"Odd"')
    # a run that neither brings nor asks anything new writes nothing, and looks at nothing
    assert said(capsys, folder)[0] == errors.CLEAN
    runs += 1
    check(*said(capsys, folder, "--now", "2026-11-21T00:00:00Z"), *words)
    assert len(list((folder / "audit_runs" / "_delta_log").glob("*.json"))) == runs


def test_every_rule_can_be_broken(spark, tables, monkeypatch):
    """Rows of nothing but nulls and odd words, in every table: each rule names itself."""
    from pyspark.sql import functions as F

    written = {}
    for definition in schemas.statements("tables"):
        if definition.name in schemas.contracts():
            kinds = schemas.columns(definition.name)
            one_of = schemas.contracts()[definition.name].get("one_of", {})
            unique = schemas.contracts()[definition.name].get("unique", [])
            cells = [F.lit("odd" if name in one_of else None).cast(kind).alias(name) for name, kind in kinds.items()]
            row = spark.range(2 if unique else 1).select(*cells)
            written[definition.name] = row
    monkeypatch.setattr(contracts, "SHOWN", 1000)
    with pytest.raises(errors.ContractError) as raised:
        contracts.guard(InSpark(spark), written)
    text = str(raised.value)
    for words in ("events.record_id: 'is never null'", "events.record_id + item: 'tells rows apart'", "events.says: 'is one of"):
        assert words in text
    for table, contract in schemas.contracts().items():
        for column in contract.get("one_of", {}):
            assert f"{table}.{column}: 'is one of" in text
    # the local engine objects to the same rules of the same tables, as often
    with pytest.raises(errors.ContractError) as raised:
        contracts.guard(Database(), {name: rows.toArrow() for name, rows in written.items()}, with_gx=False)
    assert objections(str(raised.value)) == objections(text)


def objections(text: str) -> set[str]:
    """What is broken, and how often; the examples are written otherwise by each engine."""
    return set(re.findall(r"\w+\.[\w+ *]+: '.*?' is broken by \d+ rows?", text))


def test_a_column_of_another_type(spark, tables):
    from pyspark.sql import functions as F

    written = {name: Store(spark, tables.root).rows_of(name, ["c"]) for name in schemas.contracts()}
    assert contracts.guard(InSpark(spark), written) > 150
    with pytest.raises(errors.ContractError, match=r"controllers\.node: 'is INT'.*it is BIGINT"):
        contracts.guard(
            InSpark(spark), written | {"controllers": written["controllers"].withColumn("node", F.col("node").cast("bigint"))}
        )


def test_evidence_that_no_event_has(spark, tables):
    written = {name: Store(spark, tables.root).rows_of(name, ["c"]) for name in schemas.contracts()}
    cells = [
        f"CAST({value} AS {field.dataType.simpleString()}) AS `{field.name}`"
        for field in written["findings"].schema.fields
        for value in [{"evidence": "array('nowhere')", "severity": "'error'", "status": "'new'", "incarnation": "1"}.get(
            field.name, "'x'" if field.dataType.simpleString() == "string" else "null")]
    ]  # fmt: skip
    finding = spark.sql(f"SELECT {', '.join(cells)}")
    with pytest.raises(errors.ContractError, match=r"findings\.\*: 'orphan_evidence'.*nowhere"):
        contracts.guard(InSpark(spark), written | {"findings": finding})
