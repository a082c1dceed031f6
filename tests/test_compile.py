"""The rules as Spark runs them agree with the reference matcher, value by value and type by type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from samples import MATCHER, SAMPLES, leaders_of

import schemas
from parsers import compile as compiled
from parsers.layouts import layouts
from parsers.match import Record
from parsers.rules import built_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_CHANGE = "[2026-11-20 10:09:12,175] TRACE [Controller id=1 epoch=5] {} (state.change.logger)"
MEGABYTE = 1024 * 1024
REPLICA_CHANGE = "Changed state of replica {} for partition {} from OnlineReplica to OfflineReplica"
PYTHON_TYPES = {"int": int, "bigint": int, "string": str, "boolean": bool, "int_list": list}

HOSTILE = {
    "nothing": "",
    "blanks": "   ",
    "continuation": "\tat kafka.controller.KafkaController.run(KafkaController.scala:1)",
    "no statement": "[2026-11-20 10:09:12,175] INFO  (state.change.logger)",
    "no logger": "[2026-11-20 10:09:12,175] INFO starting",
    "torn, of Kafka by its speaker": "[2026-11-20 10:09:12,175] INFO [Controller id=1 epoch=5] Changed st",
    "torn, of Kafka by its logger": "[2026-11-20 10:09:12,175] INFO starting (kafka.server.Kaf",
    "torn, of Kafka by its name": "[2026-11-20 10:09:12,175] INFO KafkaConfig values: ",
    "of another program": "2026-11-20 10:09:12,175 INFO [main] [server.py:172] [span_id=0] - Recommendation starts",
    "JSON of another program": '{"message":"Connected to broker at kafka:9092","severity":"info","timestamp":"2026-11-20T10:09:12Z"}',
    "JSON without a logger, of Kafka": '{"message":"[Broker id=3] Stopped fetchers","level":"INFO","timestamp":"2026-11-20T10:09:12Z"}',
    "cut in the header": "[2026-11-20 10:09:12,175] INF",
    "cut in the statement": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12"))[:120],
    "drift": STATE_CHANGE.format("Changed state of replica 3 of partition orders-12 to OfflineReplica"),
    "unknown": STATE_CHANGE.format("Something that no Kafka version ever printed"),
    "int too large": STATE_CHANGE.format(REPLICA_CHANGE.format(99999999999, "orders-12")),
    "int at its limit": STATE_CHANGE.format(REPLICA_CHANGE.format(2147483647, "orders-2147483647")),
    "int beyond its limit": STATE_CHANGE.format(REPLICA_CHANGE.format(2147483648, "orders-2147483648")),
    "zeros before": STATE_CHANGE.format(REPLICA_CHANGE.format("003", "orders-0012")),
    "digits of another script": STATE_CHANGE.format(REPLICA_CHANGE.format("٣", "orders-1")),
    "topic of digits": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "2020-01-01-7")),
    "replacement signs": STATE_CHANGE.format("Changed state of $1 \\1 $ \\ {}"),
    "quotes": STATE_CHANGE.format("it's \"quoted\" and `ticked`"),
    "accents": STATE_CHANGE.format("Größe 日本 \U0001f600 é"),
    "line separators": STATE_CHANGE.format("one\u2028two\u0085three\x0bfour"),
    "a separator inside": STATE_CHANGE.format("Changed \x01" + REPLICA_CHANGE.format(3, "orders-12")[8:]),
    "NUL before": "\x00\x00\x00" + STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12")),
    "carriage return": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12")) + "\r",
    "colours": "\x1b[32m" + STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12")) + "\x1b[0m",
    **{
        f"who speaks: {speaker}": f"[2026-11-20 10:09:12,175] TRACE {speaker}{REPLICA_CHANGE.format(3, 'orders-12')} (state.change.logger)"
        for speaker in (
            "[Broker id=7] ", "[Broker id=7]", "[Broker id=7]  ", "[Broker id=7]: ", "[Broker id=7] Broker 8 ", "[Broker id=] ",
            "[Broker id=7] Controller 8 epoch 9 ", "[Broker id=99999999999] ", "[Controller id=7 epoch=5] Broker 8 ",
            "[Controller id=7 epoch=5] Controller 8 ", "[Controller id=7 epoch=5] Controller 8 epoch 9 Controller 10 ",
            "[Controller id=7] Controller 8 epoch 9 ", "[Controller id=7 epoch=] ", "[Controller id=7] [Broker id=8] ",
        )
    },
    "two records in one line": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12")) * 2,
    "brackets": STATE_CHANGE.format("[" * 5000),
    "parentheses": STATE_CHANGE.format(")" * 5000),
    "dashes": STATE_CHANGE.format("Changed state of replica 3 for partition " + "-" * 50_000),
    "a megabyte": STATE_CHANGE.format("Changed state of replica 3 for " + "a-1, " * (MEGABYTE // 5)),
    "a megabyte without a blank": STATE_CHANGE.format("Changed state of replica " + "9" * MEGABYTE),
    "a megabyte of a list": STATE_CHANGE.format(
        "Topics to be deleted: " + ",".join(f"topic-{n}" for n in range(MEGABYTE // 12))
    ),
    "out of scope": "[2026-11-20 10:09:12,175] INFO starting (org.apache.zookeeper.ZooKeeper)",
    "stack trace": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12"))
    + "\njava.io.IOException: Broken pipe\n\tat a.b.C.d(C.java:1)\nCaused by: java.lang.Error\n\t... 3 more",
    "stack trace without message": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12"))
    + "\njava.lang.NullPointerException\n\tat a.B.c(B.java:1)",
    "stack trace without an end": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12"))
    + "\njava.lang.IllegalStateException: ",
    "prose after": STATE_CHANGE.format(REPLICA_CHANGE.format(3, "orders-12")) + "\nmore of it\n",
    "message of many lines": "[2026-11-20 10:09:12,175] INFO KafkaConfig values: \n\tbroker.id = 1\n"
    " (kafka.server.KafkaConfig)",
}  # fmt: skip


def expected(text: str) -> tuple[Record | None, list[dict[str, Any]]]:
    """What the reference matcher says."""
    record = MATCHER.record(text)
    return record, MATCHER.events(record) if record and MATCHER.in_scope(record) else []


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Everything that is parsed, under a name."""
    named = {f"{sample.rule.file} [{sample.rule.name}] sample {n}": sample.line for n, sample in enumerate(SAMPLES)}
    return named | HOSTILE


