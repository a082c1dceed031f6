"""The commands assignments, reassignment and durability, their tables, and checkpoints, on a recording.

Errors of their options.
"""

import json
import re
from pathlib import Path

import pytest

from jobs import errors
from jobs.nightly_audit import main

SAMPLE = Path(__file__).parents[2] / "sample_logs" / "3.3.2-default" / "reassign"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operators.md"


@pytest.fixture(scope="module")
def audited(spark, tmp_path_factory):
    """Tables of one run over a reassignment."""
    tables = tmp_path_factory.mktemp("audited")
    assert main(["audit", str(SAMPLE), "--tables", str(tables)]) == errors.CLEAN
    return str(tables)


def printed(capsys, *arguments: str) -> list[dict]:
    assert main([*arguments, "--json"]) == errors.CLEAN
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_assignments_before_and_after_each_reassignment(audited, capsys):
    capsys.readouterr()
    rows = printed(capsys, "assignments", "orders", "--tables", audited)
    assert [(row["cause"], row["placement"], row["partitions"]) for row in rows] == [
        ("created", "manual", 4), ("reassigned", "manual", 4), ("reassigned", "manual", 4),
    ]  # fmt: skip
    assert [entry["replicas"] for entry in rows[-1]["assignment"]] == [
        [4, 5, 6],
        [0, 2, 5],
        [1, 2, 3],
        [6, 4, 1],
    ]
    (first,) = printed(capsys, "assignments", "--tables", audited, "--at", rows[0]["valid_from"])
    assert first == rows[0]


def test_what_if_and_the_load_of_brokers(spark, audited, capsys):
    capsys.readouterr()
    rows = printed(
        capsys,
        "assignments",
        "--tables",
        audited,
        "--what-if",
        "broker=4:down",
        "--at",
        "2026-11-20T10:30:40Z",
    )
    assert [(row["partition"], row["effect"], row["new_leader"]) for row in rows] == [(0, "loses_leader", 5)]
    query = "SELECT broker, sum(replicas) AS r, sum(leaders) AS l FROM broker_load WHERE valid_to IS NULL GROUP BY broker ORDER BY broker"
    assert [(row["broker"], row["r"], row["l"]) for row in printed(capsys, "sql", query, "--tables", audited)] == [
        (0, 1, 1), (1, 2, 1), (2, 2, 0), (3, 1, 0), (4, 2, 1), (5, 2, 0), (6, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--what-if", "broker=4"], "--what-if broker=4: give it as broker=3:down"),
        (["--what-if", "broker=99:down"], "no partition has a replica on broker 99"),
        (["--at", "noon"], "--at noon: give a time"),
        (["ordres"], "No topic ordres in these tables; there is orders"),
        (["--cluster", "x"], "No cluster x in these tables; there is reassign"),
    ],
)
def test_wrong_options_are_one_line(audited, capsys, arguments, message):
    capsys.readouterr()
    assert main(["assignments", "--tables", audited, *arguments]) == errors.USAGE
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not shown.out


def test_no_tables(tmp_path, capsys):
    assert main(["assignments", "--tables", str(tmp_path / "none")]) == errors.USAGE
    assert "no such folder" in capsys.readouterr().err


PLAN = {"orders": {0: [4, 5, 6], 1: [0, 2, 5], 2: [1, 2, 3], 3: [6, 4, 1]}}


