"""Findings: every check of `schemas/checks` is a query that returns the violating rows, with its proof."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import schemas
from jobs import fact_frames
from jobs.config import Silence, Slo, Threshold, glob_pattern
from jobs.frames import computed_once, read_often
from jobs.partition_spells import partition_spells
from jobs.store import moment, quoted, run_concurrently, words
from jobs.timelines import LEADING, ClusterFacts
from jobs.tool_outputs import ToolOutput
from parsers.definitions import INPUT_FACTS, INPUT_TABLES

AUDITED = (
    "events", "partition_timeline", "replica_timeline", "reassignments", "topic_deletions", "controllers", "discontinuities",
    "coverage", "broker_outages", "topic_assignments", "broker_load", "durability", "checkpoints", "partitions_now",
)  # fmt: skip
# a check may tell what its findings are about one by one, and which outage (node null: of all brokers) they follow from
SUBJECTS = "ARRAY<STRUCT<topic: STRING, partition: INT, replica: INT, since: TIMESTAMP, until: TIMESTAMP>>"
OUTAGE = "STRUCT<node: INT, since: TIMESTAMP>"
# the checks that report outages; what names one as its cause is caused by their finding
OUTAGE_CHECKS = ("broker_down", "cluster_down")
# of a function with two arguments
CALL = re.compile(r"\b([a-z_]+)\(([^(),]+), ([^(),]+)\)")
# a finding that was reported is over when the logs have gone on for this long since they last showed it
QUIET_HOURS = 24


@dataclass(frozen=True)
class Clock:
    """The moment that a cluster's findings are measured against, and its incarnation."""

    cluster: str
    now: datetime | None
    incarnation: int
    kafka_version: str | None


def register(
    spark: SparkSession,
    audited: Mapping[str, DataFrame],
    clocks: list[Clock],
    facts: Mapping[str, ClusterFacts],
    *,
    thresholds: Sequence[Threshold] = (),
    slos: Sequence[Slo] = (),
) -> None:
    """The frames and functions (`schemas/functions`) that checks read.

    audited_<table> (`nights.scope`), audited_partitions_now (`nights.partitions_now`), clocks, kafka_versions, slos, legal_moves, leading,
    those of `fact_frames` and of `schemas/facts`, partition_spells.
    """
    for table in AUDITED:
        rows = audited[table] if table != "events" else _named_columns(audited[table])
        rows.createOrReplaceTempView(f"audited_{table}")
    spark.sql(slos_sql(slos)).createOrReplaceTempView("slos")
    known = clock_rows(spark, clocks)
    known.createOrReplaceTempView("clocks")
    known.select("cluster", "kafka_version", "version_number").createOrReplaceTempView("kafka_versions")
    for told in fact_frames.FRAMES:
        spark.createDataFrame(told(facts)).createOrReplaceTempView(told.__name__)
    moves = ", ".join(
        f"({quoted(m.machine)}, {quoted(m.from_state)}, {quoted(m.to_state)}, {schemas.version_number(m.since)})"
        for m in schemas.moves()
    )
    spark.sql(f"SELECT * FROM VALUES {moves} AS t(machine, from_state, to_state, since)").createOrReplaceTempView("legal_moves")
    leading = ", ".join(map(quoted, sorted(LEADING)))
    spark.sql(f"SELECT explode(array({leading})) AS event_type").createOrReplaceTempView("leading")
    for function in schemas.statements("functions"):
        spark.sql(function.sql)
    for fact in schemas.statements("facts"):  # by name: a later one reads an earlier one
        computed_once(spark.sql(with_thresholds(fact.sql, thresholds))).createOrReplaceTempView(fact.name)
    computed_once(partition_spells(spark, facts)).createOrReplaceTempView("partition_spells")


def _named_columns(events: DataFrame) -> DataFrame:
    """Events with the columns that checks name: at every mention of a view each of its columns is analysed."""
    named = {word for kind in ("facts", "checks") for one in schemas.statements(kind) for word in words(one.sql)}
    # `nights.scope` has put few into the plan
    return read_often(events.select(*(name for name in events.columns if name in named)), may_be_few=events.isLocal())


def clock_rows(spark: SparkSession, clocks: Sequence[Clock]) -> DataFrame:
    """out: cluster, now, incarnation, kafka_version, version_number."""
    rows = ", ".join(_row(clock) for clock in clocks)
    return spark.sql(f"SELECT * FROM VALUES {rows} AS t(cluster, now, incarnation, kafka_version, version_number)")


