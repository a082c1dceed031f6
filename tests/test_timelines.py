"""Timelines from a few events each; the topic of a row names the case, so that one frame holds all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality
from frames import frame

import schemas
from jobs.old_timelines import controllers, deletions, discontinuities, order, partitions, reassignments, replicas
from jobs.store import columns_of
from parsers.rules import built_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION = {"cluster": "STRING", "incarnation": "INT", "topic": "STRING", "partition": "INT"}
OF_CLUSTER_C = {"cluster": "c", "incarnation": 1}
# the columns of partitions.observations
OBSERVED = {
    **PARTITION, "life": "BIGINT", "pos": "DOUBLE", "ts": "TIMESTAMP", "record_id": "STRING",
    "says": "STRING", "event_type": "STRING", "from_state": "STRING", "state": "STRING",
    "caught_up": "BOOLEAN", "deleted": "BOOLEAN",
    "keeps": "ARRAY<STRING>",
    "leader": "INT", "leader_epoch": "INT", "isr": "ARRAY<INT>", "partition_epoch": "INT",
    "replicas": "ARRAY<INT>", "adding_replicas": "ARRAY<INT>", "removing_replicas": "ARRAY<INT>",
    "target_replicas": "ARRAY<INT>",
    "writer": "INT", "previous_isr": "ARRAY<INT>", "wanted_isr": "ARRAY<INT>",
}  # fmt: skip


def types_of(table: str) -> dict[str, str]:
    """Column -> type of a table."""
    return columns_of(next(definition for definition in schemas.statements("tables") if definition.name == table))


NIGHT = datetime(2026, 11, 20, 10)


def at(seconds: float | None) -> str | None:
    """A time stamp of that night."""
    return None if seconds is None else f"2026-11-20 10:{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def observed(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Observations; `pos` is also the second and the number of the record."""
    usual = {
        **OF_CLUSTER_C,
        "partition": 0,
        "life": 1,
        "says": "happened",
        "caught_up": False,
        "deleted": False,
        "keeps": [],
    }
    return frame(
        spark,
        OBSERVED,
        [usual | {"ts": at(row["pos"]), "record_id": f"r{row['pos']}", **row} for row in rows],
    )


