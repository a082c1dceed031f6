"""Report a run on stderr: one line per stage, warnings and errors, as text or JSON.

On a terminal also the progress of a stage.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from jobs import interrupts
from schemas.durations import two_units

FORMATS = ("text", "json")
_CLEAR = "\r\033[K"
# level -> text before a message
_PREFIXES = {"info": "", "debug": "", "warning": "warning: ", "error": "error: "}


@dataclass
class _Choice:
    """The choices of --quiet, -v and --log-format."""

    quiet: bool = False
    is_verbose: bool = False
    log_format: str = "text"


_choice = _Choice()


@dataclass
class Stage:
    """The notes and the progress of a stage."""

    notes: list[str] = field(default_factory=list)
    # bytes to read, and bytes that were read; 0: not known
    total: int = 0
    done: int = 0

    def note(self, text: str) -> None:
        """Add a note to the stage's line."""
        self.notes.append(text)


# progress of reading; a thread may start to read before the stage that waits for it
_reading = Stage()


def set_up(*, quiet: bool = False, is_verbose: bool = False, log_format: str = "text") -> None:
    """Set what is printed. quiet: no stages; is_verbose: also details; log_format: one of FORMATS."""
    _choice.quiet, _choice.is_verbose, _choice.log_format = quiet, is_verbose, log_format


def is_verbose() -> bool:
    """Return whether -v was given."""
    return _choice.is_verbose


def expect(total: int) -> None:
    """Start to count the bytes of logs that are read. total: bytes to read."""
    _reading.total, _reading.done = total, 0


def advance(amount: int) -> None:
    """Count bytes of logs that were read."""
    _reading.done += amount


@contextmanager
def stage(name: str) -> Iterator[Stage]:
    """Print `name: seconds, notes` when the block ends, even if it fails.

    Raises `Interrupted` if a library has swallowed that.
    """
    interrupts.check()
    began, stop, doing = time.perf_counter(), threading.Event(), Stage()
    live = (
        sys.stderr.isatty()
        and not _choice.quiet
        and _choice.log_format == "text"
        and os.environ.get("TERM") != "dumb"
    )

    def poll() -> None:
        while not stop.wait(0.5):
            state = _amount(time.perf_counter() - began)
            seconds = two_units(int(time.perf_counter() - began))
            line = f"{name}: {', '.join(filter(None, [state, seconds]))}"
            print(f"{_CLEAR}{line}", end="", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=poll, daemon=True) if live else None
    if watcher:
        watcher.start()
    try:
        yield doing
        interrupts.check()
    finally:
        stop.set()
        if watcher:
            watcher.join()
        start = _CLEAR if live else ""
        seconds = time.perf_counter() - began
        if interrupts.received():
            # the line about the interruption is the only one
            print(start, end="", file=sys.stderr, flush=True)
        elif not _choice.quiet:
            notes = "".join(f", {note}" for note in doing.notes)
            print(start, end="", file=sys.stderr)
            report("info", f"{name}: {seconds:.1f} s{notes}", stage=name, seconds=round(seconds, 3))


def _amount(seconds: float) -> str:
    """Return the progress, such as `40 %, 12 MB/s, 30 s left`; empty where nothing is being read."""
    total, done = _reading.total, _reading.done
    if not total or not done or done >= total:
        return ""
    rate = done / seconds
    return f"{100 * done // total} %, {rate / 1e6:.1f} MB/s, {two_units(int((total - done) / rate))} left"


def report(level: str, text: str, **fields: Any) -> None:
    """Print one message to stderr. level: debug, info, warning or error.

    fields: further fields of the JSON object.
    """
    if _choice.quiet and level in ("debug", "info"):
        return
    if _choice.log_format == "json":
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": now, "level": level, "message": text} | fields)
    else:
        line = f"{_PREFIXES[level]}{text}"
    print(line, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning."""
    report("warning", text)


def note(text: str) -> None:
    """Print a decision that the user should know."""
    report("info", text)


def detail(text: str) -> None:
    """Print a detail that only -v shows."""
    if is_verbose():
        report("debug", text)


def fail(text: str) -> None:
    """Print the error that ends a command."""
    report("error", text)
