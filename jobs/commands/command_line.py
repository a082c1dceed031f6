"""Run the command that the arguments name, and turn its result or error into an exit code."""

import argparse
import difflib
import os
import platform
import re
import sys
import time
import traceback
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from jobs import errors, interrupts, progress, terminal
from jobs.errors import AuditError, UsageError
from parsers.patterns import is_re_faulty

COMMANDS = (
    "demo",
    "audit",
    "findings",
    "timeline",
    "sql",
    "assignments",
    "reassignment",
    "durability",
    "alerts",
    "contracts",
    "repair",
    "config",
    "explain",
    "layout",
    "lint",
    "completion",
)


def _module(name: str) -> Any:
    """Return the module of a command.

    Only the module of the given command is imported, so that short commands start fast.
    """
    found: Any
    match name:
        case "demo":
            from jobs.commands import demo as found
        case "audit":
            from jobs.commands import audit as found
        case "findings":
            from jobs.commands import findings as found
        case "timeline" | "sql":
            from jobs import analysis as found
        case "assignments":
            from jobs.operators import assignments as found
        case "reassignment":
            from jobs.operators import reassignment as found
        case "durability":
            from jobs.operators import durability as found
        case "alerts":
            from jobs.alerts import command as found
        case "contracts":
            from jobs.checking import contracts as found
        case "repair":
            from jobs.commands import repair as found
        case "config":
            from jobs.commands import configuration as found
        case "explain" | "layout" | "lint":
            from jobs.commands import explain as found
        case _:
            from jobs.commands import completion as found
    return found


EXAMPLES = """\
examples:
  kafka-audit demo
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


class ArgumentsParser(argparse.ArgumentParser):
    """Parses arguments; an error about an unknown command or option names the nearest known one."""

    # the arguments of the command line, the same for all parsers
    given: tuple[str, ...] = ()

    def format_help(self) -> str:
        """Return the help, coloured if stdout is."""
        if terminal.is_coloured(sys.stdout):
            import rich_argparse

            class Formatter(rich_argparse.RawDescriptionRichHelpFormatter):
                # `[[cluster]]` is no markup
                text_markup = help_markup = False

            self.formatter_class = Formatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the arguments, and a hint, in one line; exit with code 2."""
        from parsers.explanation import visible

        unknown = [one for one in self.given if one.startswith("--") and len(one) > 2]
        wrong = next(
            (one.partition("=")[0] for one in unknown if not self._knows(one.partition("=")[0])), None
        )
        if found := re.search(r"argument COMMAND: invalid choice: '(.*?)' \(choose", message):
            text = f"no command {visible(found[1])}{_nearest(found[1], COMMANDS)}"
        elif wrong is not None and ("unrecognized" in message or "required" in message):
            text = f"no option {visible(wrong)}{_nearest(wrong, self._option_string_actions)}"
        elif found := re.search(r"argument (.*?): invalid choice: '(.*?)' \(choose from (.*)\)", message):
            known = re.findall(r"'(.*?)'", found[3])
            text = f"{found[1]} {visible(found[2])} is none of {', '.join(known)}{_nearest(found[2], known)}"
        else:
            text = message.replace("unrecognized arguments", "not understood").replace(
                "COMMAND", "a command, such as audit"
            )
        terminal.set_up()
        progress.fail(text if "did you mean" in text else f"{text}; see {self.prog} --help")
        self.exit(errors.USAGE)

    def _knows(self, option: str) -> bool:
        """Return whether a text is an option of any command, or the beginning of one."""
        of_commands = [
            command._option_string_actions
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for command in action.choices.values()
        ]
        return any(
            one.startswith(option) for known in (self._option_string_actions, *of_commands) for one in known
        )


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""


