"""Write the texts of alerts, plain. Pure.

All text from a log (names, messages, lines) is hostile: `Context.plain` turns it into one line of printable
characters, and each sink escapes it for its receiver.
"""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from jobs.alerts.outbox import FIRING, Finding, Message
from jobs.checking.harms import NOTHING_SHOWN
from parsers.explanation import counted
from schemas import SEVERITIES
from schemas.moments import moment

HEADLINE = 80  # characters: what a phone shows
PAGE = 3000  # characters of a whole alert
LINES = 3  # log lines that an alert shows
LINE = 240  # characters of a log line
NAMED = 10  # findings that a digest names
HARMS = 3  # sentences about harm in a digest


@dataclass(frozen=True)
class ProofLine:
    """A log record that proves a finding."""

    ts: datetime | None
    node: int | None
    file: str
    record_no: int
    raw: str


@dataclass(frozen=True)
class Context:
    """The values that texts use besides findings.

    tables: the folder, for the command that shows more. checks: check -> its name. now: this machine's clock,
    UTC.
    hidden: secrets, which are never repeated. newest: cluster -> newest moment of its logs.
    """

    tables: str
    now: datetime
    checks: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, ProofLine] = field(default_factory=dict)
    newest: Mapping[str, datetime] = field(default_factory=dict)
    report_url: str | None = None
    hidden: tuple[str, ...] = ()
    test: bool = False

    def plain(self, text: str, width: int) -> str:
        """Return one line of printable characters, at most `width` long, without secrets."""
        text = without(text[: 4 * width + 1000], self.hidden)
        clean = "".join(
            c if c.isprintable() else " " if c in "\n\r\t" else "\N{REPLACEMENT CHARACTER}" for c in text
        ).strip()
        return shortened(clean, width)


def without(text: str, hidden: tuple[str, ...]) -> str:
    """Return the text with *** in place of each secret."""
    for secret in hidden:
        text = text.replace(secret, "***")
    return text


def shortened(text: str, width: int) -> str:
    """Return the text, cut at its end to a width."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _middle_out(text: str, width: int) -> str:
    """Return the text, cut in the middle to a width: names of topics differ at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def what(finding: Finding, context: Context) -> str:
    """Return the name of the check."""
    return context.checks.get(finding.check_id) or context.plain(finding.check_id, 60)


def where(finding: Finding, context: Context, width: int = HEADLINE) -> str:
    """Return topic, partition, replica and node, such as `orders-3, replica 2`.

    The name of the topic is cut so that the text fits.
    """
    parts = [f"replica {finding.replica}"] if finding.replica is not None else []
    if finding.node is not None and finding.node != finding.replica:
        parts.append(f"node {finding.node}")
    rest = ", ".join(parts)
    if finding.topic is None:
        return shortened(rest, width)
    partition = "" if finding.partition is None else f"-{finding.partition}"
    room = width - len(partition) - (len(rest) + 2 if rest else 0)
    topic = _middle_out(context.plain(finding.topic, 249), max(room, 12))
    return f"{topic}{partition}" + (f", {rest}" if rest else "")


def headline(finding: Finding, context: Context, state: str = FIRING, width: int = HEADLINE) -> str:
    """Return the title of a finding and its cluster, within `width` characters."""
    begin = ("TEST: " if context.test else "") + ("" if state == FIRING else "Over: ")
    cluster = f" ({_middle_out(context.plain(finding.cluster, 249), 20)})"
    title = _middle_out(context.plain(finding.title, 400), max(width - len(begin) - len(cluster), 12))
    return shortened(f"{begin}{title}{cluster}", width)


def titled(message: Message, context: Context) -> str:
    """Return the headline of a message with its severity, for receivers without a field for it."""
    severity = f"[{message.severity}] "
    return severity + summary(message, context, HEADLINE - len(severity))


def summary(message: Message, context: Context, width: int = HEADLINE) -> str:
    """Return the headline of a message, within `width` characters."""
    first = message.findings[0]
    if not message.digest:
        return headline(first, context, message.state, width)
    begin = ("TEST: " if context.test else "") + ("" if message.state == FIRING else "Over: ")
    begin += f"{len(message.findings):,} findings in {_middle_out(context.plain(message.cluster, 249), 20)}"
    place = where(first, context, 30)
    return shortened(f"{begin}; {what(first, context)}{': ' if place else ''}{place}", width)


