"""Compare partition_timeline rows of one recording with the exact truth that is recorded beside its logs.

    python tests/truth.py RECORDING_DIR ROWS.jsonl [--verbose]

The truth of a ZooKeeper recording is its transaction log (truth-txn.jsonl), that of a KRaft recording its
merged metadata log (timeline.jsonl; timeline-1.jsonl, timeline-2.jsonl where the cluster was wiped). Both
become generations of partitions, each from creation to deletion: the writes of leader, leader epoch, ISR,
partition epoch, and of RS, AR, RR.

Precision: every row that is not marked as inferred must agree with a true state and a true assignment in all
fields it fills in; the rows must go through the truth in its order; none may begin before the truth did.
    wrong         no state (or assignment) of this partition has ever been what the row says
    early         it became true, but later than the row says (1 ms is tolerated; see STAMPED_AFTER_LOGGED)
    out of order  it was true, but the rows around it do not let it be in its place
    mixed         state and assignment were both true, but never at the same time
    broken        steps do not count 1, 2, 3 …; or it ends before it begins; or begins before an earlier step
A row may fit several true values. Then the rows are matched so that as many as possible are in place and on
  time,
then in place at all, and then so that they show as much as possible.

Recall: a true state is shown by an observed row with leader, leader epoch, ISR and partition epoch (up to
  Kafka 2.6,
where leaders write states, too, most lines leave the partition epoch out, and so may the row); a true
  assignment by one
with RS, AR and RR. What no row shows is a miss, with the first reason that applies:
    at_shutdown      written after the scenario was over (or while a cluster that was wiped later was stopped)
    superseded       the next write to this partition, or its deletion, followed within 0.5 s
    being_deleted    the topic was queued for deletion (ZooKeeper)
    no_live_replica  no broker with a replica was registered (KRaft: registered and unfenced)
    missing          none of these: the logs may show it

Exit code: 0 nothing wrong, early, out of order or broken; 1 otherwise; 2 unreadable input. Misses and mixed
rows are counted, but do not change the exit code.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

ROUNDING = timedelta(milliseconds=1)
CONTROLLER_BATCH = timedelta(milliseconds=500)
# KRaft up to 3.8: the active controller prints what it decided before the record gets its time stamp.
# Measured in 3.3.2 and 3.6.2: 23 lines, by at most 51 ms; in 3.7.1 and 3.8.1: 16, by at most 3 ms. None in
# 3.9.1 and later.
STAMPED_AFTER_LOGGED = timedelta(milliseconds=60)

Aspect = Literal["state", "assignment"]
Kind = Literal["wrong", "early", "out of order", "mixed", "broken"]
TopicPartition: TypeAlias = tuple[str, int]
IncarnationPartition: TypeAlias = tuple[int, str, int]

ASPECTS: tuple[Aspect, Aspect] = ("state", "assignment")
REASONS = ("superseded", "at_shutdown", "being_deleted", "no_live_replica", "missing")
STATE_FIELDS = ("leader", "leader_epoch", "isr", "partition_epoch")
ASSIGNMENT_FIELDS = ("replicas", "adding_replicas", "removing_replicas")


# -------------------------------------------------------------------------------- the truth


@dataclass(frozen=True)
class TrueState:
    """One write of a partition's state; `order` is its place in the log it was written to."""

    begun: datetime
    leader: int
    leader_epoch: int
    isr: frozenset[int]
    partition_epoch: int
    order: int = 0
    writer: Literal["controller", "leader"] = "controller"
    circumstance: str = ""

    def __str__(self) -> str:
        isr = ",".join(map(str, sorted(self.isr)))
        return (
            f"partition epoch {self.partition_epoch}, leader {self.leader}, "
            f"leader epoch {self.leader_epoch}, ISR [{isr}], by the {self.writer} at {clock(self.begun)}"
        )

    def fits(self, row: TimelineRow) -> bool:
        """Return whether every state field of the row that is not null has this value."""
        return (
            row.leader in (None, self.leader)
            and row.leader_epoch in (None, self.leader_epoch)
            and row.partition_epoch in (None, self.partition_epoch)
            and (row.isr is None or same_members(row.isr, self.isr))
        )


@dataclass(frozen=True)
class TrueAssignment:
    """RS, AR and RR from one write on until they change; RS has no stable order where `ordered` is false."""

    begun: datetime
    replicas: tuple[int, ...]
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()
    order: int = 0
    ordered: bool = True
    circumstance: str = ""

    def __str__(self) -> str:
        adding, removing = (",".join(map(str, sorted(ids))) for ids in (self.adding, self.removing))
        unordered = "" if self.ordered else " in any order"
        replicas = ",".join(map(str, self.replicas))
        return f"RS [{replicas}]{unordered}, AR [{adding}], RR [{removing}] at {clock(self.begun)}"

    def fits(self, row: TimelineRow) -> bool:
        """Return whether every assignment field of the row that is not null has this value."""
        return (
            (row.replicas is None or self.has_replicas(row.replicas))
            and (row.adding_replicas is None or same_members(row.adding_replicas, self.adding))
            and (row.removing_replicas is None or same_members(row.removing_replicas, self.removing))
        )

    def has_replicas(self, replicas: tuple[int, ...]) -> bool:
        return replicas == self.replicas if self.ordered else same_members(replicas, frozenset(self.replicas))

    def continues(self, before: TrueAssignment) -> bool:
        """Return whether nothing has changed since the write before."""
        return (
            (self.adding, self.removing, self.ordered) == (before.adding, before.removing, before.ordered)
            and self.has_replicas(before.replicas)
        )  # fmt: skip