class PrintVersions(argparse.Action):
    """Prints the versions of the product, of its engines, of Python and of Java; imports none of them."""

    def __init__(self, **given: Any) -> None:
        super().__init__(nargs=0, **given)

    def __call__(self, *_: Any) -> None:
        from importlib import metadata

        from jobs.commands import audit
        from jobs.engine import session

        lines = [f"kafka-audit {audit.code_version()}"]
        for name in ("deltalake", "duckdb", "pyspark", "delta-spark"):
            try:
                lines.append(f"{name} {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                lines.append(f"{name} not installed")
        lines.append(f"Python {sys.version.split()[0]}")
        session.use_private_java()
        version, problem = session.java_version()
        lines.append(f"Java {version}" if version else f"Java: {problem}")
        print("\n".join(lines))
        raise SystemExit(errors.CLEAN)


def _add_common(command: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    common = command.add_argument_group("output")
    common.add_argument(
        "--color",
        choices=terminal.COLORS,
        default="auto",
        help="colour on stdout (default auto: on a terminal, unless NO_COLOR is set)",
    )
    common.add_argument(
        "--no-pager", action="store_true", help="print long text on a terminal without a pager"
    )
    common.add_argument(
        "-q", "--quiet", action="store_true", help="no progress on stderr; warnings and errors stay"
    )
    common.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="more on stderr: how each file is read, where an internal error is",
    )
    common.add_argument(
        "--log-format",
        choices=progress.FORMATS,
        default="text",
        help="progress, warnings and errors on stderr (default text)",
    )


def parser(name: str | None = None) -> ArgumentsParser:
    """Return the parser of the command line. name: of the only command that it must know; None: all."""
    top = ArgumentsParser(
        prog="kafka-audit",
        description="Audits what Kafka's controller wrote about every partition and replica.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--version", action=PrintVersions, help="versions of kafka-audit, its engines, Python and Java"
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", prog="kafka-audit")
    for module in dict.fromkeys(map(_module, COMMANDS if name is None else [name])):
        module.add_arguments(commands)
    for command in commands.choices.values():
        _add_common(command)
    return top


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code. arguments: None: those of the process."""
    if is_re_faulty():
        raise UsageError(
            f"Python {platform.python_version()} reads some records wrongly (python/cpython#106052); use 3.11.5 or later"
        )
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from jobs.engine import driver

        driver.keep_stdout_clean()
    terminal.set_up()
    ArgumentsParser.given = tuple(sys.argv[1:] if arguments is None else arguments)
    named = next((one for one in ArgumentsParser.given if not one.startswith("-")), None)
    options = parser(named if named in COMMANDS else None).parse_args(arguments)
    terminal.set_up(options.color, not options.no_pager)
    progress.set_up(quiet=options.quiet, is_verbose=options.verbose, log_format=options.log_format)
    if getattr(options, "metrics", None):
        interrupts.on_end(partial(_measure_end, options.metrics, datetime.now(UTC)))
    if getattr(options, "engine", None) == "spark":
        from jobs.engine import later

        later.require("pyspark", "delta", "great_expectations")
    # Spark returns naive times in the zone of the process; the tables are in UTC
    os.environ["TZ"] = "UTC"
    if hasattr(options, "memory"):
        from jobs.engine import limits

        limits.memory = options.memory or limits.HALF
    time.tzset()
    try:
        code: int = options.run(options)
    except Exception as error:
        if interrupts.received() is None and (not isinstance(error, AuditError) or _is_of_files(error)):
            # an error of a library may be due to a damaged table, which is reported instead
            from jobs.engine import damage

            damage.refuse(getattr(options, "tables", None), thorough=True)
        raise
    return code


def _measure_end(path: Path, started_at: datetime, code: int) -> None:
    """Write the end of a run to the file of --metrics, if it can be written."""
    try:
        from jobs.reporting import metrics, targets

        targets.prepare(path, "--metrics", makes_folder=False)
        metrics.write_end(path, code, started_at)
    except (AuditError, OSError, ImportError) as error:
        # a usage error has already named the path
        if code != errors.USAGE:
            progress.warn(f"--metrics {path} could not be written: {_first_line(error)}")


def _is_of_files(error: AuditError) -> bool:
    """Return whether an error was raised because a file could not be read."""
    from jobs.engine.database import UNREADABLE

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UNREADABLE):
        cause = cause.__context__
    return cause is not None


def failed(error: Exception) -> int:
    """Print the error that ended a run and return the exit code."""
    if isinstance(error, AuditError):
        progress.fail(str(error))
        return error.exit_code
    if isinstance(error, ModuleNotFoundError):
        from jobs.engine import later

        if missing := later.missing_package(error):
            progress.fail(missing)
            return errors.USAGE
    if isinstance(error, BrokenPipeError):
        return errors.CLEAN
    from parsers.patterns import DefinitionError

    if isinstance(error, DefinitionError):
        progress.fail(str(error))
        return errors.USAGE
    hint = "" if _is_traced() else "; the same command with -v shows where"
    progress.fail(f"internal error: {_first_line(error)}{hint}")
    if _is_traced():
        traceback.print_exception(error)
    return errors.INTERNAL


def _is_traced() -> bool:
    return progress.is_verbose() or "KAFKA_AUDIT_DEBUG" in os.environ


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = java.getMessage() if java is not None else str(error)
    return f"{type(error).__name__}: {(text or '').splitlines()[0] if text else ''}"
