"""Logs at URIs: fetched by Spark, the same events as from a folder."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs import errors
from jobs.config import Cluster
from jobs.engine import file_systems, remote
from jobs.errors import UsageError
from jobs.files import ingest
from jobs.landing import new_records
from jobs.nightly_audit import main
from parsers.rules import built_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.engine.store import Store

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
pytestmark = pytest.mark.spark


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Rotated, packed, damaged, without an end, foreign.

    Names that a URI or a glob would take for something else.
    """
    folder = tmp_path / "night of [1]"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("*.md", "*.json*"))
    log = folder / "broker-1" / "state-change.log"
    lines = log.read_bytes().splitlines(keepends=True)
    rotated, third = b"".join(lines[: len(lines) // 2]), b"".join(lines[: len(lines) // 3])
    (folder / "broker-1" / "state-change.log.1").write_bytes(rotated)
    (folder / "broker-1" / "state-change.log.2.gz").write_bytes(gzip.compress(third))
    log.write_bytes(b"".join(lines[len(lines) // 2 :]).replace(b"\n", b"\r\n") + b"[2022-")
    (folder / "broker-2" / "damaged.log.gz").write_bytes(gzip.compress(third)[:-9])
    (folder / "broker-2" / "other.txt").write_bytes(b"no log\n\xff\xfe\0")
    return folder


def told(file: ingest.LogFile) -> tuple[Any, ...]:
    return (file.path.name, file.kind, file.node, file.why, file.open_end, file.open_head, file.first_ts, file.last_ts, file.length, file.cut)  # fmt: skip


def test_logs_at_a_uri_are_those_of_the_folder(spark: SparkSession, tables: Store, logs: Path) -> None:
    spark.conf.set("spark.sql.files.maxPartitionBytes", "40000")  # files are split
    try:
        uri = f"file://{logs}".replace("[1]", "*")
        found = remote.find(spark, Cluster("c", (uri, f"{uri}/broker-1")), built_in())
        assert found
        files = ingest.find(Cluster("c", (str(logs),)))
        assert sorted(map(told, found.files)) == sorted(map(told, files))
        read = new_records.land(tables, found.files, remote=[found])
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    expected = new_records.events_of([str(logs)], "c").to_pylist()
    for row in expected:
        row |= {"ts": row["ts"] and row["ts"].replace(tzinfo=None), "file": f"file:{row['file']}"}

    def key(row: dict[str, Any]) -> Any:
        return row["record_id"], row["item"]

    assert sorted((row.asDict() for row in tables.table("events").collect()), key=key) == sorted(
        expected, key=key
    )
    assert read.new == len({row["record_id"] for row in expected})


def test_an_audit_of_a_uri(spark: SparkSession, capsys: Any, logs: Path, tmp_path: Path) -> None:
    uri = f"file://{logs.parent}/night*/broker-2"
    assert main(["audit", uri, "--tables", str(tmp_path / "tables"), "--cluster", "c"]) == errors.INPUT
    said = capsys.readouterr().err
    assert re.search(r"warning: file:/.*damaged\.log\.gz: the \.gz is truncated", said)
    assert "3 logs among 5 files" in said


def test_a_file_system_that_spark_lacks_is_named(spark: SparkSession) -> None:
    with pytest.raises(
        UsageError,
        match=r"s3a://b/t: Spark has no file system for s3a: the package org.apache.hadoop:hadoop-aws:3",
    ):
        file_systems.require(spark, ["/tables", "file:///tables", "hdfs://host/tables", "s3a://b/t"])
    with pytest.raises(UsageError, match="Spark has no file system for nowhere"):
        file_systems.require(spark, ["nowhere://b/t"])


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("file:///no/such/folder/*.log", (errors.INPUT, "no such file or folder")),
        ("s3a://bucket/logs", (errors.USAGE, "Spark has no file system for s3a")),
        ("hdfs://127.0.0.1:9/logs", (errors.INPUT, "cannot be listed")),
    ],
)
@pytest.mark.usefixtures("spark")
def test_what_cannot_be_listed(capsys: Any, tmp_path: Path, uri: str, said: tuple[int, str]) -> None:
    code, sentence = said
    assert main(["audit", uri, "--tables", str(tmp_path)]) == code
    printed = capsys.readouterr().err
    assert sentence in printed
    assert "Traceback" not in printed
