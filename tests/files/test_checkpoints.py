"""Output of Kafka's tools as checkpoints: every form, what is none of them, and what the timelines of
recordings make of real ones.
"""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import truth
from logs import RECORDINGS, events_of_output, moment, recorded, recordings
from test_plans_truth import rows_of
from timelines import facts_of, timelines_of, truth_of

from jobs.config import Cluster
from jobs.errors import UsageError
from jobs.files import checkpoints, ingest
from jobs.landing import tool_outputs

T0 = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)

FORMS = {
    "up to 2.1": (
        "Topic:orders\tPartitionCount:1\tReplicationFactor:2\tConfigs:\n\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\n",
        {"leader": 1, "replicas": (1, 2), "isr": (1, 2), "adding": None},
    ),
    "no leader, old": ("\tTopic: orders\tPartition: 0\tLeader: -1\tReplicas: 1,2\tIsr: 2\n", {"leader": -1, "isr": (2,)}),
    "no leader, 4.x": (
        "\tTopic: orders\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: \tElr: 1\tLastKnownElr: 1\n", {"leader": -1, "isr": ()},
    ),
    "being reassigned": (
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 3,1\tIsr: 1\tAdding Replicas: 3\tRemoving Replicas: 1\n",
        {"replicas": (3, 1), "adding": (3,), "removing": (1,)},
    ),
    "--under-replicated-partitions": ("\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\n", {"isr": (1,)}),
    "zookeeper-shell": (
        'Connecting to localhost:2181\nget /brokers/topics/orders/partitions/0/state\n'
        '{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":7,"isr":[3,1]}\ncZxid = 0x5\ndataVersion = 9\n',
        {"leader": 3, "isr": (3, 1), "leader_epoch": 7, "partition_epoch": 9, "replicas": None},
    ),
    "kafka-metadata-shell": (
        ">> cat /image/topics/byName/orders/0\nPartitionRegistration(replicas=[1, 2], isr=[2], removingReplicas=[], addingReplicas=[], "
        "leader=2, leaderRecoveryState=RECOVERED, leaderEpoch=4, partitionEpoch=6)\n",
        {"leader": 2, "replicas": (1, 2), "isr": (2,), "leader_epoch": 4, "partition_epoch": 6, "adding": ()},
    ),
    "kafka-reassign-partitions": (
        'Current partition replica assignment\n\n{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,1],"log_dirs":["any","any"]}]}\n'
        '\nSave this to use as the --reassignment-json-file option during rollback\n',
        {"replicas": (2, 1), "leader": None, "isr": None, "adding": None},
    ),
    "kafka-metadata-shell, records": (
        '/topics/orders/0/data\n{"partitionId":0,"topicId":"x","replicas":[1,2],"isr":[1],"leader":1,"leaderEpoch":0,"partitionEpoch":3}\n',
        {"leader": 1, "isr": (1,), "partition_epoch": 3},
    ),
}  # fmt: skip
FORMS |= {
    "copied from a terminal": (
        "        Topic: orders   Partition: 0    Leader: 12      Replicas: 12,13,11      Isr: 12,11      Elr:    LastKnownElr:\n",
        {"leader": 12, "replicas": (12, 13, 11), "isr": (12, 11), "adding": None},
    ),
    "copied from a terminal, no leader": (
        "Topic: orders Partition: 0 Leader: none Replicas: 13,11,12 Isr: Elr: 13 LastKnownElr: 11\n", {"leader": -1, "isr": (), "replicas": (13, 11, 12)},
    ),
    "with colours, quoted, CRLF": (
        "> \x1b[32mTopic: orders\x1b[0m  Partition: 0  Leader: 1  Replicas: 1,2  Isr: 1, 2\r\n", {"leader": 1, "isr": (1, 2)},
    ),
    "between prompts": (
        "ann@host:~$ kafka-topics --bootstrap-server b:9092 --describe --topic orders\nTopic: orders\tTopicId: x\tPartitionCount: 1\tReplicationFactor: 2\t"
        "Configs: min.insync.replicas=2\n\tTopic: orders  Partition: 0  Leader: 1  Replicas: 1,2  Isr: 1,2\nann@host:~$ exit\n",
        {"leader": 1, "isr": (1, 2), "replicas": (1, 2)},
    ),
    "wrapped by a mail": (
        "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2  Isr:\n1,2   Elr:\n  LastKnownElr:\n", {"leader": 1, "replicas": (1, 2), "isr": (1, 2)},
    ),
    "without some columns": ("Topic: orders  Partition: 0  Leader: 1\n", {"leader": 1, "replicas": None, "isr": None}),
    "Confluent's": (
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,5\tIsr: 1,2\tOffline: \tObservers: 5\n", {"replicas": (1, 2, 5), "isr": (1, 2)},
    ),
    "kafka-reassign-partitions --list": (
        "Current partition reassignments:\norders-0: replicas: 4,5,1. adding: 4,5. removing: 1.\n",
        {"replicas": (4, 5, 1), "adding": (4, 5), "removing": (1,), "leader": None},
    ),
    "kafka-reassign-partitions --list, only removed": (
        "orders-0: replicas: 4,1. removing: 1.\n", {"replicas": (4, 1), "adding": (), "removing": (1,)},
    ),
    "kafka-reassign-partitions --verify": (
        "Status of partition reassignment:\nThere is no active reassignment of partition orders-0, but replica set is 1,2 rather than 4,5.\n",
        {"replicas": (1, 2), "adding": (), "removing": ()},
    ),
    "kafka-reassign-partitions --verify, up to 2.5": (
        "ERROR: Assigned replicas (1,2) don't match the list of replicas for reassignment (4,5) for partition orders-0\n",
        {"replicas": (1, 2), "adding": None},
    ),
    "zookeeper-shell, a topic": (
        '[zk: localhost:2181(CONNECTED) 0] get /brokers/topics/orders\n{"removing_replicas":{"0":[1]},"partitions":{"0":[4,1]},"topic_id":"x",'
        '"adding_replicas":{"0":[4]},"version":3}\n',
        {"replicas": (4, 1), "adding": (4,), "removing": (1,), "isr": None},
    ),
    "zookeeper-shell, a topic up to 2.3": (
        'get /brokers/topics/orders\n{"version":1,"partitions":{"0":[2,1]}}\ncZxid = 0x5\ndataVersion = 0\n', {"replicas": (2, 1), "adding": None},
    ),
}  # fmt: skip
STATUS = (
    "ClusterId:              fMCL8kv1SWm87L_Md-I2hg\nLeaderId:               3002\nLeaderEpoch:            2\nHighWatermark:          10\n"
    "MaxFollowerLag:         7\nMaxFollowerLagTimeMs:   -1\n"
)
QUORUM_FORMS = {
    "--status": (
        STATUS + "CurrentVoters:          [3000,3001,3002]\nCurrentObservers:       [0,1,2]\n",
        {"leader": 3002, "leader_epoch": 2, "high_watermark": 10, "lag": 7, "replicas": (3000, 3001, 3002), "observers": (0, 1, 2)},
    ),
    "--status since 3.9": (
        STATUS + 'CurrentVoters:          [{"id": 3000, "directoryId": "ILZ5MPTeRWakmJu99uBJCA", "endpoints": ["CONTROLLER://10.1.2.3:9093"]}]\n'
        "CurrentObservers:       []\n",
        {"leader": 3002, "replicas": (3000,), "observers": (), "cluster_id": "fMCL8kv1SWm87L_Md-I2hg"},
    ),
    "--replication": (
        "NodeId\tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t\n"
        "3002  \t17          \t0  \t1663265318938     \t1663265318938        \tLeader  \t\n"
        "3001  \t17          \t0  \t1663265318754     \t1663265318754        \tFollower\t\n"
        "3000  \t10          \t7  \t1663265318754     \t-1                   \tFollower\t\n"
        "0     \t1           \t16 \t1663265318765     \t1663265318765        \tObserver\t\n",
        {"leader": 3002, "leader_epoch": None, "high_watermark": None, "lag": 7, "replicas": (3002, 3001, 3000), "observers": (0,)},
    ),
    "--replication --human-readable since 3.9": (
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t\n"
        "3002  \tILZ5MPTeRWakmJu99uBJCA\t17          \t0  \t5 ms ago          \t5 ms ago             \tLeader  \t\n"
        "0     \tb8WRS-1TQ1yWvR_xm2JFYg\t16          \t1  \t188 ms ago        \t188 ms ago           \tObserver\t\n",
        {"leader": 3002, "lag": 0, "replicas": (3002,), "observers": (0,)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", QUORUM_FORMS)
def test_every_form_of_a_quorum(form):
    text, expected = QUORUM_FORMS[form]
    (found,) = checkpoints.parse(text)
    assert (found.source, found.topic, found.partition) == ("quorum", "__cluster_metadata", 0)
    assert {name: getattr(found, name) for name in expected} == expected
    assert checkpoints.is_output(text)


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form):
    text, expected = FORMS[form]
    (found,) = checkpoints.parse(text)
    assert (found.topic, found.partition) == ("orders", 0)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "{}",
        "[2026-11-20 10:00:00,000] INFO Topic: orders (x)\n",
        "\0" * 1000,
        "Topic: a" + "b" * 2_000_000,
    ],
)
def test_a_text_of_no_tool_is_refused(text):
    with pytest.raises(checkpoints.CheckpointError, match="is no output of"):
        checkpoints.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        f"Topic: orders\tPartition: {'9' * 5000}\tLeader: 1\tReplicas: 1\tIsr: 1\n",
        f"Topic: orders\tPartition: 0\tLeader: 1\tReplicas: {'9' * 5000}\tIsr: 1\n",
        "Topic: orders\tPartition: 0\tLeader: 9999999999\tReplicas: 1\tIsr: 1\n",
        'get /brokers/topics/orders/partitions/0/state\n{"leader":1,"isr":["x",{}]}\n',
        f'get /brokers/topics/orders/partitions/0/state\n{{"leader":{"9" * 5000},"isr":[1]}}\n',
        'Current partition replica assignment\n{"partitions":[{"topic":"orders","partition":"0","replicas":[1]},{"topic":"<b>","partition":0},7]}\n',
        '/topics/orders/0/data\n{"replicas":7,"isr":null,"leader":"1","partitionEpoch":"x"}\n',
    ],
)
def test_numbers_that_kafka_cannot_have_are_no_checkpoint(text):
    assert not checkpoints.is_output(text)


