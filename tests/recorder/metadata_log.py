"""The truth of a KRaft recording: what kafka-dump-log printed, as records, and partitions as they were after
each (PartitionRegistration.merge).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

BATCH = re.compile(r"baseOffset: .*?partitionLeaderEpoch: (\d+)")
RECORD = re.compile(r"\| offset: (\d+) CreateTime: (\d+) .*?payload: (\{.*\})\s*$")
# field of a change record -> field of a partition; absent or null: unchanged
LISTS = {
    "replicas": "replicas",
    "isr": "isr",
    "removingReplicas": "removingReplicas",
    "addingReplicas": "addingReplicas",
}
ELIGIBLE = {
    "eligibleLeaderReplicas": "eligibleLeaderReplicas",
    "lastKnownElr": "lastKnownElr",
    "lastKnownELR": "lastKnownElr",
}


def stamp(milliseconds: int) -> str:
    """`2026-11-20T10:12:50.566Z`"""
    return (
        datetime.fromtimestamp(milliseconds / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """offset, epoch, ts, type, v, data of each record of a dump, without NO_OP_RECORDs."""
    epoch = None
    for line in lines:
        if found := BATCH.match(line):
            epoch = int(found[1])
        elif found := RECORD.match(line):
            payload = json.loads(found[3])
            if payload["type"] != "NO_OP_RECORD":
                yield {
                    "offset": int(found[1]), "epoch": epoch, "ts": stamp(int(found[2])), "type": payload["type"], "v": payload["version"],
                    "data": payload["data"],
                }  # fmt: skip


def timeline(log: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each partition as it was after each record about it.

    `new` where it was created, `removed` where its topic was deleted.
    """
    names: dict[str, str] = {}
    partitions: dict[tuple[str, int], dict[str, Any]] = {}
    for record in log:
        data, head = record["data"], {name: record[name] for name in ("offset", "epoch", "ts")}
        kind = record["type"]
        if kind == "TOPIC_RECORD":
            names[data["topicId"]] = data["name"]
        elif kind == "PARTITION_RECORD":
            key = data["topicId"], data["partitionId"]
            partitions[key] = _registered(data)
            yield {**head, **_named(key, names), "new": True, **partitions[key]}
        elif kind == "PARTITION_CHANGE_RECORD":
            key = data["topicId"], data["partitionId"]
            partitions[key] = _merged(partitions[key], data)
            yield {**head, **_named(key, names), "new": False, **partitions[key]}
        elif kind == "CLEAR_ELR_RECORD":
            for key, held in partitions.items():
                if data["topicName"] in ("", names[key[0]]) and (
                    held["eligibleLeaderReplicas"] or held["lastKnownElr"]
                ):
                    epoch = held["partitionEpoch"] + 1
                    partitions[key] = held | {
                        "eligibleLeaderReplicas": [],
                        "lastKnownElr": [],
                        "partitionEpoch": epoch,
                    }
                    yield {**head, **_named(key, names), "new": False, **partitions[key]}
        elif kind == "REMOVE_TOPIC_RECORD":
            for key in [key for key in partitions if key[0] == data["topicId"]]:
                del partitions[key]
                yield {**head, **_named(key, names), "removed": True}


def _named(key: tuple[str, int], names: dict[str, str]) -> dict[str, Any]:
    return {"topic": names[key[0]], "topicId": key[0], "partition": key[1]}


def _registered(data: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: list(data.get(name) or []) for name in LISTS},
        "leader": data["leader"], "leaderEpoch": data["leaderEpoch"], "partitionEpoch": data["partitionEpoch"],
        "leaderRecoveryState": data.get("leaderRecoveryState", 0),
        "eligibleLeaderReplicas": list(data.get("eligibleLeaderReplicas") or []),
        "lastKnownElr": list(data.get("lastKnownElr") or data.get("lastKnownELR") or []),
    }  # fmt: skip


def _merged(before: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The partition epoch grows with every record, the leader epoch with each that names a leader, be it the
    same.
    """
    now = before | {"partitionEpoch": before["partitionEpoch"] + 1}
    now |= {
        held: list(data[name]) for name, held in {**LISTS, **ELIGIBLE}.items() if data.get(name) is not None
    }
    if data.get("leader", -2) != -2:
        now |= {"leader": data["leader"], "leaderEpoch": before["leaderEpoch"] + 1}
    if data.get("leaderRecoveryState", -1) != -1:
        now["leaderRecoveryState"] = data["leaderRecoveryState"]
    return now