def events(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Events of the controller on node 1; `s` is the second, and with it the number of the record."""
    usual = {
        **OF_CLUSTER_C,
        "item": 0,
        "node": 1,
        "file": "controller.log",
        "says": "happened",
        "drifted": False,
    }
    usual |= {"raw": "", "logger": "kafka.controller.KafkaController"}
    told = [
        usual
        | {"ts": at(row["s"]), "record_no": row["s"], "record_id": f"r{row['s']}"}
        | {name: value for name, value in row.items() if name != "s"}
        for row in rows
    ]
    assert {row["event_type"] for row in told} <= {rule.name for rule in built_in().rules}
    return order.in_order(frame(spark, types_of("events"), told))


def assert_rows(told: DataFrame, types: Mapping[str, str], *expected: Mapping[str, Any]) -> None:
    """The frame has these rows, of these columns, in any order."""
    wanted = frame(told.sparkSession, types, expected)
    assert_df_equality(told.select(*types), wanted, ignore_nullable=True, ignore_metadata=True, ignore_row_order=True)


def named(columns: str, *values: Any) -> dict[str, Any]:
    """Column -> value."""
    return dict(zip(columns.split(), values, strict=True))


def znode(*values: Any, **more: Any) -> dict[str, Any]:
    return named("topic pos partition_epoch leader leader_epoch isr", *values) | more


def test_znode_states(spark: SparkSession) -> None:
    carried = {"keeps": ["leader", "isr"]}
    told = observed(
        spark,
        # the clock of the broker that wrote epoch 1 is ahead: it was there no later than what followed it
        znode("clocks", 1, 0, 1, 0, [1, 2, 3]),
        znode("clocks", 2, 2, 2, 1, [2, 3]),
        znode("clocks", 3, 1, 1, 0, [1, 2]),
        # many lines about one state
        znode("repeated", 4, 0, 1, 0, None, says="is"),
        znode("repeated", 5, 0, 1, 0, [1, 2], says="is"),
        znode("repeated", 6, 0, 1, 0, [2, 1]),
        # only the epochs are printed; a reassignment leaves leader and ISR
        znode("carried", 7, 0, 1, 0, [1, 2, 3]),
        znode("carried", 8, 1, None, 1, None, **carried),
        znode("carried", 9, 2, None, 2, None, **carried),
        # .. but what was between is not known
        znode("gap", 10, 0, 1, 0, [1, 2, 3]),
        znode("gap", 11, 2, None, 2, None, **carried),
        # lines without a partition epoch: known already, new, older than their time
        znode("loose", 12, 0, 1, 0, [1, 2, 3]),
        znode("loose", 13, None, 1, 0, [3, 2, 1], says="is"),
        znode("loose", 14, None, 1, 1, [1, 2], says="is"),
        znode("loose", 15, None, 1, 0, [1], says="is"),
        # an intention is no state, and a topic that was created anew begins again
        znode("lives", 16, 4, 1, 3, [1]),
        znode("lives", 17, 0, 2, 0, [2], life=2),
    )
    types = {name: OBSERVED[name] for name in ("topic", "life", "pos", "ts", "record_id", *partitions.ZNODE)} | {
        "inferred": "BOOLEAN"
    }

    def state(*values: Any, pos: int | None = None, **more: Any) -> dict[str, Any]:
        row = znode(*values)
        return (
            {"life": 1, "inferred": False, "record_id": f"r{row['pos']}"}
            | row
            | {"pos": pos or row["pos"], "ts": at(pos or row["pos"])}
            | more
        )

    assert_rows(
        partitions.znode_states(told),
        types,
        state("clocks", 1, 0, 1, 0, [1, 2, 3]),
        state("clocks", 3, 1, 1, 0, [1, 2], pos=2),
        state("clocks", 2, 2, 2, 1, [2, 3]),
        state("repeated", 4, 0, 1, 0, [2, 1]),
        state("carried", 7, 0, 1, 0, [1, 2, 3]),
        state("carried", 8, 1, 1, 1, [1, 2, 3]),
        state("carried", 9, 2, 1, 2, [1, 2, 3]),
        state("gap", 10, 0, 1, 0, [1, 2, 3]),
        state("gap", 11, 2, None, 2, None),
        state("loose", 12, 0, 1, 0, [1, 2, 3]),
        state("loose", 14, None, 1, 1, [1, 2]),
        state("lives", 16, 4, 1, 3, [1]),
        state("lives", 17, 0, 2, 0, [2], life=2),
    )


def wish(topic: str, pos: int, writer: int, before: list[int], after: list[int], **more: Any) -> dict[str, Any]:
    """A leader before 2.4 says what it is about to write."""
    usual = {"says": "requested", "event_type": "isr_expanding" if len(after) > len(before) else "isr_shrinking"}
    return {"topic": topic, "pos": pos, "writer": writer, "previous_isr": before, "wanted_isr": after, **usual, **more}


def test_what_leaders_wrote(spark: SparkSession) -> None:
    refused = {"says": "failed", "event_type": "isr_write_refused", "writer": 1}
    told = observed(
        spark,
        # each wish is proven by the next, the last by the partition epoch of the election; a line about the second comes late
        znode("chain", 1, 0, 1, 0, [1, 2, 3]),
        wish("chain", 2, 1, [1, 2, 3], [1, 2]),
        wish("chain", 3, 1, [2, 1], [1]),
        znode("chain", 4, 1, 1, 0, [1, 2], says="is"),
        wish("chain", 5, 1, [1], [1, 2]),
        znode("chain", 6, 4, 2, 1, [1, 2]),
        # .. but there the epochs leave no room: it was not written
        znode("lost", 7, 0, 1, 0, [1, 2, 3]),
        wish("lost", 8, 1, [1, 2, 3], [1, 2]),
        znode("lost", 9, 1, 2, 1, [2, 3]),
        znode("refused", 10, 0, 1, 0, [1, 2, 3]),
        wish("refused", 11, 1, [1, 2, 3], [1, 2]),
        {"topic": "refused", "pos": 12, **refused},
        # nothing follows: likely, and no more
        znode("open", 13, 0, 1, 0, [1, 2, 3]),
        wish("open", 14, 1, [1, 2, 3], [1, 2]),
        # it does not begin with what is known, or another leader has it
        znode("unknown", 15, 0, 1, 0, [1, 2, 3]),
        wish("unknown", 16, 1, [1, 2], [1]),
        znode("other", 17, 0, 1, 0, [1, 2, 3]),
        wish("other", 18, 2, [1, 2, 3], [1, 2]),
        # the first was never done: the second begins where it did
        znode("again", 19, 0, 1, 0, [1, 2, 3]),
        wish("again", 20, 1, [1, 2, 3], [1, 2]),
        wish("again", 21, 1, [1, 2, 3], [1, 3]),
    )
    types = {name: OBSERVED[name] for name in ("topic", "pos", "record_id", *partitions.ZNODE)}
    types |= {"counted": "BOOLEAN", "inferred": "BOOLEAN"}

    def state(*values: Any, of: int | None = None, counted: bool = True, inferred: bool = False) -> dict[str, Any]:
        row = znode(*values)
        return row | {"record_id": f"r{of or row['pos']}", "counted": counted, "inferred": inferred}

    printed = {"counted": False}
    assert_rows(
        partitions.znode_states(told),
        types,
        state("chain", 1, 0, 1, 0, [1, 2, 3], **printed),
        state("chain", 2, 1, 1, 0, [1, 2], inferred=True),
        state("chain", 3, 1, 1, 0, [1, 2], of=2, **printed),
        state("chain", 3, 2, 1, 0, [1], inferred=True),
        state("chain", 5, 2, 1, 0, [1], of=3),
        state("chain", 5, 3, 1, 0, [1, 2], inferred=True),
        state("chain", 6, 3, 1, 0, [1, 2], of=5),
        state("chain", 6, 4, 2, 1, [1, 2], **printed),
        state("lost", 7, 0, 1, 0, [1, 2, 3], **printed),
        state("lost", 9, 1, 2, 1, [2, 3], **printed),
        state("refused", 10, 0, 1, 0, [1, 2, 3], **printed),
        state("open", 13, 0, 1, 0, [1, 2, 3], **printed),
        state("open", 14, 1, 1, 0, [1, 2], inferred=True),
        state("unknown", 15, 0, 1, 0, [1, 2, 3], **printed),
        state("other", 17, 0, 1, 0, [1, 2, 3], **printed),
        state("again", 19, 0, 1, 0, [1, 2, 3], **printed),
    )


def assigned(topic: str, pos: int, *lists: list[int], **more: Any) -> dict[str, Any]:
    """RS, and from 2.4 on AR and RR."""
    row = {"topic": topic, "pos": pos} | dict(zip(partitions.ASSIGNMENT, lists, strict=False))
    return row | {"event_type": "assignment_updated"} | more


def test_assignments(spark: SparkSession) -> None:
    told = observed(
        spark,
        # 2.4 and later: the controller's memory runs ahead of ZooKeeper; it counts until one is written
        assigned("kip-455", 1, [1, 2, 3], [], [], says="is", event_type="leader_and_isr_sent"),
        assigned("kip-455", 2, [4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3]),
        assigned("kip-455", 3, [4, 5, 6], [], [], says="is", event_type="leader_and_isr_sent"),
        assigned("kip-455", 4, [4, 5, 6], [], []),
        # up to 2.3: only RS is written, the target is told before
        assigned("up-to-2-3", 5, [1, 2, 3], event_type="partition_new"),
        {
            "topic": "up-to-2-3",
            "pos": 6,
            "says": "requested",
            "event_type": "reassignment_requested",
            "target_replicas": [4, 5, 6],
        },
        assigned("up-to-2-3", 7, [5, 1, 6, 2, 3, 4]),
        assigned("up-to-2-3", 8, [4, 5, 6]),
        # .. and one whose creation no log shows
        {
            "topic": "begun-before",
            "pos": 9,
            "says": "requested",
            "event_type": "reassignment_requested",
            "target_replicas": [2, 3],
        },
        assigned("begun-before", 10, [2, 3, 1]),
        assigned("begun-before", 11, [2, 3]),
    )
    types = {name: OBSERVED[name] for name in ("topic", "pos", "record_id", *partitions.ASSIGNMENT)} | {"inferred": "BOOLEAN"}

    def row(*values: Any) -> dict[str, Any]:
        told = named("topic pos replicas adding_replicas removing_replicas", *values)
        return told | {"record_id": f"r{told['pos']}", "inferred": False}

    assert_rows(
        partitions.assignments(told),
        types,
        row("kip-455", 1, [1, 2, 3], [], []),
        row("kip-455", 2, [4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3]),
        row("kip-455", 4, [4, 5, 6], [], []),
        row("up-to-2-3", 5, [1, 2, 3], [], []),
        row("up-to-2-3", 7, [5, 1, 6, 2, 3, 4], [4, 5, 6], [1, 2, 3]),
        row("up-to-2-3", 8, [4, 5, 6], [], []),
        # 1 goes; whether 2 and 3 were there before nobody can tell
        row("begun-before", 10, [2, 3, 1], None, [1]),
        row("begun-before", 11, [2, 3], [], []),
    )


def test_reassignments(spark: SparkSession) -> None:
    told = observed(
        spark,
        assigned("completed", 1, [1, 2, 3], [], [], event_type="partition_new"),
        assigned("completed", 2, [4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3]),
        {"topic": "completed", "pos": 3, "caught_up": True, "event_type": "reassignment_caught_up"},
        assigned("completed", 4, [4, 5, 6], [], []),
        # cancelled: the replicas come back, their order does not
        assigned("cancelled", 11, [3, 1, 2], [], [], event_type="partition_new"),
        assigned("cancelled", 12, [5, 1, 2, 3], [5], [3]),
        assigned("cancelled", 13, [1, 2, 3], [], []),
        assigned("replaced", 21, [1, 2], [], [], event_type="partition_new"),
        assigned("replaced", 22, [3, 4, 1, 2], [3, 4], [1, 2]),
        assigned("replaced", 23, [5, 6, 1, 2], [5, 6], [1, 2]),
        assigned("replaced", 24, [5, 6], [], []),
        assigned("in-progress", 31, [1, 2], [], [], event_type="partition_new"),
        assigned("in-progress", 32, [1, 2, 3], [3], []),
        # the logs begin while it runs
        assigned("begun-before", 41, [2, 1], [2], [1]),
        {"topic": "begun-before", "pos": 42, "caught_up": True, "event_type": "reassignment_caught_up"},
        assigned("begun-before", 43, [2], [], []),
        # only the order changes: nothing moves
        assigned("order", 51, [3, 1, 2], [], [], event_type="partition_new"),
        assigned("order", 52, [1, 2, 3], [], []),
    )

    def row(*values: Any) -> dict[str, Any]:
        told = named("topic started_at caught_up_at completed_at original_replicas target_replicas outcome", *values)
        original, target = told["original_replicas"], told["target_replicas"]
        moves = {
            "adding_replicas": [one for one in target if one not in original],
            "removing_replicas": [one for one in original if one not in target],
        }
        identity = {**OF_CLUSTER_C, "partition": 0, "record_id": f"r{told['started_at']}"}
        return told | {name: at(told[name]) for name in ("started_at", "caught_up_at", "completed_at")} | moves | identity

    assert_rows(
        reassignments.reassignments(told),
        types_of("reassignments"),
        row("completed", 2, 3, 4, [1, 2, 3], [4, 5, 6], "completed"),
        row("cancelled", 12, None, None, [3, 1, 2], [5, 1, 2], "cancelled"),
        row("replaced", 22, None, None, [1, 2], [3, 4], "replaced"),
        row("replaced", 23, None, 24, [1, 2], [5, 6], "completed"),
        row("in-progress", 32, None, None, [1, 2], [1, 2, 3], "in_progress"),
        row("begun-before", 41, 42, 43, [1], [2], "completed"),
    )


def test_what_is_refused_never_started(spark: SparkSession) -> None:
    def asked(s: int, event_type: str, topic: str, says: str = "failed", **more: Any) -> dict[str, Any]:
        return {"s": s, "event_type": event_type, "topic": topic, "partition": 0, "says": says} | more

    def written(s: int, topic: str, replicas: list[int], adding: list[int], removing: list[int]) -> dict[str, Any]:
        assigned = {"replicas": replicas, "adding_replicas": adding, "removing_replicas": removing}
        return asked(s, "assignment_updated", topic, "happened", **assigned)

    moved = {"text": "because controller has moved to another broker"}
    told = events(
        spark,
        # up to 2.3: the request is printed, and fails before anything is written
        written(1, "failed", [1, 2], [], []),
        asked(2, "reassignment_requested", "failed", "requested", target_replicas=[3, 4]),
        asked(3, "reassignment_failed", "failed"),
        # .. and once more later
        asked(4, "reassignment_failed", "failed", target_replicas=[5], text="as it was never created"),
        # 2.4 and later: one refusal, two lines
        asked(11, "reassignment_failed", "twice", text="since the topic is currently being deleted"),
        asked(12, "reassignments_refused", "twice", error_code="UNKNOWN_TOPIC_OR_PARTITION"),
        asked(13, "reassignments_refused", "twice", error_code="UNKNOWN_TOPIC_OR_PARTITION"),
        # what fails while it runs has started; the next controller goes on with it
        written(21, "running", [1, 2], [], []),
        written(22, "running", [3, 1, 2], [3], [1]),
        asked(23, "reassignment_failed", "running"),
        # the request waits for the next controller
        asked(31, "reassignment_requested", "moved", "requested", target_replicas=[3, 4]),
        asked(32, "reassignment_failed", "moved", **moved),
        # a request for a partition that does not exist does not make it one
        {"s": 41, "event_type": "deletion_completed", "topic": "nowhere"},
        asked(40, "reassignment_failed", "nowhere", text="that doesn't exist."),
    )
    rules = frame(spark, {"event_type": "STRING", "keeps": "ARRAY<STRING>"}, [])
    observations = partitions.observations(told, rules).localCheckpoint()

    def row(*values: Any) -> dict[str, Any]:
        named_values = named("topic started_at original_replicas target_replicas", *values)
        nothing = {"adding_replicas": [], "removing_replicas": [], "outcome": "never_started"}
        identity = {**OF_CLUSTER_C, "partition": 0, "record_id": f"r{named_values['started_at']}"}
        return named_values | {"started_at": at(named_values["started_at"])} | nothing | identity

    assert_rows(
        reassignments.reassignments(observations).filter("outcome = 'never_started'"),
        types_of("reassignments"),
        row("failed", 3, [1, 2], [3, 4]),
        row("failed", 4, [1, 2], [5]),
        row("twice", 11, None, None),
        row("twice", 13, None, None),
        row("nowhere", 40, None, None),
    )
    begun = reassignments.reassignments(observations).filter("outcome <> 'never_started'").collect()
    assert [(found.topic, found.outcome) for found in begun] == [("running", "in_progress")]
    assert not partitions.timeline(observations).filter("topic = 'nowhere'").count()


def test_deletions(spark: SparkSession) -> None:
    def dead(s: int, topic: str, partition: int, replica: int, **more: Any) -> dict[str, Any]:
        return {
            "s": s,
            "topic": topic,
            "event_type": "deletion_dead_replicas",
            "says": "is",
            "partition": partition,
            "replica": replica,
        } | more

    told = events(
        spark,
        {"s": 1, "topic": "smooth", "event_type": "deletion_requested", "says": "requested"},
        {"s": 2, "topic": "smooth", "event_type": "deletion_completed"},
        # created and deleted once more, and this time it waits
        {"s": 3, "topic": "smooth", "event_type": "deletion_requested", "says": "requested"},
        {"s": 11, "topic": "blocked", "event_type": "deletion_requested", "says": "requested"},
        dead(12, "blocked", 1, 3),
        dead(12, "blocked", 0, 3, item=1),
        dead(13, "blocked", 0, 3),
        {"s": 21, "topic": "returned", "event_type": "deletion_requested", "says": "requested"},
        dead(22, "returned", 0, 3),
        {"s": 23, "topic": "returned", "event_type": "deletion_completed"},
        # up to 2.2 the controller refuses the move itself
        {"s": 31, "topic": "refused", "event_type": "deletion_requested", "says": "requested"},
        {"s": 32, "topic": "refused", "event_type": "replica_state_change_failed", "says": "failed",
         "partition": 0, "replica": 3,
         "from_state": "OfflineReplica", "to_state": "ReplicaDeletionIneligible"},
        # a starting controller finds a replica on a dead broker: no deletion at all
        {"s": 41, "topic": "none", "event_type": "replica_states", "says": "is", "partition": 0, "replica": 3,
         "to_state": "ReplicaDeletionIneligible"},
        # the logs begin late
        {"s": 51, "topic": "end-only", "event_type": "deletion_completed"},
    )  # fmt: skip
    types = {name: kind for name, kind in types_of("topic_deletions").items() if name not in {"cluster", "incarnation"}}
    types["blocked_by"] = "ARRAY<STRUCT<partition: INT, replica: INT>>"

    def row(*values: Any) -> dict[str, Any]:
        told = named("topic requested_at completed_at blocked_by blocked_since outcome record_id evidence", *values)
        return told | {
            **{name: at(told[name]) for name in ("requested_at", "completed_at", "blocked_since")},
            "blocked_by": [{"partition": partition, "replica": replica} for partition, replica in told["blocked_by"]],
            "record_id": f"r{told['record_id']}",
            "evidence": [f"r{number}" for number in told["evidence"]],
        }

    assert_rows(
        deletions.deletions(told),
        types,
        row("smooth", 1, 2, [], None, "completed", 1, [2]),
        row("smooth", 3, None, [], None, "pending", 3, []),
        row("blocked", 11, None, [(0, 3), (1, 3)], 12, "blocked", 11, [12, 13]),
        row("returned", 21, 23, [(0, 3)], 22, "completed", 21, [22, 23]),
        row("refused", 31, None, [(0, 3)], 32, "blocked", 31, [32]),
        row("end-only", None, 51, [], None, "completed", 51, [51]),
    )


def test_reigns(spark: SparkSession) -> None:
    def says(s: int, node: int, epoch: int | None, event_type: str, **more: Any) -> dict[str, Any]:
        return {
            "s": s,
            "node": node,
            "controller": node,
            "controller_epoch": epoch,
            "event_type": event_type,
        } | more

    told = events(
        spark,
        says(1, 1, 1, "controller_elected"),
        says(2, 1, 1, "partition_online"),
        # a broker tells of the controller: it speaks for itself
        {"s": 3, "node": 2, "controller": 1, "controller_epoch": 1, "event_type": "leader_and_isr_received"},
        says(4, 1, None, "controller_resigned"),
        says(5, 2, 2, "controller_elected"),
        # killed; its successor's election is in no log
        says(7, 3, 3, "partition_online"),
        # node 1 stops without having been controller any more, then is it once again
        says(20, 1, 4, "controller_elected"),
        says(21, 1, None, "controller_resigned"),
        # a broker that never was controller resigns, as every broker does at its end
        says(22, 4, None, "controller_resigned"),
        # after a wipe epoch 1 is another reign
        says(30, 2, 1, "controller_elected", incarnation=2),
        # node 1 does not know yet that it was deposed: what it remembers counts no more, what it wrote does
        says(8, 1, 1, "replica_state_changed", topic="t", partition=0, replica=1, to_state="OfflineReplica"),
        says(9, 1, 1, "partition_online", topic="t", partition=0, to_state="OnlinePartition", partition_epoch=3),
    )
    elections = tuple((1, epoch, NIGHT + timedelta(seconds=s)) for epoch, s in ((1, 1), (2, 5), (4, 20)))
    told = told.select("*", order.overruled({"c": [order.Cluster((), (1,), elections)]}).alias("overruled"))
    assert [row.record_id for row in told.filter("overruled").collect()] == ["r8"]

    def row(*values: Any, incarnation: int = 1, overruled: int = 0) -> dict[str, Any]:
        told = named("node controller_epoch elected_at resigned_at record_id", *values)
        times = {"elected_at": at(told["elected_at"]), "resigned_at": at(told["resigned_at"])}
        inferred = {"inferred": told["elected_at"] is None, "record_id": f"r{told['record_id']}"}
        return told | times | inferred | {"cluster": "c", "incarnation": incarnation, "overruled": overruled}

    assert_rows(
        controllers.reigns(told),
        types_of("controllers"),
        row(1, 1, 1, 4, 1, overruled=1),
        row(2, 2, 5, None, 5),
        row(3, 3, None, None, 7),
        row(1, 4, 20, 21, 20),
        row(2, 1, 30, None, 30, incarnation=2),
    )


def broken(spark: SparkSession) -> DataFrame:
    """Lines of state changes, some of which do not begin where the one before has ended."""

    def changed(s: int, topic: str, before: str, after: str, epoch: int = 1, **more: Any) -> dict[str, Any]:
        row = {"s": s, "topic": topic, "partition": 0, "from_state": f"{before}Partition", "to_state": f"{after}Partition"}
        row |= {"event_type": "partition_online", "controller": 1, "controller_epoch": epoch, "level": "TRACE"}
        return row | {"logger": "state.change.logger", "file": "state-change.log"} | more

    def found(s: int, topic: str, state: str, **more: Any) -> dict[str, Any]:
        row = {"s": s, "topic": topic, "partition": 0, "to_state": f"{state}Partition", "says": "is"}
        return row | {"event_type": "partition_states", "cluster": "d", **more}

    later = {"file": "state-change.log.2", "ts": "2026-11-20 13:30:00"}
    return events(
        spark,
        changed(1, "whole", "NonExistent", "New"),
        changed(2, "whole", "New", "Online"),
        # a move that was refused or failed leaves the state
        changed(3, "whole", "Online", "Offline", says="failed"),
        changed(4, "whole", "Online", "Online"),
        changed(5, "deleted", "New", "Online"),
        {"s": 6, "topic": "deleted", "event_type": "deletion_completed"},
        changed(7, "deleted", "NonExistent", "New"),
        changed(8, "successor", "New", "Online"),
        changed(9, "successor", "Offline", "Online", epoch=2),
        changed(10, "epoch_falls", "New", "Online", epoch=5),
        changed(11, "epoch_falls", "NonExistent", "New", epoch=1),
        changed(12, "__internal", "New", "Online"),
        changed(13, "__internal", "NonExistent", "New", file="state-change.log.2"),
        changed(14, "info", "New", "Online", level="INFO", node=2),
        changed(15, "info", "Offline", "Online", level="INFO", node=2),
        changed(16, "gap", "New", "Online"),
        changed(17, "gap", "Offline", "Online", **later),
        changed(18, "cut", "New", "Online"),
        changed(19, "cut", "Offline", "Online"),
        changed(20, "copy", "New", "Online"),
        changed(21, "copy", "New", "Online", ts=at(20), file="copy.log"),
        # the map of a starting controller; what it was before is another's
        found(30, "dump", "Online", cluster="d"),
        {"s": 31, "event_type": "controller_elected", "controller": 1, "controller_epoch": 8, "cluster": "d"},
        changed(32, "dump", "Offline", "Online", epoch=8, cluster="d"),
    )


def test_discontinuities(spark: SparkSession) -> None:
    types = {"topic": "STRING", "held_state": "STRING", "found_state": "STRING", "cause": "STRING"}
    types |= {"record_id": "STRING", "held_record_id": "STRING"}

    def row(topic: str, held: str, state: str, cause: str, *numbers: int) -> dict[str, Any]:
        records = {"record_id": f"r{numbers[0]}", "held_record_id": f"r{numbers[-1] if numbers[1:] else numbers[0] - 1}"}
        return {"topic": topic, "held_state": f"{held}Partition", "found_state": f"{state}Partition", "cause": cause, **records}

    assert_rows(
        discontinuities.discontinuities(discontinuities.breaks(broken(spark)), broken(spark)),
        types,
        row("successor", "Online", "Offline", "other_controller", 9),
        row("epoch_falls", "Online", "NonExistent", "wiped_cluster", 11),
        row("__internal", "Online", "NonExistent", "wiped_cluster", 13),
        row("info", "Online", "Offline", "level", 15),
        row("gap", "Online", "Offline", "hours_without_file", 17),
        row("cut", "Online", "Offline", "file_missing", 19),
        row("copy", "Online", "New", "duplicate", 21),
        row("dump", "Online", "Offline", "other_controller", 32, 30),
    )


def test_replicas(spark: SparkSession) -> None:
    def changed(s: int, topic: str, before: str, after: str) -> dict[str, Any]:
        states = {"from_state": f"{before}Replica", "to_state": f"{after}Replica"}
        return {
            "s": s,
            "topic": topic,
            "partition": 0,
            "replica": 3,
            "event_type": "replica_state_changed",
            "says": "happened",
        } | states

    silent = {"cluster": "silent", "topic": "silent"}
    told = events(
        spark,
        # node 1 prints every change of a replica's state: nothing is inferred from its other lines
        changed(1, "traced", "NonExistent", "New"),
        changed(2, "traced", "New", "Online"),
        changed(3, "traced", "Online", "Online"),
        changed(5, "traced", "Online", "Offline"),
        {"s": 6, "topic": "traced", "partition": 0, "replica": 3, "event_type": "isr_shrunk"},
        {"s": 7, "topic": "traced", "partition": 0, "replica": 3, "says": "failed",
         "event_type": "replica_state_change_failed",
         "from_state": "OfflineReplica", "to_state": "ReplicaDeletionIneligible"},
        # the first line tells what was before it
        changed(11, "begun-before", "Online", "Offline"),
        # another cluster's controller prints none: its other lines tell
        silent | {"s": 21, "partition": 0, "event_type": "partition_new", "replicas": [3]},
        silent | {"s": 22, "partition": 0, "event_type": "partition_online", "from_state": "NewPartition"},
        silent | {"s": 23, "partition": 0, "replica": 3, "event_type": "isr_shrunk"},
        silent | {"s": 24, "topic": None, "event_type": "broker_started", "broker": 3},
        silent | {"s": 25, "event_type": "deletion_completed"},
    )  # fmt: skip

    def held(*values: Any) -> dict[str, Any]:
        told = named("topic valid_from valid_to isr replicas", *values)
        times = {"valid_from": at(told["valid_from"]), "valid_to": at(told["valid_to"])}
        none = {"adding_replicas": [], "removing_replicas": [], "inferred": False}
        return {**OF_CLUSTER_C, "partition": 0, "step": 1} | told | times | none

    partition_timeline = frame(
        spark,
        types_of("partition_timeline"),
        [
            held("traced", 2, 4, [1, 3], [1, 3]),
            held("traced", 4, None, [1], [1, 3]),
            held("begun-before", 10, None, [1], [1, 3]),
            held("silent", 21, 25, [3], [3]) | silent,
        ],
    )

    def row(*values: Any) -> dict[str, Any]:
        told = named("topic step valid_from valid_to state in_isr inferred record_id", *values)
        times = {"valid_from": at(told["valid_from"]), "valid_to": at(told["valid_to"])}
        texts = {"state": f"{told['state']}Replica", "record_id": f"r{told['record_id']}"}
        return {**OF_CLUSTER_C, "partition": 0, "replica": 3} | told | times | texts

    assert_rows(
        replicas.with_isr(replicas.timeline(told, partition_timeline, replicas.tracing(told)), partition_timeline),
        types_of("replica_timeline"),
        row("traced", 1, 1, 2, "New", None, False, 1),
        row("traced", 2, 2, 5, "Online", False, False, 2),
        row("traced", 3, 5, None, "Offline", False, False, 5),
        row("begun-before", 1, None, 11, "Online", False, True, 11),
        row("begun-before", 2, 11, None, "Offline", False, False, 11),
        row("silent", 1, 21, 22, "New", True, True, 21) | silent,
        row("silent", 2, 22, 23, "Online", True, True, 22) | silent,
        row("silent", 3, 23, 24, "Offline", True, True, 23) | silent,
        row("silent", 4, 24, 25, "Online", True, True, 24) | silent,
        row("silent", 5, 25, None, "NonExistent", None, True, 25) | silent,
    )


def test_phases_of_a_reassignment(spark: SparkSession) -> None:
    """U until the leader epoch is raised, A until all have caught up, B until the old replicas are gone."""
    told = observed(
        spark,
        assigned(
            "orders",
            1,
            [1, 2, 3],
            [],
            [],
            event_type="partition_new",
            state="NewPartition",
            from_state="NonExistentPartition",
        ),
        znode("orders", 2, 0, 1, 0, [1, 2, 3], state="OnlinePartition", from_state="NewPartition"),
        assigned("orders", 3, [4, 1, 2, 3], [4], [1]),
        znode("orders", 4, 1, 1, 1, [1, 2, 3]),
        znode("orders", 5, 2, 1, 1, [1, 2, 3, 4]),
        {"topic": "orders", "pos": 6, "caught_up": True, "event_type": "reassignment_caught_up"},
        znode("orders", 7, 3, 4, 2, [1, 2, 3, 4], state="OnlinePartition", from_state="OnlinePartition"),
        znode("orders", 8, 4, 4, 3, [2, 3, 4]),
        assigned("orders", 9, [2, 3, 4], [], []),
    )
    types = {
        name: types_of("partition_timeline")[name]
        for name in (
            "step",
            "valid_from",
            "valid_to",
            "leader",
            "leader_epoch",
            "state",
            "reassignment_phase",
        )
    }

    def row(*values: Any) -> dict[str, Any]:
        told = named("step valid_from valid_to leader leader_epoch state reassignment_phase", *values)
        times = {"valid_from": at(told["valid_from"]), "valid_to": at(told["valid_to"])}
        return told | times | {"state": f"{told['state']}Partition"}

    assert_rows(
        partitions.timeline(told),
        types,
        row(1, 1, 2, None, None, "New", None),
        row(2, 2, 3, 1, 0, "Online", None),
        row(3, 3, 4, 1, 0, "Online", "U"),
        row(4, 4, 5, 1, 1, "Online", "A"),
        row(5, 5, 6, 1, 1, "Online", "A"),
        row(6, 6, 7, 1, 1, "Online", "B"),
        row(7, 7, 8, 4, 2, "Online", "B"),
        row(8, 8, 9, 4, 3, "Online", "B"),
        row(9, 9, None, 4, 3, "Online", None),
    )
