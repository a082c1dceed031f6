"""Compute who placed the replicas of a topic, and their spread, from plain rows. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from jobs.operators import placement
from jobs.timelines import ClusterFacts
from jobs.timelines.event import moment_of
from schemas.moments import moment

Row = Mapping[str, Any]

# event types that the placement of a topic is judged from, besides partition_timeline
CREATED = (
    "topics_changed",
    "partitions_added",
    "partition_registered",
    "partition_record",
    "topic_creation_answered",
)
BROKER_LISTS = ("active_brokers", "broker_change")
REGISTERED = ("broker_registration_replayed", "register_broker_record")
FENCED = (
    "broker_fenced",
    "broker_shutdown_granted",
    "broker_fencing_replayed",
    "broker_fenced_replayed",
    "broker_fencing_record",
    "fence_broker_record",
)
UNFENCED = (
    "broker_unfencing_replayed",
    "broker_unfenced_replayed",
    "broker_unfencing_record",
    "unfence_broker_record",
    "broker_unfenced",
)
UNREGISTERED = ("broker_unregistered", "unregister_broker_record")
# events of a broker that name its rack, if it has one
NODES = ("channel_connected", *REGISTERED)
BROKER_TYPES = ("channel_connected", *BROKER_LISTS, *REGISTERED, *FENCED, *UNFENCED, *UNREGISTERED)
EVENT_COLUMNS = (
    "incarnation",
    "record_id",
    "ts",
    "event_type",
    "topic",
    "topic_id",
    "partition",
    "replicas",
    "partition_epoch",
    "partitions_named",
    "error_code",
    "record_no",
    "item",
)

# on a busy machine, the lines of one change are at most so far apart
TOGETHER = timedelta(seconds=1)
# brokers learn of other brokers with this delay; CreateTopics uses what the broker knows
LAG = timedelta(seconds=10)
EVIDENCE = 20  # records that a row names at most


# -- brokers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Brokers:
    """The brokers that were alive (ZooKeeper mode) or registered (KRaft) from `since` on."""

    since: datetime
    ids: frozenset[int]
    fenced: frozenset[int] = frozenset()
    kraft: bool = False


@dataclass(frozen=True)
class ClusterBrokers:
    """What all topics of an incarnation share.

    brokers: in order of time. racks: broker -> rack. rackless: brokers known to have none.
    """

    brokers: tuple[Brokers, ...] = ()
    racks: Mapping[int, str] = field(default_factory=dict)
    rackless: frozenset[int] = frozenset()

    def at(self, moment: datetime) -> list[Brokers]:
        """Return the brokers at a moment and in the 10 s before, latest first; empty if not known."""
        before = [entry for entry in self.brokers if entry.since <= moment + TOGETHER]
        first = max((at for at, entry in enumerate(before) if entry.since <= moment - LAG), default=0)
        return before[first:][::-1]


def shared_events(facts: ClusterFacts) -> dict[int, list[dict[str, Any]]]:
    """Return incarnation -> the events that its topics share, as rows of `events`."""
    return {
        number: [
            {
                **event._asdict(),
                "incarnation": number,
                "ts": None if event.ts is None else moment_of(event.ts),
            }
            for event in events
        ]
        for number, events in facts.events_by_number.items()
    }


def cluster(events: Iterable[Row], racks: Mapping[int, str] | None = None) -> ClusterBrokers:
    """Return brokers and racks of one incarnation.

    events: in any order. racks: of audit.toml; they supersede those of log lines.
    """
    found: list[Brokers] = []
    known: dict[int, str | None] = {}
    registered: dict[int, int] = {}  # broker -> epoch
    fenced: set[int] = set()
    for event in sorted(
        (e for e in events if e["ts"] is not None), key=lambda e: (e["ts"], e["record_no"], e["item"])
    ):
        kind, broker = event["event_type"], event["broker"]
        if broker is not None and kind in NODES:
            known[broker] = event["rack"]
        if kind in BROKER_LISTS:
            found.append(Brokers(event["ts"], frozenset(event["brokers"] or ())))
            continue
        if broker is None or kind not in (*REGISTERED, *FENCED, *UNFENCED, *UNREGISTERED):
            continue
        epoch = event["broker_epoch"]
        if kind in REGISTERED:
            if epoch is not None and epoch <= registered.get(broker, -1):
                continue  # the same registration, logged by another or a starting controller
            registered[broker] = -1 if epoch is None else epoch
            (fenced.add if event["fenced"] else fenced.discard)(broker)
        elif kind in UNREGISTERED:
            registered.pop(broker, None)
        elif epoch is not None and epoch < registered.get(broker, -1):
            continue
        else:
            (fenced.add if kind in FENCED else fenced.discard)(broker)
        found.append(Brokers(event["ts"], frozenset(registered), frozenset(fenced), kraft=True))
    known |= racks or {}
    named = {broker: rack for broker, rack in known.items() if rack}
    return ClusterBrokers(tuple(found), named, frozenset(known) - frozenset(named))


# -- who placed it -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreatedPartitions:
    """Partitions of a topic that one request created.

    by_hand: whether the request named the replicas; null: no line shows it.
    """

    ts: datetime
    partitions: Mapping[int, Sequence[int]]
    created: bool
    record_ids: tuple[str, ...]
    by_hand: bool | None = None


@dataclass(frozen=True)
class Judged:
    """Who placed a topic.

    placement: kafka, kafka_extended, manual or not_known. start_index, shift: of its creation.
    """

    placement: str
    reason: str
    start_index: int | None = None
    shift: int | None = None
    rack_aware: bool | None = None


def batches(events: Iterable[Row]) -> dict[str, list[CreatedPartitions]]:
    """Return topic -> the batches that created and extended it, in order of time.

    events: of one incarnation. In ZooKeeper mode one record names all partitions of a batch. In KRaft every
    controller logs each partition, and logs it again when it starts: the first line of each partition counts,
    and lines within a second of each other are one batch.
    """
    rows = sorted(
        (e for e in events if e["ts"] is not None), key=lambda e: (e["ts"], e["record_no"], e["item"])
    )
    names = {row["topic_id"]: row["topic"] for row in rows if row["topic"] and row["topic_id"]}
    found: dict[str, list[CreatedPartitions]] = {}
    records: dict[tuple[str, str], list[Row]] = {}
    kraft: dict[tuple[str, str], dict[int, Row]] = {}
    answers: dict[str, list[Row]] = {}
    for row in rows:
        kind, topic = row["event_type"], row["topic"] or names.get(row["topic_id"])
        if topic is None:
            continue
        if (
            kind in ("topics_changed", "partitions_added")
            and row["partition"] is not None
            and row["replicas"]
        ):
            records.setdefault((row["record_id"], topic), []).append(row)
        elif kind in ("partition_registered", "partition_record") and row["partition_epoch"] == 0:
            kraft.setdefault((topic, row["topic_id"] or ""), {}).setdefault(row["partition"], row)
        elif kind == "topic_creation_answered" and row["error_code"] == "SUCCESS":
            answers.setdefault(topic, []).append(row)
    for (record_id, topic), some in records.items():
        placed = {row["partition"]: list(row["replicas"]) for row in some}
        created = some[0]["event_type"] == "topics_changed"
        found.setdefault(topic, []).append(CreatedPartitions(some[0]["ts"], placed, created, (record_id,)))
    for (topic, _), partitions in kraft.items():
        found.setdefault(topic, []).extend(_kraft_batches(list(partitions.values()), answers.get(topic, [])))
    return {topic: sorted(some, key=lambda batch: batch.ts) for topic, some in found.items()}


def _kraft_batches(rows: list[Row], answers: list[Row]) -> list[CreatedPartitions]:
    rows = sorted(rows, key=lambda row: (row["ts"], row["partition"]))
    answer = next((a for a in answers if abs(a["ts"] - rows[0]["ts"]) <= LAG), None)
    groups: list[list[Row]] = []
    for row in rows:
        if groups and row["ts"] - groups[-1][-1]["ts"] <= TOGETHER:
            groups[-1].append(row)
        else:
            groups.append([row])
    if answer is not None and (count := answer["partitions_named"]) and len(groups[0]) > count:
        groups[0].sort(key=lambda row: row["partition"])
        groups[0:1] = [groups[0][:count], groups[0][count:]]
    found = []
    for number, group in enumerate(groups):
        by_hand = None if number or answer is None else answer["partitions_named"] is None
        ids = [row["record_id"] for row in group] + (
            [answer["record_id"]] if answer is not None and not number else []
        )
        placed = {row["partition"]: list(row["replicas"]) for row in group}
        found.append(
            CreatedPartitions(
                group[0]["ts"], placed, number == 0, tuple(dict.fromkeys(ids))[:EVIDENCE], by_hand
            )
        )
    return found


def judge(
    batches: Sequence[CreatedPartitions],
    shared: ClusterBrokers,
    partition_0: Sequence[Sequence[int] | None] = (),
) -> Judged:
    """Return who placed a topic, from the batches that created and extended it.

    partition_0: its replicas when each batch after the first was added; null or missing: the replicas of its
    creation.
    """
    if not batches or not batches[0].created:
        return Judged("not_known", "the logs do not show how it was created")
    first = _judge_batch(batches[0], shared, None)
    verdicts = [first]
    for number, batch in enumerate(batches[1:]):
        head = partition_0[number] if number < len(partition_0) else None
        head = batches[0].partitions.get(0) if head is None else head
        verdicts.append(_judge_batch(batch, shared, head))
    for batch, verdict in zip(batches, verdicts, strict=True):
        if verdict.placement != "kafka":
            which = (
                ""
                if batch is batches[0]
                else f"{_partitions(batch.partitions)} added at {moment(batch.ts)}: "
            )
            return Judged(
                verdict.placement, which + verdict.reason, first.start_index, first.shift, verdict.rack_aware
            )
    if len(batches) == 1:
        return first
    added = ", ".join(_partitions(batch.partitions) for batch in batches[1:])
    return Judged(
        "kafka_extended",
        f"{first.reason}; {added} added as Kafka does",
        first.start_index,
        first.shift,
        first.rack_aware,
    )


def _judge_batch(
    batch: CreatedPartitions, shared: ClusterBrokers, partition_0: Sequence[int] | None
) -> Judged:
    if batch.by_hand:
        return Judged("manual", "the request named the replicas")
    choices = shared.at(batch.ts)
    if not choices:
        return Judged("not_known", "no line shows which brokers were alive then")
    if choices[0].kraft:
        return _judge_striped(batch, choices, shared.racks)
    for brokers in choices:
        if not brokers.ids:
            continue
        if batch.created or partition_0 is None:
            found = placement.find(batch.partitions, brokers.ids, shared.racks)
        else:
            found = placement.find_added(batch.partitions, partition_0, brokers.ids, shared.racks)
        if found is not None:
            how = "across racks" if found.rack_aware else "without racks"
            text = f"assignReplicasToBrokers {how} gives it for brokers {_ids(found.brokers)}"
            return Judged("kafka", text + _caveat(batch), found.start_index, found.shift, found.rack_aware)
    text = f"assignReplicasToBrokers does not give it for any start and shift of brokers {_ids(sorted(choices[0].ids))}"
    if unknown := choices[0].ids - shared.racks.keys() - shared.rackless:
        return Judged(
            "not_known", f"{text} without racks, and no line shows the rack of {_ids(sorted(unknown))}"
        )
    return Judged("manual", text)


def _judge_striped(batch: CreatedPartitions, choices: Sequence[Brokers], racks: Mapping[int, str]) -> Judged:
    rows = [batch.partitions[partition] for partition in sorted(batch.partitions)]
    why = ""
    for brokers in choices:
        problem = placement.not_striped(rows, brokers.ids, racks, brokers.fenced)
        if problem is None:
            aware = len({racks.get(broker) for broker in brokers.ids}) > 1
            if batch.by_hand is False:
                return Judged("kafka", "the request named no replicas", rack_aware=aware)
            text = f"StripedReplicaPlacer may give it for brokers {_ids(sorted(brokers.ids))}"
            return Judged("kafka", text + _caveat(batch), rack_aware=aware)
        why = why or problem
    if batch.by_hand is False:
        return Judged("kafka", f"the request named no replicas, though {why}")
    return Judged("manual", f"StripedReplicaPlacer does not give it: {why}")


def _caveat(batch: CreatedPartitions) -> str:
    return ", as any of one partition" if len(batch.partitions) == 1 and batch.created else ""


# -- assignments over time -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class AssignmentInterval:
    """A topic's assignment from `since` until `until`, outside of reassignments.

    since: null if it is from before the logs. until: null if it is still the assignment.
    """

    since: datetime | None
    until: datetime | None
    assignment: Mapping[int, tuple[int, ...]]
    record_ids: tuple[str, ...]


def assignment_intervals(rows: Iterable[Row]) -> list[AssignmentInterval]:
    """Return the assignments of one topic, oldest first; empty while the topic is deleted.

    rows: of partition_timeline, of the topic. An interval begins when no partition is being reassigned any
    more; changes within a second are one change.
    """
    changes: list[tuple[datetime | None, int, tuple[int, ...] | None, bool, str | None]] = []
    for partition, some in groupby(
        sorted(rows, key=lambda r: (r["partition"], r["step"])), key=lambda r: r["partition"]
    ):
        end = None
        for row in some:
            there = row["state"] != "NonExistentPartition" and row["replicas"] is not None
            if end is not None and row["valid_from"] is not None and row["valid_from"] > end:
                changes.append((end, partition, None, False, None))
            busy = bool(row["adding_replicas"] or row["removing_replicas"] or row["reassignment_phase"])
            changes.append(
                (
                    row["valid_from"],
                    partition,
                    tuple(row["replicas"]) if there else None,
                    busy,
                    row["record_id"],
                )
            )
            end = row["valid_to"]
        if end is not None:
            changes.append((end, partition, None, False, None))
    changes.sort(key=lambda change: (change[0] is not None, change[0] or datetime.min))
    return _intervals(changes)


def _intervals(
    changes: list[tuple[datetime | None, int, tuple[int, ...] | None, bool, str | None]],
) -> list[AssignmentInterval]:
    """Return the intervals between changes.

    changes: (time, partition, its replicas or null if it is deleted, whether it is being reassigned, record),
    in order of time.
    """
    now: dict[int, tuple[int, ...]] = {}
    busy: set[int] = set()
    found: list[AssignmentInterval] = []
    because: dict[str, None] = {}
    began: datetime | None = None
    fresh = True  # nothing has changed since the last interval
    for number, (ts, partition, replicas, moving, record_id) in enumerate(changes):
        (busy.add if moving else busy.discard)(partition)
        if not moving and now.get(partition) != replicas:
            began, fresh = (ts, False) if fresh else (began, False)
            because |= {record_id: None} if record_id and replicas is not None else {}
            now = {other: row for other, row in now.items() if other != partition}
            if replicas is not None:
                now[partition] = replicas
        if busy or fresh or (now and not _apart(ts, changes[number + 1 :])):
            continue
        last = found[-1].assignment if found else {}
        if now != last:
            if found:
                found[-1] = replace(found[-1], until=began)
            found.append(AssignmentInterval(began, None, now, tuple(because)[:EVIDENCE]))
        because, fresh = {}, True
    return found


def _apart(ts: datetime | None, later: Sequence[tuple[datetime | None, Any, Any, Any, Any]]) -> bool:
    """Return whether the next change is more than a second later."""
    following = later[0][0] if later else None
    return not later or (following is not None and (ts is None or following - ts > TOGETHER))


def topic_rows(
    rows: Sequence[Row], batches: Sequence[CreatedPartitions], shared: ClusterBrokers
) -> list[dict[str, Any]]:
    """Return rows of `topic_assignments` of one topic, without cluster, incarnation and topic.

    rows: of partition_timeline. batches: what created and extended the topic.
    """
    history = assignment_intervals(rows)
    return [
        _topic_row(history[: number + 1], batches, shared)
        for number, one in enumerate(history)
        if one.assignment
    ]


def broker_loads(row: Row) -> list[dict[str, Any]]:
    """Return rows of `broker_load`: the replicas and first replicas of each broker.

    row: of `topic_assignments`.
    """
    placed = [partition["replicas"] for partition in row["assignment"]]
    replicas = Counter(broker for ids in placed for broker in ids)
    leaders = Counter(ids[0] for ids in placed if ids)
    same = {name: row[name] for name in ("cluster", "incarnation", "topic", "valid_from", "valid_to")}
    return [
        {**same, "broker": broker, "replicas": count, "leaders": leaders[broker]}
        for broker, count in replicas.items()
    ]


def _topic_row(
    history: Sequence[AssignmentInterval], batches: Sequence[CreatedPartitions], shared: ClusterBrokers
) -> dict[str, Any]:
    """Return the row of the last interval of a history."""
    last = history[-1]
    assignment = last.assignment
    mine = _batches_until(batches, last)
    created = {partition: tuple(row) for batch in mine for partition, row in batch.partitions.items()}
    moved = sorted(p for p, row in assignment.items() if p in created and created[p] != row)
    judged = judge(mine, shared, [_partition_0(history, batch) for batch in mine[1:]])
    if moved:
        judged = _judge_moved(last, moved, judged, shared)
    live = shared.at(last.since or shared.brokers[0].since) if shared.brokers else []
    ids = live[0].ids if live else frozenset()
    figures = placement.spread(assignment, ids, shared.racks)
    factors = {len(row) for row in assignment.values()}
    return {
        "valid_from": last.since,
        "valid_to": last.until,
        "cause": _cause(history, mine),
        "partitions": len(assignment),
        "replication_factor": factors.pop() if len(factors) == 1 else None,
        "placement": judged.placement,
        "start_index": judged.start_index,
        "shift": judged.shift,
        "rack_aware": judged.rack_aware,
        "reason": judged.reason,
        "replicas_skew": figures.replicas_skew,
        "leaders_skew": figures.leaders_skew,
        "companions_skew": figures.companions_skew,
        "racks_min": figures.racks_min,
        "violations": placement.violations(assignment, ids, shared.racks),
        "assignment": [
            {"partition": partition, "replicas": list(row)} for partition, row in sorted(assignment.items())
        ],
        "record_ids": list(last.record_ids) or [r for batch in mine for r in batch.record_ids][:EVIDENCE],
    }


def _cause(history: Sequence[AssignmentInterval], mine: Sequence[CreatedPartitions]) -> str:
    """Return created, partitions_added, reassigned, or found (the assignment when the logs begin)."""
    last = history[-1]
    if last.since is not None and (
        latest := [batch for batch in mine if abs(batch.ts - last.since) <= TOGETHER]
    ):
        return "created" if latest[-1].created else "partitions_added"
    before = history[-2].assignment if len(history) > 1 else {}
    if not before:
        return "created" if mine else "found"
    return "partitions_added" if last.assignment.keys() - before.keys() else "reassigned"


def _batches_until(
    batches: Sequence[CreatedPartitions], interval: AssignmentInterval
) -> list[CreatedPartitions]:
    """Return the batches of the topic's generation: from the last creation before the interval on."""
    if interval.since is None:
        return []
    mine = [batch for batch in batches if batch.ts <= interval.since + TOGETHER]
    last = max((number for number, batch in enumerate(mine) if batch.created), default=0)
    return mine[last:]


