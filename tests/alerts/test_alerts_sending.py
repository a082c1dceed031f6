"""Sending alerts to servers that are up, down, slow or hostile.

What is recorded, and what the next run sends.
"""

from __future__ import annotations

import datetime as datetime_module
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
import standins
from standins import answer, serving
from test_alerts import (
    AM,
    CHAT,
    CONTEXT,
    GOLDEN,
    HOOK,
    MESSAGES,
    NEWEST,
    NOW,
    PAGER,
    PAGERDUTY,
    PHONE,
    POST,
    SINKS,
    SLACK,
    context,
    finding,
    message,
)

from jobs import errors
from jobs.alerts import delivery, posting, sinks, text
from jobs.alerts.command import shown
from jobs.alerts.delivery import Delivered, latest, plan, send_all
from jobs.alerts.outbox import Finding, Message, Sent
from jobs.alerts.posting import BACKOFF
from jobs.alerts.sink import Sink, deliver
from jobs.alerts.sinks.apprise import Apprise
from jobs.alerts.sinks.http import HttpSink
from jobs.config import load
from jobs.nightly_audit import main

PATH = "/services/T0000/B0000/aVerySecretPart"
ENVIRONMENT = {
    "PD_KEY": "0123456789abcdef0123456789abcdef",
    "TOKEN": "t0ken-of-the-hook",
    "PW": "passw0rd-of-ann",
}


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits between tries; one case restores the real ones."""
    monkeypatch.setattr(posting, "BACKOFF", 0.1)


def hidden_by(sink: Sink, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Secrets of a sink, and of another one of the same configuration that has a token: a message repeats
    none of them.
    """
    other = replace(HOOK, token_env="TOKEN")
    return tuple(
        sorted(
            {*sink.secrets(environment).hidden(), *other.secrets(environment).hidden()}, key=len, reverse=True
        )
    )


def run(
    sink: Sink,
    *findings: Finding,
    sent: list[Sent] | None = None,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> tuple[list[Sent], list[Delivered]]:
    """Return (the outbox afterwards, the reports of the sink)."""
    before = sent or []
    planned = plan([sink], findings, before, now=datetime.now(UTC), newest=NEWEST)
    hidden = hidden_by(sink, environment)
    rows: list[Sent] = []
    reports = send_all([sink], planned, replace(CONTEXT, hidden=hidden), environment, rows.extend)
    return latest([*before, *rows]), reports


# name: (behaviour, error, requests within a run: of sinks that keep incidents, of others)
MISBEHAVIOUR: dict[str, tuple[standins.Behaviour, str, int, int]] = {
    "hangs": (standins.hang, "no answer within 1 s", 3, 1),
    "500": (lambda handler, number: answer(handler, 500), "answered 500", 3, 3),
    "429 for an hour": (
        lambda handler, number: answer(handler, 429, Retry_After="3600"),
        "answered 429",
        1,
        1,
    ),
    "garbage": (standins.garbage, "closed the connection without an answer that can be read", 3, 1),
    "hangs up": (standins.hang_up, "closed the connection without an answer that can be read", 3, 1),
    "302": (
        lambda handler, number: answer(handler, 302, Location="http://127.0.0.1:1/"),
        "answered 302",
        1,
        1,
    ),
    "400": (
        lambda handler, number: answer(handler, 400, "no\x1b[31m such thing"),
        "answered 400: no?[31m such thing",
        1,
        1,
    ),
}


@pytest.mark.parametrize("sink", [AM, CHAT], ids=["alertmanager", "slack"])
@pytest.mark.parametrize("name", MISBEHAVIOUR)
def test_the_next_run_delivers_failed_messages_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sink: Sink
) -> None:
    if name == "hangs":
        monkeypatch.setattr(posting, "BACKOFF", BACKOFF)
    behave, says, asked, asked_of_others = MISBEHAVIOUR[name]
    found = [finding(1), finding(2)]
    with serving(behave) as server:
        sink = replace(sink, timeout_seconds=1, url=server.url if sink is AM else None)
        environment = {"CHAT_URL": server.url + PATH}
        began = time.monotonic()
        sent, (report,) = run(sink, *found, environment=environment)
        assert time.monotonic() - began < 15
        assert (report.failed, report.error) == (2, says)
        refused = name in {"302", "400"} and sink.type == "slack"  # the next message may be taken
        assert len(server.bodies) == (
            2 if refused else asked if sink.type == "alertmanager" else asked_of_others
        )
        assert {(row.delivered_at, row.error) for row in sent} == {(None, says)}
        assert "next run tries again" in report.sentence()

        server.stopped.set()
        server.behave = lambda handler, number: answer(handler, 200)
        server.bodies.clear()
        sent, (report,) = run(sink, *found, sent=sent, environment=environment)
        assert report.error is None
        assert len(server.bodies) == (1 if sink.type == "alertmanager" else 2)
        assert all(row.delivered_at and row.error is None and row.attempts == 2 for row in sent)
        server.bodies.clear()
        assert run(sink, *found, sent=sent, environment=environment)[1] == []
        assert server.bodies == []


