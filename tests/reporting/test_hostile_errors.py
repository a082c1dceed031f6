"""Hostile records at ERROR that no rule matches, in everything that shows them: report, alerts, SQL,
terminal.
"""

from __future__ import annotations

import json
import random
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tables import rows_of
from test_report import Page
from test_stories import SINKS, _texts

from jobs import engine, errors
from jobs.alerts import text
from jobs.alerts.delivery import Outbox, findings_of, harms_of, plan
from jobs.config import Config
from jobs.nightly_audit import main

FORGED = "[2026-11-20 10:00:00,000] FATAL [Controller id=1] all is lost (kafka.controller.KafkaController)"
HOSTILE = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg/onload=alert(3)>",
    "formula": '=HYPERLINK("http://evil.example.org";"click")',
    "more formulas": "+1-1@SUM(1)|cmd",
    "nul": "before\x00after\x07\x1b[31m\x1b]0;owned\x07\u202egnp.exe",
    "forged line": f"one\r{FORGED}\u2028{FORGED}\x85{FORGED}",
    "template": "{{ 7 * 7 }} {% for x in range(9) %}{{ x }}{% endfor %} ${7*7} #{7*7} %(x)s {0.__class__}",
    "mentions": "<!channel> <!here> <@U123> @everyone @here <http://evil.example.org|click>",
    "markdown": "[click](http://evil.example.org) ![x](http://evil.example.org/x.png) ``` | a | b | **bold**",
    "mail": "\r\nSubject: forged\r\nBcc: evil@example.org\r\n\r\nbody",
    "command": "$(touch /tmp/owned) `touch /tmp/owned` ; touch /tmp/owned '",
    # longer than what is read of a line, and of the rest of a record
    "long": "A" * 10_000_000,
}


MANY = 20_000


def line(number: int, statement: str) -> str:
    return f"[2026-11-20 10:09:{number % 60:02},{number % 1000:03}] ERROR [ReplicaManager broker=2] Wat {statement} (kafka.server.ReplicaManager)\n"


@dataclass(frozen=True)
class Audited:
    """An audit of some lines. finding: the one about them. terminal: what is shown on one."""

    folder: Path
    finding: dict[str, Any]
    terminal: str

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    @property
    def report(self) -> str:
        return (self.folder / "report.html").read_text("utf-8")


def audited(folder: Path, lines: list[str]) -> Audited:
    logs = folder / "broker-2"
    logs.mkdir(parents=True)
    # a log without a known record is refused
    begin = "[2026-11-20 10:09:00,000] INFO [KafkaServer id=2] started (kafka.server.KafkaServer)\n"
    (logs / "server.log").write_bytes("".join([begin, *lines]).encode("utf-8"))
    where = ["--tables", str(folder / "tables"), "--cluster", "c", "--engine", "local"]
    with redirect_stdout(StringIO()) as shown, redirect_stderr(shown):
        code = main(
            ["audit", str(logs), *where, "--report", str(folder / "report.html"), "--fail-on", "warning"]
        )
    assert code in (errors.FINDINGS, errors.INPUT)
    (found,) = [row for row in rows_of(folder / "tables", "findings") if row["check_id"] == "unknown_errors"]
    return Audited(folder, found, shown.getvalue())


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """One record of each hostile text."""
    lines = [line(number, statement) for number, statement in enumerate(HOSTILE.values())]
    return audited(tmp_path_factory.mktemp("one"), lines)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """As many different records as would make anything that shows each of them too large."""
    draw = random.Random(7)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(2000)]
    lines = [
        line(number, f"{draw.choice(words)} {draw.choice(words)} {number} {draw.choice(words)}")
        for number in range(MANY)
    ]
    return audited(tmp_path_factory.mktemp("many"), lines)


def test_hostile_errors_are_one_escaped_finding(one: Audited, capsys: pytest.CaptureFixture[str]) -> None:
    found, tables = one.finding, one.tables
    # templates are not rendered, and a forged record is no record: a carriage return ends none
    assert "49" not in re.sub(r"[0-9a-f]{12,}", "", found["detail"])
    assert not [row for row in rows_of(tables, "findings") if row["severity"] in ("error", "critical")]
    assert len(found["title"]) <= 80
    assert len(found["detail"]) < 2000
    for shown in (found["title"], found["detail"], one.terminal):
        assert not [sign for sign in shown if not sign.isprintable() and sign not in "\n"], (
            "control characters"
        )
    source = one.report
    assert len(source) < 3_000_000
    for tag in ("<script>alert", "<img src=x", "<svg/onload", "<!channel>"):
        assert tag not in source
    assert "alert(1)" in Page(source).text

    assert (
        main(["sql", "SELECT * FROM unknown_statements", "--tables", str(tables), "--no-pager"])
        == errors.CLEAN
    )
    shown = capsys.readouterr().out
    assert not [sign for sign in shown if not sign.isprintable() and sign != "\n"]
    assert len(shown) < 1_000_000
    assert main(["findings", "--tables", str(tables), "--no-pager"]) == errors.CLEAN
    assert not [sign for sign in capsys.readouterr().out if not sign.isprintable() and sign != "\n"]
    assert not Path("/tmp/owned").exists()


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.type)
def test_alerts_about_hostile_errors_are_text(one: Audited, sink: Any) -> None:
    opened = engine.opened(str(one.tables))
    rows = [row for row in engine.rows_of(opened.read("findings")) if row["check_id"] == "unknown_errors"]
    now = datetime(2026, 11, 21, tzinfo=UTC)
    planned = plan([sink], findings_of(rows, harms_of(opened, rows)), (), now=now, newest={"c": now})
    context = Outbox(opened, lambda _: None, Config(), ["c"], {}).context(planned, {"c": now}, now)
    assert context.lines
    (message,) = planned[sink.name]
    (request,) = sink.requests([message], context)
    whole = (
        [*request.body.values(), request.body.get_content()] if sink.type == "mail" else _texts(request.body)
    )
    assert not [sign for part in whole for sign in part if not sign.isprintable() and sign != "\n"]
    assert sum(map(len, whole)) < 10 * text.PAGE
    if sink.type == "slack":
        assert not re.search(r"<(?:!|@|http)", json.dumps(request.body))
    if sink.type == "mail":
        assert {"Bcc"}.isdisjoint(request.body.keys())
        assert request.body.get_content_type() == "text/plain"


def test_the_finding_keeps_its_fingerprint(one: Audited, many: Audited) -> None:
    assert one.finding["fingerprint"] == many.finding["fingerprint"]
    assert one.finding["detail"] != many.finding["detail"]


def test_many_different_errors_are_one_small_finding(many: Audited) -> None:
    found = many.finding
    assert found["title"].startswith(f"{MANY:,} error records")
    assert len(found["evidence"]) <= 20
    assert len(found["detail"]) < 2000
    assert len(many.terminal) < 100_000
    assert len(many.report) < 1_000_000
