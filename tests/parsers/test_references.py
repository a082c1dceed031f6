"""An event type that code or a check names, and that no rule has, is found by lint with its file and line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import schemas
from parsers.definitions import reference_problems
from parsers.references import unknown
from parsers.rules import SAYS, built_in

KNOWN = ("broker_started", "broker_stopped", "deletion_started")


def named(python: str = "", sql: str = "") -> list[str]:
    return unknown({"jobs/a.py": python}, {"schemas/checks/a.sql": sql}, KNOWN, {"leader_epoch"})


@pytest.mark.parametrize(
    ("rule", "places"),
    [
        ("reassignment_failed", ("jobs/operators/plans.py:", "jobs/timelines/zookeeper.py:")),
        # compared by a name that the event type was given
        ("controller_epoch_read", ("jobs/timelines/cluster_evidence.py:",)),
        # a member of a list
        ("channel_connected", ("jobs/operators/topic_assignments.py:",)),
        ("zookeeper_session_expired", ("schemas/checks/broker_down.sql:",)),
    ],
)
def test_a_renamed_rule_is_found(rule: str, places: tuple[str, ...]) -> None:
    ruleset = built_in()
    assert rule in {one.name for one in ruleset.rules}
    renamed = replace(
        ruleset,
        rules=tuple(replace(one, name=f"{rule}_x") if one.name == rule else one for one in ruleset.rules),
    )
    found = reference_problems(renamed)
    assert all(one.endswith(f": no rule has the event type {rule}") for one in found)
    for place in places:
        assert any(one.startswith(place) for one in found)
    # the line is the one that names it
    path, line, _ = found[0].split(":", 2)
    if path.startswith("schemas/checks/"):
        (check,) = (one for one in schemas.statements("checks") if path.endswith(f"/{one.name}.sql"))
        assert f"'{rule}'" in check.sql.splitlines()[int(line) - 1]


def test_the_rules_in_the_guide_have_the_word() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contributing" / "statements.md").read_text("utf-8")
    says = {rule.name: rule.says for rule in built_in().rules}
    rows = [
        (word, re.findall(r"`(\w+)`", names))
        for word, names in re.findall(r"^\| .* \| `(\w+)` \| (.*`.*) \|$", page, re.M)
    ]
    assert sorted(word for word, _ in rows) == sorted(SAYS)
    assert all(len(examples) >= 2 for _, examples in rows)
    assert all(says[example] == word for word, examples in rows for example in examples)
    assert says["stray_partitions_found"] == says["zookeeper_connection_lost"] == "is"


def test_ours_are_sound() -> None:
    assert reference_problems(built_in()) == []


@pytest.mark.parametrize(
    "python",
    [
        "x = e.event_type == 'broker_odd'",
        "x = e['event_type'] in ('broker_started', 'broker_odd')",
        "ODD = 'broker_odd'\ndef f(e): return e.event_type != ODD",
        "ODD = frozenset({'broker_odd'})\nALL = ('broker_started', *ODD)\ndef f(e):\n    kind = e.event_type\n    return kind in ALL",
        "def f(e):\n    kind, ts = e.event_type, e.ts\n    return kind == 'broker_odd'",
        "def f(e):\n    match e.event_type:\n        case 'broker_started' | 'broker_odd':\n            return 1",
        "make(event_type='broker_odd')",
        "SIGNS = {'broker_started': 1, 'broker_odd': 2}",
        "q = \"SELECT 1 FROM events WHERE event_type IN ('broker_started', 'broker_odd')\"",
    ],
)
def test_places_in_python(python: str) -> None:
    (found,) = named(python)
    assert found.startswith("jobs/a.py:")
    assert found.endswith(": no rule has the event type broker_odd")


@pytest.mark.parametrize(
    "python",
    [
        "x = 'broker_odd'",
        "COLUMNS = ('leader_epoch', 'broker_started')",
        "MESSAGES = ('no_event', 'at_all', 'broker_started')",
        "x = 'deletion_' in e.event_type",
        "ODD = {'broker_started': STATE}\nSTATE = 'odd'\ndef f(e): return e.event_type in ODD",
    ],
)
def test_other_texts_are_no_event_types(python: str) -> None:
    assert named(python) == []


@pytest.mark.parametrize(
    "sql",
    [
        "event_type = 'broker_odd'",
        "e.event_type IN ('broker_started', 'broker_odd')",
        "event_type <> 'broker_odd' OR topic = 'x_y'",
    ],
)
def test_places_in_sql(sql: str) -> None:
    assert named(sql=f"SELECT 1\nFROM events e\nWHERE {sql}") == [
        "schemas/checks/a.sql:3: no rule has the event type broker_odd"
    ]
