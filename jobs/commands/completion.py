"""The command `completion`: print a script that completes commands and options in a shell."""

import argparse
from typing import Any

from jobs import errors
from jobs.arguments import add_command

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
examples:
  kafka-audit completion bash > ~/.local/share/bash-completion/completions/kafka-audit
  kafka-audit completion zsh > ~/.zfunc/_kafka-audit         ~/.zfunc has to be in $fpath
  kafka-audit completion fish > ~/.config/fish/completions/kafka-audit.fish
"""


def add_arguments(commands: Any) -> None:
    """Add `completion` to the command line."""
    command = add_command(
        commands,
        "completion",
        run,
        "",
        summary="print a script that completes commands and options in a shell",
        examples=EXAMPLES,
    )
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from jobs.commands import command_line

    whole = command_line.parser()
    _complete_paths(whole, shtab)
    print(shtab.complete(whole, options.shell))
    return errors.CLEAN


def _complete_paths(parser: argparse.ArgumentParser, shtab: Any) -> None:
    """Mark the arguments of a parser and of its commands that are files or folders."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command, shtab)
        elif action.metavar in ("DIR",):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in ("LOGS", "FILE", "FILE.html", "FILE.prom", "PLAN.json", "audit.toml"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
