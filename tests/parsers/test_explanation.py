"""`kafka-audit explain`: the values of a line, how far rules and layouts match, and any input."""

import time
from pathlib import Path

import pytest

from parsers.explanation import explain, marked, reach, visible
from parsers.patterns import DefinitionError, compiled

HEAD = "[2026-03-01 12:00:00,123] TRACE [Controller id=1 epoch=5] "
TAIL = " (state.change.logger)"
CHANGE = "Changed state of replica 3 for partition orders-12 from OnlineReplica to OfflineReplica"


def test_claimed_record_with_every_value() -> None:
    explained = explain(HEAD + CHANGE + TAIL, None)
    assert "log4j_default" in explained
    assert "2026-03-01 12:00:00.123" in explained
    assert "state.change.logger (in scope)" in explained
    assert "node = 1, controller = 1, controller_epoch = 5" in explained
    assert "replica_state_changed (parsers/events/replica_state_machine.toml), says: happened" in explained
    values = {tuple(line.split()[:3]) for line in explained.splitlines()}
    assert ("partition", "INT", "12") in values
    assert ("from_state", "STRING", "OnlineReplica") in values


def test_error_and_further_lines() -> None:
    explained = explain(
        f"{HEAD}x{TAIL}\nkafka.common.StateChangeFailedException: no \x1b[31m leader\n\tat a.B", None
    )
    assert "kafka.common.StateChangeFailedException" in explained
    assert "no  leader" in explained  # colours are left out, as they are when logs are read
    assert "\x1b" not in explained
    assert "\x1b" not in explained


def test_list_gives_items() -> None:
    explained = explain(
        "[2026-11-20 10:19:00,901] INFO [Controller id=5] Removing partitions Map(ledger-0 -> Buffer(3), "
        "ledger-1 -> Buffer(3, 4, 5)) from the list of reassigned partitions in zookeeper "
        "(kafka.controller.KafkaController)",
        None,
    )
    assert "2, one event each" in explained
    assert "ARRAY<INT>  [3,4,5]" in explained


def test_drift_is_marked_where_it_begins() -> None:
    drifted = CHANGE.replace(" to ", " into ")
    lines = explain(HEAD + drifted + TAIL, None).splitlines()
    assert any("drift" in line and "rule replica_state_changed" in line for line in lines)
    at = next(number for number, line in enumerate(lines) if "^ matched up to here" in line)
    assert lines[at - 1].strip() == drifted
    assert lines[at - 1][lines[at].index("^") :] == "into OfflineReplica"


def test_unrecognised_and_out_of_scope() -> None:
    assert "No rule begins like it" in explain(f"{HEAD}~~~{TAIL}", None)
    alike = explain(HEAD + CHANGE.replace("Changed state", "Chenged stats") + TAIL, None)
    assert "replica_state_changed" in alike
    assert "out of scope" in explain("[2026-03-01 12:00:00,123] INFO x (kafka.nothing.Known)", None)


def test_several_records_and_lines_without_a_head() -> None:
    explained = explain(f"before\n{HEAD}{CHANGE}{TAIL}\n\tat x\n{HEAD}{CHANGE}{TAIL}", None)
    assert explained.count("rule          replica_state_changed") == 2
    assert "No layout has a line with such a head" in explained
    assert "line 4" in explained


def test_head_of_a_cut_line() -> None:
    explained = explain(HEAD + CHANGE, None)
    assert "the rest of the line does not fit" in explained


def test_layouts_show_how_far_they_match() -> None:
    explained = explain("[2026-03-01 12:00:00,123] LOUD hello", None).splitlines()
    at = next(number for number, line in enumerate(explained) if "^ matched" in line)
    assert explained[at - 1][explained[at].index("^") :].startswith("LOUD")


@pytest.mark.parametrize(
    ("pattern", "text", "at", "expected"),
    [
        (r"a(?<x>b\d+)c", "ab12x", 4, "c"),
        (r"a(?:b|c)d", "axd", 1, "(?:b|c)d"),
        (r"ab", "abc", 2, ""),
        (r"(?<items>.*) from", "one two", 4, "from"),
        (r"(?<items>.*)from", "one two", 0, "(?<items>.*)from"),
        (r"a|b", "c", 0, "a|b"),
        (r"x\(y[()]*z", "x(y()q", 5, "z"),
    ],
)
def test_reach(pattern: str, text: str, at: int, expected: str) -> None:
    got = reach(compiled(pattern), text)
    assert (got.at, got.expected) == (at, expected)


def test_long_statements_are_cut_around_the_mark() -> None:
    text, caret = marked("x" * 5_000 + "HERE" + "y" * 5_000, 5_000, "  ")
    assert len(text) < 120
    assert text[caret.index("^") :].startswith("HERE")
    text, caret = marked("\x1b漢字HERE", 3, "")
    assert caret.index("^") == len("\\x1b") + 4


def test_visible() -> None:
    assert visible("a\tb\x07\u202e\udcff\U000e0001") == "a\\tb\\x07\\u202e\\udcff\\U000e0001"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "\x00",
        "\x00\n" * 1000,
        "\udcff\udcfe",
        "\u202e(kafka.x.Y)",
        "(",
        "[" * 5_000,
        "\x01" + HEAD,
        "x" * 10_000_000,
        HEAD + "x" * 10_000_000 + TAIL,
        HEAD + "x" * 10_000_000,
        HEAD + CHANGE + TAIL + "\n" + "a." * 5_000_000,
        HEAD + CHANGE + "1" * 200_000 + TAIL,
        "\r\n".join([HEAD + CHANGE + TAIL] * 3),
    ],
    ids=range(15),
)
def test_any_input_is_explained_in_time(text: str) -> None:
    began = time.perf_counter()
    explained = explain(text, None)
    assert explained
    assert len(explained) < 20_000
    explained.encode("utf-8")
    assert all(line.isprintable() for line in explained.split("\n"))
    assert time.perf_counter() - began < 10


def test_own_rules(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        "loggers = [\"own.Logger\"]\n[own_rule]\nstarts = \"Own \"\npattern = '''Own (?<broker>\\d+)'''\nsays = 'is'\n"
    )
    explained = explain("[2026-03-01 12:00:00,123] INFO Own 7 (own.Logger)", tmp_path)
    assert "own_rule (own.toml)" in explained
    with pytest.raises(DefinitionError, match="no such folder"):
        explain("x", tmp_path / "missing")
