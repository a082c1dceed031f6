"""Faults that are inserted into recorded logs, as functions on text; `faults_found` audits them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

SAMPLES = Path(__file__).parents[1] / "sample_logs"
HEAD = re.compile(r"(?=^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\])", re.MULTILINE)
STAMP = "%Y-%m-%d %H:%M:%S,%f"

# (folder of a node, file name) -> its records, in order
Logs = dict[tuple[str, str], list[str]]
Fault = Callable[[Logs], Logs]


def read(folder: Path) -> Logs:
    """The logs of a recording."""
    return {
        (path.parent.name, path.name): [record for record in HEAD.split(path.read_text("utf-8")) if record]
        for path in sorted(folder.glob("*/*.log*"))
    }


def write(logs: Logs, folder: Path) -> None:
    """Write the logs to a folder that can be audited."""
    for (node, name), records in logs.items():
        (folder / node).mkdir(parents=True, exist_ok=True)
        (folder / node / name).write_text("".join(records), "utf-8")


def moment(record: str) -> datetime:
    """Its time stamp."""
    return datetime.strptime(record[1:24], STAMP)


def stamped(record: str, at: datetime) -> str:
    """The record with another time stamp."""
    return f"[{at.strftime(STAMP)[:-3]}{record[24:]}"


def _each(change: Callable[[str, str], Iterable[str]]) -> Fault:
    """Return the fault that replaces every record by those that `change` returns for (node, record)."""
    return lambda logs: {
        key: [new for record in records for new in change(key[0], record)] for key, records in logs.items()
    }


def without(pattern: str, node: str = "") -> Fault:
    """Records that match the pattern are missing, in one node's files or in all."""
    return _each(
        lambda where, record: [] if (not node or where == node) and re.search(pattern, record) else [record]
    )


def altered(pattern: str, old: str, new: str, node: str = "") -> Fault:
    """Records that match the pattern have another text, in one node's files or in all."""
    return _each(lambda where, record: [re.sub(old, new, record) if (not node or where == node) and re.search(pattern, record) else record])  # fmt: skip


def doubled(milliseconds: int = 0) -> Fault:
    """Every record is there twice, as from two appenders of one file.

    The second is later by some milliseconds.
    """
    later = timedelta(milliseconds=milliseconds)
    return _each(
        lambda _, record: (
            [record, stamped(record, moment(record) + later)] if record.startswith("[2") else [record]
        )
    )


def shifted(node: str, seconds: float) -> Fault:
    """One node's clock is wrong."""
    return _each(lambda where, record: [stamped(record, moment(record) + timedelta(seconds=seconds)) if where == node and record.startswith("[2") else record])  # fmt: skip


def without_node(node: str) -> Fault:
    """Its files were not collected."""
    return lambda logs: {key: records for key, records in logs.items() if key[0] != node}


def between(begin: str, end: str, node: str = "") -> Fault:
    """The records between two times of day (HH:MM:SS) are missing."""
    return _each(
        lambda where, record: [] if (not node or where == node) and begin <= record[12:20] < end else [record]
    )


def later(begin: str, seconds: float) -> Fault:
    """From a time of day on, every record is later by some seconds."""
    return _each(lambda _, record: [stamped(record, moment(record) + timedelta(seconds=seconds)) if record.startswith("[2") and record[12:20] >= begin else record])  # fmt: skip


def until(end: str) -> Fault:
    """The records after a time of day are missing."""
    return _each(lambda _, record: [record] if record[12:20] < end else [])


def truncated(share: float) -> Fault:
    """Each file ends too early, in the middle of a record."""

    def cut(records: list[str]) -> list[str]:
        text = "".join(records)
        return [text[: int(len(text) * share)]]

    return lambda logs: {key: cut(records) for key, records in logs.items()}


def swapped(pattern: str) -> Fault:
    """A record that matches the pattern and the one before it have swapped places and times."""

    def exchange(records: list[str]) -> list[str]:
        found = list(records)
        for place in range(1, len(found)):
            before, this = found[place - 1], found[place]
            if re.search(pattern, this) and before.startswith("[2"):
                found[place - 1], found[place] = stamped(this, moment(before)), stamped(before, moment(this))
        return found

    return lambda logs: {key: exchange(records) for key, records in logs.items()}


def added(node: str, name: str, *lines: str, date: str = "2026-11-20") -> Fault:
    """The node's file has additional lines `HH:MM:SS LEVEL text (logger)`."""

    def more(logs: Logs) -> Logs:
        records = [f"[{date} {line[:8]},000]{line[8:]}\n" for line in lines]
        found = dict(logs)
        found[node, name] = sorted([*found.get((node, name), []), *records], key=lambda record: record[1:24])
        return found

    return more


