"""The audit reports each public incident of `tests/incidents`, and no other finding of severity warning or
above beside it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from incident_cases import INCIDENTS, PAGE, Finding, Incident, Line, incidents, renewed
from statements import KAFKA, version
from tables import rows_of

from jobs import errors
from jobs.nightly_audit import main

ALL = incidents()
WITH_LOGS = [incident for incident in ALL if not incident.signal]
NAMES = {"ids": lambda incident: incident.folder.name}
# statements that the catalogue lacks or words otherwise: (logger, begin of the text after the log ident)
NOT_IN_CATALOGUE = (
    # 2.1 to 2.4 print the end point of the leader, not its id
    ("kafka.server.ReplicaFetcherManager", "Added fetcher to broker BrokerEndPoint("),
    ("kafka.server.KafkaApis", "Error when handling request: "),
    ("kafka.server.KafkaRaftServer", "Kafka Server started"),
    ("org.apache.kafka.controller.ConfigurationControlManager", "Replayed ConfigRecord for "),
    ("org.apache.kafka.controller.QuorumController", "Creating new QuorumController with clusterId "),
    ("org.apache.kafka.controller.QuorumController", "Becoming the active controller at epoch "),
)


@pytest.fixture(scope="module")
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Finding]]:
    """Return the findings of severity warning or above of each incident whose test is selected, by the name
    of its folder.
    """
    folder = tmp_path_factory.mktemp("incidents")
    audited = [
        item.callspec.params["incident"]
        for item in request.session.items
        if item.path == request.path and "found" in getattr(item, "fixturenames", ())
    ]
    blocks = [
        f"[[cluster]]\nname = {json.dumps(one.folder.name)}\nlogs = [{json.dumps(str(one.folder))}]\n"
        for one in audited
    ]
    (folder / "audit.toml").write_text("\n".join(blocks))
    tables = folder / "tables"
    code = main(
        ["audit", "--config", str(folder / "audit.toml"), "--tables", str(tables), "--engine", "local"]
    )
    assert code in (errors.CLEAN, errors.FINDINGS)
    findings: dict[str, list[Finding]] = defaultdict(list)
    for row in rows_of(tables, "findings"):
        if row["severity"] != "info":
            findings[row["cluster"]].append(Finding.of(row))
    return findings


@pytest.mark.parametrize("incident", WITH_LOGS, **NAMES)
def test_it_is_found_and_nothing_else(incident: Incident, found: dict[str, list[Finding]]) -> None:
    """If a finding of `pending` or `wrong` appears or disappears, move it in incident.toml."""
    assert sorted(found[incident.folder.name], key=repr) == sorted(
        [*incident.expected, *incident.wrong], key=repr
    )


def test_there_are_45_incidents() -> None:
    assert [incident.number for incident in ALL] == list(range(1, 46))
    assert {path.name for path in INCIDENTS.iterdir()} == {incident.folder.name for incident in ALL}


@pytest.mark.parametrize("incident", ALL, **NAMES)
def test_an_incident_has_logs_or_names_another_signal(incident: Incident) -> None:
    has_logs = any(incident.lines())
    assert has_logs is not bool(incident.signal)
    assert bool(incident.expected or incident.pending) is bool(incident.line)
    assert bool(incident.expected or incident.pending) + bool(incident.signal) + bool(incident.right_is) == 1
    assert not set(incident.pending) & {*incident.expected, *incident.wrong}
    if incident.line:
        assert incident.first_line() is not None


def test_the_page_is_fresh() -> None:
    text = PAGE.read_text("utf-8")
    assert renewed(text) == text, "run `python -m tests.incident_cases --write`"


@pytest.fixture(scope="module")
def catalogue(shared: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the statements of the catalogues by the last part of their loggers; regex: of the text."""
    by_logger: dict[str, list[dict[str, Any]]] = defaultdict(list)
    entries = json.loads((KAFKA / "statements_zk.json").read_text("utf-8"))
    entries += json.loads((KAFKA / "statements_broker.json").read_text("utf-8"))["statements"]
    for entry in entries:
        spans = [
            (version(a), version(b or a))
            for a, _, b in (one.partition("..") for one in entry["versions"]["ranges"])
        ]
        by_logger[entry["logger"].strip("$")].append({"pattern": re.compile(entry["regex"]), "spans": spans})
    for entry in json.loads((KAFKA / "statements_kraft.json").read_text("utf-8")):
        first, _, last = entry["versions"].partition(" .. ")
        # the pattern includes header and time stamp; all patch releases of a minor release use the same words
        pattern = re.compile(entry["regex"])
        by_logger[entry["logger"].strip("$")].append(
            {"pattern": pattern, "spans": [(version(first)[:2], version(last)[:2])]}
        )
    return by_logger


def not_worded_as(incident: Incident, catalogue: dict[str, list[dict[str, Any]]]) -> Iterator[Line]:
    """Yield the lines of an incident that are no statement of its Kafka version."""
    kafka = version(incident.kafka)
    for line in incident.lines():
        texts = (
            line.text,
            *(f"[{line.at}] {level} {line.text} ({line.logger})" for level in ("INFO", "WARN", "ERROR")),
        )
        if not any(
            statement["pattern"].match(text)
            for statement in catalogue[line.logger.strip("$")]
            if any(
                first[: len(kafka)] <= kafka[: len(first)] and kafka[: len(last)] <= last
                for first, last in statement["spans"]
            )
            for text in texts
        ):
            yield line


def is_excepted(line: Line, exception: tuple[str, str]) -> bool:
    """Return whether a line is of an entry of NOT_IN_CATALOGUE."""
    return line.logger == exception[0] and exception[1] in line.text


@pytest.mark.shared
def test_the_logs_are_worded_as_in_their_version(catalogue: dict[str, list[dict[str, Any]]]) -> None:
    """No log is invented: each line is a statement of the catalogues, printed by that version."""
    unknown = {
        (incident.folder.name, line) for incident in WITH_LOGS for line in not_worded_as(incident, catalogue)
    }
    idle = [one for one in NOT_IN_CATALOGUE if not any(is_excepted(line, one) for _, line in unknown)]
    assert [
        pair for pair in sorted(unknown) if not any(is_excepted(pair[1], one) for one in NOT_IN_CATALOGUE)
    ] == []
    assert idle == []
