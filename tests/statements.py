"""Render every statement of the catalogues in shared/kafka with values.

Find the rule that matches it and the columns of its values.

python tests/statements.py [FAMILY]    prints a table; with a part of a name also its renderings
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from parsers.events import Parser

KAFKA = Path(__file__).parents[2] / "shared" / "kafka"
PARSER = Parser()
Version = tuple[int, ...]
NEWEST: Version = (99,)
SLOT = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")
UUID = "vA26Q0eURsWxcO60iDY2-g"


@dataclass(frozen=True)
class Statement:
    """One entry of a catalogue. slots: placeholder -> type. versions: first and last that print it."""

    catalogue: str
    id: str
    family: str
    logger: str
    level: str
    prefix: str
    template: str
    slots: dict[str, str] = field(hash=False)
    versions: tuple[Version, Version] = ((0,), NEWEST)


@dataclass(frozen=True)
class Rendering:
    """A statement as one version prints it. values: placeholder -> values that must be in some column."""

    statement: Statement
    version: Version
    line: str
    values: dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Reading:
    """How the parser reads a rendering.

    rules: that match it. lost: placeholders whose values are in no column.
    """

    rendering: Rendering
    rules: tuple[str, ...]
    drifted: bool
    lost: tuple[str, ...]


def version(text: str) -> Version:
    """Return `2.4.0` as (2, 4, 0); the newest version if the text names none."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else NEWEST


def statements(least_relevance: int = 2) -> list[Statement]:
    """Return the statements in scope: all of the controllers, and the relevant ones of brokers (with 1: all
    that they print).
    """
    found = []
    entries = [("zk", entry) for entry in json.loads((KAFKA / "statements_zk.json").read_text("utf-8"))]
    broker = json.loads((KAFKA / "statements_broker.json").read_text("utf-8"))["statements"]
    entries += [("broker", entry) for entry in broker if entry["relevance"] >= least_relevance]
    for catalogue, entry in entries:
        span = version(entry["versions"]["first"]), version(entry["versions"]["last"])
        slots = {name.removeprefix("prefix."): slot["type"] for name, slot in entry["placeholders"].items()}
        found.append(
            Statement(
                catalogue,
                entry["id"],
                entry["family"],
                entry["logger"],
                entry["level"],
                entry["prefix"],
                entry["template"],
                slots,
                span,
            )
        )
    return found


class Values:
    """Numbers and names that are unique."""

    def __init__(self) -> None:
        self._next = 1000

    def number(self) -> int:
        """Return a new number."""
        self._next += 1
        return self._next

    def topic(self) -> str:
        """Return a new topic name; it ends like a partition."""
        return f"orders.v{self.number()}-eu_1"


Printed = tuple[str, tuple[Any, ...]]
# what a type prints in a version, and the values in it
Form = Callable[[Values, Version], Printed]


def _int(v: Values, _: Version) -> Printed:
    number = v.number()
    return str(number), (number,)


def _topic(v: Values, _: Version) -> Printed:
    topic = v.topic()
    return topic, (topic,)


def _tp(v: Values, _: Version) -> Printed:
    topic, number = v.topic(), v.number()
    return f"{topic}-{number}", (topic, number)


def _tap(v: Values, at: Version) -> Printed:
    topic, number = v.topic(), v.number()
    return (f"[{topic},{number}]" if at < (1,) else f"{topic}-{number}"), (topic, number)


def _par(v: Values, _: Version) -> Printed:
    topic, partition, replica = v.topic(), v.number(), v.number()
    return f"[Topic={topic},Partition={partition},Replica={replica}]", (topic, partition, replica)


def _listed(form: Form, count: int, join: str = ",", around: str = "{}") -> Form:
    def listed(v: Values, at: Version) -> Printed:
        printed = [form(v, at) for _ in range(count)]
        return around.format(join.join(text for text, _ in printed)), tuple(
            value for _, values in printed for value in values
        )

    return listed


def _mapped(key: Form, value: Form, count: int, around: str = "Map({})") -> Form:
    def entry(v: Values, at: Version) -> Printed:
        (left, one), (right, other) = key(v, at), value(v, at)
        return f"{left} -> {right}", one + other

    return _listed(entry, count, ", ", around)


def _fixed(text: str, *values: Any) -> Form:
    return lambda _v, _at: (text, values)


def _until(last: Version, old: Form, new: Form) -> Form:
    return lambda v, at: (old if at < last else new)(v, at)


def _numbered(template: str, *unread: str) -> Form:
    """Every `#` is another number; those after a word of `unread` are in no column."""

    def form(v: Values, _: Version) -> Printed:
        values = []

        def put(found: re.Match[str]) -> str:
            number = v.number()
            if found[1] not in unread:
                values.append(number)
            return f"{found[1]}{found[2]}{number}"

        return re.sub(r"(\w*)([=:\[( ]*)#", put, template), tuple(values)

    return form


