"""One line a stage on stderr, with rows and seconds; a live count of tasks where stderr is a terminal."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jobs import interrupts


@dataclass
class Stage:
    """What a stage has to say at its end."""

    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Adds to the stage's line."""
        self.notes.append(text)


@contextmanager
def stage(name: str, spark: Any = None) -> Iterator[Stage]:
    """Prints `name: notes, seconds` when the block ends, also when it fails. Raises `Interrupted` where a library has swallowed that."""
    interrupts.check()
    began, stop, doing = time.perf_counter(), threading.Event(), Stage()
    live = sys.stderr.isatty()

    def poll() -> None:
        while not stop.wait(0.5):
            done = total = 0
            if spark is not None:
                tracker = spark.sparkContext.statusTracker()
                for number in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(number)
                    if info:
                        done, total = done + info.numCompletedTasks, total + info.numTasks
            print(
                f"\r\033[K{name}: {done}/{total} tasks, {time.perf_counter() - began:.0f} s", end="", file=sys.stderr, flush=True
            )

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
        notes = "".join(f", {note}" for note in doing.notes)
        start = "\r\033[K" if live else ""
        # one line tells of an interruption
        told = start if interrupts.received() else f"{start}{name}: {time.perf_counter() - began:.1f} s{notes}\n"
        print(told, end="", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """A sentence for the person who waits."""
    print(f"warning: {text}", file=sys.stderr, flush=True)
