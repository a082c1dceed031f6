"""What tools outside of the logs say about partitions at one moment, and whether the timelines agree. Pure.

Read are kafka-topics --describe (every form, also --under-replicated-partitions and the like), the partition state of zookeeper-shell,
partitions as kafka-metadata-shell prints them, the current assignment that kafka-reassign-partitions prints, and the quorum of kafka-metadata-quorum
describe, which is that of a partition, too: of the metadata log. A tool prints no time, but for zookeeper-shell: the caller says when it
was run, or the file's name does.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

Row = Mapping[str, Any]

DESCRIBED = re.compile(r"\s*Topic: ?([a-zA-Z0-9._\-]+)\s+Partition: ?(\d{1,10})\s+(.*)")
FIELD = re.compile(r"(Leader|Replicas|Isr|Adding Replicas|Removing Replicas|Elr|LastKnownElr|Offline): ?([^\t]*)")
TOPIC = re.compile(r"Topic: ?([a-zA-Z0-9._\-]+)\s+(?:TopicId: ?\S+\s+)?PartitionCount: ?\d+")
STATE_PATH = re.compile(r"/brokers/topics/([a-zA-Z0-9._\-]+)/partitions/(\d{1,10})/state")
SHELL_PATH = re.compile(r"/topics/(?:byName/)?([a-zA-Z0-9._\-]+)/(\d{1,10})(?:/data)?\b")
REGISTRATION = re.compile(r"PartitionRegistration\((.*)")
NAMED_LIST = re.compile(r"\b(\w+)=\[([\d, ]*)\]")
NAMED_NUMBER = re.compile(r"(leader|leaderEpoch|partitionEpoch)=(-?\d{1,10})\b")
NAMED_TIME = re.compile(r"\d{4}-?\d\d-?\d\dT\d\d[:\-]?\d\d[:\-]?\d\dZ")
ZOOKEEPER_TIME = re.compile(r"^mtime = \w{3} (\w{3} \d+ \d\d:\d\d:\d\d) (?:UTC|GMT) (\d{4})$", re.MULTILINE)
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._\-]+")
CURRENT = "Current partition replica assignment"
# kafka-metadata-quorum describe --status and --replication, 3.3 to 4.x; --replication names directories from 3.9 on
STATUS = re.compile(
    r"(ClusterId|LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs|CurrentVoters|CurrentObservers):\s*(.*)"
)
REPLICATION = re.compile(r"NodeId\s+(?:DirectoryId\s+)?LogEndOffset\s+Lag\s")
REPLICATED = re.compile(r"(\d{1,10})\s+(?:[A-Za-z0-9_\-]{22}\s+)?\d{1,19}\s+(-?\d{1,19})\s.*\b(Leader|Follower|Observer)\s*")
METADATA_TOPIC = "__cluster_metadata"
NO_ID = 2**31  # beyond Kafka's 32 bits
NO_OFFSET = 2**63
MAX_LINE = 20_000  # characters of a line about one partition


class CheckpointError(ValueError):
    """The text is of none of these tools."""


@dataclass(frozen=True)
class Checkpoint:
    """One partition at one moment, as a tool tells it; null: it does not tell. source: describe, zookeeper, metadata_shell, reassign or quorum.

    adding, removing: null where the form has no such columns (up to 2.7 a reassignment that runs does not show). Of a quorum the replicas
    are its voters; observers: who else reads the log; lag: records that the slowest voter is behind; cluster_id: of its cluster.
    """

    source: str
    topic: str
    partition: int
    line: int
    leader: int | None = None
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    high_watermark: int | None = None
    observers: tuple[int, ...] | None = None
    lag: int | None = None
    cluster_id: str | None = None


def parse(text: str) -> list[Checkpoint]:
    """The partitions that a tool's output tells of, in its order. Raises CheckpointError where it is of none of these tools."""
    whole = text.splitlines()
    lines = [line if len(line) <= MAX_LINE else "" for line in whole]
    told = (
        *_described(lines),
        *_of_zookeeper(lines),
        *_of_metadata_shell(lines),
        *_of_reassign(whole),
        *_of_quorum(lines),
        *_of_replication(lines),
    )
    found = [one for one in told if _is_sound(one)]
    if not found and not any(TOPIC.match(line) for line in lines):
        raise CheckpointError(
            "is no output of kafka-topics --describe, of zookeeper-shell get /brokers/topics/../state, of kafka-metadata-shell, "
            "of kafka-reassign-partitions --generate or --execute, or of kafka-metadata-quorum describe"
        )
    return sorted(found, key=lambda one: one.line)


