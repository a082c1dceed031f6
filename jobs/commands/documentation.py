"""Write the generated parts of docs: tables, checks, rule files, layouts, types of sinks."""

import argparse
import json
import re
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import schemas
from jobs.alerts.sink import Sink
from jobs.alerts.sinks import SINK_TYPES
from jobs.reporting import json_schemas
from parsers.layouts import Layout, Wrapper
from parsers.rules import Rule, built_in, logger_key
from schemas import wording

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"
# most characters of a statement in the table of event types
STATEMENT = 90
LOGGER_AT_END = re.compile(r"\s\([\w.$]+\)$")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def dictionary() -> str:
    """Return every table with its columns, types and comments; the captured columns of `events` last."""
    parts = []
    for table in schemas.statements("tables"):
        comments = dict(
            re.findall(r"^  (\w+) [^\n]*?COMMENT '((?:[^'\\]|''|\\.)*)'", table.sql, re.MULTILINE)
        )
        rows = [
            f"| `{name}` | {kind} | {_cell(comments[name].replace(chr(39) * 2, chr(39)))} |"
            for name, kind in schemas.columns(table.name).items()
            if name in comments
        ]
        parts.append(
            f"#### `{table.name}`: {table.header['about']}\n\n| column | type | |\n|---|---|---|\n"
            + "\n".join(rows)
        )
        if "{vocabulary}" in table.sql:
            words = [
                f"| `{name}` | {schemas.SPARK_TYPES[word['type']]} | {_cell(word['comment'])} |"
                for name, word in schemas.vocabulary().items()
            ]
            parts.append(
                "and what the statements capture:\n\n| column | type | |\n|---|---|---|\n" + "\n".join(words)
            )
    return "\n\n".join(parts)


def checks() -> str:
    """Return two tables of all checks.

    The first has severity, harm, name and reason, the second what each finding is about, the evidence and the
    logs that each check needs.
    """
    words = wording.wordings()
    rows = [
        f"| `{check.name}` | {_cell(check.header.get('levels', check.header['severity']).rstrip('.'))} | {check.header['harm']} | {_cell(words[check.name].name)} | {_cell(words[check.name].why)} |"
        for check in schemas.statements("checks")
    ]
    needs = [
        f"| `{check.name}` | {_cell(_about(check))} | {_cell(check.header['concludes'].rstrip('.'))} | {_coverage(check)} | {_without(check)} |"
        for check in schemas.statements("checks")
    ]
    kinds = [f"| {name} | {_cell(kind.about)} |" for name, kind in schemas.coverage().items()]
    return "\n".join(
        [
            "| check | severity | harm | | why |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## What a check concludes from, and the logs that it needs",
            "",
            "| check | one finding for each | concludes from | needs | without them |",
            "|---|---|---|---|---|",
            *needs,
            "",
            "| kind | logs |",
            "|---|---|",
            *kinds,
        ]
    )


def _about(check: schemas.Statement) -> str:
    """Return what distinguishes the findings of a check."""
    return check.header["identity"] + (", episode" if "episodes" in check.header else "")


def _coverage(check: schemas.Statement) -> str:
    """Return the kinds of coverage that a check needs."""
    return " or ".join(check.needs.kinds)


def _without(check: schemas.Statement) -> str:
    """Return what a check reports without the logs that it needs."""
    if check.needs.kinds == ("lines",):
        return _cell(check.header.get("silence", "").rstrip("."))
    if check.needs.kinds == ("partition",):
        return "the claim ends with the logs"
    return (
        "no finding"
        if check.needs.otherwise is None
        else f"at most {check.needs.otherwise}, and the finding says so"
    )


def thresholds() -> str:
    """Return a table of every threshold: default, unit, meaning and the checks that it changes."""
    used = {
        name: [c.name for c in schemas.statements("checks") if name in c.listed("thresholds")]
        for name in schemas.thresholds()
    }
    rows = [
        f"| `{name}` | {limit.default:,} | {limit.unit} | {_cell(limit.meaning)} | {', '.join(f'`{one}`' for one in used[name])} |"
        for name, limit in schemas.thresholds().items()
    ]
    return "\n".join(["| threshold | default | unit | meaning | checks |", "|---|---|---|---|---|", *rows])


