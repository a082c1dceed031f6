"""Find tables and columns that queries name and that do not exist.

Pure: SQL and Python source text in, problems out. A name is looked up in its source: a table of
`schemas/tables`, its rows under another name (`audited_events`), a CTE of the query, or a view that Python
registers, whose columns are not known.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

# names of columns; None: not known
Columns = frozenset[str] | None
# prefixes of a table's name in the names of views over its rows
PREFIXES = ("audited_", "stored_", "whole_", "guarded_")
# placeholder for a value that Python inserts into a text
HOLE = "hole_of_python"
_QUERY = re.compile(r"\bSELECT\b.*\bFROM\b", re.S)


def known_columns(name: str, tables: Mapping[str, Columns]) -> Columns:
    """Return the columns of a table or of a view over its rows. Raises KeyError where there is none."""
    if HOLE in name:
        return None
    if name in tables:
        return tables[name]
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return tables[name.removeprefix(prefix)]
    raise KeyError(name)


def problems(sql: str, tables: Mapping[str, Columns]) -> list[str]:
    """Return a problem for each table and column of a query that does not exist.

    Raises SqlglotError where it is no query.
    tables: name -> columns.
    """
    found = set[str]()
    for tree in filter(None, sqlglot.parse(sql, dialect="spark")):
        outputs: dict[int, Columns] = {}
        for scope in traverse_scope(tree):
            sources: dict[str, Columns] = {}
            for alias, source in scope.sources.items():
                if isinstance(source, Scope):
                    sources[alias] = outputs.get(id(source.expression))
                    continue
                try:
                    sources[alias] = known_columns(source.name, tables)
                except KeyError:
                    found.add(f"there is no table {source.name}")
                    sources[alias] = None
            found |= set(_unknown(scope, sources))
            outputs[id(scope.expression)] = _output(scope, sources)
    return sorted(found)


def output(sql: str, tables: Mapping[str, Columns]) -> Columns:
    """Return the columns of a query's result."""
    outputs: dict[int, Columns] = {}
    last: Columns = None
    for scope in traverse_scope(sqlglot.parse_one(sql, dialect="spark")):
        sources = {
            alias: outputs.get(id(one.expression))
            if isinstance(one, Scope)
            else known_columns(one.name, tables)
            for alias, one in scope.sources.items()
        }
        last = outputs[id(scope.expression)] = _output(scope, sources)
    return last


def _output(scope: Scope, sources: Mapping[str, Columns]) -> Columns:
    """Return the columns of the result of a part of a query."""
    select = scope.expression
    if isinstance(select, exp.SetOperation):
        select = select.left
        while isinstance(select, exp.Subquery | exp.SetOperation):
            select = select.this if isinstance(select, exp.Subquery) else select.left
    if not isinstance(select, exp.Select) or select.args.get("laterals"):
        return None
    found = set[str]()
    for one in select.expressions:
        if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
            of = [sources.get(one.table)] if isinstance(one, exp.Column) else list(sources.values())
            if scope.expression is not select or None in of:
                return None
            found |= set().union(*(some for some in of if some is not None))
        elif not (name := one.alias_or_name) or HOLE in name:
            # `inline(..)` gives several columns
            return None
        else:
            found.add(name.lower())
    return frozenset(found)


def _unknown(scope: Scope, sources: Mapping[str, Columns]) -> Iterator[str]:
    """Yield what is wrong with the columns of a part of a query."""
    select = scope.expression
    aliases = {one.alias.lower() for one in select.find_all(exp.Alias, exp.TableAlias) if one.alias}
    aliases |= {name.name.lower() for one in select.find_all(exp.TableAlias) for name in one.columns}
    arguments = {name.name.lower() for one in select.find_all(exp.Lambda) for name in one.expressions}
    for column in scope.columns:
        name, table = column.name.lower(), column.table
        if not name or HOLE in name or HOLE in table or isinstance(column.this, exp.Star):
            continue
        if table and table in sources:
            columns = sources[table]
            if columns is not None and name not in columns:
                yield f"{table} has no column {name}"
        # a correlated part may name columns of the query around it
        elif not table and column.parent_select is select and not scope.is_correlated_subquery:
            every = [columns for columns in sources.values() if columns is not None]
            if sources and len(every) == len(sources) and name not in (aliases | arguments).union(*every):
                yield f"{' and '.join(sorted(sources))} has no column {name}"


def queries_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, query) of the queries in the texts of a Python module.

    Each inserted value becomes HOLE.
    """
    tree = ast.parse(source)
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inner or id(node) in documents:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else f" {HOLE} " for part in node.values
            )
            # a name with an inserted part is one name
            text = re.sub(rf"(?<=\w) ({HOLE})", r"\1", text)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if _QUERY.search(text):
            yield node.lineno, re.sub(r"\{\w+\}", HOLE, text)


def problems_of_modules(
    modules: Mapping[str, str], tables: Mapping[str, Columns]
) -> tuple[list[str], Sequence[str]]:
    """Return (problems of the queries in modules, places of texts that are no whole query).

    modules: path -> text.
    """
    found, parts = [], []
    for path, text in modules.items():
        for line, sql in queries_of(text):
            try:
                found += [f"{path}:{line}: {problem}" for problem in problems(sql, tables)]
            except SqlglotError:
                parts.append(f"{path}:{line}")
    return found, parts
