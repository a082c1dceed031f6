"""Load the rules of Kafka's log statements (`events/*.toml`), and log idents. No Spark.

A rule file belongs to one component of Kafka and is named after it. Keys of a file: `loggers`, which may log
the statements, then one table per rule:

starts    literal prefix (or several) of the statement: the dispatch key
contains  a further literal, if rules share a prefix
drifts    false: other statements have the same beginning, so a statement that the pattern does not match is
          no drift
pattern   regex of the whole statement; named groups are columns of `schemas/vocabulary.toml`
says      happened (the state is now this) | requested (an intent, a message sent) | failed (nothing changed)
          | is (a report of the present state)
means     what the statement means for timelines: words of meanings.toml
means_by  the same for lines of some loggers only: word -> the last parts of their names
keeps     columns that the change leaves unchanged, so that their values may be carried over
implies   columns whose values follow from the statement without being in it
each      `of`: the group that is a list, `pattern`: one item of it; such a record gives one event per item
sample    `line` (a whole record), `gives` (columns) or `gives_each` (one table per item)
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from parsers.layouts import KAFKAS_LOGGER, Layout, Wrapper, shapes
from parsers.patterns import GROUP, DefinitionError, expand, group_names

PACKAGE = files(__name__.split(".")[0])
SAYS = ("happened", "requested", "failed", "is")
RULE_KEYS = {
    "starts",
    "contains",
    "drifts",
    "pattern",
    "says",
    "means",
    "means_by",
    "keeps",
    "implies",
    "each",
    "sample",
}
# group with the text of a list for `each`; it is no column
ITEMS = "items"
STATE_CHANGE = "state.change.logger"
# `%c{2}`, `%c{1.}`, Spring Boot: change.logger, s.c.logger
CUT_STATE_CHANGE = re.compile(r"(?:.*\.)?c\w*\.logger")
# `%c{1}` prints `logger` for kafka.authorizer.logger and kafka.request.logger, too; those name no controller
# and no broker
STATE_CHANGE_IDENT = re.compile(r"\[?(?:Controller|Broker) [^\n]*")


@dataclass(frozen=True)
class Rule:
    """One statement that Kafka prints; see the module's docstring. each: pattern of an item."""

    name: str
    file: str
    loggers: frozenset[str]
    starts: tuple[str, ...]
    contains: str | None
    pattern: str
    says: str
    keeps: tuple[str, ...]
    implies: Mapping[str, Any]
    each: str | None
    samples: tuple[Mapping[str, Any], ...] = field(repr=False)
    drifts: bool = True
    means: tuple[str, ...] = ()
    means_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def claims(self, statement: str) -> bool:
        """Return whether the dispatch chooses this rule; the pattern then decides between event and drift."""
        return statement.startswith(self.starts) and (self.contains is None or self.contains in statement)

    @property
    def columns(self) -> list[str]:
        """Return the columns that the rule can fill, in the order of its groups."""
        named = group_names(self.pattern + (self.each or ""))
        return [name for name in dict.fromkeys([*named, *self.implies]) if name != ITEMS]


@dataclass(frozen=True)
class LogIdentPattern:
    """A pattern of log idents, the text of a component before its statement; see log_idents.toml."""

    name: str
    pattern: str
    is_controller: bool
    samples: tuple[str, ...]


