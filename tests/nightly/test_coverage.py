"""What the logs of a node and hour can show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from jobs.batches.types import table_schema
from jobs.engine import rows
from jobs.nightly import coverage
from jobs.nightly.coverage import PARTS, QUORUM_CONTROLLER, STATE_CHANGE, Hours

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONTROLLER, OTHER = "kafka.controller.KafkaController", "kafka.server.KafkaServer"
LAYOUTS = pa.map_(pa.string(), pa.int64())
SCHEMA = table_schema("coverage")


def hour(number: int | None) -> datetime | None:
    return None if number is None else NOON + timedelta(hours=number)


def events(*rows: tuple[int | None, int | None, str | None, str | None, str | None]) -> pa.Table:
    """(node, hours after noon, logger, level, event type).

    An event type of None with level DRIFTED has drifted.
    """
    schema = pa.schema([table_schema("events").field(name) for name in coverage.EVENT_COLUMNS])
    found = [
        {
            "cluster": "c", "node": node, "ts": (at is not None and hour(at) + timedelta(minutes=7)) or None, "item": 0, "logger": logger,
            "level": level, "event_type": event, "drifted": level == "DRIFTED", "layout": "default" if logger else None,
        }
        for node, at, logger, level, event in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(found, schema)


def passed_over(*hours: tuple[int | None, int | None]) -> pa.Table:
    """(node, hours after noon)"""
    schema = pa.schema(
        [
            ("cluster", pa.string()),
            ("node", pa.int32()),
            ("hour", pa.timestamp("us", "UTC")),
            ("logger", pa.string()),
            ("layout", pa.string()),
        ]
    )
    return pa.Table.from_pylist(
        [
            {"cluster": "c", "node": n, "hour": hour(at), "logger": "kafka.log", "layout": "json"}
            for n, at in hours
        ],
        schema,
    )


def covered(*args: Any, **more: Any) -> list[dict[str, Any]]:
    """args: all events, all rows of `passed_over`, stored rows."""
    given, again = list(args), more.get("again")
    if again is not None:
        given[:2] = [
            rows.where(one, again.contain(column))
            for one, column in zip(args[:2], ("ts", "hour"), strict=True)
        ]
    found = rows.to_dicts(coverage.coverage(*given, SCHEMA, **more))
    return sorted(
        found,
        key=lambda row: (row["node"] or 0, row["hour"] or NOON - timedelta(days=1), row["logger"] or ""),
    )


def shown(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(node, hours after noon, logger, records, what shows replica states, what shows changes of partitions)"""
    return [
        (
            row["node"], None if row["hour"] is None else (row["hour"] - NOON) // timedelta(hours=1), row["logger"], row["records"],
            row["replica_states"], row["partition_changes"],
        )
        for row in found
    ]  # fmt: skip


NOTHING = SCHEMA.empty_table()


def test_records_are_counted() -> None:
    some = events(
        (1, 0, CONTROLLER, "INFO", "controller_elected"), (1, 0, CONTROLLER, "INFO", None), (1, 0, CONTROLLER, "DRIFTED", None),
        (1, 0, CONTROLLER, "INFO", "controller_elected"), (None, None, None, None, None),
    )  # fmt: skip
    # a second item of one line, and the output of a tool
    more = pa.concat_tables(
        [
            some.slice(0, 1).set_column(1, "item", pa.array([1], pa.int32())),
            events((1, 0, "describe", None, "checkpoint")),
        ]
    )
    found = covered(pa.concat_tables([some, more]), passed_over((1, 0), (1, 0)), NOTHING)
    names = ("records", "recognised", "unrecognised", "drifted", "out_of_scope", "layouts")
    assert {row["logger"]: tuple(row[name] for name in names) for row in found if row["records"]} == {
        CONTROLLER: (4, 2, 1, 1, 0, [("default", 4)]),
        "kafka.log": (2, 0, 0, 0, 2, [("json", 2)]),
        None: (1, 0, 1, 0, 0, [("-", 1)]),
    }
    assert all(row["records"] == sum(row[name] for name in names[1:5]) for row in found)


