"""The recorder without a cluster: the truth it writes, scenarios it refuses, statements it names."""

import json
from pathlib import Path

import pytest
from recorder import metadata_log
from recorder.jars import RecorderError, dependencies, numbers
from recorder.record import SCENARIOS, check, forget, log4j_properties, main, scenario_of, unknown_statements

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "sample_logs" / "3.9.1-kraft" / "controller-failover"
NEWEST = ROOT / "sample_logs" / "4.3.0-kraft" / "reassign"


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_of_a_dump():
    found = list(metadata_log.records((RECORDED / "metadata-log.txt").read_text().splitlines()))
    assert found == rows(RECORDED / "metadata-log.jsonl")


def test_partitions_after_each_record():
    assert list(metadata_log.timeline(rows(RECORDED / "metadata-log.jsonl"))) == rows(RECORDED / "timeline.jsonl")


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
        ("nodes = [1]\n[[step]]\ndo = 'describe'\nnow = 1", "unknown key 'now'"),
    ],
)
def test_scenarios_that_are_refused(tmp_path, text, why):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(RecorderError, match=why):
        scenario_of(tmp_path / "s.toml")


def test_wrong_versions_and_scenarios_are_one_sentence(tmp_path, capsys):
    for version, scenario, said in [
        ("4", "reassign", "no Kafka version"),
        ("2.8.2", "reassign", "no KRaft"),
        ("4.3.0", "x", "there is reassign"),
    ]:
        assert main(["--kafka", version, "--scenario", scenario, "--into", str(tmp_path)]) == 2
        shown = capsys.readouterr().err
        assert said in shown
        assert len(shown.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_jars_by_version():
    assert {name for _, name, _ in dependencies("3.3.2")} == {"kafka_2.13", "slf4j-reload4j"}
    assert {name for _, name, _ in dependencies("4.3.0")} == {"kafka_2.13", "kafka-tools", "log4j-slf4j-impl", "log4j-core"}
    assert numbers("4.10.0") > numbers("4.9.9")


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_levels(version):
    for level, wanted in (("default", "INFO"), ("trace", "TRACE")):
        _, text = log4j_properties(version, level, "/x")
        (line,) = [
            line
            for line in text.splitlines()
            if line.startswith(("log4j.logger.state.change.logger=", "logger.state-change.level"))
        ]
        assert wanted in line


def test_folders_of_this_machine_are_forgotten(tmp_path):
    (tmp_path / "node-1").mkdir()
    log = tmp_path / "node-1" / "server.log"
    log.write_bytes(b"Log directory /tmp/w/data-1 of /tmp/w\xff, /tmp/other\n")
    forget(tmp_path, [Path("/tmp/w")])
    assert log.read_bytes() == b"Log directory /data-1 of \xff, /tmp/other\n"


def test_statements_that_no_rule_knows_are_named(tmp_path):
    folder = tmp_path / "node-1"
    folder.mkdir()
    line = "[2026-11-20 10:12:50,566] INFO [QuorumController id=1] {} (org.apache.kafka.controller.ReplicationControlManager)\n"
    (folder / "controller.log").write_text(line.format("Danced with partition 7") + line.format("Danced with partition 8"))
    ((kind, count, example),) = unknown_statements(tmp_path)
    assert (kind, count) == ("unrecognised", 2)
    assert "Danced with partition 7" in example


def test_the_recording_of_the_newest_version_is_right(capsys):
    """Made by the recorder; every statement of the loggers in scope is known."""
    assert check(NEWEST)
    assert "is known" in capsys.readouterr().out
