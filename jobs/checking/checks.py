"""Run the checks: queries of `schemas/checks` that return the violating rows with their proof."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import pyarrow as pa

import schemas
from jobs.checking.finding_identity import identified
from jobs.config import Silence, Slo, Threshold
from jobs.engine.queries import FAILED, Queries
from jobs.engine.rows import Frame, computed, quoted, run_concurrently, select
from jobs.engine.run_tables import words
from jobs.globs import glob_pattern
from jobs.landing.tool_outputs import ToolOutput
from jobs.nightly import fact_frames
from jobs.nightly.partition_episodes import partition_episodes
from jobs.nightly.partition_losses import partition_losses
from jobs.timelines import LEADING, ClusterFacts
from parsers.definitions import INPUT_FACTS, INPUT_TABLES
from parsers.rules import built_in
from schemas import wording

AUDITED = (
    "events",
    "partition_timeline",
    "replica_timeline",
    "reassignments",
    "topic_deletions",
    "controllers",
    "discontinuities",
    "coverage",
    "broker_outages",
    "topic_assignments",
    "broker_load",
    "durability",
    "checkpoints",
    "partitions_now",
)
# optional columns of a check: the subjects of its findings, and the outage that caused them (node null: of
# all brokers)
SUBJECTS = "ARRAY<STRUCT<topic: STRING, partition: INT, replica: INT, since: TIMESTAMP, until: TIMESTAMP>>"
OUTAGE = "STRUCT<node: INT, since: TIMESTAMP>"
# columns of a violation that its text is rendered from
OF_WORDS = ("facts", "lacking", "unheard")
# the checks that report outages; a violation that names an outage is caused by their finding
OUTAGE_CHECKS = ("broker_down", "cluster_down")


@dataclass(frozen=True)
class Clock:
    """The moment that a cluster's findings are measured against, and its incarnation."""

    cluster: str
    now: datetime | None
    incarnation: int
    kafka_version: str | None


def register(
    queries: Queries,
    audited: Mapping[str, Frame],
    clocks: list[Clock],
    facts: Mapping[str, ClusterFacts],
    *,
    thresholds: Sequence[Threshold] = (),
    slos: Sequence[Slo] = (),
) -> None:
    """Register the views and functions (`schemas/functions`) that checks read.

    Views: audited_<table> (`updates.scope`), audited_partitions_now (`updates.partitions_now`), clocks, slos,
    legal_moves, leading, partition_episodes, losses, those of `fact_frames` and of `schemas/facts`.
    """
    given = {
        table: audited[table] if table != "events" else _named_columns(audited[table]) for table in AUDITED
    }
    known = {f"audited_{table}": rows for table, rows in given.items()}
    known |= {frame.__name__: frame(facts) for frame in fact_frames.FRAMES}
    known |= {"clocks": clock_rows(clocks), "slos": slo_rows(slos), "legal_moves": _legal_moves()}
    known["leading"] = pa.table({"event_type": sorted(LEADING)})
    run_concurrently(*(partial(queries.view, name, rows) for name, rows in known.items()))
    for function in [one.sql for one in schemas.statements("functions")] + threshold_functions(thresholds):
        queries.function(function)
    fact_views: dict[str, Frame] = {}
    for fact in schemas.statements("facts"):  # sorted by name, because a later one reads an earlier one
        fact_views[fact.name] = queries.frame(fact.sql)
        queries.view(fact.name, fact_views[fact.name])
    now = {clock.cluster: clock.now for clock in clocks}
    queries.view("partition_episodes", computed(partition_episodes(given, fact_views, now, facts)))
    queries.view("losses", computed(partition_losses(audited, fact_views, facts)))


def _named_columns(events: Frame) -> Frame:
    """Return events with only the columns that checks name.

    Spark analyses every column of a view at each mention.
    """
    named = {
        word for kind in ("facts", "checks") for one in schemas.statements(kind) for word in words(one.sql)
    }
    return select(events, *(name for name in schemas.columns("events") if name in named))


def clock_rows(clocks: Iterable[Clock]) -> pa.Table:
    """Return the view `clocks`: cluster, now, incarnation, kafka_version, version_number."""
    numbers = [
        None if one.kafka_version is None else schemas.version_number(one.kafka_version) for one in clocks
    ]
    return pa.table(
        {
            "cluster": pa.array([one.cluster for one in clocks], pa.string()),
            "now": pa.array(
                [one.now and one.now.replace(tzinfo=UTC) for one in clocks], pa.timestamp("us", "UTC")
            ),
            "incarnation": pa.array([one.incarnation for one in clocks], pa.int32()),
            "kafka_version": pa.array([one.kafka_version for one in clocks], pa.string()),
            "version_number": pa.array(numbers, pa.int32()),
        }
    )


