"""Layouts: where a log line keeps its time stamp, level, logger and message.

A layout is made from log4j's own ConversionPattern (org.apache.log4j.PatternLayout, log4j2 PatternLayout, Logback).
Every layout yields the same slots (date, clock, fraction, zone, level, logger, thread, speaker, statement), so that all of them
compile to one expression. What no logger has printed (the output of kafka-dump-log) has a plain `pattern` instead, may give
its time as `epoch_ms`, and names a logger that stands for its source.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parsers.patterns import DefinitionError, check_dialect

# what a component puts before its statement: `[Controller id=1 epoch=5] `, `Controller 1 epoch 5 `, `[Kafka Server 3], `
SPEAKER = r"(?<speaker>(?:\[[^\]]{1,300}\][:,]* ?)?(?:(?:Controller|Broker) \d+ (?:epoch \d+ )?)?)"
STATEMENT = r"(?<statement>.*)"
LOGGER = r"(?<logger>[\w.$\-]+)"
LEVEL = r"(?<level>TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)"

_CONVERSION = re.compile(r"%(-?\d*(?:\.-?\d+)?)([a-zA-Z]+|%)((?:\{[^}]*\})*)")
_DATE_FORMATS = {"": "yyyy-MM-dd HH:mm:ss,SSS", "ISO8601": "yyyy-MM-dd HH:mm:ss,SSS", "DEFAULT": "yyyy-MM-dd HH:mm:ss,SSS"}
_DATE_LETTERS = {"SSS": r"\d{3}", "XXX": r"(?:Z|[+\-]\d{2}:\d{2})", "Z": r"[+\-]\d{4}", "X": r"(?:Z|[+\-]\d{2})"}


@dataclass(frozen=True)
class Layout:
    """One layout.

    head: regex of a record's first line, from its start up to the message (what tells a record from a continuation).
    line: regex of a whole record of one line.  record: the same where more lines follow.
    """

    name: str
    head: str
    line: str
    record: str
    bare: bool
    samples: tuple[Mapping[str, Any], ...]
    # what stands in for the logger where none is printed
    logger: str | None = None
    # of no node: every copy of the same record is one record, whoever kept it
    of_cluster: bool = False

    @property
    def epoch_ms(self) -> bool:
        """Whether its time stamps are milliseconds since 1970."""
        return "(?<epoch_ms>" in self.line


def _date(spec: str, where: str) -> str:
    form = spec.strip("{}").split("}{", maxsplit=1)[0]
    form = _DATE_FORMATS.get(form, form).replace("''", "").replace("'T'", "T")
    found = re.fullmatch(r"(yyyy-MM-dd)(T| )(HH:mm:ss)(?:([,.])(SSS))?( ?)(XXX|X|Z)?", form)
    if not found:
        raise DefinitionError(f"{where}: date format {spec} is not supported; it must be yyyy-MM-dd HH:mm:ss[,SSS][zone]")
    _, between, _, point, millis, blank, zone = found.groups()
    parts = [r"(?<date>\d{4}-\d\d-\d\d)", between, r"(?<clock>\d\d:\d\d:\d\d)"]
    if millis:
        parts.append(rf"[,.](?<fraction>{_DATE_LETTERS[millis]})" if point else "")
    if zone:
        parts.append(f"{blank}(?<zone>{_DATE_LETTERS[zone]})")
    return "".join(parts)


def from_conversion_pattern(pattern: str, where: str) -> tuple[str, str, str]:
    """(head, line, record) for a ConversionPattern. Raises DefinitionError naming an unsupported conversion."""
    head, tail, in_tail, at = "", "", False, 0
    seen: set[str] = set()
    for found in _CONVERSION.finditer(pattern):
        literal = re.escape(pattern[at : found.start()]).replace(r"\ ", " +" if not in_tail and found.group(1) else " ")
        at = found.end()
        width, word, options = found.groups()
        piece = {
            "d": "date", "date": "date", "p": "level", "level": "level", "c": "logger", "logger": "logger", "lo": "logger",
            "m": "message", "msg": "message", "message": "message", "t": "thread", "thread": "thread", "tn": "thread",
            "n": "end", "F": "any", "L": "digits", "C": "any", "M": "any", "class": "any", "method": "any", "file": "any",
            "line": "digits", "x": "any", "X": "any", "mdc": "any", "MDC": "any", "r": "digits", "pid": "digits",
            "ex": "nothing", "throwable": "nothing", "xEx": "nothing", "wEx": "nothing", "%": "percent",
        }.get(word)  # fmt: skip
        if piece is None:
            raise DefinitionError(f"{where}: conversion %{word} is not supported")
        if piece in seen and piece in {"date", "level", "logger", "message"}:
            raise DefinitionError(f"{where}: %{word} stands twice")
        seen.add(piece)
        padding = " *" if width.lstrip("-").split(".")[0] else ""
        regex = {
            "date": _date(options, where) if piece == "date" else "",
            "level": padding + LEVEL + padding,
            "logger": padding + LOGGER + padding,
            "message": SPEAKER + STATEMENT,
            "thread": padding + r"(?<thread>[^\]]*?)" + padding,
            "digits": padding + r"\d+" + padding,
            "any": r"\S*?",
            "end": "",
            "nothing": "",
            "percent": "%",
        }[piece]
        if piece == "message":
            head += literal
            in_tail = True
        elif in_tail:
            tail += literal + regex
        else:
            head += literal + regex
    tail += re.escape(pattern[at:]).replace(r"\ ", " ")
    if "message" not in seen:
        raise DefinitionError(f"{where}: no %m in the pattern")
    lazy = STATEMENT.replace(".*", ".*?") if tail else STATEMENT.replace(".*", r"[^\n]*")
    return head, head + SPEAKER + STATEMENT + tail, head + SPEAKER + lazy + tail + r"\s*?(?:\n.*)?"


@cache
def layouts() -> tuple[Layout, ...]:
    """All built-in layouts in the order in which they are tried. Raises DefinitionError."""
    found = []
    for name, entry in tomllib.loads(files(__name__.split(".")[0]).joinpath("layouts.toml").read_text("utf-8")).items():
        where = f"layout {name}"
        if unknown := set(entry) - {"conversion_pattern", "prefix", "bare", "sample", "head", "pattern", "logger", "of_cluster"}:
            raise DefinitionError(f"{where}: unknown key {', '.join(sorted(unknown))}")
        if "pattern" in entry:
            head, line = entry["head"], entry["pattern"]
            record = line + r"(?:\n.*)?"
        else:
            head, line, record = from_conversion_pattern(entry["conversion_pattern"], where)
        prefix = entry.get("prefix", "")
        bare = entry.get("bare", False)
        if bare:  # nothing but Kafka's own loggers tells such a line from prose
            known = r"(?<logger>state\.change\.logger|kafka\.[\w.$]+|org\.apache\.kafka\.[\w.$]+)"
            line, record = line.replace(LOGGER, known), record.replace(LOGGER, known)
            head = line
        for part in (head, line, record):
            check_dialect(prefix + part, where)
        samples, logger, of_cluster = tuple(entry.get("sample", ())), entry.get("logger"), entry.get("of_cluster", False)
        found.append(Layout(name, prefix + head, prefix + line, prefix + record, bare, samples, logger, of_cluster))
    return tuple(found)
