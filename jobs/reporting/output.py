"""Print findings as Markdown or as annotations of GitHub Actions, by options."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.checking.finding_identity import known_as
from jobs.checking.ranking import worst_first
from parsers.explanation import visible
from schemas import moments

FORMATS = ("text", "json", "markdown", "github")
# severity -> command of a workflow
_COMMANDS = {"critical": "error", "error": "error", "warning": "warning", "info": "notice"}
_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_ESCAPES_OF_PROPERTIES = _ESCAPES | {":": "%3A", ",": "%2C"}


def add_arguments(command: Any, json_help: str) -> None:
    """Add --output-format and --json."""
    form = command.add_mutually_exclusive_group()
    form.add_argument(
        "--output-format",
        choices=FORMATS,
        default="text",
        help="text; json; markdown: a table for a ticket; github: annotations of a workflow (default text)",
    )
    form.add_argument("--json", action="store_const", const="json", dest="output_format", help=json_help)


def findings(form: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return lines of `markdown` or `github`, the worst finding first and resolved ones last.

    rows: of `findings`. `github` has no resolved and no silenced ones.
    """
    ordered = sorted(rows, key=lambda row: (row["status"] == "resolved", worst_first(dict(row))))
    return _markdown(ordered) if form == "markdown" else _annotations(ordered)


def verdict(
    form: str, rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Any], notes: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of the verdict of a run. outcomes: cluster, problem and unreadable of each.

    notes: further sentences.
    """
    problems = [f"{one.cluster}: not audited. {one.problem}" for one in outcomes if one.problem]
    problems += [f"{one.cluster}: not read: {text}" for one in outcomes for text in one.unreadable]
    if form == "github":
        yield from (f"::warning title=Kafka audit::{_escaped(text, _ESCAPES)}" for text in problems)
        yield from findings(form, rows)
        return
    for one in outcomes:
        if not one.problem:
            now = [row for row in rows if row["cluster"] == one.cluster and row["status"] != "resolved"]
            yield f"## Kafka audit of {_cell(one.cluster)}: {len(now):,} open"
            yield ""
            yield from findings(form, [row for row in rows if row["cluster"] == one.cluster])
            yield ""
    yield from (f"- {_cell(text)}" for text in (*problems, *notes))


def _markdown(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "No findings."
        return
    yield "| severity | status | finding | cluster | when | fingerprint |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        status = f"{row['status']}, silenced" if row.get("silenced") else row["status"]
        cells = (
            row["severity"],
            status,
            row["title"],
            row["cluster"],
            _when(row),
            f"`{known_as(dict(row))[:12]}`",
        )
        yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    clean = visible(text)
    return (
        "".join(f"\\{one}" if one in "\\|*_<>[]" else one for one in clean)
        if not clean.startswith("`")
        else clean
    )


def _annotations(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["status"] == "resolved" or row.get("silenced"):
            continue
        title = _escaped(f"{row['cluster']}: {row['title']}", _ESCAPES_OF_PROPERTIES)
        text = (
            f"{row['detail'] or row['title']} ({_when(row)}, {row['check_id']}, {known_as(dict(row))[:12]})"
        )
        yield f"::{_COMMANDS[row['severity']]} title={title}::{_escaped(text, _ESCAPES)}"


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(one, one) for one in visible(text))


def _when(row: Mapping[str, Any]) -> str:
    return (
        "no time stamps" if row["first_seen"] is None else moments.span(row["first_seen"], row["last_seen"])
    )
