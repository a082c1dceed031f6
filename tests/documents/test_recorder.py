"""The recorder without a cluster: the truth that it writes, and errors in scenarios, versions and statements."""

import json
import struct
from pathlib import Path

import pytest
from logs import PARSER, records
from recorder import metadata_log, versions, zookeeper_log
from recorder.jars import RecorderError, dependencies, numbers
from recorder.record import SCENARIOS, check, forget, log4j_properties, main, scenario_of, unknown_statements

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "sample_logs" / "3.9.1-kraft" / "controller-failover"
NEWEST = ROOT / "sample_logs" / "4.3.0-kraft" / "reassign"


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_of_a_dump():
    found = list(metadata_log.records((RECORDED / "metadata-log.txt").read_text().splitlines()))
    assert found == rows(RECORDED / "metadata-log.jsonl")


def test_partitions_after_each_record():
    assert list(metadata_log.timeline(rows(RECORDED / "metadata-log.jsonl"))) == rows(
        RECORDED / "timeline.jsonl"
    )


def jute(*values: int | bool | bytes | str, longs: tuple[int, ...] = ()) -> bytes:
    """Return values in ZooKeeper's encoding. longs: places of the numbers that are long."""
    encoded = b""
    for place, value in enumerate(values):
        if isinstance(value, bool):
            encoded += struct.pack(">?", value)
        elif isinstance(value, int):
            encoded += struct.pack(">q" if place in longs else ">i", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            encoded += struct.pack(">i", len(data)) + data
    return encoded


def test_writes_of_a_transaction_log():
    def log(*records: bytes) -> bytes:
        written = [struct.pack(">q", 0) + jute(record) + b"B" for record in records]
        return b"ZKLG" + bytes(12) + b"".join(written) + bytes(40)  # allocated, not written

    def record(zxid: int, kind: int, content: bytes) -> bytes:
        return jute(7, zxid, zxid, 1_795_170_584_000, kind, longs=(0, 2, 3)) + content

    rights = (1, 31, "world", "anyone")
    created = jute("/controller", b'{"brokerid": 5}', *rights, True, 0)
    both = jute(2, 5, jute("/controller_epoch", b"2", 1)) + jute(13, jute("/x", 4))
    data = log(record(1, -10, jute(6000)), record(2, 1, created), record(3, 14, both)) + log(
        record(4, 2, jute("/y")), record(5, -1, jute(-101)), record(6, -11, b"")
    )
    found = [
        {name: v for name, v in row.items() if name not in ("time", "session", "zxid")}
        for row in zookeeper_log.writes(data)
    ]
    assert found == [
        {"op": "createSession", "timeout_ms": 6000},
        {"op": "create", "path": "/controller", "value": {"brokerid": 5}, "version": 0, "ephemeral": True},
        {"multi": True, "op": "setData", "path": "/controller_epoch", "value": 2, "version": 1},
        {"multi": True, "op": "check", "path": "/x", "version": 4},
        {"op": "delete", "path": "/y"},
        {"op": "error", "error": -101},
        {"op": "closeSession", "removes": ["/controller"]},
    ]


def test_every_scenario_can_be_run():
    for path in SCENARIOS.glob("*.toml"):
        assert scenario_of(path)["step"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes = [", "Invalid"),
        ("nodes = []", "one to six"),
        ("nodes = [1]\n[[step]]\ndo = 'dance'", "do is 'dance'; known are create"),
        ("nodes = [1]\n[[step]]\ndo = 'kill'", "node is missing"),
        ("nodes = [1]\n[[step]]\ndo = 'kill'\nnode = 2", "there is no node 2"),
        ("nodes = [1]\n[[step]]\ndo = 'kill'\nnode = 'all'", "there is no node all"),
        ("nodes = [1]\ncontrollers = ['x']", "controllers must be a list"),
        ("nodes = [1]\nlog_dirs = 0", "log_dirs must be a number"),
        ("nodes = [1]\n[[step]]\ndo = 'break'\nnode = 1", "one log directory"),
        ("nodes = [1]\n[[step]]\ndo = 'describe'\nnow = 1", "unknown key 'now'"),
        ("nodes = [1]\n[[step]]\ndo = 'migrate'\nto = 'hybrid'", "controllers are needed"),
        (
            "nodes = [1]\ncontrollers = [2]\n[[step]]\ndo = 'migrate'\nto = '4.0'",
            "to is one of hybrid, kraft, finalized",
        ),
    ],
)
def test_scenarios_that_are_refused(tmp_path, text, why):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(RecorderError, match=why):
        scenario_of(tmp_path / "s.toml")


def test_wrong_versions_and_scenarios_are_one_line_errors(tmp_path, capsys):
    for version, scenario, message in [
        ("4", "reassign", "no Kafka version"),
        ("2.8.2", "reassign", "no kraft mode"),
        ("4.3.0", "x", f"there is {min(path.stem for path in SCENARIOS.glob('*.toml'))}, "),
    ]:
        assert main(["--kafka", version, "--scenario", scenario, "--into", str(tmp_path)]) == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert len(shown.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_jars_by_version():
    assert {name for _, name, _ in dependencies("3.3.2")} == {"kafka_2.13", "kafka-tools", "slf4j-reload4j"}
    assert {name for _, name, _ in dependencies("4.3.0")} == {
        "kafka_2.13",
        "kafka-tools",
        "log4j-slf4j-impl",
        "log4j-core",
    }
    # before 2.4 there is no Scala 2.13; ZooKeeper's client before 2.6 cannot connect on a current Java
    assert {name for _, name, _ in dependencies("2.1.1")} == {
        "kafka_2.12",
        "kafka-tools",
        "slf4j-reload4j",
        "zookeeper",
    }
    assert numbers("4.10.0") > numbers("4.9.9")


@pytest.mark.parametrize(
    ("version", "mode"), [("3.9.1", "kraft"), ("3.9.1", "zookeeper"), ("4.3.0", "kraft")]
)
def test_loggers_have_the_level_of_the_recording(version, mode):
    for level, level_name in (("default", "INFO"), ("trace", "TRACE")):
        _, text = log4j_properties(version, mode, level, "/x")
        lines = text.splitlines()
        for logger, least in (("state.change.logger", level_name), ("kafka.cluster.Partition", level_name)):
            names = [
                line.split(".")[1]
                for line in lines
                if line.startswith("logger.") and line.endswith(f".name = {logger}")
            ]
            starts = [f"log4j.logger.{logger}=", *(f"logger.{name}.level" for name in names)]
            (line,) = [line for line in lines if line.startswith(tuple(starts))]
            assert least in line


def test_recordings_name_nothing_of_this_machine(tmp_path):
    (tmp_path / "node-1").mkdir()
    log = tmp_path / "node-1" / "server.log"
    log.write_bytes(
        b"INFO Client environment:user.home=/home/x\nLog directory /tmp/w/data-1 of /tmp/w\xff, /tmp/other\n"
    )
    forget(tmp_path, [Path("/tmp/w")])
    assert log.read_bytes() == b"Log directory /data-1 of \xff, /tmp/other\n"


def test_statements_that_no_rule_knows_are_named(tmp_path):
    folder = tmp_path / "node-1"
    folder.mkdir()
    line = "[2026-11-20 10:12:50,566] INFO [QuorumController id=1] {} (org.apache.kafka.controller.ReplicationControlManager)\n"
    (folder / "controller.log").write_text(
        line.format("Danced with partition 7") + line.format("Danced with partition 8")
    )
    ((kind, count, example),) = unknown_statements(tmp_path)
    assert (kind, count) == ("unrecognised", 2)
    assert "Danced with partition 7" in example


def test_the_recording_of_the_newest_version_is_right(capsys):
    """A recording of the recorder: every statement of the loggers in scope is known."""
    assert check(NEWEST)
    assert "is known" in capsys.readouterr().out


SMALL = sorted((ROOT / "tests" / "recorder" / "recordings").glob("*/*"))


@pytest.mark.parametrize("recording", SMALL, ids=lambda path: path.parent.name)
def test_recordings_of_the_oldest_and_the_newest_version(recording, capsys):
    """Their timelines are those of the truth, and every statement is known, also of partitions at DEBUG and
    TRACE.
    """
    assert check(recording)
    assert "Every statement of the loggers in scope is known." in capsys.readouterr().out
    found = versions.measured(recording)
    assert (found["unknown"], found["drifted"]) == (0, 0)
    assert found["records"] > 100


def test_partitions_at_debug_and_trace():
    (recording,) = (path for path in SMALL if path.parent.name == "2.1.1-zookeeper-trace")
    seen = set()
    for log in recording.glob("node-*/server.log"):
        for _, text in records(log.read_text().splitlines()):
            if (record := PARSER.record(text)) and record.logger == "kafka.cluster.Partition":
                seen.update((record.level, event["event_type"]) for event in PARSER.events(record))
    assert {
        ("DEBUG", "follower_end_offset"),
        ("DEBUG", "high_watermark_updated"),
        ("DEBUG", "high_watermark_kept"),
    } <= seen


def test_versions_are_listed():
    """If this fails, run python tests/recorder/versions.py RECORDING..."""
    listed = json.loads(versions.RECORDED.read_text())
    text = versions.PAGE.read_text()
    assert versions.page(text, listed) == text
    known = {(row["version"], row["mode"], row["level"]) for row in listed}
    for recording in (*SMALL, NEWEST):
        one = versions.measured(recording)
        assert (one["version"], one["mode"], one["level"]) in known
