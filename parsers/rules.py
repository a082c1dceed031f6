"""Rules: what each Kafka log statement says, as data (`events/*.toml`), and the speakers before it. No Spark.

A rule file belongs to one of Kafka's speakers and is named after it. Keys of a file: `loggers` (who may say it), then one
table a rule:

starts    literal prefix (or several) of the statement: the dispatch key
contains  a further literal, where rules share a prefix
pattern   regex of the whole statement; named groups are columns of `schemas/vocabulary.toml`
says      happened (the state is now this) | requested (an intent, a message sent) | failed (nothing changed)
          | is (a report of the present state)
keeps     columns that the change leaves as they were before, so that they may be carried over
implies   columns that follow from the statement without standing in it
each      `of`: the group that is a list, `pattern`: one item of it; such a record gives one event an item
sample    `line` (a whole record), `gives` (columns) or `gives_each` (one table an item)
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import schemas
from parsers.layouts import KAFKAS_LOGGER, Layout, Wrapper, shapes
from parsers.patterns import GROUP, DefinitionError, check_dialect, compiled, expand, group_names

SAYS = ("happened", "requested", "failed", "is")
RULE_KEYS = {"starts", "contains", "pattern", "says", "keeps", "implies", "each", "sample"}
# groups that carry the text of a list on to `each`; they are no columns
ITEMS = "items"


@dataclass(frozen=True)
class Each:
    """How a record that names many things is taken apart: every match of `pattern` in group `items` is an item."""

    pattern: str


@dataclass(frozen=True)
class Rule:
    """One statement that Kafka prints; see the module's docstring."""

    name: str
    file: str
    loggers: frozenset[str]
    starts: tuple[str, ...]
    contains: str | None
    pattern: str
    says: str
    keeps: tuple[str, ...]
    implies: Mapping[str, Any]
    each: Each | None
    samples: tuple[Mapping[str, Any], ...] = field(repr=False)

    def claims(self, statement: str) -> bool:
        """Whether the dispatch sends this statement here; the pattern then decides between event and drift."""
        return statement.startswith(self.starts) and (self.contains is None or self.contains in statement)

    @property
    def columns(self) -> list[str]:
        """Columns that the rule can fill, in the order of its groups."""
        named = group_names(self.pattern) + (group_names(self.each.pattern) if self.each else [])
        return [name for name in dict.fromkeys([*named, *self.implies]) if name != ITEMS]


@dataclass(frozen=True)
class Speaker:
    """What a component puts before its statement; see speakers.toml."""

    name: str
    pattern: str
    is_controller: bool
    samples: tuple[str, ...]


@dataclass(frozen=True)
class RuleSet:
    """Everything that is needed to read a statement, in the order of the dispatch."""

    rules: tuple[Rule, ...]
    speakers: tuple[Speaker, ...]
    loggers: frozenset[str]
    layouts: tuple[Layout, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    # what layouts that abbreviate print of a logger, by logger_key -> its name in full
    full_names: Mapping[str, str] = field(default_factory=dict, repr=False)

    def in_scope(self, logger: str | None) -> bool:
        """Whether records of this logger are kept. A logger may be printed in full or by its class name alone."""
        return logger is not None and logger_key(logger) in self.loggers

    def own_marks(self, layouts: Iterable[Layout]) -> str:
        """Regex of what tells a line that no layout takes whole for one of Kafka's: its logger's name, or who speaks after the head.

        Others write into the same file or folder, too (`docker compose logs`); what is Kafka's and was torn must not pass for theirs.
        """
        heads, speakers = (
            "|".join(dict.fromkeys(GROUP.sub("(?:", pattern) for pattern in patterns))
            for patterns in ((layout.head for layout in layouts), (speaker.pattern for speaker in self.speakers))
        )
        return rf"\A(?:{heads})(?:Kafka|{speakers})|{GROUP.sub('(?:', KAFKAS_LOGGER)}"


STATE_CHANGE = "state.change.logger"
# `%c{2}`, `%c{1.}`, Spring Boot: change.logger, s.c.logger
CUT_STATE_CHANGE = r"(?:.*\.)?c\w*\.logger"
# `%c{1}` prints `logger` for kafka.authorizer.logger and kafka.request.logger, too; those name no controller and no broker
STATE_CHANGE_SPEAKER = r"\[?(?:Controller|Broker) [^\n]*"


def full_name(logger: str, speaker: str, ruleset: RuleSet) -> str:
    """The logger in full where a layout has abbreviated it and its class is one that rules are about; else as printed."""
    if re.fullmatch(CUT_STATE_CHANGE, logger) or (logger == "logger" and re.fullmatch(STATE_CHANGE_SPEAKER, speaker)):
        return STATE_CHANGE
    return ruleset.full_names.get(logger_key(logger), logger)


def _full_names(loggers: Iterable[str], layouts: Iterable[Layout]) -> dict[str, str]:
    found: dict[str, str] = {}
    widths = {layout.width for layout in layouts if layout.width}
    for name in sorted(loggers):
        key = logger_key(name)
        if key != STATE_CHANGE:
            for cut in (key, *(key[-width:] for width in widths if len(key) > width)):
                found.setdefault(cut, name)
    return found


def logger_key(logger: str) -> str:
    """`kafka.controller.KafkaController` -> `KafkaController`; `state.change.logger` stays.

    Layouts with %c{1} print the last part only, and Kafka moves classes between packages.
    """
    return logger if logger.endswith("state.change.logger") else logger.rsplit(".", 1)[-1].rstrip("$")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__name__.split(".")[0]).joinpath(name).read_text("utf-8"))