def asked(
    clocks: Sequence[Clock],
    thresholds: Sequence[Threshold],
    slos: Sequence[Slo],
    silences: Sequence[Silence],
    outputs: Sequence[ToolOutput],
) -> str:
    """Hash of all that findings depend on besides the tables: of the same tables, the same is found."""
    texts = [statement.sql for kind in ("functions", "facts", "checks") for statement in schemas.statements(kind)]
    return hashlib.sha256(repr((texts, clocks, thresholds, slos, silences, outputs)).encode()).hexdigest()


def still(before: DataFrame) -> DataFrame:
    """What was reported and is not over, as `violations` that are found once more. in: rows of `findings`."""
    reported = before.filter("status <> 'resolved'").drop("run_id", "status", "silenced", "silence")
    return reported.withColumns({"ended": F.lit(False), "subjects": F.lit(None).cast(SUBJECTS)})


def present(spark: SparkSession) -> set[str]:
    """What a check may be about `only`: the event types, the kinds of spells and the states of replicas that there are, INPUT_TABLES and INPUT_FACTS that have rows."""
    kinds = [
        "SELECT event_type AS kind FROM audited_events",
        "SELECT kind FROM partition_spells",
        "SELECT state AS kind FROM audited_replica_timeline WHERE valid_to IS NULL",
        "(SELECT 'drifted' AS kind FROM audited_events WHERE drifted LIMIT 1)",
        *(f"(SELECT {quoted(table)} AS kind FROM audited_{table} LIMIT 1)" for table in INPUT_TABLES),
        *(f"(SELECT {quoted(fact)} AS kind FROM {fact} LIMIT 1)" for fact in INPUT_FACTS),
    ]
    row = spark.sql(f"SELECT collect_set(kind) AS kinds FROM ({' UNION ALL '.join(kinds)})").first()
    assert row is not None
    return set(row.kinds)


def _row(clock: Clock) -> str:
    version = clock.kafka_version
    cells = [
        quoted(clock.cluster),
        f"TIMESTAMP {quoted(clock.now.isoformat(sep=' '))}" if clock.now else "CAST(NULL AS TIMESTAMP)",
        str(clock.incarnation),
        "CAST(NULL AS STRING)" if version is None else quoted(version),
        "CAST(NULL AS INT)" if version is None else str(schemas.version_number(version)),
    ]
    return f"({', '.join(cells)})"


def slos_sql(slos: Sequence[Slo]) -> str:
    """The goals of audit.toml as rows: number, patterns of cluster and topic, percent, acks, days."""
    names = "number, clusters, topics, availability, acks, days"
    none = "(0, '', '', CAST(0 AS DOUBLE), '', 0)"
    rows = [
        f"({number}, {quoted(f'^(?s:{glob_pattern(slo.cluster)})$')}, {quoted(f'^(?s:{glob_pattern(slo.topic)})$')}, "
        f"CAST({slo.availability} AS DOUBLE), {quoted(slo.acks)}, {slo.days})"
        for number, slo in enumerate(slos, 1)
    ]
    return f"SELECT * FROM VALUES {', '.join(rows) or none} AS t({names}) WHERE number > 0"


def with_thresholds(sql: str, settings: Sequence[Threshold]) -> str:
    """A query with every `<threshold>(<cluster>, <topic>)` replaced by its value, an expression over these two."""
    defaults = schemas.thresholds()

    def value(call: re.Match[str]) -> str:
        name, cluster, topic = call.groups()
        if name not in defaults:
            return call[0]
        return f"({threshold_sql(defaults[name], [one for one in settings if one.name == name], cluster, topic)})"

    return CALL.sub(value, sql)


def threshold_sql(default: int, settings: Sequence[Threshold], cluster: str = "cluster", topic: str = "topic") -> str:
    """The value of one threshold as an expression over cluster and topic; the last setting that matches counts."""
    value = str(default)
    for setting in settings:
        value = (
            f"CASE WHEN {_all_match([(cluster, setting.cluster), (topic, setting.topic)])} THEN {setting.value} ELSE {value} END"
        )
    return value


def silence_sql(silences: Sequence[Silence]) -> str:
    """Why a finding is silenced, as an expression over its columns; null where no silence matches."""
    cases = []
    for silence in silences:
        globs = {
            "check_id": silence.check,
            "cluster": silence.cluster,
            "topic": silence.topic,
            "fingerprint": silence.fingerprint,
        }
        condition = _all_match((column, glob) for column, glob in globs.items() if glob is not None)
        if silence.broker is not None:
            condition += f" AND ({_all_match([('node', silence.broker)])} OR {_all_match([('replica', silence.broker)])})"
        cases.append(f"WHEN {condition} THEN {quoted(silence.because())}")
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS STRING)"


