"""The command `assignments` and its tables, on a recording; what is wrong with its options."""

import json
from pathlib import Path

import pytest

from jobs import errors
from jobs.nightly_audit import main

SAMPLE = Path(__file__).parents[1] / "sample_logs" / "3.3.2-default" / "reassign"


@pytest.fixture(scope="module")
def audited(spark, tmp_path_factory):
    """Tables of one run over a reassignment."""
    tables = tmp_path_factory.mktemp("audited")
    assert main(["audit", str(SAMPLE), "--tables", str(tables)]) == errors.CLEAN
    return str(tables)


def printed(capsys, *arguments: str) -> list[dict]:
    assert main([*arguments, "--json"]) == errors.CLEAN
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_before_and_after_each_reassignment(audited, capsys):
    capsys.readouterr()
    rows = printed(capsys, "assignments", "orders", "--tables", audited)
    assert [(row["cause"], row["placement"], row["partitions"]) for row in rows] == [
        ("created", "manual", 4), ("reassigned", "manual", 4), ("reassigned", "manual", 4),
    ]  # fmt: skip
    assert [entry["replicas"] for entry in rows[-1]["assignment"]] == [[4, 5, 6], [0, 2, 5], [1, 2, 3], [6, 4, 1]]
    (first,) = printed(capsys, "assignments", "--tables", audited, "--at", rows[0]["valid_from"])
    assert first == rows[0]


def test_what_if_and_the_load_of_brokers(spark, audited, capsys):
    capsys.readouterr()
    rows = printed(capsys, "assignments", "--tables", audited, "--what-if", "broker=4:down", "--at", "2026-11-20T10:30:40Z")
    assert [(row["partition"], row["effect"], row["new_leader"]) for row in rows] == [(0, "loses_leader", 5)]
    query = "SELECT broker, sum(replicas) AS r, sum(leaders) AS l FROM broker_load WHERE valid_to IS NULL GROUP BY broker ORDER BY broker"
    assert [(row["broker"], row["r"], row["l"]) for row in printed(capsys, "sql", query, "--tables", audited)] == [
        (0, 1, 1), (1, 2, 1), (2, 2, 0), (3, 1, 0), (4, 2, 1), (5, 2, 0), (6, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what-if", "broker=4"], "--what-if broker=4: give it as broker=3:down"),
        (["--what-if", "broker=99:down"], "no partition has a replica on broker 99"),
        (["--at", "noon"], "--at noon: give a time"),
        (["ordres"], "No topic ordres in these tables; there is orders"),
        (["--cluster", "x"], "No cluster x in these tables; there is reassign"),
    ],
)
def test_wrong_options_are_one_sentence(audited, capsys, arguments, said):
    capsys.readouterr()
    assert main(["assignments", "--tables", audited, *arguments]) == errors.USAGE
    shown = capsys.readouterr()
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not shown.out


def test_no_tables(tmp_path, capsys):
    assert main(["assignments", "--tables", str(tmp_path / "none")]) == errors.USAGE
    assert "no such folder" in capsys.readouterr().err