def _lice(v: Values, at: Version) -> Printed:
    recovery = ",LeaderRecoveryState:RECOVERED" if at >= (3, 2) else ""
    zk = ",ZkVersion:#" if at >= (3, 1) or (2, 8, 1) <= at < (3,) or (2, 7, 2) <= at < (2, 8) else ""
    return _numbered(f"(Leader:#,ISR:#,#{recovery},LeaderEpoch:#{zk},ControllerEpoch:#)", "ControllerEpoch")(
        v, at
    )


def _lai(v: Values, at: Version) -> Printed:
    if at < (1, 1):
        return _numbered('{"leader":#,"leader_epoch":#,"isr":[#,#]}')(v, at)
    isr = "isr=List(#, #)"
    if at >= (3, 5):
        isr = "isrWithBrokerEpoch=List(BrokerState(brokerId=#, brokerEpoch=-1), BrokerState(brokerId=#, brokerEpoch=-1))"
    recovery = ", leaderRecoveryState=RECOVERED" if at >= (3, 2) else ""
    epoch = "partitionEpoch" if at >= (3, 3) else "zkVersion"
    return _numbered(f"LeaderAndIsr(leader=#, leaderEpoch=#, {isr}{recovery}, {epoch}=#)")(v, at)


def _assignment(v: Values, at: Version) -> Printed:
    return _numbered("ReplicaAssignment(replicas=#,#,#, addingReplicas=#, removingReplicas=#)")(v, at)


def _partition_state(v: Values, at: Version) -> Printed:
    name, adding, more = "PartitionState(", "", ", isNew=true" if at >= (1,) else ""
    isr = "isr=[#, #]" if at < (0, 11) or at >= (2, 4) else "isr=#,#"
    replicas = isr.replace("isr", "replicas")
    if at >= (2, 4):
        name = "LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, "
        adding = ", addingReplicas=[#], removingReplicas=[#]"
    if at >= (3, 2):
        more += ", leaderRecoveryState=0"
    epoch = "partitionEpoch" if at >= (3, 3) else "zkVersion"
    text = f"{name}controllerEpoch=#, leader=#, leaderEpoch=#, {isr}, {epoch}=#, {replicas}{adding}{more})"
    return _numbered(text, "controllerEpoch")(v, at)


def _new_topics(v: Values, at: Version) -> Printed:
    if at < (2, 4):
        return _mapped(_tap, _numbered("List(#, #)" if at < (1, 1) else "Vector(#, #)"), 2)(v, at)
    partitions = _mapped(_tp, _assignment, 2)
    if at < (2, 8):
        return partitions(v, at)
    text, values = partitions(v, at)
    return f"Set(TopicIdReplicaAssignment({values[0]},Some({UUID}),{text}))", (*values, UUID)


def _fetch_states(v: Values, at: Version) -> Printed:
    if at < (2, 1):
        return _listed(
            lambda v, at: (
                f"[{(p := _tap(v, at))[0]}, initOffset 5 to broker BrokerEndPoint(2,host,9092)] ",
                p[1],
            ),
            2,
            ", ",
            "List({})",
        )(v, at)
    if at < (2, 7):
        return _mapped(_tp, _fixed("(offset=5, leaderEpoch=3)"), 2)(v, at)
    id_ = "" if at < (3, 1) else f"Some({UUID}),"
    return _mapped(_tp, _fixed(f"InitialFetchState({id_}BrokerEndPoint(id=2, host=h:9092),3,5)"), 2)(v, at)


def _response(_: Values, at: Version) -> Printed:
    if at < (2, 8):
        return "{error_code=0,partitions=[{topic=t,partition=0,error_code=0}]}", ()
    return "LeaderAndIsrResponseData(errorCode=0, partitionErrors=[], topics=[])", ()


