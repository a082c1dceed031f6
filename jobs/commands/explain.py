"""The commands `explain`, `layout` and `lint`, without a JVM.

They show the events of a line, how a file is read, and what is wrong with rules.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import jobs
from jobs import errors, terminal
from jobs.arguments import add_command
from jobs.errors import InputError, UsageError

EXAMPLES = """\
examples:
  kafka-audit explain '[2026-03-01 12:00:00,123] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)'
  grep 'Changed state' state-change.log | kafka-audit explain -
"""


LAYOUT_EXAMPLES = """\
examples:
  kafka-audit layout /var/log/kafka/controller.log
  kafka-audit layout logs.tar.gz                         # each file in the archive
"""
LINT_EXAMPLES = """\
examples:
  kafka-audit lint
  kafka-audit lint --rules /etc/kafka-audit/rules        # with rules of your own
"""


def add_arguments(commands: Any) -> None:
    """Add `explain`, `layout` and `lint` to the command line."""
    explain_ = add_command(
        commands,
        "explain",
        explain,
        "--rules",
        summary="which rule claims a line, and what it captures",
        examples=EXAMPLES,
    )
    explain_.add_argument(
        "line", nargs="?", default="-", metavar="LINE", help="a log line; '-' or nothing reads stdin"
    )

    layout_ = add_command(
        commands,
        "layout",
        layout,
        "--rules",
        summary="how a file is read: envelope, layout, three records; or a pattern to try",
        examples=LAYOUT_EXAMPLES,
    )
    layout_.add_argument("file", type=Path, metavar="FILE", help="a log, or an archive of logs")

    add_command(
        commands,
        "lint",
        lint,
        "--rules",
        summary="check rule, machine and check files; needs no JVM",
        examples=LINT_EXAMPLES,
    )


def explain(options: argparse.Namespace) -> int:
    """Print how each record is parsed, and its events."""
    from parsers import explanation

    text = sys.stdin.buffer.read().decode("utf-8", "replace") if options.line == "-" else options.line
    if not text.strip():
        raise UsageError("No line to explain; give one, or pipe it in")
    terminal.show(explanation.explain(text, options.rules).split("\n"), styled=False)
    return errors.CLEAN


def layout(options: argparse.Namespace) -> int:
    """Print how a file is read; return exit code 3 where no part of it is."""
    from jobs.files.ingest import LOOK, Sniffer
    from parsers import explanation
    from parsers.rules import load

    if not options.file.is_file():
        raise InputError(f"{options.file}: no such file")
    sniffer = Sniffer(load(options.rules) if options.rules else None)
    shown, read = [], False
    for file in sniffer.look_inside(options.file):
        text = ""
        if not file.why or file.kind == "unrelated":
            with file.open() as stream:
                text = stream.read(LOOK).decode("utf-8", "replace")
        read = read or file.usable or file.kind == "checkpoint"
        shown.append(
            "\n".join(
                [file.name, *explanation.layout(sniffer.parser, text, file.kind, file.envelope, file.why)]
            )
        )
    terminal.show("\n\n".join(shown).split("\n"), styled=False)
    return errors.CLEAN if read else errors.INPUT


def lint(options: argparse.Namespace) -> int:
    """Print what is wrong with the definitions."""
    from parsers.definitions import problems
    from parsers.growth import growth_problems
    from parsers.rules import load

    # speed is measured only where all patterns match their samples
    found = problems(options.rules) or growth_problems(
        load(options.rules), processes=min(os.cpu_count() or 1, 4)
    )
    for problem in found:
        print(problem)
    if not found:
        print(f"All definitions are sound. They are those of {Path(jobs.__file__).parents[1]}.")
    return errors.USAGE if found else errors.CLEAN
