"""Read outputs of Kafka's tools about partitions, and compare them with the timelines. Pure.

The tools and what is read of their outputs:
  kafka-topics --describe       every form, also --under-replicated-partitions, and copied from a terminal or
  a mail
  zookeeper-shell               partition states and assignments
  kafka-metadata-shell          partitions
  kafka-reassign-partitions     assignments
  kafka-metadata-quorum         the quorum, as the partition of the metadata log
Only zookeeper-shell prints a time. The caller or the file's name says when another tool was run.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

Row = Mapping[str, Any]

# columns of kafka-topics --describe, 0.8 to 4.x and Confluent's, separated by tabs or, on a terminal, blanks
COLUMNS = (
    "TopicId",
    "Topic",
    "PartitionCount",
    "Partition",
    "ReplicationFactor",
    "Configs",
    "MarkedForDeletion",
    "Leader",
    "Adding Replicas",
    "Removing Replicas",
    "Replicas",
    "Isr",
    "LastKnownElr",
    "Elr",
    "Offline",
    "Observers",
)
LABEL = re.compile(rf"(?<![A-Za-z0-9._\-])({'|'.join(COLUMNS)}): ?")
ID_LIST = re.compile(r"(?:-?\d+(?:, ?-?\d+)*)?")
# beginnings of a line that a terminal or a mail has wrapped
WRAPPED = re.compile(rf"\s*(?:{'|'.join(COLUMNS[7:])}):|\s*[\d,]+")
# colours of a terminal, the marks of a quoted mail, a byte order mark
ORNAMENT = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|^\ufeff|^(?:[>|]\s?)+(?=\s*Topic:)")
TOPIC = re.compile(r"Topic: ?([a-zA-Z0-9._\-]+)\s+(?:TopicId: ?\S+\s+)?PartitionCount: ?\d+")
TOPIC_PATH = re.compile(r"/brokers/topics/([a-zA-Z0-9._\-]+)\s*$")
MOVING = re.compile(
    r"([a-zA-Z0-9._\-]+)-(\d{1,10}): replicas: (.*?)\.(?: adding: (.*?)\.)?(?: removing: (.*?)\.)?\s*"
)
# kafka-reassign-partitions --verify: since 2.6, and before
AT_REST = re.compile(
    r"There is no active reassignment of partition ([a-zA-Z0-9._\-]+)-(\d{1,10}), but replica set is ([\d,]*) rather than .*"
)
NOT_THERE = re.compile(
    r"ERROR: Assigned replicas \(([\d,]*)\) don't match the list of replicas for reassignment \([\d,]*\) for partition (.*)"
)
BY_NAME = re.compile(r"([a-zA-Z0-9._\-]+)-(\d{1,10})|\[([a-zA-Z0-9._\-]+),(\d{1,10})\]")
# outputs without a partition -> tool
OTHERS = {
    "kafka-broker-api-versions": re.compile(r"^\S+:\d+ \(id: -?\d+ rack: .*\) -> \($", re.MULTILINE),
    "kafka-reassign-partitions --verify": re.compile(r"^Status of partition reassignment:", re.MULTILINE),
    "kafka-reassign-partitions --list": re.compile(
        r"^(?:No partition reassignments found|Current partition reassignments:)", re.MULTILINE
    ),
    "kafka-dump-log, of no metadata log": re.compile(
        r"^Dumping (?!.*__cluster_metadata-0/)\S+\.(?:log|checkpoint|index|timeindex)$", re.MULTILINE
    ),
    "zookeeper-shell": re.compile(
        r"^(?:\[zk: .*\] |Connecting to \S+:\d+$|WatchedEvent state:SyncConnected)", re.MULTILINE
    ),
}
STATE_PATH = re.compile(r"/brokers/topics/([a-zA-Z0-9._\-]+)/partitions/(\d{1,10})/state")
SHELL_PATH = re.compile(r"/topics/(?:byName/)?([a-zA-Z0-9._\-]+)/(\d{1,10})(?:/data)?\b")
REGISTRATION = re.compile(r"PartitionRegistration\((.*)")
NAMED_LIST = re.compile(r"\b(\w+)=\[([\d, ]*)\]")
NAMED_NUMBER = re.compile(r"(leader|leaderEpoch|partitionEpoch)=(-?\d{1,10})\b")
NAMED_TIME = re.compile(r"\d{4}-?\d\d-?\d\dT\d\d[:\-]?\d\d[:\-]?\d\dZ")
ZOOKEEPER_TIME = re.compile(r"^mtime = \w{3} (\w{3} \d+ \d\d:\d\d:\d\d) (?:UTC|GMT) (\d{4})$", re.MULTILINE)
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._\-]+")
CURRENT = "Current partition replica assignment"
# kafka-metadata-quorum describe --status and --replication, 3.3 to 4.x; --replication names directories from
# 3.9 on
STATUS = re.compile(
    r"(ClusterId|LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs|CurrentVoters|CurrentObservers):\s*(.*)"
)
REPLICATION = re.compile(r"NodeId\s+(?:DirectoryId\s+)?LogEndOffset\s+Lag\s")
REPLICATED = re.compile(
    r"(\d{1,10})\s+(?:[A-Za-z0-9_\-]{22}\s+)?\d{1,19}\s+(-?\d{1,19})\s.*\b(Leader|Follower|Observer)\s*"
)
METADATA_TOPIC = "__cluster_metadata"
NO_ID = 2**31  # beyond Kafka's 32 bits
NO_OFFSET = 2**63
MAX_LINE = 20_000  # characters of a line about one partition


class CheckpointError(ValueError):
    """The text is no output of these tools."""


@dataclass(frozen=True)
class Checkpoint:
    """One partition at one moment, as a tool prints it; null: not printed.

    source: describe, zookeeper, metadata_shell, reassign or quorum.
    adding, removing: null where the form has no such columns (up to 2.7, which shows no running
    reassignment). The replicas of a quorum are its voters. observers: other readers of its log. lag: records
    that the slowest voter is behind.
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


