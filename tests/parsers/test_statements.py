"""Every statement of the catalogues matches a rule that reads it whole, with its values in columns."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from statements import NOT_TYPED, Reading, kraft_examples, read_line, readings, reason

# lines of Kafka that the catalogues do not have, and wordings of some versions only
WORDINGS = Path(__file__).parents[1] / "wordings.txt"


@pytest.mark.parametrize(
    "line", [line for line in WORDINGS.read_text("utf-8").splitlines() if line[:1] == "["]
)
def test_a_wording_of_a_released_version_is_known(line):
    assert not read_line(line)[0]["drifted"]


# all statements of these loggers are read, at any level
CLIENTS_AND_SETTINGS = ("clients.NetworkClient)", "clients.ClusterConnectionStates)", "server.KafkaConfig)")


@pytest.mark.parametrize(
    "line", [line for line in WORDINGS.read_text("utf-8").splitlines() if line.endswith(CLIENTS_AND_SETTINGS)]
)
def test_clients_and_settings_have_a_rule_for_each_statement(line):
    (event,) = read_line(line)
    assert event["event_type"] is not None
    assert not any(event.get(column) for column in ("topic", "partition", "leader", "isr"))


@pytest.mark.shared
def test_no_statement_of_a_released_version_drifts(shared):
    """Also statements that are not about partitions: a line that begins like a rule is read by it."""
    found = readings(least_relevance=1)
    assert len(found) == 3081
    assert [r.rendering.line for r in found if r.drifted] == []


@pytest.fixture(scope="module")
def all_readings(shared) -> list[Reading]:
    return readings()


@pytest.mark.shared
def test_both_catalogues_have_statements(all_readings):
    of = Counter(reading.rendering.statement.catalogue for reading in all_readings)
    assert of == {"zk": 1223, "broker": 1183}


@pytest.mark.shared
def test_every_statement_is_read_whole(all_readings):
    assert [r.rendering.line for r in all_readings if not r.rules or r.drifted] == []


@pytest.mark.shared
def test_values_have_a_column_or_a_reason(all_readings):
    lost = {
        (r.rules[0], name): r.rendering.line
        for r in all_readings
        if r.rules
        for name in r.lost
        if reason(r, name) is None
    }
    assert lost == {}


@pytest.mark.shared
def test_every_reason_is_needed(all_readings):
    given = {(r.rules[0], name) for r in all_readings if r.rules for name in r.lost}
    idle = [
        why
        for why in NOT_TYPED
        if not any(re.fullmatch(why[0], rule) and re.fullmatch(why[1], name) for rule, name in given)
    ]
    assert idle == []


@pytest.mark.shared
def test_one_rule_for_a_statement(all_readings):
    """A family may be several rules; one rendering matches one rule."""
    assert [r for r in all_readings if len(r.rules) > 1] == []


@pytest.mark.shared
@pytest.mark.parametrize("name_and_line", kraft_examples(), ids=lambda pair: pair[0])
def test_kraft_example(name_and_line):
    events = read_line(name_and_line[1])
    assert events[0]["event_type"] is not None
    assert not events[0]["drifted"]
