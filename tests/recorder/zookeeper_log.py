"""The truth of a ZooKeeper recording: its transaction log (FileTxnLog, jute records), a JSON object a write."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

from recorder.metadata_log import stamp

MAGIC = b"ZKLG"
HEADER = 16  # magic, version, database id
# org.apache.zookeeper.ZooDefs.OpCode
CREATE, DELETE, SET_DATA, CHECK, MULTI, CREATE2, CREATE_CONTAINER, CREATE_TTL = 1, 2, 5, 13, 14, 15, 19, 21
ERROR, CREATE_SESSION, CLOSE_SESSION = -1, -10, -11


class Jute:
    """Reads values one after the other. Raises struct.error where there are none left."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def buffer(self) -> bytes:
        length = max(self.number("i"), 0)
        self.at += length
        return self.data[self.at - length : self.at]

    def text(self) -> str:
        return self.buffer().decode()


def writes(data: bytes) -> Iterator[dict[str, Any]]:
    """time, zxid, session, op and what it has: path, value, version, ephemeral, error, timeout_ms, removes.

    multi: one of several at once.

    data: of all files of a server that began empty, one after the other.
    """
    ephemeral: dict[str, set[str]] = {}  # session -> paths
    log = Jute(data)
    while log.at < len(data):
        if data.startswith(MAGIC, log.at):
            log.at += HEADER
        log.number("q")  # checksum
        transaction = log.buffer()
        if not transaction:
            # allocated and not written: up to the next file
            following = data.find(MAGIC, log.at)
            if following < 0:
                return
            log.at = following
            continue
        log.at += 1  # end of record
        yield from _of(Jute(transaction), ephemeral)


def _of(record: Jute, ephemeral: dict[str, set[str]]) -> Iterator[dict[str, Any]]:
    session, _, zxid, milliseconds, kind = (record.number(form) for form in "qiqqi")
    head = {"time": stamp(milliseconds), "zxid": hex(zxid), "session": hex(session)}
    if kind == CLOSE_SESSION:
        yield {**head, "op": "closeSession", "removes": sorted(ephemeral.pop(head["session"], ()))}
        return
    parts = [(kind, record)]
    if kind == MULTI:
        head["multi"] = True
        parts = [(record.number("i"), Jute(record.buffer())) for _ in range(record.number("i"))]
    for part, content in parts:
        if (write := _write(part, content)) is None:
            continue
        owned = ephemeral.setdefault(head["session"], set())
        if write.get("ephemeral"):
            owned.add(write["path"])
        elif write["op"] == "delete":
            for paths in ephemeral.values():
                paths.discard(write["path"])
        yield {**head, **write}


def _write(kind: int, record: Jute) -> dict[str, Any] | None:
    """One operation; null: one that Kafka does not use."""
    if kind in (CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL):
        found = {
            "op": "create",
            "path": record.text(),
            "value": _value(record.buffer()),
            "version": 0,
            "ephemeral": False,
        }
        for _ in range(record.number("i")):  # access rights
            record.number("i"), record.text(), record.text()
        return found | ({"ephemeral": record.number("?")} if kind in (CREATE, CREATE2) else {})
    if kind == DELETE:
        return {"op": "delete", "path": record.text()}
    if kind == SET_DATA:
        return {
            "op": "setData",
            "path": record.text(),
            "value": _value(record.buffer()),
            "version": record.number("i"),
        }
    if kind == CHECK:
        return {"op": "check", "path": record.text(), "version": record.number("i")}
    if kind == ERROR:
        return {"op": "error", "error": record.number("i")}
    if kind == CREATE_SESSION:
        return {"op": "createSession", "timeout_ms": record.number("i")}
    return None


def _value(data: bytes) -> Any:
    """JSON where it is such, else text; null: none."""
    text = data.decode("utf-8", "replace")
    try:
        return json.loads(text) if text else None
    except json.JSONDecodeError:
        return text
