"""Contracts of the tables beyond what Delta enforces, and the command `contracts`.

`schemas/contracts` defines them. On Spark, Great Expectations validates them (`jobs.checking.expectations`).
The local engine evaluates the same rules as SQL, because importing Great Expectations takes 4 s of processor
time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import schemas
from jobs import errors
from jobs.arguments import add_command
from jobs.engine.literals import quoted
from jobs.errors import ContractError, UsageError
from parsers.explanation import counted, visible

if TYPE_CHECKING:
    from jobs.engine.queries import Queries
    from jobs.engine.rows import Frame

# kinds of rules, and those that Delta does not enforce when Spark writes
KINDS = ("required", "values", "key", "rows")
NOT_ENFORCED = ("values", "key", "rows")
# most violated rules that a message names
SHOWN = 20
# most characters of a value in a message
SHOWN_CHARACTERS = 120

EXAMPLES = """\
examples:
  kafka-audit contracts --tables /data/audit
  kafka-audit contracts --tables /data/audit --data-docs /var/www/audit-docs

exit codes:
  0 all rules pass   2 wrong usage, no tables   70 a rule is violated
"""


@dataclass(frozen=True)
class ContractRule:
    """One rule of a table.

    kind: one of KINDS: a column is never null, it has one of some values, no two rows share a key, or a query
    finds no row.
    violations: a query over {batch} and {any_table} for the rows that violate it. condition: true for such a
    row; empty where a rule compares several rows.
    """

    table: str
    kind: str
    words: str
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    violations: str
    condition: str = ""


@dataclass(frozen=True)
class Violation:
    """A violated rule.

    rows: number of violating rows; sample: the columns that name one of them, as text, without nulls.
    """

    table: str
    rule: str
    rows: int
    sample: Mapping[str, str]

    def sentence(self) -> str:
        """Return the violation as a message says it."""
        named = ", ".join(
            f"{name}={visible(value)[:SHOWN_CHARACTERS]}" for name, value in self.sample.items()
        )
        verb = "violates" if self.rows == 1 else "violate"
        return f"{self.table}: {counted(self.rows, 'row')} {verb} '{self.rule}', for example {named or 'one of nulls'}"


def rules_of(table: str) -> tuple[ContractRule, ...]:
    """Return the rules of a table: required columns, values, key, rules over rows."""
    contract = schemas.contracts()[table]
    shown, found = contract.shown, []

    def of_column(kind: str, column: str, words: str, condition: str) -> ContractRule:
        every = tuple(dict.fromkeys([*shown, column]))
        return ContractRule(
            table, kind, words, (column,), every, f"SELECT * FROM {{batch}} WHERE {condition}", condition
        )

    for column in schemas.required(table):
        found.append(of_column("required", column, f"{column} is never null", f"`{column}` IS NULL"))
    for column, values in contract.values.items():
        listed = ", ".join(map(quoted, values))
        found.append(
            of_column(
                "values", column, f"{column} is one of {', '.join(values)}", f"`{column}` NOT IN ({listed})"
            )
        )
    if keys := contract.key:
        words = f"no two rows have the same {' and '.join(keys)}"
        named = ", ".join(f"`{column}`" for column in keys)
        # a null is no key; in a key of several columns it is a value like any other
        some = f"WHERE {named} IS NOT NULL" if len(keys) == 1 else ""
        duplicates = f"SELECT {named}, explode(sequence(1, duplicates)) AS duplicate FROM (SELECT {named}, count(*) AS duplicates FROM {{batch}} {some} GROUP BY {named} HAVING count(*) > 1)"
        found.append(ContractRule(table, "key", words, keys, keys, duplicates))
    for rule in contract.rules:
        found.append(ContractRule(table, "rows", rule.words, (), (*shown, *rule.shows), rule.violations))
    return tuple(found)


# -- the same rules as SQL -----------------------------------------------------------------------------------


def view_of(table: str) -> str:
    """Return the name of a table's validated rows."""
    return f"guarded_{table}"


def _whole(table: str) -> str:
    return f"whole_{table}"


def reads(tables: Collection[str]) -> set[str]:
    """Return the tables that the rules of some tables read as a whole."""
    queries = [rule.violations for table in tables for rule in schemas.contracts()[table].rules]
    return {other for other in schemas.contracts() if any(f"{{{other}}}" in query for query in queries)}


def register(queries: Queries, written: Mapping[str, Frame], whole: Mapping[str, Frame]) -> None:
    """Register the validated rows, and those that their rules read, under the names of `as_sql`."""
    for table in reads(written):
        queries.view(_whole(table), whole[table])
    for table, rows in written.items():
        queries.view(view_of(table), rows)


def over_whole(violations: str, batch: str = "{batch}") -> str:
    """Return the query of a rule over registered rows; the placeholder of the validated ones may remain."""
    return violations.format(batch=batch, **{other: _whole(other) for other in schemas.contracts()})


