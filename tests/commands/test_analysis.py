"""`sql` and `timeline` without a JVM: which queries are run, and how rows and stories are printed."""

import json
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from jobs import analysis
from jobs.analysis import (
    Story,
    cell,
    cut,
    json_lines,
    named,
    near_names,
    ordered,
    plain,
    reading,
    story_json,
    story_lines,
    text_table,
)
from jobs.errors import UsageError

AT = datetime(2026, 11, 20, 10, 9, 12, 175_000, UTC)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "select 1;",
        "  (SELECT 1) UNION ALL (SELECT 2)",
        "-- a remark; with a semicolon\nSELECT 1",
        "/* x */ WITH a AS (SELECT 1) SELECT * FROM a",
        "SHOW TABLES",
        "DESCRIBE events",
        "EXPLAIN SELECT 1",
        "VALUES (1)",
        "TABLE events",
        "FROM events SELECT topic",
        "SELECT 'a;b', \"insert into\", `delete from` FROM t",
        "SELECT 'it\\'s; DROP TABLE x'",
        "EXPLAIN INSERT INTO t SELECT 1",
    ],
)
def test_reading_statements(query: str) -> None:
    assert reading(query).rstrip(";") == query.rstrip(";")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("", "No query"),
        (" ; ", "No query"),
        ("-- only a remark", "No query"),
        ("SELECT 1; SELECT 2", "One query"),
        ("DROP TABLE events", "begins with DROP"),
        ("/* SELECT */ DELETE FROM events", "begins with DELETE"),
        ("WITH a AS (SELECT 1) INSERT INTO events SELECT * FROM a", "INSERT"),
        ("FROM events INSERT OVERWRITE TABLE x SELECT *", "INSERT"),
        ("WITH a AS (SELECT 1) MERGE /* */ INTO events USING a", "MERGE"),
        ("WITH a AS (SELECT 1) UPDATE events SET topic = 'x'", "UPDATE"),
        ("WITH a AS (SELECT 1) DELETE FROM events", "DELETE"),
        ("SET x = 1", "SET"),
        ("\x1b[31m", "no word"),
    ],
)
def test_other_statements(query: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        reading(query)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT topic FROM Events e JOIN `proof` USING (ts)", {"events", "proof"}),
        ("TABLE events", {"events"}),
        ("DESCRIBE events", {"events"}),
        ("EXPLAIN SELECT * FROM findings", {"findings"}),
        ("SELECT * FROM table_changes('findings', 0)", {"findings"}),
        ("SHOW TABLES", None),
        ("show views", None),
        ("SELECT * FROM IDENTIFIER('eve' || 'nts')", None),
    ],
)
def test_tables_in_a_query_are_registered(query: str, names: set[str] | None) -> None:
    """Of a query whose names do not stand in it all is."""
    found = named(query)
    assert names == (None if found is None else found & {"events", "proof", "findings", "coverage"})


def test_a_folder_without_tables(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="kafka-audit audit"):
            analysis.sql("SELECT 1", root)
        with pytest.raises(UsageError, match="kafka-audit audit"):
            analysis.timeline("orders-3", root, None, False)
    (tmp_path / "events" / "_delta_log").mkdir(parents=True)
    assert analysis.present(tmp_path) == ["events"]
    with pytest.raises(UsageError, match="partition_timeline"):
        analysis.timeline("orders-3", tmp_path, None, False)
    assert [path.name for path in tmp_path.iterdir()] == ["events"]