def when(finding: Finding, context: Context) -> str:
    """Return the sentence about when a finding began and whether it is over."""
    newest = context.newest.get(finding.cluster)
    if finding.first_seen is None:
        return "The logs have no time stamps." + (" It is over." if finding.is_over else "")
    if finding.first_seen == finding.last_seen:
        return (
            f"At {moment(finding.first_seen)}, once; the logs go on to {moment(newest)}."
            if newest
            else f"At {moment(finding.first_seen)}, once."
        )
    begin = moment(finding.first_seen)
    end = moment(finding.last_seen or finding.first_seen, finding.first_seen)
    if finding.is_over:
        return f"Over: it lasted from {begin} to {end}."
    return f"Since {begin}; still so at {end}, where the logs end or last show it."


def proof(finding: Finding, context: Context) -> list[str]:
    """Return the log lines that prove a finding, each with node, file and line number."""
    found = []
    for record_id in finding.evidence[:LINES]:
        if (line := context.lines.get(record_id)) is None:
            continue
        file = "/".join(line.file.split("/")[-3:])
        node = "node ?" if line.node is None else f"node {line.node}"
        found.append(
            f"{context.plain(line.raw.split(chr(10), 1)[0], LINE)} ({node}, {context.plain(file, 100)}:{line.record_no})"
        )
    if len(finding.evidence) > len(found):
        found.append(f"and {counted(len(finding.evidence) - len(found), 'more record')}")
    return found


def more(message: Message, context: Context) -> str:
    """Return the command that shows more, and the address of the report if there is one."""
    if context.test:
        # the tables have no such finding
        command = f"kafka-audit alerts --test {quoted(message.sink.name)}"
        return f"{command}\n{context.report_url}" if context.report_url else command
    if message.digest:
        command = f"kafka-audit findings --cluster {quoted(context.plain(message.cluster, 249))}"
    else:
        command = f"kafka-audit findings {message.findings[0].fingerprint[:16]}"
    command += f" --tables {quoted(context.tables)}"
    return f"{command}\n{report(message, context)}" if context.report_url else command


def quoted(text: str) -> str:
    """Return a text as one word of a shell command."""
    return shlex.quote(text)


def report(message: Message, context: Context) -> str | None:
    """Return the address of the report, at the finding."""
    if context.report_url is None or message.digest or "#" in context.report_url:
        return context.report_url
    return f"{context.report_url}#{message.findings[0].fingerprint}"


def description(message: Message, context: Context) -> str:
    """Return the text of a message without log lines and command.

    It has harm, title, detail, times, cause, consequences and advice.
    """
    if message.digest:
        return _digest(message, context)
    finding = message.findings[0]
    lines = ["This is a test; nothing is wrong."] if context.test else []
    lines += [context.plain(harm, 300) for harm in finding.harms]
    lines += [
        context.plain(finding.title, 400),
        context.plain(finding.detail or "", 700),
        when(finding, context),
    ]
    effects = message.findings[1:]
    # this sink does not get the cause itself
    if finding.cause and finding.caused_by not in {effect.fingerprint for effect in effects}:
        lines.append(f"Cause: {context.plain(finding.cause, 200)}")
    lines += [
        f"Consequence: [{effect.severity}] {context.plain(effect.title, 200)}" for effect in effects[:NAMED]
    ]
    if len(effects) > NAMED:
        lines.append(f"and {counted(len(effects) - NAMED, 'more consequence')}")
    if finding.advice and message.state == FIRING:
        lines.append(f"What to do: {context.plain(finding.advice, 600)}")
    return "\n".join(line for line in lines if line)


def _digest(message: Message, context: Context) -> str:
    findings = message.findings
    severities = Counter(finding.severity for finding in findings)
    counted = ", ".join(f"{severities[name]:,} {name}" for name in reversed(SEVERITIES) if severities[name])
    lines = [f"{len(findings):,} findings in {context.plain(message.cluster, 249)} at once: {counted}."]
    # findings of one story have the same sentences
    harms = list(
        dict.fromkeys(harm for finding in findings for harm in finding.harms if harm != NOTHING_SHOWN)
    )
    lines += [context.plain(harm, 300) for harm in harms[:HARMS]]
    lines += [f"[{finding.severity}] {headline(finding, context, width=120)}" for finding in findings[:NAMED]]
    # in the order of the findings: the worst kind first
    rest = Counter(what(finding, context) for finding in findings[NAMED:])
    if rest:
        lines.append(
            f"and {sum(rest.values()):,} more: "
            + "; ".join(f"{count:,} {title}" for title, count in rest.items())
        )
    return "\n".join(lines)


def page(message: Message, context: Context) -> str:
    """Return the whole text under the headline, at most a page long."""
    parts = [description(message, context)]
    if not message.digest:
        parts.append("\n".join(proof(message.findings[0], context)))
    command = more(message, context)
    text = "\n\n".join(part for part in parts if part)
    return f"{shortened(text, PAGE - len(command) - 2)}\n\n{command}"
