"""What the text logs of a KRaft cluster tell about partitions, put in the order of the metadata log.

Every change of a partition is one record and one partition epoch (PartitionRegistration.merge). Brokers print the epoch with what
they apply. Controllers print creations with it, but changes of the assignment without; all of them print the same lines, and one
that starts prints everything that it replays once more, old values under new time stamps. So no line is believed for its time
alone: assignment changes are numbered from the creation of their partition on, which every replay repeats, and then placed at the
partition epoch whose values they explain.
"""

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jobs.old_timelines.order import PARTITION, all_of, in_memory, neighbours, position, up_to_here
from jobs.store import quoted

TOPIC = ("cluster", "incarnation", "topic")
LIFE = (*PARTITION, "topic_life")
CONTROLLER_TOLD = (
    "topic_registered",
    "topic_removed",
    "partition_registered",
    "assignment_changed",
    "partition_changed",
    "unclean_leader_elected",
)
# what only a broker of a KRaft cluster prints
BROKER_SIGNS = ("replica_creating", "roles_changing", "broker_state_changed")
# what only a ZooKeeper controller prints
ZOOKEEPER_SIGNS = ("partition_new", "partition_online", "assignment_updated", "topics_changed")
CONTROLLER_SIGNS = (*CONTROLLER_TOLD, "partition_record")
OF_MODE = (*CONTROLLER_SIGNS, *BROKER_SIGNS, *ZOOKEEPER_SIGNS)
# without a partition epoch up to 3.2
BROKER_TOLD = ("leader_started", "follower_started", "become_skipped")
# from where on a controller's lines are history, and from where on they are not
MARKS = ("quorum_controller_created", "controller_activated", "metadata_caught_up")
DIFFERENCES = ("partition_changed", "unclean_leader_elected")
# a topic is gone
REMOVED = ("topic_removed", "remove_topic_record")
# printed without a partition epoch
COUNTED = ("assignment_changed",)
STATE = ("leader", "leader_epoch", "isr")
ASSIGNMENT = ("replicas", "adding_replicas", "removing_replicas")
VALUES = (*STATE, *ASSIGNMENT)
# the same line of two controllers, or of a controller and a broker, lies no further apart
NEAR_SECONDS = 10
# a controller that is not known to have caught up is taken to have done so after this time
REPLAY_SECONDS = 60
# the controller goes on with its replay for a moment after its metadata loader has caught up
LOADER_AHEAD_SECONDS = 2


def _ids(name: str) -> Column:
    return F.array_sort(name)


def _seconds(ts: str | Column) -> Column:
    return F.unix_millis(ts) / 1000.0


def by_kraft(since: Mapping[str, datetime | None], at: str = "ts") -> Column:
    """BOOLEAN: whether a moment is of a time when its cluster had KRaft controllers. since: as `night.kraft_begins` gives it."""
    cases = [
        f"WHEN cluster = {quoted(name)} THEN "
        + ("true" if begun is None else f"{at} >= TIMESTAMP {quoted(begun.isoformat(sep=' '))}")
        for name, begun in since.items()
    ]
    return F.coalesce(F.expr(f"CASE {' '.join(cases)} END"), F.lit(False)) if cases else F.lit(False)


def leader() -> Column:
    """The leader that an event names: `Leader .. starts` is the leader's own line."""
    return F.coalesce("leader", F.when(F.col("event_type") == "leader_started", F.col("node")))


def names_topic_id() -> Column:
    """Whether an event tells which id a topic has."""
    return F.col("topic").isNotNull() & F.col("topic_id").isNotNull()


def topic_lives(events: DataFrame, since: Mapping[str, datetime | None]) -> DataFrame:
    """cluster, incarnation, topic, topic_id, topic_life (0, 1, ..): a name that is used again is another topic.

    in: events, or the `witnesses` among them; since: as `by_kraft` takes it.
    """
    named = (
        events.filter(names_topic_id())
        .groupBy(*TOPIC, "topic_id")
        .agg(F.min("ts").alias("first_ts"), F.max("ts").alias("last_ts"))
        .filter(by_kraft(since, "last_ts"))
    )
    by_age = up_to_here(*TOPIC, order=[F.asc_nulls_first("first_ts"), F.asc("topic_id")])
    return named.select(*TOPIC, "topic_id", (F.row_number().over(by_age) - 1).alias("topic_life"))


