"""Every command in a document or a help text can be parsed; reading commands are run on prepared tables."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from jobs import errors
from jobs.commands import command_line
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLE = ROOT / "sample_logs" / "3.3.2-default" / "reassign"
RUN = {"sql", "findings", "timeline", "durability", "assignments", "explain", "layout", "completion"}
# options of docker, uv, Spark, node_exporter and Kafka's tools that documents name
OTHERS = {
    "--collector",
    "--driver-java-options",
    "--files",
    "--packages",
    "--python",
    "--delete",
    "--describe",
    "--execute",
    "--generate",
    "--verify",
    "--reassignment-json-file",
    "--target",
    "--rewrite",
    "--write",
    "--under-replicated-partitions",
    "--replication",
    "--py-files",
}
# how a scheduler starts a command: five fields of cron, a unit of systemd, an operator of Airflow
STARTS = [
    re.compile(r"^(?:\$ )?(?P<command>kafka-audit [a-z].*)"),
    re.compile(r"^(?:[\d*/,-]+ ){5} *(?:.*&& *)?(?:\S+=\S+ )*(?:\S*/)?(?P<command>kafka-audit [a-z].*)"),
    re.compile(r"^ExecStart=(?:\S*/)?(?P<command>kafka-audit [a-z].*)"),
    re.compile(r'^bash_command="(?:\S*/)?(?P<command>kafka-audit [a-z][^"]*)"'),
    re.compile(r"^docker run .* IMAGE (?P<arguments>[a-z].*)"),
    re.compile(r"^spark-submit .*jobs/nightly_audit\.py +(?P<arguments>[a-z].*)"),
]


class Command(NamedTuple):
    """A command, and the document or help text that contains it."""

    where: str
    text: str


def commands_in(where: str, text: str) -> list[Command]:
    """Return the commands in the lines of a text; a line that ends with a backslash is continued."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for start in STARTS:
            if match := start.match(line.strip()):
                parts = match.groupdict()
                found.append(Command(where, parts.get("command") or f"kafka-audit {parts['arguments']}"))
                break
    return found


def in_documents() -> list[Command]:
    """Return the commands in blocks of code: indented, or between fences."""
    found = []
    for document in DOCUMENTS:
        lines = [
            line
            for line in document.read_text("utf-8").replace("\\\n", " ").splitlines()
            if not line.startswith(("|", "#", "* "))
        ]
        found += commands_in(str(document.relative_to(ROOT)), "\n".join(lines))
    return found


def in_help() -> list[Command]:
    """Return the examples in the help of the program and of each command."""
    texts = {
        "--help": command_line.parser().epilog,
        **{name: command.epilog for name, command in parsers().items()},
    }
    return [command for name, text in texts.items() for command in commands_in(f"{name} --help", text or "")]


def manifests() -> list[tuple[str, dict[str, object]]]:
    """Return (document, manifest) of each CronJob."""
    blocks = [
        (str(document.relative_to(ROOT)), yaml.safe_load(block))
        for document in DOCUMENTS
        for block in re.findall(r"```yaml\n(.*?)```", document.read_text("utf-8"), re.S)
    ]
    return [(where, block) for where, block in blocks if block.get("kind") == "CronJob"]


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return name of a command -> its parser."""
    actions = command_line.parser()._actions
    return next(action.choices for action in actions if isinstance(action, argparse._SubParsersAction))


def arguments(command: str) -> list[str]:
    """Return a command without remarks, redirections and the rest of a pipe."""
    words = shlex.split(command, comments=True)
    end = next(
        (at for at, word in enumerate(words) if word in (">", "|", "&&", ";", "||", "2>", ">>")), len(words)
    )
    return words[1:end]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents") / "tables"
    assert main(["audit", str(SAMPLE), "--tables", str(folder), "--engine", "local", "-q"]) in (
        errors.CLEAN,
        errors.FINDINGS,
    )
    return folder


def test_commands_are_found_in_all_forms_of_documents():
    documents = {command.where for command in in_documents()}
    assert {
        "README.md",
        "docs/guides/operators.md",
        "docs/guides/spark-cluster.md",
        "docs/concepts/engines.md",
    } <= documents
    # cron, systemd, Airflow, and the line of `config check`
    assert sum(command.where == "docs/guides/schedulers.md" for command in in_documents()) >= 5
    text = "15 2 * * *  . /etc/secrets && /opt/bin/kafka-audit audit --tabels /x\nExecStart=/opt/kafka-audit sqll 'x'\nspark-submit --a b \\\n jobs/nightly_audit.py audti"
    assert [command.text.split()[1] for command in commands_in("x", text)] == ["audit", "sqll", "audti"]


@pytest.mark.parametrize("name", parsers())
def test_each_command_has_examples_in_its_help(name):
    examples = commands_in(name, parsers()[name].epilog or "")
    assert examples
    assert all(f" {name}" in example.text for example in examples)


@pytest.mark.parametrize(
    "command", [*in_documents(), *in_help()], ids=lambda command: f"{command.where}: {command.text[:60]}"
)
def test_each_command_of_a_document_runs(command, tables, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    if "[" in command.text.replace("[[", "").replace("'[", ""):
        known = parsers()[command.text.split()[1]]._option_string_actions
        assert set(re.findall(r"--[a-z][a-z-]*", command.text)) <= known.keys()
        return
    given = arguments(command.text)
    options = command_line.parser().parse_args(given)
    about_others = (
        getattr(options, "fingerprint", None)
        or getattr(options, "cluster", None)
        or getattr(options, "rules", None)
        or "--what-if" in given
    )
    if (
        options.command not in RUN
        or about_others
        or getattr(options, "config", None)
        or "://" in command.text
    ):
        return
    if options.command == "layout":
        given = ["layout", str(next(SAMPLE.rglob("controller.log")))]
    if "--tables" in given:
        given[given.index("--tables") + 1] = str(tables)
    if options.command in ("durability", "assignments"):
        # the topics and days of the example are not in the sample
        given = [given[0], "--tables", str(tables)]
    if options.command == "explain" and options.line == "-":
        return
    if options.command == "sql" and options.format == "parquet":
        # stdout of a test takes no bytes
        given[given.index("parquet")] = "csv"
    code = main(given)
    assert code == errors.CLEAN, capsys.readouterr().err


@pytest.mark.parametrize(("where", "manifest"), manifests())
def test_each_manifest_starts_a_valid_command(where, manifest):
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    named = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        command_line.parser().parse_args(container["args"])
        assert {mount["name"] for mount in container["volumeMounts"]} == named
    assert where == "docs/guides/schedulers.md"


def queries() -> list[tuple[str, str]]:
    """Return (document, query) of each block of SQL."""
    return [
        (str(document.relative_to(ROOT)), block)
        for document in DOCUMENTS
        for block in re.findall(r"```sql\n(.*?)```", document.read_text("utf-8"), re.S)
    ]


@pytest.mark.parametrize(("where", "query"), queries())
def test_a_query_of_a_document_runs(where, query, tables, capsys):
    assert main(["sql", query, "--tables", str(tables)]) == errors.CLEAN, (
        f"{where}: {capsys.readouterr().err}"
    )


def test_each_option_that_a_document_names_exists():
    known = {option for command in parsers().values() for option in command._option_string_actions} | OTHERS
    named = {
        (str(document.relative_to(ROOT)), option)
        for document in DOCUMENTS
        for code in re.findall(r"`([^`\n]+)`", document.read_text("utf-8"))
        if code.startswith(("--", "kafka-audit "))
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", code)
    }
    assert len(named) > 20
    assert {
        (where, option) for where, option in named if option not in known and option != "--version"
    } == set()