@dataclass(frozen=True)
class Output:
    """The content of a tool's output. partitions: by line.

    unread: line -> text that looks like a partition and cannot be read.
    """

    partitions: tuple[Checkpoint, ...]
    unread: Mapping[int, str]


# the number of a line that looks like a partition and cannot be read
Unread = int


def read(text: str) -> Output:
    """Return the partitions of a tool's output, in its order.

    Raises CheckpointError where it is of none of these tools.
    """
    whole = text.splitlines()
    lines = [ORNAMENT.sub("", line) if len(line) <= MAX_LINE else "" for line in whole]
    found = (
        *_described(lines),
        *_of_zookeeper(lines),
        *_of_topic_node(lines),
        *_of_metadata_shell(lines),
        *_of_reassign(whole),
        *_of_running(lines),
        *_of_quorum(lines),
        *_of_replication(lines),
    )
    partitions = [one for one in found if isinstance(one, Checkpoint) and _is_sound(one)]
    numbers = {one for one in found if isinstance(one, Unread)}
    numbers |= {one.line for one in found if isinstance(one, Checkpoint) and not _is_sound(one)}
    if (
        not partitions
        and not numbers
        and not any(TOPIC.match(line.lstrip()) for line in lines)
        and tool_of(text) is None
    ):
        raise CheckpointError(
            "is no output of kafka-topics --describe, of zookeeper-shell get /brokers/topics/../state, of kafka-metadata-shell, "
            "of kafka-reassign-partitions --generate, --execute or --list, or of kafka-metadata-quorum describe"
        )
    unread = {number: whole[number - 1] for number in sorted(numbers)}
    return Output(tuple(sorted(partitions, key=lambda one: one.line)), unread)


