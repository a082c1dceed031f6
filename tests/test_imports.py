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