def test_cells() -> None:
    class Struct(namedtuple("Struct", "partition replica")):
        def asDict(self) -> dict[str, Any]:
            return self._asdict()

    assert cell(None) == ""
    assert cell([1, 2, 3]) == "[1,2,3]"
    assert cell([]) == "[]"
    assert cell([None, "a\n"]) == "[null,a\\n]"
    assert cell([Struct(1, None)]) == "[{partition: 1, replica: null}]"
    assert cell(AT) == "2026-11-20 10:09:12.175"
    assert cell(AT.astimezone(None).replace(tzinfo=None)) == "2026-11-20 10:09:12.175"
    assert cell(date(2026, 1, 2)) == "2026-01-02"
    assert cell(True) == "true"
    assert cell("\x1b[31m\u202e") == "\\x1b[31m\\u202e"
    assert cell(b"\x01\xff") == "01ff"
    assert cell(datetime(1, 1, 1)).startswith("0001-01-01")


def test_cut() -> None:
    assert cut("x" * 100, 100) == "x" * 100
    assert cut("x" * 101, 100) == "x" * 98 + ".."
    assert cut("漢字漢字", 5) == "漢.."


def test_text_table() -> None:
    rows = [["orders", 3, None], ["漢", 12, [1, 2]], ["y" * 200, None, None]]
    lines = list(text_table(["topic", "n", "isr"], rows))
    assert lines[0].split() == ["topic", "n", "isr"]
    assert lines[2].split() == ["orders", "3"]
    assert lines[2].index("3") == lines[3].index("12") + 1 + 1  # 漢 takes two columns
    assert len(lines[4]) == analysis.CELL
    assert list(text_table(["a"], [])) == ["a", "-"]
    assert list(text_table([], [])) == ["", ""]


def test_text_table_of_more_rows_than_are_measured() -> None:
    lines = list(text_table(["n"], ([n] for n in range(3_000))))
    assert len(lines) == 3_002
    assert lines[-1] == "2999"


def test_json_lines() -> None:
    rows = [[1, "\x1b\u202e", AT, [1, 2], float("nan"), Decimal("1.50"), {1: date(2026, 1, 2)}]]
    (line,) = json_lines(["a", "a", "ts", "isr", "f", "d", "m"], rows)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {
        "a": 1,
        "a_2": "\x1b\u202e",
        "ts": "2026-11-20T10:09:12.175Z",
        "isr": [1, 2],
        "f": "nan",
        "d": 1.5,
        "m": {"1": "2026-01-02"},
    }
    assert plain(Decimal("3.00")) == 3


def test_only_the_first_line_of_an_error() -> None:
    from jobs.engine.spark import first_line

    assert first_line(ValueError("\n[PARSE] wrong \x1b[31m\n== SQL ==\nSELECT")) == "[PARSE] wrong \\x1b[31m"
    assert first_line(ValueError()) == "ValueError"


def interval(step: int, seconds: float | None = 0, **changes: Any) -> dict[str, Any]:
    at = None if seconds is None else AT + timedelta(seconds=seconds)
    row = {
        "cluster": "c",
        "incarnation": 1,
        "topic": "orders",
        "partition": 3,
        "step": step,
        "valid_from": at,
        "valid_to": None,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1, 2, 3],
        "partition_epoch": 0,
        "replicas": [1, 2, 3],
        "adding_replicas": [],
        "removing_replicas": [],
        "state": "OnlinePartition",
        "reassignment_phase": None,
        "inferred": False,
        "record_id": "r",
        "file": f"/logs/broker-{step}/controller.log",
        "record_no": 10 + step,
    }
    return row | changes


def term(node: int, epoch: int, seconds: float | None, resigned: float | None = None) -> dict[str, Any]:
    def at(offset: float | None) -> datetime | None:
        return None if offset is None else AT + timedelta(seconds=offset)

    return {
        "incarnation": 1,
        "node": node,
        "controller_epoch": epoch,
        "elected_at": at(seconds),
        "resigned_at": at(resigned),
        "inferred": False,
    }