def _legal_moves() -> pa.Table:
    """Return the view `legal_moves`: machine, from_state, to_state, since (the number of a version)."""
    names = ("machine", "from_state", "to_state", "since")
    moves = (
        (one.machine, one.from_state, one.to_state, schemas.version_number(one.since))
        for one in schemas.moves()
    )
    return pa.table(list(zip(*moves, strict=True)), names=names)


def asked(
    clocks: Sequence[Clock],
    thresholds: Sequence[Threshold],
    slos: Sequence[Slo],
    silences: Sequence[Silence],
    outputs: Sequence[ToolOutput],
) -> str:
    """Return a hash of everything that findings depend on besides the tables."""
    texts = [
        statement.sql for kind in ("functions", "facts", "checks") for statement in schemas.statements(kind)
    ]
    texts += map(
        repr,
        (
            schemas.thresholds(),
            schemas.coverage(),
            schemas.cause_rules(),
            wording.wordings(),
            wording.known_commands(),
        ),
    )
    return hashlib.sha256(repr((texts, clocks, thresholds, slos, silences, outputs)).encode()).hexdigest()


def present(queries: Queries) -> set[str]:
    """Return the names in the data that a check may list in `only`.

    They are event types, kinds of episodes, states of replicas, and those of INPUT_TABLES and INPUT_FACTS
    that have rows.
    """
    kinds = [
        "SELECT event_type AS kind FROM audited_events",
        "SELECT kind FROM partition_episodes",
        "SELECT state AS kind FROM audited_replica_timeline WHERE valid_to IS NULL",
        "(SELECT 'drifted' AS kind FROM audited_events WHERE drifted LIMIT 1)",
        "(SELECT 'unknown_errors' AS kind FROM audited_events WHERE event_type IS NULL AND level IN ('ERROR', 'FATAL') LIMIT 1)",
        "(SELECT 'incarnations' AS kind FROM audited_events WHERE incarnation > 1 LIMIT 1)",
        *(f"(SELECT {quoted(table)} AS kind FROM audited_{table} LIMIT 1)" for table in INPUT_TABLES),
        *(f"(SELECT {quoted(fact)} AS kind FROM {fact} LIMIT 1)" for fact in INPUT_FACTS),
    ]
    (row,) = queries.rows(f"SELECT collect_set(kind) AS kinds FROM ({' UNION ALL '.join(kinds)})")
    return set(row["kinds"])