def _all_match(globs: Iterable[tuple[str, str]]) -> str:
    """That columns match globs, as a condition that is never null. A topic that is null is like an empty one."""
    tests = [
        f"coalesce(CAST({column} AS STRING), '') RLIKE {quoted(f'^(?s:{glob_pattern(glob)})$')}"
        for column, glob in globs
        if glob != "*"
    ]
    return " AND ".join(tests) or "true"


@dataclass(frozen=True)
class Violations:
    """What violates checks now.

    rows: the columns of `findings` less run_id, status and silence, plus ended BOOLEAN and subjects. failed: check -> why it could not be run.
    """

    rows: DataFrame
    failed: Mapping[str, str]


def violations(spark: SparkSession, given: Collection[str] = (), thresholds: Sequence[Threshold] = ()) -> Violations:
    """Runs the checks; one that fails costs no other its findings.

    given: what there is of `present`, and of metadata_log, cluster_ids, slos; a check that is about some `only` is left out without them.
    """
    active = _with_candidates(spark, [check for check in schemas.statements("checks") if _is_given(check, given)], thresholds)
    failed: dict[str, str] = {}

    def found_by(some: Sequence[schemas.Statement]) -> list[DataFrame]:
        # one text: every frame that is put together call by call is analysed again from its leaves
        try:
            return [computed_once(spark.sql("\nUNION ALL\n".join(_select(check, thresholds) for check in some)))] if some else []
        except PySparkException as error:
            if len(some) == 1:
                failed[some[0].name] = str(error).splitlines()[0]
                return []
            return [rows for check in some for rows in found_by([check])]

    halves = run_concurrently(*(partial(found_by, active[n::2]) for n in (0, 1)))
    found = reduce(DataFrame.unionByName, [rows for half in halves for rows in half])
    causes = found.filter(F.col("check_id").isin(*OUTAGE_CHECKS)).select(
        F.col("cluster").alias("c"), F.col("incarnation").alias("i"), F.col("node").alias("n"), F.col("first_seen").alias("s"),
        F.col("fingerprint").alias("caused_by"),
    )  # fmt: skip
    same = (F.col("cluster") == F.col("c")) & (F.col("incarnation") == F.col("i")) & F.col("outage.node").eqNullSafe(F.col("n"))
    rows = found.join(F.broadcast(causes), same & (F.col("outage.since") == F.col("s")), "left")
    return Violations(rows.drop("c", "i", "n", "s", "outage"), failed)


def _is_given(check: schemas.Statement, given: Collection[str]) -> bool:
    about = check.listed("only")
    return not about or not about.isdisjoint(given)


def _with_candidates(
    spark: SparkSession, checks: Sequence[schemas.Statement], thresholds: Sequence[Threshold]
) -> list[schemas.Statement]:
    """The checks less those that find nothing, as there are no rows in the parts of their queries that they call their `candidates`."""
    asked = [
        f"(SELECT {quoted(check.name)} AS name FROM (\n{with_thresholds(check.part(part), thresholds)}\n) LIMIT 1)"
        for check in checks
        for part in sorted(check.listed("candidates"))
    ]
    if not asked:
        return list(checks)
    try:
        found = {row.name for row in spark.sql("\nUNION ALL\n".join(asked)).collect()}
    except PySparkException:
        return list(checks)  # the one that fails is named when it is run
    return [check for check in checks if check.name in found or not check.listed("candidates")]


def _select(check: schemas.Statement, thresholds: Sequence[Threshold]) -> str:
    """A check with the columns that all have."""
    name = quoted(check.name)
    return f"""SELECT cluster, incarnation, {name} AS check_id, severity, topic, partition, replica, node, first_seen, last_seen,
      concat({quoted(check.header["title"])}, coalesce(concat(': ', thing), '')) AS title, detail,
      sha2(concat_ws('|', {name}, cluster, incarnation, same), 256) AS fingerprint, evidence, ended,
      {_also(check, "subjects", SUBJECTS)}, {_also(check, "outage", OUTAGE)}
    FROM (
    {with_thresholds(check.sql, thresholds)}
    )"""


def _also(check: schemas.Statement, column: str, kind: str) -> str:
    """A column that a check need not have; its head names those that it has."""
    return f"CAST({column if column in check.listed('also') else 'NULL'} AS {kind}) AS {column}"


