"""Standard error under spark-submit, which sends that of the driver's Python to stdout, into the verdict."""

import io
import sys
from typing import Any, TextIO


class DriverStderr(io.TextIOBase):
    """Write lines to the standard error of the driver's JVM.

    Where the JVM does not answer, they are written to that of this process.
    """

    def __init__(self, fallback: TextIO) -> None:
        self._fallback = fallback
        self._begun = ""
        self._gateway: Any = None

    def write(self, text: str) -> int:
        """Write whole lines; a line without an end waits for it."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._print(line)
        return len(text)

    def flush(self) -> None:
        """Write nothing: a line is written when it ends."""

    def _print(self, line: str) -> None:
        try:
            if self._gateway is None:
                from pyspark.java_gateway import launch_gateway

                # spark-submit has started the JVM: this connects
                self._gateway = launch_gateway()
            self._gateway.jvm.System.err.println(line)
        except Exception:
            print(line, file=self._fallback, flush=True)


def keep_stdout_clean() -> None:
    """Send what this process prints to stderr from now on to that of the driver's JVM."""
    if not isinstance(sys.stderr, DriverStderr):
        sys.stderr = DriverStderr(sys.stderr)
