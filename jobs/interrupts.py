"""End a run on SIGINT or SIGTERM: print one line, stop all its processes, exit with 130 or 143.

The first signal raises `Interrupted` in the main thread, so that context managers release their resources. A
thread of this module makes sure that the run ends: it cancels the work of other processes, stops them after
some seconds, and finally exits. The module imports only modules of the standard library, because it is loaded
before anything else.
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
# seconds after the first signal: processes of the run are stopped (PATIENCE), and this process exits (LAST)
PATIENCE, LAST = 3.0, 20.0
# seconds between two checks of the parent process
_LOOK = 0.5
# erases a terminal's line with a live count
LIVE = "\r\033[K"
MESSAGE = "interrupted by {name}. What is written is kept; run the same command again to continue"


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM was received, so the run must end."""


class _Run:
    """The state of the signal handling of this process."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.is_raised = self.is_shown = self.is_hurried = False
        # replaced handlers; empty: `install` has replaced none
        self.before: dict[int, Any] = {}
        self.cancels: list[Callable[[], None]] = []
        self.stops: list[Callable[[], None]] = []
        self.ends: list[Callable[[int], None]] = []
        # exit code of the process, once it is known
        self.code: int | None = None
        # stderr of the process, while it is silenced
        self.stderr: Any = None
        # file descriptor that wakes the watching thread
        self.wakes: int | None = None


_run = _Run()


def received() -> int | None:
    """Return the received signal, or None."""
    return _run.received


def check() -> None:
    """Raise `Interrupted` if a signal was received.

    A library may have swallowed the first exception.
    """
    if _run.received is not None:
        raise Interrupted


def on_interrupt(*, cancel: Callable[[], None] | None = None, stop: Callable[[], None] | None = None) -> None:
    """Register how other processes of the run end.

    cancel: cancels their work, repeatedly; stop: stops them.
    """
    if cancel:
        _run.cancels.append(cancel)
    if stop:
        _run.stops.append(stop)


def on_end(action: Callable[[int], None]) -> None:
    """Register an action for the end of the run.

    It gets the exit code, and runs again if a signal changes that.
    """
    _run.ends.append(action)


def ended(code: int) -> int:
    """Run the actions of `on_end` and return the code."""
    for action in _run.ends:
        action(code)
    return code


def install() -> None:
    """Start to handle SIGINT and SIGTERM; outside of the main thread this does nothing."""
    try:
        for number in CODES:
            before = signal.signal(number, _handle)
            _run.before.setdefault(number, before)
    except ValueError:
        return
    if _run.wakes is None:
        # atexit runs the first registered action last
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
        _watch()


def remove() -> None:
    """Restore the handlers from before `install`, and forget received signals."""
    global _run
    for number, handler in _run.before.items():
        signal.signal(number, handler)
    ended, _run = _run, _Run()
    if ended.is_raised:
        _restore_output(ended)
    if ended.wakes is not None:
        signal.set_wakeup_fd(-1)
        os.write(ended.wakes, b"\0")
        os.close(ended.wakes)


def finish(number: int | None = None) -> int:
    """End an interrupted run: stop other processes, print the line, return the exit code.

    number: of the signal, if none was handled.
    """
    _run.is_raised = True
    _run.received = _run.received or number or signal.SIGINT
    for stop in _run.stops:
        stop()
    _show()
    return ended(CODES[signal.Signals(_run.received)])


def leave(code: int) -> None:
    """Exit without waiting for threads."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def work_is_done(code: int | None = None) -> None:
    """Let later signals end the process at once. code: exit code of the process, if it is known."""
    if _run.before:
        for number in CODES:
            signal.signal(number, _late)
    _run.code = code


def _at_exit() -> None:
    """Exit after all other atexit actions, because the interpreter then resets the handlers."""
    if _run.code is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        leave(_run.code)


def is_driver_ending(error: Exception) -> bool:
    """Return whether spark-submit's driver, the parent process, is ending.

    Its connections break before it exits.
    """
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
    # a second signal does not disturb the release of locks; it stops other processes at once
    _run.is_hurried = True


def _silence() -> None:
    """Suppress what libraries and other threads print because of the interruption."""
    sys.unraisablehook = lambda *_: None
    _run.stderr, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115
    if threading := sys.modules.get("threading"):
        threading.excepthook = lambda *_: None  # type: ignore[attr-defined]
    if logging := sys.modules.get("logging"):
        logging.disable()


def _restore_output(ended: _Run) -> None:
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
        # sys.stderr may be in the middle of another write; the file descriptor is closed where the driver has
        # exited
        with contextlib.suppress(OSError):
            os.write(2, f"{LIVE if os.isatty(2) else ''}kafka-audit: {MESSAGE.format(name=name)}\n".encode())


def _watch() -> None:
    """Start the thread that ends the run.

    The interpreter wakes it, because the main thread may be busy outside of Python.
    """
    import threading

    reading, _run.wakes = os.pipe()
    os.set_blocking(_run.wakes, False)
    signal.set_wakeup_fd(_run.wakes, warn_on_full_buffer=False)
    threading.Thread(target=_end_run, args=(_run, reading), name="interrupts", daemon=True).start()


def _end_run(run: _Run, reading: int) -> None:
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
        # a disk that does not answer must not keep the run from ending
        last = threading.Thread(target=ended, args=(code,), daemon=True)
        last.start()
        last.join(PATIENCE)
        os._exit(code)


def _start(actions: list[Callable[[], None]]) -> None:
    """Run each action in a thread of its own, because it may wait for a process that does not answer."""
    import threading

    for action in actions:
        threading.Thread(target=action, daemon=True).start()
