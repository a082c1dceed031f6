"""Whose placement is an assignment, and what does it spread? The rows of `topic_assignments` and `broker_load`, from plain rows. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from jobs.operators import placement
from jobs.timelines import ClusterFacts
from jobs.timelines.events import moment_of
from schemas.moments import moment

Row = Mapping[str, Any]

# what the placement of a topic is judged from, besides partition_timeline
CREATED = ("topics_changed", "partitions_added", "partition_registered", "partition_record", "topic_creation_answered")
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
GONE = ("broker_unregistered", "unregister_broker_record")
# lines that name a broker with its rack, or would
NODES = ("channel_connected", *REGISTERED)
BROKER_TYPES = ("channel_connected", *BROKER_LISTS, *REGISTERED, *FENCED, *UNFENCED, *GONE)
EVENT_COLUMNS = (
    "incarnation", "record_id", "ts", "event_type", "topic", "topic_id", "partition", "replicas", "partition_epoch", "partitions_named",
    "error_code", "record_no", "item",
)  # fmt: skip

# lines of one change are printed within it of each other, on a busy machine
TOGETHER = timedelta(seconds=1)
# brokers learn so late who lives; CreateTopics takes their word for it
LAG = timedelta(seconds=10)
EVIDENCE = 20  # records that a row names at most


# -- brokers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Brokers:
    """Who lived (ZooKeeper mode) or was registered (KRaft), from `since` on."""

    since: datetime
    ids: frozenset[int]
    fenced: frozenset[int] = frozenset()
    kraft: bool = False


@dataclass(frozen=True)
class Cluster:
    """What all topics of an incarnation share. brokers: in order of time; racks: broker -> rack; rackless: those known to have none."""

    brokers: tuple[Brokers, ...] = ()
    racks: Mapping[int, str] = field(default_factory=dict)
    rackless: frozenset[int] = frozenset()

    def at(self, moment: datetime) -> list[Brokers]:
        """The brokers then, and those that were there within ten seconds before, latest first; empty: no line shows them."""
        before = [entry for entry in self.brokers if entry.since <= moment + TOGETHER]
        first = max((at for at, entry in enumerate(before) if entry.since <= moment - LAG), default=0)
        return before[first:][::-1]


def shared_events(facts: ClusterFacts) -> dict[int, list[dict[str, Any]]]:
    """Return incarnation -> the events that its topics share, as rows of `events`."""
    return {
        number: [
            {**event._asdict(), "incarnation": number, "ts": None if event.ts is None else moment_of(event.ts)}
            for event in events
        ]
        for number, events in facts.events_by_number.items()
    }


def cluster(events: Iterable[Row], racks: Mapping[int, str] | None = None) -> Cluster:
    """in: events of one incarnation, any order. racks: those of audit.toml, which supersede those of lines."""
    found: list[Brokers] = []
    known: dict[int, str | None] = {}
    registered: dict[int, int] = {}  # broker -> epoch
    fenced: set[int] = set()
    for event in sorted((e for e in events if e["ts"] is not None), key=lambda e: (e["ts"], e["record_no"], e["item"])):
        kind, broker = event["event_type"], event["broker"]
        if broker is not None and kind in NODES:
            known[broker] = event["rack"]
        if kind in BROKER_LISTS:
            found.append(Brokers(event["ts"], frozenset(event["brokers"] or ())))
            continue
        if broker is None or kind not in (*REGISTERED, *FENCED, *UNFENCED, *GONE):
            continue
        epoch = event["broker_epoch"]
        if kind in REGISTERED:
            if epoch is not None and epoch <= registered.get(broker, -1):
                continue  # printed once more, by another controller or by one that starts
            registered[broker] = -1 if epoch is None else epoch
            (fenced.add if event["fenced"] else fenced.discard)(broker)
        elif kind in GONE:
            registered.pop(broker, None)
        elif epoch is not None and epoch < registered.get(broker, -1):
            continue
        else:
            (fenced.add if kind in FENCED else fenced.discard)(broker)
        found.append(Brokers(event["ts"], frozenset(registered), frozenset(fenced), kraft=True))
    known |= racks or {}
    named = {broker: rack for broker, rack in known.items() if rack}
    return Cluster(tuple(found), named, frozenset(known) - frozenset(named))


# -- whose placement -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Partitions of a topic that were created together. by_hand: whether the request named the replicas; null: no line shows it."""

    ts: datetime
    partitions: Mapping[int, Sequence[int]]
    created: bool
    record_ids: tuple[str, ...]
    by_hand: bool | None = None