# type -> what it may look like; an empty collection is the last
FORMS: dict[str, tuple[Form, ...]] = {
    "int": (_int,),
    "decimal": (_fixed("0.3333333333333333"), _fixed("0.333333"), _fixed("NaN")),
    "bool": (_fixed("true"), _fixed("false")),
    "tp": (_tp,),
    "tap": (_tap,),
    "tap|tp": (_tap,),
    "int|tp": (_tp,),
    "topic": (_topic,),
    "int_csv": (_listed(_int, 2), _fixed("")),
    "int_csv_brackets": (_listed(_int, 2, ",", "[{}]"), _fixed("[]")),
    "topic_csv": (_listed(_topic, 2), _fixed("")),
    "tap_csv": (_listed(_tap, 2), _fixed("")),
    "tap_list": (_until((2,), _listed(_tap, 2), _listed(_tap, 2, ", ", "Set({})")),),
    "par_csv": (_listed(_par, 2), _fixed("")),
    "int_collection": (
        _listed(_int, 2, ", ", "Set({})"),
        _listed(_int, 5, ", ", "HashSet({})"),
        _fixed("ArrayBuffer()"),
    ),
    "int_collection|int_csv": (_listed(_int, 2, ", ", "Set({})"), _listed(_int, 2), _fixed("")),
    "topic_collection": (_listed(_topic, 2, ", ", "Set({})"), _fixed("Set()")),
    "tp_collection": (_listed(_tap, 2, ", ", "Set({})"), _fixed("HashSet()")),
    "broker_epoch_map": (_mapped(_int, _int, 2), _fixed("Map()")),
    "tp_to_seq_map": (
        _mapped(_tap, _numbered("Vector(#, #)"), 2),
        _fixed("Map()"),
    ),
    "new_topic_assignment": (_new_topics, _fixed("Map()")),
    "broker_tp_map": (_mapped(_int, _mapped(_tap, _numbered("Vector(#, #)"), 1), 2), _fixed("Map()")),
    "lice": (_lice,),
    "lai": (_lai,),
    "lice_map": (_mapped(_tap, _lice, 2), _fixed("Map()")),
    "lice_map_csv": (_mapped(_tap, _lice, 2, "{}"), _fixed("")),
    "replica_assignment": (_assignment,),
    "replica_state": (
        _fixed("OnlineReplica", "OnlineReplica"),
        _fixed("ReplicaDeletionIneligible", "ReplicaDeletionIneligible"),
    ),
    "partition_state": (
        _fixed("OnlinePartition", "OnlinePartition"),
        _fixed("NonExistentPartition", "NonExistentPartition"),
    ),
    "partition_state_map": (_mapped(_tap, _fixed("OnlinePartition"), 2), _fixed("Map()")),
    "replica_state_map": (_mapped(_par, _fixed("OnlineReplica"), 2), _fixed("Map()")),
    "throwable_tostring": (
        _fixed("java.io.IOException: Connection to 3 was disconnected before the response was read"),
        _fixed("java.nio.channels.ClosedChannelException"),
    ),
    "classname": (_fixed("kafka.common.StateChangeFailedException"),),
    "text": (_fixed("some text: with (brackets), 5 and a-1"),),
    "text_lazy": (_fixed("some text: with (brackets), 5 and a-1"),),
    "word": (_fixed("NOT_LEADER_OR_FOLLOWER"),),
    "thread": (_fixed("ReplicaFetcherThread-0-3"),),
    "path": (_fixed("/var/lib/kafka data/orders-1"), _fixed("C:\\kafka\\logs")),
    "zk_path": (_fixed("/admin/reassign_partitions"), _fixed("/brokers/topics/orders/partitions/0/state")),
    "node": (
        _until(
            (0, 9),
            _numbered("id:#,host:h,port:9092"),
            _until((0, 10), _numbered("Node(#, h, 9092)"), _numbered("h:9092 (id: # rack: null)")),
        ),
    ),
    "broker_obj": (
        _numbered("# : (EndPoint(host,9092,ListenerName(PLAINTEXT),PLAINTEXT)) : null : Features{}"),
    ),
    "api_key": (_fixed("LEADER_AND_ISR", "LEADER_AND_ISR"), _fixed("LeaderAndIsr", "LeaderAndIsr")),
    "request_obj": (
        _fixed("(type=LeaderAndIsRequest, controllerId=1, controllerEpoch=1, partitionStates=[])"),
    ),
    "request_map": (_fixed("Map(3 -> Map(orders-0 -> (type=LeaderAndIsRequest)))"), _fixed("HashMap()")),
    "response_obj": (_response,),
    "errors_enum": (_fixed("STALE_CONTROLLER_EPOCH", "STALE_CONTROLLER_EPOCH"),),
    "partition_errors_map": (_mapped(_tap, _fixed("KAFKA_STORAGE_ERROR"), 2), _fixed("Map()")),
    "controller_event": (
        _fixed("TopicDeletion"),
        _fixed("ControlledShutdown(1,25,<function1>)"),
        _fixed("PartitionModifications(t)"),
    ),
    "election_type": (_fixed("PREFERRED", "PREFERRED"), _fixed("UNCLEAN", "UNCLEAN")),
    "election_trigger": (_fixed("AutoTriggered", "AutoTriggered"), _fixed("ZkTriggered", "ZkTriggered")),
    "election_results_map": (_mapped(_tap, _fixed("Right(1)"), 2), _fixed("Map()")),
    "election_strategy": tuple(
        _fixed(name, name)
        for name in (
            "OfflinePartitionLeaderElectionStrategy(false)",
            "ReassignPartitionLeaderElectionStrategy",
        )
    ),
    "feature_znode": (_fixed("FeatureZNode(1,Enabled,Features{})"),),
    "leader_type": (_fixed("become-leader"), _fixed("become-follower")),
    "stop_replica_info_csv": (
        _fixed("StopReplicaRequestInfo([Topic=t,Partition=0,Replica=1],true,<function2>)"),
        _fixed(""),
    ),
    "partition_state_obj": (_partition_state,),
    "option_int": (_numbered("Some(#)"), _fixed("None")),
    "topic_id": (_fixed(UUID, UUID), _fixed(f"Some({UUID})", UUID), _fixed("None")),
    "option_topic_id": (_fixed(f"Some({UUID})", UUID), _fixed("None")),
    "topic_id_or_option": (_fixed(UUID, UUID), _fixed(f"Some({UUID})", UUID), _fixed("None")),
    "uuid22": (_fixed(UUID, UUID),),
    "under_min_isr": (_fixed(""), _fixed("(under-min-isr)")),
    "gc_verb": (_fixed("Starting up."), _fixed("Startup complete."), _fixed("Shutdown complete.")),
    "hex": (_fixed("0x1000a"), _fixed("72057594037927936")),
    "version": (_fixed("3.9.1", "3.9.1"), _fixed("7.3.5-ce", "7.3.5-ce")),
    "optional_int": (_numbered("OptionalInt[#]"), _fixed("OptionalInt.empty"), _numbered("#")),
    "zk_flag": (_fixed(""), _fixed(" isZkBroker=true")),
    "log_prefix": (_fixed(""),),
    "addr_list": (_fixed("PLAINTEXT://h:9092,SSL://h:9093"),),
    "log_obj": (
        _fixed(
            "Log(dir=/d/orders-0, topic=orders, partition=0, highWatermark=5, lastStableOffset=5, logStartOffset=0, logEndOffset=5)"
        ),
    ),
    "isr_state": (_fixed("CommittedPartitionState(isr=Set(1, 2), leaderRecoveryState=RECOVERED)"),),
    "oos_replicas": (_fixed("(brokerId: 3, endOffset: 17) (brokerId: 4, endOffset: 18)"),),
    "fetch_state_map": (_fetch_states, _fixed("Map()")),
}
# the name of a free text often says what it is
NAMED = (
    (
        re.compile(r"(?:_ms|_epoch|_offset|_id|epoch|offset|id|leader|count|size|num|latency|lapse|code)$"),
        FORMS["int"],
    ),
    (re.compile(r"(?:^|_)(?:partition|tp)$"), FORMS["tp"]),
    (re.compile(r"(?:^|_)topic$"), FORMS["topic"]),
    (re.compile(r"(?:^|_)partitions$"), FORMS["tp_collection"]),
    (re.compile(r"(?:^|_)(?:error|error_code|error_name)$"), FORMS["errors_enum"]),
    (re.compile(r"(?:^|_)(?:replicas|voters)$"), FORMS["int_csv"]),
)
_HIGH_WATERMARK = _fixed("(offset=5 segment=[0:120])")
_OFFSETS = _fixed("LogOffsetMetadata(offset=5, metadata=Optional.empty)")
_STATE = _fixed("Leader(localId=3, epoch=2, epochStartOffset=5)")
_REGISTRATION = _numbered(
    "RegisterBrokerRecord(brokerId=#, incarnationId=M7Grn--lQTSRIRnABrfMjw, brokerEpoch=#, endPoints=[BrokerEndpoint(name='P', host='h', "
    "port=9092, securityProtocol=0)], features=[], rack=null, fenced=true, inControlledShutdown=false)",
)
_CHANGE = _fixed(
    "BrokerRegistrationChangeRecord(brokerId=5, brokerEpoch=10, fenced=-1, inControlledShutdown=0)"
)
_CONTROLLER = "ControllerRegistration(id=5, incarnationId=M7Grn--lQTSRIRnABrfMjw, zkMigrationReady=false, listeners=[], supportedFeatures={})"
_EPOCH_CHANGE = _fixed("New: {epoch:3, offset:7}, Current: {epoch:2, offset:5} for Partition: orders-3")
_PARTITION_REGISTRATION = (
    "PartitionRegistration(replicas=[#, #], directories=[], isr=[#, #], removingReplicas=[], addingReplicas=[], elr=[], lastKnownElr=[], "
    "leader=#, leaderRecoveryState=RECOVERED, leaderEpoch=#, partitionEpoch=#)"
)
_PREVIOUS = (_fixed(""), _fixed(" Previous incarnation was UmzoSQFdRAy8eMzOYaRGFA."))
_MIGRATION = (_fixed("PRE_MIGRATION"), _fixed("MIGRATION"))
# .. or it is known what stands there: (part of the family, placeholder) -> forms
WORDED: dict[tuple[str, str], tuple[Form, ...]] = {
    ("reassign_", "reassignments"): (
        _until(
            (1, 1),
            _mapped(_tap, _numbered("ReassignedPartitionsContext(List(#, #),null)"), 2),
            _mapped(_tap, _numbered("Vector(#, #)"), 2),
        ),
        _fixed("Map()"),
    ),
    ("partitions_added", "assignment"): (
        _until((2, 4), _mapped(_tap, _numbered("Vector(#, #)"), 2), _mapped(_tap, _assignment, 2)),
    ),
    ("", "partition_errors"): (
        _mapped(_tap, _fixed("ApiError(error=NO_REASSIGNMENT_IN_PROGRESS, message=null)"), 2),
        _fixed("Map()"),
    ),
    ("logdir_offline", "offline_partitions"): FORMS["tap_csv"],
    ("", "offline_future_partitions"): FORMS["tap_csv"],
    ("", "offline_topic_partitions"): FORMS["tap_csv"],
    ("", "leader_endpoint"): (
        _numbered("BrokerEndPoint(#,h,9092)"),
        _numbered("BrokerEndPoint(id=#, host=h:9092)"),
    ),
    ("", "log_prefix"): (
        _fixed("Metadata batch 12 orders-0"),
        _fixed("Apply deferred leader partition orders-0 last seen in metadata batch 12"),
        _fixed("Metadata batch <multiple deferred>"),
    ),
    ("br_stop_replica_received", "partition_state"): (
        _numbered("StopReplicaPartitionState(partitionIndex=0, leaderEpoch=#, deletePartition=true)"),
    ),
    ("sc_send_stop_replica", "partition_state"): (
        _numbered("StopReplicaPartitionState(partitionIndex=0, leaderEpoch=#, deletePartition=true)"),
    ),
    # a BrokerEndPoint up to 2.4, its id from 2.5 on
    ("fetcher_added__2_1_0", "leader_id"): (
        _until((2, 5), _numbered("BrokerEndPoint(id=#, host=h:9092)"), _int),
    ),
    ("rm_fetch_unknown__0", "partition"): (_int,),
    ("broker_lifecycle_manager_unexpected_broker_state", "state"): (_fixed("NOT_RUNNING"),),
    ("cluster_control_manager_ignoring", "cur_registration"): (
        _fixed(
            "BrokerRegistration(id=5, epoch=10, incarnationId=M7Grn--lQTSRIRnABrfMjw, listeners=[], supportedFeatures={}, "
            "rack=Optional.empty, fenced=true, inControlledShutdown=false)"
        ),
    ),
    ("cluster_control_manager_registering", "incarnation_id"): (_fixed(UUID),),
    ("cluster_control_manager_registering", "incarnation_id_2"): (_fixed(UUID),),
    ("kafka_server_created_zookeeper_path", "chroot"): (_fixed("/kafka"),),
    ("net_cancelled", "request"): (
        _fixed(
            "FETCH request with correlation id 7 due to node 3 being disconnected (elapsed time since creation: 5ms)"
        ),
    ),
    ("kraft_migration_driver", "migration_event"): (_fixed("PollEvent"),),
    ("offset_control_manager", "current_snapshot_name"): (_fixed("00000000000000000824-0000000008"),),
    ("quorum_controller", "snapshot_name"): (_fixed("00000000000000000824-0000000008"),),
    ("quorum_controller", "snapshot_id"): (_fixed("OffsetAndEpoch(offset=5, epoch=2)"),),
    ("quorum_controller", "name"): (_fixed("registerBroker"), _fixed("handleCommit[baseOffset=5]")),
    ("quorum_controller", "error_class"): (_fixed("RejectedExecutionException"),),
    ("zk_features_cache", "old"): (_fixed("FeaturesAndEpoch(features=Map(), epoch=0)"), _fixed("None")),
    ("zk_features_cache", "new"): (_fixed("FeaturesAndEpoch(features=Map(), epoch=1)"),),
    # the source prints topic and number, or both at once; never the topic twice
    ("sc_replica_change_failed__0_8_2_0", "partition"): (_int,),
    ("br_leader_and_isr_received__0_8_2_0", "partition"): (_int,),
    ("br_metadata_cached__0_8_2_0", "partition_state"): (
        _numbered(
            "(LeaderAndIsrInfo:(Leader:#,ISR:#,#,LeaderEpoch:#,ControllerEpoch:#),ReplicationFactor:2),AllReplicas:1,2)",
            "ControllerEpoch",
            "ReplicationFactor",
        ),
    ),
    ("sc_partition_new", "to_state"): (_fixed("NewPartition", "NewPartition"),),
    ("sc_partition_offline", "to_state"): (
        _fixed("OfflinePartition", "OfflinePartition"),
        _fixed("NonExistentPartition", "NonExistentPartition"),
    ),
    ("sc_partition_online", "to_state"): (_fixed("OnlinePartition", "OnlinePartition"),),
    ("", "e"): (FORMS["errors_enum"]),
    ("aim_error", "leader_recovery_state"): (_fixed("RECOVERING"),),
    ("aim_error", "partition"): (_fixed("PartitionData(partitionIndex=0, errorCode=0, leaderId=2)"),),
    ("blm", "state"): (_fixed("SHUTTING_DOWN"),),
    ("", "cluster_id"): (_fixed("q1Fpnbr7QVm7UGVaqIj0Hg", "q1Fpnbr7QVm7UGVaqIj0Hg"),),
    ("ccm_registered_old__2_8_0_4", "record"): (
        _fixed("UnregisterBrokerRecord(brokerId=5, brokerEpoch=10)"),
    ),
    ("ccm_registered_old__3_5_0_4", "record"): (
        _fixed("UnregisterBrokerRecord(brokerId=5, brokerEpoch=10)"),
    ),
    ("ccm_replayed__3_6_0_4", "record"): (_fixed("UnregisterBrokerRecord(brokerId=5, brokerEpoch=10)"),),
    ("ccm_replayed__3_6_0_5", "record"): (_CHANGE,),
    ("ccm_replayed", "error_class"): (_fixed("BrokerRegistrationChangeRecord"),),
    ("ccm", "record"): (_REGISTRATION,),
    ("gmm_loading", "coordinator_epoch"): (_numbered("OptionalInt[#]"), _fixed("OptionalInt.empty")),
    ("ccm_replayed", "new_registration"): (_fixed(_CONTROLLER),),
    ("ccm_replayed__3_7_0", "incarnation_id"): _PREVIOUS,
    ("ccm_replayed__4_0_0", "incarnation_id"): _PREVIOUS,
    ("ccm", "incarnation_id"): (_fixed(UUID, UUID),),
    ("blm", "incarnation_id"): (_fixed(UUID, UUID),),
    ("dirs_assignment_error", "this"): (_fixed("AssignmentEvent{timestampNs=5, partition=x:0, dirId=y}"),),
    ("dirs_assignment_error", "partition"): (_fixed("orders-0"),),
    ("epoch_cache", "epoch_change_msg"): (_EPOCH_CHANGE,),
    ("epoch_cache", "new_entry"): (_fixed("EpochEntry(epoch=5, startOffset=80)"),),
    ("epoch_cache", "removed_epochs"): (
        _fixed("ListBuffer(EpochEntry(epoch=2, startOffset=80))"),
        _fixed("[EpochEntry(epoch=2, startOffset=80)]"),
    ),
    ("feature_level__3_3", "feature_level"): (_fixed("7", "7"),),
    ("feature_level", "current_version"): (_fixed("7"), _fixed("3.3-IV3")),
    ("feature_level", "new_version"): (_fixed("8", "8"), _fixed("3.9-IV0", "3.9-IV0")),
    ("feature_level", "mv"): (_fixed("3.9-IV0", "3.9-IV0"),),
    ("loader", "log_prefix"): (_fixed("initializeNewPublishers"),),
    ("loader", "where"): (_fixed("initializeNewPublishers"), _fixed("maybePublishMetadata(LOG_DELTA)")),
    ("log_", "name"): (_tp,),
    ("log_created", "properties"): (_fixed("{cleanup.policy=compact}"), _fixed("{}")),
    ("logdir", "msg"): (
        _fixed("Error while writing to checkpoint file /d/replication-offset-checkpoint"),
        _fixed("Error while deleting dir for orders-0 in dir /d"),
        _fixed("Error while appending records to orders-0 in dir /d"),
        _fixed("Disk error while locking directory /d"),
    ),
    ("kraft_waiting", "what"): (
        _fixed("controller quorum voters future"),
        _fixed("the broker to catch up with the current cluster metadata."),
        _fixed("all of the authorizer futures to be completed"),
    ),
    ("log_nonmonotonic_hw", "high_watermark_metadata"): (_HIGH_WATERMARK,),
    ("log_nonmonotonic_hw", "new_high_watermark"): (_HIGH_WATERMARK,),
    ("migration_state", "node_id"): (_int,),
    **{
        ("migration_state", name): _MIGRATION
        for name in (
            "current_state",
            "record_state",
            "zk_migration_state",
            "previous_state",
            "new_state",
            "migration_state",
        )
    },
    ("net_error", "peer"): (_numbered("h:9092 (id: # rack: null)"),),
    ("partition_skip", "directory_id"): (_fixed(UUID),),
    ("partition_skip", "target_log_directory_id"): (_fixed(UUID),),
    ("new_controller_seen", "controller_type"): (_fixed("KRaft"), _fixed("ZK")),
    ("qc_", "authorizer"): (_fixed("Optional.empty"),),
    ("qc_", "new_leader_name"): (_int, _fixed("(none)")),
    ("qc_bootstrap", "enabled"): (_fixed(""), _fixed(" ZK migration mode is enabled.")),
    ("qc_bootstrap", "enabled_2"): (_fixed(""), _fixed(" Eligible leader replicas enabled.")),
    ("qc_event", "name"): (_fixed("writeNoOpRecord"),),
    ("qc_event", "error_class"): (_fixed("NotControllerException"),),
    ("qc_event", "delta_us"): (_fixed("187"),),
    ("qc_event", "failure_message"): (
        _fixed(
            "event failed with NotLeaderException (treated as NotControllerException) at epoch 8 in 5 microseconds. Renouncing leadership "
            "and reverting to the last committed offset 824."
        ),
        _fixed(
            "event failed with StaleBrokerEpochException in 51 microseconds. Exception message: Expected broker epoch 5, but got 4"
        ),
        _fixed(
            "event unable to start processing because of RejectedExecutionException (treated as TimeoutException). Exception message: full"
        ),
    ),
    ("raft", "leader_id_or_sentinel"): (_int,),
    ("raft", "vote_granted"): (_fixed("granted"), _fixed("rejected")),
    ("raft", "request"): (
        _numbered(
            "VoteRequestData(clusterId='x', topics=[TopicData(topicName='__cluster_metadata', partitions=[PartitionData("
            "partitionIndex=0, candidateEpoch=3, candidateId=#, lastOffsetEpoch=0, lastOffset=0)])])"
        ),
    ),
    ("raft", "snapshot_id"): (_fixed("OffsetAndEpoch(offset=5, epoch=2)"),),
    ("raft", "truncation_offset"): (_int,),
    ("raft_transition", "state"): (_STATE,),
    ("raft_transition", "new_state"): (_STATE,),
    ("raft_voters", "feature_name"): (_fixed("kraft.version"),),
    ("raft_voters", "kraft_version"): (_fixed("KRAFT_VERSION_1"), _int),
    ("raft_hw", "new_high_watermark"): (_OFFSETS,),
    ("raft_hw", "replica_key"): (_numbered("ReplicaKey(id=#, directoryId=Optional.empty)"), _int),
    ("raft_hw", "current_end_offset_offset"): (_int,),
    ("rm_dir", "offline_partitions"): FORMS["tap_csv"],
    ("rm_dir", "offline_future_partitions"): FORMS["tap_csv"],
    ("sc_skipped__3_0_0_3", "state"): (_partition_state,),
    ("sc_skipped", "partition_state"): (_partition_state,),
    ("sc_skipped", "partition_registration"): (_numbered(_PARTITION_REGISTRATION),),
    ("srv_mbean", "mbean"): (_fixed("kafka:type=kafka.Log4jController"),),
    ("", "is_future"): (_fixed(""), _fixed("future ")),
    ("truncate", "truncation_state"): (_numbered("TruncationState(offset=#, completed=true)"),),
    ("truncate", "offset_truncation_state"): (_numbered("TruncationState(offset=#, completed=true)"),),
    ("truncate", "leader_epoch_offset"): (
        _fixed("EpochEndOffset(errorCode=0, partition=0, leaderEpoch=2, endOffset=7)"),
    ),
    ("zkc_registered", "host"): (_fixed("h"),),
    ("zkc_kraft_controller", "broker"): (_int,),
    ("zkc_reassign", "zk_path"): (_fixed("/admin/reassign_partitions", "/admin/reassign_partitions"),),
    ("zkc", "path"): (_fixed("/brokers/ids/3", "/brokers/ids/3"), _fixed("/controller", "/controller")),
    ("zkc", "code"): (_fixed("OK"), _fixed("NODEEXISTS")),
}
# what stands on further lines of the message
FURTHER_LINES = {"srv_config": "\n\tadvertised.listeners = null\n\tbroker.id = 3\n\tlog.dirs = /d\n"}
# the same thing under two names in one line
SAME = {
    "local_broker_id": "broker",
    "broker_id_2": "broker_id",
    "controller_id_2": "controller_id",
    "node_id": "node",
}


