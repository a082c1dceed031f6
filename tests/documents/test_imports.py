"""The direction of imports: jobs -> parsers -> schemas, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {"schemas": {"schemas"}, "parsers": {"parsers", "schemas"}, "jobs": {"jobs", "parsers", "schemas"}}


def test_packages_import_downwards_only() -> None:
    for package, allowed in ALLOWED.items():
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or package] if isinstance(node, ast.ImportFrom) else []
                wrong = {name.split(".")[0] for name in names} & {*ALLOWED, "tests"} - allowed
                assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_no_two_modules_have_the_same_name() -> None:
    """A name in an import then says which module it is."""
    paths = [
        path for package in ALLOWED for path in (ROOT / package).rglob("*.py") if path.stem != "__init__"
    ]
    twice = {path.stem for path in paths if sum(path.stem == other.stem for other in paths) > 1}
    assert not twice


def test_no_two_public_classes_have_the_same_name() -> None:
    found: dict[str, list[Path]] = {}
    for path in (path for package in ALLOWED for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def third_party(package: str) -> dict[str, Path]:
    """Return top-level modules of other packages -> a file that imports them."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found |= {name.split(".")[0]: path for name in names}
    return {
        name: path
        for name, path in found.items()
        if name and name not in sys.stdlib_module_names and name not in ALLOWED
    }


def declared(requirements: Iterable[str | dict[str, str]]) -> set[str]:
    """Return the names of distributions in a list of requirements."""
    return {
        canonical(re.split(r"[^\w.-]", one, maxsplit=1)[0]) for one in requirements if isinstance(one, str)
    }


def canonical(name: str) -> str:
    """Return the name of a distribution as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_a_declared_dependency() -> None:
    """The next version of another package may not bring an undeclared dependency any more."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups, extras = project["dependency-groups"], project["project"]["optional-dependencies"]
    known = declared(
        [
            *project["project"]["dependencies"],
            *groups["jre"],
            *(one for some in extras.values() for one in some),
        ]
    )
    distributions = packages_distributions()
    for package in ALLOWED:
        for name, path in third_party(package).items():
            providers = {canonical(one) for one in distributions.get(name, [name])}
            assert providers & known, (
                f"{path.relative_to(ROOT)} imports {name}, which pyproject.toml does not name"
            )


def test_an_undeclared_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.py").write_text("import os\nfrom odd.part import x\nfrom jobs import b\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert set(third_party("jobs")) == {"odd"}
    assert declared(["delta-spark==4.4.0", "moto[server]>=5"]) == {"delta-spark", "moto"}


def test_timelines_are_plain_python() -> None:
    """They import no Spark, and of our modules only the state machines and the meanings of event types."""
    for path in (ROOT / "jobs" / "timelines").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            ours = [
                name
                for name in names
                if name.split(".")[0] in {*ALLOWED, "tests", "pyspark", "delta", "pyarrow"}
            ]
            allowed = ("schemas", "parsers.meanings")
            assert all(name.startswith("jobs.timelines") or name in allowed for name in ours), (
                f"{path.name} imports {ours}"
            )


def test_local_modules_do_not_import_spark() -> None:
    """A module imports Spark's where it uses them (`jobs.engine.later`), so that the local engine runs where
    they are not installed.
    """
    of_spark = {"pyspark", "py4j", "delta", "great_expectations"}
    for path in sorted((ROOT / "jobs").rglob("*.py")):
        if path.relative_to(ROOT / "jobs").as_posix() in ("engine/spark.py", "engine/remote.py"):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not of_spark & {name.split(".")[0] for name in names}, (
                f"{path.relative_to(ROOT)} imports {names} when it is loaded"
            )


def test_libraries_of_the_engines_are_imported_in_one_room() -> None:
    """pyspark, delta, duckdb and deltalake are imported in jobs/engine/ only, at any place in a module."""
    assert not imports_of_engines(ROOT)


