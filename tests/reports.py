"""Logs in bug reports, chats, mails and exports: each is a function from the lines of a log to the lines of
the report.
"""

from __future__ import annotations

import csv
import html
import io
import json
import quopri
import textwrap
from collections.abc import Callable, Sequence

from envelopes import HEADER, grouped, times

Report = Callable[[Sequence[str]], list[str]]


def document(make: Callable[[list[str]], object], by_record: bool = True, indent: int | None = 2) -> Report:
    """Return one JSON document, pretty-printed."""
    return lambda lines: json.dumps(
        make(grouped(lines) if by_record else list(lines)), indent=indent, ensure_ascii=False
    ).split("\n")


def table(header: Sequence[str], make: Callable[[str, str, str], Sequence[str]]) -> Report:
    """Return CSV, quoted where necessary."""

    def report(lines: Sequence[str]) -> list[str]:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        texts = grouped(lines)
        writer.writerow(header)
        writer.writerows(make(*at, text) for text, at in zip(texts, times(texts), strict=True))
        return out.getvalue().rstrip("\n").split("\n")

    return report


def each(change: Callable[[str], str]) -> Report:
    """Return a report in which each line is changed."""
    return lambda lines: [change(line) for line in lines]


def around(before: Sequence[str], report: Report, after: Sequence[str]) -> Report:
    """Return a report with lines before and after the log."""
    return lambda lines: [*before, *report(lines), *after]


def grep(lines: Sequence[str]) -> list[str]:
    """Return the output of grep -n -H -A 20: matching lines have colons, following lines have dashes."""
    return [
        f"logs/server.log{mark}{number}{mark}{line}"
        for number, line in enumerate(lines, 1)
        for mark in (":" if HEADER.match(line) else "-",)
    ]


def wrapped(width: int) -> Report:
    """Return a log as a terminal of some columns shows it."""
    return lambda lines: [
        line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)
    ]


def quoted_printable(lines: Sequence[str]) -> list[str]:
    """A mail."""
    return quopri.encodestring("\n".join(lines).encode()).decode().split("\n")


def insights(texts: list[str]) -> object:
    """aws logs get-query-results."""
    return {
        "results": [
            [{"field": "@timestamp", "value": f"{day} {time}.000"}, {"field": "@message", "value": text}, {"field": "@ptr", "value": "CmEKKAok"}]
            for text, (day, time) in zip(texts, times(texts), strict=True)
        ],
        "statistics": {"recordsMatched": 7.0}, "status": "Complete",
    }  # fmt: skip


def hits(texts: list[str]) -> object:
    """A search in Elasticsearch."""
    return {
        "took": 4, "timed_out": False, "_shards": {"total": 1, "successful": 1, "failed": 0},
        "hits": {"total": {"value": len(texts), "relation": "eq"}, "max_score": None, "hits": [
            {"_index": "filebeat-8", "_id": f"x{n}", "_source": {"@timestamp": "2026-11-20T10:10:00.000Z", "message": text, "host": {"name": "kafka4"}}}
            for n, text in enumerate(texts)
        ]},
    }  # fmt: skip


def gelf(lines: Sequence[str]) -> str:
    """Return messages of Graylog, each with its delimiter."""
    return "".join(
        json.dumps({"version": "1.1", "host": "kafka4", "short_message": text.split("\n")[0][:200], "full_message": text, "timestamp": 1795171130.637 + n,
                    "level": 6, "_container_name": "kafka"}) + "\0"
        for n, text in enumerate(grouped(lines))
    )  # fmt: skip


def typescript(lines: Sequence[str]) -> list[str]:
    """Return the log of script(1) about a session."""
    prompt = "\x1b]0;ops@kafka4: ~\x07\x1b[?2004hops@kafka4:~$ "
    return [
        'Script started on 2026-11-20 10:20:01+00:00 [TERM="xterm-256color" COLUMNS="200"]',
        f"{prompt}cat server.log\r", "\x1b[?2004l\r", *(f"{line}\r" for line in lines), f"{prompt}exit\r", "", "Script done on 2026-11-20 10:20:09+00:00",
    ]  # fmt: skip


