"""Every check on short logs that raise it, and on logs that nearly do: folders `scenarios/<check>/raises*`
and `silent*`.

`scenarios/<check>/expected.jsonl` has the findings; `pytest --rewrite` writes it. All scenarios of the
selected tests are clusters of one run, so `pytest tests/checking/test_scenarios.py -k broker_down` audits
those of one check. `scenarios/<check>/settings.toml` is part of the run's audit.toml.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence import out_of_order
from tables import rows_of

import schemas
from jobs import errors
from jobs.checking import checks
from jobs.engine.database import Database
from jobs.engine.queries import InSpark
from jobs.nightly_audit import main

SCENARIOS = Path(__file__).parents[1] / "scenarios"
SHOWN = (
    "cluster",
    "check_id",
    "severity",
    "status",
    "topic",
    "partition",
    "replica",
    "node",
    "title",
    "detail",
    "advice",
)


@pytest.fixture(scope="module")
def checked() -> dict[str, Any]:
    """Return what the run over all scenarios passes to its checks, and what violates them; `found` fills it."""
    return {}


def selected(request: pytest.FixtureRequest) -> set[str]:
    """Return the checks whose scenarios the selected tests need; all of them if a test is about all checks."""
    of_module = [
        item
        for item in request.session.items
        if item.path == request.path and "found" in getattr(item, "fixturenames", ())
    ]
    checks_of = {item.callspec.params.get("check") for item in of_module}
    return (
        {path.name for path in SCENARIOS.iterdir() if path.is_dir()}
        if None in checks_of
        else set(filter(None, checks_of))
    )


@pytest.fixture(scope="module", params=["spark", "local"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def found(
    request: pytest.FixtureRequest,
    engine: str,
    checked: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[dict[str, Any]]]:
    """Return the findings in the scenarios of each selected check."""
    if engine == "spark":
        request.getfixturevalue("spark")
    folder = tmp_path_factory.mktemp("scenarios")
    names = selected(request)
    register, violations = checks.register, checks.violations

    def registered(queries: Any, *frames: Any, **settings: Any) -> None:
        register(queries, *frames, **settings)
        checked.update(queries=queries, frames=frames, settings=settings, tables=tables)

    def violated(queries: Any, given: Any) -> checks.Violations:
        checked.update(given=given, violations=violations(queries, given))
        return checked["violations"]

    blocks = [
        f"[[cluster]]\nname = {json.dumps(f'{logs.parent.name}/{logs.name}')}\nlogs = [{json.dumps(str(logs))}]\n"
        for logs in sorted(SCENARIOS.glob("*/*/"))
        if logs.parent.name in names
    ]
    settings = [
        path.read_text("utf-8")
        for path in sorted(SCENARIOS.glob("*/settings.toml"))
        if path.parent.name in names
    ]
    (folder / "audit.toml").write_text("\n".join([*blocks, *settings]))
    report, tables = folder / "report.html", folder / "tables"
    with pytest.MonkeyPatch.context() as noted:
        noted.setattr(checks, "register", registered)
        noted.setattr(checks, "violations", violated)
        audit = [
            "audit",
            "--config",
            str(folder / "audit.toml"),
            "--tables",
            str(tables),
            "--report",
            str(report),
        ]
        code = main([*audit, "--engine", engine])
    assert code in (errors.CLEAN, errors.FINDINGS)
    # some 230 clusters: the space for findings is fixed, and each cluster has a table of its files
    assert report.stat().st_size < 3_000_000
    by_check = defaultdict(list)
    rows = rows_of(tables, "findings")
    rows.sort(
        key=lambda row: (
            row["cluster"],
            row["check_id"],
            row["title"],
            str(row["first_seen"] or ""),
            row["fingerprint"],
        )
    )
    titles = {row["fingerprint"]: row["title"] for row in rows}
    for row in rows:
        check = row["cluster"].split("/")[0]
        by_check[check].append(
            {name: row[name] for name in SHOWN} | {"caused_by": titles.get(row["caused_by"])}
        )
    return by_check


def test_every_check_has_scenarios() -> None:
    folders = {path.parent.name for path in SCENARIOS.glob("*/raises")} & {
        path.parent.name for path in SCENARIOS.glob("*/silent")
    }
    assert {check.name for check in schemas.statements("checks")} == folders


def test_a_check_that_needs_logs_has_those_of_one_node_alone() -> None:
    """A conclusion from absence may be false if the logs of other nodes are missing."""
    known = {path.parent.name for path in SCENARIOS.glob("*/*one-node-of-three")}
    assert {check.name for check in schemas.statements("checks") if check.needs.kinds != ("lines",)} <= known


@pytest.mark.spark
@pytest.mark.parametrize("check", sorted(path.name for path in SCENARIOS.iterdir() if path.is_dir()))
def test_a_check_reports_its_cases_only(
    check: str, found: dict[str, list[dict[str, Any]]], expect: Any
) -> None:
    raised = {finding["cluster"] for finding in found[check] if finding["check_id"] == check}
    expected = {f"{check}/{logs.name}" for logs in (SCENARIOS / check).glob("raises*")}
    assert not (expected - raised), f"{check} did not raise in {', '.join(sorted(expected - raised))}"
    assert not (raised - expected), f"{check} raised in {', '.join(sorted(raised - expected))}"
    assert all(len(finding["title"]) <= 80 for finding in found[check])
    expect(SCENARIOS / check / "expected.jsonl", found[check])


@pytest.mark.spark
def test_evidence_is_in_the_order_of_time(
    found: dict[str, list[dict[str, Any]]], checked: dict[str, Any]
) -> None:
    """Every finding in every scenario quotes its earliest record first."""
    assert found
    assert list(out_of_order(checked["tables"])) == []


@pytest.mark.spark
def test_findings_and_durability_report_the_same_losses(
    found: dict[str, list[dict[str, Any]]], checked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the same unclean elections and lost records, by topic and by partition."""
    assert found
    tables = checked["tables"]
    elections = {
        row["fingerprint"]
        for row in rows_of(tables, "findings")
        if (row["check_id"], row["severity"]) == ("unclean_election", "error")
    }
    by_findings = Counter(
        (row["cluster"], row["topic"])
        for row in rows_of(tables, "finding_subjects")
        if row["fingerprint"] in elections
    )
    assert sum(by_findings.values()) == 3
    by_days: Counter[tuple[str, str]] = Counter()
    lost: dict[tuple[str, str], int] = {}
    for row in rows_of(tables, "durability"):
        key = row["cluster"], row["topic"]
        by_days[key] += row["unclean_elections"]
        if row["records_lost"] is not None:
            lost[key] = lost.get(key, 0) + row["records_lost"]
    assert +by_days == by_findings
    assert lost[("data_at_risk/silent-unclean", "lossy")] == 10
    details = {
        row["cluster"]: row["detail"]
        for row in rows_of(tables, "findings")
        if row["fingerprint"] in elections
    }
    for (cluster, topic), records in lost.items():
        assert f"Lost: at least {records} records" in details[cluster], (cluster, topic)
    capsys.readouterr()
    assert main(["durability", "lossy", "--partitions", "--json", "--tables", str(tables)]) == errors.CLEAN
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    mine = [row for row in shown if row["cluster"] == "data_at_risk/silent-unclean"]
    assert [(row["partition"], row["unclean_elections"], row["records_lost"]) for row in mine] == [
        (0, 1, 10),
        (1, 0, None),
    ]