def subjects(found: DataFrame, before: DataFrame) -> DataFrame:
    """What each finding is about, one by one.

    in: `violations`; the rows of `finding_subjects` so far, of which those stay whose finding is not found now. out: its columns.
    """
    alone = F.array(F.struct("topic", "partition", "replica", F.col("first_seen").alias("since"), F.when(F.col("ended"), F.col("last_seen")).alias("until")))  # fmt: skip
    named = F.col("topic").isNotNull() & F.col("partition").isNotNull()
    each = found.select("cluster", "fingerprint", F.inline(F.coalesce("subjects", F.when(named, alone.cast(SUBJECTS)))))
    return each.unionByName(before.join(found.select("fingerprint"), "fingerprint", "left_anti"))


def news(found: DataFrame, before: DataFrame, begins: Mapping[str, datetime]) -> DataFrame:
    """`violations` less what was over before the rows that this run looks at begin: of it too little is seen to tell it anew.

    in: `violations`; the rows of `findings` so far; cluster -> begin of these rows (UTC without a zone), those of which all is seen left out.
    """
    if not begins:
        return found
    resolved = before.filter("status = 'resolved'").select("fingerprint", F.lit(True).alias("was_over"))
    since = F.expr(f"CASE cluster {' '.join(f'WHEN {quoted(name)} THEN {moment(at)}' for name, at in begins.items())} END")
    is_old = F.col("ended") & ((F.col("last_seen") < since) | (F.col("was_over") & (F.col("first_seen") < since)))
    known = found.join(F.broadcast(resolved), "fingerprint", "left")
    return known.filter(~F.coalesce(is_old, F.lit(False))).drop("was_over")


def settle(found: DataFrame, before: DataFrame, clocks: DataFrame, run_id: str, silences: Sequence[Silence] = ()) -> DataFrame:
    """The findings of clusters after this run.

    in: `news`; the rows of `findings` of the clusters so far; cluster and now; the silences that have not expired. out: the
    columns of `findings`, one row a fingerprint.
    new: violated and not known before; open: known before and still violated; resolved: over by the logs, or no longer violated, or
    reported before and not seen in them for QUIET_HOURS; reopened: resolved before, and the logs show it again.
    first_seen: the earliest that was ever found.
    """
    columns = [name for name in found.columns if name not in {"ended", "subjects"}]
    old = before.select(
        "fingerprint",
        F.col("status").alias("old_status"),
        F.col("run_id").alias("old_run"),
        F.col("silence").alias("old_silence"),
        *[F.col(name).alias(f"old_{name}") for name in columns if name != "fingerprint"],
    )
    joined = found.join(old, "fingerprint", "full").join(
        F.broadcast(clocks.select(F.col("cluster").alias("clock_cluster"), "now")),
        F.coalesce("cluster", "old_cluster") == F.col("clock_cluster"),
        "left",
    )
    gone = F.col("check_id").isNull()
    known = F.col("old_status").isNotNull()
    was_resolved = F.coalesce(F.col("old_status") == "resolved", F.lit(False))
    nothing_newer = F.col("last_seen").eqNullSafe(F.col("old_last_seen"))
    quiet = F.coalesce(known & (F.col("last_seen") < F.col("now") - F.expr(f"INTERVAL {QUIET_HOURS} HOURS")), F.lit(False))
    status = (
        F.when(gone | F.coalesce("ended", F.lit(False)) | quiet, "resolved")
        .when(was_resolved, "reopened")
        .when(known, "open")
        .otherwise("new")
    )
    values = {name: F.when(gone, F.col(f"old_{name}")).otherwise(F.col(name)) for name in columns if name != "fingerprint"}
    values["first_seen"] = F.least("first_seen", "old_first_seen")
    settled = joined.select(
        "fingerprint",
        *[value.alias(name) for name, value in values.items()],
        status.alias("status"),
        F.when(known & (status == F.col("old_status")) & (gone | nothing_newer), F.col("old_run")).alias("old_run"),
        "old_silence",
    )
    return (
        settled.withColumn("silence", F.expr(silence_sql(silences)))
        .select(
            F.when(F.col("silence").eqNullSafe(F.col("old_silence")), F.col("old_run")).alias("old_run"),
            *columns,
            "status",
            F.col("silence").isNotNull().alias("silenced"),
            "silence",
        )
        .select(F.coalesce("old_run", F.lit(run_id)).alias("run_id"), *columns, "status", "silenced", "silence")
    )
