"""Measure how the time of patterns grows with a hostile line, for `kafka-audit lint`. No Spark.

A log line may contain text of a stranger: the name of a topic, or the text of an exception. Python's `re`
backtracks, so that a careless pattern takes minutes for one long line. Each pattern is applied to its own
samples with every piece repeated, alone and with its neighbours.
"""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, islice, repeat
from math import inf
from multiprocessing import get_context
from typing import Any, NamedTuple, Self

from parsers.events import Parser
from parsers.patterns import THROWABLE, compiled
from parsers.records import STACK_TRACE
from parsers.rules import RuleSet

# characters of a long text, and seconds that are too long for it if the time grows faster than the text. A
# linear pattern takes 0.2 ms
LONG, TOO_LONG = 16_384, 0.01
# characters of a stretched sample, the shortest first; a longer one is measured only if this one is
# suspicious
SHORTER = (1_024, 2_048, 4_096)
# for a text of 4 times the length a linear pattern takes 4 times as long, a quadratic one 16 times
TIMES_AS_LONG, GROWS = 4, 8
TRIES = 5
# seconds between two checks of a running match. The second one ends it, because cubic growth would take
# forever on a long text
LONGEST_USE = 0.3
# numbers of pieces that are repeated together: `,`, `, leader=`, a whole item of a list
WINDOWS = (1, 2, 3, 5, 9, 16, 30)
# samples of KafkaConfig are long and have one statement
LONGEST_SAMPLE = 3_000
# characters that patterns often repeat
MARKS = " :,;=-([7"
# a character that no pattern expects
BEYOND = "\x02"
SHOWN = 60
_DIGITS = re.compile(r"\d+")
_PIECE = re.compile(r"[A-Za-z]+|\d+|.", re.DOTALL)


class Stretched(NamedTuple):
    """A sample with one of its parts repeated."""

    before: str
    part: str
    after: str

    def text(self, size: int) -> str:
        """Return the sample with the part repeated up to a number of characters."""
        return f"{self.before}{self.part * (size // len(self.part))}{self.after}"


def stretched(sample: str) -> Iterator[Stretched]:
    """Yield the sample with each of its parts repeated, with and without the end of the sample."""
    places = [(piece.start(), piece.end()) for piece in _PIECE.finditer(sample)]
    for first, (begin, next_) in enumerate(places):
        before = sample[:begin]
        for _, end in (places[first + number - 1] for number in WINDOWS if first + number <= len(places)):
            yield Stretched(before, sample[begin:end], sample[end:] + BEYOND)
            yield Stretched(before, sample[begin:end], "")
        yield Stretched(before, sample[begin:next_], sample[next_:])
        # a line may have characters that the sample does not have
        yield from (Stretched(before, mark, sample[begin:] + BEYOND) for mark in MARKS)


class _EndedError(Exception):
    """A match was ended because it took too long."""


class Stopwatch:
    """Measures matches, and ends slow ones where the system has a timer and in the main thread."""

    def __init__(self) -> None:
        self._timer = (
            getattr(signal, "setitimer", None)
            if threading.current_thread() is threading.main_thread()
            else None
        )
        self._before: Any = None
        self._uses = self._seen = 0
        self._is_used = False

    def __enter__(self) -> Self:
        def look(*_: Any) -> None:
            if self._is_used and self._seen == self._uses:
                raise _EndedError
            self._seen = self._uses

        if self._timer:
            self._before = signal.signal(signal.SIGVTALRM, look)
            # one timer for all matches, because setting one takes longer than most matches
            self._timer(signal.ITIMER_VIRTUAL, LONGEST_USE, LONGEST_USE)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, self._before)

    def seconds(
        self, use: Callable[[str], object], text: str, clock: Callable[[], float] = time.thread_time
    ) -> float:
        """Return the processor time of a match; infinite where it was ended.

        It is the time of the thread, because the clock of the process moves in steps of milliseconds while a
        timer runs.
        """
        self._uses += 1
        self._is_used = True
        begun = clock()
        try:
            use(text)
            return clock() - begun
        except _EndedError:
            return inf
        finally:
            self._is_used = False

    def is_quick(self, use: Callable[[str], object], text: str, enough: float) -> bool:
        """Return whether one of two matches is quick enough.

        On a busy machine a single one may take longer.
        """
        # reading the wall clock takes a tenth of the time, and it never shows less
        return self.seconds(use, text, time.perf_counter) <= enough or self.seconds(use, text) <= enough

    def least(self, use: Callable[[str], object], texts: Sequence[str]) -> list[float]:
        """Return the least time of some matches of each text.

        They are measured in turns, so that other load affects all of them.
        """
        found = [inf] * len(texts)
        for _ in range(TRIES):
            took = [self.seconds(use, text) for text in texts]
            found = [min(pair) for pair in zip(found, took, strict=True)]
            if inf in took:
                break
        return found