@dataclass(frozen=True)
class Judged:
    """placement: kafka, kafka_extended, manual or not_known; start_index, shift: of the partitions the topic was created with."""

    placement: str
    reason: str
    start_index: int | None = None
    shift: int | None = None
    rack_aware: bool | None = None


def batches(events: Iterable[Row]) -> dict[str, list[Batch]]:
    """Topic -> what created and extended it, in order of time.

    in: events of one incarnation; ZooKeeper mode names all partitions of a batch in one record. In KRaft every controller prints a partition,
    and a starting one prints it again: the first line of each counts, and lines within a second of each other are one batch.
    """
    rows = sorted((e for e in events if e["ts"] is not None), key=lambda e: (e["ts"], e["record_no"], e["item"]))
    names = {row["topic_id"]: row["topic"] for row in rows if row["topic"] and row["topic_id"]}
    found: dict[str, list[Batch]] = {}
    records: dict[tuple[str, str], list[Row]] = {}
    kraft: dict[tuple[str, str], dict[int, Row]] = {}
    answers: dict[str, list[Row]] = {}
    for row in rows:
        kind, topic = row["event_type"], row["topic"] or names.get(row["topic_id"])
        if topic is None:
            continue
        if kind in ("topics_changed", "partitions_added") and row["partition"] is not None and row["replicas"]:
            records.setdefault((row["record_id"], topic), []).append(row)
        elif kind in ("partition_registered", "partition_record") and row["partition_epoch"] == 0:
            kraft.setdefault((topic, row["topic_id"] or ""), {}).setdefault(row["partition"], row)
        elif kind == "topic_creation_answered" and row["error_code"] == "SUCCESS":
            answers.setdefault(topic, []).append(row)
    for (record_id, topic), some in records.items():
        given = {row["partition"]: list(row["replicas"]) for row in some}
        created = some[0]["event_type"] == "topics_changed"
        found.setdefault(topic, []).append(Batch(some[0]["ts"], given, created, (record_id,)))
    for (topic, _), partitions in kraft.items():
        found.setdefault(topic, []).extend(_kraft_batches(list(partitions.values()), answers.get(topic, [])))
    return {topic: sorted(some, key=lambda batch: batch.ts) for topic, some in found.items()}


def _kraft_batches(rows: list[Row], answers: list[Row]) -> list[Batch]:
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
    made = []
    for number, group in enumerate(groups):
        hand = None if number or answer is None else answer["partitions_named"] is None
        ids = [row["record_id"] for row in group] + ([answer["record_id"]] if answer is not None and not number else [])
        given = {row["partition"]: list(row["replicas"]) for row in group}
        made.append(Batch(group[0]["ts"], given, number == 0, tuple(dict.fromkeys(ids))[:EVIDENCE], hand))
    return made


def judge(made: Sequence[Batch], shared: Cluster, partition_0: Sequence[Sequence[int] | None] = ()) -> Judged:
    """Whose placement a topic has, from what created and extended it.

    partition_0: its replicas when each batch after the first was added; null or left out: those that it was created with.
    """
    if not made or not made[0].created:
        return Judged("not_known", "the logs do not show how it was created")
    first = _judge_batch(made[0], shared, None)
    verdicts = [first]
    for number, batch in enumerate(made[1:]):
        head = partition_0[number] if number < len(partition_0) else None
        head = made[0].partitions.get(0) if head is None else head
        verdicts.append(_judge_batch(batch, shared, head))
    for batch, verdict in zip(made, verdicts, strict=True):
        if verdict.placement != "kafka":
            which = "" if batch is made[0] else f"{_partitions(batch.partitions)} added at {moment(batch.ts)}: "
            return Judged(verdict.placement, which + verdict.reason, first.start_index, first.shift, verdict.rack_aware)
    if len(made) == 1:
        return first
    added = ", ".join(_partitions(batch.partitions) for batch in made[1:])
    return Judged(
        "kafka_extended", f"{first.reason}; {added} added as Kafka does", first.start_index, first.shift, first.rack_aware
    )


def _judge_batch(batch: Batch, shared: Cluster, partition_0: Sequence[int] | None) -> Judged:
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
            return Judged("kafka", text + _weight(batch), found.start_index, found.shift, found.rack_aware)
    text = f"assignReplicasToBrokers does not give it for any start and shift of brokers {_ids(sorted(choices[0].ids))}"
    if unknown := choices[0].ids - shared.racks.keys() - shared.rackless:
        return Judged("not_known", f"{text} without racks, and no line shows the rack of {_ids(sorted(unknown))}")
    return Judged("manual", text)


