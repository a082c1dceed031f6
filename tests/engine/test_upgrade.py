"""Tables of earlier and of later versions: looked at as a whole, then converted or refused.

An interrupted conversion goes on.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tables import rows_of

import schemas
from jobs import errors
from jobs.engine import upgrade
from jobs.engine.delta_rs import DeltaRsTables
from jobs.engine.upgrade import REBUILDING, VERSION, Plan, Present, decide
from jobs.errors import UsageError
from jobs.nightly_audit import main
from parsers.rules import built_in

ROOT = Path(__file__).parents[2]
# tables that earlier commits wrote: of the logs of one broker each, in two clusters
EARLIER = Path(__file__).parents[1] / "earlier_tables"
# without `events.ends_file` and with timelines of other columns; without some columns and clustered; with the
# columns of version 1
COMMITS = ("d173443", "7ab00f5", "45f30f0")
# the local engine does not write what these have of Delta, whatever they were converted to
BY_SPARK = ("d173443", "7ab00f5")
DONE = (errors.CLEAN, errors.FINDINGS)
LOGS = {"first": "2.8.2-default", "second": "3.3.2-default"}
# of rows that a conversion need not give as a first run does
FREE = {
    "events": ("ends_file",),
    "findings": ("run_id", "status", "first_seen", "fingerprint", "title", "detail", "advice"),
    "partition_states": ("events_version",),
    "cluster_facts": ("events_version", "passed_over_version", "asked", "configured"),
}
DERIVED = [one.name for one in schemas.statements("tables") if one.header.get("derived") == "yes"]


def present(**others: Any) -> dict[str, Present]:
    """All tables as this version writes them, but for some."""
    found = {
        one.name: Present(
            schemas.columns(one.name),
            upgrade.properties(one.name),
            tuple(schemas.partition_columns(one.name)),
        )
        for one in schemas.statements("tables")
    }
    return {name: one for name, one in (found | others).items() if one is not None}


def without(table: str, *columns: str) -> Present:
    kinds = {name: kind for name, kind in schemas.columns(table).items() if name not in columns}
    return Present(kinds, schemas.properties(table), tuple(schemas.partition_columns(table)))


def test_tables_of_this_version_are_left_as_they_are() -> None:
    assert decide(present(), "DIR") == Plan()
    assert Plan().sentences() == []
    assert set(decide({}, "DIR").created) == set(present())


def test_tables_of_a_later_version_are_refused_as_a_whole() -> None:
    later = Present(schemas.columns("alerts"), {VERSION: str(schemas.TABLES_VERSION + 1)})
    newest = schemas.TABLES_VERSION
    complaint = rf"under DIR are of version {newest + 1} \(alerts\), this kafka-audit knows version {newest}\. Nothing was changed"
    with pytest.raises(UsageError, match=complaint):
        decide(present(alerts=later, partition_timeline=without("partition_timeline", "settled")), "DIR")


def test_what_is_derived_is_rebuilt_and_everything_else_kept() -> None:
    plan = decide(
        present(reassignments=without("reassignments", "settled"), findings=without("findings", "silence")),
        "DIR",
    )
    assert (plan.rebuilds, plan.emptied, plan.added) == (
        True,
        ("reassignments",),
        {"findings": {"silence": "STRING"}},
    )
    assert set(plan.stamped) == {"reassignments", "findings"}
    assert not plan.reread
    assert "rebuilt from events" in " ".join(plan.sentences())
    # another partitioning is another table, too
    flat = Present(schemas.columns("reassignments"), upgrade.properties("reassignments"), ())
    assert decide(present(reassignments=flat), "DIR").emptied == ("reassignments",)
    # a column of events is filled from the text of old records
    plan = decide(present(events=without("events", "elr")), "DIR")
    assert (plan.reread, plan.emptied, plan.rebuilds, plan.added) == (("events",), (), True, {})
    # counts of records are told apart by the same ids
    plan = decide(present(events=without("events", "ends_file")), "DIR")
    assert (plan.reread, plan.emptied, plan.rebuilds) == (("events",), ("passed_over",), True)


def test_an_interrupted_rebuilding_is_begun_again() -> None:
    facts = Present(
        schemas.columns("cluster_facts"), upgrade.properties("cluster_facts") | {REBUILDING: "true"}
    )
    assert decide(present(cluster_facts=facts), "DIR").rebuilds
    # events are read again until they have the version of this one
    assert decide(present(cluster_facts=facts, events=without("events")), "DIR").reread == ("events",)


def test_a_column_of_another_type_is_refused_before_anything_is_changed() -> None:
    kinds = schemas.columns("findings") | {"partition": "STRING"}
    with pytest.raises(
        UsageError,
        match=r"Table findings under DIR has partition STRING instead of INT\. Nothing was changed",
    ):
        decide(present(findings=Present(kinds, {}), reassignments=without("reassignments", "settled")), "DIR")


def test_events_of_this_version_without_a_column_are_read_again() -> None:
    """A developer has added the column without a new version: the tables say that they are of this one."""
    kinds = {name: kind for name, kind in schemas.columns("events").items() if name != "elr"}
    plan = decide(present(events=Present(kinds, upgrade.properties("events"))), "DIR")
    assert (plan.reread, plan.rebuilds, plan.older) == (("events",), True, ())


def test_the_local_engine_says_which_columns_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.engine.choice import OnlySpark
    from jobs.engine.local_store import LocalStore

    with contextlib.closing(LocalStore(tmp_path)) as tables:
        tables.open()
    word = {"invented_by_a_test": {"type": "bigint", "comment": "How long something took"}}
    known = schemas.vocabulary()
    monkeypatch.setattr(schemas, "vocabulary", lambda: known | word)
    schemas.columns.cache_clear()
    try:
        with (
            contextlib.closing(LocalStore(tmp_path)) as tables,
            pytest.raises(OnlySpark, match=r"table events under \S+ lacks the column invented_by_a_test"),
        ):
            tables.open()
    finally:
        monkeypatch.undo()
        schemas.columns.cache_clear()


# -- tables of earlier commits -------------------------------------------------------------------------------


def unpacked(commit: str, folder: Path) -> Path:
    with tarfile.open(EARLIER / f"{commit}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def logs_of(cluster: str) -> str:
    """As the archives have been written: relative to the root of the repository."""
    return f"sample_logs/{LOGS[cluster]}/delete-topic-dead-broker/broker-1"


def audit(tables: Path, cluster: str, engine: str = "local") -> int:
    """Spark is for tables that are to be converted: the local engine refuses them."""
    where = ["--tables", str(tables), "--cluster", cluster, "--engine", engine]
    return main(["audit", logs_of(cluster), *where])


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def comparable(tables: Path, names: Iterable[str]) -> dict[str, list[str]]:
    found = {}
    for name in names:
        rows = rows_of(tables, name)
        for row in rows:
            for column in FREE.get(name, ()):
                row.pop(column, None)
        found[name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of this version, of both clusters."""
    tables = tmp_path_factory.mktemp("first_run") / "tables"
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        for cluster in LOGS:
            assert audit(tables, cluster) in DONE
    return tables