def test_what_records_show() -> None:
    found = covered(
        events(
            (1, 0, STATE_CHANGE, "INFO", "x"), (1, 2, STATE_CHANGE, "INFO", "x"), (1, 2, CONTROLLER, "INFO", "x"), (1, 2, OTHER, "INFO", "x"),
            (1, None, STATE_CHANGE, "INFO", "x"),
            (2, 1, STATE_CHANGE, "TRACE", "x"), (2, 3, "kafka.cluster.Partition", "INFO", "x"),
            (3, 1, QUORUM_CONTROLLER, "INFO", "x"), (None, 1, STATE_CHANGE, "INFO", "x"),
        ),
        passed_over(), NOTHING,
    )  # fmt: skip
    assert shown(found) == [
        (None, 1, STATE_CHANGE, 1, "inferable", "observed"),
        (1, None, STATE_CHANGE, 1, "inferable", "observed"),
        (1, 0, STATE_CHANGE, 1, "inferable", "observed"),
        # inside the time span of the file nothing happened
        (1, 1, STATE_CHANGE, 0, "inferable", "observed"),
        (1, 2, CONTROLLER, 1, "inferable", "observed"),
        (1, 2, OTHER, 1, "not_logged", "not_logged"),
        (1, 2, STATE_CHANGE, 1, "inferable", "observed"),
        (1, 3, STATE_CHANGE, 0, "no_file", "no_file"),
        (2, 0, STATE_CHANGE, 0, "no_file", "no_file"),
        (2, 1, STATE_CHANGE, 1, "observed", "observed"),
        (2, 2, STATE_CHANGE, 0, "no_file", "no_file"),
        (2, 3, "kafka.cluster.Partition", 1, "not_logged", "observed"),
        (2, 3, STATE_CHANGE, 0, "no_file", "no_file"),
        # a KRaft controller that is no broker never writes a state-change.log
        (3, 1, QUORUM_CONTROLLER, 1, "not_logged", "not_logged"),
    ]


def test_a_later_run_counts_only_its_own_hours_again() -> None:
    first = events(
        (1, 0, STATE_CHANGE, "TRACE", "x"),
        (1, 1, CONTROLLER, "INFO", "x"),
        (2, 0, OTHER, "INFO", "x"),
        (1, None, OTHER, "INFO", "x"),
    )
    second = events(
        (1, 3, STATE_CHANGE, "INFO", "x"), (2, 2, OTHER, "INFO", None), (2, None, OTHER, "INFO", "x")
    )
    every, passed = pa.concat_tables([first, second]), passed_over((1, 0), (2, 3))
    whole = covered(every, passed, NOTHING)
    stored = pa.Table.from_pylist(covered(first, passed_over((1, 0)), NOTHING), SCHEMA)
    again = Hours(hour(2).replace(tzinfo=None), hour(3).replace(tzinfo=None), undated=True)
    assert covered(every, passed, stored, again=again) == whole
    # stored rows of other hours are kept: the result is the same without their events
    assert covered(
        second.filter(second["ts"].is_valid()),
        passed_over((2, 3)),
        stored,
        again=Hours(again.first, again.last, undated=False),
    ) == [
        row | {"records": 1, "unrecognised": 0, "recognised": 1, "layouts": [("default", 1)]}
        if row["hour"] is None and row["node"] == 1
        else row
        for row in whole
        if not (row["hour"] is None and row["node"] == 2)
    ]


def test_hours() -> None:
    one, other, none = (
        Hours(NOON, hour(2), undated=False),
        Hours(hour(-1), NOON, undated=True),
        Hours(None, None, undated=False),
    )
    assert one.with_others(other) == Hours(hour(-1), hour(2), undated=True)
    assert one.with_others(none) == one
    assert none.is_none
    assert not Hours(None, None, undated=True).is_none
    at = pa.table(
        {
            "at": pa.array(
                [hour(-1), NOON, hour(2) + timedelta(minutes=59), hour(3), None], pa.timestamp("us", "UTC")
            )
        }
    )
    assert rows.met(at, one.contain("at")).to_pylist() == [False, True, True, False, False]
    assert rows.met(at, ~one.contain("at")).to_pylist() == [True, False, False, True, True]
    assert rows.met(at, Hours(None, None, undated=True).contain("at")).to_pylist() == [
        False,
        False,
        False,
        False,
        True,
    ]


@pytest.mark.spark
def test_spark_counts_the_same(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_AUDIT_IN_PROCESS_ROWS", "1")
    every = events(
        *(
            (node, at, logger, "INFO", "x")
            for node in (None, 1, 2)
            for at in (None, 0, 2)
            for logger in (STATE_CHANGE, OTHER)
        )
    )
    stored = pa.Table.from_pylist(covered(every, passed_over(), NOTHING), SCHEMA)
    some, again = [every, passed_over((1, 0), (None, None)), stored], Hours(hour(2), hour(3), undated=False)
    assert (
        covered(*(rows.in_spark(spark, one) for one in some), again=again)
        == covered(*some, again=again)
        != []
    )
    assert PARTS.names[:2] == list(coverage.NODE)
