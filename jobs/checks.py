"""Findings: every check of `schemas/checks` is a query that returns the violating rows, with its proof."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import schemas
from jobs.store import quoted

SEVERITIES = ("info", "warning", "error", "critical")
AUDITED = ("events", "partition_timeline", "replica_timeline", "reassignments", "topic_deletions", "controllers")
# a finding about one moment is over when the logs have gone on for this long since
MOMENT_HOURS = 24


@dataclass(frozen=True)
class Clock:
    """The moment that a cluster's findings are measured against, its incarnation and the thresholds."""

    cluster: str
    now: datetime | None
    incarnation: int
    kafka_version: str | None
    leaderless_seconds: int
    reassignment_minutes: int


def register(spark: SparkSession, audited: Mapping[str, DataFrame], clocks: list[Clock]) -> None:
    """The frames that checks read: audited_<table> (rows of the clusters), clocks, kafka_versions, legal_moves."""
    for table in AUDITED:
        audited[table].createOrReplaceTempView(f"audited_{table}")
    rows = ", ".join(_row(clock) for clock in clocks)
    names = "cluster, now, incarnation, kafka_version, version_number, leaderless_seconds, reassignment_minutes"
    known = spark.sql(f"SELECT * FROM VALUES {rows} AS t({names})")
    known.createOrReplaceTempView("clocks")
    known.select("cluster", "kafka_version", "version_number").createOrReplaceTempView("kafka_versions")
    moves = ", ".join(
        f"({quoted(m.machine)}, {quoted(m.from_state)}, {quoted(m.to_state)}, {schemas.version_number(m.since)})"
        for m in schemas.moves()
    )
    spark.sql(f"SELECT * FROM VALUES {moves} AS t(machine, from_state, to_state, since)").createOrReplaceTempView("legal_moves")


def _row(clock: Clock) -> str:
    version = clock.kafka_version
    cells = [
        quoted(clock.cluster),
        f"TIMESTAMP {quoted(clock.now.isoformat(sep=' '))}" if clock.now else "CAST(NULL AS TIMESTAMP)",
        str(clock.incarnation),
        "CAST(NULL AS STRING)" if version is None else quoted(version),
        "CAST(NULL AS INT)" if version is None else str(schemas.version_number(version)),
        str(clock.leaderless_seconds),
        str(clock.reassignment_minutes),
    ]
    return f"({', '.join(cells)})"


def violations(spark: SparkSession, given: Collection[str] = ()) -> DataFrame:
    """What violates a check now. out: the columns of `findings` less run_id and status, plus ended BOOLEAN.

    given: the kinds of input that are there beside text logs; a check that is about one of them `only` is left out without it.
    """
    # one text: every frame that is put together call by call is analysed again from its leaves
    selects = []
    for check in schemas.statements("checks"):
        if check.header.get("only", "") not in {"", *given}:
            continue
        name = quoted(check.name)
        selects.append(
            f"""SELECT cluster, incarnation, {name} AS check_id, severity, topic, partition, replica, node, first_seen, last_seen,
              concat({quoted(check.header["title"] + ": ")}, thing) AS title, detail,
              sha2(concat_ws('|', {name}, cluster, incarnation, same), 256) AS fingerprint, evidence, ended
            FROM (
            {check.sql}
            )"""
        )
    return spark.sql("\nUNION ALL\n".join(selects))


def settle(found: DataFrame, before: DataFrame, clocks: DataFrame, run_id: str) -> DataFrame:
    """The findings of clusters after this run.

    in: `violations`; the rows of `findings` of the clusters so far; cluster and now. out: the columns of `findings`, one row a
    fingerprint.
    new: violated and not known before; open: known before and still violated; resolved: over by the logs, or no longer violated, or
    a moment that lies a day back and was reported before.
    """
    columns = [name for name in found.columns if name != "ended"]
    old = before.select(
        "fingerprint", F.col("status").alias("old_status"), F.col("run_id").alias("old_run"),
        *[F.col(name).alias(f"old_{name}") for name in columns if name != "fingerprint"],
    )  # fmt: skip
    joined = found.join(old, "fingerprint", "full").join(
        F.broadcast(clocks.select(F.col("cluster").alias("clock_cluster"), "now")),
        F.coalesce("cluster", "old_cluster") == F.col("clock_cluster"),
        "left",
    )
    gone = F.col("check_id").isNull()
    known = F.col("old_status").isNotNull()
    momentary = F.col("first_seen") == F.col("last_seen")
    day_ago = F.col("now") - F.expr(f"INTERVAL {MOMENT_HOURS} HOURS")
    long_past = F.coalesce(known & momentary & (F.col("last_seen") < day_ago), F.lit(False))
    status = F.when(gone | F.coalesce("ended", F.lit(False)) | long_past, "resolved").when(known, "open").otherwise("new")
    unchanged = known & (status == F.col("old_status")) & (gone | F.col("last_seen").eqNullSafe(F.col("old_last_seen")))
    values = [
        F.col(name) if name == "fingerprint" else F.when(gone, F.col(f"old_{name}")).otherwise(F.col(name)).alias(name)
        for name in columns
    ]
    return joined.select(
        F.when(unchanged, F.col("old_run")).otherwise(F.lit(run_id)).alias("run_id"), *values, status.alias("status")
    )
