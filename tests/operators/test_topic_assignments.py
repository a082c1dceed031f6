"""Who placed a topic and how it is spread: from plain rows, without Spark."""

from datetime import UTC, datetime, timedelta

from jobs.operators import placement
from jobs.operators import topic_assignments as assignments
from jobs.timelines.cluster_evidence import CLUSTER_EVENTS

T0 = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)

OF_BROKERS = ("broker", "brokers", "broker_epoch", "fenced", "rack")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def event(event_type: str, seconds: float, **values):
    """A row of `events` with the columns that are read; the others are null."""
    row = dict.fromkeys((*assignments.EVENT_COLUMNS, *OF_BROKERS)) | {
        "event_type": event_type,
        "ts": at(seconds),
        "record_no": 1,
        "item": 0,
    }
    return row | {"record_id": f"{event_type}@{seconds}", "incarnation": 1} | values


def alive(seconds: float, *brokers: int):
    return event("broker_change", seconds, brokers=list(brokers))


def created(seconds: float, rows: dict[int, list[int]], event_type: str = "topics_changed"):
    return [
        event(event_type, seconds, topic="orders", partition=p, replicas=row, item=p)
        for p, row in rows.items()
    ]


def interval(
    partition: int, step: int, begin: float | None, end: float | None, replicas: list[int], **values
):
    """A row of partition_timeline."""
    row = {
        "topic": "orders", "partition": partition, "step": step, "valid_from": None if begin is None else at(begin),
        "valid_to": None if end is None else at(end), "replicas": replicas, "adding_replicas": [], "removing_replicas": [],
        "reassignment_phase": None, "state": "OnlinePartition", "record_id": f"{partition}/{step}", "leader": replicas[0], "isr": replicas,
    }  # fmt: skip
    return row | values


def verdict(events, **more):
    return assignments.judge(assignments.batches(events)["orders"], assignments.cluster(events), **more)


def test_a_placement_of_kafka_has_its_parameters():
    rows = placement.assign([1, 2, 3, 4, 5], 8, 3, 2, 1)
    found = verdict([alive(0, 1, 2, 3, 4, 5), *created(5, rows)])
    assert (found.placement, found.start_index, found.shift, found.rack_aware) == ("kafka", 2, 1, False)


def test_added_partitions_depend_on_the_replicas_of_partition_0_then():
    brokers = [1, 2, 3, 4, 5]
    rows = placement.assign(brokers, 5, 2, 0, 1)
    moved = [4, 2]  # partition 0 after a reassignment
    more = placement.assign(brokers, 3, 2, 3, 3, start_partition=5)
    events = [alive(0, *brokers), *created(5, rows), *created(50, more, "partitions_added")]
    assert verdict(events).placement == "not_known"  # no line says that the brokers have no racks
    events += [event("channel_connected", 1, broker=b) for b in brokers]
    assert verdict(events).placement == "manual"
    assert verdict(events, partition_0=[moved]).placement == "kafka_extended"


def test_a_placement_by_hand_is_manual():
    events = [alive(0, 1, 2, 3), *created(5, {0: [1, 2], 1: [1, 3], 2: [1, 2]})]
    events += [event("channel_connected", 1, broker=b) for b in (1, 2, 3)]
    assert verdict(events).placement == "manual"


def test_kafka_may_place_on_a_broker_that_died_seconds_ago():
    rows = placement.assign([1, 2, 3], 3, 2, 0, 0)
    assert verdict([alive(0, 1, 2, 3), alive(60, 1, 2), *created(63, rows)]).placement == "kafka"
    late = [
        alive(0, 1, 2, 3),
        alive(60, 1, 2),
        *created(90, rows),
        *(event("channel_connected", 1, broker=b) for b in (1, 2)),
    ]
    assert verdict(late).placement == "manual"


def test_a_placement_is_not_known_without_creation_or_brokers():
    rows = placement.assign([1, 2, 3], 3, 2, 0, 0)
    assert verdict(created(5, rows)).reason == "no line shows which brokers were alive then"
    assert assignments.judge([], assignments.ClusterBrokers()).placement == "not_known"
    assert verdict([alive(0, 1, 2, 3), *created(5, rows, "partitions_added")]).placement == "not_known"


def registered(seconds: float, broker: int, rack: str | None = None):
    return event(
        "broker_registration_replayed", seconds, broker=broker, broker_epoch=broker, fenced=False, rack=rack
    )


def replayed(seconds: float, rows: dict[int, list[int]]):
    return [
        event(
            "partition_registered",
            seconds + p / 1000,
            topic="orders",
            topic_id="T",
            partition=p,
            replicas=row,
            partition_epoch=0,
        )
        for p, row in rows.items()
    ]


def answered(seconds: float, partitions: int | None):
    return event(
        "topic_creation_answered", seconds, topic="orders", partitions_named=partitions, error_code="SUCCESS"
    )


def test_kraft_is_judged_by_the_request():
    brokers = [registered(0, b) for b in (1, 2, 3)]
    rows = {0: [1, 2], 1: [2, 3]}
    assert (
        verdict([*brokers, answered(5, None), *replayed(5, rows)]).reason == "the request named the replicas"
    )
    assert verdict([*brokers, answered(5, 2), *replayed(5, rows)]).placement == "kafka"