def describe(lines: Sequence[str]) -> list[str]:
    """kubectl describe pod, with the last lines of a container that has ended."""
    first, *others = lines
    return [
        "Name:             kafka-4", "Namespace:        streams", "Containers:", "  kafka:", "    Image:          apache/kafka:3.9.1",
        "    Last State:     Terminated", "      Reason:       Error", f"      Message:      {first}", *others, "      Exit Code:    1",
        "      Started:      Fri, 20 Nov 2026 10:02:11 +0000", "    Ready:          False",
    ]  # fmt: skip


LIGATURES = {"ffi": "\ufb03", "ffl": "\ufb04", "ff": "\ufb00", "fi": "\ufb01", "fl": "\ufb02"}


def from_pdf(line: str) -> str:
    for letters, one in LIGATURES.items():
        line = line.replace(letters, one)
    return line


def slack(texts: list[str]) -> object:
    """A channel of Slack, exported."""
    several = ["\n".join(texts[:3]), "\n".join(texts[3:])]
    return [
        {"type": "message", "user": "U02AB", "ts": "1795171100.000100", "text": "is broker 4 ok? controller says no :thinking_face:"},
        *({"type": "message", "user": "U07CD", "ts": f"179517113{n}.000200", "text": f"```{html.escape(text, quote=False)}```"} for n, text in enumerate(several)),
        {"type": "message", "user": "U02AB", "ts": "1795171190.000300", "text": "thanks, restarting", "reactions": [{"name": "eyes", "count": 2}]},
    ]  # fmt: skip


def rsyslog(line: str) -> str:
    return "Nov 20 10:09:13 kafka4 kafka[812]: " + line.replace("\t", "#011")


def string(make: Callable[[list[str]], object]) -> Report:
    """A whole log in one line of JSON, a line of it in each string."""
    return lambda lines: [json.dumps(make(list(lines)), ensure_ascii=False)]


def loki(texts: list[str]) -> object:
    """Loki's query_range."""
    values = [[str(1795171130637000000 + n), text] for n, text in enumerate(texts)]
    return {
        "status": "success",
        "data": {"resultType": "streams", "result": [{"stream": {"pod": "kafka-4"}, "values": values}]},
    }


def cloudwatch(texts: list[str]) -> object:
    """aws logs get-log-events."""
    return {
        "events": [{"timestamp": 1795171130637 + n, "message": text, "ingestionTime": 1795171130999} for n, text in enumerate(texts)],
        "nextForwardToken": "f/1", "nextBackwardToken": "b/1",
    }  # fmt: skip