@pytest.fixture(scope="module")
def told(spark: SparkSession, texts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Name -> the rows that Spark makes of it: all texts in one DataFrame, read from a file as JSON."""
    from pyspark.sql import functions as F

    path: Path = tmp_path_factory.mktemp("compile") / "records.json"
    with path.open("w") as stream:
        for name, text in texts.items():
            head, newline, tail = text.partition("\n")
            stream.write(json.dumps({"name": name, "first": head, "tail": tail if newline else None}) + "\n")
    read = spark.read.json(str(path), "name STRING, first STRING, tail STRING")
    head = compiled.clean(F.col("first"))
    records = read.select("name", head.alias("head"), "tail", F.concat_ws("\n", head, "tail").alias("raw"))
    ruleset = built_in()
    parsed = compiled.parse(records, ruleset, layouts())
    said = compiled.say(parsed.filter("in_scope"), ruleset)
    rows: dict[str, list[Any]] = {}
    for row in said.collect():
        rows.setdefault(row.name, []).append(row)
    return {name: sorted(found, key=lambda row: row.item) for name, found in rows.items()}


def differences(rows: list[Any], record: Record | None, events: list[dict[str, Any]]) -> list[str]:
    """(column: Spark's value, the matcher's value) where they differ."""
    if record is None:
        return [] if all(row.event_type is None and row.logger is None for row in rows) else ["rows of no record"]
    found = []
    if len(rows) != len(events):
        return [f"{len(rows)} rows, {len(events)} events"]
    kinds = {name: word["type"] for name, word in schemas.vocabulary().items()}
    for row, event in zip(rows, events, strict=True):
        columns = ["item", "event_type", "says", "drifted", "error_class", "error_message", *kinds]
        found += [f"{name}: {row[name]!r}, {event.get(name)!r}" for name in columns if row[name] != event.get(name)]
        found += [
            f"{name} is {type(row[name]).__name__}"
            for name, kind in kinds.items()
            if row[name] is not None and type(row[name]) is not PYTHON_TYPES[kind]
        ]
        if record.logger is not None:
            header = {
                "layout": record.layout,
                "ts_text": record.ts,
                "level": record.level,
                "logger": record.logger,
            }
            found += [f"{name}: {row[name]!r}, {value!r}" for name, value in header.items() if row[name] != value]
    return found


def test_samples(told: dict[str, list[Any]], texts: dict[str, str]) -> None:
    wrong = {}
    for name, text in texts.items():
        if name not in HOSTILE and (found := differences(told.get(name, []), *expected(text))):
            wrong[name] = found
    assert wrong == {}
    assert len(texts) - len(HOSTILE) == len(SAMPLES)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lines(told: dict[str, list[Any]], name: str) -> None:
    assert differences(told.get(name, []), *expected(HOSTILE[name])) == []


def test_a_record_of_many_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Each of the ten thousand partitions that one record names is an event."""
    from pyspark.sql import functions as F

    number = MEGABYTE // 100
    path = tmp_path / "state-change.log"
    path.write_text(leaders_of(MEGABYTE // 100) + "\n")
    line = spark.read.text(str(path)).select(
        F.col("value").alias("head"), F.lit(None).cast("string").alias("tail"), F.col("value").alias("raw")
    )
    said = compiled.say(compiled.parse(line, built_in(), layouts()), built_in())
    (counted,) = said.filter("leader = 2 AND partition_epoch = 3 AND item = partition").groupBy("event_type").count().collect()
    assert (counted["event_type"], counted["count"]) == ("leaders_at_shutdown", number)
