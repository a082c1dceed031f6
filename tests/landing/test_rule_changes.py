"""Rules that change: what is in `events` says what it says by the new ones, and the tables are those of a
first run with them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from envelopes import ENVELOPES as WRAPPED
from logs import configuration
from tables import rows_of
from test_envelopes import PLAIN
from test_updates import rows as rows_by_table

from jobs import errors
from jobs.commands import audit
from jobs.engine.local_store import LocalStore
from jobs.engine.store import Store
from jobs.landing import rereading
from jobs.landing.events import events_of
from jobs.nightly import updates
from jobs.nightly_audit import main
from parsers.events import EVENTS
from parsers.rules import RuleSet, built_in

SAMPLES = Path(__file__).parents[2] / "sample_logs"
RECORDINGS = (
    "3.9.1-kraft/controller-failover",
    "3.3.2-trace/delete-topic-dead-broker",
    "2.5.1-default/delete-topic",
)
TOLD = (errors.CLEAN, errors.FINDINGS, errors.INPUT)
# the same logs as a collector hands them on
ENVELOPES: dict[str, Callable[[str], str]] = {
    "prefix": lambda line: f"app_kafka.1.x2v@node-1    | {line}",
    "json": lambda line: json.dumps(
        {"log": line + "\n", "stream": "stdout", "time": "2026-11-20T10:00:00.0Z"}
    ),
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Cluster -> folder with its logs: some recordings, and the first one in envelopes."""
    found = {name.replace("/", "-"): SAMPLES / name for name in RECORDINGS}
    for name, wrap in ENVELOPES.items():
        folder = tmp_path_factory.mktemp(name)
        for log in sorted((SAMPLES / RECORDINGS[1]).glob("*/*.log")):
            target = folder / log.parent.name / log.name
            target.parent.mkdir(exist_ok=True)
            target.write_text("".join(wrap(line) + "\n" for line in log.read_text().splitlines()))
        found[name] = folder
    return found


def subset(chance: random.Random, share: float) -> RuleSet:
    """Some of the rules; of others with another pattern, meaning, or beginning."""
    rules = []
    for rule in built_in().rules:
        if chance.random() < share:
            changed, other = chance.random(), rule
            if changed < 0.05:
                other = replace(rule, pattern="(?!)")
            elif changed < 0.1:
                other = replace(rule, pattern=rule.pattern.replace("?<broker>", "?<replica>"))
            elif changed < 0.15:
                other = replace(rule, implies={}, keeps=())
            rules.append(other)
    return replace(built_in(), rules=tuple(rules))


def run(root: Path, clusters: dict[str, Path], tables: Path, rules: RuleSet, engine: str = "local") -> int:
    config = configuration(root / "audit.toml", clusters)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit, "ruleset_of", lambda site: rules)
        return main(["audit", "--config", str(config), "--tables", str(tables), "--engine", engine])


def stored_rows(tables: Path) -> dict[Any, list[str]]:
    """Return the rows of the tables, and the unresolved findings, without columns that differ between runs."""
    found: dict[Any, list[str]] = dict(rows_by_table(tables))
    for row in rows_of(tables, "findings"):
        if row["status"] != "resolved":
            shown = {
                name: row[name]
                for name in ("cluster", "check_id", "fingerprint", "title", "detail", "evidence")
            }
            found.setdefault((row["cluster"], "findings"), []).append(json.dumps(shown, sort_keys=True))
    return {key: sorted(rows) for key, rows in found.items()}


def unlike(got: dict[Any, list[str]], expected: dict[Any, list[str]]) -> dict[Any, Any]:
    return {
        key: (sorted(set(got.get(key, [])) - set(expected.get(key, [])))[:2], sorted(set(expected.get(key, [])) - set(got.get(key, [])))[:2])
        for key in sorted(got.keys() | expected.keys())
        if got.get(key) != expected.get(key)
    }  # fmt: skip


@pytest.fixture(scope="module")
def first_run(clusters: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[str]]:
    root = tmp_path_factory.mktemp("first")
    assert run(root, clusters, root / "tables", built_in()) in TOLD
    return stored_rows(root / "tables")


