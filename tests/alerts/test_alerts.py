"""Alerts without a JVM: which findings are due at which sink, in which messages, and the texts of the
messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from jobs.alerts import text
from jobs.alerts.delivery import checks, latest, plan
from jobs.alerts.outbox import FIRING, RESOLVED, Due, Finding, Message, Sent, outcome
from jobs.alerts.sink import Sink
from jobs.alerts.sinks import SINK_TYPES
from jobs.alerts.sinks.alertmanager import Alertmanager
from jobs.alerts.sinks.apprise import Apprise
from jobs.alerts.sinks.mail import Mail
from jobs.alerts.sinks.pagerduty import PagerDuty
from jobs.alerts.sinks.slack import Slack
from jobs.alerts.sinks.webhook import Webhook

GOLDEN = Path(__file__).parents[1] / "alerts"
NOW = datetime(2026, 11, 21, 4, 30, tzinfo=UTC)
NEWEST = {"payments": datetime(2026, 11, 21, 4, tzinfo=UTC)}

AM = Alertmanager(name="oncall", url="http://am.example.org:9093/prefix/")
PAGER = PagerDuty(name="pager", routing_key_env="PD_KEY", limit=3)
CHAT = Slack(name="chat", url_env="CHAT_URL", limit=3)
HOOK = Webhook(name="hook", url="https://hook.example.org/x", limit=3)
POST = Mail(
    name="post",
    url="smtp://mail.example.org",
    sender="audit@example.org",
    to=("ann@example.org", "bob@example.org"),
    limit=3,
)
PHONE = Apprise(name="phone", url_env="PHONE_URL", limit=3)
# one of each type
SINKS = (AM, PAGER, CHAT, HOOK, POST, PHONE)


def finding(number: int = 1, **changed: Any) -> Finding:
    """A deletion that is blocked."""
    plain = Finding(
        cluster="payments",
        fingerprint=f"{number:064x}",
        check_id="topic_deletion_blocked",
        severity="error",
        status="new",
        title="The deletion of audit waits for broker 3",
        detail="The deletion of audit has been blocked by replica 3 of partition 0.",
        advice="Start broker 3. The controller then continues by itself.",
        topic="audit",
        node=3,
        first_seen=datetime(2026, 11, 20, 10, 9, 27, 387000, tzinfo=UTC),
        last_seen=datetime(2026, 11, 21, 4, tzinfo=UTC),
        evidence=("r1", "r2"),
    )
    return replace(plain, **changed)


CONTEXT = text.Context(
    tables="/data/audit tables",
    now=NOW,
    checks=checks(),
    newest=NEWEST,
    lines={
        "r1": text.ProofLine(
            datetime(2026, 11, 20, 10, 9, 27, 373000, tzinfo=UTC), 1, "/var/log/kafka/broker-1/controller.log", 64,
            "[2026-11-20 10:09:27,373] INFO [Controller id=1] Starting topic deletion for topics audit (kafka.controller.KafkaController)",
        )
    },
    report_url="https://audit.example.org/last.html",
)  # fmt: skip


# -- what is due -------------------------------------------------------------------------------------------


class Runs:
    """Plans alerts run after run, for sinks that are up or down, and keeps the outbox."""

    def __init__(self, *sinks: Sink) -> None:
        self.sinks = sinks
        self.sent: list[Sent] = []
        self.now = NOW

    def run(
        self, *findings: Finding, down: Iterable[str] = (), again: str | None = None
    ) -> list[tuple[str, str, str]]:
        """(sink, state, key) of the messages, in order; those to a sink that is down fail."""
        planned = plan(self.sinks, findings, self.sent, now=self.now, newest=NEWEST, again=again)
        for some in planned.values():
            for message in some:
                error = "connection refused" if message.sink.name in down else None
                labels = AM.labels(message, CONTEXT)
                self.sent = latest([*self.sent, *outcome(message, self.now, error, labels)])
        self.now += timedelta(days=1)
        return [
            (m.sink.name, m.state, m.key[-1] if not m.digest else "digest")
            for some in planned.values()
            for m in some
        ]


def test_a_sink_is_notified_once_per_start_and_end() -> None:
    runs = Runs(AM, CHAT)
    assert runs.run(finding()) == [("oncall", FIRING, "1"), ("chat", FIRING, "1")]
    assert runs.run(finding(status="open")) == []
    assert runs.run(finding(status="resolved")) == [("oncall", RESOLVED, "1"), ("chat", RESOLVED, "1")]
    assert runs.run(finding(status="resolved")) == []
    assert runs.run(finding(status="reopened")) == [("oncall", FIRING, "1"), ("chat", FIRING, "1")]
    assert runs.run(finding(status="open")) == []
    assert runs.run(finding(status="resolved")) == [("oncall", RESOLVED, "1"), ("chat", RESOLVED, "1")]
    assert {(row.state, row.occurrence) for row in runs.sent} == {
        (FIRING, 1),
        (RESOLVED, 1),
        (FIRING, 2),
        (RESOLVED, 2),
    }


def test_undelivered_messages_are_sent_first_by_the_next_run() -> None:
    runs = Runs(CHAT, AM)
    runs.run(finding(2), down=["chat"])
    assert [row.attempts for row in runs.sent if row.sink == "chat"] == [1]
    worse = finding(1, severity="critical")
    assert runs.run(worse, finding(2, status="open")) == [
        ("chat", FIRING, "2"),
        ("chat", FIRING, "1"),
        ("oncall", FIRING, "1"),
    ]
    assert runs.run(replace(worse, status="open"), finding(2, status="open")) == []
    (row,) = [row for row in runs.sent if row.sink == "chat" and row.fingerprint.endswith("2")]
    assert (row.attempts, row.error, row.delivered_at) == (2, None, row.tried_at)


def test_a_finding_that_is_resolved_before_it_was_delivered() -> None:
    runs = Runs(PAGER, CHAT)
    runs.run(finding(), down=["pager", "chat"])
    # a pager gets the incident and its end; people read one message
    assert runs.run(finding(status="resolved")) == [
        ("pager", FIRING, "1"),
        ("pager", RESOLVED, "1"),
        ("chat", RESOLVED, "1"),
    ]
    assert runs.run(finding(status="resolved")) == []
    assert all(row.delivered_at for row in runs.sent)
    assert sorted((row.sink, row.state) for row in runs.sent) == [
        ("chat", FIRING), ("chat", RESOLVED), ("pager", FIRING), ("pager", RESOLVED)
    ]  # fmt: skip


def test_a_resolve_that_failed_before_it_is_reopened() -> None:
    runs = Runs(AM)
    runs.run(finding())
    runs.run(finding(status="resolved"), down=["oncall"])
    assert runs.run(finding(status="reopened")) == [("oncall", RESOLVED, "1"), ("oncall", FIRING, "1")]


def test_a_finding_that_is_resolved_before_the_first_run() -> None:
    over = finding(status="resolved")
    assert Runs(PAGER, AM, CHAT).run(over) == [("chat", RESOLVED, "1")]
    assert Runs(CHAT).run(replace(over, last_seen=NEWEST["payments"] - timedelta(hours=25))) == []
    assert Runs(replace(CHAT, ended=False)).run(over) == []


@pytest.mark.parametrize(
    ("changed", "is_notified"),
    [
        ({}, True),
        ({"severity": "warning"}, False),
        ({"severity": "critical"}, True),
        ({"check_id": "partition_leaderless"}, False),
        ({"cluster": "orders"}, False),
        ({"silenced": True}, False),
    ],
)
def test_routes(changed: dict[str, Any], is_notified: bool) -> None:
    sink = replace(AM, severity="error", checks=("topic_*", "illegal_*"), clusters=("pay*",))
    assert bool(Runs(sink).run(finding(**changed))) is is_notified


def test_a_later_silence_does_not_keep_an_alert_open() -> None:
    runs = Runs(AM)
    runs.run(finding())
    assert runs.run(finding(status="open", silenced=True)) == []
    assert runs.run(finding(status="resolved", silenced=True)) == [("oncall", RESOLVED, "1")]
    runs = Runs(AM)
    assert runs.run(finding(silenced=True)) == []
    assert runs.run(finding(status="open")) == [("oncall", FIRING, "1")]  # the silence has expired


def test_alertmanager_is_notified_again_before_an_alert_expires_and_by_again() -> None:
    runs = Runs(AM, PAGER)
    still = finding(status="open")
    runs.run(finding())
    assert runs.run(still, again="oncall") == [("oncall", FIRING, "1")]
    runs.now += timedelta(days=14)
    assert runs.run(still) == []
    runs.now += timedelta(days=1)
    assert runs.run(still, down=["oncall"]) == [("oncall", FIRING, "1")]
    assert [row.delivered_at is None for row in runs.sent] == [False, False]
    assert runs.run(still) == [("oncall", FIRING, "1")]
    assert runs.run(still) == []


def test_alertmanager_is_resolved_under_the_labels_that_it_knows() -> None:
    runs = Runs(AM)
    runs.run(finding())
    changed = finding(status="resolved", severity="critical", node=None)
    (message,) = plan([AM], [changed], runs.sent, now=NOW, newest=NEWEST)["oncall"]
    assert json.loads(AM.labels(message, CONTEXT))["node"] == "3"
    assert json.loads(AM.labels(message, CONTEXT))["severity"] == "error"


def test_a_digest_of_400_findings_is_resolved_when_all_are() -> None:
    findings = [finding(number, severity="critical" if number == 77 else "error") for number in range(1, 401)]
    runs = Runs(PAGER, CHAT)
    assert runs.run(*findings) == [("pager", FIRING, "digest"), ("chat", FIRING, "digest")]
    open_now = [replace(one, status="open") for one in findings]
    assert runs.run(*open_now) == []
    some_over = [replace(one, status="resolved") for one in open_now[:200]] + open_now[200:]
    assert runs.run(*some_over) == [("chat", RESOLVED, "digest")]
    all_over = [replace(one, status="resolved") for one in findings]
    assert runs.run(*all_over) == [("pager", RESOLVED, "digest"), ("chat", RESOLVED, "digest")]
    assert runs.run(*all_over) == []
    keys = {row.digest for row in runs.sent if row.sink == "pager"}
    assert len(keys) == 1


def test_a_digest_lists_the_worst_harm_first() -> None:
    late = datetime(2026, 11, 20, 23, tzinfo=UTC)
    kinds = [check for check in checks() if schemas.harms()[check] != "loss"]
    others = [finding(number, check_id=kinds[number % len(kinds)]) for number in range(4, 401)]
    loss = [
        finding(2, check_id="unclean_election", first_seen=late),
        *(finding(n, check_id="data_at_risk", title="Broker 3 truncated 9 records") for n in range(401, 420)),
    ]
    (firing,) = [
        m for some in plan([CHAT], [*others, *loss], [], now=NOW, newest=NEWEST).values() for m in some
    ]
    lines = text.description(firing, CONTEXT).split("\n")
    assert all("Broker 3 truncated 9 records" in line for line in lines[1 : text.NAMED + 1])
    assert lines[-1].startswith(
        f"and {417 - text.NAMED:,} more: {19 - text.NAMED} {checks()['data_at_risk']}; 1 Unclean leader election; "
    )
    # each kind is named, not the most frequent ones only
    assert all(checks()[kind] in lines[-1] for kind in kinds)


def test_a_digest_is_repeated_under_its_key() -> None:
    some = [finding(number) for number in range(1, 6)]
    runs = Runs(PAGER)
    runs.run(*some)
    (key,) = {row.digest for row in runs.sent}
    (message,) = plan([PAGER], some, runs.sent, now=runs.now, newest=NEWEST, again="pager")["pager"]
    assert (message.key, message.state, len(message.findings)) == (key, FIRING, 5)


def test_limits_are_those_of_a_cluster() -> None:
    some = [finding(number, cluster=cluster) for cluster in ("a", "b") for number in range(1, 4)]
    assert len(Runs(CHAT).run(*some)) == 6
    assert Runs(CHAT).run(*some, finding(4, cluster="a")) == [
        ("chat", FIRING, "digest"),
        *[("chat", FIRING, n) for n in "123"],
    ]


STATES = st.lists(st.sampled_from(["new", "resolved", "open", "reopened"]), min_size=3, max_size=3)


@given(
    runs=st.lists(st.tuples(STATES, st.booleans(), st.booleans()), min_size=1, max_size=8),
    limit=st.integers(1, 3),
)
def test_in_any_course_each_state_is_delivered_once_and_in_turn(
    runs: list[tuple[list[str], bool, bool]], limit: int
) -> None:
    """Any course of three findings, with sinks that are up or down: an incident is opened and resolved in
    turn, never twice.
    """
    world = Runs(replace(PAGER, limit=limit), replace(CHAT, limit=limit, ended=False))
    for statuses, pager_down, chat_down in [*runs, (["resolved"] * 3, False, False)]:
        down = [name for name, is_down in (("pager", pager_down), ("chat", chat_down)) if is_down]
        before = {row.identity for row in world.sent if row.delivered_at}
        world.run(*[finding(number, status=status) for number, status in enumerate(statuses, 1)], down=down)
        tried_now = world.now - timedelta(days=1)
        delivered = [row.identity for row in world.sent if row.delivered_at == tried_now]
        assert not before & set(delivered)
    for sink in world.sinks:
        for number in (1, 2, 3):
            rows = [
                row
                for row in world.sent
                if row.sink == sink.name and row.fingerprint == f"{number:064x}" and row.delivered_at
            ]
            rows.sort(key=lambda row: (row.occurrence, row.state == RESOLVED))
            assert [row.state for row in rows] == [FIRING, RESOLVED] * (len(rows) // 2)
            times = [row.delivered_at for row in rows if row.delivered_at]
            # an incident that a digest opened ends with the last finding of it
            assert times == sorted(times) or (sink.type == "pagerduty" and any(row.digest for row in rows))


# -- texts of messages ---------------------------------------------------------------------------------------

PLAIN = finding()
LEADERLESS = finding(
    2, check_id="partition_leaderless", severity="critical", title="Partition without a leader: orders-3", topic="orders", partition=3,
    node=None, detail="orders-3 has no leader; last in sync: 2.", evidence=("r9",),
    harms=("Unavailable: 1 partition of orders, for at least 17 h 50 min; still so at 2026-11-21 04:00:00 UTC.",),
)  # fmt: skip
ILLEGAL = finding(
    3, check_id="illegal_replica_transition", title="Illegal state change of replica 2 of audit-0",
    topic="audit", partition=0, replica=2, node=1, last_seen=datetime(2026, 11, 20, 10, 9, 27, 387000, tzinfo=UTC), evidence=("r1",),
)  # fmt: skip
NAME = "<!channel>&<script>alert(1)</script>*_~`" + "x" * 209
HOSTILE = finding(
    4, topic=NAME, title=f"Topic deletion held up: {NAME} waits\n\x1b[31mfor \u202ebroker 3\x00", detail="line\r\nSubject: forged <b>bold</b> @here ```",
    cluster="pay<!here>\nments", evidence=("hostile",), harms=(f"Unavailable: 1 partition of {NAME}\n\x00<b>.",),
)  # fmt: skip
MESSAGES: dict[str, tuple[str, list[Finding]]] = {
    "firing": (FIRING, [PLAIN]),
    "moment": (FIRING, [ILLEGAL]),
    "resolved": (RESOLVED, [replace(PLAIN, status="resolved")]),
    "hostile": (FIRING, [HOSTILE]),
    "digest": (FIRING, [LEADERLESS, ILLEGAL, *(finding(number) for number in range(4, 401))]),
}


def message(sink: Sink, name: str) -> Message:
    state, findings = MESSAGES[name]
    digest = len(findings) > 1
    items = tuple(Due(one, state, 1) for one in findings)
    key = "digest-1f" if digest else findings[0].fingerprint
    return Message(sink, findings[0].cluster, state, key, items, digest)


def context() -> text.Context:
    hostile = text.ProofLine(
        None,
        None,
        "/logs/a\nb/<img src=x>.log",
        7,
        f"WARN {NAME} token=s3cret-token \x07 ]]> </pre>\n  at kafka",
    )
    return replace(CONTEXT, lines={**CONTEXT.lines, "hostile": hostile}, hidden=("s3cret-token",))


def body(sink: Sink, name: str) -> Any:
    (request,) = sink.requests([message(sink, name)], context())
    if isinstance(request.body, EmailMessage):
        return [
            *(f"{key}: {value}" for key, value in request.body.items()),
            "",
            *request.body.get_content().splitlines(),
        ]
    return request.body


def test_each_type_of_sink_is_tested() -> None:
    missing = SINK_TYPES.keys() - {sink.type for sink in SINKS}
    assert not missing, (
        f"add a sink of type {', '.join(sorted(missing))} to SINKS of tests/alerts/test_alerts.py"
    )


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.type)
def test_golden(sink: Sink, name: str, request: pytest.FixtureRequest) -> None:
    """The whole request is in a file; `pytest --rewrite` writes it again, and the diff is reviewed like code."""
    path = GOLDEN / f"{sink.type}-{name}.json"
    sent_body = json.dumps(body(sink, name), ensure_ascii=False, indent=1) + "\n"
    if request.config.getoption("--rewrite"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(sent_body, encoding="utf-8")
    assert sent_body == path.read_text("utf-8"), (
        f"differs from {path}; if that is right, run `pytest --rewrite` and review the diff"
    )


@pytest.mark.parametrize("name", MESSAGES)
def test_a_headline_names_finding_and_topic_in_80_characters(name: str) -> None:
    first = message(CHAT, name).findings[0]
    for headline in (
        text.summary(message(CHAT, name), context()),
        text.titled(message(CHAT, name), context()),
    ):
        assert len(headline) <= 80
        assert (
            text.what(first, context()) in headline
            or first.title[:12] in headline
            or not first.title.isprintable()
        )
        assert (first.topic or "")[:6] in headline
        assert headline.isprintable()


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.type)
def test_no_alert_is_longer_than_a_page_or_carries_a_secret(sink: Sink, name: str) -> None:
    sent_body = body(sink, name)
    whole = json.dumps(sent_body, ensure_ascii=False)
    assert len(text.page(message(sink, name), context())) <= text.PAGE
    assert len(whole) < 3 * text.PAGE + (4 * text.PAGE if sink.type == "webhook" else 0)
    assert "s3cret-token" not in whole
    strings = [part for value in _strings(sent_body) for part in value.split("\n")]
    assert all(part.isprintable() for part in strings)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)


def test_slack_gets_no_mark_up() -> None:
    whole = json.dumps(body(CHAT, "hostile"))
    assert "<" not in whole
    assert "&lt;!channel&gt;&amp;&lt;script&gt;" in whole
    kinds = re.findall(r'"type": "(\w+)"', whole)
    assert "mrkdwn" not in kinds


def test_mail_headers_cannot_be_forged() -> None:
    (request,) = POST.requests([message(POST, "hostile")], context())
    sent_body = request.body.as_bytes().decode()
    head = sent_body.split("\n\n", 1)[0]
    assert [line.split(":")[0] for line in head.splitlines() if not line.startswith(" ")] == [
        "Subject", "From", "To", "Message-ID", "Auto-Submitted", "Date", "Content-Type", "Content-Transfer-Encoding", "MIME-Version"
    ]  # fmt: skip
    assert request.body.get_content_type() == "text/plain"


def test_the_same_message_has_the_same_key_however_often_it_is_sent() -> None:
    once, twice = (POST.requests([message(POST, "digest")], context())[0] for _ in range(2))
    assert once.body["Message-ID"] == twice.body["Message-ID"]
    hook = HOOK.requests([message(HOOK, "firing")], context())[0]
    assert hook.headers == {"Idempotency-Key": f"{PLAIN.fingerprint}/firing/1"}


@given(name=st.text(min_size=1, max_size=400), detail=st.text(max_size=3000))
def test_any_text_stays_within_its_bounds(name: str, detail: str) -> None:
    wild = finding(topic=name, title=f"{name}: {name}", detail=detail, cluster=name)
    one = Message(CHAT, name, FIRING, wild.fingerprint, (Due(wild, FIRING, 1),))
    sent_body = CHAT.payload(one, CONTEXT)
    jsonschema.validate(sent_body, SLACK)
    assert len(text.summary(one, CONTEXT)) <= 80
    jsonschema.validate(PAGER.payload(one, CONTEXT) | {"routing_key": "k" * 32}, PAGERDUTY)


# -- the schemas that the receivers document ---------------------------------------------------------------

# PagerDuty, Events API v2, "Send an alert event": required fields, lengths and values
PAGERDUTY = {
    "type": "object",
    "required": ["routing_key", "event_action"],
    "additionalProperties": False,
    "properties": {
        "routing_key": {"type": "string", "minLength": 32, "maxLength": 32},
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": {"type": "string", "maxLength": 255},
        "client": {"type": "string"},
        "client_url": {"type": "string"},
        "payload": {
            "type": "object",
            "required": ["summary", "source", "severity"],
            "additionalProperties": False,
            "properties": {
                "summary": {"type": "string", "minLength": 1, "maxLength": 1024},
                "source": {"type": "string", "minLength": 1},
                "severity": {"enum": ["critical", "error", "warning", "info"]},
                "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
                "component": {"type": "string"},
                "group": {"type": "string"},
                "class": {"type": "string"},
                "custom_details": {"type": "object"},
            },
        },
    },
    "if": {"properties": {"event_action": {"const": "trigger"}}},
    "then": {"required": ["payload"]},
    "else": {"required": ["dedup_key"]},
}
# Slack, Block Kit: text objects, header and section blocks, and how many blocks a message may have
SLACK = {
    "type": "object",
    "required": ["text", "blocks"],
    "properties": {
        "text": {"type": "string", "maxLength": 40000},
        "blocks": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "type": "object",
                "required": ["type", "text"],
                "additionalProperties": False,
                "properties": {
                    "type": {"enum": ["header", "section"]},
                    "text": {
                        "type": "object",
                        "required": ["type", "text"],
                        "additionalProperties": False,
                        "properties": {
                            "type": {"const": "plain_text"},
                            "emoji": {"type": "boolean"},
                            "text": {"type": "string", "minLength": 1, "maxLength": 3000},
                        },
                    },
                },
                "if": {"properties": {"type": {"const": "header"}}},
                "then": {"properties": {"text": {"properties": {"text": {"maxLength": 150}}}}},
            },
        },
    },
}
# Alertmanager, api/v2/openapi.yaml: postableAlerts
ALERTMANAGER = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["labels"],
        "additionalProperties": False,
        "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "startsAt": {"type": "string", "format": "date-time"},
            "endsAt": {"type": "string", "format": "date-time"},
            "generatorURL": {"type": "string", "format": "uri"},
        },
    },
}


@pytest.mark.parametrize("name", MESSAGES)
def test_requests_match_the_documented_schemas(name: str) -> None:
    jsonschema.validate(body(PAGER, name) | {"routing_key": "k" * 32}, PAGERDUTY)
    jsonschema.validate(body(CHAT, name), SLACK)
    jsonschema.validate(body(AM, name), ALERTMANAGER)


def test_an_alertmanager_alert_has_the_labels_of_the_contract() -> None:
    (alert,) = body(AM, "moment")
    assert alert["labels"] == {
        "alertname": "illegal_replica_transition", "severity": "error", "cluster": "payments", "topic": "audit", "partition": "0",
        "replica": "2", "node": "1", "fingerprint": ILLEGAL.fingerprint,
    }  # fmt: skip
    assert set(alert["annotations"]) == {"summary", "description", "evidence"}


def test_alertmanager_takes_batches() -> None:
    some = [message(AM, "firing")] * 120
    requests = AM.requests(some, CONTEXT)
    assert [len(request.body) for request in requests] == [50, 50, 20]
    assert requests[0].url == "http://am.example.org:9093/prefix/api/v2/alerts"


def test_the_guide_names_each_key_of_a_webhook() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "alerts.md").read_text("utf-8")
    part = guide.partition("## What a webhook receives")[2].partition("\n## ")[0]
    (sink,) = [one for one in SINKS if one.type == "webhook"]
    (request,) = sink.requests([message(sink, "firing")], CONTEXT)
    names = [*request.body, *request.body["findings"][0], *("firing", "resolved")]
    assert [name for name in names if f"`{name}`" not in part] == []
    assert request.headers["Idempotency-Key"] == f"{request.body['key']}/firing/1"


# -- one alert per story -------------------------------------------------------------------------------------


def story(**changed: Any) -> list[Finding]:
    """A cause (1) and two findings that follow from it, the second from the first.

    One of them is worse than the cause.
    """
    cause = finding(1, check_id="log_directory_failed", title="Disk failed", **changed)
    leaderless = finding(
        2,
        check_id="partition_leaderless",
        severity="critical",
        title="No leader",
        caused_by=cause.fingerprint,
        **changed,
    )
    return [
        cause,
        leaderless,
        finding(3, check_id="below_min_isr", title="Below", caused_by=leaderless.fingerprint, **changed),
    ]


def planned(
    sinks: Sequence[Sink], findings: Sequence[Finding], sent: Sequence[Sent] = ()
) -> dict[str, list[Message]]:
    return plan(sinks, findings, sent, now=NOW, newest=NEWEST)


def delivered(
    messages: Mapping[str, Sequence[Message]], sent: Sequence[Sent] = (), minutes: int = 0
) -> list[Sent]:
    rows = [
        row
        for some in messages.values()
        for one in some
        for row in outcome(one, NOW + timedelta(minutes=minutes), None)
    ]
    return latest([*sent, *rows])


def test_a_cause_and_its_consequences_are_one_alert() -> None:
    for sink, (message,) in planned(SINKS, story()).items():
        assert message.key == story()[0].fingerprint, sink
        assert [one.title for one in message.findings] == ["Disk failed", "No leader", "Below"]
        assert (message.severity, message.digest) == ("critical", False)
        lines = text.description(message, CONTEXT)
        assert (
            lines.index("Disk failed")
            < lines.index("Consequence: [critical] No leader")
            < lines.index("Consequence: [error] Below")
        )
    # stories count for the limit, not findings
    others = [finding(number) for number in (7, 8)]
    assert len(planned([PAGER], [*story(), *others])["pager"]) == 3


def test_a_silenced_or_unrouted_cause_hides_no_effect() -> None:
    cause, *effects = story()
    silenced = planned([PAGER], [replace(cause, silenced=True), *effects])["pager"]
    assert [[one.title for one in message.findings] for message in silenced] == [["No leader", "Below"]]
    minor = planned([PAGER], [replace(cause, severity="warning"), *effects])["pager"]
    assert [message.key for message in minor] == [effects[0].fingerprint]


def test_a_cause_that_a_sink_is_not_notified_of_is_named() -> None:
    cause, leaderless, _ = story()
    leaderless = replace(leaderless, cause=cause.title)
    (alone,) = planned([PAGER], [replace(cause, severity="warning"), leaderless])["pager"]
    assert "\nCause: Disk failed" in text.description(alone, CONTEXT)
    (together,) = planned([PAGER], [cause, leaderless])["pager"]
    assert "Cause:" not in text.description(together, CONTEXT)


def test_a_later_consequence_joins_the_incident_of_its_cause() -> None:
    cause, *effects = story()
    first = planned([PAGER, AM], [cause])
    sent = delivered(first)
    second = planned([PAGER, AM], [replace(cause, status="open"), *effects], sent)
    for message in (second["pager"][0], second["oncall"][0]):
        assert (message.key, message.state, message.lead) == (cause.fingerprint, FIRING, cause.fingerprint)
        assert [one.title for one in message.findings] == ["Disk failed", "No leader", "Below"]
    assert [len(some) for some in second.values()] == [1, 1]
    sent = delivered(second, sent, 1)
    assert not any(planned([PAGER], story(status="open"), sent).values())


def test_an_incident_ends_with_the_last_finding_of_its_story() -> None:
    cause, *effects = story()
    sent = delivered(planned([PAGER], [cause, *effects]))
    over = [replace(one, status="resolved") for one in (cause, *effects)]
    assert planned([PAGER], [over[0], over[1], replace(effects[1], status="open")], sent)["pager"] == []
    (message,) = planned([PAGER], over, sent)["pager"]
    assert (message.key, message.state, len(message.findings)) == (cause.fingerprint, RESOLVED, 3)
    sent = delivered({"pager": [message]}, sent, 2)
    assert not any(planned([PAGER], over, sent).values())


def test_the_example_of_the_guide_is_a_sink() -> None:
    page = (GOLDEN.parents[1] / "docs" / "contributing" / "sinks.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    namespace: dict[str, Any] = {"__name__": "teams"}
    exec(compile(example, "sinks.md", "exec", dont_inherit=True), namespace)
    sink = namespace["Teams"](name="teams", url="https://example.org/hook", channel="kafka")
    payload = sink.payload(message(sink, "firing"), context())
    assert payload["channel"] == "kafka"
    assert payload["title"]
