"""What is kept from night to night: it answers what all events would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from frames import frame
from pyspark.sql import functions as F
from test_timelines import broken, events, types_of

from jobs import errors
from jobs.nightly_audit import main
from jobs.old_timelines import controllers, discontinuities, kraft, kraft_replicas, night, order, replicas, witnesses
from jobs.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLES = Path(__file__).parents[1] / "sample_logs"
CLUSTERS = {"zookeeper": "3.3.2-trace/delete-topic-dead-broker", "kraft": "3.9.1-kraft/controller-failover"}


@pytest.fixture(scope="module")
def said(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The recognised events of two recordings, in order."""
    root = tmp_path_factory.mktemp("witnesses")
    blocks = [f'[[cluster]]\nname = "{name}"\nlogs = ["{SAMPLES / path}"]\n' for name, path in CLUSTERS.items()]
    (root / "audit.toml").write_text("\n".join(blocks))
    code = main(["audit", "--config", str(root / "audit.toml"), "--tables", str(root / "tables")])
    assert code in (errors.CLEAN, errors.FINDINGS)
    told = night.recognised(Store(spark, root / "tables").rows_of("events", CLUSTERS), list(CLUSTERS))
    return in_order(told).localCheckpoint()


def in_order(told: DataFrame) -> DataFrame:
    return order.in_order(night.in_incarnations(told.drop("log", "file_ts"), order.clusters(told)))


def rows_of(some: DataFrame) -> set[str]:
    return {str(row) for row in some.collect()}


def answers(told: DataFrame) -> dict[str, Any]:
    """What is asked about all events."""
    newest = told.groupBy("cluster").agg(F.max("ts").alias("newest"), F.max("kafka_version").alias("version"))
    return {
        "clusters": order.clusters(told),
        "mode": night.kraft_begins(told),
        "files": rows_of(order.files(told)),
        "nodes that trace": rows_of(replicas.tracing(told)),
        "reigns": rows_of(controllers.reigns(in_order(told))),
        "newest": rows_of(newest),
        "ids of topics": rows_of(kraft.topic_lives(told, {"kraft": None})),
        "leaders that are eligible": rows_of(kraft.elr_modes(told)),
        "brokers": rows_of(kraft_replicas.broker_states(in_order(told))),
    }


def test_witnesses_answer_what_all_events_do(said: DataFrame) -> None:
    expected = answers(said)
    assert len(expected["reigns"]) > 1
    assert expected["mode"] == {"kraft": None}
    assert all(expected.values())
    told = witnesses.of(said).localCheckpoint()
    assert answers(told) == expected
    assert told.count() * 5 < said.count()
    # those of a part, and what came later
    middle = said.agg(F.percentile_approx(F.col("ts").cast("double"), 0.6)).first()[0]
    earlier = F.col("ts").cast("double") < middle
    then = witnesses.of(in_order(said.filter(earlier))).localCheckpoint()
    now = then.unionByName(said.filter(~earlier).select(*witnesses.COLUMNS)).localCheckpoint()
    assert answers(now) == expected
    assert answers(witnesses.of(in_order(now)).localCheckpoint()) == expected


@pytest.mark.parametrize("split", [5, 8, 10, 14, 20])
def test_breaks_are_found_by_the_last_lines_of_before(spark: SparkSession, split: int) -> None:
    told = broken(spark).withColumn("second", F.expr("CAST(substring(record_id, 2) AS INT)")).localCheckpoint()
    then, new = (told.filter(which).drop("second") for which in (F.col("second") <= split, F.col("second") > split))
    none_held = frame(spark, types_of("discontinuities"), [])
    since = discontinuities.Since(discontinuities.last_lines(then), new, gone=new.limit(0))
    topics = since.to_read(none_held)
    assert topics is not None
    found = rows_of(since.breaks(told.drop("second"), topics))
    expected = rows_of(discontinuities.breaks(told).filter(F.expr("CAST(substring(record_id, 2) AS INT)") > split))
    assert found == expected
    assert expected
    # a line of the same moment as the last one of its topic: which of them is first, only all lines tell
    assert rows_of(topics.select("topic")) == ({"Row(topic='copy')"} if split == 20 else set())


LINE = {"node": 1, "controller": 1, "controller_epoch": 1, "topic": "t", "partition": 0, "cluster": "c"}
OF_MEMORY = LINE | {"s": 300, "event_type": "partition_online", "to_state": "OnlinePartition", "says": "happened"}


@pytest.mark.parametrize(
    ("line", "elected_at", "expected"),
    [
        pytest.param(OF_MEMORY, 180, {"c"}, id="a deposed controller went on"),
        pytest.param(OF_MEMORY | {"partition_epoch": 3}, 180, set(), id="what it wrote counts"),
        pytest.param(OF_MEMORY, 400, set(), id="elected after all that was heard"),
    ],
)
def test_an_election_that_comes_late(tables: Store, line: dict[str, Any], elected_at: int, expected: set[str]) -> None:
    spark = tables.spark
    election = {"event_type": "controller_elected", "cluster": "c"}
    before = events(spark, election | {"s": 60, "node": 1, "controller": 1, "controller_epoch": 1}, line)
    late = events(spark, election | {"s": elected_at, "node": 2, "controller": 2, "controller_epoch": 2, "file": "other.log"})
    filled = {"drifted": F.lit(False), "layout": F.lit("default"), "raw": F.lit("x")}
    for rows in (before, late):
        tables.append("events", rows.drop("log", "file_ts").withColumns(filled))
    then, now = before.drop("log", "file_ts"), before.unionByName(late).drop("log", "file_ts")
    held = night.Witnesses.among(in_order(then))
    come = night.News(held, late, late.limit(0), frozenset(), tables.table("passed_over"))
    changed = night.changed_for_all(tables, ["c"], come, night.shared(held.shared), night.shared(now))
    assert changed == expected
