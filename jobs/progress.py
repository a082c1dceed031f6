"""What a run reports on stderr: one line a stage, warnings and errors, as text or as JSON; on a terminal also how far a stage is."""

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
# words before the text of a message
_PREFIXES = {"info": "", "debug": "", "warning": "warning: ", "error": "error: "}


@dataclass
class _Choice:
    """What --quiet, -v and --log-format have chosen."""

    quiet: bool = False
    is_verbose: bool = False
    log_format: str = "text"


_choice = _Choice()


@dataclass
class Stage:
    """What a stage reports at its end, and how far it is."""

    notes: list[str] = field(default_factory=list)
    # bytes that are to be read, and that have been; 0: not known
    total: int = 0
    done: int = 0

    def note(self, text: str) -> None:
        """Adds to the stage's line."""
        self.notes.append(text)


# what is read now; a thread may read before the stage that waits for it begins
_reading = Stage()


def set_up(*, quiet: bool = False, is_verbose: bool = False, log_format: str = "text") -> None:
    """Decides what is printed. quiet: no stages; is_verbose: also details; log_format: one of FORMATS."""
    _choice.quiet, _choice.is_verbose, _choice.log_format = quiet, is_verbose, log_format


def is_verbose() -> bool:
    """Whether -v was given."""
    return _choice.is_verbose


def expect(total: int) -> None:
    """Bytes of logs that are going to be read from now on."""
    _reading.total, _reading.done = total, 0


def advance(amount: int) -> None:
    """So many more bytes of logs have been read."""
    _reading.done += amount


@contextmanager
def stage(name: str) -> Iterator[Stage]:
    """Prints `name: notes, seconds` when the block ends, also when it fails. Raises `Interrupted` where a library has swallowed that."""
    interrupts.check()
    began, stop, doing = time.perf_counter(), threading.Event(), Stage()
    live = sys.stderr.isatty() and not _choice.quiet and _choice.log_format == "text" and os.environ.get("TERM") != "dumb"

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
    """`40 %, 12 MB/s, 30 s left`; empty where nothing is read."""
    total, done = _reading.total, _reading.done
    if not total or not done or done >= total:
        return ""
    rate = done / seconds
    return f"{100 * done // total} %, {rate / 1e6:.1f} MB/s, {two_units(int((total - done) / rate))} left"


def report(level: str, text: str, **fields: Any) -> None:
    """Prints one message to stderr. level: debug, info, warning or error; fields: of the JSON object beside it."""
    if _choice.quiet and level in ("debug", "info"):
        return
    if _choice.log_format == "json":
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": now, "level": level, "message": text} | fields)
    else:
        line = f"{_PREFIXES[level]}{text}"
    print(line, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """A warning."""
    report("warning", text)


def note(text: str) -> None:
    """A decision that the person who runs the command should know."""
    report("info", text)


def detail(text: str) -> None:
    """What only -v shows."""
    if is_verbose():
        report("debug", text)


def fail(text: str) -> None:
    """Why a command ends."""
    report("error", text)
