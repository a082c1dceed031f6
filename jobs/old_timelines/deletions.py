"""`topic_deletions`: from the request to the completion, with what held it up."""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.old_timelines.order import in_memory, position, up_to_here

TOPIC = ("cluster", "incarnation", "topic")
# a controller prints these about a topic whose deletion is asked for, running, waiting or found pending at its start
SIGNS = ("deletion_requested", "deletion_starting", "deletion_started", "deletion_handled", "deletion_halted", "deletion_pending",
         "deletion_retried", "deletion_dead_replicas", "deletion_failed", "deletion_resumed")  # fmt: skip
BLOCKING = ("deletion_dead_replicas", "deletion_failed")


def _roles() -> dict[str, Column]:
    """What an event says about the deletion of its topic, as conditions."""
    ineligible = (F.col("to_state") == "ReplicaDeletionIneligible") & F.col("says").isin("happened", "failed")
    return {
        "sign": F.col("event_type").isin(*SIGNS) & (F.col("says") != "failed"),
        "completed": F.col("event_type") == "deletion_completed",
        "blocking": (F.col("event_type").isin(*BLOCKING) | ineligible) & F.col("replica").isNotNull(),
    }


def signs(events: DataFrame) -> DataFrame:
    """Those events that tell about the deletion of a topic. in and out: events."""
    return events.filter("topic IS NOT NULL").filter(reduce(or_, _roles().values()))


def deletions(events: DataFrame) -> DataFrame:
    """One row a deletion.

    in: events with file_ts. out: the columns of `topic_deletions`.
    A deletion ends with `Deletion of topic .. successfully completed`; signs after that belong to the next one. What blocks it:
    replicas that the Topic Deletion Manager calls dead or failed, replicas that move to ReplicaDeletionIneligible, and up to 2.2 those
    that the controller would move there and may not (the state machine of those versions lacks the move). Replicas that a
    starting controller merely finds on a dead broker are set to the same state and do not count.
    """
    told = in_memory(signs(events).select("*", F.lit(1).alias("tie")))
    roles = _roles()
    completed = roles["completed"]
    so_far = up_to_here(*TOPIC, order=position())
    numbered = told.select(
        *TOPIC, "ts", "record_id", "partition", "replica",
        *[condition.alias(name) for name, condition in roles.items()],
        F.row_number().over(so_far).alias("pos"),
        (F.count_if(completed).over(so_far) - F.when(completed, 1).otherwise(0)).alias("number"),
    )  # fmt: skip
    blocked = F.col("blocking")
    grouped = numbered.groupBy(*TOPIC, "number").agg(
        F.min(F.when(F.col("sign"), F.col("pos"))).alias("first_sign"),
        F.min(F.when(F.col("sign"), F.col("ts"))).alias("requested_at"),
        F.min_by("record_id", F.when(F.col("sign"), F.col("pos"))).alias("sign_record"),
        F.max(F.when(F.col("completed"), F.col("ts"))).alias("completed_at"),
        F.max_by("record_id", F.when(F.col("completed"), F.col("pos"))).alias("completion"),
        F.min(F.when(blocked, F.col("ts"))).alias("blocked_since"),
        F.array_sort(F.collect_set(F.when(blocked, F.struct("partition", "replica")))).alias("blocked_by"),
        F.array_distinct(
            F.array_sort(F.collect_list(F.when(blocked, F.struct("pos", "record_id")))).getField("record_id")
        ).alias("blocking_records"),
    )  # fmt: skip
    known = F.col("first_sign").isNotNull() | F.col("completion").isNotNull()
    outcome = F.when(F.col("completion").isNotNull(), "completed").when(F.size("blocked_by") > 0, "blocked").otherwise("pending")
    return grouped.filter(known).select(
        *TOPIC, "requested_at", "completed_at", "blocked_by", "blocked_since",
        outcome.alias("outcome"),
        F.coalesce("sign_record", "completion").alias("record_id"),
        F.slice(F.array_compact(F.array_append("blocking_records", F.col("completion"))), 1, 50).alias("evidence"),
    )  # fmt: skip