def _judge_striped(batch: Batch, choices: Sequence[Brokers], racks: Mapping[int, str]) -> Judged:
    rows = [batch.partitions[partition] for partition in sorted(batch.partitions)]
    why = ""
    for brokers in choices:
        problem = placement.not_striped(rows, brokers.ids, racks, brokers.fenced)
        if problem is None:
            aware = len({racks.get(broker) for broker in brokers.ids}) > 1
            if batch.by_hand is False:
                return Judged("kafka", "the request named no replicas", rack_aware=aware)
            text = f"StripedReplicaPlacer may give it for brokers {_ids(sorted(brokers.ids))}"
            return Judged("kafka", text + _weight(batch), rack_aware=aware)
        why = why or problem
    if batch.by_hand is False:
        return Judged("kafka", f"the request named no replicas, though {why}")
    return Judged("manual", f"StripedReplicaPlacer does not give it: {why}")


def _weight(batch: Batch) -> str:
    return ", as any of one partition" if len(batch.partitions) == 1 and batch.created else ""


# -- what it spreads, over time --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A topic's assignment from `since` (null: before the logs begin) until `until` (null: still), outside of reassignments."""

    since: datetime | None
    until: datetime | None
    assignment: Mapping[int, tuple[int, ...]]
    record_ids: tuple[str, ...]


def moments(rows: Iterable[Row]) -> list[Moment]:
    """The assignments of one topic, one after the other; empty between a deletion and the next creation.

    in: its rows of partition_timeline. A moment begins when no partition is being reassigned any more; changes within a second are one.
    """
    changes: list[tuple[datetime | None, int, tuple[int, ...] | None, bool, str | None]] = []
    for partition, some in groupby(sorted(rows, key=lambda r: (r["partition"], r["step"])), key=lambda r: r["partition"]):
        end = None
        for row in some:
            there = row["state"] != "NonExistentPartition" and row["replicas"] is not None
            if end is not None and row["valid_from"] is not None and row["valid_from"] > end:
                changes.append((end, partition, None, False, None))
            busy = bool(row["adding_replicas"] or row["removing_replicas"] or row["reassignment_phase"])
            changes.append((row["valid_from"], partition, tuple(row["replicas"]) if there else None, busy, row["record_id"]))
            end = row["valid_to"]
        if end is not None:
            changes.append((end, partition, None, False, None))
    changes.sort(key=lambda change: (change[0] is not None, change[0] or datetime.min))
    return _settled(changes)


def _settled(changes: list[tuple[datetime | None, int, tuple[int, ...] | None, bool, str | None]]) -> list[Moment]:
    """in: time, partition, its replicas (null: it is gone), whether it is being reassigned, record; in order of time."""
    now: dict[int, tuple[int, ...]] = {}
    busy: set[int] = set()
    found: list[Moment] = []
    because: dict[str, None] = {}
    began: datetime | None = None
    fresh = True  # nothing has changed since the last moment
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
            found.append(Moment(began, None, now, tuple(because)[:EVIDENCE]))
        because, fresh = {}, True
    return found


def _apart(ts: datetime | None, later: Sequence[tuple[datetime | None, Any, Any, Any, Any]]) -> bool:
    """Whether what follows is of another moment."""
    following = later[0][0] if later else None
    return not later or (following is not None and (ts is None or following - ts > TOGETHER))


def topic_rows(rows: Sequence[Row], made: Sequence[Batch], shared: Cluster) -> list[dict[str, Any]]:
    """Rows of `topic_assignments` of one topic of one incarnation, without cluster, incarnation and topic.

    in: its rows of partition_timeline, what created and extended it, what its cluster shares.
    """
    history = moments(rows)
    return [_topic_row(history[: number + 1], made, shared) for number, moment in enumerate(history) if moment.assignment]


def broker_loads(row: Row) -> list[dict[str, Any]]:
    """What each broker holds by an assignment: rows of `broker_load`. row: of `topic_assignments`."""
    placed = [partition["replicas"] for partition in row["assignment"]]
    replicas = Counter(broker for ids in placed for broker in ids)
    leaders = Counter(ids[0] for ids in placed if ids)
    same = {name: row[name] for name in ("cluster", "incarnation", "topic", "valid_from", "valid_to")}
    return [{**same, "broker": broker, "replicas": count, "leaders": leaders[broker]} for broker, count in replicas.items()]


