"""Audit faults and judge the checks: faults inserted into logs (`faults.FAULTS`), and of real clusters
(`recorder/scenarios` with a [fault]).

`python -m tests.faults_found --write` audits all of them in one run and rewrites the tables of
docs/reference/faults.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from faults import FAULTS, SAMPLES, Case, faulty, read, write  # noqa: E402

from jobs import errors  # noqa: E402
from jobs.nightly_audit import main as kafka_audit  # noqa: E402
from schemas.durations import two_units  # noqa: E402

RECORDED_LOGS = ROOT / "tests" / "recorded_faults"
PAGE = ROOT / "docs" / "reference" / "faults.md"


@dataclass(frozen=True)
class RecordedFault:
    """A fault of a real cluster. at: when it began, by the recorder's clock; detects, may: as of Case."""

    scenario: str
    name: str
    kafka: str
    at: datetime
    detects: frozenset[str]
    may: frozenset[str]

    @property
    def logs(self) -> Path:
        """The archive of the logs of all nodes."""
        return RECORDED_LOGS / f"{self.scenario}.tar.xz"


def recorded() -> list[RecordedFault]:
    """Return the faults of all scenarios that were recorded, by the scenarios' names."""
    found = []
    for path in sorted((ROOT / "tests" / "recorder" / "scenarios").glob("*.toml")):
        fault = tomllib.loads(path.read_text("utf-8")).get("fault")
        if fault is None or not (RECORDED_LOGS / f"{path.stem}.tar.xz").is_file():
            continue
        steps = [
            json.loads(line)
            for line in (RECORDED_LOGS / f"{path.stem}.jsonl").read_text("utf-8").splitlines()
        ]
        (at,) = (datetime.fromisoformat(step["ts"]) for step in steps if step["action"] == "fault")
        checks = (frozenset(fault[key]) for key in ("detects", "may"))
        found.append(RecordedFault(path.stem, fault["name"], fault["kafka"], at, *checks))
    return found


RECORDED = recorded()
# recordings that cases are based on, without a fault
UNCHANGED = sorted({case.recording for case in FAULTS})


def findings(
    folder: Path, cases: Iterable[Case] = FAULTS, faults_recorded: Iterable[RecordedFault] = RECORDED
) -> dict[str, list[dict[str, Any]]]:
    """Return what one audit finds at warning or above, by the name of the fault or the recording.

    cases, faults_recorded: those that are audited, with the recordings that the cases are based on.
    """
    logs, cases = {}, list(cases)
    unchanged = sorted({case.recording for case in cases})
    for number, (name, recording, faults) in enumerate(
        [
            *((case.name, case.recording, case.faults) for case in cases),
            *((name, name, ()) for name in unchanged),
        ]
    ):
        write(faulty(read(SAMPLES / recording), faults), folder / str(number))
        logs[name] = str(number)
    logs |= {fault.name: str(fault.logs) for fault in faults_recorded}
    blocks = [
        f"[[cluster]]\nname = {json.dumps(name)}\nlogs = [{json.dumps(path)}]\n"
        for name, path in logs.items()
    ]
    (folder / "audit.toml").write_text("\n".join(blocks), "utf-8")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = kafka_audit(
            [
                "audit",
                "--config",
                str(folder / "audit.toml"),
                "--tables",
                str(folder / "tables"),
                "--engine",
                "local",
                "--json",
            ]
        )
    assert code in (errors.CLEAN, errors.FINDINGS)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in logs}
    for finding in json.loads(out.getvalue())["findings"]:
        if finding["severity"] != "info":
            found[finding["cluster"]].append(finding)
    return found


@dataclass(frozen=True)
class Judged:
    """Names of checks that did, did not, and should not have reported a fault.

    consequences: checks that report its consequences.
    """

    detected: list[str]
    missed: list[str]
    consequences: list[str]
    false: list[str]


def checks_of(found: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the checks that raised findings."""
    return {finding["check_id"] for finding in found}


def judge(
    fault: Case | RecordedFault, found: set[str], usual: frozenset[str] | set[str] = frozenset()
) -> Judged:
    """Return how a fault was noticed. usual: checks that report the same recording without the fault."""
    new = found - usual
    sets = (
        fault.detects & found,
        fault.detects - found,
        new & fault.may - fault.detects,
        new - fault.detects - fault.may,
    )
    return Judged(*(sorted(names) for names in sets))


def _row(*cells: object) -> str:
    shown = (
        ", ".join(f"`{name}`" for name in cell) or "-" if isinstance(cell, list) else str(cell)
        for cell in cells
    )
    return f"| {' | '.join(shown)} |"


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def after(fault: RecordedFault, found: Iterable[Mapping[str, Any]]) -> str:
    """Return the time from the fault to the nearest begin of a finding of it; 0 if that is earlier."""
    begins = (
        datetime.fromisoformat(one["first_seen"]).replace(tzinfo=UTC)
        for one in found
        if one["check_id"] in fault.detects
    )
    delays = [(begin - fault.at).total_seconds() for begin in begins]
    return two_units(max(min(delays, key=abs), 0)) if delays else "-"


def tables(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Return the tables of the page, by the name of their place in it."""
    real = _head("fault", "Kafka", "detected by", "after", "missed by", "consequences", "false")
    for fault in RECORDED:
        one = judge(fault, checks_of(found[fault.name]))
        wait = after(fault, found[fault.name])
        real.append(
            _row(fault.name, fault.kafka, one.detected, wait, one.missed, one.consequences, one.false)
        )
    inserted = _head("fault", "detected by", "missed by", "false alarms")
    judged = {
        case.name: judge(case, checks_of(found[case.name]), checks_of(found[case.recording]))
        for case in FAULTS
    }
    inserted += [_row(name, one.detected, one.missed, one.false) for name, one in judged.items()]
    everything = [*judged.values(), *(judge(fault, checks_of(found[fault.name])) for fault in RECORDED)]
    counts = [
        Counter(name for one in everything for name in getattr(one, kind))
        for kind in ("detected", "missed", "false")
    ]
    by_check = _head("check", "faults detected", "missed", "false alarms")
    by_check += [
        _row(f"`{check}`", *(count[check] for count in counts)) for check in sorted(set().union(*counts))
    ]
    unchanged = _head("recording without a fault", "above info")
    unchanged += [_row(name, sorted(checks_of(found[name]))) for name in UNCHANGED]
    return {
        name: "\n".join(rows)
        for name, rows in (
            ("recorded", real),
            ("made", inserted),
            ("checks", by_check),
            ("unchanged", unchanged),
        )
    }


def page(text: str, shown: Mapping[str, str]) -> str:
    """Return the page with these tables."""
    for name, rows in shown.items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, times = mark.subn(lambda m, rows=rows: f"{m[1]}{rows}\n{m[2]}", text)
        assert times == 1, f"{PAGE} has no place for the table {name}"
    return text


def main(arguments: list[str]) -> int:
    """Print the tables, and write them with --write; 1 if a fault was missed or something else was reported."""
    with tempfile.TemporaryDirectory() as name:
        shown = tables(findings(Path(name)))
    print("\n\n".join(shown.values()))
    if "--write" in arguments:
        PAGE.write_text(page(PAGE.read_text("utf-8"), shown), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
