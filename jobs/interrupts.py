"""SIGINT and SIGTERM end a run in order: one line, exit code 130 or 143, and nothing is left running.

The first signal raises `Interrupted` in the main thread, so that context managers release what they hold. A thread of this module sees
to it that the run ends: it cancels what runs elsewhere, stops other processes after a few seconds, and ends this process at last.
This module imports little: it is the first to be loaded.
"""

import atexit
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
# seconds from the first signal: processes of this run are stopped then, if they keep it from ending; and so is this process
PATIENCE, LAST = 3.0, 20.0
# seconds between two looks at the process that has started this one
_LOOK = 0.5
# a terminal's line with a live count is replaced
LIVE = "\r\033[K"
MESSAGE = "interrupted by {name}. What is written is kept; run the same command again to continue"


class Interrupted(KeyboardInterrupt):
    """The run is to end: SIGINT or SIGTERM was received."""


class _Run:
    """What is known of the signals of this process."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.is_raised = self.is_shown = self.is_hurried = False
        # handlers that were there before; empty: none of ours is there
        self.before: dict[int, Any] = {}
        self.cancels: list[Callable[[], None]] = []
        self.stops: list[Callable[[], None]] = []
        self.ends: list[Callable[[int], None]] = []
        # with which the process is going to end
        self.code: int | None = None
        # of this process, while nothing is printed to it
        self.stderr: Any = None
        # what wakes the thread that watches
        self.wakes: int | None = None


_run = _Run()


def received() -> int | None:
    """The signal that is to end this run, or None."""
    return _run.received


def check() -> None:
    """Raises `Interrupted` where a signal was received; a library may have swallowed the first one."""
    if _run.received is not None:
        raise Interrupted


def on_interrupt(*, cancel: Callable[[], None] | None = None, stop: Callable[[], None] | None = None) -> None:
    """What ends other processes of this run. cancel: their work, at once and again; stop: themselves, at the end."""
    if cancel:
        _run.cancels.append(cancel)
    if stop:
        _run.stops.append(stop)


def on_end(action: Callable[[int], None]) -> None:
    """What is done when the run ends, however it ends, with its exit code; again where a signal changes that code."""
    _run.ends.append(action)


def ended(code: int) -> int:
    """Do what `on_end` was given; returns the code."""
    for action in _run.ends:
        action(code)
    return code


def install() -> None:
    """Handles SIGINT and SIGTERM from now on; in another thread than the main one it does nothing."""
    try:
        for number in CODES:
            before = signal.signal(number, _handle)
            _run.before.setdefault(number, before)
    except ValueError:
        return
    if _run.wakes is None:
        # the first one that is registered is the last one that runs
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
        _watch()


def remove() -> None:
    """Puts back what was there before `install`, and forgets signals."""
    global _run
    for number, handler in _run.before.items():
        signal.signal(number, handler)
    ended, _run = _run, _Run()
    if ended.is_raised:
        _speak_again(ended)
    if ended.wakes is not None:
        signal.set_wakeup_fd(-1)
        os.write(ended.wakes, b"\0")
        os.close(ended.wakes)


def finish(number: int | None = None) -> int:
    """Ends what was interrupted: stops other processes, prints the one line. Returns the exit code. number: of the signal, where none was handled."""
    _run.is_raised = True
    _run.received = _run.received or number or signal.SIGINT
    for stop in _run.stops:
        stop()
    _show()
    return ended(CODES[signal.Signals(_run.received)])


def leave(code: int) -> None:
    """Ends this process without waiting for its threads."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def is_over(code: int | None = None) -> None:
    """The work is done: a signal from now on ends the process at once. code: with which the process is going to end."""
    if _run.before:
        for number in CODES:
            signal.signal(number, _late)
    _run.code = code


def _at_exit() -> None:
    """Ends the process after all others have cleaned up: what the interpreter does then resets the handlers."""
    if _run.code is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        leave(_run.code)


def is_driver_gone(error: Exception) -> bool:
    """Whether spark-submit's driver, which has started this process, is ending: its connections break before it is gone."""
    if not _is_submitted() or not type(error).__module__.startswith(("py4j", "pyspark")):
        return False
    until = time.monotonic() + PATIENCE
    while os.getppid() == _STARTED_BY and time.monotonic() < until:
        time.sleep(0.05)
    if os.getppid() == _STARTED_BY:
        return False
    _run.received = _run.received or signal.SIGTERM
    return True


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


_STARTED_BY = os.getppid()


def _handle(number: int, _frame: FrameType | None) -> None:
    _run.received = _run.received or number
    if not _run.is_raised:
        _run.is_raised = True
        _silence()
        raise Interrupted
    # what releases locks is not disturbed by a second signal; other processes wait for nothing now
    _run.is_hurried = True


def _silence() -> None:
    """Keeps to itself what libraries and other threads print because they were interrupted."""
    sys.unraisablehook = lambda *_: None
    _run.stderr, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115
    if threading := sys.modules.get("threading"):
        threading.excepthook = lambda *_: None  # type: ignore[attr-defined]
    if logging := sys.modules.get("logging"):
        logging.disable()


def _speak_again(ended: _Run) -> None:
    import logging
    import threading

    if ended.stderr is not None:
        sys.stderr.close()
        sys.stderr = ended.stderr
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    logging.disable(logging.NOTSET)


def _late(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    os._exit(finish(number))


def _show() -> None:
    if not _run.is_shown:
        _run.is_shown = True
        name = signal.Signals(_run.received or signal.SIGINT).name
        # not by sys.stderr: the signal may have interrupted another write to it
        # of a driver that is gone nobody reads it
        with contextlib.suppress(OSError):
            os.write(2, f"{LIVE if os.isatty(2) else ''}kafka-audit: {MESSAGE.format(name=name)}\n".encode())


def _watch() -> None:
    """Starts the thread that sees to it that the run ends. The interpreter itself wakes it: the main thread may be busy outside of Python."""
    import threading

    reading, _run.wakes = os.pipe()
    os.set_blocking(_run.wakes, False)
    signal.set_wakeup_fd(_run.wakes, warn_on_full_buffer=False)
    threading.Thread(target=_see_to_the_end, args=(_run, reading), name="interrupts", daemon=True).start()


def _see_to_the_end(run: _Run, reading: int) -> None:
    import threading

    while run is _run:
        if select.select([reading], [], [], _LOOK if _is_submitted() else None)[0]:
            if any(number in CODES for number in os.read(reading, 100)):
                break
        elif os.getppid() != _STARTED_BY:
            os.kill(os.getpid(), signal.SIGTERM)
            break
    begun, is_stopped = time.monotonic(), False
    while run is _run and (waited := time.monotonic() - begun) < LAST:
        if not is_stopped:
            _start(run.cancels)
        if not is_stopped and (waited > PATIENCE or run.is_hurried):
            is_stopped = True
            _start(run.stops)
        time.sleep(0.2)
    os.close(reading)
    if run is _run:
        run.received = run.received or signal.SIGTERM
        _show()
        code = CODES[signal.Signals(run.received)]
        # a disk that does not answer keeps no run from ending
        last = threading.Thread(target=ended, args=(code,), daemon=True)
        last.start()
        last.join(PATIENCE)
        os._exit(code)


def _start(actions: list[Callable[[], None]]) -> None:
    """Each in a thread of its own: it may wait for a process that does not answer any more."""
    import threading

    for action in actions:
        threading.Thread(target=action, daemon=True).start()
