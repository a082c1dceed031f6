"""One run over recordings: timelines are those of the truth, a failure is one or two findings, and
maintenance raises none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import truth
from conftest import SHARED
from logs import configuration
from tables import rows_of

from jobs import errors
from jobs.nightly_audit import main

SAMPLES = Path(__file__).parents[2] / "sample_logs"
RECORDINGS = SHARED / "recordings"
VERSIONS = ("zk/2.5.1-default", "zk/3.3.2-trace", "kraft/3.9.1-default", "kraft/4.1.2-default")
GOOD = ("rolling-restart", "controlled-shutdown", "partition-expansion", "delete-topic", "reassign", "topics")
# findings that are right all the same: a broker is killed, and a topic that is deleted meanwhile leaves a
# folder on it
BROKER_KILLED, STRAY_FOLDER = {"broker_down", "last_in_sync_replica"}, {"broker_down", "stray_replica"}
EXPECTED = {
    f"{version}/partition-expansion": BROKER_KILLED for version in VERSIONS if version.startswith("zk")
} | {f"{version}/topics": STRAY_FOLDER for version in VERSIONS if version.startswith("kraft")}

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class AuditedRecordings:
    """The tables of one run. judged: cluster -> its recording, for clusters whose timelines are judged."""

    judged: dict[str, Path]
    rows: dict[str, list[dict[str, Any]]]

    def by_cluster(self, table: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a table by cluster."""
        found = defaultdict(list)
        for row in self.rows[table]:
            found[row["cluster"]].append(row)
        return found

    def of_judged(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table that belong to judged recordings."""
        return [row for row in self.rows[table] if row["cluster"] in self.judged]


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> AuditedRecordings:
    """Audit all ZooKeeper recordings beside this repository and some of KRaft.

    Without them, the samples of the repository.
    """
    folder = tmp_path_factory.mktemp("recordings")
    found = [
        path for root in (SAMPLES, RECORDINGS / "zk") for path in sorted(root.glob("*/*/truth-txn.jsonl"))
    ]
    zookeeper = {f"zk/{path.parts[-3]}/{path.parts[-2]}": path.parent for path in found}
    kraft = [
        f"{version}/{name}"
        for version in VERSIONS
        if version.startswith("kraft")
        for name in ("broker-failure", *GOOD)
    ]
    text = {name: f"{RECORDINGS / name}/**/*.log*" for name in kraft if (RECORDINGS / name).is_dir()}
    config = configuration(folder / "audit.toml", {**zookeeper, **text})
    code = main(["audit", "--config", str(config), "--tables", str(folder / "tables")])
    assert code in (errors.CLEAN, errors.FINDINGS)
    names = ("partition_timeline", "reassignments", "discontinuities", "findings")
    return AuditedRecordings(zookeeper, {name: rows_of(folder / "tables", name) for name in names})


def test_timelines_are_those_of_the_truth(
    audited: AuditedRecordings, capsys: pytest.CaptureFixture[str]
) -> None:
    # samples and recordings of one version and scenario are one cluster
    assert len(audited.judged) == (43 if (RECORDINGS / "zk").is_dir() else 7)
    timelines = audited.by_cluster("partition_timeline")
    verdicts = {name: truth.compare(path, timelines[name]) for name, path in audited.judged.items()}
    with capsys.disabled():
        print()
        print(truth.table(list(verdicts.values())))
    for name, verdict in verdicts.items():
        assert verdict.precise, truth.details(verdict)
        if tuple(int(number) for number in name.split("/")[1].split("-")[0].split(".")) >= (2, 8, 2):
            assert not verdict.misses, truth.details(verdict)
        # up to 2.5, no line shows what one controller wrote within one batch
        assert not verdict.misses_by_reason()["missing"], truth.details(verdict)
        assert all(
            miss.interval.value.writer == "controller" for miss in verdict.misses if miss.about == "state"
        )


def test_reassignments_are_those_of_the_truth(audited: AuditedRecordings) -> None:
    moved: dict[str, Counter[Any]] = defaultdict(Counter)
    for row in audited.of_judged("reassignments"):
        ids = (tuple(sorted(row[f"{name}_replicas"])) for name in ("target", "adding", "removing"))
        moved[row["cluster"]][row["incarnation"], row["topic"], row["partition"], *ids, row["outcome"]] += 1
        assert row["caught_up_at"] or row["outcome"] != "completed", row
    assert {name: moved[name] for name in audited.judged} == {
        name: truth.reassignments(truth.read_truth(path)) for name, path in audited.judged.items()
    }


def test_a_healthy_cluster_has_no_illegal_transition(audited: AuditedRecordings) -> None:
    # these logs are complete: a break is due to another controller, or to lines below INFO
    assert {row["cause"] for row in audited.of_judged("discontinuities")} <= {"other_controller", "level"}
    assert [
        finding for finding in audited.of_judged("findings") if finding["check_id"].startswith("illegal")
    ] == []


def above_info(audited: AuditedRecordings, recording: str) -> list[dict[str, Any]]:
    return [finding for finding in audited.by_cluster("findings")[recording] if finding["severity"] != "info"]


@pytest.mark.shared
@pytest.mark.parametrize("recording", [f"{version}/broker-failure" for version in VERSIONS])
def test_a_broker_failure_is_one_or_two_findings(audited: AuditedRecordings, recording: str) -> None:
    """The failed brokers are reported; all other findings name them as their cause."""
    found = above_info(audited, recording)
    assert "broker_down" in {finding["check_id"] for finding in found}
    assert sum(finding["severity"] in {"error", "critical"} for finding in found) <= 2
    known = {finding["fingerprint"] for finding in found}
    assert {finding["caused_by"] for finding in found if finding["check_id"] != "broker_down"} <= known


@pytest.mark.parametrize(
    "recording",
    [f"{version}/{name}" for version in VERSIONS for name in GOOD if (RECORDINGS / version / name).is_dir()],
)
def test_maintenance_raises_only_the_expected_findings(audited: AuditedRecordings, recording: str) -> None:
    assert {finding["check_id"] for finding in above_info(audited, recording)} == EXPECTED.get(
        recording, set()
    )
