"""`partition_timeline`: who led, what was in sync and what was assigned, for every partition at every moment.

Three things change, each told by lines of its own: the state znode (leader, leader epoch, ISR; its version is the partition
epoch), the assignment (RS, AR, RR) and the controller's partition state. States with a partition epoch are ordered by it, whatever
clock wrote them; the rest by time.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.old_timelines.leader_writes import ANSWERED, WISHED, leader_writes, unanswered
from jobs.old_timelines.order import LIFE, PARTITION, moments_of_cluster, neighbours, no_ids, position, up_to_here

LEADER_DURING_DELETE = -2
ZNODE = ("leader", "leader_epoch", "isr", "partition_epoch")
ASSIGNMENT = ("replicas", "adding_replicas", "removing_replicas")
# of a reassignment (KafkaController.maybeTriggerPartitionReassignment)
REFUSED = ("reassignment_failed", "reassignments_refused")
VALUES = (*ZNODE, *ASSIGNMENT, "state", "reassignment_phase")


def length(ids: str | Column) -> Column:
    """How many ids a list has; 0 where it is not known."""
    return F.coalesce(F.size(ids), F.lit(0))


def _is_partition_state(column: str) -> Column:
    return F.col(column).isin("NewPartition", "OnlinePartition", "OfflinePartition", "NonExistentPartition")


def observations(events: DataFrame, rules: DataFrame, registrations: DataFrame | None = None) -> DataFrame:
    """What single events assert about a partition.

    in: events (of any cluster) with file_ts; rules: event_type, keeps ARRAY<STRING>; registrations: what KRaft clusters tell,
    with the columns of `of_kraft`, instead of their events.
    out: cluster, incarnation, topic, partition, life, pos, ts, record_id, says, event_type, from_state, state, caught_up, deleted,
    keeps, znode columns, assignment columns, writer, previous_isr, wanted_isr. `life` counts the creations of the partition, `pos` orders its observations.
    """
    about = F.col("topic").isNotNull() & F.col("partition").isNotNull()
    present = F.col("says").isin("happened", "is")
    znode = present & (F.coalesce("leader", F.lit(0)) != LEADER_DURING_DELETE)
    has_znode = (
        F.coalesce(F.col("leader"), F.col("leader_epoch"), F.col("partition_epoch")).isNotNull() | F.col("isr").isNotNull()
    )
    changed_state = (F.col("says") == "happened") & F.col("replica").isNull() & _is_partition_state("to_state")
    unchanged_state = (F.col("says") == "failed") & F.col("replica").isNull() & _is_partition_state("from_state")
    printed_state = (F.col("says") == "is") & F.col("replica").isNull() & _is_partition_state("to_state")
    state = F.when(changed_state | printed_state, F.col("to_state")).when(unchanged_state, F.col("from_state"))
    assigned = F.col("replicas").isNotNull() & present
    caught_up = F.col("event_type") == "reassignment_caught_up"
    requested = F.col("event_type") == "reassignment_requested"
    # a controller that has moved leaves what was asked of it to its successor
    moved = F.coalesce(F.col("text").startswith("because controller has moved"), F.lit(False))
    refused = F.col("event_type").isin(*REFUSED) & ~moved
    wished = F.col("event_type").isin(*WISHED)
    by_leader = wished | F.col("event_type").isin(*ANSWERED)
    # a controller writes both files from one thread, but within a millisecond only Kafka's own order tells: a reassignment
    # is written before the epochs that it raises and taken back after all of them
    starts_reassignment = assigned & (length("adding_replicas") + length("removing_replicas") > 0)
    ends_reassignment = assigned & (F.col("event_type") == "assignment_updated") & ~starts_reassignment
    told = (
        events.filter(about & (znode & has_znode | state.isNotNull() | assigned | caught_up | requested | refused | by_leader))
        .join(F.broadcast(rules), "event_type", "left")
        .select(
            *PARTITION, "ts", "node", "log", "file_ts", "file", "record_no", "item", "record_id", "says", "event_type", "from_state",
            state.alias("state"),
            caught_up.alias("caught_up"),
            F.lit(False).alias("deleted"),
            "keeps",
            *[F.when(znode & has_znode, F.col(name)).alias(name) for name in ZNODE],
            *[F.when(assigned, F.col(name)).alias(name) for name in ASSIGNMENT],
            F.when(requested | refused, F.col("target_replicas")).alias("target_replicas"),
            F.when(by_leader, F.coalesce("broker", "node")).alias("writer"),
            F.when(wished, F.col("previous_isr")).alias("previous_isr"),
            F.when(wished, F.col("isr")).alias("wanted_isr"),
            F.when(starts_reassignment, 0).when(ends_reassignment, 2).otherwise(1).alias("tie"),
        )
    )  # fmt: skip
    # what is asked of a partition does not make it one
    known = told.filter(~F.col("event_type").isin(*REFUSED))
    gone = (
        events.filter("event_type = 'deletion_completed' AND topic IS NOT NULL")
        .select("cluster", "incarnation", "topic", "ts", "node", "log", "file_ts", "file", "record_no", "item", "record_id", "says", "event_type")
        .join(known.groupBy(*PARTITION).agg(F.min("ts").alias("known_from")), ["cluster", "incarnation", "topic"])
        .filter("ts IS NULL OR known_from <= ts")
        .select(
            *PARTITION, "ts", "node", "log", "file_ts", "file", "record_no", "item", "record_id", "says", "event_type",
            F.lit(None).cast("string").alias("from_state"),
            F.lit("NonExistentPartition").alias("state"),
            F.lit(False).alias("caught_up"),
            F.lit(True).alias("deleted"),
            F.lit(None).cast("array<string>").alias("keeps"),
            *[F.lit(None).cast("array<int>" if name == "isr" else "int").alias(name) for name in ZNODE],
            *[F.lit(None).cast("array<int>").alias(name) for name in (*ASSIGNMENT, "target_replicas", "previous_isr", "wanted_isr")],
            F.lit(None).cast("int").alias("writer"),
            F.lit(2).alias("tie"),
        )
    )  # fmt: skip
    created = (F.col("state") == "NewPartition") & (F.col("from_state") == "NonExistentPartition") & (F.col("says") == "happened")
    so_far = up_to_here(*PARTITION, order=position())
    together = told.unionByName(gone).select("*", F.lit(0).alias("topic_life"), F.lit("logs").alias("source"))
    if registrations is not None:
        together = together.unionByName(of_kraft(registrations))
    return together.select(
        *PARTITION,
        (F.count_if(created).over(so_far) + F.col("topic_life")).alias("life"),
        F.row_number().over(so_far).cast("double").alias("pos"),
        "ts", "record_id", "says", "event_type", "from_state", "state", "caught_up", "deleted", "keeps", *ZNODE, *ASSIGNMENT,
        "target_replicas", "writer", "previous_isr", "wanted_isr", "source",
    )  # fmt: skip


def of_kraft(registrations: DataFrame) -> DataFrame:
    """Registrations of KRaft partitions as observations without life and pos.

    in: PARTITION, topic_life, seq, ts, record_id, znode columns, assignment columns, deleted, source. Their order within a partition is
    that of seq, and ts does not fall.
    """
    nothing = {
        "node": "int", "file_ts": "timestamp", "from_state": "string", "target_replicas": "array<int>", "writer": "int",
        "previous_isr": "array<int>", "wanted_isr": "array<int>",
    }  # fmt: skip
    leads = F.when(F.col("leader") >= 0, "OnlinePartition").when(F.col("leader") == -1, "OfflinePartition")
    # every registration repeats the assignment; what counts is where it changes
    before = Window.partitionBy(*PARTITION, "topic_life").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    assignment = F.struct("replicas", F.array_sort("adding_replicas"), F.array_sort("removing_replicas"))
    assigned = F.when(F.col("replicas").isNotNull(), assignment)
    changed = ~assigned.eqNullSafe(F.last(assigned, ignorenulls=True).over(before))
    marked = registrations.select("*", changed.alias("changed"))
    return marked.select(
        *PARTITION, "ts", "record_id",
        *[F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()],
        F.lit(0).alias("log"), F.lit("").alias("file"), F.col("seq").cast("bigint").alias("record_no"), F.lit(0).alias("item"),
        F.lit("happened").alias("says"),
        F.lit("registration").alias("event_type"),
        F.when(F.col("deleted"), "NonExistentPartition").otherwise(leads).alias("state"),
        F.lit(False).alias("caught_up"),
        "deleted",
        no_ids().cast("array<string>").alias("keeps"),
        *ZNODE, *[F.when(F.col("changed"), F.col(name)).alias(name) for name in ASSIGNMENT],
        F.lit(1).alias("tie"),
        "topic_life", "source",
    )  # fmt: skip


def of_anchors(anchors: DataFrame) -> DataFrame:
    """Intervals that a timeline goes on from, as observations before all others.

    in: rows of `partition_timeline`. out: as `observations`.
    """
    nothing = {
        "from_state": "string", "target_replicas": "array<int>", "writer": "int", "previous_isr": "array<int>",
        "wanted_isr": "array<int>",
    }  # fmt: skip
    return anchors.select(
        *PARTITION, F.lit(0).cast("bigint").alias("life"), F.lit(0.0).alias("pos"), F.col("valid_from").alias("ts"), "record_id",
        F.lit("happened").alias("says"), F.lit("interval").alias("event_type"), "state",
        F.lit(False).alias("caught_up"), F.lit(False).alias("deleted"), no_ids().cast("array<string>").alias("keeps"),
        *ZNODE, *ASSIGNMENT, "source", *[F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()],
    )  # fmt: skip


def _first_said(column: str) -> Column:
    """The value that the most trustworthy, then earliest of several lines about one partition epoch gives."""
    rank = F.when(F.col("says") == "happened", 0).otherwise(1)
    return F.min_by(F.col(column), F.when(F.col(column).isNotNull(), F.struct(rank, F.col("pos")))).alias(column)


def znode_states(told: DataFrame) -> DataFrame:
    """The states of the state znode, one row each.

    in: `observations`. out: cluster, incarnation, topic, partition, life, pos, ts, record_id, leader, leader_epoch, isr,
    partition_epoch, state, keeps, inferred, counted (no line prints the partition epoch: it orders the state and is not told).
    Lines that name a partition epoch are lines about one state; it began no later than the first of them and no later than any
    line about a later epoch. Lines without one (before 2.7 and some broker lines) stand where their time puts them, unless a state
    with an epoch has the same values.
    """
    znode = F.coalesce(F.col("leader"), F.col("leader_epoch"), F.col("partition_epoch")).isNotNull() | F.col("isr").isNotNull()
    said = told.filter(znode).select("*", F.lit(False).alias("counted"))
    by_epoch = _by_epoch(said)
    wishes = unanswered(told).localCheckpoint()
    any_wish = not wishes.isEmpty()
    if any_wish:
        wishes = leader_writes(wishes, by_epoch).localCheckpoint()
        by_epoch = _by_epoch(said.unionByName(_as_said(wishes), allowMissingColumns=True)).localCheckpoint()
    from_later = up_to_here(*LIFE, order=[F.desc("partition_epoch")])
    by_number = [F.asc("partition_epoch")]
    follows = F.coalesce(
        F.lag("partition_epoch").over(neighbours(*LIFE, order=by_number)) == F.col("partition_epoch") - 1, F.lit(False)
    )
    kept = ("leader", "leader_epoch", "isr")

    # a value is carried along an unbroken run of epochs whose changes keep it
    def begins_run(name: str) -> Column:
        return F.col(name).isNotNull() | ~(follows & F.array_contains("keeps", name))

    with_begins = by_epoch.select("*", *[begins_run(name).alias(f"{name}_begins") for name in kept])
    up_to_epoch = up_to_here(*LIFE, order=by_number)
    with_runs = with_begins.select("*", *[F.count_if(f"{name}_begins").over(up_to_epoch).alias(f"{name}_run") for name in kept])
    ordered = with_runs.select(
        *LIFE,
        F.min("pos").over(from_later).alias("pos"),
        F.min("ts").over(from_later).alias("ts"),
        "record_id",
        *[F.first(name).over(up_to_here(*LIFE, f"{name}_run", order=by_number)).alias(name) for name in kept],
        "partition_epoch", "state", "from_state", "keeps", "counted",
    )  # fmt: skip
    states = ordered.select("*", F.lit(False).alias("inferred"))
    if any_wish:
        states = states.unionByName(_before_proof(wishes, states))
    return states.unionByName(_without_epoch(said, by_epoch))


def _by_epoch(said: DataFrame) -> DataFrame:
    """One row for each partition epoch that lines are about, in no order yet."""
    happened_state = F.when(F.col("says") == "happened", F.col("state"))
    return said.filter("partition_epoch IS NOT NULL").groupBy(*LIFE, "partition_epoch").agg(
        F.min("pos").alias("pos"),
        F.min("ts").alias("ts"),
        F.coalesce(F.min_by("record_id", "pos"), F.min("record_id")).alias("record_id"),
        *[_first_said(name) for name in ("leader", "leader_epoch", "isr")],
        F.max(happened_state).alias("state"),
        F.array_distinct(F.flatten(F.collect_list("keeps"))).alias("keeps"),
        F.max_by("from_state", F.when(happened_state.isNotNull(), F.col("pos"))).alias("from_state"),
        F.bool_and("counted").alias("counted"),
    )  # fmt: skip


def _as_said(wishes: DataFrame) -> DataFrame:
    """Wishes of leaders that are proven, as lines that say so at the moment of the proof."""
    return wishes.filter("proven").select(
        *LIFE, F.col("proof_pos").alias("pos"), F.col("proof_ts").alias("ts"), "record_id", F.lit("happened").alias("says"), "event_type",
        *ZNODE, F.array().cast("array<string>").alias("keeps"), F.lit(True).alias("counted"),
    )  # fmt: skip


def _before_proof(wishes: DataFrame, states: DataFrame) -> DataFrame:
    """What leaders wished for, from the wish to the proof."""
    shown = states.select(*LIFE, "partition_epoch", F.col("pos").alias("shown_pos"))
    return (
        wishes.join(shown, [*LIFE, "partition_epoch"], "left")
        .filter("shown_pos IS NULL OR pos < shown_pos")
        .select(
            *LIFE, "pos", "ts", "record_id", *ZNODE, F.lit(None).cast("string").alias("state"),
            F.lit(None).cast("string").alias("from_state"), F.array().cast("array<string>").alias("keeps"),
            F.lit(True).alias("counted"), F.lit(True).alias("inferred"),
        )
    )  # fmt: skip


def _without_epoch(said: DataFrame, by_epoch: DataFrame) -> DataFrame:
    """States told without a partition epoch, less those that a state with one explains, and those older than their time."""
    whole = ("leader", "leader_epoch", "isr")

    def same(names: tuple[str, ...]) -> Column:
        cells = [
            F.array_join(F.array_sort(name), ",") if name == "isr" else F.col(name).cast("string")
            for name in ("leader", "leader_epoch", "isr")
            if name in names
        ]
        return F.concat_ws("|", F.lit("+".join(names)), *cells)

    shapes = (
        whole,
        ("leader", "leader_epoch"),
        ("leader_epoch",),
        ("leader_epoch", "isr"),
        ("leader", "isr"),
        ("isr",),
        ("leader",),
    )

    def known_by(states: DataFrame, of: tuple[tuple[str, ...], ...]) -> DataFrame:
        return states.select(*LIFE, F.explode(F.array(*[same(shape) for shape in of])).alias("values"))

    shape = F.lit(None).cast("string")
    for names in shapes:
        fits = F.lit(True)
        for name in whole:
            fits = fits & (F.col(name).isNotNull() if name in names else F.col(name).isNull())
        shape = F.when(fits, same(names)).otherwise(shape)
    loose = said.filter("partition_epoch IS NULL").select("*", shape.alias("values"))
    # `changed partition .. with leader 5` tells nothing beside the line that tells it all
    complete = loose.filter("leader IS NOT NULL AND leader_epoch IS NOT NULL AND isr IS NOT NULL")
    known = known_by(by_epoch, shapes).unionByName(known_by(complete, shapes[1:])).distinct()
    unexplained = loose.join(known, [*LIFE, "values"], "left_anti")
    so_far = up_to_here(*LIFE)
    current = F.col("leader_epoch").isNull() | (
        F.col("leader_epoch") >= F.coalesce(F.max("leader_epoch").over(so_far), F.lit(-1))
    )
    return unexplained.select("*", current.alias("current")).filter("current").select(
        *LIFE, "pos", "ts", "record_id", *ZNODE,
        F.when(F.col("says") == "happened", F.col("state")).alias("state"),
        "from_state",
        F.coalesce("keeps", F.array().cast("array<string>")).alias("keeps"),
        "counted",
        F.lit(False).alias("inferred"),
    )  # fmt: skip


def assignments(told: DataFrame) -> DataFrame:
    """The assignments, one row each.

    in: `observations`. out: cluster, incarnation, topic, partition, life, pos, ts, record_id, replicas, adding_replicas,
    removing_replicas, inferred.
    An assignment that the controller wrote counts. What requests carry is its memory, which runs ahead of ZooKeeper while a
    reassignment completes: it counts only as long as no written assignment is known.
    """
    announced = F.col("event_type").isin("topics_changed", "partitions_added")
    written = (F.col("says") == "happened") & ~announced
    written_before = F.count_if(written).over(up_to_here(*LIFE))
    told_assignments = told.filter("replicas IS NOT NULL").select("*", written_before.alias("written_before"))
    current = told_assignments.filter(written | (F.col("written_before") == 0))
    return _with_adding_and_removing(current, told).select(
        *LIFE, "pos", "ts", "record_id", *ASSIGNMENT, F.lit(False).alias("inferred")
    )


def _with_adding_and_removing(assigned: DataFrame, told: DataFrame) -> DataFrame:
    """AR and RR of Kafka up to 2.3, which writes RS alone: the target less the replicas before, and these less the target.

    in: assignments, in which AR is null where only RS was written; `observations`. The target stands in `Handling reassignment of
    partition .. to new replicas ..`; RS equal to it, and nothing else, ends the reassignment.
    """
    targets = told.filter(F.col("target_replicas").isNotNull() & ~F.col("event_type").isin(*REFUSED)).select(
        *LIFE, "pos", "target_replicas", F.lit(None).cast("array<int>").alias("replicas"),
        F.lit(None).cast("array<int>").alias("adding_replicas"), F.lit(None).cast("array<int>").alias("removing_replicas"),
        F.lit(None).cast("timestamp").alias("ts"), F.lit(None).cast("string").alias("record_id"), F.lit(False).alias("row"),
    )  # fmt: skip
    rows = assigned.select(
        *LIFE,
        "pos",
        F.lit(None).cast("array<int>").alias("target_replicas"),
        *ASSIGNMENT,
        "ts",
        "record_id",
        F.lit(True).alias("row"),
    )
    so_far = up_to_here(*LIFE)
    settled = F.col("row") & (F.coalesce(F.size("adding_replicas"), F.lit(-1)) == 0)
    aimed = rows.unionByName(targets).select(
        "*", F.last("target_replicas", ignorenulls=True).over(so_far).alias("target"),
        F.last(F.when(settled, F.col("replicas")), ignorenulls=True).over(so_far).alias("created_with"),
    )  # fmt: skip
    reached = aimed.select("*", (F.array_sort("replicas") == F.array_sort("target")).alias("reached"))
    at_rest = F.when(F.col("row") & (F.col("reached") | F.col("target").isNull() | settled), F.col("replicas"))
    before = up_to_here(*LIFE).rowsBetween(Window.unboundedPreceding, -1)
    known = reached.select("*", F.coalesce(F.last(at_rest, ignorenulls=True).over(before), "created_with").alias("original"))
    leaving = F.coalesce(F.array_except("original", "target"), F.array_except("replicas", "target"))
    moving = F.col("target").isNotNull() & ~F.col("reached")
    return known.filter("row").select(
        *LIFE, "pos", "ts", "record_id", "replicas",
        F.coalesce("adding_replicas", F.when(moving, F.array_except("target", "original")).otherwise(no_ids())).alias("adding_replicas"),
        F.coalesce("removing_replicas", F.when(moving, leaving).otherwise(no_ids())).alias("removing_replicas"),
    )  # fmt: skip


def _caught_up_states(told: DataFrame, states: DataFrame) -> DataFrame:
    """The state in which all target replicas were in the ISR, where no line prints it.

    A reassignment election changes the leader and leaves the ISR (ReassignPartitionLeaderElectionStrategy), so the ISR that
    the election prints is the one before it; the controller says when that was so: `have all caught up`.
    """
    caught = told.filter("caught_up").select(*LIFE, "pos", "ts", "record_id")
    order = neighbours(*LIFE, order=[F.asc("partition_epoch")])
    elected = (F.col("state") == "OnlinePartition") & (F.col("from_state") == "OnlinePartition")
    jumped = F.col("partition_epoch") - F.col("previous_epoch") > 1
    elections = (
        states.filter("partition_epoch IS NOT NULL")
        .select(
            "*",
            F.lag("partition_epoch").over(order).alias("previous_epoch"),
            F.lag("leader").over(order).alias("previous_leader"),
            F.lag("leader_epoch").over(order).alias("previous_leader_epoch"),
            F.lag("pos").over(order).alias("previous_pos"),
        )
        .filter(elected & jumped & F.col("isr").isNotNull() & (F.col("leader_epoch") == F.col("previous_leader_epoch") + 1))
        .select(
            *LIFE,
            "isr",
            "previous_pos",
            F.col("pos").alias("next_pos"),
            F.col("previous_leader").alias("leader"),
            F.col("previous_leader_epoch").alias("leader_epoch"),
            (F.col("partition_epoch") - 1).alias("partition_epoch"),
        )
    )
    between = (F.col("pos") > F.col("previous_pos")) & (F.col("pos") < F.col("next_pos"))
    return caught.join(elections, list(LIFE)).filter(between).select(
        *LIFE, "pos", "ts", "record_id", *ZNODE,
        F.lit(None).cast("string").alias("state"),
        F.lit(None).cast("string").alias("from_state"),
        F.array().cast("array<string>").alias("keeps"),
        F.lit(False).alias("counted"),
        F.lit(True).alias("inferred"),
    )  # fmt: skip


def _state_before(states: DataFrame) -> DataFrame:
    """What held before the first state that the logs show, where its change is known to have kept leader and ISR."""
    first = F.row_number().over(up_to_here(*LIFE, order=[F.asc("pos"), F.asc_nulls_first("partition_epoch")]))
    kept = F.array_contains("keeps", "leader") & F.array_contains("keeps", "isr")
    known = F.col("leader").isNotNull() & F.col("isr").isNotNull()
    return (
        states.select("*", first.alias("first"))
        .filter((F.col("first") == 1) & (F.col("life") == 0) & kept & known)
        .select(
            *LIFE, F.lit(0.0).alias("pos"), F.lit(None).cast("timestamp").alias("ts"), "record_id",
            "leader", (F.col("leader_epoch") - 1).alias("leader_epoch"), "isr", (F.col("partition_epoch") - 1).alias("partition_epoch"),
            F.lit(None).cast("string").alias("state"),
            F.lit(None).cast("string").alias("from_state"),
            F.array().cast("array<string>").alias("keeps"),
            F.lit(False).alias("counted"),
            F.lit(True).alias("inferred"),
        )
    )  # fmt: skip


def _assignment_before(assigned: DataFrame) -> DataFrame:
    """The replicas before the first assignment that the logs show, where it is the begin of a reassignment."""
    first = F.row_number().over(up_to_here(*LIFE))
    begins = length("adding_replicas") + length("removing_replicas") > 0
    return (
        assigned.select("*", first.alias("first"))
        .filter((F.col("first") == 1) & (F.col("life") == 0) & begins)
        .select(
            *LIFE, F.lit(0.0).alias("pos"), F.lit(None).cast("timestamp").alias("ts"), "record_id",
            F.array_except("replicas", "adding_replicas").alias("replicas"),
            no_ids().alias("adding_replicas"),
            no_ids().alias("removing_replicas"),
            F.lit(True).alias("inferred"),
        )
    )  # fmt: skip


def timeline(told: DataFrame, marked: bool = False) -> DataFrame:
    """The intervals.

    in: `observations`; marked: whether they may be of a metadata log. out: the columns of `partition_timeline`; valid_to null where
    nothing followed.
    """
    # localCheckpoint: each of these is used many times, and a plan that repeats them all is slow to make
    states = znode_states(told).localCheckpoint()
    states = states.unionByName(_caught_up_states(told, states)).unionByName(_state_before(states))
    assigned = assignments(told)
    assigned = assigned.unionByName(_assignment_before(assigned)).localCheckpoint()
    rows = _changes(told, states, assigned)

    order = [F.asc("life"), F.asc("pos"), F.asc_nulls_first("partition_epoch_order"), F.asc("kind")]
    in_life = up_to_here(*LIFE, order=order)
    since_assignment = up_to_here(*LIFE, "assignment_no", order=order)
    filled = rows.select(
        *LIFE, "pos", "partition_epoch_order", "kind", "ts", "record_id", "caught_up",
        F.last("znode", ignorenulls=True).over(in_life).alias("znode"),
        F.last("assignment", ignorenulls=True).over(in_life).alias("assignment"),
        F.last("state", ignorenulls=True).over(in_life).alias("state"),
        F.count("assignment").over(in_life).alias("assignment_no"),
    )  # fmt: skip
    moving = length("assignment.adding_replicas") + length("assignment.removing_replicas") > 0
    adds = length("assignment.adding_replicas") > 0
    epoch_at_start = F.first("znode.leader_epoch").over(since_assignment)
    caught_up_since = F.max("caught_up").over(since_assignment)
    phase = F.when(
        moving,
        F.when(caught_up_since, "B")
        .when((F.col("znode.leader_epoch") > epoch_at_start) | (epoch_at_start.isNull() & F.col("znode.leader_epoch").isNotNull()),
              F.when(adds, "A").otherwise("B"))
        .otherwise("U"),
    )  # fmt: skip
    full = filled.select(
        *LIFE, "pos", "partition_epoch_order", "kind", "ts", "record_id",
        *[F.col(f"znode.{name}").alias(name) for name in ZNODE],
        *[F.col(f"assignment.{name}").alias(name) for name in ASSIGNMENT],
        "state",
        phase.alias("reassignment_phase"),
        (F.coalesce("znode.inferred", F.lit(False)) | F.coalesce("assignment.inferred", F.lit(False))).alias("inferred"),
    )  # fmt: skip
    if marked:
        sources = F.broadcast(told.select(*LIFE, "pos", "source"))
        full = full.join(sources, [*LIFE, "pos"], "left").select(
            *full.columns, F.coalesce("source", F.lit("logs")).alias("source")
        )
    else:
        full = full.select("*", F.lit("logs").alias("source"))
    in_partition = neighbours(*PARTITION, order=order)
    comparable = [F.array_sort(name) if name == "isr" else F.col(name) for name in VALUES]
    now = F.struct(*comparable, "inferred")
    changed = ~now.eqNullSafe(F.lag(now).over(in_partition))
    something = F.coalesce(*[F.col(name).isNotNull() for name in VALUES])
    for name in VALUES[1:]:
        something = something | F.col(name).isNotNull()
    # what one record changes is one change; states of different epochs are several, also when one line proves them all
    last_of_record = ~F.coalesce(
        (F.lead("pos").over(in_partition) == F.col("pos")) & ((F.col("kind") != 1) | (F.lead("kind").over(in_partition) != 1)),
        F.lit(False),
    )
    whole = full.select("*", last_of_record.alias("last_of_record")).filter("last_of_record")
    kept = whole.select("*", changed.alias("changed"), something.alias("something")).filter("changed AND something")
    return kept.select(
        *PARTITION,
        F.row_number().over(up_to_here(*PARTITION, order=order)).alias("step"),
        F.col("ts").alias("valid_from"),
        F.lead("ts").over(in_partition).alias("valid_to"),
        *VALUES, "inferred", "record_id", "source",
    )  # fmt: skip


def _changes(told: DataFrame, states: DataFrame, assigned: DataFrame) -> DataFrame:
    """All changes of a partition in one frame, each with what it changes and nothing else."""
    nothing = {"znode": _struct_type(states, ZNODE), "assignment": _struct_type(assigned, ASSIGNMENT)}

    def rows(frame: DataFrame, kind: int, **given: Column) -> DataFrame:
        cells = {
            "znode": F.lit(None).cast(nothing["znode"]),
            "assignment": F.lit(None).cast(nothing["assignment"]),
            "state": F.lit(None).cast("string"),
            "caught_up": F.lit(False),
            "partition_epoch_order": F.lit(None).cast("int"),
        } | given
        return frame.select(
            *LIFE, "pos", F.lit(kind).alias("kind"), "ts", "record_id", *[column.alias(name) for name, column in cells.items()]
        )

    # a record may change more than one thing: the assignment first, so that its phase covers the rest
    moved = rows(assigned, 0, assignment=F.struct(*ASSIGNMENT, "inferred"))
    told_epoch = F.when(~F.col("counted"), F.col("partition_epoch")).alias("partition_epoch")
    wrote = rows(
        states,
        1,
        znode=F.struct(*ZNODE[:-1], told_epoch, "inferred"),
        state=F.col("state"),
        partition_epoch_order=F.col("partition_epoch"),
    )
    own_state = told.filter("state IS NOT NULL AND partition_epoch IS NULL AND NOT deleted")
    turned = rows(own_state, 2, state=F.col("state"))
    caught = rows(told.filter("caught_up"), 0, caught_up=F.lit(True))
    gone = rows(
        told.filter("deleted"),
        3,
        znode=F.struct(
            *[F.lit(None).cast("array<int>" if name == "isr" else "int").alias(name) for name in ZNODE],
            F.lit(True).alias("inferred"),
        ),
        assignment=F.struct(*[F.lit(None).cast("array<int>").alias(name) for name in ASSIGNMENT], F.lit(True).alias("inferred")),
        state=F.col("state"),
    )
    return moved.unionByName(wrote).unionByName(turned).unionByName(caught).unionByName(gone)


def _struct_type(frame: DataFrame, names: tuple[str, ...]) -> str:
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    return "struct<" + ",".join(f"{name}:{kinds[name]}" for name in (*names, "inferred")) + ">"


def close_ended_incarnations(intervals: DataFrame, ends: Mapping[str, Sequence[datetime | None]]) -> DataFrame:
    """Ends what was still open when its incarnation ended.

    in and out: a timeline with cluster, incarnation, valid_from, valid_to. ends: of the first, second, .. incarnation.
    """
    end = F.get(moments_of_cluster(ends), F.col("incarnation") - 1)
    return intervals.select(
        *[F.coalesce("valid_to", end).alias("valid_to") if name == "valid_to" else F.col(name) for name in intervals.columns]
    )
