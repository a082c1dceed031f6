"""`controllers`: the reigns."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines.order import elects, in_memory, neighbours

REIGN = ("cluster", "incarnation", "controller_epoch")


def speaks() -> Column:
    """Whether an event is a line that a controller printed in an epoch of its own."""
    return F.col("event_type").isNotNull() & F.col("controller_epoch").isNotNull() & (F.col("controller") == F.col("node"))


def reigns(events: DataFrame) -> DataFrame:
    """One row a controller epoch.

    in: events with file_ts and overruled. out: the columns of `controllers`.
    A reign begins with `.. successfully elected as the controller. Epoch incremented to ..` (up to 2.0: `Epoch incremented to ..`);
    where no log has that, its first line in that epoch shows that it was. Every broker prints `Resigned` when it stops; it ends
    a reign only of the broker that had one.
    """
    elected = elects()
    first_of = ("ts", "log", "file_ts", "file", "record_no")
    known = (
        events.filter(speaks())
        .groupBy(*REIGN, "node")
        .agg(
            F.min(F.when(elected, F.col("ts"))).alias("elected_at"),
            F.count_if(elected).alias("elections"),
            F.min_by("record_id", F.when(elected, F.struct(*first_of))).alias("election"),
            F.min("ts").alias("first_at"),
            F.min_by("record_id", F.struct(*first_of)).alias("first"),
            F.count_if("overruled").alias("overruled"),
        )
    )
    by_node = neighbours("cluster", "incarnation", "node", order=[F.asc("controller_epoch")])
    begun = in_memory(known).select(
        *REIGN, "node", "elected_at", "first_at",
        F.lead("first_at").over(by_node).alias("next_at"),
        (F.col("elections") == 0).alias("inferred"),
        F.coalesce("election", "first").alias("record_id"),
        "overruled",
    )  # fmt: skip
    resigned = events.filter("event_type = 'controller_resigned'").select(
        "cluster", "incarnation", "node", F.col("ts").alias("resigned_ts")
    )
    within = (F.col("resigned_ts") >= F.col("first_at")) & (F.col("next_at").isNull() | (F.col("resigned_ts") < F.col("next_at")))
    ended = (
        begun.join(resigned, ["cluster", "incarnation", "node"])
        .filter(within)
        .groupBy(*REIGN, "node")
        .agg(F.min("resigned_ts").alias("resigned_at"))
    )
    return begun.join(ended, [*REIGN, "node"], "left").select(
        "cluster",
        "incarnation",
        "node",
        "controller_epoch",
        "elected_at",
        "resigned_at",
        "inferred",
        "record_id",
        "overruled",
    )