COMPARED = [
    name for name in [*DERIVED, "events"] if name not in ("coverage", "cluster_facts", "partition_states")
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("commit", COMMITS)
def test_tables_of_an_earlier_version_become_those_of_a_first_run(
    commit: str,
    first_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    tables = unpacked(commit, tmp_path / "tables")
    engine = "spark" if commit in BY_SPARK else "local"
    assert audit(tables, "first", "spark") in DONE
    said = capsys.readouterr().out
    assert f"The tables were of version 0 and are of version {schemas.TABLES_VERSION} now." in said
    assert "rebuilt from events" in said
    # the other cluster is rebuilt, too, though none of its logs was read
    ours, theirs = (comparable(folder, COMPARED) for folder in (tables, first_run))
    # the oldest version took texts that a file repeats for one record: they return with their log
    assert set(ours.pop("events")) <= set(theirs["events"])
    for name, rows in ours.items():
        assert rows == theirs[name], name
    known = {row["record_id"] for row in rows_of(tables, "events")}
    assert all(known.issuperset(row["evidence"]) for row in rows_of(tables, "findings"))
    for name in present():
        assert DeltaTable(str(tables / name)).metadata().configuration[VERSION] == str(schemas.TABLES_VERSION)
    # and that is all: the next run finds nothing to convert
    assert audit(tables, "first", engine) in DONE
    assert "of version" not in capsys.readouterr().out
    assert audit(tables, "second", engine) in DONE
    assert comparable(tables, COMPARED) == theirs
    assert {row["record"] for row in rows_of(tables, "passed_over")} == {
        row["record"] for row in rows_of(first_run, "passed_over")
    }
    assert comparable(tables, ["coverage"]) == comparable(first_run, ["coverage"])


@pytest.mark.spark
def test_a_conversion_that_is_interrupted_goes_on(
    spark: Any, first_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.engine.store import Store

    class Killed(BaseException):
        pass

    tables, left = unpacked("d173443", tmp_path / "tables"), 0

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return method(*given, **named)

        return step

    with monkeypatch.context() as patched:
        for name in ("_set_properties", "_empty", "_create", "_reread", "_rename_evidence", "delete"):
            patched.setattr(Store, name, counted(getattr(Store, name)))
        killed = 0
        for allowed in (1, 3, 4, 6, 9, 14):
            left = allowed
            try:
                Store(spark, tables).open(built_in())
            except Killed:
                killed += 1
        assert killed >= 4
    monkeypatch.chdir(ROOT)
    for cluster in LOGS:
        assert audit(tables, cluster, "spark") in DONE
    assert comparable(tables, COMPARED) == comparable(first_run, COMPARED)


@pytest.mark.spark
@pytest.mark.parametrize("commit", ["d173443", "45f30f0"])
def test_what_is_refused_is_not_touched(
    commit: str,
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    tables = unpacked(commit, tmp_path / "tables")
    small = DeltaRsTables.of(tables, 1000)
    assert small is not None
    # one table of a later version among others that would be converted
    later = schemas.TABLES_VERSION + 1
    assert small.set_properties("audit_runs", {VERSION: str(later)})
    before = files_of(tables)
    assert audit(tables, "first", "spark") == errors.USAGE
    said = capsys.readouterr().err
    assert f"are of version {later} (audit_runs)" in said
    assert "Traceback" not in said
    after = {
        name: content
        for name, content in files_of(tables).items()
        if not name.startswith(("_lock", "_lease"))
    }
    assert after == before


@pytest.mark.spark
def test_alerts_leave_a_conversion_to_an_audit(spark: Any, tmp_path: Path) -> None:
    from jobs.engine.store import Store

    tables = unpacked("d173443", tmp_path / "tables")
    before = files_of(tables)
    with pytest.raises(UsageError, match="Run `kafka-audit audit` first"):
        Store(spark, tables).open(rebuilds=False)
    assert files_of(tables) == before
