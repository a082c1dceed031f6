"""Print text for people on stdout: colour, width, pager, and characters of the encoding."""

import codecs
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

COLORS = ("auto", "always", "never")
# columns of text that is not printed to a terminal
WIDTH = 100
# replacements of the product's own characters on an ASCII terminal; other characters are printed as escapes
_IN_ASCII = {
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{MIDDLE DOT}": "-",
    "\N{REPLACEMENT CHARACTER}": "?",
    "\N{NO-BREAK SPACE}": " ",
}
# pattern -> style of rich, for lines of verdicts, findings and stories; none matches in a log line, which is
# indented
_STYLES = {
    r"(?m)^  \[(critical|error)[^\]\n]*\]": "bold red",
    r"(?m)^  \[warning[^\]\n]*\]": "yellow",
    r"(?m)^  \[info[^\]\n]*\]": "cyan",
    r"(?m)^[0-9a-f]{16}  (?P<loud>(critical|error), \w+)": "bold red",
    r"(?m)^[0-9a-f]{16}  (?P<middle>warning, \w+)": "yellow",
    r"(?m)^[0-9a-f]{16}  (?P<low>info, \w+)": "cyan",
    r"(?m)^[^\s:]+: (?P<bad>.*\b(critical|errors?)\b.*)$": "bold red",
    r"(?m)^[^\s:]+: (?P<good>no findings)": "green",
    r"(?m)^ +(What to do|Why it matters|More|Consequence):": "bold",
    r"(?m)^> .*$": "bold",
    r"(?m)^-- \d{4}-\d\d-\d\d --$": "bold",
    r"(?m)^\S+ +(?P<mark>== .*)$": "cyan",
}

_color = "auto"
_uses_pager = True


def set_up(color: str = "auto", pager: bool = True) -> None:
    """Prepare stdout and stderr. color: one of COLORS."""
    global _color, _uses_pager
    _color, _uses_pager = color, pager
    for stream in (sys.stdout, sys.stderr):
        # a replaced stream may not have the method
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="kafka-audit-replace")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    text = "".join(_IN_ASCII.get(one) or one.encode("ascii", "backslashreplace").decode() for one in missing)
    return text, error.end


codecs.register_error("kafka-audit-replace", _replaced)


def is_coloured(stream: TextIO) -> bool:
    """Return whether text is coloured.

    --color decides, else NO_COLOR or FORCE_COLOR, else whether the stream is a terminal.
    """
    if _color != "auto":
        return _color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """Return the columns of the terminal; None where stdout is none."""
    return max(shutil.get_terminal_size((WIDTH, 24)).columns, 40) if sys.stdout.isatty() else None


def coloured(text: str) -> str:
    """Return text with the escapes that colour it."""
    from rich.console import Console
    from rich.text import Text

    marked = Text(text)
    for pattern, style in _STYLES.items():
        _mark(marked, pattern, style)
    console = Console(
        force_terminal=True, color_system="standard", no_color=False, width=10_000, highlight=False
    )
    with console.capture() as captured:
        console.print(marked, soft_wrap=True, end="")
    return captured.get()


def _mark(text: object, pattern: str, style: str) -> None:
    """Style the matches of a pattern, or of its named group if it has one."""
    from rich.text import Text

    assert isinstance(text, Text)
    for found in re.finditer(pattern, text.plain):
        names = found.groupdict()
        text.stylize(style, *(found.span(next(iter(names))) if names else found.span()))


def show(lines: Iterable[str], styled: bool = True) -> None:
    """Print lines; on a terminal through a pager if they do not fit.

    Raises BrokenPipeError where the pipe is closed.
    """
    painted = coloured if styled and is_coloured(sys.stdout) else str
    if not sys.stdout.isatty():
        for line in lines:
            print(painted(line))
        sys.stdout.flush()
        return
    whole = list(lines)
    command = _pager() if len(whole) >= shutil.get_terminal_size((WIDTH, 24)).lines else None
    text = painted("\n".join(whole)) + "\n"
    if command is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    encoding = sys.stdout.encoding or "utf-8"
    # like git: less keeps colours, and does not page a text that fits
    environment = {"LESS": "FRX", "LV": "-c"} | os.environ
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as pager:
        assert pager.stdin is not None
        with suppress(BrokenPipeError):
            pager.stdin.write(text.encode(encoding, "kafka-audit-replace"))
        with suppress(BrokenPipeError):
            pager.stdin.close()


def _pager() -> list[str] | None:
    """Return the command of the pager: $KAFKA_AUDIT_PAGER, $PAGER, less or more.

    None where it is empty or `cat`.
    """
    if not _uses_pager:
        return None
    given = os.environ.get("KAFKA_AUDIT_PAGER", os.environ.get("PAGER"))
    candidates = ["less", "more"] if given is None else [given]
    for candidate in candidates:
        words = shlex.split(candidate)
        if not words or words[0] == "cat":
            return None
        if shutil.which(words[0]):
            return words
    return None