def _statements(events: DataFrame, shared: DataFrame, lives: DataFrame) -> DataFrame:
    """Lines about one partition that count, with the life of the topic that they belong to.

    shared: events, or the `witnesses` among them, with the MARKS of all nodes. out: PARTITION, topic_life, pos (order within the partition), ts, node, record_id, event_type, VALUES, partition_epoch, run,
    live (false: a line that a starting controller may have replayed).
    """
    of_partition = F.col("topic").isNotNull() & F.col("partition").isNotNull()
    counts = (
        of_partition
        & F.col("says").isin("happened", "is")
        & (F.col("partition_epoch").isNotNull() | F.col("event_type").isin(*COUNTED, *BROKER_TOLD))
    )
    # `Creating new partition ..` and the like tell which topic a node means from there on
    told = events.filter(counts | (of_partition & F.col("topic_id").isNotNull()))
    columns = [
        *PARTITION, "ts", "tie", "node", "log", "file_ts", "file", "record_no", "item", "record_id", "event_type", "topic_id",
        "leader", "leader_epoch", "isr", "partition_epoch", *ASSIGNMENT,
    ]  # fmt: skip
    marks = shared.filter(F.col("event_type").isin(*MARKS))
    both = told.unionByName(marks.select(*[name for name in told.columns if name in marks.columns]), allowMissingColumns=True)
    both = both.select("*", F.lit(1).alias("tie")).select(*columns, counts.alias("counts"))
    on_node = up_to_here("cluster", "incarnation", "node", order=position())
    started = F.col("event_type") == "quorum_controller_created"
    runs = both.select("*", F.count_if(started).over(on_node).alias("run"))
    in_run = up_to_here("cluster", "incarnation", "node", "run", order=position())
    activated = F.col("event_type") == "controller_activated"
    loaded = F.col("event_type") == "metadata_caught_up"
    marked = runs.select(
        "*",
        F.count_if(activated).over(in_run).alias("activations"),
        F.min(F.when(loaded, F.col("ts"))).over(in_run).alias("loaded_at"),
        F.min(F.when(started, F.col("ts"))).over(in_run).alias("run_since"),
    )
    age = _seconds("ts") - _seconds("run_since")
    live = (
        (F.col("run") == 0)
        | (F.col("activations") > 0)
        | (_seconds("ts") - _seconds("loaded_at") > LOADER_AHEAD_SECONDS)
        | (age > REPLAY_SECONDS)
    )
    statements = marked.filter("topic IS NOT NULL").select(
        *PARTITION, "ts", "node", "record_id", "event_type", "topic_id",
        F.row_number().over(up_to_here(*PARTITION, order=position())).alias("pos"),
        leader().alias("leader"), "leader_epoch", "isr", "partition_epoch", *ASSIGNMENT,
        "run", F.coalesce(live, F.lit(False)).alias("live"), "counts",
    )  # fmt: skip
    # follower lines and ISR updates name no topic id: it is the one that their broker named last, else the one that any broker did;
    # what a controller names may be history
    by_broker = F.when(~F.col("event_type").isin(*CONTROLLER_TOLD), F.col("topic_id"))
    known = F.coalesce(
        "topic_id",
        F.last(by_broker, ignorenulls=True).over(up_to_here(*PARTITION, "node")),
        F.last(by_broker, ignorenulls=True).over(up_to_here(*PARTITION)),
        F.first("topic_id", ignorenulls=True).over(all_of(*PARTITION)),
    )
    named = statements.select(*[name for name in statements.columns if name != "topic_id"], known.alias("topic_id"))
    joined = named.filter("counts").join(
        F.broadcast(lives.select(*TOPIC, "topic_id", "topic_life")), [*TOPIC, "topic_id"], "left"
    )
    return joined.select(
        *[name for name in named.columns if name not in {"topic_id", "counts"}],
        F.coalesce("topic_life", F.lit(0)).alias("topic_life"),
    )


