"""The pattern dialect: numbers of groups, fragments, and what is not let in."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.patterns import (
    SEPARATOR,
    DefinitionError,
    capture_numbers,
    check_dialect,
    expand,
    group_names,
    replacement,
    to_java,
    to_python,
)


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("plain", {}),
        (r"(?<replica>\d+)", {"replica": 1}),
        (r"(\d+)-(?<partition>\d+)", {"partition": 2}),
        (r"(?:a)(?<topic>[a-z(]+)\((?<partition>\d+)\)", {"topic": 1, "partition": 2}),
        (r"[(](?<replica>\d+)[)\]]\((?<leader>\d+)", {"replica": 1, "leader": 2}),
        (r"(?<isr>ISR:(\d)(?:,)(\d))(?<leader>\d)", {"isr": 1, "leader": 4}),
        (r"\\(?<leader>x)", {"leader": 1}),
    ],
)
def test_capture_numbers(pattern: str, numbers: dict[str, int]) -> None:
    assert capture_numbers(pattern) == numbers


def test_capture_numbers_of_all_rules_are_those_that_python_gives() -> None:
    from parsers.layouts import layouts
    from parsers.rules import built_in

    ruleset = built_in()
    patterns = [rule.pattern for rule in ruleset.rules] + [speaker.pattern for speaker in ruleset.speakers]
    patterns += [rule.each.pattern for rule in ruleset.rules if rule.each]
    patterns += [part for layout in layouts() for part in (layout.head, layout.line, layout.record)]
    for pattern in patterns:
        assert capture_numbers(pattern) == dict(to_python(pattern).groupindex), pattern
        assert re.compile(to_java(pattern), re.ASCII).groups == to_python(pattern).groups


def test_expand() -> None:
    pieces = {"partition": "{topic}-(?<partition>[0-9]+)", "topic": "(?<topic>[a-z]+)"}
    assert expand("for {partition}", pieces) == "for (?<topic>[a-z]+)-(?<partition>[0-9]+)"
    assert expand(r"\d{3} {topic}", pieces) == r"\d{3} (?<topic>[a-z]+)"
    assert expand(r"x{1,300}", pieces) == r"x{1,300}"


@pytest.mark.parametrize(
    ("pattern", "pieces", "complaint"),
    [
        ("{leder}", {"leader": "x"}, "unknown fragment {leder}"),
        ("{one}", {"one": "{other}", "other": "{one}"}, "fragments contain each other"),
        ("{one}", {"one": "{missing}"}, "unknown fragment {missing}"),
    ],
)
def test_expand_complains(pattern: str, pieces: dict[str, str], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(complaint)):
        expand(pattern, pieces)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|b)*", "(?:a|b)+", "(?<isr>a|b)*", "(?:x(?:a|b))*", "(ab?)*", "(a*)*", "(?:a+)+", "(?:,\\d+)*",
        "(a|b){2,}", "(a|b){1,5000}",
        "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)",
        r"(a)\1", r"(?<topic>a)\k<topic>", "(?<topic>a)(?P=topic)",
        "a++", "a*+", "a?+", "a{2}+",
        r"\bword\b", r"\Aa", r"a\z", r"a\Z", r"\R", r"\h", r"\p{L}",
        "(a", "a)", "[a", "*a",
    ],
)  # fmt: skip
def test_dialect_rejects(pattern: str) -> None:
    with pytest.raises(DefinitionError, match=r"^here: "):
        check_dialect(pattern, "here")


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:a|b)", "(?:a|b)?", "(?<leader>-?\\d+)", "(?:ab)*", "(?<topic>[a-z|?*]+)",
        "[(|)]*", r"\(a\|b\)*", r"\\(?<topic>a)",
        r"(?:[,.]\d)*", "a{2,3}", r"\[[^\]]*\]", r"\S+ \++", "[*+]x",
    ],
)  # fmt: skip
def test_dialect_accepts(pattern: str) -> None:
    check_dialect(pattern, "here")


def test_replacement_lays_out_slots() -> None:
    layout = replacement(
        r"(?<replica>\d+) of (x)(?<topic>\w+)",
        ["event_type", "topic", "leader", "replica"],
        {"event_type": r"a$b\c"},
    )
    assert layout.split(SEPARATOR) == [r"a\$b\\c", "$3", "", "$1"]


@given(
    st.lists(
        st.sampled_from(["(?<topic>a)", "(b)", "(?:c)", "[(]", r"\(", "d", "(?<leader>e)", r"[\]()]"]),
        max_size=8,
    )
)
def test_capture_numbers_agree_with_python(parts: list[str]) -> None:
    pattern = "".join(parts)
    if all(group_names(pattern).count(name) <= 1 for name in group_names(pattern)):
        assert capture_numbers(pattern) == dict(to_python(pattern).groupindex)
