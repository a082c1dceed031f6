"""What leaders wrote into the state znode themselves, up to Kafka 2.3, which prints the wish to and not that it was done.

`Expanding ISR from 1,2 to 1,2,3` is printed before the write; `Cached zkVersion .. skip updating ISR` says that it was refused. A write
of the controller raises the leader epoch and the partition epoch by one, one of the leader the partition epoch alone, and a leader writes
on condition that the partition epoch is the one it knows. So the n-th wish since the leader epoch began makes its partition epoch plus n.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.old_timelines.order import LIFE, all_of, neighbours, up_to_here

WISHED = ("isr_shrinking", "isr_expanding")
ANSWERED = ("isr_updated", "isr_write_refused", "isr_update_failed")


def unanswered(told: DataFrame) -> DataFrame:
    """Wishes of which no line tells what became of them.

    in: `partitions.observations`. out: its columns that tell who wished what, and where and when.
    """
    line = (*LIFE, "pos", "ts", "record_id", "event_type", "writer", "previous_isr", "wanted_isr")
    following = F.lead("event_type").over(neighbours(*LIFE, "writer"))
    lines = told.filter("writer IS NOT NULL").select(*line, following.alias("following"))
    silent = F.col("following").isNull() | F.col("following").isin(*WISHED)
    return lines.filter(F.col("event_type").isin(*WISHED) & silent).select(*line)


def _same_set(one: Column, other: Column) -> Column:
    return F.coalesce(F.array_sort(one) == F.array_sort(other), F.lit(False))


def leader_writes(wishes: DataFrame, printed: DataFrame) -> DataFrame:
    """States that wishes led to, one row each.

    wishes: as `unanswered` gives them; printed: the states whose partition epoch a line prints, one row each. out: cluster, incarnation, topic,
    partition, life, pos, ts (of the wish), proof_pos, proof_ts (of the leader's next wish, which begins with what this one wanted; null
    where a later state proves it), record_id, event_type, leader, leader_epoch, isr, partition_epoch, proven.
    A wish counts where it begins with the ISR of its leader epoch or of the wish before it. It is proven by the next wish, or by a later
    state whose two epochs leave room for it; if neither is there and nothing later is known, it is likely and no more.
    """
    nothing = {
        "ts": "timestamp", "record_id": "string", "event_type": "string", "writer": "int",
        "previous_isr": "array<int>", "wanted_isr": "array<int>",
    }  # fmt: skip
    state = F.struct("leader", "isr", "partition_epoch", "pos")
    states = printed.filter("leader_epoch IS NOT NULL").select(
        *LIFE, "pos", *[F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()],
        "leader_epoch", state.alias("state"),
    )  # fmt: skip
    wanted = wishes.select(
        *LIFE, "pos", *nothing, F.lit(None).cast("int").alias("leader_epoch"),
        F.lit(None).cast(states.schema["state"].dataType).alias("state"),
    )  # fmt: skip
    together = states.unionByName(wanted).select(
        *LIFE, "pos", *nothing, "state",
        F.coalesce("leader_epoch", F.max("leader_epoch").over(up_to_here(*LIFE))).alias("leader_epoch"),
    )  # fmt: skip
    by_epoch = Window.partitionBy(*LIFE).orderBy("leader_epoch")
    later = by_epoch.rangeBetween(1, Window.unboundedFollowing)
    writes = F.col("state.partition_epoch") - F.when(F.col("state").isNotNull(), F.col("leader_epoch"))
    placed = together.select(
        "*",
        F.min_by("state", "state.partition_epoch").over(all_of(*LIFE, "leader_epoch")).alias("begun"),
        F.min("state.partition_epoch").over(later).alias("later_epoch"),
        # by leaders, since the partition was created
        F.max(writes).over(by_epoch.rangeBetween(0, 1)).alias("writes"),
    ).filter("writer IS NOT NULL AND leader_epoch IS NOT NULL")  # fmt: skip
    in_epoch = neighbours(*LIFE, "leader_epoch")
    first = F.lag("writer").over(in_epoch).isNull()
    begins = (F.col("begun.leader") == F.col("writer")) & _same_set(F.col("begun.isr"), F.col("previous_isr"))
    goes_on = (F.lag("writer").over(in_epoch) == F.col("writer")) & _same_set(
        F.lag("wanted_isr").over(in_epoch), F.col("previous_isr")
    )
    linked = placed.select("*", F.coalesce(F.when(first, begins).otherwise(goes_on), F.lit(False)).alias("linked"))
    so_far = up_to_here(*LIFE, "leader_epoch")
    numbered = linked.select(
        "*",
        F.bool_and("linked").over(so_far).alias("whole"),
        (F.col("begun.partition_epoch") + F.row_number().over(so_far)).alias("partition_epoch"),
        F.lead("linked").over(in_epoch).alias("next_linked"),
        F.lead("pos").over(in_epoch).alias("next_pos"),
        F.lead("ts").over(in_epoch).alias("next_ts"),
    )  # fmt: skip
    fits = F.col("later_epoch").isNull() | (F.col("partition_epoch") < F.col("later_epoch"))
    by_state = F.coalesce(F.col("writes") >= F.col("partition_epoch") - F.col("leader_epoch"), F.lit(False))
    by_next = F.coalesce("next_linked", F.lit(False))
    likely = F.col("later_epoch").isNull() & F.col("next_linked").isNull()
    return numbered.filter(F.col("whole") & fits & (by_next | by_state | likely)).select(
        *LIFE, "pos", "ts",
        F.when(by_next, F.col("next_pos")).alias("proof_pos"),
        F.when(by_next, F.col("next_ts")).alias("proof_ts"),
        "record_id", "event_type", F.col("writer").alias("leader"), "leader_epoch", F.col("wanted_isr").alias("isr"), "partition_epoch",
        (by_next | by_state).alias("proven"),
    )  # fmt: skip
