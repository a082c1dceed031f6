"""Whole runs over real logs: verdict, tables and exit code.

Spark makes the tables of `audited`, the local engine those that are compared with them.
"""

import contextlib
import gzip
import io
import json
import os
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from logs import broker_is_back, configuration, write_early
from tables import rows_of

import schemas
from jobs import errors
from jobs.nightly_audit import main

SAMPLES = Path(__file__).parents[2] / "sample_logs"
TRACE = SAMPLES / "3.3.2-trace" / "delete-topic-dead-broker"
# cluster -> a recording of the same deletion
DELETIONS = {"trace": TRACE, "default": SAMPLES / "3.3.2-default" / "delete-topic-dead-broker"}
# cluster -> its folder
IN_ONE_TREE = {"both": "both", "one": "both/one", "other": "both/other"}
# cluster with every pair of states of a replica
PAIRS = "pairs"
TABLES_OF_TIME = (
    "partition_timeline",
    "replica_timeline",
    "reassignments",
    "topic_deletions",
    "controllers",
    "discontinuities",
)

pytestmark = pytest.mark.spark


def audit(capsys, logs, tables: Path, *more: str, engine: str = "local") -> tuple[int, dict, str]:
    """Run an audit; return (exit code, verdict as JSON, text on stderr)."""
    code = main(["audit", *map(str, logs), "--tables", str(tables), "--engine", engine, "--json", *more])
    output = capsys.readouterr()
    return code, json.loads(output.out) if output.out.strip() else {}, output.err


def fingerprint(tables: Path) -> dict[str, list[str]]:
    """Return all tables of DELETIONS without columns about files, runs and places in files."""
    left_out = {"events": ("file", "record_no", "ends_file"), "findings": ("run_id", "status")}
    found = {}
    for table in (*TABLES_OF_TIME, "coverage", "passed_over", *left_out):
        rows = [row for row in rows_of(tables, table) if row["cluster"] in DELETIONS]
        for name in left_out.get(table, ()):
            for row in rows:
                del row[name]
        found[table] = sorted(json.dumps(row, default=str) for row in rows)
    return found


@pytest.fixture(scope="module")
def audited(spark, tmp_path_factory):
    """Tables of one run over a deletion that waits, at TRACE and at the default levels, two clusters in one
    tree, and PAIRS.
    """
    folder = tmp_path_factory.mktemp("audited")
    one_tree(folder / "both")
    every_pair(folder / PAIRS)
    others = {name: folder / path for name, path in {**IN_ONE_TREE, PAIRS: PAIRS}.items()}
    config = configuration(folder / "audit.toml", DELETIONS | others)
    assert main(["audit", "--config", str(config), "--tables", str(folder / "tables")]) == errors.FINDINGS
    found = [row for row in rows_of(folder / "tables", "findings") if row["status"] != "resolved"]
    assert {row["cluster"] for row in found if row["severity"] in ("critical", "error")} == {PAIRS}
    return folder / "tables"


def one_tree(both: Path) -> None:
    """Write two clusters with the same brokers and topics at the same time.

    Only the cluster ids and the folders differ.
    """
    shutil.copytree(SAMPLES / "2.8.2-default" / "delete-topic-dead-broker", both / "one")
    for log in sorted(TRACE.glob("broker-*/*.log*")):
        later = both / "other" / log.relative_to(TRACE)
        later.parent.mkdir(parents=True, exist_ok=True)
        later.write_text(log.read_text().replace(" 10:10:", " 10:58:").replace(" 10:09:", " 10:57:"))


