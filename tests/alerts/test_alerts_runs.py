"""Runs with alerts, from log lines to Alertmanager, PagerDuty and Slack."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import standins
from logs import broker_is_back, write_early
from standins import answer
from tables import rows_of
from test_alerts import PAGERDUTY, SLACK

from jobs import errors
from jobs.alerts.delivery import in_utc, latest
from jobs.alerts.outbox import Sent
from jobs.nightly_audit import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDING = Path(__file__).parents[2] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker"
ILLEGAL = (
    "[2026-11-20 10:09:27,600] TRACE [Controller id=1 epoch=1] Changed state of replica 2 for partition audit-0 from NonExistentReplica "
    "to ReplicaDeletionStarted (state.change.logger)\n"
)
ROUTING_KEY = "0123456789abcdef0123456789abcdef"
SLACK_PATH = "/services/T0000/B0000/aVerySecretPart"


def write_logs(folder: Path, until: str = "9999") -> None:
    """Write the recording up to a moment, with a state change that Kafka never logs."""
    write_early(RECORDING, folder, until)
    with (folder / "broker-1" / "state-change.log").open("a") as log:
        log.write(ILLEGAL)


def of_alertmanager(url: str | None) -> list[dict[str, Any]]:
    if url is None:
        return []
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answered:
        return sorted(json.load(answered), key=lambda alert: alert["labels"]["alertname"])


def test_three_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run 1: an illegal state change and a blocked deletion, and Slack is down.

    Run 2: Slack is back. Run 3: both are resolved.
    """
    tables, metrics = tmp_path / "tables", tmp_path / "kafka_audit.prom"

    def run(*arguments: str, code: int) -> str:
        capsys.readouterr()
        assert main([*arguments, "--tables", str(tables)]) == code
        output = capsys.readouterr()
        whole = output.out + output.err
        assert ROUTING_KEY not in whole
        assert "aVerySecretPart" not in whole
        return output.out

    with (
        standins.alertmanager(tmp_path / "am") as real,
        standins.serving() as unreal,
        standins.serving(lambda handler, number: answer(handler, 202)) as pager,
        standins.serving(lambda handler, number: answer(handler, 500)) as chat,
    ):
        monkeypatch.setenv("PD_KEY", ROUTING_KEY)
        monkeypatch.setenv("CHAT_URL", chat.url + SLACK_PATH)
        config = tmp_path / "audit.toml"
        config.write_text(f"""
            [[cluster]]
            name = "payments"
            logs = ["logs"]
            [[alert]]
            name = "oncall"
            type = "alertmanager"
            url = "{real or unreal.url}"
            [[alert]]
            name = "pager"
            type = "pagerduty"
            url = "{pager.url}/v2/enqueue"
            routing_key_env = "PD_KEY"
            checks = ["topic_*"]
            [[alert]]
            name = "chat"
            type = "slack"
            url_env = "CHAT_URL"
            [[silence]]
            check = "reassignment_*"
            until = 2020-01-01T00:00:00Z
            reason = "migration"
        """)
        audit = ("audit", "--config", str(config), "--json", "--metrics", str(metrics))

        write_logs(tmp_path / "logs", until=broker_is_back(RECORDING))
        verdict = json.loads(run(*audit, code=errors.DELIVERY))
        found = {finding["check_id"]: finding for finding in verdict["findings"]}
        assert set(found) == {"broker_down", "illegal_replica_transition", "topic_deletion_blocked"}
        assert found["broker_down"]["severity"] == "warning"  # these sinks take no warnings
        assert verdict["exit_code"] == errors.DELIVERY
        assert any("reassignment_*" in note and "expired" in note for note in verdict["notes"])
        assert any("to chat could not be delivered (answered 500)" in note for note in verdict["notes"])
        alerts = of_alertmanager(real)
        if real:
            illegal, blocked = alerts
            assert {**illegal["labels"], "fingerprint": ""} == {
                "alertname": "illegal_replica_transition", "severity": "error", "cluster": "payments", "topic": "audit",
                "partition": "0", "replica": "2", "node": "1", "fingerprint": "",
            }  # fmt: skip
            assert blocked["labels"]["fingerprint"] == found["topic_deletion_blocked"]["fingerprint"]
            assert blocked["annotations"]["summary"] == "The deletion of audit waits for broker 3 (payments)"
            assert "from OfflineReplica to ReplicaDeletionIneligible" in blocked["annotations"]["evidence"]
            assert "broker-1/state-change.log:" in illegal["annotations"]["evidence"]
        assert [body["event_action"] for body in pager.bodies] == ["trigger"]
        # the dry run shows only what is still due
        shown = run("alerts", "--config", str(config), "--dry-run", code=errors.CLEAN)
        assert "chat (slack, the address in $CHAT_URL): 2 messages" in shown
        assert "oncall (alertmanager, http://127.0.0.1" in shown
        assert "pager (pagerduty, http://127.0.0.1" in shown
        assert shown.count("firing: ") == 2

        chat.behave = lambda handler, number: answer(handler, 200)
        chat.bodies.clear()
        verdict = json.loads(run(*audit, code=errors.FINDINGS))
        assert {finding["status"] for finding in verdict["findings"]} == {"open"}
        assert len(chat.bodies) == 2
        assert of_alertmanager(real) == alerts  # its time of update is the same: it was not sent again
        assert len(pager.bodies) == 1
        assert run("alerts", "--config", str(config), code=errors.CLEAN) == "Nothing is due.\n"
        listed = [json.loads(line) for line in run("findings", "--json", code=errors.CLEAN).splitlines()]
        assert {(row["check_id"], row["silenced"]) for row in listed} == {(name, False) for name in found}

        fingerprint = found["illegal_replica_transition"]["fingerprint"]
        story = run("findings", fingerprint[:10], code=errors.CLEAN).splitlines()
        proof, marked = [line for line in story if line.startswith("> ")]
        assert story.index(proof) == story.index("Proof: 1 record, by time:") + 1
        assert marked == proof
        assert "from NonExistentReplica to ReplicaDeletionStarted" in proof
        around = [line.split()[1] for line in story if line.startswith("  node ")]
        assert set(around) == {"1", "2", "3"}  # of broker 3, what it logged before it died
        in_json = json.loads(run("findings", fingerprint, "--json", "--lines", "1", code=errors.CLEAN))
        times = [line["ts"] for line in in_json["context"]]
        assert times == sorted(times)
        assert [line["record_id"] for line in in_json["proof"]] == found["illegal_replica_transition"][
            "evidence"
        ]
        assert [line["evidence"] for line in in_json["context"]].count(True) == 1

        write_logs(tmp_path / "logs")
        verdict = json.loads(run(*audit, "--now", "2026-11-22T00:00:00Z", code=errors.CLEAN))
        over = {
            finding["check_id"]: finding for finding in verdict["findings"] if finding["status"] == "resolved"
        }
        assert {name: f["first_seen"] for name, f in over.items()} == {
            name: f["first_seen"] for name, f in found.items()
        }
        # the planted line breaks the history of its replica; at the end of the recording all brokers are
        # stopped
        assert {f["check_id"]: f["severity"] for f in verdict["findings"] if f["check_id"] not in over} == {
            "cluster_down": "info",
            "history_broken": "warning",
        }
        assert of_alertmanager(real) == []
        assert [body["event_action"] for body in pager.bodies] == ["trigger", "resolve"]
        assert sorted(body["text"][:14] for body in chat.bodies[2:]) == ["[error] Over: ", "[error] Over: "]
        for body in pager.bodies:
            jsonschema.validate(body, PAGERDUTY)
        for body in chat.bodies:
            jsonschema.validate(body, SLACK)

    stored = rows_of(tables, "alerts")
    times = ("tried_at", "delivered_at")
    rows = latest(Sent(**row | {name: in_utc(row[name]) for name in times}) for row in stored)
    assert len(stored) == len(rows) + 2  # the failures of the first run
    assert sorted((row.sink, row.state, row.attempts) for row in rows if row.fingerprint == fingerprint) == [
        ("chat", "firing", 2), ("chat", "resolved", 1), ("oncall", "firing", 1), ("oncall", "resolved", 1),
    ]  # fmt: skip
    assert all(row.delivered_at is not None and row.error is None for row in rows)
    written = b"".join(path.read_bytes() for path in tables.rglob("*") if path.is_file())
    assert ROUTING_KEY.encode() not in written
    assert b"aVerySecretPart" not in written
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "metrics"], input=metrics.read_bytes(), check=True, timeout=60)
    assert b'kafka_audit_alerts_undelivered{sink="chat"} 0.0' in metrics.read_bytes()


def test_a_silenced_finding_is_stored_as_silenced_and_sent_to_no_sink(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_logs(tmp_path / "logs", until=broker_is_back(RECORDING))
    with standins.serving() as hook:
        config = tmp_path / "audit.toml"
        config.write_text(f"""
            [[alert]]
            name = "hook"
            type = "webhook"
            url = "{hook.url}"
            [[silence]]
            broker = 3
            reason = "its disk is being replaced"
            [[silence]]
            topic = "aud*"
            reason = "we know"
            who = "Ann"
        """)
        tables = str(tmp_path / "tables")
        assert (
            main(["audit", str(tmp_path / "logs"), "--tables", tables, "--config", str(config)])
            == errors.CLEAN
        )
        assert "no findings; 3 silenced" in capsys.readouterr().out
        assert main(["findings", "--tables", tables, "--status", "new"]) == errors.CLEAN
        shown = capsys.readouterr().out
        assert (
            shown.count("silenced: its disk is being replaced, for good") == 2
        )  # broker_down, topic_deletion_blocked
        assert shown.count("silenced: we know, for good, by Ann") == 1
        assert hook.bodies == []
