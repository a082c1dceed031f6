"""How long the logs of a run will take this machine, by the rate at which it has parsed the first of them."""

import time
from collections.abc import Callable

from schemas.durations import two_units

# seconds; longer runs are announced
HALF_AN_HOUR = 30 * 60
# a first run takes this many times as long as its parsing (tests/benchmarks/nights.py: 4.7 of 25 s), with
# room for slower disks
WHOLE_RUN = 5


class Estimate:
    """Announces a long run once. It is called with the number of bytes that were parsed."""

    def __init__(
        self,
        total: int,
        workers: int,
        announce: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """total: bytes of text.

        workers: processes, of which each has parsed something before the rate is known.
        """
        self._total, self._workers, self._announce, self._clock = total, workers, announce, clock
        self._begun = clock()
        self._read = self._times = 0
        self._is_over = False

    def __call__(self, read: int) -> None:
        """Count some more bytes."""
        self._read += read
        self._times += 1
        if self._is_over or self._times < 2 * self._workers:
            return
        self._is_over = True
        rate = self._read / max(self._clock() - self._begun, 0.001)
        seconds = WHOLE_RUN * self._total / rate
        if seconds > HALF_AN_HOUR:
            self._announce(
                f"{self._total / 1e9:,.1f} GB of logs will take this machine about {duration(seconds)}: "
                f"{self._workers} processes parse {rate / 1e6:,.1f} MB/s"
            )


def duration(seconds: float) -> str:
    """Return a length of time to the minute: 45 min, 3 h 20 min."""
    return two_units(60 * max(round(seconds / 60), 1))