@dataclass(frozen=True)
class RuleSet:
    """All definitions that parse a statement, the rules in the order of the dispatch."""

    rules: tuple[Rule, ...]
    log_idents: tuple[LogIdentPattern, ...]
    layouts: tuple[Layout, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()

    @cached_property
    def loggers(self) -> frozenset[str]:
        """Return the `logger_key` of the loggers that rules cover."""
        return frozenset(logger_key(logger) for rule in self.rules for logger in rule.loggers)

    def in_scope(self, logger: str | None) -> bool:
        """Return whether records of a logger are stored.

        A logger may be printed in full or by its class name alone.
        """
        return logger is not None and logger_key(logger) in self.loggers

    @cached_property
    def own_marks(self) -> str:
        """Return a regex that recognises a damaged line of Kafka by its logger or log ident.

        Other programs may write to the same file (`docker compose logs`); a damaged line of Kafka must not
        count as theirs.
        """
        heads, idents = (
            "|".join(dict.fromkeys(GROUP.sub("(?:", pattern) for pattern in patterns))
            for patterns in (
                (layout.head for layout in self.layouts),
                (ident.pattern for ident in self.log_idents),
            )
        )
        return rf"\A(?:{heads})(?:Kafka|{idents})|{GROUP.sub('(?:', KAFKAS_LOGGER)}"

    @cached_property
    def _full_names(self) -> Mapping[str, str]:
        """Return abbreviated logger -> its name in full."""
        found: dict[str, str] = {}
        widths = {layout.width for layout in self.layouts if layout.width}
        for name in sorted({logger for rule in self.rules for logger in rule.loggers} - {STATE_CHANGE}):
            key = logger_key(name)
            for cut in (key, *(key[-width:] for width in widths if len(key) > width)):
                found.setdefault(cut, name)
        return found

    def full_name(self, logger: str, log_ident: str) -> str:
        """Return an abbreviated logger in full if rules cover its class; else as printed."""
        if CUT_STATE_CHANGE.fullmatch(logger) or (
            logger == "logger" and STATE_CHANGE_IDENT.fullmatch(log_ident)
        ):
            return STATE_CHANGE
        return self._full_names.get(logger_key(logger), logger)


def logger_key(logger: str) -> str:
    """Return the last part of a logger: `KafkaController` for `kafka.controller.KafkaController`.

    `state.change.logger` stays.
    Layouts with %c{1} print only the last part, and Kafka moves classes between packages.
    """
    return logger if logger.endswith(STATE_CHANGE) else logger.rsplit(".", 1)[-1].rstrip("$")


def _rules_of(file: str, text: str, fragments: Mapping[str, str]) -> list[Rule]:
    """Return the rules of a file."""
    content = _toml(file, text)
    loggers = frozenset(content.pop("loggers", ()))
    if not loggers:
        raise DefinitionError(f"{file}: `loggers` is missing")
    found = []
    for name, entry in content.items():
        where = f"{file} [{name}]"
        if unknown := set(entry) - RULE_KEYS:
            raise DefinitionError(f"{where}: unknown key {', '.join(sorted(unknown))}")
        for key in ("starts", "pattern", "says"):
            if key not in entry:
                raise DefinitionError(f"{where}: `{key}` is missing")
        try:
            pattern = expand(entry["pattern"], fragments)
            each = expand(entry["each"]["pattern"], fragments) if "each" in entry else None
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from None
        starts = (entry["starts"],) if isinstance(entry["starts"], str) else tuple(entry["starts"])
        keeps, implies = tuple(entry.get("keeps", ())), entry.get("implies", {})
        samples = tuple(entry.get("sample", ()))
        found.append(
            Rule(
                name,
                file,
                loggers,
                starts,
                entry.get("contains"),
                pattern,
                entry["says"],
                keeps,
                implies,
                each,
                samples,
                entry.get("drifts", True),
                tuple(entry.get("means", ())),
                {word: tuple(some) for word, some in entry.get("means_by", {}).items()},
            )
        )
    return found


def _toml(file: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"{file}: {error}") from None


def _dispatch_order(rule: Rule) -> tuple[bool, bool, int, str]:
    """Return the sort key of a rule: more specific dispatch keys are first, rules without a beginning are
    last.
    """
    return ("" in rule.starts, rule.contains is None, -min(len(s) for s in rule.starts), rule.name)


def _texts(folder: Traversable) -> dict[str, str]:
    """Return name -> text of the data files in a folder."""
    return {
        entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".toml")
    }


@cache
def _built_in_fragments() -> Mapping[str, str]:
    return _toml("fragments.toml", PACKAGE.joinpath("fragments.toml").read_text("utf-8"))


@cache
def _built_in_rules() -> tuple[Rule, ...]:
    """Return the built-in rules, which are loaded once per process."""
    texts = _texts(PACKAGE.joinpath("events"))
    return tuple(
        rule for file in sorted(texts) for rule in _rules_of(file, texts[file], _built_in_fragments())
    )


def load(site: Path | None = None) -> RuleSet:
    """Return the built-in rules and those of a site's folder of rule files. Raises DefinitionError.

    The folder may have a `fragments.toml`, and a `layouts.toml` whose layouts are tried before the built-in
    ones.
    """
    texts = _texts(site) if site else {}
    fragments = {**_built_in_fragments(), **_toml("fragments.toml", texts.pop("fragments.toml", ""))}
    texts.pop("layouts.toml", None)
    rules = [rule for file in sorted(texts) for rule in _rules_of(file, texts[file], fragments)]
    if meant := next((rule for rule in rules if rule.means or rule.means_by), None):
        raise DefinitionError(
            f"{meant.file} [{meant.name}]: timelines read built-in rules only; remove `means`"
        )
    idents = _toml("log_idents.toml", PACKAGE.joinpath("log_idents.toml").read_text("utf-8")).items()
    known = shapes(site)
    return RuleSet(
        tuple(sorted((*_built_in_rules(), *rules), key=_dispatch_order)),
        tuple(
            LogIdentPattern(
                name, expand(e["pattern"], fragments), e.get("of") == "controller", tuple(e["sample"])
            )
            for name, e in idents
        ),
        known.layouts,
        known.wrappers,
    )


@cache
def built_in() -> RuleSet:
    """Return the rules of the product."""
    return load()
