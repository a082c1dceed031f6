"""The command `demo`: audits a bundled incident and writes a report.

It needs no logs, no Java and no network.
"""

import argparse
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from jobs import errors, progress
from jobs.arguments import add_command

FOLDER = "kafka-audit-demo"
# logs of three brokers of Kafka 2.5.1, copied while they ran: a leader crashes while its follower lags
# behind, and an unclean election loses records
INCIDENT = "incident.tar.xz"
EXAMPLES = """\
examples:
  kafka-audit demo                       # tables and report in ./kafka-audit-demo
  kafka-audit demo --into /tmp/demo
  kafka-audit demo --open                # opens the report in a browser
"""


def add_arguments(commands: Any) -> None:
    """Add `demo` to the command line."""
    command = add_command(
        commands,
        "demo",
        run,
        "",
        summary="audit a bundled incident and write a report; needs no logs",
        examples=EXAMPLES,
    )
    command.add_argument(
        "--into",
        type=Path,
        default=Path(FOLDER),
        metavar="DIR",
        help=f"folder of the tables and the report (default {FOLDER})",
    )
    command.add_argument(
        "--open", action="store_true", help="open the report in a browser, if stdout is a terminal"
    )


def run(options: argparse.Namespace) -> int:
    """Audits the incident; its findings are no failure. Raises AuditError."""
    from jobs.commands import audit, command_line

    tables, report = options.into / "tables", options.into / "report.html"
    with as_file(files("jobs.demo").joinpath(INCIDENT)) as archive:
        given = [
            "audit",
            str(archive),
            "--cluster",
            "demo",
            "--engine",
            "local",
            "--tables",
            str(tables),
            "--report",
            str(report),
        ]
        code = audit.Audit(command_line.parser().parse_args(given)).run()
    if code not in (errors.CLEAN, errors.FINDINGS):
        return code
    print(f"Report: {report.resolve()}")
    print(f"Next:   kafka-audit findings --tables {tables}")
    if options.open:
        _open(report)
    return errors.CLEAN


def _open(report: Path) -> None:
    if not sys.stdout.isatty():
        progress.note("--open: stdout is no terminal; the report was not opened")
        return
    import webbrowser

    if not webbrowser.open(report.resolve().as_uri()):
        progress.warn("no browser was found; open the report yourself")