def _numbered(statements: DataFrame) -> tuple[DataFrame, DataFrame]:
    """(assignment changes by their number since the creation, those whose number is not known), of `assignment_changed` lines.

    in: `_statements`. out: LIFE, pos, ts, record_id, VALUES, number (null where not known).
    A controller that replays the whole log prints the creation of a partition and then every change of its assignment, so the count
    since the creation is the same in every run of every controller. One that loads a snapshot, or whose log begins later, tells
    no number of its own: its live lines are evidence for numbered changes of the same content, and count for themselves where there
    is none, unless another controller has said the same just before.
    """
    registered = F.col("event_type") == "partition_registered"
    by_run = [*LIFE, "node", "run"]
    since = statements.filter("event_type IN ('partition_registered', 'assignment_changed')").select(
        "*",
        F.count_if(registered).over(up_to_here(*by_run)).alias("registration"),
        F.min(F.when(registered, F.col("partition_epoch"))).over(all_of(*LIFE)).alias("created_in_epoch"),
    )
    in_registration = up_to_here(*by_run, "registration")
    changed = ~registered
    counted = since.select(
        "*",
        F.first(F.when(registered, F.col("partition_epoch"))).over(in_registration).alias("registered_in_epoch"),
        F.count_if(changed).over(in_registration).alias("count"),
    ).filter("event_type = 'assignment_changed' AND partition_epoch IS NULL")
    is_numbered = F.coalesce(F.col("registered_in_epoch") == F.col("created_in_epoch"), F.lit(False))
    judged = counted.select("*", is_numbered.alias("is_numbered"))
    content = F.concat_ws("|", *[F.coalesce(F.array_join(name, ","), F.lit("-")) for name in ("isr", *ASSIGNMENT)], "leader")
    columns = [*LIFE, "pos", "ts", "record_id", *VALUES]
    told = in_memory(
        judged.select(
            *columns, "node", "live", "is_numbered", F.col("count").cast("int").alias("number"), content.alias("content")
        )
    )
    numbered = in_memory(_first_of_number(told.filter("is_numbered")))
    loose = in_memory(_with_numbers(in_memory(told.filter("NOT is_numbered AND live").drop("number")), numbered))
    numbered = _first_of_number(
        numbered.select(*columns, "number", "content").unionByName(
            loose.filter("number IS NOT NULL").select(*columns, "number", "content")
        )
    )
    just_before = Window.orderBy(F.unix_millis("ts")).rangeBetween(-NEAR_SECONDS * 1000, 0)
    said = F.count("*").over(just_before.partitionBy(*LIFE, "content"))
    said_itself = F.count("*").over(just_before.partitionBy(*LIFE, "content", "node"))
    unknown = loose.filter("number IS NULL").select("*", said.alias("said"), said_itself.alias("said_itself"))
    fresh = unknown.filter("said = 1 OR said_itself > 1 OR ts IS NULL")
    return numbered.select(*columns, "number"), fresh.select(*columns, "number")


def _first_of_number(told: DataFrame) -> DataFrame:
    """One row a number: the earliest line of it."""
    return told.groupBy(*LIFE, "number").agg(
        F.min("pos").alias("pos"), F.min("ts").alias("ts"),
        *[F.min_by(name, "pos").alias(name) for name in ("record_id", *VALUES, "content")],
    )  # fmt: skip


def _with_numbers(loose: DataFrame, numbered: DataFrame) -> DataFrame:
    """Adds the number to lines of controllers whose log begins too late to count.

    in: lines with content; `_first_of_number`. It is the number of the same content that another controller printed at about the
    same time. Where a controller has only replayed it, much later, the last line of that content is the last number of it, and so on.
    """
    numbers = numbered.select(*LIFE, "content", F.col("number").alias("its_number"), F.col("ts").alias("its_ts"))
    distance = F.abs(_seconds("ts") - _seconds("its_ts"))
    near = (
        loose.join(numbers, [*LIFE, "content"])
        .filter(distance < NEAR_SECONDS)
        .groupBy(*LIFE, "record_id")
        .agg(F.min_by("its_number", distance).alias("near_number"))
    )
    with_near = loose.join(near, [*LIFE, "record_id"], "left")
    from_last = up_to_here(*LIFE, "content", "node", order=[F.desc("pos")])
    left = with_near.filter("near_number IS NULL").select("*", F.row_number().over(from_last).alias("rank"))
    taken = near.select(*LIFE, F.col("near_number").alias("its_number")).distinct()
    free = numbers.join(taken, [*LIFE, "its_number"], "left_anti")
    ranked = free.select("*", F.row_number().over(up_to_here(*LIFE, "content", order=[F.desc("its_number")])).alias("rank"))
    replayed = left.join(ranked, [*LIFE, "content", "rank"], "left")
    by_rank = F.when(F.col("its_ts") > F.col("ts"), F.col("its_number"))
    columns = loose.columns
    return (
        with_near.filter("near_number IS NOT NULL").select(*columns, F.col("near_number").alias("number"))
        .unionByName(replayed.select(*columns, by_rank.alias("number")))
    )  # fmt: skip


