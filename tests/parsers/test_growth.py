"""The time of a line grows with its length only, and lint finds the pattern that breaks this.

Our own patterns are measured by `make lint`.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from parsers.events import Parser
from parsers.growth import Stopwatch, Stretched, growing, growth_problems, stretched, too_long
from parsers.layouts import from_conversion_pattern
from parsers.patterns import compiled
from parsers.rules import Rule, RuleSet, built_in

HEAD = "[2026-11-20 10:09:12,175] INFO "
KAFKAS = "(kafka.controller.KafkaController)"
PARSER = Parser()
# what is repeated, what it is repeated after, what follows it
BODIES = [
    ("[ProducerId Manager 3]", ":", ""),
    ("[ProducerId Manager 3]", ",", ""),
    ("[RaftManager id=", "9", ""),
    ("", "[RaftManager id=7 ", ""),
    ("", "Manager 7 ", ""),
    ("[Controller id=1 epoch=", "1", ""),
    ("[Partition ", "a-", ""),
    ("Remaining partitions to move: ledger", "-7", ""),
    ("Removed fetcher for partitions Set(orders", "-7", ")"),
    ("Recovering unflushed segment 7. ", "7", "/7 recovered for orders-7."),
    ("High watermark set to Optional[LogOffsetMetadata(offset=", "7", ""),
    ("Vote request (candidateId=7", ", candidateId=7", ""),
    ("", "(kafka.a) [", ""),
    ("a", " ", "x"),
    ("java.lang.", "Exception", "!"),
    ("", " a.bException", "!"),
]


def seconds(text: str) -> float:
    """The least that one of several readings of a text takes of the processor."""
    took = []
    for _ in range(3):
        begun = time.process_time()
        PARSER.read(PARSER.records(text))
        took.append(time.process_time() - begun)
    return min(took)


@pytest.mark.parametrize(("before", "part", "after"), BODIES)
def test_a_hostile_line_takes_linear_time(before: str, part: str, after: str) -> None:
    """With a logger, without one, with one in front, and as a further line of a record."""
    for shape in (
        f"{HEAD}{{}} {KAFKAS}",
        f"{HEAD}{{}}",
        f"{HEAD}[kafka.server.KafkaServer] - {{}}",
        f"{HEAD}x {KAFKAS}\n{{}}",
    ):
        taken = [
            seconds(shape.format(before + part * (size // len(part)) + after)) for size in (20_000, 80_000)
        ]
        assert taken[1] < 0.05, shape
        assert taken[1] < 0.005 or taken[1] < 6 * taken[0], shape


def rule(pattern: str, line: str, starts: str, each: str | None = None) -> Rule:
    return Rule(
        "own",
        "own.toml",
        frozenset({"own.Logger"}),
        (starts,),
        None,
        pattern,
        "is",
        (),
        {},
        each,
        ({"line": line},),
    )


def only(**parts: object) -> RuleSet:
    """A rule set with nothing but these parts."""
    return replace(built_in(), **{"rules": (), "log_idents": (), "wrappers": (), **parts})  # type: ignore[arg-type]


QUADRATIC = [
    pytest.param(r"Own (?<broker>\d+).*!", "Own 7 is up!", None, id="digits before anything"),
    pytest.param(r"Own (?<broker>\d+),.*leader=(?<leader>\d+),.*end", "Own 7, leader=3, x end", None, id="a word that occurs often"),
    pytest.param(r"Own (?<text>\w+)[a-z ]*\.", "Own name is up.", None, id="two classes that overlap"),
    pytest.param(r"Own (?<items>.*)", "Own a-0,b-1", r"(?<topic>[a-z\-]+)-(?<partition>\d+)(?:,|$)", id="items tried from any place"),
    pytest.param(r"Own (?<text>.*?) *", "Own a b", None, id="blanks at the end"),
    pytest.param(r"Own (?<text>.*?)(?: for [a-z -]+)?!", "Own a for b!", None, id="an optional end"),
    pytest.param(r"Own \[(?<text>.*)\], (?<error>.*)\.", "Own [a], b.", None, id="two parts of any text"),
    pytest.param(r"Own (?<text>[^ ]*)[a-z]*=(?<broker>\d+)", "Own name=7", None, id="a name and its end"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "sample", "each"), QUADRATIC)
def test_lint_finds_a_quadratic_rule(pattern: str, sample: str, each: str | None) -> None:
    found = growth_problems(
        only(rules=(rule(pattern, f"{HEAD}{sample} (own.Logger)", "Own ", each),), layouts=(LAYOUT,))
    )
    assert len([problem for problem in found if problem.startswith("own.toml [own] ")]) == 1
    assert "a long line is slow" in found[0]


@pytest.mark.parametrize(
    ("pattern", "sample", "each"),
    [
        (r"Own (?<broker>\d++).*!", "Own 7 is up!", None),
        (r"Own (?<broker>\d++),(?>.*?leader=)(?<leader>\d++),.*end", "Own 7, leader=3, x end", None),
        (r"Own (?<items>.*)", "Own a-0,b-1", r"(?<![a-z0-9\-])(?<topic>[a-z\-]+)-(?<partition>\d++)(?:,|$)"),
    ],
)
def test_lint_accepts_the_same_rule_once_it_is_linear(pattern: str, sample: str, each: str | None) -> None:
    assert (
        growth_problems(
            only(rules=(rule(pattern, f"{HEAD}{sample} (own.Logger)", "Own ", each),), layouts=(LAYOUT,))
        )
        == []
    )


LAYOUT = replace(
    from_conversion_pattern("[%d] %p %m (%c)%n", "test", "test"),
    samples=({"line": f"{HEAD}[Broker id=3] Stopped (own.Logger)"},),
)


def test_lint_finds_a_quadratic_layout_log_ident_and_wrapper() -> None:
    slow = r"(?:\[[^\]]*\][:,]* ?)?"
    layout = replace(LAYOUT, line=LAYOUT.line.replace("(?<log_ident>", rf"(?<log_ident>{slow}"))
    ident = replace(
        built_in().log_idents[0], pattern=r"\[\w+ id=(?<node>\d+)[^\]]*\] ", samples=("[Broker id=3] ",)
    )
    wrapper = replace(built_in().wrappers[0], pattern=r"\w+ *\w*\[\d+\]: ")
    found = growth_problems(only(layouts=(layout,), log_idents=(ident,), wrappers=(wrapper,)))
    for named in (
        "layouts.toml [test] line",
        f"log_idents.toml [{ident.name}]",
        f"layouts.toml [{wrapper.name}]",
        "a whole line",
    ):
        assert any(problem.startswith(named) for problem in found), (named, found)


def test_a_pattern_with_the_third_power_ends() -> None:
    begun = time.process_time()
    assert too_long(compiled(r"a(\d+)(\d*)(\d*)!").fullmatch, ["a7!"])
    assert time.process_time() - begun < 10


def spin(seconds: float) -> None:
    """Work for so much processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.mark.parametrize(("power", "is_slow"), [(1, False), (1.1, False), (2, True), (3, True)])