TERMINAL = """\
Topic: billing  TopicId: 3pZ1mJ2wQ7yZ0hVb4nT5xg PartitionCount: 3       ReplicationFactor: 3    Configs: min.insync.replicas=2
        Topic: billing  Partition: 0    Leader: 12      Replicas: 12,13,11      Isr: 12,11      Elr:    LastKnownElr:
        Topic: billing  Partition: 1    Leader: none    Replicas: 13,11,12      Isr:            Elr: 13 LastKnownElr:
        Topic: billing  Partition: 2    Leader: 11      Replicas: 11,12,13      Isr: 11,12,13   Elr:    LastKnownElr:
"""


def test_blanks_of_a_terminal_are_tabs():
    tabs = re.sub(r"^\t?", "", re.sub(r" {2,}|(?<=xg) ", "\t", TERMINAL), flags=re.MULTILINE)
    assert "\tLeader: 12\t" in tabs
    assert checkpoints.read(TERMINAL) == checkpoints.read(tabs)
    # several outputs after one another, and rows that have lost the end of their line
    twice = f"$ kafka-topics --describe\n{TERMINAL}$ kafka-topics --describe --topic other\n{TERMINAL.replace('billing', 'other')}"
    assert [one.topic for one in checkpoints.parse(twice)] == ["billing"] * 3 + ["other"] * 3
    assert [one.partition for one in checkpoints.parse(TERMINAL.replace("\n", " "))] == [0, 1, 2]