@dataclass
class PartitionGeneration:
    """A partition from its creation to its deletion; a re-created topic has new generations."""

    incarnation: int
    topic: str
    partition: int
    states: list[TrueState] = field(default_factory=list)
    assignments: list[TrueAssignment] = field(default_factory=list)
    ended: datetime | None = None
    end_order: int | None = None
    tolerance: timedelta = ROUNDING

    @property
    def since_creation(self) -> bool:
        """False for a partition migrated from ZooKeeper: its first true state is older than its record."""
        return not self.states or self.states[0].partition_epoch == 0

    def end(self, at: datetime, order: int) -> None:
        if self.ended is None:
            self.ended, self.end_order = at, order


@dataclass
class Truth:
    """All generations of one recording in the order of their creation, and when each incarnation was shut
    down.
    """

    generations: list[PartitionGeneration]
    shut_down: dict[int, datetime]

    @property
    def by_leaders(self) -> bool:
        """Up to Kafka 2.6 leaders write states, too, and most lines about a state leave the partition epoch
        out.
        """
        return any(state.writer == "leader" for generation in self.generations for state in generation.states)


@dataclass(frozen=True)
class Interval:
    """A true value with the moment and the write that ended it."""

    value: TrueState | TrueAssignment
    generation: PartitionGeneration
    first: bool
    until: datetime | None
    until_order: int | None

    def overlaps(self, other: Interval) -> bool:
        return (
            self.generation is other.generation
            and (self.until_order is None or other.value.order < self.until_order)
            and (other.until_order is None or self.value.order < other.until_order)
        )


def intervals(generations: Iterable[PartitionGeneration], aspect: Aspect) -> list[Interval]:
    found = []
    for generation in generations:
        values: Sequence[TrueState | TrueAssignment] = (
            generation.states if aspect == "state" else generation.assignments
        )
        for position, value in enumerate(values):
            after = values[position + 1] if position + 1 < len(values) else None
            until = generation.ended if after is None else after.begun
            until_order = generation.end_order if after is None else after.order
            found.append(Interval(value, generation, position == 0, until, until_order))
    return found


def same_members(listed: Sequence[int], members: frozenset[int]) -> bool:
    return len(listed) == len(members) and frozenset(listed) == members


def clock(moment: datetime | None) -> str:
    return "unknown time" if moment is None else moment.strftime("%H:%M:%S.%f")[:-3]


