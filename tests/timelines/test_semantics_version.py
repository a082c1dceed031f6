"""A change of timelines raises `SEMANTICS_VERSION`, so that the timelines of every user are rebuilt once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from test_timeline_cases import CASES, Rendering, read
from timelines import timelines_of

from jobs import errors
from jobs.nightly_audit import main
from jobs.timelines import SEMANTICS_VERSION

# {"version": of the semantics, "cases": {case: digest of its rows and of the evidence for the next run}}
DIGESTS = Path(__file__).parents[1] / "timeline_cases" / "digests.json"
SAMPLE = Path(__file__).parents[2] / "sample_logs" / "3.3.2-trace" / "delete-topic-dead-broker" / "broker-1"


def digest_of(case: Path) -> str:
    """Return the digest of the rows of a case and of all that the next run starts from."""
    _, events, _ = read(case)
    found = timelines_of(events)
    kept = [json.loads(folded.state)[1:] for _, folded in sorted(found.folded.items())]
    text = json.dumps([list(Rendering(events).of(found)), kept, found.facts.to_json()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def problems(known: dict[str, Any], cases: dict[str, str], version: int) -> list[str]:
    """Return why the digests differ from the stored ones."""
    changed = sorted(name for name, digest in cases.items() if known["cases"].get(name, digest) != digest)
    if changed and version == known["version"]:
        return [
            f"{', '.join(changed)} changed: raise SEMANTICS_VERSION in jobs/timelines/partition.py above {version}"
        ]
    if version < known["version"]:
        return [f"SEMANTICS_VERSION was {known['version']}; it never falls"]
    return []


def test_a_changed_case_raises_the_version(request: pytest.FixtureRequest) -> None:
    cases = {case.stem: digest_of(case) for case in CASES}
    if request.config.getoption("--rewrite") and not DIGESTS.is_file():
        DIGESTS.write_text(
            json.dumps({"version": SEMANTICS_VERSION, "cases": cases}, indent=1) + "\n", "utf-8"
        )
    known = json.loads(DIGESTS.read_text("utf-8"))
    assert not problems(known, cases, SEMANTICS_VERSION)
    current = {"version": SEMANTICS_VERSION, "cases": cases}
    if request.config.getoption("--rewrite"):
        DIGESTS.write_text(json.dumps(current, indent=1) + "\n", "utf-8")
    else:
        assert known == current, (
            "if cases were added or the version was raised, run `pytest --rewrite` and review the diff"
        )


def test_a_forgotten_version_is_found() -> None:
    known = {"version": 3, "cases": {"a": "1", "b": "2"}}
    assert problems(known, {"a": "1", "b": "2", "new": "3"}, 3) == []
    assert problems(known, {"a": "1", "b": "9"}, 4) == []
    (problem,) = problems(known, {"a": "1", "b": "9"}, 3)
    assert problem.startswith("b changed: raise SEMANTICS_VERSION")
    assert problems(known, {"a": "1", "b": "2"}, 2)


def test_tables_of_a_hash_are_rebuilt_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = tmp_path / "tables"
    audit = ["audit", str(SAMPLE), "--tables", str(tables), "--engine", "local"]

    def versions(table: str) -> set[str]:
        return set(DeltaTable(str(tables / table)).to_pyarrow_table()["code_version"].to_pylist())

    assert main(audit) == errors.CLEAN
    intervals = DeltaTable(str(tables / "partition_timeline")).to_pyarrow_table().num_rows
    for table in ("cluster_facts", "partition_states"):
        assert versions(table) == {str(SEMANTICS_VERSION)}
        DeltaTable(str(tables / table)).update(updates={"code_version": "'0123456789abcdef'"})
    # a row that a rebuild would remove
    DeltaTable(str(tables / "partition_timeline")).update(updates={"leader": "99"})
    assert main(audit) == errors.CLEAN
    for table in ("cluster_facts", "partition_states"):
        assert versions(table) == {str(SEMANTICS_VERSION)}
    rebuilt = DeltaTable(str(tables / "partition_timeline"))
    assert rebuilt.to_pyarrow_table().num_rows == intervals
    assert 99 not in rebuilt.to_pyarrow_table()["leader"].to_pylist()
    # the next run has nothing to rebuild
    assert main(audit) == errors.CLEAN
    assert DeltaTable(str(tables / "partition_timeline")).version() == rebuilt.version()
    capsys.readouterr()