@pytest.mark.parametrize(
    "line",
    [
        "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2  Isr: 1,2,",
        "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2..  Isr: 1",
        "Topic: orders  Partition: x  Leader: 1  Replicas: 1,2  Isr: 1",
        "Topic: orders  Partition: 0  Leader: nobody  Replicas: 1,2  Isr: 1",
        "Topic: orders  Partition: 0",
        "Topic: or ders  Partition: 0  Leader: 1  Replicas: 1,2  Isr: 1",
        "Topic: orders  Partition: 0  Leader: 99999999999  Replicas: 1  Isr: 1",
        "get /brokers/topics/orders/partitions/0/state",
        "Current partition replica assignment",
        "orders-0: replicas: 4,5,x. adding: 4. removing: 1.",
        "NodeId  LogEndOffset    Lag     LastFetchTimestamp      LastCaughtUpTimestamp   Status",
        "ClusterId: x\nLeaderId: 3",
    ],
)
def test_a_line_that_looks_like_a_partition_is_named(line):
    output = checkpoints.read(f"{line}\n\nTopic: orders  Partition: 7  Leader: 1  Replicas: 1,2  Isr: 1\n")
    assert output.unread == {1: line.splitlines()[0]}
    assert [one.partition for one in output.partitions] == [7]
    assert checkpoints.is_like_output(line)
    assert not checkpoints.is_output(line)


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (
            "b1:9092 (id: 1 rack: null isFenced: false) -> (\n\tProduce(0): 0 to 9 [usable: 9],\n)\n",
            "kafka-broker-api-versions",
        ),
        ("b1:9092 (id: 1 rack: a) -> (\n\tProduce(0): 0 to 9 [usable: 9]\n)\n", "kafka-broker-api-versions"),
        (
            "Status of partition reassignment:\nReassignment of partition orders-0 is completed.\n",
            "kafka-reassign-partitions --verify",
        ),
        ("No partition reassignments found.\n", "kafka-reassign-partitions --list"),
        (
            "Dumping /data/orders-0/00000000000000000000.log\nLog starting offset: 0\n",
            "kafka-dump-log, of no metadata log",
        ),
        ("Connecting to localhost:2181\n\nWATCHER::\n[1, 2, 3]\n", "zookeeper-shell"),
    ],
)
def test_outputs_without_a_partition_are_recognised(text, tool):
    assert checkpoints.tool_of(text) == tool
    assert checkpoints.read(text) == checkpoints.Output((), {})
    assert checkpoints.is_like_output(text)
    assert not checkpoints.is_output(text)


