"""Great Expectations over the written tables: types, enums, nulls, no orphan evidence. A broken contract fails the run.

One query counts the rows that break a rule, of all rules of all tables; Great Expectations judges the counts. Given the tables
themselves it asks a few questions a table and column, which takes a small audit longer than everything else that it does.
"""

import logging
import sys
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pyarrow as pa

import schemas
from jobs.engine.listing import arrow_type_name
from jobs.errors import ContractError
from jobs.queries import Queries
from jobs.rows import Frame, quoted
from parsers.explanation import counted

# Great Expectations imports these for expectations that are not used here; they are more than half of the time that its import takes
UNUSED = ("altair", "scipy.stats", "pyspark.ml", "pyspark.ml.feature")
# broken rules that are named
SHOWN = 20


@dataclass(frozen=True)
class Rule:
    """One thing that must hold in a table, with a condition that breaking rows meet, or a query for them, or what is broken already."""

    table: str
    column: str
    words: str
    condition: str = ""
    query: str = ""
    broken: str = ""


def preload() -> None:
    """Imports Great Expectations, which takes seconds; done while the JVM starts."""
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="great_expectations")
    absent = [name for name in UNUSED if name not in sys.modules]
    for name in absent:
        sys.modules[name] = _Unused(name)
    try:
        import great_expectations
        import great_expectations.expectations  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