def test_a_server_that_answers_byte_after_byte_does_not_block_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 1)
    with serving(standins.trickle) as server:
        began = time.monotonic()
        _, (report,) = run(replace(HOOK, url=server.url, timeout_seconds=1), finding(1), finding(2))
        assert time.monotonic() - began < 10
        assert (report.failed, report.error) == (2, "no whole answer within 4 s")


def test_a_sink_with_retry_after_is_sent_the_message_later(tmp_path: Path) -> None:
    def first_busy(handler: Any, number: int) -> None:
        answer(handler, *((429, "slow down") if number == 1 else (200, "ok")), Retry_After="1")

    with serving(first_busy) as server:
        began = time.monotonic()
        _, (report,) = run(CHAT, finding(1), environment={"CHAT_URL": server.url + PATH})
        assert time.monotonic() - began >= 1
        assert (report.error, len(server.bodies)) == (None, 2)


def test_a_sink_that_is_down_or_unknown_is_an_error(tmp_path: Path) -> None:
    sink = replace(AM, url=f"http://127.0.0.1:{standins.free_port()}")
    _, (report,) = run(sink, finding(1))
    assert report.error == "connection refused"
    _, (report,) = run(replace(AM, url="http://no-such-host.invalid:9093"), finding(1))
    assert report.error is not None
    assert "no-such-host" not in report.error


def test_an_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    certificate = standins.certificate(tmp_path)
    if certificate is None:
        pytest.skip("openssl is not installed")
    with serving(certificate=certificate) as server:
        sent, (report,) = run(replace(AM, url=server.url), finding(1))
        assert report.error is not None
        assert "certificate" in report.error
        assert server.bodies == []
        _, (report,) = run(replace(AM, url=server.url, ca_file=certificate[0]), finding(1), sent=sent)
        assert (report.error, len(server.bodies)) == (None, 1)
    with serving() as server:  # no TLS at all
        _, (report,) = run(replace(AM, url=server.url.replace("http:", "https:")), finding(1))
        assert report.error is not None
        assert "TLS" in report.error


def test_a_refused_message_does_not_block_the_others(tmp_path: Path) -> None:
    def refuses_first(handler: Any, number: int) -> None:
        answer(handler, 422 if number == 1 else 200)

    with serving(refuses_first) as server:
        sent, (report,) = run(replace(HOOK, url=server.url), finding(1), finding(2), finding(3))
        assert (report.messages, report.failed, len(server.bodies)) == (3, 1, 3)
        assert sorted(row.delivered_at is None for row in sent) == [False, False, True]


def test_a_sink_that_is_down_does_not_block_another(tmp_path: Path) -> None:
    with serving() as well, serving(standins.hang) as ill:
        sinks = [replace(HOOK, url=ill.url, timeout_seconds=1), replace(AM, url=well.url)]
        planned = plan(sinks, [finding(1)], [], now=NOW, newest=NEWEST)
        rows: list[Sent] = []
        reports = send_all(sinks, planned, CONTEXT, ENVIRONMENT, rows.extend)
        assert [report.error is None for report in reports] == [False, True]
        assert {row.sink: row.delivered_at is not None for row in rows} == {"hook": False, "oncall": True}


# -- what each type of sink receives -----------------------------------------------------------------------