def _same_where_known(one: str, other: str, in_order: bool = False) -> Column:
    """Whether two lists are the same, true where one of them is not known."""
    same = F.col(one) == F.col(other) if in_order else _ids(one) == _ids(other)
    return F.coalesce(same, F.lit(True))


def _with_epochs(lines: DataFrame, statements: DataFrame) -> DataFrame:
    """Adds partition_epoch to assignment changes, where it is certain.

    It is the epoch whose values agree with the line while those of the epoch right before it do not.
    """
    epochs = statements.filter("partition_epoch IS NOT NULL").groupBy(*LIFE, "partition_epoch").agg(
        F.min("ts").alias("at"), *[F.min_by(name, F.when(F.col(name).isNotNull(), F.col("pos"))).alias(f"e_{name}") for name in VALUES]
    )  # fmt: skip
    by_number = neighbours(*LIFE, order=[F.asc("partition_epoch")])
    pairs = epochs.select(
        *LIFE, "partition_epoch", "at", *[f"e_{name}" for name in VALUES],
        F.lag("partition_epoch").over(by_number).alias("epoch_before"),
        *[F.lag(f"e_{name}").over(by_number).alias(f"b_{name}") for name in VALUES],
    ).filter("epoch_before = partition_epoch - 1")  # fmt: skip

    def agrees(prefix: str) -> Column:
        return (
            _same_where_known("replicas", f"{prefix}_replicas", in_order=True)
            & _same_where_known("adding_replicas", f"{prefix}_adding_replicas")
            & _same_where_known("removing_replicas", f"{prefix}_removing_replicas")
            & _same_where_known("isr", f"{prefix}_isr")
            & F.coalesce(F.col("leader") == F.col(f"{prefix}_leader"), F.lit(True))
        )

    assigned = F.col("e_replicas").isNotNull() | F.col("e_adding_replicas").isNotNull()
    distance = F.abs(_seconds("ts") - _seconds("at"))
    matched = (
        lines.join(pairs, list(LIFE))
        .filter(agrees("e") & ~agrees("b") & assigned & (distance < NEAR_SECONDS))
        .groupBy(*LIFE, "record_id")
        .agg(F.min_by("partition_epoch", distance).alias("partition_epoch"))
    )
    # of two lines that fit the same epoch, the nearer one would have to be chosen; none is better than the wrong one
    single = matched.select("*", F.count("*").over(all_of(*LIFE, "partition_epoch")).alias("n")).filter("n = 1").drop("n")
    return lines.join(single, [*LIFE, "record_id"], "left")


def enables_elr() -> Column:
    """Whether an event tells that eligible leader replicas (KIP-966) were enabled."""
    return (F.col("event_type") == "feature_replayed") & F.col("text").rlike(r"eligible\.leader\.replicas\.version to [1-9]")


def elr_modes(events: DataFrame) -> DataFrame:
    """cluster, incarnation, without_elr (all of its Kafkas are older than KIP-966), elr_since (when the feature was enabled).

    in: events, or the `witnesses` among them.
    """
    major = F.nullif(F.regexp_extract("kafka_version", r"^(\d+)\.", 1), F.lit("")).try_cast("int")
    enabled = enables_elr()
    told = events.filter(F.col("kafka_version").isNotNull() | enabled)
    return told.groupBy("cluster", "incarnation").agg(
        F.coalesce(F.max(major) < 4, F.lit(False)).alias("without_elr"), F.min(F.when(enabled, F.col("ts"))).alias("elr_since")
    )


