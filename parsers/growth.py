"""Measures how the time of every pattern grows with the length of a hostile line, for `kafka-audit lint`. No Spark.

A line of a log is what a stranger has written into a topic's name or an exception's text. Python's `re` backtracks, so that a careless
pattern takes minutes for one long line. Each pattern reads its own samples with every piece repeated, alone and with its neighbours.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from parsers.events import Parser
from parsers.patterns import THROWABLE, compiled
from parsers.records import STACK_TRACE
from parsers.rules import RuleSet

# characters of a stretched sample -> seconds of processor time that are suspicious. Linear patterns take less than a tenth of that.
# What grows with the third power, or faster, shows in a short text, and would not end in a long one
SUSPICIOUS = {512: 0.01, 4_096: 0.000_3}
# characters, and seconds that are too long. A linear pattern takes some 0.2 ms, so that a slow machine reports nothing false
LONG, TOO_LONG = 16_384, 0.01
TRIES = 5
# as many times the limit are no noise
CERTAIN = 20
# so many pieces are repeated together: `,`, `, leader=`, a whole item of a list
WINDOWS = (1, 2, 3, 5, 9, 16, 30)
# samples of KafkaConfig are long and have one statement
LONGEST_SAMPLE = 3_000
# what patterns like to repeat
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
        """The sample with the part repeated up to a number of characters."""
        return f"{self.before}{self.part * (size // len(self.part))}{self.after}"


def stretched(sample: str) -> Iterator[Stretched]:
    """The sample with each of its parts repeated, with its end and without it."""
    places = [(piece.start(), piece.end()) for piece in _PIECE.finditer(sample)]
    for first, (begin, next_) in enumerate(places):
        before = sample[:begin]
        for _, end in (places[first + number - 1] for number in WINDOWS if first + number <= len(places)):
            yield Stretched(before, sample[begin:end], sample[end:] + BEYOND)
            yield Stretched(before, sample[begin:end], "")
        yield Stretched(before, sample[begin:next_], sample[next_:])
        # what the sample does not show may be there, too
        yield from (Stretched(before, mark, sample[begin:] + BEYOND) for mark in MARKS)


def seconds(use: Callable[[str], object], text: str) -> float:
    """The processor time that the use of a text takes."""
    begun = time.process_time()
    use(text)
    return time.process_time() - begun


def too_long(use: Callable[[str], object], samples: Iterable[str]) -> str | None:
    """What stretched sample takes too long, and how long; None if none does."""
    alike = {_DIGITS.sub("7", text): text for text in samples if len(text) <= LONGEST_SAMPLE}
    for sample in alike.values():
        for one in stretched(sample):
            if size := next((size for size, limit in SUSPICIOUS.items() if is_slow(use, one.text(size), limit)), None):
                size = size if SUSPICIOUS[size] == TOO_LONG else LONG
                if is_slow(use, one.text(size), TOO_LONG):
                    return _report(use, one, size)
    return None


def is_slow(use: Callable[[str], object], text: str, limit: float) -> bool:
    """Whether each of several uses of the text takes longer than the limit; on a busy machine a single one may."""
    for _ in range(TRIES):
        took = seconds(use, text)
        if took <= limit:
            return False
        if took > CERTAIN * limit:
            return True
    return True


def _report(use: Callable[[str], object], one: Stretched, size: int) -> str:
    shorter, longer = (seconds(use, one.text(size // by)) * 1000 for by in (4, 1))
    return (
        f"a long line is slow: {one.part[:SHOWN]!r} repeated after {one.before[-SHOWN:]!r} takes "
        f"{shorter:.1f} ms for {size // 4:,} characters and {longer:.1f} ms for {size:,}"
    )


def growth_problems(ruleset: RuleSet) -> list[str]:
    """One sentence for each pattern of rules, speakers, layouts and wrappers that a long line makes slow."""
    return [f"{where}: {found}" for where, use, samples in _patterns(ruleset) if (found := too_long(use, samples))]


def _patterns(ruleset: RuleSet) -> Iterator[tuple[str, Callable[[str], object], list[str]]]:
    """(where it is defined, what it does with a text, samples) of every pattern, and of a whole line."""
    parser = Parser(ruleset)
    for rule in ruleset.rules:
        records = [parser.record(sample["line"]) for sample in rule.samples]
        statements = [record.statement for record in records if record]
        yield f"{rule.file} [{rule.name}] pattern", compiled(rule.pattern).fullmatch, statements
        if rule.each:
            yield f"{rule.file} [{rule.name}] each", compiled(rule.each).findall, statements
    for speaker in ruleset.speakers:
        yield f"speakers.toml [{speaker.name}]", compiled(speaker.pattern).fullmatch, list(speaker.samples)
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
