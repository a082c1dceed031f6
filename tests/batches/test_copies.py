"""A record counts as often as it was logged, however often its file was copied."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from jobs.batches.record_blocks import Last, cut_short
from jobs.landing.new_records import events_of

SECOND = "2026-11-20 10:09:{:02d} INFO  [kafka-1] ReplicationControlManager:436 - [QuorumController id=1] Replayed TopicRecord for topic {} with topic ID AAAAAAAAAAAAAAAAAAAAAQ."


def line(second: int, topic: str = "a") -> str:
    """A record of a layout without fractions of a second: Strimzi from Kafka 4.0 on."""
    return SECOND.format(second, topic)


SAID = [line(10), line(11), line(11), line(11, "b"), line(11), line(12), line(12), line(13)]


def landed(folder: Path, **files: list[str] | bytes) -> int:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else "".join(one + "\n" for one in content).encode()
        (folder / name.replace("_", ".")).write_bytes(data)
    table = events_of([str(folder)], "c")
    ids = table["record_id"].to_pylist()
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)
    return table.num_rows


PACKED = gzip.compress("".join(one + "\n" for one in SAID).encode())


@pytest.mark.parametrize(
    "files",
    [
        {"server_log": SAID},
        {"server_log": SAID, "copy_log": SAID},
        {"server_log": SAID, "server_log_1": SAID},
        {"server_log": SAID, "server_log_1_gz": PACKED},
        {"server_log": SAID, "older_log": SAID[:4], "tail_log": SAID[2:]},
        {"server_log_1": SAID[:2], "server_log": SAID[2:]},
        {"server_log_1": SAID[:3], "server_log": SAID[3:]},
        {"server_log_1": SAID[:4], "server_log": SAID[4:]},
        {"server_log_1": SAID[:4], "server_log_1_gz": gzip.compress("".join(one + "\n" for one in SAID[:4]).encode()), "server_log": SAID[4:]},
        {"server_log_1": SAID[:3], "server_log": SAID[3:], "whole_log": SAID},
        {"server_log_2": SAID[:2], "server_log_1": SAID[2:6], "server_log": SAID[6:]},
    ],
    ids=["one file", "a copy", "renamed", "packed", "overlapping", "rotated after one", "rotated after two", "rotated after three",
         "packed, too", "and the whole", "twice"],
)  # fmt: skip
def test_each_record_counts_as_often_as_it_was_logged(
    tmp_path: Path, files: dict[str, list[str] | bytes]
) -> None:
    assert landed(tmp_path / "logs", **files) == len(SAID)


def test_another_node_is_another_record(tmp_path: Path) -> None:
    other = [one.replace("id=1", "id=2") for one in SAID]
    assert landed(tmp_path / "logs", a_log=SAID, b_log=other) == 2 * len(SAID)


def last(record_id: str, raw: str, ts: str | None = "2026-11-20T10:09:12+00:00", node: int = 1) -> Last:
    return Last(record_id, "c", node, ts, raw)


def test_a_truncated_record_is_the_beginning_of_another_record() -> None:
    whole = last("whole", "text\njava.lang.Error: x\n\tat a.b")
    others = [
        last("line", "text"),
        last("middle", "text\njava.la"),
        last("other", "txt"),
        last("node", "text", node=2),
        whole,
    ]
    assert cut_short(others, [whole]) == {"line", "middle"}
    assert cut_short([whole], others) == set()