def test_kraft_without_the_request_is_judged_by_the_placer():
    brokers = [registered(0, b) for b in (1, 2, 3)]
    assert verdict([*brokers, *replayed(5, {0: [1, 2], 1: [2, 3], 2: [3, 1]})]).placement == "kafka"
    assert "do not go round" in verdict([*brokers, *replayed(5, {0: [1, 2], 1: [1, 3], 2: [3, 1]})]).reason


def test_partitions_that_a_starting_controller_logs_again_are_not_added():
    rows = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
    brokers = [registered(0, b) for b in (1, 2, 3)]
    events = [
        *brokers,
        answered(5, 3),
        *replayed(5, rows),
        *replayed(500, rows),
        *(registered(500, b) for b in (1, 2, 3)),
    ]
    assert [sorted(batch.partitions) for batch in assignments.batches(events)["orders"]] == [[0, 1, 2]]
    events += replayed(900, {3: [1, 3], 4: [3, 2]})
    assert verdict(events).placement == "kafka_extended"


def test_racks_of_the_configuration_supersede_those_of_lines():
    events = [registered(0, 1, "a"), registered(0, 2)]
    assert assignments.cluster(events).racks == {1: "a"}
    assert assignments.cluster(events).rackless == {2}
    assert assignments.cluster(events, {1: "x", 2: "y"}).racks == {1: "x", 2: "y"}


def test_an_assignment_begins_when_its_reassignments_have_ended():
    rows = [
        interval(0, 1, 5, 60, [1, 2]),
        interval(0, 2, 60, 70, [3, 1, 2], adding_replicas=[3], removing_replicas=[2]),
        interval(0, 3, 70, None, [3, 1]),
        interval(1, 1, 5.4, 60, [2, 3]),
        interval(1, 2, 60, 90, [1, 2, 3], adding_replicas=[1], removing_replicas=[3]),
        interval(1, 3, 90, None, [1, 2]),
    ]
    first, last = assignments.assignment_intervals(rows)
    assert (first.since, first.until, first.assignment) == (at(5), at(70), {0: (1, 2), 1: (2, 3)})
    assert (last.since, last.until, last.assignment) == (at(70), None, {0: (3, 1), 1: (1, 2)})


def test_a_deleted_topic_has_no_assignment_until_it_is_created_again():
    rows = [interval(0, 1, 5, 60, [1, 2]), interval(0, 2, 60.3, None, [2, 1])]
    found = assignments.assignment_intervals(rows)
    assert [(m.since, m.until, m.assignment) for m in found] == [
        (at(5), at(60), {0: (1, 2)}), (at(60), at(60.3), {}), (at(60.3), None, {0: (2, 1)}),
    ]  # fmt: skip


def test_rows_of_a_reassigned_topic():
    rows = placement.assign([1, 2, 3], 3, 2, 0, 0)
    events = [alive(0, 1, 2, 3), *created(5, rows)]
    history = [interval(p, 1, 5, 60 if p == 2 else None, row) for p, row in rows.items()]
    history += [interval(2, 2, 60, None, [1, 2])]
    before, after = assignments.topic_rows(
        history, assignments.batches(events)["orders"], assignments.cluster(events)
    )
    assert (before["cause"], before["placement"], before["replicas_skew"]) == ("created", "kafka", 1.0)
    assert (after["cause"], after["placement"]) == ("reassigned", "manual")
    assert after["reason"] == "partition 2 reassigned; created: kafka"
    assert after["replicas_skew"] == 1.5
    assert after["record_ids"] == ["2/2"]


def test_a_topic_that_is_older_than_the_logs_is_found():
    history = [interval(0, 1, None, None, [1, 2])]
    (row,) = assignments.topic_rows(history, [], assignments.ClusterBrokers())
    assert (row["valid_from"], row["cause"], row["placement"]) == (None, "found", "not_known")


def test_what_if_a_broker_goes_down():
    rows = [
        interval(0, 1, 5, None, [3, 1, 2]),
        interval(1, 1, 5, None, [1, 3], isr=[1, 3]),
        interval(2, 1, 5, None, [3]),
        interval(3, 1, 5, None, [1, 2, 3]),
        interval(4, 1, 5, None, [3, 2, 1], leader=3, isr=[3]),
        interval(5, 1, 5, None, [3, 1], leader=-1, isr=[3]),
    ]
    found = {e.partition: (e.effect, e.new_leader) for e in assignments.what_if(rows, [3], {"orders": 2})}
    assert found == {
        0: ("loses_leader", 1),
        1: ("below_min_isr", 1),
        2: ("offline", None),
        4: ("offline", None),
    }
    assert assignments.what_if(rows, [3], {})[0].effect == "offline"
    assert {e.partition for e in assignments.what_if(rows, [3], {})} == {0, 2, 4}


def test_the_events_of_brokers_are_kept_between_runs():
    assert set(assignments.BROKER_TYPES) <= CLUSTER_EVENTS
