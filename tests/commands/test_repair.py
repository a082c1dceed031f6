"""Damaged tables: an audit names them and the command.

`repair` rebuilds what it can and reports what was lost.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from tables import rows_of
from test_engine import ROOT, WITHOUT_SPARK

import schemas
from jobs import errors
from jobs.commands import repair
from jobs.engine import damage, upgrade
from jobs.engine.damage import LOG
from jobs.engine.lease import State, commits_of
from jobs.nightly_audit import main

LOGS = Path(__file__).parents[2] / "sample_logs" / "2.8.2-default" / "delete-topic-dead-broker"
Damage = Callable[[Path], None]


def commits(table: Path) -> list[Path]:
    return sorted((table / LOG).glob("*.json"))


def data(table: Path) -> Path:
    """Return the largest file with rows."""
    return max(map(Path, DeltaTable(str(table)).file_uris()), key=lambda path: path.stat().st_size)


def with_checkpoint(table: Path) -> Path:
    """Move the first commits of a table into a checkpoint, as Delta does after some days.

    Return the checkpoint.
    """
    opened = DeltaTable(str(table))
    opened.create_checkpoint()
    for commit in commits(table):
        commit.unlink()
    return next((table / LOG).glob("*.checkpoint.parquet"))


def overwrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    # Hadoop's check sum, if Spark has written the file
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def truncated(path: Path) -> None:
    overwrite(path, path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    """Overwrite a file with as many bytes of garbage."""
    overwrite(path, b"\x00\x17" * (path.stat().st_size // 2) + b"\x00" * (path.stat().st_size % 2))


FILES: dict[str, Damage] = {
    "data file deleted": lambda table: data(table).unlink(),
    "data file truncated": lambda table: truncated(data(table)),
    "data file is garbage": lambda table: garbage(data(table)),
    "data file is empty": lambda table: overwrite(data(table), b""),
}
LOGGED: dict[str, Damage] = {
    "last commit truncated": lambda table: truncated(commits(table)[-1]),
    "last commit is garbage": lambda table: garbage(commits(table)[-1]),
    "last commit is empty": lambda table: overwrite(commits(table)[-1], b""),
    "last commit deleted": lambda table: commits(table)[-1].unlink(),
    "first commit deleted": lambda table: commits(table)[0].unlink(),
    "first commit is garbage": lambda table: garbage(commits(table)[0]),
    "log deleted": lambda table: shutil.rmtree(table / LOG),
    "log is empty": lambda table: [path.unlink() for path in (table / LOG).iterdir()] and None,
    "checkpoint deleted": lambda table: with_checkpoint(table).unlink(),
    "checkpoint truncated": lambda table: truncated(with_checkpoint(table)),
    "checkpoint is garbage": lambda table: garbage(with_checkpoint(table)),
}
DELETED: dict[str, Damage] = {"table deleted": shutil.rmtree}
DAMAGES = FILES | LOGGED | DELETED
# tables that cannot be derived and have rows in these tests
KEPT = ("events", "passed_over", "findings", "finding_subjects", "audit_runs")
DERIVED = [
    one.name
    for one in schemas.statements("tables")
    if one.header.get("derived") == "yes" and one.name not in damage.REMADE
]
# a table of each kind meets all damages; the same code looks at the others, which meet some of each sort
SOME = ("data file truncated", "data file is garbage", "last commit deleted", "log deleted", "table deleted")
# columns of rows that are rebuilt
OF_RUN = {"findings": ("run_id", "status"), "partition_states": ("events_version",), "events": ("ends_file",)}


def met(names: Iterable[str], by_all: Iterable[str]) -> list[tuple[str, str]]:
    """Return (table, damage). by_all: the tables that meet all damages."""
    return [(name, what) for name in names for what in (DAMAGES if name in by_all else SOME)]


def audit(tables: Path, *nodes: int, engine: str = "local") -> int:
    logs = [str(LOGS / f"broker-{node}") for node in nodes]
    where = ["--tables", str(tables), "--cluster", "c", "--engine", engine]
    return main(["audit", *logs, *where, "--fail-on", "critical"])


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tables of two runs, which are not damaged."""
    tables = tmp_path_factory.mktemp("audited") / "tables"
    assert audit(tables, 1) == errors.CLEAN
    assert audit(tables, 1, 2, 3) == errors.CLEAN
    assert examined(tables) == {}
    return tables


