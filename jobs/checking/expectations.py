"""Great Expectations over the tables: one suite per table, from the definition in `schemas/contracts`.

Its Spark engine validates Spark's frames. Its pandas engine validates few rows, and the tables of the command
`contracts`; it is given only the columns that expectations name. What reads the rows evaluates rules that are
SQL, so that no whole table is in memory.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import schemas
from jobs.checking import contracts
from jobs.checking.contracts import ContractRule, Violation, rules_of
from jobs.engine import Tables
from jobs.errors import ContractError, UsageError

# runs a rule's query, with {batch} in it, and returns the rows
Asked = Callable[[str], list[dict[str, Any]]]
# runs the queries over the rows that the pandas engine validates now
_asked: ContextVar[Asked] = ContextVar("asked")
_loading = threading.Lock()
# number of violating rows that Great Expectations returns for a query
MOST_ROWS = 200


def _library() -> Any:
    """Return Great Expectations; callers wait while it is being loaded."""
    with _loading:
        return _loaded()


@cache
def _loaded() -> Any:
    """Import Great Expectations without its console notes, and let it run SQL rules over pandas' rows."""
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="great_expectations")
    import great_expectations as gx
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.metrics.metric_provider import metric_value
    from great_expectations.expectations.metrics.query_metric_provider import QueryMetricProvider

    class AskedRows(QueryMetricProvider):
        """The rows of an UnexpectedRowsExpectation over rows of pandas."""

        metric_name = "unexpected_rows_query.table"
        value_keys = ("unexpected_rows_query",)

        @metric_value(engine=PandasExecutionEngine)
        def _pandas(cls, metric_value_kwargs: dict, **_: Any) -> list[dict[str, Any]]:
            return _asked.get()(metric_value_kwargs["unexpected_rows_query"])[:MOST_ROWS]

    class AskedCount(QueryMetricProvider):
        """The number of these rows."""

        metric_name = "unexpected_rows_query.row_count"
        value_keys = ("unexpected_rows_query",)

        @metric_value(engine=PandasExecutionEngine)
        def _pandas(cls, metric_value_kwargs: dict, **_: Any) -> int:
            query = metric_value_kwargs["unexpected_rows_query"]
            return _asked.get()(f"SELECT count(*) AS rows FROM ({query})")[0]["rows"]

    return gx


def preload() -> None:
    """Import Great Expectations, which takes seconds; a run does it while the JVM starts."""
    _library()


class Suites:
    """The validation of some tables, in one or several parts."""

    def __init__(self, docs: Path | None = None, kinds: Collection[str] = contracts.KINDS) -> None:
        """docs: the folder that `write_docs` writes to. kinds: of the rules that are validated."""
        self._gx = _library()
        # two threads that import this module at once get it half loaded
        from great_expectations.data_context.types.base import ProgressBarsConfig

        self._docs, self._kinds = docs, kinds
        self._context = self._gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = ProgressBarsConfig(globally=False)
        if docs is not None:
            self._context.add_data_docs_site("tables", _site(docs))
        # number of evaluated rules
        self.count = 0
        # number of suites so far, because each needs a name of its own
        self._parts = 0

    def of_frames(self, spark: Any, written: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Violation]:
        """Validate frames of Spark.

        written: table -> rows; whole: all rows of tables that their rules read.
        """
        from jobs.engine.queries import InSpark

        queries = InSpark(spark)
        contracts.register(queries, written, whole)
        source = self._context.data_sources.add_spark(f"spark {self._parts}", persist=False)
        violated: list[ContractRule] = []
        for table in written:
            rows = spark.table(contracts.view_of(table))
            violated += self._violated(source, table, rows, contracts.over_whole)
        return _named(violated, contracts.violations(queries.rows, violated))

    def of_rows(self, queries: Any, written: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Violation]:
        """Validate rows that are in this process or in files; `queries` runs the rules that are SQL."""
        from jobs.engine.rows import select, to_table

        contracts.register(queries, written, whole)
        violated: list[ContractRule] = []
        for table, rows in written.items():

            def ask(query: str, table: str = table) -> list[dict[str, Any]]:
                return queries.rows(contracts.as_sql(query, table))

            _asked.set(ask)
            violated += self._of_arrow(table, to_table(select(rows, *_columns(table))))
        return _named(violated, contracts.violations(queries.rows, violated))

    def of_tables(self, tables: Tables, names: Sequence[str]) -> list[Violation]:
        """Validate all rows of tables."""

        def query(sql: str) -> list[dict[str, Any]]:
            return tables.query(sql).rows()

        violated: list[ContractRule] = []
        for table in names:

            def ask(sql: str, table: str = table) -> list[dict[str, Any]]:
                return query(contracts.of_table(sql, table))

            _asked.set(ask)
            violated += self._of_arrow(table, tables.read(table, _columns(table)))
        return _named(violated, contracts.violations(query, violated, contracts.of_table))

    def _rules(self, table: str) -> list[ContractRule]:
        """Return the rules that are validated."""
        return [rule for rule in rules_of(table) if rule.kind in self._kinds]

    def _of_arrow(self, table: str, rows: Any) -> list[ContractRule]:
        if not self._rules(table):
            return []
        source = self._context.data_sources.add_pandas(f"rows {self._parts}")
        return self._violated(source, table, rows.to_pandas(integer_object_nulls=True), lambda query: query)

    def _violated(
        self, source: Any, table: str, rows: Any, named: Callable[[str], str]
    ) -> list[ContractRule]:
        """Validate the rows of one table and return the violated rules.

        named: replaces a query's placeholders except {batch} by names of views.
        """
        rules = self._rules(table)
        if not rules:
            return []
        asset = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("all rows")

        def outcomes(
            name: str, some: Sequence[ContractRule], result_format: Mapping[str, Any]
        ) -> dict[str, Any]:
            """Return rule (its words) -> Great Expectations' result."""
            suite = self._gx.ExpectationSuite(
                name=name, expectations=[_expectation(rule, named) for rule in some]
            )
            suite = self._context.suites.add(suite)
            definition = self._gx.ValidationDefinition(name=name, data=asset, suite=suite)
            self._context.validation_definitions.add(definition)
            ran = definition.run(batch_parameters={"dataframe": rows}, result_format=dict(result_format))
            found = {one.expectation_config.meta["rule"]: one for one in ran.results}
            for rule in some:
                _refuse_errors(rule, found[rule.words])
            return found

        self._parts += 1
        self.count += len(rules)
        whole = outcomes(
            f"{table} {self._parts}",
            rules,
            {"result_format": "BOOLEAN_ONLY" if self._docs is None else "SUMMARY"},
        )
        violated = [rule for rule in rules if not whole[rule.words].success]
        if violated and self._docs is not None:
            # the second validation adds the violating rows to the pages
            shown = dict.fromkeys(column for rule in violated if rule.kind != "rows" for column in rule.shown)
            complete = {"result_format": "COMPLETE", "unexpected_index_column_names": list(shown)}
            outcomes(f"{table} {self._parts}: violations", violated, complete)
        return violated

    def write_docs(self) -> None:
        """Write the Data Docs of all validations, if a folder is given.

        Raises UsageError where they cannot be written.
        """
        if self._docs is None:
            return
        try:
            self._context.build_data_docs(site_names=["tables"])
        except OSError as error:
            raise UsageError(f"--data-docs {self._docs}: {error.strerror or error}") from None