def parse(text: str) -> list[Checkpoint]:
    """Return the partitions of a tool's output that can be read. Raises CheckpointError."""
    return list(read(text).partitions)


def tool_of(text: str) -> str | None:
    """Return the tool of an output that need not name a partition; None: it is of none of these tools."""
    return next((tool for tool, form in OTHERS.items() if form.search(text)), None)


def is_output(text: str) -> bool:
    """Return whether the text is of one of these tools and names a partition."""
    output = _looked_into(text)
    return output is not None and bool(output.partitions)


def is_like_output(text: str) -> bool:
    """Return whether the text is of one of these tools, even if no partition can be read."""
    output = _looked_into(text)
    return tool_of(text) is not None or (output is not None and bool(output.partitions or output.unread))


def _looked_into(text: str) -> Output | None:
    hints = (
        "Partition:",
        "/brokers/topics/",
        "/topics/",
        CURRENT,
        "LeaderId:",
        "LogEndOffset",
        "adding: ",
        "replica",
    )
    try:
        return read(text) if any(hint in text for hint in hints) else None
    except CheckpointError:
        return None


def _is_sound(one: Checkpoint) -> bool:
    """Return whether the numbers of a checkpoint are possible in Kafka.

    Anybody may have written the text.
    """
    numbers = [one.leader, one.leader_epoch, one.partition_epoch]
    for ids in (one.isr, one.replicas, one.adding, one.removing, one.observers):
        numbers += ids or ()
    offsets = all(offset is None or abs(offset) < NO_OFFSET for offset in (one.high_watermark, one.lag))
    return (
        offsets
        and type(one.partition) is int
        and all(
            number is None or (type(number) is int and -1 <= number < NO_ID)
            for number in (one.partition, *numbers)
        )
    )


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) if len(part) < 12 else NO_ID for part in re.findall(r"-?\d+", text))


def _described(lines: Sequence[str]) -> Iterator[Checkpoint | Unread]:
    """Read `Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2  Isr: 1,2 ..`.

    Without a leader it is `none` or -1.
    """
    for number, values in _described_rows(lines):
        topic, partition = values["Topic"], values["Partition"]
        lists = {
            name: values[name]
            for name in ("Replicas", "Isr", "Adding Replicas", "Removing Replicas")
            if name in values
        }
        leader = values.get("Leader")
        is_readable = (
            TOPIC_NAME.fullmatch(topic)
            and re.fullmatch(r"\d{1,10}", partition)
            and all(ID_LIST.fullmatch(text) for text in lists.values())
            and (leader is None or leader in NO_LEADER or re.fullmatch(r"-?\d{1,10}", leader))
            and (leader is not None or "Replicas" in lists or "Isr" in lists)
        )
        if not is_readable:
            yield number
            continue
        ids = {name: _ids(text) for name, text in lists.items()}
        yield Checkpoint(
            "describe",
            topic,
            int(partition),
            number,
            leader=None if leader is None else NO_LEADER[leader] if leader in NO_LEADER else int(leader),
            isr=ids.get("Isr"),
            replicas=ids.get("Replicas"),
            adding=ids.get("Adding Replicas"),
            removing=ids.get("Removing Replicas"),
        )


NO_LEADER: dict[str, int | None] = {"none": -1, "N/A": -1, "": None}