def rules() -> str:
    """Return the event types, file by file: what the rule says, the columns that it fills, the beginning of a line."""
    by_file: dict[str, list[Rule]] = {}
    for rule in built_in().rules:
        by_file.setdefault(rule.file, []).append(rule)
    parts = [f"{len(built_in().rules)} rules."]
    for file, some in sorted(by_file.items()):
        loggers = sorted({logger_key(logger) for rule in some for logger in rule.loggers})
        rows = [
            f"| `{rule.name}` | {rule.says} | {', '.join(rule.columns)} | {_statement(rule)} |"
            for rule in sorted(some, key=lambda rule: rule.name)
        ]
        parts.append(
            f"### {file}\n\nLoggers: {', '.join(f'`{one}`' for one in loggers)}\n\n"
            "| event type | says | columns | statement |\n|---|---|---|---|\n" + "\n".join(rows)
        )
    return "\n\n".join(parts)


def _statement(rule: Rule) -> str:
    """Return the beginning of what a rule reads from its first sample; a metadata log has records instead."""
    for sample in rule.samples:
        line = str(sample.get("line", ""))
        at = min((line.find(start) for start in rule.starts if start in line), default=0)
        text = " ".join(LOGGER_AT_END.sub("", line[at:].partition("\n")[0]).split()).replace("`", "'")
        if text:
            return f"`{_cell(text[:STATEMENT])}{'…' if len(text) > STATEMENT else ''}`"
    return ""


def words() -> str:
    """Return the commands and the parts of sentences that the words of a check may name."""
    commands = [
        f"| `{{{{ {name} }}}}` | {_cell(one.about)} |" for name, one in wording.known_commands().items()
    ]
    shared = [
        f'| `{{% include "{name}" %}}` | {_cell(text.partition("{#")[2].partition("#}")[0].strip())} |'
        for name, text in sorted(wording.fragments().items())
    ]
    return "\n".join(
        [
            "| command | |",
            "|---|---|",
            *commands,
            "",
            "| part of a sentence | what it becomes |",
            "|---|---|",
            *shared,
        ]
    )


# views that checks read -> what their rows are; the others describe themselves
VIEWS = {
    "clocks": "the end of a cluster's logs (`now`), its last incarnation and Kafka's version",
    "slos": "a goal of audit.toml; `clusters` and `topics` are patterns",
    "legal_moves": "a move of Kafka's state machines, `since` a version number",
    "leading": "an event type that a node logs only while it is controller",
    "partition_episodes": "an episode of a partition, as in `jobs/timelines/episodes.py`; `kind` is one of its `KINDS`",
    "losses": "records that a partition lost or may have lost, as in `jobs/timelines/losses.py`",
}


def views() -> str:
    """Return a table of the views that the queries of checks read, besides audited_<table>."""
    from jobs.batches.types import table_schema
    from jobs.checking.checks import AUDITED, register
    from jobs.engine.database import Database
    from jobs.nightly import fact_frames

    abouts = {
        one.__name__: (one.__doc__ or "").partition("\n")[0].removeprefix("Return ").rstrip(".")
        for one in fact_frames.FRAMES
    }
    abouts |= {fact.name: fact.header["about"] for fact in schemas.statements("facts")} | VIEWS
    database = Database()
    tables = {
        name: table_schema("partition_timeline" if name == "partitions_now" else name).empty_table()
        for name in AUDITED
    }
    register(database, tables, [], {})
    rows = [
        f"| `{name}` | {_cell(about)} | {', '.join(f'`{one}`' for one in database.frame(f'SELECT * FROM {name}').schema.names)} |"
        for name, about in sorted(abouts.items())
    ]
    listed = ", ".join(f"`{name}`" for name in sorted(AUDITED))
    return "\n".join([f"Tables: {listed}.", "", "| view | rows | columns |", "|---|---|---|", *rows])