@pytest.fixture
def tables(audited: Path, tmp_path: Path) -> Path:
    shutil.copytree(audited, tmp_path / "tables")
    return tmp_path / "tables"


def texts(tables: Path, name: str) -> list[str]:
    rows = rows_of(tables, name)
    for row in rows:
        for column in OF_RUN.get(name, ()):
            row.pop(column, None)
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def examined(tables: Path, *, thorough: bool = True) -> dict[str, list[str]]:
    versions = State.of(commits_of(str(tables)).last()[1]).versions
    return damage.examined(str(tables), versions=versions, thorough=thorough)


@pytest.mark.parametrize(
    ("name", "what"),
    met([*KEPT, "partition_timeline", "coverage", "durability"], ("events", "partition_timeline")),
)
def test_each_damage_is_found_in_its_table(tables: Path, name: str, what: str) -> None:
    DAMAGES[what](tables / name)
    found = examined(tables)
    assert list(found) == [name]
    assert found[name]
    with pytest.raises(
        damage.DamageError, match=rf"table {name} is damaged \(.*\)\. Run `kafka-audit repair --tables"
    ) as raised:
        damage.refuse(tables, versions=State.of(commits_of(str(tables)).last()[1]).versions, thorough=True)
    assert raised.value.exit_code == errors.USAGE
    assert "\n" not in str(raised.value)
    # before a run writes, a file of the right length is opened only if the run before has failed
    assert bool(examined(tables, thorough=False)) == (what != "data file is garbage")


@pytest.mark.parametrize(("name", "what"), met(KEPT, ("events", "findings")))
def test_rows_that_can_be_read_are_kept(tables: Path, name: str, what: str) -> None:
    before = texts(tables, name)
    DAMAGES[what](tables / name)
    (repaired,) = repair._repair(tables, examined(tables))
    assert damage.examined(str(tables), thorough=True) == {}
    left = texts(tables, name)
    assert set(left) <= set(before)
    assert repaired.kept == len(left)
    assert name in repaired.sentence()
    if what in LOGGED:
        assert left == before
        assert "log" in repaired.sentence()
    else:
        assert len(left) < len(before)
        assert "lost" in repaired.sentence()
        assert repair.LOSSES[name] in repaired.sentence()
    # cluster_facts is moved away, the damaged table is still there
    assert not (tables / upgrade.FACTS).exists()
    assert what.endswith("file deleted") or what in DELETED or any((tables / repair.ASIDE).glob(f"{name}.*"))
    assert DeltaTable(str(tables / name)).metadata().configuration.items() >= upgrade.properties(name).items()


def test_several_damages_are_all_repaired(tables: Path) -> None:
    before = texts(tables, "findings")
    shutil.rmtree(tables / "findings" / LOG)
    shutil.rmtree(tables / "coverage")
    data(tables / "events").unlink()
    assert set(examined(tables)) == {"findings", "coverage", "events"}
    sentences = [one.sentence() for one in repair._repair(tables, examined(tables))]
    assert [one.split()[0] for one in sentences] == ["coverage", "events", "findings"]
    assert "rebuilt from events" in sentences[0]
    assert texts(tables, "findings") == before


def test_a_truncated_record_is_not_kept_beside_the_whole_one(tables: Path) -> None:
    rows = [row for row in rows_of(tables, "events") if row["item"] == 0 and row["ts"]]
    whole = max(rows, key=lambda row: len(row["raw"]))
    path = str(tables / "events")
    table = DeltaTable(path).to_pyarrow_table()
    place = table["record_id"].to_pylist().index(whole["record_id"])
    cut = table.slice(place, 1).to_pylist()[0] | {
        "record_id": "cut",
        "item": 0,
        "raw": whole["raw"][:-5],
        "ends_file": True,
    }
    write_deltalake(path, type(table).from_pylist([cut], schema=table.schema), mode="append")
    before = len(rows_of(tables, "events"))
    shutil.rmtree(tables / "events" / LOG)
    repair._repair(tables, examined(tables))
    assert len(rows_of(tables, "events")) == before - 1
    assert "cut" not in {row["record_id"] for row in rows_of(tables, "events")}


def test_tables_that_a_first_run_has_not_created_are_no_damage(tables: Path) -> None:
    for name in damage.REMADE:
        shutil.rmtree(tables / name)
    assert examined(tables) == {}
    # the first run ended while it created them
    for path in tables.iterdir():
        if path.name != "alerts":
            shutil.rmtree(path)
    assert damage.examined(str(tables)) == {}
    assert damage.examined(str(tables / "nowhere")) == {}