def is_output(text: str) -> bool:
    """Whether the text is of one of these tools and tells of a partition."""
    try:
        return any(
            hint in text for hint in ("Partition: ", "/state", "/topics/", CURRENT, "LeaderEpoch:", "LogEndOffset")
        ) and bool(parse(text))
    except CheckpointError:
        return False


def _is_sound(one: Checkpoint) -> bool:
    """Whether its numbers are such as Kafka has: the text is anybody's."""
    numbers = [one.leader, one.leader_epoch, one.partition_epoch]
    for ids in (one.isr, one.replicas, one.adding, one.removing, one.observers):
        numbers += ids or ()
    offsets = all(offset is None or abs(offset) < NO_OFFSET for offset in (one.high_watermark, one.lag))
    return (
        offsets
        and type(one.partition) is int
        and all(number is None or (type(number) is int and -1 <= number < NO_ID) for number in (one.partition, *numbers))
    )


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) if len(part) < 12 else NO_ID for part in re.findall(r"-?\d+", text))


def _described(lines: Sequence[str]) -> Iterator[Checkpoint]:
    """`Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2  Isr: 1,2 ..`; no leader is `none` or -1."""
    for number, line in enumerate(lines, 1):
        if not (row := DESCRIBED.match(line)):
            continue
        values = dict(FIELD.findall(row[3]))
        if not {"Leader", "Replicas", "Isr"} <= values.keys():
            continue
        leader = values["Leader"].strip()
        numeric = re.fullmatch(r"-?\d{1,10}", leader)
        yield Checkpoint(
            "describe", row[1], int(row[2]), number,
            leader=int(leader) if numeric else -1 if leader in ("none", "N/A") else None,
            isr=_ids(values["Isr"]),
            replicas=_ids(values["Replicas"]),
            adding=_ids(values["Adding Replicas"]) if "Adding Replicas" in values else None,
            removing=_ids(values["Removing Replicas"]) if "Removing Replicas" in values else None,
        )  # fmt: skip


def _of_zookeeper(lines: Sequence[str]) -> Iterator[Checkpoint]:
    """The JSON after a line that names the path; `dataVersion = 3` after it is the partition epoch."""
    for number, line in enumerate(lines, 1):
        if not (path := STATE_PATH.search(line)):
            continue
        following = list(enumerate(lines[number - 1 : number + 20], number))
        state = next((held for _, later in following if (held := _json(later)) and "isr" in held), None)
        versions = [found[1] for _, later in following if (found := re.match(r"dataVersion = (\d{1,10})\b", later))]
        if state and isinstance(state["isr"], list) and isinstance(state.get("leader"), int):
            yield Checkpoint(
                "zookeeper", path[1], int(path[2]), number, leader=state["leader"], isr=tuple(state["isr"]),
                leader_epoch=state.get("leader_epoch"), partition_epoch=int(versions[0]) if versions else None,
            )  # fmt: skip


def _json(line: str) -> dict[str, Any] | None:
    begin = line.find("{")
    try:
        found = json.loads(line[begin:]) if begin >= 0 else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else ()