def _with_isr_of_leaderless(epochs: DataFrame, modes: DataFrame) -> DataFrame:
    """The ISR of a partition that has just lost its leader: follower lines, the only ones that tell of it, do not print it.

    in: rows of `_by_epoch`; `elr_modes`. A leader is lost with the last member of the ISR (PartitionChangeBuilder.electLeader), which
    stays in it for good, or, where eligible leader replicas are enabled (KIP-966), leaves an empty one.
    """
    up = neighbours(*LIFE, order=[F.asc("partition_epoch")])
    with_before = epochs.select(
        "*",
        F.lag("isr").over(up).alias("isr_before"),
        (F.lag("partition_epoch").over(up) == F.col("partition_epoch") - 1).alias("follows"),
    )
    alone = F.coalesce(F.col("follows") & (F.size("isr_before") <= 1), F.lit(False))
    emptied = F.coalesce(F.col("elr_since") <= F.col("ts"), F.lit(False))
    left = F.when(alone & F.col("without_elr"), F.col("isr_before")).when(alone & emptied, F.array().cast("array<int>"))
    isr = F.coalesce("isr", F.when(F.col("leader") == -1, left))
    known = with_before.join(F.broadcast(modes), ["cluster", "incarnation"], "left")
    return known.select(*[isr.alias("isr") if name == "isr" else F.col(name) for name in epochs.columns])


def _by_epoch(statements: DataFrame, placed: DataFrame) -> DataFrame:
    """One row a partition epoch: what its lines say together, begun no later than any later epoch.

    out: LIFE, pos, ts, record_id, VALUES, partition_epoch, assigns (whether a line tells the whole assignment).
    """
    columns = [*LIFE, "pos", "ts", "record_id", *VALUES, "partition_epoch"]
    whole = F.col("replicas").isNotNull() | F.col("event_type").isin(*DIFFERENCES)
    said = statements.filter("partition_epoch IS NOT NULL").select(
        *columns, whole.alias("assigns"), F.col("event_type").isin(*DIFFERENCES).alias("is_difference")
    )
    lines = placed.select(*columns, F.lit(True).alias("assigns"), F.lit(False).alias("is_difference"))
    epochs = said.unionByName(lines).groupBy(*LIFE, "partition_epoch").agg(
        F.min("pos").alias("pos"), F.min("ts").alias("ts"), F.min_by("record_id", "pos").alias("record_id"),
        *[F.min_by(name, F.when(F.col(name).isNotNull(), F.col("pos"))).alias(name) for name in VALUES],
        F.max("assigns").alias("assigns"), F.max("is_difference").alias("is_difference"),
    )  # fmt: skip
    up = [F.asc("partition_epoch")]
    follows = F.coalesce(F.lag("partition_epoch").over(neighbours(*LIFE, order=up)) == F.col("partition_epoch") - 1, F.lit(False))
    # a printed difference leaves all else as it was in the epoch before
    marked = epochs.select("*", (follows & F.col("is_difference")).alias("keeps"))
    runs = marked.select(
        "*",
        *[
            F.count_if(F.col(name).isNotNull() | ~F.col("keeps")).over(up_to_here(*LIFE, order=up)).alias(f"{name}_run")
            for name in VALUES
        ],
    )
    from_later = up_to_here(*LIFE, order=[F.desc("partition_epoch")])
    return runs.select(
        *LIFE, F.min("pos").over(from_later).alias("pos"), F.min("ts").over(from_later).alias("ts"), "record_id",
        *[F.first(name).over(up_to_here(*LIFE, f"{name}_run", order=up)).alias(name) for name in VALUES],
        "partition_epoch", "assigns",
    )  # fmt: skip


