"""The faults of `tests/recorded_faults` are found, and nothing else; `python tests/test_recorded_faults.py --write` writes their table."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs import errors
from jobs.nightly_audit import main
from schemas.durations import two_units

FOLDER = Path(__file__).parent / "recorded_faults"
FAULTS: list[dict[str, Any]] = tomllib.loads((FOLDER / "faults.toml").read_text("utf-8"))["fault"]
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "faults.md"
MARK = re.compile(r"(?<=<!-- recorded faults -->\n).*?(?=<!-- /recorded faults -->)", re.DOTALL)


def findings(folder: Path) -> list[dict[str, Any]]:
    """Return what one audit of all recordings finds at warning or above; cluster: the name of the fault."""
    blocks = [
        f"[[cluster]]\nname = {json.dumps(fault['name'])}\nlogs = [{json.dumps(str(FOLDER / fault['logs']))}]\n"
        for fault in FAULTS
    ]
    (folder / "audit.toml").write_text("\n".join(blocks))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(
            ["audit", "--config", str(folder / "audit.toml"), "--tables", str(folder / "tables"), "--engine", "local", "--json"]
        )
    assert code in (errors.CLEAN, errors.FINDINGS)
    return [finding for finding in json.loads(out.getvalue())["findings"] if finding["severity"] != "info"]


def table(found: list[dict[str, Any]]) -> str:
    """Return the table: what detects each fault, how long after it the finding begins, and what else is reported."""
    lines = ["| fault | Kafka | detected by | after | missed by | consequences | false |", "|---|---|---|---|---|---|---|"]
    for fault in FAULTS:
        of_fault = [finding for finding in found if finding["cluster"] == fault["name"]]
        checks = {finding["check_id"] for finding in of_fault}
        begins = [datetime.fromisoformat(one["first_seen"]) for one in of_fault if one["check_id"] in fault["detects"]]
        delays = [(begin.replace(tzinfo=UTC) - fault["at"]).total_seconds() for begin in begins]
        after = two_units(max(min(delays, key=abs), 0)) if delays else "-"
        columns = (
            checks & set(fault["detects"]),
            set(fault["detects"]) - checks,
            checks & set(fault["may"]),
            checks - {*fault["detects"], *fault["may"]},
        )
        detected, *others = (", ".join(f"`{name}`" for name in sorted(names)) or "-" for names in columns)
        lines.append(f"| {fault['name']} | {fault['kafka']} | {detected} | {after} | {' | '.join(others)} |")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return findings(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["logs"].partition(".")[0])
def test_a_recorded_fault_is_found_and_nothing_else(fault: dict[str, Any], found: list[dict[str, Any]]) -> None:
    checks = {finding["check_id"] for finding in found if finding["cluster"] == fault["name"]}
    assert set(fault["detects"]) <= checks
    assert checks <= {*fault["detects"], *fault["may"]}


def test_the_table_is_fresh(found: list[dict[str, Any]]) -> None:
    (text,) = MARK.findall(PAGE.read_text("utf-8"))
    assert text == table(found), "run `python tests/test_recorded_faults.py --write`"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        told = table(findings(Path(name)))
    print(told)
    if "--write" in sys.argv:
        PAGE.write_text(MARK.sub(lambda _: told, PAGE.read_text("utf-8")), "utf-8")