def _site(folder: Path) -> dict[str, Any]:
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": store,
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def _columns(table: str) -> list[str]:
    """Return the columns that the expectations of a table read, at least one."""
    read = dict.fromkeys(
        column for rule in rules_of(table) if rule.kind != "rows" for column in (*rule.shown, *rule.columns)
    )
    return list(read) or list(schemas.columns(table))[:1]


def _named(violated: Sequence[ContractRule], found: Sequence[Violation]) -> list[Violation]:
    """Return the violations of rules. found: what SQL finds of them.

    Raises ContractError where SQL finds no row that violates one of them.
    """
    named = {(one.table, one.rule) for one in found}
    if lacking := [rule for rule in violated if (rule.table, rule.words) not in named]:
        raise ContractError(
            f"{lacking[0].table}: Great Expectations finds '{lacking[0].words}' violated, and SQL finds no such row"
        )
    return list(found)


def _expectation(rule: ContractRule, named: Callable[[str], str]) -> Any:
    """Return Great Expectations' expectation for a rule."""
    import great_expectations.expectations as gxe

    texts: Any = {"meta": {"rule": rule.words}, "description": rule.words}
    if rule.kind == "required":
        return gxe.ExpectColumnValuesToNotBeNull(column=rule.columns[0], **texts)
    if rule.kind == "values":
        allowed = list(schemas.contracts()[rule.table].values[rule.columns[0]])
        return gxe.ExpectColumnValuesToBeInSet(column=rule.columns[0], value_set=allowed, **texts)
    if rule.kind == "key" and len(rule.columns) == 1:
        return gxe.ExpectColumnValuesToBeUnique(column=rule.columns[0], **texts)
    if rule.kind == "key":
        return gxe.ExpectCompoundColumnsToBeUnique(
            column_list=list(rule.columns), ignore_row_if="never", **texts
        )
    return gxe.UnexpectedRowsExpectation(unexpected_rows_query=named(rule.violations), **texts)


def _refuse_errors(rule: ContractRule, outcome: Any) -> None:
    """Raise ContractError where a rule could not be evaluated; Great Expectations reports it as violated."""
    for error in [
        outcome.exception_info,
        *(v for v in outcome.exception_info.values() if isinstance(v, dict)),
    ]:
        if error.get("raised_exception"):
            why = str(error.get("exception_message")).splitlines()[0]
            raise ContractError(f"{rule.table}: the rule '{rule.words}' could not be evaluated: {why}")
