"""Great Expectations over the written tables: types, enums, nulls, no orphan evidence. A broken contract fails the run."""

import logging
import warnings
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

import schemas
from jobs.errors import ContractError
from jobs.store import columns_of

SPARK_TYPE_NAMES = {
    "STRING": "StringType",
    "INT": "IntegerType",
    "BIGINT": "LongType",
    "BOOLEAN": "BooleanType",
    "TIMESTAMP": "TimestampType",
}


def preload() -> None:
    """Imports Great Expectations, which takes seconds; done while the JVM starts."""
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="great_expectations")
    import great_expectations
    import great_expectations.expectations  # noqa: F401


def _expectations(definition: schemas.Statement, contract: dict[str, Any]) -> list[Any]:
    import great_expectations.expectations as gxe

    found: list[Any] = []
    for column, kind in columns_of(definition).items():
        # columns of the vocabulary are compared when the table is opened
        if kind in SPARK_TYPE_NAMES and f"  {column} {kind}" in definition.sql:
            found.append(gxe.ExpectColumnValuesToBeOfType(column=column, type_=SPARK_TYPE_NAMES[kind]))
        if f"  {column} {kind} NOT NULL" in definition.sql:
            found.append(gxe.ExpectColumnValuesToNotBeNull(column=column))
    for column, values in contract.get("one_of", {}).items():
        found.append(gxe.ExpectColumnValuesToBeInSet(column=column, value_set=values))
    if unique := contract.get("unique"):
        found.append(gxe.ExpectCompoundColumnsToBeUnique(column_list=unique) if len(unique) > 1
                     else gxe.ExpectColumnValuesToBeUnique(column=unique[0]))  # fmt: skip
    for query in contract.get("never", {}).values():
        found.append(gxe.UnexpectedRowsExpectation(unexpected_rows_query=query))
    return found


def guard(written: Mapping[str, DataFrame]) -> int:
    """Validates the rows of the run's clusters in tables, as they are written. Returns the number of expectations; raises ContractError naming the broken."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_spark("tables", persist=False)
    definitions = {definition.name: definition for definition in schemas.statements("tables")}
    broken, count = [], 0
    for table, rows in written.items():
        batch = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("all")
        expectations = _expectations(definitions[table], schemas.contracts()[table])
        suite = context.suites.add(gx.ExpectationSuite(name=table, expectations=expectations))
        validation = context.validation_definitions.add(gx.ValidationDefinition(name=table, data=batch, suite=suite))
        result = validation.run(batch_parameters={"dataframe": rows}, result_format="BOOLEAN_ONLY")
        if not result.success:  # again, for the numbers
            result = validation.run(batch_parameters={"dataframe": rows}, result_format="BASIC")
        count += len(result.results)
        for outcome in result.results:
            if not outcome.success:
                broken.append(f"{table}: {_describe(outcome)}")
    if broken:
        raise ContractError("The written tables break their contract: " + "; ".join(broken))
    return count


def _describe(outcome: Any) -> str:
    config = outcome.expectation_config
    asked = {
        key: value
        for key, value in config.kwargs.items()
        if key in {"column", "column_list", "value_set", "unexpected_rows_query"}
    }
    failed = outcome.exception_info or {}
    texts = [failed.get("exception_message")] + [v.get("exception_message") for v in failed.values() if isinstance(v, dict)]
    text = next((t for t in texts if t), None)
    seen = f"could not be evaluated: {text.splitlines()[0]}" if text else f"{outcome.result}"
    return f"{config.type} {asked} {seen}"[:500]