@cache
def fragments() -> dict[str, str]:
    """Fragment name -> pattern source."""
    return _read("fragments.toml")


def _rules_of(file: str, text: str, pieces: Mapping[str, str], names: set[str]) -> list[Rule]:
    """The rules of a file; the loggers that it names are added to `names`."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"{file}: {error}") from None
    spelt_out = content.pop("loggers", ())
    names |= set(spelt_out)
    loggers = frozenset(map(logger_key, spelt_out))
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
        starts = (entry["starts"],) if isinstance(entry["starts"], str) else tuple(entry["starts"])
        try:
            pattern = expand(entry["pattern"], pieces)
            each = Each(expand(entry["each"]["pattern"], pieces)) if "each" in entry else None
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from None
        found.append(
            Rule(
                name=name,
                file=file,
                loggers=loggers,
                starts=starts,
                contains=entry.get("contains"),
                pattern=pattern,
                says=entry["says"],
                keeps=tuple(entry.get("keeps", ())),
                implies=entry.get("implies", {}),
                each=each,
                samples=tuple(entry.get("sample", ())),
            )
        )
    return found


def _dispatch_order(rule: Rule) -> tuple[bool, bool, int, str]:
    """The more particular a dispatch key, the earlier it is asked; rules without a beginning come last."""
    return ("" in rule.starts, rule.contains is None, -min(len(s) for s in rule.starts), rule.name)


def load(site: Path | None = None) -> RuleSet:
    """The built-in rules and, after them, those of a site's own folder of rule files. Raises DefinitionError.

    The folder may hold a `fragments.toml`, and a `layouts.toml` whose layouts are tried before the built-in ones.
    """
    pieces = dict(fragments())
    rules: list[Rule] = []
    names: set[str] = set()
    for entry in sorted(files(__name__.split(".")[0]).joinpath("events").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            rules += _rules_of(entry.name, entry.read_text("utf-8"), pieces, names)
    if site is not None:
        if (site / "fragments.toml").is_file():
            pieces |= tomllib.loads((site / "fragments.toml").read_text("utf-8"))
        for path in sorted(site.glob("*.toml")):
            if path.name not in {"fragments.toml", "layouts.toml"}:
                rules += _rules_of(path.name, path.read_text("utf-8"), pieces, names)
    speakers = tuple(
        Speaker(name, expand(entry["pattern"], pieces), entry.get("speaks") == "controller", tuple(entry["sample"]))
        for name, entry in _read("speakers.toml").items()
    )
    known = shapes(site)
    return RuleSet(
        rules=tuple(sorted(rules, key=_dispatch_order)),
        speakers=speakers,
        loggers=frozenset(logger for rule in rules for logger in rule.loggers),
        layouts=known.layouts,
        wrappers=known.wrappers,
        full_names=_full_names(names, known.layouts),
    )


@cache
def built_in() -> RuleSet:
    """The rules that come with the product."""
    return load()


def lint(ruleset: RuleSet) -> list[str]:
    """What is wrong with the rules, one sentence each; empty if nothing is."""
    from parsers.events import Parser  # it builds on this module

    words = schemas.vocabulary()
    problems: list[str] = []
    names: dict[str, str] = {}
    parser = Parser(ruleset)
    for rule in ruleset.rules:
        where = f"{rule.file} [{rule.name}]"
        if rule.name in names:
            problems.append(f"{where}: the name is taken by {names[rule.name]}")
        names[rule.name] = rule.file
        if rule.says not in SAYS:
            problems.append(f"{where}: says = {rule.says!r} is none of {', '.join(SAYS)}")
        for pattern in [rule.pattern] + ([rule.each.pattern] if rule.each else []):
            try:
                check_dialect(pattern, where)
            except DefinitionError as error:
                problems.append(str(error))
            groups = group_names(pattern)
            for group in groups:
                if group not in words and not (group == ITEMS and pattern is rule.pattern and rule.each):
                    problems.append(f"{where}: {group} is no word of schemas/vocabulary.toml")
                if groups.count(group) > 1:
                    problems.append(f"{where}: {group} is captured twice")
        if rule.each and ITEMS not in group_names(rule.pattern):
            problems.append(f"{where}: `each` needs a group named {ITEMS}")
        for column in [*rule.implies, *rule.keeps]:
            if column not in words:
                problems.append(f"{where}: {column} is no word of schemas/vocabulary.toml")
        for start in rule.starts:
            if not _is_literal_prefix(start, rule.pattern):
                problems.append(f"{where}: pattern does not begin with the literal {start!r}")
        if not rule.samples:
            problems.append(f"{where}: no sample")
        for number, sample in enumerate(rule.samples, 1):
            problems += [f"{where} sample {number}: {text}" for text in _sample_problems(rule, sample, ruleset, parser)]
    for speaker in ruleset.speakers:
        for text in speaker.samples:
            first = next((s.name for s in ruleset.speakers if compiled(s.pattern).fullmatch(text)), None)
            if first != speaker.name:
                problems.append(f"speakers.toml [{speaker.name}]: {text!r} is taken by {first}")
    return problems


def _is_literal_prefix(start: str, pattern: str) -> bool:
    """Whether what the pattern accepts can begin with the literal: compared up to the pattern's first metacharacter."""
    at = 0
    rest = pattern
    while rest and at < len(start):
        if rest[0] == "\\" and len(rest) > 1 and not rest[1].isalnum():
            char, rest = rest[1], rest[2:]
        elif found := re.match(r"\[([A-Za-z]+)\]", rest):  # [Cc]: one letter in two spellings
            if start[at] not in found.group(1):
                return False
            at, rest = at + 1, rest[found.end() :]
            continue
        elif rest[0] in "([.*+?^$|{":
            return True  # from here on the samples decide
        else:
            char, rest = rest[0], rest[1:]
        if rest[:1] in {"*", "?"}:
            return True
        if char != start[at]:
            return False
        at += 1
    return True