@pytest.fixture
def plan(tmp_path):
    """Writes a plan and gives its path."""

    def write(moves: dict[str, dict[int, list[int]]]) -> str:
        partitions = [
            {"topic": t, "partition": p, "replicas": r} for t, rows in moves.items() for p, r in rows.items()
        ]
        (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(tmp_path / "plan.json")

    return write


def test_the_outcome_of_a_plan(audited, plan, capsys):
    capsys.readouterr()
    rows = printed(capsys, "reassignment", plan(PLAN), "--tables", audited)
    assert [(row["partition"], row["status"]) for row in rows] == [
        (0, "completed"),
        (1, "completed"),
        (2, "completed"),
        (3, "completed"),
    ]
    columns = {
        "topic",
        "partition",
        "target_replicas",
        "status",
        "phase",
        "started_at",
        "caught_up_at",
        "completed_at",
        "waiting_for",
        "reason",
    }
    assert columns <= rows[0].keys()
    during = ["reassignment", plan(PLAN), "--tables", audited, "--at", "2026-11-20T10:30:11Z"]
    assert main([*during, "--json"]) == errors.FINDINGS
    found = {row["partition"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (found[0]["status"], found[0]["phase"], found[2]["status"], found[3]["status"]) == (
        "running",
        "A",
        "completed",
        "not_requested",
    )
    assert main([*during, "--format", "verify-old"]) == errors.FINDINGS
    assert "Reassignment of partition orders-0 is still in progress\n" in capsys.readouterr().out
    assert main(["reassignment", plan(PLAN), "--tables", audited, "--rollback"]) == errors.CLEAN
    assert json.loads(capsys.readouterr().out)["partitions"][0]["replicas"] == [1, 2, 3]


def test_a_plan_that_kraft_at_info_does_not_log(spark, tmp_path, plan, capsys):
    sample = Path(__file__).parents[2] / "sample_logs" / "4.3.0-kraft" / "reassign"
    # the folder has a dump of the metadata log, which shows each change
    for name, logs, shrinks in (
        ("text", sorted(sample.glob("node-*")), "not_known"),
        ("dump", [sample], "not_requested"),
    ):
        tables = str(tmp_path / name)
        main(["audit", *map(str, logs), "--cluster", "c", "--tables", tables])
        capsys.readouterr()
        replicated = "SELECT topic, partition, replicas FROM partitions_now WHERE size(replicas) > 1 ORDER BY topic, partition"
        row = printed(capsys, "sql", replicated, "--tables", tables)[0]
        replicas = row["replicas"]
        for target, status in (
            (replicas[1:], shrinks),
            (replicas[::-1], shrinks),
            ([*replicas, 99], "not_requested"),
        ):
            asked = ["reassignment", plan({row["topic"]: {row["partition"]: target}}), "--tables", tables]
            assert main([*asked, "--json"]) == errors.FINDINGS
            (found,) = map(json.loads, capsys.readouterr().out.splitlines())
            assert (found["status"], found["target_replicas"]) == (status, target)
            assert ("KRaft controllers at INFO do not log" in found["reason"]) == (status == "not_known")
            assert main([*asked, "--format", "verify"]) == errors.FINDINGS
            assert ("is not known: KRaft controllers" in capsys.readouterr().err) == (status == "not_known")


EARLIER = {"orders": {0: [4, 5, 6], 1: [2, 3, 4], 2: [1, 2, 3], 3: [6, 4, 5]}}
RUNNING = """\
4 partitions of the plan in reassign at 2026-11-20 10:30:13 UTC
partition  to     status     ph  begun                    caught up                completed                seconds U/A/B
---------  -----  ---------  --  -----------------------  -----------------------  -----------------------  -------------
orders-0   4,5,6  running    A   2026-11-20 10:30:08 UTC                                                    0.008/4.757/-
orders-1   2,3,4  running    A   2026-11-20 10:30:08 UTC                                                    0.059/4.625/-
orders-2   1,2,3  completed      2026-11-20 10:30:08 UTC  2026-11-20 10:30:08 UTC  2026-11-20 10:30:08 UTC
orders-3   6,4,5  running    A   2026-11-20 10:30:08 UTC                                                    0.151/4.228/-

orders-0: waits for 4
orders-1: waits for 4
orders-3: waits for 6,4,5
1 completed, 3 running
Logged offsets: 320 in 4 partitions (records, not bytes; the logs show no bytes)
Expected end: 2026-11-20 10:30:25 UTC, an estimate from the pace so far: 2 of 7 added replicas are in the ISR
"""


def test_the_end_of_a_plan_is_estimated_from_its_pace(audited, plan, capsys):
    during = ["reassignment", plan(EARLIER), "--tables", audited, "--at", "2026-11-20T10:30:13.200Z"]
    capsys.readouterr()
    assert main(during) == errors.FINDINGS
    assert "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n" == RUNNING
    assert "".join(f"    {line}\n" if line else "\n" for line in RUNNING.splitlines()) in GUIDE.read_text(
        "utf-8"
    )
    assert main([*during, "--json"]) == errors.FINDINGS
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    end = "2026-11-20T10:30:25.112Z"
    assert [(row["partition"], row["expected_end"], row["offset"]) for row in rows] == [
        (0, end, 80),
        (1, end, 80),
        (2, None, 80),
        (3, end, 80),
    ]


def test_a_file_that_is_no_plan_is_a_one_line_error(audited, plan, tmp_path, capsys):
    capsys.readouterr()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for given, message in [
        (str(tmp_path / "nowhere.json"), "No such file"),
        (str(tmp_path / "broken.json"), "is no JSON"),
        (str(tmp_path / "binary"), "is no text"),
        (plan({"ordres": {0: [1]}}), "No log knows a topic of the plan (ordres)"),
    ]:
        assert main(["reassignment", given, "--tables", audited]) == errors.USAGE
        shown = capsys.readouterr()
        assert message in shown.err
        assert len(shown.err.splitlines()) == 1
        assert not shown.out


def test_seconds_of_durability(audited, tmp_path, capsys):
    capsys.readouterr()
    (whole,) = printed(capsys, "durability", "--tables", audited)
    (day,) = printed(capsys, "durability", "orders", "--tables", audited, "--by-day")
    assert (whole["day"], day["day"]) == (None, "2026-11-20")
    assert {name: value for name, value in whole.items() if name != "day"} == {
        name: value for name, value in day.items() if name != "day"
    }
    assert whole["covered"] == pytest.approx(
        whole["full_isr"] + whole["under_replicated"] + whole["leaderless"], abs=0.01
    )
    each = printed(capsys, "durability", "orders", "--tables", audited, "--partitions")
    assert [row["partition"] for row in each] == [0, 1, 2, 3]
    assert sum(row["covered"] for row in each) == pytest.approx(whole["covered"], abs=0.01)
    goals = tmp_path / "audit.toml"
    goals.write_text("[[slo]]\navailability = 100\n")
    assert main(["durability", "--tables", audited, "--config", str(goals)]) == errors.FINDINGS
    assert "the goal is 100 %: MISSED" in capsys.readouterr().out
    assert main(["durability", "--tables", audited, "--partitions"]) == errors.USAGE


DESCRIBED = "Topic: orders\tPartitionCount: 4\tReplicationFactor: 3\tConfigs: \n" + "".join(
    f"\tTopic: orders\tPartition: {p}\tLeader: {rows[0]}\tReplicas: {','.join(map(str, rows))}\tIsr: {','.join(map(str, rows))}\n"
    for p, rows in {0: [4, 5, 6], 1: [2, 0, 5], 3: [6, 4, 1], 9: [1, 2, 3]}.items()
)
AT = ["--at", "2026-11-20T10:30:40Z"]


def test_a_checkpoint_of_kafka_topics(audited, tmp_path, capsys):
    file = tmp_path / "describe.txt"
    file.write_text(DESCRIBED)
    # among the logs is one that agrees, with the time in its name
    logs = [str(SAMPLE), str(tmp_path / "describe-20261120T103041Z.txt")]
    Path(logs[1]).write_text(DESCRIBED.replace("Replicas: 2,0,5", "Replicas: 0,2,5"))
    checkpoints = "SELECT partition, differs FROM checkpoints ORDER BY taken_at, partition"
    findings = "SELECT topic, partition, status FROM findings WHERE check_id = 'checkpoint_differs'"
    begun = (
        "SELECT t.partition, step, t.leader, date_format(valid_from, 'HH:mm:ss') AS since, inferred, source, item FROM partition_timeline t "
        "JOIN events e USING (record_id) WHERE source <> 'logs'"
    )
    kept = "SELECT count(*) AS lines, (SELECT count(*) FROM coverage WHERE logger = 'describe') AS hours FROM events WHERE event_type = 'checkpoint'"
    for status in ("new", "open"):  # a second run with the same files changes nothing
        assert main(["audit", *logs, "--tables", audited, "--checkpoint", str(file), *AT]) == errors.CLEAN
        capsys.readouterr()
        assert printed(capsys, "sql", checkpoints, "--tables", audited) == [
            {"partition": partition, "differs": differs}
            for replicas in (["replicas"], [])
            for partition, differs in ((0, []), (1, replicas), (3, []), (9, ["partition"]))
        ]
        assert printed(capsys, "sql", findings, "--tables", audited) == [
            {"topic": "orders", "partition": 1, "status": status}
        ]
        # a partition that no log names has one interval, from the tool; its record is in `events`
        assert printed(capsys, "sql", begun, "--tables", audited) == [
            {
                "partition": 9,
                "step": 1,
                "leader": 1,
                "since": "10:30:40",
                "inferred": False,
                "source": "describe",
                "item": 0,
            }
        ]
        assert printed(capsys, "sql", kept, "--tables", audited) == [{"lines": 8, "hours": 0}]
    # the last state of a partition that no log names is that of the tool
    now = "SELECT partition, leader, source FROM partitions_now WHERE source <> 'logs'"
    assert printed(capsys, "sql", now, "--tables", audited) == [
        {"partition": 9, "leader": 1, "source": "describe"}
    ]


def test_a_checkpoint_of_the_quorum(spark, tmp_path, capsys):
    logs, tables, file = (
        str(SAMPLE.parents[1] / "4.3.0-kraft" / "reassign"),
        str(tmp_path / "tables"),
        tmp_path / "quorum.txt",
    )
    command = ["audit", logs, "--tables", tables, "--checkpoint", str(file), "--at", "2026-11-22T21:53:50Z"]
    page = tmp_path / "report.html"
    command += ["--report", str(page)]
    file.write_text(
        "ClusterId:              5zFhN5T3RWu8hAobBQP26g\nLeaderId:               3\nLeaderEpoch:            1\nHighWatermark:          45\n"
        "MaxFollowerLag:         0\nMaxFollowerLagTimeMs:   0\nCurrentVoters:          [1,2,3]\nCurrentObservers:       []\n"
    )
    assert main(command) in (errors.CLEAN, errors.FINDINGS)
    capsys.readouterr()
    columns = "leader, leader_epoch, replicas, observers, high_watermark, lag, differs"
    assert printed(capsys, "sql", f"SELECT {columns} FROM checkpoints", "--tables", tables) == [
        {
            "leader": 3,
            "leader_epoch": 1,
            "replicas": [1, 2, 3],
            "observers": [],
            "high_watermark": 45,
            "lag": 0,
            "differs": ["leader"],
        }
    ]
    (found,) = printed(
        capsys, "sql", "SELECT detail FROM findings WHERE check_id = 'checkpoint_differs'", "--tables", tables
    )
    assert found["detail"] == (
        "At 2026-11-22 21:53:50 UTC quorum showed leader 3, leader epoch 1, ISR ?, replicas 1, 2 and 3 (quorum.txt, line 1). The logs "
        "show: leader 2 in epoch 1 since 2026-11-22 21:53:41 UTC."
    )
    assert "Durability by topic and day (UTC)" in page.read_text("utf-8")
    assert main(command) in (errors.CLEAN, errors.FINDINGS)
    assert re.search(r"2026-11-22: \d+(\.\d)? % full ISR", page.read_text("utf-8"))
    capsys.readouterr()
    # the quorum has no timeline
    assert (
        printed(
            capsys, "sql", "SELECT * FROM partition_timeline WHERE topic LIKE '%metadata'", "--tables", tables
        )
        == []
    )
    file.write_text(file.read_text().replace("5zFh", "6zFh"))
    assert main(command) == errors.USAGE
    errors_shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors_shown) == 1
    assert errors_shown[0].endswith("quorum.txt (6zFhN5T3RWu8hAobBQP26g); is it of another cluster?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ordres"], "No topic ordres in these tables; there is orders"),
        (["--cluster", "x"], "No cluster x in these tables; there is reassign"),
        (["--days", "noon"], "--day takes 2026-03-01, --days 2026-03-01..2026-03-07"),
        (["--days", "2026-03-02..2026-03-01"], "the last day is before the first"),
        (["--partitions"], "--partitions is about one topic; name it"),
        (
            ["orders", "--partitions", "--days", "2026-03-01"],
            "--partitions is about the whole span; leave out --days",
        ),
        (["--config", "HERE/nowhere.toml"], "nowhere.toml"),
        (["--config", "HERE/broken.toml"], "broken.toml"),
    ],
)
def test_wrong_options_of_durability_are_one_line(audited, capsys, tmp_path, arguments, message):
    (tmp_path / "broken.toml").write_text("[[slo]]\navailability = 'high'\n")
    capsys.readouterr()
    assert (
        main(["durability", "--tables", audited, *(one.replace("HERE", str(tmp_path)) for one in arguments)])
        == errors.USAGE
    )
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert message in line