def test_unread_lines_are_reported(tmp_path, capsys):
    folder = tmp_path / "broker-1"
    folder.mkdir()
    (folder / "server.log").write_text(
        "[2026-11-20 10:00:00,000] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n"
    )
    (folder / "describe.txt").write_text(TERMINAL)
    (folder / "cut-20261120T100000Z.txt").write_text(
        "Topic: orders  Partition: 0  Leader: 1  Replicas: 1,2,\n"
    )
    (folder / "versions.txt").write_text("b1:9092 (id: 1 rack: null) -> (\n)\n")
    files = list(ingest.find(Cluster("c", (str(tmp_path),))))
    assert sorted(file.kind for file in files) == ["checkpoint", "checkpoint", "checkpoint", "log"]
    tool_outputs.among(files)
    said = capsys.readouterr().err
    assert "1 output of tools without a time" in said
    assert (
        "cut-20261120T100000Z.txt, line 1: it looks like a partition and cannot be read: Topic: orders"
        in said
    )
    assert "versions.txt is output of kafka-broker-api-versions, and lists no partition" in said


def test_a_topic_without_partitions_is_a_checkpoint_of_none():
    assert (
        checkpoints.parse(
            "Topic:audit\tPartitionCount:2\tReplicationFactor:3\tConfigs:\tMarkedForDeletion:true\n"
        )
        == []
    )