def telemetry(texts: list[str]) -> object:
    """OpenTelemetry's logs."""
    records = [
        {"timeUnixNano": str(1795171130637000000 + n), "body": {"stringValue": text}}
        for n, text in enumerate(texts)
    ]
    host = {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": "kafka-4"}}]}
    return {"resourceLogs": [{"resource": host, "scopeLogs": [{"scope": {}, "logRecords": records}]}]}


def azure(texts: list[str]) -> object:
    """A query of Azure Log Analytics."""
    rows = [["2026-11-20T10:10:00Z", text] for text in texts]
    return {
        "tables": [
            {
                "name": "PrimaryResult",
                "columns": [{"name": "TimeGenerated"}, {"name": "LogEntry"}],
                "rows": rows,
            }
        ]
    }


def cat(line: str) -> str:
    """cat -A."""
    shown = ""
    for byte in line.encode():
        meta, low = "M-" * (byte >= 128), byte & 127
        shown += meta + (f"^{chr(low ^ 64)}" if low < 32 or low == 127 else chr(low))
    return shown + "$"


PROSE = [
    "We saw this after the upgrade from 2.8 to 3.3, on all brokers.",
    "",
    "Steps to reproduce: restart broker 4.",
    "",
]

REPORTS: dict[str, Report] = {
    "JIRA": around([*PROSE, "{noformat:title=state-change.log}"], list, ["{noformat}", "Any ideas?"]),
    "GitHub issue, quoted in an answer": around(["> **Describe the bug**", "> ", "> ```"], each(lambda line: f"> {line}"), ["> ```", "", "Same here."]),
    "GitHub issue, details": around(["<details><summary>broker log</summary>", "", "```text"], list, ["```", "", "</details>"]),
    "StackOverflow, HTML": around(["<p>My broker prints:</p>", "<pre><code>" ], each(html.escape), ["</code></pre>", "<p>Why?</p>"]),
    "terminal of 80 columns": wrapped(80),
    "terminal of 132 columns": wrapped(132),
    "Slack export": document(slack),
    "mail, quoted-printable": around(["Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: quoted-printable", ""], quoted_printable, []),
    "mail, format=flowed reply": each(lambda line: f">> {line}"),
    "Windows events, Export-Csv": table(["TimeCreated", "Id", "LevelDisplayName", "Message"], lambda day, time, text: [f"11/20/2026 {time} AM", "1000", "Information", text]),
    "kubectl describe": describe,
    "Datadog CSV": table(["Date", "Host", "Service", "Status", "Content"], lambda day, time, text: [f"{day}T{time}.637Z", "kafka4", "kafka", "info", text]),
    "Elasticsearch _search": document(hits),
    "Splunk, JSON export": lambda lines: [json.dumps({"preview": False, "offset": n, "result": {"_raw": text, "host": "kafka4", "source": "/var/log/kafka/server.log"}}) for n, text in enumerate(grouped(lines))],
    "docker compose, in colour": each(lambda line: f"\x1b[36mkafka-4  |\x1b[0m {line}"),
    "script(1)": typescript,
    "less -N": lambda lines: [f"{number:7} {line}" for number, line in enumerate(lines, 1)],
    "PDF": around(["Incident 4711", "Page 3 of 9"], each(from_pdf), ["Page 4 of 9"]),
    "grep -n -H -A": grep,
    "diff": around(["--- a/server.log\t2026-11-19", "+++ b/server.log\t2026-11-20", "@@ -0,0 +1,16 @@"], each(lambda line: f"+{line}"), []),
    "CloudWatch Insights": document(insights),
    "GCP logging": document(lambda texts: [{"insertId": f"a{n}", "textPayload": text, "timestamp": "2026-11-20T10:10:00.000Z", "resource": {"type": "k8s_container", "labels": {"pod_name": "kafka-4", "project_id": "x"}}} for n, text in enumerate(texts)]),
    "journalctl -o json": lambda lines: [json.dumps({"MESSAGE": line, "_HOSTNAME": "kafka4", "__REALTIME_TIMESTAMP": "1795171130637000", "_PID": "812", "PRIORITY": "6"}) for line in lines],
    "journalctl -o json-pretty": lambda lines: [part for line in lines for part in json.dumps({"MESSAGE": line, "_HOSTNAME": "kafka4", "_PID": "812"}, indent=8).split("\n")],
    "Azure Log Analytics CSV": table(["TimeGenerated [UTC]", "Computer", "LogEntry"], lambda day, time, text: [f"{day}T{time}.637Z", "kafka4", text]),
    "GELF over TCP": lambda lines: [gelf(lines)],
    "GELF, JSON lines": lambda lines: gelf(lines).rstrip("\0").split("\0"),
    "rsyslog": each(rsyslog),
    "one string": document(lambda texts: {"pod": "kafka-4", "logs": "\n".join(texts)}),
    "one field of CSV": lambda lines: ["node,log", '4,"' + "\n".join(lines).replace('"', '""') + '"'],
    "one string, one line": lambda lines: [json.dumps({"log": "\n".join(lines)})],
    "nothing but a string": lambda lines: [json.dumps("\n".join(lines))],
    "list of lines": string(lambda lines: lines),
    "list of lines, pretty-printed": document(lambda lines: lines, by_record=False),
    "list of lines in an object": string(lambda lines: {"pod": "kafka-4", "logs": lines}),
    "a JSON string a line": lambda lines: [json.dumps(line) for line in lines],
    "a JSON string a record": lambda lines: [json.dumps(text) for text in grouped(lines)],
    "Loki query_range": string(loki),
    "Loki query_range, pretty-printed": document(loki),
    "CloudWatch get-log-events": string(cloudwatch),
    "CloudWatch get-log-events, pretty-printed": document(cloudwatch),
    "Elasticsearch _search, one line": lambda lines: [json.dumps(hits(grouped(lines)))],
    "OpenTelemetry": string(telemetry),
    "OpenTelemetry, pretty-printed": document(telemetry),
    "Azure Log Analytics JSON": string(azure),
    "Ansible stdout_lines": document(lambda lines: {"ok: [kafka4] =>": {"stdout_lines": lines, "rc": 0}}, by_record=False),
    "GCP jsonPayload": lambda lines: [json.dumps({"jsonPayload": {"message": text}, "resource": {"labels": {"pod_name": "kafka-4"}}}) for text in grouped(lines)],
    "Fluentd": lambda lines: [f"2026-11-20T10:10:0{n % 10}+00:00\tkafka.broker4\t{json.dumps({'log': line})}" for n, line in enumerate(lines)],
    "logfmt": lambda lines: [f"time=2026-11-20T10:10:00Z level=info pod=kafka-4 msg={json.dumps(text)}" for text in grouped(lines)],
    "logfmt, message first": lambda lines: [f"msg={json.dumps(line)} host=kafka4" for line in lines],
    "syslog with structured data": lambda lines: [f'<134>1 2026-11-20T10:10:0{n % 10}.000Z kafka4 kafka 812 - [origin ip="10.0.0.4" enterpriseId="1"] {line}' for n, line in enumerate(lines)],
    "XML": lambda lines: ["<events>", *(f'<event time="2026-11-20T10:10:00Z"><message>{html.escape(line)}</message></event>' for line in lines), "</events>"],
    "HTML with line breaks": around(["<p>"], each(lambda line: html.escape(line) + "<br/>"), ["</p>"]),
    "Grafana, with labels": around(['Common labels: {"app":"kafka","pod":"kafka-4"}', 'Line limit: "1000 (7 returned)"', ""], list, []),
    "Kibana CSV": table(["@timestamp", "host.name", "message"], lambda day, time, text: [f"Nov 20, 2026 @ {time}.637", "kafka4", text]),
    "Heroku": each(lambda line: f"2026-11-20T10:10:00.637421+00:00 app[kafka.4]: {line}"),
    "Nomad": each(lambda line: f"alloc 5f3e (kafka-4) stdout: {line}"),
    "YAML": around(["logs: |"], each(lambda line: f"  {line}"), []),
    "cat -A": each(cat),
    "cat -A of CRLF": each(lambda line: cat(line + "\r")),
    "Python, list of lines": lambda lines: [repr(list(lines))],
    "Python, a string a line": each(repr),
    "Python, one string": lambda lines: [repr("\n".join(lines))],
    "Python, bytes": lambda lines: [repr("\n".join(lines).encode())],
    "Python, a dictionary a record": lambda lines: [repr({"pod": "kafka-4", "code": None, "log": text}) for text in grouped(lines)],
    "grep -C": lambda lines: [*lines[:2], "--", *lines[2:8], "--", *lines[8:]],
    "tail of several files": lambda lines: ["==> logs/server.log <==", *lines[:2], "", "==> logs/state-change.log <==", *lines[2:]],
    "outline": each(lambda line: textwrap.indent(line, "        ") or "        "),
}  # fmt: skip