def forms(statement: Statement, name: str) -> tuple[Form, ...]:
    """Return the forms that a placeholder can have."""
    kind = statement.slots[name]
    for (part, slot), found in WORDED.items():
        if slot == name and statement.id.startswith(part):
            return found
    if kind == "text_lazy":
        return next((found for pattern, found in NAMED if pattern.search(name)), FORMS[kind])
    return FORMS[kind]


def boundaries(statement: Statement) -> list[Version]:
    """Return the versions of a statement in which a value may have another form than before."""
    changes = [
        (0, 9),
        (0, 10),
        (0, 11),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (2, 4),
        (2, 7),
        (2, 8),
        (3, 1),
        (3, 2),
        (3, 3),
        (3, 5),
    ]
    first, last = statement.versions
    return [first, *(change for change in changes if first < change <= last)]


def renderings(statement: Statement) -> Iterator[Rendering]:
    """Yield the statement with every form of every value, in every version that prints one differently.

    Each text once.
    """
    seen = set()
    for at in boundaries(statement):
        kinds = {name: forms(statement, name) for name in statement.slots}
        for turn in range(max(map(len, kinds.values()), default=1)):
            values, printed = Values(), {}
            for name, found in kinds.items():
                if SAME.get(name, name) not in printed:
                    printed[SAME.get(name, name)] = found[min(turn, len(found) - 1)](values, at)
            texts = {name: printed[SAME.get(name, name)][0] for name in kinds}
            text = SLOT.sub(
                lambda found, texts=texts: texts.get(found[1], found[0]),
                statement.prefix + statement.template,
            )
            text += FURTHER_LINES.get(statement.family, "")
            line = f"[2026-11-20 10:09:12,175] {statement.level} {text} ({statement.logger})"
            shape = re.sub(r"\d+", "0", line)
            if shape not in seen:
                seen.add(shape)
                yield Rendering(
                    statement, at, line, {name: printed[SAME.get(name, name)][1] for name in kinds}
                )


