"""The memory that a command may use.

This module imports no engine, because the limit is set before one is loaded.
"""

import argparse
import re

# DuckDB's own text for half of the machine's memory
HALF = "50%"
# limit of DuckDB, set once by the command line; larger queries spill to disk
memory = HALF
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])i?b?", re.IGNORECASE)


def add_argument(command: argparse.ArgumentParser) -> None:
    """Add --memory to a command that the local engine serves."""
    command.add_argument(
        "--memory",
        type=size,
        metavar="SIZE",
        help="what the local engine's database may take, such as 4GB; it spills to disk beyond (default: half of the machine's memory)",
    )


def size(text: str) -> str:
    """Return a size of memory as DuckDB reads it. Raises ArgumentTypeError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text}: give a size such as 4GB or 512MB")
    return f"{found[1]}{found[2].upper()}B"