# damaged tables, and the engine of the audits; all repairs rebuild on the local engine. Garbage of the right length is
# found only where it is read, so it is alone
END_TO_END = [
    ({"events": "log deleted", "findings": "last commit is garbage"}, "spark"),
    (
        {
            "events": "data file deleted",
            "findings": "data file deleted",
            "partition_timeline": "data file truncated",
        },
        "local",
    ),
    ({"coverage": "data file is garbage"}, "local"),
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("damages", "engine"), END_TO_END, ids=[", ".join(damages) for damages, _ in END_TO_END]
)
def test_an_audit_names_the_command_and_works_after_it(
    audited: Path, tables: Path, damages: dict[str, str], engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, what in damages.items():
        DAMAGES[what](tables / name)
    before = {path: path.read_bytes() for path in sorted(tables.rglob("*")) if path.is_file()}
    assert audit(tables, 1, 2, 3, engine=engine) == errors.USAGE
    output = capsys.readouterr().err
    assert "error: table " in output
    assert all(f"table {name} is damaged (" in output for name in damages)
    assert f"Run `kafka-audit repair --tables {tables}`" in output
    assert "Traceback" not in output
    if "data file is garbage" not in damages.values():
        after = {
            path: path.read_bytes()
            for path in sorted(tables.rglob("*"))
            if path.is_file() and "_lease" not in path.parts
        }
        assert after == {path: content for path, content in before.items() if "_lease" not in path.parts}
    assert main(["repair", "--tables", str(tables)]) == errors.CLEAN
    output = capsys.readouterr().out
    assert all(f"{name} (" in output for name in damages)
    assert "All tables can be read." in output
    assert "rebuilt from events" in output
    assert audit(tables, 1, 2, 3, engine=engine) == errors.CLEAN
    are_lost = damages.get("findings") == "data file deleted"
    of_findings = () if are_lost else ("findings", "finding_subjects")
    for other in ["events", "passed_over", *of_findings, *DERIVED]:
        assert texts(tables, other) == texts(audited, other), other
    assert damage.examined(str(tables), thorough=True) == {}
    capsys.readouterr()
    assert main(["repair", "--tables", str(tables)]) == errors.CLEAN
    assert capsys.readouterr().out == "No table is damaged.\n"


def test_a_repair_needs_no_java(tables: Path, tmp_path: Path) -> None:
    DAMAGES["log deleted"](tables / "events")
    environment = dict.fromkeys(("PATH", "JAVA_HOME", "HOME"), str(tmp_path))
    # pyarrow asks whether pandas is there
    environment |= {"PYTHONPATH": str(ROOT), "MAY_BE_TRIED": "pandas"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "repair", "--tables", str(tables)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == errors.CLEAN, done.stderr
    assert "were rebuilt from events" in done.stdout


def test_what_was_lost_is_said_before_tables_are_rebuilt(
    tables: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rebuilding may fail, and the next repair finds nothing damaged any more."""

    def fails(*_: object) -> None:
        raise errors.UsageError("no memory")

    DAMAGES["data file deleted"](tables / "findings")
    monkeypatch.setattr("jobs.rebuilding.rebuild", fails)
    assert main(["repair", "--tables", str(tables)]) == errors.USAGE
    assert f"are lost: {repair.LOSSES['findings']}" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["last commit is garbage", "data file truncated", "data file is garbage"])
@pytest.mark.parametrize("command", [["findings"], ["sql", "SELECT max(title) FROM findings"]])
def test_a_reading_command_names_the_command(
    tables: Path, what: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[what](tables / "findings")
    assert main([*command, "--tables", str(tables)]) == errors.USAGE
    output = capsys.readouterr().err
    assert "table findings is damaged (" in output
    assert f"Run `kafka-audit repair --tables {tables}`" in output


def test_a_wrong_query_is_no_damage(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "SELECT nothing FROM findings", "--tables", str(tables)]) == errors.USAGE
    assert "damaged" not in capsys.readouterr().err


def test_each_table_that_cannot_be_derived_has_one_list_of_keys() -> None:
    """The contract's key, or where there is none, the columns in `repair.KEYLESS`."""
    of_contracts = {table for table, contract in schemas.contracts().items() if contract.key}
    assert repair.KEYLESS.keys() | of_contracts >= repair.LOSSES.keys()
    assert not repair.KEYLESS.keys() & of_contracts