# (rule, placeholder) -> why its value is in no column; the rule may be any
NOT_TYPED: tuple[tuple[str, str, str], ...] = (
    (".*", r"\w*_ms\w*|ms2?|time_lapse|\w*_us", "a duration"),
    (
        ".*",
        r"\w*size|\w*_?num_\w+|number_of_segments|bytes|records|remaining_retries|done|total|rf",
        "a count of things that are not named",
    ),
    (".*", r"fetcher|leader", "the broker that the thread fetches from, not the leader of the partition"),
    (".*", r"pfx_\w+", "logged twice: the statement names the partition, too"),
    (
        "isr_expanding|isr_shrinking",
        "topic|partition_id|topic_partition",
        "logged twice: the log ident names the partition, too",
    ),
    (
        ".*",
        "node_id|controller_id|broker_id",
        "logged twice: the log ident names the broker or the controller",
    ),
    (
        "deletion_.*|replica_deletion_states",
        "topics?|topics_to_be_deleted",
        "logged twice: each replica has its topic",
    ),
    ("topics_changed", "new_topics", "logged twice: the assignment names them"),
    ("assignments_by_preferred_leader", "assignment_by_broker", "logged twice: the key is the first replica"),
    (
        "become_skipped.*",
        r"isr|adding_replicas|removing_replicas|leader_epoch|prev\w*_leader_epoch",
        "logged twice: the values of the request",
    ),
    ("log_load_completed", "log_end_offset", "logged twice"),
    ("preferred_election_failed", "preferred_replica", "the first replica of the assignment"),
    (
        "truncation_point_told",
        "end_offset|leader_epoch|log_end_offset",
        "an intermediate step; `Truncating ..` has the result",
    ),
    ("deletion_answered", "error", "each partition has its own error"),
    ("assignment_updating", "current_assignment", "the assignment before is in the line before"),
    (
        "become_outdated",
        r"partition_state|partition_registration|\w*partition_epoch",
        "an outdated request: never the state",
    ),
    (
        "follower_started",
        r"previous_leader|prev\w*_leader_epoch|previous_leader_epoch",
        "from 3.3 on it has the new values",
    ),
    (
        "leader_and_isr_received_up_to_2_3",
        "partition_state",
        "0.10.2 prints the replicas as a set, in no order",
    ),
    (".*", "current_broker_epoch|local_broker_epoch", "the epoch of the broker's registration"),
    (".*", r"\w*log_start_offset|first_offset", "the progress of retention"),
    (
        ".*",
        "epoch_zk_version|last_committed_epoch|last_producer_id|check_quorum_timeout_ms",
        "a version of something that no table is about",
    ),
    (".*", "dir_id|directory_id|target_log_directory_id|uuid", "a log directory is identified by its path"),
    (".*", "offline_future_partitions", "a log that is being moved is no replica yet"),
    ("config_updated", "resource_name", "a group or a client"),
    ("feature_replayed", "feature_level", "a feature other than metadata.version"),
    (
        "controller_kept_leadership|controller_event_failed_up_to_3_5",
        "cur_claim_epoch|last_committed_offset",
        "of the current controller term",
    ),
    ("fetchers_stopped", "correlation_id", "the lines before and after it have the request"),
)


