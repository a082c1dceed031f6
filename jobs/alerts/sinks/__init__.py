"""The types of sinks: each module of this package that defines a subclass of Sink with a `type`."""

import importlib
import inspect
import pkgutil

from jobs.alerts.sink import Sink


def _found() -> dict[str, type[Sink]]:
    types: dict[str, type[Sink]] = {}
    for module in sorted(one.name for one in pkgutil.iter_modules(__path__)):
        for _, one in inspect.getmembers(importlib.import_module(f"{__name__}.{module}"), inspect.isclass):
            if issubclass(one, Sink) and "type" in vars(one) and one.__module__ == f"{__name__}.{module}":
                types[one.type] = one
    return types


# the type of an [[alert]] in audit.toml -> its class
SINK_TYPES = _found()
