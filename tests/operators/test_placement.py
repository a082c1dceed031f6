"""Kafka's placement and its inverse: the cases of Kafka's own tests, and start and shift of random
assignments.
"""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

import schemas
from jobs.engine.database import Database
from jobs.operators import placement

CASES = json.loads((Path(__file__).parents[1] / "assignment_cases.json").read_text("utf-8"))


def _racks(case: dict) -> dict[int, str] | None:
    return {int(broker): rack for broker, rack in case["racks"].items()} if case.get("racks") else None


def _expected(case: dict) -> dict[int, list[int]]:
    return {int(partition): replicas for partition, replicas in case["assignment"].items()}


@pytest.mark.parametrize("case", CASES["given"], ids=lambda case: case["test"])
def test_assignments_are_those_of_kafkas_tests(case):
    assigned = placement.assign(
        case["brokers"], case["partitions"], case["replication_factor"], case["start_index"], case["start_index"],
        start_partition=case["start_partition"], racks=_racks(case),
    )  # fmt: skip
    assert assigned == _expected(case)


@pytest.mark.parametrize("case", CASES["given"], ids=lambda case: case["test"])
def test_parameters_of_kafkas_tests_are_found(case):
    expected, racks = _expected(case), _racks(case)
    if case["start_partition"] and not racks:
        found = placement.find_added(expected, case["partition_0"], case["brokers"], racks)
    else:
        found = placement.find(expected, case["brokers"], racks)
    assert found is not None
    assert found.start_index == case["start_index"]
    assert found.rack_aware == (racks is not None)
    shift = case["start_index"] if found.shift is None else found.shift
    again = placement.assign(
        found.brokers,
        case["partitions"],
        case["replication_factor"],
        found.start_index,
        shift,
        start_partition=case["start_partition"],
        racks=racks,
    )
    assert again == expected


@pytest.mark.parametrize("case", CASES["properties"], ids=lambda case: case["test"])
@pytest.mark.parametrize("seed", range(20))
def test_properties_of_kafkas_tests(case, seed):
    drawn = random.Random(seed)
    brokers, racks, properties = case["brokers"], _racks(case), case["expected"]
    start, shift = drawn.randrange(len(brokers)), drawn.randrange(len(brokers))
    assigned = placement.assign(
        brokers,
        case["partitions"],
        case["replication_factor"],
        start,
        shift,
        start_partition=case["start_partition"],
        racks=racks,
    )
    figures = placement.spread(assigned, brokers, racks)
    assert all(len(set(row)) == case["replication_factor"] for row in assigned.values())
    if properties.get("leaders_per_broker"):
        assert set(figures.leaders.values()) == {properties["leaders_per_broker"]}
    if properties.get("replicas_per_broker"):
        assert set(figures.replicas.values()) == {properties["replicas_per_broker"]}
    if properties.get("one_replica_per_rack"):
        assert figures.racks_min == case["replication_factor"]
    if properties.get("distinct_racks_per_partition"):
        assert figures.racks_min == properties["distinct_racks_per_partition"]
    found = placement.find(assigned, brokers, racks)
    assert found is not None
    assert found.start_index == start
    assert found.rack_aware


@pytest.mark.parametrize(("partitions", "factor"), [(0, 1), (1, 0), (1, 6)])
def test_requests_that_kafka_refuses(partitions, factor):
    with pytest.raises(placement.PlacementError):
        placement.assign(range(5), partitions, factor, 0, 0)


def test_one_broker_without_a_rack_is_refused():
    with pytest.raises(placement.PlacementError, match="rack"):
        placement.assign([0, 1, 2], 1, 1, 0, 0, racks={0: "a", 1: "b"})


@pytest.mark.parametrize("seed", range(200))
def test_start_and_shift_of_random_assignments_are_found(seed):
    drawn = random.Random(seed)
    brokers = sorted(drawn.sample(range(100), drawn.randint(3, 9)))
    factor, partitions = drawn.randint(2, min(4, len(brokers))), drawn.randint(2, 40)
    start, shift = drawn.randrange(len(brokers)), drawn.randrange(len(brokers))
    assigned = placement.assign(brokers, partitions, factor, start, shift)
    found = placement.find(assigned, brokers)
    assert found is not None
    assert (found.start_index, found.shift) == (start, shift % (len(brokers) - 1))
    # swapping two later replicas: with 5 brokers no start and shift leads to that
    if factor >= 3 and len(brokers) >= 5:
        row = sorted(assigned)[drawn.randrange(partitions)]
        assigned[row] = [assigned[row][0], assigned[row][2], assigned[row][1], *assigned[row][3:]]
        assert placement.find(assigned, brokers) is None


