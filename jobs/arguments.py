"""Add commands to the command line, with the arguments that several commands share."""

import argparse
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from jobs.errors import UsageError

# argument -> its declaration; a command names those that it has
SHARED: dict[str, dict[str, Any]] = {
    "topic": {"nargs": "?", "metavar": "TOPIC", "help": "only this topic"},
    "--tables": {"required": True, "metavar": "DIR", "help": "folder or URI of the Delta tables"},
    "--cluster": {"metavar": "NAME", "help": "only this cluster (default: all, or the only one)"},
    "--rules": {
        "type": Path,
        "metavar": "DIR",
        "help": "a folder of rule files and layouts of your own, read with the built-in ones",
    },
    "--json": {"action": "store_true", "help": "print JSON Lines, one object a row"},
}


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    shared: str = "",
    *,
    summary: str,
    examples: str,
) -> argparse.ArgumentParser:
    """Add a command and return its parser.

    run: takes the options, returns the exit code. shared: names in SHARED, separated by spaces. examples:
    printed after the options.
    """
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    for argument in shared.split():
        command.add_argument(argument, **SHARED[argument])
    return command


def add_wait(command: Any) -> None:
    """Add --wait to a command that writes tables."""
    command.add_argument(
        "--wait",
        type=_seconds,
        default=0,
        metavar="SECONDS",
        help="how long to wait for another run that writes to the tables (default 0: end with code 2)",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def parsed_moment(text: str, what: str) -> datetime:
    """Parse a time; without a zone it is UTC. Raises UsageError, which names the option `what`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{what} {text}: give a time such as 2026-03-01T04:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def parsed_days(text: str, what: str) -> tuple[date, date]:
    """Parse a day or a range of days into the first and the last one.

    Raises UsageError, which names the option `what`.
    """
    try:
        first, _, last = text.partition("..")
        span = date.fromisoformat(first), date.fromisoformat(last or first)
    except ValueError:
        raise UsageError("--day takes 2026-03-01, --days 2026-03-01..2026-03-07") from None
    if span[1] < span[0]:
        raise UsageError(f"{what} {text}: the last day is before the first")
    return span
