"""Both engines write the same rows into the same tables, and the local one does so without Java."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tables import rows_of
from test_engine import WITHOUT_SPARK

import schemas
from jobs import errors
from jobs.batches.types import delta_schema, schema_of, table_schema
from jobs.engine import choice, session
from jobs.errors import UsageError
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
RECORDINGS = sorted(path.parent for path in (ROOT / "sample_logs").glob("*/*/steps.jsonl"))
# values that differ from run to run
OF_RUN = {"run_id", "started_at", "finished_at", "parameters"}
# numbers of commits, of which each engine needs its own
VERSIONS = {"events_version", "passed_over_version"}


def tables_of(root: Path) -> dict[str, list[str]]:
    """Table -> its rows, without what differs from run to run."""
    return {
        table.name: sorted(
            json.dumps(
                {name: value for name, value in row.items() if name not in OF_RUN | VERSIONS},
                default=str,
                sort_keys=True,
            )
            for row in rows_of(root, table.name)
        )
        for table in schemas.statements("tables")
    }


def test_both_engines_write_the_same_tables(spark: Any, tmp_path: Path, capsys: Any) -> None:
    """Of all public recordings at once, in a first run and in a second one that finds nothing new.

    Also their verdicts.
    """
    assert len(RECORDINGS) == 9
    config = tmp_path / "audit.toml"
    entries = [
        f'[[cluster]]\nname = "{path.parent.name}-{path.name}"\nlogs = ["{path}"]\n' for path in RECORDINGS
    ]
    config.write_text("\n".join(entries))
    found = {}
    for engine in ("spark", "local"):
        for _ in range(2):
            capsys.readouterr()
            assert (
                main(
                    [
                        "audit",
                        "--config",
                        str(config),
                        "--tables",
                        str(tmp_path / engine),
                        "--engine",
                        engine,
                        "--json",
                    ]
                )
                == errors.CLEAN
            )
        verdict = json.loads(capsys.readouterr().out)
        shown = [
            {name: value for name, value in row.items() if name not in OF_RUN} for row in verdict["findings"]
        ]
        found[engine] = (tables_of(tmp_path / engine), verdict.keys(), shown)
    by_spark, local = found["spark"], found["local"]
    for table, rows in by_spark[0].items():
        assert local[0][table] == rows, table
    assert {table for table, rows in by_spark[0].items() if not rows} == {"alerts", "checkpoints"}
    assert local[1:] == by_spark[1:]


def test_an_audit_without_java(tmp_path: Path) -> None:
    """Twice, with a report, metrics and a checkpoint; then a command that reads.

    No module of Spark's is asked for.
    """
    environment = {
        "PATH": str(tmp_path),
        "JAVA_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    described = tmp_path / "describe-20261120T101000Z.txt"
    described.write_text("Topic: keep\tPartition: 0\tLeader: 1\tReplicas: 2,3,1\tIsr: 1\n")
    tables, report, metrics = (str(tmp_path / name) for name in ("tables", "report.html", "audit.prom"))
    audit = [
        "audit",
        str(SAMPLE),
        "--tables",
        tables,
        "--report",
        report,
        "--metrics",
        metrics,
        "--checkpoint",
        str(described),
    ]

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK.replace(', "pandas"', ""), *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    for new in ("1,176 new", "0 new"):
        done = run(*audit)
        assert done.returncode == errors.CLEAN, done.stderr
        assert done.stderr.startswith("find logs: ")
        assert new in done.stderr
        assert "Broker 3 crashed" in done.stdout
    assert "Broker 3 crashed" in Path(report).read_text("utf-8")
    assert "kafka_audit_" in Path(metrics).read_text("utf-8")
    checkpoints = run(
        "sql", "SELECT source, partition, leader FROM checkpoints", "--tables", tables, "--json"
    )
    assert json.loads(checkpoints.stdout) == {"source": "describe", "partition": 0, "leader": 1}


def test_an_engine_is_chosen_by_how_the_program_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Java that is there does not make it Spark.

    A master or a remote does: test_session.py has all ways to configure one.
    """
    monkeypatch.setattr(session, "java_problem", lambda: None)
    logs = ["/var/log/kafka"]
    assert choice.chosen("auto", tmp_path, logs, {}) == "local"
    assert choice.chosen("spark", tmp_path, logs, {}) == "spark"


def test_what_only_spark_reads_or_writes_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    logs = ["/var/log/kafka"]
    monkeypatch.setattr(session, "java_problem", lambda: None)
    assert choice.chosen("auto", "hdfs://h/audit", logs, {}) == "spark"
    assert choice.chosen("auto", tmp_path, ["s3a://logs/*"], {}) == "spark"
    with pytest.raises(UsageError, match="not to s3://audit"):
        choice.chosen("local", "s3://audit", logs, {})
    with pytest.raises(UsageError, match="reads logs of this machine, not s3a://logs"):
        choice.chosen("local", tmp_path, ["s3a://logs/*"], {})
    monkeypatch.setattr(session, "java_problem", lambda: "No Java found. Install one")
    with pytest.raises(
        UsageError, match=r"not to hdfs://h/audit\. Spark does, but it needs Java: No Java found"
    ):
        choice.chosen("auto", "hdfs://h/audit", logs, {})


def test_types_of_columns_are_those_of_spark(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from jobs.engine.store import vocabulary_ddl

    for table in schemas.statements("tables"):
        listed = ", ".join(f"{name} {kind}" for name, kind in schemas.columns(table.name).items())
        assert table_schema(table.name).equals(
            to_arrow_schema(StructType.fromDDL(listed)), check_metadata=True
        )
        assert schema_of(listed) == table_schema(table.name)
        ddl = schemas.columns_ddl(table.name).replace("{vocabulary}", vocabulary_ddl())
        assert delta_schema(table.name) == StructType.fromDDL(ddl).jsonValue()


def test_tables_that_only_spark_writes_are_left_to_it(
    spark: Any, tables: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is changed where Spark is not there or not asked for; `auto` takes it where it is."""
    for name in (choice.OURS, *choice.OF_SPARK):
        monkeypatch.delenv(name, raising=False)
    tables.spark.sql(
        f"ALTER TABLE delta.`{tables.path('events')}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    audit = ["audit", str(SAMPLE), "--tables", tables.root]

    def said(engine: str) -> str:
        (line,) = (
            line
            for line in capsys.readouterr().err.splitlines()
            if line.startswith(("error: ", "kafka-audit: "))
        )
        return line if engine in line else ""

    assert main([*audit, "--engine", "local"]) == errors.USAGE
    assert said("--engine spark")
    with monkeypatch.context() as patched:
        patched.setattr(session, "java_problem", lambda: "No Java found")
        assert main(audit) == errors.USAGE
    assert said("Spark does, but it needs Java: No Java found")
    assert main(audit) == errors.CLEAN
    assert said("Spark computes this run")
