"""KRaft: partitions from text logs, from a dump of the metadata log, and from both."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
import truth
from logs import configuration
from tables import rows_of

from jobs import errors
from jobs.nightly_audit import main

SAMPLE = Path(__file__).parents[2] / "sample_logs" / "3.9.1-kraft" / "controller-failover"

# clusters
TEXT, METADATA, BOTH, ALTERED = "text", "metadata", "both", "altered"


def judged(tables: Path, cluster: str) -> truth.Verdict:
    return truth.compare(SAMPLE, rows_of(tables, "partition_timeline", cluster))


def alter(log: Path) -> None:
    """Gives a line about an epoch that the metadata log has another ISR."""
    text = log.read_text("utf-8")
    honest = next(line for line in text.splitlines() if "Leader orders-" in line and ", ISR [" in line)
    before, isr, after = honest.partition(", ISR [")
    log.write_text(text.replace(honest, before + isr + "9," + after), "utf-8")


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of one run over the recording four times: its text logs, its metadata log, both, and both with a
    line that is altered.
    """
    folder = tmp_path_factory.mktemp("kraft")
    shutil.copytree(SAMPLE, folder / ALTERED)
    alter(folder / ALTERED / "node-1" / "state-change.log")
    logs = {
        TEXT: sorted(SAMPLE.glob("node-*")),
        METADATA: SAMPLE / "metadata-log.txt",
        BOTH: SAMPLE,
        ALTERED: folder / ALTERED,
    }
    config, tables = configuration(folder / "audit.toml", logs), folder / "tables"
    assert (
        main(["audit", "--config", str(config), "--tables", str(tables), "--engine", "local"]) == errors.CLEAN
    )
    return tables


def test_text_logs_of_restarted_controllers(audited: Path) -> None:
    verdict = judged(audited, TEXT)
    assert verdict.precise, truth.details(verdict)
    assert verdict.rows("mixed") == 0
    assert verdict.shown_assignments == verdict.true_assignments
    assert verdict.misses_by_reason()["missing"] == 0
    moved = rows_of(audited, "reassignments", TEXT)
    assert Counter(row["outcome"] for row in moved) == {"completed": 2}
    assert {row["source"] for row in rows_of(audited, "partition_timeline", TEXT)} == {"logs"}
    states = {row["state"] for row in rows_of(audited, "replica_timeline", TEXT)}
    assert states == {"KRaftOnline", "KRaftControlledShutdown", "KRaftFenced", "KRaftRemoved"}


@pytest.mark.parametrize("cluster", [METADATA, ALTERED])
def test_the_metadata_log_is_the_truth(audited: Path, cluster: str) -> None:
    verdict = judged(audited, cluster)
    assert (verdict.precise, verdict.misses) == (True, []), truth.details(verdict)


def test_the_metadata_log_wins_over_text_and_a_difference_is_a_finding(audited: Path) -> None:
    def checks(cluster: str) -> set[str]:
        return {row["check_id"] for row in rows_of(audited, "findings", cluster)}

    assert {row["source"] for row in rows_of(audited, "partition_timeline", BOTH)} == {"metadata_log"}
    assert "log_differs_from_metadata" not in checks(BOTH)
    assert "log_differs_from_metadata" in checks(ALTERED)


def test_text_read_in_another_zone_than_it_was_printed_in_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["audit", str(SAMPLE), "--cluster", "elsewhere", "--tables", str(tmp_path), "--engine", "local"]
    assert main([*given, "--timezone", "Asia/Tokyo"]) == errors.INPUT
    output = capsys.readouterr().out
    assert "9:00 h earlier than its metadata log" in output
    assert "--timezone" in output
    assert rows_of(tmp_path, "findings", "elsewhere") == []