def faulty(logs: Logs, faults: Iterable[Fault]) -> Logs:
    """The logs after all of the faults."""
    for fault in faults:
        logs = fault(logs)
    return logs


# -- cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A recording with faults.

    detects: checks that must report it. may: further checks whose report is right.
    """

    name: str
    recording: str
    faults: tuple[Fault, ...]
    detects: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()


TRACE, RESTART = "3.3.2-trace/delete-topic-dead-broker", "3.9.1-default/controlled-shutdown"
KRAFT, MOVE = "3.9.1-kraft/controller-failover", "3.3.2-trace/cancel-reassignment"
STOP = r"SIGTERM|[Ss]hutting down|[Ss]hut down|controlled shutdown|[Ss]hutdown"
DOWN = frozenset({"broker_down", "last_in_sync_replica", "cluster_down", "partition_leaderless"})
CONSEQUENCES = frozenset({"history_broken", "log_gap", "blind_spot", "topic_deletion_blocked"})
# up to this time RESTART is a running cluster, whose controller checks the leaders now and then
RUNNING = until("10:44:40")
CONTROLLER, STATE = "(kafka.controller.KafkaController)", "(state.change.logger)"


def controller_logs(at: str) -> Fault:
    """The controller of RESTART writes a line at a time of day."""
    return added(
        "broker-1",
        "controller.log",
        f"{at} INFO [Controller id=1] Processing automatic preferred replica leader election {CONTROLLER}",
    )


def isr_updated(at: str, isr: str, epoch: int) -> Fault:
    """The controller of RESTART logs an ISR of invoices-1."""
    state = f"LeaderAndIsr(leader=3, leaderEpoch=1, isr=List({isr}), leaderRecoveryState=RECOVERED, partitionEpoch={epoch})"
    return added(
        "broker-1",
        "controller.log",
        f"{at} DEBUG [Controller id=1] ISR for partition invoices-1 updated to {state} {CONTROLLER}",
    )


FAULTS = (
    Case("controller's state changes removed", TRACE, (without(r"from OnlineReplica to OfflineReplica"),), frozenset({"history_broken"}), CONSEQUENCES),
    Case("illegal state change of a replica", TRACE, (altered(r"from OfflineReplica to ReplicaDeletionStarted", "from OfflineReplica", "from NewReplica"),),
         frozenset({"illegal_replica_transition"}), frozenset({"history_broken"})),
    Case("illegal state change of a partition", TRACE, (altered(r"from OnlinePartition to OfflinePartition", "to OfflinePartition", "to NonExistentPartition"),),
         frozenset({"illegal_partition_transition"}), frozenset({"history_broken", "illegal_replica_transition"})),
    Case("two state changes swapped", TRACE, (swapped(r"from ReplicaDeletionStarted to ReplicaDeletionSuccessful"),), frozenset(),
         frozenset({"history_broken"})),
    Case("completion of a deletion lost", TRACE, (without(r"Deletion of topic audit successfully completed"),), frozenset({"topic_deletion_blocked"}), CONSEQUENCES),
    Case("forged zombie controller", RESTART, (added("broker-3", "controller.log",
         "10:44:25 INFO [Controller id=3] 3 successfully elected as the controller. Epoch incremented to 2 and epoch zk version is now 2 (kafka.controller.KafkaController)"),),
         frozenset({"stale_controller"}), frozenset({"no_controller"})),
    Case("broker killed: its shutdown lines removed", RESTART, (without(STOP, "broker-2"), without(r"Shutting down broker 2|shutting down brokers")),
         frozenset({"broker_down"}), DOWN),
    Case("clock of a node 3 s fast", RESTART, (shifted("broker-3", 3),), frozenset({"clock_skew"}), DOWN),
    Case("clock of a node 3 min slow", RESTART, (shifted("broker-3", -180),), frozenset({"clock_skew"}), DOWN | {"no_controller"}),
    Case("clock of a node 3 h fast", RESTART, (shifted("broker-3", 10800),), frozenset({"clock_skew"}), DOWN | {"no_controller", "log_gap", "leader_imbalance"}),
    Case("file of one node missing", RESTART, (without_node("broker-3"),), frozenset(), frozenset({"blind_spot"})),
    Case("half a minute missing", TRACE, (between("10:09:20", "10:09:50"),), frozenset({"history_broken"}), CONSEQUENCES | DOWN),
    Case("half a minute missing, and an hour without a line", TRACE, (between("10:09:20", "10:09:50"), later("10:09:50", 3600)),
         frozenset({"history_broken"}), CONSEQUENCES | DOWN),
    Case("cluster id of one node differs", RESTART, (altered("Cluster ID = ", "lO9EV4iCRcaBmvRwS0suYA", "2BpEl7SLRd6YVYsRJF4FQQ", "broker-3"),),
         frozenset({"clusters_mixed"}), CONSEQUENCES | DOWN | {"no_controller", "stale_controller"}),
    Case("a reworded statement", RESTART, (altered("Changed partition .* with state", " with state ", " having state "),),
         frozenset({"format_drift"}), CONSEQUENCES),
    Case("broker that was shut down does not return", RESTART, (until("10:44:05"), added("broker-1", "controller.log",
         "11:44:30 INFO [Controller id=1] Processing automatic preferred replica leader election (kafka.controller.KafkaController)")),
         frozenset({"broker_down"}), DOWN | {"broker_not_serving", "replica_stuck"}),
    Case("end of a reassignment lost, KRaft", KRAFT, (until("10:13:30"), added("node-101", "controller.log",
         "12:20:00 INFO [QuorumController id=101] maybeBalancePartitionLeaders: generated 0 records in 928 microseconds. (org.apache.kafka.controller.QuorumController)")),
         frozenset({"reassignment_stalled"}), CONSEQUENCES),
    Case("end of a reassignment lost, ZooKeeper", MOVE, (until("10:20:30"), added("broker-4", "controller.log",
         "12:20:00 INFO [Controller id=4] Processing automatic preferred replica leader election (kafka.controller.KafkaController)")),
         frozenset({"reassignment_stalled"}), CONSEQUENCES | DOWN | {"replica_stuck"}),
    Case("broker does not answer a request", TRACE, (until("10:10:09"), without(r"keep-0|'keep'", "broker-2"), added("broker-2", "state-change.log",
         "10:09:13 TRACE [Broker id=2] Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='keep', partitionIndex=0, controllerEpoch=1, leader=2, "
         "leaderEpoch=0, isr=[2, 3, 1], partitionEpoch=0, replicas=[2, 3, 1], addingReplicas=[], removingReplicas=[], isNew=true, leaderRecoveryState=0) "
         "correlation id 4 from controller 1 epoch 1 (state.change.logger)",
         "10:09:14 TRACE [Broker id=2] Handling LeaderAndIsr request correlationId 4 from controller 1 epoch 1 starting the become-leader transition for "
         "partition keep-0 (state.change.logger)",
         "10:10:19 TRACE [Broker id=2] Completed LeaderAndIsr request correlationId 19 from controller 1 epoch 1 for the become-leader transition for partition "
         "other-0 (state.change.logger)")),
         frozenset({"request_unanswered"}), CONSEQUENCES),
    Case("every record twice", TRACE, (doubled(),)),
    Case("every record again, 1 ms later", TRACE, (doubled(1),)),
    Case("files cut off at 70 %", RESTART, (truncated(0.7),), frozenset(), DOWN),
    Case("unclean election forged", RESTART, (added("broker-1", "state-change.log",
         "10:44:30 INFO [Controller id=1 epoch=1] Changed partition invoices-1 from OfflinePartition to OnlinePartition with state "
         "LeaderAndIsr(leader=2, leaderEpoch=2, isr=List(2), leaderRecoveryState=RECOVERING, partitionEpoch=3) (state.change.logger)"),),
         frozenset({"unclean_election"}), frozenset({"last_in_sync_replica", "history_broken"})),
    Case("a leader's version of the znode is stale for minutes", RESTART, (RUNNING, added("broker-3", "server.log", *(f"10:4{5 + n}:00 "
         "INFO [Partition invoices-1 broker=3] Cached zkVersion [1] not equal to that in zookeeper, skip updating ISR (kafka.cluster.Partition)" for n in range(5)))),
         frozenset({"stale_partition_epoch"})),
    Case("heartbeats with an old broker epoch", KRAFT, (until("10:13:05"), added("node-102", "controller.log", *(f"10:1{3 + n}:10 "
         "INFO [QuorumController id=102] processBrokerHeartbeat: event failed with StaleBrokerEpochException in 117 microseconds. Exception message: "
         "Expected broker epoch 19, but got broker epoch 5 (org.apache.kafka.controller.QuorumController)" for n in range(4)))),
         frozenset({"broker_epoch_stale"}), CONSEQUENCES),
    Case("a follower leaves the ISR five times", RESTART, (RUNNING, *(isr_updated(f"10:{46 + n}:00", "3, 4, 2" if n % 2 else "3, 4", 3 + n) for n in range(10))),
         frozenset({"isr_flapping"})),
    Case("a follower does not return to the ISR", RESTART, (RUNNING, isr_updated("10:44:41", "3, 4", 3), controller_logs("11:30:00")),
         frozenset({"under_replicated"})),
    Case("two followers leave the ISR", RESTART, (RUNNING, isr_updated("10:44:41", "3", 3), controller_logs("11:30:00")),
         frozenset({"last_in_sync_replica"}), frozenset({"under_replicated"})),
    Case("two followers leave the ISR, min ISR is two", RESTART, (RUNNING, isr_updated("10:44:41", "3", 3), controller_logs("11:30:00"), added("broker-3", "server.log",
         "10:43:23 INFO Created log for partition invoices-1 in /var/lib/kafka/invoices-1 with properties {min.insync.replicas=2} (kafka.log.LogManager)")),
         frozenset({"below_min_isr"}), frozenset({"under_replicated", "last_in_sync_replica"})),
    Case("controllers elected one after another", RESTART, (RUNNING, *(added(f"broker-{3 + n % 2}", "controller.log",
         f"10:{45 + 2 * n}:00 INFO [Controller id={3 + n % 2}] {3 + n % 2} successfully elected as the controller. Epoch incremented to {2 + n} and epoch zk version "
         f"is now {2 + n} {CONTROLLER}") for n in range(6))), frozenset({"controller_churn"}), frozenset({"no_controller", "stale_controller"})),
    Case("controller resigns, nobody follows", RESTART, (RUNNING, added("broker-1", "controller.log", f"10:44:41 INFO [Controller id=1] Resigned {CONTROLLER}"),
         added("broker-3", "server.log",
         "10:50:00 INFO [Partition invoices-1 broker=3] Log loaded for partition invoices-1 with initial high watermark 5 (kafka.cluster.Partition)")),
         frozenset({"no_controller"})),
    Case("elections of the quorum fail", KRAFT, (until("10:13:05"), *(added("node-103", "server.log",
         f"10:{14 + n // 6}:{n % 6}0 INFO [RaftManager id=103] Completed transition to CandidateState(localId=103, epoch={10 + n}, retries=1, voteStates={{101=UNRECORDED, "
         f"102=UNRECORDED, 103=GRANTED}}, highWatermark=Optional.empty, electionTimeoutMs=1250) from CandidateState(localId=103, epoch={9 + n}, retries=1, "
         "voteStates={101=UNRECORDED, 102=UNRECORDED, 103=GRANTED}, highWatermark=Optional.empty, electionTimeoutMs=1250) (org.apache.kafka.raft.QuorumState)") for n in range(40))),
         frozenset({"quorum_unstable"}), CONSEQUENCES | {"no_controller", "quorum_without_leader"}),
    Case("a broker knows a topic by another id", RESTART, (RUNNING, added("broker-3", "state-change.log",
         f"10:44:41 ERROR [Broker id=3] Topic ID in memory: vA26Q0eURsWxcO60iDY2-g does not match the topic ID for partition invoices-1 received: 78bPTFfSTlmyj05SGb2aYA. {STATE}")),
         frozenset({"topic_id_mismatch"})),
    Case("a replica is not deleted", RESTART, (RUNNING, added("broker-1", "state-change.log",
         "10:44:41 INFO [Broker id=1] Ignoring StopReplica request (delete=true) from controller 1 with correlation id 20 epoch 1 for partition invoices-0 since its associated "
         f"leader epoch 2 matches the current leader epoch {STATE}")), frozenset({"stray_replica"})),
    Case("a broker's session ends four times", RESTART, (RUNNING, *(added("broker-1", "controller.log",
         f"10:{46 + 3 * n}:00 INFO [Controller id=1] Broker failure callback for 4 {CONTROLLER}",
         f"10:{47 + 3 * n}:00 INFO [Controller id=1] New broker startup callback for 4 {CONTROLLER}") for n in range(4))),
         frozenset({"broker_flapping"}), DOWN),
    Case("a broker's registrations fail", RESTART, (until("10:44:07"), without("Registered broker 2 at path.*epoch.: 1|callback for 2"), added("broker-2", "server.log",
         "10:44:08 ERROR Error while creating ephemeral at /brokers/ids/2, node already exists and owner '117648286857560069' does not match current session "
         "'117648286857560075' (kafka.zk.KafkaZkClient$CheckedEphemeral)"), controller_logs("11:10:00")),
         frozenset({"broker_not_serving", "registration_refused"}), DOWN | {"replica_stuck", "under_replicated"}),
    Case("leader epoch rises again and again", RESTART, (RUNNING, *(added("broker-1", "state-change.log",
         f"10:{46 + n // 6}:{n % 6}0 INFO [Controller id=1 epoch=1] Changed partition invoices-1 from OnlinePartition to OnlinePartition with state LeaderAndIsr(leader=3, "
         f"leaderEpoch={2 + n}, isr=List(3, 4, 2), leaderRecoveryState=RECOVERED, partitionEpoch={3 + n}) {STATE}") for n in range(24))),
         frozenset({"leader_epoch_churn"})),
    Case("a reassignment is refused", RESTART, (RUNNING, added("broker-1", "controller.log",
         "10:44:41 WARN [Controller id=1] Failed reassignment through zk with the following errors: Map(invoices-7 -> ApiError(error=UNKNOWN_TOPIC_OR_PARTITION, "
         f"message=The partition does not exist.)) {CONTROLLER}")), frozenset({"reassignment_not_started"})),
    Case("a controller refuses its own change of state", RESTART, (RUNNING, added("broker-1", "state-change.log",
         "10:44:41 ERROR [Controller id=1 epoch=1] Controller 1 epoch 1 initiated state change of replica 2 for partition invoices-1 from OnlineReplica to "
         f"ReplicaDeletionSuccessful failed {STATE}\njava.lang.IllegalStateException: Replica [Topic=invoices,Partition=1,Replica=2] should be in the "
         "ReplicaDeletionStarted states before moving to ReplicaDeletionSuccessful state. Instead it is in OnlineReplica state")), frozenset({"rejected_transition"})),
    Case("leaders do not return to the first replica", RESTART, (until("10:44:15"), controller_logs("11:58:00")), frozenset({"leader_imbalance"}), DOWN),
    Case("a live node writes nothing for hours", RESTART, (RUNNING, *(controller_logs(f"{11 + n // 12}:{n % 12 * 5:02d}:00") for n in range(30)), added("broker-1", "controller.log",
         *(f"{at} INFO [RequestSendThread controllerId=1] Controller 1 connected to 127.0.0.1:20603 (id: 3 rack: null) for sending state change requests "
           "(kafka.controller.RequestSendThread)" for at in ("11:30:01", "12:25:01"))), added("broker-3", "server.log",
         "13:30:00 INFO [Partition invoices-1 broker=3] Log loaded for partition invoices-1 with initial high watermark 5 (kafka.cluster.Partition)")),
         frozenset({"log_gap"})),
    Case("a partition has no leader although its brokers are alive", RESTART, (RUNNING, controller_logs("11:30:00"), added("broker-1", "state-change.log",
         "10:44:41 INFO [Controller id=1 epoch=1] Partition invoices-1 state changed to (Leader:-1,ISR:3,LeaderRecoveryState:RECOVERED,LeaderEpoch:2,ZkVersion:3,"
         f"ControllerEpoch:1) after removing replica 3 from the ISR as part of transition to OfflineReplica {STATE}")),
         frozenset({"partition_leaderless"}), frozenset({"under_replicated", "last_in_sync_replica"})),
    Case("a replica is stuck in its state", TRACE, (until("10:10:09"), added("broker-1", "state-change.log",
         f"10:09:30 TRACE [Controller id=1 epoch=1] Changed state of replica 3 for partition keep-9 from NonExistentReplica to NewReplica {STATE}"),
         added("broker-1", "controller.log", f"10:39:00 INFO [Controller id=1] Processing automatic preferred replica leader election {CONTROLLER}")),
         frozenset({"replica_stuck"}), CONSEQUENCES | DOWN),
    Case("all brokers are killed", RESTART, (RUNNING, added("broker-1", "controller.log",
         *(f"10:44:4{n} INFO [Controller id=1] Broker failure callback for {n} {CONTROLLER}" for n in (2, 3, 4))),
         added("broker-1", "server.log", "11:50:00 INFO starting (kafka.server.KafkaServer)")),
         frozenset({"cluster_down"}), DOWN | {"broker_not_serving", "under_replicated"}),
    Case("a leader is killed with records that no other replica has", RESTART, (without(STOP, "broker-2"), without(r"Shutting down broker 2|shutting down brokers"),
         altered(r"Completed load of .*topic=invoices, partition=0", r"logEndOffset=10\)", "logEndOffset=15)", "broker-2"), added("broker-2", "server.log",
         "10:44:08 INFO [UnifiedLog partition=invoices-0, dir=/var/lib/kafka] Truncating to offset 10 (kafka.log.UnifiedLog)")),
         frozenset({"data_at_risk", "broker_down"}), DOWN),
)  # fmt: skip
