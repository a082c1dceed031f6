"""`partition_spells`: what was wrong with partitions, for checks to read. Plain Python tells it (`jobs.timelines.spells`), topic after topic."""

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from jobs.by_topic import Rows, fold_topics
from jobs.folding import rows_of
from jobs.timelines import ClusterFacts
from jobs.timelines.outages import Outage
from jobs.timelines.spells import Deletion, Step, Surroundings, spells

# of a row of `partition_timeline`; partitions that have none are not looked at
IS_WRONG = "leader = -1 OR replicas IS NULL OR size(isr) < size(replicas) OR leader <> get(replicas, 0)"
# the fields of `Spell`
_COLUMNS = """cluster STRING, incarnation INT, topic STRING, partition INT, kind STRING, replica INT, since TIMESTAMP, until TIMESTAMP,
  ended BOOLEAN, is_begin_seen BOOLEAN, is_end_seen BOOLEAN, leader INT, isr ARRAY<INT>, replicas ARRAY<INT>, min_isr INT, record_id STRING, evidence ARRAY<STRING>, returned BOOLEAN,
  missing ARRAY<INT>, alive_at TIMESTAMP, up ARRAY<STRUCT<since: TIMESTAMP, until: TIMESTAMP>>,
  down_meanwhile ARRAY<INT>, signs ARRAY<STRING>, cause_broker INT, cause_since TIMESTAMP, cause_until TIMESTAMP, cause_end_seen BOOLEAN, cause_how STRING,
  cause_all_since TIMESTAMP"""


def partition_spells(spark: SparkSession, facts: Mapping[str, ClusterFacts]) -> DataFrame:
    """The spells of partitions, of the rows that checks look at.

    Reads clocks, audited_events, audited_partition_timeline, audited_topic_deletions, audited_broker_outages, broker_signs, min_isr. out: cluster,
    incarnation, topic, partition and the fields of `Spell`.
    """
    around = _surroundings(spark, facts)
    smallest = {
        (cluster, number, topic): value
        for cluster, number, topic, value in _rows(spark, "SELECT cluster, incarnation, topic, min_isr FROM min_isr")
    }
    steps = spark.sql(f"""
        SELECT t.cluster, t.incarnation, t.topic, t.partition, t.step, unix_micros(t.valid_from) AS valid_from, unix_micros(t.valid_to) AS valid_to,
          t.state, t.leader, t.leader_epoch, t.partition_epoch, t.isr, t.replicas, t.adding_replicas, t.removing_replicas, t.record_id
        FROM audited_partition_timeline t
        JOIN clocks c ON c.cluster = t.cluster
        LEFT SEMI JOIN (SELECT cluster, incarnation, topic, partition FROM audited_partition_timeline WHERE {IS_WRONG}) w
          ON w.cluster = t.cluster AND w.incarnation = t.incarnation AND w.topic = t.topic AND w.partition = t.partition
        -- what a tool said after the logs had ended is a matter of the next ones
        WHERE t.source IN ('logs', 'metadata_log') OR t.valid_from <= c.now""")
    deletions = spark.sql("""
        SELECT cluster, incarnation, topic, unix_micros(requested_at) AS requested_at, unix_micros(completed_at) AS completed_at
        FROM audited_topic_deletions""")

    def fold(key: tuple[Any, ...], rows: Rows, deleted: Rows) -> Iterable[dict[str, Any]]:
        judged_by = around.get(key[:2])
        if judged_by is None:
            return
        least = smallest.get(key, smallest.get((*key[:2], None)))
        gone = [Deletion(row["requested_at"], row["completed_at"]) for row in deleted]
        for partition, some in _by_partition(rows).items():
            for spell in spells(some, judged_by, topic=key[2], min_isr=least, deletions=gone):
                yield {"partition": partition, **spell._asdict()}

    return fold_topics(steps, deletions, fold, StructType.fromDDL(_COLUMNS))


def _by_partition(rows: Rows) -> dict[int, list[Step]]:
    found: dict[int, list[Step]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["step"])):
        found.setdefault(row["partition"], []).append(Step(*(row[name] for name in Step._fields)))
    return found


def _surroundings(spark: SparkSession, facts: Mapping[str, ClusterFacts]) -> dict[tuple[str, int], Surroundings]:
    """What spells are judged by, by cluster and incarnation; of a cluster without a time stamp there are none."""
    outages: dict[tuple[str, int], list[Outage]] = {}
    for cluster, number, *outage in _rows(
        spark, f"SELECT cluster, incarnation, {', '.join(Outage._fields)} FROM audited_broker_outages"
    ):
        outages.setdefault((cluster, number), []).append(Outage(*outage))
    signs: dict[tuple[str, int], dict[int, list[tuple[int, str]]]] = {}
    for cluster, number, broker, *sign in _rows(
        spark,
        "SELECT cluster, incarnation, broker, ts, record_id FROM broker_signs WHERE broker IS NOT NULL ORDER BY ts, record_id",
    ):
        signs.setdefault((cluster, number), {}).setdefault(broker, []).append((sign[0], sign[1]))
    for cluster, one in facts.items():
        for number, alive in one.alive_by_number.items():
            for broker, some in alive.items():
                own = signs.setdefault((cluster, number), {}).setdefault(broker, [])
                own[:] = sorted({*own, *((sign.ts, sign.record_id) for sign in some)})
    listed: dict[tuple[str, int], list[tuple[int, frozenset[str]]]] = {}
    lists = """
        SELECT cluster, incarnation, ts, collect_set(topic) FROM audited_events WHERE event_type = 'topics' AND ts IS NOT NULL
        GROUP BY cluster, incarnation, ts ORDER BY ts"""
    for cluster, number, at, topics in _rows(spark, lists):
        listed.setdefault((cluster, number), []).append((at, frozenset(topics)))
    now = dict(_rows(spark, "SELECT cluster, now FROM clocks WHERE now IS NOT NULL"))
    known = {(cluster, number) for cluster, one in facts.items() for number in one.by_number}
    return {
        (cluster, number): Surroundings(
            now=now[cluster],
            heard_until=facts[cluster].heard_until.get(number),
            outages=outages.get((cluster, number), []),
            signs=signs.get((cluster, number), {}),
            topics_listed=listed.get((cluster, number), ()),
        )
        for cluster, number in {*known, *outages, *signs}
        if cluster in now
    }


def _rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    """Its rows; time stamps are microseconds."""
    return list(rows_of(spark.sql(query).toArrow().to_batches()))