def test_replica_states_during_a_deletion_follow_their_broker(audited):
    paths = defaultdict(list)
    rows = rows_of(audited, "replica_timeline", "trace")
    for row in sorted(rows, key=itemgetter("topic", "partition", "replica", "step")):
        if row["topic"] == "audit":
            assert not row["inferred"]
            paths[row["replica"]].append((row["partition"], row["state"]))
    begin, end = (
        ["NewReplica", "OnlineReplica"],
        ["ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "NonExistentReplica"],
    )
    of_live_broker = [*begin, "OfflineReplica", *end]
    of_dead_broker = [
        *begin,
        "OfflineReplica",
        "ReplicaDeletionIneligible",
        "OfflineReplica",
        "OnlineReplica",
        "OfflineReplica",
        *end,
    ]
    for replica, expected in ((1, of_live_broker), (2, of_live_broker), (3, of_dead_broker)):
        for partition in (0, 1):
            assert [state for p, state in paths[replica] if p == partition] == expected


def test_a_waiting_deletion_ends_when_the_broker_is_back(audited):
    (deletion,) = rows_of(audited, "topic_deletions", "trace")
    assert deletion["outcome"] == "completed"
    assert deletion["completed_at"] is not None
    assert deletion["blocked_by"] == [{"partition": 0, "replica": 3}, {"partition": 1, "replica": 3}]
    found = rows_of(audited, "findings", "trace")
    (finding,) = [f for f in found if f["check_id"] == "topic_deletion_blocked"]
    assert (finding["status"], finding["severity"], finding["node"]) == ("resolved", "error", 3)


def quiet(folder: Path, day: int) -> None:
    """Leave only a controller that continues to log."""
    shutil.rmtree(folder)
    (folder / "broker-1").mkdir(parents=True)
    (folder / "broker-1" / "controller.log").write_text(
        f"[2026-11-{day} 01:00:00,100] INFO [Controller id=1] Processing automatic preferred replica leader election (kafka.controller.KafkaController)\n"
    )


@dataclass(frozen=True)
class Run:
    """The result of a run: exit code, verdict, rows of tables, and `fingerprint`."""

    code: int
    verdict: dict
    deletions: list[dict]
    findings: list[dict]
    tables: dict[str, list[str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Run]:
    """Run the local engine over DELETIONS up to the return of the broker, then over all of it.

    Both runs read `over`, too, which has ended after the first one.
    """
    folder, found = tmp_path_factory.mktemp("runs"), []
    for name, recording in DELETIONS.items():
        write_early(recording, folder / name, broker_is_back(recording))
    # up to the end of the scenario: a broker was killed and is back
    write_early(
        SAMPLES / "2.8.2-default" / "delete-topic-dead-broker", folder / "over", "2026-11-20 10:59:20"
    )

    def run(recordings: dict[str, Path]) -> None:
        config, tables = configuration(folder / "audit.toml", recordings), folder / "tables"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            given = ["--config", str(config), "--tables", str(tables), "--engine", "local"]
            code = main(["audit", *given, "--json"])
        some = (rows_of(tables, table) for table in ("topic_deletions", "findings"))
        found.append(Run(code, json.loads(printed.getvalue()), *some, fingerprint(tables)))

    run({name: folder / name for name in (*DELETIONS, "over")})
    run(DELETIONS)
    for day in (23, 25):
        quiet(folder / "over", day)
        run({"over": folder / "over"})
    return found


def test_a_deletion_that_waits_is_a_finding_until_it_is_completed(runs, audited):
    first = runs[0]
    assert first.code == errors.FINDINGS
    known = [f for f in first.verdict["findings"] if f["cluster"] in DELETIONS]
    found = {f["cluster"]: f for f in known if f["check_id"] == "topic_deletion_blocked"}
    deletions = {row["cluster"]: row for row in first.deletions if row["cluster"] in DELETIONS}
    assert found.keys() == deletions.keys() == DELETIONS.keys()
    for name, finding in found.items():
        assert (finding["status"], finding["severity"], finding["topic"], finding["node"]) == (
            "new",
            "error",
            "audit",
            3,
        )
        assert "replica 3 of partition 0, replica 3 of partition 1" in finding["detail"]
        assert (deletions[name]["outcome"], deletions[name]["completed_at"]) == ("blocked", None)

    second = runs[1]
    assert second.code == errors.CLEAN
    blocked = {
        f["cluster"]: f["status"]
        for f in second.verdict["findings"]
        if f["check_id"] == "topic_deletion_blocked"
    }
    assert blocked == dict.fromkeys(DELETIONS, "resolved")
    assert second.tables == fingerprint(audited)


def test_a_resolved_finding_does_not_change(runs):
    found = [[f for f in run.findings if f["cluster"] == "over"] for run in runs]
    resolved = [{f["title"]: f for f in some if f["status"] == "resolved"} for some in found]
    (down,) = (f for f in resolved[0].values() if f["check_id"] == "broker_down")
    assert down["title"].startswith("Broker 3 crashed and was back after at least ")
    assert "At least 3 partitions lacked its replica in the ISR meanwhile" in down["detail"]
    assert {title: resolved[-1].get(title) for title in resolved[0]} == resolved[0]
    # later logs without new information do not weaken the finding
    details = {f["check_id"]: f["detail"] for f in found[-1]}
    assert "No server.log" not in details["blind_spot"]
    assert "No log of broker" not in details["blind_spot"]


def test_the_same_records_again_change_nothing(capsys, tmp_path, audited):
    before = fingerprint(audited)

    def versions() -> dict[str, int]:
        return {table: DeltaTable(str(audited / table)).version() for table in TABLES_OF_TIME}

    written = versions()
    config = configuration(tmp_path / "audit.toml", DELETIONS)
    code, verdict, _ = audit(capsys, [], audited, "--config", str(config), engine="spark")
    assert code == errors.CLEAN
    assert verdict["records_new"] == 0
    assert fingerprint(audited) == before
    assert versions() == written

    # split over two folders, renamed, gzipped, with an overlap
    for name, recording in DELETIONS.items():
        for log in recording.glob("broker-*/*.log"):
            lines = log.read_text().splitlines(keepends=True)
            heads = [n for n, line in enumerate(lines) if line.startswith("[20")]
            middle = heads[len(heads) // 2] if heads else 0
            overlap = heads[len(heads) // 3] if heads else 0
            first = tmp_path / name / "old" / log.parent.name / f"{log.name}.2026-11-20-10.gz"
            second = tmp_path / name / "new folder, 'quoted'" / log.parent.name / f"renamed-{log.name}"
            for path in (first, second):
                path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(first, "wt") as packed:
                packed.writelines(lines[:middle])
            second.write_text("".join(lines[overlap:]))
    copies = configuration(tmp_path / "copies.toml", {name: tmp_path / name for name in DELETIONS})
    code, verdict, _ = audit(capsys, [], audited, "--config", str(copies))
    assert verdict["records_new"] == 0
    assert fingerprint(audited) == before
    alone = tmp_path / "alone"
    audit(capsys, [], alone, "--config", str(copies))
    assert fingerprint(alone) == before


def test_coverage_depends_on_the_log_level(audited):
    def shown(cluster: str) -> set[str]:
        rows = rows_of(audited, "coverage", cluster)
        return {row["replica_states"] for row in rows if row["logger"] == "state.change.logger"}

    assert (shown("trace"), shown("default")) == ({"observed"}, {"inferable"})
    for row in rows_of(audited, "coverage"):
        assert (
            row["records"] == row["recognised"] + row["unrecognised"] + row["drifted"] + row["out_of_scope"]
        )


def test_all_tables_can_be_read_by_any_engine(audited):
    for table in audited.iterdir():
        if (table / "_delta_log").is_dir():
            assert DeltaTable(str(table)).protocol().min_reader_version == 1


def test_two_clusters_in_one_tree_are_distinguished(audited):
    mixed = [f for f in rows_of(audited, "findings") if f["check_id"] == "clusters_mixed"]
    assert [(f["severity"], f["cluster"]) for f in mixed] == [("warning", "both")]
    for table in ("partition_timeline", "replica_timeline", "controllers", "topic_deletions"):
        by_cluster = defaultdict(list)
        for row in rows_of(audited, table):
            name = row.pop("cluster"), row.pop("incarnation")
            row.pop("record_id")
            row.pop("settled", None)  # depends on the newest record of the cluster
            row.pop("evidence", None)
            by_cluster[name].append(json.dumps(row, default=str, sort_keys=True))
        assert sorted(by_cluster["both", 1]) == sorted(by_cluster["one", 1]), table
        assert sorted(by_cluster["both", 2]) == sorted(by_cluster["other", 1]), table
        assert {key for key in by_cluster if key[0] in IN_ONE_TREE} == {
            ("both", 1),
            ("both", 2),
            ("one", 1),
            ("other", 1),
        }


def test_a_reassignment_that_does_not_finish(capsys, tmp_path, monkeypatch):
    log = tmp_path / "broker-1" / "controller.log"
    log.parent.mkdir()
    log.write_text(
        "[2026-03-01 12:00:00,000] INFO [Controller id=1] 1 successfully elected as the controller. Epoch incremented to 1 and epoch zk "
        "version is now 1 (kafka.controller.KafkaController)\n"
        "[2026-03-01 12:00:01,000] INFO [Controller id=1] Successfully updated assignment of partition orders-0 to ReplicaAssignment("
        "replicas=4,1,2, addingReplicas=4, removingReplicas=2) (kafka.controller.KafkaController)\n"
    )
    code, verdict, _ = audit(capsys, [log.parent], tmp_path / "tables", "--cluster", "c")
    assert code == errors.CLEAN
    assert "reassignment_stalled" not in {f["check_id"] for f in verdict["findings"]}
    with log.open("a") as more:
        more.write(
            "[2026-03-01 13:30:00,000] DEBUG [Controller id=1] Topics not in preferred replica for broker 1 Map() "
            "(kafka.controller.KafkaController)\n"
        )
    code, verdict, _ = audit(
        capsys, [log.parent], tmp_path / "tables", "--cluster", "c", "--now", "2026-03-01T14:00:00Z"
    )
    assert code == errors.FINDINGS
    (finding,) = [f for f in verdict["findings"] if f["check_id"] == "reassignment_stalled"]
    assert finding["evidence"]
    # a run is recorded even if stdout is closed
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", unread)
        given = ["--cluster", "c", "--now", "2026-03-01T14:00:00Z", "--engine", "local"]
        assert (
            main(["audit", str(log.parent), "--tables", str(tmp_path / "tables"), *given]) == errors.FINDINGS
        )
    runs = sorted(rows_of(tmp_path / "tables", "audit_runs"), key=itemgetter("started_at"))
    assert [row["status"] for row in runs] == [
        "clean",
        "findings",
        "findings",
    ]


def states_of_pairs() -> list[tuple[str, str]]:
    """Return (before, after) of all state changes of a replica, legal or not."""
    states = schemas.machines()["replica"]
    return [(before, after) for before in states for after in states]


def every_pair(folder: Path) -> None:
    """Write a recording at whose end the controller logs every state change."""
    shutil.copytree(TRACE, folder)
    with (folder / "broker-1" / "state-change.log").open("a") as log:
        for number, (before, after) in enumerate(states_of_pairs()):
            log.write(
                f"[2026-11-20 10:20:00,{number:03d}] TRACE [Controller id=1 epoch=1] Changed state of replica 2 for partition keep-0 "
                f"from {before} to {after} (state.change.logger)\n"
            )


def test_every_illegal_pair_is_found_and_no_legal_one(audited):
    legal = {(m.from_state, m.to_state) for m in schemas.moves() if m.machine == "replica"}
    assert len(states_of_pairs()) - len(legal) == 35
    found = [f for f in rows_of(audited, "findings", PAIRS) if f["check_id"] == "illegal_replica_transition"]
    moves = {tuple(f["detail"].partition(" from ")[2].partition(";")[0].split(" to ")) for f in found}
    assert moves == set(states_of_pairs()) - legal
    assert len(found) == 35
    assert all(len(f["evidence"]) == 1 for f in found)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(capsys, tmp_path):
    folder = tmp_path / "logs"
    shutil.copytree(TRACE, folder)
    log = folder / "broker-1" / "controller.log"
    packed = gzip.compress(log.read_bytes())
    (folder / "broker-1" / "controller.log.1.gz").write_bytes(packed[: len(packed) // 2])
    code, verdict, output = audit(capsys, [folder], tmp_path / "tables")
    assert code == errors.INPUT
    assert "controller.log.1.gz" in output
    assert "truncated" in output
    assert verdict["clusters"][0]["unreadable"]
    assert verdict["clusters"][0]["counts"]["partitions"] == 3
