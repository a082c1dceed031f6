"""One cause, one finding, counted on recordings: what fails is told once, what goes well wakes nobody."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED

from jobs import errors
from jobs.nightly_audit import main

VERSIONS = ("zk/2.5.1-default", "zk/3.3.2-trace", "kraft/3.9.1-default", "kraft/4.1.2-default")
GOOD = ("rolling-restart", "controlled-shutdown", "partition-expansion", "delete-topic", "reassign", "topics")
# what an operator wants to know of them all the same: in these a broker is killed, and a topic that is deleted meanwhile leaves a folder on it
KILLED, STRAY = {"broker_down", "last_in_sync_replica"}, {"broker_down", "stray_replica"}
WANTED = {f"{version}/partition-expansion": KILLED for version in VERSIONS if version.startswith("zk")} | {
    f"{version}/topics": STRAY for version in VERSIONS if version.startswith("kraft")
}


@pytest.fixture(scope="module")
def above_info(shared: Path, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Recording -> its findings above info."""
    folder = tmp_path_factory.mktemp("causes")
    paths = [shared / "recordings" / version / name for version in VERSIONS for name in ("broker-failure", *GOOD)]
    blocks = [
        f"[[cluster]]\nname = {json.dumps('/'.join(path.parts[-3:]))}\nlogs = [{json.dumps(f'{path}/**/*.log*')}]\n"
        for path in paths
        if path.is_dir()
    ]
    (folder / "audit.toml").write_text("\n".join(blocks))
    code = main(["audit", "--config", str(folder / "audit.toml"), "--tables", str(folder / "tables")])
    assert code in (errors.CLEAN, errors.FINDINGS)
    told = defaultdict(list)
    for row in spark.read.format("delta").load(str(folder / "tables" / "findings")).filter("severity <> 'info'").collect():
        told[row.cluster].append(row.asDict())
    return told


@pytest.mark.parametrize("recording", [f"{version}/broker-failure" for version in VERSIONS])
def test_a_broker_failure_is_one_or_two_findings(above_info: dict[str, list[dict[str, Any]]], recording: str) -> None:
    """The brokers that fail are told, whatever partitions they held; what follows from it names them."""
    told = above_info[recording]
    assert "broker_down" in {finding["check_id"] for finding in told}
    assert sum(finding["severity"] in {"error", "critical"} for finding in told) <= 2
    known = {finding["fingerprint"] for finding in told}
    assert {finding["caused_by"] for finding in told if finding["check_id"] != "broker_down"} <= known


@pytest.mark.parametrize(
    "recording",
    [f"{version}/{name}" for version in VERSIONS for name in GOOD if (SHARED / "recordings" / version / name).is_dir()],
)
def test_what_goes_well_wakes_nobody(above_info: dict[str, list[dict[str, Any]]], recording: str) -> None:
    assert {finding["check_id"] for finding in above_info[recording]} == WANTED.get(recording, set())