class _Unused(ModuleType):
    """Stands for a module while others are imported that name it; whatever is taken from it is a stand-in, too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(f"{self.__name__}.{name}")


def _view(table: str) -> str:
    return f"guarded_{table}"


def _whole(table: str) -> str:
    return f"whole_{table}"


def rules_of(definition: schemas.Statement, contract: dict[str, Any], found: Mapping[str, str]) -> list[Rule]:
    """What must hold in a table.

    contract: its entry of contracts.toml. found: column -> type of the rows to be checked.
    """
    table, view = definition.name, _view(definition.name)
    rules = []
    for column, kind in schemas.columns(definition.name).items():
        is_so = found.get(column, "").upper() == kind.replace(" ", "").upper()
        broken = "" if is_so else f"it is {found.get(column, 'missing').upper()}"
        rules.append(Rule(table, column, f"is {kind}", broken=broken))
        if f"  {column} {kind} NOT NULL" in definition.sql:
            rules.append(Rule(table, column, "is never null", condition=f"`{column}` IS NULL"))
    for column, values in contract.get("one_of", {}).items():
        listed = ", ".join(map(quoted, values))
        rules.append(Rule(table, column, f"is one of {', '.join(values)}", condition=f"`{column}` NOT IN ({listed})"))
    if keys := contract.get("unique"):
        query = f"SELECT {', '.join(keys)}, count(*) AS rows FROM {view} GROUP BY {', '.join(keys)} HAVING count(*) > 1"
        rules.append(Rule(table, " + ".join(keys), "tells rows apart", query=query))
    for name, query in contract.get("never", {}).items():
        whole = {other: _whole(other) for other in schemas.contracts()}
        rules.append(Rule(table, "*", name, query=query.format(batch=view, **whole)))
    return rules


def _shown(definition: schemas.Statement, contract: dict[str, Any]) -> str:
    """The columns that tell which row it is, and those that a rule is about, as a struct."""
    kinds = schemas.columns(definition.name)
    keys = [column for column, kind in kinds.items() if f"  {column} {kind} NOT NULL" in definition.sql]
    return f"struct({', '.join(f'`{name}`' for name in dict.fromkeys([*keys, *contract.get('one_of', {})]))})"


def _violations(queries: Queries, rules: list[Rule], shown: Mapping[str, str]) -> dict[int, tuple[int, str]]:
    """Number of the rule -> (rows that break it, one of them as JSON), of those that are broken. One query for all."""
    selects = []
    for table, columns in shown.items():
        mine = [(n, rule) for n, rule in enumerate(rules) if rule.table == table and rule.condition]
        cases = [f"CASE WHEN {rule.condition} THEN {n} END" for n, rule in mine]
        if cases:
            exploded = f"SELECT *, explode(array_compact(array({', '.join(cases)}))) AS rule FROM {_view(table)}"
            selects.append(f"SELECT rule, to_json({columns}) AS example FROM ({exploded})")
    selects += [f"SELECT {n} AS rule, to_json(struct(*)) AS example FROM ({r.query})" for n, r in enumerate(rules) if r.query]
    broken = queries.rows(
        f"SELECT rule, count(*) AS rows, substring(min(example), 1, 300) AS example FROM ({' UNION ALL '.join(selects)}) GROUP BY rule"
    )
    return {row["rule"]: (row["rows"], row["example"]) for row in broken}


def guard(
    queries: Queries, written: Mapping[str, Frame], whole: Mapping[str, Frame] | None = None, *, with_gx: bool = True
) -> int:
    """Validates the rows of the run's clusters in tables, as they are written. with_gx: Great Expectations judges; else this module does.

    written: tables that contracts.toml names, with the rows that are to be guarded. whole: all rows of tables that their rules refer
    to; None: those that are guarded. Returns the number of rules; raises ContractError naming the broken.
    """
    never = [query for table in written for query in schemas.contracts()[table].get("never", {}).values()]
    for table, rows in (written if whole is None else whole).items():
        if any(f"{{{table}}}" in query for query in never):
            queries.view(_whole(table), rows)
    rules: list[Rule] = []
    shown = {}
    for definition in schemas.statements("tables"):
        if definition.name in written:
            rows, contract = written[definition.name], schemas.contracts()[definition.name]
            queries.view(_view(definition.name), rows)
            kinds = {one.name: one.type for one in rows.schema} if isinstance(rows.schema, pa.Schema) else None
            found = (
                {field.name: field.dataType.simpleString() for field in rows.schema}
                if kinds is None
                else {name: arrow_type_name(kind) for name, kind in kinds.items()}
            )
            rules += rules_of(definition, contract, found)
            shown[definition.name] = _shown(definition, contract)
    if any(rule.broken for rule in rules):  # a query over columns that are not there would only fail
        violations = {n: (1, rule.broken) for n, rule in enumerate(rules) if rule.broken}
    else:
        violations = _violations(queries, rules, shown)
    broken = _unexpected(rules, violations, set(written)) if with_gx else _objections(rules, violations)
    if broken:
        more = f"; and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        raise ContractError("The written tables break their contract: " + "; ".join(broken[:SHOWN]) + more)
    return len(rules)


def _objections(rules: list[Rule], violations: Mapping[int, tuple[int, str]]) -> list[str]:
    """The broken rules: table, column and rule, how often, and an example."""
    return [_objection(rules[n].table, rules[n].column, rules[n].words, *violations[n]) for n in sorted(violations)]


def _objection(table: str, column: str, rule: str, rows: int, example: str) -> str:
    return f"{table}.{column}: {rule!r} is broken by {counted(rows, 'row')}, for example {example}"


def _unexpected(rules: list[Rule], violations: Mapping[int, tuple[int, str]], tables: Collection[str]) -> list[str]:
    """What Great Expectations has to object to in the counts: table, column and rule, how often, and an example."""
    import great_expectations as gx
    import great_expectations.expectations as gxe
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig

    judged = pd.DataFrame(
        {
            "table": [rule.table for rule in rules],
            "column": [rule.column for rule in rules],
            "rule": [rule.words for rule in rules],
            "violations": [violations.get(n, (0, ""))[0] for n in range(len(rules))],
            "example": [violations.get(n, (0, ""))[1] for n in range(len(rules))],
        }
    )
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    batch = context.data_sources.add_pandas("tables").add_dataframe_asset("rules").add_batch_definition_whole_dataframe("all")
    expectations = [
        gxe.ExpectColumnValuesToBeInSet(column="violations", value_set=[0]),
        # that no table went unguarded
        gxe.ExpectColumnDistinctValuesToEqualSet(column="table", value_set=sorted(tables)),
    ]
    suite = context.suites.add(gx.ExpectationSuite(name="contracts", expectations=expectations))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name="contracts", data=batch, suite=suite))
    told = {"result_format": "COMPLETE", "unexpected_index_column_names": ["table", "column", "rule", "example"]}
    result = validation.run(batch_parameters={"dataframe": judged}, result_format=told)
    objections = []
    for outcome in result.results:
        rows = outcome.result.get("unexpected_index_list") or []
        objections += [_objection(row["table"], row["column"], row["rule"], row["violations"], row["example"]) for row in rows]
        if not outcome.success and not rows:
            objections.append(f"{outcome.expectation_config.type}: {outcome.result or outcome.exception_info}"[:500])
    return objections
