"""Records to events: identity, time, order; what is new goes into `events`, what is out of scope is counted."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

import schemas
from jobs.ingest import Staged
from jobs.session import SMALL_INPUT
from jobs.store import Store, at_once, quoted
from parsers import compile as compiled
from parsers.layouts import layouts
from parsers.patterns import SEPARATOR
from parsers.rules import BEGINNING, RuleSet

# a longer record is stored with its first item only: a LeaderAndIsr request may name 50,000 partitions in 10 MB
LONG_RECORD = 10_000


@dataclass(frozen=True)
class Read:
    """What one run read."""

    records: int
    new: int
    out_of_scope: int
    newly_counted: int


def file_names(spark: SparkSession, source: Staged) -> DataFrame:
    """file_no INT, file STRING, file_node INT, cluster STRING, timezone STRING: what the numbers of staged files stand for."""
    rows = ", ".join(
        f"({number}, {quoted(str(file.path))}, CAST({'null' if file.node is None else file.node} AS INT), "
        f"{quoted(file.cluster)}, {quoted(file.timezone)})"
        for number, file in enumerate(source.files)
    )
    return spark.sql(f"SELECT * FROM VALUES {rows} AS t(file_no, file, file_node, cluster, timezone)")


def identify(parsed: DataFrame, names: DataFrame) -> DataFrame:
    """Gives every record its cluster, node, time and identity.

    in: parsed records (`parsers.compile.parse`) with file_no, line_no, bare; and `file_names`.
    out: record_id, cluster, node, file, file_no, record_no, ts (UTC), level, logger, layout, tail, raw, statement, spoken, in_scope.
    A record with a time stamp is told by node and text alone, so that no cut of a log can make two of it. Where the layout
    prints no time, the same text is said many times: there its count within the file is part of the identity.
    """
    of_no_node = F.coalesce(F.col("layout").isin([layout.name for layout in layouts() if layout.of_cluster]), F.lit(False))
    node = F.when(~of_no_node, F.coalesce(compiled.spoken_node(), F.col("file_node")))
    local = F.col("ts_text").try_cast("timestamp")
    has_zone = F.col("ts_text").rlike(r"(?:Z|[+\-]\d\d:?\d\d)\z")
    ts = F.when(has_zone | (F.col("timezone") == "UTC"), local).otherwise(F.to_utc_timestamp(local, F.col("timezone")))
    placed = parsed.join(F.broadcast(names), "file_no").select(
        "*", node.alias("node"), ts.alias("ts"), F.col("line_no").alias("record_no")
    )
    return placed.select(
        _record_id(F.lit("")).alias("record_id"), "cluster", "node", "file", "file_no",
        "record_no", "ts", "level", "logger", "layout", "tail", "raw", "statement", "spoken", "in_scope", "bare",
    )  # fmt: skip


def _record_id(occurrence: Column) -> Column:
    parts = [F.col("cluster"), F.coalesce(F.col("node").cast("string"), F.lit("")), F.col("raw"), occurrence]
    return F.sha2(F.concat_ws(SEPARATOR, *parts), 256)


def count_repetitions(identified: DataFrame) -> DataFrame:
    """For records without time stamps: the n-th same text of a file is another record than the first.

    in and out: as `identify` gives them.
    """
    said_before = (
        Window.partitionBy("file_no", "raw").orderBy("record_no").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    numbered = identified.select("*", F.row_number().over(said_before).cast("string").alias("occurrence"))
    columns = [name for name in identified.columns if name != "record_id"]
    return numbered.select(_record_id(F.col("occurrence")).alias("record_id"), *columns)


def first_copies(identified: DataFrame) -> DataFrame:
    """Every record once, at its first place: rotated and overlapping copies of a log hold the same records.

    in and out: as `identify` gives them.
    """
    copies = Window.partitionBy("record_id").orderBy("file_no", "record_no")
    first = copies.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = identified.select("*", F.row_number().over(first).alias("copy"))
    return ranked.filter("copy = 1").select(*identified.columns)


def to_events(unique: DataFrame, ruleset: RuleSet) -> DataFrame:
    """Events of records in scope, as the table `events` has them (incarnation 1: `incarnations` comes later)."""
    said = compiled.say(unique, ruleset)
    return said.select(
        "record_id", "item", "cluster", F.lit(1).alias("incarnation"), "node", "file", "record_no", "ts", "level",
        "logger", "layout", "event_type", "says", "drifted", *schemas.vocabulary(), "error_class", "error_message",
        F.when((F.col("item") == 0) | (F.length("raw") < LONG_RECORD), F.col("raw")).alias("raw"),
    )  # fmt: skip


def passed_over(identified: DataFrame) -> DataFrame:
    """Records out of scope. out: cluster, node, hour, logger, record (hash); one row a record, copies once."""
    rows = identified.filter("NOT in_scope").select(
        "cluster", "node", F.date_trunc("hour", "ts").alias("hour"), "logger", F.xxhash64("node", "raw").alias("record")
    )
    return rows.groupBy("cluster", "node", "hour", "logger", "record").agg(F.count("*").alias("copies"))


def land(store: Store, parsed: DataFrame, source: Staged, ruleset: RuleSet) -> Read:
    """Appends what is new to `events` and `passed_over`. Running it again adds nothing."""
    clusters = sorted({file.cluster for file in source.files})
    identified = identify(parsed, file_names(store.spark, source))
    in_scope = identified.filter("in_scope")
    if source.of_kind("bare"):
        in_scope = in_scope.filter("NOT bare").unionByName(count_repetitions(in_scope.filter("bare")))
    if sum(file.size for file in source.files) < SMALL_INPUT:
        beginnings = parsed.filter("in_scope").select(F.substring("statement", 1, BEGINNING).alias("beginning")).distinct()
        ruleset = ruleset.that_may_claim(row.beginning or "" for row in beginnings.collect())
    seen = Observation("seen")
    unique = first_copies(in_scope.observe(seen, F.count("*").alias("records")))
    known = store.rows_of("events", clusters).filter("item = 0").select("record_id")
    fresh = unique.join(known, "record_id", "left_anti")
    added = Observation("added")
    counted = Observation("counted")
    others = passed_over(identified).observe(counted, F.sum("copies").alias("records"))
    columns = ["cluster", "node", "hour", "logger", "record"]
    before = store.rows_of("passed_over", clusters)
    keys = ["cluster", "hour", "logger", "record"]
    fresh_others = others.join(before.select(*keys), keys, "left_anti").select(*columns)
    counted_now = Observation("counted_now")
    at_once(
        lambda: store.append("events", to_events(fresh.observe(added, F.count("*").alias("records")), ruleset)),
        lambda: store.append("passed_over", fresh_others.observe(counted_now, F.count("*").alias("records"))),
    )
    out_of_scope = counted.get["records"] or 0
    return Read(seen.get["records"] + out_of_scope, added.get["records"], out_of_scope, counted_now.get["records"])
