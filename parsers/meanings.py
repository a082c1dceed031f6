"""Load the meanings of statements for timelines: words of rules, and the event types of each. Pure.

`meanings.toml` defines the words. A rule of `events/*.toml` lists its words under `means`; under `means_by`
it lists words that apply only to lines of some loggers, by the last part of the logger's name.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

PACKAGE = files(__name__.split(".")[0])
# lines of rules with their heading or meaning. Only these are parsed, because commands that show timelines
# need no patterns
_LINES = re.compile(r"^(?:\[\w+\]|means(?:_by)? = .*)$", re.M)
# loggers of a word that applies to all lines of its event type
ANY: frozenset[str] = frozenset()


@cache
def words() -> Mapping[str, str]:
    """Return the words that a rule may list, each with its definition."""
    return {
        word: entry["is"]
        for word, entry in tomllib.loads(PACKAGE.joinpath("meanings.toml").read_text("utf-8")).items()
    }


@cache
def _rules() -> Mapping[str, Mapping[str, Any]]:
    """Return event type -> `means` and `means_by` of its rule."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in PACKAGE.joinpath("events").iterdir():
        if file.name.endswith(".toml"):
            lines = _LINES.findall(file.read_text("utf-8"))
            # headings of rules that have a meaning, each followed by its meaning
            some = [
                line
                for line, after in zip(lines, [*lines[1:], "["], strict=True)
                if line[0] != "[" or after[0] != "["
            ]
            found |= tomllib.loads("\n".join(some))
    return found


@cache
def loggers(word: str) -> Mapping[str, frozenset[str]]:
    """Return event type -> loggers whose lines have the meaning; ANY: all loggers.

    Raises KeyError for an unknown word.
    """
    if word not in words():
        raise KeyError(f"parsers/meanings.toml has no word {word}")
    found = {event_type: ANY for event_type, rule in _rules().items() if word in rule.get("means", ())}
    return found | {
        event_type: frozenset(rule["means_by"][word])
        for event_type, rule in _rules().items()
        if word in rule.get("means_by", ())
    }


def event_types(*some: str) -> frozenset[str]:
    """Return the event types of any of the words, for any logger. Raises KeyError for an unknown word."""
    return frozenset().union(*map(loggers, some))
