"""Values as literals of Spark's SQL."""

from collections.abc import Iterable
from datetime import datetime


def quoted(text: str) -> str:
    """Return a text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def moment(at: datetime) -> str:
    """Return a moment as a literal. at: in UTC, with a zone or without one."""
    return f"TIMESTAMP {quoted(at.replace(tzinfo=None).isoformat(sep=' '))}"


def one_of(column: str, values: Iterable[str]) -> str:
    """Return the condition that a column has one of some texts."""
    listed = ", ".join(map(quoted, values))
    return f"{column} IN ({listed})" if listed else "false"