def test_story_marks_changed_columns() -> None:
    intervals = [
        interval(2, 5, leader=2, leader_epoch=1, isr=[2, 3], inferred=True),
        interval(1, 0),
        interval(3, 9, leader=-1, state="OfflinePartition", isr=[2, 3], reassignment_phase="A"),
    ]
    lines = story_lines(Story("c", "orders-3", intervals, [term(4, 7, 3, 8)], []), False)
    text = "\n".join(lines)
    assert all(len(line) <= analysis.WIDTH for line in lines)
    first, second, third = (line for line in lines if "controller.log:" in line)
    assert "*" not in first
    assert second.startswith("10:09:17.175~")
    assert "*2" in second
    assert "*2,3" in second
    assert "broker-2/controller.log:12" in second
    assert "*none" in third
    assert "*Offline" in third
    assert "*A" in third
    assert (
        text.index("== controller 4, epoch 7\n")
        < text.index(second)
        < text.index("epoch 7 resigns")
        < text.index(third)
    )
    assert "-- 2026-11-20 --" in lines
    assert "files are under /logs/" in lines


def test_story_fits_any_width() -> None:
    wide = [
        interval(
            n,
            n,
            isr=list(range(40)),
            replicas=list(range(40)),
            adding_replicas=[9] * 30,
            removing_replicas=[8] * 30,
            file=f"/{'deep/' * 60}{n}/x.log",
            reassignment_phase="U",
            leader_epoch=2**31 - 1,
        )
        for n in range(1, 4)
    ]
    for whole_topic in (False, True):
        story = Story("c\x1b" * 100, "t" * 249, wide, [], [])
        lines = story_lines(story, whole_topic)
        assert all(len(line) <= analysis.WIDTH or line.startswith(("files are", "f")) for line in lines)
        assert all(line.isprintable() for line in lines)


def test_story_of_a_topic_without_time_stamps() -> None:
    intervals = [interval(s, None, partition=p) for p in (1, 0) for s in (2, 1)]
    assert [(r["partition"], r["step"]) for r in ordered(intervals)] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    lines = story_lines(Story("c", "orders", intervals, [term(1, 1, None)], []), True)
    assert any("controller 1, epoch 1" in line for line in lines)


def test_story_of_two_incarnations_and_an_end() -> None:
    intervals = [interval(1, 50, valid_to=AT + timedelta(seconds=60)), interval(1, 0, incarnation=2)]
    lines = story_lines(Story("c", "orders-3", intervals, [], []), False)
    assert any("incarnation 2" in line for line in lines)
    assert any(line.endswith("the story ends") for line in lines)


def test_story_with_reassignments() -> None:
    row = {
        "incarnation": 1,
        "partition": 3,
        "started_at": AT,
        "completed_at": AT + timedelta(seconds=2),
        "outcome": "completed",
        "original_replicas": [1, 2],
        "target_replicas": [3],
    }
    lines = story_lines(Story("c", "orders-3", [interval(1)], [], [row]), False)
    assert any(line.endswith("== reassignment begins: 1,2 -> 3") for line in lines)
    assert any(line.endswith("== reassignment completed: 1,2 -> 3") for line in lines)
    refused = row | {"completed_at": None, "outcome": "never_started", "target_replicas": None}
    lines = story_lines(Story("c", "orders-3", [interval(1)], [], [refused]), False)
    assert any(line.endswith("== reassignment refused: 1,2 -> ?") for line in lines)


def test_story_as_json() -> None:
    first, second = map(
        json.loads, story_json(Story("c", "orders-3", [interval(1), interval(2, 1, leader=2)], [], []))
    )
    assert first["changed"] == []
    assert second["changed"] == ["leader"]
    assert second["valid_from"] == "2026-11-20T10:09:13.175Z"
    assert second["record_no"] == 12


def test_near_names() -> None:
    known = [("orders", n) for n in range(10)] + [("payments-2", 0)]
    assert near_names("orders-99", known) == [f"orders-{n}" for n in range(8)] + ["and 2 more"]
    assert near_names("ordes", known) == ["orders"]
    assert near_names("pay", known)[0] == "payments-2"
    assert near_names("zzz", known) == ["orders", "payments-2"]
    assert near_names("x", []) == []
