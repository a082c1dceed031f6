"""Whole runs: real logs in, verdict, tables and exit code out."""

import gzip
import json
import os
import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import truth
from conftest import SHARED

from jobs import errors
from jobs.nightly_audit import main
from jobs.store import Store

SAMPLES = Path(__file__).parents[1] / "sample_logs"
TRACE = SAMPLES / "3.3.2-trace" / "delete-topic-dead-broker"
# cluster -> a recording of the same deletion
DELETIONS = {"trace": TRACE, "default": SAMPLES / "3.3.2-default" / "delete-topic-dead-broker"}
TABLES_OF_TIME = ("partition_timeline", "replica_timeline", "reassignments", "topic_deletions", "controllers", "discontinuities")

pytestmark = pytest.mark.spark


def audit(capsys, logs, tables: Path, *more: str) -> tuple[int, dict, str]:
    """(exit code, verdict as JSON, what was said on stderr)"""
    code = main(["audit", *map(str, logs), "--tables", str(tables), "--json", *more])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out.strip() else {}, said.err


def configuration(path: Path, recordings: dict[str, Path]) -> Path:
    """An audit.toml of these clusters."""
    blocks = [
        f"[[cluster]]\nname = {json.dumps(name)}\nlogs = [{json.dumps(str(folder))}]\n" for name, folder in recordings.items()
    ]
    path.write_text("\n".join(blocks))
    return path


def read(spark, tables: Path, table: str):
    """One table, whichever tables the session has open."""
    return spark.read.format("delta").load(str(Store(spark, tables).path(table)))


def rows(spark, tables: Path, table: str, order: str = "", cluster: str | None = None) -> list[dict]:
    frame = read(spark, tables, table)
    told = [row.asDict(recursive=True) for row in (frame.orderBy(*order.split(", ")) if order else frame).collect()]
    return told if cluster is None else [row for row in told if row["cluster"] == cluster]


def fingerprint(spark, tables: Path) -> dict[str, list[str]]:
    """All tables less what names files, runs and places in files."""
    left_out = {"events": ("file", "record_no", "ends_file"), "findings": ("run_id", "status")}
    found = {}
    for table in (*TABLES_OF_TIME, "coverage", "passed_over", *left_out):
        told = read(spark, tables, table).drop(*left_out.get(table, ())).collect()
        found[table] = sorted(json.dumps(row.asDict(recursive=True), default=str) for row in told)
    return found


@pytest.fixture(scope="module")
def audited(spark, tmp_path_factory):
    """Tables of one run over a deletion that is held up, at TRACE and at the default levels."""
    tables = tmp_path_factory.mktemp("audited")
    config = configuration(tmp_path_factory.mktemp("config") / "audit.toml", DELETIONS)
    assert main(["audit", "--config", str(config), "--tables", str(tables)]) == errors.CLEAN
    return tables