def _in_sequence(epochs: DataFrame, lines: DataFrame, loose: DataFrame) -> DataFrame:
    """All rows of a life in one sequence.

    in: `_by_epoch`; assignment changes with and without partition_epoch; lines of brokers that print no partition epoch.
    out: LIFE, seq, ts, record_id, VALUES, partition_epoch; an assignment is whole or null.
    """
    at_epoch = epochs.select(*LIFE, "partition_epoch", F.col("pos").alias("epoch_pos"), F.col("ts").alias("epoch_ts"))
    from_later = up_to_here(*LIFE, order=[F.desc("number")])
    joined = lines.join(at_epoch, [*LIFE, "partition_epoch"], "left").select(
        "*", F.coalesce("epoch_pos", "pos").alias("own_pos"), F.coalesce("epoch_ts", "ts").alias("own_ts")
    )
    in_time = joined.select(
        *LIFE, "number", "record_id", *VALUES, "partition_epoch",
        F.when(F.col("number").isNotNull(), F.min("own_pos").over(from_later)).otherwise(F.col("pos")).alias("pos"),
        F.when(F.col("number").isNotNull(), F.min("own_ts").over(from_later)).otherwise(F.col("ts")).alias("ts"),
    ).filter("partition_epoch IS NULL")  # fmt: skip
    columns = [*LIFE, "pos", "ts", "record_id", *VALUES, "partition_epoch"]
    rows = (
        epochs.select(*columns, "assigns", F.lit(None).cast("int").alias("number"), F.lit(False).alias("unplaced"))
        .unionByName(in_time.select(*columns, F.lit(True).alias("assigns"), "number", F.lit(True).alias("unplaced")))
        .unionByName(
            loose.select(
                *columns,
                F.col("replicas").isNotNull().alias("assigns"),
                F.lit(None).cast("int").alias("number"),
                F.lit(False).alias("unplaced"),
            )
        )
    )
    order = [F.asc("pos"), F.asc_nulls_first("partition_epoch"), F.asc_nulls_first("number")]
    so_far = up_to_here(*LIFE, order=order)
    whole = rows.select(
        *LIFE, F.row_number().over(so_far).alias("seq"), F.max("ts").over(so_far).alias("ts"), "record_id",
        "leader", "leader_epoch",
        # an ISR or a leader that comes with an assignment alone has no epoch to stand with
        F.when(~F.col("unplaced"), F.col("isr")).alias("isr"),
        "partition_epoch", "unplaced",
        *[F.when(F.col("assigns"), F.last(F.when(F.col("assigns"), F.col(name)), ignorenulls=True).over(so_far)).alias(name) for name in ASSIGNMENT],
    )  # fmt: skip
    complete = F.col("replicas").isNotNull()
    assignment = F.when(complete, F.struct(*ASSIGNMENT))
    told = whole.select("*", assignment.alias("assignment"), complete.alias("complete"))
    among = neighbours(*LIFE, "complete", order=[F.asc("seq")])
    # a broker may still print the assignment that the controllers have just replaced
    outdated = (
        F.lag("unplaced").over(among)
        & ~F.col("unplaced")
        & (F.col("assignment") == F.lag("assignment", 2).over(among))
        & (_seconds("ts") - _seconds(F.lag("ts").over(among)) < NEAR_SECONDS)
    )
    judged = told.select("*", (complete & ~F.coalesce(outdated, F.lit(False))).alias("holds"))
    return judged.select(
        *LIFE, "seq", "ts", "record_id",
        F.when(~F.col("unplaced"), F.col("leader")).alias("leader"),
        "leader_epoch", "isr", "partition_epoch",
        *[F.when(F.col("holds"), F.col(name)).alias(name) for name in ASSIGNMENT],
        "unplaced",
    ).filter("NOT unplaced OR replicas IS NOT NULL").drop("unplaced")  # fmt: skip


def _of_anchors(anchors: DataFrame) -> DataFrame:
    """Intervals that a timeline goes on from, as lines that print a whole registration.

    in: rows of `partition_timeline`. out: as `_statements`.
    """
    return anchors.select(
        *PARTITION, F.col("valid_from").alias("ts"), F.lit(None).cast("int").alias("node"), "record_id",
        F.lit("interval").alias("event_type"), F.lit(0).alias("pos"), *VALUES, "partition_epoch",
        F.lit(0).cast("bigint").alias("run"), F.lit(True).alias("live"), F.lit(0).alias("topic_life"),
    )  # fmt: skip