def interval(begin: float, end: float | None, **values):
    moments = {
        "valid_from": T0 + timedelta(seconds=begin),
        "valid_to": None if end is None else T0 + timedelta(seconds=end),
    }
    row = {
        "topic": "orders", "partition": 0, "leader": 1, "isr": [1, 2], "replicas": [1, 2], "adding_replicas": [], "removing_replicas": [],
        "leader_epoch": 3, "partition_epoch": 5, "state": "OnlinePartition",
    }  # fmt: skip
    return row | moments | values


def test_checkpoints_are_compared_with_intervals():
    (checkpoint,) = checkpoints.parse("\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 2,1\n")
    at = T0 + timedelta(seconds=100)
    assert checkpoints.compare([checkpoint], [interval(0, None)], at) == []
    assert checkpoints.compare([checkpoint], [interval(0, None, isr=None)], at) == []
    # true until a moment ago: a tool asks a broker that may be behind
    assert checkpoints.compare([checkpoint], [interval(0, 97), interval(97, None, leader=2)], at) == []
    (found,) = checkpoints.compare([checkpoint], [interval(0, 50), interval(50, None, leader=2, isr=[2])], at)
    assert found.columns == ("leader", "isr")
    (found,) = checkpoints.compare([checkpoint], [], at)
    assert found.row is None
    (found,) = checkpoints.compare([checkpoint], [interval(0, None, replicas=[2, 1])], at)
    assert found.columns == ("replicas",)


def test_a_quorum_is_compared_with_the_terms_of_controllers():
    (checkpoint,) = checkpoints.parse(QUORUM_FORMS["--status"][0])
    at = T0 + timedelta(seconds=100)

    def term(epoch: int, node: int, begun: float | None) -> checkpoints.Term:
        return checkpoints.Term(
            epoch, node, None if begun is None else T0 + timedelta(seconds=begun), f"{epoch}"
        )

    agrees = [
        [],
        [term(2, 3002, 5)],
        [term(1, 3001, 5)],
        [term(2, 3002, 5), term(3, 3001, 97)],
        [term(3, 3001, None)],
    ]
    assert [checkpoints.compare_quorum(checkpoint, terms, at) for terms in agrees] == [None] * 5
    other, later = term(2, 3001, 5), term(3, 3002, 50)
    assert checkpoints.compare_quorum(checkpoint, [other], at) == (("leader",), other)
    assert checkpoints.compare_quorum(checkpoint, [term(2, 3002, 5), later], at) == (("leader_epoch",), later)
    # --replication tells no epoch
    (checkpoint,) = checkpoints.parse(QUORUM_FORMS["--replication"][0])
    assert checkpoints.compare_quorum(checkpoint, [other, later], at) is None


@pytest.mark.shared
@pytest.mark.parametrize(
    "status", sorted(RECORDINGS.glob("*/*/*/quorum-status.txt")), ids=lambda path: "/".join(path.parts[-4:-1])
)
def test_quorum_outputs_of_recordings_agree(status: Path) -> None:
    terms = tool_outputs.quorum_terms(facts_of(recorded(status.parent)))
    checked = 0
    for block in re.split(r"^# ", status.read_text(), flags=re.MULTILINE)[1:]:
        at, _, text = block.partition("\n")
        (checkpoint,) = checkpoints.parse(text)
        for some in terms.values():
            known = [one for one in some if one.epoch == checkpoint.leader_epoch]
            if len(terms) == 1:
                assert checkpoints.compare_quorum(checkpoint, some, truth.moment_of(at)) is None
                checked += len(known)
                wrong = dataclasses.replace(checkpoint, leader=(checkpoint.leader or 0) + 1)
                assert bool(checkpoints.compare_quorum(wrong, some, truth.moment_of(at))) == bool(known)
    assert checked or len(terms) > 1