@pytest.mark.parametrize("seed", range(4))
def test_other_rules_give_the_tables_of_a_first_run(
    seed: int,
    clusters: dict[str, Path],
    first_run: dict[Any, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(seed)
    tables = tmp_path / "tables"
    for share in ([0.5], [0.9], [0.2, 0.8], [1.0])[seed]:
        run(tmp_path, clusters, tables, subset(chance, share))
    capsys.readouterr()
    assert run(tmp_path, clusters, tables, built_in()) in TOLD
    assert "The rules have changed: " in capsys.readouterr().out
    assert unlike(stored_rows(tables), first_run) == {}
    assert run(tmp_path, clusters, tables, built_in()) in TOLD
    assert "The rules have changed" not in capsys.readouterr().out
    assert unlike(stored_rows(tables), first_run) == {}


def test_fewer_rules_give_the_tables_of_a_first_run(clusters: dict[str, Path], tmp_path: Path) -> None:
    """Records of loggers that no rule is about any more are counted and no longer stored."""
    fewer = subset(random.Random(7), 0.6)
    for rules in (built_in(), fewer):
        run(tmp_path, clusters, tmp_path / "tables", rules)
    run(tmp_path, clusters, tmp_path / "expected", fewer)
    assert unlike(stored_rows(tmp_path / "tables"), stored_rows(tmp_path / "expected")) == {}


def power_cut(*_: object, **__: object) -> None:
    raise RuntimeError("power cut")


@pytest.mark.parametrize("where", ["merge", "noted", "landed", "timelines"])
def test_an_interrupted_run_is_completed(
    where: str,
    clusters: dict[str, Path],
    first_run: dict[Any, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = tmp_path / "tables"
    run(tmp_path, clusters, tables, subset(random.Random(11), 0.5))
    merge = LocalStore._merge_changes

    def merged(store: LocalStore, changes: Any) -> None:
        merge(store, changes)
        power_cut()

    with monkeypatch.context() as patched:
        if where == "merge":
            patched.setattr(LocalStore, "_merge_changes", power_cut)
        elif where == "noted":
            patched.setattr(LocalStore, "_merge_changes", merged)
        elif where == "landed":
            patched.setattr(LocalStore, "drop_skipped", power_cut)
        else:
            patched.setattr(updates, "_write", power_cut)
        assert run(tmp_path, clusters, tables, built_in()) == errors.INTERNAL
    assert run(tmp_path, clusters, tables, built_in()) in TOLD
    assert unlike(stored_rows(tables), first_run) == {}


def test_clusters_that_are_not_given_are_rebuilt_too(
    clusters: dict[str, Path],
    first_run: dict[Any, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only patterns change: whatever is out of scope stays so."""
    tables, one = tmp_path / "tables", next(iter(clusters))
    chance = random.Random(3)
    torn = replace(
        built_in(),
        rules=tuple(
            replace(rule, pattern="(?!)") if chance.random() < 0.5 else rule for rule in built_in().rules
        ),
    )
    run(tmp_path, clusters, tables, torn)
    capsys.readouterr()
    assert run(tmp_path, {one: clusters[one]}, tables, built_in()) in TOLD
    assert "rebuild other clusters" in capsys.readouterr().err
    derived = {key: rows for key, rows in stored_rows(tables).items() if key[1] != "findings"}
    assert unlike(derived, {key: rows for key, rows in first_run.items() if key[1] != "findings"}) == {}


def test_logs_of_loggers_that_were_out_of_scope_are_asked_for(
    clusters: dict[str, Path],
    first_run: dict[Any, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables, one = tmp_path / "tables", "2.5.1-default-delete-topic"
    some = {one: clusters[one]}
    without = replace(
        built_in(),
        rules=tuple(
            rule for rule in built_in().rules if "kafka.controller.KafkaController" not in rule.loggers
        ),
    )
    assert "KafkaController" not in {logger for rule in without.rules for logger in rule.loggers}
    run(tmp_path, some, tables, without)
    assert any(row["logger"] == "kafka.controller.KafkaController" for row in rows_of(tables, "passed_over"))
    empty = tmp_path / "others"
    empty.mkdir()
    (empty / "controller.log").write_text(
        "[2026-11-20 10:00:00,000] INFO [Controller id=1] Shutdown completed (kafka.controller.KafkaController)\n"
    )
    capsys.readouterr()
    run(tmp_path, {"others": empty}, tables, built_in())
    said = capsys.readouterr().out
    assert " records of loggers that are in scope now (kafka." in said
    assert "were not stored: give their logs again." in said
    run(tmp_path, some, tables, built_in())
    assert not any(
        row["logger"] == "kafka.controller.KafkaController" for row in rows_of(tables, "passed_over")
    )
    mine = {key: rows for key, rows in stored_rows(tables).items() if key[0] == one}
    assert unlike(mine, {key: rows for key, rows in first_run.items() if key[0] == one}) == {}


@pytest.mark.spark
def test_spark_applies_other_rules_as_well(
    spark: Any,
    clusters: dict[str, Path],
    first_run: dict[Any, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables, rules = tmp_path / "tables", subset(random.Random(5), 0.6)
    assert run(tmp_path, clusters, tables, rules, "local") in TOLD
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_merge_changes", power_cut)
        assert run(tmp_path, clusters, tables, built_in(), "spark") == errors.INTERNAL
    assert run(tmp_path, clusters, tables, built_in(), "spark") in TOLD
    assert unlike(stored_rows(tables), first_run) == {}


def sorted_rows(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: (row["record_no"], row["record_id"], row["item"]))


LONG = f"[2026-11-20 10:09:12,175] INFO [Controller id=4 epoch=5] {'x' * 1_100_000} (state.change.logger)"


@pytest.mark.parametrize("name", [*WRAPPED, "layouts"])
def test_a_record_is_read_again_out_of_its_envelope(name: str, tmp_path: Path) -> None:
    """From any envelope, in any layout, cut or not: rules that were missing give the events of a first run."""
    torn = replace(built_in(), rules=tuple(replace(rule, pattern="(?!)") for rule in built_in().rules))
    if name == "layouts":
        for layout in built_in().layouts:
            for number, sample in enumerate(layout.samples):
                (tmp_path / f"{layout.name}-{number}.log").write_text(f"{sample['line']}\n" * 3)
    else:
        (tmp_path / "controller.log").write_text("\n".join(WRAPPED[name]([*PLAIN, LONG, PLAIN[-1]])) + "\n")
    before, after = (events_of([str(tmp_path)], ruleset=rules) for rules in (torn, built_in()))
    assert before["event_type"].null_count == before.num_rows > 0
    before = before.sort_by([(one, "ascending") for one in rereading.IN_ORDER])
    found = pa.Table.from_batches(rereading.changes(before.to_batches(100), built_in()), rereading.CHANGES)
    assert set(found[rereading.CHANGE].to_pylist()) == {rereading.SET}
    changed = {(row["record_id"], row["item"]) for row in found.to_pylist()}
    stay = [row for row in before.to_pylist() if (row["record_id"], row["item"]) not in changed]
    rows = pa.concat_tables([pa.Table.from_pylist(stay, EVENTS), found.select(EVENTS.names)])
    assert sorted_rows(rows) == sorted_rows(after)
    # and nothing is left to change
    again = rows.sort_by([(one, "ascending") for one in rereading.IN_ORDER])
    assert not list(rereading.changes(again.to_batches(), built_in()))


def test_event_types_that_a_change_of_rules_concerns() -> None:
    before = rereading.versions(built_in())
    assert rereading.concerned(before, built_in()) == set()
    rule = next(rule for rule in built_in().rules if rule.name == "replica_state_changed")
    other = replace(
        built_in(), rules=(replace(rule, says="is"), *(one for one in built_in().rules if one != rule))
    )
    assert rule.name in rereading.concerned(before, other)
    without = replace(built_in(), rules=tuple(one for one in built_in().rules if one != rule))
    assert rereading.concerned(before, without) == {rule.name}
    assert rule.name in rereading.concerned(rereading.versions(without), built_in())


def test_the_rules_are_noted_with_the_tables(clusters: dict[str, Path], tmp_path: Path) -> None:
    run(tmp_path, {"c": clusters["2.5.1-default-delete-topic"]}, tmp_path / "tables", built_in())
    noted = LocalStore(tmp_path / "tables")._noted()
    assert json.loads(noted["kafka_audit.rules"]) == rereading.versions(built_in())
