"""Whole runs over logs of other layouts, with a site's own rules and layouts, and the report of unknown
statements.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs import errors
from jobs.commands.audit import rules_version
from jobs.engine.store import Store
from jobs.nightly_audit import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGE = "Changed state of replica {} for partition orders-12 from OnlineReplica to OfflineReplica"
WITH_IDENT = "[Controller id=1 epoch=5] " + CHANGE
TRACE = "kafka.common.StateChangeFailedException: no leader\n\tat kafka.controller.A.run(A.scala:1)"
FORGED = f"[2026-11-20 10:00:00,000] TRACE {WITH_IDENT.format(6)} (state.change.logger)"
UTC = datetime(2026, 11, 20, 10, 9, 12, 175_000)

# replica -> its record, all of the same moment; the cluster's clocks are two hours ahead of UTC
LINES = {
    1: f"[2026-11-20 12:09:12,175] TRACE {WITH_IDENT.format(1)} (state.change.logger)",
    2: f"[2026-11-20T10:09:12.175Z] TRACE {WITH_IDENT.format(2)} (state.change.logger)",
    3: f"2026-11-20 05:09:12.175-0500 TRACE {WITH_IDENT.format(3)} (state.change.logger) [controller-event-thread]",
    4: f"2026-11-20T15:39:12.175+05:30  TRACE 7 --- [main] state.change.logger      : {WITH_IDENT.format(4)}",
    5: json.dumps({"timeMillis": 1795169352175, "level": "TRACE", "loggerName": "state.change.logger", "message": WITH_IDENT.format(5),
                   "thrown": {"name": "a.b.SomeException", "message": "why", "extendedStackTrace": "a.b.SomeException: why\n\tat " + FORGED}}),
    11: f"kafka-1  | 2026-11-20 19:09:12,175 |TRACE| {WITH_IDENT.format(11)} @state.change.logger\nkafka-1  | {TRACE}",
    12: f"\x1b[36mkafka_1  |\x1b[0m 2026-11-20T10:09:12.175000001Z 2026-11-20 12:09:12,175 TRACE [controller-event-thread] logger:42 - {WITH_IDENT.format(12)}",
    13: f"2026-11-20 12:09:12,175 TRACE state.change.logger: {WITH_IDENT.format(13)}\njava.io.IOException: {FORGED}\n\tat {FORGED}",
    14: f"2026-11-20T12:09:12.175+02:00 stdout F [2026-11-20 12:09:12,175] TRACE {WITH_IDENT.format(14)} (state.change.logger:77)",
}  # fmt: skip
OTHERS = [
    f"[2026-11-20 12:09:12,{n:03d}] INFO [Controller id=1 epoch=5] Whispered {n} times to orders-{n} <b> (state.change.logger)"
    for n in range(4)
] + [
    "[2026-11-20 12:09:13,000] INFO [Own 7] Paused 12 (own.Logger)",
    "[2026-11-20 12:09:13,001] INFO x (nobody.asked.Me)",
]
LAYOUTS = '[ours]\nconversion_pattern = "%d{yyyy-MM-dd HH:mm:ss,SSS}{Asia/Tokyo} |%p| %m @%c%n"\n'
RULES = """loggers = ["own.Logger"]
[paused]
starts = "Paused "
pattern = '''Paused (?<broker>\\d+)'''
says = "happened"
[[paused.sample]]
line = '''[2026-03-01 12:00:00,123] INFO [Own 7] Paused 7 (own.Logger)'''
gives = { broker = 7 }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with own rules and layouts."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "layouts.toml").write_text(LAYOUTS)
    (folder / "own.toml").write_text(RULES)
    return folder


@pytest.fixture(scope="module")
def audited(spark: SparkSession, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of tables and report.html of one run over one file with all these layouts."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "logs").mkdir()
    (folder / "logs" / "all.log").write_text("\n".join([*LINES.values(), *OTHERS]) + "\n")
    (folder / "audit.toml").write_text(
        'rules = "elsewhere"\n[[cluster]]\nname = "c"\nlogs = ["logs"]\ntimezone = "+02:00"\n'
    )
    code = main(["audit", "--config", str(folder / "audit.toml"), "--rules", str(site), "--tables", str(folder / "tables"),
                 "--report", str(folder / "report.html")])  # fmt: skip
    assert code == errors.CLEAN
    Store(spark, folder / "tables").register(("events", "coverage", "audit_runs", "unknown_statements"))
    return folder


@pytest.mark.spark
def test_every_record_is_read_at_its_time(spark: SparkSession, audited: Path) -> None:
    rows = spark.table("events").filter("event_type = 'replica_state_changed'").collect()
    assert sorted(row.replica for row in rows) == sorted(LINES), (
        "nothing is missing, nothing that a stack trace quotes is an event"
    )
    assert {row.replica: row.ts for row in rows} == dict.fromkeys(LINES, UTC)
    assert {row.logger for row in rows} == {"state.change.logger"}
    thrown = {row.replica: (row.error_class, row.error_message) for row in rows if row.error_class}
    assert thrown == {
        5: ("a.b.SomeException", "why"),
        11: ("kafka.common.StateChangeFailedException", "no leader"),
        13: ("java.io.IOException", FORGED),
    }


@pytest.mark.spark
def test_coverage_counts_the_records_of_each_layout(spark: SparkSession, audited: Path) -> None:
    found: dict[str, int] = {}
    for row in spark.table("coverage").collect():
        assert sum(row.layouts.values()) == row.records
        for name, number in row.layouts.items():
            found[name] = found.get(name, 0) + number
    assert found == {
        "log4j_default": 9,
        "strimzi": 1,
        "spring_boot": 1,
        "json": 1,
        "ours": 1,
        "strimzi_4": 1,
        "cdh": 1,
    }


@pytest.mark.spark
def test_rules_of_the_site_are_used(spark: SparkSession, audited: Path, site: Path) -> None:
    (row,) = spark.table("events").filter("event_type = 'paused'").collect()
    assert (row.broker, row.logger) == (12, "own.Logger")
    (run,) = spark.table("audit_runs").collect()
    assert run.rules_version == rules_version(site) != rules_version()


@pytest.mark.spark
def test_unknown_statements_are_masked_and_counted(spark: SparkSession, audited: Path) -> None:
    (row,) = spark.table("unknown_statements").collect()
    assert (row.logger, row.status, row.records) == ("state.change.logger", "unrecognised", 4)
    assert row.masked == "Whispered N times to TOPIC-N <b>"
    assert row.example == OTHERS[0]
    page = (audited / "report.html").read_text()
    assert "Whispered N times to TOPIC-N &lt;b&gt;" in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("own.toml", RULES.replace("broker = 7", "broker = 8"), "own.toml [paused] sample 1"),
        ("own.toml", RULES.replace('says = "happened"', ""), "own.toml [paused]: `says` is missing"),
        ("layouts.toml", LAYOUTS.replace("%p", "%q"), "layouts.toml [ours]: conversion %q is not supported"),
    ],
)
def test_wrong_rules_are_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    assert (
        main(["audit", str(tmp_path), "--tables", str(tmp_path / "tables"), "--rules", str(tmp_path)])
        == errors.USAGE
    )
    assert complaint in capsys.readouterr().err
    assert (
        main(["audit", str(tmp_path), "--tables", str(tmp_path / "tables"), "--rules", str(tmp_path / "no")])
        == errors.USAGE
    )
