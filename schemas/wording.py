"""Render the texts of findings from templates beside the queries of checks.

`schemas/checks/<id>.md` has the name of the check, why it matters, and three templates: title, detail,
advice. Templates are Jinja in a sandbox without globals and tests, and with only FILTERS. A value from a log
is never compiled.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, StrictUndefined, meta, nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemas.durations import two_units
from schemas.moments import moment

# names that a template may use besides the facts of its check: columns of the finding, the cluster's mode and
# version
COLUMNS = ("cluster", "topic", "partition", "replica", "node", "severity", "first_seen", "last_seen", "ended")
MODE = ("is_kraft", "kafka_version")
TEMPLATES = ("title", "detail", "advice")
SECTIONS = ("why", *TEMPLATES)
# text for a value that the logs do not show
NOT_KNOWN = "?"


@dataclass(frozen=True)
class Wording:
    """The content of `<check>.md`. name: the check in two to six words. why: for the reference.

    The others are templates.
    """

    check: str
    name: str
    why: str
    title: str
    detail: str
    advice: str


def parsed(check: str, text: str) -> Wording:
    """Return the wording in the text of a file: `# Name`, then `## Why`, `## Title`, `## Detail`, `##
    Advice`. Raises ValueError.
    """
    head, *parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    name = re.fullmatch(r"\s*# (.+)\s*", head)
    if name is None:
        raise ValueError("the first line is `# Name`, the next one begins a section")
    sections = {
        title.strip().lower(): body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)
    }
    if sorted(sections) != sorted(SECTIONS) or not all(sections.values()):
        raise ValueError(
            f"the sections are {', '.join(f'## {one.capitalize()}' for one in SECTIONS)}, each with text"
        )
    return Wording(check, name[1].strip(), **sections)


@cache
def wordings() -> dict[str, Wording]:
    """Return check -> its wording."""
    folder = files(__package__).joinpath("checks")
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".md")), key=lambda one: one.name)
    named = {one.name.removesuffix(".md"): one.read_text("utf-8") for one in found}
    return {name: parsed(name, text) for name, text in named.items()}


# -- filters -----------------------------------------------------------------------------------------------


def _number(value: float, digits: int = 0) -> str:
    """Format a number: `3,429`."""
    return f"{value:,.{digits}f}" if digits or isinstance(value, float) else f"{value:,}"


def _count(value: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun: `1 record`, `3,429 records`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def _listed(values: Iterable[Any] | None, most: int = 10) -> str:
    """List values, each once: `1, 2 and 3`; of more than `most`: `1, 2 and 40 more`."""
    some = list(dict.fromkeys(str(value) for value in values or () if value is not None))
    if not some:
        return NOT_KNOWN
    last = some[-1] if len(some) <= most else f"{len(some) - most:,} more"
    some = some[: len(some) - 1] if len(some) <= most else some[:most]
    return f"{', '.join(some)} and {last}" if some else last


def _named(values: Iterable[Any] | None, noun: str, most: int = 10) -> str:
    """List values with their noun: `broker 3`, `brokers 1 and 2`."""
    some = list(dict.fromkeys(values or ()))
    return f"{noun}{'' if len(some) == 1 else 's'} {_listed(some, most)}"


def _moment(value: Any) -> datetime:
    """Return a moment of a fact (text in JSON) or of a column, with the zone UTC."""
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _at(value: Any, after: Any = None) -> str:
    """Format a moment: `2026-11-20 10:09:12 UTC`, or `10:09:12 UTC` on the day of `after`."""
    return NOT_KNOWN if value is None else moment(_moment(value), None if after is None else _moment(after))


def _day(value: Any) -> str:
    """Format a day: `2026-11-20`."""
    return NOT_KNOWN if value is None else f"{_moment(value):%Y-%m-%d}"


def _duration(seconds: float | None) -> str:
    """Format a duration in words."""
    if seconds is None:
        return NOT_KNOWN
    whole = round(seconds)
    return "less than 1 s" if whole < 1 else two_units(whole)


def _duration_to(since: Any, until: Any) -> str:
    """Format the time between two moments in words."""
    return (
        NOT_KNOWN
        if since is None or until is None
        else _duration((_moment(until) - _moment(since)).total_seconds())
    )


def _quoted(text: str | None, most: int = 200) -> str:
    """Return a text of a log as one line of printable characters, cut to `most`."""
    if text is None:
        return NOT_KNOWN
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split()).rstrip(".")
    return clean if len(clean) <= most else clean[: most - 1].rstrip() + "…"


def _tail(text: str | None, most: int) -> str:
    """Return a path or a name of a log, whose beginning is cut if it is longer than `most`."""
    clean = _quoted(text, 10_000)
    return clean if len(clean) <= most else "…" + clean[len(clean) - most + 1 :]


def _simple(name: str | None) -> str:
    """Return the last part of the name of a class or logger."""
    return NOT_KNOWN if name is None else re.split(r"[.$]", name)[-1]


FILTERS: dict[str, Callable[..., str]] = {
    "number": _number,
    "count": _count,
    "listed": _listed,
    "named": _named,
    "at": _at,
    "day": _day,
    "duration": _duration,
    "duration_to": _duration_to,
    "quoted": _quoted,
    "simple": _simple,
    "tail": _tail,
}


@cache
def fragments() -> dict[str, str]:
    """Return name -> text of the parts that templates share: `schemas/fragments/<name>.md`, for `{% include
    "<name>" %}`.
    """
    found = files(__package__).joinpath("fragments").iterdir()
    return {
        one.name.removesuffix(".md"): one.read_text("utf-8").strip()
        for one in found
        if one.name.endswith(".md")
    }


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=DictLoader(fragments()),
        undefined=StrictUndefined,
        autoescape=False,
        finalize=lambda value: NOT_KNOWN if value is None else value,
    )
    environment.globals.clear()
    environment.tests.clear()
    environment.filters.clear()
    environment.filters.update(FILTERS)
    return environment


@cache
def _compiled(template: str) -> Any:
    return _environment().from_string(template)


# errors of rendering where a template does not fit its facts
FAILED = (TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError)


def rendered(template: str, facts: Mapping[str, Any]) -> str:
    """Render a template with facts as one line. Raises one of FAILED."""
    return re.sub(r" (?=[.,;)](?: |$))", "", " ".join(_compiled(template).render(facts).split()))


def problem(template: str, known: Iterable[str]) -> tuple[str | None, set[str]]:
    """Return (what is wrong with a template or None, the names that it uses).

    known: the names that it may use.
    """
    try:
        tree = _environment().parse(template)
        _environment().compile(template)
    except TemplateError as error:
        return f"not a template: {error}", set()
    used = meta.find_undeclared_variables(tree)
    for name in meta.find_referenced_templates(tree):
        if name not in fragments():
            return f"no fragment is called {name}; there are {', '.join(sorted(fragments()))}", used
        wrong, more = problem(fragments()[name], known)
        if wrong is not None:
            return f"fragment {name}: {wrong}", used | more
        used |= more
    if unknown := used - set(known):
        return f"no fact is called {', '.join(sorted(unknown))}", used
    # Jinja looks up a filter inside of a condition only when it renders
    if missing := sorted({one.name for one in tree.find_all(nodes.Filter)} - FILTERS.keys()):
        return f"no filter is called {', '.join(missing)}; there are {', '.join(sorted(FILTERS))}", used
    if any(
        True for _ in tree.find_all((nodes.Call, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Macro))
    ):
        return "a template calls nothing and imports nothing", used
    return None, used


def plain(template: str) -> str:
    """Return the words of a template: without blocks, each value as `N`."""
    return " ".join(
        re.sub(
            r"\{\{.*?\}\}", "N", re.sub(r"\{%.*?%\}", " ", template, flags=re.DOTALL), flags=re.DOTALL
        ).split()
    )


# -- commands of Kafka ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command of Kafka.

    kraft, zookeeper: its forms in that mode, the oldest first, as (first version, command).
    """

    about: str
    kraft: tuple[tuple[str, str], ...]
    zookeeper: tuple[tuple[str, str], ...]