def as_sql(violations: str, table: str) -> str:
    """Return the query of a rule over registered rows."""
    return over_whole(violations, view_of(table))


def of_table(violations: str, table: str) -> str:
    """Return the query of a rule over whole tables, which have their own names."""
    return violations.format(batch=table, **{other: other for other in schemas.contracts()})


def violations(
    ask: Callable[[str], list[dict[str, Any]]],
    rules: Sequence[ContractRule],
    named: Callable[[str, str], str] = as_sql,
) -> list[Violation]:
    """Return the violated rules, by one query.

    A violation names the least of its rows: by the texts of the rule's columns in their order, nulls first.
    ask: runs a query. named: replaces the placeholders of a query of a table by names of rows.
    """

    def example(columns: Iterable[str], *more: str) -> str:
        return f"array({', '.join([*(f'CAST(`{name}` AS STRING)' for name in columns), *more])})"

    selects = []
    for table in dict.fromkeys(rule.table for rule in rules):
        conditions = [(n, rule) for n, rule in enumerate(rules) if rule.table == table and rule.condition]
        if conditions:
            cases = ", ".join(f"CASE WHEN {rule.condition} THEN {n} END" for n, rule in conditions)
            odd = "".join(
                f" WHEN {n} THEN CAST(`{rule.columns[0]}` AS STRING)"
                for n, rule in conditions
                if rule.kind == "values"
            )
            more = [f"CASE violated{odd} END"] if odd else ["CAST(NULL AS STRING)"]
            exploded = named(
                f"SELECT *, explode(array_compact(array({cases}))) AS violated FROM {{batch}}", table
            )
            shown = example(schemas.contracts()[table].shown, *more)
            selects.append(f"SELECT violated AS rule, {shown} AS example FROM ({exploded})")
    for n, rule in enumerate(rules):
        if not rule.condition:
            query = named(rule.violations, rule.table)
            selects.append(f"SELECT {n} AS rule, {example(rule.shown)} AS example FROM ({query})")
    if not selects:
        return []
    least = "min_by(example, transform(example, value -> coalesce(value, '')))"
    found = {
        row["rule"]: row
        for row in ask(
            f"SELECT rule, count(*) AS rows, {least} AS example FROM ({' UNION ALL '.join(selects)}) GROUP BY rule"
        )
    }
    return [
        Violation(rule.table, rule.words, found[n]["rows"], _sample(rule, found[n]["example"]))
        for n, rule in enumerate(rules)
        if n in found
    ]


def _sample(rule: ContractRule, values: Sequence[str | None]) -> dict[str, str]:
    """Return the columns that name a row; a rule with a condition has the value of its own column last."""
    columns = (*schemas.contracts()[rule.table].shown, *rule.columns) if rule.condition else rule.shown
    return {name: value for name, value in zip(columns, values, strict=True) if value is not None}


def validate(queries: Queries, written: Mapping[str, Frame], whole: Mapping[str, Frame]) -> int:
    """Validate rows by SQL and return the number of rules.

    written: table -> rows. whole: all rows of tables that their rules read. Raises ContractError, which names
    the violated rules.
    """
    register(queries, written, whole)
    rules = [rule for table in written for rule in rules_of(table)]
    raise_for(violations(queries.rows, rules))
    return len(rules)


def raise_for(found: Sequence[Violation]) -> None:
    """Raise ContractError where a rule is violated."""
    if found:
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        listed = "; ".join(one.sentence() for one in found[:SHOWN])
        raise ContractError(f"the tables break their contract: {listed}{more}")


# -- the command ---------------------------------------------------------------------------------------------


def add_arguments(commands: Any) -> None:
    """Add `contracts` to the command line."""
    command = add_command(
        commands,
        "contracts",
        run,
        "--tables",
        summary="validate the tables with Great Expectations",
        examples=EXAMPLES,
    )
    add_data_docs(command)


def add_data_docs(command: Any) -> None:
    """Add --data-docs to a command that validates tables."""
    command.add_argument(
        "--data-docs",
        type=Path,
        metavar="DIR",
        help="write what was validated as Great Expectations' Data Docs; their pages load scripts from the internet",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command `contracts`, which changes no table."""
    from jobs import engine
    from jobs.checking import expectations

    names = list(schemas.contracts())
    tables = engine.opened(options.tables, names=names)
    present = [name for name in names if tables.has(name)]
    if not present:
        raise UsageError(f"There are no tables under {options.tables}. Run `kafka-audit audit` first")
    suites = expectations.Suites(options.data_docs)
    found = suites.of_tables(tables, present)
    suites.write_docs()
    raise_for(found)
    print(f"{counted(suites.count, 'contract')} of {counted(len(present), 'table')} passed")
    return errors.CLEAN
