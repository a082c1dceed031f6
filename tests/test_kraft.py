"""KRaft: partitions from text logs, from a dump of the metadata log, and from both."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import truth

from jobs import errors
from jobs.nightly_audit import main
from jobs.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = Path(__file__).parents[1] / "sample_logs" / "3.9.1-kraft" / "controller-failover"
pytestmark = pytest.mark.spark


def rows_of(spark: SparkSession, tables: Path, table: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in Store(spark, tables).table(table).collect()]


def checks_of(spark: SparkSession, tables: Path) -> set[str]:
    """The checks that are violated."""
    return {row["check_id"] for row in rows_of(spark, tables, "findings")}


def judged(spark: SparkSession, tables: Path, recordings: Path) -> dict[str, truth.Verdict]:
    """Cluster -> verdict; a cluster is named after its recording's folder below `recordings`."""
    told: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(spark, tables, "partition_timeline"):
        told.setdefault(row["cluster"], []).append(row)
    return {name: truth.compare(recordings / name, rows) for name, rows in told.items()}


def audit_of(logs: list[Path], tables: Path) -> int:
    return main(["audit", *map(str, logs), "--cluster", SAMPLE.name, "--tables", str(tables)])


def test_text_logs_of_restarted_controllers(spark: SparkSession, tmp_path: Path) -> None:
    assert audit_of(sorted(SAMPLE.glob("node-*")), tmp_path) == errors.CLEAN
    verdict = judged(spark, tmp_path, SAMPLE.parent)[SAMPLE.name]
    assert verdict.precise, truth.details(verdict)
    assert verdict.rows("mixed") == 0
    assert verdict.shown_assignments == verdict.true_assignments
    assert verdict.misses_by_reason()["missing"] == 0
    moved = rows_of(spark, tmp_path, "reassignments")
    assert Counter(row["outcome"] for row in moved) == {"completed": 2}
    assert {row["source"] for row in rows_of(spark, tmp_path, "partition_timeline")} == {"logs"}
    states = {row["state"] for row in rows_of(spark, tmp_path, "replica_timeline")}
    assert states == {"KRaftOnline", "KRaftControlledShutdown", "KRaftFenced", "KRaftRemoved"}


def test_the_metadata_log_alone(spark: SparkSession, tmp_path: Path) -> None:
    assert audit_of([SAMPLE / "metadata-log.txt"], tmp_path) == errors.CLEAN
    verdict = judged(spark, tmp_path, SAMPLE.parent)[SAMPLE.name]
    assert (verdict.precise, verdict.misses) == (True, []), truth.details(verdict)


def test_the_metadata_log_wins_over_text_and_a_difference_is_a_finding(spark: SparkSession, tmp_path: Path) -> None:
    given = tmp_path / SAMPLE.name
    shutil.copytree(SAMPLE, given)
    tables = tmp_path / "tables"
    assert audit_of([given], tables) == errors.CLEAN
    assert {row["source"] for row in rows_of(spark, tables, "partition_timeline")} == {"metadata_log"}
    assert "log_differs_from_metadata" not in checks_of(spark, tables)
    # a line about an epoch that the metadata log has with another ISR
    log = given / "node-1" / "state-change.log"
    text = log.read_text("utf-8")
    honest = next(line for line in text.splitlines() if "Leader orders-" in line and ", ISR [" in line)
    before, isr, after = honest.partition(", ISR [")
    log.write_text(text.replace(honest, before + isr + "9," + after), "utf-8")
    tables = tmp_path / "others"
    assert audit_of([given], tables) == errors.CLEAN
    assert "log_differs_from_metadata" in checks_of(spark, tables)
    verdict = judged(spark, tables, SAMPLE.parent)[SAMPLE.name]
    assert (verdict.precise, verdict.misses) == (True, []), truth.details(verdict)


def test_text_read_in_another_zone_than_it_was_printed_in_is_no_finding(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["audit", str(SAMPLE), "--cluster", SAMPLE.name, "--tables", str(tmp_path)]
    assert main([*given, "--timezone", "Asia/Tokyo"]) == errors.INPUT
    said = capsys.readouterr().out
    assert "9:00 h earlier than its metadata log" in said
    assert "--timezone" in said
    assert checks_of(spark, tmp_path) == set()