def test_pagerduty_as_documented(tmp_path: Path) -> None:
    with serving(lambda handler, number: answer(handler, 202, '{"status":"success"}')) as server:
        sink = replace(PAGER, url=server.url + "/v2/enqueue")
        sent, (report,) = run(sink, finding(1))
        assert report.error is None
        run(sink, finding(1, status="resolved"), sent=sent)
    assert server.paths == ["/v2/enqueue"] * 2
    for body in server.bodies:
        jsonschema.validate(body, PAGERDUTY)
        assert body["routing_key"] == ENVIRONMENT["PD_KEY"]
    trigger, resolve = server.bodies
    assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
    assert trigger["dedup_key"] == resolve["dedup_key"] == finding(1).fingerprint


def test_slack_as_documented(tmp_path: Path) -> None:
    with serving() as server:
        run(CHAT, finding(1), environment={"CHAT_URL": server.url + PATH})
    assert server.paths == [PATH]
    assert server.headers[0]["Content-Type"] == "application/json"
    jsonschema.validate(server.bodies[0], SLACK)


def test_tokens_and_passwords_are_sent_in_headers_only(tmp_path: Path) -> None:
    with serving() as server:
        run(replace(HOOK, url=server.url, token_env="TOKEN"), finding(1))
        run(replace(HOOK, url=server.url, user="ann", password_env="PW"), finding(1))
    assert server.headers[0]["Authorization"] == "Bearer t0ken-of-the-hook"
    assert server.headers[1]["Authorization"].startswith("Basic ")
    assert server.headers[0]["Idempotency-Key"] == f"{finding(1).fingerprint}/firing/1"


def test_mail(tmp_path: Path) -> None:
    with standins.mail_server() as server:
        _, (report,) = run(replace(POST, url=server.url), finding(1))
        assert report.error is None
    (mail,) = server.bodies
    assert "Subject: [error] The deletion of audit waits for broker 3 (payments)" in mail
    with standins.mail_server(refuses=True) as server:
        _, (report,) = run(replace(POST, url=server.url), finding(1))
        assert report.error == "the mail server refused all recipients"
    _, (report,) = run(replace(POST, url=f"smtp://127.0.0.1:{standins.free_port()}"), finding(1))
    assert report.error == "connection refused"
    with serving(standins.hang) as server:  # no mail server at all
        _, (report,) = run(
            replace(POST, url=server.url.replace("http", "smtp"), timeout_seconds=1), finding(1)
        )
        assert report.error is not None