def suspicious(size: int) -> float:
    """Return the seconds that a quadratic pattern takes for this size if it takes TOO_LONG for LONG."""
    return TOO_LONG * (size / LONG) ** 2


def too_long(use: Callable[[str], object], samples: Iterable[str]) -> str | None:
    """Return a message about the first stretched sample that takes too long; None if none does."""
    alike = {_DIGITS.sub("7", text): text for text in samples if len(text) <= LONGEST_SAMPLE}
    (shortest, least), *longer = [(size, suspicious(size)) for size in SHORTER]
    measured: set[str] = set()
    with Stopwatch() as watch:
        for one in chain.from_iterable(map(stretched, alike.values())):
            text = one.text(shortest)
            # samples of a pattern begin alike
            if text in measured:
                continue
            measured.add(text)
            if watch.seconds(use, text, time.perf_counter) <= least:
                continue
            if any(watch.is_quick(use, one.text(size), limit) for size, limit in longer):
                continue
            if sizes := growing(watch, use, one):
                return _report(one, *sizes)
    return None


def growing(
    watch: Stopwatch, use: Callable[[str], object], one: Stretched
) -> tuple[tuple[int, float], tuple[int, float]] | None:
    """Return two sizes with their seconds between which the time grows too fast.

    None where it is short or linear.
    """
    if watch.is_quick(use, one.text(LONG), TOO_LONG):
        return None
    # a linear part may hide the growth, so a longer text is tried, too
    for longer in (LONG, LONG * TIMES_AS_LONG):
        sizes = longer // TIMES_AS_LONG, longer
        shorter_took, longer_took = watch.least(use, [one.text(size) for size in sizes])
        if longer_took == inf or longer_took > GROWS * shorter_took:
            return (sizes[0], shorter_took), (sizes[1], longer_took)
    return None


def _report(one: Stretched, *sizes: tuple[int, float]) -> str:
    (shorter, first), (longer, second) = (
        (f"{size:,}", f"more than {LONGEST_USE:g} s" if took == inf else f"{took * 1000:.1f} ms")
        for size, took in sizes
    )
    return (
        f"a long line is slow: {one.part[:SHOWN]!r} repeated after {one.before[-SHOWN:]!r} takes "
        f"{first} for {shorter} characters and {second} for {longer}"
    )


def growth_problems(ruleset: RuleSet, processes: int = 1) -> list[str]:
    """Return one sentence for each pattern that a long line makes slow.

    processes: number of processes that measure in parallel.
    """
    if processes == 1:
        return _problems(ruleset, 0, 1)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        found = pool.map(_problems, repeat(ruleset), range(processes), repeat(processes))
        return [problem for some in found for problem in some]


def _problems(ruleset: RuleSet, first: int, step: int) -> list[str]:
    """Return the problems of each step-th pattern."""
    some = islice(_patterns(ruleset), first, None, step)
    return [f"{where}: {found}" for where, use, samples in some if (found := too_long(use, samples))]


def _patterns(ruleset: RuleSet) -> Iterator[tuple[str, Callable[[str], object], list[str]]]:
    """Yield (place, function that applies it, samples) of every pattern, and of a whole line."""
    parser = Parser(ruleset)
    for rule in ruleset.rules:
        records = [parser.record(sample["line"]) for sample in rule.samples]
        statements = [record.statement for record in records if record]
        yield f"{rule.file} [{rule.name}] pattern", compiled(rule.pattern).fullmatch, statements
        if rule.each:
            yield f"{rule.file} [{rule.name}] each", compiled(rule.each).findall, statements
    for ident in ruleset.log_idents:
        yield f"log_idents.toml [{ident.name}]", compiled(ident.pattern).fullmatch, list(ident.samples)
    lines = []
    for layout in ruleset.layouts:
        own = [sample["line"] for sample in layout.samples]
        first = [line.partition("\n")[0] for line in own]
        where = f"layouts.toml [{layout.name}]"
        yield f"{where} head", compiled(layout.head).match, first
        yield f"{where} line", compiled(layout.line).fullmatch, first
        if layout.record:
            yield f"{where} record", compiled(layout.record).fullmatch, own
        lines += first
    for wrapper in ruleset.wrappers:
        own = [sample["line"].partition("\n")[0] for sample in wrapper.samples]
        yield f"layouts.toml [{wrapper.name}]", compiled(wrapper.pattern).match, own
        lines += own
    yield "parsers.patterns THROWABLE", compiled(THROWABLE).fullmatch, THROWN_SAMPLES
    yield "parsers.records STACK_TRACE", STACK_TRACE.match, THROWN_SAMPLES
    yield "a whole line", lambda text: parser.read(parser.records(text, bare=None)), lines


THROWN_SAMPLES = ["Caused by: a.b.CException: x y", "a.b.C$DError", "\tat a.b.C.d(E.scala:7)", "\t... 7 more"]
