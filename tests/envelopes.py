"""Envelopes for tests: the text that collectors, shells, mail programs and exports add to the lines of a log."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence

Wrap = Callable[[Sequence[str]], list[str]]
HEADER = re.compile(r"\[?\d{4}-\d\d-\d\d")
FIRST = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")


def times(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return (day, time) of each line; a line without a time has that of the line before."""
    found, now = [], ("2026-11-20", "10:00:00")
    for line in lines:
        if match := FIRST.search(line):
            now = match[1], match[2]
        found.append(now)
    return found


def grouped(lines: Sequence[str]) -> list[str]:
    """Return one text per record: some collectors send the lines of a stack trace as one event."""
    if sum(map(bool, map(HEADER.match, lines))) < 2:
        return list(lines)
    found: list[list[str]] = []
    for line in lines:
        if HEADER.match(line) or not found:
            found.append([])
        found[-1].append(line)
    return ["\n".join(one) for one in found]


def prefixed(prefix: Callable[[int, str, str], str]) -> Wrap:
    """Return an envelope whose prefix of each line is a function of number, day and time."""
    return lambda lines: [
        prefix(n, *at) + line for n, (line, at) in enumerate(zip(lines, times(lines), strict=True), 1)
    ]


def objects(make: Callable[[int, str, str, str], object], by_record: bool = False) -> Wrap:
    """Return an envelope of JSON objects, one per line or per record."""

    def wrap(lines: Sequence[str]) -> list[str]:
        texts = grouped(lines) if by_record else list(lines)
        return [
            json.dumps(make(n, *at, text))
            for n, (text, at) in enumerate(zip(texts, times(texts), strict=True), 1)
        ]

    return wrap


def table(
    delimiter: str,
    header: Sequence[str],
    make: Callable[[str, str, str], Sequence[str]],
    by_record: bool = True,
) -> Wrap:
    """Return an envelope of CSV rows; a field may have several lines."""

    def wrap(lines: Sequence[str]) -> list[str]:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
        texts = grouped(lines) if by_record else list(lines)
        writer.writerow(header)
        for text, at in zip(texts, times(texts), strict=True):
            writer.writerow(make(*at, text))
        return out.getvalue().removesuffix("\n").split("\n")

    return wrap


def fields(lines: Sequence[str]) -> list[str]:
    """Return an envelope of TSV as CloudWatch and databases print it, one row per line."""
    return [
        "timestamp\tstream\tmessage",
        *(f"{day}T{time}Z\tkafka-4\t{line}" for line, (day, time) in zip(lines, times(lines), strict=True)),
    ]


ENVELOPES: dict[str, Wrap] = {
    "docker json-file": objects(lambda n, day, time, text: {"log": text + "\n", "stream": "stdout", "time": f"{day}T{time}.637Z"}),
    "filebeat": objects(
        lambda n, day, time, text: {
            "@timestamp": f"{day}T{time}.637Z", "message": text, "host": {"name": "kafka4"}, "log": {"file": {"path": "/var/log/server.log"}, "offset": n},
        },
        by_record=True,
    ),
    "fluentd": objects(lambda n, day, time, text: {"kubernetes": {"pod_name": "kafka-4", "labels": {"app": "kafka"}}, "log": text, "seq": n}, by_record=True),
    "loki": objects(lambda n, day, time, text: {"line": text, "timestamp": "1795171130637000000", "fields": {"pod": "kafka-4"}}, by_record=True),
    "list of values": objects(lambda n, day, time, text: {"stream": {"pod": "kafka-4"}, "values": [["1795171130637000000", text]]}, by_record=True),
    "splunk": table(",", ["_time", "host", "_raw"], lambda day, time, text: [f"{day}T{time}.637+0000", "kafka4", text]),
    "semicolons": table(";", ["when", "text"], lambda day, time, text: [f"{day} {time}", text]),
    "tsv": fields,
    "cri": prefixed(lambda n, day, time: f"{day}T{time}.637000000Z stdout F "),
    "journal": prefixed(lambda n, day, time: f"Nov 20 {time} kafka4 kafka-server-start.sh[812]: "),
    "journal iso": prefixed(lambda n, day, time: f"{day}T{time}+0000 kafka4 kafka-server-start.sh[812]: "),
    "journal märz": prefixed(lambda n, day, time: f"März 20 {time} größe4 kafka-server-start.sh[812]: "),
    "syslog": prefixed(lambda n, day, time: f"<30>Nov 20 {time} kafka4 kafka[812]: "),
    "swarm": prefixed(lambda n, day, time: "kafka-4.1.x7k2q9w0z3ab@worker-2    | "),
    "compose": prefixed(lambda n, day, time: "kafka_1   | "),
    "kubectl": prefixed(lambda n, day, time: "[pod/kafka-4/kafka] "),
    "stern": prefixed(lambda n, day, time: "kafka-4 kafka "),
    "grep -n": prefixed(lambda n, day, time: f"{n + 116}:"),
    "grep -r": prefixed(lambda n, day, time: "broker-4/server.log:"),
    "grep -rn": prefixed(lambda n, day, time: f"./broker-4/logs/server.log.2026-11-20-10:{n}:"),
    "indented": prefixed(lambda n, day, time: "    "),
    "tab": prefixed(lambda n, day, time: "\t"),
    "mail": prefixed(lambda n, day, time: "> "),
    "mail twice": prefixed(lambda n, day, time: ">> "),
    "cat -n": prefixed(lambda n, day, time: f"{n:6}\t"),
    "ansible": prefixed(lambda n, day, time: "kafka-4 | CHANGED | rc=0 >> "),
    "heroku": prefixed(lambda n, day, time: f"{day}T{time}.637000+00:00 app[kafka.4]: "),
}  # fmt: skip
