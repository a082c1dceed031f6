"""Match globs of the configuration: `*` is any text, `?` any character.

All other characters match themselves.
"""

import re
from collections.abc import Iterable
from functools import cache


@cache
def glob_pattern(glob: str) -> str:
    """Return a glob's regex, for Python's fullmatch, and between ^ and $ for Java and DuckDB."""
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in glob)


def matches(globs: Iterable[str], name: str) -> bool:
    """Return whether one of the globs matches the whole name."""
    return any(re.fullmatch(glob_pattern(glob), name, re.DOTALL) for glob in globs)
