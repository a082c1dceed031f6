"""Finds the command that the arguments name, and turns what ends it into an exit code."""

import argparse
import os
import sys
import time
import traceback

from jobs import analysis, assignments, audit, contracts, durability, errors, explain, findings, interrupts, reassignment, repair
from jobs.alerts import command as alerts
from jobs.engine import limits
from jobs.errors import AuditError

# each module adds its commands with what runs them: a function of the options that returns the exit code
COMMANDS = (audit, explain, findings, alerts, analysis, assignments, reassignment, durability, contracts, repair)

EXAMPLES = """\
examples:
  kafka-audit audit /var/log/kafka --tables /data/audit
  kafka-audit audit --config audit.toml --tables /data/audit --json
  kafka-audit explain '[2026-03-01 12:00:00,123] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)'
  kafka-audit timeline orders-3 --tables /data/audit
  kafka-audit findings --severity error --tables /data/audit
  kafka-audit alerts --config audit.toml --tables /data/audit --dry-run
  kafka-audit contracts --tables /data/audit
  kafka-audit sql "SELECT * FROM findings WHERE status <> 'resolved'" --tables /data/audit

exit codes:
  0 clean   1 findings at or above --fail-on   2 wrong usage or configuration
  3 no log, nothing recognised, a file unreadable, or another time zone than the one given
  4 an alert could not be delivered   70 internal error or a broken table contract
  130 and 143 interrupted by SIGINT and SIGTERM: run the same command again to continue
"""


def parser() -> argparse.ArgumentParser:
    """The command line (contract: names and exit codes are fixed)."""
    top = argparse.ArgumentParser(
        prog="kafka-audit",
        description="Audits what Kafka's controller wrote about every partition and replica.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"kafka-audit {audit.code_version()}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add_arguments(commands)
    return top


def run(arguments: list[str] | None = None) -> int:
    """Runs the command that the arguments name (None: those of this process); returns the exit code."""
    options = parser().parse_args(arguments)
    # naive times that Spark hands over are in the process's zone; ours are UTC
    os.environ["TZ"] = "UTC"
    limits.memory = getattr(options, "memory", None) or limits.HALF
    time.tzset()
    try:
        code: int = options.run(options)
    except Exception as error:
        if interrupts.received() is None and (not isinstance(error, AuditError) or _is_of_files(error)):
            # what a library makes of a damaged table is no help to anybody
            from jobs import damage

            damage.refuse(getattr(options, "tables", None), thorough=True)
        raise
    return code


def _is_of_files(error: AuditError) -> bool:
    """Whether an error was raised because a file could not be read."""
    from jobs.engine.database import UNREADABLE

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UNREADABLE):
        cause = cause.__context__
    return cause is not None


def failed(error: Exception) -> int:
    """Prints what has ended a run; returns the exit code."""
    if isinstance(error, AuditError):
        print(f"kafka-audit: {error}", file=sys.stderr)
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return errors.CLEAN
    from parsers.patterns import DefinitionError

    if isinstance(error, DefinitionError):
        print(f"kafka-audit: {error}", file=sys.stderr)
        return errors.USAGE
    print(f"kafka-audit: internal error: {_first_line(error)}", file=sys.stderr)
    if "KAFKA_AUDIT_DEBUG" in os.environ:
        traceback.print_exception(error)
    else:
        print("  set KAFKA_AUDIT_DEBUG=1 for the whole stack trace", file=sys.stderr)
    return errors.INTERNAL


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = java.getMessage() if java is not None else str(error)
    return f"{type(error).__name__}: {(text or '').splitlines()[0] if text else ''}"