def test_a_time_that_grows_faster_than_the_text_is_slow(power: float, is_slow: bool) -> None:
    """Whatever a slow machine needs for a character."""

    def use(text: str) -> None:
        spin(0.02 * (len(text) / 16_384) ** power)

    with Stopwatch() as watch:
        assert (growing(watch, use, Stretched("", "7", "")) is not None) == is_slow


@pytest.mark.parametrize(
    ("linear", "quadratic", "is_slow"),
    [(0.0, 0.013, True), (0.002, 0.04, True), (0.002, 0.0, False), (0.04, 0.0, False), (0.0, 0.004, False)],
)
def test_a_slow_pattern_is_suspicious_at_each_shorter_length(
    linear: float, quadratic: float, is_slow: bool
) -> None:
    """Seconds for 16,384 characters; a whole line has a linear part of its own."""

    def use(text: str) -> None:
        size = len(text) / 16_384
        spin(linear * size + quadratic * size**2)

    assert (too_long(use, ["7"]) is not None) == is_slow


def test_a_use_that_was_interrupted_is_measured_again() -> None:
    """On a busy machine another process takes the processor in the middle of a use: the clock on the wall
    goes on.
    """
    times = iter([0.05] * 3)

    def use(_: str) -> None:
        time.sleep(next(times, 0))

    assert too_long(use, ["7"]) is None


def test_a_busy_machine_slows_all_lengths() -> None:
    """The lengths are measured in turns, so that a load that comes and goes meets both."""
    measured = 0

    def use(text: str) -> None:
        nonlocal measured
        measured += 1
        spin(0.02 * len(text) / 16_384 * (3 if 2 <= measured < 6 else 1))

    with Stopwatch() as watch:
        assert growing(watch, use, Stretched("", "7", "")) is None


def test_processes_share_the_patterns() -> None:
    own = rule(r"Own (?<broker>\d+).*!", f"{HEAD}Own 7 is up! (own.Logger)", "Own ")
    found = [
        {
            problem.partition(": ")[0]
            for problem in growth_problems(only(rules=(own,), layouts=(LAYOUT,)), count)
        }
        for count in (1, 2)
    ]
    assert found[0] == found[1]
    assert "own.toml [own] pattern" in found[0]


def test_stretched() -> None:
    made = list(stretched("a=7"))
    assert {(one.before, one.part) for one in made} >= {
        ("", "a"), ("", "a="), ("", "a=7"), ("a", "="), ("a", "=7"), ("a=", "7"), ("a", ":"), ("a=", "("),
    }  # fmt: skip
    assert {one.text(8) for one in made if one.part == "=7"} == {"a=7=7=7=7", "a=7=7=7=7\x02"}
    assert {one.after for one in made if one.part == "a"} == {"=7", "", "=7\x02"}
