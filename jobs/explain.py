"""The commands `explain` and `lint`: what the rules make of a line, and whether they are sound. No JVM."""

import argparse
import sys
from pathlib import Path
from typing import Any

from jobs import errors
from jobs.errors import UsageError

EXAMPLES = """\
examples:
  kafka-audit explain '[2026-03-01 12:00:00,123] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)'
  grep 'Changed state' state-change.log | kafka-audit explain -
"""


def add_arguments(commands: Any) -> None:
    """Adds `explain` and `lint` to the command line."""
    explain_ = commands.add_parser(
        "explain",
        help="which rule claims a line, and what it captures",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain_.add_argument("line", nargs="?", default="-", metavar="LINE", help="a log line; '-' or nothing reads stdin")
    explain_.add_argument("--rules", type=Path, metavar="DIR", help="a folder of rule files of your own")
    explain_.set_defaults(run=explain)

    lint_ = commands.add_parser("lint", help="check rule, machine and check files; needs no JVM")
    lint_.add_argument("--rules", type=Path, metavar="DIR", help="a folder of rule files of your own, checked with ours")
    lint_.set_defaults(run=lint)


def explain(options: argparse.Namespace) -> int:
    """Prints what each record says."""
    from parsers import explanation

    text = sys.stdin.buffer.read().decode("utf-8", "replace") if options.line == "-" else options.line
    if not text.strip():
        raise UsageError("No line to explain; give one, or pipe it in")
    print(explanation.explain(text, options.rules))
    return errors.CLEAN


def lint(options: argparse.Namespace) -> int:
    """Prints what is wrong with the definitions."""
    from parsers.definitions import problems
    from parsers.growth import growth_problems
    from parsers.rules import load

    # only patterns that read their samples are measured
    found = problems(options.rules) or growth_problems(load(options.rules))
    for problem in found:
        print(problem)
    if not found:
        print("All definitions are sound.")
    return errors.USAGE if found else errors.CLEAN