def test_the_time_of_an_output():
    at = datetime(2026, 11, 20, 10, 24, 5, tzinfo=UTC)
    assert checkpoints.moment_of("x\nmtime = Fri Nov 20 10:24:05 UTC 2026\n", "state.txt") == at
    assert checkpoints.moment_of("x", "describe-20261120T102405Z.txt") == at
    assert checkpoints.moment_of("x", "2026-11-20T10-24-05Z-describe") == at
    assert checkpoints.moment_of("x", "describe-20261120.txt") is None
    assert checkpoints.moment_of("x", "describe-20269999T102405Z.txt") is None


def test_given_outputs_that_are_refused(tmp_path):
    good = "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 2,1\n"
    (tmp_path / "a.txt").write_text(good)
    (tmp_path / "b.txt").write_text("hello")
    for name, at, clusters, said in [
        ("a.txt", T0, ["one", "two"], "is of one of 2 clusters"),
        ("a.txt", None, ["one"], "has no time"),
        ("b.txt", T0, ["one"], "is no output of"),
        ("none.txt", T0, ["one"], "No such file"),
        ("", T0, ["one"], "Is a directory"),
    ]:
        with pytest.raises(UsageError, match=said):
            tool_outputs.given([tmp_path / name], at, clusters)
    (output,) = tool_outputs.given([tmp_path / "a.txt"], T0, ["one"])
    assert (output.at, output.topics, output.is_given) == (T0, {"orders"}, True)


def test_outputs_among_the_logs_need_a_time(tmp_path):
    good = "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 2,1\n"
    for name in ("describe-20261120T100000Z.txt", "describe.txt"):
        (tmp_path / name).write_text(good)
    (tmp_path / "notes-20261120T100000Z.txt").write_text("Partition: none")
    (output,) = tool_outputs.among(ingest.find(Cluster("one", (str(tmp_path),))))
    assert (output.path.name, output.cluster, output.at) == ("describe-20261120T100000Z.txt", "one", T0)


def outputs(recording: Path) -> list[tuple[Path, datetime, datetime]]:
    """Return (output, begin and end of the tool's run) of the outputs about partitions of a recording."""
    steps = [json.loads(line) for line in (recording / "steps.jsonl").read_text().splitlines()]
    spans = [
        tuple(truth.moment_of(one.get("ts") or one["time"]) for one in pair)
        for pair in zip(steps, [*steps[1:], steps[-1]], strict=True)
    ]
    described, moved = [], []
    for step, span in zip(steps, spans, strict=True):
        args, main = step.get("args", []), step.get("main", "")
        if step.get("action") == "describe" or ("TopicCommand" in main and "--describe" in args):
            described.append((step.get("file"), *span))
        elif step.get("action") == "reassign --execute":
            moved.append((f"{Path(step['file']).stem}-execute.txt", *span))
        elif (
            step.get("step") == "tool"
            and "ReassignPartitionsCommand" in main
            and {"--generate", "--execute"} & set(args)
        ):
            moved.append((None, *span))
    files = sorted(
        recording.glob("*-*"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)[:1]]
    )
    outputs = [
        *_of(recording, described, [file for file in files if re.fullmatch(r"describe-.*\.txt", file.name)]),
        *_of(
            recording,
            moved,
            [file for file in files if re.fullmatch(r"reassign-\d+-.*(generate|execute)\.out", file.name)],
        ),
    ]
    return [
        one for one in outputs if "existing assignment running" not in one[0].read_text()
    ]  # refused up to 2.5


def _of(recording: Path, runs: list, files: list[Path]) -> list[tuple[Path, datetime, datetime]]:
    """The files that the runs name, or else one after the other, where there are as many."""
    if any(name for name, _, _ in runs):
        return [(recording / name, begin, end) for name, begin, end in runs if (recording / name).is_file()]
    return (
        [(file, begin, end) for file, (_, begin, end) in zip(files, runs, strict=True)]
        if len(files) == len(runs)
        else []
    )


