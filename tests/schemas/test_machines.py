"""The state machines: the legal state changes of each Kafka version."""

from __future__ import annotations

from itertools import product

import pytest

import schemas

REPLICA_STATES = (
    "NewReplica",
    "OnlineReplica",
    "OfflineReplica",
    "ReplicaDeletionStarted",
    "ReplicaDeletionSuccessful",
    "ReplicaDeletionIneligible",
    "NonExistentReplica",
)
PARTITION_STATES = ("NonExistentPartition", "NewPartition", "OnlinePartition", "OfflinePartition")
# copied from kafka.controller.ReplicaState and PartitionState, independently of the product's data
REPLICA_MOVES = {
    ("NonExistentReplica", "NewReplica"),
    ("NewReplica", "OnlineReplica"),
    ("OnlineReplica", "OnlineReplica"),
    ("OfflineReplica", "OnlineReplica"),
    ("ReplicaDeletionIneligible", "OnlineReplica"),
    ("NewReplica", "OfflineReplica"),
    ("OnlineReplica", "OfflineReplica"),
    ("OfflineReplica", "OfflineReplica"),
    ("ReplicaDeletionIneligible", "OfflineReplica"),
    ("OfflineReplica", "ReplicaDeletionStarted"),
    ("ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
    ("ReplicaDeletionStarted", "ReplicaDeletionIneligible"),
    ("ReplicaDeletionSuccessful", "NonExistentReplica"),
}
REPLICA_MOVE_SINCE_2_3 = ("OfflineReplica", "ReplicaDeletionIneligible")
PARTITION_MOVES = {
    ("NonExistentPartition", "NewPartition"),
    ("NewPartition", "OnlinePartition"),
    ("OnlinePartition", "OnlinePartition"),
    ("OfflinePartition", "OnlinePartition"),
    ("NewPartition", "OfflinePartition"),
    ("OnlinePartition", "OfflinePartition"),
    ("OfflinePartition", "OfflinePartition"),
    ("OfflinePartition", "NonExistentPartition"),
}


def legal(machine: str, version: str) -> set[tuple[str, str]]:
    """Return the state changes that are legal in a Kafka version, by the product's data."""
    number = schemas.version_number(version)
    return {
        (move.from_state, move.to_state)
        for move in schemas.moves()
        if move.machine == machine and schemas.version_number(move.since) <= number
    }


def test_states() -> None:
    assert sorted(schemas.machines()["replica"]) == sorted(REPLICA_STATES)
    assert sorted(schemas.machines()["partition"]) == sorted(PARTITION_STATES)
    for move in schemas.moves():
        assert {move.from_state, move.to_state} <= set(schemas.machines()[move.machine])


@pytest.mark.parametrize("move", product(REPLICA_STATES, repeat=2), ids="-".join)
def test_replica_moves(move: tuple[str, str]) -> None:
    for version in ("0.8.2", "1.1.1", "2.2.2"):
        assert (move in legal("replica", version)) == (move in REPLICA_MOVES)
    for version in ("2.3.0", "2.3", "2.10.0", "3.9.1"):
        assert (move in legal("replica", version)) == (
            move in REPLICA_MOVES or move == REPLICA_MOVE_SINCE_2_3
        )


@pytest.mark.parametrize("move", product(PARTITION_STATES, repeat=2), ids="-".join)
def test_partition_moves(move: tuple[str, str]) -> None:
    for version in ("0.8.2", "2.2.2", "2.3.0", "3.9.1"):
        assert (move in legal("partition", version)) == (move in PARTITION_MOVES)


def test_counts() -> None:
    pairs = set(product(REPLICA_STATES, repeat=2))
    assert (len(pairs), len(legal("replica", "2.3.0")), len(legal("replica", "2.2.2"))) == (49, 14, 13)
    assert len(pairs - legal("replica", "2.3.0")) == 35
    assert len(legal("partition", "3.9.1")) == 8


def test_no_move_is_listed_twice() -> None:
    moves = [(move.machine, move.from_state, move.to_state) for move in schemas.moves()]
    assert sorted(set(moves)) == sorted(moves)


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("2.3.0", 2003000),
        ("2.3", 2003000),
        ("3.9.1", 3009001),
        ("0.10.2.2", 10002),
        ("3.3.2-SNAPSHOT", 3003002),
        ("", 0),
        ("trunk", 0),
    ],
)
def test_version_numbers(version: str, number: int) -> None:
    assert schemas.version_number(version) == number