def test_a_file_that_is_no_checkpoint_is_a_one_line_error(audited, tmp_path, capsys):
    file = tmp_path / "describe.txt"
    tools = "SELECT (SELECT count(*) FROM checkpoints) AS kept, (SELECT count(*) FROM events WHERE event_type = 'checkpoint') AS landed"
    capsys.readouterr()
    before = printed(capsys, "sql", tools, "--tables", audited)
    for text, more, message in [
        ("hello", AT, "is no output of kafka-topics --describe"),
        (DESCRIBED, [], "has no time at which the tool was run; give it with --at TIME"),
        (DESCRIBED.replace("orders", "ordres"), AT, "is it of another cluster?"),
    ]:
        file.write_text(text)
        capsys.readouterr()
        assert (
            main(["audit", str(SAMPLE), "--tables", audited, "--checkpoint", str(file), *more])
            == errors.USAGE
        )
        shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert len(shown) == 1
        assert message in shown[0]
    assert printed(capsys, "sql", tools, "--tables", audited) == before


def test_a_partition_that_only_a_tool_shows_may_be_leaderless(audited, tmp_path, capsys):
    """It is a finding, with the tool's line as evidence.

    A checkpoint after the end of the logs gives none yet.
    """
    file = tmp_path / "describe.txt"
    file.write_text("\tTopic: orders\tPartition: 20\tLeader: none\tReplicas: 1,2\tIsr: 1\n")
    query = (
        "SELECT f.partition, e.event_type, e.raw FROM (SELECT *, explode(evidence) AS record_id FROM findings WHERE status <> 'resolved') f "
        "JOIN events e USING (record_id) WHERE check_id = 'partition_leaderless' AND f.partition = 20"
    )
    for at, proofs in [
        ("2027-01-01T00:00:00Z", []),
        ("2026-11-20T10:30:20Z", [{"partition": 20, "event_type": "checkpoint"}]),
    ]:
        code = main(["audit", str(SAMPLE), "--tables", audited, "--checkpoint", str(file), "--at", at])
        assert code == (errors.FINDINGS if proofs else errors.CLEAN)
        capsys.readouterr()
        found = printed(capsys, "sql", query, "--tables", audited)
        assert found == [one | {"raw": file.read_text().rstrip("\n")} for one in proofs]
