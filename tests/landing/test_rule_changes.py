"""Rules that change: what is in `events` says what it says by the new ones, and the tables are those of a
first run with them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
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
from jobs.batches import rereading
from jobs.commands import audit
from jobs.engine.local_store import LocalStore
from jobs.engine.store import Store
from jobs.landing.new_records import events_of
from jobs.nightly import updates
from jobs.nightly_audit import main
from parsers.events import EVENTS
from parsers.rules import RuleSet, built_in

SAMPLES = Path(__file__).parents[2] / "sample_logs"
# cluster -> folders of the nodes whose logs it is given: a controller of each mode, and another node
RECORDED = {
    "kraft": ("3.9.1-kraft/controller-failover/node-103", "3.9.1-kraft/controller-failover/node-2"),
    "zookeeper": ("2.5.1-default/delete-topic/broker-1",),
}
TOLD = (errors.CLEAN, errors.FINDINGS, errors.INPUT)
# nodes of a third cluster, whose logs are as a collector hands them on -> their envelope
WRAPPED_NODES = "3.3.2-trace/delete-topic-dead-broker"
ENVELOPES: dict[str, Callable[[str], str]] = {
    "broker-2": lambda line: f"app_kafka.1.x2v@node-1    | {line}",
    "broker-3": lambda line: json.dumps(
        {"log": line + "\n", "stream": "stdout", "time": "2026-11-20T10:00:00.0Z"}
    ),
}
Clusters = Mapping[str, Sequence[Path]]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Clusters:
    """Cluster -> folders with its logs: some nodes of recordings, and others in envelopes."""
    folder = tmp_path_factory.mktemp("wrapped")
    for node, wrap in ENVELOPES.items():
        for log in sorted((SAMPLES / WRAPPED_NODES / node).glob("*.log")):
            target = folder / node / log.name
            target.parent.mkdir(exist_ok=True)
            target.write_text("".join(wrap(line) + "\n" for line in log.read_text().splitlines()))
    recorded = {name: [SAMPLES / node for node in nodes] for name, nodes in RECORDED.items()}
    return {**recorded, "wrapped": [folder]}


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


def other_patterns(chance: random.Random) -> RuleSet:
    """All rules, but half of them match nothing, and others give another column.

    The scope and the columns that timelines keep are the same, so that only changed records show what has to be
    rebuilt.
    """
    return replace(
        built_in(),
        rules=tuple(
            replace(
                rule,
                pattern="(?!)" if chance.random() < 0.5 else rule.pattern.replace("?<broker>", "?<replica>"),
            )
            for rule in built_in().rules
        ),
    )


def without_loggers(ruleset: RuleSet, *loggers: str) -> RuleSet:
    """Return the rules that are about none of some loggers."""
    return replace(
        ruleset, rules=tuple(rule for rule in ruleset.rules if not set(loggers).intersection(rule.loggers))
    )


def run(root: Path, clusters: Clusters, tables: Path, rules: RuleSet, engine: str = "local") -> int:
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
def first_tables(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tables of a first run with the built-in rules; tests change copies of them."""
    root = tmp_path_factory.mktemp("first")
    assert run(root, clusters, root / "tables", built_in()) in TOLD
    return root / "tables"


@pytest.fixture(scope="module")
def first_run(first_tables: Path) -> dict[Any, list[str]]:
    return stored_rows(first_tables)