def test_every_replica_walks_the_path_of_its_broker(spark, audited):
    paths = defaultdict(list)
    for row in rows(spark, audited, "replica_timeline", "topic, partition, replica, step", "trace"):
        if row["topic"] == "audit":
            assert not row["inferred"]
            paths[row["replica"]].append((row["partition"], row["state"]))
    begin, end = ["NewReplica", "OnlineReplica"], ["ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "NonExistentReplica"]
    living = [*begin, "OfflineReplica", *end]
    dead = [*begin, "OfflineReplica", "ReplicaDeletionIneligible", "OfflineReplica", "OnlineReplica", "OfflineReplica", *end]
    for replica, expected in ((1, living), (2, living), (3, dead)):
        for partition in (0, 1):
            assert [state for p, state in paths[replica] if p == partition] == expected


def test_a_held_up_deletion_is_over_when_the_broker_is_back(spark, audited):
    (deletion,) = rows(spark, audited, "topic_deletions", cluster="trace")
    assert deletion["outcome"] == "completed"
    assert deletion["completed_at"] is not None
    assert deletion["blocked_by"] == [{"partition": 0, "replica": 3}, {"partition": 1, "replica": 3}]
    found = rows(spark, audited, "findings", cluster="trace")
    (finding,) = [f for f in found if f["check_id"] == "topic_deletion_blocked"]
    assert (finding["status"], finding["severity"], finding["node"]) == ("resolved", "error", 3)


def until_the_broker_is_back(recording: Path, folder: Path) -> None:
    """Writes what the logs of a recording hold before the broker is started that was killed."""
    steps = [json.loads(line) for line in (recording / "steps.jsonl").read_text().splitlines()]
    killed = next(step["time"] for step in steps if step["step"].startswith("signal"))
    back = next(step["time"] for step in steps if step["step"] == "start broker" and step["time"] > killed)[:23].replace("T", " ")
    for log in recording.glob("broker-*/*.log"):
        early = folder / log.parent.name / log.name
        early.parent.mkdir(parents=True, exist_ok=True)
        kept, keep = [], True
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith("[20"):
                keep = line[1:24].replace(",", ".") < back
            if keep:
                kept.append(line)
        early.write_text("".join(kept))


def test_a_deletion_that_waits_is_a_finding_until_it_is_completed(spark, capsys, tmp_path, audited):
    expected = fingerprint(spark, audited)
    for name, recording in DELETIONS.items():
        until_the_broker_is_back(recording, tmp_path / name)
    capsys.readouterr()
    early = configuration(tmp_path / "early.toml", {name: tmp_path / name for name in DELETIONS})
    code, verdict, _ = audit(capsys, [], tmp_path / "tables", "--config", str(early))
    assert code == errors.FINDINGS
    found = {f["cluster"]: f for f in verdict["findings"] if f["check_id"] == "topic_deletion_blocked"}
    deletions = {row["cluster"]: row for row in rows(spark, tmp_path / "tables", "topic_deletions")}
    assert found.keys() == deletions.keys() == DELETIONS.keys()
    for name, finding in found.items():
        assert (finding["status"], finding["topic"], finding["node"]) == ("new", "audit", 3)
        assert "replica 3 of partition 0, replica 3 of partition 1" in finding["detail"]
        assert (deletions[name]["outcome"], deletions[name]["completed_at"]) == ("blocked", None)

    code, verdict, _ = audit(capsys, [], tmp_path / "tables", "--config", str(configuration(tmp_path / "audit.toml", DELETIONS)))
    assert code == errors.CLEAN
    found = {f["cluster"]: f["status"] for f in verdict["findings"] if f["check_id"] == "topic_deletion_blocked"}
    assert found == dict.fromkeys(DELETIONS, "resolved")
    assert fingerprint(spark, tmp_path / "tables") == expected


def test_twice_is_once(spark, capsys, tmp_path, audited):
    before = fingerprint(spark, audited)

    def versions() -> dict[str, int]:
        return {t: spark.sql(f"DESCRIBE HISTORY delta.`{audited / t}`").count() for t in TABLES_OF_TIME}

    written = versions()
    config = configuration(tmp_path / "audit.toml", DELETIONS)
    code, verdict, _ = audit(capsys, [], audited, "--config", str(config))
    assert code == errors.CLEAN
    assert verdict["clusters"][0]["records_new"] == 0
    assert fingerprint(spark, audited) == before
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
    assert verdict["clusters"][0]["records_new"] == 0
    assert fingerprint(spark, audited) == before
    alone = tmp_path / "alone"
    audit(capsys, [], alone, "--config", str(copies))
    assert fingerprint(spark, alone) == before


def test_coverage_says_what_the_level_shows(spark, audited):
    def shown(cluster: str) -> set[str]:
        told = rows(spark, audited, "coverage", cluster=cluster)
        return {row["replica_states"] for row in told if row["logger"] == "state.change.logger"}

    assert (shown("trace"), shown("default")) == ({"observed"}, {"inferable"})
    for row in rows(spark, audited, "coverage"):
        assert row["records"] == row["recognised"] + row["unrecognised"] + row["drifted"] + row["out_of_scope"]


def test_all_tables_can_be_read_by_any_engine(spark, audited):
    for table in audited.iterdir():
        if (table / "_delta_log").is_dir():
            assert spark.sql(f"DESCRIBE DETAIL delta.`{table}`").first().minReaderVersion == 1


def judged(spark, tables: Path, recordings: dict[str, Path]) -> list[truth.Verdict]:
    by_cluster = defaultdict(list)
    for row in rows(spark, tables, "partition_timeline", "cluster, incarnation, topic, partition, step"):
        for key in ("valid_from", "valid_to"):
            row[key] = row[key].isoformat() + "Z" if row[key] else None
        by_cluster[row["cluster"]].append(row)
    verdicts = [truth.compare(path, by_cluster[name]) for name, path in recordings.items()]
    print(truth.table(verdicts))
    return verdicts


def check_against_the_truth(spark, capsys, tmp_path, recordings: dict[str, Path]) -> None:
    config = configuration(tmp_path / "audit.toml", recordings)
    code = main(["audit", "--config", str(config), "--tables", str(tmp_path / "tables")])
    capsys.readouterr()
    assert code in (errors.CLEAN, errors.FINDINGS)
    with capsys.disabled():
        print()
        verdicts = judged(spark, tmp_path / "tables", recordings)
    for name, verdict in zip(recordings, verdicts, strict=True):
        assert verdict.precise, truth.details(verdict)
        if tuple(int(n) for n in name.split("-")[0].split("/")[-1].split(".")) >= (2, 8, 2):
            assert not verdict.misses, truth.details(verdict)
        # what one controller wrote within one batch, up to 2.5, is in no line
        assert not verdict.misses_by_reason()["missing"], truth.details(verdict)
        assert all(miss.interval.value.writer == "controller" for miss in verdict.misses if miss.about == "state")
    moved = defaultdict(Counter)
    for row in rows(spark, tmp_path / "tables", "reassignments"):
        ids = (tuple(sorted(row[f"{name}_replicas"])) for name in ("target", "adding", "removing"))
        moved[row["cluster"]][row["incarnation"], row["topic"], row["partition"], *ids, row["outcome"]] += 1
        assert row["caught_up_at"] or row["outcome"] != "completed", row
    assert {name: moved[name] for name in recordings} == {
        name: truth.reassignments(truth.read_truth(path)) for name, path in recordings.items()
    }
    # nothing is missing from these logs: a break is another controller's, or of what INFO leaves out
    assert {row["cause"] for row in rows(spark, tmp_path / "tables", "discontinuities")} <= {"other_controller", "level"}
    illegal = [f for f in rows(spark, tmp_path / "tables", "findings") if f["check_id"].startswith("illegal")]
    assert illegal == []


def test_recordings_against_the_truth(spark, capsys, tmp_path):
    """Those beside this repository, and where it is alone its samples, which are some of them."""
    found = [path for root in (SAMPLES, SHARED / "recordings" / "zk") for path in sorted(root.glob("*/*/truth-txn.jsonl"))]
    recordings = {f"{p.parent.parent.name}/{p.parent.name}": p.parent for p in found}
    assert len(recordings) >= 4
    check_against_the_truth(spark, capsys, tmp_path, recordings)


def test_two_clusters_in_one_tree_are_told_apart(spark, capsys, tmp_path):
    """The same brokers and topics in both, at the same time; only the cluster ids and the folders differ."""
    both = tmp_path / "both"
    shutil.copytree(SAMPLES / "2.8.2-default" / "delete-topic-dead-broker", both / "one")
    for log in sorted(TRACE.glob("broker-*/*.log*")):
        later = both / "other" / log.relative_to(TRACE)
        later.parent.mkdir(parents=True, exist_ok=True)
        later.write_text(log.read_text().replace(" 10:10:", " 10:58:").replace(" 10:09:", " 10:57:"))
    config = configuration(tmp_path / "audit.toml", {"both": both, "one": both / "one", "other": both / "other"})
    assert main(["audit", "--config", str(config), "--tables", str(tmp_path / "tables"), "--json"]) == errors.CLEAN
    findings = json.loads(capsys.readouterr().out)["findings"]
    mixed = [f for f in findings if f["check_id"] == "clusters_mixed"]
    assert [(f["severity"], f["cluster"]) for f in mixed] == [("warning", "both")]
    for table in ("partition_timeline", "replica_timeline", "controllers", "topic_deletions"):
        told = defaultdict(list)
        for row in rows(spark, tmp_path / "tables", table):
            name = row.pop("cluster"), row.pop("incarnation")
            row.pop("record_id")
            row.pop("settled", None)  # as far as the newest record of the cluster lies back
            row.pop("evidence", None)
            told[name].append(json.dumps(row, default=str, sort_keys=True))
        assert sorted(told["both", 1]) == sorted(told["one", 1]), table
        assert sorted(told["both", 2]) == sorted(told["other", 1]), table
        assert told.keys() == {("both", 1), ("both", 2), ("one", 1), ("other", 1)}


def test_a_reassignment_that_does_not_finish(spark, capsys, tmp_path, monkeypatch):
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
    code, verdict, _ = audit(capsys, [log.parent], tmp_path / "tables", "--cluster", "c", "--now", "2026-03-01T14:00:00Z")
    assert code == errors.FINDINGS
    (finding,) = [f for f in verdict["findings"] if f["check_id"] == "reassignment_stalled"]
    assert finding["evidence"]
    # a run counts though nobody reads its verdict to the end
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", unread)
        given = ["--cluster", "c", "--now", "2026-03-01T14:00:00Z"]
        assert main(["audit", str(log.parent), "--tables", str(tmp_path / "tables"), *given]) == errors.FINDINGS
    assert [row["status"] for row in rows(spark, tmp_path / "tables", "audit_runs", "started_at")] == [
        "clean",
        "findings",
        "findings",
    ]


def test_every_illegal_pair_is_found_and_no_legal_one(spark, capsys, tmp_path):
    import schemas

    states = schemas.machines()["replica"]
    legal = {(m.from_state, m.to_state) for m in schemas.moves() if m.machine == "replica"}
    pairs = [(a, b) for a in states for b in states]
    assert len(pairs) - len(legal) == 35
    folder = tmp_path / "logs"
    shutil.copytree(TRACE, folder)
    with (folder / "broker-1" / "state-change.log").open("a") as log:
        for number, (before, after) in enumerate(pairs):
            log.write(
                f"[2026-11-20 10:20:00,{number:03d}] TRACE [Controller id=1 epoch=1] Changed state of replica 2 for partition keep-0 "
                f"from {before} to {after} (state.change.logger)\n"
            )
    code, verdict, _ = audit(capsys, [folder], tmp_path / "tables")
    assert code == errors.FINDINGS
    found = [f for f in verdict["findings"] if f["check_id"] == "illegal_replica_transition"]
    assert {tuple(f["title"].split(": ", 2)[2].split(" -> ")) for f in found} == set(pairs) - legal
    assert len(found) == 35
    assert all(len(f["evidence"]) == 1 for f in found)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(spark, capsys, tmp_path):
    folder = tmp_path / "logs"
    shutil.copytree(TRACE, folder)
    log = folder / "broker-1" / "controller.log"
    packed = gzip.compress(log.read_bytes())
    (folder / "broker-1" / "controller.log.1.gz").write_bytes(packed[: len(packed) // 2])
    code, verdict, said = audit(capsys, [folder], tmp_path / "tables")
    assert code == errors.INPUT
    assert "controller.log.1.gz" in said
    assert "truncated" in said
    assert verdict["clusters"][0]["unreadable"]
    assert verdict["clusters"][0]["counts"]["partitions"] == 3
