"""`reassignments`: from the written assignment that starts one to the one that ends it."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines.order import LIFE, PARTITION, in_memory, neighbours, no_ids, up_to_here
from jobs.old_timelines.partitions import ASSIGNMENT, REFUSED, assignments, length


def _same_set(one: str, other: str) -> Column:
    return F.array_sort(one) == F.array_sort(other)


def _moves() -> Column:
    """BOOLEAN: whether an assignment has replicas to add or to remove."""
    return length("adding_replicas") + length("removing_replicas") > 0


def reassignments(told: DataFrame) -> DataFrame:
    """One row a reassignment of a partition.

    in: `partitions.observations`. out: the columns of `reassignments`.
    KIP-455 (2.4 and later): a written assignment with adding or removing replicas starts one, with RS = target and then the
    originals that go; the next written assignment ends it: with nothing to add or remove it is completed if it holds the target,
    else cancelled; with something to add or remove it is a replacement. A mere change of order writes the same value twice and is
    complete at once. Up to 2.3 only RS is written; the target is in `Handling reassignment .. to new replicas`. What was refused while
    none was running never started.
    """
    in_life = neighbours(*LIFE)
    # a controller that takes over writes once more what it finds running
    assigned = F.struct(*[F.array_sort(name).alias(name) for name in ASSIGNMENT])
    again = _moves() & (assigned == F.lag(assigned).over(in_life))
    news = assignments(told).select("*", F.coalesce(again, F.lit(False)).alias("again")).filter("NOT again")
    written = news.select(
        "*",
        F.lag("replicas").over(in_life).alias("before"),
        F.lead("replicas").over(in_life).alias("after"),
        F.lead("ts").over(in_life).alias("after_ts"),
        F.lead("pos").over(in_life).alias("after_pos"),
        (length(F.lead("adding_replicas").over(in_life)) + length(F.lead("removing_replicas").over(in_life)) > 0).alias("after_moves"),
        (length(F.lag("adding_replicas").over(in_life)) + length(F.lag("removing_replicas").over(in_life)) > 0).alias("before_moves"),
    )  # fmt: skip
    target = F.array_except("replicas", "removing_replicas")
    original = F.when(
        F.coalesce("before_moves", F.lit(False)) | F.col("before").isNull(), F.array_except("replicas", "adding_replicas")
    )
    started = in_memory(written.filter(_moves()).select(
        *LIFE, "pos", "ts", "record_id", "adding_replicas", "removing_replicas", "after", "after_ts", "after_pos", "after_moves",
        F.coalesce(original, F.col("before")).alias("original_replicas"),
        target.alias("target_replicas"),
    ))  # fmt: skip
    # in KRaft the record that completes it is the one in which the ISR holds the last of them
    in_kraft = (F.col("event_type") == "registration") & F.col("isr").isNotNull()
    caught = told.filter(F.col("caught_up") | in_kraft).select(
        *LIFE,
        F.col("pos").alias("caught_pos"),
        F.col("ts").alias("caught_ts"),
        F.when(in_kraft, F.col("isr")).alias("caught_isr"),
    )
    before_end = F.col("after_pos").isNull() | (F.col("caught_pos") <= F.col("after_pos"))
    all_in = F.col("caught_isr").isNull() | (F.size(F.array_except("target_replicas", "caught_isr")) == 0)
    during = (F.col("caught_pos") > F.col("pos")) & before_end & all_in
    caught_up = (
        started.join(caught, list(LIFE)).filter(during).groupBy(*LIFE, "pos").agg(F.min("caught_ts").alias("caught_up_at"))
    )
    outcome = (
        F.when(F.col("after").isNull(), "in_progress")
        .when(F.col("after_moves"), "replaced")
        .when(_same_set("after", "target_replicas"), "completed")
        .otherwise("cancelled")
    )
    begun = started.join(caught_up, [*LIFE, "pos"], "left").select(
        *PARTITION,
        F.col("ts").alias("started_at"),
        "caught_up_at",
        F.when(outcome == "completed", F.col("after_ts")).alias("completed_at"),
        "original_replicas", "target_replicas", "adding_replicas", "removing_replicas",
        outcome.alias("outcome"),
        "record_id",
    )  # fmt: skip
    return begun if told.filter(F.col("event_type").isin(*REFUSED)).isEmpty() else begun.unionByName(never_started(told))


def never_started(told: DataFrame) -> DataFrame:
    """One row a request that was refused while no reassignment of the partition was running.

    in: `partitions.observations`. out: the columns of `reassignments`; started_at is when it was refused. 2.4 and later refuse in one
    line, and once more in another where the request stood in ZooKeeper.
    """
    nothing = [no_ids().alias(name) for name in ASSIGNMENT[1:]]
    marks = assignments(told).select(
        *LIFE, "pos", "ts", "record_id", *ASSIGNMENT, F.lit(None).cast("array<int>").alias("target_replicas"), F.lit("assigned").alias("mark")
    )  # fmt: skip
    refused = F.col("event_type").isin(*REFUSED)
    asked = told.filter(refused | (F.col("event_type") == "reassignment_requested")).select(
        *LIFE, "pos", "ts", "record_id",
        *[F.lit(None).cast("array<int>").alias(name) for name in ASSIGNMENT],
        "target_replicas",
        F.when(refused, F.col("event_type")).otherwise("requested").alias("mark"),
    )  # fmt: skip
    so_far, in_life = up_to_here(*LIFE), neighbours(*LIFE)
    is_assigned = F.col("mark") == "assigned"

    def last_written(value: Column) -> Column:
        return F.last(F.when(is_assigned, value), ignorenulls=True).over(so_far)

    in_order = marks.unionByName(asked).select(
        "*",
        last_written(F.col("replicas")).alias("held"),
        F.coalesce(last_written(_moves()), F.lit(False)).alias("running"),
        # the request right before is the one that is refused
        F.when(F.lag("mark").over(in_life) == "requested", F.lag("target_replicas").over(in_life)).alias("requested_replicas"),
        ((F.col("mark") == REFUSED[1]) & (F.lag("mark").over(in_life) == REFUSED[0])).alias("said_before"),
    )
    first_refusals = in_order.filter(F.col("mark").isin(*REFUSED) & ~F.col("running") & ~F.coalesce("said_before", F.lit(False)))
    return first_refusals.select(
        *PARTITION,
        F.col("ts").alias("started_at"),
        *[F.lit(None).cast("timestamp").alias(name) for name in ("caught_up_at", "completed_at")],
        F.col("held").alias("original_replicas"),
        F.coalesce("target_replicas", "requested_replicas").alias("target_replicas"),
        *nothing,
        F.lit("never_started").alias("outcome"),
        "record_id",
    )
