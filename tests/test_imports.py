"""The direction of imports: jobs -> parsers -> schemas, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED = {"schemas": {"schemas"}, "parsers": {"parsers", "schemas"}, "jobs": {"jobs", "parsers", "schemas"}}


def test_packages_import_downwards_only() -> None:
    for package, allowed in ALLOWED.items():
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or package] if isinstance(node, ast.ImportFrom) else []
                wrong = {name.split(".")[0] for name in names} & {*ALLOWED, "tests"} - allowed
                assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_timelines_are_plain_python() -> None:
    """Without Spark, and without anything of ours but the state machines."""
    for path in (ROOT / "jobs" / "timelines").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            ours = [name for name in names if name.split(".")[0] in {*ALLOWED, "tests", "pyspark", "delta", "pyarrow"}]
            assert all(name.startswith("jobs.timelines") or name == "schemas" for name in ours), f"{path.name} imports {ours}"


def test_what_computes_without_spark_does_not_import_it() -> None:
    """A module imports Spark's where it uses them (`jobs.engine.later`), so that the local engine runs where they are not installed."""
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


# modules outside of jobs/engine/ that import a library of an engine. The list only shrinks
NOT_YET_IN_ENGINE = {"commands/repair.py", "landing/events.py"}


def test_libraries_of_the_engines_are_imported_in_one_room() -> None:
    """pyspark, delta, duckdb and deltalake: in jobs/engine/, and nowhere else but where they still are."""
    libraries = {"pyspark", "py4j", "delta", "duckdb", "deltalake"}
    found = set()
    for path in (ROOT / "jobs").rglob("*.py"):
        name = path.relative_to(ROOT / "jobs").as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if libraries & {one.split(".")[0] for one in names} and not name.startswith("engine/"):
                found.add(name)
    assert found == NOT_YET_IN_ENGINE


# a room -> the rooms that it may import; modules that stand in jobs/ itself may be imported by all
ROOMS = {
    "": {"alerts", "commands", "engine", "landing"},
    "commands": {"alerts", "checking", "demo", "engine", "landing", "nightly", "operators", "reporting", "timelines"},
    "demo": {"commands"},
    "reporting": {"checking", "engine", "landing"},
    "alerts": {"checking", "engine", "landing"},
    "operators": {"engine", "nightly", "timelines"},
    "checking": {"engine", "landing", "nightly", "timelines"},
    "nightly": {"engine", "timelines"},
    "landing": {"engine", "nightly", "timelines"},
    # what the processes of the pool compute is imported there
    "engine": {"landing", "nightly", "timelines"},
    "timelines": set(),
}


def test_rooms_import_in_one_direction() -> None:
    """A room imports those below it; the arrows that are left upwards are listed, and no new one comes in."""
    jobs = ROOT / "jobs"
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in jobs.rglob("*.py"):
        room = path.relative_to(jobs).parts[0] if path.parent != jobs else ""
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"jobs.{alias.name}" for alias in node.names] if node.module == "jobs" else [node.module]
            for name in names:
                first, _, rest = name.partition(".")
                other = rest.split(".")[0]
                if first == "jobs" and other in ROOMS and other not in ("", room):
                    found[room].add(other)
    assert found == ROOMS