def registrations(events: DataFrame, shared: DataFrame, lives: DataFrame, anchors: DataFrame | None = None) -> DataFrame:
    """What held after every change that the lines show, in the order of the metadata log.

    in: events of KRaft clusters with file_ts; shared: all of theirs, or the `witnesses` among them, with file_ts; `topic_lives`; anchors:
    rows of `partition_timeline` after which the events are. out: PARTITION, topic_life, seq, ts, record_id, VALUES,
    partition_epoch, deleted, source; what the lines do not say is null.
    """
    statements = _statements(events, shared, lives)
    statements = in_memory(statements if anchors is None else statements.unionByName(_of_anchors(anchors)))
    numbered, loose = _numbered(statements)
    lines = in_memory(_with_epochs(numbered.unionByName(loose), statements))
    epochs = _by_epoch(statements, lines.filter("partition_epoch IS NOT NULL"))
    epochs = _with_isr_of_leaderless(epochs, elr_modes(shared)).localCheckpoint()
    without = in_memory(statements.filter("partition_epoch IS NULL AND event_type <> 'assignment_changed'"))
    rows = in_memory(_in_sequence(epochs, lines, without).select("*", F.lit(False).alias("deleted")))
    removed = events.filter("event_type = 'topic_removed'").groupBy(*TOPIC, "topic_id").agg(
        F.min("ts").alias("removed_at"), F.min_by("record_id", "ts").alias("removal")
    )  # fmt: skip
    of_lives = removed.join(lives.select(*TOPIC, "topic_id", "topic_life"), [*TOPIC, "topic_id"])
    ended = F.broadcast(in_memory(of_lives.select(*TOPIC, "topic_life", "removed_at", "removal")))
    # a line that a slow broker prints after the end is about the time before it
    clamped = rows.join(ended, [*TOPIC, "topic_life"], "left").select(
        *rows.columns[: rows.columns.index("ts")],
        F.least("ts", "removed_at").alias("ts"),
        *rows.columns[rows.columns.index("ts") + 1 :],
    )
    gone = (
        rows.groupBy(*LIFE).agg(F.max("seq").alias("last"))
        .join(ended, [*TOPIC, "topic_life"])
        .select(
            *LIFE, (F.col("last") + 1).alias("seq"), F.col("removed_at").alias("ts"), F.col("removal").alias("record_id"),
            *[F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in (*VALUES, "partition_epoch")],
            F.lit(True).alias("deleted"),
        )
    )  # fmt: skip
    # so is what is said about a topic after another has got its name
    of_later_lives = Window.partitionBy(*PARTITION).orderBy("topic_life").rangeBetween(1, Window.unboundedFollowing)
    together = clamped.unionByName(gone)
    ended_by = F.least("ts", F.min("ts").over(of_later_lives)).alias("ts")
    return together.select(
        *[ended_by if name == "ts" else F.col(name) for name in together.columns], F.lit("logs").alias("source")
    )


def tells_removal() -> Column:
    """Whether an event tells that a topic is gone, or will be."""
    answered = (F.col("event_type") == "topic_deletion_answered") & (F.col("error_code") == "SUCCESS")
    return (F.col("event_type").isin(*REMOVED) | answered) & F.col("topic_id").isNotNull()


def deletions(events: DataFrame, lives: DataFrame) -> DataFrame:
    """`topic_deletions` of KRaft clusters: a topic is gone with one record, nothing can hold it up in the metadata.

    in: events; `topic_lives` of the topics that count. out: the columns of `topic_deletions`. From 4.0 on the active controller prints
    its answer to the request.
    """
    removed = F.col("event_type").isin(*REMOVED)
    # the record itself does not name its topic
    names = lives.select(*TOPIC, "topic_id")
    ended = in_memory(
        events.filter(tells_removal()).select("cluster", "incarnation", "topic_id", "ts", "event_type", "error_code", "record_id")
    )
    told = ended.join(F.broadcast(names), ["cluster", "incarnation", "topic_id"])
    grouped = told.groupBy(*TOPIC, "topic_id").agg(
        F.min("ts").alias("requested_at"),
        F.min(F.when(removed, F.col("ts"))).alias("completed_at"),
        F.min_by("record_id", F.struct("ts", "record_id")).alias("record_id"),
        F.min_by("record_id", F.when(removed, F.struct("ts", "record_id"))).alias("removal"),
    )
    return grouped.filter("removal IS NOT NULL").select(
        *TOPIC, "requested_at", "completed_at",
        F.array().cast("array<struct<partition: int, replica: int>>").alias("blocked_by"),
        F.lit(None).cast("timestamp").alias("blocked_since"),
        F.lit("completed").alias("outcome"),
        "record_id",
        F.array("removal").alias("evidence"),
    )  # fmt: skip