@pytest.fixture(scope="module")
def half_tables(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tables of a run with about half of the rules, some of them changed."""
    root = tmp_path_factory.mktemp("half")
    run(root, clusters, root / "tables", subset(random.Random(16), 0.5))
    return root / "tables"


@pytest.fixture
def half(half_tables: Path, tmp_path: Path) -> Path:
    return shutil.copytree(half_tables, tmp_path / "tables")


@pytest.fixture(scope="module")
def torn_tables(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tables of a run whose rules have other patterns."""
    root = tmp_path_factory.mktemp("torn")
    run(root, clusters, root / "tables", other_patterns(random.Random(0)))
    return root / "tables"


@pytest.fixture
def torn(torn_tables: Path, tmp_path: Path) -> Path:
    return shutil.copytree(torn_tables, tmp_path / "tables")


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Return what changes of rules do to rows during a test: (kind of change, what the record was before)."""
    seen: set[tuple[str, str]] = set()
    changes = LocalStore._changes

    def noted(store: LocalStore, *given: Any) -> pa.Table:
        found = changes(store, *given)
        for row in found.select([rereading.CHANGE, rereading.FORMER_TYPE]).to_pylist():
            seen.add((row[rereading.CHANGE], "known" if row[rereading.FORMER_TYPE] else "unknown"))
        return found

    monkeypatch.setattr(LocalStore, "_changes", noted)
    return seen


SET_ANEW = {(rereading.SET, "unknown"), (rereading.SET, "known")}


def become_a_first_run(
    root: Path,
    clusters: Clusters,
    tables: Path,
    first_run: dict[Any, list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert run(root, clusters, tables, built_in()) in TOLD
    assert "The rules have changed: " in capsys.readouterr().out
    assert unlike(stored_rows(tables), first_run) == {}


def test_more_rules_give_the_tables_of_a_first_run(
    clusters: Clusters,
    first_run: dict[Any, list[str]],
    half: Path,
    changed: set[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    become_a_first_run(half.parent, clusters, half, first_run, capsys)
    assert changed == SET_ANEW
    # and the next run finds nothing to change
    assert run(half.parent, clusters, half, built_in()) in TOLD
    assert "The rules have changed" not in capsys.readouterr().out
    assert unlike(stored_rows(half), first_run) == {}


def test_rules_that_change_twice_give_the_tables_of_a_first_run(
    clusters: Clusters,
    first_run: dict[Any, list[str]],
    half: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(half.parent, clusters, half, subset(random.Random(2), 0.8))
    become_a_first_run(half.parent, clusters, half, first_run, capsys)


def test_fewer_rules_give_the_tables_of_a_first_run(
    clusters: Clusters, first_tables: Path, tmp_path: Path, changed: set[tuple[str, str]]
) -> None:
    """Records of loggers that no rule is about any more are counted and no longer stored."""
    fewer, tables = subset(random.Random(7), 0.6), shutil.copytree(first_tables, tmp_path / "tables")
    fewer = without_loggers(fewer, "kafka.controller.KafkaController")
    run(tmp_path, clusters, tables, fewer)
    assert changed >= {(rereading.REMOVED, "known"), (rereading.OUT_OF_SCOPE, "known")}
    run(tmp_path, clusters, tmp_path / "expected", fewer)
    assert unlike(stored_rows(tables), stored_rows(tmp_path / "expected")) == {}


def power_cut(*_: object, **__: object) -> None:
    raise RuntimeError("power cut")


def cut_off(patched: pytest.MonkeyPatch, where: str) -> None:
    """Make local runs end at a moment: around the merge, before skipped rows go, before timelines."""
    merge = LocalStore._merge_changes

    def merged(store: LocalStore, changes: Any) -> None:
        merge(store, changes)
        power_cut()

    if where == "merge":
        patched.setattr(LocalStore, "_merge_changes", power_cut)
    elif where == "noted":
        patched.setattr(LocalStore, "_merge_changes", merged)
    elif where == "landed":
        patched.setattr(LocalStore, "drop_skipped", power_cut)
    else:
        patched.setattr(updates, "_write", power_cut)


@pytest.mark.parametrize("moments", [("merge", "landed"), ("noted", "timelines")], ids=" and ".join)
def test_an_interrupted_run_is_completed(
    moments: Sequence[str],
    clusters: Clusters,
    first_run: dict[Any, list[str]],
    torn: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two moments the earlier one is first, so that the second run has its work still before it."""
    for where in moments:
        with monkeypatch.context() as patched:
            cut_off(patched, where)
            assert run(torn.parent, clusters, torn, built_in()) == errors.INTERNAL
    assert run(torn.parent, clusters, torn, built_in()) in TOLD
    assert unlike(stored_rows(torn), first_run) == {}


def test_clusters_that_are_not_given_are_rebuilt_too(
    clusters: Clusters,
    first_run: dict[Any, list[str]],
    torn: Path,
    changed: set[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(torn.parent, {"kraft": clusters["kraft"]}, torn, built_in()) in TOLD
    assert changed == SET_ANEW
    assert "rebuild other clusters" in capsys.readouterr().err
    derived = {key: rows for key, rows in stored_rows(torn).items() if key[1] != "findings"}
    assert unlike(derived, {key: rows for key, rows in first_run.items() if key[1] != "findings"}) == {}
    # their findings follow as soon as they are given
    assert run(torn.parent, clusters, torn, built_in()) in TOLD
    assert unlike(stored_rows(torn), first_run) == {}


def test_logs_of_loggers_that_were_out_of_scope_are_asked_for(
    clusters: Clusters,
    first_run: dict[Any, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables, one = tmp_path / "tables", "zookeeper"
    some = {one: clusters[one]}
    without = without_loggers(built_in(), "kafka.controller.KafkaController")
    assert len(without.rules) < len(built_in().rules)
    run(tmp_path, some, tables, without)
    assert any(row["logger"] == "kafka.controller.KafkaController" for row in rows_of(tables, "passed_over"))
    empty = tmp_path / "others"
    empty.mkdir()
    (empty / "controller.log").write_text(
        "[2026-11-20 10:00:00,000] INFO [Controller id=1] Shutdown completed (kafka.controller.KafkaController)\n"
    )
    capsys.readouterr()
    run(tmp_path, {"others": [empty]}, tables, built_in())
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
    clusters: Clusters,
    first_run: dict[Any, list[str]],
    half: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_merge_changes", power_cut)
        assert run(half.parent, clusters, half, built_in(), "spark") == errors.INTERNAL
    assert run(half.parent, clusters, half, built_in(), "spark") in TOLD
    assert unlike(stored_rows(half), first_run) == {}


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


def test_the_rules_are_noted_with_the_tables(first_tables: Path) -> None:
    noted = LocalStore(first_tables)._noted()
    assert json.loads(noted["kafka_audit.rules"]) == rereading.versions(built_in())