def _topic_row(history: Sequence[Moment], made: Sequence[Batch], shared: Cluster) -> dict[str, Any]:
    """The last moment of a history."""
    moment = history[-1]
    assignment = moment.assignment
    mine = _batches_until(made, moment)
    given = {partition: tuple(row) for batch in mine for partition, row in batch.partitions.items()}
    moved = sorted(p for p, row in assignment.items() if p in given and given[p] != row)
    judged = judge(mine, shared, [_partition_0(history, batch) for batch in mine[1:]])
    if moved:
        judged = _judge_moved(moment, moved, judged, shared)
    live = shared.at(moment.since or shared.brokers[0].since) if shared.brokers else []
    ids = live[0].ids if live else frozenset()
    figures = placement.spread(assignment, ids, shared.racks)
    factors = {len(row) for row in assignment.values()}
    return {
        "valid_from": moment.since,
        "valid_to": moment.until,
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
        "assignment": [{"partition": partition, "replicas": list(row)} for partition, row in sorted(assignment.items())],
        "record_ids": list(moment.record_ids) or [r for batch in mine for r in batch.record_ids][:EVIDENCE],
    }


def _cause(history: Sequence[Moment], mine: Sequence[Batch]) -> str:
    """created, partitions_added, reassigned, or found (as it was when the logs begin)."""
    moment = history[-1]
    if moment.since is not None and (latest := [batch for batch in mine if abs(batch.ts - moment.since) <= TOGETHER]):
        return "created" if latest[-1].created else "partitions_added"
    before = history[-2].assignment if len(history) > 1 else {}
    if not before:
        return "created" if mine else "found"
    return "partitions_added" if moment.assignment.keys() - before.keys() else "reassigned"


def _batches_until(made: Sequence[Batch], moment: Moment) -> list[Batch]:
    """Those of the topic's present generation: from the last creation on that is not later than the moment."""
    if moment.since is None:
        return []
    mine = [batch for batch in made if batch.ts <= moment.since + TOGETHER]
    last = max((number for number, batch in enumerate(mine) if batch.created), default=0)
    return mine[last:]


def _partition_0(history: Sequence[Moment], added: Batch) -> Sequence[int] | None:
    """Its replicas when partitions were added."""
    before = [m for m in history if 0 in m.assignment and (m.since is None or m.since < added.ts - TOGETHER)]
    return before[-1].assignment[0] if before else None


def _judge_moved(moment: Moment, moved: list[int], created: Judged, shared: Cluster) -> Judged:
    """A reassigned topic: `kafka-reassign-partitions --generate` places with the same algorithm, up to 3.x and in KRaft alike."""
    text = f"{_partitions(moved)} reassigned; created: {created.placement}"
    live = shared.at(moment.since) if moment.since is not None else []
    if live and min(moment.assignment) == 0:
        everyone = live[0].ids
        used = frozenset(b for row in moment.assignment.values() for b in row)
        for ids in (everyone, used):
            if len(moment.assignment) > 1 and (found := placement.find(moment.assignment, ids, shared.racks)):
                what = f"assignReplicasToBrokers gives the whole for brokers {_ids(found.brokers)}"
                return Judged("kafka", f"{text}; {what}", found.start_index, found.shift, found.rack_aware)
    return Judged("manual", text)


def _partitions(ids: Iterable[int]) -> str:
    listed = sorted(ids)
    shown = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return f"partition{'s' if len(listed) > 1 else ''} {shown}"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


# -- what if ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """What becomes of a partition. effect: loses_leader, below_min_isr or offline; the worst of them, in this order."""

    topic: str
    partition: int
    effect: str
    leader: int | None
    new_leader: int | None
    isr: tuple[int, ...]
    min_isr: int


def what_if(rows: Iterable[Row], down: Iterable[int], min_isr: Mapping[str, int]) -> list[Effect]:
    """What happens when brokers go down, from the last known state of each partition.

    in: rows of partition_timeline that still hold. min_isr: topic -> min.insync.replicas, 1 where it is not in there. Kafka elects the first
    replica of the assignment that is in the ISR and lives; unclean elections are not assumed.
    """
    gone = set(down)
    found = []
    for row in rows:
        if row["leader"] in (None, -1) or row["isr"] is None or row["state"] == "NonExistentPartition":
            continue
        before, need = list(row["isr"]), min_isr.get(row["topic"], 1)
        left = [broker for broker in before if broker not in gone]
        elected = next((b for b in row["replicas"] or left if b in left), None)
        leader = row["leader"]
        effect = None
        if not left:
            effect = "offline"
        elif len(left) < need <= len(before):
            effect = "below_min_isr"
        elif leader in gone:
            effect = "loses_leader"
        if effect:
            new = elected if leader in gone else leader
            found.append(Effect(row["topic"], row["partition"], effect, leader, new, tuple(left), need))
    return sorted(found, key=lambda e: (EFFECTS.index(e.effect), e.topic, e.partition))


EFFECTS = ("offline", "below_min_isr", "loses_leader")
