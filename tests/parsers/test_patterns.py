"""The pattern dialect: numbers of groups, fragments, and what is not let in."""

from __future__ import annotations

import re

import pytest

from jobs import errors
from jobs.commands import command_line
from jobs.nightly_audit import main
from parsers.patterns import DefinitionError, check_dialect, expand, is_re_faulty


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
def test_expand_refuses_wrong_fragments(pattern: str, pieces: dict[str, str], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(complaint)):
        expand(pattern, pieces)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|b)*", "(?:a|b)+", "(?<isr>a|b)*", "(?:x(?:a|b))*", "(ab?)*", "(a*)*", "(?:a+)+", "(?:,\\d+)*",
        "(a|b){2,}", "(a|b){1,5000}",
        "(a", "a)", "[a", "*a",
    ],
)  # fmt: skip
def test_patterns_that_do_not_compile_or_may_take_hours_are_rejected(pattern: str) -> None:
    with pytest.raises(DefinitionError, match=r"^here: "):
        check_dialect(pattern, "here")


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:a|b)", "(?:a|b)?", "(?<leader>-?\\d+)", "(?:ab)*", "(?<topic>[a-z|?*]+)",
        "[(|)]*", r"\(a\|b\)*", r"\\(?<topic>a)",
        r"(?:[,.]\d)*", "a{2,3}", r"\[[^\]]*\]", r"\S+ \++", "[*+]x", "a(?=b)", "a++b", "(?<!a)b",
    ],
)  # fmt: skip
def test_dialect_accepts(pattern: str) -> None:
    check_dialect(pattern, "here")


def test_a_python_that_reads_records_wrongly_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to 3.11.4 a possessive group gives back what it has taken, so that events would be missing
    (python/cpython#106052).
    """
    assert not is_re_faulty()
    monkeypatch.setattr(command_line, "is_re_faulty", lambda: True)
    assert main(["explain", "x"]) == errors.USAGE
    assert "use 3.11.5 or later" in capsys.readouterr().err
