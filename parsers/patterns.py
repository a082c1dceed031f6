"""Compile and check the pattern dialect of all data files.

Patterns are Python's `re` (3.11.5 and later) with named groups `(?<name>...)`, ASCII classes and `.` for any
character. `{fragment}` inserts a fragment of `fragments.toml`.
"""

import re
from collections.abc import Mapping
from functools import cache

FRAGMENT = re.compile(r"\{([a-z][a-z0-9_]*)\}")
GROUP = re.compile(r"\(\?<([a-z][a-z0-9_]*)>")
# `*`, `+` and counted repetitions except `{0,1}`
REPEATED = re.compile(r"[*+]|\{(?!(?:0,)?1\})\d*,?\d*\}")
# a lookaround over literals, which consumes no text
LOOKAROUND = re.compile(r"\(\?<?[=!][^()|*+?{}]*\)")
# `kafka.common.StateChangeFailedException`; atomic, because a word of this kind may be long and occur often
THROWABLE_CLASS = r"(?>[\w.$]+\.)(?>[\w$]*?(?:Exception|Error|Throwable))[\w$]*+"
# first line of a stack trace: `kafka.common.StateChangeFailedException: Failed to elect leader ..`
THROWABLE = rf"(?:Caused by: )?({THROWABLE_CLASS})(?:: (.*))?"


class DefinitionError(ValueError):
    """A data file (rule, layout, log ident, fragment, machine, check) is wrong.

    The text says where and how.
    """


def is_re_faulty() -> bool:
    """Return whether a possessive group of `re` matches too much (python/cpython#106052, until 3.11.5)."""
    return re.fullmatch("(?:ab?c)++", "aca") is not None


def expand(pattern: str, fragments: Mapping[str, str]) -> str:
    """Replace every `{fragment}` of a pattern, repeatedly. Raises DefinitionError on an unknown one."""
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
    """Return the names of the named groups, in order."""
    return GROUP.findall(pattern)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern: ASCII classes, `.` matches newlines; the caller anchors it (`fullmatch`)."""
    return re.compile(GROUP.sub(r"(?P<\1>", pattern), re.ASCII | re.DOTALL)


def check_dialect(pattern: str, where: str) -> None:
    """Raise DefinitionError where a pattern does not compile, or a hostile line makes it run for hours."""
    bare = re.sub(r"\[[^\]]*\]", "C", re.sub(r"\\.", "__", pattern, flags=re.DOTALL))
    # a repeated group that contains a repeated part, or a choice, may match one text in exponentially many
    # ways
    depth: list[int] = []
    for at, char in enumerate(bare):
        if char == "(":
            depth.append(at)
        elif char == ")":
            if not depth:
                raise DefinitionError(f"{where}: unbalanced parenthesis")
            start = depth.pop()
            body = LOOKAROUND.sub("", bare[start + 1 : at].removeprefix("?:"))
            if REPEATED.match(bare, at + 1) and re.search(r"[|?]|\*|\+", re.sub(r"^\?<\w+>", "", body)):
                raise DefinitionError(
                    f"{where}: a repeated group may have no alternation, optional or repeated part: ({body})"
                )
    try:
        compiled(pattern)
    except re.error as error:
        raise DefinitionError(f"{where}: {error}") from None