# partitions of which tool and timelines differ, by output, each checked against the truth of its recording
DIFFER = {
    # the logs are late: a topic that waits for its deletion lost its leader 22 s before a line says so
    "0.11.0.3-default/delete-topic-dead-broker/describe-03-deletion-stuck.txt": {("audit", 0)},
    # the tool mixes two answers: old replicas beside the adding and removing ones of a reassignment that had
    # just begun
    "4.0.0-default/controller-failover/describe-03-reassigning.txt": {("orders", 0), ("orders", 1)},
    # the tool asked a broker that was nine seconds behind: the ISR had grown twice since
    "2.5.1-default/controller-failover/describe-11-end.txt": {("ledger", 0)},
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize(
    "recording", [r for r in recordings() if r.name != "cluster-wipe"], ids=lambda r: "/".join(r.parts[-3:])
)
def test_outputs_of_recordings_agree(recording: Path) -> None:
    rows = [row for some in rows_of(recording).values() for row in some]
    for file, begin, end in outputs(recording):
        partitions = checkpoints.parse(file.read_text())
        moments = [begin + (end - begin) * number / 8 for number in range(9)]
        at_each = [
            {
                (d.checkpoint.topic, d.checkpoint.partition): d.columns
                for d in checkpoints.compare(partitions, rows, at)
            }
            for at in moments
        ]
        # a tool asks partition by partition: each agrees at some moment of its run
        always = set.intersection(*(set(found) for found in at_each))
        known = DIFFER.get("/".join(file.parts[-3:]), set())
        assert always == known, (file.name, {key: at_each[-1][key] for key in always})


# their lines have the time of another zone, hours after the outputs: what is older than the logs begins
# nothing
ELSEWHERE = {"kraft/3.7.2-default/reassign", "kraft/4.0.0-default/controller-failover"}


@pytest.mark.shared
@pytest.mark.parametrize(
    "recording", [r for r in recordings() if r.name != "cluster-wipe"], ids=lambda r: "/".join(r.parts[-3:])
)
def test_timelines_begin_at_outputs_of_recordings(recording: Path) -> None:
    """The logs are silent about every partition until a tool was asked: each row that begins there is true,
    the others stay as they are.
    """
    events = recorded(recording)
    begun = 0
    for file, _, end in outputs(recording):
        of_output = events_of_output(str(file), file.read_text(), end)
        names = {(e.topic, e.partition) for e in of_output}
        later = [e for e in events if (e.topic, e.partition) not in names or moment(e.ts) > end]
        both, of_logs = timelines_of([*later, *of_output]).rows(), timelines_of(later).rows()
        of_tool = [row for row in both if row["source"] == of_output[0].logger] if of_output else []
        verdict = truth.compare_with(truth_of(recording), of_tool)
        assert not verdict.problems, truth.details(verdict)
        begun += len(of_tool)
        of_partition = {(row["topic"], row["partition"]): row for row in of_logs if row["step"] == 1}
        for row in of_tool:
            first = of_partition.get((row["topic"], row["partition"]))
            assert (row["topic"], row["partition"]) in names
            assert first is None or first["valid_from"] > row["valid_from"]
        others = [row for row in both if row not in of_tool]
        # what ends where its topic is deleted has one row more
        gone = [row for row in others if row["state"] == "NonExistentPartition"]
        assert [plain(row) for row in others if row not in gone] == [
            plain(row) for row in of_logs if row["state"] != "NonExistentPartition"
        ]
    assert bool(begun) == (bool(outputs(recording)) and "/".join(recording.parts[-3:]) not in ELSEWHERE)


def plain(row: dict) -> dict:
    """Without what a row before it changes."""
    return {name: value for name, value in row.items() if name not in ("step", "settled")}


def test_data_that_names_the_path_of_a_partition_is_no_output() -> None:
    """A file of another program may name the znode of a partition.

    Only a line that ends with it is a command of zookeeper-shell.
    """
    path = "/brokers/topics/orders/partitions/3/state"
    assert not checkpoints.is_like_output(
        f'{{"op": "setData", "path": "{path}", "value": {{"leader": 1}}}}\n'
    )
    assert not checkpoints.is_like_output(f"watching {path} for changes\n")
    assert checkpoints.is_like_output(f"get -s {path}\n<html>\n")