def emptied(check: schemas.Statement) -> schemas.Statement:
    """Return the check without rows in its candidates."""
    sql = check.sql
    for name in check.listed("candidates"):
        whole = check.part(name).removesuffix(f"\n) SELECT * FROM {name}")
        begin = whole.index(f" {name} AS (\n") + len(f" {name} AS (\n")
        sql = sql.replace(whole[begin:], f"SELECT * FROM (\n{whole[begin:]}\n) WHERE false")
    return replace(check, sql=sql)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_a_check_without_candidates_finds_nothing(
    found: dict[str, list[dict[str, Any]]], checked: dict[str, Any]
) -> None:
    """A check without candidates is not run; over all scenarios it would find nothing."""
    some = [check for check in schemas.statements("checks") if check.header.get("candidates")]
    assert {finding["check_id"] for check in some for finding in found[check.name]} >= {
        check.name for check in some
    }
    assert (
        checked["queries"].rows(
            *(f"SELECT check_id FROM (\n{checks._select(emptied(check))}\n)" for check in some)
        )
        == []
    )


@pytest.fixture
def quick_spark(spark: Any) -> Iterator[Any]:
    """Return Spark without what takes longer than few rows: plans that change after each stage, many tasks."""
    quick = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    before = {name: spark.conf.get(name) for name in quick}
    for name, value in quick.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_spark_finds_the_same_as_the_local_engine(
    quick_spark: Any, found: dict[str, list[dict[str, Any]]], checked: dict[str, Any]
) -> None:
    """All checks over the same frames: what many rows are asked in tells what few are asked in."""
    assert isinstance(checked["queries"], Database)
    queries = InSpark(quick_spark)
    checks.register(queries, *checked["frames"], **checked["settings"])
    assert checks.present(queries) <= checked["given"]
    of_spark_run = checks.violations(queries, checked["given"])
    assert (of_spark_run.failed, checked["violations"].failed) == ({}, {})

    def comparable(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(repr(row | {"subjects": sorted(map(repr, row["subjects"] or []))}) for row in rows)

    of_spark, of_duckdb = (
        Counter(comparable(of_spark_run.rows)),
        Counter(comparable(checked["violations"].rows)),
    )
    assert list((of_spark - of_duckdb).elements()) == list((of_duckdb - of_spark).elements()) == []
