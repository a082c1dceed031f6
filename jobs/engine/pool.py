"""Processes that compute for one run on this machine. They are started when the first work is given to them.

They are forked from a process without threads that has loaded what they need (`forkserver`): a fork of this
one, in which DuckDB and delta-rs have threads, would hang. A function that is given to them can be imported,
and so can the classes of its arguments.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, islice
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from jobs import interrupts
from jobs.errors import AuditError

# modules that are loaded before the processes are forked
PRELOADED = ["jobs.engine.work"]
# pieces of work that are queued for each process, so that none is idle
AHEAD = 2
# seconds that an idle process may take to end
PATIENCE = 5
Out = TypeVar("Out")


class WorkerLost(AuditError):
    """A process of the pool ended before its work was done."""


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """As many processes as cores. Threads may share it.

    A thread for each process gives it work and waits for the result. Processes and threads have pipes between
    them and nothing else: what `concurrent.futures` shares besides has to be removed in order, and an
    interrupted run does not do that.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cores()
        self._turn = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._processes: list[ForkServerProcess] = []
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()

    def map(self, function: Callable[..., Out], *inputs: Iterable[Any]) -> Iterator[Out]:
        """Yield what a function returns, in the order of its inputs.

        Some inputs are read ahead; a single one is computed in this process.

        Raises WorkerLost, and what the function raises.
        """
        work = zip(*inputs, strict=True)
        first = list(islice(work, 2))
        if len(first) < 2 and self._threads is None:
            # to start a process takes longer than to compute it in this one
            for given in first:
                yield function(*given)
            return
        threads = self._started()
        waiting: deque[Future[Out]] = deque()
        try:
            for given in chain(first, work):
                if len(waiting) >= self.workers * (1 + AHEAD):
                    yield waiting.popleft().result()
                waiting.append(threads.submit(self._computed, function, given))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()

    def _computed(self, function: Callable[..., Out], given: tuple[Any, ...]) -> Out:
        """Return what a process returns. Runs in a thread."""
        pipe = self._idle.get()
        try:
            pipe.send((function, given))
            is_done, result = pipe.recv()
        except (EOFError, OSError):
            interrupts.check()
            raise WorkerLost(
                "a process of this run ended before its work was done; the system may have stopped it because memory ran out. "
                "Written data stays. Free memory and run the same command again"
            ) from None
        finally:
            self._idle.put(pipe)
        if not is_done:
            raise result
        return result

    def _started(self) -> ThreadPoolExecutor:
        with self._turn:
            if self._threads is None:
                context = multiprocessing.get_context("forkserver")
                context.set_forkserver_preload(PRELOADED)
                interrupts.on_interrupt(cancel=self.kill, stop=self._end)
                for _ in range(self.workers):
                    pipe, other = context.Pipe()
                    process = context.Process(target=_serve, args=(other,), daemon=True)
                    self._processes.append(process)
                    process.start()
                    other.close()
                    self._idle.put(pipe)
                self._threads = ThreadPoolExecutor(self.workers, "pool")
            return self._threads

    def close(self) -> None:
        """End the processes and wait for their end."""
        with self._turn:
            threads, self._threads = self._threads, None
        if threads is not None:
            if interrupts.received() is not None:
                self.kill()
            threads.shutdown(wait=True, cancel_futures=True)
            with contextlib.suppress(queue.Empty, OSError):
                while True:
                    self._idle.get_nowait().send(None)
        self._end()

    def kill(self) -> None:
        """End the processes at once, whatever they are doing."""
        for process in self._processes:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                process.kill()

    def _end(self) -> None:
        if not self._processes:
            return
        for process in self._processes:
            with contextlib.suppress(AssertionError, ValueError):
                process.join(0 if interrupts.received() else PATIENCE)
        self.kill()
        self._processes = []
        # multiprocessing's own two processes would end a moment after this one
        servers: Iterable[tuple[Any, str]] = (
            (forkserver._forkserver, "_forkserver_pid"),
            (resource_tracker._resource_tracker, "_pid"),
        )
        for server, number in servers:
            if getattr(server, number, None) is not None:
                server._stop()


def _serve(pipe: Connection) -> None:
    """Computes what is asked for until None is. Runs in a process of the pool."""
    # the run handles signals; this process ends when the run ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # results have no reference cycles, and a scan of a million tuples takes long
    gc.disable()
    gc.freeze()
    # the pipe is closed where the run ends before its work is done
    with contextlib.suppress(EOFError, OSError):
        while (asked := pipe.recv()) is not None:
            function, given = asked
            try:
                answer = (True, function(*given))
            except Exception as error:
                answer = (False, error)
            try:
                pipe.send(answer)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                pipe.send((False, AuditError(f"{answer[1]!r} cannot be handed over: {error}")))
            # the next piece of work gets the memory of this one
            del asked, given, answer
            gc.collect()
            pa.default_memory_pool().release_unused()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


# -- what all pieces of work share ---------------------------------------------------------------------------


def shared(value: Any, path: Path) -> Path:
    """Write a value to a file, once for all processes; they read it by `loaded`."""
    path.write_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    return path


@lru_cache(4)
def loaded(path: Path) -> Any:
    """Return the value that `shared` has written to a file."""
    return pickle.loads(path.read_bytes())
