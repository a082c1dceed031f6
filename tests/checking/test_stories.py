"""A story is the same in the verdict, its JSON, the report, the alert and the tables, over all incidents and
some scenarios.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_alerts
from evidence import out_of_order
from incident_cases import INCIDENTS
from tables import rows_of
from test_report import Page

from jobs import engine, errors
from jobs.alerts import text
from jobs.alerts.delivery import finding_of, findings_of, harms_of, plan
from jobs.alerts.sinks.slack import Slack
from jobs.checking import harms
from jobs.checking.finding_identity import known_as
from jobs.nightly_audit import main

SCENARIOS = Path(__file__).parents[1] / "scenarios"
MORE = (
    "broker_cannot_start/raises",
    "broker_flapping/raises",
    "log_directory_failed/raises-all",
    "data_at_risk/silent-unclean",
)
# incident -> (check of the cause, checks of its effects), where an incident was several stories before
ONE_STORY = {
    # the heartbeats with an old epoch ended three minutes before: no line links them
    27: ("quorum_without_leader", {"quorum_unstable"}),
    28: ("quorum_without_leader", {"quorum_unstable"}),
    40: ("log_directory_failed", {"log_directory_failed", "broker_down"}),
    41: ("log_directory_failed", {"log_directory_failed", "broker_down"}),
    42: ("log_directory_failed", {"partition_leaderless", "last_in_sync_replica", "under_replicated"}),
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the JSON of one audit of all of them, with the report and the tables beside it."""
    folder = tmp_path_factory.mktemp("stories")
    logs = {path.name: path for path in sorted(INCIDENTS.iterdir())} | {
        name: SCENARIOS / name for name in MORE
    }
    blocks = [
        f"[[cluster]]\nname = {json.dumps(name)}\nlogs = [{json.dumps(str(path))}]\n"
        for name, path in logs.items()
    ]
    (folder / "audit.toml").write_text("\n".join(blocks))
    where = ["--config", str(folder / "audit.toml"), "--tables", str(folder / "tables"), "--engine", "local"]
    with pytest.MonkeyPatch.context() as patched, (folder / "out.json").open("w") as out:
        patched.setattr("sys.stdout", out)
        code = main(["audit", *where, "--report", str(folder / "report.html"), "--json"])
    assert code in (errors.CLEAN, errors.FINDINGS, errors.INPUT)
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found | {"folder": folder}


def test_one_incident_is_one_story(audited: dict[str, Any]) -> None:
    checks = {finding["fingerprint"]: finding["check_id"] for finding in audited["findings"]}
    loud = {finding["fingerprint"] for finding in audited["findings"] if finding["severity"] != "info"}
    by_cluster = defaultdict(list)
    for story in audited["stories"]:
        if {story["cause"], *story["effects"]} & loud:
            by_cluster[story["cluster"]].append(story)
    for number, (cause, effects) in ONE_STORY.items():
        ((name, some),) = [(name, some) for name, some in by_cluster.items() if name.startswith(f"{number}_")]
        (story,) = [story for story in some if checks[story["cause"]] == cause]
        assert {checks[effect] for effect in story["effects"] if effect in loud} == effects, name
        assert len(some) == (2 if number == 27 else 1), name


def test_verdict_report_and_alerts_have_the_same_numbers(audited: dict[str, Any]) -> None:
    """Partitions, topics and lost records of each story: JSON, verdict, report and tables."""
    folder, by_name = audited["folder"], {finding["fingerprint"]: finding for finding in audited["findings"]}
    partitions = defaultdict(set)
    for row in rows_of(folder / "tables", "finding_subjects"):
        partitions[row["fingerprint"]].add((row["topic"], row["partition"]))
    lost = defaultdict(int)
    for row in rows_of(folder / "tables", "durability"):
        lost[row["cluster"]] += row["records_lost"] or 0
    page = re.sub(r"\s+", " ", Page((folder / "report.html").read_text("utf-8")).text)
    by_cluster: dict[str, int] = defaultdict(int)
    said = 0
    for story in audited["stories"]:
        members = [story["cause"], *story["effects"]]
        about = set().union(*(partitions[name] for name in members))
        known = [
            harms.Harm(**harm | {"topics": tuple(harm["topics"]), "since": None, "until": None})
            for harm in story["harms"]
        ]
        for harm in known:
            assert 0 < harm.partitions <= len(about)
            assert set(harm.topics) <= {topic for topic, _ in about}
            by_cluster[story["cluster"]] += harm.records or 0
        for sentence in harms.sentences(known, None):
            begin = re.split(r"[;,] ?(?=over|still|for up|the logs)|\.$", sentence)[0]
            if any(by_name[name]["severity"] in ("error", "critical") for name in members):
                assert begin in page, story["cluster"]
                said += 1
    assert said > 20
    assert {name: count for name, count in by_cluster.items() if count} == {
        name: count for name, count in lost.items() if count
    }