def _partition_0(history: Sequence[AssignmentInterval], added: CreatedPartitions) -> Sequence[int] | None:
    """Return the replicas of partition 0 when partitions were added."""
    before = [
        one
        for one in history
        if 0 in one.assignment and (one.since is None or one.since < added.ts - TOGETHER)
    ]
    return before[-1].assignment[0] if before else None


def _judge_moved(
    interval: AssignmentInterval, moved: list[int], created: Judged, shared: ClusterBrokers
) -> Judged:
    """Return who placed a reassigned topic.

    `kafka-reassign-partitions --generate` uses assignReplicasToBrokers up to 3.x, also in KRaft.
    """
    text = f"{_partitions(moved)} reassigned; created: {created.placement}"
    assignment = interval.assignment
    live = shared.at(interval.since) if interval.since is not None else []
    if live and min(assignment) == 0:
        everyone = live[0].ids
        used = frozenset(b for row in assignment.values() for b in row)
        for ids in (everyone, used):
            if len(assignment) > 1 and (found := placement.find(assignment, ids, shared.racks)):
                what = f"assignReplicasToBrokers gives the whole for brokers {_ids(found.brokers)}"
                return Judged("kafka", f"{text}; {what}", found.start_index, found.shift, found.rack_aware)
    return Judged("manual", text)