def slo_rows(slos: Sequence[Slo]) -> pa.Table:
    """Return the goals of audit.toml.

    Columns: number, clusters and topics (patterns), availability (percent), acks, days.
    """
    rows = [
        {
            "number": number,
            "clusters": f"^(?s:{glob_pattern(slo.cluster)})$",
            "topics": f"^(?s:{glob_pattern(slo.topic)})$",
            "availability": float(slo.availability),
            "acks": slo.acks,
            "days": slo.days,
        }
        for number, slo in enumerate(slos, 1)
    ]
    texts = [(name, pa.string()) for name in ("clusters", "topics")]
    columns = [
        ("number", pa.int32()),
        *texts,
        ("availability", pa.float64()),
        ("acks", pa.string()),
        ("days", pa.int32()),
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def threshold_functions(settings: Sequence[Threshold]) -> list[str]:
    """Return the definition of a SQL function of (cluster, topic) for each threshold of audit.toml."""
    return [
        f"CREATE OR REPLACE TEMPORARY FUNCTION {name}(cluster STRING, topic STRING) RETURNS INT RETURN "
        + threshold_sql(limit.default, [one for one in settings if one.name == name])
        for name, limit in schemas.thresholds().items()
    ]


def threshold_sql(default: int, settings: Sequence[Threshold]) -> str:
    """Return the value of one threshold as an expression over cluster and topic.

    The last setting that matches counts.
    """
    value = str(default)
    for setting in settings:
        value = f"CASE WHEN {_all_match([('cluster', setting.cluster), ('topic', setting.topic)])} THEN {setting.value} ELSE {value} END"
    return value


def _all_match(globs: Iterable[tuple[str, str]]) -> str:
    """Return the condition that columns match globs.

    It is never null: a null topic counts as an empty one.
    """
    tests = [
        f"coalesce(CAST({column} AS STRING), '') RLIKE {quoted(f'^(?s:{glob_pattern(glob)})$')}"
        for column, glob in globs
        if glob != "*"
    ]
    return " AND ".join(tests) or "true"


@dataclass(frozen=True)
class Violations:
    """The violations that the checks of one run return.

    rows: the columns of `findings` without known_as and those of a run (`finding_lifecycle.OF_RUN`), plus
    ended BOOLEAN and subjects.
    failed: check -> why it could not be run.
    """

    rows: list[dict[str, Any]]
    failed: Mapping[str, str]


def violations(queries: Queries, given: Collection[str] = ()) -> Violations:
    """Run the checks; a failed check does not affect the others.

    given: the names that `present` returns, and those of metadata_log, cluster_ids, slos that exist. A check
    with `only` runs if one of its names is given.
    """
    active = _with_candidates(
        queries, [check for check in schemas.statements("checks") if _is_given(check, given)]
    )
    failed: dict[str, str] = {}

    def found_by(some: Sequence[schemas.Statement]) -> list[dict[str, Any]]:
        try:
            return queries.rows(*(_select(check) for check in some)) if some else []
        except FAILED as error:
            if len(some) == 1:
                failed[some[0].name] = str(error).splitlines()[0]
                return []
            return [row for check in some for row in found_by([check])]

    halves = run_concurrently(*(partial(found_by, active[n::2]) for n in (0, 1)))
    found = identified(row for half in halves for row in half)
    return Violations(_with_causes(_in_order(queries, _in_words(found, _modes(queries), failed))), failed)


def _in_order(queries: Queries, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with their evidence sorted by time stamp.

    Records without one are last, equal ones keep their order.
    """
    ids = sorted({record_id for row in found for record_id in row["evidence"] or () if record_id is not None})
    if not ids:
        return found
    queries.view("quoted_records", pa.table({"record_id": pa.array(ids, pa.string())}))
    asked = """SELECT e.record_id, min(e.ts) AS ts FROM audited_events e
      JOIN quoted_records q ON q.record_id = e.record_id WHERE e.item = 0 AND e.ts IS NOT NULL GROUP BY e.record_id"""
    times = {row["record_id"]: row["ts"] for row in queries.rows(asked)}
    latest = datetime.max.replace(tzinfo=UTC)
    return [
        row | {"evidence": sorted(row["evidence"] or (), key=lambda one: times.get(one, latest))}
        for row in found
    ]


@cache
def _printed_only_by(package: str) -> frozenset[str]:
    """Return the event types that only classes of a package print."""
    return frozenset(
        rule.name
        for rule in built_in().rules
        if rule.loggers and all(logger.startswith(package) for logger in rule.loggers)
    )


def _modes(queries: Queries) -> dict[str, dict[str, Any]]:
    """Return the values that advice needs, by cluster: MODE and the commands of `schemas/commands.toml`.

    Logs of a quorum alone do not show whether it already runs the cluster (a migration, KIP-866). Advice takes it
    to do so where no ZooKeeper controller writes.
    """
    asked = """SELECT k.cluster, k.kafka_version, coalesce(bool_or(l.kraft), false) AS is_kraft
      FROM clocks k LEFT JOIN logs_seen l ON l.cluster = k.cluster GROUP BY k.cluster, k.kafka_version"""
    found = queries.rows(asked)
    if not all(row["is_kraft"] for row in found):
        seen: dict[str, set[str]] = {}
        for row in queries.rows(
            "SELECT DISTINCT cluster, event_type FROM audited_events WHERE event_type IS NOT NULL"
        ):
            seen.setdefault(row["cluster"], set()).add(row["event_type"])
        of_quorum, of_zookeeper = map(_printed_only_by, ("org.apache.kafka.controller.", "kafka.controller."))
        for row in found:
            types = seen.get(row["cluster"], set())
            row["is_kraft"] |= bool(types & of_quorum) and not types & of_zookeeper
    modes = {}
    for row in found:
        version = row["kafka_version"] and divmod(schemas.version_number(row["kafka_version"]), 10**6)
        known = (version[0], version[1] // 1000) if version else None
        mode = {name: row[name] for name in wording.MODE}
        modes[row["cluster"]] = mode | wording.commands(mode["is_kraft"], known)
    return modes


def _in_words(
    found: Sequence[Mapping[str, Any]], modes: Mapping[str, Mapping[str, Any]], failed: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the rows with title, detail and advice instead of their facts.

    Adds to `failed` each check whose templates do not fit its facts.
    """
    done = []
    for row in found:
        words = wording.wordings()[row["check_id"]]
        facts = (
            dict(modes[row["cluster"]])
            | {name: row[name] for name in wording.COLUMNS}
            | json.loads(row["facts"] or "{}")
        )
        try:
            texts = {name: wording.rendered(getattr(words, name), facts) for name in wording.TEMPLATES}
            if row["lacking"]:
                texts["detail"] += " " + wording.rendered(row["lacking"], facts | {"unheard": row["unheard"]})
        except wording.FAILED as error:
            failed[row["check_id"]] = f"its words do not fit its facts: {error}"
            continue
        done.append({name: value for name, value in row.items() if name not in OF_WORDS} | texts)
    return done


def _with_causes(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with `caused_by` instead of `outage`.

    caused_by: the fingerprint of the finding that reports the outage.
    """
    outages = {
        _outage(row, row["node"], row["first_seen"]): row["fingerprint"]
        for row in found
        if row["check_id"] in OUTAGE_CHECKS
    }
    caused = []
    for row in found:
        outage = row["outage"]
        cause = (
            outages.get(_outage(row, outage["node"], outage["since"]))
            if outage and outage["since"] is not None
            else None
        )
        caused.append({name: value for name, value in row.items() if name != "outage"} | {"caused_by": cause})
    return caused


def _outage(row: Mapping[str, Any], node: int | None, since: datetime) -> tuple[Any, ...]:
    return row["cluster"], row["incarnation"], node, since


def _is_given(check: schemas.Statement, given: Collection[str]) -> bool:
    about = check.listed("only")
    return not about or not about.isdisjoint(given)


def _with_candidates(queries: Queries, checks: Sequence[schemas.Statement]) -> list[schemas.Statement]:
    """Return the checks whose `candidates` have rows.

    `candidates` names a CTE of the query; without rows in it a check cannot find anything.
    """
    asked = [
        f"(SELECT {quoted(check.name)} AS name FROM (\n{check.part(part)}\n) LIMIT 1)"
        for check in checks
        for part in sorted(check.listed("candidates"))
    ]
    if not asked:
        return list(checks)
    try:
        found = {row["name"] for row in queries.rows(*asked)}
    except FAILED:
        return list(checks)  # a query that fails is reported when its check runs
    return [check for check in checks if check.name in found or not check.listed("candidates")]


def _select(check: schemas.Statement) -> str:
    """Return a check's query with the columns of every check.

    A conclusion is dropped or weakened where the logs that could disprove it are missing.
    """
    name = quoted(check.name)
    needs, coverage = check.needs, schemas.coverage()
    severity = "r.severity"
    lacking = "CAST(NULL AS STRING)"
    unheard = "CAST(NULL AS ARRAY<INT>)"
    source = ""
    only = ""
    if conditions := [condition for kind in needs.kinds if (condition := coverage[kind].condition)]:
        is_covered = " OR ".join(conditions)
        if "by_absence" in check.listed("also"):
            is_covered = f"NOT r.by_absence OR {is_covered}"
        is_covered = f"coalesce({is_covered}, false)"
        source = "LEFT JOIN nodes_heard h ON h.cluster = r.cluster AND h.incarnation = r.incarnation"
        if needs.otherwise is None:
            only = f"WHERE {is_covered}"
        else:
            smaller = [
                quoted(one) for one in schemas.SEVERITIES[schemas.SEVERITIES.index(needs.otherwise) + 1 :]
            ]
            severity = f"CASE WHEN NOT ({is_covered}) AND r.severity IN ({', '.join(smaller)}) THEN {quoted(needs.otherwise)} ELSE r.severity END"
            lacking = (
                f"CASE WHEN NOT ({is_covered}) THEN {quoted(coverage[needs.kinds[0]].lacking or '')} END"
            )
            unheard = "h.unheard"
    return f"""SELECT r.cluster, r.incarnation, {name} AS check_id, {severity} AS severity, r.topic, r.partition, r.replica, r.node, r.first_seen, r.last_seen,
      r.thing, {_facts(check)} AS facts, r.evidence, r.ended, {lacking} AS lacking, {unheard} AS unheard,
      {_also(check, "subjects", SUBJECTS)}, {_also(check, "outage", OUTAGE)}
    FROM (
    {check.sql}
    ) r {source} {only}"""


def _facts(check: schemas.Statement) -> str:
    """Return the columns that only a check's text uses, as one JSON object."""
    names = sorted(check.listed("facts"))
    return (
        f"to_json(struct({', '.join(f'r.{name}' for name in names)}), map('ignoreNullFields', 'false'))"
        if names
        else "CAST(NULL AS STRING)"
    )


def _also(check: schemas.Statement, column: str, kind: str) -> str:
    """Return an optional column of a check, null where its header does not name it under `also`."""
    return f"CAST({f'r.{column}' if column in check.listed('also') else 'NULL'} AS {kind}) AS {column}"