def _described_rows(lines: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (number of the first line, values by column) of each partition's row.

    Wrapped lines are joined.
    """
    for number, line in enumerate(lines, 1):
        if "Topic:" not in line:
            continue
        whole = line
        for later in lines[number : number + 3]:
            is_cut = (
                whole.rstrip().endswith((":", ","))
                or later.lstrip().startswith(",")
                or LABEL.match(later.lstrip())
            )
            if "Topic:" in later or not WRAPPED.match(later) or not is_cut:
                break
            whole += (
                later.strip()
                if whole.endswith(",") or later.lstrip().startswith(",")
                else f" {later.strip()}"
            )
        labels = list(LABEL.finditer(whole))
        begins = [n for n, label in enumerate(labels) if label[1] == "Topic"]
        for begin, end in zip(begins, [*begins[1:], len(labels)], strict=True):
            ends = [label.start() for label in labels[begin + 1 :]] + [len(whole)]
            values = {
                label[1]: whole[label.end() : stop].strip()
                for label, stop in zip(labels[begin:end], ends, strict=False)
            }
            if "Partition" in values:
                yield number, values


def _of_zookeeper(lines: Sequence[str]) -> Iterator[Checkpoint | Unread]:
    """Read the JSON after a line that names the path; `dataVersion = 3` after it is the partition epoch."""
    for number, line in enumerate(lines, 1):
        if not (path := STATE_PATH.search(line)) or MISSING_NODE in line:
            continue
        following = _up_to_next_path(lines, number)
        state = next((state for _, later in following if (state := _json(later)) and "isr" in state), None)
        versions = [
            found[1] for _, later in following if (found := re.match(r"dataVersion = (\d{1,10})\b", later))
        ]
        if state and isinstance(state["isr"], list) and isinstance(state.get("leader"), int):
            yield Checkpoint(
                "zookeeper",
                path[1],
                int(path[2]),
                number,
                leader=state["leader"],
                isr=tuple(state["isr"]),
                leader_epoch=state.get("leader_epoch"),
                partition_epoch=int(versions[0]) if versions else None,
            )
        elif ends_with_path(line, path) and not any(MISSING_NODE in later for _, later in following):
            yield number


def ends_with_path(line: str, path: re.Match[str]) -> bool:
    """Return whether a line is a command of zookeeper-shell: other data may name the path, too."""
    return not line[path.end() :].strip(" '\"")


# zookeeper-shell prints this for a path that does not exist
MISSING_NODE = "Node does not exist"


def _up_to_next_path(lines: Sequence[str], number: int) -> list[tuple[int, str]]:
    """Return (number, line) from a line that names a path up to the next line that does."""
    found = [(number, lines[number - 1])]
    for later, line in enumerate(lines[number : number + 20], number + 1):
        if "/brokers/topics/" in line:
            break
        found.append((later, line))
    return found


def _of_topic_node(lines: Sequence[str]) -> Iterator[Checkpoint | Unread]:
    """Read the assignment of a topic: JSON after a line that ends with its path.

    adding_replicas and removing_replicas exist since 2.4.
    """
    for number, line in enumerate(lines, 1):
        if not (path := TOPIC_PATH.search(line)) or MISSING_NODE in line:
            continue
        following = _up_to_next_path(lines, number)
        nodes = [
            node
            for _, later in following
            if (node := _json(later)) and isinstance(node.get("partitions"), dict)
        ]
        for partition, replicas in nodes[0]["partitions"].items() if nodes else ():
            adding, removing = (
                _moving(nodes[0].get(name), partition) for name in ("adding_replicas", "removing_replicas")
            )
            number_of = int(partition) if re.fullmatch(r"\d{1,10}", partition) else NO_ID
            yield Checkpoint(
                "zookeeper",
                path[1],
                number_of,
                number,
                replicas=_listed(replicas),
                adding=adding,
                removing=removing,
            )


def _moving(by_partition: Any, partition: str) -> tuple[Any, ...] | None:
    return _listed(by_partition.get(partition)) if isinstance(by_partition, dict) else None


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
    """Read PartitionRegistration(..) or JSON after a path such as /image/topics/byName/orders/0."""
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
            lists = {
                name: _listed(record.get(name))
                for name in ("replicas", "isr", "addingReplicas", "removingReplicas")
            }
            numbers = {
                name: record[name] for name in ("leader", "leaderEpoch", "partitionEpoch") if name in record
            }
        else:
            continue
        yield Checkpoint(
            "metadata_shell",
            path[1],
            int(path[2]),
            number,
            leader=numbers.get("leader"),
            isr=lists.get("isr"),
            replicas=lists.get("replicas"),
            adding=lists.get("addingReplicas", ()),
            removing=lists.get("removingReplicas", ()),
            leader_epoch=numbers.get("leaderEpoch"),
            partition_epoch=numbers.get("partitionEpoch"),
        )
        path = None


def _of_reassign(lines: Sequence[str]) -> Iterator[Checkpoint | Unread]:
    """Read the JSON after `Current partition replica assignment`, which has only the assigned replicas."""
    for number, line in enumerate(lines, 1):
        if line.strip() != CURRENT:
            continue
        current = next(
            (assignment for later in lines[number : number + 3] if (assignment := _json(later))), {}
        )
        if not _listed(current.get("partitions")):
            yield number
        for row in _listed(current.get("partitions")):
            if (
                isinstance(row, dict)
                and isinstance(row.get("topic"), str)
                and TOPIC_NAME.fullmatch(row["topic"])
            ):
                partition: Any = row.get("partition")
                yield Checkpoint(
                    "reassign", row["topic"], partition, number, replicas=_listed(row.get("replicas"))
                )


def _of_running(lines: Sequence[str]) -> Iterator[Checkpoint | Unread]:
    """Read `orders-0: replicas: 4,1. adding: 4.

    removing: 1.` of --list, and partitions that --verify finds not as planned.
    """
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if row := MOVING.fullmatch(text):
            lists = [part or "" for part in row.groups()[2:]]
            if all(ID_LIST.fullmatch(one) for one in lists):
                replicas, adding, removing = map(_ids, lists)
                yield Checkpoint(
                    "reassign",
                    row[1],
                    int(row[2]),
                    number,
                    replicas=replicas,
                    adding=adding,
                    removing=removing,
                )
            else:
                yield number
        elif row := AT_REST.fullmatch(text):
            yield Checkpoint(
                "reassign", row[1], int(row[2]), number, replicas=_ids(row[3]), adding=(), removing=()
            )
        elif (row := NOT_THERE.fullmatch(text)) and (name := BY_NAME.fullmatch(row[2])):
            yield Checkpoint(
                "reassign", name[1] or name[3], int(name[2] or name[4]), number, replicas=_ids(row[1])
            )
        elif ": replicas: " in text and "adding: " in text:
            yield number


def _of_quorum(lines: Sequence[str]) -> Iterator[Checkpoint | Unread]:
    """Read `LeaderId: 1` and the lines around it; voters are `[1,2,3]`, or objects with an id (since 3.9)."""
    begin: int | None = None
    values: dict[str, str] = {}
    for number, line in enumerate([*lines, ""], 1):
        if row := STATUS.fullmatch(line.strip()):
            begin = begin or number
            values[row[1]] = row[2].strip()
            continue
        if begin is not None and {"LeaderId", "LeaderEpoch"} <= values.keys():
            leader, epoch, mark, lag = (
                _number(values.get(name))
                for name in ("LeaderId", "LeaderEpoch", "HighWatermark", "MaxFollowerLag")
            )
            voters, observers = (
                _quorum_ids(values.get(name)) for name in ("CurrentVoters", "CurrentObservers")
            )
            yield Checkpoint(
                "quorum",
                METADATA_TOPIC,
                0,
                begin,
                leader=leader,
                leader_epoch=epoch,
                replicas=voters,
                high_watermark=mark,
                observers=observers,
                lag=lag,
                cluster_id=values.get("ClusterId"),
            )
        elif begin is not None and len(values) > 1:
            yield begin
        begin, values = None, {}


def _of_replication(lines: Sequence[str]) -> Iterator[Checkpoint | Unread]:
    """Read a table of nodes, the leader first; it has neither epoch nor high watermark."""
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
            yield Checkpoint(
                "quorum",
                METADATA_TOPIC,
                0,
                begin,
                leader=leader,
                replicas=voters,
                observers=observers,
                lag=behind,
            )
        else:
            yield begin


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,19}", text) else None


def _quorum_ids(text: str | None) -> tuple[int, ...] | None:
    return (
        None if text is None else _ids(" ".join(re.findall(r'"id": ?(-?\d+)', text)) if "{" in text else text)
    )


# -- compared with the timelines -----------------------------------------------------------------------------

# a tool asks a broker, which may lag behind the controller; a log line follows its write
NEAR = timedelta(seconds=5)
# column of partition_timeline -> field of a checkpoint; all lists except the replicas are compared as sets
COMPARED = {
    "leader": "leader",
    "isr": "isr",
    "replicas": "replicas",
    "adding_replicas": "adding",
    "removing_replicas": "removing",
    "leader_epoch": "leader_epoch",
    "partition_epoch": "partition_epoch",
}


@dataclass(frozen=True)
class Difference:
    """A checkpoint that contradicts every interval near its moment.

    row: the most similar one; null: the logs have none.
    """

    checkpoint: Checkpoint
    columns: tuple[str, ...]
    row: Row | None


def differs(checkpoint: Checkpoint, row: Row) -> tuple[str, ...]:
    """Return the columns whose values differ; a value that one side does not know counts as equal."""
    found = []
    for column, name in COMPARED.items():
        shown, logged = getattr(checkpoint, name), row[column]
        if shown is None or logged is None:
            continue
        same = (
            tuple(logged) == shown
            if column == "replicas"
            else set(logged) == set(shown)
            if isinstance(shown, tuple)
            else logged == shown
        )
        if not same:
            found.append(column)
    return tuple(found)


def compare(checkpoints: Iterable[Checkpoint], rows: Iterable[Row], at: datetime) -> list[Difference]:
    """Return the checkpoints that the logs contradict. rows: partition_timeline of the last incarnation."""
    by_partition: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        begins = row["valid_from"] is None or row["valid_from"] <= at + NEAR
        if (
            begins
            and (row["valid_to"] is None or row["valid_to"] >= at - NEAR)
            and row["state"] != "NonExistentPartition"
        ):
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
    """A node's line that it leads the quorum in an epoch. begun: its time stamp, null where it has none."""

    epoch: int
    node: int | None
    begun: datetime | None
    record_id: str


def compare_quorum(
    checkpoint: Checkpoint, terms: Iterable[Term], at: datetime
) -> tuple[tuple[str, ...], Term] | None:
    """Return the columns that the logs contradict, and the contradicting term.

    Its epoch has another leader, or has ended.
    An epoch without a line may have had any leader. --replication prints no epoch, so it is not compared.
    """
    if checkpoint.leader_epoch is None:
        return None
    for term in terms:
        if (
            term.epoch == checkpoint.leader_epoch
            and term.node is not None
            and checkpoint.leader not in (term.node, None, -1)
        ):
            return ("leader",), term
        if term.epoch > checkpoint.leader_epoch and term.begun is not None and term.begun < at - NEAR:
            return ("leader_epoch",), term
    return None


def moment_of(text: str, name: str) -> datetime | None:
    """Return the moment of an output; None where it is not known.

    The file's name gives it (describe-20260301T040000Z.txt), or zookeeper-shell's `mtime = Fri Nov 20
    10:24:05 UTC 2026`, its last change.
    """
    if found := NAMED_TIME.search(name):
        form, text_of_time = "%Y%m%d%H%M%S", re.sub(r"\D", "", found[0])
    elif found := ZOOKEEPER_TIME.search(text):
        form, text_of_time = "%b %d %H:%M:%S %Y", f"{found[1]} {found[2]}"
    else:
        return None
    try:
        return datetime.strptime(text_of_time, form).replace(tzinfo=UTC)
    except ValueError:
        return None
