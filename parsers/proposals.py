"""Propose a ConversionPattern for lines that no layout matches, from their content. No Spark."""

import re
from collections.abc import Sequence

from parsers.layouts import from_conversion_pattern
from parsers.patterns import DefinitionError, compiled

# most lines that a proposal is derived from, and least share of them (without stack traces) that it must
# match
MOST_LINES, LEAST_SHARE = 200, 0.5
SHOWN_LINES = 20
# regex of a time -> log4j's pattern for it
TIMES = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+\-]\d\d:?\d\d))?", "%d"),
    (r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", "%d{yyyy/MM/dd HH:mm:ss.SSS}"),
    (r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d,\d{3}", "%d{yyyy/MM/dd HH:mm:ss,SSS}"),
    (r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d", "%d{yyyy/MM/dd HH:mm:ss}"),
    (r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d", "%d{yy/MM/dd HH:mm:ss}"),
    (r"\d{1,2}\.\d{1,2}\.\d{4} \d\d:\d\d:\d\d,\d{3}", "%d{dd.MM.yyyy HH:mm:ss,SSS}"),
    (r"\d{1,2}\.\d{1,2}\.\d{4} \d\d:\d\d:\d\d\.\d{3}", "%d{dd.MM.yyyy HH:mm:ss.SSS}"),
    (r"\d{1,2}\.\d{1,2}\.\d{4} \d\d:\d\d:\d\d", "%d{dd.MM.yyyy HH:mm:ss}"),
    (r"\d{1,2}-\d\d-\d{4} \d\d:\d\d:\d\d[.,]\d{3}", "%d{dd-MM-yyyy HH:mm:ss,SSS}"),
    (r"\d{8}T\d{6}[,.]\d{3}", "%d{ISO8601_BASIC}"),
    (r"\d{17}", "%d{COMPACT}"),
    (r"\d{13}", "%d{UNIX_MILLIS}"),
)
_LEVEL = r"(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b {0,5}"
_LOGGER = r"(?:kafka|state|org|io|com|k|o|s|c)\.[\w.$]+"
# parts that may precede the message, in the order in which they are tried
PIECES = (
    (rf"\[{_LEVEL}\]", "[%-5p]"),
    (_LEVEL, "%-5p "),
    (rf"\[{_LOGGER}(?::\d+)?\]", "[%c]"),
    (rf"\({_LOGGER}(?::\d+)?\)", "(%c)"),
    (rf"{_LOGGER}:\d+(?=[ :\-])", "%c:%L"),
    (rf"{_LOGGER}(?=[ :\-])", "%c"),
    # a thread; `[Broker id=3]` and `[Controller 1]` belong to the message
    (r"\[(?![^\]]{0,100}(?:=| \d{1,9}\]))[^\[\]\n]{1,100}\](?= )", "[%t]"),
    (r"<[^<>\n]{1,100}>(?= )", "<%t>"),
    (r"[ \t]*[-:|=>*]+ ", None),
    (r" ", " "),
)
_AFTER = re.compile(rf"(?P<logger> \({_LOGGER}(?P<line>:\d+)?\))(?P<thread> \[[^\[\]\n]{{1,100}}\])?\s*$")


def proposed(lines: Sequence[str]) -> str | None:
    """Return a ConversionPattern that matches at least half of the lines; None where there is none."""
    some = [line.rstrip("\r") for line in lines if line.strip() and line[0] not in " \t"][:MOST_LINES]
    best, most = None, 0
    for pattern in dict.fromkeys(filter(None, map(_from_line, some[:SHOWN_LINES]))):
        try:
            read = compiled(from_conversion_pattern(pattern, "proposal").line).fullmatch
        except DefinitionError:
            continue
        count = sum(read(line) is not None for line in some)
        if count > most:
            best, most = pattern, count
    return best if most >= LEAST_SHARE * len(some) else None


def _from_line(line: str) -> str | None:
    """Return the ConversionPattern that prints a line like this one; None where no time or level shows."""
    after = _AFTER.search(line)
    body = line[: after.start()] if after else line
    pattern, at, seen = "", 0, set[str]()
    while at < len(body):
        rest = body[at:]
        bracket = next((mark for mark in "[(<" if rest.startswith(mark)), "")
        time = next(
            (
                (found, written)
                for form, written in TIMES
                if "%d" not in seen and (found := re.match(form, rest[len(bracket) :])) is not None
            ),
            None,
        )
        if time:
            found, written = time
            pattern, at = pattern + bracket + written, at + len(bracket) + found.end()
            seen.add("%d")
            if bracket and body[at : at + 1] != {"[": "]", "(": ")", "<": ">"}[bracket]:
                return None  # such as the name of a zone, which would pass for the message
            if bracket:
                pattern, at = pattern + body[at], at + 1
            continue
        for form, piece in PIECES:
            word = (re.search("%-?5?[a-z]", piece or "") or [""])[0]
            if (word and word in seen) or not (match := re.match(form, rest)):
                continue
            if piece == "[%t]" and not seen:
                continue
            pattern += match.group() if piece is None else piece
            if piece == "%-5p " and match.group()[-1] != " ":
                pattern = pattern[:-1]
            at += match.end()
            seen.add(word)
            break
        else:
            break
    if not seen & {"%d", "%-5p"}:
        return None
    end = (
        f" (%c{':%L' * bool(after['line'])})" + " [%t]" * bool(after["thread"])
        if after and "%c" not in seen
        else ""
    )
    return f"{pattern}%m{end}%n"