def imports_of_engines(root: Path) -> dict[str, set[str]]:
    """Return modules outside of jobs/engine/ -> the libraries of the engines that they import."""
    libraries = {"pyspark", "py4j", "delta", "duckdb", "deltalake"}
    found: dict[str, set[str]] = {}
    for package in ALLOWED:
        for path in (root / package).rglob("*.py"):
            name = path.relative_to(root).as_posix()
            if not name.startswith("jobs/engine/") and (wrong := libraries & imported(path)):
                found[name] = wrong
    return found


def imported(path: Path) -> set[str]:
    """Return the top-level modules that a module imports, at its top, in functions, for types, or by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__", "Later"):
                found.add(str(node.args[0].value))
    return {name.partition(".")[0] for name in found}


@pytest.mark.parametrize(
    "text",
    [
        "import duckdb",
        "def f():\n    from pyspark.sql import functions as F",
        "if TYPE_CHECKING:\n    from deltalake import DeltaTable",
        "x = import_module('delta.tables')",
        "x = importlib.import_module('py4j')",
    ],
)
def test_each_way_of_importing_is_found(text: str, tmp_path: Path) -> None:
    for place in ("jobs/landing", "jobs/engine", "parsers"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "one.py").write_text(text, "utf-8")
    assert set(imports_of_engines(tmp_path)) == {"jobs/landing/one.py", "parsers/one.py"}


# a room -> the rooms that it may import; all may import the modules directly in jobs/
# the rooms of jobs/, from the top down; modules of jobs/ itself are used by all of them
ROOMS = (
    "commands",
    "reporting",
    "alerts",
    "operators",
    "checking",
    "landing",
    "nightly",
    "engine",
    "batches",
    "files",
    "demo",
    "timelines",
)


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms that a module imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"jobs.{alias.name}" for alias in node.names] if node.module == "jobs" else [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("jobs.")}
    return found & set(ROOMS)


def test_rooms_import_in_one_direction() -> None:
    """A room imports the rooms below it, so there is no circle."""
    folders = {path.parent.name for path in (ROOT / "jobs").glob("*/__init__.py")}
    assert folders == set(ROOMS)
    for number, room in enumerate(ROOMS):
        for path in (ROOT / "jobs" / room).rglob("*.py"):
            upward = imported_rooms(path) & set(ROOMS[:number])
            assert not upward, f"{path.relative_to(ROOT)} imports {upward}, which are above {room}"


@pytest.mark.parametrize(
    "text",
    ["from jobs.landing import logs", "import jobs.landing.logs", "def f():\n    from jobs import landing"],
)
def test_an_import_of_a_room_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert imported_rooms(tmp_path / "module.py") == {"landing"}


# name that Spark Connect does not have -> files that use it, with the reason
NOT_OF_CONNECT: dict[str, dict[str, str]] = {
    "jvm": {
        "engine/driver.py": "spark-submit sends Python's stderr to stdout; only the driver's own JVM writes to its stderr"
    },
}


def test_only_parts_of_spark_that_spark_connect_has_are_used() -> None:
    """No SparkContext, RDD or object of the JVM.

    No setting of the optimiser, the compilers or the JVM's memory.
    """
    names = {
        "sparkContext",
        "SparkContext",
        "_jvm",
        "jvm",
        "_jsc",
        "_sc",
        "_jdf",
        "_jsparkSession",
        "rdd",
        "broadcast",
    }
    switches = ("spark.sql.optimizer", "spark.sql.codegen", "spark.sql.adaptive", "-XX:", "-Xm", "-Xshare")
    found: dict[str, set[str]] = {}
    for path in (ROOT / "jobs").rglob("*.py"):
        name = path.relative_to(ROOT / "jobs").as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        ours = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and not _is_functions(node)
        }
        ours |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        ours |= {
            one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names
        }
        for used in (ours & names) | {one for one in switches if any(one in text for text in texts)}:
            found.setdefault(used, set()).add(name)
    assert found == {used: set(files) for used, files in NOT_OF_CONNECT.items()}


def _is_functions(node: ast.Attribute) -> bool:
    """Return whether it is of pyspark.sql.functions, which has a `broadcast` for joins."""
    return isinstance(node.value, ast.Name) and node.value.id == "F"
