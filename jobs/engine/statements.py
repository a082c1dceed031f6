"""Statements of Spark's SQL that only read: which are allowed, what they require of moments, and the text of
their errors.
"""

import re
from collections.abc import Collection
from datetime import UTC, datetime

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from jobs.engine import QueryError
from jobs.engine.database import identifier
from parsers.explanation import visible

# columns that are offered where one is not found
NEAR = 5


def parsed(sql: str) -> exp.Expr:
    """Return one statement.

    Raises QueryError where it does not only read, SqlglotError where it is no SQL.
    """
    of_table = re.fullmatch(r"\s*TABLE\s+(`?\w+`?)\s*", sql, re.I)
    statements = [
        one
        for one in sqlglot.parse(f"SELECT * FROM {of_table.group(1)}" if of_table else sql, read="spark")
        if one is not None
    ]
    if len(statements) != 1:
        raise QueryError("one query at a time")
    (tree,) = statements
    return exp.select("*").from_(tree) if isinstance(tree, exp.Values) else tree


def refuse_all_but_reading(tree: exp.Expr) -> None:
    if not isinstance(tree, exp.Query) or any(tree.find_all(exp.DDL, exp.DML, exp.Command, exp.Into)):
        raise QueryError("only queries that read are run")


# comparisons that bound a column -> the operator, and the one for the sides exchanged
_BOUNDING: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
}


def bounds(source: exp.Table, moments: Collection[str]) -> list[str]:
    """Return what a query requires of the moments of its only table, as conditions in DuckDB's SQL on moments
    with a zone.
    """
    query = source.parent.parent if isinstance(source.parent, exp.From) else None
    if (
        not isinstance(query, exp.Select)
        or query.args.get("joins")
        or query.args.get("laterals")
        or query.args.get("where") is None
    ):
        return []

    def column(side: exp.Expr) -> str | None:
        is_ours = (
            isinstance(side, exp.Column)
            and side.table.lower() in ("", source.alias_or_name.lower())
            and side.name.lower() in moments
        )
        return side.name.lower() if is_ours else None

    found: list[tuple[str | None, str, str | None]] = []
    for condition in (
        query.args["where"].this.flatten()
        if isinstance(query.args["where"].this, exp.And)
        else [query.args["where"].this]
    ):
        if isinstance(condition, exp.Between):
            low, high = (_moment_of(condition.args[side]) for side in ("low", "high"))
            found += [(column(condition.this), ">=", low), (column(condition.this), "<=", high)]
        elif type(condition) in _BOUNDING:
            operator, exchanged = _BOUNDING[type(condition)]
            found.append((column(condition.this), operator, _moment_of(condition.expression)))
            found.append((column(condition.expression), exchanged, _moment_of(condition.this)))
    return [
        f"{identifier(name)} {operator} TIMESTAMPTZ '{at}+00'" for name, operator, at in found if name and at
    ]


def _moment_of(side: exp.Expr) -> str | None:
    """Return a literal as a moment in UTC; None: it is something else."""
    if isinstance(side, exp.Cast) and side.to.this in exp.DataType.TEMPORAL_TYPES:
        side = side.this
    if not isinstance(side, exp.Literal) or not side.is_string:
        return None
    try:
        at = datetime.fromisoformat(side.this)
    except ValueError:
        return None
    return (at.astimezone(UTC) if at.tzinfo else at).replace(tzinfo=None).isoformat(" ")


def syntax(error: SqlglotError) -> str:
    """Return a syntax error in one line."""
    details = getattr(error, "errors", None)
    if details:
        first = details[0]
        return f"syntax error near {visible(first.get('highlight') or 'the end')!r} in line {first.get('line')}, column {first.get('col')}"
    return "syntax error: " + visible(str(error).splitlines()[0])


_COLUMN = re.compile(
    r'Referenced column "(.*?)" not found in FROM clause!(?:\s*Candidate bindings: (.*))?', re.S
)
_FUNCTION = re.compile(r"Function with name \"?(.*?)\"? does not exist")
_MISSING = re.compile(r'(?:No files found that match the pattern|Cannot open file) "(.*?)"')


def in_words(error: Exception) -> str:
    """Return what DuckDB says, in one line."""
    text = str(error)
    if found := _COLUMN.search(text):
        near = ", ".join(re.findall(r'"([^"]+)"', (found.group(2) or "").split("\n")[0])[:NEAR])
        return f"no column {visible(found.group(1))}" + (f"; did you mean {near}?" if near else "")
    if found := _FUNCTION.search(text):
        return (
            f"the local engine has no function {visible(found.group(1))}; --engine spark has all of Spark's"
        )
    if found := _MISSING.search(text):
        return f"the file {visible(found.group(1))} of a table is missing; kafka-audit repair rebuilds damaged tables"
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return visible(re.sub(r"^(\w+ )*Error: ", "", first).strip())
