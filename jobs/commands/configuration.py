"""The command `config check`: validate audit.toml before a scheduler uses it.

It reads no log and sends nothing.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import config, errors, progress
from jobs.arguments import add_command
from jobs.files import ingest
from jobs.location import SCHEME
from parsers.explanation import counted, visible

EXAMPLES = """\
examples:
  kafka-audit config check                                # audit.toml of this folder
  kafka-audit config check /etc/kafka-audit/audit.toml

exit codes:
  0 no mistake; a path of logs that does not exist is a warning   2 a mistake: file, key and the nearest known one are named
"""
DEFAULT = Path("audit.toml")


def add_arguments(commands: Any) -> None:
    """Add `config check` to the command line."""
    command = add_command(
        commands, "config", run, summary="check audit.toml; read no log and send nothing", examples=EXAMPLES
    )
    command.add_argument(
        "what",
        choices=["check"],
        metavar="check",
        help="validate the file and the environment variables it names",
    )
    command.add_argument(
        "file", nargs="?", type=Path, default=DEFAULT, metavar="FILE", help=f"default: {DEFAULT}"
    )


def run(options: argparse.Namespace) -> int:
    """Print what a configuration sets. Raises UsageError at its first mistake."""
    found = config.load(options.file)
    for line in described(found, str(options.file)):
        print(line)
    for line in missing(found):
        progress.warn(line)
    return errors.CLEAN


def missing(found: config.Config) -> Iterator[str]:
    """Yield a sentence for each path of logs that does not exist; it may be mounted later."""
    for cluster in found.clusters:
        for logs in cluster.logs:
            if not SCHEME.match(logs) and not ingest.is_stream(logs) and ingest.is_missing(logs):
                yield f"cluster {visible(cluster.name)}: no file is at {visible(logs)} now; a run without it ends with code 3"


def described(found: config.Config, name: str) -> Iterator[str]:
    """Yield the content of a configuration as lines, one per entry."""
    yield f"{visible(name)} has no mistake."
    for cluster in found.clusters:
        yield f"cluster {visible(cluster.name)}: {', '.join(map(visible, cluster.logs))} ({visible(cluster.timezone)})"
    for sink in found.sinks:
        yield f"alert {visible(sink.name)}: {sink.type}, from {sink.severity} on"
    for silence in found.silences:
        yield f"silence: {visible(silence.conditions())} ({visible(silence.because())})"
    rest = [(len(found.thresholds), "threshold"), (len(found.topics), "topic"), (len(found.slos), "goal")]
    if some := [counted(number, noun) for number, noun in rest if number]:
        yield f"and {', '.join(some)}"
