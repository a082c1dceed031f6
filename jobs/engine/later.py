"""Modules of Spark's that are imported when something of them is used: what never uses it runs where Spark is not installed."""

from importlib import import_module
from typing import Any


class Later:
    """Stands for a module; each attribute is the module's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # the package first and by the interpreter, so that audit hooks see it
        __import__(self._name.partition(".")[0])
        return getattr(import_module(self._name), name)


core: Any = Later("pyspark")
sql: Any = Later("pyspark.sql")
functions: Any = Later("pyspark.sql.functions")
errors: Any = Later("pyspark.errors")
gateway: Any = Later("py4j.protocol")
types: Any = Later("pyspark.sql.types")
arrow: Any = Later("pyspark.sql.pandas.types")
