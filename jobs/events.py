"""Records to events: identity, time, order; what is new goes into `events`, what is out of scope is counted."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from jobs.errors import ConservationError
from jobs.ingest import Part, Staged, Survey, line_hash, sized
from jobs.session import SMALL_INPUT
from jobs.store import Store, quoted
from parsers import compile as compiled
from parsers.layouts import Layout
from parsers.patterns import SEPARATOR
from parsers.rules import RuleSet


@dataclass(frozen=True)
class Read:
    """What one run read. new = recognised + unrecognised + drifted; records = new + known before + out_of_scope.

    unfinished: records at the end of a file that are not written out; they are read when they are.
    completed: records of earlier runs that were cut short, and are whole now.
    """

    records: int
    new: int
    recognised: int
    unrecognised: int
    drifted: int
    out_of_scope: int
    newly_counted: int
    unfinished: int
    completed: int


def file_names(spark: SparkSession, source: Staged, parts: Iterable[Part]) -> DataFrame:
    """What the numbers of staged files stand for.

    out: file_no INT, file STRING, file_node INT, cluster STRING, timezone STRING, open_line BIGINT (its last line if that has no
    end, or null).
    """
    last_lines = {number: line for part in parts for number, line in part.survey.last_lines.items()}

    def number(value: int | None, kind: str) -> str:
        return f"CAST({'null' if value is None else value} AS {kind})"

    rows = ", ".join(
        f"({n}, {quoted(str(file.path))}, {number(file.node, 'INT')}, {quoted(file.cluster)}, {quoted(file.timezone)}, "
        f"{number(last_lines.get(n) if file.open_end else None, 'BIGINT')})"
        for n, file in enumerate(source.files)
    )
    return spark.sql(f"SELECT * FROM VALUES {rows} AS t(file_no, file, file_node, cluster, timezone, open_line)")


def identify(parsed: DataFrame, names: DataFrame, layouts: Iterable[Layout]) -> DataFrame:
    """Gives every record its cluster, node, time and identity.

    in: parsed records (`parsers.compile.parse`) with file_no, line_no; `file_names`; the layouts that they have.
    out: record_id, cluster, node, file, file_no, record_no, ts (UTC), day (as printed), level, logger, layout, tail, raw, statement,
    spoken, in_scope, unfinished (a last line without an end, of which no layout takes the whole).
    A record with a time stamp is told by node and text alone, so that no cut of a log can make two of it. Where the layout
    prints no time, the same text is said many times: there its count within the file is part of the identity.
    """
    node = F.coalesce(compiled.spoken_node(), F.col("file_node"))
    if of_no_node := [layout.name for layout in layouts if layout.of_cluster]:
        node = F.when(~F.coalesce(F.col("layout").isin(of_no_node), F.lit(False)), node)
    local = F.col("ts_text").try_cast("timestamp")
    has_zone = ~F.col("ts_text").rlike(r"\A\S+ [\d:.]+\z")
    ts = F.when((F.col("timezone") == "UTC") | has_zone, local).otherwise(F.to_utc_timestamp(local, F.col("timezone")))
    placed = parsed.join(F.broadcast(names), "file_no").select(
        "*", node.alias("node"), ts.alias("ts"), F.col("line_no").alias("record_no")
    )
    return placed.select(
        _record_id(F.lit("")).alias("record_id"), "cluster", "node", "file", "file_no",
        "record_no", "ts", "level", "logger", "layout", "tail", "raw", "statement", "spoken", "in_scope",
        (F.col("logger").isNull() & F.col("line_no").eqNullSafe(F.col("open_line"))).alias("unfinished"),
        F.substring("ts_text", 1, 10).alias("day"),
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


def copies(identified: DataFrame, known: DataFrame | None, wanted: Column, *, bare: bool, small: bool) -> DataFrame:
    """Records that stand elsewhere already, be it whole or as the beginning of another: a stack trace that was still being written.

    in: as `identify` gives them; known: record_id, cluster, node, raw of earlier runs. out: file_no, record_no, and record_id if it
    is of an earlier run (file_no null). wanted: whether a record is to be landed, as a condition: what is not makes no other a copy of
    an earlier run. bare: the same text is said many times, only the identity tells. small: the records are few.
    """
    first_line = line_hash(F.substring_index("raw", "\n", 1))
    columns = ["cluster", "node", "record_id", "raw", (F.col("record_id") if bare else first_line).alias("key")]
    met = identified.filter("NOT unfinished").select(*columns, "file_no", "record_no", "in_scope", wanted.alias("wanted"))
    if known is not None:
        place = [F.lit(None).cast(kind).alias(name) for name, kind in (("file_no", "int"), ("record_no", "bigint"))]
        keys = met.select("key")
        met_again = known.select(*columns).join(F.broadcast(keys) if small else keys, "key", "left_semi")
        met = met.unionByName(met_again.select("*", *place, F.lit(True).alias("in_scope"), F.lit(True).alias("wanted")))
    # of texts in falling order, all that begin with one stand right before it
    same = Window.partitionBy("cluster", "node", "key").orderBy(
        F.desc("raw"), F.asc_nulls_first("file_no"), F.asc("record_no"), F.asc("record_id")
    )
    longer = F.lag("raw").over(same).startswith(F.col("raw")) & (F.col("file_no").isNotNull() | F.lag("wanted").over(same))
    again = F.coalesce(longer, F.lit(False))
    return met.select("file_no", "record_no", "record_id", "in_scope", again.alias("again")).filter("again AND in_scope").select(
        "file_no", "record_no", F.when(F.col("file_no").isNull(), F.col("record_id")).alias("record_id")
    )  # fmt: skip


def to_events(unique: DataFrame, ruleset: RuleSet) -> DataFrame:
    """Events of records in scope, as the table `events` has them (incarnation 1: `incarnations` comes later), without the columns
    that none of the rules fills: nulls take time to write, too."""
    said = compiled.say(unique, ruleset)
    return said.select(
        "record_id", "item", "cluster", F.lit(1).alias("incarnation"), "node", "file", "record_no", "ts", "level",
        "logger", "layout", "event_type", "says", "drifted", *compiled.told_columns(ruleset), "error_class", "error_message",
        "statement", "raw",
    )  # fmt: skip


def passed_over(identified: DataFrame) -> DataFrame:
    """Records out of scope. out: cluster, node, hour, logger, layout, record (hash); one row a record, copies once."""
    rows = identified.filter("NOT in_scope").select(
        "cluster", "node", F.date_trunc("hour", "ts").alias("hour"), "logger", "layout",
        # the first line: the rest may not have been written out in one of the copies
        F.xxhash64("node", F.substring_index("raw", "\n", 1)).alias("record"),
    )  # fmt: skip
    return rows.groupBy("cluster", "node", "hour", "logger", "layout", "record").agg(F.count("*").alias("copies"))


def _known(store: Store, clusters: list[str], survey: Survey) -> DataFrame:
    """Records that earlier runs have landed and this one may meet again. out: record_id, cluster, node, raw."""
    rows = store.rows_of("events", clusters).filter("item = 0")
    if survey.first_day and survey.last_day:  # a zone moves a day by one at most
        first, last = survey.first_day - timedelta(days=2), survey.last_day + timedelta(days=3)
        rows = rows.filter(F.col("ts").isNull() | F.col("ts").between(F.lit(first), F.lit(last)))
    return rows.select("record_id", "cluster", "node", "raw")


def _suspects(part: Part, known: DataFrame | None) -> DataFrame | None:
    """Records whose first line stands elsewhere, too; None where there are none. in and out: as `jobs.ingest.records` gives them.

    Most nights bring nothing twice: a hash of the first lines says so, long before records are parsed and compared.
    """
    hashes = part.survey.repeated
    if known is not None:
        first_lines = known.select(line_hash(F.substring_index("raw", "\n", 1)).alias("hash"))
        met = part.records.select(line_hash("head").alias("hash"))
        again = met.join(first_lines, "hash", "left_semi").distinct().localCheckpoint()
        if count := again.count():
            if hashes is not None:
                again = again.unionByName(hashes).distinct().localCheckpoint()
                count = again.count()
            hashes = sized(again, count)
    if hashes is None:
        return None
    keyed = part.records.select("*", line_hash("head").alias("hash"))
    return keyed.join(hashes, "hash", "left_semi").select(*part.records.columns)


def _new_records(
    part: Part, names: DataFrame, known: DataFrame | None, ruleset: RuleSet, *, wanted: Column, small: bool
) -> tuple[DataFrame, int, list[str]]:
    """(identified records without those in scope that stand elsewhere already, how many these are, ids of known ones cut short).

    wanted: as `copies` takes it. small: they are parsed once and kept; else only those that may be copies are parsed twice.
    """

    def identified(records: DataFrame) -> DataFrame:
        found = identify(compiled.parse(records, ruleset, part.survey.layouts), names, part.survey.layouts)
        return count_repetitions(found) if part.bare else found

    rows = identified(part.records)
    if small:
        rows = rows.localCheckpoint()
    compared: DataFrame | None = rows
    # without time stamps the same text is said many times: only a count within its file tells
    if not part.bare and known is None and part.survey.repeated is None:
        compared = None
    elif not part.bare and not small:
        suspects = _suspects(part, known)
        compared = None if suspects is None else identified(suspects)
    if compared is None:
        return rows, 0, []
    held = copies(compared, known, wanted, bare=part.bare, small=small).localCheckpoint()
    found = held.agg(F.count("file_no").alias("met"), F.collect_list("record_id").alias("cut_short")).first()
    assert found is not None
    left = rows.join(sized(held, found.met), ["file_no", "record_no"], "left_anti") if found.met else rows
    return left, found.met, found.cut_short


def _in_days(days: tuple[date, date] | None) -> Column:
    """Whether a record is of these days, in the zone of its log; one without a time stamp is."""
    if days is None:
        return F.lit(True)
    return F.col("day").isNull() | F.col("day").between(*(day.isoformat() for day in days))


def land(store: Store, parts: list[Part], source: Staged, ruleset: RuleSet, days: tuple[date, date] | None = None) -> Read:
    """Appends what is new to `events` and `passed_over`; running it again adds nothing.

    days: only records of these, both included. Raises ConservationError where records were lost on the way.
    """
    clusters = sorted({file.cluster for file in source.files})
    begun = [part.survey.beginnings for part in parts]
    if all(some is not None for some in begun):
        ruleset = ruleset.that_may_claim(text for some in begun for text in some or ())
    names = file_names(store.spark, source, parts)
    small = sum(file.length for file in source.files) < SMALL_INPUT
    frames, held = [], 0
    cut_short: list[str] = []
    for part in parts:
        known = None if store.has_none("events") else _known(store, clusters, part.survey)
        rows, count, completed = _new_records(part, names, known, ruleset, wanted=_in_days(days), small=small)
        frames.append(rows)
        held += count
        cut_short += completed
    identified = frames[0]
    for frame in frames[1:]:
        identified = identified.unionByName(frame)
    in_days = identified.select("*", (_in_days(days) & ~F.col("unfinished")).alias("in_days"))
    total = sum(part.survey.records for part in parts)
    if cut_short:
        store.delete("events", f"record_id IN ({', '.join(map(quoted, cut_short))})")
    met, told = _write(store, in_days, ruleset, probe=2 * held > total)
    conserve("records read", total, met["records"] + held)
    conserve("new records in scope", met["in_scope"], sum(told.values()))
    newly_counted = 0
    if met["out_of_scope"]:
        newly_counted = _count(store, clusters, in_days.filter("in_days"), met["out_of_scope"])
    return Read(
        records=met["in_scope"] + met["out_of_scope"] + held,
        new=met["in_scope"],
        recognised=told.get("recognised", 0),
        unrecognised=told.get("unrecognised", 0),
        drifted=told.get("drifted", 0),
        out_of_scope=met["out_of_scope"],
        newly_counted=newly_counted,
        unfinished=met["unfinished"],
        completed=len(cut_short),
    )


def _write(store: Store, in_days: DataFrame, ruleset: RuleSet, probe: bool) -> tuple[dict[str, int], dict[str, int]]:
    """(records met: records, in_scope, out_of_scope, unfinished; of those in scope recognised, unrecognised, drifted); the latter are appended.

    probe: look first whether there are any; that takes less than to prepare for all statements.
    """
    counts = [
        F.count("*").alias("records"),
        F.count_if(F.expr("in_scope AND in_days")).alias("in_scope"),
        F.count_if(F.expr("NOT in_scope AND in_days")).alias("out_of_scope"),
        F.count_if("unfinished").alias("unfinished"),
    ]
    if probe:
        met = in_days.agg(*counts).first()
        assert met is not None
        if not met.in_scope:
            return met.asDict(), {}
    seen, landed = Observation("seen"), Observation("landed")
    whole = F.col("item") == 0
    written = to_events(in_days.observe(seen, *counts).filter("in_scope AND in_days"), ruleset).observe(
        landed,
        F.count_if(whole & F.col("event_type").isNotNull()).alias("recognised"),
        F.count_if(whole & F.col("drifted")).alias("drifted"),
        F.count_if(whole & F.col("event_type").isNull() & ~F.col("drifted")).alias("unrecognised"),
    )
    store.append("events", written)
    return seen.get, landed.get


def _count(store: Store, clusters: list[str], identified: DataFrame, expected: int) -> int:
    """Counts records out of scope, copies once, in `passed_over`; returns how many are new there."""
    counted = Observation("counted")
    others = passed_over(identified).observe(counted, F.sum("copies").alias("records"))
    keys = ["cluster", "hour", "logger", "record"]
    columns = ("cluster", "node", "hour", "logger", "layout", "record")
    new = others
    if not store.has_none("passed_over"):
        before = store.rows_of("passed_over", clusters).select(*[F.col(key).alias(f"known_{key}") for key in keys])
        same = reduce(and_, (F.col(key).eqNullSafe(F.col(f"known_{key}")) for key in keys))
        new = others.join(before, same, "left_anti")
    new = new.select(*columns).localCheckpoint()
    conserve("records out of scope", expected, counted.get["records"])
    if count := new.count():
        store.append("passed_over", new)
    return count


def conserve(what: str, expected: int, found: int) -> None:
    """Raises ConservationError unless the numbers are the same: no record may be lost, nor be counted twice."""
    if found != expected:
        raise ConservationError(f"{expected:,} {what}, but {found:,} of them accounted for; please report this with the log")