def reason(reading: Reading, placeholder: str) -> str | None:
    """Why a value is in no column; None: it should be in one."""
    return next(
        (
            why
            for rule, name, why in NOT_TYPED
            if re.fullmatch(rule, reading.rules[0]) and re.fullmatch(name, placeholder)
        ),
        None,
    )


def _values(events: list[dict[str, Any]]) -> set[Any]:
    """Return all values of all columns."""
    values: set[Any] = set()
    for event in events:
        for value in event.values():
            values |= set(value) if isinstance(value, list) else {value}
    return values


def read_line(line: str) -> list[dict[str, Any]]:
    """Return the events that the reference parser reads from a line."""
    record = PARSER.record(line)
    assert record is not None, line
    return PARSER.events(record)


def read(rendering: Rendering) -> Reading:
    """Return how the reference parser reads a rendering."""
    events = read_line(rendering.line)
    rules = tuple({event["event_type"]: None for event in events if event["event_type"]})
    in_columns = _values(events)
    texts = "\n".join(value for value in in_columns if isinstance(value, str))
    lost = [
        name
        for name, values in rendering.values.items()
        if any(v not in in_columns and str(v) not in texts for v in values)
    ]
    return Reading(rendering, rules, events[0]["drifted"], tuple(lost))


def readings(part: str = "", least_relevance: int = 2) -> list[Reading]:
    """Return the readings of all statements whose id contains `part`."""
    of = [statement for statement in statements(least_relevance) if part in statement.id]
    return [read(rendering) for statement in of for rendering in renderings(statement)]