@cache
def known_commands() -> dict[str, Command]:
    """Return name in templates -> command; see commands.toml."""

    def forms(entry: Any) -> tuple[tuple[str, str], ...]:
        return (
            (("0", entry),) if isinstance(entry, str) else tuple((one["since"], one["run"]) for one in entry)
        )

    text = files(__package__).joinpath("commands.toml").read_text("utf-8")
    return {
        name: Command(
            entry["about"], *(forms(entry.get(mode, entry.get("both"))) for mode in ("kraft", "zookeeper"))
        )
        for name, entry in tomllib.loads(text).items()
    }


def commands(is_kraft: bool, version: tuple[int, ...] | None) -> dict[str, str]:
    """Return the commands for a cluster by name, as Markdown code.

    version: of Kafka, None where no line and no setting names it.
    """

    def chosen(one: Command) -> str:
        forms = one.kraft if is_kraft else one.zookeeper
        if version is None and len(forms) > 1:
            (_, older), (since, newest) = forms[-2:]
            return f"`{newest}` (before Kafka {since}: `{older}`)"
        fits = [
            run for since, run in forms if version is None or version >= tuple(map(int, since.split(".")))
        ]
        return f"`{fits[-1]}`"

    return {name: chosen(one) for name, one in known_commands().items()}