def test_brokers_in_another_order_than_by_id_are_found():
    assigned = placement.assign([3, 1, 4, 2], 8, 3, 1, 2)
    found = placement.find(assigned, [1, 2, 3, 4])
    assert found is not None
    assert found.brokers == (1, 4, 2, 3)


def striped(brokers, racks, partitions, factor, drawn):
    """Return a placement of StripedReplicaPlacer without fenced brokers: a plain reimplementation of its
    lists, offsets and epochs.
    """
    names = sorted({racks.get(b, "") for b in brokers})
    lists = {name: [b for b in brokers if racks.get(b, "") == name] for name in names}
    offsets = dict.fromkeys(names, 0)
    rows = []
    for partition in range(partitions):
        if partition % len(brokers) == 0:
            drawn.shuffle(names)
            for name in names:
                drawn.shuffle(lists[name])
                offsets[name] = drawn.randrange(len(lists[name]))
        taken = dict.fromkeys(names, 0)
        row, at = [], partition
        while len(row) < factor:
            name = names[at % len(names)]
            if taken[name] < len(lists[name]):
                row.append(lists[name][(offsets[name] + taken[name]) % len(lists[name])])
                taken[name] += 1
            at += 1
        for name in names:
            offsets[name] += bool(taken[name])
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(300))
def test_every_striped_placement_is_accepted(seed):
    drawn = random.Random(seed)
    brokers = drawn.sample(range(100), drawn.randint(1, 9))
    racks = {b: f"r{drawn.randrange(3)}" for b in brokers} if seed % 2 else {}
    rows = striped(brokers, racks, drawn.randint(1, 30), drawn.randint(1, len(brokers)), drawn)
    assert placement.not_striped(rows, brokers, racks) is None


@pytest.mark.parametrize(
    ("rows", "racks", "why"),
    [
        ([[1, 2], [1, 3], [2, 3]], {}, "do not go round the brokers"),
        ([[1, 2], [2, 4], [3, 1]], {}, "do not go round the brokers"),
        ([[1, 1]], {}, "twice"),
        ([[1, 9]], {}, "not registered"),
        ([[1, 2]], {1: "a", 2: "a", 3: "b", 4: "b"}, "fewer than 2 racks"),
        ([[1, 3], [2, 4]], {1: "a", 2: "a", 3: "b", 4: "b"}, "do not go round the racks"),
    ],
)
def test_an_impossible_striped_placement_has_a_reason(rows, racks, why):
    assert why in placement.not_striped(rows, [1, 2, 3, 4], racks)


def test_a_fenced_broker_does_not_lead():
    assert "fenced" in placement.not_striped([[2, 1]], [1, 2, 3], {}, fenced=[2])
    assert placement.not_striped([[1, 2]], [1, 2, 3], {}, fenced=[2]) is None


def test_violations_are_named():
    racks = {1: "a", 2: "a", 3: "b"}
    assert placement.violations({0: [1, 2]}, [1, 2, 3], racks) == [
        "partition 0 has two replicas in rack a, though 2 racks suffice for 2"
    ]
    assert placement.violations({0: [1, 3], 1: [1, 3], 2: [1, 3]}, [1, 2, 3]) == [
        "broker 2 has no replica", "broker 1 is the first replica of all 3 partitions",
    ]  # fmt: skip
    assert placement.violations({0: [1, 3, 4]}, [1, 3]) == [
        "partition 0 has 3 replicas, more than the 2 live brokers"
    ]
    assert placement.violations({0: [1, 3], 1: [2, 1], 2: [3, 2]}, [1, 2, 3], racks) == [
        "partition 1 has two replicas in rack a, though 2 racks suffice for 2"
    ]


def test_the_check_finds_violations_of_racks_by_their_text():
    """`of_shared_racks` of `schemas/functions`, which `rack_violation` calls, knows the text of `violations`."""
    (function,) = (one.sql for one in schemas.statements("functions") if one.name == "of_shared_racks")
    found = [
        *placement.violations({0: [1, 2], 7: [2, 1]}, [1, 2, 3], {1: "a", 2: "a", 3: "b"}),
        *placement.violations({0: [1, 3], 1: [1, 3], 2: [1, 3]}, [1, 2, 3]),
        *placement.violations({0: [1, 3, 4]}, [1, 3]),
    ]
    database = Database()
    database.function(function)
    database.view("found", pa.table({"violations": [found]}))
    (row,) = database.rows("SELECT of_shared_racks(violations) AS shared FROM found")
    assert row["shared"] == found[:2]
    assert len(found) > 2