def kraft_examples() -> list[tuple[str, str]]:
    """(id, line) of each statement of KRaft: its example is a line as it was printed."""
    path = KAFKA / "statements_kraft.json"
    return (
        [(entry["id"], entry["example"]) for entry in json.loads(path.read_text("utf-8"))]
        if path.is_file()
        else []
    )


def main(part: str) -> None:
    found = readings(part)
    for reading in found:
        if part or not reading.rules or reading.drifted:
            state = ",".join(reading.rules) or ("DRIFT" if reading.drifted else "UNKNOWN")
            print(f"{state:30} {reading.rendering.statement.id}\n    {reading.rendering.line}")
    lost = {(r.rules[0], name): r for r in found if r.rules for name in r.lost}
    for (rule, name), reading in sorted(lost.items()):
        why = reason(reading, name)
        print(f"{'not typed' if why else 'LOST':10} {rule:34} {name:30} {why or reading.rendering.line[26:]}")
    known = {r.rendering.statement for r in found} - {r.rendering.statement for r in found if not r.rules}
    for catalogue in ("zk", "broker"):
        of = {r.rendering.statement for r in found if r.rendering.statement.catalogue == catalogue}
        print(
            f"{catalogue}: {len(of & known)} of {len(of)} statements, {len({s.family for s in of})} families"
        )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
