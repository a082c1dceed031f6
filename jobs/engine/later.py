"""Modules of Spark that are imported when they are first used: the local engine runs where Spark is not
installed.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from jobs.errors import UsageError


class Later:
    """Stands for a module; each attribute is the module's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # the package first and by the interpreter, so that audit hooks see it
        __import__(self._name.partition(".")[0])
        return getattr(import_module(self._name), name)


sql: Any = Later("pyspark.sql")
functions: Any = Later("pyspark.sql.functions")
errors: Any = Later("pyspark.errors")
gateway: Any = Later("py4j.protocol")
types: Any = Later("pyspark.sql.types")
arrow: Any = Later("pyspark.sql.pandas.types")

# module -> package of PyPI that has it
PACKAGES = {
    "pyspark": "pyspark",
    "py4j": "pyspark",
    "delta": "delta-spark",
    "grpc": "pyspark[connect]",
    "great_expectations": "great-expectations",
}


def require(*modules: str) -> None:
    """Raise UsageError where one of PACKAGES is not installed; imports none."""
    missing = sorted({PACKAGES[name] for name in modules if find_spec(name) is None})
    if missing:
        raise UsageError(_missing(missing))


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return what to install where an error means that one of PACKAGES is missing, else None."""
    package = PACKAGES.get((error.name or "").partition(".")[0])
    return _missing([package]) if package else None


def _missing(packages: Sequence[str]) -> str:
    verb = "is" if len(packages) == 1 else "are"
    return f"{', '.join(packages)} {verb} not installed, and this needs Spark or Great Expectations; install kafka-audit with all its packages"