def _of_metadata_shell(lines: Sequence[str]) -> Iterator[Checkpoint]:
    """PartitionRegistration(..), or the record's JSON, after a path such as /image/topics/byName/orders/0."""
    path = None
    for number, line in enumerate(lines, 1):
        path = SHELL_PATH.search(line) or path
        if path is None or STATE_PATH.search(line):
            continue
        record = _json(line)
        if registration := REGISTRATION.search(line):
            lists = {name: _ids(ids) for name, ids in NAMED_LIST.findall(registration[1])}
            numbers = {name: int(value) for name, value in NAMED_NUMBER.findall(registration[1])}
        elif record and "replicas" in record and "partitionEpoch" in record:
            lists = {name: _listed(record.get(name)) for name in ("replicas", "isr", "addingReplicas", "removingReplicas")}
            numbers = {name: record[name] for name in ("leader", "leaderEpoch", "partitionEpoch") if name in record}
        else:
            continue
        yield Checkpoint(
            "metadata_shell", path[1], int(path[2]), number, leader=numbers.get("leader"), isr=lists.get("isr"), replicas=lists.get("replicas"),
            adding=lists.get("addingReplicas", ()), removing=lists.get("removingReplicas", ()), leader_epoch=numbers.get("leaderEpoch"),
            partition_epoch=numbers.get("partitionEpoch"),
        )  # fmt: skip
        path = None


def _of_reassign(lines: Sequence[str]) -> Iterator[Checkpoint]:
    """The JSON after `Current partition replica assignment`; of replicas only the assigned ones."""
    for number, line in enumerate(lines, 1):
        if line.strip() != CURRENT:
            continue
        current = next((held for later in lines[number : number + 3] if (held := _json(later))), {})
        for row in _listed(current.get("partitions")):
            if isinstance(row, dict) and isinstance(row.get("topic"), str) and TOPIC_NAME.fullmatch(row["topic"]):
                partition: Any = row.get("partition")
                yield Checkpoint("reassign", row["topic"], partition, number, replicas=_listed(row.get("replicas")))


def _of_quorum(lines: Sequence[str]) -> Iterator[Checkpoint]:
    """`LeaderId: 1` and the lines around it; voters are `[1,2,3]`, or objects with an id (since 3.9)."""
    begin: int | None = None
    values: dict[str, str] = {}
    for number, line in enumerate([*lines, ""], 1):
        if row := STATUS.fullmatch(line.strip()):
            begin = begin or number
            values[row[1]] = row[2].strip()
            continue
        if begin is not None and {"LeaderId", "LeaderEpoch"} <= values.keys():
            leader, epoch, mark, lag = (
                _number(values.get(name)) for name in ("LeaderId", "LeaderEpoch", "HighWatermark", "MaxFollowerLag")
            )
            voters, observers = (_quorum_ids(values.get(name)) for name in ("CurrentVoters", "CurrentObservers"))
            yield Checkpoint(
                "quorum", METADATA_TOPIC, 0, begin, leader=leader, leader_epoch=epoch, replicas=voters, high_watermark=mark,
                observers=observers, lag=lag, cluster_id=values.get("ClusterId"),
            )  # fmt: skip
        begin, values = None, {}


def _of_replication(lines: Sequence[str]) -> Iterator[Checkpoint]:
    """A table of nodes, the leader first; neither its epoch nor the high watermark is told."""
    for begin, line in enumerate(lines, 1):
        if not REPLICATION.match(line.strip()):
            continue
        rows: list[tuple[int, int, str]] = []
        for later in lines[begin:]:
            if not (row := REPLICATED.fullmatch(later.strip())):
                break
            rows.append((int(row[1]), int(row[2]), row[3]))
        leader = next((node for node, _, status in rows if status == "Leader"), None)
        if leader is not None:
            voters = tuple(node for node, _, status in rows if status != "Observer")
            observers = tuple(node for node, _, status in rows if status == "Observer")
            behind = max(lag for _, lag, status in rows if status != "Observer")
            yield Checkpoint("quorum", METADATA_TOPIC, 0, begin, leader=leader, replicas=voters, observers=observers, lag=behind)


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,19}", text) else None


