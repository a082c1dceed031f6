"""Every command in a document is understood; those that read are run on prepared tables."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from jobs import errors
from jobs.commands import command_line
from jobs.nightly_audit import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLE = ROOT / "sample_logs" / "3.3.2-default" / "reassign"
RUN = {"sql", "findings", "durability", "assignments", "lint", "explain"}


def commands() -> list[tuple[str, str]]:
    """(document, command) of the lines of code that begin with kafka-audit; lines that end with a backslash go on."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text("utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            if re.match(r"(    |\t|\$ |)kafka-audit [a-z]", line):
                found.append((str(document.relative_to(ROOT)), line.strip().removeprefix("$ ")))
    return found


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Name of a command -> its parser."""
    actions = command_line.parser()._actions
    return next(action.choices for action in actions if isinstance(action, argparse._SubParsersAction))


def arguments(command: str) -> list[str]:
    """Without remarks, redirections and what follows in a pipe."""
    words = shlex.split(command, comments=True)
    end = next((at for at, word in enumerate(words) if word in (">", "|", "&&", ";", "||", "2>", ">>")), len(words))
    return words[1:end]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents") / "tables"
    assert main(["audit", str(SAMPLE), "--tables", str(folder), "--engine", "local", "-q"]) in (errors.CLEAN, errors.FINDINGS)
    return folder


def test_documents_have_commands():
    assert len(commands()) > 15
    assert {"README.md", "docs/guides/operators.md"} <= {document for document, _ in commands()}


@pytest.mark.parametrize(("document", "command"), commands())
def test_a_command_of_a_document_is_understood_and_runs(document, command, tables, capsys):
    if "[" in command.replace("[[", ""):
        known = parsers()[command.split()[1]]._option_string_actions
        assert set(re.findall(r"--[a-z][a-z-]*", command)) <= known.keys()
        return
    given = arguments(command)
    options = command_line.parser().parse_args(given)
    about_others = (options.command == "findings" and options.fingerprint) or getattr(options, "cluster", None)
    if options.command not in RUN or about_others or getattr(options, "config", None) or "://" in command:
        return
    if "--tables" in given:
        given[given.index("--tables") + 1] = str(tables)
    if options.command in ("durability", "assignments"):
        # its topics and days are not those of the sample
        given = [given[0], "--tables", str(tables)]
    if options.command == "explain" and len(given) == 1:
        return
    code = main(given)
    assert code == errors.CLEAN, capsys.readouterr().err
