"""The pattern dialect of all data files, and its translation.

Patterns stay in the common subset of Java's `java.util.regex`, Python's `re` (ASCII) and RE2: named groups `(?<name>...)`,
no look-around, no back reference, no possessive or atomic part. `{fragment}` inserts a fragment of `fragments.toml`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache

FRAGMENT = re.compile(r"\{([a-z][a-z0-9_]*)\}")
GROUP = re.compile(r"\(\?<([a-z][a-z0-9_]*)>")
# `*`, `+` and counted repetitions but `{0,1}`
REPEATED = re.compile(r"[*+]|\{(?!(?:0,)?1\})\d*,?\d*\}")
UNSUPPORTED = re.compile(r"\(\?(?:[=!>]|<[=!]|P=)|\\[1-9]|\\[kKpPbBAzZGRXhHvV]|[*+?}]\+")
SEPARATOR = "\x01"
# what no layout prints, but crashes (NUL padding), terminals (colours) and editors (byte order mark) leave
NOT_PRINTED = r"[\x00\x01]|\x1B\[[0-9;]*[A-Za-z]|\A\uFEFF"
# first line of a stack trace: `kafka.common.StateChangeFailedException: Failed to elect leader ..`
THROWABLE = r"(?:Caused by: )?([\w.$]+\.[\w$]*(?:Exception|Error|Throwable)[\w$]*)(?:: (.*))?"


class DefinitionError(ValueError):
    """A data file (rule, layout, speaker, fragment, machine, check) is wrong; the text says where and how."""


def expand(pattern: str, fragments: Mapping[str, str]) -> str:
    """The pattern with every `{fragment}` replaced, repeatedly. Raises DefinitionError on an unknown one."""
    for _ in range(8):
        if not FRAGMENT.search(pattern):
            return pattern

        def insert(found: re.Match[str]) -> str:
            if found.group(1) not in fragments:
                raise DefinitionError(f"unknown fragment {{{found.group(1)}}}")
            return fragments[found.group(1)]

        pattern = FRAGMENT.sub(insert, pattern)
    raise DefinitionError("fragments contain each other")


def group_names(pattern: str) -> list[str]:
    """Names of the named groups, in order."""
    return GROUP.findall(pattern)


@cache
def to_python(pattern: str) -> re.Pattern[str]:
    """Compiled for Python: named groups, ASCII classes, anchored by the caller (`fullmatch`), `.` takes newlines."""
    return re.compile(GROUP.sub(r"(?P<\1>", pattern), re.ASCII | re.DOTALL)


def to_java(pattern: str) -> str:
    """Source for Java: plain numbered groups (Java names take no underscore)."""
    return GROUP.sub("(", pattern)


def capture_numbers(pattern: str) -> dict[str, int]:
    """Group name -> number among all capturing groups of the translated pattern."""
    numbers: dict[str, int] = {}
    count = 0
    in_class = False
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            if pattern[at + 1 : at + 2] == "]":
                at += 1
        elif char == "(":
            named = GROUP.match(pattern, at)
            if named:
                count += 1
                numbers[named.group(1)] = count
            elif pattern[at + 1 : at + 2] != "?":
                count += 1
        at += 1
    return numbers


def replacement(pattern: str, slots: Iterable[str], marks: Mapping[str, str] = {}) -> str:
    """What a match is replaced by: one slot a column, in order, joined by SEPARATOR.

    A slot is the group's reference, the text that `marks` gives for it, or empty.
    """
    numbers = capture_numbers(pattern)
    cells = []
    for slot in slots:
        if slot in marks:
            cells.append(re.sub(r"([\\$])", r"\\\1", marks[slot]))
        else:
            cells.append(f"${numbers[slot]}" if slot in numbers else "")
    return SEPARATOR.join(cells)


def check_dialect(pattern: str, where: str) -> None:
    """Raises DefinitionError for what is outside the common subset or may overflow Java's stack."""
    bare = re.sub(r"\[[^\]]*\]", "C", re.sub(r"\\.", "__", pattern, flags=re.DOTALL))
    unescaped = re.sub(r"\\[^1-9kKpPbBAzZGRXhHvV]", "__", pattern, flags=re.DOTALL)
    if UNSUPPORTED.search(re.sub(r"\[[^\]]*\]", "C", unescaped)):
        raise DefinitionError(f"{where}: look-around, back references, possessive parts and \\b-like escapes are not portable")
    # a repeated group that contains an alternation or an optional part recurses once a turn in Java
    depth: list[int] = []
    for at, char in enumerate(bare):
        if char == "(":
            depth.append(at)
        elif char == ")":
            if not depth:
                raise DefinitionError(f"{where}: unbalanced parenthesis")
            start = depth.pop()
            body = bare[start + 1 : at].removeprefix("?:")
            if REPEATED.match(bare, at + 1) and re.search(r"[|?]|\*|\+", re.sub(r"^\?<\w+>", "", body)):
                raise DefinitionError(f"{where}: a repeated group may hold no alternation, optional or repeated part: ({body})")
    if depth:
        raise DefinitionError(f"{where}: unbalanced parenthesis")
    try:
        to_python(pattern)
    except re.error as error:
        raise DefinitionError(f"{where}: {error}") from None