def shapes() -> str:
    """Return the layouts with their ConversionPattern, and the wrappers, each with its first sample."""

    def sample(entry: Layout | Wrapper) -> str:
        return f"`{_cell(str(entry.samples[0]['line']).splitlines()[0][:90])}…`"

    known = built_in()

    def shape(layout: Layout) -> str:
        return (
            f"`{_cell(layout.pattern)}`"
            if layout.pattern
            else "JSON"
            if layout.json
            else "as kafka-dump-log prints it"
        )

    rows = [f"| `{one.name}` | {shape(one)} | {sample(one)} |" for one in known.layouts]
    table = "| layout | ConversionPattern | for instance |\n|---|---|---|\n" + "\n".join(rows)
    rows = [f"| `{one.name}` | {sample(one)} |" for one in known.wrappers]
    return (
        table + "\n\nand before any of them:\n\n| collector | for instance |\n|---|---|\n" + "\n".join(rows)
    )


def sinks() -> str:
    """Return a table of every type of sink: what it does, its defaults and its own keys."""
    shared = {one.name for one in fields(Sink)}
    rows = []
    for name, kind in sorted(SINK_TYPES.items()):
        own = [
            f"**`{f.name}`**" if f.default is MISSING else f"`{f.name}`"
            for f in fields(kind)
            if f.name not in shared
        ]
        about = _cell((kind.__doc__ or "").partition("\n")[0].rstrip("."))
        rows.append(f"| `{name}` | {about} | {kind.limit} | `{str(kind.ended).lower()}` | {', '.join(own)} |")
    head = "| `type` | what it does | default of `limit` | default of `ended` | its own keys (**required**) |\n|---|---|---|---|---|\n"
    return head + "\n".join(rows)


# page of docs, with # where it has a second part -> (name of its generated part, function that generates it)
PAGES = {
    "reference/tables": ("dictionary", dictionary),
    "reference/checks": ("checks", checks),
    "reference/configuration": ("thresholds", thresholds),
    "reference/event-types": ("rules", rules),
    "reference/layouts": ("layouts", shapes),
    "guides/alerts": ("sinks", sinks),
    "contributing/checks": ("words", words),
    "contributing/checks#views": ("views", views),
}


def page_of(name: str) -> Path:
    """Return the path of a page of docs."""
    return DOCS / f"{name.partition('#')[0]}.md"


def renewed(text: str, part: str, generated: str) -> str:
    """Return a page with its generated part replaced.

    Raises ValueError where the page lacks the part's markers.
    """
    begin, end = f"<!-- {part}: generated by make docs -->", f"<!-- end of {part} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no part {begin} … {end}")
    return f"{head}{begin}\n{generated}\n{end}{tail}"


def schema_text(schema: dict[str, Any]) -> str:
    """Return the text of a JSON schema's file."""
    return json.dumps(schema, indent=1) + "\n"


def unfinished() -> list[str]:
    """Return the files of checks with a TODO of the template, from which nothing can be generated."""
    folder = schemas.folder("checks")
    return sorted(
        f"schemas/checks/{one.name}"
        for one in folder.iterdir()
        if one.is_file() and "TODO" in one.read_text("utf-8")
    )


def main() -> int:
    """Update the pages; return exit code 1 if a check is unfinished or, with --check, a page is stale."""
    parser = argparse.ArgumentParser(prog="python -m jobs.commands.documentation", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    options = parser.parse_args()
    if files := unfinished():
        print(f"{', '.join(files)}: fill in each TODO first; `kafka-audit lint` names them", file=sys.stderr)
        return 1
    stale = []
    for name, (part, make) in PAGES.items():
        page = page_of(name)
        text = page.read_text("utf-8")
        new = renewed(text, part, make())
        if new != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(new, "utf-8")
    for name, schema in json_schemas.FILES.items():
        file, text = REFERENCE / name, schema_text(schema())
        if not file.is_file() or file.read_text("utf-8") != text:
            stale.append(name)
            if not options.check:
                file.write_text(text, "utf-8")
    if options.check and stale:
        print(f"stale: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return int(bool(options.check and stale))


if __name__ == "__main__":
    sys.exit(main())