def _quorum_ids(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else _ids(" ".join(re.findall(r'"id": ?(-?\d+)', text)) if "{" in text else text)


# -- compared with the timelines -------------------------------------------------------------------------------

# a tool asks a broker, which may be as far behind; a line follows its write
NEAR = timedelta(seconds=5)
# column of partition_timeline -> field of a checkpoint; lists but for the replicas are compared as sets
COMPARED = {
    "leader": "leader", "isr": "isr", "replicas": "replicas", "adding_replicas": "adding", "removing_replicas": "removing",
    "leader_epoch": "leader_epoch", "partition_epoch": "partition_epoch",
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A checkpoint that no interval near its moment agrees with; row: the nearest one, null where the logs do not know the partition."""

    checkpoint: Checkpoint
    columns: tuple[str, ...]
    row: Row | None


def differs(checkpoint: Checkpoint, row: Row) -> tuple[str, ...]:
    """Columns of an interval that say something else; what either side does not tell agrees."""
    found = []
    for column, name in COMPARED.items():
        told, held = getattr(checkpoint, name), row[column]
        if told is None or held is None:
            continue
        same = (
            tuple(held) == told if column == "replicas" else set(held) == set(told) if isinstance(told, tuple) else held == told
        )
        if not same:
            found.append(column)
    return tuple(found)


def compare(checkpoints: Iterable[Checkpoint], rows: Iterable[Row], at: datetime) -> list[Difference]:
    """What a tool said at a moment and the logs contradict. rows: of partition_timeline, of the last incarnation."""
    by_partition: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        begins = row["valid_from"] is None or row["valid_from"] <= at + NEAR
        if begins and (row["valid_to"] is None or row["valid_to"] >= at - NEAR) and row["state"] != "NonExistentPartition":
            by_partition.setdefault((row["topic"], row["partition"]), []).append(row)
    found = []
    for checkpoint in checkpoints:
        candidates = by_partition.get((checkpoint.topic, checkpoint.partition), [])
        wrong = [(differs(checkpoint, row), row) for row in candidates]
        if not wrong or all(columns for columns, _ in wrong):
            nearest = min(wrong, key=lambda pair: len(pair[0]), default=None)
            found.append(Difference(checkpoint, *nearest) if nearest else Difference(checkpoint, (), None))
    return found


@dataclass(frozen=True)
class Term:
    """One node led the quorum in one epoch, by a line of its; begun: when that was printed, null where it has no time stamp."""

    epoch: int
    node: int | None
    begun: datetime | None
    record_id: str


def compare_quorum(told: Checkpoint, terms: Iterable[Term], at: datetime) -> tuple[tuple[str, ...], Term] | None:
    """What a tool said of the quorum and the logs contradict: another leader of that epoch, or a later epoch that had begun before.

    An epoch that no line tells may have been any node's; of --replication, which tells none, nothing can be compared.
    """
    if told.leader_epoch is None:
        return None
    for term in terms:
        if term.epoch == told.leader_epoch and term.node is not None and told.leader not in (term.node, None, -1):
            return ("leader",), term
        if term.epoch > told.leader_epoch and term.begun is not None and term.begun < at - NEAR:
            return ("leader_epoch",), term
    return None


def moment_of(text: str, name: str) -> datetime | None:
    """When an output was true: by its file's name, describe-20260301T040000Z.txt; else by zookeeper-shell's `mtime = Fri Nov 20 10:24:05 UTC
    2026`, since when it was; null: neither says.
    """
    if found := NAMED_TIME.search(name):
        form, told = "%Y%m%d%H%M%S", re.sub(r"\D", "", found[0])
    elif found := ZOOKEEPER_TIME.search(text):
        form, told = "%b %d %H:%M:%S %Y", f"{found[1]} {found[2]}"
    else:
        return None
    try:
        return datetime.strptime(told, form).replace(tzinfo=UTC)
    except ValueError:
        return None