def test_services_of_apprise(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    with serving() as server:
        environment = {"PHONE_URL": server.url.replace("http:", "json:") + "/aVerySecretPart"}
        _, (report,) = run(PHONE, finding(1), environment=environment)
        assert report.error is None
        assert server.bodies[0]["title"] == "[error] The deletion of audit waits for broker 3 (payments)"
        server.behave = lambda handler, number: answer(handler, 500)
        _, (report,) = run(PHONE, finding(1), environment=environment)
        assert report.error == "apprise could not deliver it"


# -- secrets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MISBEHAVIOUR, "echo", "down", "apprise"])
def test_secrets_are_in_no_error_or_row(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    def echo(handler: Any, number: int) -> None:
        answer(handler, 403, f"{handler.path} {handler.headers['Authorization']} is not allowed")

    behave = echo if name == "echo" else MISBEHAVIOUR[name][0] if name in MISBEHAVIOUR else standins.hang_up
    secret = finding(1, topic="aVerySecretPart", detail=f"a line with t0ken-of-the-hook in {PATH}")
    with serving(behave) as server:
        url = f"http://127.0.0.1:{standins.free_port()}" if name == "down" else server.url
        environment = ENVIRONMENT | {"HOOK_URL": url + PATH + "?key=anotherSecret"}
        if name == "apprise":
            pytest.importorskip("apprise")
            environment["HOOK_URL"] = url.replace("http:", "json:") + PATH
        sink: Sink = replace(HOOK, url=None, url_env="HOOK_URL", token_env="TOKEN", timeout_seconds=1)
        if name == "apprise":
            sink = Apprise(name="hook", url_env="HOOK_URL", timeout_seconds=1)
        sent, reports = run(sink, secret, environment=environment)
        assert reports[0].error
        if name == "echo":
            assert "***" in reports[0].error
        seen = json.dumps(server.bodies)
    output = repr(sent) + repr(reports) + reports[0].sentence() + "".join(capfd.readouterr())
    for hidden in ("aVerySecretPart", "t0ken", "anotherSecret", "passw0rd"):
        assert hidden not in output
        assert hidden not in seen


@pytest.mark.parametrize("sink", [AM, PAGER, CHAT, HOOK, POST, PHONE], ids=lambda sink: sink.type)
def test_a_dry_run_shows_what_would_be_sent_and_no_secret(sink: Sink) -> None:
    sink = replace(
        sink,
        url=None,
        url_env="ADDRESS",
        **({"token_env": "TOKEN"} if "token_env" in sink.settings() else {}),
    )
    environment = ENVIRONMENT | {
        "ADDRESS": "https://ann:passw0rd-of-ann@hooks.example.org/aVerySecretPart?key=anotherSecret"
    }
    hidden = hidden_by(sink, environment)
    careless = finding(
        1,
        title="aVerySecretPart waits",
        topic="aVerySecretPart",
        detail="t0ken-of-the-hook, anotherSecret and passw0rd-of-ann are in a log line",
    )
    planned = plan([sink], [careless], [], now=NOW, newest=NEWEST)
    output = "\n".join(shown(sink, planned[sink.name], replace(CONTEXT, hidden=hidden)))
    assert f"{sink.name} ({sink.type}, the address in $ADDRESS): 1 message" in output
    assert "firing: *** waits" in output
    for secret in ("aVerySecretPart", "t0ken", "anotherSecret", "passw0rd", ENVIRONMENT["PD_KEY"]):
        assert secret not in output


# -- what a server receives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize(
    "sink", [one for one in SINKS if isinstance(one, HttpSink)], ids=lambda sink: sink.type
)
def test_requests_are_those_of_the_golden_files(sink: Sink, name: str) -> None:
    """The bytes that a server receives are compared: a text is not quoted, and JSON is not encoded twice."""
    with serving() as server:
        sink = replace(sink, url=server.url, url_env=None)
        (request,) = sink.requests([message(sink, name)], context())
        deliver(sink, request, sink.secrets(ENVIRONMENT))
    (received,), (headers,) = server.bodies, server.headers
    if isinstance(received, dict):
        received.pop("routing_key", None)
    assert received == json.loads((GOLDEN / f"{sink.type}-{name}.json").read_text("utf-8"))
    is_text = isinstance(request.body, str)
    assert headers["Content-Type"] == ("text/plain; charset=utf-8" if is_text else "application/json")


class Plain(HttpSink):
    """Posts plain text."""

    type: ClassVar[str] = "plain"

    def payload(self, message: Message, context: text.Context) -> str:
        """Return the text."""
        return f"{text.titled(message, context)}\n\n{text.page(message, context)}"


def test_a_sink_may_post_plain_text() -> None:
    with serving() as server:
        sink = Plain(name="plain", url=server.url)
        _, (report,) = run(sink, finding(1, title="Größer \N{BELL} als 1"))
    (received,), (headers,) = server.bodies, server.headers
    assert report.error is None
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    first, blank, *rest = received.splitlines()
    assert (first, blank) == ("[error] Größer \N{BELL} als 1 (payments)", "")
    assert "Start broker 3." in "\n".join(rest)


# -- a new type of sink ------------------------------------------------------------------------------------

NEW_SINK = """
from dataclasses import dataclass
from typing import ClassVar
from jobs.alerts import text
from jobs.alerts.sinks.http import HttpSink

@dataclass(frozen=True, kw_only=True)
class Pigeon(HttpSink):
    type: ClassVar[str] = "pigeon"
    loft_env: str
    colour: str = "grey"
    def payload(self, message, context):
        return {"colour": self.colour, "text": text.titled(message, context)}
"""


def test_a_new_type_of_sink_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, secrets, dry run and sending of a new type need no code in another file."""
    (tmp_path / "pigeon.py").write_text(NEW_SINK)
    monkeypatch.setattr(sinks, "__path__", [*sinks.__path__, str(tmp_path)])
    found = sinks._found()
    assert set(found) == {*sinks.SINK_TYPES, "pigeon"}
    monkeypatch.setitem(sinks.SINK_TYPES, "pigeon", found["pigeon"])
    environment = {"LOFT": "a-secret-loft"}
    with serving() as server:
        alert = f'[[alert]]\nname = "tower"\ntype = "pigeon"\nurl = "{server.url}"\nloft_env = "LOFT"\ncolour = "white"\n'
        (tmp_path / "audit.toml").write_text(alert)
        (sink,) = load(tmp_path / "audit.toml", environment).sinks
        planned = plan([sink], [finding(1, detail="a-secret-loft")], [], now=NOW, newest=NEWEST)
        hidden = sink.secrets(environment).hidden()
        dry = "\n".join(shown(sink, planned["tower"], replace(CONTEXT, hidden=hidden)))
        assert f"tower (pigeon, {server.url}): 1 message" in dry
        assert '"colour": "white"' in dry
        assert "a-secret-loft" not in dry
        _, (report,) = run(sink, finding(1), environment=environment)
        assert report.error is None
        assert server.bodies == [
            {"colour": "white", "text": "[error] The deletion of audit waits for broker 3 (payments)"}
        ]
    for wrong, complaint in (("colour", "unknown key 'color'"), ("loft_env", "loft_env is missing")):
        text = (
            alert.replace(f"{wrong} = ", "color = ")
            if wrong == "colour"
            else alert.replace('loft_env = "LOFT"\n', "")
        )
        (tmp_path / "audit.toml").write_text(text)
        with pytest.raises(errors.UsageError, match=complaint):
            load(tmp_path / "audit.toml", environment)


def test_no_code_asks_for_the_type_of_a_sink() -> None:
    jobs = Path(errors.__file__).parent
    asked = re.compile(r"sink\.type\s*(==|!=|in\b|not in\b)|match sink\.type")
    assert [path.name for path in jobs.rglob("*.py") if asked.search(path.read_text("utf-8"))] == []


# -- kill -9 -----------------------------------------------------------------------------------------------

RUN = """
import sys
sys.path[:0] = {path!r}
from dataclasses import replace
from test_alerts import CONTEXT, HOOK, NEWEST, NOW, finding
from jobs.alerts.delivery import plan, send_all
sink = replace(HOOK, url={url!r}, limit=9)
planned = plan([sink], [finding(n) for n in range(1, 6)], [], now=NOW, newest=NEWEST)
outbox = open({outbox!r}, "ab", 0)
send_all([sink], planned, CONTEXT, {{}}, lambda rows: [outbox.write(repr(row).encode() + b"\\n") for row in rows])
"""


def test_a_killed_run_repeats_at_most_one_message_under_the_same_key(tmp_path: Path) -> None:
    def third_hangs(handler: Any, number: int) -> None:
        (standins.hang if number == 3 else lambda h, n: answer(h, 200))(handler, number)

    outbox = tmp_path / "outbox"
    with serving(third_hangs) as server:
        script = RUN.format(
            path=[str(folder) for folder in Path(__file__).parents[:3]], url=server.url, outbox=str(outbox)
        )
        process = subprocess.Popen([sys.executable, "-c", script])
        for _ in range(300):
            if len(server.bodies) == 3:
                break
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        sent = [
            eval(line, {"Sent": Sent, "datetime": datetime_module})
            for line in outbox.read_text().splitlines()
        ]
        assert [row.fingerprint[-1] for row in sent if row.delivered_at] == ["1", "2"]
        run(replace(HOOK, url=server.url, limit=9), *[finding(n) for n in range(1, 6)], sent=sent)
        keys = [headers["Idempotency-Key"][63] for headers in server.headers]
        assert keys == ["1", "2", "3", "3", "4", "5"]


# -- the command, as far as it needs no tables -------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Iterator[str]:
    with standins.alertmanager(tmp_path / "alertmanager") as url:
        if url is None:
            pytest.skip("prometheus-alertmanager is not installed")
        yield url


def alerts_of(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answered:
        return json.load(answered)


def test_a_real_alertmanager_opens_and_resolves(tmp_path: Path, real: str) -> None:
    sink = replace(AM, url=real)
    hostile = finding(2, topic="<!channel>\n" + "x" * 249, detail="\x00\x1b[31m", cluster="c\td")
    sent, (report,) = run(sink, finding(1), hostile)
    assert report.error is None
    first, second = sorted(alerts_of(real), key=lambda alert: alert["labels"]["fingerprint"])
    assert first["labels"] == {
        "alertname": "topic_deletion_blocked", "severity": "error", "cluster": "payments", "topic": "audit", "node": "3",
        "fingerprint": finding(1).fingerprint,
    }  # fmt: skip
    assert first["annotations"]["summary"] == "The deletion of audit waits for broker 3 (payments)"
    assert "controller.log:64" in first["annotations"]["evidence"]
    assert first["generatorURL"] == f"https://audit.example.org/last.html#{finding(1).fingerprint}"
    assert first["status"]["state"] == "active"
    assert second["labels"]["topic"].startswith("<!channel>")
    sent, _ = run(sink, finding(1, status="resolved", severity="warning"), hostile, sent=sent)
    assert [alert["labels"]["fingerprint"] for alert in alerts_of(real)] == [hostile.fingerprint]
    # --again repeats what is firing
    sent, _ = run(sink, hostile, finding(1, status="resolved"), sent=sent)
    planned = plan([sink], [hostile], sent, now=NOW, newest=NEWEST, again="oncall")
    assert len(planned["oncall"]) == 1


def configured(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "audit.toml"
    path.write_text(text)
    return path


def test_the_option_test_sends_one_marked_alert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        monkeypatch.setenv("CHAT_URL", server.url + PATH)
        path = configured(tmp_path, '[[alert]]\nname = "chat"\ntype = "slack"\nurl_env = "CHAT_URL"\n')
        assert main(["alerts", "--config", str(path), "--test", "chat"]) == errors.CLEAN
        assert capsys.readouterr().out.startswith("Sent to chat: TEST: ")
        assert "This is a test; nothing is wrong." in json.dumps(server.bodies[0])
        assert server.bodies[0]["text"].startswith("[error] TEST: ")
        server.behave = lambda handler, number: answer(handler, 404, "no_service")
        assert main(["alerts", "--config", str(path), "--test", "chat"]) == errors.DELIVERY
        assert capsys.readouterr().err == "error: chat: answered 404: no_service\n"
        assert main(["alerts", "--config", str(path), "--test", "cat"]) == errors.USAGE
        assert "no alert is named 'cat'; did you mean 'chat'?" in capsys.readouterr().err


def test_a_test_alert_at_alertmanager_expires(tmp_path: Path) -> None:
    with serving() as server:
        path = configured(
            tmp_path, f'[[alert]]\nname = "oncall"\ntype = "alertmanager"\nurl = "{server.url}"\n'
        )
        assert main(["alerts", "--config", str(path), "--test", "oncall"]) == errors.CLEAN
    (alert,) = server.bodies[0]
    assert alert["labels"]["alertname"] == "kafka_audit_test"
    left = datetime.fromisoformat(alert["endsAt"]) - datetime.now(UTC)
    assert 0 < left.total_seconds() <= 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "none.toml"], "No such file"),
        (["--config", "empty.toml"], "no [[alert]]"),
        (["--config", "audit.toml"], "Give --tables DIR"),
        (["--config", "audit.toml", "--tables", "nowhere"], "no such folder"),
        (
            ["--config", "hook.toml", "--tables", "t", "--again", "h"],
            "only alertmanager and pagerduty keep incidents",
        ),
        (
            ["--config", "unset.toml", "--dry-run"],
            "names the environment variable NOT_SET_ANYWHERE, which is not set",
        ),
    ],
)
def test_wrong_usage(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    configured(tmp_path, '[[alert]]\nname = "o"\ntype = "alertmanager"\nurl = "http://127.0.0.1:9"\n')
    Path("empty.toml").write_text("")
    Path("hook.toml").write_text('[[alert]]\nname = "h"\ntype = "webhook"\nurl = "http://127.0.0.1:9"\n')
    Path("unset.toml").write_text('[[alert]]\nname = "o"\ntype = "slack"\nurl_env = "NOT_SET_ANYWHERE"\n')
    assert main(["alerts", *arguments]) == errors.USAGE
    assert words in capsys.readouterr().err