def _sample_problems(rule: Rule, sample: Mapping[str, Any], ruleset: RuleSet, parser: Any) -> list[str]:
    problems = []
    record = parser.record(sample["line"])
    if record is None:
        return ["no layout has such a line"]
    if not ruleset.in_scope(record.logger):
        problems.append(f"logger {record.logger} is not among the file's `loggers`")
    claimed = [other.name for other in ruleset.rules if other.claims(record.statement)]
    accepting = [name for name in claimed if parser.accepts(name, record.statement)]
    if not claimed or claimed[0] != rule.name:
        problems.append(f"the dispatch sends it to {claimed[0] if claimed else 'no rule'}")
    elif accepting != [rule.name]:
        problems.append(f"the patterns of {accepting or 'no rule'} accept it")
    if problems:
        return problems
    events = parser.events(record)
    expected = sample.get("gives_each", [sample.get("gives", {})])
    if len(events) != len(expected):
        return [f"{len(events)} events instead of {len(expected)}"]
    for item, (event, wanted) in enumerate(zip(events, expected, strict=True)):
        got = {key: event.get(key) for key in wanted}
        if got != dict(wanted):
            wrong = {k: (wanted[k], got[k]) for k in wanted if wanted[k] != got[k]}
            problems.append(f"item {item}: (expected, got) = {wrong}")
    return problems