def _partitions(ids: Iterable[int]) -> str:
    listed = sorted(ids)
    shown = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return f"partition{'s' if len(listed) > 1 else ''} {shown}"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


# -- what if -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """The effect on a partition if brokers go down.

    effect: the worst of loses_leader, below_min_isr and offline, which are in this order.
    """

    topic: str
    partition: int
    effect: str
    leader: int | None
    new_leader: int | None
    isr: tuple[int, ...]
    min_isr: int


def what_if(rows: Iterable[Row], down: Iterable[int], min_isr: Mapping[str, int]) -> list[Effect]:
    """Return the effect on partitions if brokers go down, the worst first.

    rows: of partition_timeline, the latest of each partition. min_isr: topic -> min.insync.replicas; 1 for
    other topics. Kafka elects the first live replica of the assignment that is in the ISR; unclean elections
    are not assumed.
    """
    stopped = set(down)
    found = []
    for row in rows:
        if row["leader"] in (None, -1) or row["isr"] is None or row["state"] == "NonExistentPartition":
            continue
        before, need = list(row["isr"]), min_isr.get(row["topic"], 1)
        left = [broker for broker in before if broker not in stopped]
        elected = next((b for b in row["replicas"] or left if b in left), None)
        leader = row["leader"]
        effect = None
        if not left:
            effect = "offline"
        elif len(left) < need <= len(before):
            effect = "below_min_isr"
        elif leader in stopped:
            effect = "loses_leader"
        if effect:
            new = elected if leader in stopped else leader
            found.append(Effect(row["topic"], row["partition"], effect, leader, new, tuple(left), need))
    return sorted(found, key=lambda e: (EFFECTS.index(e.effect), e.topic, e.partition))


EFFECTS = ("offline", "below_min_isr", "loses_leader")
