"""Find event types in Python and SQL that no rule has. Pure: source text in, places out.

A name is an event type if it is compared with `event_type`, is in a constant that is compared with it, or in
a list of such names.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

# name of the column, and of keys and attributes
EVENT_TYPE = "event_type"
# event types without a rule: lines of a tool's output
WITHOUT_RULE = {"checkpoint"}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
# a comparison in SQL inside of a Python text
_IN_TEXT = re.compile(r"\bevent_type\s*(?:=|<>|!=|IN)\s*(\([^()]*\)|'\w+')", re.I)


@dataclass(frozen=True, order=True)
class Reference:
    """A name and where it is used: `jobs/operators/plans.py:41`."""

    place: str
    name: str


def unknown(
    python: Mapping[str, str], sql: Mapping[str, str], event_types: Collection[str], others: Collection[str]
) -> list[str]:
    """Return a sentence with file and line for each event type that is used and no rule has.

    python, sql: path -> text. others: names of tables and columns, which lists of event types do not have.
    """
    known = {*event_types, *WITHOUT_RULE}
    found = {one for path, text in sql.items() for one in in_sql(path, text) if one.name not in known}
    found |= {one for one in in_python(python, known, set(others)) if one.name not in known}
    return [f"{one.place}: no rule has the event type {one.name}" for one in sorted(found)]


def in_sql(path: str, text: str) -> Iterator[Reference]:
    """Yield the event types that a statement compares with the column."""
    if EVENT_TYPE not in text:
        return
    try:
        trees = sqlglot.parse(text, dialect="spark")
    except SqlglotError:
        trees = []
    names = set()
    for tree in filter(None, trees):
        for one in tree.find_all(exp.EQ, exp.NEQ, exp.In):
            if isinstance(one.this, exp.Column) and one.this.name == EVENT_TYPE:
                sides = one.expressions if isinstance(one, exp.In) else [one.expression]
                names |= {side.name for side in sides if isinstance(side, exp.Literal) and side.is_string}
    if not trees:
        names = _in_text(text)
    for name in names:
        line = next((n for n, line in enumerate(text.splitlines(), 1) if f"'{name}'" in line), 1)
        yield Reference(f"{path}:{line}", name)


def _in_text(text: str) -> set[str]:
    return {name for compared in _IN_TEXT.findall(text) for name in re.findall(r"'(\w+)'", compared)}


def in_python(
    sources: Mapping[str, str], known: Collection[str], others: Collection[str]
) -> Iterator[Reference]:
    """Yield the event types that modules name."""
    modules = {path: ast.parse(text) for path, text in sources.items()}
    nodes = {path: list(ast.walk(tree)) for path, tree in modules.items()}
    constants = {(path, name): value for path, tree in modules.items() for name, value in _constants(tree)}
    imported = {path: _imported(some) for path, some in nodes.items()}
    sides = {path: list(_sides(some)) for path, some in nodes.items()}
    # (module, constant) that is compared with an event type
    compared: set[tuple[str, str]] = set()
    more = {
        one
        for path, some in sides.items()
        for side in some
        for one in _named(path, imported[path], side, constants)
    }
    while more := more - compared:
        compared |= more
        more = {
            one
            for path, name in more
            for one in _named(path, imported[path], constants[path, name], constants)
        }
    for path, name in compared:
        sides[path].append(constants[path, name])
    for path, some in nodes.items():
        for side in sides[path]:
            yield from (Reference(f"{path}:{line}", name) for name, line in _members(side))
        for node in some:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and EVENT_TYPE in node.value:
                yield from (Reference(f"{path}:{node.lineno}", name) for name in _in_text(node.value))
            if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
                texts = [(name, line) for name, line in _members(node) if _NAME.fullmatch(name)]
                # a list of names, most of which are event types
                if texts and 2 * sum(name in known for name, _ in texts) >= len(texts):
                    yield from (
                        Reference(f"{path}:{line}", name) for name, line in texts if name not in others
                    )


def _sides(nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield the expressions that are compared with an event type."""
    # variables that were assigned an event type
    given = {
        target.id
        for target, value in _assigned(nodes)
        if isinstance(target, ast.Name) and _is_event_type(value)
    }
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            # `"deletion_" in event_type` compares a part of it
            is_part = isinstance(node.ops[0], ast.In | ast.NotIn) and _is_event_type(
                node.comparators[0], given
            )
            if not is_part and any(_is_event_type(side, given) for side in sides):
                yield from (side for side in sides if not _is_event_type(side, given))
        elif isinstance(node, ast.keyword) and node.arg == EVENT_TYPE:
            yield node.value
        elif isinstance(node, ast.Match) and _is_event_type(node.subject, given):
            for case in node.cases:
                yield from (one.value for one in ast.walk(case.pattern) if isinstance(one, ast.MatchValue))


def _assigned(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value; tuples item by item."""
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value


def _is_event_type(node: ast.expr, given: Collection[str] = ()) -> bool:
    """Return whether an expression is an event type.

    Such are `x.event_type`, `x["event_type"]`, `event_type`, and variables that were assigned one.
    """
    match node:
        case ast.Name(id=name) if name in given:
            return True
        case ast.Attribute(attr="event_type") | ast.Name(id="event_type"):
            return True
        case ast.Subscript(slice=ast.Constant(value="event_type")):
            return True
    return False


def _constants(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) of the constants of a module."""
    for node in tree.body if isinstance(tree, ast.Module) else []:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


def _imported(nodes: Sequence[ast.AST]) -> dict[str, tuple[str, str]]:
    """Return name -> (path of the module that it is imported from, its name there)."""
    return {
        alias.asname or alias.name: ((one.module or "").replace(".", "/"), alias.name)
        for one in nodes
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }


def _named(
    path: str, imported: Mapping[str, tuple[str, str]], node: ast.expr, constants: Collection[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the constants (module, name) in an expression of a module. imported: from `_imported`."""
    found = set()
    if isinstance(node, ast.Dict):
        # its values are no event types
        return {
            known for key in node.keys if key is not None for known in _named(path, imported, key, constants)
        }
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and (path, one.id) in constants:
            found.add((path, one.id))
        elif isinstance(one, ast.Name) and one.id in imported:
            module, name = imported[one.id]
            # a package exports what its modules define
            found |= {
                (other, known)
                for other, known in constants
                if known == name and other.startswith((f"{module}.py", f"{module}/"))
            }
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
            found |= {
                (other, known)
                for other, known in constants
                if known == one.attr and other.endswith(f"/{one.value.id}.py")
            }
    return found


def _members(node: ast.expr) -> list[tuple[str, int]]:
    """Return (text, line) of the texts that an expression is, or has as members or keys."""
    if isinstance(node, ast.Constant):
        return [(node.value, node.lineno)] if isinstance(node.value, str) else []
    parts: list[ast.expr | None] = []
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = [*node.elts]
    elif isinstance(node, ast.Dict):
        parts = [*node.keys]
    elif isinstance(node, ast.Starred):
        parts = [node.value]
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("frozenset", "set", "tuple")
    ):
        parts = [*node.args]
    return [text for part in parts if part is not None for text in _members(part)]