def test_evidence_is_in_the_order_of_time(audited: dict[str, Any]) -> None:
    assert list(out_of_order(audited["folder"] / "tables")) == []


def test_the_alert_of_a_story_lists_the_findings_of_the_story(audited: dict[str, Any]) -> None:
    rows = rows_of(audited["folder"] / "tables", "findings")
    sink = Slack(name="chat", url_env="URL", severity="info", limit=1000)
    now = max(finding_of(row).last_seen for row in rows if row["last_seen"])
    (messages,) = plan(
        [sink],
        findings_of(rows, {}),
        (),
        now=now,
        newest=dict.fromkeys({row["cluster"] for row in rows}, now),
    ).values()
    stories = {
        frozenset([story["cause"], *story["effects"]]): story["cause"]
        for story in audited["stories"]
        if not story["over"] and story["effects"]
    }
    context = text.Context(tables="t", now=now)
    for message in messages:
        names = frozenset(finding.fingerprint for finding in message.findings)
        if names in stories:
            assert message.findings[0].fingerprint == stories.pop(names)
            assert text.description(message, context).count("Consequence: ") == min(
                len(names) - 1, text.NAMED
            )
    # a partly resolved story is sent without its resolved findings
    assert all(
        any(
            finding["status"] == "resolved"
            for finding in audited["findings"]
            if finding["fingerprint"] in names
        )
        for names in stories
    )


SINKS = tuple(replace(sink, severity="info", limit=1000) for sink in test_alerts.SINKS)


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.type)
def test_an_alert_begins_with_the_harm_that_the_verdict_and_the_report_state(
    audited: dict[str, Any], sink: Any
) -> None:
    """What the tables say to `alerts`, as each sink sends it, is what the JSON of the audit has."""
    tables = engine.opened(
        str(audited["folder"] / "tables"), names=("findings", "finding_subjects", "durability")
    )
    rows = engine.rows_of(tables.read("findings"))
    now = max(row["last_seen"] for row in rows if row["last_seen"])
    planned = plan(
        [sink],
        findings_of(rows, harms_of(tables, rows)),
        (),
        now=now,
        newest=dict.fromkeys({r["cluster"] for r in rows}, now),
    )
    context, page = (
        text.Context(tables="t", now=now),
        Page((audited["folder"] / "report.html").read_text("utf-8")).text,
    )
    page = re.sub(r"\s+", " ", page)
    known = {row["fingerprint"]: known_as(row) for row in rows}
    expected = {}
    for story in audited["stories"]:
        some = [
            harms.Harm(**harm | {"topics": tuple(harm["topics"]), "since": None, "until": None})
            for harm in story["harms"]
        ]
        for name in (story["cause"], *story["effects"]):
            expected[known[name]] = [
                re.split(r"; (?:over|still)", one)[0].rstrip(".") for one in harms.sentences(some, None)
            ]
    seen = 0
    for message in planned[sink.name]:
        if message.digest:
            continue
        sent = sink.requests([message], context)[0].body
        body = [sent.get_content()] if sink.type == "mail" else sent
        shown = re.sub(r"\s+", " ", " ".join(_texts(body)))
        lines = text.description(message, context).splitlines()
        for begin, line in zip(expected[message.findings[0].fingerprint], lines, strict=False):
            assert line.startswith(begin)
            assert line in shown, message.key
            if message.severity in ("error", "critical"):
                assert begin in page
            seen += 1
    assert seen > 20


def _texts(body: Any) -> list[str]:
    if isinstance(body, dict):
        return [one for value in body.values() for one in _texts(value)]
    if isinstance(body, list | tuple):
        return [one for value in body for one in _texts(value)]
    return [str(body)]