def moment_of(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not JSON: {error}") from error


def read_truth(recording: Path) -> Truth:
    """Return the truth of a recording: of ZooKeeper, of KRaft, or of both if it was migrated."""
    transactions = recording / "truth-txn.jsonl"
    timelines = sorted(recording.glob("timeline*.jsonl"), key=lambda path: incarnation_number(path.stem))
    if not transactions.exists() and not timelines:
        raise FileNotFoundError(
            f"{recording} has neither truth-txn.jsonl nor timeline.jsonl: not a recording"
        )
    generations = []
    for incarnation, timeline in enumerate(timelines, 1):
        metadata_log = timeline.with_name(timeline.name.replace("timeline", "metadata-log"))
        generations += kraft_generations(incarnation, json_lines(timeline), registrations(metadata_log))
    if kafka_version(recording) < (3, 9):
        for generation in generations:
            generation.tolerance = STAMPED_AFTER_LOGGED
    if transactions.exists():
        older = ZooKeeperTruth(json_lines(transactions)).generations
        generations = migrated(older, generations) if generations else older
    return Truth(generations, shutdown_moments(recording / "steps.jsonl"))


def migrated(
    zookeeper: Sequence[PartitionGeneration], kraft: Sequence[PartitionGeneration]
) -> list[PartitionGeneration]:
    """Return ZooKeeper's generations up to the first record of the metadata log, continued by that log alone.

    After that record, ZooKeeper gets the same writes later, so they do not count.
    """
    taken_over = min(generation.states[0].begun for generation in kraft)
    after = 1 + max(
        write.order for generation in zookeeper for write in (*generation.states, *generation.assignments)
    )
    before: dict[TopicPartition, PartitionGeneration] = {}
    generations = []
    for generation in zookeeper:
        generation.states = [state for state in generation.states if state.begun <= taken_over]
        generation.assignments = [
            assignment for assignment in generation.assignments if assignment.begun <= taken_over
        ]
        if generation.states:
            generations.append(generation)
            if generation.ended is None or generation.ended > taken_over:
                generation.ended = generation.end_order = None
                before[generation.topic, generation.partition] = generation
    for generation in kraft:
        states = [replace(state, order=state.order + after) for state in generation.states]
        assignments = [
            replace(assignment, order=assignment.order + after) for assignment in generation.assignments
        ]
        end = None if generation.end_order is None else generation.end_order + after
        older = None if generation.since_creation else before.get((generation.topic, generation.partition))
        if older is None:
            generations.append(replace(generation, states=states, assignments=assignments, end_order=end))
            continue
        if older.assignments and assignments[0].continues(older.assignments[-1]):
            del assignments[0]
        known = older.states[-1].partition_epoch
        older.states += [state for state in states if state.partition_epoch > known]
        older.assignments += assignments
        older.ended, older.end_order, older.tolerance = generation.ended, end, generation.tolerance
    return generations


def kafka_version(recording: Path) -> tuple[int, ...]:
    """Return the version of a KRaft recording; without one it counts as a new version."""
    described = recording / "recording.json"
    version = json.loads(described.read_text(encoding="utf-8"))["version"] if described.exists() else "9999"
    return tuple(int(number) for number in version.split("."))


def incarnation_number(stem: str) -> int:
    number = re.search(r"-(\d+)$", stem)
    return int(number[1]) if number else 1


def shutdown_moments(steps: Path) -> dict[int, datetime]:
    """Return incarnation -> when its final shutdown began, as far as the steps show it."""
    moments: dict[int, datetime] = {}
    incarnation, over, stopping = 1, False, None
    for step in json_lines(steps) if steps.exists() else ():
        name, at = step.get("step") or step.get("action", ""), moment_of(step.get("time") or step["ts"])
        if "wiped" in name or name.startswith("data deleted"):
            incarnation, over, stopping = incarnation + 1, False, None
        elif name.startswith("scenario over"):
            moments[incarnation], over = at, True
        elif over:
            continue
        elif "SIGTERM" in name:
            stopping = stopping or at
            moments[incarnation] = stopping
        elif not name.endswith(("ended", "stopped")) and not name.startswith(("dumped", "kill -9 after")):
            stopping = None
            moments.pop(incarnation, None)
    return moments


class ZooKeeperTruth:
    """Replays the transaction log of ZooKeeper: every write it accepted, in zxid order."""

    def __init__(self, writes: Iterable[Mapping[str, Any]]) -> None:
        self.generations: list[PartitionGeneration] = []
        self.incarnation = 0
        self.zxid = 0
        self.set_up()
        for order, write in enumerate(writes):
            self.order, self.at = order, moment_of(write["time"])
            zxid = int(write.get("zxid", "0x0"), 16)
            if write["op"] == "cluster_wiped" or zxid < self.zxid:
                self.wipe()
            self.zxid = zxid
            self.apply(write)

    def set_up(self) -> None:
        """An empty ZooKeeper."""
        self.incarnation += 1
        self.zxid = 0
        self.open: dict[TopicPartition, PartitionGeneration] = {}
        self.live_brokers: set[int] = set()
        self.queued_for_deletion: set[str] = set()
        self.targets: dict[TopicPartition, tuple[int, ...]] = {}
        self.stable_replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.controller_session: str | None = None

    def wipe(self) -> None:
        for generation in self.open.values():
            generation.end(self.at, self.order)
        self.set_up()

    def apply(self, write: Mapping[str, Any]) -> None:
        if write["op"] == "closeSession":
            for path in write["removes"]:
                self.removed_with_session(path)
            return
        if write["op"] not in ("create", "setData", "delete"):
            return
        path, is_deleted = write["path"], write["op"] == "delete"
        value: Any = write.get("value")
        match path.split("/")[1:]:
            case ["controller"]:
                self.controller_session = None if is_deleted else write["session"]
            case ["brokers", "ids", broker]:
                (self.live_brokers.discard if is_deleted else self.live_brokers.add)(int(broker))
            case ["admin", "delete_topics", topic]:
                (self.queued_for_deletion.discard if is_deleted else self.queued_for_deletion.add)(topic)
            case ["admin", "reassign_partitions"]:
                self.reassignment_requested([] if is_deleted else value["partitions"])
            case ["brokers", "topics", topic]:
                self.topic_deleted(topic) if is_deleted else self.assignment_written(topic, value)
            case ["brokers", "topics", topic, "partitions", partition, "state"]:
                if not is_deleted:
                    self.state_written(topic, int(partition), write)
                elif (topic, int(partition)) in self.open:
                    self.open[topic, int(partition)].end(self.at, self.order)

    def removed_with_session(self, path: str) -> None:
        if path == "/controller":
            self.controller_session = None
        elif path.startswith("/brokers/ids/"):
            self.live_brokers.discard(int(path.rpartition("/")[2]))

    def generation(self, topic: str, partition: int) -> PartitionGeneration:
        generation = self.open.get((topic, partition))
        if generation is None or generation.ended is not None:
            generation = PartitionGeneration(self.incarnation, topic, partition)
            self.open[topic, partition] = generation
            self.generations.append(generation)
            self.stable_replicas.pop((topic, partition), None)
        return generation

    def topic_deleted(self, topic: str) -> None:
        for key in [key for key in self.open if key[0] == topic]:
            self.open.pop(key).end(self.at, self.order)

    def state_written(self, topic: str, partition: int, write: Mapping[str, Any]) -> None:
        generation, value = self.generation(topic, partition), write["value"]
        circumstance = ""
        if topic in self.queued_for_deletion:
            circumstance = "being_deleted"
        elif generation.assignments and not self.live_brokers & set(generation.assignments[-1].replicas):
            circumstance = "no_live_replica"
        generation.states.append(
            TrueState(
                begun=self.at,
                leader=value["leader"],
                leader_epoch=value["leader_epoch"],
                isr=frozenset(value["isr"]),
                partition_epoch=write["version"],
                order=self.order,
                writer="controller" if write["session"] == self.controller_session else "leader",
                circumstance=circumstance,
            )
        )

    def assignment_written(self, topic: str, value: Mapping[str, Any]) -> None:
        """Add the assignments of a topic znode.

        It has AR and RR from 2.4 on; before, they follow from the requested target.
        """
        for name, listed in value["partitions"].items():
            partition, replicas = int(name), tuple(listed)
            if "adding_replicas" in value:
                adding = frozenset(value["adding_replicas"].get(name, ()))
                removing = frozenset(value["removing_replicas"].get(name, ()))
                self.assigned(
                    topic, partition, TrueAssignment(self.at, replicas, adding, removing, self.order)
                )
            else:
                self.assigned(topic, partition, self.assignment_before_2_4(topic, partition, replicas))

    def assignment_before_2_4(self, topic: str, partition: int, replicas: tuple[int, ...]) -> TrueAssignment:
        key = (topic, partition)
        generation = self.generation(topic, partition)
        stable_replicas = frozenset(self.stable_replicas.setdefault(key, replicas))
        target = frozenset(self.targets.get(key, ()))
        running = bool(generation.assignments) and not generation.assignments[-1].ordered
        if (
            target - stable_replicas
            and frozenset(replicas) == stable_replicas | target
            and (not running or target != stable_replicas | target)
        ):
            adding, removing = target - stable_replicas, stable_replicas - target
            return TrueAssignment(self.at, replicas, adding, removing, self.order, ordered=False)
        if running and frozenset(replicas) == frozenset(generation.assignments[-1].replicas):
            return generation.assignments[-1]
        self.stable_replicas[key] = replicas
        return TrueAssignment(self.at, replicas, order=self.order)

    def reassignment_requested(self, partitions: Iterable[Mapping[str, Any]]) -> None:
        """Before 2.4 a reassignment that only adds replicas ends by leaving this list, not with a new RS."""
        self.targets = {(one["topic"], one["partition"]): tuple(one["replicas"]) for one in partitions}
        for key, generation in self.open.items():
            if key not in self.targets and generation.assignments and not generation.assignments[-1].ordered:
                replicas = generation.assignments[-1].replicas
                self.stable_replicas[key] = replicas
                self.assigned(*key, TrueAssignment(self.at, replicas, order=self.order))

    def assigned(self, topic: str, partition: int, assignment: TrueAssignment) -> None:
        assignments = self.generation(topic, partition).assignments
        if not assignments or not assignment.continues(assignments[-1]):
            assignments.append(assignment)


def registrations(metadata_log: Path) -> list[tuple[datetime, int, bool]]:
    """Return (time, broker, is unfenced) of each fencing or unfencing in a KRaft cluster."""
    changes = []
    for record in json_lines(metadata_log) if metadata_log.exists() else ():
        kind, data = record["type"], record["data"]
        at = moment_of(record["ts"])
        if kind == "REGISTER_BROKER_RECORD":
            changes.append((at, data["brokerId"], not data.get("fenced", True)))
        elif kind == "BROKER_REGISTRATION_CHANGE_RECORD" and data.get("fenced"):
            changes.append((at, data["brokerId"], data["fenced"] == -1))
        elif kind == "UNREGISTER_BROKER_RECORD":
            changes.append((at, data["brokerId"], False))
    return changes


def kraft_generations(
    incarnation: int,
    records: Iterable[Mapping[str, Any]],
    broker_changes: Sequence[tuple[datetime, int, bool]],
) -> list[PartitionGeneration]:
    """Return the generations of a KRaft timeline.

    Each record is a whole registration: a state, and an assignment if it changed.
    """
    generations: list[PartitionGeneration] = []
    open_generations: dict[TopicPartition, PartitionGeneration] = {}
    live_brokers: set[int] = set()
    applied = 0
    for order, record in enumerate(records):
        key, at = (record["topic"], record["partition"]), moment_of(record["ts"])
        while applied < len(broker_changes) and broker_changes[applied][0] <= at:
            _, broker, unfenced = broker_changes[applied]
            (live_brokers.add if unfenced else live_brokers.discard)(broker)
            applied += 1
        if record.get("removed"):
            open_generations.pop(key).end(at, order)
            continue
        if record.get("new") or key not in open_generations:
            if key in open_generations:
                open_generations[key].end(at, order)
            open_generations[key] = PartitionGeneration(incarnation, *key)
            generations.append(open_generations[key])
        generation, replicas = open_generations[key], tuple(record["replicas"])
        circumstance = "" if not broker_changes or live_brokers & set(replicas) else "no_live_replica"
        generation.states.append(
            TrueState(
                begun=at,
                leader=record["leader"],
                leader_epoch=record["leaderEpoch"],
                isr=frozenset(record["isr"]),
                partition_epoch=record["partitionEpoch"],
                order=order,
                circumstance=circumstance,
            )
        )
        adding, removing = frozenset(record["addingReplicas"]), frozenset(record["removingReplicas"])
        assignment = TrueAssignment(at, replicas, adding, removing, order)
        if not generation.assignments or not assignment.continues(generation.assignments[-1]):
            generation.assignments.append(assignment)
    return generations


# -------------------------------------------------------------------------------- the rows


@dataclass(frozen=True)
class TimelineRow:
    """One row of partition_timeline, in types that can be compared."""

    incarnation: int
    topic: str
    partition: int
    step: int
    valid_from: datetime | None
    valid_to: datetime | None
    leader: int | None
    leader_epoch: int | None
    isr: tuple[int, ...] | None
    partition_epoch: int | None
    replicas: tuple[int, ...] | None
    adding_replicas: tuple[int, ...] | None
    removing_replicas: tuple[int, ...] | None
    state: str | None
    inferred: bool
    record_id: str | None
    by_leaders: bool = False

    @classmethod
    def of(cls, row: Mapping[str, Any], by_leaders: bool = False) -> TimelineRow:
        try:
            return cls(
                incarnation=whole_number(row["incarnation"]),
                topic=row["topic"],
                partition=whole_number(row["partition"]),
                step=whole_number(row["step"]),
                valid_from=row_moment(row.get("valid_from")),
                valid_to=row_moment(row.get("valid_to")),
                inferred=yes_or_no(row["inferred"]),
                state=row.get("state"),
                record_id=row.get("record_id"),
                leader=optional_number(row.get("leader")),
                leader_epoch=optional_number(row.get("leader_epoch")),
                isr=optional_ids(row.get("isr")),
                partition_epoch=optional_number(row.get("partition_epoch")),
                replicas=optional_ids(row.get("replicas")),
                adding_replicas=optional_ids(row.get("adding_replicas")),
                removing_replicas=optional_ids(row.get("removing_replicas")),
                by_leaders=by_leaders,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a row of partition_timeline ({error!r}): {row}") from error

    @property
    def key(self) -> IncarnationPartition:
        return self.incarnation, self.topic, self.partition

    def lacks(self, aspect: Aspect) -> list[str]:
        """Return the fields that are null although a true value needs them; see Truth.by_leaders."""
        names = (
            ASSIGNMENT_FIELDS
            if aspect == "assignment"
            else STATE_FIELDS[:-1]
            if self.by_leaders
            else STATE_FIELDS
        )
        return [name for name in names if getattr(self, name) is None]

    def asserts(self, aspect: Aspect) -> bool:
        names = STATE_FIELDS if aspect == "state" else ASSIGNMENT_FIELDS
        return any(getattr(self, name) is not None for name in names)

    def __str__(self) -> str:
        parts = []
        for name in (*STATE_FIELDS, *ASSIGNMENT_FIELDS):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name} {list(value) if isinstance(value, tuple) else value}")
        where = f"{self.topic}-{self.partition} incarnation {self.incarnation} step {self.step}"
        return f"{where} from {clock(self.valid_from)} {self.state or ''}: {', '.join(parts) or 'nothing'}"


def whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def optional_number(value: Any) -> int | None:
    return None if value is None else whole_number(value)


def optional_ids(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, str):
        raise TypeError(f"{value!r} is not a list of broker ids")
    return None if value is None else tuple(whole_number(broker) for broker in value)


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def row_moment(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return moment_of(value)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """partition_timeline rows from JSON Lines, as Spark or any other writer leaves them."""
    return list(json_lines(path))


# -------------------------------------------------------------------------------- the comparison


@dataclass(frozen=True)
class Problem:
    kind: Kind
    about: str
    row: TimelineRow
    detail: str


@dataclass(frozen=True)
class Miss:
    about: Aspect
    interval: Interval
    reason: str
    seen: str

    def __str__(self) -> str:
        generation = self.interval.generation
        return (
            f"{self.reason}: {generation.topic}-{generation.partition} incarnation {generation.incarnation} {self.about} "
            f"{self.interval.value}, until {clock(self.interval.until)}; {self.seen}"
        )


@dataclass
class Verdict:
    """The result of comparing the rows of one recording with its truth."""

    recording: str
    true_states: int = 0
    true_assignments: int = 0
    observed_rows: int = 0
    inferred_rows: int = 0
    inferred_never_true: int = 0
    unjudged_rows: int = 0
    problems: list[Problem] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    def rows(self, kind: Kind) -> int:
        """Return how many rows have a problem of this kind."""
        return len({id(problem.row) for problem in self.problems if problem.kind == kind})

    @property
    def wrong_rows(self) -> int:
        return self.rows("wrong")

    @property
    def early_rows(self) -> int:
        return self.rows("early")

    @property
    def out_of_order_rows(self) -> int:
        return self.rows("out of order")

    @property
    def mixed_rows(self) -> int:
        return self.rows("mixed")

    @property
    def broken_rows(self) -> int:
        return self.rows("broken")

    @property
    def precise(self) -> bool:
        return not (self.wrong_rows or self.early_rows or self.out_of_order_rows or self.broken_rows)

    @property
    def shown_states(self) -> int:
        return self.true_states - sum(miss.about == "state" for miss in self.misses)

    @property
    def shown_assignments(self) -> int:
        return self.true_assignments - sum(miss.about == "assignment" for miss in self.misses)

    @property
    def recall(self) -> float:
        """Share of the true states that are shown, in per cent."""
        return 100.0 * self.shown_states / self.true_states if self.true_states else 100.0

    @property
    def assignment_recall(self) -> float:
        return 100.0 * self.shown_assignments / self.true_assignments if self.true_assignments else 100.0

    def misses_by_reason(self, about: Aspect = "state") -> dict[str, int]:
        counted = Counter(miss.reason for miss in self.misses if miss.about == about)
        return {reason: counted[reason] for reason in REASONS}


@dataclass(frozen=True)
class Reading:
    """A row with the true values it agrees with, by their positions."""

    row: TimelineRow
    fits: tuple[int, ...]
    on_time: frozenset[int]
    full: bool


def compare(recording: Path, rows: Iterable[Mapping[str, Any]]) -> Verdict:
    """Compare the partition_timeline rows of one recording with its truth."""
    return compare_with(read_truth(recording), rows, "/".join(recording.resolve().parts[-3:]))


def compare_with(truth: Truth, rows: Iterable[Mapping[str, Any]], recording: str = "") -> Verdict:
    verdict = Verdict(recording)
    generations: dict[IncarnationPartition, list[PartitionGeneration]] = defaultdict(list)
    for generation in truth.generations:
        generations[generation.incarnation, generation.topic, generation.partition].append(generation)
    timelines: dict[IncarnationPartition, list[TimelineRow]] = defaultdict(list)
    clusters = set()
    for given in rows:
        clusters.add(given.get("cluster"))
        row = TimelineRow.of(given, truth.by_leaders)
        timelines[row.key].append(row)
    if len(clusters) > 1:
        raise ValueError(
            f"these rows are of several clusters, a recording is one: {sorted(map(str, clusters))}"
        )
    for key in sorted(generations.keys() | timelines.keys()):
        timeline = sorted(timelines[key], key=lambda row: row.step)
        check_steps(timeline, verdict)
        judge_partition(timeline, generations[key], truth.shut_down.get(key[0]), verdict)
    return verdict


def check_steps(timeline: Sequence[TimelineRow], verdict: Verdict) -> None:
    begun: datetime | None = None
    for number, row in enumerate(timeline, 1):
        detail = ""
        if row.step != number:
            detail = f"step {row.step} where {number} was due"
        elif row.valid_from and row.valid_to and row.valid_to < row.valid_from:
            detail = f"ends at {clock(row.valid_to)}, before it begins"
        elif row.valid_from and begun and row.valid_from < begun:
            detail = f"begins before a step before it, which began at {clock(begun)}"
        if detail:
            verdict.problems.append(Problem("broken", "interval", row, detail))
        begun = row.valid_from or begun


def judge_partition(
    timeline: Sequence[TimelineRow],
    generations: Sequence[PartitionGeneration],
    shut_down: datetime | None,
    verdict: Verdict,
) -> None:
    states, assignments = intervals(generations, "state"), intervals(generations, "assignment")
    verdict.true_states += len(states)
    verdict.true_assignments += len(assignments)
    observed = []
    for row in timeline:
        if generations and is_older_than_truth(row, generations[0]):
            verdict.unjudged_rows += 1
        elif row.inferred:
            verdict.inferred_rows += 1
            verdict.inferred_never_true += not could_be(row, states, assignments)
        elif not generations:
            verdict.observed_rows += 1
            verdict.problems.append(Problem("wrong", "partition", row, "there was no such partition"))
        elif row.asserts("state") or row.asserts("assignment"):
            verdict.observed_rows += 1
            observed.append(row)
    judge_aspect("state", observed, states, timeline=timeline, shut_down=shut_down, verdict=verdict)
    judge_aspect("assignment", observed, assignments, timeline=timeline, shut_down=shut_down, verdict=verdict)
    for row in observed:
        judge_together(row, states, assignments, verdict)


def could_be(row: TimelineRow, states: Sequence[Interval], assignments: Sequence[Interval]) -> bool:
    """Return whether the row agrees with a state and an assignment of its partition at any time."""
    return all(
        not row.asserts(aspect) or any(interval.value.fits(row) for interval in truths)
        for aspect, truths in zip(ASPECTS, (states, assignments), strict=True)
    )


def is_older_than_truth(row: TimelineRow, generation: PartitionGeneration) -> bool:
    """Return whether the row is of the time before a migration, which the metadata log does not cover."""
    if generation.since_creation:
        return False
    if row.partition_epoch is not None:
        return row.partition_epoch < generation.states[0].partition_epoch
    return row.valid_from is None or row.valid_from < generation.states[0].begun


def judge_aspect(
    aspect: Aspect,
    observed: Sequence[TimelineRow],
    truths: Sequence[Interval],
    *,
    timeline: Sequence[TimelineRow],
    shut_down: datetime | None,
    verdict: Verdict,
) -> None:
    readings = [read_against(row, aspect, truths) for row in observed if row.asserts(aspect)]
    places = align(readings)
    shown: set[int] = set()
    in_part: dict[int, list[str]] = {}
    for reading, place in zip(readings, places, strict=True):
        row = reading.row
        if place is None:
            if reading.fits:
                detail = f"was true as {truths[reading.fits[0]].value}"
                verdict.problems.append(Problem("out of order", aspect, row, detail))
            else:
                verdict.problems.append(Problem("wrong", aspect, row, nearest(row, aspect, truths)))
            continue
        begun = truths[place].value.begun
        if place not in reading.on_time and row.valid_from is not None:
            seconds = (begun - row.valid_from).total_seconds()
            detail = f"{seconds:.3f} s before {truths[place].value}"
            verdict.problems.append(Problem("early", aspect, row, detail))
        if reading.full:
            if place not in shown and aspect == "state" and row.valid_from is not None:
                verdict.delays.append((row.valid_from - begun).total_seconds())
            shown.add(place)
        else:
            in_part.setdefault(place, row.lacks(aspect))
    for place, interval in enumerate(truths):
        if place in shown:
            continue
        if place in in_part:
            seen = f"shown without {', '.join(in_part[place])}"
        else:
            alike = [row for row in timeline if not row.lacks(aspect) and interval.value.fits(row)]
            derived = any(row.inferred for row in alike)
            seen = "inferred" if derived else "shown out of place" if alike else "shown nowhere"
        verdict.misses.append(Miss(aspect, interval, reason_of(interval, shut_down), seen))


def judge_together(
    row: TimelineRow, states: Sequence[Interval], assignments: Sequence[Interval], verdict: Verdict
) -> None:
    if not (row.asserts("state") and row.asserts("assignment")):
        return
    fitting_states = [interval for interval in states if interval.value.fits(row)]
    fitting_assignments = [interval for interval in assignments if interval.value.fits(row)]
    if not fitting_states or not fitting_assignments:
        return
    if not any(state.overlaps(assignment) for state in fitting_states for assignment in fitting_assignments):
        detail = (
            f"{fitting_assignments[0].value} and {fitting_states[0].value} were never true at the same time"
        )
        verdict.problems.append(Problem("mixed", "state and assignment", row, detail))


def read_against(row: TimelineRow, aspect: Aspect, truths: Sequence[Interval]) -> Reading:
    fits = tuple(place for place, interval in enumerate(truths) if interval.value.fits(row))
    on_time = frozenset(place for place in fits if not begins_early(row, truths[place]))
    return Reading(row, fits, on_time, full=not row.lacks(aspect))


def begins_early(row: TimelineRow, interval: Interval) -> bool:
    if row.valid_from is None or (interval.first and not interval.generation.since_creation):
        return False
    return row.valid_from < interval.value.begun - interval.generation.tolerance


Trail: TypeAlias = "tuple[int, int, Trail] | None"


def align(readings: Sequence[Reading]) -> list[int | None]:
    """Match rows to true values in their order: most rows on time, then most in place, then most values
    shown.
    """
    best: dict[tuple[int, bool], tuple[tuple[int, int, int], Trail]] = {(-1, False): ((0, 0, 0), None)}
    for number, reading in enumerate(readings):
        grown = dict(best)
        for place in reading.fits:
            timely = place in reading.on_time
            for (last, shown_already), ((right, late, shown), trail) in best.items():
                if last > place:
                    continue
                shown_before = last == place and shown_already
                is_new = reading.full and not shown_before
                score = (right + timely, late + (not timely), shown + is_new)
                ending = (place, reading.full or shown_before)
                if ending not in grown or score > grown[ending][0]:
                    grown[ending] = (score, (number, place, trail))
        best = grown
    places: list[int | None] = [None] * len(readings)
    trail = max(best.values(), key=lambda scored: scored[0])[1]
    while trail is not None:
        number, place, trail = trail
        places[number] = place
    return places


def nearest(row: TimelineRow, aspect: Aspect, truths: Sequence[Interval]) -> str:
    """Return the true value that the row most likely means."""
    if not truths:
        return "nothing of the kind was ever written"
    for interval in truths:
        value = interval.value
        if isinstance(value, TrueState) and value.partition_epoch == row.partition_epoch:
            return f"in truth {value}"
    at = row.valid_from
    before = [interval for interval in truths if at is None or interval.value.begun <= at] or list(truths[:1])
    return f"at that time in truth {before[-1].value}"


def reason_of(interval: Interval, shut_down: datetime | None) -> str:
    begun = interval.value.begun
    if shut_down is not None and begun >= shut_down:
        return "at_shutdown"
    if interval.until is not None and interval.until - begun < CONTROLLER_BATCH:
        return "superseded"
    return interval.value.circumstance or "missing"


# -------------------------------------------------------------------------------- a perfect timeline


def perfect_rows(recording: Path) -> list[dict[str, Any]]:
    """Return the partition_timeline that follows from the truth itself."""
    return rows_of_truth(read_truth(recording))


def rows_of_truth(truth: Truth) -> list[dict[str, Any]]:
    timelines: dict[IncarnationPartition, list[dict[str, Any]]] = defaultdict(list)
    for generation in truth.generations:
        timeline = timelines[generation.incarnation, generation.topic, generation.partition]
        known = dict.fromkeys((*STATE_FIELDS, *ASSIGNMENT_FIELDS, "state"))
        writes: dict[int, list[TrueState | TrueAssignment]] = defaultdict(list)
        for assignment in generation.assignments:
            writes[assignment.order].append(assignment)
        for state in generation.states:
            writes[state.order].append(state)
        for order in sorted(writes):
            for write in writes[order]:
                known |= columns_of(write)
            timeline.append({"valid_from": writes[order][0].begun, **known})
        if generation.ended is not None:
            deleted = dict.fromkeys(known) | {"state": "NonExistentPartition"}
            timeline.append({"valid_from": generation.ended, **deleted})
    rows = []
    for (incarnation, topic, partition), timeline in timelines.items():
        ends = [row["valid_from"] for row in timeline[1:]] + [None]
        for step, (row, valid_to) in enumerate(zip(timeline, ends, strict=True), 1):
            key = {"incarnation": incarnation, "topic": topic, "partition": partition, "step": step}
            rows.append({**key, **row, "valid_to": valid_to, "inferred": False, "record_id": None})
    return rows


def columns_of(write: TrueState | TrueAssignment) -> dict[str, Any]:
    if isinstance(write, TrueState):
        return {
            "leader": write.leader,
            "leader_epoch": write.leader_epoch,
            "isr": sorted(write.isr),
            "partition_epoch": write.partition_epoch,
            "state": "OfflinePartition" if write.leader < 0 else "OnlinePartition",
        }
    return {
        "replicas": list(write.replicas),
        "adding_replicas": sorted(write.adding),
        "removing_replicas": sorted(write.removing),
    }


def reassignments(truth: Truth) -> Counter[tuple[Any, ...]]:
    """Count every reassignment that was written, by incarnation, topic, partition, target, AR, RR and
    outcome.
    """
    found = []
    for generation in truth.generations:
        for assignment, after in zip(
            generation.assignments, [*generation.assignments[1:], None], strict=True
        ):
            if assignment.adding or assignment.removing:
                target = frozenset(assignment.replicas) - assignment.removing
                if after is None:
                    outcome = "in_progress"
                elif after.adding or after.removing:
                    outcome = "replaced"
                else:
                    outcome = "completed" if frozenset(after.replicas) == target else "cancelled"
                moved = (tuple(sorted(ids)) for ids in (target, assignment.adding, assignment.removing))
                found.append(
                    (generation.incarnation, generation.topic, generation.partition, *moved, outcome)
                )
    return Counter(found)


# -------------------------------------------------------------------------------- print


COLUMNS = (
    "recording|true|shown|recall|rows|wrong|early|order|mixed|broken|assigned|p50 s|max s|misses by reason"
)


def table(verdicts: Sequence[Verdict]) -> str:
    """One line per recording."""
    lines = [COLUMNS.split("|"), *(table_line(verdict) for verdict in verdicts)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for line in lines:
        padded = [cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True)]
        text.append("  ".join([line[0].ljust(widths[0]), *padded, line[-1]]))
    return "\n".join(text)


def table_line(verdict: Verdict) -> list[str]:
    notes = []
    for about in ASPECTS:
        reasons = [f"{reason} {count}" for reason, count in verdict.misses_by_reason(about).items() if count]
        notes += [f"{about}s: {', '.join(reasons)}"] if reasons else []
    if verdict.inferred_rows:
        notes.append(
            f"({verdict.inferred_rows} rows inferred, {verdict.inferred_never_true} of them never true)"
        )
    if verdict.unjudged_rows:
        notes.append(f"({verdict.unjudged_rows} rows older than the truth)")
    return [
        verdict.recording,
        str(verdict.true_states),
        str(verdict.shown_states),
        percent(verdict.recall),
        str(verdict.observed_rows),
        str(verdict.wrong_rows),
        str(verdict.early_rows),
        str(verdict.out_of_order_rows),
        str(verdict.mixed_rows),
        str(verdict.broken_rows),
        f"{verdict.shown_assignments}/{verdict.true_assignments}",
        f"{median(verdict.delays):.3f}" if verdict.delays else "-",
        f"{max(verdict.delays):.3f}" if verdict.delays else "-",
        "; ".join(notes) or "-",
    ]


def percent(value: float) -> str:
    """Return a percentage, rounded down, so that 100 % means all."""
    return f"{int(value * 10) / 10:.1f} %"


def details(verdict: Verdict) -> str:
    """Every problem and every miss."""
    lines = [
        f"{problem.kind} {problem.about}: {problem.row}\n    {problem.detail}" for problem in verdict.problems
    ]
    return "\n".join([*lines, *(f"{miss.about} missed, {miss}" for miss in verdict.misses)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Compares partition_timeline rows with the truth of a recording."
    )
    parser.add_argument("recording", type=Path, help="folder with truth-txn.jsonl or timeline.jsonl")
    parser.add_argument("rows", type=Path, help="partition_timeline of that recording, JSON Lines")
    parser.add_argument("--verbose", action="store_true", help="name every wrong row and every miss")
    given = parser.parse_args(arguments)
    try:
        verdict = compare(given.recording, read_rows(given.rows))
    except (OSError, ValueError) as error:
        print(f"truth: {error}", file=sys.stderr)
        return 2
    print(table([verdict]))
    if given.verbose and (verdict.problems or verdict.misses):
        print(details(verdict))
    return 0 if verdict.precise else 1


if __name__ == "__main__":
    sys.exit(main())
